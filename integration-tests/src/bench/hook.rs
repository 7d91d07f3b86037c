//! What the hook adds to `podman run`: the CPU of each stage, and the time of the whole.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::bed::Bed;
use super::report::{Budget, Report};
use super::samples::Samples;
use crate::stand::Agent;

const STAGES: [&str; 4] = ["precreate", "create-runtime", "place", "poststop"];

/// Runs a program with stdin, stdout and stderr as they are, and notes what it and its children used. Python because
/// its wait4 tells microseconds. Without a file to write to, inside a container, it says it on stderr.
const WRAPPER: &str = r#"#!/usr/bin/python3
import os, sys
log, stage, program = sys.argv[1:4] if len(sys.argv) > 3 else (None, "place", "REAL")
args = sys.argv[4:] if log else sys.argv
# not fork: what this interpreter's copy does before the exec counts as the program's
pid = os.posix_spawn(program, args, os.environ)
_, status, used = os.wait4(pid, 0)
line = f"stage {stage} {used.ru_utime + used.ru_stime:.6f}\n"
if log:
    with open(log, "a") as file:
        file.write(line)
else:
    sys.stderr.write(line)
sys.exit(os.waitstatus_to_exitcode(status))
"#;

pub(super) fn measure(bed: &Bed, report: &mut Report, pairs: usize) -> Result<()> {
    let (plain, hooked) = walls(pairs)?;
    let stages = stages(bed, pairs)?;
    report.section("hook");
    let mut all = 0.0;
    for stage in STAGES {
        let median = stages.get(stage).with_context(|| format!("stage {stage} did not run"))?.median() * 1e3;
        report.figure(&format!("{stage}: CPU, its children included"), median, "ms", Budget::None);
        all += median;
    }
    report.figure("all stages of one start and stop: CPU", all, "ms", Budget::AtMost(15.0));
    report.note(&format!(
        "podman run --rm --network=none IMAGE true: {:.0} ms without, {:.0} ms with the annotation",
        plain.median() * 1e3,
        hooked.median() * 1e3
    ));
    report.figure("podman run with the hook", hooked.ratio(&plain), "x without", Budget::AtMost(1.1));
    Ok(())
}

fn walls(pairs: usize) -> Result<(Samples, Samples)> {
    let (mut plain, mut hooked) = (Samples::default(), Samples::default());
    let time = |agent: Agent, samples: &mut Samples| -> Result<()> {
        let start = Instant::now();
        agent.run(&["true"])?.success()?;
        samples.push(start.elapsed().as_secs_f64());
        Ok(())
    };
    for pair in 0..pairs {
        let without = || Agent::plain().option("--network=none");
        if pair % 2 == 0 {
            time(without(), &mut plain)?;
            time(Agent::generic(), &mut hooked)?;
        } else {
            time(Agent::generic(), &mut hooked)?;
            time(without(), &mut plain)?;
        }
    }
    Ok((plain, hooked))
}

/// Seconds of CPU for each stage, with every program of the hook behind the wrapper meanwhile.
fn stages(bed: &Bed, runs: usize) -> Result<BTreeMap<String, Samples>> {
    let home = PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?);
    let runtime = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").context("XDG_RUNTIME_DIR is not set")?);
    let log = bed.directory.join("stages");
    let wrapper = bed.directory.join("stage");
    executable(&wrapper, WRAPPER)?;
    let hooks = home.join(".config/containers/oci/hooks.d");
    let guest = home.join(".local/share/understudy/guest");
    let undo = Wrapped::new(&hooks, &guest, &wrapper, &log)?;
    let said = runtime.join("understudy/refusals");
    for _ in 0..runs {
        Agent::generic().run(&["true"])?.success()?;
    }
    drop(undo);
    let mut text = fs::read_to_string(&log)?;
    for entry in fs::read_dir(said)? {
        text += &fs::read_to_string(entry?.path())?;
    }
    let mut stages: BTreeMap<String, Samples> = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("stage ")) {
        let (stage, used) = line.split_once(' ').context("a line of the wrapper")?;
        stages.entry(stage.to_owned()).or_default().push(used.parse()?);
    }
    Ok(stages)
}

/// Puts everything back when dropped.
struct Wrapped {
    before: Vec<(PathBuf, Vec<u8>)>,
    /// The placing binary itself, beside the wrapper that has its name.
    real: PathBuf,
}

impl Wrapped {
    fn new(hooks: &Path, guest: &Path, wrapper: &Path, log: &Path) -> Result<Self> {
        let real = guest.join("real");
        let mut undo = Self { before: Vec::new(), real };
        for stage in STAGES {
            let path = hooks.join(format!("50-understudy-{stage}.json"));
            // `place` has none: precreate adds it
            let Ok(before) = fs::read(&path) else { continue };
            let mut file: Value = serde_json::from_slice(&before)?;
            let hook = file.get_mut("hook").context("a hook file without a hook")?;
            let mut args = vec![json!("stage"), json!(log), json!(stage), hook["path"].clone()];
            args.extend(hook["args"].as_array().context("a hook without arguments")?.iter().cloned());
            *hook = json!({ "path": wrapper, "args": args, "timeout": hook["timeout"] });
            undo.before.push((path.clone(), before));
            fs::write(&path, file.to_string())?;
        }
        let binary = guest.join("understudy-hook");
        fs::copy(&binary, &undo.real)?;
        undo.before.push((binary.clone(), fs::read(&binary)?));
        fs::remove_file(&binary)?;
        executable(&binary, &WRAPPER.replace("REAL", "/run/understudy-bin/real"))?;
        Ok(undo)
    }
}

impl Drop for Wrapped {
    fn drop(&mut self) {
        for (path, before) in &self.before {
            // modes stay; what cannot be put back shows in what runs next
            let _ = fs::write(path, before);
        }
        let _ = fs::remove_file(&self.real);
    }
}

fn executable(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
