//! Every container the sidecar knows, from `Prepare` to `Detach`. What a container may do is decided elsewhere
//! (`decide_terms`), and serving its sockets is done elsewhere (`start`).

mod logins;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use understudy_control::{
    Attach, ContainerId, ContainerStatus, Decide, DecisionStatus, Effect, Explain, Explained, Lasting, Lines,
    ManagedFile, Prepare, Prepared, Reattach, Refusal, SecretStatus, Status,
};
use understudy_policies::Rule;
use understudy_policies::annotation::host_and_port;

use crate::accounts::login::KeepError;
use crate::accounts::{Arming, Record};
use crate::attach::descriptors::{Sockets, verify};
use crate::attach::revocations::Revocations;
use crate::container::Container;
use crate::credentials::report::Holders;
use crate::credentials::{Asked, Rights, Terms};
use crate::decide::Denial;
use crate::dns::{SyntheticNames, SyntheticRange};
use crate::explain::verdict;
use crate::operator::decisions::{self, Decision};
use crate::operator::questions::Heard;
use crate::operator::{Decisions, Questions, limited};
use crate::reason::Reason;

/// A `Prepare` that is not followed by an `Attach` within this time is forgotten: the start failed in between.
const PREPARED_FOR: Duration = Duration::from_secs(60);

/// Containers at once; a hook beyond that is refused with a reason.
const MAX_CONTAINERS: usize = 4096;

pub type DecideTerms = Box<dyn Fn(&Prepare) -> Result<Terms, Refusal> + Send + Sync>;
pub type DecideRights = Box<dyn Fn(&Asked) -> Rights + Send + Sync>;
/// Whether the operator may decide so about a container, or about all.
pub type MayDecide = Box<dyn Fn(&Rule, &[ManagedFile]) -> Result<(), Refusal> + Send + Sync>;
pub type ReportSecrets = Box<dyn Fn(&Holders) -> Vec<SecretStatus> + Send + Sync>;
/// Keeps the account of that name, and gives the secrets that are declared to be it, each with whether it may be granted to
/// the container that logged in.
pub type KeepLogin =
    Box<dyn Fn(&Asked, &str, &Record) -> Result<Vec<(String, bool)>, KeepError> + Send + Sync>;
pub type Start = Box<dyn Fn(Arc<Container>, Sockets) -> std::io::Result<()> + Send + Sync>;

/// What the registry is built on.
pub struct RegistryParts {
    /// What a container is given, or why not.
    pub decide_terms: DecideTerms,
    /// What a container that runs may do now.
    pub decide_rights: DecideRights,
    /// Serves a container's sockets from now on.
    pub start: Start,
    pub revocations: Revocations,
    pub may_decide: MayDecide,
    pub decisions: Arc<Decisions>,
    pub questions: Arc<Questions>,
    /// Which containers may log in.
    pub arming: Arc<Arming>,
    pub keep_login: KeepLogin,
    /// PEM of the authority's certificate.
    pub authority: String,
    pub range: SyntheticRange,
    /// `SO_NETNS_COOKIE` of the sidecar's own network namespace.
    pub own_cookie: u64,
    /// Problems of the configuration now, for `status`.
    pub problems: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Audit lines from a number on.
    pub lines: Box<dyn Fn(u64) -> Lines + Send + Sync>,
    /// Counts, with what the status says.
    pub metrics: Box<dyn Fn(&Status) -> String + Send + Sync>,
    /// What is to be told of secrets, given who holds a stand-in of which.
    pub secrets: ReportSecrets,
}

pub struct Registry {
    parts: RegistryParts,
    started: Instant,
    known: Mutex<HashMap<ContainerId, Known>>,
}

enum Known {
    Prepared { name: Option<String>, terms: Box<Terms>, since: Instant },
    Attached(Attached),
}

struct Attached {
    container: Arc<Container>,
    asked: Asked,
}

impl Registry {
    pub fn new(parts: RegistryParts) -> Self {
        Self { parts, started: Instant::now(), known: Mutex::default() }
    }

    pub fn prepare(&self, prepare: Prepare) -> Result<Prepared, Refusal> {
        let terms = self.terms(&prepare)?;
        let prepared = Prepared {
            env: terms.env.clone(),
            placement: terms.placement.clone(),
            authority: self.parts.authority.clone(),
            nameserver: self.parts.range.nameserver().into(),
            notes: terms.notes.clone(),
        };
        let entry = Known::Prepared { name: prepare.name, terms: Box::new(terms), since: Instant::now() };
        let mut known = self.known();
        if known.len() >= MAX_CONTAINERS && !known.contains_key(&prepare.id) {
            return Err(Refusal::new(
                format!("the sidecar holds {MAX_CONTAINERS} containers already"),
                "stop some, or run a second installation",
            ));
        }
        if let Some(Known::Attached(old)) = known.insert(prepare.id, entry) {
            old.container.revoke();
        }
        Ok(prepared)
    }

