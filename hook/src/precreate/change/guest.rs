//! The files that a container sees as `/run/understudy/`.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::Work;
use crate::installation::write_whole;
use crate::trust::{File, Trust};

/// Writes them below the container's own directory, readable for the container's user, whatever its number.
pub(super) fn write(container: &Path, trust: &Trust, work: &Work<'_>) -> Result<PathBuf> {
    let Work { prepared, bound, guards, .. } = work;
    let guest = container.join("guest");
    let made = fs::DirBuilder::new().mode(0o755).create(&guest);
    made.with_context(|| format!("{} cannot be made", guest.display()))?;
    for ours in File::ALL {
        file(&guest, ours.name(), trust.content(ours))?;
    }
    file(&guest, "resolv.conf", format!("nameserver {}\n", prepared.nameserver).as_bytes())?;
    file(&guest, "mounts.json", &serde_json::to_vec(bound)?)?;
    let guarded: Vec<_> = guards.all.iter().map(|guard| &guard.expected).collect();
    file(&guest, "guards.json", &serde_json::to_vec(&guarded)?)?;
    file(&guest, "place.json", &serde_json::to_vec(&prepared.placement)?)?;
    fs::set_permissions(&guest, fs::Permissions::from_mode(0o755))
        .with_context(|| guest.display().to_string())?;
    Ok(guest)
}

pub(super) fn file(guest: &Path, name: &str, content: &[u8]) -> Result<()> {
    let path = guest.join(name);
    write_whole(&path, content, 0o644)?;
    // Whatever the umask took away.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).with_context(|| path.display().to_string())
}
