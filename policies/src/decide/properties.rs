//! What holds of any policies: whichever keys their rules have, and whatever they are asked.

use std::mem::discriminant;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;

use super::{PolicySet, Verdict};
use crate::written::{Written, allowance, denial, files, for_all, head, rule, splicing};
use crate::{Effect, Given, HostName, Limits, Outcome, Policies, Policy, Request};

/// Every question that there is about one host and port.
#[derive(Debug, Clone)]
struct Asked {
    host: HostName,
    port: u16,
    method: String,
    target: String,
    database: String,
}

/// What is allowed, and under which terms.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answers {
    connection: Option<Given>,
    request: Option<Given>,
    bytes: Option<Given>,
    session: Option<Given>,
    splice: Option<Given>,
}

impl Answers {
    fn each(&self) -> [&Option<Given>; 5] {
        [&self.connection, &self.request, &self.bytes, &self.session, &self.splice]
    }
}

impl Asked {
    fn request(&self) -> Request<'_> {
        Request::new(&self.host, self.port, &self.method, &self.target)
    }

    fn of(&self, set: &PolicySet) -> Answers {
        let [connection, request, bytes, session] = self.verdicts(set).map(|verdict| match verdict {
            Verdict::Allowed { given, .. } => Some(given),
            _ => None,
        });
        let splice = set.splice(&self.host, self.port).map(|(_, given)| given);
        Answers { connection, request, bytes, session, splice }
    }

    fn verdicts(&self, set: &PolicySet) -> [Verdict; 4] {
        [
            set.decide(&self.host, self.port),
            set.decide_request(&self.request()),
            set.decide_raw(&self.host, self.port),
            set.decide_postgres(&self.host, self.port, &self.database),
        ]
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let host = select(vec!["a.x", "c.a.x", "d.c.a.x", "b.x"]);
    let method = select(vec!["GET", "HEAD", "POST", "PUT", "get"]);
    let target = "/(a|A|a/b|a%2Fb|\\.\\./a|a//b|%61|o/r/git-upload-pack|o/r.git/git-receive-pack|o/r/info/refs)\
                  (\\?(k=1|l|k&l|K|service=git-receive-pack|service=git-upload-pack))?";
    let database = select(vec!["d", "f"]);
    let port = select(vec![443, 443, 444, 5432]);
    (host, port, method, target, database).prop_map(|(host, port, method, target, database)| Asked {
        host: host.parse().unwrap(),
        port,
        method: method.to_owned(),
        target,
        database: database.to_owned(),
    })
}

/// Each text is a file of its own, named by its place.
fn set(texts: &[String]) -> PolicySet {
    named(texts.iter().enumerate().map(|(at, text)| (format!("p{at}"), text.as_str())))
}

fn named<'t>(texts: impl Iterator<Item = (String, &'t str)>) -> PolicySet {
    let parse = |(name, text): (String, &str)| {
        let parsed = Policy::parse(&name, &format!("{name}.toml"), text);
        Arc::new(parsed.unwrap_or_else(|error| panic!("{error}\n{text}")))
    };
    PolicySet::combine(texts.map(parse).collect())
}

fn and(texts: &[String], more: &Written) -> PolicySet {
    set(&[texts, &[more.text()]].concat())
}

/// Whether whatever one allows, the other does, under terms as wide at least.
fn is_within(one: &Option<Given>, other: &Option<Given>) -> bool {
    let (Some(one), other) = (one, other.as_ref()) else { return true };
    other.is_some_and(|other| {
        let body = other.max_body.is_none_or(|most| one.max_body.is_some_and(|own| own <= most));
        let rates = other.rates.is_empty()
            || (!one.rates.is_empty() && one.rates.iter().all(|rate| other.rates.contains(rate)));
        let upgrade = one.upgrade.iter().all(|protocol| other.upgrade.contains(protocol));
        (other.private || !one.private) && body && rates && upgrade
    })
}

fn all_within(one: &Answers, other: &Answers) -> bool {
    one.each().into_iter().zip(other.each()).all(|(one, other)| is_within(one, other))
}