    pub fn attach(&self, attach: &Attach, descriptors: Vec<OwnedFd>) -> Result<(), Refusal> {
        let sockets = self.sockets(attach, descriptors)?;
        let mut known = self.known();
        self.not_revoked(&attach.id)?;
        match known.remove(&attach.id) {
            Some(Known::Prepared { name, terms, since }) if since.elapsed() < PREPARED_FOR => {
                let attached = self.run(attach.id.clone(), name, *terms, sockets)?;
                known.insert(attach.id.clone(), Known::Attached(attached));
                Ok(())
            }
            Some(attached @ Known::Attached(_)) => {
                known.insert(attach.id.clone(), attached);
                Err(Refusal::new("this container is attached already", "stop it, then start it again"))
            }
            _ => Err(Refusal::new(
                "this container was not prepared, or too long ago",
                "start it again; if that fails, run: understudy-hook doctor",
            )),
        }
    }

    /// For a container that runs already. Replaces the sockets of one that is attached.
    pub fn reattach(
        &self,
        Reattach { prepare, attach }: Reattach,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        if prepare.id != attach.id {
            return Err(Refusal::new("two different containers in one request", "update understudy-hook"));
        }
        let sockets = self.sockets(&attach, descriptors)?;
        let terms = self.terms(&prepare)?;
        let mut known = self.known();
        self.not_revoked(&prepare.id)?;
        if let Some(Known::Attached(old)) = known.remove(&prepare.id) {
            old.container.revoke();
        }
        let attached = self.run(prepare.id.clone(), prepare.name, terms, sockets)?;
        known.insert(prepare.id, Known::Attached(attached));
        Ok(())
    }

    pub fn detach(&self, id: &ContainerId) {
        if let Some(Known::Attached(attached)) = self.known().remove(id) {
            attached.container.revoke();
        }
        self.parts.arming.forget(id);
    }

    /// Ends one container's connections and grants, also for its later starts. What people call it.
    pub fn revoke(&self, wanted: &str) -> Result<String, Refusal> {
        let known = self.known();
        let (id, entry) = find(&known, wanted)?;
        self.revoke_known([(id, entry)]).map(|labels| labels.into_iter().next().unwrap_or_default())
    }

    /// The same for every container that is known, in the middle of its start or running.
    pub fn revoke_all(&self) -> Result<Vec<String>, Refusal> {
        let known = self.known();
        let mut labels = self.revoke_known(known.iter())?;
        labels.sort();
        Ok(labels)
    }

