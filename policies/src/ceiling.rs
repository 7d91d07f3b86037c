//! What no policy, annotation or secret of a container may go beyond: the machine's `managed.toml`, or a user's own
//! `ceiling.toml`. Both are written in the same keys.

mod concerned;
mod mounts;
#[cfg(test)]
mod properties;
mod require;

use std::fmt;

use serde::Deserialize;
use toml::Spanned;

use crate::document::{self, Items, closest, position};
use crate::{DocumentError, Effect, HostPattern, Policy, PolicySet, Ports, Rule, annotation, builtin};
pub use concerned::Concerned;
pub use mounts::SharedMounts;
pub use require::{Held, Missing, Requirement};

/// One file. What it does not mention, it does not limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ceiling {
    name: String,
    hosts: Option<Limit<Reach>>,
    deny: Option<Limit<Reach>>,
    allow_hosts: Option<Limit<Reach>>,
    annotations: Option<Limit<String>>,
    policies: Names,
    open: Option<Limit<String>>,
    modes: Names,
    log: Option<(Log, String)>,
    shared_mounts: Option<(SharedMounts, String)>,
    harnesses: Names,
    secrets: Names,
    required: Option<Required>,
    requirements: Vec<Requirement>,
}

/// What a container is to be given.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The keys of its annotations.
    pub annotations: &'a [&'a str],
    pub harness: &'a str,
    pub policy: &'a PolicySet,
    pub secrets: &'a [String],
}

/// Something that a container asks for and must not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}, beyond `{rule}` ({place})")]
pub struct Beyond {
    pub what: String,
    /// The key, such as `policies.forbid`.
    pub rule: &'static str,
    /// `/etc/understudy/managed.toml:3`
    pub place: String,
}

/// Which containers may reach every host while what they do is recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Log {
    /// None.
    #[default]
    Never,
    /// Those that hold no secret.
    WithoutSecrets,
    WithSecrets,
}

/// Which containers must carry an annotation of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Required {
    /// `FILE:LINE`.
    pub place: String,
    pub of: Concerned,
}

/// The items of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Limit<T> {
    items: Vec<T>,
    place: String,
}

/// `HOST` on every port, or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reach {
    host: HostPattern,
    port: Option<u16>,
}

/// What becomes of a host that no rule is about.
const MODES: [&str; 3] = ["deny", "ask", "log"];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Names {
    allow: Option<Limit<String>>,
    forbid: Option<Limit<String>>,
}

