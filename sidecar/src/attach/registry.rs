//! Every container the sidecar knows, from `Prepare` to `Detach`. What a container may do is decided elsewhere
//! (`decide_terms`), and serving its sockets is done elsewhere (`start`).

mod decisions;
mod logins;
mod mounts;
mod shared;
mod texts;
mod told;
mod watching;

pub use decisions::Decided;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use understudy_control::annotation::PUBLISH;
use understudy_control::{
    Attach, ContainerId, Lines, ManagedFile, Origin, Prepare, Prepared, Reattach, Refusal, SecretStatus,
    Status, published,
};
use understudy_policies::{HostName, Rule};

use crate::accounts::Arming;
use crate::accounts::arming::Made;
use crate::accounts::login::KeepError;
use crate::attach::descriptors::{Sockets, verify};
use crate::attach::own_logins::OwnLogins;
use crate::attach::revocations::Revocations;
use crate::bell::Bell;
use crate::connection::doors::Doors;
use crate::container::Container;
use crate::credentials::report::Holders;
use crate::credentials::{Asked, Grants, Rights, Terms, Vault};
use crate::dns::{SyntheticNames, SyntheticRange};
use crate::history::History;
use crate::named::NamedHosts;
use crate::operator::decisions::now;
use crate::operator::meter::Meter;
use crate::operator::{Decisions, Questions};
use crate::publish::{Leased, Leases};
use crate::tls::{Authorities, Leaves};

/// A `Prepare` that is not followed by an `Attach` within this time is forgotten: the start failed in between.
const PREPARED_FOR: Duration = Duration::from_secs(60);

/// Containers at once; a hook beyond that is refused with a reason.
const MAX_CONTAINERS: usize = 4096;

/// Containers whose use of their limits is kept.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(2 * MAX_CONTAINERS).unwrap();

pub type DecideTerms = Box<dyn Fn(&Prepare) -> Result<Terms, Refusal> + Send + Sync>;
pub type DecideRights = Box<dyn Fn(&Asked) -> Rights + Send + Sync>;
/// Whether the operator may decide so about a container, or about all.
pub type MayDecide = Box<dyn Fn(&Rule, &[ManagedFile]) -> Result<(), Refusal> + Send + Sync>;
pub type ReportSecrets = Box<dyn Fn(&Holders) -> Vec<SecretStatus> + Send + Sync>;
/// Whom other protocols let in at a host and port, of a container with these grants.
pub type Admit = Box<dyn Fn(&Grants, &HostName, u16) -> Doors + Send + Sync>;
/// Keeps the account of that login, if there is one yet, and gives the secrets that are declared to be it, each with whether it may be granted to
/// the container that logged in.
pub type KeepLogin = Box<dyn Fn(&Asked, &Made) -> Result<Vec<(String, bool)>, KeepError> + Send + Sync>;
/// A note of what looks like a credential in what is called so, or why it must not be in a container.
pub type Look = Box<dyn Fn(&str, &[u8]) -> Result<Option<String>, Refusal> + Send + Sync>;
pub type Start = Box<dyn Fn(Arc<Container>, Sockets, Vec<Leased>) -> std::io::Result<()> + Send + Sync>;

/// What the registry is built on.
pub struct RegistryParts {
    /// What a container is given, or why not.
    pub decide_terms: DecideTerms,
    /// Searches what a container would have.
    pub look: Look,
    /// What a container that runs may do now.
    pub decide_rights: DecideRights,
    /// Serves a container's sockets from now on, and what leads to it from outside.
    pub start: Start,
    /// The ports that lead to containers.
    pub leases: Arc<Leases>,
    pub revocations: Revocations,
    /// Whether what the operator decided is all there.
    pub history: Arc<History>,
    /// Accounts of logins that were made inside.
    pub own_logins: OwnLogins,
    pub may_decide: MayDecide,
    pub decisions: Arc<Decisions>,
    pub named: Arc<NamedHosts>,
    pub questions: Arc<Questions>,
    /// Which containers may log in.
    pub arming: Arc<Arming>,
    pub keep_login: KeepLogin,
    /// What containers trust.
    pub authorities: Arc<Authorities>,
    /// Tag of what stand-ins are derived from.
    pub key: String,
    pub range: SyntheticRange,
    /// `SO_NETNS_COOKIE` of the sidecar's own network namespace.
    pub own_cookie: u64,
    /// Problems of the configuration now, for `status`.
    pub problems: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    pub doors: Admit,
    /// Rung when there is a line more, or what is asked has changed.
    pub bell: Arc<Bell>,
    /// Audit lines from a number on.
    pub lines: Box<dyn Fn(u64) -> Lines + Send + Sync>,
    /// Where audit lines are written, if it is a file.
    pub audit_file: Option<PathBuf>,
    /// Counts, with what the status says.
    pub metrics: Box<dyn Fn(&Status) -> String + Send + Sync>,
    /// What is to be told of secrets, given who holds a stand-in of which.
    pub secrets: ReportSecrets,
}

