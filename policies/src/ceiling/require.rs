//! `[[require]]`: what a container must have, if it is to start.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{Concerned, List, MODES, Source};
use crate::DocumentError;
use crate::document::{Items, closest};

/// One `[[require]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// `FILE:LINE`.
    pub place: String,
    pub of: Concerned,
    what: What,
    note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// No values: any will do, but it must be carried.
    Annotation {
        key: String,
        values: Option<Vec<String>>,
    },
    Policies(Vec<String>),
    Secrets(Vec<String>),
}

/// What a container has.
#[derive(Debug, Clone, Default)]
pub struct Held<'a> {
    /// The items of each annotation that it carries.
    pub annotations: BTreeMap<&'a str, Vec<&'a str>>,
    /// What holds where it does not carry an annotation.
    pub defaults: &'a [(&'a str, &'a str)],
    pub policies: Vec<&'a str>,
    pub secrets: Vec<&'a str>,
}

/// Something that is required and that a container does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}, which `require` ({place}) asks for{}", note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default())]
pub struct Missing {
    pub what: String,
    pub remedy: String,
    /// `/etc/understudy/managed.toml:9`
    pub place: String,
    pub note: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    annotation: Option<Spanned<String>>,
    values: List,
    policy: List,
    secret: List,
    images: List,
    labels: List,
    note: Option<String>,
}

/// Annotations with few values, so that one that cannot be met is found before it keeps everything from starting.
const CLOSED: [(&str, &[&str]); 2] =
    [("understudy.network", &["sealed", "guarded"]), ("understudy.mode", &MODES)];

/// Says that a container is the sidecar, of which nothing is required.
const ROLE: &str = "understudy.role";

impl Requirement {
    /// # Errors
    /// If the container does not have it.
    pub fn check(&self, held: &Held<'_>) -> Result<(), Missing> {
        let found = match &self.what {
            What::Annotation { key, values } => annotation(key, values.as_deref(), held),
            What::Policies(names) => each(names, &held.policies).map(|name| {
                let all: Vec<&str> = held.policies.iter().copied().chain([name.as_str()]).collect();
                let remedy = format!("start it with --annotation \"understudy.policy={}\"", all.join(" "));
                (format!("policy `{name}` is not among this container's"), remedy)
            }),
            What::Secrets(names) => each(names, &held.secrets).map(|name| {
                let remedy = format!("let understudy.secrets name `{name}`, and `grant-to` in secrets.toml the container's harness or image");
                (format!("secret `{name}` is not granted to this container"), remedy)
            }),
        };
        match found {
            None => Ok(()),
            Some((what, remedy)) => {
                Err(Missing { what, remedy, place: self.place.clone(), note: self.note.clone() })
            }
        }
    }
}

/// What is missing, and what to do about it.
fn annotation(key: &str, values: Option<&[String]>, held: &Held<'_>) -> Option<(String, String)> {
    let carried = held.annotations.get(key);
    let Some(values) = values else {
        let any = carried.is_some_and(|items| !items.is_empty());
        return (!any).then(|| {
            (format!("annotation {key} is not carried"), format!("start it with --annotation {key}=VALUE"))
        });
    };
    let default = held.defaults.iter().find(|(of, _)| *of == key).map(|(_, value)| *value);
    let items = match carried {
        Some(items) => items.clone(),
        None => default.into_iter().collect(),
    };
    let other = items.iter().find(|item| !values.iter().any(|value| value == *item));
    let what = match (other, carried) {
        (None, _) if !items.is_empty() => return None,
        (None, None) => format!("annotation {key} is not carried"),
        (None, Some(_)) => format!("annotation {key} says nothing"),
        (Some(other), Some(_)) => format!("annotation {key} says `{}`", shortened(other)),
        (Some(other), None) => format!("annotation {key} is not carried, which means `{other}`"),
    };
    let remedy = match values {
        [value] => format!("start it with --annotation {key}={value}"),
        values => {
            format!("start it with --annotation {key}=VALUE, of which there may be: {}", values.join(", "))
        }
    };
    Some((what, remedy))
}

fn shortened(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

/// The first of `names` that is not held.
fn each<'n>(names: &'n [String], held: &[&str]) -> Option<&'n String> {
    names.iter().find(|name| !held.contains(&name.as_str()))
}

pub(super) fn parse(
    source: &Source<'_>,
    raw: Vec<Spanned<Raw>>,
    known: &[&str],
) -> Result<Vec<Requirement>, DocumentError> {
    raw.into_iter().map(|raw| one(source, raw, known)).collect()
}

