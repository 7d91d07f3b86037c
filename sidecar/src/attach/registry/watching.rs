//! Waiting, for somebody who watches, until there is something to see.

use std::time::{Duration, Instant};

use understudy_control::{Lines, Mark, Refusal, Watch, Watched};

use super::Registry;

/// Each holds one of the places of the control socket's callers.
const MOST_WATCHERS: usize = 32;

impl Registry {
    /// The next lines, or what is asked now if that has changed; nothing of either once the time is over, or the caller is
    /// `gone`.
    pub fn watch(&self, wanted: &Watch, gone: impl Fn() -> bool) -> Result<Watched, Refusal> {
        let lines_from = |from| (self.parts.lines)(from);
        let seen = match wanted.seen {
            Some(seen) if seen.run == self.run => seen,
            // Of another run: all of this one is news.
            Some(_) => return Ok(self.watched(self.parts.questions.changes(), lines_from(0))),
            None => return Ok(self.watched(self.parts.questions.changes(), lines_from(u64::MAX))),
        };
        let Some(place) = self.parts.bell.place(MOST_WATCHERS) else {
            return Err(Refusal::new(
                format!("{MOST_WATCHERS} callers watch already"),
                "end one of them, or ask for what was written: understudy log",
            ));
        };
        let deadline = Instant::now() + Duration::from_secs(wanted.seconds.min(Watch::LONGEST));
        let look = || {
            let (lines, questions) = (lines_from(seen.line), self.parts.questions.changes());
            let something = !lines.lines.is_empty() || lines.lost > 0 || questions != seen.questions;
            something.then(|| self.watched(questions, lines))
        };
        let nothing = || Lines { lines: Vec::new(), next: seen.line, lost: 0, more: false };
        let came = place.wait(deadline, gone, look);
        Ok(came.unwrap_or_else(|| self.watched(seen.questions, nothing())))
    }

    /// `changes` is read before the questions are: one that comes between them is told the next time.
    fn watched(&self, changes: u64, lines: Lines) -> Watched {
        let Lines { lines, next, lost, .. } = lines;
        let mark = Mark { run: self.run, line: next, questions: changes };
        Watched { mark, lines, lost, questions: self.parts.questions.list() }
    }
}
