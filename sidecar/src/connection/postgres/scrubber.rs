//! What a server says is searched for real values on its way to the container: for those that the container's secrets have
//! now, and those that they had since the session began.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::container::Container;
use crate::credentials::scrub::Replacer;
use crate::credentials::{Rights, Vault};
use crate::current::Current;

pub(super) struct Scrubber {
    container: Arc<Container>,
    vault: Current<Vault>,
    /// Those by whose values it searches.
    rights: Arc<Rights>,
    replacer: Replacer,
}

impl Scrubber {
    pub(super) fn new(container: &Arc<Container>, vault: &Current<Vault>) -> Self {
        let rights = container.rights();
        let replacer = Replacer::new(container.holdings.scrub(&vault.current(), &rights.grants));
        Self { container: Arc::clone(container), vault: vault.clone(), rights, replacer }
    }

    /// What can be passed on now.
    pub(super) fn push(&mut self, chunk: Bytes) -> Bytes {
        self.follow();
        self.replacer.push(chunk)
    }

    /// What was held back.
    pub(super) fn finish(&mut self) -> Bytes {
        self.replacer.finish()
    }

    /// A text that nothing follows.
    pub(super) fn whole(&mut self, text: Bytes) -> Bytes {
        let first = self.push(text);
        match self.finish() {
            rest if rest.is_empty() => first,
            rest => [first, rest].into_iter().flatten().collect::<BytesMut>().freeze(),
        }
    }

    /// How many bytes are held back.
    pub(super) fn held(&self) -> usize {
        self.replacer.held()
    }

    pub(super) fn replaced(&self) -> u64 {
        self.replacer.replaced()
    }

    /// A container's rights are set anew after each reload, and when they are, what its secrets were is among what it holds.
    fn follow(&mut self) {
        let rights = self.container.rights();
        if !Arc::ptr_eq(&rights, &self.rights) {
            self.replacer.search_for(self.container.holdings.scrub(&self.vault.current(), &rights.grants));
            self.rights = rights;
        }
    }
}
