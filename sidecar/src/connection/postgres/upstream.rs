//! The server's side: its certificate is verified, and the real password logs in the way that its secret allows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ring::digest;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::AsyncReadExt as _;
use tokio_rustls::TlsConnector;
use understudy_policies::HostName;

use super::super::line::Fault;
use super::super::relay::Passed;
use super::super::splice::dial;
use super::derivations::Derivations;
use super::message::{Asked, CancelKey, MessageError, Startup, Told, message, sasl_response, tls_request};
use super::wire::{self, Stream, WireError};
use crate::credentials::Vault;
use crate::credentials::postgres::scram::{self, Channel};
use crate::credentials::postgres::{Login, Method, Password, Server};
use crate::decide::Permit;
use crate::proxy::Gateway;
use crate::reason::Reason;

/// Of one message before the session, as libpq has it.
const LONGEST: usize = 30_000;
/// Of all that a server says between the login and its readiness.
const LONGEST_GREETING: usize = 256 * 1024;

/// Between two messages about the login.
const MOST_NOTICES: usize = 16;

/// A session that is ready.
pub(super) struct Upstream {
    pub(super) stream: Stream,
    /// What the server has said since the login, whole messages, but for its key.
    pub(super) greeting: Vec<u8>,
    /// By which it cancels.
    pub(super) key: Option<CancelKey>,
    pub(super) login: Login,
}

/// Why there is no session, with what the server has said of it as it is. Its own code is told on.
pub(super) struct Refused {
    pub(super) fault: Fault,
    pub(super) sqlstate: Option<String>,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self { fault, sqlstate: None }
    }
}

/// A secret that may be used, and where.
pub(super) struct Use {
    secret: String,
    pub(super) server: Server,
    password: Password,
}

impl Use {
    pub(super) fn of(vault: &Vault, secret: &str, host: &HostName, port: u16) -> Result<Self, Fault> {
        let found = vault.secret(secret);
        let found = found.and_then(|s| Some((s.postgres_password()?, s.declaration().postgres.clone()?)));
        let Some((password, server)) = found else {
            let detail = format!("secret `{secret}` cannot be used any more");
            return Err(Fault::new(Reason::CredentialNotGranted, &detail));
        };
        if !server.is_at(host, port) {
            let detail = format!("secret `{secret}` is not for {host}:{port} any more");
            return Err(Fault::new(Reason::CredentialMisdirected, &detail));
        }
        Ok(Self { secret: secret.to_owned(), server, password })
    }
}

pub(super) async fn connect(
    gateway: &Gateway,
    permit: &Permit,
    using: &Use,
    startup: &Startup,
    turns: &Derivations,
    passed: &Passed,
) -> Result<Upstream, Refused> {
    let server = &using.server;
    let (mut stream, channel) = open(gateway, permit, server).await?;
    let talk = Talk { host: permit.host(), using, turns };
    let opening = startup.packet(server.user());
    // All but the names in it is what the container likes.
    passed.pass(opening.len()).map_err(Fault::of)?;
    talk.send(&mut stream, &opening).await?;
    passed.up.fetch_add(opening.len() as u64, Relaxed);
    let by = talk.login(&mut stream, channel).await?;
    let login = Login { user: server.user().to_owned(), over_tls: server.is_over_tls(), by };
    let (mut greeting, mut key) = (Vec::new(), None);
    loop {
        let (kind, body) = talk.receive(&mut stream).await?;
        match kind {
            b'K' => key = Some(CancelKey::parse(&body).map_err(|error| talk.unclear(error))?),
            b'S' | b'N' | b'Z' => greeting.extend(message(kind, &[&body])),
            _ => return Err(talk.failed("it says something before it is ready that it must not").into()),
        }
        if greeting.len() > LONGEST_GREETING {
            return Err(talk.failed("it says too much before it is ready").into());
        }
        if kind == b'Z' {
            return Ok(Upstream { stream, greeting, key, login });
        }
    }
}

