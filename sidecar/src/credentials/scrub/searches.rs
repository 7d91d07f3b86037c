//! The searches that one vault's secrets call for: built once, shared by all streams.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Forms, Pair, Patterns};
use crate::credentials::vault::Secret;
use crate::credentials::{Grants, Placement, RequestHead, Vault};

/// Kept with the vault whose values they hold.
#[derive(Debug, Default)]
pub(in crate::credentials) struct Searches {
    watched: OnceLock<Arc<Patterns>>,
    scrubs: Mutex<HashMap<Grants, Arc<Patterns>>>,
}

/// What was found in a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched<'v> {
    /// A real value: the name of its secret.
    Real(&'v str),
    StandIn(&'v str),
}

impl Vault {
    /// Real values of granted secrets, to be replaced by their stand-ins in whatever goes to the container.
    pub fn scrub(&self, grants: &Grants) -> Arc<Patterns> {
        let mut scrubs = self.searches().scrubs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = scrubs.get(grants) {
            return Arc::clone(known);
        }
        let built = Arc::new(Patterns::new(self.granted_pairs(grants)));
        scrubs.insert(grants.clone(), Arc::clone(&built));
        built
    }

    /// The values of granted secrets, with what is put in their place.
    pub(in crate::credentials) fn granted_pairs(&self, grants: &Grants) -> impl Iterator<Item = Pair<'_>> {
        let granted = self.secrets().iter().filter(|secret| grants.contains(secret.name()));
        let values = granted.flat_map(|secret| {
            let values = [secret.value(), secret.earlier()].into_iter().flatten();
            values.map(move |value| (value, secret.stand_in())).chain(secret.parts())
        });
        values.map(|(value, stand_in)| Pair {
            owner: 0,
            value: value.expose(),
            other: as_long(stand_in, value.expose()),
            forms: Forms::All,
        })
    }

    /// Stand-ins that leave as real values in text messages of the WebSocket that `head` asks for, and the names of their
    /// secrets: those that say so (`websocket-text`), granted, of this host, over verified TLS.
    pub fn websocket_text(&self, grants: &Grants, head: RequestHead<'_>) -> (Patterns, Vec<String>) {
        let applies = |secret: &&Secret| {
            let declaration = secret.declaration();
            head.verified_tls
                && head.headers.contains_key(http::header::UPGRADE)
                && grants.contains(secret.name())
                && declaration.is_bound_to(head.host)
                && declaration.placements.contains(&Placement::WebSocketText)
                && declaration.scope.check(head.method, head.uri, head.headers).is_ok()
        };
        let secrets: Vec<&Secret> = self.secrets().iter().filter(applies).collect();
        let pairs = secrets.iter().filter_map(|secret| Some((secret, secret.value()?.expose())));
        let pairs = pairs.flat_map(|(secret, real)| {
            let pair = |value| Pair { owner: 0, value, other: real.into(), forms: Forms::Text };
            secret.stand_ins().map(pair)
        });
        let names = secrets.iter().map(|secret| secret.name().to_owned()).collect();
        (Patterns::new(pairs), names)
    }

    /// Every real value and every stand-in, to be watched for in what a container sends. [`Self::watched`] tells what a
    /// find is.
    pub fn watch(&self) -> Arc<Patterns> {
        let pair = |owner, value, forms| Pair { owner, value, other: value.into(), forms };
        let build = || {
            let real = self.real_values().enumerate();
            let real = real.map(|(number, (_, value))| pair(number * 2, value.expose(), Forms::All));
            let stand_ins = self.secrets().iter().enumerate();
            let stand_ins = stand_ins.flat_map(|(number, secret)| {
                secret.all_known().map(move |stand_in| pair(number * 2 + 1, stand_in, Forms::Text))
            });
            Arc::new(Patterns::new(real.chain(stand_ins)))
        };
        Arc::clone(self.searches().watched.get_or_init(build))
    }

    /// What a find of [`Self::watch`] is.
    pub fn watched(&self, owner: usize) -> Option<Watched<'_>> {
        let number = owner / 2;
        match owner % 2 {
            0 => self.real_values().nth(number).map(|(name, _)| Watched::Real(name)),
            _ => self.secrets().get(number).map(|secret| Watched::StandIn(secret.name())),
        }
    }
}

/// Tokens of an account can become longer or shorter than their stand-in, and a search replaces by the same length only.
pub(in crate::credentials) fn as_long<'v>(stand_in: &'v str, value: &str) -> Cow<'v, str> {
    match stand_in.len() == value.len() {
        true => stand_in.into(),
        false => stand_in.chars().cycle().take(value.len()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::credentials::fixture::{Values, declared, vault};
    use crate::credentials::scrub::{Detector, Replacer};

    const ONE: &str = "sk-one-0123456789abcdefghij";
    const TWO: &str = "sk-two-zyxwvutsrqponmlkjihg";

    fn both() -> Vault {
        let text = [declared("one", ""), declared("two", "")].concat();
        vault(&text, &Values::from([("one", ONE), ("two", TWO)]))
    }

    #[test]
    fn only_what_was_granted_is_scrubbed_and_a_search_is_built_once() {
        let vault = both();
        let grants: Grants = ["one"].into_iter().collect();
        let mut replacer = Replacer::new(vault.scrub(&grants));
        let out = replacer.push(Bytes::from(format!("{ONE} {TWO} ")));
        assert_eq!(out, format!("{} {TWO} ", vault.secret("one").unwrap().stand_in()));
        assert!(Arc::ptr_eq(&vault.scrub(&grants), &vault.scrub(&grants.clone())));
        assert!(vault.scrub(&Grants::default()).is_empty());
    }

    #[test]
    fn real_values_and_stand_ins_of_all_secrets_are_watched_for() {
        let vault = both();
        let stand_in = vault.secret("two").unwrap().stand_in();
        let mut detector = Detector::new(vault.watch());
        let owners = detector.push(Bytes::from(format!("{TWO} {stand_in} {ONE} ")));
        let found: Vec<_> = owners.into_iter().filter_map(|owner| vault.watched(owner)).collect();
        assert_eq!(found, [Watched::Real("two"), Watched::StandIn("two"), Watched::Real("one")]);
        assert!(Arc::ptr_eq(&vault.watch(), &vault.watch()));
    }

    /// Two secrets with one value cannot be used, and the value is watched for all the same.
    #[test]
    fn what_cannot_be_used_is_watched_for_too() {
        let text = [declared("one", ""), declared("two", "")].concat();
        let vault = vault(&text, &Values::from([("one", ONE), ("two", ONE)]));
        let owners = Detector::new(vault.watch()).push(Bytes::from(format!("{ONE} ")));
        assert!(matches!(vault.watched(owners[0]), Some(Watched::Real(_))));
    }
}