impl Ceiling {
    /// `name` is what it is called in labels, `file` what it is called in messages; `known` are the keys of
    /// annotations that there are.
    pub fn parse(name: &str, file: &str, text: &str, known: &[&str]) -> Result<Self, DocumentError> {
        let raw: File = document::parse(file, text)?;
        let source = Source { file, text };
        let annotations = raw.annotations.unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            required: source.required(raw.required, raw.required_images, raw.required_labels)?,
            requirements: require::parse(&source, raw.require, known)?,
            hosts: source.hosts("hosts", raw.hosts)?,
            deny: source.hosts("deny", raw.deny)?,
            allow_hosts: source.hosts("allow-hosts", annotations.allow_hosts)?,
            annotations: source.annotations(annotations.forbid, known)?,
            open: raw.policies.as_ref().and_then(|raw| raw.open.clone()).map(|list| source.limit(list)),
            log: raw.modes.as_ref().and_then(|raw| source.log(raw.log.as_ref())),
            shared_mounts: source.shared_mounts(raw.mounts.as_ref()),
            modes: source.modes(raw.modes)?,
            policies: source.names(raw.policies.map(|raw| [raw.allow, raw.forbid])),
            harnesses: source.names(raw.harnesses.map(|raw| [raw.allow, raw.forbid])),
            secrets: source.names(raw.secrets.map(|raw| [raw.allow, raw.forbid])),
        })
    }

    /// # Errors
    /// The first thing that goes beyond it.
    pub fn check(&self, asked: &Asked<'_>) -> Result<(), Beyond> {
        self.check_annotations(asked.annotations)?;
        self.harnesses.check("harness", ["harnesses.allow", "harnesses.forbid"], [asked.harness])?;
        let policies = || asked.policy.policies().iter().filter(|policy| policy.name() != annotation::NAME);
        let names = policies().map(|policy| policy.name());
        self.policies.check("policy", ["policies.allow", "policies.forbid"], names)?;
        policies().try_for_each(|policy| self.check_inherited(policy))?;
        let secrets = asked.secrets.iter().map(String::as_str);
        self.secrets.check("secret", ["secrets.allow", "secrets.forbid"], secrets)?;
        asked.policy.policies().iter().try_for_each(|policy| self.check_hosts(policy))
    }

    /// The hosts that are denied whatever a policy says, as a policy to combine with it.
    pub fn denials(&self) -> Option<Policy> {
        let deny = self.deny.as_ref()?;
        let mut ports: Vec<Option<u16>> = deny.items.iter().map(|item| item.port).collect();
        ports.sort_unstable();
        ports.dedup();
        let rule = |port: Option<u16>| {
            let items = deny.items.iter().filter(|item| item.port == port);
            let hosts = items.map(|item| item.host.clone()).collect();
            let ports = port.map_or(Ports::Any, |port| Ports::These(vec![port]));
            Rule::new(Effect::Deny, hosts, ports, deny.place.clone())
        };
        Some(Policy::new(self.name.clone(), ports.into_iter().map(rule).collect()))
    }

    /// What it says of containers in mode `log`, and where.
    pub fn log(&self) -> Option<(Log, &str)> {
        self.log.as_ref().map(|(log, place)| (*log, place.as_str()))
    }

    /// Whether a container may have this mode.
    ///
    /// # Errors
    /// As [`Ceiling::check`].
    pub fn check_mode(&self, mode: &str) -> Result<(), Beyond> {
        if mode == "log" {
            let what = || "mode `log` allows every public host".to_owned();
            if let Some(hosts) = &self.hosts {
                return Err(hosts.beyond("hosts", what()));
            }
            if let Some(open) = self.open.as_ref().filter(|_| self.log.is_none()) {
                return Err(open.beyond("policies.open", what()));
            }
        }
        self.modes.check("mode", ["modes.allow", "modes.forbid"], [mode])
    }

    /// Whether it says that this policy may allow every host.
    pub fn permits_open(&self, policy: &str) -> bool {
        self.open.as_ref().is_some_and(|open| open.items.iter().any(|name| name == policy))
    }

    /// Where it says so of any.
    pub fn place_of_open(&self) -> Option<&str> {
        self.open.as_ref().map(|limit| limit.place.as_str())
    }

    pub fn required(&self) -> Option<&Required> {
        self.required.as_ref()
    }

    /// In the order of the file.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// What is forbidden is also by another name. Which names annotations may say is another question, so `allow` is not asked.
    fn check_inherited(&self, policy: &Policy) -> Result<(), Beyond> {
        let Some(forbidden) = &self.policies.forbid else { return Ok(()) };
        match policy.inherits().iter().find(|name| forbidden.items.contains(name)) {
            Some(name) => {
                let what = format!("policy `{}`, which extends `{name}`", policy.name());
                Err(forbidden.beyond("policies.forbid", what))
            }
            None => Ok(()),
        }
    }

    fn check_annotations(&self, keys: &[&str]) -> Result<(), Beyond> {
        let Some(forbidden) = &self.annotations else { return Ok(()) };
        match keys.iter().find(|key| forbidden.items.iter().any(|item| item == *key)) {
            Some(key) => Err(forbidden.beyond("annotations.forbid", format!("annotation {key}"))),
            None => Ok(()),
        }
    }

    /// Whether the hosts that `policy` allows lie within.
    ///
    /// # Errors
    /// As [`Ceiling::check`].
    pub fn check_hosts(&self, policy: &Policy) -> Result<(), Beyond> {
        if let Some(open) =
            self.open.as_ref().filter(|_| policy.is_open() && !self.permits_open(policy.name()))
        {
            return Err(open.beyond("policies.open", format!("policy `{}` allows every host", policy.name())));
        }
        let allowed = policy.rules().iter().filter(|rule| rule.effect == Effect::Allow);
        for (rule, host) in allowed.flat_map(|rule| rule.hosts.iter().map(move |host| (rule, host))) {
            let what = |reach: Reach| format!("policy `{}` ({}) allows `{reach}`", policy.name(), rule.place);
            let limits =
                [("hosts", self.hosts.as_ref()), ("annotations.allow-hosts", self.allow_hosts(policy))];
            for (key, limit) in limits {
                if let Some((limit, beyond)) =
                    limit.and_then(|limit| Some((limit, limit.leaves_out(host, &rule.ports)?)))
                {
                    return Err(limit.beyond(key, what(beyond)));
                }
            }
            // What a harness's descriptor names beside what is denied still works: nobody asked for this host.
            let deny = self.deny.as_ref().filter(|_| policy.name() != builtin::HARNESS_ONLY);
            if let Some((deny, denied)) = deny.and_then(|deny| Some((deny, deny.names(host, &rule.ports)?))) {
                return Err(deny.beyond("deny", what(denied)));
            }
        }
        Ok(())
    }

    /// The first host that an annotation opens and that this does not name as one which annotations may open, with its
    /// port if that is what is not named.
    pub fn unnamed(&self, policy: &PolicySet) -> Option<String> {
        let asked = policy.policies().iter().filter(|policy| policy.name() == annotation::NAME);
        let rules = asked.flat_map(|policy| policy.rules());
        let mut opened = rules.flat_map(|rule| rule.hosts.iter().map(move |host| (host, &rule.ports)));
        opened.find_map(|(host, ports)| match &self.allow_hosts {
            Some(limit) => Some(limit.leaves_out(host, ports)?.to_string()),
            None => Some(host.to_string()),
        })
    }

    fn allow_hosts(&self, policy: &Policy) -> Option<&Limit<Reach>> {
        self.allow_hosts.as_ref().filter(|_| policy.name() == annotation::NAME)
    }
}

