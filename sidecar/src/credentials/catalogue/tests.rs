use super::*;

fn built_in() -> Catalogue {
    Catalogue::new([]).unwrap()
}

const MINE: &str = "name = \"acme\"\nwhat = \"Acme\"\nhosts = [\"api.acme.example\"]\n\n[[shape]]\nname = \"token\"\n\
                    what = \"a token\"\npattern = \"acme_{base62:32}\"\nlong-lived = true\n\n[[kind]]\nname = \"acme-token\"\n\
                    what = \"token\"\nkind = \"bearer\"\nshapes = [\"token\"]\nplacements = [\"header authorization Bearer\"]\n";

#[test]
fn every_built_in_provider_is_well_formed_and_every_file_is_built_in() {
    let catalogue = built_in();
    let names: Vec<&str> = catalogue.providers().map(|provider| provider.name.as_str()).collect();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogue");
    let mut files: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    assert_eq!(names, files);
    // The providers that users were promised.
    for (kind, host) in [
        ("anthropic-api-key", "api.anthropic.com"),
        ("anthropic-account-token", "api.anthropic.com"),
        ("openai-api-key", "api.openai.com"),
        ("mistral-api-key", "api.mistral.ai"),
        ("gemini-api-key", "generativelanguage.googleapis.com"),
        ("vertex-api-key", "aiplatform.googleapis.com"),
        ("openrouter-api-key", "openrouter.ai"),
        ("groq-api-key", "api.groq.com"),
        ("xai-api-key", "api.x.ai"),
        ("deepseek-api-key", "api.deepseek.com"),
        ("together-api-key", "api.together.xyz"),
        ("github-pat", "api.github.com"),
        ("github-app-token", "api.github.com"),
        ("gitlab-pat", "gitlab.com"),
        ("bitbucket-access-token", "api.bitbucket.org"),
        ("bitbucket-api-token", "api.bitbucket.org"),
        ("hugging-face-token", "huggingface.co"),
        ("shopify-theme-access", "theme-kit-access.shopifyapps.com"),
        ("slack-bot-token", "slack.com"),
        ("slack-app-token", "slack.com"),
        ("discord-bot-token", "discord.com"),
        ("sentry-auth-token", "sentry.io"),
        ("linear-api-key", "api.linear.app"),
        ("notion-token", "api.notion.com"),
        ("stripe-api-key", "api.stripe.com"),
        ("cloudflare-api-token", "api.cloudflare.com"),
        ("vercel-token", "api.vercel.com"),
    ] {
        let kind = catalogue.kind(kind).unwrap();
        let host = host.parse().unwrap();
        assert!(kind.hosts.iter().any(|pattern| pattern.matches(&host)), "{}", kind.name);
    }
    for kind in ["shopify-admin-token", "container-registry", "package-registry-token"] {
        assert!(catalogue.kind(kind).unwrap().hosts.is_empty(), "{kind}: only the user knows its host");
    }
}

#[test]
fn an_unknown_kind_comes_with_the_likely_one_and_is_not_repeated_whole() {
    let catalogue = built_in();
    let error = catalogue.kind("github-pta").unwrap_err().to_string();
    assert_eq!(error, "there is no kind `github-pta`; did you mean `github-pat`?");
    let error = catalogue.kind("zz-0123456789abcdef").unwrap_err().to_string();
    assert!(error.contains("secrets kinds") && !error.contains("0123"), "{error}");
}

#[test]
fn a_directory_adds_and_overrides_and_a_broken_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(directory.path().join(file), text).unwrap();
    assert!(Catalogue::load(&directory.path().join("none")).is_ok());
    write("acme.toml", MINE);
    write("github.toml", &MINE.replace("acme", "github").replace("github-token", "github-pat"));
    write("notes.md", "not a provider");
    let catalogue = Catalogue::load(directory.path()).unwrap();
    assert!(catalogue.kind("acme-token").is_ok() && catalogue.kind("gitlab-pat").is_ok());
    assert!(catalogue.kind("github-app-token").is_err());
    assert_eq!(catalogue.kind("github-pat").unwrap().prefixes().as_deref(), Some("`github_`"));

    for (file, text, said) in [
        (
            "acme.toml",
            MINE.replacen("what", "wat", 1),
            "catalogue/acme.toml:2:1: unknown key `wat`; did you mean `what`?",
        ),
        ("other.toml", MINE.to_owned(), "other.toml: `name` is `acme`; it must be `other`"),
        (
            "acme.toml",
            MINE.replace("acme-token", "gitlab-pat"),
            "there is another kind `gitlab-pat`, of provider",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(file), text).unwrap();
        let error = Catalogue::load(directory.path()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}\nexpected {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("acme.toml")).unwrap();
    assert!(Catalogue::load(folder.path()).is_err());
}

