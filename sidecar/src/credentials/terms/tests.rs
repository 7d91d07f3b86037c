use understudy_control::User;
use understudy_policies::Verdict;

use super::super::fixture::{Values, declared, vault};
use super::super::{Catalogue, InstallationKey, KnownStandIns, Loading, Surroundings};
use super::*;

const KEY: &str = "sk-ant-api03-REALrealREAL0123456789";
const TOKEN: &str = "sk-ant-oat01-REALrealREAL0123456789";
const GIT: &str = "ghp_REALrealREAL0123456789REALreal";

fn installation(names: &[&str]) -> Vault {
    let key = declared("key", "").replace("api.example.com", "api.anthropic.com");
    let token = key.replace("[key]", "[token]").replace("secrets/key", "secrets/token");
    let token =
        token.replace("\"api-key\"", "\"bearer\"").replace("placements = [\"header x-api-key\"]\n", "");
    let git = declared("git", "env = \"GIT_TOKEN\"\n");
    let mute = declared("mute", "");
    let all = [("key", key), ("token", token), ("git", git), ("mute", mute)];
    let text: String =
        all.into_iter().filter(|(name, _)| names.contains(name)).map(|(_, text)| text).collect();
    let values =
        Values::from([("key", KEY), ("token", TOKEN), ("git", GIT), ("mute", "mute-0123456789abcdef")]);
    vault(&text, &values)
}

fn prepare(annotations: &[(&str, &str)], env: &[(&str, &str)]) -> Prepare {
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
    };
    let mut annotations = map(annotations);
    annotations.entry(annotation::HARNESS.to_owned()).or_insert_with(|| "claude-code".to_owned());
    Prepare {
        id: "a".repeat(64).parse().unwrap(),
        name: None,
        image: None,
        annotations,
        user: User { uid: 0, gid: 0 },
        env: map(env),
        args: Vec::new(),
        managed: Vec::new(),
        joins: None,
        origin: None,
        mounts: None,
    }
}

fn started(vault: &Vault, annotations: &[(&str, &str)], env: &[(&str, &str)]) -> Result<Terms, Refusal> {
    let mut policies = Policies::default();
    policies.insert(Policy::parse("web", "web.toml", "[[allow]]\nhost = \"web.example\"").unwrap());
    policies.insert(Policy::failed("broken", "broken.toml:1:1: no"));
    terms(&prepare(annotations, env), &Harnesses::default(), &policies, vault)
}

fn value<'t>(terms: &'t Terms, name: &str) -> Option<&'t str> {
    terms.env.iter().find(|variable| variable.name == name).map(|variable| variable.value.as_str())
}

#[test]
fn a_harness_gets_its_login_its_policy_and_its_files() {
    let vault = installation(&["key", "git"]);
    let terms = started(&vault, &[], &[]).unwrap();
    let stand_in = vault.secret("key").unwrap().stand_in();
    assert_eq!(value(&terms, "ANTHROPIC_API_KEY"), Some(stand_in));
    assert_eq!((value(&terms, "DISABLE_TELEMETRY"), value(&terms, "GIT_TOKEN")), (Some("1"), None));
    assert_eq!(value(&terms, "CLAUDE_CODE_SANDBOXED"), Some("1"));
    assert_eq!((terms.harness.as_str(), terms.grants.names()), ("claude-code", vec!["key".to_owned()]));
    assert_eq!(terms.policy.label(), "harness-only");
    let decide = |host: &str| terms.policy.decide(&host.parse().unwrap(), 443);
    assert!(matches!(decide("api.anthropic.com"), Verdict::Allowed { .. }));
    for host in ["platform.claude.com", "http-intake.logs.us5.datadoghq.com", "downloads.claude.ai"] {
        assert_eq!(decide(host), Verdict::NoHost, "{host}");
    }
    assert_eq!(terms.placement.stand_ins, [stand_in]);
    let files: Vec<_> =
        terms.placement.files.iter().map(|file| (file.path.as_str(), file.mode, file.write)).collect();
    assert_eq!(files, [("~/.claude.json", 0o600, Write::MergeJson); 2]);
    assert!(terms.placement.files[1].content.contains(&stand_in[stand_in.len() - 20..]));
    let checked: Vec<_> = terms.placement.login_files.iter().map(|file| file.path.as_str()).collect();
    for path in ["~/.claude/.credentials.json", "~/.claude/.credentials.json.previous"] {
        assert!(checked.contains(&path), "{checked:?}");
    }
    assert!(terms.notes.is_empty(), "{:?}", terms.notes);
}