    fn revoke_known<'k>(
        &self,
        known: impl IntoIterator<Item = (&'k ContainerId, &'k Known)>,
    ) -> Result<Vec<String>, Refusal> {
        let mut unrecorded = None;
        let revoked = known.into_iter().map(|(id, entry)| {
            // Nothing that fails for one keeps another's connections open.
            if let Known::Attached(attached) = entry {
                attached.container.revoke();
            }
            self.parts.arming.disarm(id);
            if let Err(error) = self.parts.revocations.add(id) {
                unrecorded = Some(error);
            }
            entry.name().unwrap_or(id.short()).to_owned()
        });
        let revoked = revoked.collect();
        match unrecorded {
            None => Ok(revoked),
            Some(error) => Err(Refusal::new(
                format!("the connections were ended, but a revocation could not be recorded: {error}"),
                "make the state volume writable, then revoke again; a restarted container would get its grants back",
            )),
        }
    }

    /// What would become of a request of this container now.
    pub fn explain(&self, wanted: &Explain) -> Result<Explained, Refusal> {
        let known = self.known();
        let (id, entry) = find(&known, &wanted.container)?;
        let rights = self.rights(entry);
        let explained = verdict::explain(&rights.policy, rights.mode, &wanted.url, &wanted.method);
        let explained = explained.map_err(|error| {
            Refusal::new(format!("{error:#}"), "write it as `https://api.example.com/v1/x`")
        })?;
        let stopped = match self.not_revoked(id) {
            Err(Refusal { remedy, .. }) => {
                Some(Denial { reason: Reason::Revoked, policy: explained.policy.clone(), rule: None, remedy })
            }
            Ok(()) => entry.container().and_then(|container| limited(container)),
        };
        let explained = match stopped {
            Some(denial) => verdict::refused(explained, denial),
            None => explained,
        };
        Ok(verdict::named(explained, entry.name().unwrap_or(id.short())))
    }

    /// What the operator says about a host, in force when this returns. None if it was for once.
    pub fn decide(&self, wanted: &Decide) -> Result<Option<DecisionStatus>, Refusal> {
        let (host, port) = host_and_port(&wanted.host).map_err(|problem| {
            Refusal::new(
                format!("{:?}: {problem}", wanted.host),
                "write a host, as `api.example.com` or `api.example.com:8443`",
            )
        })?;
        let (container, managed) = match &wanted.container {
            Some(wanted) => {
                let known = self.known();
                let (id, entry) = find(&known, wanted)?;
                (Some(id.clone()), entry.asked().prepare.managed.clone())
            }
            None => (None, Vec::new()),
        };
        let port = port.or((wanted.effect == Effect::Allow).then_some(443));
        let mut decision = Decision { effect: wanted.effect, host, port, container, until: None };
        (self.parts.may_decide)(&decision.rule("operator".to_owned()), &managed)?;
        match wanted.lasting {
            Lasting::Once => return self.answer_once(&decision).map(|()| None),
            Lasting::Container if decision.container.is_none() => {
                return Err(Refusal::new(
                    "no container is named",
                    "add --container NAME, --for TIME or --always",
                ));
            }
            Lasting::Seconds(seconds) => {
                decision.until = Some(decisions::now().saturating_add(seconds.saturating_mul(1000)));
            }
            Lasting::Container | Lasting::Always => {}
        }
        let status = self.parts.decisions.add(decision).map_err(unrecorded)?;
        self.reconsider();
        Ok(Some(status))
    }

    fn answer_once(&self, decision: &Decision) -> Result<(), Refusal> {
        let answer = match decision.effect {
            Effect::Allow => Heard::AllowedOnce,
            Effect::Deny => Heard::DeniedOnce,
        };
        let Decision { host, port, container, .. } = decision;
        match self.parts.questions.answer(host, *port, container.as_ref(), answer) {
            0 => Err(Refusal::new(
                format!("no request waits for an answer about {host}"),
                "see what waits with: understudy status",
            )),
            _ => Ok(()),
        }
    }

    pub fn withdraw(&self, number: u64) -> Result<DecisionStatus, Refusal> {
        let withdrawn = self.parts.decisions.withdraw(number).map_err(unrecorded)?;
        let withdrawn = withdrawn.ok_or_else(|| {
            Refusal::new(format!("there is no decision {number}"), "list them with: understudy status")
        })?;
        self.reconsider();
        Ok(withdrawn)
    }

    pub fn lines(&self, from: u64) -> Lines {
        (self.parts.lines)(from)
    }

    pub fn metrics(&self) -> String {
        (self.parts.metrics)(&self.status())
    }

    pub fn status(&self) -> Status {
        let mut containers: Vec<ContainerStatus> =
            self.known().iter().map(|(id, entry)| self.container_status(id, entry)).collect();
        containers.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: self.started.elapsed().as_secs(),
            containers,
            problems: (self.parts.problems)(),
            decisions: self.parts.decisions.list(),
            questions: self.parts.questions.list(),
        }
    }

    pub fn secrets(&self) -> Vec<SecretStatus> {
        let mut holders = Holders::new();
        for (id, entry) in self.known().iter() {
            let Known::Attached(Attached { container, asked }) = entry else { continue };
            let rights = container.rights();
            for name in asked.granted.names() {
                let lost = match self.parts.revocations.contains(id) || container.is_revoked() {
                    true => " (revoked)",
                    false if !rights.grants.contains(&name) => " (no longer granted)",
                    false => "",
                };
                holders.entry(name).or_default().push(format!("{}{lost}", container.label()));
            }
        }
        holders.values_mut().for_each(|labels| labels.sort());
        (self.parts.secrets)(&holders)
    }

    /// Decides anew what running containers may do, after a reload or a decision of the operator.
    pub fn reconsider(&self) {
        for entry in self.known().values() {
            if let Known::Attached(Attached { container, asked }) = entry {
                container.set_rights((self.parts.decide_rights)(asked));
            }
        }
        self.parts.questions.changed();
    }

    /// Forgets what was prepared and never attached, and decisions whose time is over.
    pub fn expire(&self) {
        self.parts.arming.expire();
        if self.parts.decisions.expire(decisions::now()) {
            self.reconsider();
        }
        self.known().retain(|_, entry| match entry {
            Known::Prepared { since, .. } => since.elapsed() < PREPARED_FOR,
            Known::Attached(_) => true,
        });
    }

    /// Ends every container's connections: the sidecar stops.
    pub fn close(&self) {
        for (_, entry) in self.known().drain() {
            if let Known::Attached(attached) = entry {
                attached.container.revoke();
            }
        }
    }

    /// Connections that are open now, of all containers.
    pub fn open_connections(&self) -> u64 {
        let known = self.known();
        known
            .values()
            .map(|entry| entry.container().map_or(0, |c| c.counters.open_connections.load(Relaxed)))
            .sum()
    }

    fn terms(&self, prepare: &Prepare) -> Result<Terms, Refusal> {
        self.not_revoked(&prepare.id)?;
        (self.parts.decide_terms)(prepare)
    }

    /// A caller that gives something to a container asks while it holds `known`, as [`Registry::revoke`] does: a
    /// revocation that comes between two requests of a hook is then never missed.
    fn not_revoked(&self, id: &ContainerId) -> Result<(), Refusal> {
        if self.parts.revocations.contains(id) {
            return Err(Refusal::new(
                "this container was revoked by the operator",
                "remove it and create a new one",
            ));
        }
        Ok(())
    }

    fn sockets(&self, attach: &Attach, descriptors: Vec<OwnedFd>) -> Result<Sockets, Refusal> {
        verify(attach, descriptors, self.parts.own_cookie).map_err(|error| {
            Refusal::new(error.to_string(), "use the understudy-hook of this sidecar's version")
        })
    }

    fn run(
        &self,
        id: ContainerId,
        name: Option<String>,
        terms: Terms,
        sockets: Sockets,
    ) -> Result<Attached, Refusal> {
        let names = SyntheticNames::new(self.parts.range);
        // Decided while `known` is held, as by `reconsider`: a reload since `Prepare` is never missed.
        let rights = (self.parts.decide_rights)(&terms.asked);
        let container = Arc::new(Container::new(id, name, terms.harness, rights, names, terms.notes));
        (self.parts.start)(Arc::clone(&container), sockets).map_err(|error| {
            container.revoke();
            Refusal::new(format!("the sidecar cannot serve the sockets: {error}"), "see the sidecar's log")
        })?;
        Ok(Attached { container, asked: terms.asked })
    }

    fn container_status(&self, id: &ContainerId, entry: &Known) -> ContainerStatus {
        let rights = self.rights(entry);
        let (harness, notes) = match entry {
            Known::Prepared { terms, .. } => (&terms.harness, &terms.notes),
            Known::Attached(Attached { container: c, .. }) => (&c.harness, &c.notes),
        };
        let count = |counter: fn(&crate::container::Counters) -> &std::sync::atomic::AtomicU64| {
            entry.container().map_or(0, |c| counter(&c.counters).load(Relaxed))
        };
        let state = match entry {
            _ if self.parts.revocations.contains(id) => "revoked",
            Known::Prepared { .. } => "prepared",
            Known::Attached(_) => "attached",
        };
        ContainerStatus {
            id: id.clone(),
            name: entry.name().map(str::to_owned),
            harness: harness.clone(),
            policy: rights.policy.label().to_owned(),
            mode: rights.mode.to_string(),
            state: state.to_owned(),
            secrets: rights.grants.names(),
            open_connections: count(|c| &c.open_connections),
            allowed: count(|c| &c.allowed),
            denied: count(|c| &c.denied),
            terminated: count(|c| &c.terminated),
            notes: notes.clone(),
        }
    }

    fn rights(&self, entry: &Known) -> Arc<Rights> {
        match entry {
            Known::Prepared { terms, .. } => (self.parts.decide_rights)(&terms.asked).into(),
            Known::Attached(attached) => attached.container.rights(),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ContainerId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By its name, its id, or how its id begins.
fn find<'k>(
    known: &'k HashMap<ContainerId, Known>,
    wanted: &str,
) -> Result<(&'k ContainerId, &'k Known), Refusal> {
    // A name that is meant exactly must not be held up by an id that happens to begin like it.
    if let Some(exact) =
        known.iter().find(|(id, entry)| entry.name() == Some(wanted) || id.as_str() == wanted)
    {
        return Ok(exact);
    }
    let listing = "list the containers with: understudy status";
    let mut matching = known.iter().filter(|(id, _)| !wanted.is_empty() && id.as_str().starts_with(wanted));
    match (matching.next(), matching.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Refusal::new(format!("no container {wanted:?} is known"), listing)),
        (Some(_), Some(_)) => {
            Err(Refusal::new(format!("{wanted:?} stands for more than one container"), listing))
        }
    }
}

