//! One audit line as a person reads it.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use serde_json::Value;
use understudy_policies::is_plain;

/// Whether standard output shows colours (no-color.org).
pub fn is_coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// `12:30:01 agent allowed GET https://api.example.com/v1 200 (web.toml:3) [anthropic]`; times are UTC.
pub fn shown(line: &Value, colour: bool) -> String {
    let text = |key: &str| line.get(key).and_then(Value::as_str).map(printable);
    let number = |key: &str| line.get(key).and_then(Value::as_u64);
    let decision = text("decision").unwrap_or_default();
    let (on, off) = match (colour, decision.as_str()) {
        (false, _) => ("", ""),
        (true, "allowed") => ("\u{1b}[32m", "\u{1b}[0m"),
        (true, "denied") => ("\u{1b}[31m", "\u{1b}[0m"),
        (true, _) => ("\u{1b}[33m", "\u{1b}[0m"),
    };
    let mut shown = format!(
        "{} {} {on}{decision}{off}",
        clock(number("time").unwrap_or_default()),
        text("container").unwrap_or_default()
    );
    if let Some(method) = text("method") {
        let _ = write!(shown, " {method}");
    }
    let port = number("port").filter(|port| *port != 443).map_or(String::new(), |port| format!(":{port}"));
    let (protocol, host) = (text("protocol").unwrap_or_default(), text("host").unwrap_or_default());
    let _ = write!(shown, " {protocol}://{host}{port}{}", text("path").unwrap_or_default());
    for (key, before, after) in
        [("status", " ", ""), ("reason", " ", ""), ("rule", " (", ")"), ("detail", ": ", "")]
    {
        let value = text(key).or_else(|| number(key).map(|number| number.to_string()));
        if let Some(value) = value {
            let _ = write!(shown, "{before}{value}{after}");
        }
    }
    let secrets: Vec<String> = line
        .get("secrets")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(printable)
        .collect();
    if !secrets.is_empty() {
        let _ = write!(shown, " [{}]", secrets.join(", "));
    }
    shown
}

/// A line can come from a file that somebody else wrote.
fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if is_plain(c) { vec![c] } else { c.escape_unicode().collect() }).collect()
}

fn clock(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000 % 86400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_what_where_and_why_and_steers_no_terminal() {
        let line = serde_json::json!({
            "time": 45_001_000, "container": "agent", "decision": "denied", "protocol": "https", "host": "a.example",
            "port": 8443, "method": "GET", "path": "/x\u{1b}[2J\u{3164}", "reason": "host-not-allowed", "status": 403,
            "secrets": ["s"],
        });
        assert_eq!(
            shown(&line, false),
            "12:30:01 agent denied GET https://a.example:8443/x\\u{1b}[2J\\u{3164} 403 host-not-allowed [s]"
        );
        assert!(shown(&line, true).contains("\u{1b}[31mdenied\u{1b}[0m"));
        assert_eq!(shown(&Value::Null, false), "00:00:00   ://");
    }
}
