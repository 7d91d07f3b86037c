//! What containers see instead of a secret: the same shape, none of the content.
//!
//! HMAC-SHA256 (RFC 2104) under the installation's key, over the secret's name, is stretched by a counter and drawn
//! from without bias. So a stand-in is the same in every container of an installation and after every restart and
//! rotation, and says nothing about the real value but its shape.

use ring::hmac;

use super::installation_key::InstallationKey;
use super::secret::SecretValue;

/// The fewest characters that differ from the real value; with fewer it could be guessed.
pub const MIN_DRAWN: usize = 12;

/// Prefixes by which clients and services tell credentials apart; the longest that fits is kept.
pub const KNOWN_PREFIXES: [&str; 38] = [
    "sk-ant-api03-",
    "sk-ant-admin01-",
    "sk-ant-oat01-",
    "sk-ant-ort01-",
    "sk-ant-sid01-",
    "sk-ant-",
    "sk-proj-",
    "sk-svcacct-",
    "sk-admin-",
    "sk-or-v1-",
    "sk-",
    "github_pat_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "glpat-",
    "gldt-",
    "glrt-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AIza",
    "ya29.",
    "shptka_",
    "shpat_",
    "shpca_",
    "shppa_",
    "npm_",
    "pypi-",
    "hf_",
    "gsk_",
    "xai-",
    "sgamp_user_",
    "sgamp_",
    "dckr_pat_",
    "AKIA",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("the value does not start with the declared `prefix`")]
    Prefix,
    #[error("after the declared `prefix` the value has fewer than {MIN_DRAWN} characters")]
    Short,
}

/// The stand-in of the secret `name`: the real value's prefix, length and alphabet. Never the real value.
pub fn derive(
    key: &InstallationKey,
    name: &str,
    real: &SecretValue,
    declared_prefix: Option<&str>,
) -> Result<String, ShapeError> {
    let (prefix, rest, suffix) = shape(real.expose(), declared_prefix)?;
    let alphabet = alphabet(rest);
    let mut drawn = Drawn::new(key, name);
    loop {
        let middle: String = (0..rest.len()).map(|_| drawn.letter(alphabet)).collect();
        let stand_in = format!("{prefix}{middle}{suffix}");
        if !real.is(stand_in.as_bytes()) {
            return Ok(stand_in);
        }
    }
}

/// Whether `text` is what [`derive`] would draw for the secret `name`, given a value of that shape.
pub fn is_of(key: &InstallationKey, name: &str, text: &SecretValue, declared_prefix: Option<&str>) -> bool {
    let Ok((prefix, rest, suffix)) = shape(text.expose(), declared_prefix) else { return false };
    let alphabet = alphabet(rest);
    let mut drawn = Drawn::new(key, name);
    let middle: String = (0..rest.len()).map(|_| drawn.letter(alphabet)).collect();
    text.is(format!("{prefix}{middle}{suffix}").as_bytes())
}

/// Prefix, what is drawn anew, suffix.
fn shape<'v>(real: &'v str, declared: Option<&str>) -> Result<(&'v str, &'v str, &'v str), ShapeError> {
    let prefix = match declared {
        Some(declared) => {
            let rest = real.strip_prefix(declared).ok_or(ShapeError::Prefix)?;
            if rest.len() < MIN_DRAWN {
                return Err(ShapeError::Short);
            }
            declared.len()
        }
        None => {
            let fits = |known: &&&str| real.strip_prefix(**known).is_some_and(|rest| rest.len() >= MIN_DRAWN);
            KNOWN_PREFIXES.iter().filter(fits).map(|known| known.len()).max().unwrap_or(0)
        }
    };
    let (prefix, rest) = real.split_at(prefix);
    // Base64 padding says no more than the length does; drawn, it would end up in the middle.
    let body = rest.trim_end_matches('=');
    let body = if rest.len() - body.len() <= 2 && body.len() >= MIN_DRAWN { body } else { rest };
    // This provider's keys end so, and scanners look for it.
    let body = match body.strip_suffix("AA") {
        Some(shorter) if prefix == "sk-ant-api03-" && shorter.len() >= MIN_DRAWN => shorter,
        _ => body,
    };
    let (body, suffix) = rest.split_at(body.len());
    Ok((prefix, body, suffix))
}

