//! The operator's commands, run as the documentation says: `podman exec SIDECAR understudy …`.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use understudy_integration_tests::podman::{Container, Outcome, podman, unique, until};
use understudy_integration_tests::stand::{Agent, SIDECAR_IMAGE};

use crate::stand;

fn told(command: &[&str]) -> Outcome {
    stand().operator(command).unwrap()
}

fn done(command: &[&str]) -> String {
    told(command).success().unwrap()
}

fn asleep(agent: Agent) -> Container {
    stand();
    agent.start(&["sleep", "infinity"]).unwrap()
}

/// What a person at the agent's shell reads, and the status.
fn answer(agent: &Container, url: &str) -> String {
    let fetch = ["curl", "-sS", "--max-time", "90", "-w", "\nHTTP %{http_code}\n", url];
    agent.exec(&fetch).unwrap().text()
}

/// The first words in back quotes that begin with `understudy`, without the program's name.
fn advised(text: &str) -> Vec<&str> {
    let command = text.split('`').find(|part| part.starts_with("understudy ")).unwrap();
    command.split(' ').skip(1).collect()
}

#[test]
fn what_a_refusal_and_explain_advise_is_what_works() {
    let agent = asleep(Agent::new("generic"));
    let (name, url) = (agent.name.as_str(), "https://other.example/operator/advised");
    let page = answer(&agent, url);
    assert!(page.contains("reason: host-not-allowed") && page.contains("HTTP 403"), "{page}");
    let said = format!("operator: run `understudy allow other.example --container {name}`");
    assert!(page.contains(&said), "{page}");

    let explained = told(&["explain", url, "--container", name]);
    assert_eq!(explained.code, Some(2), "{}", explained.text());
    for line in [
        &format!("container: {name}, mode deny\n"),
        "refused: host-not-allowed\n",
        "no rule is about this host\n",
    ] {
        assert!(explained.stdout.contains(line), "{}", explained.stdout);
    }
    let allow = advised(&explained.stdout);
    assert_eq!(allow, ["allow", "other.example", "--container", name]);
    let decided = done(&allow);
    let number = decided.split(':').next().unwrap();
    assert!(answer(&agent, url).contains("HTTP 404"));
    let explained = told(&["explain", url, "--container", name, "--json"]);
    let json: Value = serde_json::from_str(&explained.stdout).unwrap();
    assert_eq!((explained.code, &json["decision"]), (Some(0), &"allowed".into()));
    assert_eq!(json["rule"], format!("operator decision {number}"));

    // Back again, by what it says would change it.
    let text = told(&["explain", url, "--container", name]).stdout;
    let deny = advised(&text);
    assert_eq!(deny, ["deny", "other.example:443", "--container", name]);
    done(&deny);
    let page = answer(&agent, url);
    assert!(page.contains("reason: denied-by-rule") && page.contains("HTTP 403"), "{page}");
    let withdraw = advised(&page).into_iter().take(2).collect::<Vec<_>>();
    assert_eq!(withdraw[0], "withdraw", "{page}");
    assert!(done(&withdraw).starts_with("taken back: "));
    assert!(answer(&agent, url).contains("HTTP 404"));
    assert!(told(&["status"]).stdout.contains(&format!("decision: {number}: allow other.example:443 in ")));
    done(&["withdraw", number]);
    assert!(answer(&agent, url).contains("host-not-allowed"));
}

/// Asks again and again on one connection, until the answer is another; prints it, and how many connections that took.
const KEPT: &str = r#"
import http.client, time
connection = http.client.HTTPSConnection("shop.example", timeout=20)
ports, status = set(), 404
while status == 404:
    connection.request("GET", "/operator/kept")
    ports.add(connection.sock.getsockname()[1])
    answer = connection.getresponse()
    answer.read()
    status = answer.status
    time.sleep(0.2)
print(status, len(ports))
"#;

#[test]
fn an_allowance_for_a_time_ends_on_a_connection_that_is_kept_alive_too() {
    let agent = asleep(Agent::new("generic"));
    done(&["allow", "shop.example", "--container", &agent.name, "--for", "5s"]);
    let text = agent.exec(&["timeout", "60", "python3", "-c", KEPT]).unwrap().success().unwrap();
    assert_eq!(text, "403 1\n");
}

#[test]
fn an_allowance_for_a_time_ends_by_itself() {
    let agent = asleep(Agent::new("generic"));
    let url = "https://shop.example/operator/for";
    done(&["allow", "shop.example", "--container", &agent.name, "--for", "10s"]);
    assert!(answer(&agent, url).contains("HTTP 404"));
    until("the end of the allowance", || Ok(answer(&agent, url).contains("host-not-allowed"))).unwrap();
    let id = agent.inspect("{{.Id}}").unwrap();
    assert!(!told(&["status"]).stdout.contains(&format!("allow shop.example:443 in {}", &id[..12])));
}