#[test]
fn no_real_value_is_in_what_a_container_gets() {
    let vault = installation(&["key", "git"]);
    let terms = started(&vault, &[(annotation::SECRETS, "key,git")], &[]).unwrap();
    let shown = format!("{terms:?} {}", serde_json::to_string(&terms.placement).unwrap());
    assert!(!shown.contains("REALreal") && vault.real_value_in(shown.as_bytes()).is_none());
    assert_eq!(value(&terms, "GIT_TOKEN"), Some(vault.secret("git").unwrap().stand_in()));
}

#[test]
fn the_account_token_is_another_login() {
    let vault = installation(&["token"]);
    let terms = started(&vault, &[], &[]).unwrap();
    assert_eq!(value(&terms, "CLAUDE_CODE_OAUTH_TOKEN"), Some(vault.secret("token").unwrap().stand_in()));
    assert_eq!(value(&terms, "ANTHROPIC_API_KEY"), None);
    assert!(terms.placement.files.iter().all(|file| !file.content.contains("customApiKeyResponses")));
}

#[test]
fn policies_are_named_and_hosts_added() {
    let vault = installation(&["key"]);
    for (policy, allow, label, open, closed) in [
        (Some("harness-only,web"), None, "harness-only+web", "web.example", "x.example"),
        (Some("web"), None, "web", "web.example", "api.anthropic.com"),
        (Some("locked"), None, "locked", "", "api.anthropic.com"),
        (Some(""), None, "locked", "", "api.anthropic.com"),
        (None, Some("x.example"), "harness-only+understudy.allow", "x.example", "web.example"),
        (Some("harness-only broken"), None, "harness-only+broken", "", "api.anthropic.com"),
    ] {
        let annotations = policy.map(|p| (annotation::POLICY, p)).into_iter();
        let annotations: Vec<_> = annotations.chain(allow.map(|a| (annotation::ALLOW, a))).collect();
        let terms = started(&vault, &annotations, &[]).unwrap();
        assert_eq!(terms.policy.label(), label);
        let allowed =
            |host: &str| matches!(terms.policy.decide(&host.parse().unwrap(), 443), Verdict::Allowed { .. });
        assert!(open.is_empty() || allowed(open), "{label} {open}");
        assert!(!allowed(closed), "{label} {closed}");
        assert_eq!(label.contains("broken"), terms.notes.iter().any(|note| note.contains("broken.toml:1:1")));
    }
}

#[test]
fn generic_is_the_default_and_gets_nothing_by_itself() {
    let vault = installation(&["key"]);
    let mut prepare = prepare(&[], &[]);
    prepare.annotations.clear();
    let terms = terms(&prepare, &Harnesses::default(), &Policies::default(), &vault).unwrap();
    assert_eq!((terms.harness.as_str(), terms.grants.names()), ("generic", vec![]));
    assert!(!terms.policy.may_permit(&"api.anthropic.com".parse().unwrap()));
    assert!(terms.placement.files.is_empty() && terms.notes.is_empty());
}

