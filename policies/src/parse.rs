//! The text of a policy file into rules.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use serde::Deserialize;
use toml::Spanned;

use crate::builtin::GITHUB_PR;
use crate::document::{self, Items, Lines};
use crate::git::{Access, Git};
use crate::lint::lint;
use crate::model::Extends;
use crate::{Conditions, DocumentError, Effect, HostPattern, Limits, Ports, Rule, Terms, terms};

/// The ports that are meant where none is named.
const HTTPS: u16 = 443;
const POSTGRES: u16 = 5432;

pub(crate) struct Parsed {
    pub(crate) rules: Vec<Rule>,
    pub(crate) extends: Vec<Extends>,
    pub(crate) warnings: Vec<String>,
    pub(crate) limits: Limits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    extends: List,
    repos: List,
    open: Option<Spanned<bool>>,
    max_requests: Option<u64>,
    max_bytes: Option<Spanned<Size>>,
    max_runtime: Option<Spanned<String>>,
    #[serde(default)]
    allow: Vec<RawRule>,
    #[serde(default)]
    deny: Vec<RawRule>,
}

type List = Option<Items<String>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawRule {
    host: Items<String>,
    port: Option<Items<u16>>,
    methods: List,
    paths: List,
    query: List,
    git: Option<Spanned<RawAccess>>,
    repos: List,
    note: Option<String>,
    tcp: Flag,
    postgres: Flag,
    databases: List,
    private: Flag,
    max_body: Option<Spanned<Size>>,
    rate: Option<Spanned<String>>,
    upgrade: List,
    splice: Flag,
    inspect: Flag,
}

type Flag = Option<Spanned<bool>>;

#[derive(Deserialize)]
#[serde(untagged, expecting = "a size, as 4096 or \"10M\"")]
enum Size {
    Bytes(u64),
    Text(String),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawAccess {
    Read,
    Write,
}

pub(crate) fn file(file: &str, text: &str) -> Result<Parsed, DocumentError> {
    let raw: File = document::parse(file, text)?;
    let source = Source { file, text, lines: Lines::of(text), twice: RefCell::default() };
    let allow = raw.allow.into_iter().map(|rule| (Effect::Allow, rule));
    let deny = raw.deny.into_iter().map(|rule| (Effect::Deny, rule));
    let rules = allow.chain(deny).map(|(effect, raw)| source.rule(effect, raw));
    let mut rules = rules.collect::<Result<Vec<_>, _>>()?;
    let mut warnings = source.twice.take();
    warnings.extend(lint(&rules));
    if let Some(open) = raw.open.filter(|open| *open.get_ref()) {
        let place = source.place(open.span().start);
        rules.insert(0, Rule::new(Effect::Allow, vec![HostPattern::Everything], Ports::Any, place));
    }
    let extends = source.extends(raw.extends, raw.repos)?;
    let runtime = raw.max_runtime.as_ref().map(|time| {
        terms::time(time.get_ref())
            .map_err(|error| source.error(time.span().start, format!("`max-runtime`: {error}")))
    });
    let limits = Limits {
        requests: raw.max_requests,
        bytes: raw.max_bytes.as_ref().map(|size| source.size("max-bytes", size)).transpose()?,
        runtime: runtime.transpose()?,
    };
    Ok(Parsed { rules, extends, warnings, limits })
}

struct Source<'a> {
    file: &'a str,
    text: &'a str,
    lines: Lines<'a>,
    /// What lists say more than once.
    twice: RefCell<Vec<String>>,
}

