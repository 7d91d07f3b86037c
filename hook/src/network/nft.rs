//! Applies a ruleset with nft(8) and makes sure that the kernel has it.
//!
//! By its echo: once a transaction is committed, the kernel tells whoever asked with NLM_F_ECHO what it made, out of its
//! own objects, and nft prints that. A second nft that lists the table would tell the same, for another 4 ms.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::ruleset::{Chain, Ruleset, Verdict};
use crate::child;

const LIMIT: Duration = Duration::from_secs(5);

/// In the calling thread's network namespace, in one transaction.
pub(crate) fn apply(nft: &Path, ruleset: &Ruleset) -> Result<()> {
    let text = ruleset.text();
    let mut command = Command::new(nft);
    // Not on stdin: with --json nft looks for JSON there first, and what it read of a pipe is gone then.
    command.args(["--json", "--echo", &text]).env_clear().current_dir("/");
    let output = child::run(&mut command, b"", LIMIT)
        .with_context(|| format!("{} (install nftables, then run: understudy-hook doctor)", nft.display()))
        .context("the nftables rules cannot be applied")?;
    if !output.status.success() {
        bail!("the nftables rules cannot be applied: {}: {}", nft.display(), output.stderr.trim());
    }
    compare(ruleset, &output.stdout)
}

/// `made` is libnftables-json(5), an echo or a listing. Every chain with its hook, priority and policy, and every rule's
/// verdict in order; nothing more and nothing less.
pub(crate) fn compare(ruleset: &Ruleset, made: &str) -> Result<()> {
    let expected: Vec<String> = ruleset.chains.iter().flat_map(expectation).collect();
    let found = summary(made).context("what nft says that the kernel made was not understood")?;
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

/// In the form of `expectation`: chains in their order, each followed by its rules. nft tells all chains first, then the
/// rules.
fn summary(made: &str) -> Result<Vec<String>> {
    let made: Value = serde_json::from_str(made)?;
    let objects = made.get("nftables").and_then(Value::as_array).context("no \"nftables\"")?;
    let mut chains: Vec<(&str, Vec<String>)> = Vec::new();
    for object in objects {
        // In an echo each object is in the command that made it.
        let object = object.get("add").unwrap_or(object);
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
