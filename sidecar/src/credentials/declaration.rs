//! `secrets.toml`: which secrets there are, where they may be sent, and who may have them. No value is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Method;
use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;
use understudy_control::ImageId;
use understudy_harnesses::SecretKind;
use understudy_policies::document::{self, OneOrMany, position};
use understudy_policies::{DocumentError, HostName, HostPattern, PathPattern};

use super::assertions;
use super::aws;
use super::catalogue::{Catalogue, Creates, Kind, Pattern};
use super::expiry::Expiry;
use super::placement::{BasicHalf, Placement};
use super::postgres;
use super::scope::Scope;
use super::source::Source;
use super::source::written::Written;
use super::ssh::{self, Server};

/// One table of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    pub name: String,
    pub kind: SecretKind,
    pub source: Source,
    /// Where it may be sent in requests; never empty but for SSH keys and passwords of PostgreSQL, which are in none.
    pub hosts: Vec<HostPattern>,
    /// Where in a request it may stand; empty for SSH keys and passwords of PostgreSQL, and for keys that sign.
    pub placements: Vec<Placement>,
    /// With which methods and for which paths.
    pub scope: Scope,
    /// What becomes of other credentials at its hosts.
    /// Paths that parts may be asked of (`Range`) with it.
    pub downloads: Vec<PathPattern>,
    pub foreign: Foreign,
    pub grant_to: GrantTo,
    /// The variable that holds its stand-in where no login of the harness does.
    pub env: Option<String>,
    /// What its stand-in must start with, where none of the known prefixes is the right one.
    pub prefix: Option<String>,
    pub expires: Option<Expiry>,
    /// What its value looks like.
    pub pattern: Option<Pattern>,
    /// What it is like, of the catalogue.
    pub like: Option<Arc<Kind>>,
    /// What may be created with it.
    pub minting: BTreeSet<Creates>,
    /// Where an SSH key logs in.
    pub ssh: Option<Server>,
    /// What an access key may sign.
    pub aws: Option<aws::Binding>,
    /// What a key that signs tokens may be used for.
    pub assertion: Option<assertions::Binding>,
    /// Where a password of PostgreSQL logs in.
    pub postgres: Option<postgres::Server>,
    /// `secrets.toml:3`.
    pub place: String,
}

/// Whether a container may send credentials of its own to the hosts of a secret.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Foreign {
    #[default]
    Deny,
    Allow,
}

/// Who may have it: a container of one of the harnesses or of one of the images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrantTo {
    pub harnesses: BTreeSet<String>,
    pub images: BTreeSet<ImageId>,
}

/// Between the name of an account and that of a token which is not its access token. No declared name has one.
const PART: char = '/';

/// The tokens of an account beside its access token, as their names end.
pub(super) const PARTS: [&str; 2] = ["refresh", "id"];

/// The name of what was declared.
pub(super) fn whole_name(name: &str) -> &str {
    name.split(PART).next().unwrap_or(name)
}

impl Declaration {
    /// Of another token of the same account: it is granted with it, and never sent.
    pub(super) fn part(&self, part: &str) -> Self {
        let mut hosts = Vec::new();
        if let Some(oauth) =
            self.like.as_ref().and_then(|like| like.oauth.as_ref()).filter(|_| part == PARTS[0])
        {
            hosts.push(HostPattern::Exact(oauth.token_endpoint.host.clone()));
        }
        let name = format!("{}{PART}{part}", self.name);
        Self { name, hosts, placements: Vec::new(), env: None, expires: None, ..self.clone() }
    }

    /// Whether it is a token of an account that is not its access token.
    pub fn is_part(&self) -> bool {
        self.name.contains(PART)
    }

    pub fn is_bound_to(&self, host: &HostName) -> bool {
        self.hosts.iter().any(|pattern| pattern.matches(host))
    }
}

