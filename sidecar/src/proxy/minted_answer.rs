//! An answer that makes a credential for its container: read whole, so that what is long-lived leaves as a stand-in.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use zeroize::Zeroizing;

use crate::container::Container;
use crate::credentials::scrub::Replacer;
use crate::credentials::{Minting, Vault};

/// Of the body, decoded.
const MAX: usize = 1 << 20;

pub(super) struct MintedAnswer {
    minting: Minting,
    vault: Arc<Vault>,
    container: Arc<Container>,
    body: Zeroizing<Vec<u8>>,
    replaced: u64,
}

impl MintedAnswer {
    pub(super) fn new(minting: Minting, vault: Arc<Vault>, container: Arc<Container>) -> Self {
        Self { minting, vault, container, body: Zeroizing::default(), replaced: 0 }
    }

    /// Nothing of it goes on yet.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), String> {
        if self.body.len() + chunk.len() > MAX {
            return Err("it should hold a credential for a session, and is larger than 1 MiB".to_owned());
        }
        self.body.extend_from_slice(chunk);
        Ok(())
    }

    /// All that the container gets. Searched for what was just made, too, which the answer may have once more elsewhere.
    pub(super) fn finish(&mut self) -> Result<Bytes, String> {
        let body = std::mem::take(&mut self.body);
        if body.is_empty() {
            return Ok(Bytes::new());
        }
        let holdings = &self.container.holdings;
        let settled = self.minting.settle(&self.vault, holdings, &body, Instant::now());
        let settled = settled.map_err(|error| error.to_string())?;
        let mut replacer = Replacer::new(holdings.scrub(&self.vault, &self.container.rights().grants));
        let out = replacer.push(Bytes::from_owner(settled));
        let out = Bytes::from([out, replacer.finish()].concat());
        self.replaced = replacer.replaced();
        Ok(out)
    }

    pub(super) fn replaced(&self) -> u64 {
        self.replaced
    }
}

impl fmt::Debug for MintedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MintedAnswer(..)")
    }
}
