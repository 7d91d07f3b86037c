//! What `understudy status` shows. Names and counts, never a value.

use serde::{Deserialize, Serialize};

use crate::ContainerId;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The sidecar's package version.
    pub version: String,
    /// Seconds since it started.
    pub uptime: u64,
    pub containers: Vec<ContainerStatus>,
    /// One line each: a policy that did not load, a secret that could not be read.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerStatus {
    pub id: ContainerId,
    pub name: Option<String>,
    pub harness: String,
    pub policy: String,
    /// `prepared`, `attached` or `revoked`.
    pub state: String,
    /// Names of granted secrets.
    pub secrets: Vec<String>,
    pub open_connections: u64,
    pub allowed: u64,
    pub denied: u64,
    /// Connections that a revocation ended.
    pub terminated: u64,
    pub notes: Vec<String>,
}
