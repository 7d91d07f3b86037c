//! Keeps over a reboot, which empties the control directory, what the sidecar wrote there of its state.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use understudy_control::{Generation, generation};

use crate::installation::Installation;

/// For `uninstall`.
pub(crate) fn file(state: &Path) -> PathBuf {
    state.join(generation::FILE)
}

/// By each stage that comes by. What cannot be kept holds until the next reboot all the same, so nothing fails for it.
pub(crate) fn keep(installation: &Installation) {
    let copy = || -> Result<()> {
        let Some(seen) = seen(installation)? else { return Ok(()) };
        let path = file(&installation.state);
        // An older one of the same state is what a sidecar wrote that no hook gave its number back.
        let known =
            |kept: &Generation| *kept == seen || (kept.installation == seen.installation && seen.lacks(kept));
        if Generation::read(&path).ok().flatten().as_ref().is_some_and(known) {
            return Ok(());
        }
        seen.write(&path).with_context(|| path.display().to_string())
    };
    if let Err(error) = copy() {
        eprintln!("understudy-hook: what the sidecar decided last is not kept over a reboot: {error:#}");
    }
}

/// Before a sidecar starts. What a sidecar of another state wrote there was accepted by the operator.
pub(crate) fn give_back(installation: &Installation) -> Result<()> {
    let path = file(&installation.state);
    let kept = Generation::read(&path).with_context(|| {
        format!(
            "{} is damaged (remove it, if the state volume is the one that this host had last)",
            path.display()
        )
    })?;
    let Some(kept) = kept else { return Ok(()) };
    let older = |seen: Generation| seen.installation == kept.installation && seen.lacks(&kept);
    if seen(installation)?.is_none_or(older) {
        let control = installation.control();
        control.create().context("the control directory")?;
        let path = control.path().join(generation::FILE);
        kept.write(&path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn seen(installation: &Installation) -> Result<Option<Generation>> {
    let path = installation.control().path().join(generation::FILE);
    Generation::read(&path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::precreate::tests::installation;

    fn generation(installation: &str, number: u64) -> Generation {
        Generation { installation: installation.to_owned(), number, revoked: Default::default() }
    }

    #[test]
    fn it_outlives_an_empty_control_directory_and_what_was_accepted_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let installation = installation(directory.path());
        fs::create_dir_all(&installation.state).unwrap();
        keep(&installation);
        give_back(&installation).unwrap();
        assert!(!file(&installation.state).exists());
        let control = installation.control();
        control.create().unwrap();
        let seen = control.path().join(generation::FILE);
        let read = || Generation::read(&seen).unwrap().unwrap();
        generation("i", 3).write(&seen).unwrap();
        keep(&installation);
        fs::remove_dir_all(control.path()).unwrap();
        give_back(&installation).unwrap();
        assert_eq!(read(), generation("i", 3));
        control.check().unwrap();
        // Of the same state, the later one.
        for (written, left) in [(2, 3), (4, 4)] {
            generation("i", written).write(&seen).unwrap();
            keep(&installation);
            give_back(&installation).unwrap();
            assert_eq!(read(), generation("i", left));
        }
        generation("j", 0).write(&seen).unwrap();
        give_back(&installation).unwrap();
        assert_eq!(read(), generation("j", 0));
        keep(&installation);
        assert_eq!(Generation::read(&file(&installation.state)).unwrap(), Some(generation("j", 0)));
        fs::write(file(&installation.state), "").unwrap();
        assert!(format!("{:#}", give_back(&installation).unwrap_err()).contains("damaged"));
    }
}
