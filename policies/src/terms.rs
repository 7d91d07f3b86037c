//! Under which terms a rule allows: whether an inner address may be dialled, how much may be sent, how often, and what a
//! connection may become.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{Protocol, Rule, document};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// The name may lead to a private address.
    pub private: bool,
    /// Of a request's body, in bytes.
    pub max_body: Option<u64>,
    pub rate: Option<Rate>,
    /// To what a request may have its connection switched.
    pub upgrade: Vec<Protocol>,
}

/// What a container may do in all, by all of its policies. None: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub requests: Option<u64>,
    /// Of bodies, both ways, and of what is passed through.
    pub bytes: Option<u64>,
    pub runtime: Option<Duration>,
}

impl Limits {
    /// Both hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            requests: lower(self.requests, other.requests),
            bytes: lower(self.bytes, other.bytes),
            runtime: lower(self.runtime, other.runtime),
        }
    }
}

fn lower<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// `60/m`: so many requests in a second, a minute or an hour, of one container by one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub requests: u32,
    pub per: Duration,
}

/// The terms of all rules that allow one request, taken together: one more rule never makes them narrower.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    pub private: bool,
    /// None: as much as it likes.
    pub max_body: Option<u64>,
    /// Any of these by which there is room lets it through. Empty: as often as it likes.
    pub rates: Vec<(String, Rate)>,
    /// Those of any of the rules.
    pub upgrade: Vec<Protocol>,
}

impl Given {
    /// `rules` are one at least.
    pub(crate) fn of(rules: &[&Rule]) -> Self {
        let terms = || rules.iter().map(|rule| &rule.terms);
        let rates = rules.iter().map(|rule| Some((rule.place.clone(), rule.terms.rate?)));
        Self {
            private: terms().any(|terms| terms.private),
            max_body: terms()
                .map(|terms| terms.max_body)
                .collect::<Option<Vec<_>>>()
                .and_then(|all| all.into_iter().max()),
            rates: rates.collect::<Option<Vec<_>>>().unwrap_or_default(),
            upgrade: terms().flat_map(|terms| terms.upgrade.iter().cloned()).collect(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    #[error("write a rate as requests in a second, minute or hour: `10/s`, `60/m`, `1000/h`")]
    Rate,
    #[error("write a size as bytes, or with a unit of 1024: `4096`, `64K`, `10M`, `1G`")]
    Size,
    #[error("write a time as a number of seconds, minutes, hours or days: `30s`, `10m`, `8h`, `2d`")]
    Time,
}

impl FromStr for Rate {
    type Err = TermsError;

    fn from_str(text: &str) -> Result<Self, TermsError> {
        let (requests, unit) = text.split_once('/').ok_or(TermsError::Rate)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(TermsError::Rate),
        };
        let requests = document::number(requests).filter(|requests| *requests > 0).ok_or(TermsError::Rate)?;
        Ok(Self { requests, per: Duration::from_secs(seconds) })
    }
}

/// More than nothing.
pub(crate) fn time(text: &str) -> Result<Duration, TermsError> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86400)];
    let found = units.iter().find_map(|(unit, length)| Some((text.strip_suffix(*unit)?, length)));
    let seconds = found.and_then(|(number, length)| document::number::<u64>(number)?.checked_mul(*length));
    seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or(TermsError::Time)
}

/// Bytes: `4096`, or with a unit of 1024, as `64K`.
///
/// # Errors
/// If it is written otherwise.
pub fn size(text: &str) -> Result<u64, TermsError> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'K') => (text.strip_suffix('K'), 1 << 10),
        Some(b'M') => (text.strip_suffix('M'), 1 << 20),
        Some(b'G') => (text.strip_suffix('G'), 1 << 30),
        _ => (Some(text), 1),
    };
    let number: Option<u64> = number.and_then(document::number);
    number.and_then(|number| number.checked_mul(unit)).ok_or(TermsError::Size)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            1 => "s",
            60 => "m",
            _ => "h",
        };
        write!(f, "{}/{unit}", self.requests)
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.private {
            f.write_str(", private")?;
        }
        if let Some(bytes) = self.max_body {
            write!(f, ", max-body {bytes}")?;
        }
        if let Some(rate) = self.rate {
            write!(f, ", rate {rate}")?;
        }
        self.upgrade.iter().try_for_each(|protocol| write!(f, ", upgrade {protocol}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_sizes_are_what_they_say() {
        assert_eq!("60/m".parse(), Ok(Rate { requests: 60, per: Duration::from_secs(60) }));
        for rate in ["1/s", "60/m", "1000/h"] {
            assert_eq!(rate.parse::<Rate>().unwrap().to_string(), rate);
        }
        for bad in ["", "/", "0/m", "-1/m", "+1/m", "1/d", "1.5/m", "1/m ", "99999999999/s"] {
            assert_eq!(bad.parse::<Rate>(), Err(TermsError::Rate), "{bad}");
        }
        for bad in ["", "8", "+8h", "0h", "-1s", "1w", "h"] {
            assert_eq!(time(bad), Err(TermsError::Time), "{bad}");
        }
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64K", 65536), ("10M", 10 << 20), ("1G", 1 << 30)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for bad in ["", "K", "1k", "1.5M", "1 M", "-1", "+1", "+1K", "99999999999999G"] {
            assert_eq!(size(bad), Err(TermsError::Size), "{bad}");
        }
    }
}
