//! The last lines, for an operator who asks the sidecar itself. A container that makes many pushes out its own alone; of
//! those that make few, the oldest go.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use understudy_control::Lines;

/// What is kept, in bytes.
const KEPT: usize = 1 << 20;
/// Who has more than that makes room first.
const MANY: usize = KEPT / 8;
/// What one line takes beside its text, about: short ones must not take more memory than they are counted for.
const BESIDE: usize = 128;
/// Of one answer. Quotes double in it, and the packet has to hold it.
const ANSWERED: usize = 40 * 1024;

#[derive(Debug, Default)]
pub(super) struct Recent {
    /// By their numbers; the first ever is 0. Some between them may be gone.
    lines: BTreeMap<u64, Line>,
    shares: HashMap<Arc<str>, Share>,
    /// The same, so that the largest is found at once.
    largest: BTreeSet<(usize, Arc<str>)>,
    bytes: usize,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug)]
struct Line {
    text: Box<str>,
    whose: Arc<str>,
}

/// What is kept of one container.
#[derive(Debug, Default)]
struct Share {
    numbers: VecDeque<u64>,
    bytes: usize,
}

impl Recent {
    /// `whose`: the container's id.
    pub(super) fn push(&mut self, whose: &str, line: &[u8]) {
        let Ok(text) = std::str::from_utf8(line) else { return };
        let whose = match self.shares.get_key_value(whose) {
            Some((whose, _)) => Arc::clone(whose),
            None => Arc::from(whose),
        };
        let number = self.next;
        self.next += 1;
        self.change(&whose, |share| {
            share.numbers.push_back(number);
            share.bytes += size(text);
        });
        self.bytes += size(text);
        self.lines.insert(number, Line { text: text.into(), whose });
        while self.bytes > KEPT && self.evict() {}
    }

    /// The oldest line of whoever has most, if that is much; else the oldest line there is. Containers that are long gone must
    /// not keep those that run from being heard.
    fn evict(&mut self) -> bool {
        let most = self.largest.last().filter(|(bytes, _)| *bytes > MANY);
        let of_most = most.and_then(|(_, whose)| self.shares.get(whose)?.numbers.front()).copied();
        let oldest = || self.lines.keys().next().copied();
        let Some(number) = of_most.or_else(oldest) else { return false };
        let Some(line) = self.lines.remove(&number) else { return false };
        self.bytes -= size(&line.text);
        self.change(&line.whose, |share| {
            // The oldest of all is the oldest of its own, too.
            share.numbers.pop_front();
            share.bytes -= size(&line.text);
        });
        true
    }

    fn change(&mut self, whose: &Arc<str>, change: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(Arc::clone(whose)).or_default();
        self.largest.remove(&(share.bytes, Arc::clone(whose)));
        change(share);
        match share.numbers.is_empty() {
            true => drop(self.shares.remove(whose)),
            false => drop(self.largest.insert((share.bytes, Arc::clone(whose)))),
        }
    }

    /// Lines from number `from` on, as many as one answer holds; `lost` are those between them that are not kept.
    pub(super) fn since(&self, from: u64) -> Lines {
        // Who asks for lines that are not there yet, as after a restart, begins anew.
        let from = from.min(self.next);
        let (mut lines, mut bytes, mut next) = (Vec::new(), 0, self.next);
        for (number, line) in self.lines.range(from..) {
            bytes += line.text.len();
            if bytes > ANSWERED && !lines.is_empty() {
                next = *number;
                break;
            }
            lines.push(line.text.to_string());
        }
        let lost = next - from - lines.len() as u64;
        Lines { lines, next, lost, more: next < self.next }
    }
}

