//! Logins that an operator lets containers make: one each, for a time. Nothing of a login is on disk or in force before the
//! operator has seen whose it is and said yes. Pure, but for the lock.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use understudy_control::{ContainerId, LoginMade};

use super::record::{OwnAccount, Record};

/// What the operator has at the least to look at an account.
const TO_CONFIRM: Duration = Duration::from_secs(120);
/// Answers of a provider that hold what nobody can use: each may have made a token.
const UNUSABLE: u8 = 3;

#[derive(Default)]
pub struct Arming {
    armed: Mutex<HashMap<ContainerId, Armed>>,
    /// How often any was armed.
    count: AtomicU64,
    /// Those that were armed once: a login that comes too late must not go its own way.
    ever: Mutex<HashSet<ContainerId>>,
}

struct Armed {
    /// Tells it from what the same container was armed for before, or is later.
    number: u64,
    /// What the account is to be called; None: as its format.
    account: Option<String>,
    until: Instant,
    state: State,
    /// Why the last attempt came to nothing.
    failed: Option<String>,
    /// Answers that could not be used.
    unusable: u8,
    /// The account that was just confirmed, and that its program is to be given something more of. For nothing else.
    after: Option<String>,
}

enum State {
    /// Nobody has logged in yet.
    Ready,
    /// A request is at the provider.
    Asking,
    /// The operator has to say.
    Made(Box<Made>),
    /// Enough was asked for.
    Spent,
}

/// A login that was made, with the one who waits for what becomes of it.
pub struct Made {
    pub shown: LoginMade,
    /// Of the account that it becomes.
    pub uid: String,
    /// None: a key that is made once this is confirmed.
    pub record: Option<Record>,
    /// Whether its program is to be given something more once this is confirmed.
    pub followed: bool,
    told: oneshot::Sender<()>,
}

/// The one login of a container that is armed. If it comes to nothing, another may be tried.
pub struct Attempt {
    arming: Arc<Arming>,
    container: ContainerId,
    /// Of what it was armed for.
    number: u64,
    account: Option<String>,
    after: Option<String>,
    why: Option<String>,
    unusable: bool,
}

/// What is to be seen of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub account: Option<String>,
    pub left: Duration,
    pub made: Option<LoginMade>,
    pub failed: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArmingError {
    #[error("it is not armed for a login, or no longer")]
    NotArmed,
    #[error("a login of it is under way already")]
    UnderWay,
    #[error("no login was made in it yet")]
    NotMade,
    #[error("a newer login is waiting, and not the one of this code")]
    Another,
    #[error("the provider's answers could not be used {UNUSABLE} times")]
    Spent,
}

impl Arming {
    /// Lets a container log in until then. What it was armed for before is forgotten, unless a login is under way.
    pub fn arm(
        &self,
        container: &ContainerId,
        account: Option<String>,
        until: Instant,
    ) -> Result<(), ArmingError> {
        let mut armed = self.lock(Instant::now());
        match armed.get(container).map(|armed| &armed.state) {
            Some(State::Asking | State::Made(_)) => return Err(ArmingError::UnderWay),
            Some(State::Ready | State::Spent) | None => {}
        }
        let new = Armed::new(self.number(), account, until, None);
        armed.insert(container.clone(), new);
        self.ever().insert(container.clone());
        Ok(())
    }

    /// It was armed by an earlier run of the sidecar.
    pub fn remember(&self, container: &ContainerId) {
        self.ever().insert(container.clone());
    }

    /// Whether its logins are looked at, also when the time for one is over.
    pub fn concerns(&self, container: &ContainerId) -> bool {
        self.ever().contains(container)
    }

    /// The container is gone.
    pub fn forget(&self, container: &ContainerId) {
        self.disarm(container);
        self.ever().remove(container);
    }

    /// A login that is not confirmed yet is lost.
    pub fn disarm(&self, container: &ContainerId) {
        self.lock(Instant::now()).remove(container);
    }

    /// What a program asks for by itself after the login of this account, for as long as an operator has to look at it: it
    /// is waited for as the login was.
    pub fn follow(&self, container: &ContainerId, account: &str) {
        let (until, after) = (Instant::now() + TO_CONFIRM, Some(account.to_owned()));
        let named = Some(format!("{account}-key"));
        let armed = Armed::new(self.number(), named, until, after);
        self.lock(Instant::now()).insert(container.clone(), armed);
    }

