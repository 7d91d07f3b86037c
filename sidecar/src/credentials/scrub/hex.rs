//! Hexadecimal digits, in lower or upper case.

use zeroize::Zeroizing;

use super::form::{Probe, hex_of, nibble};

pub(super) struct Hex {
    value: Zeroizing<Vec<u8>>,
    other: Zeroizing<Vec<u8>>,
}

impl Hex {
    pub(super) fn new(value: &str, other: &str) -> Self {
        let bytes = |text: &str| Zeroizing::new(text.as_bytes().to_vec());
        Self { value: bytes(value), other: bytes(other) }
    }

    pub(super) fn probe(&self, text: &[u8]) -> Probe {
        let nibbles = self.value.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        if nibbles.zip(text).any(|(wanted, digit)| nibble(*digit) != Some(wanted)) {
            return Probe::No;
        }
        if text.len() < self.longest() { Probe::Partial } else { Probe::Match(self.longest()) }
    }

    pub(super) fn rewrite(&self, matched: &[u8], out: &mut Vec<u8>) {
        let upper = matched.iter().any(u8::is_ascii_uppercase);
        self.other.iter().for_each(|byte| out.extend(hex_of(*byte, upper)));
    }

    pub(super) fn longest(&self) -> usize {
        self.value.len() * 2
    }
}
