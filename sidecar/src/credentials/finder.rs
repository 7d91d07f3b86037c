//! Finds known values in whatever form a request can carry them: plain in any letter case, percent-encoded (also more
//! than once), Base64 in either alphabet at any alignment. One pass over the text for all values together.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::iter::successors;

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD};
use percent_encoding::percent_decode;
use zeroize::Zeroizing;

/// How often percent-encoding is undone. Clients encode once, some twice by mistake.
const DECODINGS: usize = 3;

/// Knows values by the number that each was given. Does not print.
#[derive(Default)]
pub struct Finder {
    automaton: Option<AhoCorasick>,
    /// For each pattern of the automaton the number of the value that it is a form of.
    owners: Vec<usize>,
}

impl Finder {
    /// Values must have 16 characters or more: the forms of shorter ones would be found by accident.
    pub fn new<'v>(values: impl IntoIterator<Item = (usize, &'v str)>) -> Result<Self, BuildError> {
        let mut patterns = Vec::new();
        let mut owners = Vec::new();
        for (number, value) in values {
            for form in encoded_forms(value) {
                patterns.push(form);
                owners.push(number);
            }
        }
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            // The faster kind would need megabytes for a few long tokens, and request heads are short.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(patterns.iter().map(|pattern| pattern.as_slice()))?;
        Ok(Self { automaton: Some(automaton), owners })
    }

    /// The numbers of all values that are in `text` in some form.
    pub fn find(&self, text: &[u8]) -> BTreeSet<usize> {
        let Some(automaton) = &self.automaton else { return BTreeSet::new() };
        let mut found = BTreeSet::new();
        for text in decoded_forms(text) {
            let patterns = automaton.find_overlapping_iter(text.as_ref()).map(|hit| hit.pattern().as_usize());
            found.extend(patterns.filter_map(|pattern| self.owners.get(pattern).copied()));
        }
        found
    }
}

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Finder(..)")
    }
}

/// `text` itself, and what is left after undoing percent-encoding, as often as that changes something.
pub fn decoded_forms(text: &[u8]) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let decoded = |text: &Cow<'_, [u8]>| {
        let encoded = text.contains(&b'%');
        let decoded = encoded.then(|| percent_decode(text).collect::<Vec<u8>>())?;
        (decoded != **text).then_some(Cow::Owned(decoded))
    };
    successors(Some(Cow::Borrowed(text)), decoded).take(1 + DECODINGS)
}

/// Plain, and for each alignment and alphabet the part of its Base64 that is the same whatever stands around it.
fn encoded_forms(value: &str) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms = vec![Zeroizing::new(value.as_bytes().to_vec())];
    for shift in 0..3_usize {
        let mut shifted = Zeroizing::new(vec![0; shift]);
        shifted.extend_from_slice(value.as_bytes());
        // Six bits to a letter: those that hold a bit of what stands before, or of what follows, are left out.
        let (from, to) = ((shift * 8).div_ceil(6), shifted.len() * 8 / 6);
        for engine in [BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD] {
            let encoded = Zeroizing::new(engine.encode(shifted.as_slice()));
            if let Some(core) = encoded.as_bytes().get(from..to)
                && !forms.iter().any(|form| form.as_slice() == core)
            {
                forms.push(Zeroizing::new(core.to_vec()));
            }
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};
    use proptest::prelude::*;

    use super::*;

    fn finder() -> Finder {
        Finder::new([(4, "sk-0123456789+/?>~xyz"), (7, "another-value-of-some-length")]).unwrap()
    }

    #[test]
    fn several_values_are_found_together_and_others_not() {
        let text = b"a=another-value-of-some-length&b=SK-0123456789%2b%2F%3f%3E~xyz";
        assert_eq!(finder().find(text), BTreeSet::from([4, 7]));
        assert!(finder().find(b"sk-0123456789+/?>~xy").is_empty());
        assert!(finder().find(b"").is_empty() && Finder::default().find(text).is_empty());
    }

    #[test]
    fn percent_encoding_is_undone_more_than_once() {
        let encode = |text: &str| text.bytes().map(|b| format!("%{b:02x}")).collect::<String>();
        let once = encode("another-value-of-some-length");
        let twice = encode(&once);
        for text in [&once, &twice, &encode(&twice)] {
            assert_eq!(finder().find(text.as_bytes()), BTreeSet::from([7]), "{text}");
        }
        // What is no valid escape stays, and does not end the search.
        assert_eq!(finder().find(format!("%zz%{once}").as_bytes()), BTreeSet::from([7]));
    }

    proptest! {
        #[test]
        fn base64_is_found_whatever_stands_around(
            value in "[!-~]{16,40}", before in "[ -~]{0,5}", after in "[ -~]{0,5}",
        ) {
            let finder = Finder::new([(1, value.as_str())]).unwrap();
            let text = format!("{before}{value}{after}");
            for encoded in [BASE64_STANDARD.encode(&text), BASE64_URL_SAFE.encode(&text)] {
                prop_assert!(finder.find(format!("Basic {encoded}").as_bytes()).contains(&1), "{}", encoded);
            }
            prop_assert!(finder.find(text.as_bytes()).contains(&1));
        }

        #[test]
        fn nothing_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            finder().find(&text);
        }
    }
}
