//! What one container holds beside its grants, in memory alone and gone with it: credentials that were minted for it, and
//! former values of its secrets, which answers can still repeat.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use understudy_policies::{HostName, HostPattern};

use super::grants::Grants;
use super::placement::Placement;
use super::scrub::{Forms, Pair, Patterns, as_long};
use super::secret::SecretValue;
use super::vault::Vault;

/// Minted credentials of one container; the one that was not used for the longest time makes room.
const MOST_MINTED: usize = 64;
/// One that was not used for so long is forgotten.
const UNUSED: Duration = Duration::from_secs(24 * 3600);
/// Former values of one container, and as many that were minted, wrapped, and are forgotten; the oldest makes room.
const MOST_FORMER: usize = 32;
/// Signatures of tokens that were signed again; the oldest makes room.
const MOST_SIGNED: usize = 32;

/// Of one container.
#[derive(Debug, Default)]
pub struct Holdings {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    minted: Vec<Used>,
    former: VecDeque<HeldValue>,
    /// Wrapped ones that are not sent any more, and that an answer could still repeat.
    outgrown: VecDeque<HeldValue>,
    /// Signatures that an upstream was sent and the container must not see.
    signed: VecDeque<HeldValue>,
    /// The container is gone: nothing is kept any more.
    closed: bool,
    /// What answers are searched for: built once for a vault, grants and what is held.
    searches: Option<(Weak<Vault>, Grants, Arc<Patterns>)>,
}

#[derive(Debug)]
struct Used {
    credential: Arc<MintedCredential>,
    last: Instant,
}

/// A real value, and what containers see of it.
#[derive(Debug, Clone)]
pub struct HeldValue {
    pub(super) value: Arc<SecretValue>,
    pub(super) stand_in: String,
}

/// The same value, whatever its stand-in.
impl PartialEq for HeldValue {
    fn eq(&self, other: &Self) -> bool {
        self.value.is(other.value.expose().as_bytes())
    }
}

impl Eq for HeldValue {}

/// A credential that an upstream made for this container.
#[derive(Debug)]
pub struct MintedCredential {
    /// `PROVIDER NAME`.
    pub(super) label: String,
    pub(super) value: Arc<SecretValue>,
    /// What the container has instead, if it is wrapped.
    pub(super) stand_in: Option<String>,
    pub(super) hosts: Vec<HostPattern>,
    pub(super) placements: Vec<Placement>,
    /// The secrets that it was asked for with: it is good for as long as all of them are granted.
    pub(super) by: Vec<String>,
}

/// What a container holds at one moment.
#[derive(Debug, Clone, Default)]
pub struct MintedNow(Vec<Arc<MintedCredential>>);

impl MintedNow {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &MintedCredential> {
        self.0.iter().map(Arc::as_ref)
    }

    /// Those that may be sent to `host` now.
    pub(super) fn usable<'m>(
        &'m self,
        grants: &'m Grants,
        host: &'m HostName,
    ) -> impl Iterator<Item = &'m MintedCredential> {
        let at = move |pattern: &HostPattern| pattern.matches(host);
        self.all().filter(move |credential| {
            credential.hosts.iter().any(at) && credential.by.iter().all(|name| grants.contains(name))
        })
    }

    /// Whether `host` gets any of which the container has a stand-in.
    pub fn is_swapped_at(&self, grants: &Grants, host: &HostName) -> bool {
        self.usable(grants, host).any(|credential| credential.stand_in.is_some())
    }
}

impl Holdings {
    pub fn minted(&self, now: Instant) -> MintedNow {
        let mut kept = self.kept();
        let unused = |used: &mut Used| now.saturating_duration_since(used.last) >= UNUSED;
        let unused: Vec<Used> = kept.minted.extract_if(.., unused).collect();
        unused.into_iter().for_each(|used| kept.outgrow(used));
        MintedNow(kept.minted.iter().map(|used| Arc::clone(&used.credential)).collect())
    }

    /// Notes that one was sent.
    pub fn used(&self, labels: &[String], now: Instant) {
        let mut kept = self.kept();
        let meant = |used: &&mut Used| labels.contains(&used.credential.label);
        kept.minted.iter_mut().filter(meant).for_each(|used| used.last = now);
    }

