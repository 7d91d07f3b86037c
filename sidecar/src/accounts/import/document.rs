//! What login files are written in, as one tree that pointers lead into. No more of YAML is read than programs write into
//! such files: what could mean something else to its program is no file that is known.

use serde_json::{Map, Value};
use understudy_policies::unique::{self, NotUnique};

use crate::credentials::catalogue::Syntax;

/// Where it stops being one: a line, from 1 on. Nothing of the file is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    Truncated(usize),
    Not(Syntax, usize),
    /// A field is there twice.
    Twice(usize),
}

pub(super) fn parse(syntax: Syntax, bytes: &[u8]) -> Result<Value, Broken> {
    match syntax {
        Syntax::Json => unique::parse(bytes).map_err(|error| match error {
            NotUnique::Truncated(line) => Broken::Truncated(line),
            NotUnique::NotJson(line) => Broken::Not(syntax, line),
            NotUnique::Twice(line) => Broken::Twice(line),
        }),
        Syntax::Yaml => yaml(text(syntax, bytes)?),
        Syntax::Env => env(text(syntax, bytes)?),
    }
}

fn text(syntax: Syntax, bytes: &[u8]) -> Result<&str, Broken> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        Broken::Not(syntax, 1 + before.iter().filter(|byte| **byte == b'\n').count())
    })
}

/// With their numbers, without those that say nothing.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim_end()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.trim_start().starts_with('#'))
}

/// A line of YAML.
struct Entry {
    number: usize,
    indent: usize,
    key: String,
    /// Null: what is below it, if anything.
    value: Value,
}

fn yaml(text: &str) -> Result<Value, Broken> {
    let lines = lines(text).filter(|(_, line)| *line != "---");
    let entries: Vec<Entry> = lines
        .map(|(number, line)| entry(number, line).ok_or(Broken::Not(Syntax::Yaml, number)))
        .collect::<Result<_, _>>()?;
    let (tree, rest) = mapping(&entries, 0)?;
    match rest.first() {
        None => Ok(tree),
        Some(entry) => Err(Broken::Not(Syntax::Yaml, entry.number)),
    }
}

fn entry(number: usize, line: &str) -> Option<Entry> {
    let written = line.trim_start_matches(' ');
    let (key, value) = written.split_once(':')?;
    let value = match value.trim_start() {
        "" | "~" | "null" => Value::Null,
        text if value.starts_with([' ', '\t']) => Value::from(scalar(text)?),
        _ => return None,
    };
    Some(Entry { number, indent: line.len() - written.len(), key: scalar(key)?, value })
}

/// A word, or one in quotes without escapes.
fn scalar(text: &str) -> Option<String> {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            let (inside, after) = rest.split_once(quote)?;
            let plain = !inside.contains('\\') && (after.is_empty() || after.trim_start().starts_with('#'));
            return plain.then(|| inside.to_owned());
        }
    }
    let text = text.split_once(" #").map_or(text, |(text, _)| text.trim_end());
    let first = text.chars().next()?;
    let plain = !"-?:,[]{}#&*!|>%@`\t".contains(first) && !text.contains(": ");
    plain.then(|| text.to_owned())
}

/// Of the lines that are `indent` deep, and what is left after them.
fn mapping(entries: &[Entry], indent: usize) -> Result<(Value, &[Entry]), Broken> {
    let (mut map, mut rest) = (Map::new(), entries);
    while let Some((first, after)) = rest.split_first().filter(|(first, _)| first.indent == indent) {
        let below = after.first().map(|next| next.indent).filter(|below| *below > indent);
        let value = match (&first.value, below) {
            (Value::Null, Some(below)) => {
                let (value, left) = mapping(after, below)?;
                rest = left;
                value
            }
            (_, Some(_)) => return Err(Broken::Not(Syntax::Yaml, first.number + 1)),
            (value, None) => {
                rest = after;
                value.clone()
            }
        };
        if map.insert(first.key.clone(), value).is_some() {
            return Err(Broken::Twice(first.number));
        }
    }
    Ok((Value::Object(map), rest))
}

/// Of several lines for one name the last counts, as for those who read such files.
fn env(text: &str) -> Result<Value, Broken> {
    let mut map = Map::new();
    for (number, line) in lines(text) {
        let broken = || Broken::Not(Syntax::Env, number);
        let line = line.trim_start();
        let (name, value) =
            line.strip_prefix("export ").unwrap_or(line).split_once('=').ok_or_else(broken)?;
        let name = name.trim();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(broken());
        }
        let value = value.trim();
        let value = if value.is_empty() { String::new() } else { scalar(value).ok_or_else(broken)? };
        map.insert(name.to_owned(), Value::from(value));
    }
    Ok(Value::Object(map))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_programs_write_is_read() {
        let yaml = "# comment\ngithub.com:\n    users:\n        me:\n            oauth_token: gho_one\n    git_protocol: https # so\n    user: \"me\"\nghe.example:\n    user:\n";
        let tree = json!({
            "github.com": { "users": { "me": { "oauth_token": "gho_one" } }, "git_protocol": "https", "user": "me" },
            "ghe.example": { "user": null },
        });
        assert_eq!(parse(Syntax::Yaml, yaml.as_bytes()), Ok(tree));
        let env = "\n# comment\nexport A='one'\nB=two\nB = \"three\" # so\nC=\n";
        assert_eq!(parse(Syntax::Env, env.as_bytes()), Ok(json!({ "A": "one", "B": "three", "C": "" })));
    }

    #[test]
    fn what_could_mean_something_else_is_not() {
        for (text, line) in [
            ("a:\n  - b: c\n", 2),
            ("a: {b: c}\n", 1),
            ("a: &x b\n", 1),
            ("a: |\n  b\n", 1),
            ("a: b\n  c: d\n", 2),
            ("  a: b\nc: d\n", 1),
            ("a:\n    b: c\n  d: e\n", 3),
            ("a:b\n", 1),
            ("\ta: b\n", 1),
            ("a: \"b\\x41\"\n", 1),
            ("<html>\n", 1),
            ("a: b\n\u{fffd}", 2),
        ] {
            assert_eq!(parse(Syntax::Yaml, text.as_bytes()), Err(Broken::Not(Syntax::Yaml, line)), "{text}");
        }
        assert_eq!(parse(Syntax::Yaml, b"a: b\n\xff"), Err(Broken::Not(Syntax::Yaml, 2)));
        for text in ["<html>\n", "A\n", "A B=c\n", "A=\"b\n", "=a\n"] {
            assert_eq!(parse(Syntax::Env, text.as_bytes()), Err(Broken::Not(Syntax::Env, 1)), "{text}");
        }
        assert_eq!(parse(Syntax::Json, b"{\n\"a\": "), Err(Broken::Truncated(2)));
        for (syntax, text) in
            [(Syntax::Yaml, "a: b\na: c\n"), (Syntax::Json, "{\"a\": {\"b\": 1,\n\"b\": 2}}")]
        {
            assert_eq!(parse(syntax, text.as_bytes()), Err(Broken::Twice(2)), "{text}");
        }
    }
}