impl Source<'_> {
    /// `repos` are for the one built-in policy that takes some.
    fn extends(&self, list: List, repos: List) -> Result<Vec<Extends>, DocumentError> {
        let meant =
            |list: &List| list.as_ref().is_some_and(|list| list.iter().any(|(_, name)| name == GITHUB_PR));
        if let Some(repos) = repos.as_ref().filter(|_| !meant(&list)) {
            let at = repos.at();
            return Err(self.error(at, format!("`repos` here is for extends = [\"{GITHUB_PR}\"]")));
        }
        let Some(list) = list else { return Ok(Vec::new()) };
        let repos = repos.map(Items::into_values).unwrap_or_default();
        let of = |(at, policy): (usize, &String)| {
            let (line, column) = self.lines.position(at);
            let place = format!("{}:{line}:{column}", self.file);
            Extends { policy: policy.clone(), repos: repos.clone(), place }
        };
        Ok(list.iter().map(of).collect())
    }

    fn rule(&self, effect: Effect, raw: RawRule) -> Result<Rule, DocumentError> {
        let at = raw.host.at();
        let hosts = self.each("host", &raw.host, |host| host.parse::<HostPattern>())?;
        let splice = self.unseen("splice", &raw.splice, effect, &raw)?;
        let tcp = self.unseen("tcp", &raw.tcp, effect, &raw)?;
        let postgres = self.postgres(effect, &raw)?;
        let inspect = self.inspect(effect, &raw)?;
        self.only_one_of(&raw)?;
        let terms = self.terms(effect, &raw)?;
        Ok(Rule {
            effect,
            hosts,
            ports: self.ports(effect, raw.port, if postgres.is_some() { POSTGRES } else { HTTPS })?,
            conditions: self.conditions(effect, raw.methods, raw.paths, raw.query, raw.git, raw.repos)?,
            splice,
            inspect,
            tcp,
            postgres,
            terms,
            note: raw.note,
            place: self.place(at),
            column: Some(self.lines.position(at).1),
        })
    }

    /// What is not looked into can be asked for nothing but host and port.
    fn unseen(&self, key: &str, flag: &Flag, effect: Effect, raw: &RawRule) -> Result<bool, DocumentError> {
        let Some(at) = said(flag) else { return Ok(false) };
        if effect == Effect::Deny {
            return Err(
                self.error(at, format!("`{key}` is for an [[allow]]; a [[deny]] lets nothing through"))
            );
        }
        let (methods, upgrade) = (("methods", &raw.methods), ("upgrade", &raw.upgrade));
        let lists = [methods, ("paths", &raw.paths), ("query", &raw.query), upgrade];
        let beside = lists.iter().find_map(|(key, list)| list.as_ref().map(|_| *key));
        let beside = beside.or(raw.git.as_ref().map(|_| "git")).or(raw.max_body.as_ref().map(|_| "max-body"));
        match beside {
            None => Ok(true),
            Some(other) => {
                let message =
                    format!("`{key}` beside `{other}`, which nobody can see in what is not decrypted");
                Err(self.error(at, message))
            }
        }
    }

    /// The databases that it is about; empty: every one.
    fn postgres(&self, effect: Effect, raw: &RawRule) -> Result<Option<Vec<String>>, DocumentError> {
        let is = self.unseen("postgres", &raw.postgres, effect, raw)?;
        match &raw.databases {
            None => Ok(is.then(Vec::new)),
            Some(list) if is => self.each("databases", list, database).map(Some),
            Some(list) => Err(self.error(list.at(), "`databases` needs `postgres = true`")),
        }
    }

    fn inspect(&self, effect: Effect, raw: &RawRule) -> Result<bool, DocumentError> {
        let Some(inspect) = &raw.inspect else { return Ok(false) };
        let message = match (*inspect.get_ref(), effect) {
            (true, Effect::Allow) => return Ok(true),
            (true, Effect::Deny) => {
                "`inspect` is for an [[allow]]; what a [[deny]] is about is looked into anyway"
            }
            (false, _) => {
                "`inspect` is what is done with every host; where it must not be, write `splice = true`"
            }
        };
        Err(self.error(inspect.span().start, message))
    }

    fn only_one_of(&self, raw: &RawRule) -> Result<(), DocumentError> {
        let flags = [
            ("inspect", &raw.inspect),
            ("splice", &raw.splice),
            ("tcp", &raw.tcp),
            ("postgres", &raw.postgres),
        ];
        let mut said = flags.iter().filter_map(|(key, flag)| Some((key, said(flag)?)));
        if let (Some((one, _)), Some((other, at))) = (said.next(), said.next()) {
            return Err(self.error(at, format!("`{other}` beside `{one}`; make two rules of it")));
        }
        if let Some(at) = said_tcp_without_port(raw) {
            return Err(self.error(at, "`tcp` needs a `port`; 443 is for HTTPS"));
        }
        Ok(())
    }

    fn size(&self, key: &str, size: &Spanned<Size>) -> Result<u64, DocumentError> {
        match size.get_ref() {
            Size::Bytes(bytes) => Ok(*bytes),
            Size::Text(text) => {
                terms::size(text).map_err(|error| self.error(size.span().start, format!("`{key}`: {error}")))
            }
        }
    }

    fn terms(&self, effect: Effect, raw: &RawRule) -> Result<Terms, DocumentError> {
        let rate = raw.rate.as_ref().map(|rate| {
            rate.get_ref().parse().map_err(|error| self.error(rate.span().start, format!("`rate`: {error}")))
        });
        let max_body = raw.max_body.as_ref().map(|size| self.size("max-body", size));
        let keys = [
            ("private", said(&raw.private)),
            ("rate", raw.rate.as_ref().map(|rate| rate.span().start)),
            ("max-body", raw.max_body.as_ref().map(|size| size.span().start)),
            ("upgrade", raw.upgrade.as_ref().map(Items::at)),
        ];
        if let Some((key, at)) =
            keys.iter().find_map(|(key, at)| Some((key, (*at)?))).filter(|_| effect == Effect::Deny)
        {
            return Err(self.error(at, format!("`{key}` is for an [[allow]]; a [[deny]] allows nothing")));
        }
        let upgrade = raw.upgrade.as_ref().map(|list| self.each("upgrade", list, |name| name.parse()));
        Ok(Terms {
            private: said(&raw.private).is_some(),
            max_body: max_body.transpose()?,
            rate: rate.transpose()?,
            upgrade: upgrade.transpose()?.unwrap_or_default(),
        })
    }

    fn ports(&self, effect: Effect, raw: Option<Items<u16>>, usual: u16) -> Result<Ports, DocumentError> {
        let Some(raw) = raw else {
            // A denial that left other ports open would surprise; an allowance that opened them would be worse.
            return Ok(match effect {
                Effect::Allow => Ports::These(vec![usual]),
                Effect::Deny => Ports::Any,
            });
        };
        if raw.is_empty() {
            return Err(self.empty("port", raw.at()));
        }
        self.tell_twice("port", raw.iter());
        if let Some((at, _)) = raw.iter().find(|(_, port)| **port == 0) {
            return Err(self.error(at, "`port`: 0 is not a port"));
        }
        Ok(Ports::These(raw.into_values()))
    }

    fn conditions(
        &self,
        effect: Effect,
        methods: List,
        paths: List,
        query: List,
        git: Option<Spanned<RawAccess>>,
        repos: List,
    ) -> Result<Conditions, DocumentError> {
        let Some(git) = git else {
            if let Some(repos) = repos {
                return Err(self.error(repos.at(), "`repos` needs `git = \"read\"` or `git = \"write\"`"));
            }
            if let Some(query) = query.as_ref().filter(|list| list.is_empty() && effect == Effect::Deny) {
                return Err(self.empty("query", query.at()));
            }
            let list = |key: &str, list: List| list.map(|list| self.each(key, &list, method));
            return Ok(Conditions {
                methods: list("methods", methods).transpose()?.unwrap_or_default(),
                paths: paths
                    .map(|list| self.each("paths", &list, |item| item.parse()))
                    .transpose()?
                    .into_iter()
                    .flatten()
                    .collect(),
                query: query.map(|list| self.all("query", &list, key)).transpose()?,
                git: None,
            });
        };
        let others = [("methods", methods), ("paths", paths), ("query", query)];
        if let Some((key, list)) = others.iter().find_map(|(key, list)| Some((key, list.as_ref()?))) {
            let message =
                format!("`{key}` beside `git`, which says which requests are meant; make two rules of it");
            return Err(self.error(list.at(), message));
        }
        let access = match git.get_ref() {
            RawAccess::Read => Access::Read,
            RawAccess::Write => Access::Write,
        };
        let wrong =
            |at: usize, error| self.error(at, format!("`repos`: write them as `owner/name`: {error}"));
        if let Some(repos) = repos.as_ref().filter(|repos| repos.is_empty()) {
            return Err(self.empty("repos", repos.at()));
        }
        self.tell_twice("repos", repos.iter().flat_map(Items::iter));
        for (at, repository) in repos.iter().flat_map(Items::iter) {
            Git::new(access, std::slice::from_ref(repository)).map_err(|error| wrong(at, error))?;
        }
        let repositories = repos.map(Items::into_values).unwrap_or_default();
        let git = Git::new(access, &repositories).map_err(|error| wrong(git.span().start, error))?;
        Ok(Conditions { git: Some(git), ..Conditions::default() })
    }

    fn each<T, E: std::error::Error>(
        &self,
        key: &str,
        list: &Items<String>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, DocumentError> {
        if list.is_empty() {
            return Err(self.empty(key, list.at()));
        }
        self.all(key, list, parse)
    }

    fn all<T, E: std::error::Error>(
        &self,
        key: &str,
        list: &Items<String>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, DocumentError> {
        self.tell_twice(key, list.iter());
        let parsed = |(at, item): (usize, &String)| {
            parse(item).map_err(|error| self.error(at, format!("`{key}`: {item:?}: {error}")))
        };
        list.iter().map(parsed).collect()
    }

    /// A warning for each item that stands there once more.
    fn tell_twice<'i, T: Hash + Eq + fmt::Debug + 'i>(
        &self,
        key: &str,
        items: impl Iterator<Item = (usize, &'i T)>,
    ) {
        let mut seen = HashSet::new();
        for (at, item) in items.filter(|(_, item)| !seen.insert(*item)) {
            let (line, column) = self.lines.position(at);
            let what =
                format!("{}:{line}:{column}: `{key}` has {item:?} twice; leave out one of them", self.file);
            self.twice.borrow_mut().push(what);
        }
    }

    fn empty(&self, key: &str, at: usize) -> DocumentError {
        self.error(at, format!("`{key}` is an empty list, so the rule can match nothing"))
    }

    fn place(&self, at: usize) -> String {
        format!("{}:{}", self.file, self.lines.position(at).0)
    }

    fn error(&self, at: usize, message: impl Into<String>) -> DocumentError {
        DocumentError::at(self.file, self.text, at, message)
    }
}

/// Where a flag says yes.
fn said(flag: &Flag) -> Option<usize> {
    flag.as_ref().filter(|flag| *flag.get_ref()).map(|flag| flag.span().start)
}

fn said_tcp_without_port(raw: &RawRule) -> Option<usize> {
    said(&raw.tcp).filter(|_| raw.port.is_none())
}

#[derive(Debug, thiserror::Error)]
enum MethodError {
    #[error("methods are written in capitals, as `{0}`")]
    Case(String),
    #[error("not the name of a method")]
    Token,
    #[error("every method is what a rule without `methods` allows")]
    Any,
}

/// A token of RFC 9110 section 9.1, of the letters that registered ones have.
fn method(text: &str) -> Result<String, MethodError> {
    if text == "*" {
        return Err(MethodError::Any);
    }
    if text.is_empty() || text.len() > 32 || !text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-') {
        return Err(MethodError::Token);
    }
    let capitals = text.to_ascii_uppercase();
    if capitals == text { Ok(capitals) } else { Err(MethodError::Case(capitals)) }
}

#[derive(Debug, thiserror::Error)]
#[error("no key of a query has a control character")]
struct KeyError;

fn key(text: &str) -> Result<String, KeyError> {
    if text.contains(char::is_control) { Err(KeyError) } else { Ok(text.to_owned()) }
}

#[derive(Debug, thiserror::Error)]
#[error("the name of a database is 1 to 63 bytes without control characters, and no pattern")]
struct DatabaseError;

/// As PostgreSQL has them (NAMEDATALEN), but for those that look like a pattern, which nobody would match.
fn database(name: &str) -> Result<String, DatabaseError> {
    let good = (1..=63).contains(&name.len()) && !name.contains(|c: char| c.is_control() || c == '*');
    good.then(|| name.to_owned()).ok_or(DatabaseError)
}

#[cfg(test)]
mod tests {
    use crate::{Effect, Policy, PolicySet, Ports, Request, Verdict};

    #[test]
    fn rules_keep_their_place_and_their_note() {
        let text = "# web\n[[allow]]\nhost = [\"a.example\", \"*.b.example\"]\nport = [80, 443]\n\n\
                    [[deny]]\nnote = \"no uploads\"\nhost = \"up.b.example\"\n";
        let policy = Policy::parse("web", "web.toml", text).unwrap();
        let [allow, deny] = policy.rules() else { panic!("{policy:?}") };
        assert_eq!((allow.effect, allow.hosts.len(), allow.place.as_str()), (Effect::Allow, 2, "web.toml:3"));
        assert_eq!(allow.ports, Ports::These(vec![80, 443]));
        assert_eq!((deny.effect, deny.place.as_str()), (Effect::Deny, "web.toml:8"));
        assert_eq!((deny.note.as_deref(), &deny.ports), (Some("no uploads"), &Ports::Any));
    }

    #[test]
    fn an_empty_file_has_no_rules() {
        assert!(Policy::parse("e", "e.toml", "").unwrap().rules().is_empty());
        assert!(Policy::parse("e", "e.toml", "# nothing\n").unwrap().rules().is_empty());
    }

    #[test]
    fn an_item_that_is_in_a_list_twice_is_a_warning_with_its_place() {
        let text = "[[allow]]\nhost = [\n  \"a.example\",\n  \"a.example\"]\nport = [80, 80]\nmethods = [\"PUT\", \"PUT\"]\n\
                    paths = [\"/a\", \"/b\", \"/a\"]\nquery = [\"k\", \"k\"]\n[[allow]]\nhost = \"b.example\"\ngit = \"read\"\n\
                    repos = [\"o/r\", \"o/r\"]\n";
        let warnings = Policy::parse("p", "p.toml", text).unwrap().warnings().to_vec();
        let expected = [
            "p.toml:4:3: `host` has \"a.example\" twice; leave out one of them",
            "p.toml:5:13: `port` has 80 twice",
            "p.toml:6:19: `methods` has \"PUT\" twice",
            "p.toml:7:22: `paths` has \"/a\" twice",
            "p.toml:8:15: `query` has \"k\" twice",
            "p.toml:12:17: `repos` has \"o/r\" twice",
        ];
        assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
        for said in expected {
            assert!(warnings.iter().any(|warning| warning.starts_with(said)), "{said}: {warnings:?}");
        }
    }

    #[test]
    fn the_examples_of_the_documentation_are_true() {
        let documentation = include_str!("../../docs/policies.md");
        let mut policies = crate::Policies::default();
        for example in documentation.split("```toml\n").filter_map(|rest| rest.split("```").next()) {
            let name =
                example.lines().next().and_then(|line| line.strip_prefix("# ~/.config/understudy/policies/"));
            let Some(file) = name else { continue };
            let name = file.strip_suffix(".toml").unwrap();
            let policy = Policy::parse(name, file, example).unwrap();
            assert!(policy.warnings().is_empty(), "{:?}", policy.warnings());
            policies.insert(policy);
        }
        let decide = |policy: &str, method: &str, host: &str, port, target: &str| {
            let set = PolicySet::combine(vec![policies.policy(policy).unwrap()]);
            set.decide_request(&Request::new(&host.parse().unwrap(), port, method, target))
        };
        for (policy, method, host, port, target, allowed) in [
            ("web", "POST", "a.cdn.example.com", 443, "/", true),
            ("web", "GET", "build.example.net", 8443, "/nightly/today/x.tar", true),
            ("web", "GET", "build.example.net", 8443, "/releases/1.0/notes", true),
            ("web", "GET", "build.example.net", 8443, "/releases/1.0/x/notes", false),
            ("web", "POST", "build.example.net", 8443, "/nightly/today", false),
            ("project", "POST", "github.com", 443, "/me/project-x.git/git-receive-pack", true),
            ("project", "POST", "git.example.net", 443, "/team/a.git/git-receive-pack", true),
            ("project", "POST", "git.example.net", 443, "/team/release.git/git-receive-pack", false),
            ("project", "POST", "git.example.net", 443, "/team/release.git/git-upload-pack", true),
            (
                "github-lfs",
                "PUT",
                "github-cloud.s3.amazonaws.com",
                443,
                "/alambic/media/7/01/23/0123?actor_id=1",
                true,
            ),
            ("github-lfs", "POST", "lfs.github.com", 443, "/me/project/objects/0123/verify", true),
            ("github-lfs", "POST", "lfs.github.com", 443, "/me/other/objects/0123/verify", false),
        ] {
            let verdict = decide(policy, method, host, port, target);
            let found = matches!(verdict, Verdict::Allowed { .. });
            assert_eq!(found, allowed, "{method} {host}{target}: {verdict:?}");
        }
        let denied = decide("web", "GET", "upload.cdn.example.com", 443, "/");
        let Verdict::Denied { rule, .. } = denied else { panic!("{denied:?}") };
        assert!(documentation.contains(&format!("(`{rule}`)")), "{rule}");
    }

    #[test]
    fn every_mistake_names_line_and_key() {
        for (text, said) in [
            ("[[alow]]\nhost = \"a.b\"", "p.toml:1:3: unknown key `alow`; did you mean `allow`?"),
            ("[[allow]]\nhots = \"a.b\"", "p.toml:2:1: unknown key `hots`; did you mean `host`?"),
            (
                "[[allow]]\nhost = \"a.b\"\ngraphql = \"query\"",
                "p.toml:3:1: unknown key `graphql`; known are: host",
            ),
            ("[[allow]]\nport = 443", "p.toml:1:1: missing field `host`"),
            ("[[allow]]\nhost = []", "p.toml:2:8: `host` is an empty list"),
            ("[[allow]]\nhost = \"*\"", "p.toml:2:8: `host`: \"*\": a bare `*`"),
            ("[[allow]]\nhost = \"*.com\"", "p.toml:2:8: `host`: \"*.com\": `*.com` would match"),
            (
                "[[allow]]\nhost = \"a.b:8443\"",
                "p.toml:2:8: `host`: \"a.b:8443\": a port in a host; write it as `port = 8443`",
            ),
            ("[[allow]]\nhost = \"a.b\"\nport = 0", "p.toml:3:8: `port`: 0 is not a port"),
            ("[[allow]]\nhost = \"a.b\"\nport = []", "p.toml:3:8: `port` is an empty list"),
            (
                "[[allow]]\nhost = \"a.b\"\nmethods = \"get\"",
                "p.toml:3:11: `methods`: \"get\": methods are written in capitals, as `GET`",
            ),
            ("[[allow]]\nhost = \"a.b\"\nmethods = [\"*\"]", "p.toml:3:12: `methods`: \"*\": every method"),
            ("[[allow]]\nhost = [\n  \"a.b\",\n  \"*\",\n]", "p.toml:4:3: `host`: \"*\": a bare"),
            ("[[allow]]\nhost = \"a.b\"\nport = [\n1,\n  0]", "p.toml:5:3: `port`: 0 is not a port"),
            (
                "[[allow]]\nhost = \"a.b\"\ngit = \"read\"\nrepos = [\"o/r\",\n\"/o/s\"]",
                "p.toml:5:1: `repos`: write them",
            ),
            (
                "[[deny]]\nhost = \"a.b\"\nquery = [\"a\", \"\\u0001\"]",
                "p.toml:3:15: `query`: \"\\u{1}\": no key of a query has a control character",
            ),
            ("[[allow]]\nhost = \"a.b\"\nmethods = []", "p.toml:3:11: `methods` is an empty list"),
            ("[[allow]]\nhost = \"a.b\"\npaths = \"v1\"", "p.toml:3:9: `paths`: \"v1\": a path starts"),
            (
                "[[allow]]\nhost = \"a.b\"\npaths = [\"/a?b\"]",
                "p.toml:3:10: `paths`: \"/a?b\": a path has no `?`",
            ),
            ("[[deny]]\nhost = \"a.b\"\nquery = []", "p.toml:3:9: `query` is an empty list"),
            (
                "[[allow]]\nhost = \"a.b\"\ngit = \"push\"",
                "p.toml:3:7: unknown value; known are: read, write",
            ),
            ("[[allow]]\nhost = \"a.b\"\nrepos = \"o/r\"", "p.toml:3:9: `repos` needs `git"),
            (
                "[[allow]]\nhost = \"a.b\"\ngit = \"read\"\nrepos = \"/o/r\"",
                "p.toml:4:9: `repos`: write them",
            ),
            ("[[allow]]\nhost = \"a.b\"\ngit = \"read\"\npaths = \"/\"", "p.toml:4:9: `paths` beside `git`"),
            ("[[allow]]\nhost = \"a.b\"\nmax-body = \"1T\"", "p.toml:3:12: `max-body`: write a size"),
            ("[[allow]]\nhost = \"a.b\"\nmax-body = -1", "p.toml:3:12: "),
            ("[[allow]]\nhost = \"a.b\"\nrate = \"60\"", "p.toml:3:8: `rate`: write a rate"),
            ("[[allow]]\nhost = \"a.b\"\nrate = 60", "p.toml:3:8: "),
            ("[[deny]]\nhost = \"a.b\"\nrate = \"1/s\"", "p.toml:3:8: `rate` is for an [[allow]]"),
            ("[[deny]]\nhost = \"a.b\"\nprivate = true", "p.toml:3:11: `private` is for an [[allow]]"),
            ("[[deny]]\nhost = \"a.b\"\nupgrade = \"tcp\"", "p.toml:3:11: `upgrade` is for an [[allow]]"),
            ("[[allow]]\nhost = \"a.b\"\nupgrade = []", "p.toml:3:11: `upgrade` is an empty list"),
            (
                "[[allow]]\nhost = \"a.b\"\nupgrade = [\"tcp\", \"h2c\"]",
                "p.toml:3:19: `upgrade`: \"h2c\": what is in it would be requests",
            ),
            (
                "[[allow]]\nhost = \"a.b\"\nsplice = true\nupgrade = \"tcp\"",
                "p.toml:3:10: `splice` beside `upgrade`, which nobody can see",
            ),
            ("[[allow]]\nhost = \"a.b\"\ntcp = true", "p.toml:3:7: `tcp` needs a `port`"),
            ("[[deny]]\nhost = \"a.b\"\nport = 1\ntcp = true", "p.toml:4:7: `tcp` is for an [[allow]]"),
            (
                "[[allow]]\nhost = \"a.b\"\nport = 1\ntcp = true\nmethods = \"GET\"",
                "p.toml:4:7: `tcp` beside `methods`, which nobody can see",
            ),
            (
                "[[allow]]\nhost = \"a.b\"\nport = 1\ntcp = true\nsplice = true",
                "p.toml:4:7: `tcp` beside `splice`; make two rules",
            ),
            (
                "[[allow]]\nhost = \"a.b\"\nsplice = true\ninspect = true",
                "p.toml:3:10: `splice` beside `inspect`; make two rules",
            ),
            (
                "[[allow]]\nhost = \"a.b\"\ninspect = false",
                "p.toml:3:11: `inspect` is what is done with every",
            ),
            ("[[deny]]\nhost = \"a.b\"\ninspect = true", "p.toml:3:11: `inspect` is for an [[allow]]"),
            ("[[deny]]\nhost = \"a.b\"\nsplice = true", "p.toml:3:10: `splice` is for an [[allow]]"),
            ("[[allow]]\nhost = \"a.b\"\nsplice = 1", "p.toml:3:10: invalid type: integer"),
            (
                "[[allow]]\nhost = \"a.b\"\nsplice = true\ngit = \"read\"",
                "p.toml:3:10: `splice` beside `git`, which",
            ),
            (
                "[[allow]]\nhost = \"a.b\"\npaths = \"/\"\nsplice = true",
                "p.toml:4:10: `splice` beside `paths`, which",
            ),
            ("max-runtime = \"8\"", "p.toml:1:15: `max-runtime`: write a time"),
            ("max-bytes = \"x\"", "p.toml:1:13: `max-bytes`: write a size"),
            ("max-requests = -1", "p.toml:1:16: "),
            ("open = 1", "p.toml:1:8: invalid type: integer"),
            ("repos = \"o/r\"", "p.toml:1:9: `repos` here is for extends"),
            ("extend = \"a\"", "p.toml:1:1: unknown key `extend`; did you mean `extends`?"),
            ("[[allow]]\nhost = \"a.b\"\nport = 65536", "p.toml:3:8: `port`: not a port"),
            ("[[allow]]\nhost = \"a.b\"\nport = \"443\"", "p.toml:3:8: `port`: invalid type: string"),
            ("[allow]\nhost = \"a.b\"", "p.toml:1:1: "),
            ("[[allow]]\nhost = \"a.b", "p.toml:2:"),
        ] {
            let found = Policy::parse("p", "p.toml", text).unwrap_err().to_string();
            assert!(found.starts_with(said), "{text:?}\n  said     {found}\n  expected {said}");
        }
    }
}
