//! What an unmodified `ssh` finds in a container: the stand-in where it looks for a key, and the sidecar's host key as
//! that of the servers.

use std::fmt::Write as _;

use understudy_control::{LoginFile, PlacedFile, Refusal, Write};

use super::super::vault::{Secret, Vault};

/// Where `ssh` looks for keys by itself (ssh_config(5), `IdentityFile`). It goes by what is in them, not by their names.
const PLACES: [&str; 3] = ["~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"];

const KNOWN_HOSTS: &str = "~/.ssh/known_hosts";

/// In the words of `place`: the whole file is one private key.
const PRIVATE_KEY: &str = "private-key";

#[derive(Debug, Default)]
pub struct SshFiles {
    pub files: Vec<PlacedFile>,
    /// A real key there is not overwritten: the container is refused.
    pub login_files: Vec<LoginFile>,
    pub stand_ins: Vec<String>,
}

/// For the SSH keys among the secrets that are granted.
pub fn files<'s>(vault: &Vault, granted: impl Iterator<Item = &'s Secret>) -> Result<SshFiles, Refusal> {
    let mut all = SshFiles::default();
    let mut known = String::new();
    let mut places = PLACES.iter();
    for secret in granted {
        let (Some(key), Some(server)) = (secret.ssh_key(), &secret.declaration().ssh) else { continue };
        let host_key = vault.ssh_host_key().and_then(|key| key.public().to_openssh().ok());
        let (Some(place), Some(host_key)) = (places.next(), host_key) else {
            return Err(Refusal::new(
                format!(
                    "secret `{}` is one SSH key more than `ssh` finds by itself ({})",
                    secret.name(),
                    PLACES.len()
                ),
                "leave one of them out of the annotation understudy.secrets",
            ));
        };
        all.files.push(PlacedFile {
            path: (*place).to_owned(),
            mode: 0o600,
            write: Write::Replace,
            content: key.stand_in_pem().to_owned(),
        });
        for host in server.hosts() {
            let name =
                if server.port() == 22 { host.to_string() } else { format!("[{host}]:{}", server.port()) };
            let _ = writeln!(known, "{name} {}", host_key.trim());
        }
    }
    if all.files.is_empty() {
        return Ok(all);
    }
    let login_file =
        |path: &&str| LoginFile { path: (*path).to_owned(), pointers: vec![PRIVATE_KEY.to_owned()] };
    all.login_files = PLACES.iter().map(login_file).collect();
    // A home that is kept may hold the stand-in of an earlier start.
    let keys = vault.secrets().iter().filter_map(Secret::ssh_key);
    all.stand_ins = keys.map(|key| key.stand_in_text().to_owned()).collect();
    all.files.push(PlacedFile {
        path: KNOWN_HOSTS.to_owned(),
        mode: 0o644,
        write: Write::MergeLines,
        content: known,
    });
    Ok(all)
}
