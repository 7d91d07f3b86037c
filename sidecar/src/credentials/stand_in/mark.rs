//! The mark at the end of a stand-in: a tag over the letters before it under the installation's key. Whoever holds the
//! key can tell a stand-in of this installation from every other word, whatever secret it was made for.

use super::Drawn;
use crate::credentials::catalogue::Alphabet;
use crate::credentials::installation_key::InstallationKey;

/// What a mark can be made of. Words in URLs and headers end where these letters do.
const PLAIN: [Alphabet; 7] = [
    Alphabet::Digits,
    Alphabet::Hex,
    Alphabet::HexUpper,
    Alphabet::Base32,
    Alphabet::Base36,
    Alphabet::Letters,
    Alphabet::Base62,
];

/// How many letters or digits can follow a mark within a word: none, the last letter of a signature, `AA`, a checksum.
const BEHIND: [usize; 4] = [0, 1, 2, 6];

/// In letters: 40 bits or a little more, so that no other word has one by accident.
fn length(alphabet: Alphabet) -> usize {
    match alphabet.plain() {
        Alphabet::Digits => 13,
        Alphabet::Hex | Alphabet::HexUpper => 10,
        Alphabet::Base32 | Alphabet::Base36 | Alphabet::Letters => 8,
        _ => 7,
    }
}

/// How many letters the tag is over: 48 bits or a little more, so that stand-ins differ.
pub(super) fn window(alphabet: Alphabet) -> usize {
    match alphabet.plain() {
        Alphabet::Digits => 15,
        Alphabet::Hex | Alphabet::HexUpper => 12,
        Alphabet::Base32 | Alphabet::Base36 => 10,
        _ => 9,
    }
}

/// How many letters a part must have to hold both.
pub(super) fn needs(alphabet: Alphabet) -> usize {
    window(alphabet) + length(alphabet)
}

pub(super) fn of(key: &InstallationKey, plain: Alphabet, window: &str) -> String {
    let context = [b"understudy mark 1".as_slice(), plain.name().as_bytes(), window.as_bytes()];
    Drawn::new(key, &context).word(plain.letters(), length(plain))
}

/// Whether a stand-in of the installation is in `text`, plain.
pub fn is_in(key: &InstallationKey, text: &[u8]) -> bool {
    text.split(|letter| !letter.is_ascii_alphanumeric()).any(|word| {
        let ends = BEHIND.iter().filter_map(|behind| word.get(..word.len().checked_sub(*behind)?));
        ends.into_iter().any(|word| PLAIN.iter().any(|plain| ends_with_mark(key, *plain, word)))
    })
}

fn ends_with_mark(key: &InstallationKey, plain: Alphabet, word: &[u8]) -> bool {
    let Some(end) = word.len().checked_sub(needs(plain)).and_then(|start| word.get(start..)) else {
        return false;
    };
    if !end.iter().all(|letter| plain.holds(*letter)) {
        return false;
    }
    let (window, mark) = end.split_at(window(plain));
    std::str::from_utf8(window).is_ok_and(|window| of(key, plain, window).as_bytes() == mark)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> InstallationKey {
        InstallationKey::from_bytes(&[1; 32])
    }

    #[test]
    fn windows_and_marks_have_the_bits_that_they_should() {
        for plain in PLAIN {
            assert_eq!(plain.plain(), plain);
            let bits = |letters: usize| letters as f64 * (plain.letters().len() as f64).log2();
            assert!(bits(length(plain)) >= 40.0 && bits(length(plain) - 1) < 40.0, "{plain}");
            assert!(bits(window(plain)) >= 48.0 && bits(window(plain) - 1) < 48.0, "{plain}");
        }
    }

    proptest! {
        #[test]
        fn other_words_have_none(text in "[ -~]{0,200}") {
            prop_assert!(!is_in(&key(), text.as_bytes()));
        }

        #[test]
        fn a_marked_word_is_found_wherever_it_stands(
            window in "[A-Za-z0-9]{9}", before in "[ -~]{0,9}", behind in "([-_ /&=.?][ -~]{0,9})?",
        ) {
            let marked = format!("{before}{window}{}{behind}", of(&key(), Alphabet::Base62, &window));
            prop_assert!(is_in(&key(), marked.as_bytes()));
            prop_assert!(!is_in(&InstallationKey::from_bytes(&[2; 32]), marked.as_bytes()));
        }
    }
}
