//! Files that are there whole or not at all, also after a power loss.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `bytes` at `path` with `mode`, in place of what is there.
pub(super) fn replace(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let parked = park(path, mode, bytes)?;
    fs::rename(&parked, path).inspect_err(|_| drop(fs::remove_file(&parked)))?;
    sync_directory(path)
}

/// Puts `bytes` at `path` with `mode`; `AlreadyExists` if anything is there, even if it came there this moment.
pub(super) fn create(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let parked = park(path, mode, bytes)?;
    let linked = fs::hard_link(&parked, path);
    drop(fs::remove_file(&parked));
    linked?;
    sync_directory(path)
}

fn park(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<std::path::PathBuf> {
    let parked = path.with_extension(format!("{}.new", std::process::id()));
    drop(fs::remove_file(&parked));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&parked)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| drop(fs::remove_file(&parked)))?;
    Ok(parked)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}