#[test]
fn lines_are_asked_for_learned_from_and_compared() {
    let agent = asleep(Agent::generic());
    answer(&agent, "https://api.example/operator/within");
    answer(&agent, "https://refused.example/operator/log?key=value");
    let denied = || {
        let text = done(&["log", "--container", &agent.name, "--denied", "--json", "--since", "10m"]);
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    until("the line", || Ok(denied().iter().any(|line| line["protocol"] == "https"))).unwrap();
    let lines = denied();
    assert!(lines.iter().all(|line| line["decision"] == "denied" && line["schema"] == 1), "{lines:?}");
    let line = lines.iter().find(|line| line["protocol"] == "https").unwrap();
    assert_eq!((&line["host"], &line["path"]), (&"refused.example".into(), &"/operator/log?key=".into()));
    let shown = done(&["log", "--container", &agent.name, "--host", "refused.example"]);
    assert!(shown.contains("refused.example") && !shown.contains("api.example"), "{shown}");
    // The same from the container's log, as the documentation has it.
    let log = stand().sidecar_log().unwrap();
    let read = stand()
        .operator_reads(&["log", "--from", "-", "--container", &agent.name, "--denied"], log.as_bytes());
    assert!(read.unwrap().success().unwrap().contains("refused.example"));

    let learned = done(&["learn", &agent.name]);
    assert!(learned.contains("host = \"refused.example\"") && !learned.contains("api.example"), "{learned}");
    let json: Value = serde_json::from_str(&done(&["learn", &agent.name, "--json"])).unwrap();
    assert_eq!(
        (&json["policy"], &json["rules"][0]["hosts"][0]),
        (&learned.as_str().into(), &"refused.example".into())
    );
    let file = stand().paths.configuration.join("policies/learned.toml");
    std::fs::write(&file, &learned).unwrap();
    let diff = told(&["policy", "diff", "world", "learned"]);
    std::fs::remove_file(&file).unwrap();
    // As diff(1): there are differences.
    assert!(diff.code == Some(1) && diff.stdout.contains("refused.example"), "{}", diff.text());

    let metrics = done(&["metrics"]);
    let count =
        "understudy_requests_total{protocol=\"https\",decision=\"denied\",reason=\"host-not-allowed\"} ";
    assert!(metrics.contains(count) && metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(!metrics.contains("refused.example") && !metrics.contains(&agent.name), "{metrics}");
}

/// docs/policies.md, step by step.
#[test]
fn the_first_ten_minutes_of_the_documentation_work() {
    let agent = asleep(Agent::new("generic"));
    let url = "https://shop.example/operator/first";
    assert!(answer(&agent, url).contains("refused by policy"));
    let explained = told(&["explain", url, "--container", &agent.name]);
    assert!(
        explained.code == Some(2) && explained.stdout.contains("refused: host-not-allowed"),
        "{}",
        explained.text()
    );
    done(&["allow", "shop.example", "--container", &agent.name]);
    assert!(answer(&agent, url).contains("HTTP 404"));

    let policies = stand().paths.configuration.join("policies");
    let (first, learned) = (policies.join("first-web.toml"), policies.join("first-agent.toml"));
    std::fs::write(&first, done(&["policy", "new"])).unwrap();
    std::fs::write(&learned, done(&["learn", &agent.name])).unwrap();
    let check = told(&["check"]);
    let explained = told(&["explain", url, "--policy", "harness-only,first-agent"]);
    let other = told(&["explain", url, "--policy", "harness-only,first-web"]);
    // The files are seen by the one who looks, and by the sidecar a moment later.
    let ran = || {
        let next = Agent::new("generic").annotation("understudy.policy", "harness-only first-agent");
        next.run(&["curl", "-sS", "-w", "\nHTTP %{http_code}\n", url])
    };
    let started = until("the policy", || Ok(ran()?.text().contains("HTTP 404")));
    for file in [first, learned] {
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(check.code, Some(0), "{}", check.text());
    assert_eq!((explained.code, other.code), (Some(0), Some(2)), "{}{}", explained.text(), other.text());
    assert!(started.is_ok(), "{}", ran().unwrap().text());
}

/// A person at `podman exec -it SIDECAR understudy watch`.
struct Watcher {
    process: Child,
    shown: Arc<Mutex<String>>,
}

impl Watcher {
    fn start(container: &str) -> Self {
        let sidecar = stand().sidecar_name().unwrap();
        let command = format!("podman exec -it {sidecar} /understudy watch --container {container}");
        // script(1) gives Podman a terminal, and ends early if its own input does
        let mut process = Command::new("script")
            .args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = process.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Self { process, shown }
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    fn until(&self, what: &str) {
        let found = until(what, || Ok(self.shown().contains(what)));
        assert!(found.is_ok(), "{what:?} is not in: {}", self.shown());
    }

    fn press(&mut self, key: u8) {
        let input = self.process.stdin.as_mut().unwrap();
        input.write_all(&[key]).and_then(|()| input.flush()).unwrap();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn a_question_is_answered_by_a_key_on_a_terminal() {
    let agent = asleep(Agent::new("generic").annotation("understudy.mode", "ask"));
    let mut watcher = Watcher::start(&agent.name);
    // It shows what comes, once it runs.
    until("the watcher", || {
        agent.exec(&["curl", "-sS", "--max-time", "5", "http://192.0.2.1/"])?;
        Ok(!watcher.shown().is_empty())
    })
    .unwrap();
    for (key, host, status, verb) in [
        (b'c', "shop.example", "HTTP 404", "allow"),
        (b'o', "other.example", "HTTP 404", "allowed"),
        (b'd', "git.example", "HTTP 403", "deny"),
    ] {
        let url = format!("https://{host}/operator/asked");
        let asked = std::thread::scope(|scope| {
            let answered = scope.spawn(|| answer(&agent, &url));
            watcher.until(&format!("asks for {host}:443"));
            watcher.until(&format!("[[allow]] host = \"{host}\", port = 443"));
            let question = told(&["status"]).stdout;
            assert!(
                question.contains(&format!("question: {}: may it reach {host}:443?", agent.name)),
                "{question}"
            );
            // A key that comes sooner answers nothing.
            std::thread::sleep(Duration::from_millis(1100));
            watcher.press(key);
            watcher.until(&format!("{verb} {host}:443"));
            answered.join().unwrap()
        });
        assert!(asked.contains(status), "{asked}");
    }
    // For this container it holds on; once was once.
    assert!(answer(&agent, "https://shop.example/operator/asked").contains("HTTP 404"));
    assert!(answer(&agent, "https://git.example/operator/asked").contains("denied-by-rule"));
    let explained = told(&["explain", "other.example", "--container", &agent.name]);
    assert!(
        explained.code == Some(2) && explained.stdout.contains("waits for your answer"),
        "{}",
        explained.text()
    );
    watcher.press(b'q');
    until("the end of the watcher", || Ok(watcher.process.try_wait()?.is_some())).unwrap();
}

#[test]
fn one_container_is_revoked_and_no_other() {
    let (one, other) = (asleep(Agent::generic()), asleep(Agent::generic()));
    let url = "https://other.example/operator/revoked";
    assert!(answer(&one, url).contains("HTTP 404") && answer(&other, url).contains("HTTP 404"));
    let revoked: Value = serde_json::from_str(&done(&["revoke", &one.name, "--json"])).unwrap();
    assert_eq!(revoked, serde_json::json!({"revoked": [one.name]}));
    assert!(!answer(&one, url).contains("HTTP 404"));
    assert!(answer(&other, url).contains("HTTP 404"));
    let status: Value = serde_json::from_str(&done(&["status", "--json"])).unwrap();
    let containers = status["containers"].as_array().unwrap();
    let state = |name: &str| containers.iter().find(|c| c["name"] == name).unwrap()["state"].clone();
    assert_eq!((state(&one.name), state(&other.name)), ("revoked".into(), "attached".into()));
    assert!(
        told(&["revoke", "no-such-container"]).text().contains("no container \"no-such-container\" is known")
    );
}

/// Whose command would be the host's.
#[test]
fn notify_is_refused_in_a_container_with_what_to_use_instead() {
    stand();
    let directory = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    let text = "resolvers = [\"127.0.0.1:1\"]\nnotify = [\"/bin/true\"]\n";
    std::fs::write(directory.path().join("sidecar.toml"), text).unwrap();
    let control = directory.path().join("control");
    std::fs::create_dir(&control).unwrap();
    std::fs::set_permissions(&control, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let volume = |name: &str, at: &str| format!("--volume={}:{at}", directory.path().join(name).display());
    let outcome = podman([
        "run",
        "--rm",
        "--network=none",
        &volume("", "/etc/understudy"),
        &volume("control", "/run/understudy/control"),
        &format!("--volume={}:/var/lib/understudy", unique("state")),
        SIDECAR_IMAGE,
    ])
    .unwrap();
    assert_ne!(outcome.code, Some(0));
    let text = outcome.text();
    assert!(
        text.contains("`notify` runs a command on the host") && text.contains("`understudy watch`"),
        "{text}"
    );
}

/// Another sidecar with the same state volume.
#[test]
fn a_second_sidecar_on_one_state_volume_says_what_to_do() {
    stand();
    let directory = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    std::fs::write(directory.path().join("sidecar.toml"), "resolvers = [\"127.0.0.1:1\"]\n").unwrap();
    let outcome = podman([
        "run",
        "--rm",
        "--network=none",
        &format!("--volume={}:/etc/understudy", directory.path().display()),
        "--volume=understudy-state:/var/lib/understudy",
        SIDECAR_IMAGE,
    ])
    .unwrap();
    assert_ne!(outcome.code, Some(0));
    assert!(
        outcome.text().contains("another sidecar is running with the state directory"),
        "{}",
        outcome.text()
    );
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(told(&["health"]).code, Some(0));
}
