//! Checksums at the end of credentials, by which clients and scanners tell them from other words.

use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32 (ISO 3309) of the part before it, in base 62 with the digits first, six characters. GitHub's tokens since
    /// 2021 end so, and tokens of a well-known package registry.
    Crc32Base62,
}

/// In the order of their values, which is not that of [`super::Alphabet::Base62`].
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl Checksum {
    /// As it is written in patterns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32Base62 => "crc32-base62",
        }
    }

    /// In characters.
    pub fn length(self) -> usize {
        match self {
            Self::Crc32Base62 => 6,
        }
    }

    pub fn of(self, text: &[u8]) -> String {
        match self {
            Self::Crc32Base62 => {
                let crc = crc32fast::hash(text) as usize;
                // 62^6 is more than 2^32.
                let digit = |place: u32| DIGITS.get(crc / 62_usize.pow(place) % 62).copied().unwrap_or(b'0');
                (0..6).rev().map(|place| char::from(digit(place))).collect()
            }
        }
    }
}

impl FromStr for Checksum {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == Self::Crc32Base62.name() { Ok(Self::Crc32Base62) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_examples_have_the_right_one() {
        // Two tokens that were published as examples and are worth nothing.
        let of = |text: &str| Checksum::Crc32Base62.of(text.as_bytes());
        assert_eq!(of("zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ"), "0mLq17");
        assert_eq!(of("qkJaB6MffYVzZXWqmcoF49yrUxP3wf"), "0LsakP");
    }

    #[test]
    fn it_is_always_as_long() {
        let short = (0..2000_u32).map(|n| Checksum::Crc32Base62.of(&n.to_be_bytes()));
        assert!(short.into_iter().all(|sum| sum.len() == 6));
    }
}
