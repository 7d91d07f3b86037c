//! A gateway with containers, an upstream and an audit. The one place that makes policies, names and secrets.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use understudy::accounts::{self, Client, Keeper, Millis, Record, Store, Token};
use understudy::audit::Audit;
use understudy::connection::{self, OriginalDestination};
use understudy::container::Container;
use understudy::credentials::{
    Catalogue, Grants, InstallationKey, KnownStandIns, Loading, Rights, Secret, Source, Surroundings, Vault,
    declaration, grants,
};
use understudy::current::Current;
use understudy::dns::{PinnedAddress, Resolver, SyntheticNames, SyntheticRange, UpstreamProxy};
use understudy::named::NamedHosts;
use understudy::operator::Questions;
use understudy::operator::questions::QuestionLimits;
use understudy::proxy::{Gateway, GatewayParts, Limits};
use understudy::publish::Ports;
use understudy::tls::roots::read_roots;
use understudy::tls::{Authority, Leaves, write_roots};
use understudy::workers::Workers;
use understudy_harnesses::Harnesses;
use understudy_policies::{HostName, Policy, PolicySet};
use zeroize::Zeroizing;

use crate::provider::{Scheme, Tokens, tokens};
use crate::upstream::{Protocols, Upstream};

pub(crate) const HOST: &str = "api.example.com";
/// Allowed and looked up, and the same upstream, whose certificate does not name it.
pub(crate) const OTHER: &str = "other.example.com";
/// Allowed and looked up; no upstream has an address for it.
pub(crate) const NOWHERE: &str = "nowhere.example.com";
/// Looked up once, no longer allowed.
pub(crate) const FORMERLY: &str = "formerly.example.com";

/// Allowed without being decrypted.
pub(crate) const SPLICED: &str = "spliced.example.com";

/// Well-known hosts that are allowed at their usual port: the upstream answers for them, too.
pub(crate) const WELL_KNOWN: [(&str, [u8; 4]); 8] = [
    ("oauth2.googleapis.com", [28, 0, 1, 5]),
    ("storage.googleapis.com", [28, 0, 1, 6]),
    ("api.github.com", [28, 0, 1, 7]),
    ("github.com", [28, 0, 1, 8]),
    ("console.mistral.ai", [28, 0, 1, 9]),
    ("api.mistral.ai", [28, 0, 1, 10]),
    ("platform.claude.com", [28, 0, 1, 11]),
    ("api.anthropic.com", [28, 0, 1, 12]),
];

pub(crate) const TO_HOST: [u8; 4] = [28, 0, 1, 0];
pub(crate) const TO_OTHER: [u8; 4] = [28, 0, 1, 1];
pub(crate) const TO_NOWHERE: [u8; 4] = [28, 0, 1, 2];
pub(crate) const TO_FORMERLY: [u8; 4] = [28, 0, 1, 3];
pub(crate) const TO_SPLICED: [u8; 4] = [28, 0, 1, 4];
pub(crate) const TO_SINK: [u8; 4] = [28, 0, 0, 2];
pub(crate) const TO_LITERAL: [u8; 4] = [192, 0, 2, 1];
pub(crate) const TO_NEVER_LOOKED_UP: [u8; 4] = [28, 0, 9, 9];

pub(crate) const STAND_IN: &str = "sk-z2BAPz4JQ6MFLaVoLFO";
/// The value of a secret that is read from a file of that name.
const SECOND: &str = "the-value-of-a-second-secret";
pub(crate) const REAL: &str = "sk-test-the-real-one-1";

/// A provider at [`HOST`] that makes credentials for sessions.
const ACME: &str = r#"
name = "acme"
what = "Acme"
hosts = ["api.example.com"]

[[minted]]
name = "session"
paths = "/mint/session"
field = "/secret"
placements = "header authorization Bearer"
wrap = true

[[minted]]
name = "ticket"
paths = "/mint/ticket"
field = "/ticket"
placements = "header authorization Bearer"
wrap = false
"#;

/// What is declared of secret `provider` where a test says nothing else.
pub(crate) const BEARER: &str = "kind = \"bearer\"";

