//! `understudy secrets` as a person reads it, and its commands.

pub mod add;
pub mod kinds;

use std::fmt::Write as _;

use understudy_control::SecretStatus;

/// A paragraph for each secret. `now` is in milliseconds since the epoch.
pub fn text(secrets: &[SecretStatus], now: u64) -> String {
    let mut text = String::new();
    for secret in secrets {
        let _ = writeln!(text, "{}", secret.name);
        let mut line = |what: &str, told: &str| {
            let _ = writeln!(text, "  {what:<15} {}", if told.is_empty() { "-" } else { told });
        };
        if let Some(problem) = &secret.problem {
            line(if secret.usable { "PROBLEM" } else { "UNUSABLE" }, problem);
        }
        line("kind", &secret.kind);
        line("source", &secret.source);
        line("hosts", &secret.hosts.join(", "));
        line("placements", &secret.placements.join(", "));
        if let Some(expires) = &secret.expires {
            line("expires", expires);
        }
        line("held by", &secret.holders.join(", "));
        line("last use", &secret.last_use.map_or_else(|| "never".to_owned(), |last| ago(now, last)));
        line("swaps", &secret.swaps.to_string());
        line("leaks blocked", &secret.leaks.to_string());
        line("agent can read", &secret.agent_can_read);
    }
    if secrets.is_empty() {
        text.push_str("no secrets are declared in secrets.toml\n");
    }
    text
}

fn ago(now: u64, then: u64) -> String {
    let seconds = now.saturating_sub(then) / 1000;
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_is_a_paragraph() {
        let secret = SecretStatus {
            name: "acme".to_owned(),
            kind: "api-key".to_owned(),
            source: "podman-secret acme".to_owned(),
            usable: true,
            problem: Some("EXPIRED on 2020-01-31".to_owned()),
            hosts: vec!["a.example".to_owned(), "*.b.example".to_owned()],
            placements: vec!["header x-api-key".to_owned()],
            expires: Some("2020-01-31".to_owned()),
            holders: Vec::new(),
            last_use: Some(1_000),
            swaps: 3,
            leaks: 1,
            agent_can_read: "nothing".to_owned(),
        };
        assert_eq!(
            text(&[secret], 601_000),
            "acme\n  PROBLEM         EXPIRED on 2020-01-31\n  kind            api-key\n  source          podman-secret acme\n  \
             hosts           a.example, *.b.example\n  placements      header x-api-key\n  expires         2020-01-31\n  \
             held by         -\n  last use        10 min ago\n  swaps           3\n  leaks blocked   1\n  agent can read  nothing\n"
        );
        assert!(text(&[], 0).contains("no secrets"));
    }
}
