//! TLS that is passed through: beside a plain relay of TCP.

use anyhow::{Context, Result};

use super::bed::{Bed, SPLICED_HOST};
use super::relay::RELAY;
use super::report::{Budget, Report};
use super::requests;
use super::samples::Samples;
use super::{cpu, route::Route};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Relay,
    Sidecar,
}

#[derive(Debug, Default)]
struct Figures {
    per_second: Samples,
    /// MiB per second.
    speed: Samples,
    /// CPU seconds of 1 GiB in the middle.
    cost: Samples,
}

pub(super) fn measure(bed: &Bed, report: &mut Report, rounds: usize) -> Result<()> {
    let (mut relay, mut sidecar) = (Figures::default(), Figures::default());
    for round in 0..rounds {
        let mut ways = [(Way::Relay, &mut relay), (Way::Sidecar, &mut sidecar)];
        ways.rotate_left(round % 2);
        for (way, figures) in ways {
            let small = url(way, "small");
            let output = client(bed, way, &["wrk", "--latency", "-t", "1", "-c", "32", "-d", "2", &small])?;
            figures.per_second.push(requests::per_second(&output)?);
            let middle = match way {
                Way::Relay => cpu::family(bed.relay.pid()?)?,
                Way::Sidecar => bed.middle(Route::Sidecar)?,
            };
            let before = cpu::seconds_of_all(&middle)?;
            let gib = url(way, "gib");
            let curl = ["curl", "-sS", "--fail", "--http1.1", "--cacert", "/bench/ca.crt", "-o", "/dev/null"];
            let output = client(bed, way, &[&curl[..], &["-w", "%{speed_download}", &gib]].concat())?;
            let speed: f64 = output.trim().parse().with_context(|| format!("curl printed {output}"))?;
            figures.speed.push(speed / (1024.0 * 1024.0));
            figures.cost.push(cpu::seconds_of_all(&middle)? - before);
        }
    }
    report.section("passed through (splice), beside a plain TCP relay");
    for (name, figures) in [("relay", &relay), ("sidecar, spliced", &sidecar)] {
        report.note(&format!(
            "{name:<17} {:>7.0} requests/s  {:>5.0} MiB/s  {:>5.2} s of CPU for 1 GiB",
            figures.per_second.median(),
            figures.speed.median(),
            figures.cost.median()
        ));
    }
    let rate = sidecar.per_second.ratio(&relay.per_second);
    report.figure("sidecar: requests per second", rate, "x relay", Budget::AtLeast(0.9));
    let speed = sidecar.speed.ratio(&relay.speed);
    report.figure("sidecar: speed of 1 GiB", speed, "x relay", Budget::AtLeast(0.9));
    report.figure("sidecar: CPU of 1 GiB", sidecar.cost.ratio(&relay.cost), "x relay", Budget::None);
    Ok(())
}

fn client(bed: &Bed, way: Way, command: &[&str]) -> Result<String> {
    let client = if way == Way::Relay { &bed.origin } else { &bed.agent };
    client.exec(command)?.success().with_context(|| format!("{way:?}: {}", command.join(" ")))
}

fn url(way: Way, path: &str) -> String {
    let port = if way == Way::Relay { RELAY } else { 443 };
    format!("https://{SPLICED_HOST}:{port}/{path}")
}
