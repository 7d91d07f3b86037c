//! Sessions of PostgreSQL byte by byte: what a container may say, what a server may, and what becomes of both. Real ones
//! are in `postgres_clients`.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use understudy::connection::postgres::message::{message, packet, sasl_response, tls_request};
use understudy::credentials::postgres::scram::{self, Channel, Verifier};
use understudy::credentials::{Grants, Rights};
use understudy::proxy::Limits;
use understudy_policies::{Policy, PolicySet};

use crate::explained::agrees;
use crate::world::{HOST, OTHER, Options, TO_HOST, TO_OTHER, World, declared, vault};

const PASSWORD: &str = "correct-horse-battery-staple";

const RULES: &str = "[[allow]]\nhost = \"api.example.com\"\npostgres = true\ndatabases = [\"app\"]\n";

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}
type Stream = Box<dyn Duplex>;

/// What a server does where a good one would do something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Good,
    /// Offers to bind the login to its certificate.
    Binds,
    /// Without TLS.
    NoTls,
    /// Answers the request for TLS, and says more in clear.
    Injects,
    AsksClear,
    AsksMd5,
    LetsIn,
    FewIterations,
    /// Lets in without having proved that it knows the password.
    NoProof,
    WrongProof,
    /// Asks for credentials once there is a session.
    AsksLater,
    KeyLater,
    /// Says that a message is longer than any.
    Endless,
    /// Has the password in what it says before the session.
    Greets,
    /// Has it in why it lets nobody in, far behind.
    Tells,
    /// Says something else between the messages of the login.
    Notes,
    Mute,
}

#[derive(Default)]
struct Seen {
    /// Startup packets and requests to cancel.
    openings: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
}

struct Bed {
    world: World,
    seen: Arc<Mutex<Seen>>,
}

async fn packet_of(stream: &mut Stream) -> Option<Vec<u8>> {
    let length = stream.read_u32().await.ok()?;
    let mut body = vec![0; length as usize - 4];
    stream.read_exact(&mut body).await.ok()?;
    Some(body)
}

async fn message_of(stream: &mut Stream) -> Option<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await.ok()?;
    Some((kind, packet_of(stream).await?))
}

fn asks(code: u32, rest: &[u8]) -> Vec<u8> {
    message(b'R', &[&code.to_be_bytes(), rest])
}

/// What a server shows, and the hash of its certificate.
type Shown = (TlsAcceptor, Vec<u8>);

/// A server that knows the password.
async fn serve(stream: TcpStream, (tls, leaf): Shown, way: Way, seen: Arc<Mutex<Seen>>) -> Option<()> {
    let mut stream: Stream = Box::new(stream);
    assert_eq!(packet_of(&mut stream).await?, tls_request()[4..]);
    if way == Way::NoTls {
        return stream.write_all(b"N").await.ok();
    }
    stream.write_all(if way == Way::Injects { b"SR\0\0\0\x08\0\0\0\0" } else { b"S" }).await.ok()?;
    let mut stream: Stream = Box::new(tls.accept(stream).await.ok()?);
    let opening = packet_of(&mut stream).await?;
    let cancels = opening.starts_with(&80_877_102_u32.to_be_bytes());
    seen.lock().unwrap().openings.push(opening);
    if cancels {
        return Some(());
    }
    let keep = |answer: &[u8]| seen.lock().unwrap().answers.push(answer.to_vec());
    let asked = match way {
        Way::AsksClear => asks(3, b""),
        Way::AsksMd5 => asks(5, b"salt"),
        Way::LetsIn => asks(0, b""),
        Way::Endless => [&b"R"[..], &u32::MAX.to_be_bytes()].concat(),
        Way::Mute => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Vec::new()
        }
        Way::Binds => asks(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"),
        _ => asks(10, b"SCRAM-SHA-256\0\0"),
    };
    stream.write_all(&asked).await.ok()?;
    stream.flush().await.ok()?;
    if way != Way::LetsIn {
        let (_, answer) = message_of(&mut stream).await?;
        keep(&answer);
        let (mechanism, first) = understudy::connection::postgres::message::sasl_initial(&answer).ok()?;
        let end_point = (way == Way::Binds).then_some(&leaf[..]);
        let exchange = scram::Server::new(mechanism, first, end_point, "server", [7; 16]).ok()?;
        let mut said = exchange.first().to_owned();
        if way == Way::FewIterations {
            said = said.replace("i=4096", "i=1");
        }
        stream.write_all(&asks(11, said.as_bytes())).await.ok()?;
        stream.flush().await.ok()?;
        let (_, answer) = message_of(&mut stream).await?;
        keep(&answer);
        let verifier = Verifier::new(PASSWORD, &[7; 16]);
        let mut last = exchange.proof(&answer).unwrap().is_of(&verifier).expect("the real password");
        if way == Way::Tells {
            let text = format!("SFATAL\0VFATAL\0C3D000\0M{}{PASSWORD}\0\0", "x".repeat(985));
            stream.write_all(&message(b'E', &[text.as_bytes()])).await.ok()?;
            return stream.flush().await.ok();
        }
        if way == Way::Notes {
            stream.write_all(&message(b'N', &[b"SNOTICE\0C00000\0Mhello\0\0"])).await.ok()?;
        }
        if way == Way::WrongProof {
            last = last.replace("v=", "v=AAAA");
        }
        if way != Way::NoProof {
            stream.write_all(&asks(12, last.as_bytes())).await.ok()?;
        }
        stream.write_all(&asks(0, b"")).await.ok()?;
    }
    let mut ready = message(b'S', &[b"server_version\x0015.0\0"]);
    if way == Way::Greets {
        ready.extend(message(b'N', &[format!("SNOTICE\0C00000\0M{PASSWORD}\0\0").as_bytes()]));
    }
    ready.extend(message(b'K', &[&[0, 0, 0, 9, 1, 2, 3, 4]]));
    ready.extend(message(b'Z', &[b"I"]));
    stream.write_all(&ready).await.ok()?;
    stream.flush().await.ok()?;
    // Sends back what it gets.
    loop {
        let (kind, body) = message_of(&mut stream).await?;
        let said = match (way, kind) {
            (_, b'X') => return Some(()),
            (Way::AsksLater, _) => asks(3, b""),
            (Way::KeyLater, _) => message(b'K', &[&[0; 8]]),
            // A message that has only begun.
            (_, b'H') => message(b'D', &[&body])[..5].to_vec(),
            _ => message(b'D', &[&body]),
        };
        stream.write_all(&said).await.ok()?;
        stream.flush().await.ok()?;
    }
}

