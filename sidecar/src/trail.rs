//! Audit lines for a person: `understudy log` looks at those that were written, `understudy watch` at each as it comes
//! (`watch`), `understudy learn` makes a policy of them (`learn`).

pub mod filter;
pub mod learn;
pub mod line;
pub mod watch;

use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use understudy_control::{Lines, Reply, Request};

use filter::Filter;

/// Asks the sidecar.
pub type Call<'a> = &'a dyn Fn(Request) -> Result<Reply>;

#[derive(Debug, clap::Args)]
pub struct LogArguments {
    #[command(flatten)]
    pub filter: Filter,
    /// Print the lines as they are
    #[arg(long)]
    pub json: bool,
    /// Read audit lines from a file (`-`: standard input), as from `journalctl -o cat`, instead of the last ones of this run
    /// of the sidecar
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
}

/// Prints what the filter lets through.
pub fn log(arguments: &LogArguments, call: Call<'_>) -> Result<()> {
    let colour = line::is_coloured();
    let lines = match &arguments.from {
        Some(path) => of_file(path)?,
        None => kept(call)?,
    };
    for text in lines {
        let Ok(parsed) = serde_json::from_str::<Value>(&text) else { continue };
        if arguments.filter.matches(&parsed) {
            match arguments.json {
                true => println!("{text}"),
                false => println!("{}", line::shown(&parsed, colour)),
            }
        }
    }
    Ok(())
}

/// All lines that the sidecar still has.
pub fn kept(call: Call<'_>) -> Result<Vec<String>> {
    let (mut from, mut all) = (0, Vec::new());
    loop {
        let Lines { lines, next, lost, more } = since(call, from)?;
        if lost > 0 {
            eprintln!(
                "understudy: the first {lost} lines of this run are not kept; `--from` reads them from a file"
            );
        }
        all.extend(lines);
        from = next;
        if !more {
            return Ok(all);
        }
    }
}

fn since(call: Call<'_>, from: u64) -> Result<Lines> {
    match call(Request::Lines { from })? {
        Reply::Lines(lines) => Ok(lines),
        _ => bail!("the sidecar answered another question"),
    }
}

fn of_file(path: &Path) -> Result<Vec<String>> {
    let read: Box<dyn std::io::BufRead> = match path.to_str() {
        Some("-") => Box::new(std::io::stdin().lock()),
        _ => Box::new(std::io::BufReader::new(
            std::fs::File::open(path).with_context(|| path.display().to_string())?,
        )),
    };
    // One that was torn may end within a character, and hides no other.
    let lines = read.split(b'\n').map(|line| line.map(|line| String::from_utf8_lossy(&line).into_owned()));
    lines.collect::<Result<_, _>>().with_context(|| path.display().to_string())
}
