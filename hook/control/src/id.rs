//! Identifiers that end up in paths and maps, valid by construction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A container's id as Podman makes it: 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerId(String);

/// An image's id as Podman makes it: 64 lower-case hexadecimal digits, without `sha256:`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id: expected 64 lower-case hexadecimal digits, found {found:?}")]
pub struct IdError {
    /// At most the first 80 characters of what was found.
    pub found: String,
}

fn hex64(text: &str) -> Result<String, IdError> {
    let valid = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if valid { Ok(text.to_owned()) } else { Err(IdError { found: text.chars().take(80).collect() }) }
}

macro_rules! hex_id {
    ($name:ident) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The first 12 digits, as Podman prints them.
            pub fn short(&self) -> &str {
                self.0.get(..12).unwrap_or(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                hex64(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                hex64(&text).map(Self)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.short())
            }
        }
    };
}

hex_id!(ContainerId);
hex_id!(ImageId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_64_lower_case_hex_digits_are_an_id() {
        assert!("a".repeat(64).parse::<ContainerId>().is_ok());
        for bad in [
            "",
            "a",
            &"A".repeat(64),
            &"a".repeat(63),
            &"a".repeat(65),
            &"../".repeat(22),
            &format!("{}/", "a".repeat(63)),
        ] {
            assert!(bad.parse::<ContainerId>().is_err(), "{bad:?}");
            assert!(serde_json::from_value::<ContainerId>(serde_json::json!(bad)).is_err(), "{bad:?}");
        }
    }
}