impl Bed {
    async fn new() -> Self {
        Self::with(Way::Good, RULES, Limits::default()).await
    }

    async fn with(way: Way, rules: &'static str, limits: Limits) -> Self {
        Self::declared("user = \"app\"", way, rules, limits).await
    }

    async fn declared(more: &str, way: Way, rules: &'static str, limits: Limits) -> Self {
        let provider = format!("kind = \"postgres\"\n{more}");
        Self::of(Options { provider: provider.leak(), rules, limits, ..Options::default() }, way).await
    }

    async fn of(options: Options, way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = Some(listener.local_addr().unwrap().port());
        let world = World::with(Options { value: PASSWORD, dialled, ..options }).await;
        let (certificate, key) = &world.upstream.leaf_pem;
        let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider_of_tls())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.clone()], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
            .unwrap();
        let hash = ring::digest::digest(&ring::digest::SHA256, &leaf).as_ref().to_vec();
        let shown = (TlsAcceptor::from(Arc::new(config)), hash);
        let seen = Arc::<Mutex<Seen>>::default();
        let known = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shown.clone(), way, Arc::clone(&known)));
            }
        });
        Self { world, seen }
    }

    fn stand_in(&self) -> String {
        self.world.vault.current().secret("provider").unwrap().stand_in().to_owned()
    }

    async fn plain(&self) -> Stream {
        Box::new(self.world.connect_at(self.world.listener, (TO_HOST, 5432).into()).await)
    }

    /// Over TLS, with the hash of the certificate.
    async fn tls(&self, asks: bool, alpn: &[u8]) -> (Stream, Vec<u8>) {
        let mut stream = self.plain().await;
        if asks {
            stream.write_all(&tls_request()).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'S');
        }
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.world.authority_pem.as_bytes()).unwrap()).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(provider_of_tls())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from(HOST).unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        let hash = ring::digest::digest(&ring::digest::SHA256, &shown).as_ref().to_vec();
        (Box::new(stream), hash)
    }

    async fn session(&self) -> Stream {
        let mut stream = self.plain().await;
        let told = login(&mut stream, "app", "app", &self.stand_in(), Channel::Unsupported).await;
        assert_eq!(told.0, Ok(()));
        stream
    }

    /// As after a reload of a changed configuration.
    fn reload(&self, password: &'static str, provider: &str) {
        let vault = Arc::new(vault(password, &declared(provider)));
        self.world.vault.replace(Arc::clone(&vault));
        let rights = self.world.container.rights();
        let (policy, grants) = (Arc::clone(&rights.policy), Arc::clone(&rights.grants));
        self.world.container.set_rights(Rights::new(policy, grants, &vault));
    }

    async fn line(&self) -> serde_json::Value {
        self.world.only_line().await
    }
}

fn provider_of_tls() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn startup(user: &str, database: &str) -> Vec<u8> {
    packet(format!("\0\x03\0\0user\0{user}\0database\0{database}\0application_name\0test\0\0").as_bytes())
}

/// SQLSTATE and text of an error.
fn error(body: &[u8]) -> (String, String) {
    let field = |kind: u8| {
        let fields = body.split(|byte| *byte == 0);
        let mut fields = fields.filter(move |field| field.first() == Some(&kind));
        String::from_utf8(fields.next().unwrap_or_default()[1..].to_vec()).unwrap()
    };
    assert_eq!((field(b'S'), field(b'V')), ("FATAL".to_owned(), "FATAL".to_owned()));
    (field(b'C'), field(b'M'))
}

/// As a client; Ok once it may ask something, with the key by which it can cancel.
async fn login(
    stream: &mut Stream,
    user: &str,
    database: &str,
    password: &str,
    channel: Channel,
) -> (Result<(), (String, String)>, Vec<u8>) {
    let (result, key, _) = conversation(stream, user, database, password, channel).await;
    (result, key)
}

