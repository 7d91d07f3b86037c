//! The decision: pure, total, deny wins, and nothing said means no.

use std::sync::Arc;

use crate::condition::Fit;
use crate::index::{Index, Position};
use crate::lint;
use crate::{Effect, Given, HostName, Limits, PathError, Policy, Ports, Request, Rule};

/// The policies of one container, asked together.
#[derive(Debug, Clone)]
pub struct PolicySet {
    label: String,
    policies: Vec<Arc<Policy>>,
    index: Index,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// `rule` is the place of the first rule that allows it, `given` the terms of all that do.
    Allowed { rule: String, given: Given },
    /// `rule` is the place of the first rule that denies it.
    Denied { rule: String, note: Option<String> },
    /// No rule allows the host.
    NoHost,
    /// The host is allowed, but on these ports only (sorted).
    NoPort { ports: Vec<u16> },
    /// Rules allow host and port, but for these methods only (sorted).
    NoMethod { methods: Vec<String> },
    /// The rules at these places allow host, port and method, but for other paths or queries.
    NoPath { rules: Vec<String> },
    /// The rule at this place asks for a path, and servers may read this one differently.
    AmbiguousPath { rule: String, error: PathError },
    /// A policy of the set could not be loaded, so nothing is allowed.
    Failed { policy: String, error: String },
}

impl PolicySet {
    pub fn combine(policies: Vec<Arc<Policy>>) -> Self {
        // An open policy says so wherever its name is shown, in `status` and in every audit line.
        let name = |policy: &Arc<Policy>| match policy.is_open() {
            true => format!("{}(open)", policy.name()),
            false => policy.name().to_owned(),
        };
        let names: Vec<String> = policies.iter().map(name).collect();
        let label = if names.is_empty() { crate::builtin::LOCKED.to_owned() } else { names.join("+") };
        Self { label, index: Index::of(&policies), policies }
    }

