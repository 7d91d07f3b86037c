//! Counts for Prometheus, in its text format (OpenMetrics 1.0). Of names only what is in the configuration: what a
//! container chooses would make as many series as it likes.

pub mod port;

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use understudy_control::Status;

use crate::audit::{Decision, Entry};

/// Since the sidecar's start.
#[derive(Default)]
pub struct Metrics {
    requests: Family<Outcome, Counter>,
    bytes: Family<Direction, Counter>,
    scrubbed: Counter,
    stand_ins_in_body: Counter,
    leaks: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    protocol: &'static str,
    decision: &'static str,
    /// Empty if it was allowed.
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

impl Metrics {
    pub fn count(&self, entry: &Entry) {
        let decision = match entry.decision {
            Decision::Allowed => "allowed",
            Decision::Denied => "denied",
            Decision::Terminated => "terminated",
        };
        let reason = entry.reason.map_or("", crate::reason::Reason::code);
        let outcome = Outcome { protocol: entry.protocol, decision, reason };
        self.requests.get_or_create(&outcome).inc();
        self.bytes.get_or_create(&Direction { direction: "up" }).inc_by(entry.bytes_up);
        self.bytes.get_or_create(&Direction { direction: "down" }).inc_by(entry.bytes_down);
        self.scrubbed.inc_by(entry.scrubbed);
        self.stand_ins_in_body.inc_by(entry.stand_ins_in_body);
        self.leaks.inc_by(u64::from(entry.reason.is_some_and(crate::reason::Reason::is_leak)));
    }

    /// With what `status` knows, and how many audit lines were lost.
    pub fn text(&self, status: &Status, lost: u64) -> String {
        let mut registry = Registry::with_prefix("understudy");
        registry.register("requests", "Audit lines, by how they ended", self.requests.clone());
        registry.register("bytes", "Bytes of bodies, and of what was passed through", self.bytes.clone());
        registry.register(
            "scrubbed",
            "Real values that came back, and left as stand-ins",
            self.scrubbed.clone(),
        );
        registry.register(
            "stand_ins_in_body",
            "Stand-ins in bodies, where they are harmless",
            self.stand_ins_in_body.clone(),
        );
        registry.register("leaks", "Requests that were refused for a credential in them", self.leaks.clone());
        let lines_lost = Counter::<u64>::default();
        lines_lost.inc_by(lost);
        registry.register("audit_lost", "Audit lines that could not be written", lines_lost);
        let open: u64 = status.containers.iter().map(|container| container.open_connections).sum();
        for (name, help, value) in [
            ("containers", "Containers that are known", status.containers.len() as u64),
            ("open_connections", "Connections of containers that are open", open),
            ("questions", "Questions that wait for the operator", status.questions.len() as u64),
            ("decisions", "Decisions of the operator that are in force", status.decisions.len() as u64),
            (
                "authority_ends_seconds",
                "When the certificate authority ends that containers are given, since the epoch",
                status.authority_ends / 1000,
            ),
            ("problems", "Problems and warnings of the configuration", status.problems.len() as u64),
        ] {
            let gauge = Gauge::<u64, AtomicU64>::default();
            gauge.set(value);
            registry.register(name, help, gauge);
        }
        let mut text = String::new();
        // Writing into a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    #[test]
    fn lines_are_counted_by_how_they_ended() {
        let metrics = Metrics::default();
        let mut entry = Entry::sample();
        (entry.decision, entry.bytes_up) = (Decision::Allowed, 5);
        metrics.count(&entry);
        (entry.decision, entry.reason) = (Decision::Denied, Some(Reason::RealCredential));
        metrics.count(&entry);
        metrics.count(&entry);
        let status = Status {
            version: "1".to_owned(),
            uptime: 1,
            authority_ends: 1_900_000_000_000,
            containers: Vec::new(),
            problems: vec!["a".to_owned()],
            decisions: Vec::new(),
            gone: Vec::new(),
            questions: Vec::new(),
        };
        let text = metrics.text(&status, 3);
        for line in [
            "understudy_audit_lost_total 3\n",
            "understudy_requests_total{protocol=\"https\",decision=\"allowed\",reason=\"\"} 1\n",
            "understudy_requests_total{protocol=\"https\",decision=\"denied\",reason=\"real-credential\"} 2\n",
            "understudy_bytes_total{direction=\"up\"} 15\n",
            "understudy_leaks_total 2\n",
            "understudy_problems 1\n",
            "# EOF\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn the_documentation_has_each_of_them_and_no_other() {
        let documentation = include_str!("../../docs/audit.md");
        let table = documentation.split("| metric | |").nth(1).unwrap().split("\n\n").next().unwrap();
        // Without labels, and as in `# TYPE`: without the suffix of a counter.
        let name = |text: &str| {
            let name = text.split('{').next().unwrap();
            name.strip_suffix("_total").unwrap_or(name).to_owned()
        };
        let documented: std::collections::BTreeSet<String> = table
            .lines()
            .filter_map(|row| row.strip_prefix("| ")?.split(" | ").next())
            .flat_map(|names| names.split(", ").map(|text| name(text.trim_matches('`'))))
            .filter(|name| name.starts_with("understudy_"))
            .collect();
        let status = Status {
            version: "1".to_owned(),
            uptime: 1,
            authority_ends: 1_900_000_000_000,
            containers: Vec::new(),
            problems: Vec::new(),
            decisions: Vec::new(),
            gone: Vec::new(),
            questions: Vec::new(),
        };
        // A count with labels is told from the first line on.
        let metrics = Metrics::default();
        metrics.count(&Entry::sample());
        let text = metrics.text(&status, 0);
        let told = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        assert_eq!(documented, told.map(str::to_owned).collect());
    }
}
