//! Endpoints that create or store credentials, and whether a request is for one of them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::{HeaderName, Method};
use serde::Deserialize;
use understudy_policies::document::closest;
use understudy_policies::{HostName, HostPattern, PathPattern};

/// What is created, or given to somebody else to keep: the word that `minting` in `secrets.toml` allows it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Creates {
    ApiKey,
    /// A personal access token, or one of a project or group.
    Pat,
    DeployKey,
    /// A key of an account, to log in or to sign with.
    SshKey,
    OauthApp,
    /// It sends what happens to an address of the caller's choice.
    Webhook,
    /// A short-lived credential.
    Sts,
    /// A credential that jobs of a CI service can read.
    CiSecret,
    /// Rights for another account.
    Invite,
    /// A machine that runs jobs of a CI service.
    Runner,
}

impl Creates {
    pub const ALL: [Self; 10] = [
        Self::ApiKey,
        Self::Pat,
        Self::DeployKey,
        Self::SshKey,
        Self::OauthApp,
        Self::Webhook,
        Self::Sts,
        Self::CiSecret,
        Self::Invite,
        Self::Runner,
    ];

    /// As it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
            Self::Pat => "pat",
            Self::DeployKey => "deploy-key",
            Self::SshKey => "ssh-key",
            Self::OauthApp => "oauth-app",
            Self::Webhook => "webhook",
            Self::Sts => "sts",
            Self::CiSecret => "ci-secret",
            Self::Invite => "invite",
            Self::Runner => "runner",
        }
    }

    /// Ends the sentence "it creates …".
    pub fn phrase(self) -> &'static str {
        match self {
            Self::ApiKey => "an API key",
            Self::Pat => "an access token",
            Self::DeployKey => "a deploy key",
            Self::SshKey => "a key of the account",
            Self::OauthApp => "an OAuth application",
            Self::Webhook => "a webhook",
            Self::Sts => "a short-lived credential",
            Self::CiSecret => "a secret or variable of a CI service",
            Self::Invite => "rights for another account",
            Self::Runner => "a runner of a CI service",
        }
    }
}

impl FromStr for Creates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|creates| creates.name() == text).ok_or_else(|| {
            match closest(text, Self::ALL.map(Self::name)) {
                Some(meant) => format!("unknown value; did you mean `{meant}`?"),
                None => format!("unknown value; known are: {}", Self::ALL.map(Self::name).join(", ")),
            }
        })
    }
}

/// An endpoint of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The name of the provider.
    pub provider: String,
    /// Empty: the hosts of the provider, and those of secrets that are like one of its kinds.
    pub hosts: Vec<HostPattern>,
    /// Empty: all.
    pub methods: Vec<Method>,
    pub path: PathPattern,
    pub creates: Creates,
    /// Whether the provider's documentation says so.
    pub confirmed: bool,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        if !methods.is_empty() {
            write!(f, "{} ", methods.join("|"))?;
        }
        self.path.fmt(f)
    }
}

/// The methods that a server may take the request for: some ignore letter case, some frameworks believe a header, and of a
/// POST a field `_method` of the query or a form, which is not looked for.
pub fn methods(method: &Method, headers: &http::HeaderMap) -> Vec<Method> {
    let upper = |bytes: &[u8]| Method::from_bytes(bytes.trim_ascii().to_ascii_uppercase().as_slice()).ok();
    let said = headers.iter().filter(|(name, _)| METHOD_HEADERS.contains(&dashed(name).as_ref()));
    let named = said.filter_map(|(_, value)| upper(value.as_bytes()));
    let mut methods: Vec<Method> = upper(method.as_str().as_bytes()).into_iter().chain(named).collect();
    if methods.contains(&Method::POST) {
        methods.extend([Method::PUT, Method::PATCH]);
    }
    methods
}

const METHOD_HEADERS: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// As servers read a header's name that hand headers on as variables (RFC 3875 section 4.1.18).
pub fn dashed(name: &HeaderName) -> Cow<'_, str> {
    let name = name.as_str();
    if name.contains('_') { name.replace('_', "-").into() } else { name.into() }
}

/// Whether `host` is one of `hosts`; without any, `own` says it.
pub(super) fn is_among(hosts: &[HostPattern], host: &HostName, own: bool) -> bool {
    if hosts.is_empty() { own } else { hosts.iter().any(|pattern| pattern.matches(host)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_in_a_header_counts_too() {
        let mut headers = http::HeaderMap::new();
        headers.insert("x-http-method-override", "put".parse().unwrap());
        assert_eq!(methods(&Method::GET, &headers), [Method::GET, Method::PUT]);
        let mut headers = http::HeaderMap::new();
        headers.insert("x_http_method_override", "put".parse().unwrap());
        assert_eq!(methods(&"get".parse().unwrap(), &headers), [Method::GET, Method::PUT]);
        let posted = methods(&"post".parse().unwrap(), &http::HeaderMap::new());
        assert_eq!(posted, [Method::POST, Method::PUT, Method::PATCH]);
    }

    #[test]
    fn every_word_of_a_switch_is_known_and_others_are_corrected() {
        for creates in Creates::ALL {
            assert_eq!(creates.name().parse(), Ok(creates));
            let quoted = format!("\"{}\"", creates.name());
            assert_eq!(serde_json::from_str::<Creates>(&quoted).unwrap(), creates);
        }
        assert!("webhok".parse::<Creates>().unwrap_err().contains("did you mean `webhook`?"));
    }
}
