//! Fills TOML documents: what one says stays as a person wrote it, and what it does not say is added.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Key, Table, TableLike, TomlError};

/// A key that stands for the container's working directory.
const DIRECTORY: &str = "{directory}";

#[derive(Debug, thiserror::Error)]
pub(crate) enum FillError {
    #[error("what is there is not UTF-8 (mend or remove the file)")]
    NotText,
    #[error("what is there is not TOML: {0} (mend or remove the file)")]
    NotToml(TomlError),
    #[error("what is to be added is not TOML: a mistake in the harness descriptor: {0}")]
    Ours(TomlError),
}

/// Depth is bounded by what toml_edit parses (80).
pub(crate) fn fill(existing: &[u8], ours: &str) -> Result<Vec<u8>, FillError> {
    let text = std::str::from_utf8(existing).map_err(|_| FillError::NotText)?;
    let mut document: DocumentMut = text.parse().map_err(FillError::NotToml)?;
    let ours: DocumentMut = ours.parse().map_err(FillError::Ours)?;
    fill_table(document.as_table_mut(), ours.as_table());
    Ok(document.to_string().into_bytes())
}

/// `ours` for a container that starts in `directory`.
pub(crate) fn for_directory(ours: &str, directory: &Path) -> Result<String, FillError> {
    let mut ours: DocumentMut = ours.parse().map_err(FillError::Ours)?;
    name_directory(ours.as_table_mut(), &directory.to_string_lossy());
    Ok(ours.to_string())
}

fn fill_table(into: &mut dyn TableLike, ours: &Table) {
    for (key, item) in ours {
        match (into.get_mut(key), item) {
            (None, item) => {
                let mut item = item.clone();
                last(&mut item);
                into.insert(key, item);
            }
            (Some(there), Item::Table(ours)) => {
                if let Some(there) = there.as_table_like_mut() {
                    fill_table(there, ours);
                }
            }
            (Some(_), _) => {}
        }
    }
}

/// Tables know where they stood in their document: these stand after all others.
fn last(item: &mut Item) {
    if let Item::Table(table) = item {
        table.set_position(None);
        table.iter_mut().for_each(|(_, item)| last(item));
    }
}

fn name_directory(table: &mut Table, directory: &str) {
    if let Some((key, item)) = table.remove_entry(DIRECTORY) {
        table.insert_formatted(&Key::new(directory).with_leaf_decor(key.leaf_decor().clone()), item);
    }
    for (_, item) in table.iter_mut() {
        if let Item::Table(table) = item {
            name_directory(table, directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str =
        "update = false\n\n[analytics]\nenabled = false\n\n[projects.\"{directory}\"]\ntrust = \"yes\"\n";

    fn filled(existing: &str, directory: &str) -> String {
        let ours = for_directory(OURS, Path::new(directory)).unwrap();
        String::from_utf8(fill(existing.as_bytes(), &ours).unwrap()).unwrap()
    }

    #[test]
    fn what_is_not_there_is_added() {
        let text = filled("", "/work");
        assert_eq!(text, OURS.replace("{directory}", "/work"));
        assert_eq!(filled(&text, "/work"), text, "a second time");
        let other = filled(&text, "/other");
        assert_eq!(other, format!("{text}\n[projects.\"/other\"]\ntrust = \"yes\"\n"));
    }

    #[test]
    fn what_a_person_wrote_stays_as_it_is() {
        let theirs = "# mine\nmodel = 'x'   # the best\n\n[projects.\"/work\"]\ntrust = \"no\"\n\n[analytics]\nenabled=true\n";
        let text = filled(theirs, "/work");
        assert_eq!(text, theirs.replacen("the best\n", "the best\nupdate = false\n", 1));
        // Values where ours has a table.
        for theirs in
            ["update = 1\nanalytics = \"x\"\nprojects = 5\n", "update = [1]\n[[projects]]\n[[analytics]]\n"]
        {
            assert_eq!(filled(theirs, "/work"), theirs);
        }
    }

    #[test]
    fn inline_and_dotted_tables_are_filled() {
        for theirs in [
            "projects = { \"/a\" = { trust = \"no\" } }\nanalytics = {}\n",
            "projects.\"/a\".trust = \"no\"\nanalytics.other = 1\n",
        ] {
            let text = filled(theirs, "/work");
            let value: ::toml::Table =
                ::toml::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(value["projects"]["/a"]["trust"].as_str(), Some("no"), "{text}");
            assert_eq!(value["projects"]["/work"]["trust"].as_str(), Some("yes"), "{text}");
            assert_eq!(value["analytics"]["enabled"].as_bool(), Some(false), "{text}");
        }
    }

    /// A compose file may be the attacker's.
    #[test]
    fn a_directory_cannot_change_the_structure() {
        for directory in ["/x\"]\nupdate = true\n[\"", "/a.b'c\\d", "/ü\t\u{1}", "/", ""] {
            let value: ::toml::Table = ::toml::from_str(&filled("", directory)).unwrap();
            assert_eq!(value["projects"].as_table().unwrap().keys().collect::<Vec<_>>(), [directory]);
            assert_eq!(value["update"].as_bool(), Some(false));
        }
    }

    #[test]
    fn what_is_not_toml_is_an_error() {
        for theirs in [&b"{"[..], b"\xff", b"a = ", b"[a]\n[a]\n"] {
            assert!(fill(theirs, OURS).is_err(), "{theirs:?}");
        }
        assert!(matches!(fill(b"", "{"), Err(FillError::Ours(_))));
        let deep = format!("a = {}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(fill(deep.as_bytes(), OURS).is_err());
    }
}
