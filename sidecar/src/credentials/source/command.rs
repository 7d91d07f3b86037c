//! `command = ["op", "read", "op://vault/item/field"]`: what a program of the host prints.

use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use understudy_policies::is_plain;
use zeroize::Zeroizing;

use super::file::whole;
use super::{Surroundings, only_on_the_host};
use crate::credentials::secret::{MIN_LENGTH, READ_LIMIT};
use crate::process_group::{end, is_done_by};

/// What the program gets of the sidecar's environment: where its user and his password store are.
const PASSED_ON: [&str; 13] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "GNUPGHOME",
    "HOME",
    "LANG",
    "LC_ALL",
    "LOGNAME",
    "PASSWORD_STORE_DIR",
    "PATH",
    "SSH_AUTH_SOCK",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
];

/// The most characters of a program's own message that are shown.
const SHOWN: usize = 200;
/// It has ended with all its group; who else holds its pipe is not waited for longer.
const SAID_WITHIN: Duration = Duration::from_secs(1);

/// A program and its arguments; no shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSource {
    /// Never empty. The first is an absolute path, or a name that is looked up in `PATH`.
    pub words: Vec<String>,
    pub timeout: Duration,
    /// How long a value is used before the program is asked again; without it, until the operator reloads.
    pub cache: Option<Duration>,
}

impl CommandSource {
    pub(super) fn read(&self, around: &Surroundings) -> Result<Zeroizing<Vec<u8>>, String> {
        if !around.host_run {
            return Err(only_on_the_host("command"));
        }
        self.run()
    }

    fn run(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let (program, arguments) = self.words.split_first().ok_or("`command` is empty")?;
        let deadline = Instant::now() + self.timeout;
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own children end with it.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("{program} cannot be run: {error}"))?;
        let (printed, said) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let printed = printed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let endless = printed.as_ref().is_ok_and(|printed| printed.len() == READ_LIMIT);
        let done = !endless && printed.is_ok() && is_done_by(&child, deadline);
        let status = end(&mut child).map_err(|error| format!("{program}: {error}"))?;
        if endless {
            return Err(format!("{program} printed more than any value has"));
        }
        let (true, Ok(printed)) = (done, printed) else {
            let seconds = self.timeout.as_secs();
            return Err(format!("{program} was not done after {seconds} s (`timeout` sets another time)"));
        };
        if !status.success() {
            let said = said.recv_timeout(SAID_WITHIN).unwrap_or_default();
            return Err(format!("{program}: {status}{}", shown(&said, &printed)));
        }
        Ok(printed)
    }
}

/// The program's name alone: arguments name vaults and accounts.
impl fmt::Display for CommandSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words.first().map_or("", String::as_str))
    }
}

/// What is read is sent once, when the other end is closed or said too much.
fn reader(pipe: Option<impl Read + Send + 'static>) -> Receiver<Zeroizing<Vec<u8>>> {
    let (send, receive) = mpsc::channel();
    if let Some(pipe) = pipe {
        thread::spawn(move || send.send(whole(pipe).unwrap_or_default()));
    }
    receive
}

/// The program's last line, unless it could hold what it should have printed.
fn shown(said: &[u8], printed: &[u8]) -> String {
    let printed = printed.trim_ascii();
    let repeats = !printed.is_empty() && said.windows(printed.len()).any(|part| part == printed);
    if repeats || could_hold_credential(said) {
        return " (its message is not shown: a credential could be in it)".to_owned();
    }
    let text = String::from_utf8_lossy(said);
    let Some(line) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) else {
        return String::new();
    };
    let plain = |c: char| if is_plain(c) { c } else { '?' };
    format!(": {}", line.chars().take(SHOWN).map(plain).collect::<String>())
}

/// A word as long as a value that has letters and digits in it.
fn could_hold_credential(text: &[u8]) -> bool {
    let words = text.split(|b| !b.is_ascii_alphanumeric() && !matches!(b, b'-' | b'_' | b'+'));
    words
        .filter(|word| word.len() >= MIN_LENGTH)
        .any(|word| word.iter().any(u8::is_ascii_digit) && word.iter().any(u8::is_ascii_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Result<String, String> {
        let words = ["sh", "-c", script].map(str::to_owned).to_vec();
        let source = CommandSource { words, timeout: Duration::from_secs(2), cache: None };
        source.run().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn what_it_prints_is_the_value_and_nothing_is_there_to_read_or_to_inherit() {
        assert_eq!(sh("printf value").unwrap(), "value");
        assert_eq!(sh("cat; pwd").unwrap(), "/\n");
        // Cargo sets it for tests.
        assert_eq!(sh("printf %s \"$CARGO_PKG_NAME\"").unwrap(), "");
        assert!(!sh("printf %s \"$PATH\"").unwrap().is_empty());
    }

    #[test]
    fn a_failure_says_what_the_program_said_but_never_a_value() {
        let error = sh("echo one >&2; printf 'not \\033[1m signed in\\n\\n' >&2; exit 3").unwrap_err();
        assert!(error.contains("exit status: 3: not ?[1m signed in"), "{error}");
        for script in [
            "echo hunter2hunter2; echo 'bad: hunter2hunter2' >&2; exit 1",
            "echo 'bad: ghp_abcdefghijklmnopqrst0123456789ABCDEF' >&2; exit 1",
        ] {
            let error = sh(script).unwrap_err();
            assert!(
                error.contains("not shown") && !error.contains("hunter") && !error.contains("ghp"),
                "{error}"
            );
        }
        let none =
            CommandSource { words: vec!["/no/such".into()], timeout: Duration::from_secs(1), cache: None };
        assert!(none.run().unwrap_err().contains("/no/such cannot be run"));
    }

    #[test]
    fn one_that_hangs_or_never_stops_is_ended_with_its_children() {
        let start = Instant::now();
        // The first leaves a child that holds the pipe open, the second hangs after closing it.
        for script in ["sleep 60 & echo $!", "exec >&-; sleep 60", "sleep 60"] {
            assert!(sh(script).unwrap_err().contains("not done after 2 s"), "{script}");
        }
        assert!(start.elapsed() < Duration::from_secs(20));
        assert!(sh("exec yes").unwrap_err().contains("more than any value"));
        assert!(
            sh("echo 1 >&2; head -c 1000000 /dev/zero >&2; printf value").is_ok_and(|text| text == "value")
        );
    }

    #[test]
    fn only_a_sidecar_on_the_host_runs_it() {
        let around = Surroundings {
            podman_secrets: "/x".into(),
            credentials: None,
            host_run: false,
            ..Surroundings::default()
        };
        let source =
            CommandSource { words: vec!["true".into()], timeout: Duration::from_secs(1), cache: None };
        assert!(source.read(&around).unwrap_err().contains("runs in a container"));
    }
}
