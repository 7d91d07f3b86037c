//! What the author of a file probably did not mean: rules that are written twice, add nothing, or never match. Pure.

mod superfluous;
mod vain;
mod work;

use crate::{Effect, HostPattern, Rule};
use superfluous::{never_spliced, superfluous};
pub(crate) use vain::{Placed, Vain};

const RAW: &str = "`tcp`: nobody sees what is inside, and no secret is swapped in it";

const REFUSED: &str = "`TRACE` and `CONNECT` in `methods`: no rule can allow them; a request with one of them is always refused";

const PRIVATE: &str =
    "`private` below a wildcard: whoever has a name there chooses which of your addresses it is";

/// Comparisons of rules and what is in them, for those who wait for an answer: well below a second.
pub(crate) const MOST: usize = 4_000_000;

const UNSEEN: &str = "so many [[deny]] rules are about the same hosts that from here on nobody looked which [[allow]] can never match";

const SPLICED: &str = "`splice`: nobody sees which host, path or data is inside, and where many share one server it \
                       leads to the others, too";

/// Of one file, as `FILE:LINE:COLUMN: …`, in its order.
pub(crate) fn lint(rules: &[Rule]) -> Vec<String> {
    let shared = rules.iter().flat_map(|rule| {
        let allowed = rule.hosts.iter().filter(|_| rule.effect == Effect::Allow);
        allowed.filter_map(HostPattern::caution).map(move |caution| (rule, caution))
    });
    let told = |is: fn(&Rule) -> bool, what: &'static str| {
        rules.iter().filter(move |rule| is(rule)).map(move |rule| (rule, what.to_owned()))
    };
    let mut found: Vec<(&Rule, String)> = shared.collect();
    found.extend(told(|rule| rule.splice, SPLICED));
    found.extend(told(|rule| rule.tcp, RAW));
    found.extend(told(is_widely_private, PRIVATE));
    found.extend(told(names_what_is_always_refused, REFUSED));
    let placed: Vec<Placed<'_>> = rules.iter().enumerate().map(|(at, rule)| ((0, at), rule)).collect();
    let looked = vain::look(&placed, MOST);
    found.extend(looked.vain.iter().map(|vain| (vain.allow.1, in_vain(vain))));
    found.extend(looked.left.map(|(_, rule)| (rule, UNSEEN.to_owned())));
    found.extend(superfluous(&placed, MOST));
    found.extend(never_spliced(&placed, MOST));
    found.sort_by_key(|(rule, what)| (line(rule), what.clone()));
    found.into_iter().map(|(rule, what)| at(rule, &what)).collect()
}

/// Allowances that are denied by rules of other files or policies: what [`lint`] does not see.
pub(crate) fn across(rules: &[Placed<'_>], most: usize, is_told: impl Fn(&Vain<'_>) -> bool) -> Vec<String> {
    let looked = vain::look(rules, most);
    let vain = looked.vain.iter().filter(|vain| !is_told(vain));
    let found = vain.map(|vain| at(vain.allow.1, &in_vain(vain)));
    found.chain(looked.left.map(|(_, rule)| at(rule, UNSEEN))).collect()
}

fn at(rule: &Rule, what: &str) -> String {
    match rule.column {
        Some(column) => format!("{}:{column}: {what}", rule.place),
        None => format!("{}: {what}", rule.place),
    }
}

fn line(rule: &Rule) -> (usize, Option<usize>) {
    let line = rule.place.rsplit_once(':').and_then(|(_, line)| line.parse().ok());
    (line.unwrap_or_default(), rule.column)
}

fn is_widely_private(rule: &Rule) -> bool {
    rule.terms.private && rule.hosts.iter().any(|host| !matches!(host, HostPattern::Exact(_)))
}

fn names_what_is_always_refused(rule: &Rule) -> bool {
    let refused = |method: &String| matches!(method.as_str(), "TRACE" | "CONNECT");
    rule.effect == Effect::Allow && rule.conditions.methods.iter().any(refused)
}

fn in_vain(vain: &Vain<'_>) -> String {
    let (rule, by) = (vain.allow.1, denials(&vain.by));
    if vain.unseen {
        let key = match rule {
            Rule { tcp: true, .. } => "tcp",
            Rule { postgres: Some(_), .. } => "postgres",
            _ => "splice",
        };
        return format!(
            "`{key}` of the rule about {} never applies: {by}, which looks into requests, so they are decrypted; leave out one of \
             them, or what the [[deny]] asks for",
            hosts(rule)
        );
    }
    let wins = if vain.by.len() == 1 { "wins" } else { "win" };
    format!(
        "this rule about {} can never match: {by} {wins} over it; leave it out, or narrow the [[deny]]",
        hosts(rule)
    )
}

