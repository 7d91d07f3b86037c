//! All values of one search, shared by every stream that searches for them.

use std::borrow::Cow;
use std::fmt;

use super::escaped::is_unreserved;
use super::form::{Form, Forms, Probe};
use super::starts::Starts;

/// A value and what stands in its place. Both are ASCII and have the same length.
#[derive(Clone)]
pub struct Pair<'v> {
    /// Told for each find.
    pub owner: usize,
    pub value: &'v str,
    /// The value again in a search that replaces nothing.
    pub other: Cow<'v, str>,
    pub forms: Forms,
}

/// Does not print.
pub struct Patterns {
    patterns: Vec<Pattern>,
    /// None without any form.
    starts: Option<Starts>,
    /// Sorted: the first three bytes, and the pattern that can start with them. Values of one provider share two.
    by_start: Vec<([u8; 3], usize)>,
    longest: usize,
    keeps_length: bool,
}

struct Pattern {
    owner: usize,
    form: Form,
}

/// What comes next in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    /// From here on it depends on what follows.
    Undecided(usize),
    /// Where, how many bytes, which pattern.
    Match(usize, usize, usize),
}

impl Patterns {
    pub fn new<'v>(pairs: impl IntoIterator<Item = Pair<'v>>) -> Self {
        let mut keeps_length = true;
        let mut patterns = Vec::new();
        for pair in pairs {
            keeps_length &= pair.value.len() == pair.other.len();
            keeps_length &= pair.value.bytes().chain(pair.other.bytes()).all(is_unreserved);
            let forms = Form::all(pair.value, &pair.other, pair.forms);
            patterns.extend(forms.into_iter().map(|form| Pattern { owner: pair.owner, form }));
        }
        let by_start = by_start(&patterns);
        let starts = (!by_start.is_empty()).then(|| Starts::new(by_start.iter().map(|(start, _)| *start)));
        let longest = patterns.iter().map(|pattern| pattern.form.longest()).max().unwrap_or(0);
        Self { patterns, starts, by_start, longest, keeps_length }
    }

    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The most bytes of any form: no stream holds back as many.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Whether whatever is replaced has the length of what stands there then.
    pub fn keeps_length(&self) -> bool {
        self.keeps_length
    }

    /// The first find in `text` at `from` or later; of several at one place, the longest. Nothing follows if it is the
    /// `last` text.
    pub(super) fn next(&self, text: &[u8], from: usize, last: bool) -> Found {
        let mut at = from;
        while let Some(start) = self.candidate(text, at, last) {
            let rest = text.get(start..).unwrap_or_default();
            let mut longest = None;
            let three = match rest {
                [first, second, third, ..] => [*first, *second, *third],
                // No form is as short.
                _ if last => return Found::Nothing,
                _ => return Found::Undecided(start),
            };
            for pattern in self.starting_with(three) {
                match self.patterns.get(pattern).map(|known| known.form.probe(rest)) {
                    Some(Probe::Partial) if !last => return Found::Undecided(start),
                    Some(Probe::Match(length)) => longest = longest.max(Some((length, pattern))),
                    _ => {}
                }
            }
            if let Some((length, pattern)) = longest {
                return Found::Match(start, length, pattern);
            }
            at = start + 1;
        }
        Found::Nothing
    }

    /// Whether any is in a text that nothing follows.
    pub fn are_in(&self, text: &[u8]) -> bool {
        matches!(self.next(text, 0, true), Found::Match(..))
    }

    pub(super) fn owner(&self, pattern: usize) -> Option<usize> {
        self.patterns.get(pattern).map(|pattern| pattern.owner)
    }

    pub(super) fn rewrite(&self, pattern: usize, matched: &[u8], out: &mut Vec<u8>) {
        if let Some(pattern) = self.patterns.get(pattern) {
            pattern.form.rewrite(matched, out);
        }
    }

    fn candidate(&self, text: &[u8], from: usize, last: bool) -> Option<usize> {
        let starts = self.starts.as_ref()?;
        let rest = text.get(from..)?;
        // The very last byte may be the first of two.
        let lone = || {
            let first = rest.last().filter(|_| !last)?;
            self.starting_with_byte(*first).then(|| rest.len() - 1)
        };
        starts.first_in(rest).or_else(lone).map(|offset| from + offset)
    }

    fn starting_with(&self, three: [u8; 3]) -> impl Iterator<Item = usize> {
        let first = self.by_start.partition_point(|(start, _)| *start < three);
        let known = self.by_start.get(first..).unwrap_or_default().iter();
        known.take_while(move |(start, _)| *start == three).map(|(_, pattern)| *pattern)
    }

    fn starting_with_byte(&self, byte: u8) -> bool {
        let first = self.by_start.partition_point(|(start, _)| *start < [byte, 0, 0]);
        self.by_start.get(first).is_some_and(|([first, ..], _)| *first == byte)
    }
}

impl fmt::Debug for Patterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Patterns({} forms)", self.patterns.len())
    }
}

/// Asks each form about all bytes: no second place knows how forms start.
fn by_start(patterns: &[Pattern]) -> Vec<([u8; 3], usize)> {
    let mut by_start = Vec::new();
    for (number, pattern) in patterns.iter().enumerate() {
        let fits = |text: &[u8]| pattern.form.probe(text) != Probe::No;
        let first = (0..=u8::MAX).filter(|first| fits(&[*first]));
        let two = first.flat_map(|first| (0..=u8::MAX).map(move |second| [first, second]));
        let two = two.filter(|two| fits(two));
        let three = two.flat_map(|[first, second]| (0..=u8::MAX).map(move |third| [first, second, third]));
        by_start.extend(three.filter(|three| fits(three)).map(|three| (three, number)));
    }
    by_start.sort_unstable();
    by_start
}
