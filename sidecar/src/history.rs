//! Whether the state volume holds all that this host saw of it. A volume that was lost, or put back from a backup, knows
//! nothing of what was revoked, denied or taken back since; until the operator says so, it decides nothing then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use ring::rand::{SecureRandom as _, SystemRandom};
use understudy_control::{ContainerId, Generation, Refusal, generation};

use crate::attach::revocations::Revocations;

const REMEDY: &str = "put the right volume back and restart the sidecar; or decide again what is missing (understudy status shows what \
                      there is), run: understudy accept-state, and start the containers again";

#[derive(Debug)]
pub struct History {
    state: PathBuf,
    control: PathBuf,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    own: Generation,
    /// What the state does not hold, if it lacks something.
    lacks: Option<Lacks>,
}

#[derive(Debug)]
struct Lacks {
    why: String,
    /// None if it cannot be read.
    seen: Option<Generation>,
}

impl History {
    /// What was revoked is revoked again, whatever else is missing.
    pub fn open(state: &Path, control: &Path, revocations: &Revocations) -> Result<Self> {
        let (state, control) = (state.join(generation::FILE), control.join(generation::FILE));
        let mut own = own(&state, revocations)?;
        let lacks = match Generation::read(&control) {
            Ok(seen) => seen.filter(|seen| own.lacks(seen)).map(|seen| Lacks::found(&own, seen)),
            Err(error) => Some(Lacks {
                why: format!(
                    "{} cannot be read, so nobody knows whether the state volume is up to date: {error}",
                    control.display()
                ),
                seen: None,
            }),
        };
        for id in lacks.iter().flat_map(Lacks::revoked) {
            revocations.add(id).context("a revocation that the state volume does not hold")?;
            own.revoked.insert(id.clone());
        }
        own.write(&state).with_context(|| state.display().to_string())?;
        if lacks.is_none() {
            own.write(&control).with_context(|| control.display().to_string())?;
        }
        Ok(Self { state, control, now: Mutex::new(Now { own, lacks }) })
    }

    /// # Errors
    /// If the state lacks something.
    pub fn is_whole(&self) -> Result<(), Refusal> {
        match self.problem() {
            None => Ok(()),
            Some(why) => Err(Refusal::new(why, REMEDY)),
        }
    }

    /// For `status`.
    pub fn problem(&self) -> Option<String> {
        self.now().lacks.as_ref().map(|lacks| lacks.why.clone())
    }

    /// The operator decided something that is in the state by now.
    pub fn changed(&self) -> io::Result<()> {
        self.advance([])
    }

