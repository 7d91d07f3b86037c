//! What is asked about: a request, bytes of another protocol, one command of git's over SSH, or a session of
//! PostgreSQL. Pure.

use std::fmt;

use anyhow::{Context as _, Result, bail};
use http::Uri;
use understudy_policies::HostName;

use crate::connection::ssh::command::{Command, CommandError, Service};

/// How it may be written.
pub const FORMS: &str = "`https://api.example.com/v1/x`, `tcp://HOST:PORT`, `ssh://git@HOST/OWNER/REPO`, `git@HOST:OWNER/REPO` or \
     `postgres://USER@HOST/DATABASE`";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Web {
        method: String,
        host: HostName,
        port: u16,
        /// In origin-form.
        target: String,
    },
    /// Neither TLS nor HTTP.
    Raw { host: HostName, port: u16 },
    Git {
        /// As whom it logs in, if that was written.
        user: Option<String>,
        host: HostName,
        port: u16,
        service: Service,
        /// As git puts it into its command.
        repository: String,
    },
    Postgres {
        /// As whom it logs in, if that was written.
        user: Option<String>,
        host: HostName,
        port: u16,
        database: String,
    },
}

impl Asked {
    /// `method` is an HTTP method, or for git over SSH one of its two programs; None: `GET`, and to fetch.
    ///
    /// # Errors
    /// If `url` is none of [`FORMS`], or names an address.
    pub fn parse(url: &str, method: Option<&str>) -> Result<Self> {
        if let Some((user, host, repository)) = scp(url) {
            let host = host.parse().with_context(|| format!("{host:?}"))?;
            return Self::git(Some(user), host, 22, repository, method);
        }
        let whole = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
        let uri: Uri = in_ascii(&whole).parse().with_context(|| format!("{url:?} is not a URL"))?;
        let authority = uri.authority().context("a URL needs a host")?;
        let host = authority.host().parse().with_context(|| format!("{:?}", authority.host()))?;
        let user = authority.as_str().rsplit_once('@').map(|(user, _)| user);
        let scheme = uri.scheme_str().unwrap_or_default();
        if let ("ssh", None) = (scheme, uri.query()) {
            return Self::git(user, host, uri.port_u16().unwrap_or(22), uri.path(), method);
        }
        if let ("postgres" | "postgresql", None) = (scheme, uri.query()) {
            if method.is_some() {
                bail!("a session of PostgreSQL has no method");
            }
            return Self::postgres(user, host, uri.port_u16().unwrap_or(5432), uri.path());
        }
        if user.is_some() {
            bail!("leave out what stands before the `@`");
        }
        let port = match (scheme, uri.port_u16()) {
            ("tcp", Some(port)) => {
                if method.is_some() || uri.path().len() > 1 || uri.query().is_some() {
                    bail!(
                        "bytes that are neither TLS nor HTTP have no method and no path; write tcp://{host}:{port}"
                    );
                }
                return Ok(Self::Raw { host, port });
            }
            ("tcp", None) => bail!("it needs a port, as tcp://{host}:5432"),
            ("https" | "wss" | "http" | "ws", Some(port)) => port,
            ("https" | "wss", None) => 443,
            ("http" | "ws", None) => 80,
            (other, _) => bail!("{other:?} is not a scheme that leaves a container; write {FORMS}"),
        };
        let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        Ok(Self::Web { method: method.unwrap_or("GET").to_owned(), host, port, target })
    }

    fn postgres(user: Option<&str>, host: HostName, port: u16, path: &str) -> Result<Self> {
        if user.is_some_and(|user| user.contains(':')) {
            bail!("leave out the password, of which nobody asks");
        }
        let plain = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().map(String::from);
        let user = user.map(plain).transpose()?;
        let database = match (path.trim_start_matches('/'), &user) {
            ("", Some(user)) => user.clone(),
            ("", None) => bail!("it needs a database, as postgres://{host}/DATABASE"),
            (name, _) => plain(name)?,
        };
        Ok(Self::Postgres { user, host, port, database })
    }

    fn git(
        user: Option<&str>,
        host: HostName,
        port: u16,
        repository: &str,
        method: Option<&str>,
    ) -> Result<Self> {
        let service = match method {
            None => Service::UploadPack,
            Some(name) => Service::named(name).with_context(|| {
                format!(
                    "git over SSH has {} (fetch) and {} (push), not {name:?}",
                    Service::UploadPack.name(),
                    Service::ReceivePack.name()
                )
            })?,
        };
        let (user, repository) = (user.map(str::to_owned), repository.to_owned());
        Ok(Self::Git { user, host, port, service, repository })
    }

    pub fn host(&self) -> &HostName {
        match self {
            Self::Web { host, .. }
            | Self::Raw { host, .. }
            | Self::Git { host, .. }
            | Self::Postgres { host, .. } => host,
        }
    }

