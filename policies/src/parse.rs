//! The text of a policy file into rules.

use serde::Deserialize;
use toml::Spanned;

use crate::document::{self, OneOrMany, position};
use crate::{DocumentError, Effect, HostPattern, Ports, Rule};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    allow: Vec<RawRule>,
    #[serde(default)]
    deny: Vec<RawRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    host: Spanned<OneOrMany<String>>,
    port: Option<Spanned<OneOrMany<u16>>>,
    note: Option<String>,
}

pub(crate) fn rules(file: &str, text: &str) -> Result<Vec<Rule>, DocumentError> {
    let raw: File = document::parse(file, text)?;
    let allow = raw.allow.into_iter().map(|rule| (Effect::Allow, rule));
    let deny = raw.deny.into_iter().map(|rule| (Effect::Deny, rule));
    allow.chain(deny).map(|(effect, raw)| rule(file, text, effect, raw)).collect()
}

fn rule(file: &str, text: &str, effect: Effect, raw: RawRule) -> Result<Rule, DocumentError> {
    let at = raw.host.span().start;
    let written = raw.host.into_inner().0;
    if written.is_empty() {
        return Err(DocumentError::at(
            file,
            text,
            at,
            "`host` is an empty list, so the rule can match nothing",
        ));
    }
    let hosts = written
        .iter()
        .map(|host| host.parse::<HostPattern>().map_err(|e| bad_host(file, text, at, host, &e)))
        .collect::<Result<_, _>>()?;
    let place = format!("{file}:{}", position(text, at).0);
    Ok(Rule { effect, hosts, ports: ports(file, text, effect, raw.port)?, note: raw.note, place })
}

fn bad_host(file: &str, text: &str, at: usize, host: &str, error: &dyn std::error::Error) -> DocumentError {
    DocumentError::at(file, text, at, format!("`host`: {host:?}: {error}"))
}

fn ports(
    file: &str,
    text: &str,
    effect: Effect,
    raw: Option<Spanned<OneOrMany<u16>>>,
) -> Result<Ports, DocumentError> {
    let Some(raw) = raw else {
        // A denial that left other ports open would surprise; an allowance that opened them would be worse.
        return Ok(match effect {
            Effect::Allow => Ports::These(vec![443]),
            Effect::Deny => Ports::Any,
        });
    };
    let at = raw.span().start;
    let ports = raw.into_inner().0;
    if ports.is_empty() {
        return Err(DocumentError::at(
            file,
            text,
            at,
            "`port` is an empty list, so the rule can match nothing",
        ));
    }
    if ports.contains(&0) {
        return Err(DocumentError::at(file, text, at, "`port`: 0 is not a port"));
    }
    Ok(Ports::These(ports))
}

#[cfg(test)]
mod tests {
    use crate::{Effect, Policy, Ports};

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
    fn the_example_of_the_documentation_is_true() {
        let (_, rest) = include_str!("../../docs/policies.md").split_once("```toml\n").unwrap();
        let (text, _) = rest.split_once("```").unwrap();
        let policy = Policy::parse("web", "web.toml", text).unwrap();
        let set = crate::PolicySet::combine(vec![std::sync::Arc::new(policy)]);
        let decide = |host: &str, port| set.decide(&host.parse().unwrap(), port);
        assert!(matches!(decide("a.cdn.example.com", 443), crate::Verdict::Allowed { .. }));
        assert!(matches!(decide("build.example.net", 8443), crate::Verdict::Allowed { .. }));
        let crate::Verdict::Denied { rule, .. } = decide("upload.cdn.example.com", 443) else { panic!() };
        assert!(include_str!("../../docs/policies.md").contains(&format!("(`{rule}`)")), "{rule}");
    }

    #[test]
    fn every_mistake_names_line_and_key() {
        for (text, said) in [
            ("[[alow]]\nhost = \"a.b\"", "p.toml:1:3: unknown key `alow`; did you mean `allow`?"),
            ("[[allow]]\nhots = \"a.b\"", "p.toml:2:1: unknown key `hots`; did you mean `host`?"),
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
