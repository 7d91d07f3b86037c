//! Looking for credentials where none must be.

use aho_corasick::AhoCorasick;
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// How much of a form is looked for: its end, as stand-ins of JSON Web Tokens share all but that with the real ones.
const TAIL: usize = 64;

/// Values in every form that a search should find; one search finds any of thousands.
#[derive(Clone)]
pub struct Needles(AhoCorasick);

impl Needles {
    /// Plain, base64 at any alignment (both alphabets), hexadecimal, and with two bytes a character (UTF-16).
    ///
    /// # Errors
    /// If there is too much to look for.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let values = values.into_iter().filter(|value| !value.is_empty());
        let forms = values.flat_map(|value| forms(value.as_bytes()));
        let tails = forms.map(|form| form[form.len().saturating_sub(TAIL)..].to_vec());
        Ok(Self(AhoCorasick::new(tails)?))
    }

    /// Whether any is in these bytes.
    pub fn find(&self, haystack: &[u8]) -> bool {
        self.0.is_match(haystack)
    }
}

fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![value.to_vec()];
    for offset in 0..3 {
        let shifted = [&b"\0\0\0"[..offset], value].concat();
        // characters that depend on the bytes before or after the value are cut
        let (start, end) = ((offset * 8).div_ceil(6), shifted.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)] {
            forms.extend(text.as_bytes().get(start..end).map(<[u8]>::to_vec));
        }
    }
    let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    forms.push(hex.to_uppercase().into_bytes());
    forms.push(hex.into_bytes());
    forms.push(value.iter().flat_map(|byte| [*byte, 0]).collect());
    forms
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const VALUE: &str = "sk-ant-api03-0123456789?>";

    #[test]
    fn every_form_is_found() {
        let needles = Needles::new([VALUE]).unwrap();
        let basic = |user: &str| STANDARD.encode(format!("{user}:{VALUE}\n"));
        for text in [format!("x{VALUE}y"), basic("a"), basic("ab"), basic("abc"), basic("abcd")] {
            assert!(needles.find(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn another_value_is_not() {
        let needles = Needles::new([VALUE]).unwrap();
        for text in ["", "s", "sk-ant-api03-0123456789?", "sk-ant-api03-1123456789?>"] {
            assert!(!needles.find(text.as_bytes()), "{text}");
        }
    }
}
