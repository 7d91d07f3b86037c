//! What one decision costs, of a policy with as many rules as nobody writes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use understudy_policies::{HostName, Policy, PolicySet, Request, Verdict};

use super::report::{Budget, Report};

const RULES: usize = 10_000;
const ROUNDS: usize = 101;
const DECISIONS: u32 = 1_000;

pub(super) fn measure(report: &mut Report) -> Result<()> {
    report.section("policy");
    let many: String = (0..RULES).map(rule).collect();
    let host = format!("a.b.h{}.example.com", RULES / 2);
    figure(report, "one decision among 10,000 rules (median)", &many, &host, "/v1/messages/1?page=2")?;
    let path = |number: usize| format!("\"/v1/p{number}/**\"");
    let asked = |paths: &str| format!("[[allow]]\nhost = \"a.example.com\"\npaths = [{paths}]\n");
    let rules: String = (0..RULES).map(|number| asked(&path(number))).collect();
    let list = asked(&(0..RULES).map(path).collect::<Vec<_>>().join(","));
    let target = format!("/v1/p{}/messages/1?page=2", RULES / 2);
    figure(report, "the same, all about one host (median)", &rules, "a.example.com", &target)?;
    figure(report, "one rule of 10,000 paths (median)", &list, "a.example.com", &target)
}

fn figure(report: &mut Report, name: &str, policy: &str, host: &str, target: &str) -> Result<()> {
    let set = PolicySet::combine(vec![Arc::new(Policy::parse("many", "many.toml", policy)?)]);
    let host: HostName = host.parse()?;
    let decide = || set.decide_request(&Request::new(&host, 443, "GET", target));
    anyhow::ensure!(matches!(decide(), Verdict::Allowed { .. }), "{:?}", decide());
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..DECISIONS {
                black_box(decide());
            }
            start.elapsed().as_secs_f64() * 1e6 / f64::from(DECISIONS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    let median = rounds.get(ROUNDS / 2).copied().context("no round")?;
    report.figure(name, median, "us", Budget::AtMost(2.0));
    Ok(())
}

fn rule(number: usize) -> String {
    let effect = if number.is_multiple_of(10) && number != RULES / 2 { "deny" } else { "allow" };
    let rest = if effect == "allow" { "methods = \"GET\"\npaths = \"/v1/**\"\n" } else { "" };
    format!("[[{effect}]]\nhost = \"*.h{number}.example.com\"\n{rest}")
}