impl GrantTo {
    pub fn includes(&self, harness: &str, image: Option<&ImageId>) -> bool {
        self.harnesses.contains(harness) || image.is_some_and(|image| self.images.contains(image))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Raw {
    like: Option<Spanned<String>>,
    kind: Option<SecretKind>,
    file: Option<Spanned<String>>,
    podman_secret: Option<Spanned<String>>,
    credential: Option<Spanned<String>>,
    variable: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
    account: Option<Spanned<String>>,
    agent: Option<Spanned<String>>,
    public_key: Option<Spanned<String>>,
    timeout: Option<Spanned<u64>>,
    cache: Option<Spanned<u64>>,
    hosts: Option<Spanned<OneOrMany<String>>>,
    placements: Option<Spanned<OneOrMany<String>>>,
    methods: Option<Spanned<OneOrMany<String>>>,
    paths: Option<Spanned<OneOrMany<String>>>,
    downloads: Option<Spanned<OneOrMany<String>>>,
    #[serde(default)]
    foreign: Foreign,
    grant_to: Spanned<RawGrantTo>,
    env: Option<Spanned<String>>,
    prefix: Option<Spanned<String>>,
    expires: Option<Spanned<Datetime>>,
    pattern: Option<Spanned<String>>,
    minting: Option<Spanned<OneOrMany<String>>>,
    port: Option<Spanned<u16>>,
    user: Option<Spanned<String>>,
    host_keys: Option<Spanned<OneOrMany<String>>>,
    services: Option<Spanned<OneOrMany<String>>>,
    regions: Option<Spanned<OneOrMany<String>>>,
    buckets: Option<Spanned<OneOrMany<String>>>,
    scopes: Option<Spanned<OneOrMany<String>>>,
    subjects: Option<Spanned<OneOrMany<String>>>,
    app: Option<Spanned<assertions::Ids>>,
    installations: Option<Spanned<assertions::Ids>>,
    database: Option<Spanned<String>>,
    sslmode: Option<Spanned<String>>,
    auth: Option<Spanned<OneOrMany<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct RawGrantTo {
    harnesses: Vec<String>,
    images: Vec<String>,
}

/// In the order of their names. `file` is only for messages.
pub fn parse(file: &str, text: &str, catalogue: &Catalogue) -> Result<Vec<Declaration>, DocumentError> {
    let raw: BTreeMap<String, Spanned<Raw>> = document::parse(file, text).map_err(renamed)?;
    raw.into_iter().map(|(name, raw)| Reader { file, text, catalogue }.declaration(name, raw)).collect()
}

/// A key that had another name before.
fn renamed(mut error: DocumentError) -> DocumentError {
    if error.message.starts_with("unknown key `headers`") {
        error.message = "`headers` is now `placements`, as `placements = [\"header x-api-key\"]`".to_owned();
    }
    error
}

/// Where a key's value begins, if it is written.
fn start<T>(written: &Option<Spanned<T>>) -> Option<usize> {
    written.as_ref().map(|written| written.span().start)
}

struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    catalogue: &'t Catalogue,
}

impl Reader<'_> {
    fn declaration(&self, name: String, raw: Spanned<Raw>) -> Result<Declaration, DocumentError> {
        let at = raw.span().start;
        let raw = raw.into_inner();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            let message =
                "the name of a secret must be lower-case letters, digits, `-`, `_` and `.`, at most 64";
            return Err(self.error(at, message));
        }
        let Raw { file, podman_secret, credential, variable, command, account, .. } = raw;
        let Raw { agent, public_key, timeout, cache, .. } = raw;
        let of_agent = start(&agent);
        let written = Written {
            file,
            podman_secret,
            credential,
            variable,
            command,
            account,
            agent,
            public_key,
            timeout,
            cache,
        };
        let like = raw.like.as_ref().map(|like| self.like(like)).transpose()?;
        let like = like.as_ref();
        let kind = raw.kind.or(like.map(|like| like.kind)).ok_or_else(|| {
            let message = "missing field `kind`; or say what it is `like`, as `like = \"github-pat\"`";
            self.error(at, message)
        })?;
        let source = written.source(at).map_err(|(at, message)| self.error(at, message))?;
        self.of_account(at, kind, &source, like)?;
        if let Some(at) = of_agent.filter(|_| kind != SecretKind::SshKey) {
            return Err(self.error(at, "`agent` is for `kind = \"ssh-key\"`; leave it out"));
        }
        let in_no_request = [
            ("like", start(&raw.like)),
            ("placements", start(&raw.placements)),
            ("methods", start(&raw.methods)),
            ("paths", start(&raw.paths)),
            ("downloads", start(&raw.downloads)),
            ("prefix", start(&raw.prefix)),
            ("pattern", start(&raw.pattern)),
            ("minting", start(&raw.minting)),
        ];
        let (database, sslmode, auth) = (raw.database, raw.sslmode, raw.auth);
        let aws = aws::Written { services: raw.services, regions: raw.regions, buckets: raw.buckets };
        let assertion = assertions::Written {
            scopes: raw.scopes,
            subjects: raw.subjects,
            app: raw.app,
            installations: raw.installations,
        };
        let assertion = assertion.binding(kind, at).map_err(|(at, message)| self.error(at, message))?;
        if kind == SecretKind::Postgres {
            aws.none().map_err(|(at, message)| self.error(at, message))?;
            self.only_of(kind, &in_no_request)?;
            self.only_of(kind, &[("host-keys", start(&raw.host_keys))])?;
            let (port, user) = (raw.port, raw.user);
            let written = postgres::Written { hosts: &raw.hosts, port, user, database, sslmode, auth };
            let server = written.server(at).map_err(|(at, message)| self.error(at, message))?;
            return Ok(Declaration {
                name,
                kind,
                source,
                hosts: Vec::new(),
                placements: Vec::new(),
                scope: Scope::default(),
                downloads: Vec::new(),
                foreign: raw.foreign,
                grant_to: self.grant_to(&raw.grant_to)?,
                env: raw.env.map(|env| self.variable(env)).transpose()?,
                prefix: None,
                expires: raw.expires.map(|expires| self.expires(&expires)).transpose()?,
                pattern: None,
                like: None,
                minting: BTreeSet::new(),
                ssh: None,
                aws: None,
                assertion: None,
                postgres: Some(server),
                place: format!("{}:{}", self.file, position(self.text, at).0),
            });
        }
        let postgres =
            postgres::Written { hosts: &raw.hosts, port: None, user: None, database, sslmode, auth };
        postgres.none().map_err(|(at, message)| self.error(at, message))?;
        let ssh =
            ssh::Written { hosts: &raw.hosts, port: raw.port, user: raw.user, host_keys: raw.host_keys };
        if kind == SecretKind::SshKey {
            aws.none().map_err(|(at, message)| self.error(at, message))?;
            self.only_of(kind, &in_no_request)?;
            self.only_of(kind, &[("env", start(&raw.env))])?;
            let server = ssh.server(at).map_err(|(at, message)| self.error(at, message))?;
            return Ok(Declaration {
                name,
                kind,
                source,
                hosts: Vec::new(),
                placements: Vec::new(),
                scope: Scope::default(),
                downloads: Vec::new(),
                foreign: raw.foreign,
                grant_to: self.grant_to(&raw.grant_to)?,
                env: None,
                prefix: None,
                expires: raw.expires.map(|expires| self.expires(&expires)).transpose()?,
                pattern: None,
                like: None,
                minting: BTreeSet::new(),
                ssh: Some(server),
                aws: None,
                assertion: None,
                postgres: None,
                place: format!("{}:{}", self.file, position(self.text, at).0),
            });
        }
        ssh.none().map_err(|(at, message)| self.error(at, message))?;
        let aws = if kind == SecretKind::Aws {
            self.only_of(
                kind,
                &[
                    ("like", start(&raw.like)),
                    ("placements", start(&raw.placements)),
                    ("env", start(&raw.env)),
                    ("prefix", start(&raw.prefix)),
                    ("pattern", start(&raw.pattern)),
                    ("downloads", start(&raw.downloads)),
                ],
            )?;
            Some(aws.binding(at).map_err(|(at, message)| self.error(at, message))?)
        } else {
            aws.none().map_err(|(at, message)| self.error(at, message))?;
            None
        };
        if assertion.is_some() {
            self.only_of(
                kind,
                &[
                    ("like", start(&raw.like)),
                    ("placements", start(&raw.placements)),
                    ("methods", start(&raw.methods)),
                    ("paths", start(&raw.paths)),
                    ("env", start(&raw.env)),
                    ("prefix", start(&raw.prefix)),
                    ("pattern", start(&raw.pattern)),
                ],
            )?;
        }
        let placements = match (&raw.placements, like) {
            (None, Some(like)) => like.placements.clone(),
            (written, _) => self.placements(at, kind, written.as_ref())?,
        };
        let own =
            (raw.env.map(|env| self.variable(env)).transpose()?, like.and_then(|like| like.env.clone()));
        Ok(Declaration {
            name,
            kind,
            source,
            hosts: match (&assertion, &raw.hosts) {
                (Some(binding), None) => binding.usual_hosts(),
                _ => self.hosts(at, raw.hosts.as_ref(), like)?,
            },
            placements,
            scope: Scope {
                methods: raw.methods.map(|methods| self.methods(&methods)).transpose()?.unwrap_or_default(),
                paths: raw.paths.map(|paths| self.paths("paths", &paths)).transpose()?.unwrap_or_default(),
            },
            downloads: raw
                .downloads
                .map(|paths| self.paths("downloads", &paths))
                .transpose()?
                .unwrap_or_default(),
            foreign: raw.foreign,
            grant_to: self.grant_to(&raw.grant_to)?,
            env: own.0.or(own.1),
            prefix: raw.prefix.map(|prefix| self.prefix(prefix)).transpose()?,
            expires: raw.expires.map(|expires| self.expires(&expires)).transpose()?,
            pattern: raw.pattern.map(|pattern| self.pattern(&pattern)).transpose()?,
            minting: raw.minting.map(|minting| self.minting(&minting)).transpose()?.unwrap_or_default(),
            like: like.cloned(),
            ssh: None,
            aws,
            assertion,
            postgres: None,
            place: format!("{}:{}", self.file, position(self.text, at).0),
        })
    }

