//! What is yet to be told: questions first, since their requests wait and not for long; then leaks; then refusals.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::{Event, Fact};

/// Of all containers. More are left out: a command that hangs must not hold up requests.
const WAITING: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    asks: VecDeque<Fact>,
    leaks: VecDeque<Fact>,
    denied: VecDeque<Fact>,
    closed: bool,
}

impl Queue {
    /// False: there is no room.
    pub(super) fn push(&self, fact: Fact) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let of = match fact.event {
            Event::Ask => &mut waiting.asks,
            Event::Leak => &mut waiting.leaks,
            Event::Denied => &mut waiting.denied,
        };
        if of.len() >= WAITING {
            return false;
        }
        of.push_back(fact);
        self.more.notify_one();
        true
    }

    /// Waits for one. None: it is closed.
    pub(super) fn pop(&self) -> Option<Fact> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if waiting.closed {
                return None;
            }
            let Waiting { asks, leaks, denied, .. } = &mut *waiting;
            if let Some(fact) = asks.pop_front().or_else(|| leaks.pop_front()).or_else(|| denied.pop_front())
            {
                return Some(fact);
            }
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fact;
    use super::*;

    #[test]
    fn questions_come_before_what_came_earlier_and_no_kind_takes_the_room_of_another() {
        let queue = Queue::default();
        for n in 0..WAITING {
            assert!(queue.push(fact(Event::Denied, &format!("{n}.example"))));
        }
        assert!(!queue.push(fact(Event::Denied, "more.example")));
        for (event, host) in [(Event::Leak, "leak"), (Event::Ask, "one"), (Event::Ask, "two")] {
            assert!(queue.push(fact(event, host)));
        }
        let hosts: Vec<String> = (0..5).map(|_| queue.pop().unwrap().host.unwrap()).collect();
        assert_eq!(hosts, ["one", "two", "leak", "0.example", "1.example"]);
        queue.close();
        assert_eq!(queue.pop(), None);
    }
}
