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
    /// Why there are none; given if, and only if, there are none.
    pub unproven: Option<String>,
    /// A command that asks the program for one short answer, without a terminal.
    #[serde(default)]
    pub smoke: Vec<String>,
    /// The purposes whose hosts the policy `harness-only` allows.
    pub harness_only: Vec<Purpose>,
    /// Variables that are set whatever the login and the privacy level.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub hosts: Hosts,
    /// Hosts that a provider names, and that `harness-only` allows from then on.
    #[serde(default, rename = "named-host")]
    pub named_hosts: Vec<NamedHost>,
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
    /// What variables of the environment move elsewhere.
    #[serde(default)]
    pub moved: Vec<Moved>,
    /// Text files that the program reads in every directory, beside the project's own; instructions become a block of
    /// each. Absolute, or `~/…`.
    #[serde(default)]
    pub instructions: Vec<String>,
    /// How an editor starts it.
    #[serde(default)]
    pub acp: Vec<Adapter>,
}

/// A command that speaks the Agent Client Protocol on its standard input and output.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// Never empty.
    pub command: Vec<String>,
    /// What it comes in, if not with the program itself.
    pub package: Option<String>,
    /// Versions of it that were spoken to by an editor's library.
    #[serde(default)]
    pub proven: Vec<String>,
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

/// A field of a JSON answer that can name a host for the container that asked with its login.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedHost {
    /// Asked by any method.
    pub endpoint: Endpoint,
    /// A JSON pointer (RFC 6901) to a URL.
    pub field: String,
    /// No host beyond these.
    pub within: Vec<Pattern>,
}

/// `https://HOST/PATH`, read from a string.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Endpoint {
    pub host: HostName,
    pub port: u16,
    /// As it is sent.
    pub path: String,
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
    /// Hosts that the policy `harness-only` allows to a container with this login alone: for a program that can talk to
    /// one of several services.
    #[serde(default)]
    pub hosts: Vec<Pattern>,
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
    /// A private key that logs in to SSH servers (RFC 4252 section 7). No login of a harness is one.
    SshKey,
    /// An access key that signs requests (AWS Signature Version 4). No login of a harness is one.
    Aws,
    /// The key of a service account of Google, which signs assertions (RFC 7523). No login of a harness is one.
    GoogleServiceAccount,
    /// The key of a GitHub App, which signs tokens (RFC 7519). No login of a harness is one.
    GithubApp,
    /// A password that logs in to a PostgreSQL server. No login of a harness is one.
    Postgres,
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
    /// Another level, whose variables are set and whose hosts are allowed, too.
    pub extends: Option<String>,
    /// Purposes whose hosts `harness-only` allows at this level beside those that it always does.
    #[serde(default)]
    pub hosts: Vec<Purpose>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default, rename = "file")]
    pub files: Vec<PlacedFile>,
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
    /// If there is none.
    Create,
    Replace,
    /// Into the JSON object that is there.
    MergeJson,
    /// Into the TOML document that is there, as far as it does not say otherwise itself. A key `{directory}` is the container's
    /// working directory.
    FillToml,
    /// Into the `KEY=value` lines that are there.
    MergeEnv,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginFile {
    pub path: String,
    /// JSON pointers (RFC 6901), in which a `*` segment stands for every member; in a file that is not JSON `env:KEY` for
    /// lines `KEY=value`, `yaml:KEY` for lines `KEY: value`, `url` for lines that are URLs with a password, and `netrc` for the
    /// passwords of such a file.
    pub pointers: Vec<String>,
}

/// A file or a directory of the program that a variable moves: whatever a descriptor has there is looked for, and placed, where
/// it is then.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// The variable; it holds a directory.
    pub by: String,
    /// Absolute, or `~/…`.
    pub from: String,
    /// Below the variable's directory; empty: that directory itself.
    #[serde(default)]
    pub to: String,
}

impl Descriptor {
    /// From the text of `file`, which is only for messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, DocumentError> {
        let descriptor: Self = document::parse(file, text)?;
        check::descriptor(&descriptor).map_err(|message| DocumentError::at(file, text, 0, message))?;
        Ok(descriptor)
    }

    /// The privacy level of that name, if it has it; else its default one.
    pub fn level<'a>(&'a self, asked: Option<&'a str>) -> &'a str {
        asked.filter(|level| self.privacy.levels.contains_key(*level)).unwrap_or(&self.privacy.default)
    }

    /// The hosts that the policy `harness-only` allows with a login at a privacy level.
    pub fn allowed_hosts<'a>(
        &'a self,
        login: Option<&'a Login>,
        level: &str,
    ) -> impl Iterator<Item = HostPattern> + use<'a> {
        let of_level = self.privacy(level).flat_map(|level| &level.hosts);
        let purposes = self.harness_only.iter().chain(of_level);
        let hosts = purposes.flat_map(|purpose| self.hosts.of(*purpose));
        hosts.chain(login.into_iter().flat_map(|login| &login.hosts)).map(|pattern| pattern.0.clone())
    }

    /// What applies at a privacy level, in this order; nothing if there is no such level.
    pub fn privacy<'a>(&'a self, level: &str) -> impl Iterator<Item = &'a Level> + use<'a> {
        let level = self.privacy.levels.get(level);
        // One step only, as `check` made sure.
        let base = level.and_then(|level| self.privacy.levels.get(level.extends.as_ref()?));
        base.into_iter().chain(level)
    }
}

impl Purpose {
    pub const ALL: [Purpose; 5] = [Self::Api, Self::Login, Self::Telemetry, Self::Updates, Self::Content];

    /// As it is written in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Login => "login",
            Self::Telemetry => "telemetry",
            Self::Updates => "updates",
            Self::Content => "content",
        }
    }
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
            Self::Postgres => "postgres",
            Self::ApiKey => "api-key",
            Self::Bearer => "bearer",
            Self::Basic => "basic",
            Self::Oauth => "oauth",
            Self::SshKey => "ssh-key",
            Self::Aws => "aws",
            Self::GoogleServiceAccount => "google-service-account",
            Self::GithubApp => "github-app",
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error| format!("host `{text}`: {error}"))
    }
}

impl TryFrom<String> for Endpoint {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("endpoint `{text}`: write it as `https://HOST/PATH`");
        let (authority, path) =
            text.strip_prefix("https://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (authority, 443),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
        if path.is_empty() || !path.bytes().all(plain) {
            return Err(wrong());
        }
        let host = host.parse().map_err(|_| wrong())?;
        Ok(Self { host, port, path: format!("/{path}") })
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            443 => write!(f, "https://{}{}", self.host, self.path),
            port => write!(f, "https://{}:{port}{}", self.host, self.path),
        }
    }
}