const DIGITS: &str = "0123456789";
const HEX_LOWER: &str = "0123456789abcdef";
const HEX_UPPER: &str = "0123456789ABCDEF";
const BASE32: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE36: &str = "0123456789abcdefghijklmnopqrstuvwxyz";
const BASE62: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64_URL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// RFC 3986 section 2.3: what is not escaped in URLs.
const UNRESERVED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
const PRINTABLE: &str =
    "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~";

/// The smallest that holds all of `text`.
fn alphabet(text: &str) -> &'static str {
    let by_size = [DIGITS, HEX_LOWER, HEX_UPPER, BASE32, BASE36, BASE62, BASE64_URL, BASE64, UNRESERVED];
    let holds = |alphabet: &&str| text.chars().all(|c| alphabet.contains(c));
    by_size.into_iter().find(holds).unwrap_or(PRINTABLE)
}

/// An endless stream of pseudo-random bytes for one name.
struct Drawn<'k> {
    key: &'k InstallationKey,
    name: &'k str,
    block: Vec<u8>,
    counter: u64,
}

impl<'k> Drawn<'k> {
    fn new(key: &'k InstallationKey, name: &'k str) -> Self {
        Self { key, name, block: Vec::new(), counter: 0 }
    }

    fn letter(&mut self, alphabet: &str) -> char {
        // The largest multiple of the alphabet's size: bytes above it would favour its first letters.
        let limit = 256 - 256 % alphabet.len();
        loop {
            let byte = usize::from(self.byte());
            if byte >= limit {
                continue;
            }
            if let Some(letter) = alphabet.as_bytes().get(byte % alphabet.len()) {
                return char::from(*letter);
            }
        }
    }

