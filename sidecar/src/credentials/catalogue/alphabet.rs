//! Sets of letters that credentials are made of.

use std::fmt;
use std::str::FromStr;

use understudy_policies::document::closest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    Digits,
    Hex,
    HexUpper,
    Base32,
    Base36,
    Letters,
    Base62,
    Base64Url,
    Base64,
    /// What is not escaped in URLs (RFC 3986 section 2.3).
    Unreserved,
    /// ASCII without white space and controls.
    Printable,
}

const BASE62: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

impl Alphabet {
    /// From the smallest to the largest.
    pub const ALL: [Self; 11] = [
        Self::Digits,
        Self::Hex,
        Self::HexUpper,
        Self::Base32,
        Self::Base36,
        Self::Letters,
        Self::Base62,
        Self::Base64Url,
        Self::Base64,
        Self::Unreserved,
        Self::Printable,
    ];

    /// As it is written in patterns.
    pub fn name(self) -> &'static str {
        match self {
            Self::Digits => "digits",
            Self::Hex => "hex",
            Self::HexUpper => "hex-upper",
            Self::Base32 => "base32",
            Self::Base36 => "base36",
            Self::Letters => "letters",
            Self::Base62 => "base62",
            Self::Base64Url => "base64url",
            Self::Base64 => "base64",
            Self::Unreserved => "unreserved",
            Self::Printable => "printable",
        }
    }

    pub fn letters(self) -> &'static str {
        match self {
            Self::Digits => "0123456789",
            Self::Hex => "0123456789abcdef",
            Self::HexUpper => "0123456789ABCDEF",
            Self::Base32 => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
            Self::Base36 => "0123456789abcdefghijklmnopqrstuvwxyz",
            Self::Letters => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
            Self::Base62 => BASE62,
            Self::Base64Url => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
            Self::Base64 => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
            Self::Unreserved => "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~",
            Self::Printable => {
                "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
            }
        }
    }

    pub fn holds(self, letter: u8) -> bool {
        self.letters().as_bytes().contains(&letter)
    }

    /// The smallest that holds all of `text`, which is ASCII without white space and controls.
    pub fn of(text: &str) -> Self {
        // Words alone are no sign of an alphabet without digits.
        let learned = Self::ALL.into_iter().filter(|alphabet| *alphabet != Self::Letters);
        let mut fitting = learned.filter(|alphabet| text.bytes().all(|letter| alphabet.holds(letter)));
        fitting.next().unwrap_or(Self::Printable)
    }

    /// As much of it as needs no escaping in URLs, forms and JSON: what stand-ins are drawn from, so that programs which
    /// write them without thinking of that write them right.
    pub fn unescaped(self) -> Self {
        match self {
            Self::Base64 => Self::Base62,
            Self::Printable => Self::Unreserved,
            plain => plain,
        }
    }

    /// The letters and digits of it: what words in URLs and headers are made of.
    pub fn plain(self) -> Self {
        match self {
            Self::Base64Url | Self::Base64 | Self::Unreserved | Self::Printable => Self::Base62,
            plain => plain,
        }
    }
}

impl FromStr for Alphabet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|alphabet| alphabet.name() == text).ok_or_else(|| {
            match closest(text, Self::ALL.map(Self::name)) {
                Some(meant) => format!("no such alphabet; did you mean `{meant}`?"),
                None => format!("no such alphabet; known are: {}", Self::ALL.map(Self::name).join(", ")),
            }
        })
    }
}

impl fmt::Display for Alphabet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_that_fits_is_learned() {
        for (text, alphabet) in [
            ("0123", Alphabet::Digits),
            ("01ab", Alphabet::Hex),
            ("01AB", Alphabet::HexUpper),
            ("23XY", Alphabet::Base32),
            ("89xy", Alphabet::Base36),
            ("abXY", Alphabet::Base62),
            ("aX9_", Alphabet::Base64Url),
            ("aX9+", Alphabet::Base64),
            ("aX9.", Alphabet::Unreserved),
            ("aX9!", Alphabet::Printable),
        ] {
            assert_eq!(Alphabet::of(text), alphabet, "{text}");
        }
    }

    #[test]
    fn the_plain_part_is_part_of_it_and_letters_and_digits() {
        for alphabet in Alphabet::ALL {
            assert_eq!(alphabet.to_string().parse(), Ok(alphabet));
            let unescaped = alphabet.unescaped().letters().bytes();
            let harmless = |letter: u8| Alphabet::Unreserved.holds(letter) && alphabet.holds(letter);
            assert!(unescaped.into_iter().all(harmless), "{alphabet}");
            let plain = alphabet.plain().letters();
            assert!(plain.bytes().all(|letter| letter.is_ascii_alphanumeric() && alphabet.holds(letter)));
            let mut letters: Vec<u8> = alphabet.letters().bytes().collect();
            letters.sort_unstable();
            letters.dedup();
            assert_eq!(letters.len(), alphabet.letters().len(), "{alphabet}");
        }
        assert!("hexx".parse::<Alphabet>().unwrap_err().contains("did you mean `hex`?"));
    }
}
