//! The same work done directly and through one of the sidecar's relays, in turn.

use anyhow::{Context, Result};

use super::bed::Bed;
use super::cpu;
use super::report::{Budget, Report};
use super::samples::Samples;
use crate::podman::Container;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the server's own network.
    Direct,
    /// From a sealed container.
    Sidecar,
}

/// MiB per second, and CPU seconds of the sidecar for all of it.
#[derive(Debug, Default)]
pub(super) struct Relayed {
    direct: Samples,
    sidecar: Samples,
    cost: Samples,
}

impl Relayed {
    /// `work` moves so many MiB and says how many seconds it took.
    pub(super) fn measure(
        bed: &Bed,
        rounds: usize,
        mib: f64,
        work: impl Fn(Way) -> Result<f64>,
    ) -> Result<Self> {
        let mut figures = Self::default();
        let sidecar = bed.stand.sidecar_pid()?;
        for round in 0..rounds {
            let mut ways = [Way::Direct, Way::Sidecar];
            ways.rotate_left(round % 2);
            for way in ways {
                let before = cpu::seconds(sidecar)?;
                let speed = mib / work(way)?;
                match way {
                    Way::Direct => figures.direct.push(speed),
                    Way::Sidecar => {
                        figures.sidecar.push(speed);
                        figures.cost.push(cpu::seconds(sidecar)? - before);
                    }
                }
            }
        }
        Ok(figures)
    }

    pub(super) fn report(&self, report: &mut Report, what: &str) {
        report.section(what);
        report.note(&format!("direct            {:>5.0} MiB/s", self.direct.median()));
        report.note(&format!(
            "sidecar           {:>5.0} MiB/s  {:>5.2} s of CPU in the middle",
            self.sidecar.median(),
            self.cost.median()
        ));
        // A time of at most one and a half.
        let ratio = self.sidecar.ratio(&self.direct);
        report.figure("sidecar: speed", ratio, "x direct", Budget::AtLeast(0.67));
    }
}

/// Seconds that a script takes in a container.
pub(super) fn timed(container: &Container, script: &str) -> Result<f64> {
    let script = format!("set -e; begin=$EPOCHREALTIME\n{script}\necho \"$begin $EPOCHREALTIME\"");
    let output = container.exec(&["bash", "-c", &script])?.success().with_context(|| script.clone())?;
    let times = output.lines().last().and_then(|line| line.split_once(' '));
    let seconds = times.and_then(|(begin, end)| Some(end.parse::<f64>().ok()? - begin.parse::<f64>().ok()?));
    seconds.with_context(|| format!("bash printed {output}"))
}
