//! Puts lines into a file that belongs to somebody else, such as `known_hosts` or `.pgpass`, of which some clients take the
//! first that fits.

/// Ours, and then what else is there as it is.
pub(crate) fn merge(existing: &[u8], ours: &str) -> Vec<u8> {
    let mut text: Vec<u8> = ours.lines().flat_map(|line| line.bytes().chain([b'\n'])).collect();
    let is_ours = |line: &[u8]| ours.lines().any(|own| own.as_bytes() == line.trim_ascii_end());
    for line in existing.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_ours(line)) {
        text.extend_from_slice(line);
    }
    if !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_come_first_and_once_and_theirs_stay() {
        for (existing, wanted) in [
            ("", "a 1\nb 2\n"),
            ("c 3", "a 1\nb 2\nc 3\n"),
            ("b 2\nc 3\n", "a 1\nb 2\nc 3\n"),
            ("c 3\na 1\r\nb 2", "a 1\nb 2\nc 3\n"),
            ("a 1\nb 2\n", "a 1\nb 2\n"),
            ("a 11\n\n# c\n", "a 1\nb 2\na 11\n\n# c\n"),
        ] {
            let merged = merge(existing.as_bytes(), "a 1\nb 2\n");
            assert_eq!(String::from_utf8(merged.clone()).unwrap(), wanted, "{existing:?}");
            assert_eq!(merge(&merged, "a 1\nb 2\n"), merged);
        }
    }
}
