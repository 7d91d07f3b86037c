//! What is known of a provider's accounts: where their tokens are renewed (RFC 6749 section 6).

use std::collections::BTreeMap;

use http::Uri;
use serde::Deserialize;
use understudy_policies::{HostName, PathPattern, Readings, RequestPath};

use super::login_file::LoginFile;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oauth {
    pub token_endpoint: TokenEndpoint,
    pub encoding: Encoding,
    pub client_id: String,
    /// Of an installed program, so that it is none (RFC 8252 section 8.5).
    pub client_secret: Option<String>,
    /// Error codes after which only another login helps.
    pub ended: Vec<String>,
    /// Fields of an answer that look like tokens and are none.
    pub harmless: Vec<String>,
    /// What an answer tells of the account: facts by name, as those of a login file; `id:/claim` is of its ID token.
    pub answer_facts: BTreeMap<String, String>,
}

/// Always over verified TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEndpoint {
    pub host: HostName,
    pub port: u16,
    /// As it is asked for.
    pub path: String,
    pattern: PathPattern,
}

/// Of the request for new tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    Json,
    Form,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawOauth {
    token_endpoint: String,
    encoding: Encoding,
    client_id: String,
    client_secret: Option<String>,
    #[serde(default)]
    ended: Vec<String>,
    #[serde(default)]
    harmless: Vec<String>,
    #[serde(default)]
    answer_facts: BTreeMap<String, String>,
    #[serde(default, rename = "login-file")]
    pub(super) login_files: Vec<LoginFile>,
}

impl TokenEndpoint {
    /// Of its URL: https, without a query. An error says what is wrong.
    pub fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| "not a URL")?;
        if uri.scheme_str() != Some("https") || uri.query().is_some() {
            return Err("it must be https, without a query".to_owned());
        }
        let host = uri.host().unwrap_or_default().parse().map_err(|_| "not the name of a host")?;
        let path = uri.path().to_owned();
        let pattern = path.parse().map_err(|_| "not a path")?;
        Ok(Self { host, port: uri.port_u16().unwrap_or(443), path, pattern })
    }

    /// The same endpoint at this path, if that is surely one of its own.
    pub fn at(&self, path: &str) -> Option<Self> {
        let surely = RequestPath::parse(path).is_ok_and(|path| self.pattern.matches_surely(&path));
        surely.then(|| Self { path: path.to_owned(), ..self.clone() })
    }

    /// Whether a server could take this path for the endpoint's.
    pub fn is_at(&self, host: &HostName, path: &str) -> bool {
        self.host == *host && self.pattern.matches_possibly(&Readings::of(path))
    }
}

impl TokenEndpoint {
    /// As `Host` says it.
    pub fn authority(&self) -> String {
        if self.port == 443 { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }
}

impl std::fmt::Display for TokenEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}{}", self.authority(), self.path)
    }
}

impl RawOauth {
    pub(super) fn checked(self) -> Result<Oauth, String> {
        let token_endpoint = endpoint(&self.token_endpoint)?;
        if self.login_files.is_empty() {
            return Err(
                "`oauth`: there is no `[[kind.oauth.login-file]]`, so no account could be imported".into()
            );
        }
        for file in &self.login_files {
            file.check().map_err(|error| format!("`oauth`: {error}"))?;
            if file.refresh.is_none() {
                return Err(format!("`oauth`: login file `{}`: there is no `refresh`", file.name));
            }
        }
        let of_answer =
            self.answer_facts.values().map(|pointer| pointer.strip_prefix("id:").unwrap_or(pointer));
        if let Some(wrong) = of_answer.into_iter().find(|pointer| !pointer.starts_with('/')) {
            return Err(format!("`oauth`: `answer-facts`: `{wrong}` is no JSON pointer"));
        }
        Ok(Oauth {
            token_endpoint,
            encoding: self.encoding,
            client_id: self.client_id,
            client_secret: self.client_secret,
            ended: self.ended,
            harmless: self.harmless,
            answer_facts: self.answer_facts,
        })
    }
}

fn endpoint(text: &str) -> Result<TokenEndpoint, String> {
    let wrong = |why| format!("`oauth`: `token-endpoint`: {why}, as `https://auth.example.com/oauth/token`");
    TokenEndpoint::parse(text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_told_however_its_path_is_written() {
        let endpoint = endpoint("https://auth.example.com/oauth/token").unwrap();
        let [host, other] = ["auth.example.com", "example.com"].map(|name| name.parse().unwrap());
        for path in ["/oauth/token", "//oauth/token/", "/oauth/%74oken", "/x/../oauth/token", "/OAuth/Token"]
        {
            assert!(endpoint.is_at(&host, path), "{path}");
        }
        assert!(!endpoint.is_at(&host, "/oauth/revoke") && !endpoint.is_at(&other, "/oauth/token"));
        assert_eq!((endpoint.port, endpoint.path.as_str()), (443, "/oauth/token"));
    }

    #[test]
    fn only_verified_tls_is_an_endpoint() {
        for wrong in
            ["http://a.example/t", "https://a.example/t?x=1", "https://192.0.2.1/t", "/t", "https://"]
        {
            assert!(endpoint(wrong).unwrap_err().contains("token-endpoint"), "{wrong}");
        }
    }
}
