//! Requests that wait for a person: one question for each container and host, however many wait for its answer, and on however
//! many ports. An answer names ports, so that it covers none that came after the question was shown. Bounded in number and time, since whoever runs in the container decides how many there are.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use understudy_control::{ContainerId, QuestionStatus};
use understudy_policies::{HostName, HostPattern};

use crate::bell::Bell;
use crate::container::Container;

#[derive(Debug, Clone, Copy)]
pub struct QuestionLimits {
    /// How long a question is open, from the first request that asks it.
    pub patience: Duration,
    /// Open at once, of one container.
    pub open: usize,
    /// Ports of one question.
    pub ports: usize,
    /// In an hour, of one container; each port of a question counts.
    pub hourly: usize,
    /// For how long a question that nobody answered is not asked again.
    pub rest: Duration,
}

impl Default for QuestionLimits {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(60),
            open: 8,
            ports: 4,
            hourly: 60,
            rest: Duration::from_secs(60),
        }
    }
}

#[derive(Default)]
pub struct Questions {
    limits: QuestionLimits,
    inner: Mutex<Inner>,
    /// Told of each new question, and of each port that comes to one.
    on_ask: Option<OnAsk>,
    /// Rung when what is asked changes.
    bell: Arc<Bell>,
}

pub type OnAsk = Box<dyn Fn(&QuestionStatus, u16) + Send + Sync>;

#[derive(Default)]
struct Inner {
    last: u64,
    open: HashMap<Key, Open>,
    /// When each container asked, in the last hour.
    asked: HashMap<ContainerId, VecDeque<Instant>>,
    unanswered: HashMap<Key, Instant>,
    /// How often what is asked has changed.
    changes: u64,
}

type Key = (ContainerId, HostName);

struct Open {
    label: String,
    since: Instant,
    /// In the order of ports; never empty.
    asked: Vec<Asked>,
}

/// One port of it.
struct Asked {
    port: u16,
    /// Tells it from a later question about the same.
    number: u64,
    waiting: u64,
    heard: watch::Sender<Heard>,
}

/// What a request that waits hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Its time is over.
    Nothing,
    /// Policy is another now: ask it again.
    Changed,
    AllowedOnce,
    DeniedOnce,
}

/// Why a request may not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unasked {
    #[error("{0} questions of this container are open already")]
    Open(usize),
    #[error("{0} ports of this host are asked about already")]
    Ports(usize),
    #[error("this container has asked {0} questions in an hour")]
    Hourly(usize),
    #[error("the operator was asked, and did not answer")]
    Unanswered,
}

/// A request's place among those that wait for the answer; given back when dropped.
pub struct Waiting {
    questions: Arc<Questions>,
    key: Key,
    number: u64,
    deadline: Instant,
    heard: watch::Receiver<Heard>,
}

impl Questions {
    pub fn new(limits: QuestionLimits, on_ask: Option<OnAsk>, bell: Arc<Bell>) -> Arc<Self> {
        Arc::new(Self { limits, inner: Mutex::default(), on_ask, bell })
    }

    /// Seconds.
    pub fn patience(&self) -> u64 {
        self.limits.patience.as_secs()
    }

    pub fn ask(
        self: &Arc<Self>,
        container: &Container,
        host: &HostName,
        port: u16,
    ) -> Result<Waiting, Unasked> {
        let now = Instant::now();
        let key = (container.id.clone(), host.clone());
        let mut inner = self.inner();
        if let Some((open, asked)) = inner.asked_about(&key, port) {
            asked.waiting += 1;
            let (number, heard) = (asked.number, asked.heard.subscribe());
            let deadline = open + self.limits.patience;
            return Ok(Waiting { questions: Arc::clone(self), key, number, deadline, heard });
        }
        inner.may_ask(&key, &self.limits, now)?;
        let heard = watch::channel(Heard::Changed).0;
        let receiver = heard.subscribe();
        inner.last += 1;
        let number = inner.last;
        inner.changes += 1;
        let label = || container.label().to_owned();
        let open = inner.open.entry(key.clone()).or_insert_with(|| Open {
            label: label(),
            since: now,
            asked: Vec::new(),
        });
        open.asked.push(Asked { port, number, waiting: 1, heard });
        open.asked.sort_by_key(|asked| asked.port);
        let deadline = open.since + self.limits.patience;
        let status = status(&key, open, self.limits.patience, now);
        drop(inner);
        self.bell.ring();
        if let Some(on_ask) = &self.on_ask {
            on_ask(&status, port);
        }
        Ok(Waiting { questions: Arc::clone(self), key, number, deadline, heard: receiver })
    }

    /// Has every request that waits ask its policy again.
    pub fn changed(&self) {
        for asked in self.inner().open.values().flat_map(|open| &open.asked) {
            asked.heard.send_replace(Heard::Changed);
        }
    }

