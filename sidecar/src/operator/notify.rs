//! Tells the operator by a command of theirs: a question, a leak, a host that is refused for the first time. The facts are
//! JSON on its standard input, never arguments.

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use understudy_control::QuestionStatus;

use crate::audit::{Decision, Entry};

/// Waiting to be told. More are dropped: a command that hangs must not hold up requests.
const WAITING: usize = 64;
/// Until the command is killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Refused hosts that are remembered of one container. With more, none of its own is told any more as new.
const MOST_HOSTS: usize = 256;
/// Containers whose refused hosts are remembered. With more, all are forgotten.
const MOST_CONTAINERS: usize = 1024;
/// Of those that wait, as many can be refusals: a container that is refused at will must not keep a leak from being told.
const WAITING_REFUSALS: usize = WAITING / 2;
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// One thing that happened. Every text in it is printable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Fact {
    pub event: Event,
    pub container: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Names of secrets that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    Ask,
    Leak,
    /// A host's first refusal, of one container.
    Denied,
}

#[derive(Debug)]
pub struct Notifier {
    queue: SyncSender<Fact>,
    /// Refusals in the queue.
    waiting: Arc<AtomicUsize>,
    refused: Mutex<HashMap<String, HashSet<String>>>,
}

impl Notifier {
    /// `words` are the command and its arguments; None without any.
    pub fn start(words: Vec<String>) -> std::io::Result<Option<Self>> {
        if words.is_empty() {
            return Ok(None);
        }
        let (queue, facts) = sync_channel(WAITING);
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        thread::Builder::new().name("notify".to_owned()).spawn(move || tell_all(&words, &facts, &left))?;
        Ok(Some(Self { queue, waiting, refused: Mutex::default() }))
    }

    /// Returns at once.
    pub fn tell(&self, fact: Fact) {
        let refusal = fact.event == Event::Denied;
        if refusal && !self.is_new(&fact) {
            return;
        }
        let room = !refusal || self.waiting.fetch_add(1, Relaxed) < WAITING_REFUSALS;
        if !(room && self.queue.try_send(fact).is_ok()) {
            if refusal {
                self.waiting.fetch_sub(1, Relaxed);
            }
            tracing::warn!("`notify` is slower than what happens; something was not told");
        }
    }

    /// A leak, or a host's first refusal by policy.
    pub fn tell_of(&self, entry: &Entry) {
        let Some(reason) = entry.reason else { return };
        let event = match entry.decision {
            Decision::Allowed => return,
            _ if reason.is_leak() => Event::Leak,
            Decision::Denied => Event::Denied,
            Decision::Terminated => return,
        };
        let (container, host) = (entry.container.clone(), entry.host.clone());
        let (reason, secrets) = (Some(reason.code()), entry.secrets.clone());
        self.tell(Fact { event, container, host, port: entry.port, reason, secrets });
    }

    pub fn tell_of_question(&self, question: &QuestionStatus) {
        let (container, host) = (question.container.clone(), Some(question.host.clone()));
        let (event, port) = (Event::Ask, Some(question.port));
        self.tell(Fact { event, container, host, port, reason: None, secrets: Vec::new() });
    }

    fn is_new(&self, fact: &Fact) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(host) = &fact.host else { return false };
        if refused.len() >= MOST_CONTAINERS && !refused.contains_key(&fact.container) {
            refused.clear();
        }
        let hosts = refused.entry(fact.container.clone()).or_default();
        hosts.len() < MOST_HOSTS && hosts.insert(host.clone())
    }
}

fn tell_all(words: &[String], facts: &Receiver<Fact>, refusals: &AtomicUsize) {
    for fact in facts {
        if fact.event == Event::Denied {
            refusals.fetch_sub(1, Relaxed);
        }
        if let Err(error) = run(words, &fact) {
            tracing::warn!(%error, "`notify`");
        }
    }
}

fn run(words: &[String], fact: &Fact) -> std::io::Result<()> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let facts = serde_json::to_vec(fact)?;
    if let Some(mut stdin) = child.stdin.take() {
        // Far less than a pipe holds; a command that does not read it is its own fault.
        let _ = stdin.write_all(&facts).and_then(|()| stdin.write_all(b"\n"));
    }
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            kill(&mut child);
            return Err(std::io::Error::other(format!(
                "{program} was not done after {} s",
                PATIENCE.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(event: Event, host: &str) -> Fact {
        let (container, host) = ("agent".to_owned(), Some(host.to_owned()));
        Fact { event, container, host, port: Some(443), reason: None, secrets: Vec::new() }
    }

    #[test]
    fn facts_are_on_standard_input_and_a_host_is_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let told = directory.path().join("told");
        let script = format!("cat >> {}", told.display());
        let words = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let notifier = Notifier::start(words).unwrap().unwrap();
        for host in ["a.example", "$(touch x)", "a.example"] {
            notifier.tell(fact(Event::Denied, host));
        }
        notifier.tell(fact(Event::Ask, "a.example"));
        let deadline = Instant::now() + Duration::from_secs(30);
        let lines = loop {
            let text = std::fs::read_to_string(&told).unwrap_or_default();
            if text.lines().count() == 3 || Instant::now() > deadline {
                break text;
            }
            thread::sleep(Duration::from_millis(10));
        };
        let lines: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!((&lines[1]["host"], &lines[1]["event"]), (&"$(touch x)".into(), &"denied".into()));
        assert_eq!(lines[2]["event"], "ask");
    }

    /// Whoever is refused at will keeps neither a leak nor another container's refusals from being told.
    #[test]
    fn a_flood_of_refusals_hides_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let (told, go) = (directory.path().join("told"), directory.path().join("go"));
        let script = format!("until [ -e {} ]; do sleep 0.01; done; cat >> {}", go.display(), told.display());
        let words = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let notifier = Notifier::start(words).unwrap().unwrap();
        for n in 0..5000 {
            notifier.tell(fact(Event::Denied, &format!("{n}.example")));
        }
        notifier.tell(fact(Event::Leak, "leak.example"));
        std::fs::write(&go, "").unwrap();
        let until = |wanted: &str| {
            let deadline = Instant::now() + Duration::from_secs(30);
            while !std::fs::read_to_string(&told).unwrap_or_default().contains(wanted) {
                assert!(Instant::now() < deadline, "{wanted} was not told");
                thread::sleep(Duration::from_millis(10));
            }
        };
        until("leak.example");
        notifier.tell(Fact { container: "other".to_owned(), ..fact(Event::Denied, "other.example") });
        until("other.example");
    }

    #[test]
    fn a_command_that_hangs_holds_up_nobody_and_none_is_none() {
        assert!(Notifier::start(Vec::new()).unwrap().is_none());
        let words = ["sh", "-c", "sleep 1"].map(str::to_owned).to_vec();
        let notifier = Notifier::start(words).unwrap().unwrap();
        let start = Instant::now();
        for n in 0..200 {
            notifier.tell(fact(Event::Leak, &format!("{n}.example")));
        }
        assert!(start.elapsed() < Duration::from_millis(500));
    }
}