    /// An SSH key is in no request, and an access key stands in none: what is said of that would be said in vain.
    fn only_of(&self, kind: SecretKind, others: &[(&str, Option<usize>)]) -> Result<(), DocumentError> {
        match others.iter().find_map(|(key, at)| Some((key, (*at)?))) {
            Some((key, at)) => {
                Err(self
                    .error(at, format!("`{key}` is not for `kind = \"{}\"`; leave it out", kind.as_str())))
            }
            None => Ok(()),
        }
    }

    /// An account is of a kind that says how it is renewed, and nothing else is an account.
    fn of_account(
        &self,
        at: usize,
        kind: SecretKind,
        source: &Source,
        like: Option<&Arc<Kind>>,
    ) -> Result<(), DocumentError> {
        let renewed = like.is_some_and(|like| like.oauth.is_some());
        match (kind, source) {
            (SecretKind::Oauth, Source::Account(_)) if renewed => Ok(()),
            (SecretKind::Oauth, Source::Account(_)) => {
                Err(self.error(at, "an account needs a kind that is renewed, as `like = \"chatgpt-account\"`"))
            }
            (SecretKind::Oauth, _) => Err(self.error(
                at,
                "where is the account? Add `account = \"NAME\"`, the name that `understudy login import` gave it",
            )),
            (_, Source::Account(_)) if like.is_some_and(|like| like.is_stored()) => Ok(()),
            (_, Source::Account(_)) => Err(self.error(
                at,
                "`account` is for kinds that `understudy login` stores, as `like = \"chatgpt-account\"` or `like = \"github-app-token\"`",
            )),
            _ => Ok(()),
        }
    }

