//! Audit lines for a person: `understudy log` looks at those that were written, `understudy watch` at each as it comes
//! (`watch`), `understudy learn` makes a policy of them (`learn`).

pub mod filter;
pub mod learn;
pub mod line;
pub mod source;
pub mod watch;

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Result;
use understudy_control::{Reply, Request};

use filter::Filter;

/// Asks the sidecar.
pub type Call<'a> = &'a dyn Fn(Request) -> Result<Reply>;

/// Which lines are read.
#[derive(Debug, Default, clap::Args)]
pub struct From {
    /// Read audit lines from this file alone (`-`: standard input), as from `journalctl -o cat`, instead of those that the
    /// sidecar has: in the file that `sidecar.toml` names and the ones before it, or else the last ones of its run
    #[arg(long = "from", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct LogArguments {
    #[command(flatten)]
    pub filter: Filter,
    /// Print the lines as they are
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub from: From,
}

/// Prints what the filter lets through.
pub fn log(arguments: &LogArguments, call: Call<'_>) -> Result<()> {
    let colour = line::is_coloured();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let missing = source::read(arguments.from.file.as_deref(), call, |text, parsed| {
        if !arguments.filter.matches(parsed) {
            return Ok(true);
        }
        let written = match arguments.json {
            true => writeln!(out, "{text}"),
            false => writeln!(out, "{}", line::shown(parsed, colour)),
        };
        Ok(goes_on(written)?)
    })?;
    goes_on(out.flush())?;
    missing.tell();
    Ok(())
}

/// Whoever reads it may have seen enough.
fn goes_on(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}
