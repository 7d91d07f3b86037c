//! Git over SSH to a server that a secret of kind `ssh-key` is for. Both connections end here: the container's, where
//! only a stand-in of a key that was granted logs in ([`door`]), and the server's, where the real key does
//! ([`upstream`]). What passes between them is one command of git's ([`command`]) that policy allows.

pub mod admission;
mod agent;
pub mod command;
mod cut;
mod door;
mod login;
mod pump;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use russh::{ChannelMsg, Disconnect};
use tokio::time::timeout;
use understudy_policies::HostName;

use self::command::Command;
use self::cut::Cut;
use self::door::{Door, Guest};
use self::pump::Bounds;
use self::upstream::Login;
use super::line::{Fault, Line};
use super::relay::Passed;
use crate::container::Container;
use crate::credentials::Vault;
use crate::decide::{Permit, decide_git};
use crate::dns::Origin;
use crate::operator::{ended, within_limits, within_rate};
use crate::proxy::{Gateway, Replay};
use crate::reason::Reason;

/// For the container to read what it was told last.
const FAREWELL: Duration = Duration::from_secs(3);
/// Without a byte either way. Servers that work send something to keep clients waiting (git's `keepalive`, 5 s).
const IDLE: Duration = Duration::from_secs(15 * 60);

/// What is said of environment variables that are asked for: git's choice of a protocol version, and no other.
const GIT_PROTOCOL: &str = "GIT_PROTOCOL";

/// A connection to a server that an SSH key is for.
pub(super) struct Ssh {
    pub(super) stream: Replay,
    pub(super) host: HostName,
    pub(super) port: u16,
}

/// The server, if any SSH key of the installation is for it: then it is never passed through, with or without a grant.
pub(super) fn server<'o>(vault: &Vault, origin: &'o Origin, port: u16) -> Option<&'o HostName> {
    let Origin::Name(name) = origin else { return None };
    vault.ssh_keys_at(name, port).next().map(|_| name)
}

impl Ssh {
    /// Ok once the command has ended by itself. Dropping it cuts both connections.
    pub(super) async fn serve(
        self,
        container: &Arc<Container>,
        gateway: &Gateway,
        line: &mut Line,
    ) -> Result<(), Fault> {
        let Self { stream, host, port } = self;
        line.entry(|entry| {
            (entry.protocol, entry.host, entry.port) = ("ssh", Some(host.to_string()), Some(port));
        });
        let internal = |error: &dyn std::fmt::Display| Fault::new(Reason::Internal, &error.to_string());
        let vault = gateway.vault().current();
        let key = vault.ssh_host_key().ok_or_else(|| internal(&"no host key"))?;
        let _cut = Cut::of(&stream).map_err(|error| internal(&error))?;
        let (door, mut opened) = Door::new(&vault, &container.rights().grants, &host, port);
        let seen = door.seen();
        let config = Arc::new(door::config(key));
        let greeted =
            timeout(gateway.limits().first_bytes, russh::server::run_stream(config, stream, door)).await;
        let running = match greeted {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return Err(Fault::new(Reason::Malformed, &format!("SSH: {error}"))),
            Err(_) => return Err(Fault::new(Reason::Timeout, "no SSH client has said so in time")),
        };
        let handle = running.handle();
        let Ok(guest) = timeout(gateway.limits().handshake, opened.recv()).await else {
            return Err(Fault::new(Reason::Timeout, "no login in time"));
        };
        let Some(mut guest) = guest else {
            let fault = seen.take();
            if let Some(fault) = &fault {
                // Nobody hears it, if it was the client that went.
                let (why, said) = (Disconnect::NoMoreAuthMethodsAvailable, fault.message());
                drop(handle.disconnect(why, said, String::new()).await);
            }
            let ended = timeout(FAREWELL, running).await;
            return Err(fault.unwrap_or_else(|| without_a_session(ended.unwrap_or(Ok(())))));
        };
        line.entry(|entry| entry.secrets = vec![guest.secret.clone()]);
        let passed = Passed::new(container);
        let result = session(&mut guest, &handle, &host, port, container, gateway, line, &passed).await;
        if let Err(fault) = &result {
            guest.tell(&fault.message()).await;
        }
        drop(guest);
        // It is the client that closes.
        drop(timeout(FAREWELL, running).await);
        result
    }
}

