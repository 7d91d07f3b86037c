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
    let mut element = head(tag, parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| element.extend_from_slice(part));
    element
}

/// An element in others: of each its tag, and what stands in it before the next, the innermost first. Large content is
/// copied once, and not for each of them.
pub(super) fn nested(levels: &[(u8, &[u8])], content: &[u8]) -> Vec<u8> {
    let before = levels.iter().fold(Vec::new(), |before, (tag, first)| {
        let head = head(*tag, first.len() + before.len() + content.len());
        [head.as_slice(), first, &before].concat()
    });
    [before.as_slice(), content].concat()
}

/// Tag and length: the short form, or the number of bytes of the length and then those (X.690 8.1.3).
fn head(tag: u8, length: usize) -> Vec<u8> {
    let mut head = vec![tag];
    match length {
        short @ 0..=0x7f => head.push(short as u8),
        _ => {
            let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
            head.push(0x80 | bytes.len() as u8);
            head.extend(bytes);
        }
    }
    head
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

    #[test]
    fn what_is_nested_at_once_is_what_is_nested_one_by_one() {
        for length in [0, 0x7f, 0x80, 0xffff] {
            let content = vec![7; length];
            let one_by_one =
                element(SET, &[b"ab", &element(SEQUENCE, &[&element(OCTET_STRING, &[&content])])]);
            let levels: [(u8, &[u8]); 3] = [(OCTET_STRING, b""), (SEQUENCE, b""), (SET, b"ab")];
            assert_eq!(nested(&levels, &content), one_by_one, "{length}");
        }
    }
}
