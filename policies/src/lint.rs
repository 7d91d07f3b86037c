//! What the author of a file probably did not mean: rules that are written twice, add nothing, or never match. Pure.

use crate::{Effect, HostPattern, Rule};

const RAW: &str = "`tcp`: nobody sees what is inside, and no secret is swapped in it";

const PRIVATE: &str =
    "`private` below a wildcard: whoever has a name there chooses which of your addresses it is";

/// Every rule is compared with every other.
const MOST: usize = 2000;

const SPLICED: &str = "`splice`: nobody sees which host, path or data is inside, and where many share one server it \
                       leads to the others, too";

/// The place of each rule's `host` in the text, in bytes, and what is to be said about it.
pub(crate) fn lint(rules: &[(usize, Rule)]) -> Vec<(usize, String)> {
    let shared = rules.iter().flat_map(|(at, rule)| {
        let allowed = rule.hosts.iter().filter(|_| rule.effect == Effect::Allow);
        allowed.filter_map(|host| host.shared_suffix()).map(|suffix| {
            (
                *at,
                format!("anybody can have a name below `{suffix}`, where an agent could send what it likes"),
            )
        })
    });
    let told = |is: fn(&Rule) -> bool, what: &'static str| {
        rules.iter().filter(move |(_, rule)| is(rule)).map(move |(at, _)| (*at, what.to_owned()))
    };
    let mut found: Vec<(usize, String)> = shared.collect();
    found.extend(told(|rule| rule.splice, SPLICED));
    found.extend(told(|rule| rule.tcp, RAW));
    found.extend(told(is_widely_private, PRIVATE));
    if rules.len() <= MOST {
        found.extend(rules.iter().enumerate().filter_map(|(at, (offset, rule))| {
            rules.iter().enumerate().find_map(|(other_at, (_, other))| {
                Some((*offset, superfluous(rule, other, at.cmp(&other_at))?))
            })
        }));
    }
    found.sort();
    found
}

fn is_widely_private(rule: &Rule) -> bool {
    rule.terms.private && rule.hosts.iter().any(|host| !matches!(host, HostPattern::Exact(_)))
}

/// What `other` makes of `rule`, which comes before it, after it, or is it.
fn superfluous(rule: &Rule, other: &Rule, order: std::cmp::Ordering) -> Option<String> {
    if order.is_eq() || !other.covers(rule) {
        return None;
    }
    if (rule.splice || !rule.is_for_requests())
        && other.effect == Effect::Deny
        && !other.conditions.is_empty()
    {
        let key = match rule {
            Rule { tcp: true, .. } => "tcp",
            Rule { postgres: Some(_), .. } => "postgres",
            _ => "splice",
        };
        return Some(format!(
            "`{key}` of the rule about {} never applies: the [[deny]] rule at {} looks into requests, so they are decrypted; \
             leave out one of them, or what the [[deny]] asks for",
            hosts(rule),
            other.place
        ));
    }
    // What is spliced is not what is decrypted, though both be allowed.
    let ways = |rule: &Rule| (rule.splice, rule.tcp, rule.postgres.clone(), rule.terms.clone());
    if other.effect == Effect::Allow && ways(other) != ways(rule) {
        return None;
    }
    let same = other.effect == rule.effect && other.conditions == rule.conditions;
    if same && rule.covers(other) {
        return order.is_gt().then(|| {
            format!(
                "this rule about {} says the same as the one at {}; leave it out",
                hosts(rule),
                other.place
            )
        });
    }
    if !other.conditions.is_empty() {
        return None;
    }
    match (rule.effect, other.effect) {
        (Effect::Allow, Effect::Deny) => Some(format!(
            "this rule about {} can never match: the [[deny]] rule at {} wins over it; leave it out, or narrow the [[deny]]",
            hosts(rule),
            other.place
        )),
        (Effect::Deny, Effect::Allow) => None,
        // Of two that cover each other, the one with conditions is in vain, wherever it stands.
        _ => Some(format!(
            "this rule about {} adds nothing to the one at {}; leave one of them out",
            hosts(rule),
            other.place
        )),
    }
}

/// As they are read, the first of many.
fn hosts(rule: &Rule) -> String {
    let first = rule.hosts.first().map(ToString::to_string).unwrap_or_default();
    let more = if rule.hosts.len() > 1 { " and others" } else { "" };
    format!("`{first}`{more}")
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    fn warnings(text: &str) -> Vec<String> {
        Policy::parse("w", "w.toml", text).unwrap().warnings().to_vec()
    }

    #[test]
    fn what_is_in_vain_is_told_with_its_place() {
        let allow = |text: &str| format!("[[allow]]\nhost = {text}\n");
        let deny = |text: &str| format!("[[deny]]\nhost = {text}\n");
        for (text, said) in [
            (
                allow("\"a.example\"") + &allow("\"A.example.\""),
                "w.toml:4:8: this rule about `a.example` says the same as the one at w.toml:2; leave it out",
            ),
            (
                allow("\"a.b.example\"") + &allow("\"*.b.example\""),
                "w.toml:2:8: this rule about `a.b.example` adds nothing to the one at w.toml:4; leave",
            ),
            (
                allow("\"a.example\"\nport = 1") + &allow("\"a.example\"\nport = [1, 2]"),
                "w.toml:2:8: this rule about `a.example` adds nothing",
            ),
            (
                allow("\"a.example\"\nmethods = \"GET\"") + &allow("\"a.example\""),
                "w.toml:2:8: this rule about `a.example` adds nothing",
            ),
            (
                allow("\"a.example\"") + &deny("[\"a.example\", \"b.example\"]"),
                "w.toml:2:8: this rule about `a.example` can never match: the [[deny]] rule at w.toml:4 wins over it; leave",
            ),
            (allow("\"a.example\"\nsplice = true"), "w.toml:2:8: `splice`: nobody sees which host"),
            (allow("\"a.example\"\ntcp = true\nport = 5432"), "w.toml:2:8: `tcp`: nobody sees"),
            (allow("\"*.a.example\"\nprivate = true"), "w.toml:2:8: `private` below a wildcard"),
            (allow("\"*.github.io\""), "w.toml:2:8: anybody can have a name below `github.io`"),
        ] {
            let found = warnings(&text);
            assert!(found.len() == 1 && found[0].starts_with(said), "{text}{found:?}");
        }
    }

    #[test]
    fn what_is_meant_is_not() {
        for text in [
            "[[allow]]\nhost = \"a.example\"\n[[allow]]\nhost = \"a.example\"\nport = 80\n",
            "[[allow]]\nhost = \"*.b.example\"\n[[deny]]\nhost = \"a.b.example\"\n",
            "[[allow]]\nhost = \"a.example\"\n[[deny]]\nhost = \"a.example\"\nmethods = \"DELETE\"\n",
            "[[allow]]\nhost = \"a.example\"\nmethods = \"GET\"\n[[allow]]\nhost = \"a.example\"\npaths = \"/a\"\n",
            "[[deny]]\nhost = \"*.github.io\"\n",
        ] {
            assert!(warnings(text).is_empty(), "{text}{:?}", warnings(text));
        }
    }
}
