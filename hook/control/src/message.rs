//! Questions and answers. Unknown fields, variants and versions are refused.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::search::Text;
use crate::{
    ArmLogin, ArmedStatus, Attach, AuditFile, ContainerId, Decide, DecisionStatus, Explain, Explained,
    HostMount, ImageId, Lines, LoginKept, SecretStatus, Status, Watch, Watched,
};

/// The protocol's version; hook and sidecar of different versions refuse each other.
pub const VERSION: u32 = 3;

/// 32 random bytes as 64 hexadecimal digits, made anew by each start of the sidecar and readable (0600) only
/// beside its socket: having the socket alone is not enough.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HelloSecret(pub(crate) String);

impl HelloSecret {
    pub fn from_hex(text: &str) -> Option<Self> {
        let valid = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        valid.then(|| Self(text.to_owned()))
    }

    /// Equal in a time that depends on the lengths only.
    pub fn matches(&self, other: &HelloSecret) -> bool {
        let (a, b) = (self.0.as_bytes(), other.0.as_bytes());
        a.len() == b.len() && a.iter().zip(b).fold(0, |seen, (x, y)| seen | (x ^ y)) == 0
    }
}

impl fmt::Debug for HelloSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HelloSecret(..)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    pub version: u32,
    pub hello: HelloSecret,
    pub request: Request,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Asks what a container that is about to start is to be given. Answered by `Prepared` or `Refused`.
    Prepare(Box<Prepare>),
    /// Before `Prepare`: looks for real credentials in texts, which are in the sealed memory that comes with it. Answered by
    /// `Searched` or `Refused`.
    Search(Vec<Text>),
    /// Hands over the sockets of a prepared container. Answered by `Done` or `Refused`.
    Attach(Attach),
    /// For a prepared container in a network namespace whose sockets the sidecar has already, from container `with`: it is
    /// one with that one from now on. Answered by `Done` or `Refused`.
    Join { id: ContainerId, with: ContainerId },
    /// Prepare and attach at once, for a container that runs already while the sidecar is new. Answered by `Done` or
    /// `Refused`.
    Reattach(Box<Reattach>),
    /// Prepare and join at once, for such a container; what it `joins` is not None. Answered by `Done` or `Refused`.
    Rejoin(Box<Prepare>),
    /// The container is gone. Answered by `Done`, also when it was never known.
    Detach { id: ContainerId },
    /// Answered by `Status`.
    Status,
    /// Answered by `Metrics`.
    Metrics,
    /// Answered by `Secrets`.
    Secrets,
    /// Ends a container's connections and grants; `container` is an id, a unique prefix of one, or a name; None: all
    /// that are known. Answered by `Revoked`.
    Revoke { container: Option<String> },
    /// Answered by `Explained`.
    Explain(Explain),
    /// Another certificate authority for containers that are started from now on. Answered by `Done`.
    RotateAuthority,
    /// The operator takes the state that there is for the one that holds. Answered by `Done`.
    AcceptState,
    /// Answered by `Decided`, or by `Answered` if it was for once.
    Decide(Decide),
    /// Takes a decision back. Answered by `Decided`.
    Withdraw { number: u64 },
    /// Takes back what was decided for containers that are not known now, except for always. Answered by `Withdrawn`.
    WithdrawGone,
    /// Lets a container's program log in. Answered by `Armed`, with that one.
    ArmLogin(ArmLogin),
    /// What is armed. Answered by `Armed`.
    ArmedLogins,
    /// Keeps the login that was made in a container, if `keep` is its code: answered by `LoginKept`. Or forgets it, whichever
    /// it is, and disarms the container: answered by `Done`.
    AnswerLogin { container: String, keep: Option<String> },
    /// Audit lines from this number on. Answered by `Lines`.
    Lines { from: u64 },
    /// Answered by `AuditFile`.
    AuditFile,
    /// Waits for the next audit line or question. Answered by `Watched`, or `Refused` if too many wait already.
    Watch(Watch),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Reply {
    Prepared(Box<Prepared>),
    /// Notes of what looks like a credential.
    Searched(Vec<String>),
    Done,
    Status(Status),
    Secrets(Vec<SecretStatus>),
    Decided(DecisionStatus),
    Withdrawn(Vec<DecisionStatus>),
    Answered {
        /// At least 1.
        questions: u64,
    },
    /// What people call those that were.
    Revoked(Vec<String>),
    Explained(Box<Explained>),
    /// In the text format of Prometheus.
    Metrics(String),
    Lines(Lines),
    /// None: lines go to standard output.
    AuditFile(Option<AuditFile>),
    Watched(Watched),
    Armed(Vec<ArmedStatus>),
    LoginKept(LoginKept),
    Refused(Refusal),
}