const GITHUB: &str = "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";

#[test]
fn credentials_of_known_services_are_told_from_words() {
    let catalogue = built_in();
    let anthropic = format!("sk-ant-api03-{}AA", "Ab0_-".repeat(19).split_at(93).0);
    let openai = format!("sk-proj-{0}T3BlbkFJ{0}", "aB3_-xyz".repeat(10).split_at(74).0);
    let gemini = format!("AIza{}", "aB3_-xy".repeat(5));
    for (text, provider) in [
        (GITHUB.to_owned(), Some("GitHub")),
        (format!("Bearer {GITHUB}"), Some("GitHub")),
        (format!("/bot/{GITHUB}/send"), Some("GitHub")),
        (format!("?k={GITHUB}&x=1"), Some("GitHub")),
        (format!("\u{e9}{GITHUB}\u{e9}"), Some("GitHub")),
        (anthropic, Some("Anthropic")),
        (format!("realtime, openai-insecure-api-key.{openai}"), Some("OpenAI")),
        (format!("key={gemini}"), Some("Google")),
        ("AKIAABCDEFGHIJKLMNOP".to_owned(), Some("AWS")),
        // The checksum is wrong: a word like many.
        (GITHUB.replace("17", "18"), None),
        (format!("x{GITHUB}"), None),
        (format!("{GITHUB}x"), None),
        (format!("x_{GITHUB}"), None),
        ("/blog/sk-and-a-few-more-words-2024".to_owned(), None),
        ("npm_package_config_without_digits".to_owned(), None),
        ("claude-cli/2.1.332 (external, sdk-cli)".to_owned(), None),
        ("oauth-2025-04-20,prompt-caching-2024-07-31".to_owned(), None),
        (String::new(), None),
    ] {
        let found = catalogue.credential_in(text.as_bytes()).map(|shape| shape.what.clone());
        let same = provider.is_none_or(|name| found.as_deref().is_some_and(|what| what.starts_with(name)));
        assert!(same && found.is_some() == provider.is_some(), "{text}: {found:?}");
    }
}

#[test]
fn the_most_particular_shape_is_that_of_a_value() {
    let catalogue = built_in();
    let shape = |value: &str| catalogue.shape_of(value).map(|shape| shape.what.clone());
    assert_eq!(shape(GITHUB).as_deref(), Some("GitHub: a classic personal access token"));
    let router = format!("sk-or-v1-{}", "0123456789abcdef".repeat(4));
    assert!(shape(&router).unwrap().starts_with("OpenRouter"));
    assert_eq!(shape("an-ordinary-word-of-some-length"), None);
    // 32 letters of base 62 are a key of one provider, and anything else as well.
    assert_eq!(shape("abcdefghijklmnopqrstuvwxyzABCDEF"), None);
}

#[test]
fn endpoints_are_those_of_the_host_and_of_what_a_secret_there_is_like() {
    let catalogue = built_in();
    let creates = |host: &str, likes: &[&str]| {
        let host = host.parse().unwrap();
        catalogue.endpoints_at(&host, likes).map(|endpoint| endpoint.provider.clone()).collect::<Vec<_>>()
    };
    assert!(creates("api.github.com", &[]).iter().all(|provider| provider == "github"));
    assert!(!creates("api.github.com", &[]).is_empty());
    assert!(creates("git.example.com", &[]).is_empty());
    assert!(creates("git.example.com", &["gitlab-pat"]).iter().all(|provider| provider == "gitlab"));
    assert!(!creates("git.example.com", &["gitlab-pat"]).is_empty());
}

#[test]
fn what_is_not_confirmed_is_listed() {
    let lines = built_in().unconfirmed();
    assert!(!lines.is_empty() && lines.iter().all(|line| !line.contains('\n')), "{lines:#?}");
}
