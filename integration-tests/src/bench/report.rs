//! The table at the end: each figure beside its budget.

use std::fmt;

/// How a figure may compare to its budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Budget {
    AtLeast(f64),
    AtMost(f64),
    /// Only shown.
    None,
}

impl Budget {
    /// A figure that could not be had (NaN) holds no budget.
    fn verdict(self, value: f64) -> &'static str {
        match self {
            Self::AtLeast(least) if value >= least => "ok",
            Self::AtMost(most) if value <= most => "ok",
            Self::None => "",
            _ => "MISS",
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least}"),
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::None => Ok(()),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Report(Vec<String>);

impl Report {
    pub(super) fn section(&mut self, title: &str) {
        self.say(String::new());
        self.say(title.to_owned());
    }

    /// `unit` is shown after the value: `x nginx`, `ms`.
    pub(super) fn figure(&mut self, what: &str, value: f64, unit: &str, budget: Budget) {
        let digits = if value.abs() >= 100.0 { 0 } else { 2 };
        let shown = format!("{value:.digits$} {unit}");
        let line = format!("{:<4} {what:<58} {shown:<22} {budget}", budget.verdict(value));
        self.say(line.trim_end().to_owned());
    }

    pub(super) fn note(&mut self, text: &str) {
        self.say(format!("     {text}"));
    }

    /// At once, so that a run that is broken off has shown what it had; and again at the end, without what lay between.
    fn say(&mut self, line: String) {
        println!("{line}");
        self.0.push(line);
    }

    pub(super) fn print(&self) {
        println!("\n=== all together");
        for line in &self.0 {
            println!("{line}");
        }
        let missed = self.0.iter().filter(|line| line.starts_with("MISS")).count();
        println!("\n{missed} budgets missed, which fails no build");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_held_or_missed() {
        for (budget, value, verdict) in [
            (Budget::AtLeast(1.0), 1.0, "ok"),
            (Budget::AtLeast(1.0), 0.99, "MISS"),
            (Budget::AtMost(50.0), 51.0, "MISS"),
            (Budget::AtMost(50.0), -3.0, "ok"),
            (Budget::AtMost(50.0), f64::NAN, "MISS"),
            (Budget::None, 3.0, ""),
        ] {
            assert_eq!(budget.verdict(value), verdict, "{value} {budget}");
        }
    }
}