/// The same, and all that was said to it.
async fn conversation(
    stream: &mut Stream,
    user: &str,
    database: &str,
    password: &str,
    channel: Channel,
) -> (Result<(), (String, String)>, Vec<u8>, Vec<u8>) {
    let mut said = Vec::new();
    stream.write_all(&startup(user, database)).await.unwrap();
    stream.flush().await.unwrap();
    let mut client = Some(scram::Client::new("", "client".to_owned(), channel));
    let mut key = Vec::new();
    let mut server_proved = None;
    loop {
        let Some((kind, body)) = message_of(stream).await else { panic!("it ended without a word") };
        said.extend_from_slice(&body);
        match (kind, body.get(..4)) {
            (b'E', _) => return (Err(error(&body)), key, said),
            (b'R', Some([0, 0, 0, 10])) => {
                let client = client.as_ref().unwrap();
                stream.write_all(&sasl_response(client.mechanism(), &client.first())).await.unwrap();
            }
            (b'R', Some([0, 0, 0, 11])) => {
                let (bare, nonce) = (client.take().unwrap().first(), "client");
                let (last, proved) = prove(&bare, nonce, &body[4..], password);
                server_proved = Some(proved);
                stream.write_all(&message(b'p', &[last.as_bytes()])).await.unwrap();
            }
            (b'R', Some([0, 0, 0, 12])) => {
                assert_eq!(&body[4..], server_proved.take().unwrap().as_bytes(), "it knows the stand-in");
            }
            (b'K', _) => key = body,
            (b'Z', _) => return (Ok(()), key, said),
            _ => {}
        }
        stream.flush().await.unwrap();
    }
}

/// RFC 5802 once more, written down here so that the relay's own is not asked about itself: the last message of a client
/// and that of its server.
fn prove(first: &str, nonce: &str, server_first: &[u8], password: &str) -> (String, String) {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD as BASE64;
    use ring::{digest, hmac, pbkdf2};
    let text = std::str::from_utf8(server_first).unwrap();
    let mut parts = text.split(',').map(|part| &part[2..]);
    let (whole, salt) = (parts.next().unwrap(), BASE64.decode(parts.next().unwrap()).unwrap());
    let iterations: u32 = parts.next().unwrap().parse().unwrap();
    assert!(whole.starts_with(nonce) && iterations == 4096);
    let mut salted = [0; 32];
    let rounds = iterations.try_into().unwrap();
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut salted);
    let sign =
        |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec();
    let (header, bare) = first.split_at(first.find("n=").unwrap());
    let without = format!(
        "c={},r={whole}",
        CHANNEL_INPUT.with(|hash| BASE64.encode([header.as_bytes(), &hash.borrow()].concat()))
    );
    let message = format!("{bare},{text},{without}");
    let client = sign(&salted, b"Client Key");
    let stored = digest::digest(&digest::SHA256, &client);
    let signature = sign(stored.as_ref(), message.as_bytes());
    let proof: Vec<u8> = client.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    let server = sign(&sign(&salted, b"Server Key"), message.as_bytes());
    (format!("{without},p={}", BASE64.encode(proof)), format!("v={}", BASE64.encode(server)))
}

thread_local! {
    /// What the client binds its login to.
    static CHANNEL_INPUT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[tokio::test]
async fn a_container_logs_in_with_a_stand_in_and_the_relay_with_the_real_password() {
    let bed = Bed::new().await;
    let mut stream = bed.session().await;
    let asked = message(b'Q', &[&vec![b'x'; 300_000]]);
    for _ in 0..3 {
        stream.write_all(&asked).await.unwrap();
        let (kind, body) = message_of(&mut stream).await.unwrap();
        assert!(kind == b'D' && body == asked[5..]);
    }
    // What ends as the password begins, or has it in it, is there at once: the client answers it.
    let stand_in = bed.stand_in();
    for (said, told) in [("a correct-horse", "a correct-horse"), (PASSWORD, stand_in.as_str())] {
        stream.write_all(&message(b'q', &[said.as_bytes()])).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(20), message_of(&mut stream)).await;
        assert_eq!(answer.unwrap().unwrap().1, told.as_bytes());
    }
    stream.write_all(&message(b'X', &[])).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let line = bed.line().await;
    assert_eq!(line["scrubbed"], 1);
    for (field, value) in [
        ("protocol", "postgres"),
        ("host", HOST),
        ("method", "connect"),
        ("path", "/app"),
        ("decision", "allowed"),
        ("rule", "rules.toml:12"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert_eq!((&line["secrets"], &line["port"]), (&serde_json::json!(["provider"]), &5432.into()));
    // Of what comes before the session, what is passed on is counted.
    let (opening, greeting) = (startup("app", "app").len(), 5 + 20 + 6);
    assert_eq!(line["bytes-up"], 900_073 + opening, "{line}");
    assert_eq!(line["bytes-down"], 900_068 + greeting, "{line}");
    agrees(&bed.world, "postgres://app@api.example.com/app", None, &line);
    let seen = bed.seen.lock().unwrap();
    let expected = startup("app", "app")[4..].to_vec();
    assert_eq!(seen.openings, [expected]);
    // Nothing that the server was told, and nothing that the container was, is the password.
    let all = [seen.answers.concat(), seen.openings.concat(), bed.world.audit_text().into_bytes()].concat();
    assert!(!String::from_utf8_lossy(&all).contains(PASSWORD));
}

#[tokio::test]
async fn tls_is_spoken_for_the_hosts_name_alone_and_logins_can_be_bound_to_it() {
    let bed = Bed::new().await;
    for (asks, alpn) in [(true, &b"postgresql"[..]), (false, b"postgresql")] {
        let (mut stream, hash) = bed.tls(asks, alpn).await;
        CHANNEL_INPUT.with(|input| input.replace(hash.clone()));
        let told = login(&mut stream, "app", "app", &bed.stand_in(), Channel::EndPoint(hash)).await;
        assert_eq!(told.0, Ok(()));
        CHANNEL_INPUT.with(|input| input.replace(Vec::new()));
        stream.write_all(&message(b'Q', &[b"x"])).await.unwrap();
        assert_eq!(message_of(&mut stream).await, Some((b'D', b"x".to_vec())));
    }
    // Bound to another certificate, or believing that nothing was offered.
    for channel in [Channel::EndPoint(vec![1; 32]), Channel::NotOffered] {
        let (mut stream, _) = bed.tls(true, b"postgresql").await;
        let told = login(&mut stream, "app", "app", &bed.stand_in(), channel).await;
        assert_eq!(told.0.unwrap_err().0, "08P01");
    }
}

#[tokio::test]
async fn tls_for_something_else_is_not_passed_through_to_the_server() {
    let bed = Bed::new().await;
    let text = format!("{RULES}\n[[allow]]\nhost = \"api.example.com\"\nport = 5432\nsplice = true\n");
    let policy = Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("t", "t.toml", &text).unwrap())]));
    let rights = bed.world.container.rights();
    bed.world.container.set_rights(Rights { policy, ..(*rights).clone() });
    // The certificate is the container's authority's, not the server's.
    bed.tls(false, b"http/1.1").await;
    assert!(bed.seen.lock().unwrap().openings.is_empty());
}

