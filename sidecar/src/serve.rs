//! `understudy serve`: puts the parts together, runs them, and takes them apart again on SIGTERM.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::process::Signal;
use sd_notify::NotifyState;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};
use understudy_control::{ControlDirectory, HelloSecret, Listener};

use crate::accounts::{Client, Keeper};
use crate::attach::descriptors::Sockets;
use crate::attach::own_logins::OwnLogins;
use crate::attach::registry::{Registry, RegistryParts};
use crate::attach::revocations::Revocations;
use crate::audit::Audit;
use crate::ceiling;
use crate::config::Directories;
use crate::configuration::{Configuration, Live, Remember};
use crate::connection::doors::Doors;
use crate::connection::published::{self, Pool};
use crate::connection::{self, Redirected};
use crate::container::Container;
use crate::credentials::expiry::Day;
use crate::credentials::report::report;
use crate::credentials::{Surroundings, texts};
use crate::current::Current;
use crate::dns::Resolver;
use crate::dns::serve::DnsService;
use crate::harden;
use crate::history::History;
use crate::lock::{self, Place};
use crate::metrics;
use crate::named::NamedHosts;
use crate::operator::notify::Notifier;
use crate::operator::questions::{OnAsk, QuestionLimits};
use crate::operator::{Decisions, Questions, decisions};
use crate::proxy::{Gateway, GatewayParts, Limits, answered};
use crate::publish::{Leased, Leases};
use crate::reload::{self, Now, Reloader};
use crate::tls::roots::read_roots;
use crate::tls::{Authorities, write_roots};
use crate::workers::{Threads, Workers};

const NO_CONTROL_DIRECTORY: &str =
    "the control directory (mount it: -v $XDG_RUNTIME_DIR/understudy/control:/run/understudy/control)";

/// Runs until SIGTERM or SIGINT, and reads its configuration again at SIGHUP; then open connections get `drain` to end.
pub fn run(directories: &Directories, drain: Duration) -> Result<()> {
    harden::harden().context("dropping privileges")?;
    init_tracing();
    let _only_one = lock::take(&directories.state, Place::State)?;
    let control = ControlDirectory::new(&directories.control);
    control.create().context(NO_CONTROL_DIRECTORY)?;
    let _only_one_here = lock::take(&directories.control, Place::Control)?;
    let live = Live::load(directories, Surroundings::of_this_process(), Remember::StandIns)?;
    let variables = live.variables();
    if let Err(error) = understudy_control::sys::forget_variables(variables.iter().map(String::as_str)) {
        tracing::warn!(%error, "variables of secrets stay in the sidecar's environment");
    }
    reload::say_all(&live, |_| true);
    // This thread is a worker, too.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let threads = Threads::start(cores() - 1)?;
    let workers = Workers::new(runtime.handle().clone(), threads.runtimes().iter().cloned());
    let audit = runtime.block_on(serve(directories, Arc::new(live), workers, drain))?;
    // What was under way until now has its line, too.
    drop(runtime);
    drop(threads);
    audit.close();
    Ok(())
}

