//! The strings of a TOML document with the keys that lead to them and their lines.

use std::rc::Rc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys that lead to what a package manager means; what lies deeper is passed over.
const DEEPEST: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// From the root; items of a list have their list's key.
    pub(super) keys: Rc<[String]>,
    pub(super) value: String,
    pub(super) line: usize,
}

impl Value {
    /// Whether the keys are these; `*` is any one of them.
    pub(super) fn is_at(&self, keys: &[&str]) -> bool {
        self.keys.len() == keys.len() && self.keys.iter().zip(keys).all(|(key, of)| *of == "*" || key == of)
    }
}

/// In the order of the text. The parser limits how deep tables can be.
pub(super) fn values(text: &str) -> Result<Vec<Value>, (usize, String)> {
    let newlines: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |at: usize| newlines.partition_point(|newline| *newline < at) + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (
            line(at),
            format!("not TOML, or nested too deep: {}", error.message().lines().next().unwrap_or_default()),
        )
    })?;
    let mut found = Vec::new();
    table_into(table.get_ref(), &mut Vec::new(), &mut found);
    found.sort_by_key(|(at, _, _)| *at);
    Ok(found.into_iter().map(|(at, keys, value)| Value { keys, value, line: line(at) }).collect())
}

type Raw = (usize, Rc<[String]>, String);

fn table_into(table: &DeTable<'_>, keys: &mut Vec<String>, found: &mut Vec<Raw>) {
    for (key, value) in table.iter() {
        if keys.len() == DEEPEST {
            return;
        }
        keys.push(key.get_ref().to_string());
        value_into(value, keys, &mut None, found);
        keys.pop();
    }
}

/// `shared` are the keys, once a string has them: the items of a list have the same.
fn value_into(
    value: &Spanned<DeValue<'_>>,
    keys: &mut Vec<String>,
    shared: &mut Option<Rc<[String]>>,
    found: &mut Vec<Raw>,
) {
    match value.get_ref() {
        DeValue::String(text) => {
            let keys = shared.get_or_insert_with(|| Rc::from(keys.as_slice()));
            found.push((value.span().start, Rc::clone(keys), text.to_string()));
        }
        DeValue::Array(items) => items.iter().for_each(|item| value_into(item, keys, shared, found)),
        DeValue::Table(table) => table_into(table, keys, found),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_their_keys_and_lines() {
        let text = "a = \"x\"\n[[p]]\nb.c = [\n \"y\"]\n[[p]]\ns = { u = \"z\", n = 1 }\n";
        let found = values(text).unwrap();
        assert!(
            found[0].is_at(&["a"]) && found[1].is_at(&["p", "b", "*"]) && found[2].is_at(&["p", "s", "u"])
        );
        assert_eq!(found.iter().map(|value| value.line).collect::<Vec<_>>(), [1, 4, 6]);
        assert!(!found[2].is_at(&["p", "s"]));
    }

    #[test]
    fn what_is_no_toml_or_too_deep_is_an_error_with_its_line() {
        assert_eq!(values("a = 1\nb = ").unwrap_err().0, 2);
        assert!(values(&format!("a = {}", "[".repeat(100_000))).unwrap_err().1.starts_with("not TOML"));
    }
}
