//! The nftables ruleset of a container, as data from which both the text and what must be read back come.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::mode::Mode;
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
    matches: Cow<'static, str>,
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
    pub(crate) fn of(mode: &Mode, ports: Ports) -> Self {
        match mode {
            Mode::Sealed => Self::sealed(ports),
            Mode::Guarded { inbound } => Self::guarded(ports, inbound),
        }
    }

    /// Everything that is not for a loopback address is redirected (TCP, DNS) or rejected at once. Nothing is exempt by
    /// user, mark or interface. In a sealed namespace every address is local, so a packet to a foreign address that
    /// passed here would reach whatever listens inside; it is therefore rejected on its way out.
    fn sealed(ports: Ports) -> Self {
        let own = vec![rule("ip daddr 127.0.0.0/8", Verdict::Return), rule("ip6 daddr ::1", Verdict::Return)];
        let output = vec![
            // Loopback, and what was redirected to it.
            rule("ip daddr 127.0.0.0/8", Verdict::Accept),
            rule("ip6 daddr ::1", Verdict::Accept),
            // Answers to it: a redirected connection has a foreign address as its source.
            rule(REPLIES, Verdict::Accept),
            // The errors that the rejections below send.
            rule("ct state related", Verdict::Accept),
        ];
        Self { chains: vec![divert(ports, own), out(output), input(&[]), forward()] }
    }

    /// The same where there are interfaces: local addresses are the container's own here, and Podman's port forwarder
    /// reaches them from inside. What else a packet is for, it does not leave, but as an answer to what was let in. No rule
    /// names an interface but `lo`, or an address: with a user namespace both come later.
    fn guarded(ports: Ports, inbound: &[u16]) -> Self {
        let own = vec![rule(LOCAL, Verdict::Return)];
        let output = vec![
            rule(LOCAL, Verdict::Accept),
            rule(REPLIES, Verdict::Accept),
            rule("oifname \"lo\" ct state related", Verdict::Accept),
        ];
        Self { chains: vec![divert(ports, own), out(output), input(inbound), forward()] }
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

/// Of a connection that came from elsewhere, or was redirected.
const REPLIES: &str = "ct direction reply ct state established";
/// For an address of this namespace's own.
const LOCAL: &str = "fib daddr type local";

/// DNS first: it is redirected wherever it goes, 127.0.0.1 and 127.0.0.53 included. `own` lets pass what stays here.
fn divert(Ports { v4, v6 }: Ports, own: Vec<Rule>) -> Chain {
    let FamilyPorts { tcp, dns_udp, dns_tcp } = v4;
    let dns = [
        rule("meta nfproto ipv4 udp dport 53", Verdict::Redirect(dns_udp)),
        rule("meta nfproto ipv6 udp dport 53", Verdict::Redirect(v6.dns_udp)),
        rule("meta nfproto ipv4 tcp dport 53", Verdict::Redirect(dns_tcp)),
        rule("meta nfproto ipv6 tcp dport 53", Verdict::Redirect(v6.dns_tcp)),
    ];
    let all = [
        rule("meta nfproto ipv4 meta l4proto tcp", Verdict::Redirect(tcp)),
        rule("meta nfproto ipv6 meta l4proto tcp", Verdict::Redirect(v6.tcp)),
    ];
    Chain {
        name: "divert",
        kind: "nat",
        hook: "output",
        priority: -100,
        policy: "accept",
        rules: dns.into_iter().chain(own).chain(all).collect(),
    }
}

/// What is not accepted is rejected, at once.
fn out(accepted: Vec<Rule>) -> Chain {
    let rejected = [
        rule("meta l4proto tcp", Verdict::Reject("tcp reset")),
        rule("", Verdict::Reject("icmpx admin-prohibited")),
    ];
    Chain {
        name: "output",
        kind: "filter",
        hook: "output",
        priority: 0,
        policy: "drop",
        rules: accepted.into_iter().chain(rejected).collect(),
    }
}

/// Also of connections that are known: one that this container began cannot have left it.
fn input(ports: &[u16]) -> Chain {
    let let_in = ports.iter().map(|port| rule(format!("tcp dport {port}"), Verdict::Accept));
    Chain {
        name: "input",
        kind: "filter",
        hook: "input",
        priority: 0,
        policy: "drop",
        rules: std::iter::once(rule("iifname \"lo\"", Verdict::Accept)).chain(let_in).collect(),
    }
}

fn forward() -> Chain {
    Chain { name: "forward", kind: "filter", hook: "forward", priority: 0, policy: "drop", rules: Vec::new() }
}

fn rule(matches: impl Into<Cow<'static, str>>, verdict: Verdict) -> Rule {
    Rule { matches: matches.into(), verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_are_the_golden_files() {
        let ports = Ports {
            v4: FamilyPorts { tcp: 40001, dns_udp: 40002, dns_tcp: 40003 },
            v6: FamilyPorts { tcp: 60001, dns_udp: 60002, dns_tcp: 60003 },
        };
        assert_eq!(Ruleset::of(&Mode::Sealed, ports).text(), include_str!("golden/sealed.nft"));
        let guarded = Mode::Guarded { inbound: vec![3000, 8080] };
        assert_eq!(Ruleset::of(&guarded, ports).text(), include_str!("golden/guarded.nft"));
    }
}
