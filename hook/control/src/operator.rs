//! What an operator says about hosts while containers run, and what is to be seen of it.

use serde::{Deserialize, Serialize};

use crate::ContainerId;

/// A decision about a host, beside what policies say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decide {
    pub effect: Effect,
    /// `HOST`, `*.HOST`, or one of them with `:PORT`. Without a port, an allowance is for 443 and a denial for every port.
    pub host: String,
    /// An id, a unique prefix of one, or a name; None for every container.
    pub container: Option<String>,
    pub lasting: Lasting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    Allow,
    Deny,
}

/// For how long a decision holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Lasting {
    /// For the requests that wait for it now.
    Once,
    Seconds(u64),
    /// For as long as the container exists.
    Container,
    Always,
}

/// A decision that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionStatus {
    /// By which it can be taken back.
    pub number: u64,
    pub effect: Effect,
    /// As it would be written in a policy.
    pub host: String,
    /// None: every port.
    pub port: Option<u16>,
    /// None: every container.
    pub container: Option<ContainerId>,
    /// Milliseconds since the epoch; None: until it is taken back.
    pub until: Option<u64>,
}

/// A request that waits for a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionStatus {
    /// The container's name, or the beginning of its id.
    pub container: String,
    pub container_id: ContainerId,
    pub host: String,
    /// In order, one at least.
    pub ports: Vec<u16>,
    /// Requests that wait for this answer.
    pub waiting: u64,
    /// Seconds until they are refused.
    pub left: u64,
}

/// A container whose program may log in, for the sidecar to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmLogin {
    /// An id, a unique prefix of one, or a name.
    pub container: String,
    /// What the account is to be called; None: as its format.
    pub account: Option<String>,
    pub seconds: u64,
}

/// A container that is armed for a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmedStatus {
    /// The container's name, or the beginning of its id.
    pub container: String,
    pub container_id: ContainerId,
    /// What the account is to be called, if that was said.
    pub account: Option<String>,
    /// Seconds until it is over.
    pub left: u64,
    /// The login that waits for the operator.
    pub made: Option<LoginMade>,
    /// Why the last attempt came to nothing.
    pub failed: Option<String>,
}

/// A login that a program made in a container, and that nobody confirmed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginMade {
    pub account: String,
    /// Of the catalogue.
    pub kind: String,
    /// As people know the account, if the provider said so.
    pub whose: Option<String>,
    /// Tells it from any other login: whoever says yes says to which.
    pub code: String,
    /// A key that the provider makes only once this is confirmed.
    pub to_be_made: bool,
}

/// A login that was confirmed: it is stored, or a key that is made now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginKept {
    pub login: LoginMade,
    /// Secrets that are declared to be this account.
    pub secrets: Vec<String>,
    /// Those of them that the container was granted.
    pub granted: Vec<String>,
    /// Whether the program still waited for it.
    pub told: bool,
}

/// Audit lines of this run of the sidecar, as they were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lines {
    pub lines: Vec<String>,
    /// The number of the line after the last of these: where to go on.
    pub next: u64,
    /// Lines that were asked for and are not kept any more.
    pub lost: u64,
    /// Whether there are more already.
    pub more: bool,
}

/// Where the sidecar writes audit lines. Who asks may be in another mount namespace, where the path is another file's, or
/// nobody's: the numbers tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditFile {
    pub path: String,
    /// As stat(2) has them of the file that is written to now.
    pub device: u64,
    pub inode: u64,
}

/// What somebody who watches has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// Of the sidecar: another one numbers its lines anew.
    pub run: u64,
    /// The number of the line after the last.
    pub line: u64,
    /// Of changes to what is asked.
    pub questions: u64,
}

/// Waits for what comes after `seen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// None: nothing yet, and what was before is not wanted. Answered at once.
    pub seen: Option<Mark>,
    /// After which the answer is that nothing came; at most [`Watch::LONGEST`].
    pub seconds: u64,
}

impl Watch {
    pub const LONGEST: u64 = 25;
}

/// What came, or that nothing did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watched {
    /// To go on from.
    pub mark: Mark,
    /// As they were written. Of another run than that of the mark that was sent: from its first on.
    pub lines: Vec<String>,
    /// Lines between the mark that was sent and the first of these that are not kept any more.
    pub lost: u64,
    /// All that waits for the operator now, the oldest first.
    pub questions: Vec<QuestionStatus>,
}

/// A request that a container could make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// An id, a unique prefix of one, or a name.
    pub container: String,
    /// None: the usual one of such a URL.
    pub method: Option<String>,
    /// `https://…`, `http://…`, `tcp://HOST:PORT`, `ssh://…` or `USER@HOST:PATH`.
    pub url: String,
}

/// What policy makes of a request, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Explained {
    /// As `GET a.example:443/path`, `tcp a.example:5432`, `git-upload-pack a.example:22/org/repo`.
    pub request: String,
    pub container: Option<String>,
    /// The names of the policies, as in audit lines.
    pub policy: String,
    /// What becomes of a host that no rule is about: `deny`, `ask` or `log`.
    pub mode: String,
    pub decision: Outcome,
    /// The place of the rule that decides, if one does.
    pub rule: Option<String>,
    /// Of a refusal, as in audit lines.
    pub reason: Option<String>,
    /// What would change it.
    pub remedy: String,
    /// What the answer takes for given, if it could not be looked up.
    pub assumed: Option<String>,
    /// Every rule about the host, in the order of policies and files.
    pub rules: Vec<ExplainedRule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Allowed,
    /// It waits for the operator, and is refused without an answer.
    Asked,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ExplainedRule {
    pub place: String,
    pub effect: Effect,
    /// As `*.example.com, a.example.net`.
    pub hosts: String,
    /// What it asks for or gives beside hosts and paths, in words; may be empty.
    pub terms: String,
    /// Whether it matches, or what about the request it does not.
    pub outcome: String,
    pub note: Option<String>,
}
