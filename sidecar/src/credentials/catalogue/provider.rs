//! One file of the catalogue: a provider, what its credentials look like, where they go, and what makes new ones.

use std::sync::Arc;

use http::Method;
use serde::Deserialize;
use toml::Spanned;
use understudy_harnesses::SecretKind;
use understudy_policies::document::{self, OneOrMany, closest};
use understudy_policies::{DocumentError, HostPattern, PathPattern};

use super::endpoint::{Creates, Endpoint};
use super::key_login::{KeyLogin, RawKeyLogin};
use super::login_file::LoginFile;
use super::minted::{Inside, Minted};
use super::mutation::{Mutation, is_name};
use super::oauth::{Oauth, RawOauth};
use super::pattern::Pattern;
use crate::credentials::placement::{Placement, Pointer};

#[derive(Debug, Clone)]
pub struct Provider {
    pub name: String,
    /// For people.
    pub what: String,
    /// Where its credentials are used; empty where only the user knows.
    pub hosts: Vec<HostPattern>,
    /// All that it accepts.
    pub shapes: Vec<Arc<Shape>>,
    pub kinds: Vec<Arc<Kind>>,
    pub endpoints: Vec<Endpoint>,
    pub mutations: Vec<Mutation>,
    pub minted: Vec<Minted>,
}

/// What one sort of its credentials looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    pub name: String,
    /// For people, with the provider: `GitHub: a classic personal access token`.
    pub what: String,
    pub pattern: Pattern,
    /// It is good for a day or more, or until it is revoked.
    pub long_lived: bool,
    /// Whether the provider's documentation, or a checksum that comes out right, says so.
    pub confirmed: bool,
}

/// What `like` in `secrets.toml` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    pub name: String,
    /// The name of the provider.
    pub provider: String,
    pub what: String,
    pub kind: SecretKind,
    /// One of them fits; empty of accounts alone.
    pub shapes: Vec<Arc<Shape>>,
    /// Empty where only the user knows.
    pub hosts: Vec<HostPattern>,
    /// Never empty.
    pub placements: Vec<Placement>,
    /// The variable that programs usually read.
    pub env: Option<String>,
    /// Whether the provider's documentation says where it stands.
    pub confirmed: bool,
    /// Of an account, and of nothing else.
    pub oauth: Option<Oauth>,
    /// Never empty of an account; of others, where programs keep one.
    pub login_files: Vec<LoginFile>,
    /// How programs get one; not of an account.
    pub logins: Vec<KeyLogin>,
}

impl Kind {
    /// Whether the sidecar's own store can hold one.
    pub fn is_stored(&self) -> bool {
        !self.login_files.is_empty() || !self.logins.is_empty()
    }

    /// The fact that tells one account from another: all login files call it the same.
    pub fn identity(&self) -> Option<&str> {
        self.login_files.iter().find_map(|file| file.identity.as_deref())
    }

    /// What one is called of which nobody said otherwise.
    pub fn usual_name(&self) -> Option<&str> {
        self.login_files.first().map(|file| file.name.as_str())
    }