    pub fn port(&self) -> u16 {
        match self {
            Self::Web { port, .. }
            | Self::Raw { port, .. }
            | Self::Git { port, .. }
            | Self::Postgres { port, .. } => *port,
        }
    }
}

/// The command that git sends, as it is read where it arrives.
pub(super) fn command(service: Service, repository: &str) -> Result<Command, CommandError> {
    Command::parse(format!("{} '{repository}'", service.name()).as_bytes())
}

/// User, host and path of `user@host:path`, which has no slash before its colon (git-clone(1)).
fn scp(url: &str) -> Option<(&str, &str, &str)> {
    let (before, path) = url.split_once(':')?;
    let (user, host) = before.split_once('@')?;
    (!before.contains('/') && !path.starts_with("//")).then_some((user, host, path))
}

/// With its host in Punycode, where it has letters that no [`Uri`] has.
fn in_ascii(url: &str) -> String {
    let named = url.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', '?', '#', ':']).unwrap_or(rest.len());
        let (host, rest) = rest.split_at_checked(end).filter(|(host, _)| !host.is_ascii())?;
        Some(format!("{scheme}://{}{rest}", host.parse::<HostName>().ok()?))
    });
    named.unwrap_or_else(|| url.to_owned())
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Web { method, host, port, target } => write!(f, "{method} {host}:{port}{target}"),
            Self::Postgres { host, port, database, .. } => write!(f, "postgres {host}:{port}/{database}"),
            Self::Raw { host, port } => write!(f, "tcp {host}:{port}"),
            Self::Git { host, port, service, repository, .. } => {
                let path = repository.strip_prefix('/').unwrap_or(repository);
                write!(f, "{} {host}:{port}/{path}", service.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_about_is_told_from_how_it_is_written() {
        for (url, method, expected) in [
            ("a.example", None, "GET a.example:443/"),
            ("a.example:8443/x?y=1", Some("PUT"), "PUT a.example:8443/x?y=1"),
            ("http://A.example./", None, "GET a.example:80/"),
            ("wss://a.example/socket", None, "GET a.example:443/socket"),
            ("tcp://db.example:5432", None, "tcp db.example:5432"),
            ("tcp://db.example:5432/", None, "tcp db.example:5432"),
            ("ssh://git@git.example/org/repo", None, "git-upload-pack git.example:22/org/repo"),
            (
                "ssh://git.example:443/org/repo.git",
                Some("git-receive-pack"),
                "git-receive-pack git.example:443/org/repo.git",
            ),
            ("postgres://app@db.example/data", None, "postgres db.example:5432/data"),
            ("postgresql://app@db.example:6432", None, "postgres db.example:6432/app"),
            ("postgres://db.example/a%20b", None, "postgres db.example:5432/a b"),
            ("git@git.example:org/repo", None, "git-upload-pack git.example:22/org/repo"),
            ("git@git.example:/org/repo", Some("git-upload-pack"), "git-upload-pack git.example:22/org/repo"),
            // A port, and no repository of somebody's.
            ("git.example:22/org/repo", None, "GET git.example:22/org/repo"),
        ] {
            assert_eq!(Asked::parse(url, method).unwrap().to_string(), expected, "{url}");
        }
        let Asked::Git { user, repository, .. } = Asked::parse("ssh://git@a.example/o/r", None).unwrap()
        else {
            panic!("not git");
        };
        // As git writes it into its command: with its slash, and in the other form without.
        assert_eq!((user.as_deref(), repository.as_str()), (Some("git"), "/o/r"));
        let Asked::Git { user, .. } = Asked::parse("ssh://a.example/o/r", None).unwrap() else {
            panic!("not git");
        };
        assert_eq!(user, None);
    }

    #[test]
    fn what_is_no_url_is_an_error() {
        for url in [
            "",
            "https://",
            "ftp://a.example",
            "ftp://a.example:21",
            "https://u@a.example",
            "https://10.0.0.1/",
            "a b",
            "u@a.example",
            "tcp://a.example",
            "tcp://10.0.0.1:22",
            "tcp://a.example:22/path",
            "tcp://a.example:22?x",
            "tcp://u@a.example:22",
            "tcp://a.example:99999",
            "ssh://git@10.0.0.1/o/r",
            "ssh://git@a.example/o/r?x",
            "postgres://db.example",
            "postgres://app:word@db.example/app",
            "postgres://app@10.0.0.1/app",
            "postgres://app@db.example/app?sslmode=disable",
            "git@10.0.0.1:o/r",
            "git@:o/r",
        ] {
            assert!(Asked::parse(url, None).is_err(), "{url}");
        }
        for (url, method) in [
            ("tcp://a.example:1", "GET"),
            ("ssh://a.example/o/r", "GET"),
            ("git@a.example:o/r", "scp"),
            ("postgres://a.example/d", "GET"),
        ] {
            assert!(Asked::parse(url, Some(method)).is_err(), "{url}");
        }
    }
}
