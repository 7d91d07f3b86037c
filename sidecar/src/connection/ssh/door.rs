//! The container's side: who is let in, and to what. Everything that is not one session is refused here.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::keys::PublicKey;
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{
    Channel, ChannelId, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf, MethodKind, MethodSet, SshId,
};
use tokio::sync::mpsc;
use understudy_policies::HostName;

use super::super::line::Fault;
use super::admission::{Admission, admission, another_user};
use crate::credentials::ssh::HostKey;
use crate::credentials::{Grants, Vault};
use crate::reason::Reason;

/// Keys that a client may offer: an agent in the container may hold some of its own.
const OFFERS: usize = 16;
/// Messages that wait for the other side, of 32 KiB at the most.
pub(super) const WAITING: usize = 32;

/// Lets in whoever has a stand-in that was granted to this container for this server.
pub(super) struct Door {
    granted: Vec<Candidate>,
    /// Known, and not granted or for another server.
    others: Vec<(Candidate, Reason)>,
    /// Said before anybody logs in, if nobody can.
    banner: Option<String>,
    let_in: Option<String>,
    opened: Option<mpsc::Sender<Guest>>,
    seen: Seen,
}

struct Candidate {
    secret: String,
    /// Whom the server knows it as.
    user: String,
    stand_in: PublicKey,
}

/// A session of somebody who was let in.
pub(super) struct Guest {
    pub(super) reader: ChannelReadHalf,
    pub(super) writer: ChannelWriteHalf<Msg>,
    pub(super) secret: String,
}

/// Why nobody was let in, or why there is no session.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Option<Fault>>>);

pub(super) fn config(key: HostKey) -> Config {
    Config {
        server_id: SshId::Standard("SSH-2.0-understudy".into()),
        methods: MethodSet::from([MethodKind::PublicKey].as_slice()),
        // There is nothing to be guessed: it is a signature or it is not.
        auth_rejection_time: Duration::ZERO,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![key.into_private()],
        max_auth_attempts: OFFERS,
        inactivity_timeout: Some(super::IDLE),
        channel_buffer_size: WAITING,
        nodelay: true,
        ..Config::default()
    }
}

impl Door {
    /// The session arrives at the receiver.
    pub(super) fn new(
        vault: &Vault,
        grants: &Grants,
        host: &HostName,
        port: u16,
    ) -> (Self, mpsc::Receiver<Guest>) {
        let (opened, receiver) = mpsc::channel(1);
        let (mut granted, mut others) = (Vec::new(), Vec::new());
        for secret in vault.secrets() {
            let (Some(key), Some(server)) = (secret.ssh_key(), &secret.declaration().ssh) else { continue };
            let candidate = Candidate {
                secret: secret.name().to_owned(),
                user: server.user().to_owned(),
                stand_in: key.stand_in().clone(),
            };
            match (server.is_at(host, port), grants.contains(secret.name())) {
                (true, true) => granted.push(candidate),
                (true, false) => others.push((candidate, Reason::CredentialNotGranted)),
                (false, _) => others.push((candidate, Reason::CredentialMisdirected)),
            }
        }
        let seen = Seen::default();
        let closed = match admission(vault, grants, host, port) {
            Admission::As(_) => None,
            Admission::Closed(why) => Some(why),
            // A moment ago one was.
            Admission::NoKey => Some(format!("no SSH key is for {host}:{port} any more")),
        };
        let banner = closed.map(|why| {
            let fault = Fault::new(Reason::CredentialNotGranted, &why);
            let message = format!("{}\n", fault.message());
            seen.note(fault);
            message
        });
        let door = Self { granted, others, banner, let_in: None, opened: Some(opened), seen };
        (door, receiver)
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.clone()
    }

    /// The secret whose stand-in it is, if it lets this user in.
    fn judge(&mut self, user: &str, key: &PublicKey) -> Option<String> {
        let is = |candidate: &&Candidate| candidate.stand_in.key_data() == key.key_data();
        let Some(found) = self.granted.iter().find(is) else {
            let other = self.others.iter().find(|(candidate, _)| is(&candidate));
            self.seen.note(match other {
                Some((candidate, reason)) => {
                    let detail = format!(
                        "the stand-in of secret `{}`, which is not for this container here",
                        candidate.secret
                    );
                    Fault::new(*reason, &detail).about(&candidate.secret)
                }
                None => Fault::new(Reason::ForeignCredential, "a key that is not the stand-in of a secret"),
            });
            return None;
        };
        if found.user == user {
            return Some(found.secret.clone());
        }
        let detail = another_user(std::slice::from_ref(&found.user));
        self.seen.note(Fault::new(Reason::CredentialRestricted, &detail).about(&found.secret));
        if self.granted.iter().all(|candidate| candidate.user != user) {
            // Nothing that may still be offered lets this user in: there is something to be said.
            self.opened = None;
        }
        None
    }
}

impl Seen {
    fn note(&self, fault: Fault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    pub(super) fn take(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Handler for Door {
    type Error = russh::Error;

    async fn authentication_banner(&mut self) -> Result<Option<String>, Self::Error> {
        Ok(self.banner.take())
    }

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        Ok(if self.judge(user, offer.public_key).is_some() { Auth::Accept } else { Auth::reject() })
    }

    /// It has proved that it has the private key.
    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        self.let_in = self.judge(user, key.public_key);
        Ok(if self.let_in.is_some() { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        match (self.let_in.clone(), self.opened.take()) {
            (Some(secret), Some(opened)) => {
                reply.accept().await;
                let (reader, writer) = channel.split();
                drop(opened.send(Guest { reader, writer, secret }).await);
            }
            _ => {
                let reason = "understudy: one command for each connection; turn ControlMaster off".to_owned();
                reply.reject(ChannelOpenFailure::Other { code: 1, reason }).await;
            }
        }
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.no_forwarding(reply).await;
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.no_forwarding(reply).await;
        Ok(())
    }

    async fn agent_request(
        &mut self,
        channel: ChannelId,
        session: &mut Session,
    ) -> Result<bool, Self::Error> {
        session.channel_failure(channel)?;
        Ok(false)
    }
}

impl Door {
    async fn no_forwarding(&self, reply: ChannelOpenHandle) {
        let reason = "understudy: protocol-not-allowed: nothing is forwarded; the key is for git".to_owned();
        self.seen
            .note(Fault::new(Reason::ProtocolNotAllowed, "forwarding is not allowed; the key is for git"));
        reply.reject(ChannelOpenFailure::Other { code: 1, reason }).await;
    }
}

impl Guest {
    /// Ends the session with a line for whoever reads it.
    pub(super) async fn tell(&self, message: &str) {
        // A client that takes nothing must not hold it up.
        let told = async {
            drop(self.writer.extended_data_bytes(1, format!("{message}\n").into_bytes()).await);
            drop(self.writer.exit_status(1).await);
            drop(self.writer.eof().await);
            drop(self.writer.close().await);
        };
        drop(tokio::time::timeout(super::FAREWELL, told).await);
    }
}
