//! As much of DER (X.690) as writing an RSA key takes.

/// Of big-endian bytes of a number that is not negative.
pub(super) fn integer(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = number.get(zeros..).unwrap_or_default();
    // A leading one would be a sign.
    let zero = digits.first().is_none_or(|first| *first >= 0x80).then_some(0);
    let content: Vec<u8> = zero.into_iter().chain(digits.iter().copied()).collect();
    tagged(0x02, &content)
}

pub(super) fn sequence(content: &[u8]) -> Vec<u8> {
    tagged(0x30, content)
}

pub(super) fn octets(content: &[u8]) -> Vec<u8> {
    tagged(0x04, content)
}

/// A PKCS #1 private key as one of PKCS #8 (RFC 5958).
pub(super) fn pkcs8(private: &[u8]) -> Vec<u8> {
    /// rsaEncryption, and NULL.
    const RSA: [u8; 13] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    sequence(&[integer(&[0]), sequence(&RSA), octets(private)].concat())
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    if length < 0x80 {
        out.extend(u8::try_from(length));
    } else {
        let bytes = length.to_be_bytes();
        let used = bytes.get(length.leading_zeros() as usize / 8..).unwrap_or_default();
        out.extend(u8::try_from(0x80 | used.len()));
        out.extend_from_slice(used);
    }
    out.extend_from_slice(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_sign_and_lengths_are_as_short_as_they_can_be() {
        assert_eq!(integer(&[0]), [2, 1, 0]);
        assert_eq!(integer(&[0, 0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(sequence(&[7; 0x7f])[..2], [0x30, 0x7f]);
        assert_eq!(sequence(&[7; 0x80])[..3], [0x30, 0x81, 0x80]);
        assert_eq!(octets(&[7; 0x1234])[..4], [4, 0x82, 0x12, 0x34]);
    }
}