    /// The names of the policies in it, joined by `+`.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// `FILE:LINE:COLUMN: …`, one line each: rules of one policy that others of these deny all that they allow. What is in vain by
    /// a policy's own rules, its own warnings say.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings_within(lint::MOST)
    }

    /// The same for those who are not to wait: after so many comparisons the last line says where nobody looked on.
    pub fn warnings_within(&self, most: usize) -> Vec<String> {
        let placed = self.policies.iter().enumerate().flat_map(|(of, policy)| {
            policy.rules().iter().enumerate().map(move |(at, rule)| ((of, at), rule))
        });
        let placed: Vec<_> = placed.collect();
        lint::across(&placed, most, |vain| vain.by.iter().all(|(at, _)| at.0 == vain.allow.0.0))
    }

    /// What a container with these may do in all.
    pub fn limits(&self) -> Limits {
        self.policies.iter().fold(Limits::default(), |limits, policy| limits.and(policy.limits()))
    }

    /// Whether this request may be made.
    pub fn decide_request(&self, request: &Request<'_>) -> Verdict {
        if let Some(failed) = self.failed() {
            return failed;
        }
        // What many rules about one host say is found by the path, which all of them are asked for where it cannot be told.
        let near = request.path.is_ok().then(|| self.judge(request, &self.index.near(request)));
        match near {
            Some(decided @ (Verdict::Allowed { .. } | Verdict::Denied { .. })) => decided,
            // For the reason, all of them.
            _ => self.judge(request, &self.index.about(request.host)),
        }
    }

    /// By the rules at these positions.
    fn judge(&self, request: &Request<'_>, about: &[Position]) -> Verdict {
        let rules = |effect| self.rules(about, effect).filter(|rule| rule.ports.contain(request.port));
        let mut unclear = None;
        for rule in rules(Effect::Deny) {
            match rule.conditions.possibly(request) {
                Fit::Yes => return denied(rule),
                Fit::Unclear(error) => unclear = unclear.or(Some((rule, error))),
                Fit::NotMethod | Fit::NotPath => {}
            }
        }
        if let Some((rule, error)) = unclear {
            return Verdict::AmbiguousPath { rule: rule.place.clone(), error };
        }
        let (mut methods, mut places, mut allowing) = (Vec::new(), Vec::new(), Vec::new());
        for rule in rules(Effect::Allow).filter(|rule| rule.is_for_requests()) {
            match rule.conditions.surely(request) {
                Fit::Yes => allowing.push(rule),
                Fit::Unclear(error) => unclear = unclear.or(Some((rule, error))),
                Fit::NotMethod => methods.extend(rule.conditions.methods()),
                Fit::NotPath => places.push(rule.place.clone()),
            }
        }
        if let Some(allowed) = allowed(&allowing) {
            return allowed;
        }
        if let Some((rule, error)) = unclear {
            return Verdict::AmbiguousPath { rule: rule.place.clone(), error };
        }
        if !places.is_empty() {
            return Verdict::NoPath { rules: places };
        }
        if !methods.is_empty() {
            methods.sort();
            methods.dedup();
            return Verdict::NoMethod { methods };
        }
        self.no_host_or_port(about)
    }

    /// Whether any request to this host and port may be made, as far as can be told before there is one.
    pub fn decide(&self, host: &HostName, port: u16) -> Verdict {
        if let Some(failed) = self.failed() {
            return failed;
        }
        let about = self.index.about(host);
        if let Some(rule) = self.denials(&about).find(|rule| rule.ports.contain(port)) {
            return denied(rule);
        }
        let allow = self
            .rules(&about, Effect::Allow)
            .filter(|rule| rule.is_for_requests() && rule.ports.contain(port));
        allowed(&allow.collect::<Vec<_>>()).unwrap_or_else(|| self.no_host_or_port(&about))
    }

    /// Whether bytes that are neither TLS nor HTTP may go to this host and port. Any denial about them forbids it: what
    /// it asks for can be seen in requests only.
    pub fn decide_raw(&self, host: &HostName, port: u16) -> Verdict {
        self.decide_unseen(host, port, |rule| rule.tcp)
    }

    /// Whether a session of PostgreSQL with this database may be had there. Any denial about host and port forbids it.
    pub fn decide_postgres(&self, host: &HostName, port: u16, database: &str) -> Verdict {
        let named = |names: &Vec<String>| names.is_empty() || names.iter().any(|name| name == database);
        self.decide_unseen(host, port, |rule| rule.postgres.as_ref().is_some_and(named))
    }

    /// Whether any rule is about sessions of PostgreSQL there.
    pub fn is_about_postgres(&self, host: &HostName, port: u16) -> bool {
        let about = self.index.about(host);
        let mut rules = self.rules(&about, Effect::Allow).filter(|rule| rule.ports.contain(port));
        rules.any(|rule| rule.postgres.is_some())
    }

    /// By the rules for what is no request.
    fn decide_unseen(&self, host: &HostName, port: u16, allows: impl Fn(&Rule) -> bool) -> Verdict {
        if let Some(failed) = self.failed() {
            return failed;
        }
        let about = self.index.about(host);
        let rules = |effect| self.rules(&about, effect).filter(move |rule| rule.ports.contain(port));
        if let Some(rule) = rules(Effect::Deny).next() {
            return denied(rule);
        }
        let allow: Vec<&Rule> = rules(Effect::Allow).filter(|rule| allows(rule)).collect();
        allowed(&allow).unwrap_or(Verdict::NoHost)
    }

    /// The place of the rule by which TLS to this host and port is passed through without being decrypted. None if any
    /// denial is about them: what it asks for can be seen in requests only; or a rule that says `inspect`.
    pub fn splice(&self, host: &HostName, port: u16) -> Option<(String, Given)> {
        if self.failed().is_some() {
            return None;
        }
        let about = self.index.about(host);
        let about = &about;
        let rules = |effect| self.rules(about, effect).filter(move |rule| rule.ports.contain(port));
        if rules(Effect::Deny).next().is_some() || rules(Effect::Allow).any(|rule| rule.inspect) {
            return None;
        }
        // A rule for every request allows what is passed through, too, and its terms are not to be taken away by another.
        let allow = rules(Effect::Allow).filter(|rule| rule.is_for_requests() && rule.conditions.is_empty());
        let allow: Vec<&Rule> = allow.collect();
        let spliced = allow.iter().find(|rule| rule.splice)?;
        Some((spliced.place.clone(), Given::of(&allow)))
    }

    /// Whether any rule could allow this host on some port: such names get a synthetic address of their own.
    pub fn may_permit(&self, host: &HostName) -> bool {
        if self.failed().is_some() {
            return false;
        }
        let about = self.index.about(host);
        let any = self.rules(&about, Effect::Allow).any(|rule| rule.ports == Ports::Any);
        let closed = self.denials(&about).any(|rule| rule.ports == Ports::Any);
        let unseen = || {
            let rules = self.rules(&about, Effect::Allow).filter(|rule| !rule.is_for_requests());
            rules.flat_map(|rule| match &rule.ports {
                Ports::These(ports) => ports.clone(),
                Ports::Any => Vec::new(),
            })
        };
        let open = |port| {
            matches!(self.decide_unseen(host, port, |rule| !rule.is_for_requests()), Verdict::Allowed { .. })
        };
        (any && !closed) || !self.open_ports(&about).is_empty() || unseen().any(open)
    }

    /// Why a name that [`Self::may_permit`] is false of is closed, whatever port it was looked up for.
    pub fn closed(&self, host: &HostName) -> Verdict {
        if let Some(failed) = self.failed() {
            return failed;
        }
        self.denials(&self.index.about(host)).next().map_or(Verdict::NoHost, denied)
    }

    /// In the order of policies and files.
    pub(crate) fn rules_about(&self, host: &HostName) -> impl Iterator<Item = &Rule> {
        let rule = |(policy, rule): (usize, usize)| self.policies.get(policy)?.rules().get(rule);
        self.index.about(host).into_iter().filter_map(rule)
    }

    /// The name of the first policy that could not be loaded, and why; nothing is allowed then.
    pub fn failure(&self) -> Option<(&str, &str)> {
        self.policies.iter().find_map(|policy| {
            let unresolved = || policy.extends().first().map(|_| "what it extends was not put in");
            Some((policy.name(), policy.error().or_else(unresolved)?))
        })
    }

    fn failed(&self) -> Option<Verdict> {
        let (policy, error) = self.failure()?;
        Some(Verdict::Failed { policy: policy.to_owned(), error: error.to_owned() })
    }

    fn rules<'a>(&'a self, about: &'a [Position], effect: Effect) -> impl Iterator<Item = &'a Rule> {
        let rule = |(policy, rule): &Position| self.policies.get(*policy)?.rules().get(*rule);
        about.iter().filter_map(rule).filter(move |rule| rule.effect == effect)
    }

    /// Those that no request to their hosts and ports gets past.
    fn denials<'a>(&'a self, about: &'a [Position]) -> impl Iterator<Item = &'a Rule> {
        self.rules(about, Effect::Deny).filter(|rule| rule.conditions.is_empty())
    }

    fn no_host_or_port(&self, about: &[Position]) -> Verdict {
        match self.open_ports(about) {
            ports if ports.is_empty() => Verdict::NoHost,
            ports => Verdict::NoPort { ports },
        }
    }

    fn open_ports(&self, about: &[Position]) -> Vec<u16> {
        let denied = |port: &u16| self.denials(about).any(|rule| rule.ports.contain(*port));
        let mut ports: Vec<u16> = self
            .rules(about, Effect::Allow)
            .filter(|rule| rule.is_for_requests())
            .filter_map(|rule| match &rule.ports {
                Ports::These(ports) => Some(ports),
                Ports::Any => None,
            })
            .flatten()
            .copied()
            .filter(|port| !denied(port))
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// By these, if there is one.
fn allowed(rules: &[&Rule]) -> Option<Verdict> {
    let rule = rules.first()?.place.clone();
    Some(Verdict::Allowed { rule, given: Given::of(rules) })
}

fn denied(rule: &Rule) -> Verdict {
    Verdict::Denied { rule: rule.place.clone(), note: rule.note.clone() }
}

/// Allows nothing.
impl Default for PolicySet {
    fn default() -> Self {
        Self::combine(Vec::new())
    }
}

#[cfg(test)]
mod properties;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[(&str, &str)]) -> PolicySet {
        let parse = |(name, text): &(&str, &str)| {
            Arc::new(Policy::parse(name, &format!("{name}.toml"), text).unwrap())
        };
        PolicySet::combine(texts.iter().map(parse).collect())
    }

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    const WEB: &str = "[[allow]]\nhost = \"*.example.com\"\n[[allow]]\nhost = \"plain.example.net\"\nport = [80, 8080]\n\
                       [[deny]]\nhost = \"bad.example.com\"\nnote = \"uploads\"\n";

    #[test]
    fn the_table_of_verdicts() {
        let set = set(&[("web", WEB)]);
        let denied = Verdict::Denied { rule: "web.toml:7".into(), note: Some("uploads".into()) };
        for (name, port, verdict) in [
            ("a.example.com", 443, Verdict::Allowed { rule: "web.toml:2".into(), given: Given::default() }),
            ("a.example.com", 8443, Verdict::NoPort { ports: vec![443] }),
            ("example.com", 443, Verdict::NoHost),
            ("notexample.com", 443, Verdict::NoHost),
            ("bad.example.com", 443, denied.clone()),
            ("bad.example.com", 22, denied),
            (
                "worse.bad.example.com",
                443,
                Verdict::Allowed { rule: "web.toml:2".into(), given: Given::default() },
            ),
            (
                "plain.example.net",
                80,
                Verdict::Allowed { rule: "web.toml:4".into(), given: Given::default() },
            ),
            ("plain.example.net", 443, Verdict::NoPort { ports: vec![80, 8080] }),
            ("plain.example.net", 0, Verdict::NoPort { ports: vec![80, 8080] }),
        ] {
            assert_eq!(set.decide(&host(name), port), verdict, "{name}:{port}");
        }
        assert!(set.may_permit(&host("a.example.com")) && set.may_permit(&host("plain.example.net")));
        assert!(!set.may_permit(&host("example.com")) && !set.may_permit(&host("bad.example.com")));
    }

    #[test]
    fn what_is_raw_is_allowed_by_a_rule_of_its_own_and_no_denial_is_passed_over() {
        let raw = "[[allow]]\nhost = \"db.example\"\nport = 5432\ntcp = true\n";
        let of = |text: &str, port| set(&[("r", text)]).decide_raw(&host("db.example"), port);
        assert!(matches!(of(raw, 5432), Verdict::Allowed { rule, .. } if rule == "r.toml:2"));
        assert_eq!(of(raw, 5433), Verdict::NoHost);
        assert_eq!(of("[[allow]]\nhost = \"db.example\"\nport = 5432\n", 5432), Verdict::NoHost);
        for denial in ["", "methods = \"PUT\"", "port = 5432"] {
            let text = format!("{raw}[[deny]]\nhost = \"db.example\"\n{denial}\n");
            assert!(matches!(of(&text, 5432), Verdict::Denied { .. }), "{denial}");
        }
        // It is looked up, and opens nothing for requests.
        let set = set(&[("r", raw)]);
        let name = host("db.example");
        assert!(set.may_permit(&name));
        assert_eq!(set.decide(&name, 5432), Verdict::NoHost);
        assert_eq!(set.decide_request(&Request::new(&name, 5432, "GET", "/")), Verdict::NoHost);
    }

    /// What a body asks for is nothing that a rule could tell.
    #[test]
    fn graphql_is_a_path_like_any_other() {
        let name = host("api.example");
        let post = |text: &str| {
            let verdict = set(&[("g", text)]).decide_request(&Request::new(&name, 443, "POST", "/graphql"));
            matches!(verdict, Verdict::Allowed { .. })
        };
        assert!(post("[[allow]]\nhost = \"api.example\"\npaths = \"/graphql\"\n"));
        assert!(!post("[[allow]]\nhost = \"api.example\"\npaths = \"/v1/**\"\n"));
        // A rule about git is about nothing else of the host.
        assert!(!post("[[allow]]\nhost = \"api.example\"\ngit = \"write\"\n"));
    }

    #[test]
    fn sessions_of_postgresql_are_allowed_by_rules_of_their_own() {
        let rule = "[[allow]]\nhost = \"db.example\"\npostgres = true\ndatabases = [\"app\", \"logs\"]\n";
        let of = |text: &str, port, database: &str| {
            set(&[("r", text)]).decide_postgres(&host("db.example"), port, database)
        };
        assert!(matches!(of(rule, 5432, "app"), Verdict::Allowed { rule, .. } if rule == "r.toml:2"));
        for (port, database) in [(5432, "App"), (5432, "postgres"), (5432, ""), (443, "app"), (5433, "app")] {
            assert_eq!(of(rule, port, database), Verdict::NoHost, "{port} {database}");
        }
        let every = "[[allow]]\nhost = \"db.example\"\nport = 6432\npostgres = true\n";
        assert!(matches!(of(every, 6432, "any"), Verdict::Allowed { .. }));
        for other in ["", "port = 5432\n", "port = 5432\ntcp = true\n"] {
            let text = format!("[[allow]]\nhost = \"db.example\"\n{other}");
            assert_eq!(of(&text, 5432, "app"), Verdict::NoHost, "{other}");
        }
        for denial in ["", "methods = \"PUT\"", "port = 5432"] {
            let text = format!("{rule}[[deny]]\nhost = \"db.example\"\n{denial}\n");
            assert!(matches!(of(&text, 5432, "app"), Verdict::Denied { .. }), "{denial}");
        }
        // It is looked up, and opens nothing for requests or other bytes.
        let (set, name) = (set(&[("r", rule)]), host("db.example"));
        assert!(set.may_permit(&name) && set.is_about_postgres(&name, 5432));
        assert!(!set.is_about_postgres(&name, 443));
        for verdict in [
            set.decide(&name, 5432),
            set.decide_raw(&name, 5432),
            set.decide_request(&Request::new(&name, 5432, "GET", "/")),
        ] {
            assert_eq!(verdict, Verdict::NoHost);
        }
        let denied = format!("{rule}[[deny]]\nhost = \"db.example\"\n");
        let denied = PolicySet::combine(vec![Arc::new(Policy::parse("d", "d.toml", &denied).unwrap())]);
        assert!(!denied.may_permit(&name));
    }

    #[test]
    fn one_more_rule_never_makes_terms_narrower() {
        let rule = |rest: &str| format!("[[allow]]\nhost = \"a.example\"\n{rest}\n");
        let given = |rules: &[String]| {
            let set = set(&[("t", &rules.concat())]);
            let name = host("a.example");
            match set.decide_request(&Request::new(&name, 443, "GET", "/")) {
                Verdict::Allowed { given, .. } => given,
                other => panic!("{other:?}"),
            }
        };
        let narrow = rule("max-body = \"1K\"\nrate = \"1/s\"");
        let small = given(std::slice::from_ref(&narrow));
        assert_eq!((small.max_body, small.rates.len(), small.private), (Some(1024), 1, false));
        let larger = given(&[
            narrow.clone(),
            rule("max-body = \"2K\"\nrate = \"1/m\"\nprivate = true\nupgrade = \"tcp\""),
        ]);
        assert_eq!((&small.upgrade[..], &larger.upgrade[..]), (&[][..], &["tcp".parse().unwrap()][..]));
        assert_eq!((larger.max_body, larger.rates.len(), larger.private), (Some(2048), 2, true));
        let free = given(&[narrow.clone(), rule("")]);
        assert_eq!((free.max_body, free.rates.len()), (None, 0));
        let other = given(&[narrow, rule("methods = \"PUT\"\nprivate = true")]);
        assert_eq!((other.max_body, other.private), (Some(1024), false));
    }

    #[test]
    fn only_a_rule_that_says_so_splices_and_no_denial_is_passed_over() {
        let rule = |host: &str, more: &str| format!("[[allow]]\nhost = {host:?}\n{more}");
        let both = rule("a.example.com", "splice = true\nport = [443, 8443]\n") + &rule("b.example.com", "");
        let of = |text: &str, name: &str, port| {
            set(&[("s", text)]).splice(&host(name), port).map(|(place, _)| place)
        };
        assert_eq!(of(&both, "a.example.com", 443).as_deref(), Some("s.toml:2"));
        assert_eq!(of(&both, "a.example.com", 8443).as_deref(), Some("s.toml:2"));
        for (name, port) in [("a.example.com", 80), ("b.example.com", 443), ("x.a.example.com", 443)] {
            assert_eq!(of(&both, name, port), None, "{name}:{port}");
        }
        let denied = format!("{both}[[deny]]\nhost = \"a.example.com\"\nport = 443\nmethods = \"DELETE\"\n");
        assert_eq!(of(&denied, "a.example.com", 443), None);
        assert_eq!(of(&denied, "a.example.com", 8443).as_deref(), Some("s.toml:2"));
        assert_eq!(of(&both.replace("splice = true", "splice = false"), "a.example.com", 443), None);
        // Of whichever policy, and whatever else that rule asks for.
        let inspect = |rest: &str| rule("a.example.com", &format!("inspect = true\n{rest}"));
        for more in ["", "port = [443, 80]\n", "methods = \"GET\"\npaths = \"/v1\"\n"] {
            let set = set(&[("i", &inspect(more)), ("s", &rule("*.example.com", "splice = true\n"))]);
            assert_eq!(set.splice(&host("a.example.com"), 443), None, "{more}");
            assert!(set.splice(&host("b.example.com"), 443).is_some(), "{more}");
            assert!(matches!(set.decide(&host("a.example.com"), 443), Verdict::Allowed { .. }));
        }
        let elsewhere = format!("{both}{}", inspect("port = 444\n"));
        assert_eq!(of(&elsewhere, "a.example.com", 443).as_deref(), Some("s.toml:2"));
        let mut broken = set(&[("s", &both)]);
        broken.policies.push(Arc::new(Policy::failed("x", "no")));
        assert_eq!(broken.splice(&host("a.example.com"), 443), None);
    }

    #[test]
    fn a_denial_wins_over_any_policy_of_the_set() {
        let set = set(&[
            ("no", "[[deny]]\nhost = \"a.example.com\"\nport = 443"),
            ("yes", "[[allow]]\nhost = \"a.example.com\"\nport = [443, 444]"),
        ]);
        assert_eq!(set.label(), "no+yes");
        assert!(matches!(set.decide(&host("a.example.com"), 443), Verdict::Denied { .. }));
        assert!(matches!(set.decide(&host("a.example.com"), 444), Verdict::Allowed { .. }));
        assert_eq!(set.decide(&host("a.example.com"), 1), Verdict::NoPort { ports: vec![444] });
    }

    #[test]
    fn a_policy_that_failed_denies_everything_of_its_set() {
        let good = Arc::new(Policy::parse("web", "web.toml", WEB).unwrap());
        let set = PolicySet::combine(vec![good, Arc::new(Policy::failed("broken", "broken.toml:1:1: no"))]);
        let failed = Verdict::Failed { policy: "broken".into(), error: "broken.toml:1:1: no".into() };
        assert_eq!(set.decide(&host("a.example.com"), 443), failed);
        assert!(!set.may_permit(&host("a.example.com")));
    }

    #[test]
    fn nothing_said_means_no() {
        assert_eq!(PolicySet::default().label(), "locked");
        for set in [PolicySet::default(), set(&[("empty", "")])] {
            assert_eq!(set.decide(&host("a.example.com"), 443), Verdict::NoHost);
            assert!(!set.may_permit(&host("a.example.com")));
        }
    }

    const API: &str = "[[allow]]\nhost = \"api.example.com\"\nmethods = [\"GET\", \"POST\"]\npaths = \"/v1/**\"\n\
                       [[allow]]\nhost = \"git.example.com\"\ngit = \"write\"\nrepos = \"org/repo\"\n\
                       [[allow]]\nhost = \"free.example.com\"\n\
                       [[deny]]\nhost = \"*.example.com\"\nmethods = \"DELETE\"\n\
                       [[deny]]\nhost = \"free.example.com\"\npaths = \"/admin/**\"\nnote = \"no\"\n";

    #[test]
    fn the_table_of_requests() {
        let set = set(&[("api", API)]);
        let allowed =
            |line: u8| Verdict::Allowed { rule: format!("api.toml:{line}"), given: Given::default() };
        let denied = |line: u8, note: Option<&str>| Verdict::Denied {
            rule: format!("api.toml:{line}"),
            note: note.map(str::to_owned),
        };
        let dots = |line: u8| Verdict::AmbiguousPath {
            rule: format!("api.toml:{line}"),
            error: PathError::DotSegment,
        };
        for (name, method, target, verdict) in [
            ("api.example.com", "POST", "/v1/messages?beta=1", allowed(2)),
            ("api.example.com", "HEAD", "/v1/messages", allowed(2)),
            (
                "api.example.com",
                "PUT",
                "/v1/a",
                Verdict::NoMethod { methods: vec!["GET".into(), "POST".into()] },
            ),
            ("api.example.com", "GET", "/v2/a", Verdict::NoPath { rules: vec!["api.toml:2".into()] }),
            ("api.example.com", "GET", "/v1/../v2", dots(2)),
            ("api.example.com", "DELETE", "/v1/../v2", denied(12, None)),
            ("git.example.com", "POST", "/org/repo.git/git-receive-pack", allowed(6)),
            (
                "git.example.com",
                "POST",
                "/org/other/git-receive-pack",
                Verdict::NoPath { rules: vec!["api.toml:6".into()] },
            ),
            ("free.example.com", "PUT", "/a", allowed(10)),
            ("free.example.com", "PUT", "/Admin/x", denied(15, Some("no"))),
            ("free.example.com", "PUT", "/a/../admin/x", dots(15)),
            // However far it is from what the rule names.
            ("free.example.com", "PUT", "/a/../b", dots(15)),
            ("other.example.com", "GET", "/", Verdict::NoHost),
        ] {
            let host = host(name);
            let request = Request::new(&host, 443, method, target);
            assert_eq!(set.decide_request(&request), verdict, "{method} {name}{target}");
        }
        assert!(set.may_permit(&host("free.example.com")) && set.may_permit(&host("git.example.com")));
        assert!(matches!(set.decide(&host("api.example.com"), 443), Verdict::Allowed { .. }));
    }

    #[test]
    fn where_no_rule_asks_for_a_path_any_path_passes() {
        let set = set(&[("p", "[[allow]]\nhost = \"a.example.com\"")]);
        let host = host("a.example.com");
        for target in ["//a;b/../c", "*", "/%zz", ""] {
            let verdict = set.decide_request(&Request::new(&host, 443, "GET", target));
            assert!(matches!(verdict, Verdict::Allowed { .. }), "{target}");
        }
    }

    #[test]
    fn an_open_policy_allows_what_is_not_denied_and_is_loud() {
        let set = set(&[("all", "open = true\n[[deny]]\nhost = \"no.example.com\"\n")]);
        assert_eq!(set.label(), "all(open)");
        assert_eq!(
            set.decide(&host("a.test"), 8443),
            Verdict::Allowed { rule: "all.toml:1".into(), given: Given::default() }
        );
        assert!(matches!(set.decide(&host("no.example.com"), 443), Verdict::Denied { .. }));
        assert!(set.may_permit(&host("a.test")) && !set.may_permit(&host("no.example.com")));
    }

    #[test]
    fn a_name_that_is_closed_says_by_what() {
        let text = "[[allow]]\nhost = \"*.x.example\"\nport = 8443\n[[deny]]\nhost = \"no.x.example\"\n\
                    [[deny]]\nhost = \"part.example\"\nmethods = \"PUT\"\n";
        let open = set(&[("p", text)]);
        assert!(
            matches!(open.closed(&host("no.x.example")), Verdict::Denied { rule, .. } if rule == "p.toml:5")
        );
        for name in ["other.example", "part.example"] {
            assert_eq!(open.closed(&host(name)), Verdict::NoHost, "{name}");
        }
        let failed = Arc::new(Policy::failed("f", "f.toml:1:1: no"));
        let failed = PolicySet::combine(vec![failed]);
        assert!(matches!(failed.closed(&host("a.example")), Verdict::Failed { .. }));
    }
}
