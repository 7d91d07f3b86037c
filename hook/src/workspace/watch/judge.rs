//! What is to be thought of a file that was replaced, from what was told of it and how it was found once it was guarded
//! again.

use std::time::Duration;

use understudy_control::Refusal;

/// A file that was made in its place may be written that long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Told of a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    MovedIn,
    Made,
    Gone,
    Written,
    /// More happened than could be told.
    Unseen,
}

/// What happened at a name since it was last guarded.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Since {
    moved_in: u32,
    made: bool,
    /// After it had arrived.
    written: bool,
    /// After it had arrived.
    removed: bool,
    /// Although it was held.
    cut: bool,
    unseen: bool,
}

impl Since {
    pub(super) fn happened(&mut self, what: Happened) {
        match what {
            Happened::MovedIn => self.moved_in = self.moved_in.saturating_add(1),
            Happened::Made => self.made = true,
            Happened::Unseen => self.unseen = true,
            Happened::Gone => self.removed |= self.arrived(),
            Happened::Written => self.written |= self.arrived(),
        }
    }

    /// It was written to, while nobody could have it open for writing: `O_TRUNC` needs no more than reading.
    pub(super) fn was_cut(&mut self) {
        self.cut = true;
    }

    pub(super) fn arrived(&self) -> bool {
        self.came() || self.unseen
    }

    /// It is known to have arrived.
    pub(super) fn came(&self) -> bool {
        self.moved_in > 0 || self.made
    }

    /// What arrived is what was there.
    pub(super) fn forget_arrival(&mut self) {
        *self = Self { cut: self.cut, ..Self::default() };
    }

    pub(super) fn is_to_be_judged(&self) -> bool {
        self.arrived() || self.cut
    }

    /// It arrived, was taken away again, and is not there now: nobody but the container moves in what it takes away at once.
    pub(super) fn was_taken_away(&self) -> bool {
        self.removed && self.moved_in > 0
    }
}

/// A file as it lies there, guarded.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Somebody has it open for writing: nothing else is known yet.
    pub(super) open: bool,
    /// Names that it has.
    pub(super) links: u64,
    /// Settings by which git runs a program and that were not there before.
    pub(super) commands: Vec<String>,
    /// It makes git look elsewhere than before.
    pub(super) leads_elsewhere: bool,
    /// One that git writes more than once in one command.
    pub(super) git_configuration: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Stands,
    /// It is being written, maybe by a program of the host.
    Wait,
    Tampered(Reason),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Reason {
    /// A link, a FIFO, or a directory in the place of a file.
    #[error("it became something else than it was")]
    Kind,
    #[error("it was written to at the same moment")]
    Written,
    #[error("somebody then cut it off")]
    Cut,
    #[error("it was replaced once more, or taken away, at the same moment")]
    Again,
    #[error("somebody still has it open for writing")]
    Open,
    #[error("it has another name by which it can be written")]
    Linked,
    #[error(
        "it has new settings that make git run something ({0}), and the container could have written them"
    )]
    Commands(String),
    #[error("it leads git elsewhere than before")]
    Elsewhere,
    #[error("the container may have entered the new directory before that could be guarded")]
    Directory,
    #[error("somebody then opened it for writing")]
    Wanted,
    #[error("so much happened that it could not be followed")]
    Unseen,
}

/// `waited` is since when it is waited for.
pub(super) fn judged(since: &Since, found: &Found, waited: Duration) -> Verdict {
    if since.unseen {
        return Verdict::Tampered(Reason::Unseen);
    }
    if since.cut {
        return Verdict::Tampered(Reason::Cut);
    }
    let moved = since.moved_in > 0;
    // Two renames of git's configuration are git's as a rule, and settings tell; of other files they are not.
    let again = since.removed || (since.moved_in + u32::from(since.made) > 1 && !found.git_configuration);
    // What is moved in is complete. What is made in its place has yet to be written.
    let written = moved && since.written;
    let reason = if again {
        Some(Reason::Again)
    } else if written {
        Some(Reason::Written)
    } else if found.open && (moved || waited > PATIENCE) {
        Some(Reason::Open)
    } else if found.open {
        return Verdict::Wait;
    } else if found.links > 1 {
        Some(Reason::Linked)
    } else if !found.commands.is_empty() {
        Some(Reason::Commands(found.commands.join(", ")))
    } else {
        found.leads_elsewhere.then_some(Reason::Elsewhere)
    };
    reason.map_or(Verdict::Stands, Verdict::Tampered)
}