    /// For a request of the container that would log in; `follows` if it is one that comes after a login.
    pub fn begin(self: &Arc<Self>, container: &ContainerId, follows: bool) -> Result<Attempt, ArmingError> {
        let mut armed = self.lock(Instant::now());
        let found = armed.get_mut(container).filter(|armed| follows || armed.after.is_none());
        let found = found.ok_or(ArmingError::NotArmed)?;
        match found.state {
            State::Ready => {}
            State::Asking | State::Made(_) => return Err(ArmingError::UnderWay),
            State::Spent => return Err(ArmingError::Spent),
        }
        found.state = State::Asking;
        let (arming, container) = (Arc::clone(self), container.clone());
        let (account, after) = (found.account.clone(), found.after.clone());
        let number = found.number;
        Ok(Attempt { arming, container, number, account, after, why: None, unusable: false })
    }

    /// The login that the operator says yes to, by its code, taken out; [`Arming::put_back`] if it cannot be kept. Whoever
    /// looked at another one says nothing of this.
    pub fn take(&self, container: &ContainerId, code: &str) -> Result<Made, ArmingError> {
        let mut armed = self.lock(Instant::now());
        let found = armed.remove(container).ok_or(ArmingError::NotArmed)?;
        let error = match found.state {
            State::Made(made) if made.shown.code == code => return Ok(*made),
            State::Made(_) => ArmingError::Another,
            State::Ready | State::Asking => ArmingError::NotMade,
            State::Spent => ArmingError::Spent,
        };
        armed.insert(container.clone(), found);
        Err(error)
    }

    pub fn put_back(&self, container: &ContainerId, made: Made, failed: String) {
        let (account, until) = (Some(made.shown.account.clone()), Instant::now() + TO_CONFIRM);
        let state = State::Made(Box::new(made));
        let armed = Armed { state, failed: Some(failed), ..Armed::new(self.number(), account, until, None) };
        self.lock(Instant::now()).insert(container.clone(), armed);
    }

    /// Forgets what nobody confirmed in time.
    pub fn expire(&self) {
        drop(self.lock(Instant::now()));
    }

    pub fn list(&self) -> Vec<(ContainerId, Shown)> {
        let now = Instant::now();
        let armed = self.lock(now);
        let shown = armed.iter().map(|(container, armed)| {
            let made = match &armed.state {
                State::Made(made) => Some(made.shown.clone()),
                State::Ready | State::Asking | State::Spent => None,
            };
            let left = armed.until.saturating_duration_since(now);
            let (account, failed) = (armed.account.clone(), armed.failed.clone());
            (container.clone(), Shown { account, left, made, failed })
        });
        shown.collect()
    }

    /// Without those whose time is over: whoever waits for one hears that nothing comes.
    fn lock(&self, now: Instant) -> MutexGuard<'_, HashMap<ContainerId, Armed>> {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        armed.retain(|_, armed| now < armed.until);
        armed
    }

    fn number(&self) -> u64 {
        self.count.fetch_add(1, Relaxed)
    }

    fn ever(&self) -> MutexGuard<'_, HashSet<ContainerId>> {
        self.ever.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Armed {
    fn new(number: u64, account: Option<String>, until: Instant, after: Option<String>) -> Self {
        Self { number, account, until, state: State::Ready, failed: None, unusable: 0, after }
    }
}

impl Made {
    /// As what the container has it.
    pub fn own(&self) -> OwnAccount {
        OwnAccount { name: self.shown.account.clone(), uid: self.uid.clone() }
    }

    pub fn is_waited_for(&self) -> bool {
        !self.told.is_closed()
    }

    /// Whether the program that logged in still waits for it.
    pub fn tell(self) -> bool {
        self.told.send(()).is_ok()
    }
}

impl Attempt {
    /// What the account is to be called, if the operator said so.
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// The account that was confirmed just before.
    pub fn after(&self) -> Option<&str> {
        self.after.as_deref()
    }

    /// `unusable`: the provider's answer may have brought what nobody has now.
    pub fn failed(&mut self, why: String, unusable: bool) {
        (self.why, self.unusable) = (Some(why), unusable);
    }

    fn is_of(&self, armed: &Armed) -> bool {
        armed.number == self.number
    }

