//! What a refused container runs: two lines on stderr, and exit status 126, as for any command that cannot run.

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Why
    reason: String,
    /// What to do
    remedy: String,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    use std::io::Write as _;
    // A closed stderr changes nothing about the refusal.
    let _ = write!(std::io::stderr(), "{}", lines(arguments));
    ExitCode::from(126)
}

/// Printable text only: a reason can quote what an attacker wrote.
fn lines(arguments: &Arguments) -> String {
    let clean =
        |text: &str| -> String { text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect() };
    format!("understudy: refused: {}\nunderstudy: {}\n", clean(&arguments.reason), clean(&arguments.remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_two_lines_without_control_characters() {
        let arguments = Arguments { reason: "a\nb\u{1b}[2J".into(), remedy: "do that".into() };
        assert_eq!(lines(&arguments), "understudy: refused: a b [2J\nunderstudy: do that\n");
    }
}