    pub fn revoked<'i>(&self, ids: impl IntoIterator<Item = &'i ContainerId>) -> io::Result<()> {
        self.advance(ids)
    }

    /// The state that there is holds from now on.
    pub fn accept(&self) -> Result<(), Refusal> {
        let mut now = self.now();
        let Some(lacks) = &now.lacks else {
            return Err(Refusal::new("the state volume lacks nothing", "there is nothing to accept"));
        };
        let mut next = now.own.clone();
        next.number = next.number.max(lacks.seen.as_ref().map_or(0, |seen| seen.number)) + 1;
        let written = next.write(&self.state).and_then(|()| next.write(&self.control));
        written.map_err(|error| {
            Refusal::new(
                format!("that it is accepted could not be recorded: {error}"),
                "make the state volume and the control directory writable, then try again",
            )
        })?;
        *now = Now { own: next, lacks: None };
        Ok(())
    }

    /// The state is never behind what the host saw: it is written first.
    fn advance<'i>(&self, revoked: impl IntoIterator<Item = &'i ContainerId>) -> io::Result<()> {
        let mut now = self.now();
        let mut next = now.own.clone();
        // Counted on, an older state would catch up with what it lacks.
        next.number += u64::from(now.lacks.is_none());
        next.revoked.extend(revoked.into_iter().cloned());
        next.write(&self.state)?;
        now.own = next;
        if now.lacks.is_none() { now.own.write(&self.control) } else { Ok(()) }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lacks {
    fn found(own: &Generation, seen: Generation) -> Self {
        let why = if own.installation == seen.installation {
            format!(
                "the state volume is older than what this host saw of it (change {}, and there was {}): what the operator decided since \
                 is not in it",
                own.number, seen.number
            )
        } else {
            "the state volume is another one than this host had last, or a new one: what the operator decided is not in it".to_owned()
        };
        Self { why: format!("{why}; no container is given anything"), seen: Some(seen) }
    }

    fn revoked(&self) -> impl Iterator<Item = &ContainerId> {
        self.seen.iter().flat_map(|seen| &seen.revoked)
    }
}

fn own(path: &Path, revocations: &Revocations) -> Result<Generation> {
    let read = Generation::read(path).with_context(|| {
        format!(
            "{} (put the state volume back from a backup; or remove this file, and accept what there is)",
            path.display()
        )
    })?;
    match read {
        Some(own) => Ok(own),
        None => {
            let mut bytes = [0_u8; 16];
            SystemRandom::new().fill(&mut bytes).ok().context("the kernel gives no random bytes")?;
            let installation = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(Generation { installation, number: 0, revoked: revocations.all()? })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Host {
        directory: tempfile::TempDir,
    }

    impl Host {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            for name in ["state", "control", "backup"] {
                fs::create_dir(directory.path().join(name)).unwrap();
            }
            Self { directory }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn revocations(&self) -> Revocations {
            Revocations::new(self.path("state/revoked"))
        }

        fn open(&self) -> History {
            History::open(&self.path("state"), &self.path("control"), &self.revocations()).unwrap()
        }

        fn copy(&self, from: &str, to: &str) {
            fs::remove_dir_all(self.path(to)).unwrap();
            fs::create_dir(self.path(to)).unwrap();
            fs::copy(self.path(from).join(generation::FILE), self.path(to).join(generation::FILE)).unwrap();
        }
    }

    fn id(digit: &str) -> ContainerId {
        digit.repeat(64).parse().unwrap()
    }

    #[test]
    fn a_volume_that_is_put_back_gives_nothing_until_it_is_accepted_and_what_was_revoked_stays_so() {
        let host = Host::new();
        let first = host.open();
        first.changed().unwrap();
        first.is_whole().unwrap();
        host.copy("state", "backup");
        host.revocations().add(&id("a")).unwrap();
        first.revoked([&id("a")]).unwrap();
        drop(first);
        host.copy("backup", "state");
        assert!(!host.revocations().contains(&id("a")));
        // A restart does not help.
        for _ in 0..2 {
            let old = host.open();
            let refusal = old.is_whole().unwrap_err();
            assert!(refusal.reason.contains("change 1, and there was 2"), "{refusal}");
            assert!(refusal.remedy.contains("accept-state"), "{refusal}");
            assert!(host.revocations().contains(&id("a")));
        }
        let old = host.open();
        // What is decided meanwhile is no acceptance.
        old.changed().unwrap();
        old.changed().unwrap();
        assert!(old.is_whole().is_err() && host.open().is_whole().is_err());
        let old = host.open();
        old.accept().unwrap();
        old.is_whole().unwrap();
        assert!(old.accept().is_err());
        host.open().is_whole().unwrap();
        // The backup is older than what was accepted, too.
        host.copy("backup", "state");
        assert!(host.open().is_whole().is_err());
    }

    #[test]
    fn a_lost_volume_is_told_from_the_one_that_was_there() {
        let host = Host::new();
        host.open().revoked([&id("a")]).unwrap();
        fs::remove_dir_all(host.path("state")).unwrap();
        fs::create_dir(host.path("state")).unwrap();
        let new = host.open();
        let refusal = new.is_whole().unwrap_err();
        assert!(refusal.reason.contains("another one"), "{refusal}");
        assert!(host.revocations().contains(&id("a")));
        new.accept().unwrap();
        host.open().is_whole().unwrap();
    }

    #[test]
    fn a_control_directory_that_was_emptied_by_a_reboot_holds_it_again() {
        let host = Host::new();
        host.open().changed().unwrap();
        let file = host.path("control").join(generation::FILE);
        fs::remove_file(&file).unwrap();
        host.open().is_whole().unwrap();
        assert_eq!(Generation::read(&file).unwrap().unwrap().number, 1);
    }

    #[test]
    fn what_cannot_be_read_is_no_permission() {
        let host = Host::new();
        host.open().changed().unwrap();
        fs::write(host.path("control").join(generation::FILE), "{").unwrap();
        let history = host.open();
        assert!(history.is_whole().unwrap_err().reason.contains("cannot be read"));
        history.accept().unwrap();
        host.open().is_whole().unwrap();
        fs::write(host.path("state").join(generation::FILE), "{").unwrap();
        let error = History::open(&host.path("state"), &host.path("control"), &host.revocations());
        assert!(format!("{:#}", error.unwrap_err()).contains("remove this file"));
    }

    #[test]
    fn a_crash_between_its_two_files_is_no_loss() {
        let host = Host::new();
        let history = host.open();
        fs::copy(host.path("control").join(generation::FILE), host.path("backup").join(generation::FILE))
            .unwrap();
        history.changed().unwrap();
        host.copy("backup", "control");
        host.open().is_whole().unwrap();
    }
}