#[tokio::test]
async fn who_does_not_know_the_stand_in_is_told_so_and_reaches_nobody() {
    for (user, database, password, sqlstate, reason, said) in [
        ("app", "app", "x", "28P01", "foreign-credential", "a password for app that is not the stand-in"),
        ("app", "app", PASSWORD, "28P01", "foreign-credential", "not the stand-in of a secret"),
        ("admin", "app", "STAND-IN", "28000", "credential-restricted", "that of `app` alone"),
        ("app", "other", "STAND-IN", "28000", "host-not-allowed", "postgres = true, databases = [\"other\"]"),
    ] {
        let bed = Bed::new().await;
        let stand_in = bed.stand_in();
        let password = if password == "STAND-IN" { &stand_in } else { password };
        let mut stream = bed.plain().await;
        let told = login(&mut stream, user, database, password, Channel::Unsupported).await.0.unwrap_err();
        assert_eq!(told.0, sqlstate);
        let begins = format!("understudy: {reason}: ");
        assert!(told.1.starts_with(&begins) && told.1.contains(said), "{told:?}");
        let line = bed.line().await;
        assert_eq!((&line["decision"], &line["reason"]), (&"denied".into(), &reason.into()));
        if password == stand_in {
            agrees(&bed.world, &format!("postgres://{user}@api.example.com/{database}"), None, &line);
        }
        assert!(bed.seen.lock().unwrap().openings.is_empty());
    }
}

#[tokio::test]
async fn a_stand_in_is_worth_nothing_without_its_grant_and_at_another_host() {
    let bed = Bed::new().await;
    let other = bed.world.container_named('b').await;
    let stand_in = bed.stand_in();
    // Another container that was granted it is let in; without the grant, not.
    let mut stream: Stream = Box::new(bed.world.connect_at(other, (TO_HOST, 5432).into()).await);
    assert_eq!(login(&mut stream, "app", "app", &stand_in, Channel::Unsupported).await.0, Ok(()));
    drop(stream);
    let rights = bed.world.container.rights();
    let (policy, grants) = (Arc::clone(&rights.policy), Arc::new(Grants::default()));
    bed.world.container.set_rights(Rights { policy, grants, ..Rights::default() });
    let mut stream = bed.plain().await;
    let told = login(&mut stream, "app", "app", &stand_in, Channel::Unsupported).await.0.unwrap_err();
    assert!(
        told.0 == "28000" && told.1.contains("credential-not-granted") && told.1.contains("`provider`"),
        "{told:?}"
    );
    // Where no secret is declared, and a rule is about it all the same, that is said.
    let text = "[[allow]]\nhost = \"other.example.com\"\npostgres = true\n";
    let policy = Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("t", "t.toml", text).unwrap())]));
    bed.world.container.set_rights(Rights { policy, ..(*rights).clone() });
    let mut stream: Stream =
        Box::new(bed.world.connect_at(bed.world.listener, (TO_OTHER, 5432).into()).await);
    let told = login(&mut stream, "app", "app", &stand_in, Channel::Unsupported).await.0.unwrap_err();
    assert!(
        told.0 == "28000" && told.1.contains("no secret of kind \"postgres\" is for other.example.com"),
        "{told:?}"
    );
    // And without a rule, it is bytes of another protocol.
    let mut stream: Stream =
        Box::new(bed.world.connect_at(bed.world.listener, (TO_OTHER, 5433).into()).await);
    let told = login(&mut stream, "app", "app", &stand_in, Channel::Unsupported).await.0.unwrap_err();
    assert!(told.0 == "28000" && told.1.contains("protocol-not-allowed"), "{told:?}");
}

