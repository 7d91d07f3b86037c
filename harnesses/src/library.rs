//! The descriptors that a container can name: those that are compiled in, and those of a directory, which win.

use std::collections::BTreeMap;
use std::path::Path;

use understudy_policies::document::closest;

use crate::Descriptor;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, concat!($name, ".toml (built in)"), include_str!(concat!("../data/", $name, ".toml")))),*]
    };
}

/// Name, file for messages, text.
const BUILT_IN: &[(&str, &str, &str)] = &built_in![
    "aider",
    "amp",
    "claude-code",
    "codex",
    "copilot",
    "crush",
    "cursor-agent",
    "gemini-cli",
    "generic",
    "gh",
    "git",
    "goose",
    "mistral-vibe",
    "opencode",
    "pi",
    "qwen-code",
    "shopify",
];

/// By name. A descriptor that cannot be used keeps its name, so that naming it is refused with the reason, and the
/// built-in one of the same name does not quietly take its place.
#[derive(Debug, Clone)]
pub struct Harnesses {
    by_name: BTreeMap<String, Result<Descriptor, String>>,
    /// Why a descriptor of `by_name` is what an earlier file said.
    stale: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HarnessError {
    #[error("there is no harness `{name}`")]
    Unknown { name: String, suggestion: Option<String>, known: Vec<String> },
    #[error("the descriptor of harness `{name}` cannot be used: {error}")]
    Broken { name: String, error: String },
}

impl Harnesses {
    /// Reads every `NAME.toml` in `directory`; one that does not exist has none.
    pub fn load(directory: Option<&Path>) -> Self {
        let mut harnesses = Self::default();
        let Some(entries) = directory.and_then(|directory| std::fs::read_dir(directory).ok()) else {
            return harnesses;
        };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.extension().is_some_and(|extension| extension == "toml") {
                let (name, descriptor) = read(&path);
                harnesses.by_name.insert(name, descriptor);
            }
        }
        harnesses
    }

    /// What `before` has stays in force where the same file cannot be used any more; `problems` says so.
    #[must_use]
    pub fn or_before(mut self, before: &Self) -> Self {
        for (name, descriptor) in &mut self.by_name {
            let good = before.by_name.get(name).and_then(|before| before.as_ref().ok());
            if let (Err(error), Some(good)) = (&descriptor, good) {
                self.stale.insert(name.clone(), error.clone());
                *descriptor = Ok(good.clone());
            }
        }
        self
    }

