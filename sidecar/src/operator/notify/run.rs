//! Runs the operator's command once: the facts on its standard input, nothing of them in its arguments or environment.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use super::Fact;
use crate::process_group::{end, is_done_by};

const PASSED_ON: [&str; 4] = ["PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// `words` are the command and its arguments; what it prints is nobody's. Whatever it leaves running in its process group
/// ends with it.
///
/// # Errors
/// If it cannot be run, fails, or is not done within `patience`; with its name, and nothing of its arguments.
pub(super) fn run(words: &[String], fact: &Fact, patience: Duration) -> io::Result<()> {
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
        .current_dir("/")
        .stdin(line(fact)?)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| io::Error::other(format!("{program:?} cannot be run: {error}")))?;
    let done = is_done_by(&child, Instant::now() + patience);
    let status = end(&mut child)?;
    match (done, status.success()) {
        (true, true) => Ok(()),
        (true, false) => Err(io::Error::other(format!("{program:?} failed: {status}"))),
        (false, _) => Err(io::Error::other(format!(
            "{program:?} was not done after {} s, and was killed",
            patience.as_secs()
        ))),
    }
}

/// A file without a name rather than a pipe: one that does not read it, or closes it, holds up nobody.
fn line(fact: &Fact) -> io::Result<File> {
    let mut file = File::from(memfd_create("facts", MemfdFlags::CLOEXEC)?);
    let mut line = serde_json::to_vec(fact)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::super::tests::{fact, sh};
    use super::*;

    fn run_for(script: &str, patience: Duration) -> Result<(), String> {
        run(&sh(script), &fact(Event::Ask, "a.example"), patience).map_err(|error| error.to_string())
    }

    #[test]
    fn whatever_it_does_with_its_input_and_outputs_it_is_run_to_its_end() {
        for script in [
            "exec <&-",
            "head -c 20000000 /dev/zero; head -c 20000000 /dev/zero >&2",
            "exec >&- 2>&- <&-",
            "read -r line && test -n \"$line\" && ! read -r more",
        ] {
            assert_eq!(run_for(script, Duration::from_secs(60)), Ok(()), "{script}");
        }
        assert!(run_for("exit 3", Duration::from_secs(60)).unwrap_err().contains("exit status: 3"));
        assert!(run_for("kill -9 $$", Duration::from_secs(60)).unwrap_err().contains("signal: 9"));
        let none = ["/no/such".to_owned(), "argument-with-a-token".to_owned()];
        let error = run(&none, &fact(Event::Ask, "a.example"), PATIENT).unwrap_err().to_string();
        assert!(error.contains("\"/no/such\" cannot be run") && !error.contains("token"), "{error}");
    }

    const PATIENT: Duration = Duration::from_secs(60);

    /// Facts that fill a page and more are all there, also for one that reads late.
    #[test]
    fn facts_are_read_whole() {
        let secrets = (0..10_000).map(|n| format!("secret-{n}")).collect();
        let long = Fact { secrets, ..fact(Event::Leak, "a.example") };
        let words = sh("test \"$(wc -c)\" -gt 100000");
        run(&words, &long, PATIENT).unwrap();
    }

    #[test]
    fn one_that_hangs_is_killed_with_all_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join("left");
        for script in ["sleep 600 & echo $! > LEFT; wait", "sleep 600 & echo $! > LEFT"] {
            let script = script.replace("LEFT", &left.display().to_string());
            let ended = run_for(&script, Duration::from_secs(1));
            assert_eq!(ended.is_ok(), !script.contains("wait"), "{ended:?}");
            let pid = std::fs::read_to_string(&left).unwrap();
            let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            let deadline = Instant::now() + PATIENT;
            // Whoever adopts it may leave it a zombie.
            while state().is_ok_and(|stat| !stat.contains(") Z ")) {
                assert!(Instant::now() < deadline, "{script}: it still runs");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
