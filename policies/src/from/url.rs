//! A URL of a lock file: who is asked, and for what. Credentials in it are seen and never kept.

use crate::{HostName, NameError, PathError, RequestPath, document};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) host: HostName,
    pub(super) port: u16,
    /// Without query and fragment, at least `/`.
    pub(super) path: String,
    /// A user or a password, which can be a token; not the user `git`, whom everybody is.
    pub(super) credentials: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UrlError {
    #[error("over SSH, which no rule about HTTPS can allow; name it by an https URL instead")]
    Ssh,
    #[error("a variable stands in the URL; what it means is not in this file")]
    Variable,
    #[error("not an http or https URL")]
    Scheme,
    #[error("longer than {LONGEST} bytes")]
    Long,
    #[error("the host of the URL: {0}")]
    Host(#[from] NameError),
    #[error("the port of the URL is not a number from 1 to 65535")]
    Port,
    #[error("the path of the URL has a `*` in it")]
    Star,
    #[error("{0}")]
    Path(#[from] PathError),
}

/// Of a URL or a module, in bytes: nobody's is longer, and what is made of it grows faster than it.
pub(super) const LONGEST: usize = 4096;

/// Prefixes by which package managers say how they use a URL.
const USES: [&str; 5] = ["git+", "sparse+", "registry+", "direct+", "hg+"];

impl Url {
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > LONGEST {
            return Err(UrlError::Long);
        }
        let text = USES.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
        if text.contains("${") || text.contains("%(") {
            return Err(UrlError::Variable);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            // git@github.com:owner/name
            let short = text.split_once(':').is_some_and(|(user, _)| user.contains('@'));
            return Err(if short { UrlError::Ssh } else { UrlError::Scheme });
        };
        let default = match scheme.to_ascii_lowercase().as_str() {
            "https" => 443,
            "http" => 80,
            "ssh" => return Err(UrlError::Ssh),
            _ => return Err(UrlError::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        // Browsers take it for a `/`, and what is behind it for no host.
        if authority.contains('\\') {
            return Err(NameError::Character.into());
        }
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port_number(port)?),
            _ => (address, default),
        };
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let path = if path.is_empty() { "/" } else { path };
        if path.contains('*') {
            return Err(UrlError::Star);
        }
        let path = RequestPath::parse(path)?.as_str().to_owned();
        let credentials = user.is_some_and(|user| !matches!(user, "" | "git"));
        Ok(Self { host: host.parse()?, port, path, credentials })
    }
}

fn port_number(text: &str) -> Result<u16, UrlError> {
    document::number(text).filter(|port| *port != 0).ok_or(UrlError::Port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_what_it_asks_for() {
        for (text, host, port, path, credentials) in [
            ("https://a.example", "a.example", 443, "/", false),
            ("HTTP://A.Example:8080/x/y?z=1#f", "a.example", 8080, "/x/y", false),
            ("git+https://git@a.example/o/n.git?rev=1#2", "a.example", 443, "/o/n.git", false),
            ("sparse+https://u:secret@a.example/i/", "a.example", 443, "/i/", true),
            ("https://b.example@a.example/@s%2fn", "a.example", 443, "/@s%2Fn", true),
        ] {
            let url = Url::parse(text).unwrap();
            let found = (url.host.as_str(), url.port, url.path.as_str(), url.credentials);
            assert_eq!(found, (host, port, path, credentials), "{text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_an_error() {
        for (text, error) in [
            ("git@github.com:o/n.git", UrlError::Ssh),
            ("git+ssh://git@github.com/o/n.git", UrlError::Ssh),
            ("https://${HOST}/", UrlError::Variable),
            ("file:///etc/passwd", UrlError::Scheme),
            ("../x", UrlError::Scheme),
            ("https://", UrlError::Host(NameError::Empty)),
            ("https://169.254.169.254/", UrlError::Host(NameError::Address)),
            ("https://[::1]/", UrlError::Host(NameError::Address)),
            ("https://b.example\\@a.example/", UrlError::Host(NameError::Character)),
            ("https://a.example\n/", UrlError::Host(NameError::Character)),
            ("https://a.example:0/", UrlError::Port),
            ("https://a.example:x/", UrlError::Port),
            ("https://a.example/*/x", UrlError::Star),
            ("https://a.example/a/../b", UrlError::Path(PathError::DotSegment)),
            ("https://a.example/\u{1b}[2J", UrlError::Path(PathError::Character)),
        ] {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
    }
}
