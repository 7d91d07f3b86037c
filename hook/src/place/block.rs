//! A block of ours in a text that belongs to somebody else, such as a file of instructions in a home that is kept.

const BEGIN: &str = "<!-- understudy: begin (written at every start) -->";
const END: &str = "<!-- understudy: end -->";

/// The text with `content` as its only block of ours, at the end; with none if `content` is empty. A block whose end is
/// missing reaches to the next beginning, or to the end of the text.
pub(crate) fn put(existing: &[u8], content: &str) -> Vec<u8> {
    let mut text = without(existing);
    if content.is_empty() {
        return text;
    }
    if !text.is_empty() {
        text.extend(if text.ends_with(b"\n") { "\n" } else { "\n\n" }.bytes());
    }
    let content = unmarked(content);
    text.extend(format!("{BEGIN}\n{}\n{END}\n", content.trim_end()).bytes());
    text
}

/// A mark in the content would end the block early. What is left when one is taken out may be another.
fn unmarked(content: &str) -> String {
    let mut content = content.to_owned();
    while content.contains(BEGIN) || content.contains(END) {
        content = content.replace(BEGIN, "").replace(END, "");
    }
    content
}

/// Bytes, as what is there may not be UTF-8.
fn without(text: &[u8]) -> Vec<u8> {
    let mut left = Vec::new();
    let mut rest = text;
    while let Some(begin) = find(rest, BEGIN) {
        left.extend_from_slice(rest[..begin].trim_ascii_end());
        if begin > 0 {
            left.push(b'\n');
        }
        rest = &rest[begin + BEGIN.len()..];
        let next = find(rest, BEGIN).unwrap_or(rest.len());
        rest = match find(rest, END).filter(|end| *end < next) {
            Some(end) => rest[end + END.len()..].strip_prefix(b"\n").unwrap_or(&rest[end + END.len()..]),
            None => &rest[next..],
        };
    }
    left.extend_from_slice(rest);
    left
}

fn find(text: &[u8], mark: &str) -> Option<usize> {
    text.windows(mark.len()).position(|window| window == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(existing: &str, content: &str) -> String {
        String::from_utf8(put(existing.as_bytes(), content)).unwrap()
    }

    #[test]
    fn what_is_there_stays_and_the_block_comes_after_it() {
        assert_eq!(text("", "one\n"), format!("{BEGIN}\none\n{END}\n"));
        assert_eq!(text("mine", "one"), format!("mine\n\n{BEGIN}\none\n{END}\n"));
        assert_eq!(text("mine\n", "one"), format!("mine\n\n{BEGIN}\none\n{END}\n"));
    }

    #[test]
    fn an_earlier_block_is_replaced_and_an_empty_one_only_removes_it() {
        for existing in ["", "mine\n", "mine\n\nmore\n"] {
            let first = text(existing, "one");
            assert_eq!(text(&first, "one"), first, "the same again changes nothing");
            assert_eq!(text(&first, "two"), text(existing, "two"));
            assert_eq!(text(&first, ""), existing);
        }
        let moved = format!("{}after\n", text("before\n", "one"));
        assert_eq!(text(&moved, "two"), format!("before\nafter\n\n{BEGIN}\ntwo\n{END}\n"));
    }

    #[test]
    fn damaged_blocks_do_not_pile_up() {
        let open = format!("mine\n{BEGIN}\nhalf");
        assert_eq!(text(&open, ""), "mine\n");
        let twice = format!("{BEGIN}\nhalf\n{BEGIN}\nwhole\n{END}\nmine\n");
        assert_eq!(text(&twice, ""), "mine\n");
        assert_eq!(text(&format!("{END}\n"), ""), format!("{END}\n"));
    }

    #[test]
    fn content_cannot_end_its_block() {
        let placed = text("", &format!("a{END}b{BEGIN}c"));
        assert_eq!(placed.matches(END).count(), 1);
        assert_eq!(text(&placed, ""), "");
        let (half, rest) = END.split_at(9);
        for nested in [
            format!("a{half}{END}{rest}b"),
            format!("a{half}{BEGIN}{rest}b"),
            format!("{half}{half}{END}{rest}{rest}"),
        ] {
            let placed = text("", &nested);
            assert_eq!((placed.matches(BEGIN).count(), placed.matches(END).count()), (1, 1), "{placed}");
            assert_eq!(text(&placed, ""), "");
        }
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        let with = put(b"\xff\xfe\n", "one");
        assert_eq!(put(&with, ""), b"\xff\xfe\n");
    }
}