#[test]
fn refusals_name_the_annotation_or_variable_and_the_way_out() {
    let all = installation(&["key", "git", "mute"]);
    let base64 = "c2stYW50LWFwaTAzLVJFQUxyZWFsUkVBTDAxMjM0NTY3ODk=";
    let none: &[(&str, &str)] = &[];
    for (annotations, env, reason, remedy) in [
        (
            [(annotation::HARNESS, "claude-cod")].as_slice(),
            none,
            "understudy.harness: there is no harness",
            "`claude-code`?",
        ),
        (&[(annotation::HARNESS, "zzzz")], none, "no harness `zzzz`", "known are: aider, amp, claude-code"),
        (
            &[(annotation::POLICY, "wep")],
            none,
            "understudy.policy: there is no policy `wep`",
            "did you mean `web`?",
        ),
        (&[(annotation::POLICY, "harness-onyl")], none, "no policy", "did you mean `harness-only`?"),
        (
            &[(annotation::POLICY, "qqqq")],
            none,
            "no policy",
            "known are: broken, git-hosts, github-pr, locked, open, web, harness-only (a file that was just written is known",
        ),
        (&[(annotation::ALLOW, "*")], none, "understudy.allow: \"*\": a bare `*`", "write host names"),
        (&[(annotation::NETWORK, "host")], none, "understudy.network: \"host\"", "--network=none"),
        (&[(annotation::PRIVACY, "stirct")], none, "no privacy level `stirct`", "did you mean `strict`?"),
        (&[(annotation::SECRETS, "gti")], none, "no secret `gti`", "did you mean `git`?"),
        (&[(annotation::SECRETS, "mute")], none, "secret `mute` has no variable", "add `env ="),
        (
            &[(annotation::SECRETS, GIT)],
            none,
            "annotation understudy.secrets holds the real value of secret `git`",
            "name",
        ),
        (
            &[],
            &[("MY_KEY", KEY)],
            "variable `MY_KEY` holds the real value of secret `key`",
            "without `--env MY_KEY`",
        ),
        (
            &[],
            &[("JSON", "{\"k\":\"ghp_REALrealREAL0123456789REALreal\"}")],
            "`JSON` holds the real value of secret `git`",
            "--env",
        ),
        (&[], &[("ENCODED", base64)], "`ENCODED` holds the real value of secret `key`", "--env"),
        (&[], &[(KEY, "x")], "the name of an environment variable holds", "without that variable"),
        (
            &[],
            &[("ANTHROPIC_AUTH_TOKEN", "x")],
            "variable `ANTHROPIC_AUTH_TOKEN` is set: it is sent instead",
            "--env",
        ),
    ] {
        let refusal = started(&all, annotations, env).unwrap_err();
        assert!(
            refusal.reason.contains(reason) && refusal.remedy.contains(remedy),
            "{refusal}\nexpected {reason}"
        );
        assert!(!refusal.to_string().contains("REALreal"), "{refusal}");
    }
}

#[test]
fn a_real_value_in_the_command_is_refused() {
    let mut request = prepare(&[], &[]);
    request.args = vec!["sh".to_owned(), "-c".to_owned(), format!("export K={KEY}; exec claude")];
    let refusal =
        terms(&request, &Harnesses::default(), &Policies::default(), &installation(&["key"])).unwrap_err();
    assert!(refusal.reason.contains("argument 2") && refusal.reason.contains("secret `key`"), "{refusal}");
    assert!(!refusal.to_string().contains("REALreal"), "{refusal}");
}

#[test]
fn what_looks_like_a_credential_is_refused_unless_it_is_a_stand_in_or_is_replaced() {
    let vault = installation(&["key"]);
    let foreign = format!("sk-ant-api03-{}AA", "x1Y-".repeat(24).get(..93).unwrap());
    let refusal = started(&vault, &[], &[("MY_KEY", &foreign)]).unwrap_err();
    assert!(refusal.reason.contains("`MY_KEY` holds what looks like a real credential"), "{refusal}");
    assert!(refusal.remedy.contains("secrets add") && !refusal.to_string().contains(&foreign), "{refusal}");
    let mut request = prepare(&[], &[]);
    request.args = vec!["sh".to_owned(), format!("K={foreign} claude")];
    let refusal = terms(&request, &Harnesses::default(), &Policies::default(), &vault).unwrap_err();
    assert!(refusal.reason.contains("argument 1"), "{refusal}");

    let stand_in = vault.secret("key").unwrap().stand_in().to_owned();
    started(&vault, &[], &[("MY_KEY", &stand_in), ("ANTHROPIC_API_KEY", &foreign)]).unwrap();
}

#[test]
fn a_file_of_passwords_that_is_there_is_looked_at() {
    let declared = |name: &str, user: &str| {
        format!(
            "[{name}]\nkind = \"postgres\"\nfile = \"/run/secrets/{name}\"\nhosts = \"db.example\"\nuser = {user:?}\n\
             grant-to = {{ harnesses = [\"claude-code\"] }}\n"
        )
    };
    let values = Values::from([("one", "correct-horse-battery"), ("two", "wrong-horse-battery")]);
    let vault = vault(&(declared("one", "app") + &declared("two", "admin")), &values);
    let terms = started(&vault, &[(annotation::SECRETS, "one")], &[]).unwrap();
    let looked_at = |terms: &Terms| {
        let mut files = terms.placement.login_files.iter();
        files.any(|file| file.path == "~/.pgpass" && file.pointers == ["pgpass"])
    };
    assert!(looked_at(&terms));
    // Also one that was placed when it was given another.
    for name in ["one", "two"] {
        assert!(terms.placement.stand_ins.iter().any(|text| text == vault.secret(name).unwrap().stand_in()));
    }
    assert!(!looked_at(&started(&vault, &[], &[]).unwrap()));
}