    /// Answers what is asked now by the containers that are `meant`, and nothing later; how many questions that were, each
    /// port for itself. `port` may be left open.
    pub fn answer(
        &self,
        host: &HostPattern,
        port: Option<u16>,
        meant: impl Fn(&ContainerId) -> bool,
        answer: Heard,
    ) -> usize {
        let mut inner = self.inner();
        let mut answered = 0;
        inner.open.retain(|(id, name), open| {
            let meant = host.matches(name) && meant(id);
            open.asked.retain(|asked| {
                let meant = meant && port.is_none_or(|port| port == asked.port);
                if meant {
                    asked.heard.send_replace(answer);
                    answered += 1;
                }
                !meant
            });
            !open.asked.is_empty()
        });
        inner.changes += u64::from(answered > 0);
        drop(inner);
        self.bell.ring();
        answered
    }

    /// How often what is asked has changed; another number, another [`Questions::list`].
    pub fn changes(&self) -> u64 {
        self.inner().changes
    }

    /// The oldest first.
    pub fn list(&self) -> Vec<QuestionStatus> {
        let now = Instant::now();
        let inner = self.inner();
        let mut open: Vec<_> = inner.open.iter().collect();
        open.sort_by_key(|(_, open)| open.since);
        open.into_iter().map(|(key, open)| status(key, open, self.limits.patience, now)).collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Since when it is open, and what is asked about that port.
    fn asked_about(&mut self, key: &Key, port: u16) -> Option<(Instant, &mut Asked)> {
        let open = self.open.get_mut(key)?;
        let since = open.since;
        Some((since, open.asked.iter_mut().find(|asked| asked.port == port)?))
    }

    fn is_open(&self, key: &Key, number: u64) -> bool {
        self.open.get(key).is_some_and(|open| open.asked.iter().any(|asked| asked.number == number))
    }

    fn may_ask(&mut self, key: &Key, limits: &QuestionLimits, now: Instant) -> Result<(), Unasked> {
        self.unanswered.retain(|_, since| now.duration_since(*since) < limits.rest);
        if self.unanswered.contains_key(key) {
            return Err(Unasked::Unanswered);
        }
        match self.open.get(key) {
            Some(open) if open.asked.len() >= limits.ports => return Err(Unasked::Ports(limits.ports)),
            None if self.open.keys().filter(|(id, ..)| *id == key.0).count() >= limits.open => {
                return Err(Unasked::Open(limits.open));
            }
            _ => {}
        }
        self.asked.retain(|_, times| {
            times.retain(|time| now.duration_since(*time) < Duration::from_secs(3600));
            !times.is_empty()
        });
        let asked = self.asked.entry(key.0.clone()).or_default();
        if asked.len() >= limits.hourly {
            return Err(Unasked::Hourly(limits.hourly));
        }
        asked.push_back(now);
        Ok(())
    }
}

fn status(key: &Key, open: &Open, patience: Duration, now: Instant) -> QuestionStatus {
    let (id, host) = key;
    QuestionStatus {
        container: open.label.clone(),
        container_id: id.clone(),
        host: host.to_string(),
        ports: open.asked.iter().map(|asked| asked.port).collect(),
        waiting: open.asked.iter().map(|asked| asked.waiting).sum(),
        left: patience.saturating_sub(now.duration_since(open.since)).as_secs(),
    }
}

impl Waiting {
    /// The next thing that is said about it.
    pub async fn hear(&mut self) -> Heard {
        let deadline = tokio::time::Instant::from_std(self.deadline);
        match tokio::time::timeout_at(deadline, self.heard.changed()).await {
            Ok(Ok(())) => *self.heard.borrow_and_update(),
            _ => {
                let mut inner = self.questions.inner();
                // The first of them closes it for all: they have one deadline.
                if inner.is_open(&self.key, self.number) {
                    inner.open.remove(&self.key);
                    inner.unanswered.insert(self.key.clone(), Instant::now());
                    inner.changes += 1;
                }
                drop(inner);
                self.questions.bell.ring();
                Heard::Nothing
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut inner = self.questions.inner();
        if !inner.is_open(&self.key, self.number) {
            return;
        }
        let Some(open) = inner.open.get_mut(&self.key) else { return };
        let number = self.number;
        for asked in open.asked.iter_mut().filter(|asked| asked.number == number) {
            asked.waiting = asked.waiting.saturating_sub(1);
        }
        let before = open.asked.len();
        open.asked.retain(|asked| asked.waiting > 0);
        if open.asked.len() == before {
            return;
        }
        if open.asked.is_empty() {
            inner.open.remove(&self.key);
        }
        inner.changes += 1;
        drop(inner);
        self.questions.bell.ring();
    }
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Questions(..)")
    }
}
