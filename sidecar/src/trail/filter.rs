//! Which audit lines are meant.

use serde_json::Value;
use understudy_policies::{HostName, HostPattern, document};

use crate::operator::decisions::now;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct Filter {
    /// Of this container: its name, or the beginning of its id
    #[arg(long, value_name = "NAME")]
    pub container: Option<String>,
    /// About this host, or, as `*.example.com`, those below it
    #[arg(long, value_name = "HOST")]
    pub host: Option<HostPattern>,
    /// Refused and cut off ones only
    #[arg(long)]
    pub denied: bool,
    /// Of the last time only, as `10m`, `2h` or `1d`
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub since: Option<u64>,
}

impl Filter {
    pub fn matches(&self, line: &Value) -> bool {
        let text = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default();
        let container = self.container.as_deref().is_none_or(|wanted| {
            text("container") == wanted || !wanted.is_empty() && text("container-id").starts_with(wanted)
        });
        let host = self
            .host
            .as_ref()
            .is_none_or(|wanted| text("host").parse::<HostName>().is_ok_and(|host| wanted.matches(&host)));
        let denied = !self.denied || text("decision") != "allowed";
        let since = self.since.is_none_or(|seconds| {
            let time = line.get("time").and_then(Value::as_u64).unwrap_or_default();
            time >= now().saturating_sub(seconds.saturating_mul(1000))
        });
        container && host && denied && since
    }
}

/// `30s`, `10m`, `2h`, `1d`.
pub fn seconds(text: &str) -> Result<u64, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86400)];
    let found = units.iter().find_map(|(unit, length)| Some((text.strip_suffix(*unit)?, length)));
    let number = found.and_then(|(number, length)| document::number::<u64>(number)?.checked_mul(*length));
    number
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| "write a time as `30s`, `10m`, `2h` or `1d`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        for (text, expected) in
            [("30s", Some(30)), ("10m", Some(600)), ("2h", Some(7200)), ("1d", Some(86400))]
        {
            assert_eq!(seconds(text).ok(), expected);
        }
        for bad in
            ["", "m", "10", "0m", "-1m", "+1m", "1.5h", "99999999999999999999d", "18446744073709551615d"]
        {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_line_is_meant_if_all_of_it_fits() {
        let line = serde_json::json!({
            "time": now(), "container": "agent", "container-id": "0123456789ab", "host": "a.b.example", "decision": "denied",
        });
        let filter = |container: &str, host: &str, denied| Filter {
            container: Some(container.to_owned()),
            host: Some(host.parse().unwrap()),
            denied,
            since: Some(60),
        };
        assert!(filter("agent", "*.b.example", true).matches(&line));
        assert!(filter("0123", "a.b.example", false).matches(&line));
        assert!(!filter("age", "*.b.example", true).matches(&line));
        assert!(!filter("", "*.b.example", true).matches(&line));
        assert!(!filter("agent", "b.example", true).matches(&line));
        let mut allowed = line.clone();
        allowed["decision"] = "allowed".into();
        assert!(!filter("agent", "*.b.example", true).matches(&allowed));
        let mut old = line;
        old["time"] = (now() - 61_000).into();
        assert!(!filter("agent", "*.b.example", true).matches(&old));
    }
}