#[allow(clippy::too_many_arguments, reason = "one call")]
async fn session(
    guest: &mut Guest,
    handle: &russh::server::Handle,
    host: &HostName,
    port: u16,
    container: &Arc<Container>,
    gateway: &Gateway,
    line: &mut Line,
    passed: &Arc<Passed>,
) -> Result<(), Fault> {
    let asked = timeout(gateway.limits().handshake, asked(guest, handle)).await;
    let Asked { command, version } =
        asked.map_err(|_| Fault::new(Reason::Timeout, "logged in, and no command in time"))??;
    line.entry(|entry| {
        entry.method = Some(command.service().name().to_owned());
        entry.path = Some(command.path());
    });
    let permit = decide_git(&container.rights().policy, host, port, &command).map_err(Fault::of)?;
    line.entry(|entry| entry.rule = Some(permit.rule().to_owned()));
    within_limits(container).map_err(Fault::of)?;
    within_rate(container, &permit).map_err(Fault::of)?;
    let vault = gateway.vault().current();
    let secret = guest.secret.clone();
    let mut upstream = tokio::select! {
        biased;
        fault = withdrawn(container, gateway, &permit, &command, &secret, None) => return Err(fault),
        connected = upstream::connect(gateway, &vault, container, &permit, &secret, &command, version) => connected?,
    };
    line.passes(permit.rule(), passed);
    let login = upstream.login.clone();
    let bounds = Bounds { up: permit.given().max_body, idle: IDLE };
    tokio::select! {
        // Asked first: nothing passes of what is not allowed any more.
        biased;
        fault = withdrawn(container, gateway, &permit, &command, &secret, Some(&login)) => Err(fault),
        result = pump::pump(guest, &mut upstream, passed, bounds) => result,
    }
}

fn without_a_session(ended: Result<(), russh::Error>) -> Fault {
    use russh::Error;
    match ended {
        Ok(()) | Err(Error::Disconnect | Error::HUP | Error::IO(_)) => {
            Fault::broken_off("the container ended it without a command")
        }
        Err(error) => Fault::new(Reason::Malformed, &format!("SSH: {error}")),
    }
}

/// What a session asks for before it starts.
struct Asked {
    command: Command,
    /// Of git's protocol, as `version=2`.
    version: Option<String>,
}

async fn asked(guest: &mut Guest, handle: &russh::server::Handle) -> Result<Asked, Fault> {
    let id = guest.writer.id();
    let gone = || Fault::broken_off("the container ended it without a command");
    let other = |what: &str| {
        let detail =
            format!("{what}; the key is for git (git-upload-pack, git-receive-pack) and nothing else");
        Fault::new(Reason::ProtocolNotAllowed, &detail)
    };
    let mut version = None;
    loop {
        match guest.reader.wait().await.ok_or_else(gone)? {
            ChannelMsg::Exec { command, .. } => {
                let _ = handle.channel_success(id).await;
                return match Command::parse(&command) {
                    Ok(command) => Ok(Asked { command, version }),
                    Err(error) => Err(Fault::new(Reason::ProtocolNotAllowed, &error.to_string())),
                };
            }
            ChannelMsg::SetEnv { variable_name, variable_value, .. } => {
                let known = variable_name == GIT_PROTOCOL && is_version(&variable_value);
                let answered =
                    if known { handle.channel_success(id).await } else { handle.channel_failure(id).await };
                let _ = answered;
                version = if known { Some(variable_value) } else { version };
            }
            ChannelMsg::RequestShell { .. } => {
                let _ = handle.channel_success(id).await;
                return Err(other("a shell is not allowed"));
            }
            ChannelMsg::RequestSubsystem { .. } => {
                let _ = handle.channel_success(id).await;
                return Err(other("sftp and other subsystems are not allowed"));
            }
            ChannelMsg::RequestPty { .. } | ChannelMsg::RequestX11 { .. } => {
                let _ = handle.channel_failure(id).await;
            }
            ChannelMsg::Eof | ChannelMsg::Close => return Err(gone()),
            ChannelMsg::Data { .. } | ChannelMsg::ExtendedData { .. } => {
                return Err(Fault::new(Reason::Malformed, "data before a command"));
            }
            _ => {}
        }
    }
}

/// As git-protocol(5) has them.
fn is_version(value: &str) -> bool {
    matches!(value, "version=0" | "version=1" | "version=2")
}

/// Returns once policy, its limits, grants or what is declared of the secret do not allow it any more.
async fn withdrawn(
    container: &Container,
    gateway: &Gateway,
    permit: &Permit,
    command: &Command,
    secret: &str,
    login: Option<&Login>,
) -> Fault {
    let mut changing = container.changing();
    loop {
        if let Some(denial) = ended(container) {
            return Fault::of(denial);
        }
        if !container.rights().grants.contains(secret) {
            return Fault::new(Reason::CredentialNotGranted, &format!("secret `{secret}` was withdrawn"));
        }
        if let Err(denial) = decide_git(&container.rights().policy, permit.host(), permit.port(), command) {
            return Fault::changed(denial);
        }
        if let Some(Err(fault)) = login.map(|login| login.still_declared(&gateway.vault().current(), secret))
        {
            return fault;
        }
        if changing.changed().await.is_err() {
            return Fault::new(Reason::Revoked, "");
        }
    }
}
