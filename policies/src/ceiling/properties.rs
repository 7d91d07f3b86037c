//! What holds of any ceiling, whatever lies below it.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{Asked, Ceiling, Held};
use crate::written::files;
use crate::{HostName, HostPattern, Policy, PolicySet, Request, Verdict};

const REACHES: [&str; 7] = ["a.x", "*.a.x", "b.x:443", "a.x:444", "*.b.x:443", "b.x", "c.a.x:5432"];

/// Keys that only ever take something away.
fn limits() -> impl Strategy<Value = Vec<String>> {
    let list = |key: &'static str, items: Vec<&'static str>| {
        subsequence(items.clone(), 0..=items.len()).prop_map(move |items| format!("{key} = {items:?}"))
    };
    let keys = vec![
        list("hosts", REACHES.to_vec()).boxed(),
        list("deny", REACHES.to_vec()).boxed(),
        list("policies.allow", vec!["p0", "p1", "p2", "locked"]).boxed(),
        list("policies.forbid", vec!["p0", "p2"]).boxed(),
        list("policies.open", vec!["p0", "p1"]).boxed(),
        list("harnesses.allow", vec!["generic", "codex"]).boxed(),
        list("harnesses.forbid", vec!["generic"]).boxed(),
        list("secrets.allow", vec!["one", "two"]).boxed(),
        list("secrets.forbid", vec!["two"]).boxed(),
        list("annotations.forbid", vec!["understudy.allow", "understudy.mode"]).boxed(),
        list("modes.forbid", vec!["ask", "log"]).boxed(),
    ];
    keys.prop_flat_map(|keys| {
        let most = keys.len();
        subsequence(keys, 0..=most)
    })
}

fn ceiling(keys: &[String]) -> Ceiling {
    let known = ["understudy.allow", "understudy.mode"];
    Ceiling::parse("managed", "managed.toml", &keys.join("\n"), &known)
        .unwrap_or_else(|error| panic!("{error}\n{keys:?}"))
}

fn set(files: &[String]) -> Vec<Arc<Policy>> {
    let parse = |(at, text): (usize, &String)| {
        Arc::new(Policy::parse(&format!("p{at}"), &format!("p{at}.toml"), text).unwrap())
    };
    files.iter().enumerate().map(parse).collect()
}

fn reaches(host: &HostName, port: u16, items: &[&str]) -> bool {
    items.iter().any(|item| {
        let (name, of) = item.split_once(':').map_or((*item, None), |(name, port)| (name, port.parse().ok()));
        name.parse::<HostPattern>().unwrap().matches(host) && of.is_none_or(|of: u16| port == of)
    })
}

/// Whatever may be asked of host and port.
fn allows(set: &PolicySet, host: &HostName, port: u16, method: &str, target: &str) -> bool {
    let verdicts = [
        set.decide(host, port),
        set.decide_request(&Request::new(host, port, method, target)),
        set.decide_raw(host, port),
        set.decide_postgres(host, port, "d"),
    ];
    verdicts.iter().any(|verdict| matches!(verdict, Verdict::Allowed { .. }))
        || set.splice(host, port).is_some()
}

