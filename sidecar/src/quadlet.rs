//! `understudy quadlet`: systemd units of the sidecar and of agents, filled in; docs/quadlet.md says what to do with them.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Error, Result, bail};
use clap::Subcommand;

use crate::publish::Ports;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the sidecar's `understudy.container`
    Sidecar {
        /// The sidecar's image
        #[arg(long, default_value = "localhost/understudy")]
        image: String,
        /// A Podman secret that secrets.toml names; can be repeated
        #[arg(long = "secret", value_name = "NAME")]
        secrets: Vec<String>,
        /// A port, or a range as 3000-3009, that containers may publish by; opened on 127.0.0.1 alone. sidecar.toml has to name it,
        /// too; can be repeated
        #[arg(long = "publish", value_name = "PORTS")]
        publish: Vec<String>,
    },
    /// Print an agent's unit
    Agent(Agent),
}

#[derive(Debug, clap::Args)]
pub struct Agent {
    /// The agent's own image
    image: String,
    /// As in `understudy.harness`
    #[arg(long, default_value = "generic")]
    harness: String,
    /// As in `understudy.policy`
    #[arg(long)]
    policy: Option<String>,
    /// As in `understudy.secrets`
    #[arg(long, value_name = "NAMES")]
    secrets: Option<String>,
    /// As in `understudy.publish`
    #[arg(long, value_name = "PORTS")]
    publish: Option<String>,
    /// Start it whenever the machine, or the user's own systemd, starts
    #[arg(long)]
    at_boot: bool,
    /// A directory of the host's and where the container sees it, HOST:CONTAINER; can be repeated
    #[arg(long = "volume", value_name = "HOST:CONTAINER")]
    volumes: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub fn run(command: &Command) -> Result<ExitCode> {
    print!(
        "{}",
        match command {
            Command::Sidecar { image, secrets, publish } => sidecar(image, secrets, publish)?,
            Command::Agent(agent) => self::agent(agent)?,
        }
    );
    Ok(ExitCode::SUCCESS)
}

/// One unit file; a value that could become another line or a specifier of systemd's is refused or escaped.
#[derive(Default)]
struct Unit(String);

impl Unit {
    fn section(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.0, "{gap}[{name}]");
    }

    /// As it is: ours, which may hold specifiers.
    fn line(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.0, "{key}={value}");
    }

    /// One word, systemd.syntax(7): quoted if it needs to be.
    fn word(&mut self, key: &str, value: &str) -> Result<()> {
        self.line(key, &word(value)?);
        Ok(())
    }
}

fn word(value: &str) -> Result<String> {
    if value.chars().any(char::is_control) {
        bail!("{value:?} has a character that a unit file cannot hold");
    }
    let value = value.replace('%', "%%");
    if !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "%._-/:@=,+".contains(c)) {
        return Ok(value);
    }
    Ok(format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
}

fn sidecar(image: &str, secrets: &[String], publish: &[String]) -> Result<String> {
    let mut unit = Unit::default();
    unit.section("Unit");
    unit.line("Description", "Understudy: stand-ins and a policed way out for agents");
    unit.section("Container");
    unit.line("ContainerName", "understudy");
    unit.word("Image", image)?;
    unit.line("Pull", "never");
    unit.line("Notify", "true");
    unit.line("Annotation", "understudy.role=sidecar");
    unit.line("ReadOnly", "true");
    unit.line("Tmpfs", "/run/secrets");
    unit.line("DropCapability", "all");
    unit.line("NoNewPrivileges", "true");
    for secret in secrets {
        unit.word("Secret", secret)?;
    }
    unit.line("Volume", "%E/understudy:/etc/understudy:ro");
    unit.line("Volume", "understudy-state:/var/lib/understudy");
    unit.line("Volume", "%t/understudy/control:/run/understudy/control");
    for ports in publish {
        Ports::default().add(ports).map_err(Error::msg)?;
        unit.line("PublishPort", &format!("127.0.0.1:{ports}:{ports}"));
    }
    unit.section("Service");
    unit.line("ExecStartPre", "mkdir -p -m 700 %t/understudy/control");
    unit.line("Restart", "on-failure");
    unit.section("Install");
    unit.line("WantedBy", "default.target");
    Ok(unit.0)
}

