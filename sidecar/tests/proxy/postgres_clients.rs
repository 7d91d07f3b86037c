//! What real clients make of it: `psql`, psycopg and node-postgres as a container has them, and a real PostgreSQL as the
//! server. `integration-tests/images/postgres` fetches those that are no packages.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use understudy::credentials::postgres::passfile;

use crate::world::{HOST, Options, TO_HOST, World};

const PASSWORD: &str = "correct-horse-battery-staple";

const RULES: &str = "[[allow]]\nhost = \"api.example.com\"\npostgres = true\ndatabases = [\"app\"]\n";

/// Who logs in by what, over what.
const HBA: &str = "local all all trust\nhostssl all app all scram-sha-256\nhostssl all by_md5 all md5\n\
                   hostssl all by_password all password\nhostssl all by_trust all trust\nhostnossl all in_clear all scram-sha-256\n\
                   hostnossl all in_clear_md5 all md5\n";

/// A server that nobody else uses.
pub(crate) struct Server {
    directory: PathBuf,
    process: Child,
}

pub(crate) struct Bed {
    pub(crate) world: World,
    pub(crate) server: Server,
    directory: tempfile::TempDir,
    /// Where the container's clients arrive.
    pub(crate) way: SocketAddr,
    pub(crate) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fast shutdown.
        drop(Command::new("kill").args(["-INT", &self.process.id().to_string()]).status());
        drop(self.process.wait());
    }
}

fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin")).chain([PathBuf::from("/usr/bin")]);
    let mut found = versions.map(|bin| bin.join(name)).filter(|path| path.exists());
    found.next().unwrap_or_else(|| panic!("{name} (package postgresql)"))
}

