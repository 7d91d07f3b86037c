//! Base64 (RFC 4648 sections 4 and 5) of a longer text that has the value in it.
//!
//! Six bits are one letter, so the letters that a value is written with depend on where it starts in a group of three
//! bytes, and its first and last letter may hold bits of what stands around it. Those bits are left alone, so what is
//! decoded is the text with the value replaced and nothing else.

use zeroize::Zeroizing;

use super::form::Probe;

pub(super) struct Base64 {
    letters: Zeroizing<Vec<Letter>>,
}

/// Six bits of which those in `mask` are the value's.
#[derive(Clone, Copy, Default)]
struct Letter {
    mask: u8,
    value: u8,
    other: u8,
}

impl zeroize::DefaultIsZeroes for Letter {}

impl Base64 {
    /// The value starts `shift` bytes (0 to 2) into a group of three. The counterpart has the same length.
    pub(super) fn new(value: &str, other: &str, shift: usize) -> Self {
        let shifted = |text: &[u8]| Zeroizing::new([vec![0; shift].as_slice(), text].concat());
        let (mask, value, other) =
            (shifted(&vec![0xff; value.len()]), shifted(value.as_bytes()), shifted(other.as_bytes()));
        let letter = |index| Letter {
            mask: sextet(&mask, index),
            value: sextet(&value, index),
            other: sextet(&other, index),
        };
        let count = (mask.len() * 8).div_ceil(6);
        let mut letters = Zeroizing::new((0..count).map(letter).collect::<Vec<_>>());
        // A shared letter that stays as it is need not be waited for.
        let idle = |letter: &&Letter| letter.mask != 63 && letter.value == letter.other;
        let lead = letters.iter().take(shift + 1).take_while(idle).count();
        letters.drain(..lead);
        if letters.last().as_ref().is_some_and(idle) {
            letters.pop();
        }
        Self { letters }
    }

    pub(super) fn probe(&self, text: &[u8]) -> Probe {
        let fits = |letter: &Letter, byte: u8| decoded(byte).is_some_and(|b| b & letter.mask == letter.value);
        if self.letters.iter().zip(text).any(|(letter, byte)| !fits(letter, *byte)) {
            return Probe::No;
        }
        if text.len() < self.longest() { Probe::Partial } else { Probe::Match(self.longest()) }
    }

    pub(super) fn rewrite(&self, matched: &[u8], out: &mut Vec<u8>) {
        let url = matched.iter().any(|byte| matches!(byte, b'-' | b'_'));
        let letters = self.letters.iter().zip(matched);
        out.extend(letters.map(|(letter, byte)| {
            encoded(decoded(*byte).unwrap_or_default() & !letter.mask | letter.other, url)
        }));
    }

    pub(super) fn longest(&self) -> usize {
        self.letters.len()
    }
}

/// The letter at `index`, from the left; bits behind the end are 0.
fn sextet(bytes: &[u8], index: usize) -> u8 {
    let bit = index * 6;
    let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or_default());
    let pair = byte(bit / 8) << 8 | byte(bit / 8 + 1);
    (pair >> (10 - bit % 8) & 63) as u8
}

fn decoded(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

fn encoded(sextet: u8, url: bool) -> u8 {
    match (sextet, url) {
        (0..=25, _) => b'A' + sextet,
        (26..=51, _) => b'a' + sextet - 26,
        (52..=61, _) => b'0' + sextet - 52,
        (62, true) => b'-',
        (62, false) => b'+',
        (_, true) => b'_',
        (_, false) => b'/',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_decode_to_what_they_encode() {
        for sextet in 0..64 {
            for url in [false, true] {
                assert_eq!(decoded(encoded(sextet, url)), Some(sextet));
            }
        }
        assert_eq!((0..=255).filter(|byte| decoded(*byte).is_some()).count(), 66);
    }
}
