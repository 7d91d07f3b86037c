//! The last lines, for an operator who asks the sidecar itself.

use std::collections::VecDeque;

use understudy_control::Lines;

/// What is kept, in bytes.
const KEPT: usize = 1 << 20;
/// Of one answer. Quotes double in it, and the packet has to hold it.
const ANSWERED: usize = 40 * 1024;

#[derive(Debug, Default)]
pub(super) struct Recent {
    lines: VecDeque<Box<str>>,
    bytes: usize,
    /// The number of the first line that is kept; the first ever is 0.
    first: u64,
}

impl Recent {
    pub(super) fn push(&mut self, line: &[u8]) {
        let Ok(line) = std::str::from_utf8(line) else { return };
        self.bytes += line.len();
        self.lines.push_back(line.into());
        while self.bytes > KEPT {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len();
            self.first += 1;
        }
    }

    pub(super) fn since(&self, from: u64) -> Lines {
        let start = from.max(self.first);
        let skipped = usize::try_from(start - self.first).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let mut lines = Vec::new();
        for line in self.lines.iter().skip(skipped) {
            bytes += line.len();
            if bytes > ANSWERED && !lines.is_empty() {
                break;
            }
            lines.push(line.to_string());
        }
        let last = self.first + self.lines.len() as u64;
        // Who asks for lines that are not there yet, as after a restart, begins anew.
        let next = start.min(last) + lines.len() as u64;
        Lines { lines, next, lost: start - from, more: next < last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_given_in_order_once_and_what_is_lost_is_told() {
        let mut recent = Recent::default();
        assert_eq!(recent.since(0), Lines { lines: vec![], next: 0, lost: 0, more: false });
        for n in 0..100 {
            recent.push(format!("{n:01000}").as_bytes());
        }
        let (mut from, mut seen) = (0, Vec::new());
        loop {
            let Lines { lines, next, lost, more } = recent.since(from);
            assert!(lost == 0 && lines.iter().map(String::len).sum::<usize>() <= ANSWERED);
            seen.extend(lines.into_iter().map(|line| line.parse::<u64>().unwrap()));
            from = next;
            if !more {
                break;
            }
        }
        assert_eq!(seen, (0..100).collect::<Vec<u64>>());
        for _ in 0..3000 {
            recent.push(&[b'x'; 1000]);
        }
        let answer = recent.since(from);
        assert!(answer.lost > 1900 && answer.more, "{}", answer.lost);
        assert_eq!(recent.since(1 << 40), Lines { lines: vec![], next: 3100, lost: 0, more: false });
    }

    #[test]
    fn a_line_that_is_longer_than_an_answer_is_still_given() {
        let mut recent = Recent::default();
        recent.push(&[b'x'; ANSWERED + 1]);
        recent.push(b"y");
        let answer = recent.since(0);
        assert!(answer.lines.len() == 1 && answer.more && recent.since(answer.next).lines == ["y"]);
    }
}