    /// For the operator to decide on. What comes says yes; if nothing comes, it was no, or too late.
    pub fn made(
        self,
        (shown, uid): (LoginMade, String),
        record: Option<Record>,
        followed: bool,
    ) -> oneshot::Receiver<()> {
        let (told, hears) = oneshot::channel();
        let now = Instant::now();
        // Of one that was declined nothing is shown, also if the container was armed once more.
        if let Some(armed) = self.arming.lock(now).get_mut(&self.container).filter(|armed| self.is_of(armed))
        {
            armed.until = armed.until.max(now + TO_CONFIRM);
            armed.state = State::Made(Box::new(Made { shown, uid, record, followed, told }));
        }
        hears
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut all = self.arming.lock(Instant::now());
        let armed = all.get_mut(&self.container).filter(|armed| self.is_of(armed));
        let Some(armed) = armed else { return };
        if matches!(armed.state, State::Asking) {
            armed.unusable += u8::from(self.unusable);
            let spent = armed.unusable >= UNUSABLE;
            armed.state = if spent { State::Spent } else { State::Ready };
            armed.failed = self.why.take();
        }
    }
}

impl std::fmt::Debug for Arming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Arming(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{StandIns, Token, Tokens};
    use super::*;

    fn id(digit: &str) -> ContainerId {
        digit.repeat(64).parse().unwrap()
    }

    fn shown(code: &str) -> (LoginMade, String) {
        let (account, kind, code) = ("work".to_owned(), "chatgpt-account".to_owned(), code.to_owned());
        let uid = code.repeat(32);
        (LoginMade { account, kind, whose: None, code, to_be_made: false }, uid)
    }

    fn record() -> Record {
        let token = |text: &str| Token::new(text.to_owned());
        let tokens = Tokens { access: token("the-access"), refresh: Some(token("the-refresh")), id: None };
        Record::new("chatgpt-account", tokens, StandIns::default())
    }

    fn armed(time: Duration) -> Arc<Arming> {
        let arming = Arc::new(Arming::default());
        arming.arm(&id("a"), Some("work".to_owned()), Instant::now() + time).unwrap();
        arming
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn what_a_declined_one_brings_is_nothing_to_the_next() {
        let arming = armed(HOUR);
        let (first, second) = (arming.begin(&id("a"), false).unwrap(), armed_again(&arming));
        let hears = first.made(shown("0ne"), Some(record()), false);
        drop(hears);
        assert_eq!(arming.take(&id("a"), "0ne").err(), Some(ArmingError::NotMade));
        assert_eq!(arming.list()[0].1.made, None);
        drop(second);
        let mut late = arming.begin(&id("a"), false).unwrap();
        let third = armed_again(&arming);
        late.failed("late".to_owned(), true);
        drop(late);
        assert_eq!(
            (arming.list()[0].1.failed.clone(), arming.begin(&id("a"), false).err()),
            (None, Some(ArmingError::UnderWay))
        );
        drop(third.made(shown("tw0"), Some(record()), false));
        assert!(arming.take(&id("a"), "tw0").is_ok());
    }

    /// What was armed is declined, and the container is armed for another login, which begins.
    fn armed_again(arming: &Arc<Arming>) -> Attempt {
        arming.disarm(&id("a"));
        arming.arm(&id("a"), None, Instant::now() + HOUR).unwrap();
        arming.begin(&id("a"), false).unwrap()
    }

    #[test]
    fn only_the_container_that_is_armed_may_and_one_at_a_time() {
        let arming = armed(HOUR);
        assert_eq!(arming.begin(&id("b"), false).err(), Some(ArmingError::NotArmed));
        assert!(arming.concerns(&id("a")) && !arming.concerns(&id("b")));
        let mut first = arming.begin(&id("a"), false).unwrap();
        assert_eq!(first.account(), Some("work"));
        assert_eq!(arming.begin(&id("a"), false).err(), Some(ArmingError::UnderWay));
        assert_eq!(arming.arm(&id("a"), None, Instant::now() + HOUR), Err(ArmingError::UnderWay));
        first.failed("authorization_pending".to_owned(), false);
        drop(first);
        assert_eq!(arming.list()[0].1.failed.as_deref(), Some("authorization_pending"));
        // Another try.
        assert!(arming.begin(&id("a"), false).is_ok());
    }

    #[test]
    fn what_is_made_waits_for_a_yes_and_is_given_once() {
        let arming = armed(HOUR);
        assert_eq!(arming.take(&id("a"), "1").err(), Some(ArmingError::NotMade));
        let mut hears = arming.begin(&id("a"), false).unwrap().made(shown("1"), Some(record()), false);
        assert_eq!(arming.begin(&id("a"), false).err(), Some(ArmingError::UnderWay));
        assert!(hears.try_recv().is_err());
        let made = arming.take(&id("a"), "1").unwrap();
        arming.put_back(&id("a"), made, "the disk is full".to_owned());
        assert!(arming.take(&id("a"), "1").unwrap().tell() && hears.try_recv().is_ok());
        assert_eq!(arming.take(&id("a"), "1").err(), Some(ArmingError::NotArmed));
        assert_eq!(arming.begin(&id("a"), false).err(), Some(ArmingError::NotArmed));
    }

    /// A yes is to the login that was looked at, whatever has taken its place.
    #[test]
    fn a_yes_to_another_login_keeps_none() {
        let arming = armed(HOUR);
        let _first = arming.begin(&id("a"), false).unwrap().made(shown("1"), Some(record()), false);
        arming.disarm(&id("a"));
        arming.arm(&id("a"), None, Instant::now() + HOUR).unwrap();
        let mut hears = arming.begin(&id("a"), false).unwrap().made(shown("2"), Some(record()), false);
        for stale in ["1", "", "22"] {
            assert_eq!(arming.take(&id("a"), stale).err(), Some(ArmingError::Another));
        }
        assert_eq!(hears.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(arming.take(&id("a"), "2").unwrap().tell());
    }

    #[test]
    fn a_provider_whose_answers_nobody_can_use_is_not_asked_without_end() {
        let arming = armed(HOUR);
        for _ in 0..UNUSABLE {
            // What the provider just says is none.
            for unusable in [false, true] {
                arming.begin(&id("a"), false).unwrap().failed("why".to_owned(), unusable);
            }
        }
        assert_eq!(arming.begin(&id("a"), false).err(), Some(ArmingError::Spent));
        assert_eq!(arming.take(&id("a"), "").err(), Some(ArmingError::Spent));
        assert_eq!(arming.list()[0].1.failed.as_deref(), Some("why"));
        arming.arm(&id("a"), None, Instant::now() + HOUR).unwrap();
        assert!(arming.begin(&id("a"), false).is_ok());
    }

    #[test]
    fn a_no_and_the_end_of_the_time_are_heard() {
        let arming = armed(Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(arming.begin(&id("a"), false).err(), Some(ArmingError::NotArmed));
        assert!(arming.concerns(&id("a")));
        arming.forget(&id("a"));
        assert!(!arming.concerns(&id("a")));
        let arming = armed(HOUR);
        let mut hears = arming.begin(&id("a"), false).unwrap().made(shown("1"), Some(record()), false);
        arming.disarm(&id("a"));
        assert_eq!(hears.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        // Disarmed while the provider was asked: what comes then is nobody's.
        let arming = armed(HOUR);
        let attempt = arming.begin(&id("a"), false).unwrap();
        arming.disarm(&id("a"));
        let mut hears = attempt.made(shown("1"), Some(record()), false);
        assert_eq!(hears.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn the_operator_has_time_to_look_however_late_it_came() {
        let arming = armed(Duration::from_secs(1));
        let _hears = arming.begin(&id("a"), false).unwrap().made(shown("1"), Some(record()), false);
        assert!(arming.list()[0].1.left > Duration::from_secs(100));
    }

    #[test]
    fn what_follows_a_login_is_for_nothing_else() {
        let arming = armed(HOUR);
        arming.disarm(&id("a"));
        arming.follow(&id("a"), "work");
        assert_eq!(arming.begin(&id("a"), false).err(), Some(ArmingError::NotArmed));
        let attempt = arming.begin(&id("a"), true).unwrap();
        assert_eq!((attempt.account(), attempt.after()), (Some("work-key"), Some("work")));
        // An operator who arms it means another login.
        drop(attempt);
        arming.arm(&id("a"), None, Instant::now() + HOUR).unwrap();
        assert_eq!(arming.begin(&id("a"), true).unwrap().after(), None);
    }
}