/// A home that is kept holds its stand-in in a line, and that line stays.
#[test]
fn a_secret_that_is_gone_keeps_no_container_from_starting() {
    let declared = |name: &str| {
        format!(
            "[{name}]\nkind = \"postgres\"\nfile = \"/run/secrets/{name}\"\nhosts = \"db.example\"\nuser = \"app\"\n\
             grant-to = {{ harnesses = [\"claude-code\"] }}\n"
        )
    };
    let directory = tempfile::tempdir().unwrap();
    let catalogue = Arc::new(Catalogue::new([]).unwrap());
    let key = InstallationKey::from_bytes(&[1; 32]);
    let around = Surroundings { podman_secrets: directory.path().to_owned(), ..Surroundings::default() };
    for (name, value) in [("gone", "correct-horse-battery"), ("there", "wrong-horse-battery")] {
        std::fs::write(directory.path().join(name), value).unwrap();
    }
    let load = |text: &str, known: &KnownStandIns| {
        let file = directory.path().join("secrets.toml");
        let text = text.replace("file = \"/run/secrets/", "podman-secret = \"");
        std::fs::write(&file, text).unwrap();
        let loading = Loading {
            catalogue: &catalogue,
            key: &key,
            around: &around,
            known,
            previous: None,
            ask_again: false,
        };
        Vault::load(&file, loading).unwrap()
    };
    let before = load(&(declared("gone") + &declared("there")), &KnownStandIns::default());
    let known = KnownStandIns::default().with(&before);
    let after = load(&declared("there"), &known);
    let terms = started(&after, &[(annotation::SECRETS, "there")], &[]).unwrap();
    for secret in before.secrets() {
        assert!(terms.placement.stand_ins.iter().any(|text| text == secret.stand_in()), "{}", secret.name());
    }
}

#[test]
fn two_secrets_for_one_variable_are_refused() {
    let text = declared("one", "env = \"TOKEN\"\n") + &declared("two", "env = \"TOKEN\"\n");
    let vault =
        vault(&text, &Values::from([("one", "one-0123456789abcdef"), ("two", "two-0123456789abcdef")]));
    let refusal = started(&vault, &[(annotation::SECRETS, "one two")], &[]).unwrap_err();
    assert!(refusal.reason.contains("variable `TOKEN` of secret `two`"), "{refusal}");
}

#[test]
fn what_the_container_had_is_replaced_or_noted() {
    let vault = installation(&["key"]);
    let stand_in = vault.secret("key").unwrap().stand_in().to_owned();
    let notes = |env: &[(&str, &str)]| started(&vault, &[], env).unwrap().notes;
    assert_eq!(
        notes(&[("ANTHROPIC_API_KEY", "sk-my-own")]),
        ["the container's own value of ANTHROPIC_API_KEY was replaced"]
    );
    assert!(notes(&[("ANTHROPIC_API_KEY", &stand_in), ("ANTHROPIC_AUTH_TOKEN", &stand_in)]).is_empty());
    assert!(notes(&[("ANTHROPIC_AUTH_TOKEN", ""), ("DISABLE_TELEMETRY", "1")]).is_empty());
    let noted = notes(&[("ANTHROPIC_BASE_URL", "https://proxy.example")]);
    assert!(noted.len() == 1 && noted[0].contains("`ANTHROPIC_BASE_URL` is set"), "{noted:?}");
    assert!(notes(&[]).is_empty());
}

#[test]
fn without_a_secret_it_starts_and_says_so() {
    let terms = started(&installation(&[]), &[], &[]).unwrap();
    assert!(terms.notes[0].contains("claude-code has no login"), "{:?}", terms.notes);
    assert!(terms.grants.names().is_empty() && terms.placement.stand_ins.is_empty());
}

/// A vault with a key of one host that is granted to these harnesses, and a token of GitHub's for its tools.
fn shared(granted: &str) -> Vault {
    let key = declared("key", "").replace("api.example.com", "api.anthropic.com");
    let key = key.replace("\"claude-code\"", granted);
    let token = declared("hub", "").replace("api.example.com\"", "api.github.com\", \"github.com\"");
    let token =
        token.replace("\"api-key\"", "\"bearer\"").replace("placements = [\"header x-api-key\"]\n", "");
    let token = token.replace("\"claude-code\"", "\"gh\", \"git\"");
    vault(&format!("{key}{token}"), &Values::from([("key", KEY), ("hub", GIT)]))
}