fn held<'a>(policies: &'a [&'a str], secrets: &'a [&'a str]) -> Held<'a> {
    Held { policies: policies.to_vec(), secrets: secrets.to_vec(), ..Held::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever passes it allows nothing beyond it, by no kind of rule.
    #[test]
    fn what_is_within_reaches_no_further(
        files in files(), hosts in subsequence(REACHES.to_vec(), 0..=7), deny in subsequence(REACHES.to_vec(), 0..=3),
        host in select(vec!["a.x", "c.a.x", "b.x", "d.b.x"]), port in select(vec![443_u16, 444, 5432, 22]),
        method in select(vec!["GET", "POST"]), target in select(vec!["/a", "/b?k=1", "/o/r/git-upload-pack"]),
    ) {
        let ceiling = ceiling(&[format!("hosts = {hosts:?}"), format!("deny = {deny:?}")]);
        let policies = set(&files);
        let host: HostName = host.parse().unwrap();
        // Each that passes alone.
        let mut within: Vec<_> = policies.into_iter().filter(|policy| ceiling.check_hosts(policy).is_ok()).collect();
        prop_assert!(!within.iter().any(|policy| policy.is_open()));
        within.extend(ceiling.denials().map(Arc::new));
        let allowed = allows(&PolicySet::combine(within), &host, port, method, target);
        prop_assert!(!allowed || reaches(&host, port, &hosts) && !reaches(&host, port, &deny));
    }

    #[test]
    fn what_it_denies_stays_denied_below_anything(
        files in files(), deny in subsequence(REACHES.to_vec(), 1..=7),
        host in select(vec!["a.x", "c.a.x", "b.x", "d.b.x"]), port in select(vec![443_u16, 444, 5432]), first in any::<bool>(),
    ) {
        let host: HostName = host.parse().unwrap();
        prop_assume!(reaches(&host, port, &deny));
        let denials = ceiling(&[format!("deny = {deny:?}")]).denials().unwrap();
        let mut policies = set(&files);
        policies.push(Arc::new(Policy::parse("all", "all.toml", "open = true").unwrap()));
        policies.insert(if first { 0 } else { policies.len() }, Arc::new(denials));
        prop_assert!(!allows(&PolicySet::combine(policies), &host, port, "GET", "/a"));
    }

    #[test]
    fn one_more_key_lets_nothing_pass(
        keys in limits(), more in limits(), files in files(), mode in select(vec!["deny", "ask", "log"]),
        harness in select(vec!["generic", "codex"]), annotated in subsequence(vec!["understudy.allow", "understudy.mode"], 0..=2),
        secrets in subsequence(vec!["one", "two"], 0..=2),
    ) {
        let of = |key: &String| key.split(' ').next().unwrap_or_default().to_owned();
        let known: Vec<String> = keys.iter().map(of).collect();
        let more: Vec<String> = more.into_iter().filter(|key| !known.contains(&of(key))).collect();
        let (policy, secrets) = (PolicySet::combine(set(&files)), secrets.into_iter().map(str::to_owned).collect::<Vec<_>>());
        let asked = Asked { annotations: &annotated, harness, policy: &policy, secrets: &secrets };
        let passes = |ceiling: &Ceiling| (ceiling.check(&asked).is_ok(), ceiling.check_mode(mode).is_ok());
        let (before, after) = (passes(&ceiling(&keys)), passes(&ceiling(&[keys, more].concat())));
        prop_assert!((before.0 || !after.0) && (before.1 || !after.1));
    }

    /// Who has what is required, and more, has it; in whatever order it is asked for.
    #[test]
    fn to_have_more_misses_nothing(
        required in proptest::collection::vec((any::<bool>(), subsequence(vec!["x", "y", "z"], 1..=3)), 1..4),
        policies in subsequence(vec!["x", "y", "z", "w"], 0..=4), secrets in subsequence(vec!["x", "y", "z", "w"], 0..=4),
        more in subsequence(vec!["x", "y", "z"], 0..=3),
    ) {
        let text = |(of_secrets, names): &(bool, Vec<&str>)| {
            format!("[[require]]\n{} = {names:?}", if *of_secrets { "secret" } else { "policy" })
        };
        let missing = |required: Vec<String>, held: &Held<'_>| -> usize {
            ceiling(&required).requirements().iter().filter(|rule| rule.check(held).is_err()).count()
        };
        let texts: Vec<String> = required.iter().map(text).collect();
        let before = missing(texts.clone(), &held(&policies, &secrets));
        let turned: Vec<String> = texts.iter().rev().cloned().collect();
        prop_assert_eq!(before, missing(turned, &held(&policies, &secrets)));
        let (policies, secrets) = ([&policies[..], &more].concat(), [&secrets[..], &more].concat());
        prop_assert!(missing(texts.clone(), &held(&policies, &secrets)) <= before);
        let all: Vec<&str> = required.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        prop_assert_eq!(missing(texts, &held(&all, &all)), 0);
    }
}
