//! What the sidecar of a stand is told: names, secrets, policies.

mod providers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use ring::rand::{SecureRandom, SystemRandom};

pub use providers::{PROVIDERS, Provider};

use super::Paths;
use crate::podman::{podman, run};

pub const ANTHROPIC: &str = "anthropic";
pub const ACCOUNT: &str = "claude-account";
/// A secret for any client: header `x-api-key` at `api.example`.
pub const GENERIC: &str = "example";
/// A password for git, at `git.example`.
pub const GIT: &str = "git-token";
/// All secrets that a stand can have.
pub const ALL: [&str; 4] = [ANTHROPIC, ACCOUNT, GENERIC, GIT];

/// Hosts that policy `world` allows on ports 443 and 8443.
pub const ALLOWED: [&str; 4] = ["api.example", "git.example", "other.example", "shop.example"];

const SIDECAR: &str = r#"
extra-ca = ["/etc/understudy/world-ca.crt"]
resolvers = ["127.0.0.1:53"]

[names]
"auth.openai.com" = "127.0.0.1"
"chatgpt.com" = "127.0.0.1"
"cloudcode-pa.googleapis.com" = "127.0.0.1"
"oauth2.googleapis.com" = "127.0.0.1"
"platform.claude.com" = "127.0.0.1"
"api.anthropic.com" = "127.0.0.1"
"api.example" = "127.0.0.1"
"git.example" = "127.0.0.1"
"other.example" = "127.0.0.1"
"plain.example" = "127.0.0.1"
"s3.example" = "127.0.0.1"
"shop.example" = "127.0.0.1"
"store.example" = "127.0.0.1"
"#;

/// With the client secret that Gemini CLI carries, as the user would add it.
const GOOGLE: &str = include_str!("../../../sidecar/catalogue/google.toml");

const DECLARATIONS: [(&str, &str); 4] = [
    (
        ANTHROPIC,
        r#"
[anthropic]
kind = "api-key"
file = "/run/secrets/anthropic"
hosts = ["api.anthropic.com"]
placements = ["header x-api-key"]
grant-to = { harnesses = ["claude-code"] }
"#,
    ),
    (
        ACCOUNT,
        r#"
[claude-account]
kind = "bearer"
file = "/run/secrets/claude-account"
hosts = ["api.anthropic.com"]
grant-to = { harnesses = ["claude-code"] }
"#,
    ),
    (
        GENERIC,
        r#"
[example]
kind = "api-key"
file = "/run/secrets/example"
hosts = ["api.example"]
placements = ["header x-api-key"]
env = "EXAMPLE_API_KEY"
grant-to = { harnesses = ["generic"] }
"#,
    ),
    (
        GIT,
        r#"
[git-token]
kind = "basic"
file = "/run/secrets/git-token"
hosts = ["git.example"]
env = "GIT_TOKEN"
grant-to = { harnesses = ["generic"] }
"#,
    ),
];

const WORLD: &str = r#"
[[allow]]
host = ["api.example", "git.example", "other.example", "shop.example"]
port = [443, 8443]

# not pinned in sidecar.toml: the resolver answers with a loopback address
[[allow]]
host = "private.example"

[[allow]]
host = "*.wild.example"

[[allow]]
host = "plain.example"
port = 80
"#;

/// The real values.
#[derive(Clone)]
pub struct Secrets {
    pub anthropic: String,
    pub account: String,
    pub generic: String,
    pub git: String,
    /// Of [`PROVIDERS`], by name.
    providers: BTreeMap<&'static str, String>,
}

/// Values of a stand are as good as real ones to a search, and just as unwelcome in a message.
impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(…)")
    }
}

impl Secrets {
    pub(super) fn random() -> Result<Self> {
        let provider = |provider: &Provider| Ok((provider.secret, provider.value(drawn)?));
        Ok(Self {
            providers: PROVIDERS.iter().map(provider).collect::<Result<_>>()?,
            anthropic: format!("sk-ant-api03-{}AA", letters(93)?),
            account: format!("sk-ant-oat01-{}AA", letters(93)?),
            generic: format!("example_{}", letters(40)?),
            git: format!("git_{}", letters(40)?),
        })
    }

    /// All of them, for searches.
    pub fn all(&self) -> Vec<&str> {
        let providers = self.providers.values().map(String::as_str);
        providers.chain([self.anthropic.as_str(), &self.account, &self.generic, &self.git]).collect()
    }

    /// By the name of the secret.
    pub fn value(&self, name: &str) -> &str {
        match name {
            ANTHROPIC => &self.anthropic,
            ACCOUNT => &self.account,
            GIT => &self.git,
            name => self.providers.get(name).unwrap_or(&self.generic),
        }
    }
}

fn letters(count: usize) -> Result<String> {
    drawn(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", count)
}

/// Not quite evenly, where the alphabet's length does not divide 256.
fn drawn(alphabet: &[u8], count: usize) -> Result<String> {
    let mut bytes = vec![0; count];
    SystemRandom::new().fill(&mut bytes).ok().context("no random bytes")?;
    Ok(bytes.into_iter().map(|byte| char::from(alphabet[usize::from(byte) % alphabet.len()])).collect())
}

/// Writes the configuration directory and creates the Podman secrets.
pub(super) fn write(paths: &Paths, secrets: &Secrets, given: &[&str]) -> Result<()> {
    let directory = &paths.configuration;
    fs::create_dir_all(directory.join("policies"))?;
    fs::copy(paths.world.join("ca.crt"), directory.join("world-ca.crt"))?;
    let declared = DECLARATIONS.iter().filter(|(name, _)| given.contains(name));
    let declared = declared.map(|(_, text)| (*text).to_owned());
    let providers: Vec<_> = PROVIDERS.iter().filter(|provider| given.contains(&provider.secret)).collect();
    let declared = declared.chain(providers.iter().map(|provider| provider.declaration()));
    fs::write(directory.join("secrets.toml"), declared.collect::<String>())?;
    let names: BTreeSet<_> = providers.iter().flat_map(|provider| provider.names()).collect();
    let missing = names.into_iter().filter(|name| !SIDECAR.contains(&format!("{name:?}")));
    let names: String = missing.map(|name| format!("{name:?} = \"127.0.0.1\"\n")).collect();
    fs::write(directory.join("sidecar.toml"), format!("{SIDECAR}{names}"))?;
    fs::write(directory.join("policies/world.toml"), WORLD)?;
    fs::create_dir_all(directory.join("catalogue"))?;
    let google =
        GOOGLE.replacen("[kind.oauth]\n", "[kind.oauth]\nclient-secret = \"of-the-installed-program\"\n", 1);
    fs::write(directory.join("catalogue/google.toml"), google)?;
    for name in given {
        // there is none yet, or one of an earlier stand
        podman(["secret", "rm", name])?;
        run(Command::new("podman").args(["secret", "create", name, "-"]), secrets.value(name).as_bytes())?
            .success()
            .with_context(|| format!("secret {name}"))?;
    }
    Ok(())
}
