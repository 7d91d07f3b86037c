//! Texts that a container would have, searched for real credentials.

use std::fmt::Display;
use std::os::fd::OwnedFd;

use understudy_control::Refusal;
use understudy_control::search::{Text, unseal};
use zeroize::Zeroizing;

use super::Registry;

/// Texts that are told of.
const NAMED: usize = 5;

impl Registry {
    /// Notes of what looks like a credential.
    ///
    /// # Errors
    /// The first real value.
    pub fn search(&self, texts: Vec<Text>, descriptors: Vec<OwnedFd>) -> Result<Vec<String>, Refusal> {
        let wrong = |error: &dyn Display| {
            Refusal::new(
                format!("what is to be searched for real credentials was not handed over: {error}"),
                "use the understudy-hook of this sidecar's version",
            )
        };
        let [memory] = <[OwnedFd; 1]>::try_from(descriptors).map_err(|_| wrong(&"not one descriptor"))?;
        let texts = unseal(memory, texts).map_err(|error| wrong(&error))?;
        let texts: Vec<_> = texts.into_iter().map(|(name, text)| (name, Zeroizing::new(text))).collect();
        let mut notes = Vec::new();
        for (name, text) in &texts {
            notes.extend((self.parts.look)(name, text)?);
        }
        let more = notes.len().saturating_sub(NAMED);
        notes.truncate(NAMED);
        if more > 0 {
            notes.push(format!("{more} more files hold what looks like a real credential"));
        }
        Ok(notes)
    }
}