fn one(source: &Source<'_>, raw: Spanned<Raw>, known: &[&str]) -> Result<Requirement, DocumentError> {
    let at = raw.span().start;
    let Raw { annotation, values, policy, secret, images, labels, note } = raw.into_inner();
    let names = |key: &str, list: Items<String>| {
        let at = list.at();
        let names = list.into_values();
        if names.is_empty() || names.iter().any(|name| name.trim().is_empty()) {
            return Err(
                source.error(at, format!("`{key}`: name one at least; an empty list requires nothing"))
            );
        }
        Ok((at, names))
    };
    if let (Some(values), None) = (&values, &annotation) {
        return Err(
            source.error(values.at(), "`values` are those of an `annotation`, which is missing".to_owned())
        );
    }
    let (at, what) = match (annotation, policy, secret) {
        (Some(key), None, None) => {
            let at = key.span().start;
            let key = key.into_inner();
            is_known(source, at, &key, known)?;
            let values = values.map(|list| names("values", list)).transpose()?;
            if let Some((at, values)) = &values {
                can_be_met(source, *at, &key, values)?;
            }
            (at, What::Annotation { key, values: values.map(|(_, values)| values) })
        }
        (None, Some(list), None) => {
            let (at, names) = names("policy", list)?;
            (at, What::Policies(names))
        }
        (None, None, Some(list)) => {
            let (at, names) = names("secret", list)?;
            (at, What::Secrets(names))
        }
        _ => {
            let message =
                "write one of `annotation`, `policy` and `secret`; for another, a [[require]] of its own";
            return Err(source.error(at, message.to_owned()));
        }
    };
    Ok(Requirement { place: source.place(at), of: source.concerned(images, labels)?, what, note })
}

fn is_known(source: &Source<'_>, at: usize, key: &str, known: &[&str]) -> Result<(), DocumentError> {
    if key == ROLE {
        return Err(source
            .error(at, format!("`annotation`: {ROLE} is the sidecar's own, of which nothing is required")));
    }
    if known.contains(&key) {
        return Ok(());
    }
    let meant = match closest(key, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known are: {}", known.join(", ")),
    };
    Err(source.error(at, format!("`annotation`: no annotation {key:?} exists; {meant}")))
}

