//! Looking for credentials where none must be.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem::Finder;

/// Values in every form that a search should find.
#[derive(Clone)]
pub struct Needles(Vec<Finder<'static>>);

impl Needles {
    /// Plain, base64 at any alignment (both alphabets), hexadecimal, and with two bytes a character (UTF-16).
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let values = values.into_iter().filter(|value| !value.is_empty());
        Self(
            values
                .flat_map(|value| forms(value.as_bytes()))
                .map(|form| Finder::new(&form).into_owned())
                .collect(),
        )
    }

    /// Whether any is in these bytes.
    pub fn find(&self, haystack: &[u8]) -> bool {
        self.0.iter().any(|needle| needle.find(haystack).is_some())
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
        let needles = Needles::new([VALUE]);
        let basic = |user: &str| STANDARD.encode(format!("{user}:{VALUE}\n"));
        for text in [format!("x{VALUE}y"), basic("a"), basic("ab"), basic("abc"), basic("abcd")] {
            assert!(needles.find(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn another_value_is_not() {
        let needles = Needles::new([VALUE]);
        for text in ["", "s", "sk-ant-api03-0123456789?", "sk-ant-api03-1123456789?>"] {
            assert!(!needles.find(text.as_bytes()), "{text}");
        }
    }
}
