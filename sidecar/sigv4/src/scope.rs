//! The scope of a credential: day, region and service, to which a signing key is bound.

use std::fmt;

/// `20250131/eu-central-1/s3/aws4_request`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Eight digits.
    pub date: String,
    pub region: String,
    pub service: String,
}

/// With which every scope ends.
pub(crate) const END: &str = "aws4_request";
/// In characters: of a region or service.
const LONGEST: usize = 64;
/// Of a key's id. AWS says 128.
const LONGEST_ID: usize = 128;

impl Scope {
    /// From `ID/20250131/eu-central-1/s3/aws4_request`, with the id. An id can have slashes, the rest cannot.
    pub(crate) fn of_credential(text: &str) -> Option<(String, Self)> {
        let mut parts = text.rsplitn(5, '/');
        let end = parts.next()?;
        let (service, region, date, id) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let word = |text: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            (1..=LONGEST).contains(&text.len()) && text.bytes().all(plain)
        };
        let fits = end == END
            && word(service)
            && word(region)
            && date.len() == 8
            && date.bytes().all(|b| b.is_ascii_digit())
            && (1..=LONGEST_ID).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_graphic() && b != b',');
        let scope = Self { date: date.to_owned(), region: region.to_owned(), service: service.to_owned() };
        fits.then(|| (id.to_owned(), scope))
    }

    /// Whether the service signs payloads and paths as Amazon S3 does.
    pub fn is_s3(&self) -> bool {
        self.service == "s3" || self.service.starts_with("s3-") || self.service == "s3express"
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, region, service } = self;
        write!(f, "{date}/{region}/{service}/{END}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_an_id_and_a_scope() {
        let (id, scope) = Scope::of_credential("AK/ID/20250131/eu-central-1/s3/aws4_request").unwrap();
        assert_eq!((id.as_str(), scope.is_s3()), ("AK/ID", true));
        assert_eq!(scope.to_string(), "20250131/eu-central-1/s3/aws4_request");
        for wrong in [
            "",
            "20250131/eu-central-1/s3/aws4_request",
            "/20250131/eu-central-1/s3/aws4_request",
            "ID/2025013/eu-central-1/s3/aws4_request",
            "ID/2025013x/eu-central-1/s3/aws4_request",
            "ID/20250131//s3/aws4_request",
            "ID/20250131/eu central/s3/aws4_request",
            "ID/20250131/eu-central-1/s3/aws4_requests",
            "I,D/20250131/eu-central-1/s3/aws4_request",
            "I D/20250131/eu-central-1/s3/aws4_request",
        ] {
            assert_eq!(Scope::of_credential(wrong), None, "{wrong}");
        }
        assert!(Scope::of_credential(&format!("ID/20250131/{}/s3/aws4_request", "r".repeat(65))).is_none());
    }
}
