//! `variable = "NAME"`: the environment of a host-run sidecar. It cannot change while the process runs, so it is read
//! once; `/proc/self/environ` keeps it, which is closed to others because the process is not dumpable.

use std::os::unix::ffi::OsStringExt;

use zeroize::Zeroizing;

use super::{Surroundings, only_on_the_host};

pub(super) fn read(name: &str, around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, String> {
    if !around.host_run {
        return Err(only_on_the_host("variable"));
    }
    match std::env::var_os(name) {
        Some(value) => Ok(Zeroizing::new(value.into_vec())),
        None => Err(format!("the sidecar was started without ${name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_for_the_host_only() {
        let around = |host_run| Surroundings {
            podman_secrets: "/x".into(),
            credentials: None,
            host_run,
            ..Surroundings::default()
        };
        // Cargo sets it for tests.
        assert!(!read("CARGO_PKG_NAME", &around(true)).unwrap().is_empty());
        assert!(read("CARGO_PKG_NAME", &around(false)).unwrap_err().contains("runs in a container"));
        assert!(read("NO_SUCH_VARIABLE", &around(true)).unwrap_err().contains("$NO_SUCH_VARIABLE"));
    }
}
