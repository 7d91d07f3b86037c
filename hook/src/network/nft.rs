//! Applies a ruleset with nft(8) and makes sure that the kernel has it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::ruleset::{Chain, FAMILY, Ruleset, TABLE, Verdict};
use crate::child;

const LIMIT: Duration = Duration::from_secs(5);

/// In the calling thread's network namespace, in one transaction.
pub(crate) fn apply(nft: &Path, ruleset: &Ruleset) -> Result<()> {
    run(nft, &["-f", "-"], ruleset.text().as_bytes()).context("the nftables rules cannot be applied")?;
    let listing = run(nft, &["-j", "list", "table", FAMILY, TABLE], b"")
        .context("the nftables rules cannot be read back")?;
    compare(ruleset, &listing)
}

fn run(nft: &Path, arguments: &[&str], input: &[u8]) -> Result<String> {
    let mut command = Command::new(nft);
    command.args(arguments).env_clear().current_dir("/");
    let output = child::run(&mut command, input, LIMIT)
        .with_context(|| format!("{} (install nftables, then run: understudy-hook doctor)", nft.display()))?;
    if !output.status.success() {
        bail!("{} {}: {}", nft.display(), arguments.join(" "), output.stderr.trim());
    }
    Ok(output.stdout)
}

/// `listing` is libnftables-json(5). Every chain with its hook, priority and policy, and every rule's verdict in order;
/// nothing more and nothing less.
pub(crate) fn compare(ruleset: &Ruleset, listing: &str) -> Result<()> {
    let expected: Vec<String> = ruleset.chains.iter().flat_map(expectation).collect();
    let found = summary(listing).context("nft's listing was not understood")?;
    if expected != found {
        let difference = expected
            .iter()
            .map(Some)
            .chain(std::iter::repeat(None))
            .zip(found.iter().map(Some).chain(std::iter::repeat(None)))
            .take(expected.len().max(found.len()))
            .find(|(expected, found)| expected != found);
        bail!("the kernel's nftables rules are not those that were applied: {difference:?}");
    }
    Ok(())
}

fn expectation(chain: &Chain) -> Vec<String> {
    let Chain { name, kind, hook, priority, policy, rules } = chain;
    let header = format!("chain {name} {kind} {hook} {priority} {policy}");
    let verdicts = rules.iter().map(|rule| match &rule.verdict {
        Verdict::Accept => "accept".to_owned(),
        Verdict::Return => "return".to_owned(),
        Verdict::Redirect(port) => format!("redirect {port}"),
        Verdict::Reject(_) => "reject".to_owned(),
    });
    std::iter::once(header).chain(verdicts).collect()
}

/// The listing in the form of `expectation`: chains in their order, each followed by its rules. nft lists all chains
/// first, then the rules.
fn summary(listing: &str) -> Result<Vec<String>> {
    let listing: Value = serde_json::from_str(listing)?;
    let objects = listing.get("nftables").and_then(Value::as_array).context("no \"nftables\"")?;
    let mut chains: Vec<(&str, Vec<String>)> = Vec::new();
    for object in objects {
        if let Some(chain) = object.get("chain") {
            let text = |key: &str| chain.get(key).and_then(Value::as_str).unwrap_or("?");
            let priority = chain.get("prio").and_then(Value::as_i64).context("a chain without priority")?;
            let header = format!(
                "chain {} {} {} {priority} {}",
                text("name"),
                text("type"),
                text("hook"),
                text("policy")
            );
            chains.push((text("name"), vec![header]));
        } else if let Some(rule) = object.get("rule") {
            let name = rule.get("chain").and_then(Value::as_str).context("a rule without chain")?;
            let (_, lines) =
                chains.iter_mut().find(|(other, _)| *other == name).context("a rule of no chain")?;
            lines.push(verdict(rule)?);
        } else if object.get("metainfo").is_none() && object.get("table").is_none() {
            bail!("an object that is neither chain nor rule");
        }
    }
    Ok(chains.into_iter().flat_map(|(_, lines)| lines).collect())
}

/// A rule's last expression.
fn verdict(rule: &Value) -> Result<String> {
    let expressions = rule.get("expr").and_then(Value::as_array).context("a rule without \"expr\"")?;
    let (name, value) = expressions
        .last()
        .and_then(Value::as_object)
        .and_then(|last| last.iter().next())
        .context("a rule without a verdict")?;
    Ok(match value.get("port").and_then(Value::as_u64) {
        Some(port) => format!("{name} {port}"),
        None => name.clone(),
    })
}