    fn like(&self, written: &Spanned<String>) -> Result<Arc<Kind>, DocumentError> {
        let kind = self.catalogue.kind(written.get_ref());
        kind.cloned().map_err(|error| self.error(written.span().start, format!("`like`: {error}")))
    }

    fn pattern(&self, written: &Spanned<String>) -> Result<Pattern, DocumentError> {
        let at = written.span().start;
        written.get_ref().parse().map_err(|error| self.error(at, format!("`pattern`: {error}")))
    }

    fn minting(&self, written: &Spanned<OneOrMany<String>>) -> Result<BTreeSet<Creates>, DocumentError> {
        let at = written.span().start;
        let parse =
            |text: &String| text.parse().map_err(|error| self.error(at, format!("`minting`: {error}")));
        written.get_ref().0.iter().map(parse).collect()
    }

    fn hosts(
        &self,
        at: usize,
        written: Option<&Spanned<OneOrMany<String>>>,
        like: Option<&Arc<Kind>>,
    ) -> Result<Vec<HostPattern>, DocumentError> {
        let Some(written) = written else {
            return match like {
                Some(like) if !like.hosts.is_empty() => Ok(like.hosts.clone()),
                Some(like) => {
                    let message =
                        format!("`hosts` is missing: `{}` has none of its own; name yours", like.name);
                    Err(self.error(at, message))
                }
                None => Err(self.error(at, "missing field `hosts`")),
            };
        };
        let at = written.span().start;
        if written.get_ref().0.is_empty() {
            return Err(self.error(at, "`hosts` is empty, so the secret could never be used"));
        }
        let parse = |host: &String| {
            host.parse().map_err(|error| self.error(at, format!("`hosts`: {host:?}: {error}")))
        };
        written.get_ref().0.iter().map(parse).collect()
    }