/// Why a container is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tampered {
    /// In the file system of the host's.
    pub(super) path: String,
    pub(super) reason: Reason,
}

impl Tampered {
    pub(super) fn told(&self) -> Refusal {
        let Self { path, reason } = self;
        let again = match reason {
            Reason::Wanted => "if that was you, with an editor that saves in place, or all in it is yours",
            _ => "if all in it is yours",
        };
        Refusal::new(
            format!(
                "the container was ended: {path} was replaced on the host while the container ran, and {reason}"
            ),
            format!(
                "look at {path} before you use git or open the project (understudy-hook scan shows what programs of the host \
                 would run); {again}, start the container again"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn since(all: &[Happened]) -> Since {
        let mut since = Since::default();
        all.iter().for_each(|what| since.happened(*what));
        since
    }

    fn plain() -> Found {
        Found { links: 1, git_configuration: true, ..Found::default() }
    }

    fn reason(all: &[Happened], found: Found) -> Option<Reason> {
        match judged(&since(all), &found, NOW) {
            Verdict::Tampered(reason) => Some(reason),
            _ => None,
        }
    }

    #[test]
    fn what_git_and_editors_do_stands() {
        use Happened::{Gone, Made, MovedIn, Written};
        for all in [
            &[MovedIn][..],
            &[MovedIn, MovedIn, MovedIn],
            &[Written, MovedIn],
            &[Gone, Made, Written, Written],
            &[Made],
        ] {
            assert_eq!(judged(&since(all), &plain(), NOW), Verdict::Stands, "{all:?}");
        }
        let editor = Found { git_configuration: false, ..plain() };
        assert_eq!(reason(&[Gone, MovedIn], editor), None);
    }

    #[test]
    fn what_only_a_racing_container_does_is_told() {
        use Happened::{Gone, Made, MovedIn, Unseen, Written};
        assert_eq!(reason(&[MovedIn, Written], plain()), Some(Reason::Written));
        assert_eq!(reason(&[MovedIn, Gone, Made], plain()), Some(Reason::Again));
        let other = || Found { git_configuration: false, ..plain() };
        assert_eq!(reason(&[MovedIn, MovedIn], other()), Some(Reason::Again));
        assert_eq!(reason(&[Gone, Made, MovedIn], other()), Some(Reason::Again));
        assert_eq!(reason(&[MovedIn], Found { open: true, ..plain() }), Some(Reason::Open));
        assert_eq!(reason(&[MovedIn], Found { links: 2, ..plain() }), Some(Reason::Linked));
        assert_eq!(reason(&[Made], Found { links: 2, ..plain() }), Some(Reason::Linked));
        let commands = Found { commands: vec!["core.fsmonitor".into()], ..plain() };
        assert_eq!(reason(&[MovedIn], commands), Some(Reason::Commands("core.fsmonitor".into())));
        assert_eq!(reason(&[Made], Found { leads_elsewhere: true, ..plain() }), Some(Reason::Elsewhere));
        assert_eq!(reason(&[Unseen], plain()), Some(Reason::Unseen));
        let mut cut = Since::default();
        cut.was_cut();
        assert!(cut.is_to_be_judged() && !cut.arrived());
        assert_eq!(judged(&cut, &plain(), NOW), Verdict::Tampered(Reason::Cut));
        assert!(since(&[MovedIn, Gone]).was_taken_away() && !since(&[Gone]).was_taken_away());
    }

    #[test]
    fn one_that_is_made_in_its_place_may_be_written_for_a_while() {
        let open = Found { open: true, ..plain() };
        let made = since(&[Happened::Gone, Happened::Made, Happened::Written]);
        assert_eq!(judged(&made, &open, NOW), Verdict::Wait);
        assert_eq!(judged(&made, &open, PATIENCE * 2), Verdict::Tampered(Reason::Open));
    }
}