/// As the owner of `directory`, which must not be root.
fn as_owner(directory: &Path, name: &str) -> Command {
    let owner = directory.metadata().unwrap();
    if !is_root() {
        return Command::new(program(name));
    }
    let (uid, gid) = (owner.uid().to_string(), owner.gid().to_string());
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &uid, "--regid", &gid, "--clear-groups"]).arg(program(name));
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn fine(mut command: Command) {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

impl Server {
    /// `leaf` is certificate and key in PEM.
    pub(crate) fn start(root: &Path, port: u16, leaf: &(String, String)) -> Self {
        let directory = root.join("server");
        std::fs::create_dir(&directory).unwrap();
        std::fs::set_permissions(root, PermissionsExt::from_mode(0o755)).unwrap();
        if is_root() {
            std::os::unix::fs::chown(&directory, Some(65534), Some(65534)).unwrap();
        }
        let mut initdb = as_owner(&directory, "initdb");
        let data = directory.join("data");
        initdb.args(["-U", "admin", "--auth=trust", "--no-sync", "-D"]).arg(&data).current_dir(&directory);
        fine(initdb);
        for (name, content) in
            [("server.crt", leaf.0.as_str()), ("server.key", &leaf.1), ("pg_hba.conf", HBA)]
        {
            let path = data.join(name);
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            if is_root() {
                std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
            }
        }
        let log = std::fs::File::create(root.join("postgres.log")).unwrap();
        let mut postgres = as_owner(&directory, "postgres");
        postgres.arg("-D").arg(&data).arg("-p").arg(port.to_string()).arg("-k").arg(&directory);
        for setting in ["listen_addresses=127.0.0.1", "ssl=on", "fsync=off", "log_connections=on"] {
            postgres.args(["-c", setting]);
        }
        let process = postgres.current_dir(&directory).stderr(log).stdin(Stdio::null()).spawn().unwrap();
        let server = Self { directory, process };
        let begun = Instant::now();
        while !server.admin(port, "postgres", "select 1").status.success() {
            let log = || std::fs::read_to_string(root.join("postgres.log"));
            assert!(begun.elapsed() < Duration::from_secs(30), "no server: {:?}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        for (role, encryption) in [
            ("app", "scram-sha-256"),
            ("by_md5", "md5"),
            ("by_password", "scram-sha-256"),
            ("by_trust", "scram-sha-256"),
            ("in_clear", "scram-sha-256"),
            ("in_clear_md5", "md5"),
        ] {
            let made = format!(
                "set password_encryption = '{encryption}'; create role {role} login password '{PASSWORD}'"
            );
            assert!(server.admin(port, "postgres", &made).status.success(), "{role}");
        }
        for database in ["app", "other"] {
            let made = format!("create database {database} owner app");
            assert!(server.admin(port, "postgres", &made).status.success());
        }
        server
    }

    /// Past the relay.
    pub(crate) fn admin(&self, port: u16, database: &str, sql: &str) -> Output {
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-t", "-U", "admin", "-h"]).arg(&self.directory);
        command.args(["-p", &port.to_string(), "-d", database, "-c", sql]);
        command.output().unwrap()
    }
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::with("user = \"app\"").await
    }

    /// With what the secret says of user and login.
    pub(crate) async fn with(more: &str) -> Self {
        Self::held_to(more, PASSWORD).await
    }

    async fn held_to(more: &str, password: &'static str) -> Self {
        let directory = tempfile::Builder::new().prefix("postgres").tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let provider = format!("kind = \"postgres\"\n{more}");
        let options = Options {
            provider: provider.leak(),
            value: password,
            rules: RULES,
            dialled: Some(port),
            ..Options::default()
        };
        let world = World::with(options).await;
        let server = Server::start(directory.path(), port, &world.upstream.leaf_pem);
        std::fs::write(directory.path().join("ca.pem"), &world.authority_pem).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way = listener.local_addr().unwrap();
        let bed = Self { world, server, directory, way, port };
        bed.lead(listener);
        bed
    }

    /// From where clients connect to where the container's connections arrive.
    fn lead(&self, listener: TcpListener) {
        let (stated, relay) = (self.world.stated(), self.world.listener);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let stated = stated.clone();
                tokio::spawn(async move {
                    let mut inner = stated.connect(relay, (TO_HOST, 5432).into()).await;
                    drop(tokio::io::copy_bidirectional(&mut client, &mut inner).await);
                });
            }
        });
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn stand_in(&self) -> String {
        self.world.vault.current().secret("provider").unwrap().stand_in().to_owned()
    }

    /// With the variables of a container, but for the port.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("PGHOST", HOST).env("PGHOSTADDR", "127.0.0.1").env("PGPORT", self.way.port().to_string());
        command.env("PGUSER", "app").env("PGPASSWORD", self.stand_in()).env("PGDATABASE", "app");
        command.env("PGSSLROOTCERT", self.at("ca.pem")).env("PGSSLMODE", "verify-full").env("LC_ALL", "C");
        command.env("HOME", self.directory.path()).stdin(Stdio::null());
        command
    }

    async fn run(&self, mut command: Command) -> Output {
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// What `psql` prints, with some variables.
    async fn psql(&self, env: &[(&str, &str)], arguments: &[&str]) -> Result<String, String> {
        let mut command = self.client("psql");
        command.args(["-X", "-A", "-t", "-v", "VERBOSITY=verbose"]).args(arguments).envs(env.iter().copied());
        let output = self.run(command).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    async fn last_line(&self) -> serde_json::Value {
        let before = self.world.audit_now().len();
        for _ in 0..300 {
            if let Some(line) = self.world.audit_now().pop().filter(|_| before > 0) {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no line");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL (package postgresql); make test-all"]
async fn psql_works_as_it_does_directly_and_is_told_what_is_refused() {
    let bed = Bed::new().await;
    let one = ["-c", "select current_user, current_database()"];
    for env in [
        &[][..],
        &[("PGSSLMODE", "disable")],
        &[("PGSSLMODE", "require"), ("PGCHANNELBINDING", "require")],
        &[("PGGSSENCMODE", "prefer")],
    ] {
        assert_eq!(bed.psql(env, &one).await, Ok("app|app\n".to_owned()), "{env:?}");
    }
    // By the file of passwords alone.
    let vault = bed.world.vault.current();
    let secret = vault.secret("provider").unwrap();
    let server = secret.declaration().postgres.clone().unwrap();
    let file = passfile([(&server, secret.stand_in())].into_iter()).unwrap();
    // libpq looks for the port that it connects to.
    std::fs::write(bed.at("pgpass"), file.content.replace(":5432:", ":*:")).unwrap();
    std::fs::set_permissions(bed.at("pgpass"), PermissionsExt::from_mode(file.mode)).unwrap();
    let at = bed.at("pgpass");
    let env = [("PGPASSFILE", at.to_str().unwrap()), ("PGPASSWORD", "")];
    assert_eq!(bed.psql(&env, &one).await, Ok("app|app\n".to_owned()));

    let line = bed.last_line().await;
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
    assert!(line["bytes-up"].as_u64().unwrap() > 40 && line["bytes-down"].as_u64().unwrap() > 20, "{line}");
    assert_eq!((&line["secrets"], &line["port"]), (&serde_json::json!(["provider"]), &5432.into()));

    // Errors of the session itself are its own.
    let error = bed.psql(&[], &["-c", "select * from nowhere"]).await.unwrap_err();
    assert!(error.contains("42P01"), "{error}");
    for (env, said) in [
        (
            ("PGDATABASE", "other"),
            "understudy: host-not-allowed: database \"other\" is not allowed; add to a policy",
        ),
        (
            ("PGPASSWORD", "not-the-stand-in-at-all"),
            "understudy: foreign-credential: a password for app that is not",
        ),
        (("PGPASSWORD", PASSWORD), "understudy: foreign-credential"),
        (("PGUSER", "admin"), "understudy: credential-restricted: the password is that of `app` alone"),
        (("PGDATABASE", "none"), "databases = [\"none\"]"),
    ] {
        let error = bed.psql(&[env], &one).await.unwrap_err();
        assert!(error.contains(said) && error.contains("FATAL"), "{env:?}: {error}");
        assert_eq!(bed.last_line().await["decision"], "denied");
    }
    assert!(!bed.world.audit_text().contains(PASSWORD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL (package postgresql); make test-all"]
async fn a_server_is_logged_in_to_as_its_secret_says_and_in_no_weaker_way() {
    for (more, works) in [
        ("user = \"by_md5\"\nauth = [\"scram-sha-256\", \"md5\"]", Ok("t")),
        ("user = \"by_password\"\nauth = \"password\"", Ok("t")),
        ("user = \"in_clear\"\nsslmode = \"disable\"", Ok("f")),
        ("user = \"by_md5\"", Err("it asks for the password by md5, which gives it away")),
        (
            "user = \"by_password\"\nauth = [\"scram-sha-256\", \"md5\"]",
            Err("by password, which gives it away"),
        ),
        ("user = \"in_clear_md5\"\nsslmode = \"disable\"", Err("by md5, which gives it away")),
        ("user = \"by_trust\"", Err("it lets in whoever comes (`trust`)")),
        (
            "user = \"app\"\nauth = \"md5\"",
            Err("by scram-sha-256, which `auth` of secret `provider` leaves out"),
        ),
        ("user = \"in_clear\"", Err("no pg_hba.conf entry")),
        ("user = \"nobody\"", Err("no pg_hba.conf entry")),
    ] {
        let bed = Bed::with(more).await;
        let user = more.split('"').nth(1).unwrap();
        let sql = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        let told = bed.psql(&[("PGUSER", user)], &["-c", sql]).await;
        match (works, told) {
            (Ok(tls), Ok(told)) => assert_eq!(told.trim(), tls, "{more}"),
            (Err(said), Err(told)) => {
                assert!(told.contains(said) && told.contains("FATAL"), "{more}: {told}");
            }
            (works, told) => panic!("{more}: {told:?} instead of {works:?}"),
        }
    }
    // What the server says is told with its own code.
    let bed = Bed::held_to("user = \"app\"", "another-password-that-is-wrong").await;
    let error = bed.psql(&[], &["-c", "select 1"]).await.unwrap_err();
    assert!(
        error.contains("password authentication failed") && error.contains("secret `provider`"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL (package postgresql); make test-all"]
async fn a_command_is_cancelled_by_the_container_whose_it_is_alone() {
    let bed = Bed::new().await;
    for mode in ["verify-full", "disable"] {
        let mut psql = bed.client("psql");
        psql.env("PGSSLMODE", mode).args(["-X", "-c", "select pg_sleep(60)"]);
        let child = psql.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        let sleeping = || {
            let sql = "select count(*) from pg_stat_activity where query like 'select pg_sleep%'";
            bed.server.admin(bed.port, "postgres", sql).stdout.starts_with(b"1")
        };
        while !sleeping() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // psql sends a request to cancel.
        drop(Command::new("kill").args(["-INT", &child.id().to_string()]).status());
        let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("canceling statement due to user request"), "{told}");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    let cancelled = bed.world.audit_now().into_iter().filter(|line| line["method"] == "cancel");
    let cancelled: Vec<_> = cancelled.collect();
    assert!(
        cancelled.len() == 2 && cancelled.iter().all(|line| line["decision"] == "allowed"),
        "{cancelled:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL (package postgresql); make test-all"]
async fn much_data_goes_both_ways_and_a_real_value_in_it_does_not() {
    let bed = Bed::new().await;
    let rows = bed.at("rows");
    let rows = rows.to_str().unwrap();
    let made = format!(
        "create table t as select n, md5(n::text) as m from generate_series(1, 1000000) n;\n\\copy t to '{rows}'\n\
         create table u (like t);\n\\copy u from '{rows}'\n\
         select (select sum(hashtext(t::text)::bigint) from t) = (select sum(hashtext(u::text)::bigint) from u), count(*) from u;\n"
    );
    std::fs::write(bed.at("script"), made).unwrap();
    let script = bed.at("script");
    let told = bed.psql(&[], &["-q", "-f", script.to_str().unwrap()]).await;
    assert_eq!(told, Ok("t|1000000\n".to_owned()));
    assert!(std::fs::metadata(rows).unwrap().len() > 38_000_000);

    // The server knows the password, as it made its role with it, and could send it.
    let made = format!("create table k as select '{PASSWORD}'::text as word; grant all on k to app");
    assert!(bed.server.admin(bed.port, "app", &made).status.success());
    let stand_in = bed.stand_in();
    for (sql, told) in [
        ("select word from k", stand_in.clone()),
        ("select encode(word::bytea, 'hex') from k", stand_in.bytes().map(|b| format!("{b:02x}")).collect()),
        ("copy k to stdout", stand_in.clone()),
    ] {
        assert_eq!(bed.psql(&[], &["-c", sql]).await, Ok(format!("{told}\n")), "{sql}");
    }
    assert_eq!(bed.last_line().await["scrubbed"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL (package postgresql); make test-all"]
async fn psycopg_and_node_postgres_work_with_what_a_container_has() {
    let bed = Bed::new().await;
    let mut python = bed.client("psycopg-python");
    python.arg("-c").arg(include_str!("postgres_clients/psycopg.py"));
    let mut node = bed.client("pg-node");
    node.env_remove("PGHOSTADDR").env("PGHOST", "127.0.0.1").env("NAME", HOST);
    node.arg("-e").arg(include_str!("postgres_clients/pg.js"));
    for command in [python, node] {
        let shown = format!("{:?}", command.get_program());
        let output = bed.run(command).await;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && output.stdout.ends_with(b"done\n"), "{shown}: {told} {output:?}");
    }
}
