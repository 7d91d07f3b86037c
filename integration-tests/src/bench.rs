//! `make bench`: what hook and sidecar cost, beside a direct connection and beside nginx as a TLS proxy, in one run.
//!
//! Figures of different days and machines do not compare, so every figure has its neighbour from the same rounds, and a
//! budget is a ratio of the two. Rounds are interleaved, and a ratio is the median of the rounds' ratios: other work on
//! the machine then hits both sides alike.

mod bed;
mod bulk;
mod cpu;
mod hook;
mod idle;
mod nginx;
mod policy;
mod postgres;
pub mod relay;
mod relayed;
mod report;
mod requests;
mod route;
mod samples;
pub mod sink;
mod splice;
mod ssh;

pub use idle::hold;

use anyhow::{Context, Result};

use bed::Bed;
use report::Report;

/// Rounds of every comparison; `UNDERSTUDY_BENCH_ROUNDS` changes it.
const ROUNDS: usize = 5;

/// Runs everything and prints it.
///
/// # Errors
/// If something cannot be measured. A missed budget is no error.
pub fn run() -> Result<()> {
    let rounds = match std::env::var("UNDERSTUDY_BENCH_ROUNDS") {
        Ok(text) => text.parse().context("UNDERSTUDY_BENCH_ROUNDS is not a number")?,
        Err(_) => ROUNDS,
    };
    let only = std::env::var("UNDERSTUDY_BENCH_ONLY").ok();
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only.split(',').any(|name| name == part));
    let bed = Bed::new(progress)?;
    let mut report = Report::default();
    if wanted("policy") {
        progress("policy: one decision");
        policy::measure(&mut report)?;
    }
    if wanted("idle") {
        progress("idle: memory at rest and of connections that do nothing");
        idle::measure(&bed, &mut report)?;
    }
    if wanted("hook") {
        progress("hook: CPU of each stage, and `podman run` with and without");
        hook::measure(&bed, &mut report, 2 * rounds)?;
    }
    if wanted("requests") {
        progress("requests: direct, nginx and the sidecar in turn");
        requests::measure(&bed, &mut report, rounds)?;
    }
    if wanted("bulk") {
        progress("bulk: down and up, direct, nginx and the sidecar in turn");
        bulk::measure(&bed, &mut report, rounds)?;
    }
    if wanted("splice") {
        progress("splice: a plain relay and the sidecar in turn");
        splice::measure(&bed, &mut report, rounds.div_ceil(2))?;
    }
    if wanted("ssh") {
        progress("ssh: a clone, direct and through the relay in turn");
        ssh::measure(&bed, &mut report, rounds)?;
    }
    if wanted("postgres") {
        progress("postgres: COPY both ways, direct and through the relay in turn");
        postgres::measure(&bed, &mut report, rounds.div_ceil(2))?;
    }
    report.print();
    Ok(())
}

fn progress(step: &str) {
    println!("· {step}");
}