/// Without what depends on the order: which of several rules is named, and which is named first.
fn in_any_order(verdict: Verdict) -> Verdict {
    let rule = || "a rule".to_owned();
    match verdict {
        Verdict::Allowed { given, .. } => Verdict::Allowed { rule: rule(), given: sorted(given) },
        Verdict::Denied { .. } => Verdict::Denied { rule: rule(), note: None },
        Verdict::AmbiguousPath { error, .. } => Verdict::AmbiguousPath { rule: rule(), error },
        Verdict::NoPath { mut rules } => {
            rules.sort();
            Verdict::NoPath { rules }
        }
        verdict => verdict,
    }
}

fn without_places(verdict: Verdict) -> Verdict {
    match in_any_order(verdict) {
        Verdict::Allowed { rule, given } => {
            let rates = given.rates.into_iter().map(|(_, rate)| (String::new(), rate)).collect();
            Verdict::Allowed { rule, given: sorted(Given { rates, ..given }) }
        }
        Verdict::NoPath { rules } => Verdict::NoPath { rules: vec![String::new(); rules.len()] },
        verdict => verdict,
    }
}

fn sorted(mut given: Given) -> Given {
    given.rates.sort_by_key(|(place, rate)| (place.clone(), rate.requests, rate.per));
    given.rates.dedup();
    given.upgrade.sort_by_key(|protocol| protocol.as_str().to_ascii_lowercase());
    given.upgrade.dedup();
    given
}

fn rules() -> impl Strategy<Value = Vec<Written>> {
    proptest::collection::vec(rule(), 0..6)
}

fn texts(rules: &[Written]) -> Vec<String> {
    rules.iter().map(Written::text).collect()
}

