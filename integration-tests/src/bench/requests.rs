//! Small requests on kept-alive connections: how many, how fast, and what they cost.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::bed::Bed;
use super::cpu;
use super::report::{Budget, Report};
use super::route::Route;
use super::samples::Samples;

/// Seconds of one measurement.
const SECONDS: &str = "2";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Client {
    /// wrk, 32 connections.
    Http1,
    /// wrk, one connection.
    Alone,
    /// h2load, 8 connections with 16 streams each.
    Http2,
}

#[derive(Debug, Default)]
struct Figures {
    per_second: Samples,
    /// Microseconds.
    p50: Samples,
    p99: Samples,
    /// CPU microseconds of what is in the middle, for each request.
    cost: Samples,
}

pub(super) fn measure(bed: &Bed, report: &mut Report, rounds: usize) -> Result<()> {
    let mut all: BTreeMap<(Client, Route), Figures> = BTreeMap::new();
    for round in 0..rounds {
        for client in [Client::Http1, Client::Alone, Client::Http2] {
            for route in Route::turn(round) {
                let run = run(bed, client, route)?;
                let figures = all.entry((client, route)).or_default();
                figures.per_second.push(run.per_second);
                figures.p50.push(run.p50);
                figures.p99.push(run.p99);
                figures.cost.push(run.cost);
            }
        }
    }
    for (client, title) in [
        (Client::Http1, "HTTP/1.1, 32 connections (wrk)"),
        (Client::Alone, "HTTP/1.1, 1 connection (wrk)"),
        (Client::Http2, "HTTP/2, 8 connections x 16 streams (h2load; nginx speaks HTTP/1.1 upstream)"),
    ] {
        report.section(title);
        tell(report, client, &all)?;
    }
    Ok(())
}

fn tell(report: &mut Report, client: Client, all: &BTreeMap<(Client, Route), Figures>) -> Result<()> {
    let of = |route| all.get(&(client, route)).context("nothing was measured");
    for route in Route::ALL {
        let figures = of(route)?;
        let mut line = format!("{:<17} {:>7.0} requests/s", route.name(), figures.per_second.median());
        if client != Client::Http2 {
            line += &format!("  p50 {:>6.0} us  p99 {:>6.0} us", figures.p50.median(), figures.p99.median());
        }
        if route != Route::Direct {
            line += &format!("  {:>5.1} us of CPU each", figures.cost.median());
        }
        report.note(&line);
    }
    let nginx = of(Route::Nginx)?;
    for route in [Route::Sidecar, Route::Swap] {
        let figures = of(route)?;
        let name = route.name();
        if client == Client::Alone {
            let added = figures.p50.difference(&nginx.p50);
            report.figure(&format!("{name}: p50 more than nginx"), added, "us", Budget::AtMost(50.0));
            let p99 = figures.p99.difference(&nginx.p99);
            report.figure(&format!("{name}: p99 more than nginx"), p99, "us", Budget::None);
            continue;
        }
        let rate = figures.per_second.ratio(&nginx.per_second);
        report.figure(&format!("{name}: requests per second"), rate, "x nginx", Budget::AtLeast(1.0));
        let cost = figures.cost.ratio(&nginx.cost);
        report.figure(&format!("{name}: CPU per request"), cost, "x nginx", Budget::AtMost(1.0));
        let direct = figures.per_second.ratio(&of(Route::Direct)?.per_second);
        report.figure(&format!("{name}: requests per second"), direct, "x direct", Budget::None);
    }
    Ok(())
}

struct Run {
    requests: f64,
    per_second: f64,
    p50: f64,
    p99: f64,
    cost: f64,
}

fn run(bed: &Bed, client: Client, route: Route) -> Result<Run> {
    let url = route.url("small");
    let key = format!("x-api-key: {}", bed.stand_in);
    let header: &[&str] = if route.swaps() { &["-H", &key] } else { &[] };
    let tool: &[&str] = match client {
        Client::Http1 => &["wrk", "--latency", "-t", "1", "-c", "32", "-d", SECONDS],
        Client::Alone => &["wrk", "--latency", "-t", "1", "-c", "1", "-d", SECONDS],
        Client::Http2 => &["h2load", "-t", "1", "-c", "8", "-m", "16", "-D", SECONDS],
    };
    let middle = bed.middle(route)?;
    let before = cpu::seconds_of_all(&middle)?;
    let output = bed.client(route, &[tool, header, &[&url]].concat())?;
    let used = cpu::seconds_of_all(&middle)? - before;
    let parse = if client == Client::Http2 { h2load } else { wrk };
    let mut run = parse(&output).with_context(|| format!("{client:?} {route:?}\n{output}"))?;
    run.cost = used * 1e6 / run.requests;
    Ok(run)
}

