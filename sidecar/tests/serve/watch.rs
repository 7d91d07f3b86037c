//! `understudy watch` beside a sidecar that runs: what a container does is shown as it comes, through a restart, too.

use std::fs;
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Sidecar, agent};

const GENERIC: [(&str, &str); 2] = [("understudy.harness", "generic"), ("understudy.policy", "web")];
/// Refused in words, at once.
const CURL: &str = "curl() { command curl -sk --noproxy '*' -o /dev/null --max-time 60 \"$@\" || true; }\n";

struct Watcher<'s> {
    sidecar: &'s Sidecar,
    name: &'static str,
    process: Running,
}

/// Ends with the test.
struct Running(Child);

impl Sidecar {
    fn of_web() -> Self {
        let mut sidecar = Self::new();
        sidecar.write("config/policies/web.toml", "[[deny]]\nhost = \"*.bad.example\"\n");
        sidecar.start(&[]);
        sidecar
    }

    fn requests(&self, name: &str, hosts: &[&str]) {
        let script: String = hosts.iter().map(|host| format!("curl https://{host}/\n")).collect();
        agent::run(self, name, &GENERIC, &format!("{CURL}{script}"));
    }

    /// With its output in files of that name.
    fn watch(&self, name: &'static str, words: &[&str]) -> Watcher<'_> {
        let mut program = self.program("watch", &["control"]);
        program.args(words).stdin(Stdio::null());
        self.watch_by(name, program)
    }

    fn watch_by(&self, name: &'static str, mut program: std::process::Command) -> Watcher<'_> {
        let file = |kind: &str| fs::File::create(self.path(&format!("{name}.{kind}"))).unwrap();
        let process = program.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Watcher { sidecar: self, name, process: Running(process) }
    }
}

impl Watcher<'_> {
    fn text(&self, kind: &str) -> String {
        fs::read_to_string(self.sidecar.path(&format!("{}.{kind}", self.name))).unwrap()
    }

    fn hosts(&self) -> Vec<String> {
        let text = self.text("out");
        https(text.rsplit_once('\n').map_or("", |(whole, _)| whole))
    }

    fn until_shown(&self, host: &str) {
        self.sidecar.until(host, || self.text("out").contains(host));
    }

    /// Has shown what came after it began.
    fn until_it_watches(&self) {
        for number in 0.. {
            let host = format!("first-{number}.example");
            self.sidecar.requests("first", &[&host]);
            if self.text("out").contains("first-") {
                return;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn lines_are_shown_as_they_come_and_each_filter_leaves_out_the_others() {
    let sidecar = Sidecar::of_web();
    let all = sidecar.watch("all", &["--json"]);
    let mut by = [
        (sidecar.watch("container", &["--json", "--container", "one"]), vec!["a.example", "x.bad.example"]),
        (
            sidecar.watch("host", &["--json", "--host", "*.bad.example"]),
            vec!["x.bad.example", "y.bad.example"],
        ),
        (
            sidecar.watch("both", &["--json", "--host", "*.bad.example", "--container", "two"]),
            vec!["y.bad.example"],
        ),
        (
            sidecar.watch("denied", &["--json", "--denied"]),
            vec!["a.example", "x.bad.example", "b.example", "y.bad.example"],
        ),
    ];
    all.until_it_watches();
    for (watcher, _) in &by {
        sidecar.until("it waits in the sidecar", || watcher.connected());
    }
    sidecar.requests("one", &["a.example", "x.bad.example"]);
    sidecar.requests("two", &["b.example", "y.bad.example"]);
    all.until_shown("y.bad.example");
    for (watcher, expected) in &mut by {
        watcher.until_shown(expected.last().unwrap());
        let shown: Vec<String> =
            watcher.hosts().into_iter().filter(|host| !host.starts_with("first-")).collect();
        assert_eq!(shown, *expected, "{}", watcher.name);
        // Ctrl-C where there is no terminal.
        kill_process(Pid::from_child(&watcher.process.0), Signal::INT).unwrap();
        let status = watcher.process.0.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::INT.as_raw()));
    }
    let hosts = all.hosts();
    let mut once = hosts.clone();
    once.dedup();
    assert_eq!(hosts, once);
    // What was written is chosen from in the same way, of this run and of a file.
    let file = sidecar.path("all.out").display().to_string();
    let old = "{\"schema\":1,\"time\": 1000, \"container\": \"one\", \"decision\": \"denied\", \"protocol\": \"https\", \"host\": \"old.example\"}\nno JSON\n";
    let with_old = sidecar.path("old.out").display().to_string();
    fs::write(&with_old, old.to_owned() + &all.text("out")).unwrap();
    for (words, expected) in [
        (&["--container", "one"][..], &["a.example", "x.bad.example"][..]),
        (&["--host", "*.bad.example"], &["x.bad.example", "y.bad.example"]),
        (&["--host", "*.bad.example", "--container", "two", "--denied"], &["y.bad.example"]),
        (&["--container", "nobody"], &[]),
    ] {
        let of = |more: &[&str]| -> Vec<String> {
            let text = sidecar.told(&[&["log", "--json"], words, more].concat());
            https(&text)
        };
        assert_eq!(of(&[]), expected, "{words:?}");
        assert_eq!(of(&["--from", &file]), expected, "{words:?}");
        assert_eq!(of(&["--from", &with_old, "--since", "1h"]), expected, "{words:?}");
    }
    let with_old = https(&sidecar.told(&["log", "--json", "--container", "one", "--from", &with_old]));
    assert_eq!(with_old, ["old.example", "a.example", "x.bad.example"]);
}

/// The hosts of requests, in their order.
fn https(text: &str) -> Vec<String> {
    // `log` says, beside them, what was no audit line.
    let lines = text.lines().filter(|line| !line.starts_with("understudy: "));
    let lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines = lines.filter(|line| line["protocol"] == "https");
    lines.map(|line| line["host"].as_str().unwrap().to_owned()).collect()
}

impl Watcher<'_> {
    /// Its connection to the control socket is there.
    fn connected(&self) -> bool {
        let pid = Pid::from_child(&self.process.0).as_raw_nonzero();
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        entries
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .any(|to| to.to_str().is_some_and(|to| to.starts_with("socket:")))
    }
}

#[test]
fn a_restart_is_told_and_what_comes_after_it_is_shown() {
    let mut sidecar = Sidecar::of_web();
    let (out, err) = (sidecar.path("w.out"), sidecar.path("w.err"));
    let shown = |what: &str| fs::read_to_string(&out).unwrap().contains(what);
    let told = |what: &str| fs::read_to_string(&err).unwrap().contains(what);
    let watcher = sidecar.watch("w", &[]);
    watcher.until_it_watches();
    let Watcher { mut process, .. } = watcher;
    sidecar.end();
    sidecar.until("it is told that the sidecar is gone", || told("the sidecar does not answer: "));
    sidecar.start(&[]);
    sidecar.until("it is told that there is another", || told("there again, and is another run"));
    sidecar.requests("one", &["after.example"]);
    sidecar.until("the line", || shown("one denied GET https://after.example/"));
    assert!(process.0.try_wait().unwrap().is_none());
}

#[test]
fn lines_that_come_too_fast_are_counted_where_they_are_missing() {
    let sidecar = Sidecar::of_web();
    let watcher = sidecar.watch("slow", &["--json"]);
    watcher.until_it_watches();
    let pid = Pid::from_child(&watcher.process.0);
    kill_process(pid, Signal::STOP).unwrap();
    // More than the MiB that is kept.
    let url = format!("https://many.example/{}[1-1500]", "x".repeat(1000));
    agent::run(&sidecar, "one", &GENERIC, &format!("{CURL}curl '{url}'\n"));
    sidecar.requests("one", &["last.example"]);
    kill_process(pid, Signal::CONT).unwrap();
    watcher.until_shown("last.example");
    let said = watcher.text("err");
    let lost = said
        .split("understudy: ")
        .nth(1)
        .and_then(|said| said.strip_suffix(" lines are missing here: they are not kept any more\n"));
    let lost: usize = lost.unwrap_or_else(|| panic!("{said:?}")).parse().unwrap();
    let shown = watcher.hosts().iter().filter(|host| *host == "many.example").count();
    assert!(lost > 0 && shown > 0 && lost + shown >= 1500, "{lost} and {shown}");
}

const ASKING: [(&str, &str); 3] = [GENERIC[0], GENERIC[1], ("understudy.mode", "ask")];

/// On a terminal that script(1) gives it, with what presses keys there.
fn on_a_terminal(sidecar: &Sidecar) -> (Watcher<'_>, impl FnMut(u8)) {
    let control = sidecar.path("control").display().to_string();
    let mut script = std::process::Command::new("script");
    let command =
        format!("{} watch --control {control} --host '*.asked.example'", env!("CARGO_BIN_EXE_understudy"));
    script.args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"]).stdin(Stdio::piped());
    if rustix::process::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut script, crate::USER);
        std::os::unix::process::CommandExt::gid(&mut script, crate::USER);
    }
    let mut watcher = sidecar.watch_by("terminal", script);
    let mut input = watcher.process.0.stdin.take().unwrap();
    let press = move |key: u8| input.write_all(&[key]).and_then(|()| input.flush()).unwrap();
    (watcher, press)
}

