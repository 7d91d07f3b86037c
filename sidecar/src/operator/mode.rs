//! The annotation `understudy.mode`.

use std::fmt;

use understudy_control::{Refusal, annotation};
use understudy_policies::document::closest;

use crate::reason::Reason;

/// What becomes of a request that no rule is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Deny,
    /// It waits for a person, for a bounded time.
    Ask,
    /// It is allowed; its audit line says by what.
    Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    Refuse,
    Ask,
    /// It is allowed, by [`LOGGED`].
    Record,
}

/// The place of the rule that allows what mode `log` lets through.
pub const LOGGED: &str = "mode log";

const ALL: [(&str, Mode); 3] = [("deny", Mode::Deny), ("ask", Mode::Ask), ("log", Mode::Log)];

impl Mode {
    pub fn of(asked: Option<&str>) -> Result<Self, Refusal> {
        let Some(asked) = asked else { return Ok(Self::default()) };
        let found = ALL.iter().find(|(name, _)| *name == asked).map(|(_, mode)| *mode);
        found.ok_or_else(|| {
            let shown: String = asked.chars().take(80).collect();
            let names = ALL.map(|(name, _)| name);
            let remedy = match closest(asked, names) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("known are: {}", names.join(", ")),
            };
            Refusal::new(format!("annotation {}: there is no mode `{shown}`", annotation::MODE), remedy)
        })
    }

    /// What becomes of a request that policy refuses for `reason`.
    pub fn course(self, reason: Reason) -> Course {
        use Reason::{HostNotAllowed, MethodNotAllowed, PathNotAllowed, PortNotAllowed};
        match (self, reason) {
            (Self::Log, HostNotAllowed | PortNotAllowed | MethodNotAllowed | PathNotAllowed) => {
                Course::Record
            }
            // No rule is about it, so that there is something to ask.
            (Self::Ask, HostNotAllowed | PortNotAllowed) => Course::Ask,
            _ => Course::Refuse,
        }
    }

    pub fn name(self) -> &'static str {
        ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
