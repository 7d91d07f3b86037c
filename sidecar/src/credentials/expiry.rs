//! When a credential stops working at its provider, as its declaration says.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use toml::value::{Date, Datetime};

/// How long before its last day one is told of it.
pub const WARNED_AHEAD: i64 = 14;

/// Days since 1970-01-01, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(i64);

/// The last day on which it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    date: Date,
    day: Day,
}

/// What there is to say of an expiry on one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// Days that are left, 0 on the last one.
    Soon(i64),
    /// It is over; the provider decides whether the credential still works, so it is still sent.
    Over,
}

impl Day {
    pub fn today() -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self(i64::try_from(seconds / 86_400).unwrap_or(i64::MAX))
    }

    /// Howard Hinnant's days_from_civil, for years from 0.
    fn of(date: Date) -> Self {
        let (month, day) = (i64::from(date.month), i64::from(date.day));
        let year = i64::from(date.year) - i64::from(month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        Self(era * 146_097 + day_of_era - 719_468)
    }
}

impl Expiry {
    /// None if it is not a date alone.
    pub fn new(written: Datetime) -> Option<Self> {
        let Datetime { date: Some(date), time: None, offset: None } = written else { return None };
        Some(Self { date, day: Day::of(date) })
    }

    pub fn notice(&self, today: Day) -> Option<Notice> {
        match self.day.0 - today.0 {
            left if left < 0 => Some(Notice::Over),
            left if left <= WARNED_AHEAD => Some(Notice::Soon(left)),
            _ => None,
        }
    }
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.date.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expiry(text: &str) -> Option<Expiry> {
        Expiry::new(text.parse().unwrap())
    }

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        for (text, days) in [
            ("1970-01-01", 0),
            ("1970-03-01", 59),
            ("2000-02-29", 11_016),
            ("2000-03-01", 11_017),
            ("2027-01-31", 20_849),
            ("2100-03-01", 47_541),
        ] {
            assert_eq!(expiry(text).unwrap().day, Day(days), "{text}");
        }
        assert!(Day::today() > Day(20_000));
    }

    #[test]
    fn it_is_told_a_fortnight_ahead_and_when_it_is_over() {
        let expiry = expiry("2027-01-31").unwrap();
        for (today, notice) in [
            (20_834, None),
            (20_835, Some(Notice::Soon(14))),
            (20_849, Some(Notice::Soon(0))),
            (20_850, Some(Notice::Over)),
        ] {
            assert_eq!(expiry.notice(Day(today)), notice, "{today}");
        }
        assert_eq!(expiry.to_string(), "2027-01-31");
    }

    #[test]
    fn only_a_date_is_one() {
        for text in ["2027-01-31T00:00:00", "2027-01-31T00:00:00Z", "07:32:00"] {
            assert_eq!(expiry(text), None, "{text}");
        }
    }
}