fn unrecorded(error: std::io::Error) -> Refusal {
    Refusal::new(
        format!("the decision could not be recorded, so nothing was changed: {error}"),
        "make the state volume writable, then try again",
    )
}

impl Known {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Prepared { name, .. } => name.as_deref(),
            Self::Attached(attached) => attached.container.name.as_deref(),
        }
    }

    fn asked(&self) -> &Asked {
        match self {
            Self::Prepared { terms, .. } => &terms.asked,
            Self::Attached(attached) => &attached.asked,
        }
    }

    fn container(&self) -> Option<&Arc<Container>> {
        match self {
            Self::Prepared { .. } => None,
            Self::Attached(attached) => Some(&attached.container),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicUsize;

    use understudy_control::{
        ArmLogin, Client, ControlDirectory, HelloSecret, Listener, Outcome, Placement, Reply, Request, User,
    };
    use understudy_policies::{Policy, PolicySet, Verdict};

    use super::*;
    use crate::accounts::Token;
    use crate::accounts::record::{StandIns, Tokens};
    use crate::attach::descriptors::tests::good as sockets;
    use crate::credentials::Grants;
    use crate::operator::Mode;
    use crate::operator::questions::QuestionLimits;

    /// A harness for which the operator revokes the container while its terms are decided.
    const REVOKED_MEANWHILE: &str = "revoked-meanwhile";

    struct Stand {
        registry: Registry,
        started: Arc<AtomicUsize>,
        all_withdrawn: Arc<Mutex<bool>>,
        _state: tempfile::TempDir,
    }

    fn stand() -> Stand {
        let state = tempfile::tempdir().unwrap();
        let started = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&started);
        let all_withdrawn = Arc::new(Mutex::new(false));
        let withdrawn = Arc::clone(&all_withdrawn);
        let decisions = Arc::new(Decisions::load(&state.path().join("decisions.json")).unwrap());
        let decided = Arc::clone(&decisions);
        let revocations = Revocations::new(state.path().join("revoked"));
        let meanwhile = revocations.clone();
        let registry = Registry::new(RegistryParts {
            decide_terms: Box::new(move |prepare| {
                let harness = prepare.annotations.get("understudy.harness");
                let harness = harness.ok_or_else(|| Refusal::new("no harness", "name one"))?;
                if harness == REVOKED_MEANWHILE {
                    meanwhile.add(&prepare.id).unwrap();
                }
                Ok(Terms {
                    harness: harness.clone(),
                    policy: Arc::new(PolicySet::default()),
                    mode: Mode::Deny,
                    grants: Arc::new(Grants::default()),
                    asked: Asked::new(prepare, harness, ["a"].into_iter().collect()),
                    env: Vec::new(),
                    placement: Placement::default(),
                    notes: Vec::new(),
                })
            }),
            decide_rights: Box::new(move |asked| Rights {
                values: Vec::new(),
                grants: Arc::new(if *withdrawn.lock().unwrap() {
                    Grants::default()
                } else {
                    asked.granted.clone()
                }),
                policy: Arc::new(PolicySet::combine(vec![Arc::new(Policy::new(
                    "operator",
                    decided.rules(&asked.prepare.id, 0),
                ))])),
                ..Rights::default()
            }),
            start: Box::new(move |_, _| {
                count.fetch_add(1, Relaxed);
                Ok(())
            }),
            revocations,
            may_decide: Box::new(|rule, _| match rule.place.is_empty() {
                true => Err(Refusal::new("no", "no")),
                false => Ok(()),
            }),
            decisions: Arc::clone(&decisions),
            questions: Questions::new(QuestionLimits::default(), None),
            arming: Arc::default(),
            keep_login: Box::new(|_, name, _| match name {
                "taken" => Err(KeepError::Stored(name.to_owned())),
                _ => Ok(vec![("mine".to_owned(), true), ("not-mine".to_owned(), false)]),
            }),
            authority: "PEM".to_owned(),
            range: SyntheticRange::default(),
            own_cookie: 0,
            problems: Box::new(Vec::new),
            metrics: Box::new(|_| String::new()),
            lines: Box::new(|from| Lines { lines: Vec::new(), next: from, lost: 0, more: false }),
            secrets: Box::new(|holders| holders.keys().map(|name| held(name, &holders[name])).collect()),
        });
        Stand { registry, started, all_withdrawn, _state: state }
    }

    fn held(name: &str, holders: &[String]) -> SecretStatus {
        SecretStatus {
            name: name.to_owned(),
            kind: String::new(),
            source: String::new(),
            usable: true,
            problem: None,
            hosts: Vec::new(),
            placements: Vec::new(),
            expires: None,
            holders: holders.to_vec(),
            last_use: None,
            swaps: 0,
            leaks: 0,
            agent_can_read: String::new(),
        }
    }

    fn prepare(id: &str, name: &str) -> Prepare {
        Prepare {
            id: id.repeat(64).parse().unwrap(),
            name: Some(name.to_owned()),
            image: None,
            annotations: BTreeMap::from([("understudy.harness".to_owned(), "generic".to_owned())]),
            user: User { uid: 0, gid: 0 },
            env: BTreeMap::new(),
            args: Vec::new(),
            managed: Vec::new(),
        }
    }

    fn attach(registry: &Registry, id: &str) -> Result<(), Refusal> {
        let (attach, descriptors) = sockets(id);
        registry.attach(&attach, descriptors)
    }

    fn states(registry: &Registry) -> Vec<(String, String)> {
        let status = registry.status();
        status.containers.into_iter().map(|c| (c.name.unwrap_or_default(), c.state)).collect()
    }

    #[test]
    fn a_container_is_prepared_attached_and_detached() {
        let stand = stand();
        let prepared = stand.registry.prepare(prepare("a", "agent")).unwrap();
        assert_eq!(
            (prepared.authority.as_str(), prepared.nameserver.to_string()),
            ("PEM", "28.0.0.1".to_owned())
        );
        assert_eq!(states(&stand.registry), [("agent".to_owned(), "prepared".to_owned())]);
        attach(&stand.registry, "a").unwrap();
        assert_eq!(states(&stand.registry), [("agent".to_owned(), "attached".to_owned())]);
        assert_eq!(stand.started.load(Relaxed), 1);
        stand.registry.detach(&"a".repeat(64).parse().unwrap());
        assert_eq!(states(&stand.registry), []);
    }

    #[test]
    fn nothing_is_attached_that_was_not_prepared_or_twice() {
        let stand = stand();
        assert!(attach(&stand.registry, "a").is_err());
        stand.registry.prepare(prepare("a", "agent")).unwrap();
        attach(&stand.registry, "a").unwrap();
        assert!(attach(&stand.registry, "a").unwrap_err().reason.contains("already"));
        assert_eq!(stand.started.load(Relaxed), 1);
        assert_eq!(states(&stand.registry), [("agent".to_owned(), "attached".to_owned())]);
    }

    #[test]
    fn a_reload_reaches_running_containers_and_those_in_the_middle_of_a_start() {
        let stand = stand();
        let secrets = |at: usize| stand.registry.status().containers[at].secrets.clone();
        stand.registry.prepare(prepare("a", "a")).unwrap();
        attach(&stand.registry, "a").unwrap();
        stand.registry.prepare(prepare("b", "b")).unwrap();
        assert_eq!((secrets(0), secrets(1)), (vec!["a".to_owned()], vec!["a".to_owned()]));
        *stand.all_withdrawn.lock().unwrap() = true;
        stand.registry.reconsider();
        attach(&stand.registry, "b").unwrap();
        assert_eq!((secrets(0), secrets(1)), (vec![], vec![]));
        *stand.all_withdrawn.lock().unwrap() = false;
        stand.registry.reconsider();
        assert_eq!((secrets(0), secrets(1)), (vec!["a".to_owned()], vec!["a".to_owned()]));
    }

    #[test]
    fn a_container_gets_a_login_that_it_made_once_the_operator_confirmed_it() {
        let stand = stand();
        let registry = &stand.registry;
        let arm = |container: &str, account: &str, seconds| {
            let account = Some(account.to_owned());
            registry.arm_login(&ArmLogin { container: container.to_owned(), account, seconds })
        };
        registry.prepare(prepare("a", "agent")).unwrap();
        assert!(arm("agent", "work", 60).unwrap_err().reason.contains("does not run yet"));
        attach(registry, "a").unwrap();
        assert!(arm("nobody", "work", 60).is_err() && arm("agent", "work", 86_401).is_err());
        assert!(arm("agent", "../work", 60).unwrap_err().reason.contains("lower-case"));
        assert!(registry.keep_login("agent").unwrap_err().reason.contains("not armed"));
        arm("agent", "taken", 60).unwrap();
        assert!(registry.keep_login("agent").unwrap_err().reason.contains("no login was made"));
        let made = |account: &str| {
            let token = |text: &str| Token::new(text.to_owned());
            let tokens = Tokens { access: token("access"), refresh: token("refresh"), id: None };
            let attempt = registry.parts.arming.begin(&"a".repeat(64).parse().unwrap()).unwrap();
            attempt.made(account.to_owned(), Record::new("kind", tokens, StandIns::default()))
        };
        let mut hears = made("taken");
        assert_eq!(registry.armed_logins()[0].made.as_ref().map(|made| made.kind.as_str()), Some("kind"));
        assert!(registry.keep_login("agent").unwrap_err().reason.contains("not replaced"));
        assert!(hears.try_recv().is_err());
        registry.forget_login("agent").unwrap();
        assert!(registry.armed_logins().is_empty());
        arm("agent", "work", 60).unwrap();
        let mut hears = made("work");
        let kept = registry.keep_login("agent").unwrap();
        assert_eq!((kept.secrets.len(), kept.granted, kept.told), (2, vec!["mine".to_owned()], true));
        assert!(hears.try_recv().is_ok());
        assert_eq!(registry.status().containers[0].secrets, ["a", "mine"]);
        // A container that is gone is armed for nothing.
        arm("agent", "work", 60).unwrap();
        registry.detach(&"a".repeat(64).parse().unwrap());
        assert!(registry.armed_logins().is_empty());
    }

    #[test]
    fn who_holds_a_stand_in_is_told_and_whether_it_is_still_worth_something() {
        let stand = stand();
        for (id, name) in [("a", "one"), ("b", "two"), ("c", "three")] {
            stand.registry.prepare(prepare(id, name)).unwrap();
        }
        attach(&stand.registry, "a").unwrap();
        attach(&stand.registry, "b").unwrap();
        let holders = || stand.registry.secrets()[0].holders.clone();
        assert_eq!(holders(), ["one", "two"]);
        stand.registry.revoke("two").unwrap();
        assert_eq!(holders(), ["one", "two (revoked)"]);
        *stand.all_withdrawn.lock().unwrap() = true;
        stand.registry.reconsider();
        assert_eq!(holders(), ["one (no longer granted)", "two (revoked)"]);
    }

    #[test]
    fn a_refused_container_is_not_kept() {
        let stand = stand();
        let mut bad = prepare("a", "agent");
        bad.annotations.clear();
        assert_eq!(stand.registry.prepare(bad).unwrap_err().reason, "no harness");
        assert_eq!(states(&stand.registry), []);
    }

    #[test]
    fn a_revoked_container_gets_nothing_back() {
        let stand = stand();
        stand.registry.prepare(prepare("a", "agent")).unwrap();
        attach(&stand.registry, "a").unwrap();
        stand.registry.revoke("agent").unwrap();
        assert_eq!(states(&stand.registry), [("agent".to_owned(), "revoked".to_owned())]);
        assert!(stand.registry.prepare(prepare("a", "agent")).unwrap_err().reason.contains("revoked"));
        let (attach, descriptors) = sockets("a");
        let both = Reattach { prepare: prepare("a", "agent"), attach };
        assert!(stand.registry.reattach(both, descriptors).unwrap_err().reason.contains("revoked"));
    }

    #[test]
    fn a_revocation_in_the_middle_of_a_start_holds() {
        let stand = stand();
        stand.registry.prepare(prepare("a", "agent")).unwrap();
        stand.registry.revoke("agent").unwrap();
        assert!(attach(&stand.registry, "a").unwrap_err().reason.contains("revoked"));

        let mut late = prepare("b", "other");
        late.annotations.insert("understudy.harness".to_owned(), REVOKED_MEANWHILE.to_owned());
        let (attach, descriptors) = sockets("b");
        let both = Reattach { prepare: late, attach };
        assert!(stand.registry.reattach(both, descriptors).unwrap_err().reason.contains("revoked"));
        assert_eq!(stand.started.load(Relaxed), 0);
    }

    #[test]
    fn a_decision_is_in_force_at_once_for_whom_it_was_made_and_can_be_taken_back() {
        let stand = stand();
        for (id, name) in [("a", "one"), ("b", "two")] {
            stand.registry.prepare(prepare(id, name)).unwrap();
            attach(&stand.registry, id).unwrap();
        }
        let decide = |effect, host: &str, container: Option<&str>, lasting| {
            let container = container.map(str::to_owned);
            stand.registry.decide(&Decide { effect, host: host.to_owned(), container, lasting })
        };
        let allowed = |id: &str| {
            let known = stand.registry.known();
            let rights = known[&id.repeat(64).parse().unwrap()].container().unwrap().rights();
            matches!(rights.policy.decide(&"a.example".parse().unwrap(), 443), Verdict::Allowed { .. })
        };
        let one = decide(Effect::Allow, "a.example", Some("one"), Lasting::Container).unwrap().unwrap();
        assert!(allowed("a") && !allowed("b"));
        let all = decide(Effect::Allow, "a.example", None, Lasting::Always).unwrap().unwrap();
        assert!(allowed("a") && allowed("b"));
        decide(Effect::Deny, "a.example", Some("two"), Lasting::Seconds(60)).unwrap();
        assert!(allowed("a") && !allowed("b"));
        stand.registry.withdraw(all.number).unwrap();
        stand.registry.withdraw(one.number).unwrap();
        assert!(!allowed("a"));
        assert_eq!(stand.registry.status().decisions.len(), 1);
        for (host, container, lasting, said) in [
            ("a.example/x", None, Lasting::Always, "a scheme or path"),
            ("*", None, Lasting::Always, "every host"),
            ("a.example", None, Lasting::Container, "no container is named"),
            ("a.example", Some("three"), Lasting::Always, "no container \"three\""),
            ("a.example", None, Lasting::Once, "no request waits"),
        ] {
            let refusal = decide(Effect::Allow, host, container, lasting).unwrap_err();
            assert!(refusal.reason.contains(said), "{refusal}");
        }
        assert!(stand.registry.withdraw(99).is_err());
    }

    #[test]
    fn revoke_needs_one_container() {
        let stand = stand();
        stand.registry.prepare(prepare("a", "one")).unwrap();
        stand.registry.prepare(prepare("b", "two")).unwrap();
        for wanted in ["", "none", "c"] {
            assert!(stand.registry.revoke(wanted).is_err(), "{wanted:?}");
        }
        stand.registry.revoke("aaaa").unwrap();
        assert!(stand.registry.prepare(prepare("b", "two")).is_ok());

        // The name of one is how the id of another begins.
        stand.registry.prepare(prepare("c", "bbb")).unwrap();
        stand.registry.revoke("bbb").unwrap();
        assert!(stand.registry.prepare(prepare("c", "bbb")).is_err());
        assert!(stand.registry.prepare(prepare("b", "two")).is_ok());
    }

    #[test]
    fn all_are_revoked_at_once_those_in_the_middle_of_their_start_too() {
        let stand = stand();
        for (id, name) in [("a", "one"), ("b", "two"), ("c", "starting")] {
            stand.registry.prepare(prepare(id, name)).unwrap();
        }
        attach(&stand.registry, "a").unwrap();
        attach(&stand.registry, "b").unwrap();
        let running: Vec<_> =
            stand.registry.known().values().filter_map(|entry| entry.container().cloned()).collect();
        assert_eq!(stand.registry.revoke_all().unwrap(), ["one", "starting", "two"]);
        assert!(running.len() == 2 && running.iter().all(|container| container.is_revoked()));
        assert!(attach(&stand.registry, "c").unwrap_err().reason.contains("revoked"));
        for id in ["a", "b", "c"] {
            assert!(stand.registry.prepare(prepare(id, "again")).is_err(), "{id}");
        }
        // One that comes later is another.
        stand.registry.prepare(prepare("d", "later")).unwrap();
        attach(&stand.registry, "d").unwrap();
    }

    #[test]
    fn what_cannot_be_recorded_is_told_and_cut_all_the_same() {
        let stand = stand();
        for (id, name) in [("a", "one"), ("b", "two")] {
            stand.registry.prepare(prepare(id, name)).unwrap();
            attach(&stand.registry, id).unwrap();
        }
        std::fs::write(stand._state.path().join("revoked"), "not a directory").unwrap();
        let running: Vec<_> =
            stand.registry.known().values().filter_map(|entry| entry.container().cloned()).collect();
        let refusal = stand.registry.revoke_all().unwrap_err();
        assert!(refusal.reason.contains("could not be recorded"), "{refusal}");
        assert!(running.len() == 2 && running.iter().all(|container| container.is_revoked()));
    }

    #[test]
    fn a_request_is_explained_by_what_the_container_is_under_now() {
        let stand = stand();
        stand.registry.prepare(prepare("a", "one")).unwrap();
        attach(&stand.registry, "a").unwrap();
        let explain = |container: &str, url: &str| {
            let (container, method) = (container.to_owned(), "GET".to_owned());
            stand.registry.explain(&Explain { container, method, url: url.to_owned() })
        };
        let refused = explain("one", "https://a.example/x").unwrap();
        assert_eq!(
            (refused.decision, refused.reason.as_deref()),
            (Outcome::Refused, Some("host-not-allowed"))
        );
        assert!(refused.remedy.contains("understudy allow a.example --container one"), "{refused:?}");
        let decide = |effect, lasting| {
            let host = "a.example".to_owned();
            let container = Some("one".to_owned());
            stand.registry.decide(&Decide { effect, host, container, lasting }).unwrap();
        };
        decide(Effect::Allow, Lasting::Container);
        let allowed = explain(&"a".repeat(64), "a.example").unwrap();
        assert_eq!(
            (allowed.decision, allowed.rule.as_deref()),
            (Outcome::Allowed, Some("operator decision 1"))
        );
        decide(Effect::Deny, Lasting::Always);
        let denied = explain("one", "a.example").unwrap();
        assert_eq!(denied.rule.as_deref(), Some("operator decision 2"));
        assert!(denied.remedy.contains("`understudy withdraw 2`"), "{denied:?}");
        assert_eq!(denied.rules.len(), 2);
        stand.registry.revoke("one").unwrap();
        assert_eq!(explain("one", "a.example").unwrap().reason.as_deref(), Some("revoked"));
        assert!(explain("none", "a.example").is_err());
        assert!(explain("one", "https://10.0.0.1/").unwrap_err().reason.contains("address"));
    }

    /// A control packet holds 128 KiB.
    #[test]
    fn the_status_of_a_thousand_containers_reaches_whoever_asks() {
        let stand = stand();
        for number in 0..1000 {
            let mut one = prepare("a", &format!("agent-{number:04}"));
            one.id = format!("{number:064x}").parse().unwrap();
            stand.registry.prepare(one).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let control = ControlDirectory::new(directory.path().join("control"));
        let hello = HelloSecret::from_hex(&"a".repeat(64)).unwrap();
        let listener = Listener::bind(&control, hello).unwrap();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (registry, stopped) = (Arc::new(stand.registry), Arc::clone(&stop));
        let server = std::thread::spawn(move || crate::attach::server::serve(listener, registry, stopped));
        let client = Client::new(control, Duration::from_secs(30));
        let Reply::Status(status) = client.call(Request::Status, &[]).unwrap() else { panic!("no status") };
        assert_eq!(status.containers.len(), 1000);
        assert!(serde_json::to_vec(&status).unwrap().len() > understudy_control::MAX_PACKET);
        assert!(status.containers.iter().enumerate().all(|(number, container)| {
            container.name.as_deref() == Some(format!("agent-{number:04}").as_str())
        }));
        stop.store(true, Relaxed);
        server.join().unwrap();
    }

    #[test]
    fn a_reattach_replaces_the_sockets_and_must_be_about_one_container() {
        let stand = stand();
        let both = |id: &str| {
            let (attach, descriptors) = sockets("a");
            (Reattach { prepare: prepare(id, "agent"), attach }, descriptors)
        };
        let (good, descriptors) = both("a");
        stand.registry.reattach(good, descriptors).unwrap();
        let (again, descriptors) = both("a");
        stand.registry.reattach(again, descriptors).unwrap();
        assert_eq!(stand.started.load(Relaxed), 2);
        let (mixed, descriptors) = both("b");
        assert!(stand.registry.reattach(mixed, descriptors).is_err());
    }
}