pub struct Registry {
    parts: RegistryParts,
    started: Instant,
    /// Tells this run of the sidecar from others.
    run: u64,
    known: Mutex<HashMap<ContainerId, Known>>,
    /// What containers used of their limits, also of those that are not there now: one that is started again goes on with it.
    used: Mutex<LruCache<ContainerId, Arc<Meter>>>,
}

enum Known {
    Prepared { name: Option<String>, terms: Box<Terms>, leaves: Arc<Leaves>, since: Instant },
    Attached(Attached),
}

struct Attached {
    /// The same one for all that share a network namespace.
    container: Arc<Container>,
    /// Of the first of them.
    asked: Box<Asked>,
    /// Of this one, if it is another.
    own: Option<Box<Asked>>,
    name: Option<String>,
}

impl Registry {
    pub fn new(parts: RegistryParts) -> Self {
        let used = Mutex::new(LruCache::new(REMEMBERED));
        Self { parts, started: Instant::now(), run: now(), known: Mutex::default(), used }
    }

    pub fn prepare(&self, prepare: Prepare) -> Result<Prepared, Refusal> {
        let mut terms = self.terms(&prepare)?;
        let mut leaves = self.parts.authorities.current();
        if let Some(with) = &prepare.joins {
            // What it publishes leads to that one already.
            let (note, trusted) = self.may_join(&terms.asked, with)?;
            terms.notes.push(note);
            leaves = trusted;
        } else {
            self.parts.leases.check(&published(&prepare.annotations)?, &prepare.id)?;
        }
        // The same look at `known` finds whom it shares something with, and puts it where others find it.
        let mut known = self.known();
        self.note_shared_mounts(&known, &mut terms)?;
        let prepared = Prepared {
            env: terms.env.clone(),
            placement: terms.placement.clone(),
            authority: leaves.authority().certificate_pem().to_owned(),
            origin: Origin { authority: leaves.authority().tag(), key: self.parts.key.clone() },
            nameserver: self.parts.range.nameserver().into(),
            notes: terms.notes.clone(),
        };
        let entry =
            Known::Prepared { name: prepare.name, terms: Box::new(terms), leaves, since: Instant::now() };
        if known.len() >= MAX_CONTAINERS && !known.contains_key(&prepare.id) {
            return Err(Refusal::new(
                format!("the sidecar holds {MAX_CONTAINERS} containers already"),
                "stop some, or run a second installation",
            ));
        }
        if let Some(old) = known.insert(prepare.id, entry) {
            release(&known, old);
        }
        Ok(prepared)
    }

    pub fn attach(&self, attach: &Attach, descriptors: Vec<OwnedFd>) -> Result<(), Refusal> {
        let sockets = self.sockets(attach, descriptors)?;
        let mut known = self.known();
        self.not_revoked(&attach.id)?;
        let (name, terms, leaves) = Self::take_prepared(&mut known, &attach.id)?;
        shared::end(&mut known, &attach.id);
        let attached = self.run(attach.id.clone(), name, terms, leaves, sockets)?;
        known.insert(attach.id.clone(), Known::Attached(attached));
        Ok(())
    }

