//! When a request was signed, and how long that is good.

/// Either way, as AWS allows it.
const SKEW: i64 = 15 * 60;
/// Of a presigned URL: AWS's own limit.
pub(crate) const LONGEST: u64 = 7 * 24 * 3600;

/// `20250131T235959Z` (ISO 8601, basic format, UTC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    text: String,
    /// Since 1970-01-01T00:00:00Z.
    seconds: i64,
}

/// Why the time of a request does not fit today's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Untimely {
    #[error("its time is more than 15 minutes from now; is the container's clock right?")]
    Skewed,
    #[error("the presigned URL has expired")]
    Expired,
}

impl Time {
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 16 || bytes.get(8) != Some(&b'T') || bytes.get(15) != Some(&b'Z') {
            return None;
        }
        let number = |from: usize, to: usize| {
            let digits = text.get(from..to)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<i64>().ok())?
        };
        let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
        let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
        let sound =
            (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60 && second < 61;
        let seconds = days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
        sound.then(|| Self { text: text.to_owned(), seconds })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Since 1970-01-01T00:00:00Z.
    pub fn seconds(&self) -> i64 {
        self.seconds
    }

    /// `now` in seconds since 1970; `expires` is how many seconds a presigned URL says that it is good for.
    pub(crate) fn check(&self, expires: Option<u64>, now: i64) -> Result<(), Untimely> {
        let age = now.saturating_sub(self.seconds);
        match expires {
            _ if age < -SKEW => Err(Untimely::Skewed),
            None if age > SKEW => Err(Untimely::Skewed),
            Some(expires) if age > i64::try_from(expires).unwrap_or(0) => Err(Untimely::Expired),
            _ => Ok(()),
        }
    }
}

/// From 1970-01-01 to a date of the Gregorian calendar, by years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_to_the_second() {
        for (text, seconds) in [
            ("19700101T000000Z", 0),
            ("20000229T000000Z", 951_782_400),
            ("20150830T123600Z", 1_440_938_160),
            ("20261130T082416Z", 1_796_027_056),
        ] {
            assert_eq!(Time::parse(text).unwrap().seconds, seconds, "{text}");
        }
        for wrong in [
            "",
            "20150830T123600",
            "20150830T123600ZZ",
            "20151330T123600Z",
            "2015083 T123600Z",
            "20150830T243600Z",
            "+0150830T123600Z",
            "2015-08-30T12:36:00Z",
            "20150832T123600Z",
        ] {
            assert_eq!(Time::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn it_is_good_for_fifteen_minutes_or_as_long_as_a_presigned_url_says() {
        let time = Time::parse("20150830T123600Z").unwrap();
        let at = |expires, after| time.check(expires, time.seconds + after);
        for after in [-900, 0, 900] {
            assert_eq!(at(None, after), Ok(()));
        }
        assert_eq!((at(None, -901), at(None, 901)), (Err(Untimely::Skewed), Err(Untimely::Skewed)));
        assert_eq!((at(Some(60), 60), at(Some(60), 61)), (Ok(()), Err(Untimely::Expired)));
        assert_eq!((at(Some(7200), 7200), at(Some(7200), -901)), (Ok(()), Err(Untimely::Skewed)));
    }
}