    pub fn harness(&self, name: &str) -> Result<&Descriptor, HarnessError> {
        match self.by_name.get(name) {
            Some(Ok(descriptor)) => Ok(descriptor),
            Some(Err(error)) => Err(HarnessError::Broken { name: name.to_owned(), error: error.clone() }),
            None => Err(HarnessError::Unknown {
                name: name.chars().take(80).collect(),
                suggestion: closest(name, self.names()).map(str::to_owned),
                known: self.names().map(str::to_owned).collect(),
            }),
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// One line for each descriptor that cannot be used.
    pub fn problems(&self) -> Vec<String> {
        let broken = self.by_name.iter().filter_map(|(name, harness)| Some((name, harness.as_ref().err()?)));
        let broken = broken.map(|(name, error)| format!("harness `{name}`: {error}"));
        let stale = self.stale.iter();
        let stale = stale
            .map(|(name, error)| format!("harness `{name}`: {error}; what it said before stays in force"));
        broken.chain(stale).collect()
    }
}

/// The built-in ones alone.
impl Default for Harnesses {
    fn default() -> Self {
        let parse = |&(name, file, text): &(&str, &str, &str)| (name.to_owned(), parse(name, file, text));
        Self { by_name: BUILT_IN.iter().map(parse).collect(), stale: BTreeMap::new() }
    }
}

fn read(path: &Path) -> (String, Result<Descriptor, String>) {
    let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    let descriptor = match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(format!("{file}: not a file")),
        _ => std::fs::read_to_string(path)
            .map_err(|error| format!("{file}: {error}"))
            .and_then(|text| parse(&name, &file, &text)),
    };
    (name, descriptor)
}

fn parse(name: &str, file: &str, text: &str) -> Result<Descriptor, String> {
    let descriptor = Descriptor::parse(file, text).map_err(|error| error.to_string())?;
    if descriptor.name != name {
        return Err(format!(
            "{file}: `name` is `{}`; it must be `{name}`, as the file is called",
            descriptor.name
        ));
    }
    Ok(descriptor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Purpose, SecretKind};

    #[test]
    fn built_in_descriptors_are_well_formed() {
        let harnesses = Harnesses::default();
        assert_eq!(harnesses.problems(), Vec::<String>::new());
        assert!(BUILT_IN.iter().map(|(name, ..)| *name).is_sorted());
        assert_eq!(harnesses.names().count(), BUILT_IN.len());
    }

    #[test]
    fn claude_code_has_what_its_users_need() {
        let harnesses = Harnesses::default();
        let claude = harnesses.harness("claude-code").unwrap();
        let allowed = |level| {
            claude.allowed_hosts(None, claude.level(level)).map(|host| host.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(allowed(None), ["api.anthropic.com"]);
        assert_eq!(allowed(Some("standard")).len(), 3);
        assert!(!claude.hosts.of(Purpose::Telemetry).is_empty());
        let logins: Vec<_> = claude.logins.iter().map(|login| (login.name.as_str(), login.kind)).collect();
        assert_eq!(
            logins,
            [
                ("api-key", SecretKind::ApiKey),
                ("account-token", SecretKind::Bearer),
                ("account", SecretKind::Oauth)
            ]
        );
        let env = |level| claude.privacy(level).flat_map(|level| level.env.keys()).collect::<Vec<_>>();
        let remote = env("remote-control");
        assert!(remote.contains(&&"DISABLE_TELEMETRY".to_owned()) && env("standard").is_empty());
        assert!(!remote.contains(&&"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC".to_owned()));
        assert_eq!((env(&claude.privacy.default).len(), env("none").len()), (remote.len() + 1, 0));
        let stand_in = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz";
        let file = claude.logins[0].files[0].content.render_json(crate::Filling::of(stand_in)).unwrap();
        assert!(file.contains("\"ghijklmnopqrstuvwxyz\"") && !file.contains("sk-ant"), "{file}");
    }

    #[test]
    fn the_login_file_of_an_account_is_whole_and_says_nothing_that_is_not_known() {
        let harnesses = Harnesses::default();
        let codex = harnesses.harness("codex").unwrap();
        let account = serde_json::json!({"account-id": "acc-1", "scopes": ["user:profile"]});
        let filling =
            crate::Filling { stand_in: "a.b.c", refresh: "rt_1", id: "d.e.f", account: account.as_object() };
        let of = |harness: &Descriptor, login: usize, file: usize| -> serde_json::Value {
            let text = harness.logins[login].files[file].content.render_json(filling).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let tokens = serde_json::json!({"id_token": "d.e.f", "access_token": "a.b.c", "refresh_token": "rt_1", "account_id": "acc-1"});
        assert_eq!(of(codex, 0, 0)["tokens"], tokens);
        let claude = harnesses.harness("claude-code").unwrap();
        let oauth = serde_json::json!({"accessToken": "a.b.c", "refreshToken": "rt_1", "expiresAt": 4_102_444_800_000_u64, "scopes": ["user:profile"]});
        assert_eq!(of(claude, 2, 0), serde_json::json!({"claudeAiOauth": oauth}));
        assert_eq!(of(claude, 2, 1), serde_json::json!({"oauthAccount": {"accountUuid": "acc-1"}}));
        let config = codex.privacy.levels["strict"].files[0].content.render(crate::Filling::default());
        assert!(toml::from_str::<toml::Table>(&config).unwrap().contains_key("analytics"));
    }

    #[test]
    fn every_agent_has_the_levels_and_says_what_proves_it() {
        let harnesses = Harnesses::default();
        for name in harnesses.names() {
            let harness = harnesses.harness(name).unwrap();
            assert!(
                harness.privacy.default == "strict" && harness.privacy.levels.contains_key("standard"),
                "{name}"
            );
            assert_eq!(harness.smoke.is_empty(), name == "generic", "{name}");
            // What holds no login of the agent's own is nothing that could be found in an image.
            assert_eq!(harness.login_files.is_empty(), name == "generic", "{name}");
            for login in &harness.logins {
                let hosts: Vec<String> =
                    harness.allowed_hosts(Some(login), "strict").map(|host| host.to_string()).collect();
                assert!(hosts.contains(&login.host.to_string()), "{name}: {} is not allowed", login.host);
                for host in harness.hosts.of(Purpose::Telemetry) {
                    assert!(!hosts.contains(&host.0.to_string()), "{name}: {host:?}");
                }
            }
        }
    }

    #[test]
    fn a_host_of_one_login_is_not_allowed_with_another() {
        let harnesses = Harnesses::default();
        let opencode = harnesses.harness("opencode").unwrap();
        assert_eq!(opencode.allowed_hosts(None, "strict").count(), 0);
        let login = |name| opencode.logins.iter().find(|login| login.name == name);
        let allowed = |name| {
            opencode.allowed_hosts(login(name), "strict").map(|host| host.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(allowed("openai"), ["api.openai.com"]);
        assert_eq!(allowed("anthropic"), ["api.anthropic.com"]);
    }

    #[test]
    fn a_directory_overrides_and_a_broken_file_is_not_replaced_by_the_built_in_one() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(directory.path().join(file), text).unwrap();
        write("claude-code.toml", "nam = \"claude-code\"");
        let generic = include_str!("../data/generic.toml");
        write("mine.toml", &generic.replace("\"generic\"", "\"mine\""));
        write("other.toml", generic);
        let harnesses = Harnesses::load(Some(directory.path()));
        assert!(harnesses.harness("mine").is_ok() && harnesses.harness("generic").is_ok());
        let error = harnesses.harness("claude-code").unwrap_err().to_string();
        assert!(error.contains("claude-code.toml:1:1: unknown key `nam`; did you mean `name`?"), "{error}");
        let error = harnesses.harness("other").unwrap_err().to_string();
        assert!(error.contains("it must be `other`"), "{error}");
        assert_eq!(harnesses.problems().len(), 2);
    }

    #[test]
    fn a_file_that_breaks_leaves_what_it_said_before() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("mine.toml");
        let good = include_str!("../data/generic.toml").replace("\"generic\"", "\"mine\"");
        std::fs::write(&file, good).unwrap();
        let mut harnesses = Harnesses::load(Some(directory.path()));
        std::fs::write(&file, "nam = \"mine\"").unwrap();
        // Also when it is looked at again.
        for _ in 0..2 {
            harnesses = Harnesses::load(Some(directory.path())).or_before(&harnesses);
            assert!(harnesses.harness("mine").is_ok());
            let problems = harnesses.problems();
            assert!(problems.len() == 1 && problems[0].ends_with("stays in force"), "{problems:?}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(Harnesses::load(Some(directory.path())).or_before(&harnesses).harness("mine").is_err());
    }

    #[test]
    fn the_example_of_the_documentation_is_well_formed() {
        let (_, rest) = include_str!("../../docs/harnesses.md").split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let descriptor = Descriptor::parse("my-agent.toml", text).unwrap();
        assert_eq!((descriptor.logins[0].traps.len(), descriptor.logins[0].files.len()), (1, 1));
    }

    #[test]
    fn an_unknown_name_comes_with_the_likely_one() {
        let error = Harnesses::default().harness("claude").unwrap_err();
        let HarnessError::Unknown { suggestion, .. } = &error else { panic!("{error}") };
        assert_eq!(suggestion.as_deref(), Some("claude-code"));
    }

    #[test]
    fn mistakes_that_the_schema_allows_are_found() {
        let generic = include_str!("../data/generic.toml");
        let file = |path: &str, mode: &str, write: &str, content: &str| {
            format!(
                "{generic}\n[[file]]\npath = {path:?}\nmode = {mode}\nwrite = {write:?}\ncontent = {content:?}\n"
            )
        };
        for (text, said) in [
            (
                generic.replace("harness-only = []", "harness-only = [\"telemetry\"]"),
                "must not contain `telemetry`",
            ),
            (generic.replace("harness-only = []", "harness-only = [\"apy\"]"), "did you mean `api`?"),
            (generic.replace("default = \"strict\"", "default = \"stirct\""), "no level `stirct`"),
            (
                generic.replace("[privacy.levels.standard]", "[privacy.levels.standard]\nextends = \"x\""),
                "does not exist",
            ),
            (
                generic
                    .replace("[privacy.levels.strict]", "[privacy.levels.strict]\nhosts = [\"telemetry\"]"),
                "the default, must not have `telemetry`",
            ),
            (generic.replace("proven = []", "proven = [\"1\"]"), "`unproven` is for a descriptor"),
            (generic.replace("unproven =", "description2 ="), "unknown key `description2`"),
            (
                generic.replace("unproven = \"it stands for no program of its own\"\n", ""),
                "`unproven` must say why",
            ),
            (generic.replace("harness-only", "instructions = [\"x.md\"]\nharness-only"), "must be absolute"),
            (file("~/x", "0o600", "merge-env", "A B=1"), "`A B` is not the name"),
            (
                format!("{generic}\n[[login-file]]\npath = \"~/x\"\npointers = [\"toml:x\"]\n"),
                "neither a JSON pointer",
            ),
            (format!("{generic}\n[[moved]]\nby = \"A B\"\nfrom = \"~/.x\"\n"), "`A B` is not the name"),
            (format!("{generic}\n[[moved]]\nby = \"X_HOME\"\nfrom = \".x\"\n"), "must be absolute"),
            (
                format!("{generic}\n[[moved]]\nby = \"X_HOME\"\nfrom = \"~/.x\"\nto = \"../x\"\n"),
                "below the variable's directory",
            ),
            (generic.replace("DO_NOT_TRACK", "\"A=B\""), "`A=B` is not the name"),
            (format!("{generic}\n[env]\n\"A B\" = \"1\"\n"), "`A B` is not the name"),
            (file("~/../x", "0o600", "create", ""), "must be absolute"),
            (file("x", "0o600", "create", ""), "must be absolute"),
            (file("~/x", "600000", "create", ""), "permission bits"),
            (file("~/x", "0o600", "merge-json", "[]"), "not a JSON object"),
            (file("~/x", "0o600", "creat", ""), "did you mean `create`?"),
            (file("~/x", "0o600", "create", "{stand-in}"), "`[[login.file]]` only"),
            (file("~/x", "0o600", "create", "{stand-in:x}"), "unknown template"),
            (
                format!("{generic}\n[[login]]\nname = \"x\"\nkind = \"bearer\"\nhost = \"a.example\"\n"),
                "in none of `[hosts]`",
            ),
            (
                format!(
                    "{generic}\n[hosts]\napi = [\"*.b.example\"]\n[[login]]\nname = \"x\"\nkind = \"bearer\"\nhost = \"a.b.example\"\n"
                ),
                "neither `env` nor a file",
            ),
            (format!("{generic}\n[hosts]\napi = [\"*.com\"]\n"), "host `*.com`"),
        ] {
            let error = Descriptor::parse("x.toml", &text).unwrap_err().to_string();
            assert!(error.starts_with("x.toml:") && error.contains(said), "{error}\nexpected {said}");
        }
    }
}
