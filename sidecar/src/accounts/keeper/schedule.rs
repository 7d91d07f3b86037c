//! When an account is renewed. Pure, but for the jitter's seed.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::accounts::record::{Account, Millis};

/// At most this long before the end.
const AHEAD: u64 = 10 * 60 * 1000;
const NEW: u64 = 60_000;
const LONGEST_NEW: u64 = 3_600_000;
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

/// Whether tokens are so new that another renewal would not make an upstream take them: one that answers 401 to whatever
/// a container asks must not make the sidecar ask the provider each time. `refusals`: how often on end a 401 was the reason
/// for new ones. Each doubles the time, up to a quarter of their life.
pub(super) fn is_new(renewed: Millis, expires: Option<Millis>, refusals: u32, now: Millis) -> bool {
    let time = (NEW << refusals.min(16)).min(LONGEST_NEW);
    // A clock that was set back says nothing.
    renewed <= now && now.since(renewed) < time.min(quarter(renewed, expires))
}

/// How many refusals on end it is when tokens of that age are renewed because of one: those that served a while do not count.
pub(super) fn refusals(before: u32, renewed: Millis, expires: Option<Millis>, now: Millis) -> u32 {
    let served = now.since(renewed) >= quarter(renewed, expires).saturating_mul(2);
    if served { 1 } else { before.saturating_add(1) }
}

fn quarter(renewed: Millis, expires: Option<Millis>) -> u64 {
    expires.map_or(u64::MAX, |expires| expires.since(renewed)) / 4
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
            uid: None,
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
    fn tokens_are_new_for_a_minute_or_a_quarter_of_their_life() {
        let start = Millis(1_000_000);
        let new = |life: u64, now| is_new(start, Some(Millis(start.0 + life)), 0, Millis(now));
        assert!(new(3_600_000, 1_059_000) && !new(3_600_000, 1_061_000));
        assert!(!new(3_600_000, 999_999));
        assert!(new(1000, 1_000_200) && !new(1000, 1_000_300));
    }

    /// A container that gets a 401 whenever it likes.
    #[test]
    fn refusals_at_will_cost_few_renewals() {
        for (life, most) in [(3_600_000, 104), (8 * 3_600_000, 34)] {
            let (mut renewed, mut count, mut times) = (Millis(0), 0, 0);
            let end = |renewed: Millis| Some(Millis(renewed.0 + life));
            for now in (0..24 * 3_600_000).step_by(1000).map(Millis) {
                if !is_new(renewed, end(renewed), count, now) {
                    count = refusals(count, renewed, end(renewed), now);
                    (renewed, times) = (now, times + 1);
                }
            }
            assert!(times <= most, "{times} renewals in a day");
        }
        // Tokens that served are renewed at once when they are not taken.
        assert_eq!(refusals(9, Millis(0), Some(Millis(400)), Millis(200)), 1);
        assert!(!is_new(Millis(0), Some(Millis(400)), 9, Millis(100)));
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<u64> = [1, 2, 3, 9, 40].map(|failures| pause(failures).as_secs()).into();
        assert_eq!(pauses, [1, 2, 4, 256, 300]);
    }
}