    /// How its values start: "`ghp_` or `github_pat_`". None if some start with nothing in particular.
    pub fn prefixes(&self) -> Option<String> {
        let prefixes: Vec<&str> = self.shapes.iter().map(|shape| shape.pattern.prefix()).collect();
        if prefixes.iter().any(|prefix| prefix.is_empty()) {
            return None;
        }
        let quoted: Vec<String> = prefixes.iter().map(|prefix| format!("`{prefix}`")).collect();
        Some(quoted.join(" or "))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Raw {
    name: Spanned<String>,
    what: String,
    #[serde(default)]
    hosts: Option<Spanned<OneOrMany<String>>>,
    #[serde(default, rename = "shape")]
    shapes: Vec<Spanned<RawShape>>,
    #[serde(default, rename = "kind")]
    kinds: Vec<Spanned<RawKind>>,
    #[serde(default, rename = "endpoint")]
    endpoints: Vec<Spanned<RawEndpoint>>,
    #[serde(default, rename = "mutation")]
    mutations: Vec<Spanned<RawMutation>>,
    #[serde(default)]
    minted: Vec<Spanned<RawMinted>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawShape {
    name: Spanned<String>,
    what: String,
    pattern: Spanned<String>,
    long_lived: bool,
    #[serde(default = "yes")]
    confirmed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawKind {
    name: Spanned<String>,
    what: String,
    kind: SecretKind,
    shapes: Option<Spanned<OneOrMany<String>>>,
    hosts: Option<Spanned<OneOrMany<String>>>,
    placements: Spanned<OneOrMany<String>>,
    env: Option<Spanned<String>>,
    oauth: Option<Spanned<RawOauth>>,
    #[serde(default, rename = "login-file")]
    login_files: Vec<Spanned<LoginFile>>,
    #[serde(default, rename = "login")]
    logins: Vec<Spanned<RawKeyLogin>>,
    #[serde(default = "yes")]
    confirmed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawEndpoint {
    methods: Option<Spanned<OneOrMany<String>>>,
    hosts: Option<Spanned<OneOrMany<String>>>,
    paths: Spanned<OneOrMany<String>>,
    creates: Creates,
    #[serde(default = "yes")]
    confirmed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawMutation {
    hosts: Option<Spanned<OneOrMany<String>>>,
    paths: Spanned<OneOrMany<String>>,
    fields: Spanned<OneOrMany<String>>,
    creates: Creates,
    #[serde(default = "yes")]
    confirmed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawMinted {
    name: Spanned<String>,
    hosts: Option<Spanned<OneOrMany<String>>>,
    #[serde(default)]
    method: Option<Spanned<String>>,
    paths: Spanned<OneOrMany<String>>,
    field: Spanned<String>,
    inside: Option<Spanned<String>>,
    harmless: Option<Spanned<OneOrMany<String>>>,
    left_out: Option<Spanned<OneOrMany<String>>>,
    used_at: Option<Spanned<OneOrMany<String>>>,
    placements: Spanned<OneOrMany<String>>,
    wrap: bool,
    #[serde(default = "yes")]
    confirmed: bool,
}

fn yes() -> bool {
    true
}

/// `file` is only for messages.
pub(super) fn parse(file: &str, text: &str) -> Result<Provider, DocumentError> {
    let raw: Raw = document::parse(file, text)?;
    let source = Source { file, text };
    source.name(&raw.name)?;
    let mut provider = Provider {
        name: raw.name.into_inner(),
        what: raw.what,
        hosts: source.hosts(raw.hosts.as_ref())?,
        shapes: Vec::new(),
        kinds: Vec::new(),
        endpoints: Vec::new(),
        mutations: Vec::new(),
        minted: Vec::new(),
    };
    for raw in raw.shapes {
        let shape = source.shape(raw.into_inner(), &provider)?;
        provider.shapes.push(Arc::new(shape));
    }
    for raw in raw.kinds {
        let kind = source.kind(raw.into_inner(), &provider)?;
        provider.kinds.push(Arc::new(kind));
    }
    for raw in raw.endpoints {
        source.endpoints(raw, &mut provider)?;
    }
    for raw in raw.mutations {
        provider.mutations.push(source.mutation(raw.into_inner())?);
    }
    for raw in raw.minted {
        let minted = source.minted(raw.into_inner(), &provider)?;
        provider.minted.push(minted);
    }
    Ok(provider)
}

struct Source<'t> {
    file: &'t str,
    text: &'t str,
}

impl Source<'_> {
    fn shape(&self, raw: RawShape, provider: &Provider) -> Result<Shape, DocumentError> {
        self.name(&raw.name)?;
        let name = raw.name.get_ref();
        if provider.shapes.iter().any(|shape| shape.name == *name) {
            return Err(self.error(&raw.name, "there is another shape of that name"));
        }
        let pattern = raw
            .pattern
            .get_ref()
            .parse()
            .map_err(|error: String| self.error(&raw.pattern, format!("`pattern`: {error}")))?;
        Ok(Shape {
            what: format!("{}: {}", provider.what, raw.what),
            pattern,
            long_lived: raw.long_lived,
            confirmed: raw.confirmed,
            name: raw.name.into_inner(),
        })
    }

    fn kind(&self, raw: RawKind, provider: &Provider) -> Result<Kind, DocumentError> {
        self.name(&raw.name)?;
        let mut logins = Vec::new();
        for login in raw.logins {
            let at = Spanned::new(login.span(), ());
            if raw.kind == SecretKind::Oauth {
                return Err(self.error(&at, "`login` is for kinds that are not renewed"));
            }
            logins.push(login.into_inner().checked().map_err(|error| self.error(&at, error))?);
        }
        let mut login_files = Vec::new();
        for file in raw.login_files {
            let of_key = match raw.kind {
                SecretKind::Oauth => {
                    Err("the login files of an account are `[[kind.oauth.login-file]]`".to_owned())
                }
                _ => file.get_ref().check_of_key(),
            };
            of_key.map_err(|error| self.error(&file, error))?;
            login_files.push(file.into_inner());
        }
        let oauth = match (raw.kind, raw.oauth) {
            (SecretKind::Oauth, Some(oauth)) => {
                let at = Spanned::new(oauth.span(), ());
                let oauth = oauth.into_inner();
                login_files.extend(oauth.login_files.iter().cloned());
                Some(oauth.checked().map_err(|error| self.error(&at, error))?)
            }
            (SecretKind::Oauth, None) => {
                return Err(self.error(&raw.name, "`kind = \"oauth\"` needs a table `[kind.oauth]`"));
            }
            (_, Some(oauth)) => return Err(self.error(&oauth, "`oauth` is for `kind = \"oauth\"`")),
            (_, None) => None,
        };
        let none = || Spanned::new(raw.name.span(), OneOrMany(Vec::new()));
        let written = raw.shapes.unwrap_or_else(none);
        let shape = |name: &String| {
            let known = || provider.shapes.iter().map(|shape| shape.name.as_str());
            provider.shapes.iter().find(|shape| shape.name == *name).cloned().ok_or_else(|| {
                let meant =
                    closest(name, known()).map_or(String::new(), |m| format!("; did you mean `{m}`?"));
                self.error(&written, format!("`shapes`: there is no `[[shape]]` of that name{meant}"))
            })
        };
        let shapes = written.get_ref().0.iter().map(shape).collect::<Result<Vec<_>, _>>()?;
        let placement = |text: &String| {
            text.parse().map_err(|error| self.error(&raw.placements, format!("`placements`: {error}")))
        };
        let placements = raw.placements.get_ref().0.iter().map(placement).collect::<Result<Vec<_>, _>>()?;
        if shapes.is_empty() && oauth.is_none() {
            return Err(self.error(&written, "`shapes` is empty, so no value would fit"));
        }
        if placements.is_empty() {
            return Err(self.error(&raw.placements, "`placements` is empty, so it could never be used"));
        }
        let hosts = match &raw.hosts {
            None => provider.hosts.clone(),
            Some(hosts) => self.hosts(Some(hosts))?,
        };
        let letters = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if let Some(env) = raw.env.as_ref().filter(|env| !env.get_ref().bytes().all(letters)) {
            return Err(self.error(env, "`env` must be the name of an environment variable, as `API_TOKEN`"));
        }
        Ok(Kind {
            name: raw.name.into_inner(),
            provider: provider.name.clone(),
            what: format!("{}: {}", provider.what, raw.what),
            kind: raw.kind,
            shapes,
            hosts,
            placements,
            env: raw.env.map(Spanned::into_inner),
            confirmed: raw.confirmed,
            oauth,
            login_files,
            logins,
        })
    }

    fn endpoints(&self, raw: Spanned<RawEndpoint>, provider: &mut Provider) -> Result<(), DocumentError> {
        let raw = raw.into_inner();
        let hosts = self.hosts(raw.hosts.as_ref())?;
        let mut methods = Vec::new();
        if let Some(written) = &raw.methods {
            for name in &written.get_ref().0 {
                let error = || self.error(written, "`methods`: not a method, as `POST`");
                methods.push(method(name).ok_or_else(error)?);
            }
        }
        for path in self.paths(&raw.paths)? {
            provider.endpoints.push(Endpoint {
                provider: provider.name.clone(),
                hosts: hosts.clone(),
                methods: methods.clone(),
                path,
                creates: raw.creates,
                confirmed: raw.confirmed,
            });
        }
        Ok(())
    }

    fn mutation(&self, raw: RawMutation) -> Result<Mutation, DocumentError> {
        let (hosts, paths) = (self.hosts(raw.hosts.as_ref())?, self.paths(&raw.paths)?);
        if !raw.fields.get_ref().0.iter().all(|field| is_name(field)) {
            return Err(self.error(&raw.fields, "`fields`: not a name of GraphQL, as `webhookCreate`"));
        }
        let (creates, confirmed) = (raw.creates, raw.confirmed);
        Ok(Mutation { hosts, paths, fields: raw.fields.into_inner().0, creates, confirmed })
    }

    fn minted(&self, raw: RawMinted, provider: &Provider) -> Result<Minted, DocumentError> {
        self.name(&raw.name)?;
        let label = format!("{} {}", provider.name, raw.name.get_ref());
        if provider.minted.iter().any(|minted| minted.label == label) {
            return Err(self.error(&raw.name, "there is another `[[minted]]` of that name"));
        }
        let (hosts, used_at) = (self.hosts(raw.hosts.as_ref())?, self.hosts(raw.used_at.as_ref())?);
        let method = match &raw.method {
            None => Method::POST,
            Some(written) => method(written.get_ref())
                .ok_or_else(|| self.error(written, "`method`: not a method, as `POST`"))?,
        };
        let paths = self.paths(&raw.paths)?;
        let pointer = |key: &str, written: &Spanned<String>| {
            let parsed = written.get_ref().parse::<Pointer>();
            parsed.map_err(|error| self.error(written, format!("`{key}`: {error}")))
        };
        let field = pointer("field", &raw.field)?;
        let at = raw.inside.as_ref().map(|written| pointer("inside", written)).transpose()?;
        if let (None, Some(list)) = (&at, raw.harmless.as_ref().or(raw.left_out.as_ref())) {
            return Err(
                self.error(list, "`harmless` and `left-out` are members of what `inside` points into")
            );
        }
        let members =
            |list: Option<Spanned<OneOrMany<String>>>| list.map_or_else(Vec::new, |list| list.into_inner().0);
        let (harmless, left_out) = (members(raw.harmless), members(raw.left_out));
        let inside = at.map(|at| Inside { at, harmless, left_out });
        let placement = |text: &String| match text.parse() {
            Ok(placement @ Placement::Header { .. }) => Ok(placement),
            Ok(_) => Err(self.error(&raw.placements, "`placements`: what is minted stands in a header")),
            Err(error) => Err(self.error(&raw.placements, format!("`placements`: {error}"))),
        };
        let placements = raw.placements.get_ref().0.iter().map(placement).collect::<Result<Vec<_>, _>>()?;
        for (list, empty) in [("paths", paths.is_empty()), ("placements", placements.is_empty())] {
            if empty {
                return Err(self.error(&raw.name, format!("`{list}` is empty, so it could never be used")));
            }
        }
        let (wrap, confirmed) = (raw.wrap, raw.confirmed);
        Ok(Minted { label, hosts, method, paths, field, inside, used_at, placements, wrap, confirmed })
    }

    fn paths(&self, written: &Spanned<OneOrMany<String>>) -> Result<Vec<PathPattern>, DocumentError> {
        let parse =
            |path: &String| path.parse().map_err(|error| self.error(written, format!("`paths`: {error}")));
        written.get_ref().0.iter().map(parse).collect()
    }

    fn hosts(&self, written: Option<&Spanned<OneOrMany<String>>>) -> Result<Vec<HostPattern>, DocumentError> {
        let Some(written) = written else { return Ok(Vec::new()) };
        let parse = |host: &String| {
            host.parse().map_err(|error| self.error(written, format!("`hosts`: {host:?}: {error}")))
        };
        written.get_ref().0.iter().map(parse).collect()
    }

    fn name(&self, written: &Spanned<String>) -> Result<(), DocumentError> {
        let name = written.get_ref();
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
            return Err(self.error(written, "`name` must be lower-case letters, digits and `-`, at most 64"));
        }
        Ok(())
    }

    fn error<T>(&self, written: &Spanned<T>, message: impl Into<String>) -> DocumentError {
        DocumentError::at(self.file, self.text, written.span().start, message)
    }
}

/// In capitals, as registered ones are.
fn method(name: &str) -> Option<Method> {
    let upper = name.bytes().all(|b| b.is_ascii_uppercase());
    Method::from_bytes(name.as_bytes()).ok().filter(|_| upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "acme"
what = "Acme"
hosts = ["api.acme.example"]

[[shape]]
name = "token"
what = "a token"
pattern = "acme_{base62:32}"
long-lived = true

[[kind]]
name = "acme-token"
what = "token of the web API"
kind = "bearer"
shapes = ["token"]
placements = ["header authorization Bearer"]
env = "ACME_TOKEN"

[[endpoint]]
methods = ["POST"]
paths = ["/v1/tokens", "/v1/hooks/**"]
creates = "pat"

[[minted]]
name = "session"
paths = "/v1/sessions"
field = "/session"
placements = "header x-session"
wrap = true

[[kind.login]]
name = "acme"
endpoint = "https://acme.example/login/*/token"
field = "token"
whose = "https://api.acme.example/me"
facts = { user = "/name" }

[[kind.login-file]]
name = "acme"
what = "its file"
syntax = "env"
access = "/TOKEN"
"#;

    #[test]
    fn a_file_is_a_provider() {
        let provider = parse("acme.toml", GOOD).unwrap();
        let kind = &provider.kinds[0];
        assert_eq!(
            (kind.hosts[0].to_string().as_str(), kind.env.as_deref()),
            ("api.acme.example", Some("ACME_TOKEN"))
        );
        assert_eq!(kind.prefixes().as_deref(), Some("`acme_`"));
        assert_eq!(provider.shapes[0].what, "Acme: a token");
        assert_eq!(provider.endpoints[1].to_string(), "POST /v1/hooks/**");
        assert!(provider.endpoints[0].confirmed);
        let minted = &provider.minted[0];
        assert_eq!(
            (minted.label.as_str(), &minted.method, minted.wrap),
            ("acme session", &Method::POST, true)
        );
    }

    #[test]
    fn every_mistake_says_where_and_what() {
        for (from, to, said) in [
            ("what = \"Acme\"", "wat = \"Acme\"", "3:1: unknown key `wat`; did you mean `what`?"),
            ("\"acme\"", "\"Acme Inc\"", "2:8: `name` must be"),
            ("api.acme.example", "*", "4:9: `hosts`: \"*\""),
            ("long-lived", "longlived", "10:1: unknown key `longlived`; did you mean `long-lived`?"),
            ("base62:32", "base6:32", "9:11: `pattern`: no such alphabet"),
            (
                "[\"token\"]",
                "[\"tokne\"]",
                "16:10: `shapes`: there is no `[[shape]]` of that name; did you mean `token`?",
            ),
            ("[\"token\"]", "[]", "16:10: `shapes` is empty"),
            ("\"header authorization Bearer\"", "\"headr x\"", "17:14: `placements`: "),
            ("[\"header authorization Bearer\"]", "[]", "17:14: `placements` is empty"),
            ("\"bearer\"", "\"bearrer\"", "15:8: unknown value; did you mean `bearer`?"),
            ("ACME_TOKEN", "ACME TOKEN", "18:7: `env` must be"),
            ("\"POST\"", "\"post\"", "21:11: `methods`: not a method"),
            ("/v1/tokens", "v1/tokens", "22:9: `paths`: a path starts with"),
            ("\"pat\"", "\"pad\"", "23:11: unknown value; did you mean `pat`?"),
            ("/session\"", "session\"", "28:9: `field`: not a JSON pointer"),
            (
                "field = \"/session\"",
                "field = \"/session\"\ninside = \"x\"",
                "29:10: `inside`: not a JSON pointer",
            ),
            (
                "field = \"/session\"",
                "field = \"/session\"\nleft-out = \"x\"",
                "29:12: `harmless` and `left-out` are members",
            ),
            ("header x-session", "cookie x", "29:14: `placements`: what is minted stands in a header"),
            ("wrap = true", "wrp = true", "30:1: unknown key `wrp`; did you mean `wrap`?"),
            ("https://acme", "http://acme", "32:1: `login`: `endpoint`: it must be https"),
            ("https://api.acme", "api.acme", "32:1: `login`: `whose`: "),
            ("\"/name\"", "\"name\"", "32:1: `login`: `facts`: `name` is no JSON pointer"),
            ("\"/TOKEN\"", "\"TOKEN\"", "39:1: login file `acme`: `TOKEN` is no JSON pointer"),
            (
                "access = \"/TOKEN\"",
                "access = \"/TOKEN\"\nrefresh = \"/R\"",
                "39:1: login file `acme`: `refresh`, `id` and `expires`",
            ),
        ] {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD, "{from}");
            let error = parse("acme.toml", &text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("acme.toml:{said}")), "{error}\nexpected {said}");
        }
    }
}