    fn placements(
        &self,
        at: usize,
        kind: SecretKind,
        written: Option<&Spanned<OneOrMany<String>>>,
    ) -> Result<Vec<Placement>, DocumentError> {
        let Some(written) = written else {
            return match kind {
                SecretKind::Bearer | SecretKind::Oauth => Ok(vec![Placement::bearer()]),
                SecretKind::Basic => Ok(vec![Placement::Basic(BasicHalf::Password)]),
                SecretKind::SshKey
                | SecretKind::Aws
                | SecretKind::GoogleServiceAccount
                | SecretKind::GithubApp
                | SecretKind::Postgres => Ok(Vec::new()),
                SecretKind::ApiKey => Err(self.error(
                    at,
                    "`placements` is missing: say where the key stands, as `placements = [\"header x-api-key\"]`",
                )),
            };
        };
        let at = written.span().start;
        if written.get_ref().0.is_empty() {
            return Err(self.error(at, "`placements` is empty, so the secret could never be used"));
        }
        let parse = |placement: &String| {
            placement.parse().map_err(|error| self.error(at, format!("`placements`: {error}")))
        };
        written.get_ref().0.iter().map(parse).collect()
    }

    fn methods(&self, written: &Spanned<OneOrMany<String>>) -> Result<Vec<Method>, DocumentError> {
        let at = written.span().start;
        let method = |text: &String| {
            let upper = (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_uppercase());
            let message = "`methods`: a method is a word in upper case, as \"GET\"";
            text.parse().ok().filter(|_| upper).ok_or_else(|| self.error(at, message))
        };
        if written.get_ref().0.is_empty() {
            return Err(self.error(at, "`methods` is empty, so the secret could never be used"));
        }
        written.get_ref().0.iter().map(method).collect()
    }

    fn paths(
        &self,
        key: &str,
        written: &Spanned<OneOrMany<String>>,
    ) -> Result<Vec<PathPattern>, DocumentError> {
        let at = written.span().start;
        if written.get_ref().0.is_empty() {
            return Err(self.error(at, format!("`{key}` is empty; leave it out, or name a path")));
        }
        let path = |text: &String| text.parse().map_err(|error| self.error(at, format!("`{key}`: {error}")));
        written.get_ref().0.iter().map(path).collect()
    }

    fn grant_to(&self, written: &Spanned<RawGrantTo>) -> Result<GrantTo, DocumentError> {
        let at = written.span().start;
        let raw = written.get_ref();
        if raw.harnesses.is_empty() && raw.images.is_empty() {
            let message = "`grant-to` names nobody; as `grant-to = { harnesses = [\"claude-code\"] }`";
            return Err(self.error(at, message));
        }
        let image = |id: &String| {
            let id = id.strip_prefix("sha256:").unwrap_or(id);
            id.parse().map_err(|error| self.error(at, format!("`grant-to`: `images`: {error}")))
        };
        let images = raw.images.iter().map(image).collect::<Result<_, _>>()?;
        Ok(GrantTo { harnesses: raw.harnesses.iter().cloned().collect(), images })
    }