    /// One that it holds already stays what it is; the second answer is what the container sees of it.
    pub(super) fn mint(&self, credential: MintedCredential, now: Instant) -> Arc<MintedCredential> {
        let mut kept = self.kept();
        let same = |used: &&mut Used| {
            let known = &used.credential;
            known.label == credential.label
                && known.by == credential.by
                && known.value.is(credential.value.expose().as_bytes())
        };
        if let Some(used) = kept.minted.iter_mut().find(same) {
            used.last = now;
            return Arc::clone(&used.credential);
        }
        let credential = Arc::new(credential);
        if kept.closed {
            return credential;
        }
        if kept.minted.len() >= MOST_MINTED {
            let oldest = kept.minted.iter().enumerate().min_by_key(|(_, used)| used.last);
            if let Some(oldest) = oldest.map(|(at, _)| at) {
                let used = kept.minted.swap_remove(oldest);
                kept.outgrow(used);
            }
        }
        kept.minted.push(Used { credential: Arc::clone(&credential), last: now });
        kept.searches = None;
        credential
    }

    /// Values that were granted and are no longer.
    pub fn keep_former(&self, values: impl IntoIterator<Item = HeldValue>) {
        let mut kept = self.kept();
        for value in values {
            if !kept.closed && put(&mut kept.former, value, MOST_FORMER) {
                kept.searches = None;
            }
        }
    }

    /// A signature that goes to an upstream.
    pub fn keep_signature(&self, signature: HeldValue) {
        let mut kept = self.kept();
        if !kept.closed && put(&mut kept.signed, signature, MOST_SIGNED) {
            kept.searches = None;
        }
    }

    /// For good: the container is gone or revoked.
    pub fn forget(&self) {
        *self.kept() = Kept { closed: true, ..Kept::default() };
    }

