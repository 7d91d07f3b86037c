//! Patterns found by the segments that they begin with: ten thousand of one host must not cost more than ten.

use std::collections::HashMap;

use super::PathPattern;
use super::pattern::bare;
use super::readings::{Readings, Segment};

/// What belongs to patterns, by their segments up to the first star. It finds all that could match, and perhaps more.
#[derive(Debug, Clone)]
pub(crate) struct PathIndex<T> {
    here: Vec<T>,
    next: HashMap<Segment, PathIndex<T>>,
}

/// So many segments are looked at.
const DEPTH: usize = 16;

impl<T> Default for PathIndex<T> {
    fn default() -> Self {
        Self { here: Vec::new(), next: HashMap::new() }
    }
}

impl<T: Copy + Ord> PathIndex<T> {
    pub(crate) fn add(&mut self, pattern: &PathPattern, value: T) {
        let (before, ends) = beginning(pattern);
        let node = before.into_iter().fold(self, |node, segment| node.next.entry(segment).or_default());
        match ends {
            Some(ends) => {
                ends.into_iter().for_each(|end| node.next.entry(end).or_default().here.push(value));
            }
            None => node.here.push(value),
        }
    }

    /// For every path.
    pub(crate) fn add_for_all(&mut self, value: T) {
        self.here.push(value);
    }

    /// In order, each once.
    pub(crate) fn about(&self, readings: &Readings) -> Vec<T> {
        let mut found = self.here.clone();
        let Some(readings) = readings.all() else {
            self.below(&mut found);
            return in_order(found);
        };
        for reading in readings {
            let mut node = self;
            for (at, segment) in reading.iter().enumerate() {
                // With or without the name of a format at the end.
                let stem = bare(segment, |letter| Some(*letter));
                if at + 1 == reading.len() && stem.len() < segment.len() {
                    found.extend(node.next.get(stem).into_iter().flat_map(|node| &node.here));
                }
                let Some(next) = node.next.get(segment) else { break };
                found.extend(&next.here);
                node = next;
            }
        }
        in_order(found)
    }

    fn below(&self, found: &mut Vec<T>) {
        for node in self.next.values() {
            found.extend(&node.here);
            node.below(found);
        }
    }

    /// Of patterns that could match all that this one does, or of every path if it is none.
    pub(crate) fn covering(&self, pattern: Option<&PathPattern>) -> Vec<T> {
        let mut found = self.here.clone();
        let (before, ends) = pattern.map(beginning).unwrap_or_default();
        let mut node = Some(self);
        for segment in before {
            node = node.and_then(|node| node.next.get(&segment));
            found.extend(node.into_iter().flat_map(|node| &node.here));
        }
        let ends = ends.into_iter().flatten().filter_map(|end| node?.next.get(&end));
        found.extend(ends.flat_map(|node| &node.here));
        in_order(found)
    }
}

/// Its segments up to the first star, and if there is none, what the last one may be instead of the last.
fn beginning(pattern: &PathPattern) -> (Vec<Segment>, Option<Vec<Segment>>) {
    let mut before = Vec::new();
    for segment in pattern.plain().take(DEPTH) {
        match segment {
            Some(segment) => before.push(segment),
            None => return (before, None),
        }
    }
    if pattern.len() > DEPTH || before.is_empty() {
        return (before, None);
    }
    let last = before.pop().unwrap_or_default();
    let stem = bare(&last, |letter| Some(*letter)).to_vec();
    let ends = if stem.len() < last.len() { vec![last, stem] } else { vec![last] };
    (before, Some(ends))
}

fn in_order<T: Ord>(mut found: Vec<T>) -> Vec<T> {
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::RequestPath;

    fn index(patterns: &[PathPattern]) -> PathIndex<usize> {
        let mut index = PathIndex::default();
        patterns.iter().enumerate().for_each(|(at, pattern)| index.add(pattern, at));
        index
    }

    #[test]
    fn of_ten_thousand_few_are_looked_at() {
        let patterns: Vec<PathPattern> =
            (0..10_000).map(|at| format!("/packages/{at}/*").parse().unwrap()).collect();
        let index = index(&patterns);
        assert_eq!(index.about(&Readings::of("/packages/4711/x.tgz")), [4711]);
        assert_eq!(index.about(&Readings::of("/PACKAGES//%34711/x.tgz")), [4711]);
        assert!(index.about(&Readings::of("/other/4711/x")).is_empty());
        assert_eq!(index.covering(Some(&patterns[7])), [7]);
    }

    #[test]
    fn a_path_that_may_be_any_is_about_all() {
        let patterns: Vec<PathPattern> = ["/a/b/c", "/d", "/**"].map(|path| path.parse().unwrap()).into();
        assert_eq!(index(&patterns).about(&Readings::of(&"/x".repeat(300))), [0, 1, 2]);
    }

    #[test]
    fn a_path_of_many_segments_is_no_deep_tree() {
        let long: PathPattern = "/a".repeat(200).parse().unwrap();
        assert_eq!(index(std::slice::from_ref(&long)).about(&Readings::of(&"/a".repeat(20))), [0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn it_finds_whatever_matches(
            patterns in proptest::collection::vec("(/(\\*\\*|[aB*]{1,2}(\\.json|%41)?)){0,3}/?", 1..8),
            raw in "(/([aAbB]{1,2}|%61|%2561|;x|\\.\\.|)(\\.json|\\.xml)?){0,4}/?",
        ) {
            let patterns = patterns.iter().filter_map(|text| text.replace("**", "*").parse().ok());
            let patterns: Vec<PathPattern> = patterns.chain(["/a/**".parse().unwrap()]).collect();
            let (index, readings) = (index(&patterns), Readings::of(&raw));
            let found = index.about(&readings);
            let path = RequestPath::parse(&raw);
            for (at, pattern) in patterns.iter().enumerate() {
                let surely = path.as_ref().is_ok_and(|path| pattern.matches_surely(path));
                let matches = surely || pattern.matches_possibly(&readings);
                prop_assert!(!matches || found.contains(&at), "{pattern} {raw}");
                for (of, other) in patterns.iter().enumerate() {
                    let covers = other.covers(pattern) || other.takes(pattern);
                    prop_assert!(!covers || index.covering(Some(pattern)).contains(&of), "{other} {pattern}");
                }
            }
        }
    }
}
