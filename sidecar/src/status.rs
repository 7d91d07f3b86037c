//! `understudy status` as a person reads it.

use std::fmt::Write as _;

use understudy_control::{DecisionStatus, Effect, LimitStatus, QuestionStatus, Status};

use crate::operator::decisions;

const HEAD: [&str; 10] =
    ["CONTAINER", "ID", "STATE", "HARNESS", "POLICY", "SECRETS", "OPEN", "ALLOWED", "DENIED", "TERMINATED"];

/// Columns as wide as their widest cell, then notes and problems, one line each.
pub fn table(status: &Status) -> String {
    let mut rows: Vec<[String; 10]> = vec![HEAD.map(str::to_owned)];
    for container in &status.containers {
        rows.push([
            container.name.clone().unwrap_or_else(|| "-".to_owned()),
            container.id.short().to_owned(),
            container.state.clone(),
            container.harness.clone(),
            match container.mode.as_str() {
                "deny" => container.policy.clone(),
                mode => format!("{} ({mode})", container.policy),
            },
            if container.secrets.is_empty() { "-".to_owned() } else { container.secrets.join(",") },
            container.open_connections.to_string(),
            container.allowed.to_string(),
            container.denied.to_string(),
            container.terminated.to_string(),
        ]);
    }
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = format!("understudy {}, up {} s\n", status.version, status.uptime);
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for container in &status.containers {
        let name = container.name.as_deref().unwrap_or(container.id.short());
        for note in &container.notes {
            let _ = writeln!(text, "note: {name}: {note}");
        }
        for LimitStatus { name: limit, used, most } in &container.limits {
            let unit = if limit == "max-runtime" { " s" } else { "" };
            let _ = writeln!(text, "limit: {name}: {limit}: {used} of {most}{unit}");
        }
    }
    for question in &status.questions {
        let QuestionStatus { container, host, ports, waiting, left, .. } = question;
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let port = ports.join(",");
        let _ = writeln!(
            text,
            "question: {container}: may it reach {host}:{port}? ({waiting} waiting, {left} s left)"
        );
    }
    for decision in &status.decisions {
        let gone = status.gone.contains(&decision.number);
        let mark = if gone { " (not known now; see `withdraw --gone`)" } else { "" };
        let _ = writeln!(text, "decision: {}{mark}", decided(decision));
    }
    for problem in &status.problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    text
}

/// `3: allow a.example:443 in 0123456789ab for 540 s`
pub fn decided(decision: &DecisionStatus) -> String {
    let DecisionStatus { number, effect, host, port, container, until } = decision;
    let effect = match effect {
        Effect::Allow => "allow",
        Effect::Deny => "deny",
    };
    let port = port.map_or(String::new(), |port| format!(":{port}"));
    let whom = container.as_ref().map_or("every container", |id| id.short());
    let time = match until {
        Some(until) => format!("for {} s", until.saturating_sub(decisions::now()) / 1000),
        None => "until it is taken back".to_owned(),
    };
    format!("{number}: {effect} {host}{port} in {whom} {time}")
}

#[cfg(test)]
mod tests {
    use understudy_control::ContainerStatus;

    use super::*;

    #[test]
    fn a_container_is_a_line_and_a_problem_is_another() {
        let container = ContainerStatus {
            id: "ab".repeat(32).parse().unwrap(),
            name: Some("agent".to_owned()),
            harness: "claude-code".to_owned(),
            policy: "harness-only".to_owned(),
            mode: "ask".to_owned(),
            state: "attached".to_owned(),
            secrets: vec!["anthropic".to_owned()],
            open_connections: 2,
            allowed: 30,
            denied: 4,
            terminated: 0,
            limits: vec![LimitStatus { name: "max-runtime".to_owned(), used: 61, most: 3600 }],
            notes: vec!["SSL_CERT_FILE was set".to_owned()],
        };
        let decision = DecisionStatus {
            number: 3,
            effect: Effect::Deny,
            host: "*.a.example".to_owned(),
            port: None,
            container: None,
            until: None,
        };
        let status = Status {
            version: "1".to_owned(),
            uptime: 5,
            authority_ends: 0,
            containers: vec![container],
            problems: vec!["web.toml:3: unknown key".to_owned()],
            decisions: vec![
                decision.clone(),
                DecisionStatus { number: 4, container: Some("cd".repeat(32).parse().unwrap()), ..decision },
            ],
            gone: vec![4],
            questions: vec![QuestionStatus {
                container: "agent".to_owned(),
                container_id: "ab".repeat(32).parse().unwrap(),
                host: "b.example".to_owned(),
                ports: vec![80, 443],
                waiting: 2,
                left: 40,
            }],
        };
        let text = table(&status);
        assert_eq!(
            text.lines().nth(2).unwrap(),
            "agent      abababababab  attached  claude-code  harness-only (ask)  anthropic  2     30       4       0"
        );
        assert!(
            text.contains(
                "note: agent: SSL_CERT_FILE was set\n\
                 limit: agent: max-runtime: 61 of 3600 s\n\
                 question: agent: may it reach b.example:80,443? (2 waiting, 40 s left)\n\
                 decision: 3: deny *.a.example in every container until it is taken back\n\
                 decision: 4: deny *.a.example in cdcdcdcdcdcd until it is taken back (not known now; see `withdraw --gone`)\n\
                 problem: web.toml:3: unknown key\n"
            ),
            "{text}"
        );
    }
}