    /// What an answer is searched for: the values that are granted, those that were, and those that are or were wrapped.
    pub fn scrub(&self, vault: &Arc<Vault>, grants: &Grants) -> Arc<Patterns> {
        let mut kept = self.kept();
        let wrapped = |used: &Used| used.credential.stand_in.is_some();
        let nothing_more = kept.former.is_empty() && kept.outgrown.is_empty() && kept.signed.is_empty();
        if nothing_more && !kept.minted.iter().any(wrapped) {
            return vault.scrub(grants);
        }
        if let Some((known, granted, searches)) = &kept.searches
            && std::ptr::eq(known.as_ptr(), Arc::as_ptr(vault))
            && granted == grants
        {
            return Arc::clone(searches);
        }
        let pair =
            |value, stand_in| Pair { owner: 0, value, other: as_long(stand_in, value), forms: Forms::All };
        let former = kept.former.iter().chain(&kept.outgrown).chain(&kept.signed);
        let former = former.map(|held| pair(held.value.expose(), &held.stand_in));
        let minted = kept.minted.iter().filter_map(|used| {
            Some(pair(used.credential.value.expose(), used.credential.stand_in.as_deref()?))
        });
        let built = Arc::new(Patterns::new(vault.granted_pairs(grants).chain(former).chain(minted)));
        kept.searches = Some((Arc::downgrade(vault), grants.clone(), Arc::clone(&built)));
        built
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn outgrow(&mut self, used: Used) {
        if let Some(stand_in) = &used.credential.stand_in {
            let value = Arc::clone(&used.credential.value);
            put(&mut self.outgrown, HeldValue { value, stand_in: stand_in.clone() }, MOST_FORMER);
        }
        self.searches = None;
    }
}

/// False if it is there.
fn put(values: &mut VecDeque<HeldValue>, value: HeldValue, most: usize) -> bool {
    if values.contains(&value) {
        return false;
    }
    if values.len() >= most {
        values.pop_front();
    }
    values.push_back(value);
    true
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::fixture::{Values, declared, vault};
    use super::super::scrub::Replacer;
    use super::*;

    const OLD: &str = "sk-old-0123456789abcdefghij";
    const NEW: &str = "sk-new-0123456789abcdefghij";

    fn value(text: &str) -> SecretValue {
        SecretValue::from_bytes(text.as_bytes()).unwrap()
    }

    fn minted(number: usize) -> MintedCredential {
        MintedCredential {
            label: "acme session".to_owned(),
            value: Arc::new(value(&format!("session-secret-number-{number:04}"))),
            stand_in: Some(format!("session-standin-numbr-{number:04}")),
            hosts: vec!["api.example.com".parse().unwrap()],
            placements: vec![Placement::bearer()],
            by: vec!["key".to_owned()],
        }
    }

    fn scrubbed(holdings: &Holdings, vault: &Arc<Vault>, text: &str) -> String {
        let mut replacer = Replacer::new(holdings.scrub(vault, &["key"].into_iter().collect()));
        let out = [replacer.push(Bytes::from(text.to_owned())), replacer.finish()].concat();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn minted_ones_are_few_and_forgotten_when_they_are_not_used() {
        let (holdings, start) = (Holdings::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for number in 0..MOST_MINTED {
            holdings.mint(minted(number), at(number as u64));
        }
        let first = holdings.mint(minted(0), at(100));
        assert_eq!(holdings.minted(at(100)).all().count(), MOST_MINTED);
        holdings.mint(minted(1000), at(101));
        let now = holdings.minted(at(101));
        assert_eq!(now.all().count(), MOST_MINTED);
        assert!(now.all().any(|known| known.value.is(first.value.expose().as_bytes())));
        assert!(!now.all().any(|known| known.value.is(minted(1).value.expose().as_bytes())));
        let day = UNUSED.as_secs();
        assert_eq!(holdings.minted(at(day + 90)).all().count(), 2);
        holdings.used(&["acme session".to_owned()], at(day + 90));
        assert_eq!(holdings.minted(at(2 * day)).all().count(), 2);
        holdings.forget();
        holdings.mint(minted(1), at(2 * day));
        assert_eq!(holdings.minted(at(2 * day)).all().count(), 0);
    }

    #[test]
    fn they_are_good_with_the_grants_that_they_came_from_and_at_their_hosts() {
        let holdings = Holdings::default();
        holdings.mint(minted(1), Instant::now());
        let now = holdings.minted(Instant::now());
        let usable = |granted: &[&str], host: &str| {
            let grants = granted.iter().copied().collect();
            now.usable(&grants, &host.parse().unwrap()).count()
        };
        assert_eq!(usable(&["key"], "api.example.com"), 1);
        assert_eq!(usable(&["other"], "api.example.com"), 0);
        assert_eq!(usable(&["key"], "example.com"), 0);
    }

    #[test]
    fn former_and_wrapped_values_do_not_come_back() {
        let vault = Arc::new(vault(&declared("key", ""), &Values::from([("key", NEW)])));
        let (holdings, stand_in) = (Holdings::default(), vault.secret("key").unwrap().stand_in());
        let text = format!("{OLD} {NEW} session-secret-number-0007");
        assert_eq!(scrubbed(&holdings, &vault, &text), text.replace(NEW, stand_in));
        let former = HeldValue { value: Arc::new(value(OLD)), stand_in: stand_in.to_owned() };
        holdings.keep_former([former.clone()]);
        assert_eq!(scrubbed(&holdings, &vault, OLD), stand_in);
        holdings.mint(minted(7), Instant::now());
        let clean = format!("{stand_in} {stand_in} session-standin-numbr-0007");
        assert_eq!(scrubbed(&holdings, &vault, &text), clean);
        for number in 0..MOST_FORMER {
            let value = Arc::new(value(&format!("sk-other-{number:020}")));
            holdings.keep_former([HeldValue { value, ..former.clone() }]);
        }
        assert_eq!(scrubbed(&holdings, &vault, OLD), OLD);
        // It makes room, and is searched for still.
        for number in 1000..1000 + MOST_MINTED {
            holdings.mint(minted(number), Instant::now());
        }
        assert!(
            !holdings.minted(Instant::now()).all().any(|one| one.value.is(b"session-secret-number-0007"))
        );
        let later = Instant::now() + UNUSED;
        assert_eq!(scrubbed(&holdings, &vault, &text), clean.replacen(stand_in, OLD, 1));
        assert_eq!(holdings.minted(later).count(), 0);
        let last = format!("session-secret-number-{:04}", 999 + MOST_MINTED);
        assert_eq!(scrubbed(&holdings, &vault, &last), last.replace("secret-number", "standin-numbr"));
        holdings.forget();
        assert_eq!(scrubbed(&holdings, &vault, "session-secret-number-0007"), "session-secret-number-0007");
    }
}
