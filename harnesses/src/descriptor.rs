//! The schema of a descriptor. Unknown keys are errors: a misspelt one would silently protect nothing.

use std::collections::BTreeMap;

use serde::Deserialize;
use understudy_policies::{DocumentError, HostName, HostPattern, document};

use crate::{Template, check};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Descriptor {
    /// What `understudy.harness` says.
    pub name: String,
    pub description: String,
    /// Versions of the program that were run with this descriptor.
    pub proven: Vec<String>,
    /// The purposes whose hosts the policy `harness-only` allows.
    pub harness_only: Vec<Purpose>,
    /// Variables that are set whatever the login and the privacy level.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub hosts: Hosts,
    /// Ways to log in, each with one secret.
    #[serde(default, rename = "login")]
    pub logins: Vec<Login>,
    /// Variables that work against every login.
    #[serde(default, rename = "trap")]
    pub traps: Vec<Trap>,
    pub privacy: Privacy,
    /// Files that are placed whatever the login.
    #[serde(default, rename = "file")]
    pub files: Vec<PlacedFile>,
    /// Files that must not hold a real credential.
    #[serde(default, rename = "login-file")]
    pub login_files: Vec<LoginFile>,
}

/// Host names of the program, by what it wants from them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Hosts {
    pub api: Vec<Pattern>,
    pub login: Vec<Pattern>,
    pub telemetry: Vec<Pattern>,
    pub updates: Vec<Pattern>,
    pub content: Vec<Pattern>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// What it cannot work without.
    Api,
    /// Logging in and renewing a login.
    Login,
    /// Reports about its use.
    Telemetry,
    /// New versions of itself.
    Updates,
    /// What it shows or installs when asked to.
    Content,
}

/// A host pattern, read from a string.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(pub HostPattern);

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Login {
    pub name: String,
    /// The kind of secret that fits.
    pub kind: SecretKind,
    /// The host that a fitting secret is bound to.
    pub host: HostName,
    #[serde(default)]
    pub env: BTreeMap<String, Template>,
    #[serde(default, rename = "file")]
    pub files: Vec<PlacedFile>,
    #[serde(default, rename = "trap")]
    pub traps: Vec<Trap>,
}

/// How a secret is used: what a declaration says and what a login asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretKind {
    /// A key that stands where its service reads it.
    ApiKey,
    /// A token after a scheme in `Authorization` (RFC 6750 section 2.1).
    Bearer,
    /// A half of what the scheme `Basic` holds (RFC 7617).
    Basic,
    /// An account: tokens that the sidecar renews (RFC 6749).
    Oauth,
}

/// A variable of the environment that the program prefers to the login.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trap {
    pub env: String,
    pub action: TrapAction,
    /// Ends the sentence "VARIABLE is set: …".
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrapAction {
    /// The container does not start.
    Refuse,
    /// It starts, and a note says so.
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Privacy {
    /// The level without `understudy.privacy`.
    pub default: String,
    pub levels: BTreeMap<String, Level>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Another level, whose variables are set too.
    pub extends: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedFile {
    /// Absolute, or `~/…`.
    pub path: String,
    /// Permission bits, such as 0o600.
    pub mode: u32,
    pub write: Write,
    pub content: Template,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Write {
    Create,
    Replace,
    MergeJson,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginFile {
    pub path: String,
    /// JSON pointers (RFC 6901); a `*` segment stands for every member.
    pub pointers: Vec<String>,
}

impl Descriptor {
    /// From the text of `file`, which is only for messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, DocumentError> {
        let descriptor: Self = document::parse(file, text)?;
        check::descriptor(&descriptor).map_err(|message| DocumentError::at(file, text, 0, message))?;
        Ok(descriptor)
    }

    /// The hosts that the policy `harness-only` allows.
    pub fn allowed_hosts(&self) -> impl Iterator<Item = HostPattern> {
        self.harness_only.iter().flat_map(|purpose| self.hosts.of(*purpose)).map(|pattern| pattern.0.clone())
    }

    /// The variables of a privacy level; None if there is no such level.
    pub fn privacy_env(&self, level: &str) -> Option<BTreeMap<String, String>> {
        let level = self.privacy.levels.get(level)?;
        let mut env = match &level.extends {
            // One step only, as `check` made sure.
            Some(base) => self.privacy.levels.get(base)?.env.clone(),
            None => BTreeMap::new(),
        };
        env.extend(level.env.clone());
        Some(env)
    }
}

impl Purpose {
    pub const ALL: [Purpose; 5] = [Self::Api, Self::Login, Self::Telemetry, Self::Updates, Self::Content];
}

impl Hosts {
    pub fn of(&self, purpose: Purpose) -> &[Pattern] {
        match purpose {
            Purpose::Api => &self.api,
            Purpose::Login => &self.login,
            Purpose::Telemetry => &self.telemetry,
            Purpose::Updates => &self.updates,
            Purpose::Content => &self.content,
        }
    }
}

impl SecretKind {
    /// As it is written in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
            Self::Bearer => "bearer",
            Self::Basic => "basic",
            Self::Oauth => "oauth",
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error| format!("host `{text}`: {error}"))
    }
}