#[test]
fn once_is_for_what_waits_and_the_others_write_the_rule_that_was_shown() {
    let sidecar = Sidecar::of_web();
    let (watcher, mut press) = on_a_terminal(&sidecar);
    let mut press = move |key: u8| {
        std::thread::sleep(Duration::from_millis(1100));
        press(key);
    };
    let reasons = |host: &str| -> Vec<serde_json::Value> {
        let text = sidecar.told(&["log", "--json", "--host", host]);
        let reason = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["reason"].clone();
        text.lines().map(reason).collect()
    };
    let ask = |name: &'static str, script: &'static str| {
        agent::run(&sidecar, name, &ASKING, &format!("{CURL}{script}"))
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| {
            ask(
                "one",
                "curl https://o.asked.example/\ncurl https://o.asked.example/\n\
                        curl https://c.asked.example/\ncurl https://c.asked.example/\n\
                        curl https://a.asked.example/ & curl http://a.asked.example/\nwait\n",
            )
        });
        watcher.until_shown("one asks for o.asked.example:443");
        press(b'o');
        watcher.until_shown("allowed o.asked.example:443");
        // It was for that request: the next one asks again.
        sidecar.until("the question again", || {
            watcher.text("out").matches("asks for o.asked.example:443").count() == 2
        });
        press(b'n');
        watcher.until_shown("[[allow]] host = \"c.asked.example\", port = 443");
        press(b'c');
        watcher.until_shown("operator decision 1: allow c.asked.example:443 in ");
        watcher.until_shown("[[allow]] host = \"a.asked.example\", port = [80, 443]");
        press(b'a');
        watcher.until_shown("operator decision 2: allow a.asked.example:80 in every container");
        watcher.until_shown("operator decision 3: allow a.asked.example:443 in every container");
        drop(one.join().unwrap());
    });
    // What is let through finds no server here.
    assert_eq!(reasons("o.asked.example"), ["name-not-found", "host-not-allowed"]);
    assert_eq!(reasons("c.asked.example"), ["name-not-found"; 2]);
    // Another container: `c` was not for it, and `a` was.
    ask("two", "curl --max-time 3 https://c.asked.example/\ncurl https://a.asked.example/\n");
    assert_eq!(watcher.text("out").matches("asks for c.asked.example:443").count(), 2);
    assert!(!watcher.text("out").contains("two asks for a.asked.example"));
    assert_eq!(reasons("a.asked.example"), ["name-not-found"; 3]);
    let status: serde_json::Value = serde_json::from_str(&sidecar.told(&["status", "--json"])).unwrap();
    let kept = |at: usize| {
        [&status["decisions"][at]["host"], &status["decisions"][at]["port"]].map(ToString::to_string)
    };
    assert_eq!(kept(0), ["\"c.asked.example\"", "443"]);
    assert!(status["decisions"][0]["container"].is_string() && status["decisions"][2]["container"].is_null());
    assert_eq!(
        (kept(1), kept(2)),
        (["\"a.asked.example\"".into(), "80".into()], ["\"a.asked.example\"".into(), "443".into()])
    );
}