impl<T> Limit<T> {
    fn beyond(&self, rule: &'static str, what: String) -> Beyond {
        Beyond { what, rule, place: self.place.clone() }
    }
}

impl Limit<Reach> {
    /// Something of this host and these ports that no item covers: the host alone, where no port would help.
    fn leaves_out(&self, host: &HostPattern, ports: &Ports) -> Option<Reach> {
        let about = || self.items.iter().filter(|item| item.host.covers(host));
        let covered = |port: Option<u16>| about().any(|item| item.port.is_none() || item.port == port);
        let port = match ports {
            Ports::Any => (!covered(None)).then_some(None)?,
            Ports::These(ports) => Some(*ports.iter().find(|port| !covered(Some(**port)))?),
        };
        Some(Reach { host: host.clone(), port: port.filter(|_| about().next().is_some()) })
    }

    /// Something of this host and these ports that an item is about.
    fn names(&self, host: &HostPattern, ports: &Ports) -> Option<Reach> {
        let item = self
            .items
            .iter()
            .find(|item| item.host.covers(host) && item.port.is_none_or(|port| ports.contain(port)))?;
        Some(Reach { host: host.clone(), port: item.port })
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => self.host.fmt(f),
            Some(port) => write!(f, "{}:{port}", self.host),
        }
    }
}

