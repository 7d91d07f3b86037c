//! The signing key of a scope, and what it signs.

use ring::digest;
use ring::hmac::{self, HMAC_SHA256};
use zeroize::Zeroizing;

use crate::scope::{END, Scope};
use crate::time::Time;

pub(crate) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Derived from a secret access key for one scope. Does not print.
pub(crate) struct SigningKey(hmac::Key);

impl SigningKey {
    pub(crate) fn new(secret: &str, scope: &Scope) -> Self {
        let first = Zeroizing::new(format!("AWS4{secret}"));
        let mut key = hmac::Key::new(HMAC_SHA256, first.as_bytes());
        for part in [&scope.date, &scope.region, &scope.service, END] {
            let next = hmac::sign(&key, part.as_bytes());
            key = hmac::Key::new(HMAC_SHA256, next.as_ref());
        }
        Self(key)
    }

    /// In lower-case hexadecimal.
    pub(crate) fn sign(&self, text: &str) -> String {
        hex(hmac::sign(&self.0, text.as_bytes()).as_ref())
    }

    /// In constant time.
    pub(crate) fn made(&self, text: &str, signature: &[u8; 32]) -> bool {
        hmac::verify(&self.0, text.as_bytes(), signature).is_ok()
    }
}

/// What is signed of a canonical request.
pub(crate) fn string_to_sign(time: &Time, scope: &Scope, canonical: &[u8]) -> String {
    format!("{ALGORITHM}\n{}\n{scope}\n{}", time.as_str(), sha256(canonical))
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Of 64 lower-case hexadecimal digits.
pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let lower = |b: &u8| b.is_ascii_digit() || (b'a'..=b'f').contains(b);
    if digits.len() != 64 || !digits.iter().all(lower) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
