//! What `understudy secrets` tells of each secret. Names, counts and places, never a value.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use understudy_control::SecretStatus;

use super::declaration::Declaration;
use super::expiry::{Day, Notice};
use super::ledger::Ledger;
use super::secret::SecretValue;
use super::vault::{Secret, Vault};

/// The most holders that are named.
const NAMED: usize = 20;

/// What an agent can get to see of a value, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    Nothing,
    /// What a host that received it repeats in an answer.
    Echoes,
}

/// Containers, as people call them, by the name of the secret whose stand-in they were given.
pub type Holders = BTreeMap<String, Vec<String>>;

/// In the order of their names. `answered` is what becomes of an answer with a text in it on its way to a container that
/// was granted the named secret: the word on what can be read is taken from it, not from a belief about it.
pub fn report(
    vault: &Vault,
    ledger: &Ledger,
    holders: &Holders,
    answered: impl Fn(&str, &[u8]) -> Vec<u8>,
    today: Day,
) -> Vec<SecretStatus> {
    let whole = vault.secrets().iter().filter(|secret| !secret.declaration().is_part());
    let usable = whole.map(|secret| {
        let readable = readable(vault, secret, |text| answered(secret.name(), text));
        let problem = secret.login_needed().or_else(|| secret.stale().map(str::to_owned));
        let problem = problem.or_else(|| secret.declaration().source.problem());
        (secret.declaration(), problem, readable)
    });
    // Its value goes nowhere, so nothing of it comes back.
    let unusable =
        vault.unusable().iter().map(|u| (u.declaration(), Some(u.error().to_owned()), Readable::Nothing));
    let mut all: Vec<SecretStatus> = usable
        .chain(unusable)
        .map(|(declaration, problem, readable)| {
            let uses = ledger.of(&declaration.name);
            SecretStatus {
                name: declaration.name.clone(),
                kind: declaration.kind.as_str().to_owned(),
                source: declaration.source.to_string(),
                usable: vault.secret(&declaration.name).is_some(),
                problem: problem.or_else(|| over(declaration, today)),
                hosts: match (&declaration.ssh, &declaration.postgres) {
                    (Some(server), _) => server.shown_hosts(),
                    (_, Some(server)) => server.shown_hosts(),
                    (None, None) => shown(&declaration.hosts),
                },
                placements: match &declaration.postgres {
                    Some(server) => vec![format!("password of {}", server.user())],
                    None if declaration.aws.is_some() || declaration.assertion.is_some() => {
                        vec!["signature".to_owned()]
                    }
                    None => shown(&declaration.placements),
                },
                expires: declaration.expires.map(|expiry| expiry.to_string()),
                holders: named(holders.get(&declaration.name).map_or(&[], Vec::as_slice)),
                last_use: uses.last,
                swaps: uses.swaps,
                leaks: uses.leaks,
                agent_can_read: readable.to_string(),
            }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// In every form in which a host could send a value back without meaning to hide it.
fn readable(vault: &Vault, secret: &Secret, answered: impl Fn(&[u8]) -> Vec<u8>) -> Readable {
    let Some(value) = secret.value().map(SecretValue::expose) else { return Readable::Nothing };
    let percent: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let forms = [format!("a {value} b"), BASE64_STANDARD.encode(format!("user:{value}")), percent];
    let comes_out = |form: &String| vault.real_value_in(&answered(form.as_bytes())).is_some();
    if forms.iter().any(comes_out) { Readable::Echoes } else { Readable::Nothing }
}

fn over(declaration: &Declaration, today: Day) -> Option<String> {
    let expiry = declaration.expires.filter(|expiry| expiry.notice(today) == Some(Notice::Over))?;
    Some(format!("EXPIRED on {expiry}"))
}

fn shown<T: fmt::Display>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

fn named(holders: &[String]) -> Vec<String> {
    let mut named: Vec<String> = holders.iter().take(NAMED).cloned().collect();
    if holders.len() > NAMED {
        named.push(format!("and {} more", holders.len() - NAMED));
    }
    named
}

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Echoes => "echoes",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Values, declared, vault};
    use super::*;

    const VALUE: &str = "sk-0123456789abcdefghij";

    fn told(answered: impl Fn(&str, &[u8]) -> Vec<u8>) -> Vec<SecretStatus> {
        let text = [declared("b", "expires = 2020-01-31\n"), declared("a", ""), declared("c", "")].concat();
        let vault = vault(&text, &Values::from([("a", VALUE), ("b", "sk-9876543210zyxwvutsrq")]));
        let ledger = Ledger::default();
        ledger.swapped(&["a".to_owned()], 7);
        ledger.swapped(&["a".to_owned(), "b".to_owned()], 5);
        ledger.leaked(&["b".to_owned()]);
        let holders = Holders::from([("a".to_owned(), (0..22).map(|n| format!("agent-{n}")).collect())]);
        report(&vault, &ledger, &holders, answered, Day::today())
    }

    #[test]
    fn all_secrets_are_told_with_what_they_did_and_without_their_values() {
        let all = told(|_, text| text.to_vec());
        let names: Vec<_> = all.iter().map(|secret| secret.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let counts: Vec<_> = all.iter().map(|s| (s.swaps, s.leaks, s.last_use, s.usable)).collect();
        assert_eq!(counts, [(2, 0, Some(7), true), (1, 1, Some(5), true), (0, 0, None, false)]);
        assert_eq!((all[0].kind.as_str(), all[0].source.as_str()), ("api-key", "file /run/secrets/a"));
        assert_eq!(all[0].hosts, ["api.example.com"]);
        assert_eq!((all[0].holders.len(), all[0].holders[20].as_str()), (21, "and 2 more"));
        assert_eq!(all[1].problem.as_deref(), Some("EXPIRED on 2020-01-31"));
        assert!(all[2].problem.as_deref().unwrap().contains("no such file"));
        let text = serde_json::to_string(&all).unwrap();
        assert!(!text.contains("0123456789") && !text.contains("9876543210"), "{text}");
    }

    #[test]
    fn the_word_is_what_answers_show() {
        let words = |answered: &dyn Fn(&str, &[u8]) -> Vec<u8>| -> Vec<String> {
            told(answered).into_iter().map(|secret| secret.agent_can_read).collect()
        };
        assert_eq!(words(&|_, text| text.to_vec()), ["echoes", "echoes", "nothing"]);
        assert_eq!(words(&|_, _| Vec::new()), ["nothing", "nothing", "nothing"]);
        // One form that gets out is enough, and each secret is judged for itself.
        let percent_only = |name: &str, text: &[u8]| match name == "b" && text.starts_with(b"%") {
            true => text.to_vec(),
            false => Vec::new(),
        };
        assert_eq!(words(&percent_only), ["nothing", "echoes", "nothing"]);
    }
}
