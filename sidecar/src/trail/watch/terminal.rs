//! Standard input, one key at a time; as it was before once dropped.

use std::io::IsTerminal as _;

use anyhow::Result;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};

pub(super) struct Terminal(Termios);

impl Terminal {
    /// None if it is no terminal.
    pub(super) fn of_standard_input() -> Result<Option<Self>> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Some(Self(before)))
    }

    /// Keys that were pressed and not read.
    pub(super) fn forget(&self) -> Result<()> {
        Ok(tcflush(std::io::stdin(), QueueSelector::IFlush)?)
    }

    /// One that is there already. None: there will be no other.
    pub(super) fn key() -> Option<u8> {
        let mut byte = [0];
        // Not through the buffer of the standard library, which poll(2) knows nothing of.
        match rustix::io::read(std::io::stdin(), &mut byte) {
            Ok(1..) => byte.first().copied(),
            _ => None,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