    fn variable(&self, written: Spanned<String>) -> Result<String, DocumentError> {
        let at = written.span().start;
        let name = written.into_inner();
        let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if name.is_empty() || !letters || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.error(at, "`env` must be the name of an environment variable, as `API_TOKEN`"));
        }
        Ok(name)
    }

    fn prefix(&self, written: Spanned<String>) -> Result<String, DocumentError> {
        let at = written.span().start;
        let prefix = written.into_inner();
        // It is in every container: a whole value must not end up here.
        if prefix.is_empty() || prefix.len() > 24 || !prefix.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(
                self.error(at, "`prefix` must be 1 to 24 ASCII characters; it is visible to containers")
            );
        }
        Ok(prefix)
    }

    fn expires(&self, written: &Spanned<Datetime>) -> Result<Expiry, DocumentError> {
        let message = "`expires` must be a date without a time, as `expires = 2027-01-31`";
        Expiry::new(*written.get_ref()).ok_or_else(|| self.error(written.span().start, message))
    }

    fn error(&self, at: usize, message: impl Into<String>) -> DocumentError {
        DocumentError::at(self.file, self.text, at, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Declaration>, DocumentError> {
        parse("secrets.toml", text, &Catalogue::new([]).unwrap())
    }

    const GOOD: &str = "[anthropic]\nkind = \"api-key\"\nfile = \"/run/secrets/a\"\nhosts = \"api.example.com\"\n\
                        placements = [\"header x-api-key\"]\ngrant-to = { harnesses = [\"claude-code\"] }\n";

    #[test]
    fn a_declaration_says_where_and_to_whom() {
        let text = format!(
            "{GOOD}\n[token]\nkind = \"bearer\"\nfile = \"/run/secrets/t\"\nhosts = [\"*.example.com\", \"example.com\"]\n\
             env = \"API_TOKEN\"\nprefix = \"acme_\"\ngrant-to = {{ images = [\"sha256:{}\"] }}\n",
            "a".repeat(64),
        );
        let [key, token] = read(&text).unwrap().try_into().unwrap();
        assert_eq!((key.name.as_str(), key.place.as_str()), ("anthropic", "secrets.toml:1"));
        assert_eq!(key.placements[0].to_string(), "header x-api-key");
        assert_eq!(token.placements, [Placement::bearer()]);
        assert_eq!((token.env.as_deref(), token.prefix.as_deref()), (Some("API_TOKEN"), Some("acme_")));
        assert!(key.is_bound_to(&"API.example.com".parse().unwrap()));
        assert!(!key.is_bound_to(&"example.com".parse().unwrap()));
        let image: ImageId = "a".repeat(64).parse().unwrap();
        assert!(token.grant_to.includes("x", Some(&image)) && !token.grant_to.includes("x", None));
        assert!(
            key.grant_to.includes("claude-code", None) && !key.grant_to.includes("generic", Some(&image))
        );
    }

    #[test]
    fn each_source_is_one_key() {
        for (written, shown) in [
            ("file = \"/v/a\"", "file /v/a"),
            ("podman-secret = \"a.b-c_D\"", "podman-secret a.b-c_D"),
            ("credential = \"a\"", "credential a"),
            ("variable = \"A_B\"", "variable A_B"),
            ("command = [\"op\", \"read\", \"op://v/i\"]", "command op"),
            (
                "command = [\"/usr/bin/pass\", \"show\", \"x\"]\ntimeout = 5\ncache = 900",
                "command /usr/bin/pass",
            ),
        ] {
            let text = GOOD.replace("file = \"/run/secrets/a\"", written);
            let text = text + "expires = 2027-01-31\n";
            let [declared] =
                parse("s.toml", &text, &Catalogue::new([]).unwrap()).unwrap().try_into().unwrap();
            assert_eq!(declared.source.to_string(), shown);
            assert_eq!(declared.expires.unwrap().to_string(), "2027-01-31");
            if let Source::Command(command) = declared.source {
                let seconds = if command.words.len() == 3 && command.cache.is_some() { 5 } else { 10 };
                assert_eq!(command.timeout.as_secs(), seconds);
            }
        }
    }

    #[test]
    fn the_example_of_the_documentation_is_well_formed() {
        let (_, rest) = include_str!("../../../docs/secrets.md").split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let names: Vec<_> = read(text).unwrap().into_iter().map(|d| d.name).collect();
        assert_eq!(names, ["anthropic", "issue-tracker"]);
    }

    #[test]
    fn what_it_is_like_says_the_rest_and_own_keys_override() {
        let like = "[github]\nlike = \"github-pat\"\nfile = \"/run/secrets/github\"\ngrant-to = { harnesses = [\"x\"] }\n";
        let [github] = read(like).unwrap().try_into().unwrap();
        assert_eq!((github.kind, github.env.as_deref()), (SecretKind::Bearer, Some("GITHUB_TOKEN")));
        assert!(github.is_bound_to(&"api.github.com".parse().unwrap()));
        assert_eq!(github.placements[0], Placement::bearer());
        assert!(github.minting.is_empty() && github.pattern.is_none());
        let own = format!(
            "{like}kind = \"api-key\"\nhosts = \"git.example.com\"\nplacements = \"header x-token\"\nenv = \"MINE\"\n\
             pattern = \"mine_{{base62:20}}\"\nminting = [\"webhook\", \"deploy-key\"]\n"
        );
        let [own] = read(&own).unwrap().try_into().unwrap();
        assert_eq!((own.kind, own.env.as_deref()), (SecretKind::ApiKey, Some("MINE")));
        assert!(!own.is_bound_to(&"api.github.com".parse().unwrap()));
        assert_eq!((own.placements.len(), own.placements[0].to_string().as_str()), (1, "header x-token"));
        assert_eq!(own.minting, BTreeSet::from([Creates::Webhook, Creates::DeployKey]));
        for (from, to, said) in [
            (
                "github-pat",
                "github-pta",
                "2:8: `like`: there is no kind `github-pta`; did you mean `github-pat`?",
            ),
            ("github-pat", "container-registry", "1:1: `hosts` is missing: `container-registry` has none"),
            ("like = \"github-pat\"\n", "", "1:1: missing field `kind`; or say what it is `like`"),
            ("file", "minting = \"webhok\"\nfile", "3:11: `minting`: unknown value; did you mean `webhook`?"),
            (
                "file",
                "pattern = \"sk-0123456789abcdef\"\nfile",
                "3:11: `pattern`: fewer than 12 characters are secret",
            ),
        ] {
            let error = read(&like.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("secrets.toml:{said}")), "{error}\nexpected {said}");
            assert!(!error.contains("0123456789"), "{error}");
        }
    }

    #[test]
    fn no_file_no_secrets() {
        assert!(read("").unwrap().is_empty());
    }

    #[test]
    fn every_mistake_names_line_and_key_and_never_a_value() {
        let value = "sk-live-0123456789abcdef";
        for (from, to, said) in [
            ("kind =", "kid =", "2:1: unknown key `kid`; did you mean `kind`?"),
            ("\"api-key\"", "\"api-kee\"", "2:8: unknown value; did you mean `api-key`?"),
            ("file = \"/run/secrets/a\"", "value = \"sk-live-0123456789abcdef\"", "3:1: unknown key `value`"),
            ("/run/secrets/a", "sk-live-0123456789abcdef", "3:8: `file` must be the absolute path"),
            ("hosts = \"api.example.com\"", "hosts = []", "4:9: `hosts` is empty"),
            ("api.example.com", "*", "4:9: `hosts`: \"*\": a bare `*`"),
            ("api.example.com", "*.com", "4:9: `hosts`: \"*.com\""),
            ("placements = [\"header x-api-key\"]\n", "", "1:1: `placements` is missing"),
            (
                "placements = [\"header x-api-key\"]",
                "headers = [\"x-api-key\"]",
                "5:1: `headers` is now `placements`, as",
            ),
            ("[\"header x-api-key\"]", "[]", "5:14: `placements` is empty"),
            (
                "header x-api-key",
                "header authorization sk-live-0123456789abcdef x",
                "5:14: `placements`: not the name",
            ),
            (
                "header x-api-key",
                "header x-api-key=sk-live-0123456789abcdef",
                "5:14: `placements`: not the name",
            ),
            ("header x-api-key", "sk-live-0123456789abcdef", "5:14: `placements`: not a placement"),
            ("header x-api-key", "header host", "5:14: `placements`: `host` says"),
            ("file = \"/run/secrets/a\"\n", "", "1:1: where is its value?"),
            ("/run/secrets/a", "/run/secrets/../a", "3:8: `file` must be the absolute path, without `..`"),
            ("kind =", "variable = \"A\"\nkind =", "1:1: it has several sources"),
            ("kind =", "timeout = 5\nkind =", "2:11: `timeout` is for a `command`"),
            ("kind =", "cache = 5\nkind =", "2:9: `cache` is for a `command`"),
            ("kind =", "expires = 2027-01-31T10:00:00\nkind =", "2:11: `expires` must be a date"),
            ("kind =", "expires = \"2027-01-31\"\nkind =", "2:11: "),
            ("file = \"/run/secrets/a\"", "podman-secret = \"../a\"", "3:17: `podman-secret` must be a name"),
            ("file = \"/run/secrets/a\"", "podman-secret = \".a\"", "3:17: `podman-secret` must be a name"),
            ("file = \"/run/secrets/a\"", "credential = \"a/b\"", "3:14: `credential` must be a name"),
            (
                "file = \"/run/secrets/a\"",
                "variable = \"sk-live-0123456789abcdef\"",
                "3:12: `variable` must be",
            ),
            ("file = \"/run/secrets/a\"", "command = []", "3:11: `command` must begin with a program"),
            ("file = \"/run/secrets/a\"", "command = [\"bin/op\"]", "3:11: `command` must begin"),
            ("file = \"/run/secrets/a\"", "command = \"op read x\"", "3:11: "),
            ("file = \"/run/secrets/a\"", "command = [\"op\"]\ntimeout = 0", "4:11: `timeout` must be 1 to"),
            ("file = \"/run/secrets/a\"", "command = [\"op\"]\ncache = 9999999", "4:9: `cache` must be 1 to"),
            ("kind =", "methods = []\nkind =", "2:11: `methods` is empty"),
            (
                "kind =",
                "methods = \"sk-live-0123456789abcdef\"\nkind =",
                "2:11: `methods`: a method is a word",
            ),
            ("kind =", "paths = []\nkind =", "2:9: `paths` is empty"),
            ("kind =", "paths = \"sk-live-0123456789abcdef\"\nkind =", "2:9: `paths`: a path starts with"),
            ("kind =", "foreign = \"alow\"\nkind =", "2:11: unknown value; did you mean `allow`?"),
            ("grant-to = { harnesses = [\"claude-code\"] }", "", "1:1: missing field `grant-to`"),
            ("{ harnesses = [\"claude-code\"] }", "{}", "6:12: `grant-to` names nobody"),
            ("harnesses", "harneses", "6:14: unknown key `harneses`; did you mean `harnesses`?"),
            (
                "harnesses = [\"claude-code\"]",
                "images = [\"latest\"]",
                "6:12: `grant-to`: `images`: not an id",
            ),
            ("[anthropic]", "[Anthropic]", "1:1: the name of a secret"),
            ("kind =", "env = \"A B\"\nkind =", "2:7: `env` must be"),
            ("kind =", "prefix = \"\"\nkind =", "2:10: `prefix` must be"),
            ("\"/run/secrets/a\"", "[\"sk-live-0123456789abcdef\"]", "3:8: "),
            ("kind = \"api-key\"", "kind = \"sk-live-0123456789abcdef\"", "2:8: unknown value"),
            ("kind = \"api-key\"", "kind = sk-live-0123456789abcdef", "2:8: "),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD);
            let error = parse("s.toml", &text, &Catalogue::new([]).unwrap()).unwrap_err().to_string();
            assert!(error.starts_with(&format!("s.toml:{said}")), "{error}\nexpected {said}");
            assert!(!error.contains(value) && !error.contains("0123456789"), "{error}");
        }
    }
}