#[test]
fn on_a_terminal_a_key_answers_and_another_ends_it_at_once() {
    let sidecar = Sidecar::of_web();
    let (mut watcher, mut press) = on_a_terminal(&sidecar);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            agent::run(&sidecar, "one", &ASKING, &format!("{CURL}curl https://a.asked.example/\ncurl https://other.example/ &\ncurl https://b.asked.example/\nwait\n"))
        });
        watcher.until_shown("one asks for a.asked.example:443");
        // A question that has just come is answered by no key: it may have been meant for the one before.
        press(b'a');
        watcher.until_shown("look at this one, then press again");
        std::thread::sleep(Duration::from_millis(1100));
        press(b'n');
        watcher.until_shown("denied a.asked.example:443");
        watcher.until_shown("one asks for b.asked.example:443");
        std::thread::sleep(Duration::from_millis(1100));
        press(b'n');
        watcher.until_shown("denied b.asked.example:443");
        // The question that is not meant is not shown, and is answered elsewhere.
        sidecar.until("the other question", || {
            sidecar.told(&["deny", "other.example", "--once"]).starts_with("answered 1 question\n")
        });
        drop(asked.join().unwrap());
    });
    watcher.until_shown("https://b.asked.example/");
    assert!(!watcher.text("out").contains("other.example"), "{}", watcher.text("out"));
    // With nothing else to wake it: a request for what comes next waits for longer than this.
    press(b'q');
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = watcher.process.0.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(12), "it does not end: {}", watcher.text("out"));
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success());
}