#[test]
fn several_harnesses_get_what_each_needs() {
    let vault = shared("\"claude-code\"");
    let terms = started(&vault, &[(annotation::HARNESS, "claude-code, gh,git gh")], &[]).unwrap();
    assert_eq!(
        (terms.harness.as_str(), terms.grants.names()),
        ("claude-code,gh,git", vec!["hub".into(), "key".into()])
    );
    let stand_in = |name| Some(vault.secret(name).unwrap().stand_in());
    assert_eq!(
        (value(&terms, "ANTHROPIC_API_KEY"), value(&terms, "GH_TOKEN")),
        (stand_in("key"), stand_in("hub"))
    );
    assert_eq!(value(&terms, "GIT_TERMINAL_PROMPT"), Some("0"));
    for path in ["~/.claude.json", "~/.config/gh/hosts.yml", "~/.config/git/credentials"] {
        assert!(terms.placement.files.iter().any(|file| file.path == path), "{path}");
    }
    let allowed =
        |host: &str| matches!(terms.policy.decide(&host.parse().unwrap(), 443), Verdict::Allowed { .. });
    assert!(["api.anthropic.com", "api.github.com", "github.com"].into_iter().all(allowed));
    assert!(!allowed("platform.claude.com"));
    // What is asked for by name goes to those that can use it, and nothing else is given.
    let asked = [(annotation::HARNESS, "claude-code,gh"), (annotation::SECRETS, "hub")];
    let terms = started(&vault, &asked, &[]).unwrap();
    assert_eq!((value(&terms, "GH_TOKEN"), value(&terms, "ANTHROPIC_API_KEY")), (stand_in("hub"), None));
    // A level that one of them has: the others keep theirs.
    let asked = [(annotation::HARNESS, "gh,claude-code"), (annotation::PRIVACY, "remote-control")];
    let terms = started(&vault, &asked, &[]).unwrap();
    assert_eq!((value(&terms, "DISABLE_TELEMETRY"), value(&terms, "DO_NOT_TRACK")), (Some("1"), Some("1")));
    assert_eq!(value(&terms, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"), None);
}

#[test]
fn the_login_of_an_earlier_start_is_no_real_one() {
    let vault = installation(&["key", "token"]);
    let terms = started(&vault, &[(annotation::SECRETS, "token")], &[]).unwrap();
    let mut stand_ins = ["key", "token"].map(|name| vault.secret(name).unwrap().stand_in());
    stand_ins.sort_unstable();
    assert_eq!(
        (terms.grants.names(), terms.placement.stand_ins),
        (vec!["token".into()], stand_ins.map(str::to_owned).to_vec())
    );
}

#[test]
fn harnesses_that_contradict_each_other_are_refused() {
    let vault = shared("\"claude-code\", \"opencode\"");
    assert!(started(&vault, &[(annotation::HARNESS, "claude-code,opencode")], &[]).is_ok());
    // The agent would use the other one's key instead of its own token.
    let key = declared("key", "")
        .replace("api.example.com", "api.anthropic.com")
        .replace("claude-code", "opencode");
    let token = key
        .replace("[key]", "[token]")
        .replace("secrets/key", "secrets/token")
        .replace("opencode", "claude-code");
    let token =
        token.replace("\"api-key\"", "\"bearer\"").replace("placements = [\"header x-api-key\"]\n", "");
    let two = key
        .replace("[key]", "[two]")
        .replace("secrets/key", "secrets/two")
        .replace("opencode", "claude-code");
    for (text, said) in [
        (format!("{key}{token}"), "`ANTHROPIC_API_KEY` is a trap for claude-code"),
        (format!("{key}{two}"), "different values of variable `ANTHROPIC_API_KEY`"),
    ] {
        let values =
            Values::from([("key", KEY), ("token", TOKEN), ("two", "sk-ant-api03-TWOTWOtwotwo0123456789")]);
        let vault = super::super::fixture::vault(&text, &values);
        let refusal = started(&vault, &[(annotation::HARNESS, "claude-code,opencode")], &[]).unwrap_err();
        assert!(refusal.reason.contains("claude-code, opencode cannot be in one container"), "{refusal}");
        assert!(refusal.reason.contains(said), "{refusal}");
    }
    let refusal = started(&vault, &[(annotation::HARNESS, "claude-code,gti")], &[]).unwrap_err();
    assert!(refusal.remedy.contains("did you mean `git`?"), "{refusal}");
}