/// `the [[deny]] rule at web.toml:4`, or the first of several.
fn denials(by: &[Placed<'_>]) -> String {
    const SHOWN: usize = 4;
    let places: Vec<&str> = by.iter().take(SHOWN).map(|(_, rule)| rule.place.as_str()).collect();
    let more = if by.len() > SHOWN { " and others" } else { "" };
    let plural = if by.len() == 1 { "" } else { "s" };
    format!("the [[deny]] rule{plural} at {}{more}", places.join(", "))
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
                allow("\"a.example\"\nmethods = [\"GET\", \"PUT\"]")
                    + &allow("\"a.example\"\nmethods = [\"HEAD\", \"PUT\"]"),
                "w.toml:5:8: this rule about `a.example` adds nothing to the one at w.toml:2;",
            ),
            (
                allow("\"a.example\"\npaths = [\"/v1/x\", \"/v2/*\"]")
                    + &allow("\"a.example\"\npaths = [\"/v2/**\", \"/v1/*\"]"),
                "w.toml:2:8: this rule about `a.example` adds nothing",
            ),
            (
                allow("\"a.example\"\nquery = \"k\"") + &allow("\"a.example\"\nquery = [\"l\", \"k\"]"),
                "w.toml:2:8: this rule about `a.example` adds nothing",
            ),
            (
                deny("\"a.example\"\npaths = \"/Keys/**\"") + &deny("\"a.example\"\npaths = \"/keys/**\""),
                "w.toml:5:8: this rule about `a.example` says the same as the one at w.toml:2;",
            ),
            (
                allow("\"a.example\"") + &deny("[\"a.example\", \"b.example\"]"),
                "w.toml:2:8: this rule about `a.example` can never match: the [[deny]] rule at w.toml:4 wins over it; leave",
            ),
            (allow("\"a.example\"\nsplice = true"), "w.toml:2:8: `splice`: nobody sees which host"),
            (allow("\"a.example\"\ntcp = true\nport = 5432"), "w.toml:2:8: `tcp`: nobody sees"),
            (allow("\"*.a.example\"\nprivate = true"), "w.toml:2:8: `private` below a wildcard"),
            (allow("\"a.example\"\nmethods = [\"GET\", \"TRACE\"]"), "w.toml:2:8: `TRACE` and `CONNECT` in"),
            (allow("\"a.example\"\nmethods = \"CONNECT\""), "w.toml:2:8: `TRACE` and `CONNECT` in"),
            (allow("\"*.github.io\""), "w.toml:2:8: anybody can have a name below `github.io`"),
        ] {
            let found = warnings(&text);
            assert!(found.len() == 1 && found[0].starts_with(said), "{text}{found:?}");
        }
    }

    #[test]
    fn a_splice_that_another_rule_ends_is_told_and_a_narrower_one_is_meant() {
        let rule = |host: &str, key: &str| format!("[[allow]]\nhost = {host:?}\n{key} = true\n");
        let told = |splice: &str, inspect: &str| {
            let text = rule(splice, "splice") + &rule(inspect, "inspect");
            let said = "w.toml:2:8: `splice` of the rule about `a.example` never applies: the one at w.toml:5 says `inspect`;";
            warnings(&text).iter().any(|line| line.starts_with(said))
        };
        assert!(told("a.example", "a.example"));
        assert!(!told("*.b.example", "a.b.example"));
        assert_eq!(warnings(&(rule("a.b.example", "inspect") + &rule("*.b.example", "splice"))).len(), 1);
    }

    #[test]
    fn what_is_meant_is_not() {
        for text in [
            "[[allow]]\nhost = \"a.example\"\n[[allow]]\nhost = \"a.example\"\nport = 80\n",
            "[[allow]]\nhost = \"*.b.example\"\n[[deny]]\nhost = \"a.b.example\"\n",
            "[[allow]]\nhost = \"a.example\"\n[[deny]]\nhost = \"a.example\"\nmethods = \"DELETE\"\n",
            "[[allow]]\nhost = \"a.example\"\nmethods = \"GET\"\n[[allow]]\nhost = \"a.example\"\npaths = \"/a\"\n",
            "[[allow]]\nhost = \"a.example\"\npaths = \"/Keys\"\n[[allow]]\nhost = \"a.example\"\npaths = \"/keys\"\n",
            "[[allow]]\nhost = \"a.example\"\nquery = []\n[[allow]]\nhost = \"a.example\"\npaths = \"/a\"\nquery = [\"k\"]\n",
            "[[deny]]\nhost = \"a.example\"\nquery = \"k\"\n[[deny]]\nhost = \"a.example\"\nquery = \"l\"\n",
            "[[allow]]\nhost = \"*.b.example\"\n[[allow]]\nhost = \"a.b.example\"\ninspect = true\n",
            "[[deny]]\nhost = \"*.github.io\"\n",
        ] {
            assert!(warnings(text).is_empty(), "{text}{:?}", warnings(text));
        }
    }
}
