//! Rules that add nothing to another of the same effect. Pure.

use std::cmp::Ordering;

use super::hosts;
use super::vain::Placed;
use super::work::{TooMany, Work};
use crate::index::Index;
use crate::{Conditions, Effect, HostPattern, Ports, Rule};

const MANY: &str = "so many rules are about the same hosts that from here on nobody looked whether they add anything to each other";

/// With what is said of each. `most` bounds the work: what is compared with each other, be it rules, hosts, ports or paths.
pub(super) fn superfluous<'r>(rules: &[Placed<'r>], most: usize) -> Vec<(&'r Rule, String)> {
    let (mut work, mut found) = (Work::of(most), Vec::new());
    for effect in [Effect::Allow, Effect::Deny] {
        let own = || rules.iter().filter(|(_, rule)| rule.effect == effect);
        let mut index = Index::default();
        own().for_each(|(at, rule)| index.add(*at, rule));
        for placed in own() {
            match what_adds_nothing(*placed, rules, &index, &mut work) {
                Ok(said) => found.extend(said.map(|said| (placed.1, said))),
                Err(TooMany) => {
                    found.push((placed.1, MANY.to_owned()));
                    return found;
                }
            }
        }
    }
    found
}

/// Rules whose hosts are all decrypted by another that says so.
pub(super) fn never_spliced<'r>(rules: &[Placed<'r>], most: usize) -> Vec<(&'r Rule, String)> {
    let (mut work, mut found, mut inspected) = (Work::of(most), Vec::new(), Index::default());
    rules.iter().filter(|(_, rule)| rule.inspect).for_each(|(at, rule)| inspected.add(*at, rule));
    for (_, rule) in rules.iter().filter(|(_, rule)| rule.splice) {
        match what_inspects(rule, rules, &inspected, &mut work) {
            Ok(said) => found.extend(said.map(|said| (*rule, said))),
            Err(TooMany) => {
                found.push((*rule, MANY.to_owned()));
                break;
            }
        }
    }
    found
}

