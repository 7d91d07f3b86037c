//! Rules that add nothing to another of the same effect. Pure.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::hosts;
use super::vain::Placed;
use super::work::{TooMany, Work};
use crate::index::Index;
use crate::{HostPattern, Ports, Rule};

const MANY: &str = "so many rules are about the same hosts that from here on nobody looked whether they add anything to each other";

/// With what is said of each. `most` bounds the work: what is compared with each other, be it rules, hosts or ports.
pub(super) fn superfluous<'r>(rules: &[Placed<'r>], most: usize) -> Vec<(&'r Rule, String)> {
    let mut search = Search::of(rules, most);
    let mut found = Vec::new();
    for (at, (_, rule)) in rules.iter().enumerate() {
        match search.what_adds_nothing(at) {
            Ok(said) => found.extend(said.map(|said| (*rule, said))),
            Err(TooMany) => {
                found.push((*rule, MANY.to_owned()));
                break;
            }
        }
    }
    found
}

struct Search<'s, 'r> {
    rules: &'s [Placed<'r>],
    conditions: Vec<String>,
    /// By their conditions: those that can make a rule superfluous have the same, or none.
    indices: HashMap<String, Index>,
    work: Work,
}

impl<'s, 'r> Search<'s, 'r> {
    fn of(rules: &'s [Placed<'r>], most: usize) -> Self {
        let conditions: Vec<String> = rules.iter().map(|(_, rule)| rule.conditions.to_string()).collect();
        let mut indices: HashMap<String, Index> = HashMap::new();
        for (at, (conditions, (_, rule))) in conditions.iter().zip(rules).enumerate() {
            indices.entry(conditions.clone()).or_default().add((0, at), rule);
        }
        Self { rules, conditions, indices, work: Work::of(most) }
    }

    fn what_adds_nothing(&mut self, at: usize) -> Result<Option<String>, TooMany> {
        let (Some((_, rule)), Some(own)) = (self.rules.get(at), self.conditions.get(at)) else {
            return Ok(None);
        };
        let Some(first) = rule.hosts.first() else { return Ok(None) };
        let groups = ["", own.as_str()].into_iter().take(if own.is_empty() { 1 } else { 2 });
        for index in groups.filter_map(|group| self.indices.get(group)) {
            let about = index.covering(first);
            self.work.charge(about.len())?;
            for (_, other_at) in about {
                let Some((_, other)) = self.rules.get(other_at) else { continue };
                if let Some(said) = adds_nothing(rule, other, at.cmp(&other_at), &mut self.work)? {
                    return Ok(Some(said));
                }
            }
        }
        Ok(None)
    }
}

/// What `other` makes of `rule`, which comes before it, after it, or is it.
fn adds_nothing(
    rule: &Rule,
    other: &Rule,
    order: Ordering,
    work: &mut Work,
) -> Result<Option<String>, TooMany> {
    if order.is_eq()
        || other.effect != rule.effect
        || !has_the_way_of(rule, other, work)?
        || !covers(other, rule, work)?
    {
        return Ok(None);
    }
    if has_the_conditions_of(rule, other, work)? && covers(rule, other, work)? {
        let said = format!(
            "this rule about {} says the same as the one at {}; leave it out",
            hosts(rule),
            other.place
        );
        return Ok(order.is_gt().then_some(said));
    }
    // Of two that cover each other, the one with conditions is in vain, wherever it stands.
    let said = format!(
        "this rule about {} adds nothing to the one at {}; leave one of them out",
        hosts(rule),
        other.place
    );
    Ok(other.conditions.is_empty().then_some(said))
}

/// What is spliced is not what is decrypted, though both be allowed.
fn has_the_way_of(rule: &Rule, other: &Rule, work: &mut Work) -> Result<bool, TooMany> {
    let databases = |rule: &Rule| rule.postgres.as_ref().map_or(0, Vec::len);
    work.charge(
        databases(rule).min(databases(other)) + rule.terms.upgrade.len().min(other.terms.upgrade.len()),
    )?;
    Ok((rule.splice, rule.tcp) == (other.splice, other.tcp)
        && rule.postgres == other.postgres
        && rule.terms == other.terms)
}

fn has_the_conditions_of(rule: &Rule, other: &Rule, work: &mut Work) -> Result<bool, TooMany> {
    let size = |rule: &Rule| {
        rule.conditions.methods.len()
            + rule.conditions.paths.len()
            + rule.conditions.query.as_ref().map_or(0, Vec::len)
    };
    work.charge(size(rule).min(size(other)))?;
    Ok(rule.conditions == other.conditions)
}

/// Whether every request that `other` is about is one that this rule is about, as far as hosts and ports go.
fn covers(rule: &Rule, other: &Rule, work: &mut Work) -> Result<bool, TooMany> {
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
            assert!(is_looked_through(&text, 5_000) && !is_looked_through(&text, 1_000));
        }
    }
}
