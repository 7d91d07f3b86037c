//! What integration-tests/fuzz calls: the parsers of bytes that an image, a project, a container or its state wrote. Each
//! answers with as much as a target needs to see whether what it promises holds; `None` is a refusal.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::mounted::Mounts;
use crate::record::Record;
use crate::state::State;
use crate::{place, precreate, trust};

/// What precreate makes of its stdin.
#[derive(Debug)]
pub struct Configuration {
    pub id: String,
    /// What runs if it is refused.
    pub refused: Value,
    /// Whether AF_VSOCK passes the seccomp profile that is made; `None` if none can be made.
    pub vsock: Option<bool>,
}

pub fn configuration(stdin: &[u8]) -> Option<Configuration> {
    let (id, refused, vsock) = precreate::fuzzed(stdin)?;
    Some(Configuration { id, refused, vsock })
}

/// The id and the process in the state on the other stages' stdin.
pub fn state(stdin: &[u8]) -> Option<(String, Option<i32>)> {
    let state = State::read(stdin).ok()?;
    Some((state.id.to_string(), state.process(&["created", "creating", "running"]).ok()))
}

/// A record as it would be written again.
pub fn record(text: &[u8]) -> Option<Vec<u8>> {
    serde_json::to_vec(&serde_json::from_slice::<Record>(text).ok()?).ok()
}

/// An image's bundle as it is passed on.
pub fn bundle(pem: &[u8]) -> String {
    trust::encoded_again(pem)
}

/// The home of `uid` in an image's passwd file.
pub fn home(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    place::home::home(&String::from_utf8_lossy(passwd), uid)
}

/// The verdict on a login file, as text if it is not a good one.
pub fn login(content: &[u8], pointers: &[String], stand_ins: &[String]) -> Result<(), String> {
    place::login::check(content, pointers, stand_ins).map_err(|error| error.to_string())
}

/// A settings file with ours merged in.
pub fn merged(existing: &[u8], ours: &str) -> Option<Vec<u8>> {
    place::merge::merge(existing, ours).ok()
}

/// Where `path` lies by a mount table, and whether what lies there is found in that table again.
pub fn mounted(mountinfo: &[u8], path: &Path) -> Option<(PathBuf, bool)> {
    let mounts = Mounts::parse(mountinfo).ok()?;
    let place = mounts.place(path).ok()?;
    let itself = place.lies_in(&place);
    Some((place.shown().into(), itself))
}
