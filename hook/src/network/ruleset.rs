//! The nftables ruleset of a sealed container, as data from which both the text and what must be read back come.

use std::fmt::Write as _;

use super::sockets::{FamilyPorts, Ports};

/// The table's family and name.
const FAMILY: &str = "inet";
const TABLE: &str = "understudy";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ruleset {
    pub(crate) chains: Vec<Chain>,
}

/// A base chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    /// `filter` or `nat`.
    pub(crate) kind: &'static str,
    pub(crate) hook: &'static str,
    pub(crate) priority: i32,
    /// `accept` or `drop`.
    pub(crate) policy: &'static str,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    /// What a packet must be, in nft(8)'s words; empty for every packet.
    matches: &'static str,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept,
    Return,
    /// To this port of the packet's own family's loopback address.
    Redirect(u16),
    /// In nft(8)'s words.
    Reject(&'static str),
}

impl Ruleset {
    /// Everything that is not for a loopback address is redirected (TCP, DNS) or rejected at once. Nothing is exempt by
    /// user, mark or interface. In a sealed namespace every address is local, so a packet to a foreign address that
    /// passed here would reach whatever listens inside; it is therefore rejected on its way out.
    pub(crate) fn sealed(ports: Ports) -> Self {
        Self { chains: vec![divert(ports), output(), input(), forward()] }
    }

    /// One transaction that replaces an earlier table, whose connections keep no exemption.
    pub(crate) fn text(&self) -> String {
        // `add` makes sure that there is one to delete; `destroy` is too new for nftables 1.0.6.
        let mut text = format!("add table {FAMILY} {TABLE}\ndelete table {FAMILY} {TABLE}\n\n");
        let _ = writeln!(text, "table {FAMILY} {TABLE} {{");
        for chain in &self.chains {
            let Chain { name, kind, hook, priority, policy, rules } = chain;
            let _ = writeln!(text, "\tchain {name} {{");
            let _ = writeln!(text, "\t\ttype {kind} hook {hook} priority {priority}; policy {policy};");
            for rule in rules {
                let _ = writeln!(text, "\t\t{}", rule.text());
            }
            let _ = writeln!(text, "\t}}");
        }
        text.push_str("}\n");
        text
    }
}

impl Rule {
    fn text(&self) -> String {
        let verdict = match &self.verdict {
            Verdict::Accept => "accept".to_owned(),
            Verdict::Return => "return".to_owned(),
            Verdict::Redirect(port) => format!("redirect to :{port}"),
            Verdict::Reject("") => "reject".to_owned(),
            Verdict::Reject(how) => format!("reject with {how}"),
        };
        if self.matches.is_empty() { verdict } else { format!("{} {verdict}", self.matches) }
    }
}

/// DNS first: it is redirected wherever it goes, 127.0.0.1 and 127.0.0.53 included.
fn divert(Ports { v4, v6 }: Ports) -> Chain {
    let FamilyPorts { tcp, dns_udp, dns_tcp } = v4;
    Chain {
        name: "divert",
        kind: "nat",
        hook: "output",
        priority: -100,
        policy: "accept",
        rules: vec![
            rule("meta nfproto ipv4 udp dport 53", Verdict::Redirect(dns_udp)),
            rule("meta nfproto ipv6 udp dport 53", Verdict::Redirect(v6.dns_udp)),
            rule("meta nfproto ipv4 tcp dport 53", Verdict::Redirect(dns_tcp)),
            rule("meta nfproto ipv6 tcp dport 53", Verdict::Redirect(v6.dns_tcp)),
            rule("ip daddr 127.0.0.0/8", Verdict::Return),
            rule("ip6 daddr ::1", Verdict::Return),
            rule("meta nfproto ipv4 meta l4proto tcp", Verdict::Redirect(tcp)),
            rule("meta nfproto ipv6 meta l4proto tcp", Verdict::Redirect(v6.tcp)),
        ],
    }
}

fn output() -> Chain {
    Chain {
        name: "output",
        kind: "filter",
        hook: "output",
        priority: 0,
        policy: "drop",
        rules: vec![
            // Loopback, and what was redirected to it.
            rule("ip daddr 127.0.0.0/8", Verdict::Accept),
            rule("ip6 daddr ::1", Verdict::Accept),
            // Answers to it: a redirected connection has a foreign address as its source.
            rule("ct direction reply ct state established", Verdict::Accept),
            // The errors that the rejections below send.
            rule("ct state related", Verdict::Accept),
            rule("meta l4proto tcp", Verdict::Reject("tcp reset")),
            rule("", Verdict::Reject("icmpx admin-prohibited")),
        ],
    }
}

fn input() -> Chain {
    Chain {
        name: "input",
        kind: "filter",
        hook: "input",
        priority: 0,
        policy: "drop",
        rules: vec![rule("iifname \"lo\"", Verdict::Accept)],
    }
}

fn forward() -> Chain {
    Chain { name: "forward", kind: "filter", hook: "forward", priority: 0, policy: "drop", rules: Vec::new() }
}

fn rule(matches: &'static str, verdict: Verdict) -> Rule {
    Rule { matches, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_golden_file() {
        let ports = Ports {
            v4: FamilyPorts { tcp: 40001, dns_udp: 40002, dns_tcp: 40003 },
            v6: FamilyPorts { tcp: 60001, dns_udp: 60002, dns_tcp: 60003 },
        };
        assert_eq!(Ruleset::sealed(ports).text(), include_str!("golden/sealed.nft"));
    }
}
