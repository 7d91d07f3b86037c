//! `COPY` of 1 GiB each way: psql and a server of their packages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context, Result};

use super::bed::{Bed, RELAYED_HOST};
use super::relayed::{Relayed, Way, timed};
use super::report::Report;
use crate::podman::{Container, unique, until};
use crate::stand::{Agent, import};

const IMAGE: &str = "localhost/understudy-postgres";
const SECRET: &str = "bench-db";
/// Of the server of this benchmark, which nobody else reaches.
const PASSWORD: &str = "bench0123456789abcdef";
/// A row is a line of 1 KiB.
const ROWS: u32 = 1 << 20;

const SERVE: &str = r#"
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
mkdir /tmp/pg; chown postgres /tmp/pg; cd /tmp/pg
cat >start <<'END'
$1/initdb -U admin --auth=trust --no-sync -D data >log
printf 'local all all trust\nhost all app all scram-sha-256\n' >data/pg_hba.conf
$1/postgres -D data -k /tmp/pg -c listen_addresses=127.0.0.1 &
until psql -h /tmp/pg -U admin postgres -c "create role app login password '$2'"; do sleep 0.2; done
createdb -h /tmp/pg -U admin -O app app
psql -h /tmp/pg -U app app -c 'create table lines (line text)'
echo ready; wait
END
exec setpriv --reuid postgres --regid postgres --init-groups bash start "$bin" "$1"
"#;

pub(super) fn measure(bed: &Bed, report: &mut Report, rounds: usize) -> Result<()> {
    import(&bed.stand.paths.cache.join("postgres.tar"), IMAGE)?;
    let network = bed.stand.world_network();
    let server =
        Container::start(&unique("postgres"), [&network, IMAGE, "bash", "-c", SERVE, "-", PASSWORD])?;
    until("PostgreSQL", || Ok(server.logs()?.lines().any(|line| line == "ready")))
        .with_context(|| server.logs().unwrap_or_default())?;
    let agent = agent(bed)?;
    let psql = |way, copy: &str| match way {
        // The sidecar's connection to the server has no TLS, so neither has this one.
        Way::Direct => {
            let settings = format!("PGPASSWORD={PASSWORD} PGHOST=127.0.0.1 PGUSER=app PGDATABASE=app");
            timed(&server, &format!("export {settings} PGSSLMODE=disable\n{copy}"))
        }
        Way::Sidecar => {
            let settings = format!("PGHOST={RELAYED_HOST} PGUSER=app PGDATABASE=app");
            timed(&agent, &format!("export {settings}\n{copy}"))
        }
    };
    let ready = || psql(Way::Sidecar, "psql -X -c 'select 1'");
    until("a login", || Ok(ready().is_ok())).or_else(|_| ready().map(drop))?;
    let mib = f64::from(ROWS) / 1024.0;
    let out = format!(
        "psql -X -q -c \"copy (select repeat('x', 1023) from generate_series(1, {ROWS})) to stdout\" >/dev/null"
    );
    // Read by the server, and not stored.
    let into = format!(
        "yes \"$(head -c 1023 /dev/zero | tr '\\0' x)\" 2>/dev/null | head -n {ROWS} | \
         psql -X -q -c 'copy lines from stdin where false'"
    );
    for (what, copy) in [("out", out), ("in", into)] {
        let figures = Relayed::measure(bed, rounds, mib, |way| psql(way, &copy))?;
        figures.report(report, &format!("PostgreSQL, COPY of 1 GiB {what}"));
    }
    Ok(())
}

/// With a stand-in for the password.
fn agent(bed: &Bed) -> Result<Container> {
    let configuration = &bed.stand.paths.configuration;
    fs::write(configuration.join(SECRET), PASSWORD)?;
    fs::set_permissions(configuration.join(SECRET), fs::Permissions::from_mode(0o600))?;
    fs::write(
        configuration.join(format!("policies/{SECRET}.toml")),
        format!("[[allow]]\nhost = \"{RELAYED_HOST}\"\npostgres = true\n"),
    )?;
    bed.stand.declare(&format!(
        "[{SECRET}]\nkind = \"postgres\"\nfile = \"/etc/understudy/{SECRET}\"\nhosts = [\"{RELAYED_HOST}\"]\n\
         user = \"app\"\nsslmode = \"disable\"\ngrant-to = {{ harnesses = [\"generic\"] }}\n"
    ))?;
    until("the declaration", || Ok(bed.stand.operator(&["secrets"])?.success()?.contains(SECRET)))?;
    Agent::new("generic")
        .annotation("understudy.policy", SECRET)
        .annotation("understudy.secrets", SECRET)
        .image(IMAGE)
        .start(&["sleep", "infinity"])
}
