//! Large bodies each way: how fast, what they cost, and how much memory the sidecar has meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::bed::Bed;
use super::cpu;
use super::report::{Budget, Report};
use super::route::Route;
use super::samples::Samples;

const MIB: f64 = 1024.0 * 1024.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Down,
    Up,
}

#[derive(Debug, Default)]
struct Figures {
    /// MiB per second.
    speed: Samples,
    /// CPU seconds of what is in the middle, for 1 GiB.
    cost: Samples,
}

/// Uploads carry no stand-in: the sink is not the secret's host.
const ROUTES: [Route; 3] = [Route::Direct, Route::Nginx, Route::Swap];
const KINDS: [(Direction, &str); 4] = [
    (Direction::Down, "--http1.1"),
    (Direction::Down, "--http2"),
    (Direction::Up, "--http1.1"),
    (Direction::Up, "--http2"),
];

pub(super) fn measure(bed: &Bed, report: &mut Report, rounds: usize) -> Result<()> {
    // 1 GiB takes seconds on each of twelve ways: fewer rounds than of small requests
    let rounds = rounds.div_ceil(2);
    let sidecar = bed.stand.sidecar_pid()?;
    let before = cpu::resident(sidecar)?;
    let mut most = before;
    let mut all: BTreeMap<(Direction, &str, Route), Figures> = BTreeMap::new();
    for round in 0..rounds {
        for (direction, version) in KINDS {
            for route in ROUTES.into_iter().cycle().skip(round % ROUTES.len()).take(ROUTES.len()) {
                let middle = bed.middle(route)?;
                let used = cpu::seconds_of_all(&middle)?;
                let (speed, resident) = watched(sidecar, || transfer(bed, route, direction, version))?;
                let figures = all.entry((direction, version, route)).or_default();
                figures.speed.push(speed / MIB);
                figures.cost.push(cpu::seconds_of_all(&middle)? - used);
                most = most.max(resident);
            }
        }
    }
    for (direction, version) in KINDS {
        let way = if direction == Direction::Down { "down" } else { "up" };
        report.section(&format!("1 GiB {way}, curl {version}"));
        let of = |route| all.get(&(direction, version, route)).context("nothing was measured");
        for route in ROUTES {
            let (speed, cost) = (of(route)?.speed.median(), of(route)?.cost.median());
            report.note(&format!(
                "{:<17} {speed:>5.0} MiB/s  {cost:>5.2} s of CPU in the middle",
                route.name()
            ));
        }
        let (direct, nginx, mine) = (of(Route::Direct)?, of(Route::Nginx)?, of(Route::Swap)?);
        report.figure("sidecar: speed", mine.speed.ratio(&nginx.speed), "x nginx", Budget::AtLeast(1.0));
        report.figure("sidecar: speed", mine.speed.ratio(&direct.speed), "x direct", Budget::AtLeast(0.7));
        report.figure("sidecar: CPU", mine.cost.ratio(&nginx.cost), "x nginx", Budget::None);
    }
    report.section("memory during 1 GiB each way");
    report.figure("sidecar: resident before", before / 1024.0, "MiB", Budget::None);
    report.figure(
        "sidecar: most during, more than before",
        (most - before) / 1024.0,
        "MiB",
        Budget::AtMost(8.0),
    );
    Ok(())
}

/// Bytes per second.
fn transfer(bed: &Bed, route: Route, direction: Direction, version: &str) -> Result<f64> {
    let key = format!("x-api-key: {}", bed.stand_in);
    let fixed = ["curl", "-sS", "--fail", version, "--cacert", Bed::authority(route), "-o", "/dev/null"];
    let output = match direction {
        Direction::Down => {
            let header: &[&str] = if route.swaps() { &["-H", &key] } else { &[] };
            let url = route.url("gib");
            bed.client(route, &[&fixed[..], header, &["-w", "%{speed_download}", &url]].concat())?
        }
        Direction::Up => {
            let url = route.url("up");
            let upload = ["-H", "expect:", "-T", "/bench/www/gib", "-w", "%{speed_upload}", &url];
            bed.client(route, &[&fixed[..], &upload].concat())?
        }
    };
    output.trim().parse().with_context(|| format!("curl printed {output}"))
}

/// The most resident memory (KiB) that a process had while `work` ran.
fn watched<T: Send>(pid: u32, work: impl FnOnce() -> Result<T> + Send) -> Result<(T, f64)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most: f64 = 0.0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(cpu::resident(pid).unwrap_or_default());
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        let most = watch.join().ok().context("the watching thread panicked")?;
        Ok((result?, most))
    })
}
