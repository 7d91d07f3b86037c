//! The name under which OpenSSL looks for an authority in a directory of certificates (openssl-rehash(1)).

use anyhow::{Context as _, Result, bail};
use ring::digest;
use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::certificate::X509Certificate;

use super::der::{SEQUENCE, SET, UTF8_STRING, element};

/// Eight hexadecimal digits: the first four bytes, the last one first, of the SHA-1 of the subject in the form in which
/// OpenSSL compares names (`X509_NAME_hash_ex(3)`, `i2d_X509_NAME` of the canonical encoding): every text a UTF8String in
/// ASCII lower case, without white space at its ends and with one space for many inside; the sets one after another, without
/// the sequence around them.
///
/// # Errors
/// For texts in an encoding that our authorities do not use.
pub(super) fn subject_hash(certificate: &X509Certificate<'_>) -> Result<String> {
    let mut canonical = Vec::new();
    for set in certificate.subject().iter() {
        let mut attributes = set
            .iter()
            .map(|attribute| {
                let name = element(0x06, &[attribute.attr_type().as_bytes()]);
                Ok(element(SEQUENCE, &[&name, &text(attribute.attr_value())?]))
            })
            .collect::<Result<Vec<_>>>()?;
        // a set's elements are sorted by their encoding (X.690 11.6), which changed
        attributes.sort();
        canonical.extend(element(SET, &[&attributes.concat()]));
    }
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &canonical);
    let first = digest.as_ref().first_chunk::<4>().context("a digest of less than four bytes")?;
    Ok(format!("{:08x}", u32::from_le_bytes(*first)))
}

fn text(value: &Any<'_>) -> Result<Vec<u8>> {
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::VisibleString => {}
        other => bail!("the subject of the authority has a text of type {other}, which is not handled"),
    }
    let text = std::str::from_utf8(value.data).context("the subject of the authority is not UTF-8")?;
    // isspace(3) of the C locale, not what Unicode calls white space
    let words = text.split(|c: char| c.is_ascii_whitespace() || c == '\x0b').filter(|word| !word.is_empty());
    let text = words.collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    Ok(element(UTF8_STRING, &[text.as_bytes()]))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    use x509_parser::parse_x509_certificate;

    use super::*;

    fn hash(attributes: &[(DnType, DnValue)]) -> Result<String> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            parameters.distinguished_name.push(kind.clone(), value.clone());
        }
        let certificate = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
        subject_hash(&parse_x509_certificate(certificate.der()).unwrap().1)
    }

    fn utf8(text: &str) -> DnValue {
        DnValue::Utf8String(text.into())
    }

    fn printable(text: &str) -> DnValue {
        DnValue::PrintableString(text.try_into().unwrap())
    }

    /// What `openssl x509 -noout -subject_hash` (3.0.19) says of such subjects.
    #[test]
    fn known_answers() {
        let ours = [(DnType::CommonName, utf8("Understudy 0123456789abcdef"))];
        let long = [
            (DnType::CountryName, printable("DE")),
            (DnType::OrganizationName, utf8("  Some   Thing ")),
            (DnType::CommonName, utf8("Träger ÄÖ Root")),
        ];
        assert_eq!(hash(&ours).unwrap(), "38752782");
        assert_eq!(hash(&long).unwrap(), "01469eee");
        assert_eq!(hash(&[]).unwrap(), "eea339da");
    }

    #[test]
    fn letter_case_spaces_and_the_kind_of_text_play_no_part() {
        let plain = hash(&[(DnType::CommonName, utf8("understudy 1a2b"))]).unwrap();
        for other in
            [utf8("Understudy 1A2B"), utf8("  understudy \t\x0b 1a2b\n"), printable("Understudy 1a2b")]
        {
            assert_eq!(hash(&[(DnType::CommonName, other)]).unwrap(), plain);
        }
        // only ASCII is folded
        assert_ne!(
            hash(&[(DnType::CommonName, utf8("É"))]).unwrap(),
            hash(&[(DnType::CommonName, utf8("é"))]).unwrap()
        );
    }

    #[test]
    fn a_text_of_another_kind_is_an_error() {
        let bmp = DnValue::BmpString("name".try_into().unwrap());
        assert!(hash(&[(DnType::CommonName, bmp)]).unwrap_err().to_string().contains("not handled"));
    }
}