/// Where the last lines are still to be written to.
async fn serve(
    directories: &Directories,
    live: Arc<Live>,
    workers: Workers,
    drain: Duration,
) -> Result<Audit> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // A limit of the size of files (RLIMIT_FSIZE) is an error of the write, of the audit say, and not the end of the sidecar.
    let _too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;

    let notifier = notifier(&live)?;
    let settings = &live.current().settings;
    let audit = Audit::open(settings.audit.as_ref(), live.vault().clone())
        .context("sidecar.toml: audit: file: it cannot be opened; name one in a directory that the sidecar can write to")?
        .notifying(notifier.clone());
    let resolver = Current::new(Arc::new(resolver(&live.current())?));
    let (registry, listener, gateway) = build(directories, &live, &resolver, workers, &audit, notifier)?;
    open_metrics(&live, &registry)?;
    let stop = Arc::new(AtomicBool::new(false));
    let control = {
        let (registry, stop) = (Arc::clone(&registry), Arc::clone(&stop));
        thread::Builder::new()
            .name("control-accept".to_owned())
            .spawn(move || crate::attach::server::serve(listener, registry, stop))?
    };
    let (now, asked) = std::sync::mpsc::channel();
    let reloader = reloader(&live, &registry, resolver);
    thread::Builder::new().name("reload".to_owned()).spawn(move || reloader.run(&asked))?;
    notify(&[NotifyState::Ready]);
    tracing::info!("listening in {}", directories.control.display());

    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => drop(now.send(Now)),
        }
    }
    notify(&[NotifyState::Stopping]);
    stop.store(true, Ordering::Relaxed);
    let deadline = Instant::now() + drain;
    gateway.drain().await;
    while registry.open_connections() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    registry.close();
    // Connections go on ending on this thread meanwhile.
    if !matches!(tokio::task::spawn_blocking(|| control.join()).await, Ok(Ok(()))) {
        tracing::error!("the control thread panicked");
    }
    Ok(audit)
}

fn build(
    directories: &Directories,
    live: &Arc<Live>,
    resolver: &Current<Resolver>,
    workers: Workers,
    audit: &Audit,
    notifier: Option<Arc<Notifier>>,
) -> Result<(Arc<Registry>, Listener, Arc<Gateway>)> {
    let revocations = Revocations::new(directories.state.join("revoked"));
    let history = Arc::new(History::open(&directories.state, &directories.control, &revocations)?);
    if let Some(problem) = history.problem() {
        tracing::error!("{problem}");
    }
    let authorities = Arc::new(Authorities::open(&directories.state)?);
    tracing::info!("the certificate authority ends on {}", authorities.current().authority().last_day());
    let roots_file = directories.state.join("upstream-roots.pem");
    let settings = &live.current().settings;
    write_roots(&roots_file, &settings.extra_ca)?;
    let range = settings.synthetic_range;
    let late = LateRegistry::default();
    let accounts = keeper(live, resolver, &roots_file, &late)?;
    tokio::spawn(Arc::clone(&accounts).run());
    let on_ask = notifier.map(|notifier| -> OnAsk {
        Box::new(move |question, port| notifier.tell_of_question(question, port))
    });
    let questions = Questions::new(QuestionLimits::default(), on_ask, Arc::clone(audit.bell()));
    let (arming, keeper, declared) =
        (Arc::clone(accounts.arming()), Arc::clone(&accounts), live.vault().clone());
    let decisions = Arc::new(Decisions::load(&directories.state.join("decisions.json"))?);
    let named = Arc::new(NamedHosts::default());
    let gateway = Gateway::new(GatewayParts {
        named: Arc::clone(&named),
        leaves: authorities.current(),
        roots_file,
        vault: live.vault().clone(),
        resolver: resolver.clone(),
        accounts: Some(accounts),
        audit: audit.clone(),
        questions: Arc::clone(&questions),
        original_destination: Arc::new(Redirected),
        limits: Limits::default(),
        workers,
    })?;

    let probe = std::net::UdpSocket::bind("127.0.0.1:0").context("loopback in the sidecar's own network")?;
    let own_cookie = understudy_control::sys::netns_cookie(&probe)
        .context("SO_NETNS_COOKIE (Linux 5.14 or later is needed)")?;
    let naming = Arc::clone(&named);
    let [terms, rights, problems, limits] = [live, live, live, live].map(Arc::clone);
    let (decided, lines, counts, unwritten) =
        (Arc::clone(&decisions), audit.clone(), audit.clone(), audit.clone());
    let (keys, vault, ledger) = (live.vault().clone(), live.vault().clone(), Arc::clone(audit.ledger()));
    let looked = live.vault().clone();
    let (runtime, audit, serving) = (Handle::current(), audit.clone(), Arc::clone(&gateway));
    let registry = Registry::new(RegistryParts {
        decide_terms: Box::new(move |prepare| terms.current().terms(prepare)),
        look: Box::new(move |name, text| texts::look(&looked.current(), name, text)),
        decide_rights: Box::new(move |asked| {
            let decided = decided.rules(&asked.prepare.id, decisions::now());
            rights.current().rights(asked, decided, &naming.of(&asked.prepare.id))
        }),
        may_decide: Box::new(move |rule, managed| {
            ceiling::may_decide(rule, managed, &limits.current().ceiling)
        }),
        decisions,
        named: Arc::clone(&named),
        questions,
        arming,
        keep_login: Box::new(move |asked, made| {
            keeper.keep_login(made)?;
            Ok(asked.of_account(&declared.current(), &made.own()))
        }),
        audit_file: live.current().settings.audit.as_ref().map(|file| file.path.clone()),
        metrics: Box::new(move |status| counts.counts(status)),
        doors: Box::new(move |grants, host, port| Doors::of(&keys.current(), grants, host, port)),
        bell: Arc::clone(lines.bell()),
        lines: Box::new(move |from| lines.since(from)),
        start: Box::new(move |container, sockets, leased| {
            let _context = runtime.enter();
            start(&container, sockets, leased, &serving, &audit)
        }),
        leases: Leases::new(published_at()),
        revocations,
        history: Arc::clone(&history),
        own_logins: OwnLogins::new(directories.state.join("own-accounts")),
        authorities: Arc::clone(&authorities),
        key: live.key().tag(),
        range,
        own_cookie,
        secrets: Box::new(move |holders| {
            let vault = vault.current();
            report(&vault, &ledger, holders, |name, text| answered(&vault, name, text), Day::today())
        }),
        problems: Box::new(move || {
            let configuration = problems.current();
            let of_files = configuration.problems().into_iter().chain(configuration.warnings());
            of_files
                .chain(unwritten.problems())
                .chain(history.problem())
                .chain(authorities.problems())
                .collect()
        }),
    });
    let hello = hello()?;
    let listener =
        Listener::bind(&ControlDirectory::new(&directories.control), hello).context(NO_CONTROL_DIRECTORY)?;
    let registry = Arc::new(registry);
    drop(late.set(Arc::downgrade(&registry)));
    let whose = Arc::downgrade(&registry);
    named.on_change(Box::new(move || {
        if let Some(registry) = whose.upgrade() {
            registry.reconsider();
        }
    }));
    Ok((registry, listener, gateway))
}

