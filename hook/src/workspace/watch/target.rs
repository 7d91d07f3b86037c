//! A guarded name, and what is known of it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::time::Instant;

use understudy_control::sys::ReadLease;

use super::judge::Since;
use crate::record::fingerprint;
use crate::workspace::config;
use crate::workspace::folder;
use crate::workspace::git;
use crate::workspace::run::runs;

pub(super) struct Target {
    /// In which it is, by number.
    pub(super) directory: usize,
    pub(super) name: OsString,
    pub(super) is_directory: bool,
    /// Git reads it by its name alone, and writes it several times in one command.
    pub(super) git_configuration: bool,
    /// The number of the mount that lies over it.
    pub(super) mount: u64,
    pub(super) shown: String,
    pub(super) since: Since,
    /// It arrived, and is not known to be guarded since then.
    pub(super) off: bool,
    /// It was guarded again, and is not judged yet.
    pub(super) renewed: bool,
    /// On a file that was guarded again, for as long as it has this name: who opened it before it was guarded, be it for nothing
    /// (`O_PATH`), could open it for writing by that descriptor.
    pub(super) lease: Option<ReadLease>,
    pub(super) waiting: Option<Instant>,
    /// As it was before.
    pub(super) known: Known,
}

#[derive(Default)]
pub(super) struct Known {
    /// Name, and what tells its value from another one: values are not for messages.
    commands: BTreeSet<(String, u64)>,
    /// Of a file that only says where git is to look.
    content: Vec<u8>,
}

impl Known {
    pub(super) fn of(name: &OsStr, text: Vec<u8>) -> io::Result<Self> {
        let settings = config::parse(&text)?;
        let commands = settings.iter().filter(|entry| runs(entry));
        let commands = commands.map(|entry| (entry.name(), fingerprint(&entry.value))).collect();
        Ok(Self { commands, content: if leads(name) { text } else { Vec::new() } })
    }

    /// Names of commands that were not there before.
    pub(super) fn commands_beyond(&self, before: &Self) -> Vec<String> {
        self.commands.difference(&before.commands).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn leads_elsewhere_than(&self, before: &Self) -> bool {
        self.content != before.content
    }
}

/// Files that only say where git is to look: a directory of that name is no file.
fn leads(name: &OsStr) -> bool {
    [git::COMMON, "gitdir", ".git"].iter().any(|leading| name == *leading)
}

/// From its beginning.
pub(super) fn content(mut file: &File) -> io::Result<Vec<u8>> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(folder::LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > folder::LARGEST {
        return Err(io::Error::other(format!("larger than {} bytes", folder::LARGEST)));
    }
    Ok(bytes)
}