/// Why not, and what to do about it: two lines that a person reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{reason}\n{remedy}")]
pub struct Refusal {
    /// Lower case, no full stop, names the flag, annotation or file.
    pub reason: String,
    /// A command to run or a thing to change.
    pub remedy: String,
    /// The same may be let in a moment later: it is worth another try.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
}

impl Refusal {
    pub fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: remedy.into(), temporary: false }
    }

    pub fn temporary(self) -> Self {
        Self { temporary: true, ..self }
    }
}

/// The numeric user that the container's process runs as, inside the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// A container that is about to start, as far as the sidecar decides on it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepare {
    pub id: ContainerId,
    /// Podman's name for it.
    pub name: Option<String>,
    /// None with `--rootfs`.
    pub image: Option<ImageId>,
    /// Only those whose key starts with `understudy.`, already checked by the hook for known keys.
    pub annotations: BTreeMap<String, String>,
    pub user: User,
    /// The environment that the container would have had; searched for real credentials.
    pub env: BTreeMap<String, String>,
    /// The command that it would run; searched in the same way.
    #[serde(default)]
    pub args: Vec<String>,
    /// What the machine's administrator wrote: a ceiling for every user of it.
    #[serde(default)]
    pub managed: Vec<ManagedFile>,
    /// An attached container in whose network namespace it will be (a pod, `--network container:…`): to be refused unless
    /// both are given the same.
    #[serde(default)]
    pub joins: Option<ContainerId>,
    /// Of one that runs already: what it was given when it started. None: an older hook did not write that down.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// What it has of the host, at most [`MOST_MOUNTS`](crate::MOST_MOUNTS), whatever of it Podman made for it alone aside.
    /// None: an older hook does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<Vec<HostMount>>,
}

/// What a container keeps for as long as it runs, by tags that tell one from another and are no secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Of the certificate that it trusts.
    pub authority: String,
    /// Of the key that its stand-ins are derived from.
    pub key: String,
}

/// A file that the hook has read on the host, since the sidecar's container does not see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagedFile {
    /// Its path on the host, for messages.
    pub path: String,
    pub text: String,
    /// The positions of those `[[require]]` in it that are about other images than this container's. All others are about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spared: Vec<usize>,
}

impl ManagedFile {
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into(), spared: Vec::new() }
    }
}

impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values of the environment and arguments may be credentials.
        f.debug_struct("Prepare")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("annotations", &self.annotations)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reattach {
    pub prepare: Prepare,
    pub attach: Attach,
}

/// What the hook writes into the container's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prepared {
    /// Stand-ins and privacy settings, which replace variables of the same name.
    pub env: Vec<EnvironmentVariable>,
    pub placement: Placement,
    /// The public certificate of the installation's authority, one PEM block.
    pub authority: String,
    /// To be given back with a re-attach.
    pub origin: Origin,
    /// Address for the container's `resolv.conf`.
    pub nameserver: std::net::IpAddr,
    /// One line each, for the operator (`understudy status`) and for the agent (`UNDERSTUDY_NOTES`).
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvironmentVariable {
    pub name: String,
    pub value: String,
}

/// Work for the placing binary, which runs inside the container as its own user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    pub files: Vec<PlacedFile>,
    /// Files that must not hold a credential other than `stand_ins`.
    pub login_files: Vec<LoginFile>,
    /// Every stand-in that this container was given.
    pub stand_ins: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedFile {
    /// Absolute, or `~/…` for the container user's home.
    pub path: String,
    /// Permission bits, such as 0o600.
    pub mode: u32,
    pub write: Write,
    pub content: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Write {
    /// Only if there is no such file.
    Create,
    /// Whatever is there.
    Replace,
    /// `content` is a JSON object that is merged into the JSON object that is there, keys of `content` winning,
    /// objects merged in depth.
    MergeJson,
    /// `content` is a TOML document, of which that is added to the one that is there which it does not say itself. A key
    /// `{directory}` is the container's working directory.
    FillToml,
    /// `content` is `KEY=value` lines, which take the place of those of the same keys.
    MergeEnv,
    /// `content` is lines that are put in front, where they are found first, and nowhere else.
    MergeLines,
    /// `content` is a block of a text for people, between marks of ours, which takes the place of an earlier one; an
    /// empty one only removes that.
    Block,
}

/// A place where an agent's own login would put a real credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginFile {
    /// Absolute, or `~/…` for the container user's home.
    pub path: String,
    /// JSON pointers (RFC 6901) to the strings that are credentials; a `*` segment stands for every member. In other files
    /// `env:KEY`, `yaml:KEY`, `url`, `netrc`, `pgpass` or `private-key`.
    pub pointers: Vec<String>,
}