/// Of wrk's output.
pub(super) fn per_second(output: &str) -> Result<f64> {
    Ok(wrk(output).with_context(|| output.to_owned())?.per_second)
}

fn wrk(output: &str) -> Result<Run> {
    ensure!(!output.contains("Non-2xx"), "not every answer was 2xx");
    ensure!(!output.contains("Socket errors"), "connections broke");
    let after = |start: &str| {
        output
            .lines()
            .find_map(|line| line.trim().strip_prefix(start))
            .map(str::trim)
            .context("a line is missing")
    };
    let requests =
        output.lines().find_map(|line| line.trim().split_once(" requests in ")).context("requests")?;
    Ok(Run {
        requests: requests.0.parse()?,
        per_second: after("Requests/sec:")?.parse()?,
        p50: microseconds(after("50%")?)?,
        p99: microseconds(after("99%")?)?,
        cost: 0.0,
    })
}

/// `417.00us`, `1.44ms`, `1.02s`.
fn microseconds(text: &str) -> Result<f64> {
    for (unit, factor) in [("us", 1.0), ("ms", 1e3), ("s", 1e6)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Ok(number.parse::<f64>()? * factor);
        }
    }
    anyhow::bail!("no time: {text}")
}

/// `requests: 90 total, 95 started, 90 done, 90 succeeded, 0 failed, 0 errored, 0 timeout`, after
/// `finished in 3.00s, 30.00 req/s, 1MB/s`.
fn h2load(output: &str) -> Result<Run> {
    let line =
        |start: &str| output.lines().find_map(|line| line.strip_prefix(start)).context("a line is missing");
    let counts = line("requests:")?;
    let count = |name: &str| -> Result<f64> {
        let part = counts
            .split(',')
            .find_map(|part| part.trim().strip_suffix(name))
            .context("a count is missing")?;
        Ok(part.trim().parse()?)
    };
    ensure!(count("failed")? == 0.0 && count("errored")? == 0.0, "requests failed");
    let per_second =
        line("finished in ")?.split(',').nth(1).and_then(|part| part.trim().strip_suffix("req/s"));
    let status = line("status codes:")?;
    ensure!(status.contains(" 0 3xx, 0 4xx, 0 5xx"), "not every answer was 2xx");
    Ok(Run {
        requests: count("succeeded")?,
        per_second: per_second.context("no rate")?.trim().parse()?,
        p50: f64::NAN,
        p99: f64::NAN,
        cost: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRK: &str = "Running 3s test @ https://a/\n  Latency Distribution\n     50%    1.44ms\n     99%  890.00us\n  \
                       300 requests in 3.00s, 1.00MB read\nRequests/sec:    100.50\n";
    const H2LOAD: &str = "finished in 3.00s, 30.50 req/s, 1.00MB/s\n\
                          requests: 90 total, 95 started, 90 done, 89 succeeded, 0 failed, 0 errored, 0 timeout\n\
                          status codes: 90 2xx, 0 3xx, 0 4xx, 0 5xx\n";

    #[test]
    fn what_the_tools_print_is_read() {
        let run = wrk(WRK).unwrap();
        assert_eq!((run.requests, run.per_second, run.p50, run.p99), (300.0, 100.5, 1440.0, 890.0));
        let run = h2load(H2LOAD).unwrap();
        assert_eq!((run.requests, run.per_second), (89.0, 30.5));
    }

    #[test]
    fn answers_that_are_refusals_are_no_measurement() {
        assert!(wrk(&format!("{WRK}  Non-2xx or 3xx responses: 300\n")).is_err());
        assert!(h2load(&H2LOAD.replace("0 4xx", "9 4xx")).is_err());
        assert!(h2load(&H2LOAD.replace("0 failed", "1 failed")).is_err());
    }
}