    fn byte(&mut self) -> u8 {
        loop {
            if let Some(byte) = self.block.pop() {
                return byte;
            }
            let mut context = hmac::Context::with_key(self.key.hmac());
            context.update(b"understudy stand-in 1\0");
            context.update(self.name.as_bytes());
            context.update(b"\0");
            context.update(&self.counter.to_be_bytes());
            self.block = context.sign().as_ref().to_vec();
            self.counter += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stand_in(key: u8, name: &str, real: &str, prefix: Option<&str>) -> Result<String, ShapeError> {
        let real = SecretValue::from_bytes(real.as_bytes()).unwrap();
        derive(&InstallationKey::from_bytes(&[key; 32]), name, &real, prefix)
    }

    #[test]
    fn prefix_length_and_alphabet_are_kept() {
        let body = "Ab0-_xyzAb0-_xyzAb0-_xyz";
        for (real, prefix, alphabet) in [
            (format!("sk-ant-api03-{body}{body}{body}{body}AA"), "sk-ant-api03-", BASE64_URL),
            (format!("sk-ant-oat01-{body}"), "sk-ant-oat01-", BASE64_URL),
            (format!("sk-proj-{body}"), "sk-proj-", BASE64_URL),
            ("ghp_abcdefghijKLMNOPQRST0123456789abcdef".into(), "ghp_", BASE62),
            ("xoxb-123456789012-123456789012-AbCdEf".into(), "xoxb-", BASE64_URL),
            ("shptka_0123456789abcdef0123456789abcdef".into(), "shptka_", HEX_LOWER),
            ("0123456789012345".into(), "", DIGITS),
            ("0123456789ABCDEF".into(), "", HEX_UPPER),
            ("0123456789abcdef".into(), "", HEX_LOWER),
            ("ABCDEFGHIJKLMN234567".into(), "", BASE32),
            ("abcdefghijklmnopqrst0189".into(), "", BASE36),
            ("AAAAbbbbCCCC1111+/".into(), "", BASE64),
            ("eyJhbGciOi.eyJzdWIiOi.c2ln".into(), "", UNRESERVED),
            ("p@ssw0rd!p@ssw0rd!".into(), "", PRINTABLE),
        ] {
            let stand_in = stand_in(1, "n", &real, None).unwrap();
            assert_eq!(stand_in.len(), real.len(), "{real}");
            let rest = stand_in.strip_prefix(prefix).unwrap_or_else(|| panic!("{stand_in}"));
            assert!(rest.chars().all(|c| alphabet.contains(c)), "{stand_in} of {real}");
            assert_ne!(stand_in, real);
        }
    }

    #[test]
    fn padding_and_known_endings_stay_at_the_end() {
        assert!(stand_in(1, "n", "AAAAbbbbCCCC1111+/a=", None).unwrap().ends_with('='));
        assert!(stand_in(1, "n", "sk-ant-api03-abcdefghijklmnopqrstAA", None).unwrap().ends_with("AA"));
        let equal_signs = stand_in(1, "n", "abcdefghijklmnop====", None).unwrap();
        assert_eq!(equal_signs.len(), 20);
    }

    #[test]
    fn a_known_prefix_that_leaves_too_little_gives_way_to_a_shorter_one() {
        let stand_in = stand_in(1, "n", "sk-ant-api03-abc", None).unwrap();
        assert!(stand_in.starts_with("sk-") && !stand_in.starts_with("sk-ant-api03-"), "{stand_in}");
    }

    #[test]
    fn a_declared_prefix_is_kept_and_must_fit() {
        let real = "acme_0123456789abcdef";
        assert!(stand_in(1, "n", real, Some("acme_")).unwrap().starts_with("acme_"));
        assert_eq!(stand_in(1, "n", real, Some("other_")), Err(ShapeError::Prefix));
        assert_eq!(stand_in(1, "n", real, Some("acme_01234567")), Err(ShapeError::Short));
    }

    /// Changing this changes every container's stand-ins under its running agents.
    #[test]
    fn the_derivation_does_not_change() {
        assert_eq!(stand_in(1, "anthropic", "0123456789abcdef", None).unwrap(), "165c28891864cc25");
    }

    #[test]
    fn a_value_that_would_be_its_own_stand_in_gets_another() {
        let own = stand_in(1, "n", "0123456789012345", None).unwrap();
        let other = stand_in(1, "n", &own, None).unwrap();
        assert!(other != own && other.len() == own.len());
    }

    #[test]
    fn a_stand_in_is_told_from_a_real_value_without_knowing_the_real_one() {
        for real in ["sk-ant-api03-abcdefghijKLMNOP0123-_AA", "ghp_abcdefghijKLMNOPQRST0123456789abcdef"] {
            let text = SecretValue::from_bytes(stand_in(1, "n", real, None).unwrap().as_bytes()).unwrap();
            let is = |key: u8, name| is_of(&InstallationKey::from_bytes(&[key; 32]), name, &text, None);
            assert!(is(1, "n") && !is(1, "m") && !is(2, "n"));
            let real = SecretValue::from_bytes(real.as_bytes()).unwrap();
            assert!(!is_of(&InstallationKey::from_bytes(&[1; 32]), "n", &real, None));
        }
    }

    proptest! {
        #[test]
        fn shape_holds_for_any_value(real in "[!-~]{16,80}", name in "[a-z]{1,8}") {
            let first = stand_in(1, &name, &real, None).unwrap();
            prop_assert_eq!(first.len(), real.len());
            prop_assert!(first.bytes().all(|b| b.is_ascii_graphic()));
            prop_assert_ne!(&first, &real);
            prop_assert_eq!(&stand_in(1, &name, &real, None).unwrap(), &first);
            prop_assert_ne!(&stand_in(2, &name, &real, None).unwrap(), &first);
            prop_assert_ne!(stand_in(1, &format!("{name}x"), &real, None).unwrap(), first);
        }
    }

    /// A remainder instead of a fresh draw would make the first 68 of 94 letters half as frequent again.
    #[test]
    fn no_letter_is_favoured() {
        for (real, alphabet) in [("7", DIGITS), ("!", PRINTABLE)] {
            let drawn = stand_in(1, "n", &real.repeat(8000), None).unwrap();
            let mean = 8000 / alphabet.len();
            for letter in alphabet.chars() {
                let count = drawn.matches(letter).count();
                assert!((mean * 6 / 10..=mean * 14 / 10).contains(&count), "{count} times {letter}");
            }
            let (first, second) = alphabet.split_at(alphabet.len() / 2);
            let share = |half: &str| drawn.chars().filter(|c| half.contains(*c)).count();
            assert!(share(first).abs_diff(share(second)) < 400, "{} {}", share(first), share(second));
        }
    }
}
