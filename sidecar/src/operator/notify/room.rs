//! How much of what happens is told: whoever runs in a container decides how much happens, and must neither hide what
//! happens in another one nor run the operator's command without end.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::{Event, Fact};

/// Of those that wait to be told, as many can be one container's and of one kind.
const WAITING_ALIKE: usize = 8;
/// Told in a minute, of one container and kind.
const TOLD_ALIKE: usize = 30;
const MINUTE: Duration = Duration::from_secs(60);
/// Refused hosts that are remembered of one container. With more, all are forgotten, and can be told again.
const MOST_HOSTS: usize = 256;
/// Containers that are remembered. With more, all are forgotten.
const MOST_CONTAINERS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Room {
    /// By their ids: a name is used again.
    containers: HashMap<String, Of>,
    left_out: u64,
}

#[derive(Debug, Default)]
struct Of {
    refused: HashSet<String>,
    kinds: HashMap<(Event, &'static str), Kind>,
}

/// What has room of its own. A container can bring about as many harmless leaks as it likes, of stand-ins that went astray:
/// they must not hide that of a real value. Reasons are few.
fn kind(fact: &Fact) -> (Event, &'static str) {
    match fact.event {
        Event::Leak => (Event::Leak, fact.reason.unwrap_or_default()),
        event => (event, ""),
    }
}

#[derive(Debug)]
struct Kind {
    waiting: usize,
    since: Instant,
    told: usize,
}

impl Room {
    /// Whether it is to be told. A refusal of a host that was told already is not, and does not count as left out.
    pub(super) fn admit(&mut self, fact: &Fact, now: Instant) -> bool {
        let full = self.containers.len() >= MOST_CONTAINERS;
        if full && !self.containers.contains_key(&fact.container_id) {
            self.containers.clear();
        }
        let of = self.containers.entry(fact.container_id.clone()).or_default();
        let refused = (fact.event == Event::Denied).then(|| fact.host.clone().unwrap_or_default());
        if refused.as_ref().is_some_and(|host| of.refused.contains(host)) {
            return false;
        }
        let kind = of.kinds.entry(kind(fact)).or_insert(Kind { waiting: 0, since: now, told: 0 });
        if now.duration_since(kind.since) >= MINUTE {
            (kind.since, kind.told) = (now, 0);
        }
        if refused.is_some() && of.refused.len() >= MOST_HOSTS {
            // Told twice is better than never.
            of.refused.clear();
        }
        if kind.waiting >= WAITING_ALIKE || kind.told >= TOLD_ALIKE {
            self.leave_out();
            return false;
        }
        kind.waiting += 1;
        kind.told += 1;
        of.refused.extend(refused);
        true
    }

    /// One that was admitted has its turn; how many were left out since the one before.
    pub(super) fn take(&mut self, fact: &Fact) -> u64 {
        let kind = self.containers.get_mut(&fact.container_id).and_then(|of| of.kinds.get_mut(&kind(fact)));
        if let Some(kind) = kind {
            kind.waiting = kind.waiting.saturating_sub(1);
        }
        std::mem::take(&mut self.left_out)
    }

    pub(super) fn leave_out(&mut self) {
        if self.left_out == 0 {
            tracing::warn!("`notify`: more happens than is told; the next one says how much was left out");
        }
        self.left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fact;
    use super::*;

    fn of(container: &str, event: Event, host: &str) -> Fact {
        Fact { container_id: container.to_owned(), ..fact(event, host) }
    }

    #[test]
    fn no_container_takes_the_place_of_another_or_of_another_kind() {
        let (mut room, now) = (Room::default(), Instant::now());
        for n in 0..5000 {
            for event in [Event::Denied, Event::Leak] {
                let admitted = room.admit(&of("a", event, &format!("{n}.example")), now);
                assert_eq!(admitted, n < WAITING_ALIKE);
            }
        }
        assert!(room.admit(&of("a", Event::Ask, "x.example"), now));
        assert!(room.admit(&of("b", Event::Leak, "x.example"), now));
        assert!(room.admit(&of("b", Event::Denied, "x.example"), now));
        assert_eq!(room.take(&of("b", Event::Leak, "x.example")), 2 * (5000 - WAITING_ALIKE as u64));
        assert_eq!(room.take(&of("b", Event::Denied, "x.example")), 0);
    }

    #[test]
    fn a_flood_of_one_leak_does_not_hide_another() {
        let (mut room, now) = (Room::default(), Instant::now());
        let leak = |reason: &'static str| Fact { reason: Some(reason), ..of("a", Event::Leak, "x.example") };
        for _ in 0..5000 {
            room.admit(&leak("credential-misdirected"), now);
        }
        assert!(!room.admit(&leak("credential-misdirected"), now));
        assert!(room.admit(&leak("real-credential"), now));
    }

    #[test]
    fn however_fast_the_command_is_it_runs_so_often_in_a_minute() {
        let (mut room, now) = (Room::default(), Instant::now());
        let leak = of("a", Event::Leak, "x.example");
        let told = |room: &mut Room, at: Instant| {
            let admitted = (0..1000).filter(|_| room.admit(&leak, at).then(|| room.take(&leak)).is_some());
            admitted.count()
        };
        assert_eq!(told(&mut room, now), TOLD_ALIKE);
        assert_eq!(told(&mut room, now + MINUTE - Duration::from_secs(1)), 0);
        assert_eq!(told(&mut room, now + MINUTE), TOLD_ALIKE);
    }

    #[test]
    fn a_host_is_new_once_in_each_container_and_what_was_left_out_is_new_again() {
        let (mut room, now) = (Room::default(), Instant::now());
        let (one, other) = (of("a", Event::Denied, "x.example"), of("b", Event::Denied, "x.example"));
        assert!(room.admit(&one, now) && !room.admit(&one, now) && room.admit(&other, now));
        assert_eq!(room.take(&one), 0);
        let late = of("a", Event::Denied, "late.example");
        for n in 0..WAITING_ALIKE {
            assert!(room.admit(&of("a", Event::Denied, &format!("{n}.example")), now));
        }
        assert!(!room.admit(&late, now));
        assert_eq!(room.take(&one), 1);
        assert!(room.admit(&late, now) && !room.admit(&late, now));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut room, now) = (Room::default(), Instant::now());
        for n in 0..10_000_u64 {
            let fact = of("a", Event::Denied, &format!("{n}.example"));
            if room.admit(&fact, now + n as u32 * MINUTE) {
                room.take(&fact);
            }
            room.admit(&of(&format!("{n}"), Event::Denied, "x.example"), now);
        }
        assert!(room.containers.len() <= MOST_CONTAINERS);
        assert!(room.containers.values().all(|of| of.refused.len() <= MOST_HOSTS));
        // However many there were, one that was not told is.
        assert!(room.admit(&of("a", Event::Denied, "another.example"), now + 20_000 * MINUTE));
    }
}