/// Over TLS, unless the secret is for a server without; with the hash of its certificate (RFC 5929 section 4.1).
pub(super) async fn open(
    gateway: &Gateway,
    permit: &Permit,
    server: &Server,
) -> Result<(Stream, Channel), Fault> {
    let host = permit.host();
    let failed =
        |what: &dyn std::fmt::Display| Fault::new(Reason::UpstreamFailed, &format!("{host}: {what}"));
    let mut stream = dial(gateway, permit.clone()).await?;
    drop(stream.set_nodelay(true));
    if !server.is_over_tls() {
        return Ok((Box::new(stream), Channel::Unsupported));
    }
    tokio::io::AsyncWriteExt::write_all(&mut stream, &tls_request()).await.map_err(|error| failed(&error))?;
    // One byte, so that nothing that came in clear is taken for what comes over TLS (CVE-2021-23222).
    match stream.read_u8().await {
        Ok(b'S') => {}
        Ok(_) => {
            let detail = format!(
                "{host} does not speak TLS, and the password goes nowhere without; set `ssl = on` there, or \
                 `sslmode = \"disable\"` in the secret, for a network that you trust"
            );
            return Err(Fault::new(Reason::UpstreamUntrusted, &detail));
        }
        Err(error) => return Err(failed(&error)),
    }
    let name = ServerName::try_from(host.as_str().to_owned()).map_err(|error| failed(&error))?;
    let connector = TlsConnector::from(Arc::clone(gateway.postgres_tls()));
    let stream = connector.connect(name, stream).await.map_err(|error| untrusted(host, &error))?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
    let channel = shown.and_then(end_point).map_or(Channel::Unsupported, Channel::EndPoint);
    Ok((Box::new(stream), channel))
}

fn untrusted(host: &HostName, error: &std::io::Error) -> Fault {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(cause)) => Fault::new(
            Reason::UpstreamUntrusted,
            &format!(
                "the certificate of {host} does not verify: {cause:?}; `extra-ca` in sidecar.toml adds an authority"
            ),
        ),
        _ => Fault::new(Reason::UpstreamFailed, &format!("{host}: TLS: {error}")),
    }
}

