//! A stack of Compose with the sidecar, a database and two agents, which reach the database by its name through the sidecar
//! (docs/compose.md). The one stand's sidecar is taken away meanwhile.

use std::fs;
use std::path::PathBuf;

use understudy_integration_tests::compose::Stack;
use understudy_integration_tests::podman::{Outcome, until};
use understudy_integration_tests::stand::SIDECAR_IMAGE;

use crate::postgres::{IMAGE, image};
use crate::stand;

const POLICY: &str = "[[allow]]\nhost = \"database\"\nport = 5432\ntcp = true\nprivate = true\n";

const SERVER: &str = "set -eu; bin=$$(echo /usr/lib/postgresql/*/bin); mkdir /tmp/pg; chown postgres /tmp/pg; cd /tmp/pg; \
    setpriv --reuid postgres --regid postgres --init-groups $$bin/initdb -U app --auth=trust --no-sync -D data >log; \
    echo 'host all app all trust' >>data/pg_hba.conf; \
    exec setpriv --reuid postgres --regid postgres --init-groups $$bin/postgres -D data -k /tmp/pg -c listen_addresses='*'";

/// Files of the sidecar's configuration, as they were, with the stand's sidecar again at the end.
struct Configured {
    before: Vec<(PathBuf, String)>,
}

impl Configured {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = &stand().paths.configuration;
        stand().kill_sidecar();
        let before = files.iter().map(|(name, text)| {
            let file = directory.join(name);
            let before = fs::read_to_string(&file).unwrap_or_default();
            fs::write(&file, text).unwrap();
            (file, before)
        });
        Self { before: before.collect() }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        for (file, text) in &self.before {
            fs::write(file, text).unwrap();
        }
        stand().start_sidecar().unwrap();
    }
}

#[test]
fn a_stack_has_its_own_sidecar_and_its_agents_a_database_by_name() {
    image();
    let paths = &stand().paths;
    let _configured = Configured::new(&[
        // the resolver is that of the stack's network
        ("sidecar.toml", "extra-ca = [\"/etc/understudy/world-ca.crt\"]\n"),
        ("secrets.toml", ""),
        ("policies/stack.toml", POLICY),
    ]);
    let agent = |name: &str, policy: &str| {
        format!(
            "  {name}:
    image: {IMAGE}
    command: [\"sleep\", \"infinity\"]
    depends_on: [understudy]
    annotations:
      understudy.harness: generic
      understudy.policy: {policy}
      understudy.network: guarded
"
        )
    };
    let text = format!(
        "version: '3'
services:
  database:
    image: {IMAGE}
    command: [\"bash\", \"-c\", {SERVER:?}]
  understudy:
    image: {SIDECAR_IMAGE}
    read_only: true
    cap_drop: [all]
    security_opt: [no-new-privileges]
    annotations:
      understudy.role: sidecar
    volumes:
      - {configuration}:/etc/understudy:ro
      - {control}:/run/understudy/control
      - state:/var/lib/understudy
{one}{two}{other}volumes:
  # the one that this host had before: another one would be refused
  state: {{external: true, name: understudy-state}}
",
        configuration = paths.configuration.display(),
        control = paths.control.display(),
        one = agent("one", "stack"),
        two = agent("two", "stack"),
        other = agent("other", "world"),
    );
    let stack = Stack::new("stack", &text).unwrap();
    let exec = |service: &str, command: &[&str]| -> Outcome { stack.exec(service, command).unwrap() };
    // Podman without systemd runs no health checks, and podman-compose 1.0.3 does not wait for them.
    let up = stack.compose(&["up", "-d", "database", "understudy"]).unwrap();
    until("the sidecar", || Ok(exec("understudy", &["/understudy", "health"]).code == Some(0)))
        .unwrap_or_else(|error| panic!("{error:#}: {}", up.text()));
    let up = stack.compose(&["up", "-d", "one", "two", "other"]).unwrap();

    let psql = ["psql", "-X", "-A", "-t", "-h", "database", "-U", "app", "postgres", "-c"];
    let ask = |service: &str, sql: &str| exec(service, &[&psql[..], &[sql]].concat());
    until("the database", || Ok(ask("one", "select 1").stdout == "1\n"))
        .unwrap_or_else(|error| panic!("{error:#}: {} {}", up.text(), ask("one", "select 1").text()));
    ask("one", "create table notes (text text); insert into notes values ('hello from one')")
        .success()
        .unwrap();
    assert_eq!(ask("two", "select text from notes").success().unwrap(), "hello from one\n");
    // It is the sidecar that the database sees, and one that may not reach it does not.
    let peers = ask(
        "two",
        "select count(distinct client_addr) from pg_stat_activity where usename = 'app' and client_addr is not null",
    );
    assert_eq!(peers.success().unwrap(), "1\n");
    let address = exec("database", &["hostname", "-i"]).success().unwrap();
    for host in ["database", address.trim()] {
        let told = exec("other", &["psql", "-h", host, "-U", "app", "postgres", "-c", "select 1"]);
        assert!(told.code != Some(0) && told.stderr.contains("understudy: "), "{host}: {}", told.text());
    }
}