pub(crate) struct World {
    pub(crate) upstream: Upstream,
    pub(crate) container: Arc<Container>,
    pub(crate) listener: SocketAddr,
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) named: Arc<NamedHosts>,
    pub(crate) authority_pem: String,
    pub(crate) vault: Current<Vault>,
    keeper: Option<Arc<Keeper>>,
    /// What was imported.
    pub(crate) first: Option<Tokens>,
    rules: &'static str,
    stated: Arc<Stated>,
    audit: Arc<Mutex<Vec<u8>>>,
    directory: tempfile::TempDir,
}

/// Secret `provider` is account `work` of the upstream.
#[derive(Clone, Copy)]
pub(crate) struct Account {
    pub(crate) scheme: Scheme,
    /// Of the tokens that the provider makes.
    pub(crate) lifetime: Duration,
    /// Of the token that is stored.
    pub(crate) expires: Millis,
    /// Whether it is renewed ahead of expiry.
    pub(crate) proactive: bool,
    /// Whether it is stored already.
    pub(crate) imported: bool,
}

pub(crate) struct Options {
    pub(crate) protocols: Protocols,
    pub(crate) trusted: bool,
    pub(crate) limits: Limits,
    pub(crate) questions: QuestionLimits,
    /// Beside the test's own runtime.
    pub(crate) workers: Vec<Handle>,
    /// Addresses of the upstream's host, in the order to be tried.
    pub(crate) addresses: Vec<IpAddr>,
    /// Kind, placements and what else is declared of secret `provider`.
    pub(crate) provider: &'static str,
    pub(crate) account: Option<Account>,
    /// What is declared beside that account.
    pub(crate) beside: &'static str,
    /// Of the container's policy, beside what is allowed in any test. `PORT` is the upstream's.
    pub(crate) rules: &'static str,
    pub(crate) proxy: Option<UpstreamProxy>,
    /// The value of secret `provider`.
    pub(crate) value: &'static str,
    /// The port that the upstream's host is dialled at, whichever was permitted.
    pub(crate) dialled: Option<u16>,
    /// Whether token endpoints are answered though no account is declared.
    pub(crate) keeps_accounts: bool,
    /// Where the sidecar itself listens.
    pub(crate) own_port: Option<u16>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            protocols: Protocols::Both,
            trusted: true,
            limits: Limits::default(),
            questions: QuestionLimits::default(),
            workers: Vec::new(),
            addresses: vec![[127, 0, 0, 1].into()],
            provider: BEARER,
            account: None,
            beside: "",
            rules: "",
            proxy: None,
            value: REAL,
            dialled: None,
            keeps_accounts: false,
            own_port: None,
        }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Options::default()).await
    }

    pub(crate) async fn speaking(protocols: Protocols) -> Self {
        Self::with(Options { protocols, ..Options::default() }).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(
            options.protocols,
            options.account.map_or(Duration::ZERO, |account| account.lifetime),
        )
        .await;
        let extra = directory.path().join("upstream-ca.pem");
        std::fs::write(&extra, &upstream.authority_pem).unwrap();
        let roots_file = directory.path().join("roots.pem");
        write_roots(&roots_file, if options.trusted { std::slice::from_ref(&extra) } else { &[] }).unwrap();
        let authority = Authority::load_or_create(directory.path()).unwrap();
        let authority_pem = authority.certificate_pem().to_owned();

        let stated = Arc::new(Stated::default());
        let audit = Arc::new(Mutex::new(Vec::new()));
        let pin = |address| PinnedAddress { address, port: options.dialled };
        let mut pins = HashMap::from([
            (host(HOST), options.addresses.into_iter().map(pin).collect()),
            (host(OTHER), vec![pin(IpAddr::from([127, 0, 0, 1]))]),
            (host(SPLICED), vec![pin(IpAddr::from([127, 0, 0, 1]))]),
            (host(FORMERLY), vec![pin(IpAddr::from([127, 0, 0, 1]))]),
        ]);
        let at_upstream = || PinnedAddress { address: [127, 0, 0, 1].into(), port: Some(upstream.port()) };
        pins.extend(WELL_KNOWN.map(|(name, _)| (host(name), vec![at_upstream()])));
        // Whatever is not pinned is asked for at a port where nobody listens.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        let resolver = Resolver::new(pins, &[nobody], SyntheticRange::default()).unwrap();
        let resolver = resolver.through(options.proxy).closing(Ports::default().with(options.own_port));
        let resolver = Current::from(resolver);
        let mut first = None;
        let vault = match options.account {
            None => Current::from(vault(options.value, &declared(options.provider))),
            Some(account) => {
                first = account
                    .imported
                    .then(|| import(directory.path(), account.scheme, "work", account.expires));
                std::fs::write(directory.path().join("beside"), options.beside).unwrap();
                Current::from(account_vault(directory.path(), upstream.port(), None))
            }
        };
        let has_account = options.account.is_some();
        let keeper = (has_account || options.keeps_accounts).then(|| {
            let client = Client::new(&read_roots(&roots_file).unwrap(), resolver.clone()).unwrap();
            let (root, port, in_force) = (directory.path().to_owned(), upstream.port(), vault.clone());
            let reload = move || {
                if has_account {
                    let new = account_vault(&root, port, Some(&in_force.current()));
                    in_force.replace(Arc::new(new));
                }
            };
            let store = Store::new(directory.path().join("accounts"));
            Keeper::new(store, vault.clone(), client, Handle::current(), reload)
        });
        if let Some(keeper) = keeper.as_ref().filter(|_| options.account.is_some_and(|a| a.proactive)) {
            tokio::spawn(Arc::clone(keeper).run());
        }
        let questions = Questions::new(options.questions, None, Arc::default());
        let named = Arc::new(NamedHosts::default());
        let gateway = Gateway::new(GatewayParts {
            leaves: Arc::new(Leaves::new(authority)),
            roots_file,
            vault: vault.clone(),
            resolver,
            accounts: keeper.clone(),
            audit: Audit::new(Sink(Arc::clone(&audit)), vault.clone()),
            questions: Arc::clone(&questions),
            named: Arc::clone(&named),
            original_destination: Arc::clone(&stated) as Arc<dyn OriginalDestination>,
            limits: options.limits,
            workers: Workers::new(Handle::current(), options.workers),
        })
        .unwrap();
        let container = container('a', upstream.port(), options.rules, &vault.current());
        let listener = listen(&container, &gateway).await;
        Self {
            upstream,
            container,
            listener,
            gateway,
            questions,
            named,
            vault,
            keeper,
            first,
            rules: options.rules,
            authority_pem,
            stated,
            audit,
            directory,
        }
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        self.keeper.as_ref().unwrap()
    }

    /// All that is in the directory of accounts.
    pub(crate) fn stored_bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.store().directory()).into_iter().flatten();
        files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
    }

    pub(crate) fn store(&self) -> Store {
        Store::new(self.directory.path().join("accounts"))
    }

    /// Another login of account `work` is imported, and noticed by nobody yet.
    pub(crate) fn import(&self, login: &str) {
        drop(import(self.directory.path(), Scheme::Claude, login, Millis(Millis::now().0 + 3_600_000)));
    }

    /// The stored account changes, and the vault has it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Record)) {
        let mut record = self.store().read("work").unwrap();
        let before = record.generation;
        record.generation += 1;
        change(&mut record);
        self.store().write("work", &record, Some(before)).unwrap();
        let new = account_vault(self.directory.path(), self.upstream.port(), Some(&self.vault.current()));
        self.vault.replace(Arc::new(new));
    }

    /// The account has the tokens of that number now.
    pub(crate) fn renew_by_hand(&self, number: u64) {
        let new = tokens(Scheme::Claude, "work", number, Duration::ZERO);
        self.change(|record| {
            record.refresh = Some(Token::new(new.refresh));
        });
    }

    /// Another container, whose id is made of that digit.
    pub(crate) async fn container_named(&self, digit: char) -> SocketAddr {
        listen(&container(digit, self.upstream.port(), self.rules, &self.vault.current()), &self.gateway)
            .await
    }

    /// Another container of the same sidecar, with the same policy and grants.
    pub(crate) async fn another_container(&self) -> SocketAddr {
        let container = container('b', self.upstream.port(), self.rules, &self.vault.current());
        listen(&container, &self.gateway).await
    }

    /// A connection as if it had been redirected on its way to `address`, port of the upstream.
    pub(crate) async fn connect(&self, address: [u8; 4]) -> TcpStream {
        self.connect_at(self.listener, SocketAddr::new(address.into(), self.upstream.port())).await
    }

    pub(crate) async fn connect_at(&self, listener: SocketAddr, destination: SocketAddr) -> TcpStream {
        self.stated.connect(listener, destination).await
    }

    /// For connections that a task of its own makes.
    pub(crate) fn stated(&self) -> Arc<Stated> {
        Arc::clone(&self.stated)
    }

    /// The audit's lines once there are at least `count`.
    pub(crate) async fn audit(&self, count: usize) -> Vec<serde_json::Value> {
        for _ in 0..1000 {
            let lines = self.audit_now();
            if lines.len() >= count {
                return lines;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("fewer than {count} audit lines: {:#?}", self.audit_now());
    }

    pub(crate) fn audit_now(&self) -> Vec<serde_json::Value> {
        self.audit_text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn audit_text(&self) -> String {
        String::from_utf8(self.audit.lock().unwrap().clone()).unwrap()
    }

    /// The one line that there is.
    pub(crate) async fn only_line(&self) -> serde_json::Value {
        let lines = self.audit(1).await;
        assert_eq!(lines.len(), 1, "{lines:#?}");
        lines[0].clone()
    }
}

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

/// `secrets.toml` with kind, placements and what else is said of secret `provider`.
pub(crate) fn declared(provider: &str) -> String {
    let hosts = if provider.contains("hosts =") { String::new() } else { format!("hosts = [\"{HOST}\"]\n") };
    let source = if provider.contains("agent =") { "" } else { "file = \"/run/secrets/provider\"\n" };
    format!(
        "[provider]\n{provider}\n{source}{hosts}\
         grant-to = {{ harnesses = [\"generic\"] }}\n"
    )
}

/// What a reload finds when the file of the value holds another one.
pub(crate) fn vault(value: &str, declared: &str) -> Vault {
    vault_of(&[value, SECOND], declared)
}

/// The same with the value of a file `second` beside it.
pub(crate) fn vault_of([value, second]: &[&str; 2], declared: &str) -> Vault {
    let catalogue = Arc::new(Catalogue::new([("acme.toml".to_owned(), ACME.to_owned())]).unwrap());
    let declared = declaration::parse("secrets.toml", declared, &catalogue).unwrap();
    let key = InstallationKey::from_bytes(&[7; 32]);
    let read = |source: &Source| match source {
        Source::File(path) if path.ends_with("second") => Ok(Zeroizing::new((*second).into())),
        _ => Ok(Zeroizing::new((*value).into())),
    };
    let vault = Vault::new(declared, catalogue, &key, read).unwrap();
    let expected = |secret: &Secret| {
        secret.ssh_key().is_some()
            || secret.postgres_password().is_some()
            || secret.aws_key().is_some()
            || secret.assertion_key().is_some()
            || secret.stand_in() == STAND_IN
    };
    assert!(vault.secret("provider").is_none_or(expected));
    vault
}

/// As `understudy login import` does it.
fn import(root: &Path, scheme: Scheme, login: &str, expires: Millis) -> Tokens {
    let catalogue = catalogue(0);
    let key = InstallationKey::from_bytes(&[7; 32]);
    let format = accounts::import::Format::named(&catalogue, "acme").unwrap();
    let tokens = tokens(scheme, login, 0, Duration::from_secs(3600));
    let file_text = serde_json::json!({ "access": tokens.access, "refresh": tokens.refresh, "id": tokens.id,
                                        "expires": expires.0, "account": "a-1" });
    let read = format.read(file_text.to_string().as_bytes()).unwrap();
    let store = Store::new(root.join("accounts"));
    let before = store.read("work").ok();
    let record = read.record("work", (&key, &catalogue), before.as_ref(), false).unwrap();
    store.write("work", &record, before.map(|before| before.generation)).unwrap();
    tokens
}

/// A provider whose token endpoint is at the upstream's own host.
fn catalogue(port: u16) -> Catalogue {
    let text = format!(
        r#"
        name = "acme"
        what = "Acme"
        hosts = ["{HOST}"]
        [[kind]]
        name = "acme-account"
        what = "account"
        kind = "oauth"
        placements = ["header authorization Bearer"]
        [kind.oauth]
        token-endpoint = "https://{HOST}:{port}/oauth/token"
        encoding = "json"
        client-id = "acme"
        ended = ["refresh_token_reused", "refresh_token_invalidated"]
        [kind.oauth.answer-facts]
        email = "/account/email_address"
        account-id = "id:/https:~1~1api.openai.com~1auth/chatgpt_account_id"
        [[kind.oauth.login-file]]
        name = "acme"
        what = "its file"
        access = "/access"
        refresh = "/refresh"
        id = "/id"
        expires = "/expires"
        identity = "account-id"
        facts = {{ account-id = "/account" }}
        "#
    );
    Catalogue::new([("acme.toml".to_owned(), text)]).unwrap()
}

fn account_vault(root: &Path, port: u16, before: Option<&Vault>) -> Vault {
    let key = InstallationKey::from_bytes(&[7; 32]);
    let (known, catalogue) = (KnownStandIns::default(), Arc::new(catalogue(port)));
    let around = Surroundings { accounts: Store::new(root.join("accounts")), ..Surroundings::default() };
    let (catalogue, key, around, known) = (&catalogue, &key, &around, &known);
    let loading = Loading { catalogue, key, around, known, previous: before, ask_again: false };
    if let Some(before) = before {
        return Vault::with_accounts(before, loading).unwrap();
    }
    let file = root.join("secrets.toml");
    let text = "[provider]\nlike = \"acme-account\"\naccount = \"work\"\ngrant-to = { harnesses = [\"generic\"] }\nenv = \"TOKEN\"\n";
    let text = text.to_owned() + &std::fs::read_to_string(root.join("beside")).unwrap_or_default();
    std::fs::write(&file, text).unwrap();
    Vault::load(&file, loading).unwrap()
}

fn grants_of(vault: &Vault) -> Grants {
    let harnesses = Harnesses::load(None);
    let generic = harnesses.harness("generic").unwrap();
    // One that was not logged in to yet cannot be granted.
    let asked = ["provider", "key"].into_iter().filter(|name| vault.secret(name).is_some());
    let asked = asked.collect::<Vec<_>>().join(" ");
    grants::choose(vault, generic, None, Some(&asked)).unwrap().grants()
}

fn container(digit: char, port: u16, rules: &str, vault: &Vault) -> Arc<Container> {
    let allowed = format!("{HOST}:{port} {OTHER}:{port} {NOWHERE}:{port}");
    let allowed = WELL_KNOWN.iter().fold(allowed, |allowed, (name, _)| format!("{allowed} {name}"));
    let rules = rules.replace("PORT", &port.to_string());
    let rules = format!(
        "[[deny]]\nhost = {OTHER:?}\nmethods = \"PATCH\"\n[[deny]]\nhost = {OTHER:?}\npaths = \"/denied/**\"\n\
         [[allow]]\nhost = {SPLICED:?}\nport = {port}\nsplice = true\n{rules}"
    );
    let policy = PolicySet::combine(vec![
        Arc::new(Policy::from_allow_annotation(&allowed).unwrap()),
        Arc::new(Policy::parse("rules", "rules.toml", &rules).unwrap()),
    ]);
    let names = SyntheticNames::default();
    for (name, address) in [
        (HOST, TO_HOST),
        (OTHER, TO_OTHER),
        (NOWHERE, TO_NOWHERE),
        (FORMERLY, TO_FORMERLY),
        (SPLICED, TO_SPLICED),
    ]
    .into_iter()
    .chain(WELL_KNOWN)
    {
        assert_eq!(names.address(&host(name)).octets(), address);
    }
    let id = digit.to_string().repeat(64).parse().unwrap();
    let name = Some(format!("agent-{digit}"));
    let grants = Arc::new(grants_of(vault));
    let rights = Rights::new(Arc::new(policy), grants, vault);
    Arc::new(Container::new(id, name, "generic".to_owned(), rights, names, Vec::new()))
}

async fn listen(container: &Arc<Container>, gateway: &Arc<Gateway>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(connection::serve(listener, Arc::clone(container), Arc::clone(gateway)));
    address
}

/// Destinations by the client's own address.
#[derive(Default)]
pub(crate) struct Stated(Mutex<HashMap<SocketAddr, SocketAddr>>);

impl Stated {
    pub(crate) async fn connect(&self, listener: SocketAddr, destination: SocketAddr) -> TcpStream {
        self.try_connect(listener, destination).await.unwrap()
    }

    /// An error if it is reset before it is noticed.
    pub(crate) async fn try_connect(
        &self,
        listener: SocketAddr,
        destination: SocketAddr,
    ) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        self.0.lock().unwrap().insert(socket.local_addr().unwrap(), destination);
        socket.connect(listener).await
    }
}

impl OriginalDestination for Stated {
    fn of(&self, stream: &TcpStream) -> io::Result<SocketAddr> {
        let peer = stream.peer_addr()?;
        self.0.lock().unwrap().get(&peer).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
