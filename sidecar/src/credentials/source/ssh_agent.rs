//! `agent = "/abs"` with `public-key`: an SSH key that an ssh-agent keeps (draft-miller-ssh-agent). The agent signs with
//! it and never gives it away, so there is no value to be read.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use russh::keys::ssh_key::Fingerprint;

/// One of the keys of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentKey {
    /// An absolute path.
    pub socket: PathBuf,
    /// SHA-256, of the public key.
    pub key: Fingerprint,
}

impl AgentKey {
    /// Why no agent can answer now. It may be started later, and none of this is looked at again before it is used.
    pub(super) fn problem(&self) -> Option<String> {
        let socket = self.socket.display();
        match fs::metadata(&self.socket) {
            Ok(found) if found.file_type().is_socket() => None,
            Ok(_) => Some(format!("{socket} is not a socket; `agent` is the socket of an ssh-agent")),
            Err(error) => Some(format!(
                "no ssh-agent is at {socket} ({error}); start it on the host, and mount the directory of its socket \
                 into the sidecar"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_for_where_the_socket_should_be() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("agent");
        let key = "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU".parse().unwrap();
        let held = AgentKey { socket: socket.clone(), key };
        assert!(held.problem().unwrap().contains("mount the directory of its socket"));
        fs::write(&socket, "").unwrap();
        assert!(held.problem().unwrap().contains("is not a socket"));
        fs::remove_file(&socket).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(held.problem(), None);
    }
}