fn agent(agent: &Agent) -> Result<String> {
    let mut unit = Unit::default();
    unit.section("Unit");
    unit.line("Wants", "understudy.service");
    unit.line("After", "understudy.service");
    unit.section("Container");
    unit.word("Image", &agent.image)?;
    unit.line("Pull", "never");
    unit.line("Network", "none");
    unit.word("Annotation", &format!("understudy.harness={}", agent.harness))?;
    for (key, value) in [("policy", &agent.policy), ("secrets", &agent.secrets), ("publish", &agent.publish)]
    {
        if let Some(value) = value {
            unit.word("Annotation", &format!("understudy.{key}={value}"))?;
        }
    }
    for volume in &agent.volumes {
        unit.word("Volume", volume)?;
    }
    if !agent.command.is_empty() {
        let words: Vec<_> = agent.command.iter().map(|part| word(part)).collect::<Result<_>>()?;
        unit.line("Exec", &words.join(" "));
    }
    // It has no network to wait for.
    unit.section("Quadlet");
    unit.line("DefaultDependencies", "false");
    unit.section("Service");
    // 126 is a refusal: it would be refused again.
    unit.line("Restart", "on-failure");
    unit.line("RestartSec", "5");
    unit.line("RestartPreventExitStatus", "126");
    if agent.at_boot {
        unit.section("Install");
        unit.line("WantedBy", "default.target");
    }
    Ok(unit.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Agent {
        Agent {
            image: "localhost/my-claude".into(),
            harness: "claude-code".into(),
            policy: Some("web github-pr".into()),
            secrets: None,
            publish: Some("3000".into()),
            at_boot: false,
            volumes: vec!["/home/u/my project:/work".into()],
            command: vec!["claude".into(), "-p".into(), "say \"100%\"".into()],
        }
    }

    #[test]
    fn an_agents_unit_is_sealed_and_quoted() {
        let unit = agent(&example()).unwrap();
        for line in [
            "Wants=understudy.service",
            "Network=none",
            "Annotation=understudy.harness=claude-code",
            "Annotation=\"understudy.policy=web github-pr\"",
            "Annotation=understudy.publish=3000",
            "Volume=\"/home/u/my project:/work\"",
            "Exec=claude -p \"say \\\"100%%\\\"\"",
        ] {
            assert!(unit.lines().any(|other| other == line), "{line} in:\n{unit}");
        }
    }

    #[test]
    fn an_agent_starts_at_boot_if_told() {
        assert!(!agent(&example()).unwrap().contains("WantedBy"));
        let unit = agent(&Agent { at_boot: true, ..example() }).unwrap();
        assert!(unit.ends_with("\n[Install]\nWantedBy=default.target\n"), "{unit}");
    }

    #[test]
    fn ports_are_opened_on_loopback_alone() {
        let unit = sidecar("x", &[], &["3000-3009".into(), "8080".into()]).unwrap();
        assert!(
            unit.contains("\nPublishPort=127.0.0.1:3000-3009:3000-3009\nPublishPort=127.0.0.1:8080:8080\n"),
            "{unit}"
        );
        for not in ["0.0.0.0:1:1", "3009-3000", "3000\nNetwork=host", "", "+1"] {
            assert!(sidecar("x", &[], &[not.into()]).is_err(), "{not:?}");
        }
    }

    #[test]
    fn the_sidecars_unit_is_what_the_docs_say() {
        let unit = sidecar("localhost/understudy", &["anthropic".into()], &[]).unwrap();
        let docs = include_str!("../../docs/quadlet.md");
        for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with("Description")) {
            assert!(docs.lines().any(|other| other == line), "{line} is not in docs/quadlet.md");
        }
    }

    #[test]
    fn no_value_becomes_a_line_of_its_own() {
        let evil = Agent { image: "x\nNetwork=host".into(), ..example() };
        assert!(agent(&evil).is_err());
        assert!(sidecar("x", &["a\rb".into()], &[]).is_err());
    }
}