impl Names {
    fn check<'a>(
        &self,
        noun: &str,
        [allow, forbid]: [&'static str; 2],
        asked: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), Beyond> {
        for name in asked {
            let listed = |limit: &&Limit<String>| limit.items.iter().any(|item| item == name);
            if let Some(limit) = self.allow.as_ref().filter(|limit| !listed(limit)) {
                return Err(limit.beyond(allow, format!("{noun} `{name}`")));
            }
            if let Some(limit) = self.forbid.as_ref().filter(listed) {
                return Err(limit.beyond(forbid, format!("{noun} `{name}`")));
            }
        }
        Ok(())
    }
}

type List = Option<Items<String>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    hosts: List,
    deny: List,
    annotations: Option<RawAnnotations>,
    policies: Option<RawPolicies>,
    modes: Option<RawModes>,
    mounts: Option<mounts::Raw>,
    harnesses: Option<RawNames>,
    secrets: Option<RawNames>,
    required: Option<Spanned<bool>>,
    required_images: List,
    required_labels: List,
    #[serde(default)]
    require: Vec<Spanned<require::Raw>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawAnnotations {
    forbid: List,
    allow_hosts: List,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNames {
    allow: List,
    forbid: List,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModes {
    allow: List,
    forbid: List,
    log: Option<Spanned<Log>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPolicies {
    allow: List,
    forbid: List,
    open: List,
}

struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn hosts(&self, key: &str, list: List) -> Result<Option<Limit<Reach>>, DocumentError> {
        let Some(list) = list else { return Ok(None) };
        let parse = |(at, host): (usize, &String)| {
            // Whoever trusts every annotation must be able to say so.
            if key == "allow-hosts" && host == "*" {
                return Ok(Reach { host: HostPattern::Everything, port: None });
            }
            let (pattern, port) = annotation::host_and_port(host)
                .map_err(|error| self.error(at, format!("`{key}`: {host:?}: {error}")))?;
            Ok(Reach { host: pattern, port })
        };
        let items = list.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Some(Limit { items, place: self.place(list.at()) }))
    }

    fn annotations(&self, list: List, known: &[&str]) -> Result<Option<Limit<String>>, DocumentError> {
        let Some(list) = list else { return Ok(None) };
        if let Some((at, unknown)) = list.iter().find(|(_, item)| !known.contains(&item.as_str())) {
            let meant = match closest(unknown, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known are: {}", known.join(", ")),
            };
            return Err(self.error(at, format!("`forbid`: no annotation {unknown:?} exists; {meant}")));
        }
        Ok(Some(self.limit(list)))
    }

    fn log(&self, raw: Option<&Spanned<Log>>) -> Option<(Log, String)> {
        raw.map(|log| (*log.get_ref(), self.place(log.span().start)))
    }

    fn modes(&self, raw: Option<RawModes>) -> Result<Names, DocumentError> {
        let lists = raw.map(|raw| [raw.allow, raw.forbid]);
        for list in lists.iter().flatten().flatten() {
            if let Some((at, unknown)) = list.iter().find(|(_, mode)| !MODES.contains(&mode.as_str())) {
                let known = MODES.join(", ");
                return Err(self.error(at, format!("no mode {unknown:?} exists; known are: {known}")));
            }
        }
        Ok(self.names(lists))
    }

    fn names(&self, lists: Option<[List; 2]>) -> Names {
        let [allow, forbid] = lists.unwrap_or_default();
        let limit = |list: List| list.map(|list| self.limit(list));
        Names { allow: limit(allow), forbid: limit(forbid) }
    }

    fn required(
        &self,
        required: Option<Spanned<bool>>,
        images: List,
        labels: List,
    ) -> Result<Option<Required>, DocumentError> {
        let Some(required) = required.filter(|required| *required.get_ref()) else {
            return match images.or(labels) {
                Some(list) => {
                    let without = "images or labels without `required = true` would require nothing";
                    Err(self.error(list.at(), without.to_owned()))
                }
                None => Ok(None),
            };
        };
        let place = self.place(required.span().start);
        Ok(Some(Required { place, of: self.concerned(images, labels)? }))
    }

    fn concerned(&self, images: List, labels: List) -> Result<Concerned, DocumentError> {
        let patterns = |list: List| {
            let Some(list) = list else { return Ok(Vec::new()) };
            if list.is_empty() || list.iter().any(|(_, pattern)| pattern.is_empty()) {
                let empty = "an empty list or pattern is about no container; leave it out, or name those that are meant";
                return Err(self.error(list.at(), empty.to_owned()));
            }
            Ok(list.into_values())
        };
        Ok(Concerned { images: patterns(images)?, labels: patterns(labels)? })
    }

    fn limit(&self, list: Items<String>) -> Limit<String> {
        let place = self.place(list.at());
        Limit { items: list.into_values(), place }
    }

    fn place(&self, at: usize) -> String {
        format!("{}:{}", self.file, position(self.text, at).0)
    }

    fn error(&self, at: usize, message: String) -> DocumentError {
        DocumentError::at(self.file, self.text, at, message)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Policies;

    const KNOWN: [&str; 2] = ["understudy.allow", "understudy.policy"];
    const ALL: &str = "hosts = [\"*.corp.example\", \"api.example.net\"]\ndeny = \"up.corp.example\"\n\
        [annotations]\nforbid = [\"understudy.allow\"]\n[policies]\nforbid = \"wide\"\n\
        [harnesses]\nallow = [\"good\"]\n[secrets]\nforbid = [\"root\"]\n";

    fn ceiling(text: &str) -> Ceiling {
        Ceiling::parse("managed", "/m.toml", text, &KNOWN).unwrap()
    }

    fn policy(name: &str, host: &str) -> Arc<Policy> {
        let text = format!("[[allow]]\nhost = {host:?}\n");
        Arc::new(Policy::parse(name, &format!("{name}.toml"), &text).unwrap())
    }

    fn check(
        ceiling: &Ceiling,
        annotations: &[&str],
        harness: &str,
        policies: Vec<Arc<Policy>>,
        secrets: &[&str],
    ) -> Option<String> {
        let policy = PolicySet::combine(policies);
        let secrets: Vec<String> = secrets.iter().map(|name| (*name).to_owned()).collect();
        let asked = Asked { annotations, harness, policy: &policy, secrets: &secrets };
        ceiling.check(&asked).err().map(|beyond| beyond.to_string())
    }

    #[test]
    fn what_lies_within_passes() {
        let within = vec![policy("web", "a.b.corp.example"), policy("net", "api.example.net")];
        let annotations = ["understudy.policy"];
        assert_eq!(check(&ceiling(ALL), &annotations, "good", within.clone(), &["key"]), None);
        assert_eq!(check(&ceiling(""), &["understudy.allow"], "any", within, &["root"]), None);
    }

    #[test]
    fn what_goes_beyond_is_named_with_the_rule_and_its_place() {
        let all = ceiling(ALL);
        let web = |host| vec![policy("web", host)];
        for (found, said) in [
            (
                check(&all, &KNOWN, "good", vec![], &[]),
                "annotation understudy.allow, beyond `annotations.forbid` (/m.toml:4)",
            ),
            (check(&all, &[], "bad", vec![], &[]), "harness `bad`, beyond `harnesses.allow` (/m.toml:8)"),
            (
                check(&all, &[], "good", vec![policy("wide", "a.corp.example")], &[]),
                "policy `wide`, beyond `policies.forbid` (/m.toml:6)",
            ),
            (
                check(&all, &[], "good", vec![], &["root"]),
                "secret `root`, beyond `secrets.forbid` (/m.toml:10)",
            ),
            (
                check(&all, &[], "good", web("evil.test"), &[]),
                "policy `web` (web.toml:2) allows `evil.test`, beyond `hosts` (/m.toml:1)",
            ),
            (
                check(&all, &[], "good", web("*.example.net"), &[]),
                "policy `web` (web.toml:2) allows `*.example.net`, beyond `hosts` (/m.toml:1)",
            ),
            (
                check(&all, &[], "good", web("up.corp.example"), &[]),
                "policy `web` (web.toml:2) allows `up.corp.example`, beyond `deny` (/m.toml:2)",
            ),
        ] {
            assert_eq!(found.as_deref(), Some(said));
        }
    }

    #[test]
    fn a_policy_that_is_forbidden_is_so_to_those_that_extend_it() {
        let mut policies = Policies::default();
        for (name, text) in
            [("wide", ""), ("middle", "extends = \"wide\""), ("web", "extends = [\"middle\"]")]
        {
            policies.insert(Policy::parse(name, &format!("{name}.toml"), text).unwrap());
        }
        let web = || vec![policies.policy("web").unwrap()];
        let forbidden = ceiling("policies.forbid = [\"other\",\n\"wide\"]");
        let said = "policy `web`, which extends `wide`, beyond `policies.forbid` (/m.toml:1)";
        assert_eq!(check(&forbidden, &[], "h", web(), &[]).as_deref(), Some(said));
        assert_eq!(check(&ceiling("policies.forbid = \"git-hosts\""), &[], "h", web(), &[]), None);
        // Which names may be said is another question.
        assert_eq!(check(&ceiling("policies.allow = \"web\""), &[], "h", web(), &[]), None);
    }

    #[test]
    fn what_is_not_among_those_allowed_is_beyond() {
        let ceiling = ceiling("modes.allow = [\"deny\", \"log\"]\nsecrets.allow = [\"key\"]\n");
        let mode = |mode| ceiling.check_mode(mode).map_err(|beyond| beyond.to_string());
        assert_eq!(mode("deny"), Ok(()));
        assert_eq!(mode("log"), Ok(()));
        assert_eq!(mode("ask"), Err("mode `ask`, beyond `modes.allow` (/m.toml:1)".to_owned()));
        assert_eq!(check(&ceiling, &[], "h", vec![], &["key"]), None);
        let beyond = check(&ceiling, &[], "h", vec![], &["key", "root"]);
        assert_eq!(beyond.as_deref(), Some("secret `root`, beyond `secrets.allow` (/m.toml:2)"));
        let forbidden = Ceiling::parse("m", "/m.toml", "modes.forbid = \"ask\"", &KNOWN).unwrap();
        let beyond = forbidden.check_mode("ask").unwrap_err().to_string();
        assert_eq!(beyond, "mode `ask`, beyond `modes.forbid` (/m.toml:1)");
        assert_eq!(forbidden.check_mode("deny"), Ok(()));
    }

    #[test]
    fn a_denied_host_stays_denied_within_what_is_allowed() {
        let denials = ceiling(ALL).denials().unwrap();
        let set = PolicySet::combine(vec![policy("web", "*.corp.example"), Arc::new(denials)]);
        let denied = crate::Verdict::Denied { rule: "/m.toml:2".into(), note: None };
        assert_eq!(set.decide(&"up.corp.example".parse().unwrap(), 443), denied);
        let harness = builtin::harness_only("h", ["up.corp.example".parse().unwrap()]);
        let asked = check(&ceiling("deny = \"up.corp.example\""), &[], "h", vec![Arc::new(harness)], &[]);
        assert_eq!(asked, None);
        assert!(ceiling("").denials().is_none());
    }

    #[test]
    fn a_port_that_is_named_binds_and_without_one_every_port_is_meant() {
        let check = |text: &str, rule: &str| {
            let policy = Policy::parse("web", "web.toml", &format!("[[allow]]\n{rule}\n")).unwrap();
            check(&ceiling(text), &[], "h", vec![Arc::new(policy)], &[])
        };
        let hosts = "hosts = [\"a.example:443\", \"a.example:8443\", \"*.b.example\"]";
        for (rule, beyond) in [
            ("host = \"a.example\"", None),
            ("host = \"a.example\"\nport = [443, 8443]", None),
            ("host = \"x.b.example\"\nport = 22", None),
            ("host = \"a.example\"\nport = [443, 22]", Some("`a.example:22`, beyond `hosts`")),
            ("host = \"*.a.example\"", Some("`*.a.example`, beyond `hosts`")),
        ] {
            let found = check(hosts, rule);
            assert_eq!(found.is_some(), beyond.is_some(), "{rule}: {found:?}");
            assert!(beyond.is_none_or(|beyond| found.as_ref().unwrap().contains(beyond)), "{found:?}");
        }
        let deny = "deny = [\"a.example:22\", \"b.example\"]";
        for (rule, beyond) in [
            ("host = \"a.example\"", None),
            ("host = \"*.example.com\"\nport = 22", None),
            ("host = \"a.example\"\nport = [443, 22]", Some("`a.example:22`, beyond `deny`")),
            ("host = \"b.example\"\nport = 1", Some("`b.example`, beyond `deny`")),
        ] {
            let found = check(deny, rule);
            assert_eq!(found.is_some(), beyond.is_some(), "{rule}: {found:?}");
            assert!(beyond.is_none_or(|beyond| found.as_ref().unwrap().contains(beyond)), "{found:?}");
        }
        let open = Policy::parse("all", "all.toml", "open = true").unwrap();
        let set = PolicySet::combine(vec![Arc::new(open), Arc::new(ceiling(deny).denials().unwrap())]);
        for (host, port, allowed) in [
            ("a.example", 443, true),
            ("a.example", 22, false),
            ("b.example", 443, false),
            ("c.example", 22, true),
        ] {
            let verdict = set.decide(&host.parse().unwrap(), port);
            assert_eq!(matches!(verdict, crate::Verdict::Allowed { .. }), allowed, "{host}:{port}");
        }
        let annotations = ceiling("[annotations]\nallow-hosts = \"a.example:8443\"\n");
        let unnamed = |text: &str| {
            let policy = Arc::new(Policy::from_allow_annotation(text).unwrap());
            annotations.unnamed(&PolicySet::combine(vec![policy]))
        };
        assert_eq!(unnamed("a.example:8443"), None);
        assert_eq!(unnamed("a.example").as_deref(), Some("a.example:443"));
        assert_eq!(unnamed("b.example:8443").as_deref(), Some("b.example"));
        assert!(Ceiling::parse("m", "/m.toml", "hosts = \"a.example:0\"", &[]).is_err());
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        let empty = ceiling("hosts = []\n[policies]\nallow = []\n");
        assert!(check(&empty, &[], "h", vec![policy("web", "a.example")], &[]).is_some());
        assert!(check(&empty, &[], "h", vec![], &[]).is_none());
    }

    #[test]
    fn annotations_can_have_a_ceiling_of_their_own() {
        let ceiling = ceiling("[annotations]\nallow-hosts = \"*.corp.example\"\n");
        let allow = |text| vec![Arc::new(Policy::from_allow_annotation(text).unwrap())];
        assert_eq!(check(&ceiling, &[], "h", allow("a.corp.example"), &[]), None);
        assert_eq!(check(&ceiling, &[], "h", vec![policy("web", "a.test")], &[]), None);
        let beyond = check(&ceiling, &[], "h", allow("a.test"), &[]).unwrap();
        assert!(
            beyond.ends_with("allows `a.test`, beyond `annotations.allow-hosts` (/m.toml:2)"),
            "{beyond}"
        );
    }

    #[test]
    fn an_open_policy_lies_below_no_list_of_hosts() {
        let open = || vec![Arc::new(Policy::parse("all", "all.toml", "open = true").unwrap())];
        let check = |text: &str| check(&ceiling(text), &[], "h", open(), &[]);
        assert_eq!(check(""), None);
        assert_eq!(check("policies.open = [\"all\"]\ndeny = \"a.example\""), None);
        let closed = check("policies.open = []").unwrap();
        assert_eq!(closed, "policy `all` allows every host, beyond `policies.open` (/m.toml:1)");
        let hosts = check("hosts = \"*.corp.example\"").unwrap();
        assert_eq!(hosts, "policy `all` (all.toml:1) allows `*`, beyond `hosts` (/m.toml:1)");
    }

    #[test]
    fn required_means_those_that_match_or_all() {
        let required = |text: &str| ceiling(text).required().cloned();
        assert_eq!(required("required = false"), None);
        let all = required("required = true").unwrap();
        assert!(all.of.is_for_all() && all.of.matches::<&str>(&[], &[]));
        let some = "required = true\nrequired-images = \"*/agents/*:v*\"\nrequired-labels = [\"agent=*\"]\n";
        let some = required(some).unwrap();
        assert_eq!(some.place, "/m.toml:1");
        for (names, labels, expected) in [
            (vec!["localhost/agents/a:v1"], vec![], true),
            (vec!["localhost/agents/a:1"], vec![], false),
            (vec!["x", "localhost/agents/a:v"], vec![], true),
            (vec![], vec!["agent="], true),
            (vec![], vec!["agents=1"], false),
            (vec![], vec![], false),
        ] {
            assert_eq!(some.of.matches(&names, &labels), expected, "{names:?} {labels:?}");
        }
    }

    #[test]
    fn the_examples_of_the_documentation_are_true() {
        let known = ["understudy.allow", "understudy.privacy"];
        let documentation = include_str!("../../docs/policies.md");
        let mut found = 0;
        for example in documentation.split("```toml\n").filter_map(|rest| rest.split("```").next()) {
            let Some(file) = ["ceiling.toml", "managed.toml"].into_iter().find(|file| {
                example.lines().next().is_some_and(|line| line.starts_with('#') && line.ends_with(file))
            }) else {
                continue;
            };
            let ceiling = Ceiling::parse("c", file, example, &known).unwrap();
            let allow = vec![Arc::new(Policy::from_allow_annotation("evil.test").unwrap())];
            let annotations = ["understudy.allow"];
            assert!(check(&ceiling, &annotations, "claude-code", allow, &[]).is_some(), "{file}");
            found += 1;
        }
        assert!(found >= 2, "{found}");
    }

    #[test]
    fn a_mistake_is_an_error_with_its_place() {
        for (text, said) in [
            ("host = []", "/m.toml:1:1: unknown key `host`; did you mean `hosts`?"),
            ("colours = []", "/m.toml:1:1: unknown key `colours`; "),
            ("hosts = \"*.com\"", "/m.toml:1:9: `hosts`: \"*.com\": `*.com` would match"),
            ("\n[annotations]\nforbid = \"understudy.alow\"", "/m.toml:3:10: `forbid`: no annotation"),
            ("hosts = [\n  \"a.example\",\n  \"*.com\"]", "/m.toml:3:3: `hosts`: \"*.com\""),
            (
                "modes.forbid = [\"log\",\n\"lag\"]",
                "/m.toml:2:1: no mode \"lag\" exists; known are: deny, ask, log",
            ),
            ("modes.allow = \"\"", "/m.toml:1:15: no mode \"\" exists"),
            ("required-images = \"a\"", "/m.toml:1:19: images or labels without"),
            ("required = true\nrequired-labels = []", "/m.toml:2:19: an empty list or pattern"),
            ("[policies]\ndeny = \"a\"", "/m.toml:2:1: unknown key `deny`"),
        ] {
            let found = Ceiling::parse("m", "/m.toml", text, &KNOWN).unwrap_err().to_string();
            assert!(found.starts_with(said), "{text:?}: {found}");
        }
    }
}
