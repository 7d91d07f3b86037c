//! Enough of git-config(5)'s syntax to see what a configuration would have git run or read.

use std::io;
use std::sync::Arc;

/// Settings in one file. Who may write it must not choose how much memory they take.
const MOST: usize = 20_000;

/// One assignment; section and key in lower case, as git compares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: Arc<str>,
    /// As it is written.
    pub(crate) subsection: Arc<str>,
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Entry {
    /// `core.hookspath`, `filter.lfs.clean`.
    pub(crate) fn name(&self) -> String {
        match &*self.subsection {
            "" => format!("{}.{}", self.section, self.key),
            subsection => format!("{}.{subsection}.{}", self.section, self.key),
        }
    }

    pub(crate) fn is(&self, section: &str, key: &str) -> bool {
        &*self.section == section && self.key == key
    }
}

/// What cannot be understood is passed over; git itself refuses such a file.
///
/// # Errors
/// If there are more settings than any file of a person has.
pub(crate) fn parse(text: &[u8]) -> io::Result<Vec<Entry>> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut entries = Vec::new();
    let (mut section, mut subsection): (Arc<str>, Arc<str>) = Default::default();
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        match first {
            '#' | ';' => rest = rest.split_once('\n').map_or("", |(_, rest)| rest),
            '[' => {
                let (header, after) = header(rest.get(1..).unwrap_or_default());
                (section, subsection) = (header.0.into(), header.1.into());
                rest = after;
            }
            first if first.is_whitespace() => rest = rest.get(first.len_utf8()..).unwrap_or_default(),
            _ => {
                let end = rest.find(['=', '\n', '#', ';']).unwrap_or(rest.len());
                let key = rest.get(..end).unwrap_or_default().trim().to_ascii_lowercase();
                let after = rest.get(end..).unwrap_or_default();
                let (value, after) = match after.strip_prefix('=') {
                    Some(after) => value(after),
                    None => ("true".to_owned(), after),
                };
                if entries.len() == MOST {
                    return Err(io::Error::other(format!("more than {MOST} settings")));
                }
                let (section, subsection) = (Arc::clone(&section), Arc::clone(&subsection));
                entries.push(Entry { section, subsection, key, value });
                rest = after;
            }
        }
    }
    Ok(entries)
}

/// After the bracket: `core]`, `remote "origin"]`, the old `remote.origin]`.
fn header(text: &str) -> ((String, String), &str) {
    let (mut name, mut subsection, mut quoted, mut escaped) = (String::new(), String::new(), false, false);
    for (at, c) in text.char_indices() {
        if escaped {
            subsection.push(c);
            escaped = false;
            continue;
        }
        match c {
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            c if quoted => subsection.push(c),
            ']' | '\n' => return (split(name, subsection), text.get(at + 1..).unwrap_or_default()),
            c => name.push(c),
        }
    }
    (split(name, subsection), "")
}

fn split(name: String, subsection: String) -> (String, String) {
    let name = name.trim().to_ascii_lowercase();
    match name.split_once('.') {
        Some((section, old)) if subsection.is_empty() => (section.to_owned(), old.to_owned()),
        _ => (name, subsection),
    }
}

/// After the `=`, with quotes, escapes, comments and continued lines taken care of; and what follows.
fn value(text: &str) -> (String, &str) {
    let (mut value, mut quoted) = (String::new(), false);
    // The value's length up to its last character that is not a blank out of quotes.
    let mut length = 0;
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\n' => return (cut(value, length), text.get(at + 1..).unwrap_or_default()),
            '"' => quoted = !quoted,
            '\\' => match characters.next() {
                Some((_, '\n')) | None => {}
                Some((_, escaped)) => {
                    value.push(match escaped {
                        'n' => '\n',
                        't' => '\t',
                        'b' => '\u{8}',
                        other => other,
                    });
                    length = value.len();
                }
            },
            '#' | ';' if !quoted => {
                let after =
                    text.get(at..).and_then(|rest| rest.split_once('\n')).map_or("", |(_, rest)| rest);
                return (cut(value, length), after);
            }
            c if c.is_whitespace() && !quoted && value.is_empty() => {}
            c => {
                value.push(c);
                if quoted || !c.is_whitespace() {
                    length = value.len();
                }
            }
        }
    }
    (cut(value, length), "")
}

fn cut(mut value: String, length: usize) -> String {
    value.truncate(length);
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &[u8]) -> Vec<Entry> {
        super::parse(text).unwrap()
    }

    /// One header and many settings would otherwise take as much again for each.
    #[test]
    fn a_long_header_is_kept_once_and_settings_are_so_many() {
        let header = "a".repeat(512 * 1024);
        let text = |count| format!("[{header}]\n{}", "k\n".repeat(count));
        let entries = parse(text(MOST).as_bytes());
        assert!(entries.len() == MOST && Arc::ptr_eq(&entries[0].section, &entries[MOST - 1].section));
        assert!(super::parse(text(MOST + 1).as_bytes()).is_err());
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text.as_bytes()).iter().map(|entry| (entry.name(), entry.value.clone())).collect()
    }

    #[test]
    fn what_git_reads_is_read() {
        let text = "\u{feff}# comment\n[core]\n\tHooksPath = .husky ; comment\n bare\n[filter \"l\\\"fs\"]clean=git \\\n  lfs # x\n\
                    [remote.Origin]\r\n\turl = \"a b \"#c\n[Core \"\"] fsmonitor=\"x;y\"z\n";
        let expected = [
            ("core.hookspath", ".husky"),
            ("core.bare", "true"),
            ("filter.l\"fs.clean", "git   lfs"),
            ("remote.origin.url", "a b "),
            ("core.fsmonitor", "x;yz"),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(pairs(text), expected);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }

        #[test]
        fn anything_of_its_own_alphabet_ends(text in "[\\[\\]\"\\\\#;=a.\n ]{0,60}") {
            parse(text.as_bytes());
        }
    }
}
