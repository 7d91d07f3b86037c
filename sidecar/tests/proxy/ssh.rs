//! Git over SSH: a client of the container, the relay, and a server of the internet, all of one library.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::server::{Auth, ChannelOpenHandle, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelMsg, client, server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use understudy::credentials::{Grants, Rights};
use understudy::proxy::Limits;
use understudy_policies::{Policy, PolicySet};

use crate::explained::{agrees, explained};
use crate::world::{HOST, Options, TO_HOST, World, declared, vault_of};

const RULES: &str = "[[allow]]\nhost = \"api.example.com\"\nport = 22\ngit = \"read\"\nrepos = [\"org/read\"]\n\
                     [[allow]]\nhost = \"api.example.com\"\nport = 22\ngit = \"write\"\nrepos = [\"org/write\"]\n";

fn key(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

const REAL: u8 = 1;
const HOST_KEY: u8 = 2;
const OTHER: u8 = 3;
/// The real key of a second secret.
const SECOND: u8 = 4;

/// What the server was asked.
#[derive(Default)]
struct Seen {
    users: Vec<String>,
    commands: Vec<String>,
    env: Vec<(String, String)>,
    /// Channels that it asked the sidecar for, and how many of them it got.
    channels: (usize, usize),
}

/// Lets the real key in, and sends back what it gets until that ends.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Seen>>);

impl Server {
    async fn start() -> (Self, u16) {
        let (server, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(server::Config {
            keys: vec![key(HOST_KEY)],
            auth_rejection_time: Duration::ZERO,
            ..server::Config::default()
        });
        let handler = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let running = server::run_stream(Arc::clone(&config), stream, handler.clone()).await;
                tokio::spawn(async move { running.unwrap().await });
            }
        });
        (server, port)
    }
}

