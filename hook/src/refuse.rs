//! What a refused container runs: two lines on stderr, and an exit status. 126 is that of any command that cannot run;
//! 75, `EX_TEMPFAIL` of sysexits(3), tells a manager of services that another try may do.

use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Why
    reason: String,
    /// What to do
    remedy: String,
    /// It may be let in a moment later
    #[arg(long)]
    temporary: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    use std::io::Write as _;
    // A closed stderr changes nothing about the refusal.
    let _ = write!(std::io::stderr(), "{}", lines(arguments));
    ExitCode::from(if arguments.temporary { 75 } else { 126 })
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
        let reason = "a\nb\u{1b}[2J".into();
        let arguments = Arguments { reason, remedy: "do that".into(), temporary: false };
        assert_eq!(lines(&arguments), "understudy: refused: a b [2J\nunderstudy: do that\n");
    }
}
