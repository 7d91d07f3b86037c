//! What `understudy status` and `understudy secrets` show. Names and counts, never a value.

use serde::{Deserialize, Serialize};

use crate::{ContainerId, DecisionStatus, QuestionStatus};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The sidecar's package version.
    pub version: String,
    /// Seconds since it started.
    pub uptime: u64,
    pub containers: Vec<ContainerStatus>,
    /// When the certificate authority ends that containers are given, in milliseconds since the epoch; another one takes its place ahead.
    pub authority_ends: u64,
    /// One line each: a policy that did not load, a secret that could not be read.
    pub problems: Vec<String>,
    /// What the operator decided beside policies.
    pub decisions: Vec<DecisionStatus>,
    /// Numbers of those that `WithdrawGone` takes back.
    pub gone: Vec<u64>,
    /// What waits for the operator.
    pub questions: Vec<QuestionStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerStatus {
    pub id: ContainerId,
    pub name: Option<String>,
    pub harness: String,
    pub policy: String,
    /// What becomes of a host that no rule is about: `deny`, `ask` or `log`.
    pub mode: String,
    /// `prepared`, `attached` or `revoked`.
    pub state: String,
    /// Names of granted secrets.
    pub secrets: Vec<String>,
    pub open_connections: u64,
    pub allowed: u64,
    pub denied: u64,
    /// Requests and connections that were ended before their end, and upstream connections that were closed, since policy, a
    /// grant or the operator allows them no more.
    pub terminated: u64,
    /// What its policies limit, and what it has used of that.
    pub limits: Vec<LimitStatus>,
    /// What it was told when it started, and before that why it may do nothing now, if so.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitStatus {
    /// `max-requests`, `max-bytes` or `max-runtime` (in seconds).
    pub name: String,
    pub used: u64,
    pub most: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretStatus {
    pub name: String,
    pub kind: String,
    /// Kind and name of where the value comes from, as `podman-secret acme`.
    pub source: String,
    /// Whether it can be granted.
    pub usable: bool,
    pub problem: Option<String>,
    /// Where it may be sent, and where in a request it may stand, as declared.
    pub hosts: Vec<String>,
    pub placements: Vec<String>,
    /// The last day on which it works, as `2027-01-31`.
    pub expires: Option<String>,
    /// Containers that hold its stand-in.
    pub holders: Vec<String>,
    /// Milliseconds since the epoch; of this run of the sidecar, as are the counts.
    pub last_use: Option<u64>,
    pub swaps: u64,
    pub leaks: u64,
    /// In one word: `nothing`, or what it is otherwise.
    pub agent_can_read: String,
}
