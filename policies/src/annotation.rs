//! `understudy.allow`: hosts for one container, written on its command line.

use crate::{Effect, HostPattern, PatternError, Policy, Ports, Rule, document};

/// The policy's name in labels.
pub const NAME: &str = "understudy.allow";

/// The name, in labels, of the rules that an operator decides on while containers run.
pub const OPERATOR: &str = "operator";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation {NAME}: {item:?}: {problem}")]
pub struct AnnotationError {
    pub item: String,
    pub problem: AnnotationProblem,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationProblem {
    #[error(transparent)]
    Host(PatternError),
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

impl Policy {
    /// `host`, `host:port`, `*.host` or `*.host:port` (port 443 if none is named), separated by commas or white space.
    pub fn from_allow_annotation(text: &str) -> Result<Self, AnnotationError> {
        let items = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|item| !item.is_empty());
        let rules = items.map(|item| {
            let (host, port) = host_and_port(item)
                .map_err(|problem| AnnotationError { item: item.chars().take(80).collect(), problem })?;
            let ports = Ports::These(vec![port.unwrap_or(443)]);
            Ok(Rule::new(Effect::Allow, vec![host], ports, format!("annotation {NAME}")))
        });
        Ok(Self::new(NAME, rules.collect::<Result<_, _>>()?).looked_at())
    }
}

/// `host`, `host:port`, `*.host` or `*.host:port`.
pub fn host_and_port(item: &str) -> Result<(HostPattern, Option<u16>), AnnotationProblem> {
    // More than one colon is an IPv6 literal or nonsense, which the host's parser names better.
    let (host, port) = match item.split_once(':') {
        Some((host, port)) if !port.contains([':', '/']) => (host, Some(port_number(port)?)),
        _ => (item, None),
    };
    Ok((host.parse().map_err(AnnotationProblem::Host)?, port))
}

fn port_number(text: &str) -> Result<u16, AnnotationProblem> {
    document::number(text).filter(|port| *port != 0).ok_or(AnnotationProblem::Port)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{PolicySet, Verdict};

    #[test]
    fn each_item_is_a_rule() {
        let policy = Policy::from_allow_annotation("a.example, b.example:8443\t*.c.example:80,,").unwrap();
        assert_eq!(policy.rules().len(), 3);
        let set = PolicySet::combine(vec![Arc::new(policy)]);
        let decide = |host: &str, port| set.decide(&host.parse().unwrap(), port);
        let allowed =
            Verdict::Allowed { rule: "annotation understudy.allow".into(), given: crate::Given::default() };
        assert_eq!(decide("a.example", 443), allowed);
        assert_eq!(decide("b.example", 8443), allowed);
        assert_eq!(decide("b.example", 443), Verdict::NoPort { ports: vec![8443] });
        assert_eq!(decide("x.c.example", 80), allowed);
        assert_eq!(decide("c.example", 80), Verdict::NoHost);
    }

    #[test]
    fn what_a_file_is_warned_of_an_annotation_is_too() {
        let warnings = |text: &str| Policy::from_allow_annotation(text).unwrap().warnings().to_vec();
        let said = "annotation understudy.allow: anybody can have a name below `github.io`, where";
        let found = warnings("a.example,*.github.io");
        assert!(found.len() == 1 && found[0].starts_with(said), "{found:?}");
        assert_eq!(warnings("a.b.example *.b.example").len(), 1);
        assert!(warnings("a.example b.example").is_empty());
    }

    #[test]
    fn an_empty_annotation_allows_nothing() {
        assert!(Policy::from_allow_annotation(" , ").unwrap().rules().is_empty());
    }

    #[test]
    fn a_bad_item_is_named() {
        for (text, said) in [
            ("a.example,*", "\"*\": a bare `*`"),
            ("*.com", "`*.com` would match"),
            ("a.example:0", "\"a.example:0\": the port"),
            ("a.example:+443", "the port"),
            ("a.example:https", "the port"),
            ("a.example:", "the port"),
            ("https://a.example", "a scheme or path"),
            ("10.0.0.1:443", "an address, which no rule is about; give it a name below `[names]`"),
            ("[::1]:443", "\"[::1]:443\": an address"),
            ("a.example*", "`*` stands only at the start"),
        ] {
            let found = Policy::from_allow_annotation(text).unwrap_err().to_string();
            assert!(
                found.starts_with("annotation understudy.allow: ") && found.contains(said),
                "{text}: {found}"
            );
        }
    }
}
