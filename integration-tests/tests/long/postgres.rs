//! PostgreSQL: `psql` of its package in a sealed container, with what that was given, and a real server in the world
//! (`images/postgres image`).

use std::sync::OnceLock;
use std::time::Duration;

use understudy_integration_tests::podman::{Container, podman, unique, until};
use understudy_integration_tests::stand::{Agent, import};

use crate::stand;

pub(crate) const IMAGE: &str = "localhost/understudy-postgres";

const SECRET: &str = r#"
[work-db]
kind = "postgres"
file = "/etc/understudy/work-db"
hosts = ["git.example"]
user = "app"
sslmode = "disable"
grant-to = { harnesses = ["generic"] }
"#;

const POLICY: &str = "[[allow]]\nhost = \"git.example\"\npostgres = true\ndatabases = [\"app\"]\n";

/// Letters of no language, drawn once.
fn password() -> &'static str {
    static PASSWORD: OnceLock<String> = OnceLock::new();
    PASSWORD.get_or_init(|| {
        let drawn =
            podman(["run", "--rm", IMAGE, "sh", "-c", "od -An -N16 -tx1 /dev/urandom | tr -d ' \\n'"]);
        format!("Pw{}", drawn.unwrap().success().unwrap().trim())
    })
}

/// Has the image of `images/postgres image` here.
pub(crate) fn image() {
    let tar = stand().paths.cache.join("postgres.tar");
    assert!(tar.exists(), "{} is missing: run integration-tests/images/postgres image", tar.display());
    import(&tar, IMAGE).unwrap();
}

fn server() -> Container {
    image();
    let script = format!(
        "set -eu; bin=$(echo /usr/lib/postgresql/*/bin); mkdir /tmp/pg; chown postgres /tmp/pg; cd /tmp/pg\n\
         cat >start <<'END'\n\
         $1/initdb -U admin --auth=trust --no-sync -D data >log\n\
         printf 'local all all trust\\nhost all app all scram-sha-256\\n' >data/pg_hba.conf\n\
         $1/postgres -D data -k /tmp/pg -c listen_addresses=127.0.0.1 & \n\
         until psql -h /tmp/pg -U admin postgres -c \"create role app login password '{}'\"; do sleep 0.2; done\n\
         createdb -h /tmp/pg -U admin -O app app; createdb -h /tmp/pg -U admin -O app other; echo ready; wait\nEND\n\
         exec setpriv --reuid postgres --regid postgres --init-groups bash start \"$bin\"",
        password()
    );
    let network = stand().world_network();
    let server = Container::start(&unique("postgres"), [&network, IMAGE, "bash", "-c", &script]).unwrap();
    until("the server", || Ok(server.logs()?.lines().any(|line| line == "ready"))).unwrap();
    server
}

#[test]
fn psql_logs_in_and_the_password_is_nowhere_in_its_container() {
    let stand = stand();
    let _server = server();
    let directory = &stand.paths.configuration;
    std::fs::write(directory.join("work-db"), password()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(directory.join("work-db"), mode).unwrap();
    std::fs::write(directory.join("policies/work-db.toml"), POLICY).unwrap();
    stand.declare(SECRET).unwrap();
    // It is known within five seconds.
    std::thread::sleep(Duration::from_secs(6));

    let agent = Agent::new("generic").image(IMAGE).annotation("understudy.policy", "work-db");
    let granted = agent.clone().annotation("understudy.secrets", "work-db").option("--tmpfs=/root:mode=0700");
    let container = granted.start(&["sleep", "infinity"]).unwrap();
    let who = "select current_user, current_database()";
    let told = granted.run(&["env", "PGDATABASE=app", "psql", "-X", "-A", "-t", "-c", who]).unwrap();
    assert_eq!(told.clone().success().unwrap_or_default(), "app|app\n", "{}", told.text());
    // `podman exec` sees no variables of the hook's, but the file of passwords.
    let psql = |env: &[&str], sql: &str| {
        let named = ["env", "PGHOST=git.example", "PGUSER=app", "PGDATABASE=app"];
        let command =
            [&named, env, &["psql", "-X", "-A", "-t", "-v", "VERBOSITY=verbose", "-c", sql]].concat();
        container.exec(&command).unwrap()
    };
    for env in [
        &[][..],
        &["PGSSLMODE=verify-full", "PGSSLROOTCERT=/run/understudy/bundle.pem"],
        &["PGCHANNELBINDING=require"],
        &["PGSSLMODE=disable"],
    ] {
        let told = psql(env, who);
        assert_eq!(told.clone().success().unwrap_or_default(), "app|app\n", "{env:?}: {}", told.text());
    }
    let made = "create table t as select generate_series(1, 100000) n; select count(*) from t";
    let told = psql(&[], made);
    assert!(told.stdout.contains("100000"), "{}", told.text());
    for (env, said) in [
        ("PGDATABASE=other", "understudy: host-not-allowed: database \"other\""),
        ("PGPASSWORD=of-somebody-else-entirely", "understudy: foreign-credential"),
    ] {
        let told = psql(&[env], who);
        assert!(told.code != Some(0) && told.stderr.contains(said), "{env:?}: {}", told.text());
    }

    // The search finds the stand-in, and nothing of the password, which the server has.
    let read = "tr '\\0' '\\n' </proc/1/environ | sed -n s/^PGPASSWORD=//p";
    let stand_in = container.exec(&["sh", "-c", read]).unwrap().success().unwrap();
    assert_eq!(stand_in.trim().len(), password().len());
    let found = stand.hunt(&container, &[stand_in.trim()]).unwrap();
    for place in ["environ", ".pgpass", "its bundle"] {
        assert!(found.iter().any(|found| found.contains(place)), "{place} is not searched: {found:?}");
    }
    assert_eq!(stand.hunt(&container, &[password()]).unwrap(), Vec::<String>::new());

    // In a container that was not given it, the stand-in is worth nothing.
    let url = format!("postgresql://app:{}@git.example/app", stand_in.trim());
    let told = agent.run(&["psql", &url, "-c", who]).unwrap();
    let said = "understudy: credential-not-granted: secret `work-db` is for git.example:5432";
    assert!(told.code != Some(0) && told.stderr.contains(said), "{}", told.text());
}