/// Files as they are, and others whose rules are all about one host and port, so that they meet.
fn files_and_more(more: BoxedStrategy<Written>) -> impl Strategy<Value = (Vec<String>, Written, Asked)> {
    (files(), proptest::collection::vec(rule(), 0..4), more, asked(), any::<bool>()).prop_map(
        |(files, rules, more, asked, meet)| {
            let about = |rule: &Written| rule.about(asked.host.as_str(), "[443, 444, 5432]");
            match meet {
                true => (rules.iter().map(|rule| about(rule).text()).collect(), about(&more), asked),
                false => (files, more, asked),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn one_more_allowance_denies_nothing_and_narrows_no_terms((files, more, asked) in files_and_more(allowance())) {
        let (before, after) = (set(&files), and(&files, &more));
        let mut answers = (asked.of(&before), asked.of(&after));
        if more.inspects() {
            // It is what ends a splice: what was passed through is decrypted, and asked about.
            answers.0.splice = None;
        }
        prop_assert!(all_within(&answers.0, &answers.1), "{}\n{:?}", more.text(), answers);
        prop_assert!(!before.may_permit(&asked.host) || after.may_permit(&asked.host));
    }

    #[test]
    fn one_more_denial_allows_nothing_and_widens_no_terms((files, more, asked) in files_and_more(denial())) {
        let (before, after) = (set(&files), and(&files, &more));
        let answers = (asked.of(&before), asked.of(&after));
        prop_assert!(all_within(&answers.1, &answers.0), "{}\n{:?}", more.text(), answers);
        prop_assert!(before.may_permit(&asked.host) || !after.may_permit(&asked.host));
    }

    #[test]
    fn a_denial_wins_over_every_allowance(files in files(), some in denial(), asked in asked(), first in any::<bool>()) {
        let name = asked.host.as_str();
        let with = |denial: String| match first {
            true => set(&[&[denial], &files[..], &["open = true".to_owned()]].concat()),
            false => set(&[&files[..], &["open = true".to_owned(), denial]].concat()),
        };
        let closed = with(format!("[[deny]]\nhost = {name:?}\n"));
        prop_assert!(asked.of(&closed).each().iter().all(|answer| answer.is_none()));
        prop_assert!(!closed.may_permit(&asked.host));
        // One that asks for something takes what nobody sees, too.
        let partly = asked.of(&with(some.about(name, "[443, 444, 5432]").text()));
        prop_assert!(partly.bytes.is_none() && partly.session.is_none() && partly.splice.is_none());
    }

    /// The name is looked up, and the connection let through, of all that is allowed on it.
    #[test]
    fn what_is_allowed_has_a_name_and_a_connection(files in files(), asked in asked()) {
        let set = set(&files);
        let answers = asked.of(&set);
        let any = answers.each().iter().any(|answer| answer.is_some());
        prop_assert!(!any || set.may_permit(&asked.host));
        prop_assert!(is_within(&answers.request, &answers.connection) && is_within(&answers.splice, &answers.connection));
        prop_assert!(answers.session.is_none() || set.is_about_postgres(&asked.host, asked.port));
    }

    /// Rules that the path passes over say nothing of it.
    #[test]
    fn those_near_a_request_decide_as_all_of_them(files in files(), asked in asked()) {
        let (set, request) = (set(&files), asked.request());
        let all = set.judge(&request, &set.index.about(&asked.host));
        prop_assert_eq!(set.decide_request(&request), all);
    }

    #[test]
    fn one_that_failed_denies_everything(files in files(), asked in asked(), at in 0usize..4) {
        let set = set(&files);
        let mut policies = set.policies().to_vec();
        policies.insert(at.min(policies.len()), Arc::new(Policy::failed("x", "no")));
        let failed = PolicySet::combine(policies);
        prop_assert!(asked.of(&failed).each().iter().all(|answer| answer.is_none()));
        prop_assert!(!failed.may_permit(&asked.host));
    }

    /// The rule that a verdict names is the first that decides, as `explain` tells it.
    #[test]
    fn what_explains_a_decision_agrees_with_it(files in files(), asked in asked()) {
        let set = set(&files);
        let told = [set.explain(&asked.request()), set.explain_raw(&asked.host, asked.port), set.explain_postgres(&asked.host, asked.port, &asked.database)];
        let [_, request, bytes, session] = asked.verdicts(&set);
        for (told, verdict) in told.iter().zip([request, bytes, session]) {
            let first = |effect| {
                told.iter().find(|told| told.effect == effect && told.outcome == Outcome::Matches).map(|told| told.place.clone())
            };
            match verdict {
                Verdict::Denied { rule, .. } => prop_assert_eq!(first(Effect::Deny), Some(rule)),
                Verdict::Allowed { rule, .. } => {
                    prop_assert_eq!((first(Effect::Deny), first(Effect::Allow)), (None, Some(rule)));
                }
                Verdict::AmbiguousPath { .. } => prop_assert_eq!(first(Effect::Deny), None),
                _ => prop_assert_eq!((first(Effect::Deny), first(Effect::Allow)), (None, None)),
            }
        }
    }

    #[test]
    fn to_extend_a_policy_is_to_name_it_too(files in files(), own in files(), asked in asked()) {
        let (base, own) = (&files[0], &own[0]);
        let mut policies = Policies::default();
        for (name, text) in [("p0", base.clone()), ("p1", format!("extends = [\"p0\"]\n{own}"))] {
            policies.insert(Policy::parse(name, &format!("{name}.toml"), &text).unwrap());
        }
        let extending = PolicySet::combine(vec![policies.policy("p1").unwrap()]);
        // A line more, so that places are the same.
        let both = set(&[base.clone(), format!("\n{own}")]);
        for (one, other) in asked.verdicts(&extending).into_iter().zip(asked.verdicts(&both)) {
            prop_assert_eq!(in_any_order(one), in_any_order(other));
        }
        prop_assert_eq!(extending.limits(), both.limits());
        let twice = PolicySet::combine(vec![policies.policy("p0").unwrap(), policies.policy("p1").unwrap()]);
        for (one, other) in asked.verdicts(&twice).into_iter().zip(asked.verdicts(&both)) {
            prop_assert_eq!(discriminant(&one), discriminant(&other));
        }
    }

    #[test]
    fn one_more_file_raises_no_limit(files in files(), more in head()) {
        let (before, after) = (set(&files).limits(), set(&[&files[..], &[more]].concat()).limits());
        let within = |before: Option<u64>, after: Option<u64>| before.is_none_or(|most| after.is_some_and(|own| own <= most));
        let seconds = |limits: Limits| limits.runtime.map(|time| time.as_secs());
        prop_assert!(within(before.requests, after.requests) && within(before.bytes, after.bytes) && within(seconds(before), seconds(after)));
    }

    /// One that asks for a path, where another allows any: also a path that servers may read differently.
    #[test]
    fn an_allowance_for_a_path_takes_nothing_from_one_for_all(rules in rules(), all in for_all(), more in allowance(), asked in asked()) {
        let name = asked.host.as_str();
        let before = [texts(&rules), vec![all.about(name, "[443, 444, 5432]").text()]].concat();
        let after = [vec![more.about(name, "[443, 444, 5432]").text()], before.clone()].concat();
        let is_allowed = |texts: &[String]| asked.of(&set(texts)).request.is_some();
        prop_assert_eq!(is_allowed(&before), is_allowed(&after));
    }

    /// What was decrypted by a rule for all requests, and is passed through now, has the terms of both.
    #[test]
    fn what_is_passed_through_keeps_the_terms_of_rules_for_all(files in files(), all in for_all(), more in splicing(), asked in asked()) {
        let [all, more] = [all, more].map(|rule| rule.about(asked.host.as_str(), "[443, 444, 5432]").text());
        let alone = asked.of(&set(std::slice::from_ref(&all))).request;
        let with = asked.of(&set(&[&[all][..], &files[..], &[more]].concat())).splice;
        // There are neither bodies nor upgrades in it.
        let seen = |given: Given| Given { max_body: None, upgrade: Vec::new(), ..given };
        prop_assert!(with.is_none() || is_within(&alone.clone().map(seen), &with), "{:?} {:?}", alone, with);
    }

    #[test]
    fn spelling_a_path_otherwise_never_gets_past_a_denial(
        rules in rules(), asked in asked(), letters in "[aA]", escape in any::<bool>(),
    ) {
        let denials: Vec<_> = rules.iter().filter(|rule| !rule.is_allow).map(Written::text).collect();
        let set = set(&[&denials[..], &["open = true".to_owned()]].concat());
        let spelt = match escape {
            true => format!("/%{:02x}", letters.as_bytes()[0]),
            false => format!("/{letters}/"),
        };
        let of = |target: String| Asked { target, ..asked.clone() }.of(&set).request;
        prop_assert!(of("/a".to_owned()).is_some() || of(spelt).is_none());
    }
}

proptest! {
    // Rules of which one is clear and the other is not meet seldom.
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_order_of_rules_and_files_does_not_matter(
        (rules, shuffled) in rules().prop_flat_map(|rules| {
            let places: Vec<_> = (0..rules.len()).collect();
            (Just(rules), Just(places).prop_shuffle())
        }),
        head in head(), asked in asked(), port in select(vec!["443", "444", "5432"]), meet in any::<bool>(),
    ) {
        // As they are, or all of them about the request's own host and port, so that they meet.
        let of = |rule: &Written| if meet { rule.about(asked.host.as_str(), port) } else { rule.clone() };
        let mut files: Vec<(String, String)> =
            rules.iter().enumerate().map(|(at, rule)| (format!("p{at}"), of(rule).text())).collect();
        files.push(("head".to_owned(), head.clone()));
        let forth = named(files.iter().map(|(name, text)| (name.clone(), text.as_str())));
        let mixed = shuffled.iter().filter_map(|at| files.get(*at));
        let back = named(files.last().into_iter().chain(mixed).map(|(name, text)| (name.clone(), text.as_str())));
        for (one, other) in asked.verdicts(&forth).into_iter().zip(asked.verdicts(&back)) {
            prop_assert_eq!(in_any_order(one), in_any_order(other));
        }
        let spliced = |set: &PolicySet| set.splice(&asked.host, asked.port).map(|(_, given)| sorted(given));
        prop_assert_eq!(spliced(&forth), spliced(&back));
        prop_assert_eq!(forth.may_permit(&asked.host), back.may_permit(&asked.host));
        prop_assert_eq!(forth.is_about_postgres(&asked.host, asked.port), back.is_about_postgres(&asked.host, asked.port));
        prop_assert_eq!(forth.limits(), back.limits());
        // So it is with rules of one file: their places are others, and nothing else.
        let whole = |places: &mut dyn Iterator<Item = usize>| {
            let rules = places.filter_map(|at| rules.get(at)).map(|rule| of(rule).text());
            set(&[head.clone() + &rules.collect::<String>()])
        };
        let (forth, back) = (whole(&mut (0..rules.len())), whole(&mut shuffled.iter().copied()));
        for (one, other) in asked.verdicts(&forth).into_iter().zip(asked.verdicts(&back)) {
            prop_assert_eq!(without_places(one), without_places(other));
        }
    }
}