fn what_inspects(
    rule: &Rule,
    rules: &[Placed<'_>],
    inspected: &Index,
    work: &mut Work,
) -> Result<Option<String>, TooMany> {
    let Some(first) = rule.hosts.first() else { return Ok(None) };
    let about = inspected.covering(first);
    work.charge(about.len())?;
    for (_, other) in about.into_iter().filter_map(|at| rules.get(at.1)) {
        if has_the_reach_of(other, rule, work)? {
            return Ok(Some(format!(
                "`splice` of the rule about {} never applies: the one at {} says `inspect`; leave out one of them",
                hosts(rule),
                other.place
            )));
        }
    }
    Ok(None)
}

fn what_adds_nothing(
    (at, rule): Placed<'_>,
    rules: &[Placed<'_>],
    index: &Index,
    work: &mut Work,
) -> Result<Option<String>, TooMany> {
    let Some(first) = rule.hosts.first() else { return Ok(None) };
    let about = index.covering_near(first, rule.conditions.patterns().next());
    work.charge(about.len())?;
    for other_at in about {
        let Some((_, other)) = rules.get(other_at.1) else { continue };
        if let Some(said) = adds_nothing(rule, other, at.cmp(&other_at), work)? {
            return Ok(Some(said));
        }
    }
    Ok(None)
}

/// What `other` makes of `rule`, which comes before it, after it, or is it.
fn adds_nothing(
    rule: &Rule,
    other: &Rule,
    order: Ordering,
    work: &mut Work,
) -> Result<Option<String>, TooMany> {
    if order.is_eq() || !has_the_way_of(rule, other, work)? || !covers(other, rule, work)? {
        return Ok(None);
    }
    if covers(rule, other, work)? {
        let said = format!(
            "this rule about {} says the same as the one at {}; leave it out",
            hosts(rule),
            other.place
        );
        return Ok(order.is_gt().then_some(said));
    }
    Ok(Some(format!(
        "this rule about {} adds nothing to the one at {}; leave one of them out",
        hosts(rule),
        other.place
    )))
}

/// What is spliced is not what is decrypted, though both be allowed.
fn has_the_way_of(rule: &Rule, other: &Rule, work: &mut Work) -> Result<bool, TooMany> {
    let databases = |rule: &Rule| rule.postgres.as_ref().map_or(0, Vec::len);
    work.charge(
        databases(rule).min(databases(other)) + rule.terms.upgrade.len().min(other.terms.upgrade.len()),
    )?;
    let flags = |rule: &Rule| (rule.splice, rule.inspect, rule.tcp);
    Ok(flags(rule) == flags(other) && rule.postgres == other.postgres && rule.terms == other.terms)
}

/// Whether whatever `other` is about is something that this rule is about.
fn covers(rule: &Rule, other: &Rule, work: &mut Work) -> Result<bool, TooMany> {
    if !has_the_reach_of(rule, other, work)? {
        return Ok(false);
    }
    let query = |conditions: &Conditions| conditions.query.as_ref().map_or(0, Vec::len);
    let product = |of: &dyn Fn(&Conditions) -> usize| of(&rule.conditions) * of(&other.conditions);
    // Of many paths, few are compared with each other.
    let paths = rule.conditions.patterns().count() + other.conditions.patterns().count();
    work.charge(product(&|of| of.methods.len()) + product(&query) + paths)?;
    Ok(rule.conditions.cover(&other.conditions, rule.effect))
}

/// As far as hosts and ports go.
fn has_the_reach_of(rule: &Rule, other: &Rule, work: &mut Work) -> Result<bool, TooMany> {
    let ports = match (&rule.ports, &other.ports) {
        (Ports::Any, _) => true,
        (Ports::These(_), Ports::Any) => false,
        (Ports::These(own), Ports::These(other)) => work.all_among(other, own, |this, that| this == that)?,
    };
    let covered = |this: &HostPattern, that: &HostPattern| that.covers(this);
    Ok(ports && work.all_among(&other.hosts, &rule.hosts, covered)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;

    fn is_looked_through(text: &str, most: usize) -> bool {
        let policy = Policy::parse("p", "p.toml", text).unwrap();
        let placed: Vec<Placed<'_>> =
            policy.rules().iter().enumerate().map(|(at, rule)| ((0, at), rule)).collect();
        !superfluous(&placed, most).iter().any(|(_, said)| said == MANY)
    }

    #[test]
    fn the_bound_is_of_what_is_compared_and_not_of_rules() {
        let list = |items: &mut dyn Iterator<Item = usize>, of: &str| {
            items.map(|at| of.replace('N', &at.to_string())).collect::<Vec<_>>().join(",")
        };
        // A hundred hosts, each sought among a hundred, both ways.
        let (forth, back) =
            (list(&mut (0..100), "\"N.b.example\""), list(&mut (0..100).rev(), "\"N.b.example\""));
        let text = format!("[[allow]]\nhost = [{forth}]\n[[allow]]\nhost = [{back}]\n");
        assert!(is_looked_through(&text, 30_000) && !is_looked_through(&text, 19_000));
        // A hundred ports.
        let (forth, back) = (list(&mut (1..101), "N"), list(&mut (1..101).rev(), "N"));
        let rule = |ports: &str| format!("[[allow]]\nhost = \"a.example\"\nport = [{ports}]\n");
        let text = rule(&forth) + &rule(&back);
        assert!(is_looked_through(&text, 30_000) && !is_looked_through(&text, 19_000));
        // A hundred rules, each with the others, of which none adds nothing.
        let text: String = (1..101).map(|at| rule(&at.to_string())).collect();
        assert!(is_looked_through(&text, 31_000) && !is_looked_through(&text, 9_000));
        // Databases and paths are compared, too.
        let (forth, paths) = (list(&mut (0..1000), "\"dN\""), list(&mut (0..1000), "\"/N\""));
        for list in [format!("postgres = true\ndatabases = [{forth}]\n"), format!("paths = [{paths}]\n")] {
            let text = format!("[[allow]]\nhost = \"a.example\"\n{list}").repeat(2);
            assert!(is_looked_through(&text, 10_000) && !is_looked_through(&text, 1_000));
        }
    }
}