    fn take_prepared(
        known: &mut HashMap<ContainerId, Known>,
        id: &ContainerId,
    ) -> Result<(Option<String>, Terms, Arc<Leaves>), Refusal> {
        match known.remove(id) {
            Some(Known::Prepared { name, terms, leaves, since }) if since.elapsed() < PREPARED_FOR => {
                Ok((name, *terms, leaves))
            }
            Some(attached @ Known::Attached(_)) => {
                known.insert(id.clone(), attached);
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
        let leaves = self.trusted_by(&prepare)?;
        let mut terms = self.terms(&prepare)?;
        let mut known = self.known();
        self.not_revoked(&prepare.id)?;
        self.note_shared_mounts(&known, &mut terms)?;
        if let Some(old) = known.remove(&prepare.id) {
            release(&known, old);
        }
        shared::end(&mut known, &prepare.id);
        let attached = self.run(prepare.id.clone(), prepare.name, terms, leaves, sockets)?;
        known.insert(prepare.id, Known::Attached(attached));
        Ok(())
    }

    pub fn detach(&self, id: &ContainerId) {
        let mut known = self.known();
        let was = known.remove(id);
        self.parts.own_logins.used(id);
        let identity = was.as_ref().map_or(id, |entry| shared::identity(id, entry)).clone();
        if was.is_none_or(|was| release(&known, was)) {
            self.parts.arming.forget(&identity);
            self.parts.named.forget(&identity);
        }
    }

    /// Ends one container's connections and grants, and those of the ones that share its network, also for their later
    /// starts. What people call them.
    pub fn revoke(&self, wanted: &str) -> Result<Vec<String>, Refusal> {
        let known = self.known();
        let (id, entry) = find(&known, wanted)?;
        let identity = shared::identity(id, entry);
        let all =
            known.iter().filter(|(other, entry)| *other == id || shared::identity(other, entry) == identity);
        let mut labels = self.revoke_known(all)?;
        labels.sort();
        Ok(labels)
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
        let (mut unrecorded, mut ids) = (None, Vec::new());
        let revoked = known.into_iter().map(|(id, entry)| {
            // Nothing that fails for one keeps another's connections open.
            if let Known::Attached(attached) = entry {
                attached.container.revoke();
            }
            let identity = shared::identity(id, entry);
            self.parts.arming.disarm(identity);
            ids.extend([id, identity]);
            for id in [id, identity] {
                if let Err(error) = self.parts.revocations.add(id) {
                    unrecorded = Some(error);
                }
            }
            entry.name().unwrap_or(id.short()).to_owned()
        });
        let revoked = revoked.collect();
        match unrecorded.or(self.parts.history.revoked(ids).err()) {
            None => Ok(revoked),
            Some(error) => Err(Refusal::new(
                format!("the connections were ended, but a revocation could not be recorded: {error}"),
                "make the state volume and the control directory writable, then revoke again; a restarted container would get its grants back",
            )),
        }
    }

    /// Decides anew what running containers may do, after a reload or a decision of the operator.
    pub fn reconsider(&self) {
        let known = self.known();
        let mut all: HashMap<&ContainerId, Vec<&Attached>> = HashMap::new();
        for entry in known.values() {
            if let Known::Attached(attached) = entry {
                all.entry(&attached.container.id).or_default().push(attached);
            }
        }
        for same in all.values() {
            if let (Some(rights), Some(one)) = (self.rights_of_all(same), same.first()) {
                one.container.set_rights(rights);
            }
        }
        drop(all);
        drop(known);
        self.parts.questions.changed();
    }

    /// Tokens of accounts in the vault were renewed.
    pub fn renewed(&self, vault: &Vault) {
        for container in shared::containers(&self.known()) {
            container.renewed(vault);
        }
        // Of a login that was made inside, another account may have the name by now.
        let has_own =
            |entry: &Known| matches!(entry, Known::Attached(attached) if !attached.asked.own.is_empty());
        let any = self.known().values().any(has_own);
        if any {
            self.reconsider();
        }
    }

    /// Deletes what nobody trusts any more, and replaces ahead what ends.
    fn tend_authorities(&self) {
        let known = self.known();
        let trusted = known.values().filter_map(|entry| match entry {
            Known::Prepared { leaves, .. } => Some(leaves.authority().tag()),
            Known::Attached(attached) => Some(attached.container.leaves()?.authority().tag()),
        });
        let trusted = trusted.collect();
        drop(known);
        // None is given back before the operator has accepted the state.
        let all_known = self.parts.history.is_whole().is_ok();
        self.parts.authorities.tend(Some(&trusted).filter(|_| all_known));
    }

    /// Forgets what was prepared and never attached, and decisions whose time is over.
    pub fn expire(&self) {
        self.parts.arming.expire();
        self.tend_authorities();
        if self.parts.decisions.expire(now()) {
            self.reconsider();
        }
        self.known().retain(|_, entry| match entry {
            Known::Prepared { since, .. } => since.elapsed() < PREPARED_FOR,
            Known::Attached(_) => true,
        });
    }

    /// Ends every container's connections: the sidecar stops.
    pub fn close(&self) {
        let mut known = self.known();
        for container in shared::containers(&known) {
            container.revoke();
        }
        known.clear();
    }

    /// Connections that are open now, of all containers.
    pub fn open_connections(&self) -> u64 {
        let all = shared::containers(&self.known());
        all.iter().map(|container| container.counters.open_connections.load(Relaxed)).sum()
    }

    /// Takes the state that there is for all that was decided.
    pub fn accept_state(&self) -> Result<(), Refusal> {
        self.parts.history.accept()
    }

    /// Containers that run go on trusting the one that they were started with.
    pub fn rotate_authority(&self) -> Result<(), Refusal> {
        self.parts.authorities.rotate().map_err(|error| {
            Refusal::new(
                error.to_string(),
                "make the state volume writable, then try again; nothing was changed",
            )
        })
    }

    /// Of a container that runs: it keeps what it trusts and what it holds, so it must be of this installation.
    fn trusted_by(&self, prepare: &Prepare) -> Result<Arc<Leaves>, Refusal> {
        let known = |origin: &Origin| {
            let of_key = origin.key == self.parts.key;
            of_key.then(|| self.parts.authorities.of(&origin.authority)).flatten()
        };
        match &prepare.origin {
            Some(origin) => known(origin).ok_or_else(|| {
                Refusal::new(
                    "it was started with another authority or other stand-ins than this sidecar has",
                    "start it again",
                )
            }),
            None => {
                Err(Refusal::new("nobody knows what it was started with, by an older hook", "start it again"))
            }
        }
    }

    fn terms(&self, prepare: &Prepare) -> Result<Terms, Refusal> {
        self.not_revoked(&prepare.id)?;
        self.parts.history.is_whole()?;
        let mut terms = (self.parts.decide_terms)(prepare)?;
        terms.asked.own.extend(self.parts.own_logins.of(&prepare.id));
        if self.parts.own_logins.is_known(&prepare.id) {
            self.parts.own_logins.used(&prepare.id);
            self.parts.arming.remember(&prepare.id);
        }
        Ok(terms)
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
        leaves: Arc<Leaves>,
        sockets: Sockets,
    ) -> Result<Attached, Refusal> {
        let names = SyntheticNames::new(self.parts.range);
        // Decided while `known` is held, as by `reconsider`: a reload since `Prepare` is never missed.
        let rights = (self.parts.decide_rights)(&terms.asked);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let before = used.get(&id).cloned();
        let container = Container::new(id, name.clone(), terms.harness, rights, names, terms.notes);
        let container = Arc::new(container.again(before).trusting(leaves));
        used.put(container.id.clone(), Arc::clone(&container.meter));
        drop(used);
        self.serve(&container, &terms.asked, sockets).inspect_err(|_| container.revoke())?;
        Ok(Attached { container, asked: Box::new(terms.asked), own: None, name })
    }

    fn serve(&self, container: &Arc<Container>, asked: &Asked, sockets: Sockets) -> Result<(), Refusal> {
        let published = published(&asked.prepare.annotations)?;
        if published.is_empty() == sockets.outgoing.is_empty() {
            let leased = self.parts.leases.take(&published, container)?;
            let started = (self.parts.start)(Arc::clone(container), sockets, leased);
            return started.map_err(|error| {
                Refusal::new(
                    format!("the sidecar cannot serve the sockets: {error}"),
                    "see the sidecar's log",
                )
            });
        }
        let reason = format!("the sockets are not those of what annotation {PUBLISH} says");
        Err(Refusal::new(reason, "use the understudy-hook of this sidecar's version"))
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

/// Ends what it had, unless others that are one with it are still there. Whether it did.
fn release(known: &HashMap<ContainerId, Known>, was: Known) -> bool {
    let Known::Attached(Attached { container, .. }) = was else { return true };
    let last = shared::attached_as(known, &container.id).is_none();
    if last {
        container.revoke();
    }
    last
}

/// As many digits of an id as Podman prints.
const SHORT_ID: usize = 12;

/// By its id, its name, or how its id begins.
fn find<'k>(
    known: &'k HashMap<ContainerId, Known>,
    wanted: &str,
) -> Result<(&'k ContainerId, &'k Known), Refusal> {
    if let Some(exact) = known.iter().find(|(id, _)| id.as_str() == wanted) {
        return Ok(exact);
    }
    let named = known.iter().find(|(_, entry)| entry.name() == Some(wanted));
    let listing = "list the containers with: understudy status";
    let mut matching = known.iter().filter(|(id, _)| !wanted.is_empty() && id.as_str().starts_with(wanted));
    let (first, second) = (matching.next(), matching.next());
    match (named, first) {
        // A name that is meant exactly must not be held up by an id that happens to begin like it. One that is as long as
        // what Podman prints of an id was made to look like it.
        (Some(named), first) if wanted.len() < SHORT_ID || first.is_none_or(|(id, _)| id == named.0) => {
            Ok(named)
        }
        (None, Some(one)) if second.is_none() => Ok(one),
        (None, None) => Err(Refusal::new(format!("no container {wanted:?} is known"), listing)),
        _ => Err(Refusal::new(
            format!("{wanted:?} stands for more than one container"),
            "name it by its whole id: podman ps --no-trunc",
        )),
    }
}

impl Known {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Prepared { name, .. } => name.as_deref(),
            Self::Attached(attached) => attached.name.as_deref(),
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
mod tests;