#[tokio::test]
async fn a_server_that_is_not_what_it_should_be_learns_nothing_and_the_container_is_told() {
    let quick = Limits { handshake: Duration::from_secs(2), ..Limits::default() };
    for (way, sqlstate, said) in [
        (Way::NoTls, "08001", "upstream-untrusted: api.example.com does not speak TLS"),
        (Way::Injects, "08006", "upstream-failed"),
        (
            Way::AsksClear,
            "08001",
            "credential-in-clear: api.example.com: it asks for the password by password",
        ),
        (Way::AsksMd5, "08001", "credential-in-clear: api.example.com: it asks for the password by md5"),
        (Way::LetsIn, "08006", "it lets in whoever comes (`trust`)"),
        (Way::FewIterations, "08006", "1 iterations, of which at least 4096"),
        (Way::NoProof, "08006", "the server does not know the password itself"),
        (Way::WrongProof, "08006", "upstream-failed: api.example.com: "),
        (Way::Endless, "08006", "a packet of 4294967295 bytes"),
        (Way::Mute, "08001", "upstream-timeout: api.example.com: no session in time"),
    ] {
        let bed = Bed::with(way, RULES, quick).await;
        let mut stream = bed.plain().await;
        let told =
            login(&mut stream, "app", "app", &bed.stand_in(), Channel::Unsupported).await.0.unwrap_err();
        assert!(told.0 == sqlstate && told.1.contains(said), "{way:?}: {told:?}");
        let seen = bed.seen.lock().unwrap();
        let proved = matches!(way, Way::NoProof | Way::WrongProof);
        assert_eq!(
            seen.answers.len(),
            if proved { 2 } else { usize::from(way == Way::FewIterations) },
            "{way:?}"
        );
        assert!(!String::from_utf8_lossy(&seen.answers.concat()).contains(PASSWORD));
    }
}

#[tokio::test]
async fn a_server_whose_certificate_does_not_hold_is_sent_nothing() {
    const OF_OTHER: &str = "kind = \"postgres\"\nuser = \"app\"\nhosts = [\"other.example.com\"]";
    const AT_OTHER: &str = "[[allow]]\nhost = \"other.example.com\"\npostgres = true\n";
    let here =
        Options { provider: "kind = \"postgres\"\nuser = \"app\"", rules: RULES, ..Options::default() };
    let other = Options { provider: OF_OTHER, rules: AT_OTHER, ..Options::default() };
    // Of an authority that nobody trusts; for another name.
    for (options, to) in [(Options { trusted: false, ..here }, TO_HOST), (other, TO_OTHER)] {
        let (rules, bed) = (options.rules, Bed::of(options, Way::Good).await);
        // Any denial that is about the host closes it.
        let policy = Policy::parse("t", "t.toml", rules).unwrap();
        let policy = Arc::new(PolicySet::combine(vec![Arc::new(policy)]));
        let rights = bed.world.container.rights();
        bed.world.container.set_rights(Rights { policy, ..(*rights).clone() });
        let mut stream: Stream = Box::new(bed.world.connect_at(bed.world.listener, (to, 5432).into()).await);
        let told =
            login(&mut stream, "app", "app", &bed.stand_in(), Channel::Unsupported).await.0.unwrap_err();
        assert!(told.0 == "08001" && told.1.contains("upstream-untrusted"), "{told:?}");
        assert_eq!(bed.line().await["reason"], "upstream-untrusted");
        assert!(bed.seen.lock().unwrap().openings.is_empty());
    }
}

#[tokio::test]
async fn a_login_is_bound_to_the_servers_certificate_where_it_offers_that() {
    let bed = Bed::with(Way::Binds, RULES, Limits::default()).await;
    drop(bed.session().await);
    let seen = bed.seen.lock().unwrap();
    assert!(seen.answers[0].starts_with(b"SCRAM-SHA-256-PLUS\0"), "{:?}", seen.answers);
}

/// Two secrets of one server: what lets in as one user is nothing as another.
#[tokio::test]
async fn the_stand_in_of_another_secret_lets_in_nobody() {
    let bed = Bed::new().await;
    let declared = |name: &str, user: &str| {
        format!(
            "[{name}]\nkind = \"postgres\"\nuser = {user:?}\nhosts = [{HOST:?}]\nenv = \"URL_{user}\"\n\
             file = \"/run/secrets/{name}\"\ngrant-to = {{ harnesses = [\"generic\"] }}\n"
        )
    };
    let both = declared("provider", "app") + &declared("second", "admin");
    bed.world.vault.replace(Arc::new(vault(PASSWORD, &both)));
    let second = bed.world.vault.current().secret("second").unwrap().stand_in().to_owned();
    assert_ne!(second, bed.stand_in());
    for granted in [&["provider"][..], &["provider", "second"]] {
        let rights = bed.world.container.rights();
        let grants = Arc::new(granted.iter().copied().collect());
        bed.world.container.set_rights(Rights { grants, ..(*rights).clone() });
        let mut stream = bed.plain().await;
        let told = login(&mut stream, "app", "app", &second, Channel::Unsupported).await.0.unwrap_err();
        assert!(told.1.contains("the stand-in of secret `second`"), "{told:?}");
    }
    assert!(bed.seen.lock().unwrap().openings.is_empty());
    drop(bed.session().await);
}

