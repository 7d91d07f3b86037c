//! Allowances in vain: every request that they allow is denied, by one rule or by several together. Pure.
//!
//! What an allowance allows is cut into pieces, each of one host pattern, one port, one method and one path pattern, or of one of
//! the requests of git; it is in vain if each piece lies within a denial. A denial that asks for a query takes none: what an
//! allowance with a query allows is also a request without.

use std::collections::BTreeSet;

use super::work::{TooMany, Work};
use crate::git::Endpoint;
use crate::index::{Index, Position};
use crate::{Effect, HostPattern, PathPattern, Ports, Rule};

/// What was found, of the rules of one file or of all policies of a container.
#[derive(Debug, Default)]
pub(crate) struct Looked<'r> {
    pub(crate) vain: Vec<Vain<'r>>,
    /// The first allowance that was not looked at, since there are too many denials about the same hosts.
    pub(crate) left: Option<Placed<'r>>,
}

pub(crate) type Placed<'r> = (Position, &'r Rule);

#[derive(Debug)]
pub(crate) struct Vain<'r> {
    pub(crate) allow: Placed<'r>,
    /// In order, each once.
    pub(crate) by: Vec<Placed<'r>>,
    /// What passes through unseen does not, since a denial asks for what only requests have; as a request it may.
    pub(crate) unseen: bool,
}

/// `most` bounds the work: what is compared with each other, be it rules, ports, methods or paths.
pub(crate) fn look<'r>(rules: &[Placed<'r>], most: usize) -> Looked<'r> {
    let mut index = Index::default();
    let (allowances, denials): (Vec<Placed<'r>>, Vec<Placed<'r>>) =
        rules.iter().partition(|(_, rule)| rule.effect == Effect::Allow);
    for (at, (_, rule)) in denials.iter().enumerate() {
        index.add((0, at), rule);
    }
    let mut search = Search { index, denials, work: Work::of(most) };
    let mut looked = Looked::default();
    for allow in allowances {
        match search.of(allow) {
            Ok(found) => looked.vain.extend(found),
            Err(TooMany) => {
                looked.left = Some(allow);
                break;
            }
        }
    }
    looked
}

struct Search<'r> {
    index: Index,
    denials: Vec<Placed<'r>>,
    work: Work,
}

/// A port or a method or a path; none stands for every one.
#[derive(Clone, Copy)]
struct Piece<'a> {
    port: Option<u16>,
    method: Option<&'a str>,
    path: Option<&'a PathPattern>,
    /// The one of git that it is.
    git: Option<&'a Endpoint>,
}

impl<'r> Search<'r> {
    fn of(&mut self, allow: Placed<'r>) -> Result<Option<Vain<'r>>, TooMany> {
        let rule = allow.1;
        let opaque = !rule.is_for_requests() || rule.splice;
        let (mut by, mut unseen) = (BTreeSet::new(), false);
        for host in &rule.hosts {
            let about = self.about(host, allow.0.0)?;
            for piece in pieces(rule) {
                let mut found = self.first(&about, piece, false)?;
                if found.is_none() && opaque {
                    found = self.first(&about, piece, true)?;
                    unseen |= found.is_some();
                }
                let Some(at) = found else { return Ok(None) };
                by.insert(at);
            }
        }
        let by = by.into_iter().filter_map(|at| self.denials.get(at).copied()).collect();
        Ok(Some(Vain { allow, by, unseen }))
    }

    /// The denials about a host; its own policy's first, whose warnings say so wherever it is used.
    fn about(&mut self, host: &HostPattern, policy: usize) -> Result<Vec<usize>, TooMany> {
        let about = self.index.covering(host);
        self.work.charge(about.len())?;
        let is_own = |at: &usize| self.denials.get(*at).is_some_and(|(of, _)| of.0 == policy);
        let (own, others): (Vec<usize>, Vec<usize>) = about.into_iter().map(|(_, at)| at).partition(is_own);
        Ok([own, others].concat())
    }

    /// The first of them that takes the piece.
    fn first(&mut self, about: &[usize], piece: Piece<'_>, unseen: bool) -> Result<Option<usize>, TooMany> {
        for at in about {
            let Some((_, denial)) = self.denials.get(*at).copied() else { continue };
            self.work.charge(size(denial, piece))?;
            if takes(denial, piece, unseen) {
                return Ok(Some(*at));
            }
        }
        Ok(None)
    }
}

/// At most so much of it is compared with one piece.
fn size(denial: &Rule, piece: Piece<'_>) -> usize {
    let ports = match &denial.ports {
        Ports::Any => 0,
        Ports::These(ports) => ports.len(),
    };
    // Two patterns of many stars each are compared in the product of their lengths.
    let of = |path: &PathPattern| 1 + path.size() * piece.path.map_or(0, PathPattern::size) / 10_000;
    1 + ports + denial.conditions.methods.len() + denial.conditions.patterns().map(of).sum::<usize>()
}

fn pieces(rule: &Rule) -> impl Iterator<Item = Piece<'_>> {
    let ports = match &rule.ports {
        Ports::Any => vec![None],
        Ports::These(ports) => ports.iter().copied().map(Some).collect(),
    };
    ports.into_iter().flat_map(|port| of_port(rule, port))
}

