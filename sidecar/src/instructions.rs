//! What an agent is told beside what its project tells it: that it is in a sandbox, and what the operator wrote. It
//! becomes a block of the file that the harness reads in every directory.

use std::collections::BTreeMap;
use std::path::Path;

use understudy_control::{PlacedFile, Refusal, Write, annotation};
use understudy_harnesses::Descriptor;
use understudy_policies::document::closest;

const BUILT_IN: &str = include_str!("../data/instructions.md");
/// What turns them off.
const NONE: &str = "none";
/// Bytes of one; an agent reads all of it with every request.
const MAX: u64 = 16 << 10;

/// The files `NAME.md` of the configuration's `instructions/`, by name.
#[derive(Debug, Clone, Default)]
pub struct Instructions {
    by_name: BTreeMap<String, Result<String, String>>,
}

impl Instructions {
    /// A directory that does not exist has none.
    pub fn load(directory: &Path) -> Self {
        let entries = std::fs::read_dir(directory).into_iter().flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let named = paths.filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(".md")?.to_owned();
            Some((name, read(&path)))
        });
        Self { by_name: named.collect() }
    }

    /// One line for each file that cannot be used.
    pub fn problems(&self) -> Vec<String> {
        let broken = self.by_name.iter().filter_map(|(name, text)| Some((name, text.as_ref().err()?)));
        broken.map(|(name, error)| format!("instructions `{name}`: {error}")).collect()
    }

    /// The files of `harnesses` with what `understudy.instructions` asks for: nothing, the built-in ones (without it), or
    /// these and the ones of that name, or that text. A single word is a name.
    pub fn files(&self, harnesses: &[&Descriptor], asked: Option<&str>) -> Result<Vec<PlacedFile>, Refusal> {
        let asked = asked.map(str::trim);
        let content = match asked {
            Some(NONE) => String::new(),
            None | Some("") => BUILT_IN.to_owned(),
            Some(asked) => format!("{BUILT_IN}\n{}", self.text(asked)?),
        };
        let paths = || harnesses.iter().flat_map(|harness| &harness.instructions);
        if paths().next().is_none() && asked.is_some_and(|asked| !["", NONE].contains(&asked)) {
            let names: Vec<&str> = harnesses.iter().map(|harness| harness.name.as_str()).collect();
            return Err(refusal(
                format!("harness {} has no file for instructions", names.join(", ")),
                "leave the annotation out, or write a descriptor with `instructions` (docs/harnesses.md)",
            ));
        }
        let file = |path: &String| {
            let (path, content) = (path.clone(), content.clone());
            PlacedFile { path, mode: 0o644, write: Write::Block, content }
        };
        Ok(paths().map(file).collect())
    }

    fn text<'a>(&'a self, asked: &'a str) -> Result<&'a str, Refusal> {
        if asked.contains(char::is_whitespace) {
            if asked.len() as u64 > MAX {
                return Err(refusal(too_long(), "write them into instructions/NAME.md, and shorter"));
            }
            return Ok(asked);
        }
        match self.by_name.get(asked) {
            Some(Ok(text)) => Ok(text),
            Some(Err(error)) => Err(refusal(format!("`{asked}`: {error}"), "mend that file")),
            None => {
                let shown: String = asked.chars().take(80).collect();
                let known = || self.by_name.keys().map(String::as_str);
                let remedy = match closest(asked, known()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "write the file into the configuration directory, or more than one word for a text; `none` \
                             turns instructions off"
                        .to_owned(),
                };
                Err(refusal(format!("there is no instructions/{shown}.md"), remedy))
            }
        }
    }
}

fn refusal(reason: impl std::fmt::Display, remedy: impl Into<String>) -> Refusal {
    Refusal::new(format!("annotation {}: {reason}", annotation::INSTRUCTIONS), remedy)
}

fn too_long() -> String {
    format!("longer than {MAX} bytes")
}

fn read(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a file".to_owned());
    }
    if metadata.len() > MAX {
        return Err(too_long());
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use understudy_harnesses::Harnesses;

    use super::*;

    fn instructions() -> (tempfile::TempDir, Instructions) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("careful.md"), "Be careful.\n").unwrap();
        std::fs::write(directory.path().join("long.md"), "x".repeat(20_000)).unwrap();
        std::fs::write(directory.path().join("notes.txt"), "no").unwrap();
        let instructions = Instructions::load(directory.path());
        (directory, instructions)
    }

    #[test]
    fn the_built_in_ones_come_first_and_can_be_turned_off() {
        let (_kept, instructions) = instructions();
        let harnesses = Harnesses::default();
        let vibe = harnesses.harness("mistral-vibe").unwrap();
        let content = |asked| {
            let files = instructions.files(&[vibe], asked).unwrap();
            assert_eq!((files.len(), files[0].path.as_str()), (1, "~/.vibe/AGENTS.md"));
            files[0].content.clone()
        };
        assert_eq!(content(None), BUILT_IN);
        assert_eq!(content(Some(" none ")), "");
        assert_eq!(content(Some("careful")), format!("{BUILT_IN}\nBe careful.\n"));
        assert_eq!(content(Some("Be very careful.")), format!("{BUILT_IN}\nBe very careful."));
    }

    #[test]
    fn a_harness_without_a_file_gets_none_and_cannot_be_asked_for_one() {
        let (_kept, instructions) = instructions();
        let harnesses = Harnesses::default();
        let generic = harnesses.harness("generic").unwrap();
        let both = [generic, harnesses.harness("mistral-vibe").unwrap()];
        assert_eq!(instructions.files(&both, Some("careful")).unwrap().len(), 1);
        for asked in [None, Some("none"), Some("")] {
            assert!(instructions.files(&[generic], asked).unwrap().is_empty());
        }
        assert!(instructions.files(&[generic], Some("careful")).is_err());
    }

    #[test]
    fn what_is_not_there_is_refused_and_never_a_path() {
        let (_kept, instructions) = instructions();
        let harnesses = Harnesses::default();
        let vibe = harnesses.harness("mistral-vibe").unwrap();
        let long = "a ".repeat(9_000);
        for (asked, said) in [
            ("carefull", "did you mean `careful`?"),
            ("../secrets", "there is no instructions/../secrets.md"),
            ("/etc/passwd", "there is no instructions//etc/passwd.md"),
            ("notes", "there is no"),
            ("long", "longer than 16384 bytes"),
            (&long, "longer than 16384 bytes"),
        ] {
            let refusal = instructions.files(&[vibe], Some(asked)).unwrap_err();
            assert!(refusal.to_string().contains(said), "{refusal}");
            assert!(refusal.reason.starts_with("annotation understudy.instructions: "), "{refusal}");
        }
        assert_eq!(instructions.problems(), ["instructions `long`: longer than 16384 bytes"]);
    }
}