#[tokio::test]
async fn a_server_that_asks_for_more_in_a_session_ends_it() {
    for (way, said) in [
        (Way::AsksLater, "a question for credentials in the middle of a session"),
        (Way::KeyLater, "another key for cancelling in the middle of a session"),
    ] {
        let bed = Bed::with(way, RULES, Limits::default()).await;
        let mut stream = bed.session().await;
        stream.write_all(&message(b'Q', &[b"x"])).await.unwrap();
        let (kind, body) = message_of(&mut stream).await.unwrap();
        let told = error(&body);
        assert!(kind == b'E' && told.0 == "08006" && told.1.contains(said), "{told:?}");
        let line = bed.line().await;
        assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &"upstream-failed".into()));
    }
}

#[tokio::test]
async fn what_is_not_well_formed_ends_the_connection_with_a_word() {
    let long = [&20_000_u32.to_be_bytes()[..], &[0; 100]].concat();
    for (bytes, sqlstate) in [
        (long, Some("08P01")),
        (packet(&[0; 4]), Some("08P01")),
        (packet(b"\0\x02\0\0user\0app\0\0"), Some("08P01")),
        (packet(b"\0\x03\0\0user\0app\0user\0admin\0\0"), Some("08P01")),
        (packet(b"\0\x03\0\0user\0app\0replication\0true\0\0"), Some("0A000")),
        (packet(b"\0\x03\0\0user\0app\0\0more"), Some("08P01")),
        // Twice.
        (
            [packet(&80_877_104_u32.to_be_bytes()), packet(&80_877_104_u32.to_be_bytes())].concat(),
            Some("08P01"),
        ),
        // A startup packet where a handshake has to be: as if somebody on the way had put it in (CVE-2021-23214).
        ([tls_request(), startup("app", "app")].concat(), None),
        // An answer about a password that is no answer, and one that is too long.
        ([startup("app", "app"), message(b'Q', &[b"select 1\0"])].concat(), Some("08P01")),
        ([startup("app", "app"), vec![b'p', 0, 1, 0, 0]].concat(), Some("08P01")),
        ([startup("app", "app"), message(b'p', &[b"SCRAM-SHA-1\0\0\0\0\x01n"])].concat(), Some("08P01")),
    ] {
        let bed = Bed::new().await;
        let mut stream = bed.plain().await;
        stream.write_all(&bytes).await.unwrap();
        let mut all = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(8), stream.read_to_end(&mut all)).await;
        let at = all.windows(4).position(|four| four == b"SFAT");
        let told = at.map(|at| error(&all[at..]).0);
        assert_eq!(told.as_deref(), sqlstate, "{bytes:?}: {ended:?} {all:?}");
        let line = bed.line().await;
        let reason = line["reason"].as_str().unwrap();
        assert!(["malformed", "protocol-not-allowed", "handshake-failed"].contains(&reason), "{line}");
        assert!(bed.seen.lock().unwrap().openings.is_empty());
    }
}

#[tokio::test]
async fn who_is_slow_or_says_nothing_is_not_waited_for() {
    let limits = Limits {
        first_bytes: Duration::from_millis(300),
        handshake: Duration::from_millis(300),
        ..Limits::default()
    };
    let login = startup("app", "app");
    for begun in [&b""[..], &login[..3], &login[..20], &login, &tls_request()] {
        let bed = Bed::with(Way::Good, RULES, limits).await;
        let mut stream = bed.plain().await;
        stream.write_all(begun).await.unwrap();
        let (begin, mut all) = (Instant::now(), Vec::new());
        drop(stream.read_to_end(&mut all).await);
        assert!(begin.elapsed() < Duration::from_secs(6), "{begun:?}");
        assert_eq!(bed.line().await["reason"], "timeout", "{begun:?}");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_rule_its_grant_and_its_container() {
    for case in ["rule", "grant", "container", "within"] {
        let bed = Bed::new().await;
        let mut stream = bed.session().await;
        if case == "within" {
            // The server has begun a message, into which nothing can be said.
            stream.write_all(&message(b'H', &[b"long"])).await.unwrap();
            stream.read_exact(&mut [0; 5]).await.unwrap();
        }
        let rights = bed.world.container.rights();
        match case {
            "container" => bed.world.container.revoke(),
            "grant" => {
                let grants = Arc::new(Grants::default());
                bed.world.container.set_rights(Rights { grants, ..(*rights).clone() });
            }
            _ => {
                let text =
                    "[[allow]]\nhost = \"api.example.com\"\npostgres = true\ndatabases = \"another\"\n";
                let policy = Policy::parse("t", "t.toml", text).unwrap();
                let policy = Arc::new(PolicySet::combine(vec![Arc::new(policy)]));
                bed.world.container.set_rights(Rights { policy, ..(*rights).clone() });
            }
        }
        let mut all = Vec::new();
        drop(stream.read_to_end(&mut all).await);
        let told = (!all.is_empty()).then(|| error(&all[5..]));
        let (reason, said) = match case {
            "rule" => ("host-not-allowed", Some("policy was changed")),
            "grant" => ("credential-not-granted", Some("secret `provider` was withdrawn")),
            "within" => ("host-not-allowed", None),
            _ => ("revoked", None),
        };
        assert_eq!(told.is_some(), said.is_some(), "{case}: {told:?}");
        assert!(told.is_none_or(|told| told.0 == "28000" && told.1.contains(said.unwrap())), "{case}");
        let line = bed.line().await;
        assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &reason.into()), "{case}");
    }
}