/// No container could have a value that does not exist, or that is written like two.
fn can_be_met(source: &Source<'_>, at: usize, key: &str, values: &[String]) -> Result<(), DocumentError> {
    if let Some(value) = values.iter().find(|value| value.contains([',', ' ', '\t', '\n'])) {
        return Err(source.error(at, format!("`values`: {value:?} is more than one; write a list of them")));
    }
    let Some((_, all)) = CLOSED.iter().find(|(closed, _)| *closed == key) else { return Ok(()) };
    match values.iter().find(|value| !all.contains(&value.as_str())) {
        Some(unknown) => {
            let known = all.join(", ");
            Err(source.error(at, format!("`values`: {key} is never {unknown:?}; known are: {known}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Ceiling;
    use super::*;

    const KNOWN: [&str; 6] = [
        "understudy.harness",
        "understudy.mode",
        "understudy.network",
        "understudy.policy",
        "understudy.privacy",
        "understudy.role",
    ];

    fn parse(text: &str) -> Result<Ceiling, DocumentError> {
        Ceiling::parse("managed", "/m.toml", text, &KNOWN)
    }

    /// What is missing, of a container that carries these.
    fn missing(rule: &str, annotations: &[(&'static str, &[&'static str])]) -> Option<Missing> {
        let ceiling = parse(&format!("[[require]]\n{rule}\n")).unwrap();
        let held = Held {
            annotations: annotations.iter().map(|(key, items)| (*key, items.to_vec())).collect(),
            defaults: &[("understudy.network", "sealed"), ("understudy.mode", "deny")],
            policies: vec!["harness-only", "web"],
            secrets: vec!["git"],
        };
        ceiling.requirements()[0].check(&held).err()
    }

    #[test]
    fn a_value_that_is_required_is_the_only_one_and_its_absence_counts_as_what_it_means() {
        let sealed = "annotation = \"understudy.network\"\nvalues = \"sealed\"";
        assert_eq!(missing(sealed, &[]), None);
        assert_eq!(missing(sealed, &[("understudy.network", &["sealed"])]), None);
        for (items, said) in [
            (&["guarded"][..], "annotation understudy.network says `guarded`"),
            (&["sealed", "guarded"], "annotation understudy.network says `guarded`"),
            (&[], "annotation understudy.network says nothing"),
            (&["sealed\u{1b}"], "annotation understudy.network says `sealed\\u{1b}`"),
        ] {
            let missing = missing(sealed, &[("understudy.network", items)]).unwrap();
            assert_eq!((missing.what.as_str(), missing.place.as_str()), (said, "/m.toml:2"));
            assert_eq!(missing.remedy, "start it with --annotation understudy.network=sealed");
        }
        let guarded = "annotation = \"understudy.network\"\nvalues = \"guarded\"";
        let found = missing(guarded, &[]).unwrap();
        assert_eq!(found.what, "annotation understudy.network is not carried, which means `sealed`");
        // Without a default, absence is none of the values.
        let strict =
            "annotation = \"understudy.privacy\"\nvalues = [\"strict\", \"default\"]\nnote = \"ours\"";
        let found = missing(strict, &[]).unwrap();
        assert_eq!(found.what, "annotation understudy.privacy is not carried");
        assert!(found.remedy.ends_with("=VALUE, of which there may be: strict, default"), "{}", found.remedy);
        assert_eq!(found.note.as_deref(), Some("ours"));
        assert_eq!(missing(strict, &[("understudy.privacy", &["default", "strict"])]), None);
    }

    #[test]
    fn without_values_it_must_be_carried_and_say_something() {
        let any = "annotation = \"understudy.network\"";
        assert!(missing(any, &[]).is_some() && missing(any, &[("understudy.network", &[])]).is_some());
        assert_eq!(missing(any, &[("understudy.network", &["guarded"])]), None);
    }

    #[test]
    fn policies_and_secrets_are_among_others() {
        assert_eq!(missing("policy = \"web\"", &[]), None);
        let found = missing("policy = [\"web\", \"house\"]", &[]).unwrap();
        assert_eq!(found.what, "policy `house` is not among this container's");
        assert_eq!(found.remedy, "start it with --annotation \"understudy.policy=harness-only web house\"");
        assert_eq!(missing("secret = \"git\"", &[]), None);
        let found = missing("secret = \"key\"", &[]).unwrap();
        assert_eq!(
            found.to_string(),
            "secret `key` is not granted to this container, which `require` (/m.toml:2) asks for"
        );
    }

    #[test]
    fn the_example_of_the_documentation_is_true() {
        let documentation = include_str!("../../../docs/policies.md");
        let (_, example) = documentation.split_once("managed.d/require.toml\n").unwrap();
        let ceiling = parse(example.split("```").next().unwrap()).unwrap();
        let held = Held { annotations: [("understudy.network", vec!["guarded"])].into(), ..Held::default() };
        assert_eq!(ceiling.requirements().len(), 2);
        assert!(ceiling.requirements().iter().all(|rule| rule.check(&held).is_err()));
    }

    #[test]
    fn a_mistake_is_an_error_with_its_place() {
        for (rule, said) in [
            ("", "1:1: write one of `annotation`, `policy` and `secret`"),
            ("policy = \"a\"\nsecret = \"b\"", "1:1: write one of"),
            ("values = \"a\"", "2:10: `values` are those of an `annotation`"),
            ("policy = \"a\"\nvalues = \"b\"", "3:10: `values` are those of"),
            (
                "annotation = \"understudy.mod\"",
                "2:14: `annotation`: no annotation \"understudy.mod\" exists; did you mean `understudy.mode`?",
            ),
            ("annotation = \"understudy.role\"", "2:14: `annotation`: understudy.role is the sidecar's own"),
            (
                "annotation = \"understudy.network\"\nvalues = \"host\"",
                "3:10: `values`: understudy.network is never \"host\"; known are: sealed, guarded",
            ),
            (
                "annotation = \"understudy.privacy\"\nvalues = \"a b\"",
                "3:10: `values`: \"a b\" is more than one",
            ),
            ("annotation = \"understudy.privacy\"\nvalues = []", "3:10: `values`: name one at least"),
            ("policy = []", "2:10: `policy`: name one at least"),
            ("secret = \" \"", "2:10: `secret`: name one at least"),
            ("policy = \"a\"\nimages = []", "3:10: an empty list or pattern"),
            ("policy = \"a\"\nlabels = [\"\"]", "3:10: an empty list or pattern"),
            ("policies = \"a\"", "2:1: unknown key `policies`; did you mean `policy`?"),
        ] {
            let found = parse(&format!("[[require]]\n{rule}\n")).unwrap_err().to_string();
            assert!(found.starts_with(&format!("/m.toml:{said}")), "{rule:?}: {found}");
        }
    }

    #[test]
    fn a_rule_is_about_the_images_that_it_names() {
        let text = "[[require]]\npolicy = \"a\"\n[[require]]\npolicy = \"b\"\nimages = \"*/agents/*\"\nlabels = \"agent=*\"";
        let ceiling = parse(text).unwrap();
        let places: Vec<_> =
            ceiling.requirements().iter().map(|rule| (rule.place.as_str(), rule.of.is_for_all())).collect();
        assert_eq!(places, [("/m.toml:2", true), ("/m.toml:4", false)]);
        let of = &ceiling.requirements()[1].of;
        assert!(of.matches(&["localhost/agents/a:1"], &[]) && of.matches(&[], &["agent=yes"]));
        assert!(!of.matches(&["localhost/other:1"], &["agents=yes"]));
    }
}
