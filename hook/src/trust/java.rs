//! A trust store for Java: PKCS #12 (RFC 7292) with certificates alone.
//!
//! Nothing in it is secret, so it is neither encrypted nor signed with a password: Java (17 was tried) opens it with any
//! password and with none, whatever `javax.net.ssl.trustStorePassword` says.

use super::der::{BMP_STRING, CONTEXT_0, OCTET_STRING, SEQUENCE, SET, element, nested};

/// 1.2.840.113549.1.7.1, `data` of PKCS #7.
const DATA: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
/// 1.2.840.113549.1.12.10.1.3, `certBag`.
const CERT_BAG: &[u8] = &[0x06, 11, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 12, 10, 1, 3];
/// 1.2.840.113549.1.9.22.1, `x509Certificate`.
const X509: &[u8] = &[0x06, 10, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 22, 1];
/// 1.2.840.113549.1.9.20, `friendlyName`.
const FRIENDLY_NAME: &[u8] = &[0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 20];
/// 2.16.840.1.113894.746875.1.1, `trustedKeyUsage` of Oracle: without it a certificate is no anchor for Java.
const TRUSTED_KEY_USAGE: &[u8] = &[0x06, 12, 0x60, 0x86, 0x48, 1, 0x86, 0xf9, 0x66, 0xad, 0xca, 0x7b, 1, 1];
/// 2.5.29.37.0, `anyExtendedKeyUsage` (RFC 5280 4.2.1.12).
const ANY_USAGE: &[u8] = &[0x06, 4, 0x55, 0x1d, 0x25, 0];
/// The version of a PFX.
const THREE: &[u8] = &[0x02, 1, 3];

/// A store that trusts these certificates (DER); they are called by their number.
pub(super) fn trust_store(certificates: &[&[u8]]) -> Vec<u8> {
    let bags: Vec<Vec<u8>> = certificates.iter().enumerate().map(|(number, der)| bag(number, der)).collect();
    // Twice a ContentInfo of PKCS #7, around the list of bags and around the list of that one.
    let content_info: [(u8, &[u8]); 3] = [(OCTET_STRING, &[]), (CONTEXT_0, &[]), (SEQUENCE, DATA)];
    let list: [(u8, &[u8]); 1] = [(SEQUENCE, &[])];
    let store: [(u8, &[u8]); 1] = [(SEQUENCE, THREE)];
    nested(&[&list[..], &content_info, &list, &content_info, &store].concat(), &bags.concat())
}

fn bag(number: usize, certificate: &[u8]) -> Vec<u8> {
    let value = element(CONTEXT_0, &[&element(OCTET_STRING, &[certificate])]);
    let value = element(CONTEXT_0, &[&element(SEQUENCE, &[X509, &value])]);
    let name: Vec<u8> = number.to_string().encode_utf16().flat_map(u16::to_be_bytes).collect();
    let name = attribute(FRIENDLY_NAME, &element(BMP_STRING, &[&name]));
    let usage = attribute(TRUSTED_KEY_USAGE, ANY_USAGE);
    element(SEQUENCE, &[CERT_BAG, &value, &element(SET, &[&name, &usage])])
}

fn attribute(kind: &[u8], value: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[kind, &element(SET, &[value])])
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// `keytool -list` and `openssl pkcs12 -nokeys -nomacver` read such; the tests with Podman have Java itself use one.
    #[test]
    fn a_store_has_the_bytes_that_java_was_seen_to_read() {
        let wanted = "MIHXAgEDMIHRBgkqhkiG9w0BBwGggcMEgcAwgb0wgboGCSqGSIb3DQEHAaCBrASBqTCBpjBRBgsqhkiG9w0BDAoBA6AVMBMG\
                      CiqGSIb3DQEJFgGgBQQDb25lMSswEQYJKoZIhvcNAQkUMQQeAgAwMBYGDGCGSAGG+WatynsBATEGBgRVHSUAMFEGCyqGSIb3\
                      DQEMCgEDoBUwEwYKKoZIhvcNAQkWAaAFBAN0d28xKzARBgkqhkiG9w0BCRQxBB4CADEwFgYMYIZIAYb5Zq3KewEBMQYGBFUd\
                      JQA=";
        assert_eq!(STANDARD.encode(trust_store(&[b"one", b"two"])), wanted);
    }

    #[test]
    fn a_store_of_many_holds_each_whole() {
        let certificates: Vec<Vec<u8>> = (0..300).map(|number| vec![number as u8; 700 + number]).collect();
        let store = trust_store(&certificates.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for certificate in &certificates {
            let bag = element(OCTET_STRING, &[certificate]);
            assert!(store.windows(bag.len()).any(|window| window == bag), "{}", certificate.len());
        }
    }
}