/// The registry, once there is one: accounts are kept before that.
type LateRegistry = Arc<OnceLock<Weak<Registry>>>;

/// Loopback on the host. In a container, all of its network: what of it is reached from outside, and from where, is said
/// with its own `--publish`.
fn published_at() -> IpAddr {
    match Surroundings::of_this_process().host_run {
        true => Ipv4Addr::LOCALHOST.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Where `sidecar.toml` says, if it does.
fn open_metrics(live: &Live, registry: &Arc<Registry>) -> Result<()> {
    let Some(address) = live.current().settings.metrics else { return Ok(()) };
    let registry = Arc::clone(registry);
    let bound = metrics::port::start(address, Arc::new(move || registry.metrics()))
        .with_context(|| format!("sidecar.toml: metrics: {address} cannot be listened on"))?;
    tracing::info!("counts are at http://{bound}/metrics");
    Ok(())
}

fn keeper(
    live: &Arc<Live>,
    resolver: &Current<Resolver>,
    roots_file: &Path,
    late: &LateRegistry,
) -> Result<Arc<Keeper>> {
    let client = Client::new(&read_roots(roots_file)?, resolver.clone()).context("upstream roots")?;
    let (store, vault) = (live.store().clone(), live.vault().clone());
    let (live, late) = (Arc::clone(live), Arc::clone(late));
    let reload = move || {
        live.reload_accounts();
        if let Some(registry) = late.get().and_then(Weak::upgrade) {
            registry.renewed(&live.vault().current());
        }
    };
    Ok(Keeper::new(store, vault, client, Handle::current(), reload))
}

fn resolver(configuration: &Configuration) -> Result<Resolver> {
    let settings = &configuration.settings;
    let resolver = Resolver::new(settings.names.clone(), &settings.resolvers, settings.synthetic_range)?;
    let own_ports = settings.publish.clone().with(settings.metrics.map(|address| address.port()));
    Ok(resolver.through(configuration.upstream_proxy.clone()).closing(own_ports))
}

/// Gives what a reload brings to those who hold a part of it.
fn reloader(live: &Arc<Live>, registry: &Arc<Registry>, in_force: Current<Resolver>) -> Reloader {
    let (configuration, registry, runtime) = (Arc::clone(live), Arc::clone(registry), Handle::current());
    let made_of = |configuration: &Configuration| {
        (configuration.settings.clone(), configuration.upstream_proxy.clone())
    };
    let before = Mutex::new(made_of(&live.current()));
    Reloader::new(Arc::clone(live), move || {
        let _context = runtime.enter();
        let current = configuration.current();
        let now = made_of(&current);
        let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
        // Another resolver forgets what it looked up, so only where it has to be.
        if *before != now {
            match resolver(&current) {
                Ok(resolver) => in_force.replace(Arc::new(resolver)),
                Err(error) => tracing::error!("sidecar.toml: {error:#}; the resolver stays what it was"),
            }
            *before = now;
        }
        registry.reconsider();
    })
}

/// Serves a container's sockets on tasks of their own; they end when it is revoked.
fn start(
    container: &Arc<Container>,
    sockets: Sockets,
    leased: Vec<Leased>,
    gateway: &Arc<Gateway>,
    audit: &Audit,
) -> io::Result<()> {
    let dns = DnsService::new(Arc::clone(container), audit.clone());
    for listener in sockets.tcp {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(connection::serve(listener, Arc::clone(container), Arc::clone(gateway)));
    }
    for socket in sockets.dns_udp {
        tokio::spawn(Arc::clone(&dns).serve_udp(tokio::net::UdpSocket::from_std(socket)?));
    }
    for listener in sockets.dns_tcp {
        tokio::spawn(Arc::clone(&dns).serve_tcp(tokio::net::TcpListener::from_std(listener)?));
    }
    let pool = Pool::new(sockets.outgoing);
    for leased in leased {
        tokio::spawn(published::serve(leased, &pool, container, gateway)?);
    }
    Ok(())
}

/// Who tells the operator by a command. A container has none of the host's commands, so it would tell nobody.
fn notifier(live: &Live) -> Result<Option<Arc<Notifier>>> {
    let words = live.current().settings.notify.clone();
    if !words.is_empty() && !Surroundings::of_this_process().host_run {
        bail!(
            "sidecar.toml: `notify` runs a command on the host, and this sidecar runs in a container; leave it out, and use `understudy watch`"
        );
    }
    Ok(Notifier::start(words)?.map(Arc::new))
}

fn hello() -> Result<HelloSecret> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new().fill(&mut bytes).ok().context("the kernel gives no random bytes")?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    HelloSecret::from_hex(&hex).context("hello secret")
}

/// Tells systemd, if it listens; nothing depends on it.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "sd_notify");
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(2, |n| n.get().min(8))
}

/// Diagnostics go to stderr; stdout is the audit's alone. What pingora logs of failed requests contains paths with
/// their queries, so it is left out.
fn init_tracing() {
    use tracing_subscriber::EnvFilter;
    let filter =
        EnvFilter::new("info,pingora_proxy=off,pingora_core=off,hickory_resolver=warn,hickory_net=warn");
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_target(false).init();
}