impl server::Handler for Server {
    type Error = russh::Error;

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, russh::Error> {
        self.0.lock().unwrap().users.push(user.to_owned());
        let real = offer.public_key.key_data() == key(REAL).public_key().key_data();
        Ok(if real { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, _: &str, offer: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        let real = offer.public_key.key_data() == key(REAL).public_key().key_data();
        Ok(if real { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_session(
        &mut self,
        mut channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        reply.accept().await;
        let (handle, seen) = (session.handle(), Arc::clone(&self.0));
        tokio::spawn(async move {
            while let Some(message) = channel.wait().await {
                match message {
                    ChannelMsg::SetEnv { variable_name, variable_value, .. } => {
                        seen.lock().unwrap().env.push((variable_name, variable_value));
                    }
                    ChannelMsg::Exec { command, .. } => {
                        seen.lock().unwrap().commands.push(String::from_utf8(command).unwrap());
                        handle.channel_success(channel.id()).await.unwrap();
                        channel.extended_data_bytes(1, "progress").await.unwrap();
                    }
                    ChannelMsg::Data { data } => channel.data_bytes(data).await.unwrap(),
                    ChannelMsg::Eof => {
                        let channels = ask_for_channels(&handle).await;
                        seen.lock().unwrap().channels = channels;
                        channel.eof().await.unwrap();
                        channel.exit_status(7).await.unwrap();
                        channel.close().await.unwrap();
                    }
                    _ => {}
                }
            }
        });
        Ok(())
    }

    async fn channel_close(&mut self, _: ChannelId, _: &mut Session) -> Result<(), russh::Error> {
        Ok(())
    }
}

/// Of each kind that a client may be asked for.
async fn ask_for_channels(handle: &server::Handle) -> (usize, usize) {
    let answers = [
        handle.channel_open_session().await.is_ok(),
        handle.channel_open_agent().await.is_ok(),
        handle.channel_open_x11("127.0.0.1", 1).await.is_ok(),
        handle.channel_open_direct_tcpip("127.0.0.1", 1, "127.0.0.1", 1).await.is_ok(),
        handle.channel_open_forwarded_tcpip("127.0.0.1", 1, "127.0.0.1", 1).await.is_ok(),
        handle.channel_open_forwarded_streamlocal("/run/x").await.is_ok(),
    ];
    (answers.len(), answers.into_iter().filter(|opened| *opened).count())
}

/// Trusts the sidecar's host key alone, and keeps what is said before a login, and at the end.
#[derive(Clone)]
struct Agent {
    host_key: russh::keys::PublicKey,
    banner: Arc<Mutex<String>>,
    farewell: Arc<Mutex<String>>,
}

impl client::Handler for Agent {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        Ok(key.key_data() == self.host_key.key_data())
    }

    async fn auth_banner(&mut self, banner: &str, _: &mut client::Session) -> Result<(), russh::Error> {
        self.banner.lock().unwrap().push_str(banner);
        Ok(())
    }

    async fn disconnected(
        &mut self,
        reason: client::DisconnectReason<russh::Error>,
    ) -> Result<(), russh::Error> {
        if let client::DisconnectReason::ReceivedDisconnect(said) = reason {
            self.farewell.lock().unwrap().push_str(&said.message);
        }
        Ok(())
    }
}

/// What a command ended with.
#[derive(Debug, Default)]
struct Ended {
    out: Vec<u8>,
    err: String,
    status: Option<u32>,
}

struct Bed {
    world: World,
    server: Server,
}

impl Bed {
    async fn new() -> Self {
        Self::knowing(HOST_KEY).await
    }

    /// The server is known by the host key of that seed.
    async fn knowing(host_key: u8) -> Self {
        Self::with(host_key, RULES, Limits::default()).await
    }

    async fn with(host_key: u8, rules: &'static str, limits: Limits) -> Self {
        let (server, port) = Server::start().await;
        let provider = format!(
            "kind = \"ssh-key\"\nhost-keys = \"{}\"",
            key(host_key).public_key().to_openssh().unwrap().trim()
        );
        let value = key(REAL).to_openssh(LineEnding::LF).unwrap().to_string();
        let options = Options {
            provider: provider.leak(),
            value: value.leak(),
            rules,
            limits,
            dialled: Some(port),
            ..Options::default()
        };
        Self { world: World::with(options).await, server }
    }

    fn stand_in(&self) -> PrivateKey {
        self.stand_in_of("provider")
    }

    fn stand_in_of(&self, secret: &str) -> PrivateKey {
        let vault = self.world.vault.current();
        let pem = vault.secret(secret).unwrap().ssh_key().unwrap().stand_in_pem().to_owned();
        PrivateKey::from_openssh(pem).unwrap()
    }

    /// What is declared changes, and the container has these grants.
    fn reload(&self, declared: &str, grants: &[&str]) {
        let value = key(REAL).to_openssh(LineEnding::LF).unwrap().to_string();
        let second = key(SECOND).to_openssh(LineEnding::LF).unwrap().to_string();
        let vault = Arc::new(vault_of(&[&value, &second], declared));
        self.world.vault.replace(Arc::clone(&vault));
        let policy = Arc::clone(&self.world.container.rights().policy);
        let grants = Arc::new(grants.iter().map(|name| (*name).to_owned()).collect::<Grants>());
        self.world.container.set_rights(Rights::new(policy, grants, &vault));
    }

    async fn stream(&self) -> TcpStream {
        self.world.connect_at(self.world.listener, (TO_HOST, 22).into()).await
    }

    async fn connect(&self) -> (client::Handle<Agent>, Agent) {
        self.connect_over(self.stream().await).await
    }

    async fn connect_over(&self, stream: TcpStream) -> (client::Handle<Agent>, Agent) {
        let host_key = self.world.vault.current().ssh_host_key().unwrap().public().clone();
        let agent = Agent { host_key, banner: Arc::default(), farewell: Arc::default() };
        let config = Arc::new(client::Config::default());
        (client::connect_stream(config, stream, agent.clone()).await.unwrap(), agent)
    }

    async fn login(&self, user: &str, key: PrivateKey) -> (client::Handle<Agent>, bool, String) {
        let (mut handle, agent) = self.connect().await;
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
        let let_in = handle.authenticate_publickey(user, key).await.is_ok_and(|result| result.success());
        let banner = agent.banner.lock().unwrap().clone();
        (handle, let_in, banner)
    }

    async fn session(&self) -> (client::Handle<Agent>, Channel<client::Msg>) {
        let (handle, let_in, banner) = self.login("git", self.stand_in()).await;
        assert!(let_in && banner.is_empty(), "{banner}");
        let channel = handle.channel_open_session().await.unwrap();
        (handle, channel)
    }

    async fn run(&self, command: &str, input: &[u8]) -> Ended {
        let (_handle, channel) = self.session().await;
        channel.set_env(false, "GIT_PROTOCOL", "version=2").await.unwrap();
        channel.set_env(false, "LD_PRELOAD", "x").await.unwrap();
        channel.set_env(false, "GIT_PROTOCOL", "version=2:x").await.unwrap();
        channel.exec(true, command).await.unwrap();
        finish(channel, input).await
    }

    async fn line(&self) -> serde_json::Value {
        self.world.only_line().await
    }
}

async fn finish(channel: Channel<client::Msg>, input: &[u8]) -> Ended {
    let (mut reader, writer) = channel.split();
    let write = async {
        for part in input.chunks(32 * 1024) {
            if writer.data_bytes(part.to_vec()).await.is_err() {
                return;
            }
        }
        drop(writer.eof().await);
    };
    let read = async {
        let mut ended = Ended::default();
        while let Some(message) = reader.wait().await {
            match message {
                ChannelMsg::Data { data } => ended.out.extend_from_slice(&data),
                ChannelMsg::ExtendedData { data, .. } => ended.err.push_str(&String::from_utf8_lossy(&data)),
                ChannelMsg::ExitStatus { exit_status } => ended.status = Some(exit_status),
                ChannelMsg::Close => break,
                _ => {}
            }
        }
        ended
    };
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(read, write).0 }).await.unwrap()
}

#[tokio::test]
async fn a_command_of_gits_runs_with_the_real_key_and_its_ends_are_passed_on() {
    let bed = Bed::new().await;
    let input: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect();
    let ended = bed.run("git-upload-pack 'org/read.git'", &input).await;
    assert!(ended.out == input, "{} bytes came back", ended.out.len());
    assert_eq!((ended.err.as_str(), ended.status), ("progress", Some(7)));
    {
        let seen = bed.server.0.lock().unwrap();
        assert_eq!(
            (&seen.users[..], &seen.commands[..]),
            (&["git".to_owned()][..], &["git-upload-pack 'org/read.git'".to_owned()][..])
        );
        assert_eq!(seen.env, [("GIT_PROTOCOL".to_owned(), "version=2".to_owned())]);
        // Whatever channel the server asks for in turn, it gets none.
        assert_eq!(seen.channels, (6, 0));
    }
    let line = bed.line().await;
    for (field, value) in [
        ("protocol", "ssh"),
        ("host", HOST),
        ("method", "git-upload-pack"),
        ("path", "/org/read.git"),
        ("decision", "allowed"),
        ("rule", "rules.toml:12"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert_eq!((&line["secrets"], &line["port"]), (&serde_json::json!(["provider"]), &22.into()));
    assert_eq!((&line["bytes-up"], &line["bytes-down"]), (&8_000_000.into(), &8_000_008.into()));
}

#[tokio::test]
async fn what_policy_does_not_allow_is_refused_in_words_and_reaches_nobody() {
    for (command, reason, said) in [
        ("git-upload-pack 'org/other'", "path-not-allowed", "git = \"read\", repos = [\"org/other\"]"),
        ("git-receive-pack '/org/read.git'", "path-not-allowed", "git = \"write\", repos = [\"org/read\"]"),
        ("git-upload-archive 'org/read'", "protocol-not-allowed", "only git-upload-pack (fetch)"),
        ("git-lfs-authenticate org/read download", "protocol-not-allowed", "LFS over HTTPS"),
        ("id", "protocol-not-allowed", "no other command"),
        ("git-upload-pack 'org/read'; id", "protocol-not-allowed", "single quotes"),
    ] {
        let bed = Bed::new().await;
        let ended = bed.run(command, b"").await;
        assert_eq!((ended.status, ended.out.len()), (Some(1), 0), "{command}: {ended:?}");
        assert!(
            ended.err.starts_with(&format!("understudy: {reason}: ")) && ended.err.contains(said),
            "{ended:?}"
        );
        assert!(bed.server.0.lock().unwrap().users.is_empty());
        let line = bed.line().await;
        assert_eq!((&line["decision"], &line["reason"]), (&"denied".into(), &reason.into()), "{line}");
        assert!(line["detail"].as_str().unwrap().contains(said), "{line}");
    }
    let bed = Bed::new().await;
    assert_eq!(bed.run("git-receive-pack 'org/write'", b"x").await.out, b"x");
}

#[tokio::test]
async fn shells_subsystems_and_forwarding_are_refused_in_words() {
    let bed = Bed::new().await;
    for shell in [true, false] {
        let (_handle, channel) = bed.session().await;
        channel.agent_forward(true).await.unwrap();
        channel.request_pty(true, "xterm", 80, 24, 0, 0, &[]).await.unwrap();
        match shell {
            true => channel.request_shell(true).await.unwrap(),
            false => channel.request_subsystem(true, "sftp").await.unwrap(),
        }
        let ended = finish(channel, b"").await;
        assert_eq!(ended.status, Some(1));
        assert!(ended.err.starts_with("understudy: protocol-not-allowed: "), "{ended:?}");
    }
    let (handle, let_in, _) = bed.login("git", bed.stand_in()).await;
    assert!(let_in);
    assert!(handle.channel_open_direct_tcpip("127.0.0.1", 80, "127.0.0.1", 1).await.is_err());
    assert!(handle.channel_open_direct_streamlocal("/run/x").await.is_err());
    assert!(handle.tcpip_forward("0.0.0.0", 80).await.is_err());
    // One session for each connection.
    let first = handle.channel_open_session().await.unwrap();
    assert!(handle.channel_open_session().await.is_err());
    drop(first);
    assert!(bed.server.0.lock().unwrap().users.is_empty());
}

#[tokio::test]
async fn only_the_stand_in_logs_in_and_only_as_the_declared_user() {
    for (user, offered, reason) in [
        ("git", Some(REAL), "foreign-credential"),
        ("git", Some(OTHER), "foreign-credential"),
        ("root", None, "credential-restricted"),
    ] {
        let bed = Bed::new().await;
        let offered = offered.map_or_else(|| bed.stand_in(), key);
        let (mut handle, agent) = bed.connect().await;
        let offered = PrivateKeyWithHashAlg::new(Arc::new(offered), None);
        let let_in = handle.authenticate_publickey(user, offered).await;
        assert!(!let_in.is_ok_and(|result| result.success()));
        if user == "root" {
            // Nothing lets it in: that is said, as nothing else tells its user.
            tokio::time::timeout(Duration::from_secs(10), handle).await.unwrap().unwrap();
            let farewell = agent.farewell.lock().unwrap().clone();
            assert!(
                farewell.starts_with("understudy: credential-restricted: ") && farewell.contains("git@HOST"),
                "{farewell}"
            );
        } else {
            drop(handle);
        }
        let line = bed.line().await;
        assert_eq!((&line["decision"], &line["reason"]), (&"denied".into(), &reason.into()), "{line}");
        // A key that is foreign is nobody's.
        let about = (user == "root").then(|| serde_json::json!(["provider"]));
        assert_eq!(line.get("secrets"), about.as_ref(), "{line}");
        assert!(bed.server.0.lock().unwrap().users.is_empty());
    }
}

#[tokio::test]
async fn without_a_grant_the_stand_in_is_worth_nothing_and_a_banner_says_why() {
    let bed = Bed::new().await;
    let vault = bed.world.vault.current();
    let policy = Arc::clone(&bed.world.container.rights().policy);
    bed.world.container.set_rights(Rights::new(policy, Arc::new(Grants::default()), &vault));
    let (handle, let_in, banner) = bed.login("git", bed.stand_in()).await;
    assert!(
        !let_in && banner.contains("credential-not-granted") && banner.contains("understudy.secrets=NAME"),
        "{banner}"
    );
    drop(handle);
    let line = bed.line().await;
    assert_eq!(line["reason"], "credential-not-granted", "{line}");
    assert_eq!(line["secrets"], serde_json::json!(["provider"]), "{line}");
    assert!(bed.server.0.lock().unwrap().users.is_empty());
}

#[tokio::test]
async fn a_server_with_another_host_key_does_not_get_the_login() {
    let bed = Bed::knowing(OTHER).await;
    let ended = bed.run("git-upload-pack 'org/read'", b"").await;
    assert_eq!(ended.status, Some(1));
    let shown = key(HOST_KEY).public_key().fingerprint(Default::default()).to_string();
    assert!(
        ended.err.starts_with("understudy: upstream-untrusted: ") && ended.err.contains(&shown),
        "{ended:?}"
    );
    assert!(bed.server.0.lock().unwrap().users.is_empty());
    assert_eq!(bed.line().await["reason"], "upstream-untrusted");
}

#[tokio::test]
async fn a_revocation_and_a_change_of_policy_end_it() {
    for revoked in [true, false] {
        let bed = Bed::new().await;
        let (_handle, mut channel) = bed.session().await;
        channel.exec(true, "git-upload-pack 'org/read'").await.unwrap();
        channel.data_bytes("x").await.unwrap();
        while !matches!(channel.wait().await, Some(ChannelMsg::Data { .. })) {}
        if revoked {
            bed.world.container.revoke();
        } else {
            let policy = Arc::new(Policy::parse("none", "none.toml", "").unwrap());
            let grants = Arc::clone(&bed.world.container.rights().grants);
            let policy = Arc::new(PolicySet::combine(vec![policy]));
            bed.world.container.set_rights(Rights::new(policy, grants, &bed.world.vault.current()));
        }
        let ended = async { while channel.wait().await.is_some() {} };
        tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
        let line = bed.line().await;
        assert_eq!(line["decision"], "terminated", "{line}");
        assert_eq!(line["reason"], if revoked { "revoked" } else { "host-not-allowed" }, "{line}");
    }
}

/// A secret of that name, for these hosts, and what else is declared of it. `provider` has the first value.
fn declared_as(name: &str, hosts: &str, rest: &str) -> String {
    let host_key = key(HOST_KEY).public_key().to_openssh().unwrap();
    declared(&format!(
        "kind = \"ssh-key\"\nhosts = [\"{hosts}\"]\nhost-keys = \"{}\"\n{rest}",
        host_key.trim()
    ))
    .replace("[provider]", &format!("[{name}]"))
    .replace("secrets/provider", if name == "provider" { "secrets/provider" } else { "secrets/second" })
}

#[tokio::test]
async fn a_stand_in_for_another_server_does_not_log_in_here() {
    let bed = Bed::new().await;
    let text = declared_as("provider", HOST, "") + &declared_as("elsewhere", "other.example.com", "");
    bed.reload(&text, &["provider", "elsewhere"]);
    let (handle, let_in, _) = bed.login("git", bed.stand_in_of("elsewhere")).await;
    assert!(!let_in);
    drop(handle);
    let line = bed.line().await;
    assert_eq!(line["reason"], "credential-misdirected", "{line}");
    assert_eq!(line["secrets"], serde_json::json!(["elsewhere"]), "{line}");
    assert!(bed.server.0.lock().unwrap().users.is_empty());
}

#[tokio::test]
async fn each_key_of_a_server_logs_in_as_its_own_user() {
    let bed = Bed::new().await;
    let text = declared_as("provider", HOST, "") + &declared_as("deploy", HOST, "user = \"deploy\"");
    bed.reload(&text, &["provider", "deploy"]);
    for (secret, user, let_in) in [
        ("provider", "git", true),
        ("deploy", "deploy", true),
        ("provider", "deploy", false),
        ("deploy", "git", false),
    ] {
        let (_handle, is_let_in, _) = bed.login(user, bed.stand_in_of(secret)).await;
        assert_eq!(is_let_in, let_in, "{secret} as {user}");
    }
    // One that does not fit is no reason to turn away the one that does.
    let (mut handle, _) = bed.connect().await;
    for (secret, let_in) in [("deploy", false), ("provider", true)] {
        let offered = PrivateKeyWithHashAlg::new(Arc::new(bed.stand_in_of(secret)), None);
        assert_eq!(handle.authenticate_publickey("git", offered).await.unwrap().success(), let_in);
    }
    for (user, reason) in [("git", None), ("deploy", None), ("root", Some("credential-restricted"))] {
        let said = explained(&bed.world, &format!("{user}@{HOST}:org/read"), None);
        assert_eq!(said["reason"].as_str(), reason, "{said}");
    }
}

#[tokio::test]
async fn what_a_command_stands_on_is_looked_at_before_it_and_as_long_as_it_runs() {
    let (own, away) = (declared_as("provider", HOST, ""), declared_as("provider", "other.example.com", ""));
    let other_user = declared_as("provider", HOST, "user = \"deploy\"");
    let other_key = own.replace(
        key(HOST_KEY).public_key().to_openssh().unwrap().trim(),
        key(OTHER).public_key().to_openssh().unwrap().trim(),
    );
    for (now, grants, reason) in [
        (&own, &[][..], "credential-not-granted"),
        (&away, &["provider"], "credential-misdirected"),
        (&other_user, &["provider"], "credential-restricted"),
        (&other_key, &["provider"], "credential-restricted"),
    ] {
        let bed = Bed::new().await;
        let (_handle, mut channel) = bed.session().await;
        channel.exec(true, "git-upload-pack 'org/read'").await.unwrap();
        channel.data_bytes("x").await.unwrap();
        while !matches!(channel.wait().await, Some(ChannelMsg::Data { .. })) {}
        // The same again changes nothing.
        bed.reload(&own, &["provider"]);
        channel.data_bytes("x").await.unwrap();
        while !matches!(channel.wait().await, Some(ChannelMsg::Data { .. })) {}
        bed.reload(now, grants);
        let ended = async { while channel.wait().await.is_some() {} };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("it goes on");
        let line = bed.line().await;
        assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &reason.into()), "{line}");
    }
    // Logged in, and then withdrawn: the server hears nothing of it.
    let bed = Bed::new().await;
    let (_handle, channel) = bed.session().await;
    bed.reload(&own, &[]);
    channel.exec(true, "git-upload-pack 'org/read'").await.unwrap();
    let ended = finish(channel, b"").await;
    assert!(ended.err.starts_with("understudy: credential-not-granted: "), "{ended:?}");
    assert!(bed.server.0.lock().unwrap().users.is_empty());
}

#[tokio::test]
async fn a_push_is_as_long_as_its_rule_says() {
    let rules = "[[allow]]\nhost = \"api.example.com\"\nport = 22\ngit = \"write\"\nmax-body = \"100K\"\n";
    for (length, reason) in [(100 << 10, None), ((100 << 10) + 1, Some("body-too-large"))] {
        let bed = Bed::with(HOST_KEY, rules, Limits::default()).await;
        let ended = bed.run("git-receive-pack 'org/write'", &vec![7; length]).await;
        let line = bed.line().await;
        assert_eq!(line["reason"].as_str(), reason, "{line}");
        match reason {
            None => assert_eq!((ended.status, ended.out.len()), (Some(7), length)),
            Some(reason) => {
                assert!(ended.err.contains(&format!("understudy: {reason}: ")), "{ended:?}");
                assert!(line["bytes-up"].as_u64().unwrap() <= 100 << 10, "{line}");
            }
        }
    }
}

#[tokio::test]
async fn silence_and_what_is_not_ssh_end_with_one_line() {
    let short = Duration::from_millis(200);
    let limits = Limits { first_bytes: short, handshake: short, ..Limits::default() };
    for (sent, reason) in [
        (&b""[..], "timeout"),
        (b"SSH-2.0-x\r\n", "timeout"),
        (b"SSH-2.0-x\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "malformed"),
        (b"SSH-1.5-x\r\n", "malformed"),
        (&[b'x'; 100_000], "malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", "malformed"),
    ] {
        let bed = Bed::with(HOST_KEY, RULES, limits).await;
        let mut stream = bed.stream().await;
        drop(stream.write_all(sent).await);
        let mut said = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut said)).await;
        assert!(ended.is_ok(), "{sent:?}");
        assert!(said.is_empty() || said.starts_with(b"SSH-2.0-understudy\r\n"), "{said:?}");
        let line = bed.line().await;
        let short = sent.get(..16).unwrap_or(sent);
        assert_eq!(
            (&line["protocol"], &line["reason"]),
            (&"ssh".into(), &reason.into()),
            "{short:?}: {line}"
        );
    }
    // Logged in, and then nothing.
    let bed =
        Bed::with(HOST_KEY, RULES, Limits { handshake: Duration::from_secs(1), ..Limits::default() }).await;
    let (_handle, channel) = bed.session().await;
    let ended = finish(channel, b"").await;
    assert!(ended.err.is_empty() || ended.err.contains("understudy"), "{ended:?}");
    assert_ne!(bed.line().await["decision"], "allowed");
}

#[tokio::test]
async fn a_tunnel_and_a_raw_rule_are_no_ways_around_it() {
    let raw = "[[allow]]\nhost = \"api.example.com\"\nport = 22\ntcp = true\n";
    for rules in [RULES, raw] {
        for tunnelled in [true, false] {
            let bed = Bed::with(HOST_KEY, rules, Limits::default()).await;
            let stream = if tunnelled {
                let mut stream = bed.world.connect(TO_HOST).await;
                let ask = format!("CONNECT {HOST}:22 HTTP/1.1\r\nhost: {HOST}:22\r\n\r\n");
                stream.write_all(ask.as_bytes()).await.unwrap();
                let mut answer = [0; 39];
                stream.read_exact(&mut answer).await.unwrap();
                assert!(answer.ends_with(b"\r\n\r\n"), "{:?}", String::from_utf8_lossy(&answer));
                stream
            } else {
                bed.stream().await
            };
            // Its host key is the sidecar's, or this would fail.
            let (mut handle, _) = bed.connect_over(stream).await;
            let own = PrivateKeyWithHashAlg::new(Arc::new(key(REAL)), None);
            assert!(!handle.authenticate_publickey("git", own).await.unwrap().success());
            let stand_in = PrivateKeyWithHashAlg::new(Arc::new(bed.stand_in()), None);
            assert!(handle.authenticate_publickey("git", stand_in).await.unwrap().success());
            let channel = handle.channel_open_session().await.unwrap();
            channel.exec(true, "git-upload-pack 'org/read'").await.unwrap();
            let ended = finish(channel, b"x").await;
            assert_eq!(ended.status, Some(if rules == RULES { 7 } else { 1 }), "{ended:?}");
        }
    }
}

#[tokio::test]
async fn explain_says_beforehand_what_becomes_of_a_command() {
    for (repository, method, as_url) in [
        ("org/read.git", "git-upload-pack", true),
        ("org/read", "git-receive-pack", false),
        ("/org/write", "git-receive-pack", true),
        ("org/other", "git-upload-pack", false),
        ("org//read", "git-upload-pack", false),
        ("-x", "git-upload-pack", false),
    ] {
        let bed = Bed::new().await;
        bed.run(&format!("{method} '{repository}'"), b"x").await;
        let url = match as_url {
            true => format!("ssh://git@{HOST}/{}", repository.trim_start_matches('/')),
            false => format!("git@{HOST}:{repository}"),
        };
        agrees(&bed.world, &url, Some(method), &bed.line().await);
    }
    let bed = Bed::new().await;
    drop(bed.login("root", bed.stand_in()).await);
    agrees(&bed.world, &format!("root@{HOST}:org/read"), None, &bed.line().await);
    let bed = Bed::new().await;
    let vault = bed.world.vault.current();
    let policy = Arc::clone(&bed.world.container.rights().policy);
    bed.world.container.set_rights(Rights::new(policy, Arc::new(Grants::default()), &vault));
    drop(bed.login("git", bed.stand_in()).await);
    agrees(&bed.world, &format!("git@{HOST}:org/read"), None, &bed.line().await);
}

#[tokio::test]
async fn commands_are_as_many_as_the_policies_say() {
    let bed = Bed::new().await;
    let text = format!("max-requests = 1\n{RULES}");
    let policy =
        Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("rules", "rules.toml", &text).unwrap())]));
    let grants = Arc::clone(&bed.world.container.rights().grants);
    bed.world.container.set_rights(Rights::new(policy, grants, &bed.world.vault.current()));
    assert_eq!(bed.run("git-upload-pack 'org/read'", b"x").await.status, Some(7));
    let ended = bed.run("git-upload-pack 'org/read'", b"x").await;
    assert!(
        ended.status == Some(1)
            && ended.err.starts_with("understudy: limit-reached: ")
            && ended.err.contains("`max-requests`"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_limit_that_is_passed_ends_a_command_in_the_middle() {
    for limit in ["max-bytes = \"100K\"", "max-runtime = \"2s\""] {
        let bed = Bed::new().await;
        let text = format!("{limit}\n{RULES}");
        let policy = Policy::parse("rules", "rules.toml", &text).unwrap();
        let policy = Arc::new(PolicySet::combine(vec![Arc::new(policy)]));
        let grants = Arc::clone(&bed.world.container.rights().grants);
        bed.world.container.set_rights(Rights::new(policy, grants, &bed.world.vault.current()));
        let (_handle, channel) = bed.session().await;
        channel.exec(true, "git-upload-pack 'org/read'").await.unwrap();
        let (mut reader, writer) = channel.split();
        // The library waits forever for room that nobody gives it any more.
        let flood = tokio::spawn(async move {
            while limit.contains("bytes") && writer.data_bytes([7; 10_000].to_vec()).await.is_ok() {}
            std::future::pending::<()>().await;
        });
        let read = async {
            let mut ended = Ended::default();
            while let Some(message) = reader.wait().await {
                match message {
                    ChannelMsg::Data { data } => ended.out.extend_from_slice(&data),
                    ChannelMsg::ExtendedData { data, .. } => {
                        ended.err.push_str(&String::from_utf8_lossy(&data));
                    }
                    ChannelMsg::ExitStatus { exit_status } => ended.status = Some(exit_status),
                    _ => {}
                }
            }
            ended
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), read).await.expect("it is not ended");
        flood.abort();
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(
            ended.err.contains("understudy: limit-reached: ") && ended.out.len() < 100 << 10,
            "{}",
            ended.err
        );
        let line = crate::limits::ended_by(&bed.world, limit).await;
        let moved = line["bytes-up"].as_u64().unwrap() + line["bytes-down"].as_u64().unwrap();
        assert!(moved <= 100 << 10, "{line}");
    }
}
