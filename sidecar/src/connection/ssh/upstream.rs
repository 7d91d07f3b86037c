//! The server's side: its host key is one of those that were written down, and the real key logs in.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::client::{ChannelOpenHandle, Config, Handle, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::keys::ssh_key::{Fingerprint, HashAlg};
use russh::{Channel, ChannelReadHalf, ChannelWriteHalf, SshId};
use tokio::time::{Instant, timeout};
use understudy_policies::HostName;

use super::super::line::Fault;
use super::super::splice::dial;
use super::GIT_PROTOCOL;
use super::command::Command;
use super::cut::Cut;
use super::door::WAITING;
use super::login::{LoginError, log_in};
use crate::container::Container;
use crate::credentials::Vault;
use crate::credentials::ssh::{Real, Server};
use crate::decide::Permit;
use crate::proxy::Gateway;
use crate::reason::Reason;

/// The command runs on the server.
pub(super) struct Upstream {
    pub(super) reader: ChannelReadHalf,
    pub(super) writer: ChannelWriteHalf<Msg>,
    pub(super) login: Login,
    /// Keeps the connection.
    _handle: Handle<Check>,
    _cut: Cut,
}

/// What a running command stands on.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) host: HostName,
    pub(super) port: u16,
    user: String,
    host_key: Fingerprint,
}

impl Login {
    /// Whether the secret would log in so now.
    pub(super) fn still_declared(&self, vault: &Vault, secret: &str) -> Result<(), Fault> {
        let Self { host, port, user, host_key } = self;
        let found = vault.secret(secret).and_then(|secret| secret.declaration().ssh.as_ref());
        match found {
            Some(server) if !server.is_at(host, *port) => {
                let detail = format!("secret `{secret}` was changed, and is not for {host}:{port} any more");
                Err(Fault::new(Reason::CredentialMisdirected, &detail))
            }
            Some(server) if server.user() == user && server.knows(host, host_key) => Ok(()),
            _ => {
                let detail =
                    format!("secret `{secret}` was changed (its user or host-keys); run the command again");
                Err(Fault::new(Reason::CredentialRestricted, &detail))
            }
        }
    }
}

/// The host key that a server showed, once it did.
type Shown = Arc<Mutex<Option<Fingerprint>>>;

fn of(shown: &Shown) -> Option<Fingerprint> {
    *shown.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Check {
    server: Server,
    host: HostName,
    shown: Shown,
}

impl Handler for Check {
    type Error = russh::Error;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        // A certificate would need an authority that is trusted for it; none is.
        let PublicKeyOrCertificate::PublicKey { key, .. } = key else { return Ok(false) };
        let fingerprint = key.fingerprint(HashAlg::Sha256);
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(fingerprint);
        Ok(self.server.knows(&self.host, &fingerprint))
    }

    // The library opens whatever channel a server asks for, and keeps it. Here a reply that is dropped refuses it.

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }
}

pub(super) async fn connect(
    gateway: &Gateway,
    vault: &Vault,
    container: &Container,
    permit: &Permit,
    secret: &str,
    command: &Command,
    version: Option<String>,
) -> Result<Upstream, Fault> {
    let host = permit.host();
    let found = vault.secret(secret).and_then(|secret| Some((secret.ssh_key()?, secret.declaration())));
    let Some((key, declaration)) = found else {
        return Err(Fault::new(
            Reason::CredentialNotGranted,
            &format!("secret `{secret}` cannot be used any more"),
        ));
    };
    let server = declaration.ssh.clone().filter(|server| server.is_at(host, permit.port()));
    let Some(server) = server else {
        return Err(Fault::new(
            Reason::CredentialMisdirected,
            &format!("secret `{secret}` is not for {host} any more"),
        ));
    };
    let stream = dial(gateway, permit.clone()).await?;
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Fault::new(Reason::UpstreamFailed, &format!("{host}: {what}: {error}"))
    };
    let cut = Cut::of(&stream).map_err(|error| failed("no connection", &error))?;
    drop(stream.set_nodelay(true));
    // Nobody else is waited for longer.
    let patience = match key.real() {
        Real::Agent(_) => gateway.limits().agent,
        Real::Plain(_) | Real::Rsa(..) => Duration::ZERO,
    };
    let shown = Shown::default();
    let check = Check { server: server.clone(), host: host.clone(), shown: Arc::clone(&shown) };
    let talk = async {
        let connected = russh::client::connect_stream(Arc::new(config()), stream, check).await;
        let mut handle =
            connected.map_err(|error| match of(&shown).filter(|shown| !server.knows(host, shown)) {
                Some(fingerprint) => Fault::new(
                    Reason::UpstreamUntrusted,
                    &format!(
                        "{host} shows the host key {fingerprint}, which is not known for it; if its operator \
                         publishes that one, add it to `host-keys` of secret `{secret}` ({})",
                        declaration.place
                    ),
                ),
                None => failed("SSH", &error),
            })?;
        let turn = match key.real() {
            Real::Agent(_) => container.agent_turn.acquire().await.ok(),
            Real::Plain(_) | Real::Rsa(..) => None,
        };
        let login = log_in(&mut handle, server.user(), key, Instant::now() + patience).await;
        drop(turn);
        let login = login.map_err(|error| match error {
            LoginError::Agent(error) => {
                let detail = format!("secret `{secret}` ({}): {error}", declaration.place);
                Fault::new(Reason::CredentialUnavailable, &detail)
            }
            error => failed("login", &error),
        })?;
        if !login.let_in {
            let detail = format!(
                "{host} does not let {} in with the key of secret `{secret}` ({}); add its public key there",
                server.user(),
                login.key
            );
            return Err(Fault::new(Reason::UpstreamFailed, &detail));
        }
        let channel = handle.channel_open_session().await.map_err(|error| failed("session", &error))?;
        if let Some(version) = version {
            let set = channel.set_env(false, GIT_PROTOCOL, version).await;
            set.map_err(|error| failed("session", &error))?;
        }
        channel.exec(true, command.to_string()).await.map_err(|error| failed("command", &error))?;
        Ok((handle, channel))
    };
    let late = |_| Fault::new(Reason::UpstreamTimeout, &format!("{host}: no SSH session in time"));
    let (handle, channel) = timeout(gateway.limits().handshake + patience, talk).await.map_err(late)??;
    let (reader, writer) = channel.split();
    let host_key = of(&shown).ok_or_else(|| failed("SSH", &"no host key"))?;
    let login = Login { host: host.clone(), port: permit.port(), user: server.user().to_owned(), host_key };
    Ok(Upstream { reader, writer, login, _handle: handle, _cut: cut })
}

fn config() -> Config {
    Config {
        client_id: SshId::Standard("SSH-2.0-understudy".into()),
        channel_buffer_size: WAITING,
        nodelay: true,
        ..Config::default()
    }
}
