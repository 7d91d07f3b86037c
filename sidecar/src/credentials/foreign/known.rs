//! Words that are credentials by their look, whatever place they stand in.

use crate::credentials::catalogue::pattern::is_word;
use crate::credentials::catalogue::{Catalogue, Pattern};
use crate::credentials::declaration::Declaration;
use crate::credentials::finder::decoded_forms;

/// What credentials at one host look like.
pub(super) struct Known<'v> {
    catalogue: &'v Catalogue,
    /// What was declared says what this host's own credentials look like.
    prefixes: Vec<&'v str>,
    patterns: Vec<&'v Pattern>,
}

/// The fewest characters after a declared prefix that make a credential of a word.
const SHORTEST_REST: usize = 20;

impl<'v> Known<'v> {
    pub(super) fn at(catalogue: &'v Catalogue, bound: &[&'v Declaration]) -> Self {
        // One or two characters tell nothing.
        let telling = |prefix: &str| prefix.len() >= 3;
        let prefixes = bound.iter().filter_map(|declaration| declaration.prefix.as_deref());
        let patterns = bound.iter().filter_map(|declaration| declaration.pattern.as_ref());
        Self {
            catalogue,
            prefixes: prefixes.filter(|prefix| telling(prefix)).collect(),
            patterns: patterns.filter(|pattern| telling(pattern.prefix())).collect(),
        }
    }

    /// Plain, or percent-encoded.
    pub(super) fn holds_credential(&self, text: &[u8]) -> bool {
        decoded_forms(text).any(|text| {
            let text = text.as_ref();
            self.catalogue.credential_in(text).is_some()
                || self.prefixes.iter().any(|prefix| words(text, prefix).any(is_long))
                || self
                    .patterns
                    .iter()
                    .any(|pattern| words(text, pattern.prefix()).any(|(_, text)| pattern.starts(text)))
        })
    }
}

/// Every place where a word starts with `prefix`: the length of the prefix, and the text from there on.
fn words<'t>(text: &'t [u8], prefix: &'t str) -> impl Iterator<Item = (usize, &'t [u8])> {
    let at = text.windows(prefix.len()).enumerate().filter(move |(_, window)| *window == prefix.as_bytes());
    let starts = at.map(|(at, _)| at).filter(|at| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !before.is_some_and(|before| is_word(*before))
    });
    starts.filter_map(move |at| Some((prefix.len(), text.get(at..)?)))
}

fn is_long((prefix, text): (usize, &[u8])) -> bool {
    let rest = text.get(prefix..).unwrap_or_default();
    let word: Vec<&u8> = rest.iter().take_while(|letter| is_word(**letter)).collect();
    word.len() >= SHORTEST_REST && word.iter().any(|letter| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::declaration;
    use crate::credentials::fixture::declared;

    #[test]
    fn what_was_declared_is_found_beside_what_everybody_knows() {
        let catalogue = Catalogue::new([]).unwrap();
        let text =
            [declared("a", "prefix = \"acme_\""), declared("b", "pattern = \"wid.{base62:16}\"")].concat();
        let declared = declaration::parse("secrets.toml", &text, &catalogue).unwrap();
        let bound: Vec<_> = declared.iter().collect();
        let known = Known::at(&catalogue, &bound);
        for (text, expected) in [
            ("acme_abcdefghij0123456789", true),
            ("?k=acme%5Fabcdefghij0123456789", true),
            ("x acme_abcdefghij0123456789", true),
            ("xacme_abcdefghij0123456789", false),
            ("acme_short1", false),
            ("acme_a-long-word-without-any-digits", false),
            ("wid.0123456789abcdef", true),
            ("wid.0123456789abcdef&x", true),
            ("wid.0123456789abcdefg", false),
            ("awid.0123456789abcdef", false),
            ("ghp%5FzQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17", true),
        ] {
            assert_eq!(known.holds_credential(text.as_bytes()), expected, "{text}");
        }
        assert!(!Known::at(&Catalogue::default(), &[]).holds_credential(b"acme_abcdefghij0123456789"));
    }
}
