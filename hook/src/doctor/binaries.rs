//! The installed binaries: there, executable, static, and one and the same.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Check, unreadable};
use crate::installation::Installation;

/// What the hook files run.
pub(crate) fn stage_binary(installation: &Installation) -> PathBuf {
    installation.state.join("bin/understudy-hook")
}

/// What containers run.
fn guest_binary(installation: &Installation) -> PathBuf {
    installation.guest_binary_directory().join("understudy-hook")
}

pub(crate) fn checks(installation: &Installation) -> Vec<Check> {
    let stage = stage_binary(installation);
    let guest = guest_binary(installation);
    let same = || -> Result<()> {
        let (a, b) = (fs::read(&stage)?, fs::read(&guest)?);
        ensure!(a == b, "it differs from {} (run: understudy-hook install)", stage.display());
        Ok(())
    };
    let guest_name = format!("binary {}", guest.display());
    vec![
        Check::new(format!("binary {}", stage.display()), usable(&stage)),
        Check::new(guest_name, usable(&guest).and_then(|()| same())),
    ]
}

fn usable(path: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(path).with_context(|| unreadable(path))?;
    ensure!(metadata.is_file(), "it is not a regular file (run: understudy-hook install)");
    let mode = metadata.permissions().mode();
    ensure!(mode & 0o111 == 0o111, "it is not executable for all (run: chmod a+rx {})", path.display());
    ensure!(mode & 0o022 == 0, "others than its owner may write to it (run: chmod go-w {})", path.display());
    let owner = metadata.uid();
    ensure!(
        owner == 0 || owner == rustix::process::geteuid().as_raw(),
        "it belongs to uid {owner} (run: understudy-hook install)"
    );
    let bytes = fs::read(path).with_context(|| unreadable(path))?;
    match has_interpreter(&bytes) {
        Some(false) => Ok(()),
        Some(true) => bail!("it is not static: it would not run in every container (install a static build)"),
        None => bail!("it is not a 64-bit ELF binary (run: understudy-hook install)"),
    }
}

/// Whether a program header of an ELF64 file names an interpreter, elf(5). `None` if it is no such file.
fn has_interpreter(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    // Magic, 64 bits, little endian.
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let offset = usize::try_from(u64::from_le_bytes(bytes(elf, 32)?)).ok()?;
    let size = usize::from(u16::from_le_bytes(bytes(elf, 54)?));
    let count = usize::from(u16::from_le_bytes(bytes(elf, 56)?));
    let mut found = false;
    for index in 0..count {
        let header = offset.checked_add(index.checked_mul(size)?)?;
        found |= u32::from_le_bytes(bytes(elf, header)?) == PT_INTERP;
    }
    Some(found)
}

fn bytes<const N: usize>(elf: &[u8], offset: usize) -> Option<[u8; N]> {
    elf.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_and_dynamic_binaries_are_told_apart() {
        // Tests are linked as the hook is.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(has_interpreter(&own), Some(false));
        assert_eq!(has_interpreter(&fs::read("/bin/sh").unwrap()), Some(true));
        for bad in [&b""[..], b"#!/bin/sh", b"\x7fELF\x02\x01", &[0x7f; 64]] {
            assert_eq!(has_interpreter(bad), None);
        }
        let mut huge = own[..64].to_vec();
        huge[32..40].fill(0xff);
        assert_eq!(has_interpreter(&huge), None);
    }

    #[test]
    fn a_binary_that_others_may_change_or_nobody_may_run_is_not_usable() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("hook");
        fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o755);
        usable(&path).unwrap();
        for bad in [0o644, 0o700, 0o775, 0o757] {
            mode(bad);
            assert!(usable(&path).is_err(), "{bad:o}");
        }
        assert!(usable(Path::new("/no/such")).is_err());
    }
}