#[tokio::test]
async fn a_request_to_cancel_reaches_the_session_of_its_container_alone() {
    let bed = Bed::new().await;
    let mut stream = bed.plain().await;
    let (told, key) = login(&mut stream, "app", "app", &bed.stand_in(), Channel::Unsupported).await;
    assert_eq!((told, key.len()), (Ok(()), 8));
    let servers = [0, 0, 0, 9, 1, 2, 3, 4];
    assert_ne!(key, servers);
    let request = |key: &[u8]| packet(&[&80_877_102_u32.to_be_bytes(), key].concat());
    let cancels = || {
        bed.seen.lock().unwrap().openings.iter().filter(|o| o[..2] == [4, 210]).cloned().collect::<Vec<_>>()
    };
    let other = bed.world.container_named('b').await;
    for (listener, to, key) in [(other, TO_HOST, key.as_slice()), (bed.world.listener, TO_HOST, &servers)] {
        let mut stream: Stream = Box::new(bed.world.connect_at(listener, (to, 5432).into()).await);
        stream.write_all(&request(key)).await.unwrap();
        drop(stream.read(&mut [0]).await);
    }
    assert!(cancels().is_empty());
    for tls in [false, true] {
        let mut cancelling = if tls { bed.tls(true, b"postgresql").await.0 } else { bed.plain().await };
        cancelling.write_all(&request(&key)).await.unwrap();
        cancelling.flush().await.unwrap();
        drop(cancelling.read(&mut [0]).await);
    }
    assert_eq!(cancels(), vec![request(&servers)[4..].to_vec(); 2]);
    // Once the session is over, the key is nobody's.
    stream.write_all(&message(b'X', &[])).await.unwrap();
    drop(stream.read(&mut [0]).await);
    bed.world.audit(5).await;
    let mut cancelling = bed.plain().await;
    cancelling.write_all(&request(&key)).await.unwrap();
    drop(cancelling.read(&mut [0]).await);
    assert_eq!(cancels().len(), 2);
    let lines = bed.world.audit(6).await;
    let allowed = lines.iter().filter(|line| line["method"] == "cancel" && line["decision"] == "allowed");
    assert_eq!(allowed.count(), 2, "{lines:#?}");
}

#[tokio::test]
async fn a_request_to_cancel_is_for_the_server_of_its_session_alone() {
    let provider =
        "kind = \"postgres\"\nuser = \"app\"\nhosts = [\"api.example.com\", \"other.example.com\"]";
    let rules = "[[allow]]\nhost = [\"api.example.com\", \"other.example.com\"]\npostgres = true\n";
    let bed = Bed::of(Options { provider, rules, ..Options::default() }, Way::Good).await;
    // As it is when a world begins, but for any rule about the other host.
    set_policy(&bed, rules);
    let mut stream = bed.plain().await;
    let (told, key) = login(&mut stream, "app", "app", &bed.stand_in(), Channel::Unsupported).await;
    assert_eq!((told, key.len()), (Ok(()), 8));
    let request = packet(&[&80_877_102_u32.to_be_bytes(), &key[..]].concat());
    let mut cancelling = bed.world.connect_at(bed.world.listener, (TO_OTHER, 5432).into()).await;
    cancelling.write_all(&request).await.unwrap();
    drop(cancelling.read(&mut [0]).await);
    let line = bed.line().await;
    assert_eq!(
        (&line["host"], &line["reason"], &line["method"]),
        (&OTHER.into(), &"foreign-credential".into(), &"cancel".into())
    );
}

#[tokio::test]
async fn a_request_to_cancel_counts_as_often_as_a_session_does() {
    let bed = Bed::new().await;
    set_policy(&bed, &format!("{RULES}rate = \"2/h\"\n"));
    let mut stream = bed.plain().await;
    let (told, key) = login(&mut stream, "app", "app", &bed.stand_in(), Channel::Unsupported).await;
    assert_eq!(told, Ok(()));
    let request = packet(&[&80_877_102_u32.to_be_bytes(), &key[..]].concat());
    for (number, reason) in [(1, None), (2, Some("rate-limited"))] {
        let mut cancelling = bed.plain().await;
        cancelling.write_all(&request).await.unwrap();
        drop(cancelling.read(&mut [0]).await);
        let line = bed.world.audit(number).await.pop().unwrap();
        assert_eq!(line["reason"].as_str(), reason, "{line}");
    }
    assert_eq!(bed.seen.lock().unwrap().openings.len(), 2);
}

