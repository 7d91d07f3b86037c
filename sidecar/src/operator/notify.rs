//! Tells the operator by a command of theirs: a question, a leak, a host that is refused for the first time. `room` says how
//! much is told, `run` runs the command.

mod queue;
mod room;
mod run;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use understudy_control::QuestionStatus;
use understudy_policies::HostName;

use self::queue::Queue;
use self::room::Room;
use crate::audit::{self, Decision, Entry};
use crate::reason::Reason;

/// Until the command is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thing that happened. Every text in it is printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Fact {
    pub event: Event,
    pub container: String,
    /// The first digits of its id.
    pub container_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Names of secrets that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// How many were not told before this one, of any container: too much happened at once.
    #[serde(skip_serializing_if = "audit::is_zero")]
    pub left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    Ask,
    Leak,
    /// A host's first refusal, of one container.
    Denied,
}

#[derive(Debug)]
pub struct Notifier {
    queue: Arc<Queue>,
    room: Arc<Mutex<Room>>,
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Notifier {
    /// `words` are the command and its arguments; None without any.
    pub fn start(words: Vec<String>) -> std::io::Result<Option<Self>> {
        if words.is_empty() {
            return Ok(None);
        }
        let queue = Arc::<Queue>::default();
        let room = Arc::<Mutex<Room>>::default();
        let (facts, told) = (Arc::clone(&queue), Arc::clone(&room));
        thread::Builder::new().name("notify".to_owned()).spawn(move || tell_all(&words, &facts, &told))?;
        Ok(Some(Self { queue, room }))
    }

    /// Returns at once.
    pub fn tell(&self, fact: Fact) {
        let mut room = lock(&self.room);
        if room.admit(&fact, Instant::now()) && !self.queue.push(fact) {
            room.leave_out();
        }
    }

    /// A leak, or a host's first refusal.
    pub fn tell_of(&self, entry: &Entry) {
        let Some(reason) = entry.reason else { return };
        let event = match entry.decision {
            Decision::Allowed => return,
            _ if reason.is_leak() => Event::Leak,
            Decision::Denied if is_refusal(reason) => Event::Denied,
            _ => return,
        };
        self.tell(Fact {
            event,
            container: entry.container.clone(),
            container_id: entry.container_id.clone(),
            host: entry.host.as_deref().map(shown),
            port: entry.port,
            reason: Some(reason.code()),
            secrets: entry.secrets.clone(),
            left_out: 0,
        });
    }

    /// That it has come to be about `port`.
    pub fn tell_of_question(&self, question: &QuestionStatus, port: u16) {
        self.tell(Fact {
            event: Event::Ask,
            container: question.container.clone(),
            container_id: question.container_id.short().to_owned(),
            host: Some(shown(&question.host)),
            port: Some(port),
            reason: None,
            secrets: Vec::new(),
            left_out: 0,
        });
    }
}

/// Until nobody can tell it anything any more.
fn tell_all(words: &[String], facts: &Queue, room: &Mutex<Room>) {
    while let Some(mut fact) = facts.pop() {
        fact.left_out = lock(room).take(&fact);
        if fact.left_out > 0 {
            tracing::warn!("`notify`: {} events were not told: too much happened at once", fact.left_out);
        }
        if let Err(error) = run::run(words, &fact, PATIENCE) {
            tracing::warn!("`notify`: {error}");
        }
    }
}

fn lock(room: &Mutex<Room>) -> MutexGuard<'_, Room> {
    room.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether something was refused, and did not just fail.
fn is_refusal(reason: Reason) -> bool {
    let failed = matches!(reason, Reason::Timeout | Reason::HandshakeFailed);
    reason == Reason::RequestTrailers || !(failed || reason.status() >= 500)
}

/// A name in Punycode, and whatever is none without the characters that look like others.
fn shown(host: &str) -> String {
    host.parse::<HostName>().map_or_else(
        |_| {
            let ascii = |c: char| if c.is_ascii() { c.to_string() } else { c.escape_unicode().to_string() };
            host.chars().map(ascii).collect()
        },
        |name| name.to_string(),
    )
}

#[cfg(test)]
mod tests;
