//! When an account is renewed. Pure, but for the jitter's seed.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::accounts::record::{Account, Millis};

/// At most this long before the end.
const AHEAD: u64 = 10 * 60 * 1000;
const NEW: u64 = 60_000;
/// After a failure, doubled with each more.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// With a tenth to a fifth of its life left, and ten minutes at most: the same moment for one token, another for each.
pub(super) fn is_due(account: &Account, now: Millis) -> bool {
    due_in(account, now).is_some_and(|left| left.is_zero())
}

/// How long until then; never for what is over, or of which nobody said when it ends.
pub(super) fn due_in(account: &Account, now: Millis) -> Option<Duration> {
    let expires = account.expires.filter(|_| account.ended.is_none())?;
    let life = expires.since(account.renewed).max(1);
    // A tenth, and as much again by chance.
    let ahead = (life / 10).min(AHEAD / 2);
    let ahead = ahead + jitter(account) % ahead.max(1);
    Some(Duration::from_millis(expires.0.saturating_sub(ahead).saturating_sub(now.0)))
}

/// Whether its tokens are so new that another renewal would not make an upstream take them: one that answers 401 to
/// whatever a container asks must not make the sidecar ask the provider each time.
pub(crate) fn is_new(account: &Account, now: Millis) -> bool {
    let life = account.expires.map_or(u64::MAX, |expires| expires.since(account.renewed));
    // A clock that was set back says nothing.
    account.renewed <= now && now.since(account.renewed) < NEW.min(life / 4)
}

/// How long nobody asks after so many failures on end.
pub(super) fn pause(failures: u32) -> Duration {
    let doubled = PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(LONGEST_PAUSE)
}

fn jitter(account: &Account) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&account.name, account.generation, account.renewed.0).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::record::StandIns;

    fn account(expires: Option<u64>, ended: bool) -> Account {
        Account {
            name: "a".to_owned(),
            generation: 1,
            expires: expires.map(Millis),
            renewed: Millis(1_000_000),
            scopes: Vec::new(),
            facts: Default::default(),
            said: Default::default(),
            undeclared: None,
            stand_ins: StandIns::default(),
            ended: ended.then(|| "invalid_grant".to_owned()),
        }
    }

    #[test]
    fn it_is_ahead_of_the_end_and_not_for_long() {
        let hour = 3_600_000;
        let one = account(Some(1_000_000 + hour), false);
        assert!(!is_due(&one, Millis(1_000_000 + hour * 7 / 10)));
        assert!(is_due(&one, Millis(1_000_000 + hour - 300_000)));
        let day = account(Some(1_000_000 + 24 * hour), false);
        assert!(!is_due(&day, Millis(1_000_000 + 24 * hour - AHEAD)));
        let second = account(Some(1_001_000), false);
        assert!(!is_due(&second, Millis(1_000_790)) && is_due(&second, Millis(1_000_910)));
    }

    #[test]
    fn what_is_over_or_has_no_end_is_never_due_and_what_ended_long_ago_is() {
        assert!(!is_due(&account(Some(5), true), Millis(10)));
        assert!(!is_due(&account(None, false), Millis(u64::MAX)));
        assert!(is_due(&account(Some(5), false), Millis(10)));
    }

    #[test]
    fn a_token_is_new_for_a_minute_or_a_quarter_of_its_life() {
        let hour = account(Some(1_000_000 + 3_600_000), false);
        assert!(is_new(&hour, Millis(1_059_000)) && !is_new(&hour, Millis(1_061_000)));
        assert!(!is_new(&hour, Millis(999_999)));
        let second = account(Some(1_001_000), false);
        assert!(is_new(&second, Millis(1_000_200)) && !is_new(&second, Millis(1_000_300)));
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<u64> = [1, 2, 3, 9, 40].map(|failures| pause(failures).as_secs()).into();
        assert_eq!(pauses, [1, 2, 4, 256, 300]);
    }
}