#[tokio::test]
async fn what_a_server_says_before_the_session_is_searched_and_counted() {
    let bed = Bed::with(Way::Greets, RULES, Limits::default()).await;
    let stand_in = bed.stand_in();
    let mut stream = bed.plain().await;
    let (told, _, said) = conversation(&mut stream, "app", "app", &stand_in, Channel::Unsupported).await;
    assert_eq!(told, Ok(()));
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains(&stand_in) && !said.contains(PASSWORD), "{said}");
    drop(stream);
    assert_eq!(bed.line().await["scrubbed"], 1);

    let bed = Bed::with(Way::Tells, RULES, Limits::default()).await;
    let mut stream = bed.plain().await;
    let told = login(&mut stream, "app", "app", &bed.stand_in(), Channel::Unsupported).await.0.unwrap_err();
    assert!(told.0 == "3D000" && told.1.starts_with("understudy: upstream-failed: api.example.com: xxx"));
    let line = bed.line().await;
    assert_eq!(line["scrubbed"], 1);
    for text in [told.1.as_str(), line["detail"].as_str().unwrap()] {
        assert!(!text.contains(&PASSWORD[..6]), "{text}");
    }

    for (way, limit, passes) in [
        (Way::Greets, "1K", true),
        (Way::Greets, "100", false),
        (Way::Tells, "2K", true),
        (Way::Tells, "500", false),
        // Not even what the container itself says of it.
        (Way::Good, "10", false),
    ] {
        let bed = Bed::with(way, RULES, Limits::default()).await;
        set_policy(&bed, &format!("max-bytes = \"{limit}\"\n{RULES}"));
        let mut stream = bed.plain().await;
        let told = login(&mut stream, "app", "app", &bed.stand_in(), Channel::Unsupported).await.0;
        let stopped =
            told.as_ref().is_err_and(|(code, text)| code == "53300" && text.contains("limit-reached"));
        assert_eq!(stopped, !passes, "{way:?} {limit}: {told:?}");
    }
}

#[tokio::test]
async fn notices_between_the_messages_of_a_login_are_left_out() {
    let bed = Bed::with(Way::Notes, RULES, Limits::default()).await;
    drop(bed.session().await);
}

#[tokio::test]
async fn a_session_ends_when_its_secret_would_not_log_in_so_any_more() {
    let first = "kind = \"postgres\"\nuser = \"app\"\n";
    for (now, reason) in [
        ("kind = \"postgres\"\nuser = \"other\"\n", Some("credential-restricted")),
        ("kind = \"postgres\"\nuser = \"app\"\nauth = [\"md5\"]\n", Some("credential-restricted")),
        ("kind = \"postgres\"\nuser = \"app\"\nport = 6432\n", Some("credential-misdirected")),
        (
            "kind = \"postgres\"\nuser = \"app\"\nhosts = [\"other.example.com\"]\n",
            Some("credential-misdirected"),
        ),
        // What a session did is allowed still.
        (
            "kind = \"postgres\"\nuser = \"app\"\ndatabase = \"x\"\nauth = [\"md5\", \"scram-sha-256\"]\n",
            None,
        ),
        (first, None),
    ] {
        let bed = Bed::declared("user = \"app\"", Way::Good, RULES, Limits::default()).await;
        let mut stream = bed.session().await;
        bed.reload(PASSWORD, now);
        match reason {
            None => assert_eq!(echoed(&mut stream, b"x").await, b"x", "{now}"),
            Some(reason) => {
                let last = tokio::time::timeout(Duration::from_secs(20), message_of(&mut stream)).await;
                let (kind, body) = last.expect("it goes on").unwrap();
                let told = error(&body);
                assert!(kind == b'E' && told.1.contains("secret `provider` was changed"), "{told:?}");
                let line = bed.line().await;
                assert_eq!((&line["decision"], &line["reason"]), (&"terminated".into(), &reason.into()));
            }
        }
    }
}

#[tokio::test]
async fn a_password_that_was_replaced_is_searched_for_as_it_is_and_as_it_was() {
    const NEXT: &str = "another-horse-battery-staple";
    const LAST: &str = "an-even-longer-password-than-those";
    let bed = Bed::new().await;
    let mut stream = bed.session().await;
    for now in [NEXT, LAST] {
        bed.reload(now, "kind = \"postgres\"\nuser = \"app\"\n");
        for value in [PASSWORD, NEXT, LAST] {
            let told = echoed(&mut stream, value.as_bytes()).await;
            let known = value != LAST || now == LAST;
            assert_eq!(told.len(), value.len());
            assert_eq!(told != value.as_bytes(), known, "{value} of {now}");
        }
    }
}

/// What a client has to salt with is the same each time, so that what is made of a stand-in is made once.
#[tokio::test]
async fn a_failed_login_costs_no_derivation() {
    let bed = Bed::new().await;
    let mut salts = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let mut stream = bed.plain().await;
        let (told, _, said) = conversation(&mut stream, "app", "app", "x", Channel::Unsupported).await;
        assert!(told.is_err());
        let said = String::from_utf8_lossy(&said).into_owned();
        salts.insert(said.split(",s=").nth(1).unwrap().split(',').next().unwrap().to_owned());
    }
    assert_eq!(salts.len(), 1, "{salts:?}");
}

fn set_policy(bed: &Bed, text: &str) {
    let policy = Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("t", "t.toml", text).unwrap())]));
    let rights = bed.world.container.rights();
    bed.world.container.set_rights(Rights { policy, ..(*rights).clone() });
}

/// What comes back.
async fn echoed(stream: &mut Stream, text: &[u8]) -> Vec<u8> {
    stream.write_all(&message(b'q', &[text])).await.unwrap();
    stream.flush().await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), message_of(stream)).await;
    answer.unwrap().unwrap().1
}
