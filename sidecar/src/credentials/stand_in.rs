//! What containers see instead of a secret: the same shape, none of the content.
//!
//! HMAC-SHA256 (RFC 2104) under the installation's key, over the secret's name, is stretched by a counter and drawn
//! from without bias. So a stand-in is the same in every container of an installation and after every restart and
//! rotation, and says nothing about the real value but its shape. Where it is long enough, its end is a mark of the
//! installation ([`mark`]), so that it is told from real values even when nobody remembers its secret.

pub(crate) mod jwt;
pub mod mark;
mod plan;

use ring::hmac;

use self::plan::Part;
use super::catalogue::{Alphabet, Catalogue, Kind, MIN_DRAWN, Pattern};
use super::installation_key::InstallationKey;
use super::secret::SecretValue;

/// What is known of a secret's shape before its value is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Declared; so are the next two.
    pub prefix: Option<&'a str>,
    pub pattern: Option<&'a Pattern>,
    pub like: Option<&'a Kind>,
    pub catalogue: &'a Catalogue,
}

/// Says nothing of the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("the value does not start with the declared `prefix`")]
    Prefix,
    #[error("after the declared `prefix` the value has fewer than {MIN_DRAWN} characters")]
    Short,
    #[error("the value does not fit the declared `pattern`")]
    Pattern,
    #[error("the value does not look like {what}: {expected}")]
    Like { what: String, expected: String },
}

/// The stand-in of the secret `name`: the real value's prefix, length, alphabet and checksum. Never the real value.
pub fn derive(
    key: &InstallationKey,
    name: &str,
    real: &SecretValue,
    look: Look<'_>,
) -> Result<String, ShapeError> {
    let parts = plan::of(real.expose(), look)?;
    let mut drawn = Drawn::new(key, &[b"understudy stand-in 2", name.as_bytes()]);
    loop {
        let stand_in = draw(key, &parts, &mut drawn);
        if !real.is(stand_in.as_bytes()) {
            return Ok(stand_in);
        }
    }
}

/// The stand-in of one token of an account: a JWT keeps its claims, as clients read their own.
pub fn derive_of_account(
    key: &InstallationKey,
    name: &str,
    real: &SecretValue,
    (kind, catalogue): (&Kind, &Catalogue),
) -> Result<String, ShapeError> {
    // An account's tokens have no shape that is declared.
    let like = Some(kind).filter(|kind| !kind.shapes.is_empty());
    let look = Look { prefix: None, pattern: None, like, catalogue };
    let parts = match jwt::with_its_claims(real.expose()) {
        Some(parts) => parts,
        None => plan::of(real.expose(), look)?,
    };
    let mut drawn = Drawn::new(key, &[b"understudy stand-in 2", name.as_bytes()]);
    loop {
        let stand_in = draw(key, &parts, &mut drawn);
        if !real.is(stand_in.as_bytes()) {
            return Ok(stand_in);
        }
    }
}

/// The stand-in of a token that an upstream made for a container: a JWT keeps all but its signature, as clients read when it
/// ends and whose it is.
pub(super) fn derive_minted(
    key: &InstallationKey,
    name: &str,
    real: &SecretValue,
    catalogue: &Catalogue,
) -> Result<String, ShapeError> {
    let look = Look { prefix: None, pattern: None, like: None, catalogue };
    let parts = match jwt::as_it_is(real.expose()) {
        Some(parts) => parts,
        None => plan::of(real.expose(), look)?,
    };
    let mut drawn = Drawn::new(key, &[b"understudy stand-in 2", name.as_bytes()]);
    loop {
        let stand_in = draw(key, &parts, &mut drawn);
        if !real.is(stand_in.as_bytes()) {
            return Ok(stand_in);
        }
    }
}

/// A stand-in of a shape that the real value has no say in.
pub(super) fn of_shape(
    key: &InstallationKey,
    name: &str,
    prefix: &str,
    alphabet: Alphabet,
    length: usize,
) -> String {
    let mut drawn = Drawn::new(key, &[b"understudy stand-in 2", name.as_bytes()]);
    draw(key, &[Part::same(prefix), Part::Drawn(alphabet, length)], &mut drawn)
}

/// Bytes without an end that belong to `context` alone.
pub(super) fn bytes<'k>(key: &'k InstallationKey, context: &[&[u8]]) -> impl Iterator<Item = u8> + use<'k> {
    let mut drawn = Drawn::new(key, context);
    std::iter::repeat_with(move || drawn.byte())
}

/// Whether `text` is what [`derive`] would draw for the secret `name`, given a value of that shape.
pub fn is_of(key: &InstallationKey, name: &str, text: &SecretValue, look: Look<'_>) -> bool {
    let Ok(parts) = plan::of(text.expose(), look) else { return false };
    let mut drawn = Drawn::new(key, &[b"understudy stand-in 2", name.as_bytes()]);
    text.is(draw(key, &parts, &mut drawn).as_bytes())
}

fn draw(key: &InstallationKey, parts: &[Part<'_>], drawn: &mut Drawn<'_>) -> String {
    let long_enough =
        |part: &Part<'_>| matches!(part, Part::Drawn(alphabet, length) if *length >= mark::needs(*alphabet));
    let marked = parts.iter().rposition(long_enough);
    let mut text = String::new();
    let mut before = String::new();
    for (place, part) in parts.iter().enumerate() {
        let next = match part {
            Part::Same(same) => same.to_string(),
            Part::Drawn(alphabet, length) if marked == Some(place) => {
                let free = length - mark::needs(*alphabet);
                let start = drawn.word(alphabet.unescaped().letters(), free);
                let window = drawn.word(alphabet.plain().letters(), mark::window(*alphabet));
                let mark = mark::of(key, alphabet.plain(), &window);
                format!("{start}{window}{mark}")
            }
            Part::Drawn(alphabet, length) => drawn.word(alphabet.unescaped().letters(), *length),
            Part::OneOf(letters) => drawn.word(letters, 1),
            Part::Checksum(checksum) => checksum.of(before.as_bytes()),
        };
        text.push_str(&next);
        before = next;
    }
    text
}

/// An endless stream of pseudo-random bytes for one context.
struct Drawn<'k> {
    key: &'k InstallationKey,
    context: Vec<u8>,
    block: Vec<u8>,
    counter: u64,
}

impl<'k> Drawn<'k> {
    /// Each part of the context ends with a zero byte.
    fn new(key: &'k InstallationKey, context: &[&[u8]]) -> Self {
        let context = context.iter().flat_map(|part| part.iter().copied().chain([0])).collect();
        Self { key, context, block: Vec::new(), counter: 0 }
    }

    fn word(&mut self, letters: &str, length: usize) -> String {
        (0..length).map(|_| self.letter(letters)).collect()
    }

    fn letter(&mut self, letters: &str) -> char {
        // The largest multiple of the alphabet's size: bytes above it would favour its first letters.
        let limit = 256 - 256 % letters.len();
        loop {
            let byte = usize::from(self.byte());
            if byte >= limit {
                continue;
            }
            if let Some(letter) = letters.as_bytes().get(byte % letters.len()) {
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
            context.update(&self.context);
            context.update(&self.counter.to_be_bytes());
            self.block = context.sign().as_ref().to_vec();
            self.counter += 1;
        }
    }
}

#[cfg(test)]
mod tests;