fn of_port<'r>(rule: &'r Rule, port: Option<u16>) -> Box<dyn Iterator<Item = Piece<'r>> + 'r> {
    let asked = &rule.conditions;
    if let Some(git) = &asked.git {
        return Box::new(git.allowed().map(move |endpoint: &'r Endpoint| Piece {
            port,
            method: endpoint.method,
            path: Some(&endpoint.path),
            git: Some(endpoint),
        }));
    }
    Box::new(each(&asked.methods).flat_map(move |method: Option<&'r String>| {
        let method = method.map(String::as_str);
        each(&asked.paths).map(move |path| Piece { port, method, path, git: None })
    }))
}

/// Each of them; once nothing, if there is none.
fn each<T>(list: &[T]) -> impl Iterator<Item = Option<&T>> {
    let nothing = list.is_empty().then_some(None);
    list.iter().map(Some).chain(nothing)
}

/// Whether every request of the piece meets the denial, which is about its host, however a server reads it. What passes
/// through unseen meets any about its host and port.
fn takes(denial: &Rule, piece: Piece<'_>, unseen: bool) -> bool {
    let port = match (&denial.ports, piece.port) {
        (Ports::Any, _) => true,
        (Ports::These(_), None) => false,
        (Ports::These(ports), Some(port)) => ports.contains(&port),
    };
    let asked = &denial.conditions;
    let method = || match piece.method {
        _ if asked.methods.is_empty() => true,
        None => false,
        Some(method) => {
            let is = |own: &String| own == method || (own == "GET" && method == "HEAD");
            asked.methods.iter().any(is)
        }
    };
    let path = || match piece.path {
        _ if asked.paths.is_empty() => true,
        None => asked.paths.iter().any(PathPattern::is_everything),
        Some(path) => asked.paths.iter().any(|denied| denied.surely_takes(path)),
    };
    let meets = || match (&asked.git, piece.git) {
        (None, _) => asked.query.is_none() && method() && path(),
        (Some(denied), Some(endpoint)) => denied.denied().any(|denied| denied.takes(endpoint)),
        // One for `GET` is for `HEAD`, too, which git has not.
        (Some(_), None) => false,
    };
    port && (unseen || meets())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::MOST;
    use super::*;
    use crate::{HostName, Policies, Policy, PolicySet, Request, Verdict};

    /// Place of each allowance in vain, places of what takes it, and whether that is only so of what is unseen.
    fn found(rules: &[Rule]) -> Vec<(String, Vec<String>, bool)> {
        let placed: Vec<Placed<'_>> = rules.iter().enumerate().map(|(at, rule)| ((0, at), rule)).collect();
        let looked = look(&placed, MOST);
        assert!(looked.left.is_none());
        let told = |vain: Vain<'_>| {
            let by = vain.by.iter().map(|(_, rule)| rule.place.replace("p.toml:", "")).collect();
            (vain.allow.1.place.replace("p.toml:", ""), by, vain.unseen)
        };
        looked.vain.into_iter().map(told).collect()
    }

    #[test]
    fn several_denials_together_take_what_none_of_them_takes_alone() {
        let deny = |rest: &str| format!("[[deny]]\nhost = \"a.example\"\n{rest}\n");
        let allow = |rest: &str| format!("[[allow]]\nhost = \"a.example\"\n{rest}\n");
        let both = |rest: &str| format!("[[allow]]\nhost = [\"a.example\", \"b.example\"]\n{rest}\n");
        let methods = allow("methods = [\"GET\", \"PUT\"]");
        let (get, put) = (deny("methods = \"GET\""), deny("methods = [\"PUT\", \"POST\"]"));
        for (text, by, unseen) in [
            (methods.clone() + &get + &put, &["5", "8"][..], false),
            (methods.clone() + &get, &[], false),
            (methods + &get + &deny("methods = \"PUT\"\nport = 80"), &[], false),
            // `HEAD` goes with `GET`, and not the other way round.
            (allow("methods = \"HEAD\"") + &get, &["5"], false),
            (allow("methods = \"GET\"") + &deny("methods = \"HEAD\""), &[], false),
            // Every method is more than any list.
            (allow("") + &get + &put, &[], false),
            (allow("port = [80, 443]") + &deny("port = 80") + &deny("port = [443, 22]"), &["5", "8"], false),
            (both("") + &deny("") + "[[deny]]\nhost = \"*.example.com\"\n", &[], false),
            (both("") + &deny("") + "[[deny]]\nhost = \"b.example\"\n", &["5", "8"], false),
            (
                allow("paths = [\"/a\", \"/b/**\"]")
                    + &deny("paths = \"/a\"")
                    + &deny("paths = [\"/b/**\"]\nport = 443"),
                &["5", "8"],
                false,
            ),
            (allow("paths = \"/a/b\"") + &deny("paths = \"/a/c\""), &[], false),
            (allow("query = [\"k\"]") + &deny("query = \"k\""), &[], false),
            (allow("query = [\"k\"]") + &deny(""), &["5"], false),
            (allow("paths = \"/v1/messages\"") + &deny("paths = \"/v1/**\""), &["5"], false),
            (allow("paths = \"/v1/messages\"") + &deny("paths = \"/**\""), &["5"], false),
            (allow("") + &deny("paths = \"/**\""), &["5"], false),
            (allow("") + &deny("paths = \"/**\"\nmethods = \"GET\""), &[], false),
            (allow("paths = \"/V1/Keys.json\"") + &deny("paths = \"/v1/keys\""), &["5"], false),
            (allow("paths = \"/v1/**\"") + &deny("paths = [\"/v1/*\", \"/v1\"]"), &[], false),
            (
                allow("paths = [\"/a/b\", \"/c/d\"]")
                    + &deny("paths = \"/a/**\"")
                    + &deny("paths = \"/c/*\""),
                &["5", "8"],
                false,
            ),
            (allow("git = \"write\"") + &get + &put, &["5", "8"], false),
            (allow("git = \"write\"") + &get, &[], false),
            (allow("") + &deny("git = \"read\""), &[], false),
            (allow("git = \"read\"\nrepos = \"o/r\"") + &deny("git = \"read\""), &["6"], false),
            (
                allow("git = \"write\"\nrepos = \"o/r\"") + &deny("git = \"read\"\nrepos = \"o/*\""),
                &["6"],
                false,
            ),
            (allow("git = \"read\"\nrepos = \"o/r\"") + &deny("git = \"read\"\nrepos = \"o/s\""), &[], false),
            // A fetch is left.
            (allow("git = \"write\"") + &deny("git = \"write\""), &[], false),
            (allow("git = \"read\"") + &deny("git = \"write\""), &[], false),
            (
                allow("git = \"write\"\nrepos = [\"o/r\", \"o/s\"]")
                    + &deny("git = \"read\"\nrepos = \"o/r\"")
                    + &deny("paths = \"/o/s*/**\""),
                &["6", "10"],
                false,
            ),
            (allow("paths = \"/o/r/git-upload-pack\"") + &deny("git = \"read\""), &[], false),
            (allow("splice = true") + &get, &["5"], true),
            (allow("splice = true") + &deny(""), &["5"], false),
            // What denies all is the reason, wherever it stands.
            (allow("splice = true") + &get + &deny(""), &["8"], false),
            (
                allow("port = [1, 2]\ntcp = true") + &deny("port = 1") + &deny("port = 2\nmethods = \"GET\""),
                &["6", "9"],
                true,
            ),
            (allow("port = [1, 2]\ntcp = true") + &deny("port = 1"), &[], false),
        ] {
            let policy = Policy::parse("p", "p.toml", &text).unwrap();
            let expected: Vec<_> = (!by.is_empty())
                .then(|| ("2".to_owned(), by.iter().map(|line| (*line).to_owned()).collect(), unseen))
                .into_iter()
                .collect();
            assert_eq!(found(policy.rules()), expected, "{text}");
            let told = policy
                .warnings()
                .iter()
                .any(|line| line.starts_with("p.toml:2:8: ") && line.contains("never"));
            assert_eq!(told, !by.is_empty(), "{:?}", policy.warnings());
        }
    }

    #[test]
    fn denials_of_what_is_extended_and_of_other_policies_are_told_of_with_places() {
        let mut policies = Policies::default();
        for (name, text) in [
            (
                "house",
                "[[deny]]\nhost = \"*.b.example\"\nmethods = \"PUT\"\n[[allow]]\nhost = \"c.b.example\"\nmethods = \"PUT\"\n",
            ),
            ("web", "extends = \"house\"\n[[allow]]\nhost = \"a.b.example\"\nmethods = \"PUT\"\n"),
            ("other", "[[allow]]\nhost = \"x.b.example\"\nmethods = [\"PUT\", \"GET\"]\n"),
            ("reads", "[[deny]]\nhost = \"x.b.example\"\nmethods = \"GET\"\n"),
        ] {
            policies.insert(Policy::parse(name, &format!("{name}.toml"), text).unwrap());
        }
        let of = |name: &str| policies.policy(name).unwrap();
        let web = of("web").warnings().to_vec();
        assert_eq!(
            web,
            [
                "web.toml:3:8: this rule about `a.b.example` can never match: the [[deny]] rule at house.toml:2 wins over it; \
              leave it out, or narrow the [[deny]]"
            ]
        );
        let set = |names: &[&str]| PolicySet::combine(names.iter().map(|name| of(name)).collect()).warnings();
        assert!(set(&["web", "house"]).is_empty(), "its own warnings say it: {:?}", set(&["web", "house"]));
        assert!(set(&["other", "house"]).is_empty() && set(&["other", "reads"]).is_empty());
        assert_eq!(
            set(&["other", "house", "reads"]),
            [
                "other.toml:2:8: this rule about `x.b.example` can never match: the [[deny]] rules at house.toml:2, reads.toml:2 \
              win over it; leave it out, or narrow the [[deny]]"
            ]
        );
    }

    #[test]
    fn ten_thousand_rules_are_looked_at_and_more_than_that_is_said() {
        let rule =
            |effect: &str, host: String, rest: &str| format!("[[{effect}]]\nhost = \"{host}\"\n{rest}");
        let many = |at: usize| {
            rule("allow", format!("h{at}.b.example"), "") + &rule("deny", format!("x{at}.b.example"), "")
        };
        let text: String = (0..5000).map(many).chain([rule("deny", "h4999.b.example".into(), "")]).collect();
        assert!(compared_within(&text, 10_000), "each with those about its host");
        let warnings = Policy::parse("p", "p.toml", &text).unwrap().warnings().to_vec();
        assert!(warnings.len() == 1 && warnings[0].starts_with("p.toml:19998:8: "), "{warnings:?}");
        // All about one host, each for a path of its own.
        let one = |effect: &str, at: usize| {
            rule(effect, "a.example".into(), &format!("paths = \"/{effect}/{at}\"\n"))
        };
        let text: String = (0..10_000).map(|at| one("allow", at)).collect();
        let twice = text.clone() + &one("allow", 9999);
        assert!(Policy::parse("p", "p.toml", &text).unwrap().warnings().is_empty());
        assert_eq!(Policy::parse("p", "p.toml", &twice).unwrap().warnings().len(), 1);
        let text: String = (0..4000).map(|at| one("allow", at) + &one("deny", at)).collect();
        let warnings = Policy::parse("p", "p.toml", &text).unwrap().warnings().to_vec();
        assert!(warnings.len() == 1 && warnings[0].contains("nobody looked which [[allow]]"), "{warnings:?}");
    }

    fn compared_within(text: &str, most: usize) -> bool {
        let policy = Policy::parse("p", "p.toml", text).unwrap();
        let placed: Vec<Placed<'_>> =
            policy.rules().iter().enumerate().map(|(at, rule)| ((0, at), rule)).collect();
        look(&placed, most).left.is_none()
    }

    #[test]
    fn the_bound_is_of_what_is_compared_and_not_of_rules() {
        let list = |of: &str| {
            (0..100).map(|at| format!("\"{}\"", of.replace('N', &at.to_string()))).collect::<Vec<_>>()
        };
        let (mut paths, hosts) = (list("/N"), list("N.b.example"));
        let allowed = format!("[[allow]]\nhost = \"a.b.example\"\npaths = [{}]\n", paths.join(","));
        paths.reverse();
        // A hundred paths, each sought among a hundred.
        let text = allowed + &format!("[[deny]]\nhost = \"a.b.example\"\npaths = [{}]\n", paths.join(","));
        assert!(compared_within(&text, 12_000) && !compared_within(&text, 9_000));
        // A hundred hosts, of each a hundred denials to be found, though the first takes it.
        let denied = "[[deny]]\nhost = \"*.b.example\"\n".repeat(100);
        let text = format!("{denied}[[allow]]\nhost = [{}]\n", hosts.join(","));
        assert!(compared_within(&text, 12_000) && !compared_within(&text, 9_000));
        // And a hundred ports, each sought among a hundred.
        let ports =
            |from: usize| (from..from + 100).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        let rule = |effect: &str| format!("[[{effect}]]\nhost = \"a.b.example\"\nport = [{}]\n", ports(1));
        let text = rule("allow") + &rule("deny");
        assert!(compared_within(&text, 12_000) && !compared_within(&text, 9_000));
    }

    proptest! {
        /// Whatever is said to be in vain lets nothing through, and what it would have let through is refused.
        #[test]
        fn what_is_in_vain_allows_nothing(
            rules in proptest::collection::vec(
                (
                    any::<bool>(),
                    proptest::sample::subsequence(vec!["a.b.example", "*.b.example", "c.example"], 1..=2),
                    proptest::sample::select(vec!["", "port = 443", "port = [443, 80]"]),
                    proptest::sample::select(vec!["", "methods = \"GET\"", "methods = [\"PUT\", \"HEAD\"]", "git = \"read\"", "git = \"write\"", "git = \"write\"\nrepos = \"o/*\"", "git = \"read\"\nrepos = \"o/r\""]),
                    proptest::sample::select(vec!["", "", "paths = \"/a/**\"", "paths = [\"/a/**\", \"/b\"]", "paths = \"/**\"", "paths = [\"/A/*\", \"/b.json\", \"/a\"]", "paths = \"/o/**\"", "query = [\"k\"]"]),
                ),
                1..8,
            ),
            host in proptest::sample::select(vec!["a.b.example", "x.b.example", "c.example"]),
            port in proptest::sample::select(vec![443_u16, 80]),
            method in proptest::sample::select(vec!["GET", "HEAD", "PUT", "POST", "put"]),
            target in proptest::sample::select(vec!["/a", "/a/x", "/A/x", "/b", "/b/", "/a/../b", "/c?k=1", "/b?j", "/o/r/info/refs?service=git-upload-pack", "/o/r/git-receive-pack", "/o/r.git/info/lfs/objects/batch", "/o/r/info/lfs/objects/a/7", "/b.json", "/B.JSON", "/a%2Fx"]),
        ) {
            let text: String = rules.iter().map(|(allow, hosts, port, asked, more)| {
                let more = if asked.starts_with("git") { "" } else { more };
                let effect = if *allow { "allow" } else { "deny" };
                format!("[[{effect}]]\nhost = {hosts:?}\n{port}\n{asked}\n{more}\n")
            }).collect();
            let policy = Policy::parse("p", "p.toml", &text).unwrap();
            let name: HostName = host.parse().unwrap();
            let request = Request::new(&name, port, method, target);
            for (place, _, _) in found(policy.rules()) {
                let kept = policy.rules().iter().filter(|rule| {
                    rule.effect == Effect::Deny || rule.place == format!("p.toml:{place}")
                });
                let set = PolicySet::combine(vec![Arc::new(Policy::new("p", kept.cloned().collect()))]);
                let verdict = set.decide_request(&request);
                prop_assert!(!matches!(verdict, Verdict::Allowed { .. }), "{} {:?}", text, verdict);
            }
        }
    }
}