/// None for a signature whose hash is not known.
fn end_point(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let algorithm = match parsed.signature_algorithm.algorithm.to_id_string().as_str() {
        // With MD5, SHA-1 and SHA-256, by RSA and ECDSA.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.10045.4.1"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.3.2" => &digest::SHA256,
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => &digest::SHA384,
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// What is said to one server.
struct Talk<'t> {
    host: &'t HostName,
    using: &'t Use,
    turns: &'t Derivations,
}

impl Talk<'_> {
    /// How it was let in.
    async fn login(&self, stream: &mut Stream, channel: Channel) -> Result<Method, Refused> {
        let server = &self.using.server;
        let by = match self.asked(stream).await? {
            Asked::Sasl(mechanisms) => {
                self.scram(stream, &mechanisms, channel).await?;
                Method::Scram
            }
            Asked::Md5 { salt } => {
                self.may(Method::Md5)?;
                let answer = self.using.password.md5(server.user(), salt);
                self.send(stream, &message(b'p', &[answer.as_bytes(), &[0]])).await?;
                Method::Md5
            }
            Asked::Password => {
                self.may(Method::Password)?;
                let answer = self.using.password.in_clear();
                self.send(stream, &message(b'p', &[&answer, &[0]])).await?;
                Method::Password
            }
            Asked::Nothing => {
                return Err(self
                    .failed("it lets in whoever comes (`trust`), so the secret is of no use there")
                    .into());
            }
            Asked::Other(code) => {
                return Err(self
                    .failed(&format!("it asks for a login of kind {code}, and not for a password"))
                    .into());
            }
            Asked::SaslContinue(_) | Asked::SaslFinal(_) => {
                return Err(self.unclear(MessageError::Malformed));
            }
        };
        match self.asked(stream).await? {
            Asked::Nothing => Ok(by),
            _ => Err(self.unclear(MessageError::Malformed)),
        }
    }

    async fn scram(
        &self,
        stream: &mut Stream,
        mechanisms: &[String],
        channel: Channel,
    ) -> Result<(), Refused> {
        self.may(Method::Scram)?;
        let offers = |name: &str| mechanisms.iter().any(|mechanism| mechanism == name);
        let channel = match channel {
            Channel::EndPoint(_) if !offers(scram::PLUS) => Channel::NotOffered,
            channel => channel,
        };
        let nonce = super::nonce()?;
        let client = scram::Client::new("", nonce, channel);
        if !offers(client.mechanism()) {
            return Err(self
                .failed(&format!("it offers {}, and not {}", mechanisms.join(", "), scram::PLAIN))
                .into());
        }
        self.send(stream, &sasl_response(client.mechanism(), &client.first())).await?;
        let Asked::SaslContinue(first) = self.asked(stream).await? else {
            return Err(self.unclear(MessageError::Malformed));
        };
        let scram_failed = |error: scram::ScramError| self.failed(&error.to_string());
        let challenge = client.challenge(&first).map_err(scram_failed)?;
        let password = self.using.password.clone();
        let proved = self.turns.run(move || password.prove(challenge)).await?;
        self.send(stream, &message(b'p', &[proved.last.as_bytes()])).await?;
        let Asked::SaslFinal(last) = self.asked(stream).await? else {
            // Whoever lets in without it does not know the password.
            return Err(scram_failed(scram::ScramError::Server).into());
        };
        Ok(proved.verify(&last).map_err(scram_failed)?)
    }

    fn may(&self, method: Method) -> Result<(), Fault> {
        if self.using.server.may_ask_by(method) {
            return Ok(());
        }
        let (name, secret) = (method.as_str(), &self.using.secret);
        let detail = match method {
            Method::Scram => format!("it asks by {name}, which `auth` of secret `{secret}` leaves out"),
            _ => format!(
                "it asks for the password by {name}, which gives it away; set `password_encryption = 'scram-sha-256'` \
                 there and the password anew, or add \"{name}\" to `auth` of secret `{secret}`"
            ),
        };
        Err(Fault::new(Reason::CredentialInClear, &format!("{}: {detail}", self.host)))
    }

    /// Notices are left out: nobody is there yet who could make use of them.
    async fn asked(&self, stream: &mut Stream) -> Result<Asked, Refused> {
        for _ in 0..=MOST_NOTICES {
            match self.receive(stream).await? {
                (b'R', body) => return Asked::parse(&body).map_err(|error| self.unclear(error)),
                (b'N', _) => {}
                _ => break,
            }
        }
        Err(self.unclear(MessageError::Malformed))
    }

    /// Of an error is made what it is.
    async fn receive(&self, stream: &mut Stream) -> Result<(u8, Vec<u8>), Refused> {
        let received = wire::message(stream, LONGEST).await;
        let (kind, body) = received.map_err(|error| match error {
            WireError::Io(error) => self.failed(&error.to_string()),
            WireError::Length(_) => self.failed(&error.to_string()),
        })?;
        if kind != b'E' {
            return Ok((kind, body));
        }
        let told = Told::parse(&body).map_err(|error| self.unclear(error))?;
        let user = self.using.server.user();
        // Its own password, and not the stand-in, is what it has not accepted.
        let whose = match told.sqlstate.as_str() {
            "28P01" => format!("(the real password of secret `{}` for {user}) ", self.using.secret),
            _ => String::new(),
        };
        let fault = self.failed(&format!("{whose}{}", told.text));
        Err(Refused { fault, sqlstate: Some(told.sqlstate) })
    }

    async fn send(&self, stream: &mut Stream, bytes: &[u8]) -> Result<(), Fault> {
        wire::send(stream, bytes).await.map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, what: &str) -> Fault {
        Fault::new(Reason::UpstreamFailed, &format!("{}: {what}", self.host))
    }

    fn unclear(&self, error: MessageError) -> Refused {
        self.failed(&error.to_string()).into()
    }
}
