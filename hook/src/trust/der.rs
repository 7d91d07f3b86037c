//! As much of DER (X.690) as a name and a trust store need to be written.

pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const BMP_STRING: u8 = 0x1e;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// `[0] EXPLICIT`.
pub(super) const CONTEXT_0: u8 = 0xa0;

/// An element whose content is these parts, one after another.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut element = vec![tag];
    // the short form, or the number of bytes of the length and then those (X.690 8.1.3)
    let length = content.len().to_be_bytes();
    match content.len() {
        short @ 0..=0x7f => element.push(short as u8),
        _ => {
            let bytes: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
            element.push(0x80 | bytes.len() as u8);
            element.extend(bytes);
        }
    }
    element.extend(content);
    element
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_shortest_form() {
        for (length, head) in [
            (0, &[4, 0][..]),
            (0x7f, &[4, 0x7f]),
            (0x80, &[4, 0x81, 0x80]),
            (0xffff, &[4, 0x82, 0xff, 0xff]),
            (0x10000, &[4, 0x83, 1, 0, 0]),
        ] {
            let element = element(OCTET_STRING, &[&vec![7; length]]);
            assert!(element.starts_with(head) && element.len() == head.len() + length, "{length}");
        }
    }
}