fn size(text: &str) -> usize {
    text.len() + BESIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is kept, and how many are not.
    fn all(recent: &Recent) -> (Vec<String>, u64) {
        let (mut from, mut seen, mut missing) = (0, Vec::new(), 0);
        loop {
            let Lines { lines, next, lost, more } = recent.since(from);
            assert!(lines.len() == 1 || lines.iter().map(String::len).sum::<usize>() <= ANSWERED);
            assert!(next > from || !more);
            seen.extend(lines);
            missing += lost;
            from = next;
            if !more {
                return (seen, missing);
            }
        }
    }

    #[test]
    fn lines_are_given_in_order_once_and_what_is_lost_is_told() {
        let mut recent = Recent::default();
        assert_eq!(recent.since(0), Lines { lines: vec![], next: 0, lost: 0, more: false });
        for n in 0..100 {
            recent.push("a", format!("{n:01000}").as_bytes());
        }
        let (seen, lost) = all(&recent);
        let numbers: Vec<u64> = seen.iter().map(|line| line.parse().unwrap()).collect();
        assert_eq!((numbers, lost), ((0..100).collect(), 0));
        for _ in 0..3000 {
            recent.push("a", &[b'x'; 1000]);
        }
        let (seen, lost) = all(&recent);
        assert_eq!(seen.len() as u64 + lost, 3100);
        assert!(lost > 2000 && recent.bytes <= KEPT && recent.bytes > KEPT - 2000, "{lost}");
        assert_eq!(recent.since(1 << 40), Lines { lines: vec![], next: 3100, lost: 0, more: false });
    }

    #[test]
    fn a_line_that_is_longer_than_an_answer_is_still_given() {
        let mut recent = Recent::default();
        recent.push("a", &[b'x'; ANSWERED + 1]);
        recent.push("a", b"y");
        let answer = recent.since(0);
        assert!(answer.lines.len() == 1 && answer.more && recent.since(answer.next).lines == ["y"]);
    }

    #[test]
    fn one_that_makes_many_lines_pushes_out_no_other_ones() {
        let mut recent = Recent::default();
        for n in 0..300 {
            recent.push("quiet", format!("quiet {n}").as_bytes());
            recent.push("other", format!("other {n}").as_bytes());
        }
        for n in 0..50_000 {
            recent.push("flood", format!("flood {n} {:0200}", 0).as_bytes());
        }
        let (seen, lost) = all(&recent);
        let of = |whose: &str| seen.iter().filter(|line| line.starts_with(whose)).count();
        assert_eq!((of("quiet"), of("other")), (300, 300));
        assert!(of("flood") > 2000 && seen.last().unwrap().starts_with("flood 49999"));
        assert_eq!(seen.len() as u64 + lost, 50_600);
        // Two that flood share what there is.
        for n in 0..50_000 {
            recent.push("second", format!("second {n} {:0200}", 0).as_bytes());
        }
        let (seen, _) = all(&recent);
        let of = |whose: &str| seen.iter().filter(|line| line.starts_with(whose)).count();
        assert_eq!((of("quiet"), of("other")), (300, 300));
        assert!(
            of("flood").abs_diff(of("second")) < 10 && of("flood") > 1000,
            "{} {}",
            of("flood"),
            of("second")
        );
    }

    #[test]
    fn what_is_kept_is_bounded_whoever_comes_and_goes_and_however_short_lines_are() {
        let mut recent = Recent::default();
        for n in 0..100_000 {
            recent.push(&format!("{n:012}"), b"1");
        }
        assert!(recent.bytes <= KEPT && recent.lines.len() <= KEPT / BESIDE);
        assert_eq!((recent.shares.len(), recent.largest.len()), (recent.lines.len(), recent.lines.len()));
        assert_eq!(recent.since(99_999).lines, ["1"]);
    }

    #[test]
    fn what_is_left_of_many_that_are_gone_makes_room_for_one_that_runs() {
        let mut recent = Recent::default();
        for n in 0..10_000 {
            recent.push(&format!("gone {}", n / 5), &[b'x'; 400]);
        }
        for n in 0..200 {
            recent.push("runs", format!("runs {n} {:0400}", 0).as_bytes());
        }
        let (seen, _) = all(&recent);
        assert_eq!(seen.iter().filter(|line| line.starts_with("runs")).count(), 200);
    }
}
