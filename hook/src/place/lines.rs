//! Adds lines to a file that belongs to somebody else, such as `known_hosts`.

/// What is there stays as it is; lines of ours that are not among it come at the end.
pub(crate) fn merge(existing: &[u8], ours: &str) -> Vec<u8> {
    let mut text = existing.to_vec();
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    let is_there = |line: &&str| existing.split(|byte| *byte == b'\n').any(|other| other == line.as_bytes());
    for line in ours.lines().filter(|line| !is_there(line)) {
        text.extend(line.bytes().chain([b'\n']));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theirs_stay_and_ours_are_there_once() {
        for (existing, wanted) in [
            ("", "a 1\nb 2\n"),
            ("c 3", "c 3\na 1\nb 2\n"),
            ("b 2\nc 3\n", "b 2\nc 3\na 1\n"),
            ("a 1\nb 2\n", "a 1\nb 2\n"),
            ("a 11\n", "a 11\na 1\nb 2\n"),
        ] {
            let merged = merge(existing.as_bytes(), "a 1\nb 2\n");
            assert_eq!(String::from_utf8(merged.clone()).unwrap(), wanted, "{existing:?}");
            assert_eq!(merge(&merged, "a 1\nb 2\n"), merged);
        }
    }
}
