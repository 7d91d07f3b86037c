//! The keys of annotations that mean something, in one place for hook and sidecar.

/// What every key starts with.
pub const PREFIX: &str = "understudy.";

pub const HARNESS: &str = "understudy.harness";
pub const POLICY: &str = "understudy.policy";
pub const SECRETS: &str = "understudy.secrets";
pub const ALLOW: &str = "understudy.allow";
pub const MODE: &str = "understudy.mode";
pub const NETWORK: &str = "understudy.network";
pub const INBOUND: &str = "understudy.inbound";
pub const PUBLISH: &str = "understudy.publish";
pub const WORKSPACE: &str = "understudy.workspace";
pub const PRIVACY: &str = "understudy.privacy";
pub const INSTRUCTIONS: &str = "understudy.instructions";
pub const ROLE: &str = "understudy.role";

/// The values of `understudy.network`: without one, a container is sealed.
pub const SEALED: &str = "sealed";
pub const GUARDED: &str = "guarded";

/// The one role there is.
pub const SIDECAR: &str = "sidecar";

/// All that this version understands. Others are refused, also those of a later version: what they ask for would not
/// be done.
pub const KNOWN: [&str; 12] = [
    HARNESS,
    POLICY,
    SECRETS,
    ALLOW,
    MODE,
    NETWORK,
    INBOUND,
    PUBLISH,
    WORKSPACE,
    PRIVACY,
    INSTRUCTIONS,
    ROLE,
];

/// The items of a value: separated by commas or white space.
pub fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', ' ', '\t', '\n']).filter(|item| !item.is_empty())
}
