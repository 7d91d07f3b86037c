//! A policy from the lock files and package-manager configuration of a project: the hosts and paths that they name, each
//! with the file and line that names it, and of many paths of one host the directory that they share, unless each is asked
//! for. Nothing is run and nothing is fetched.
//!
//! Whoever wrote the project wrote these files. They are read as anything hostile is (`tree`), one pure reader for each
//! format (`npm`, `yarn`, `pip`, `toml_files`, `cargo`, `go`) puts what it finds into a `Found`, and `write` prints it.

mod cargo;
mod found;
mod go;
mod json;
mod lines;
mod npm;
mod pip;
mod python;
mod toml_values;
mod tree;
mod url;
mod write;
mod yarn;

use std::io;
use std::path::Path;

use found::Found;

/// A policy's text, and what of the project could not be taken into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    pub text: String,
    /// `FILE: …` or `FILE:LINE: …`, one line each, without control characters. The text has them as comments, too.
    pub problems: Vec<String>,
}

/// How many paths of one host a rule lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paths {
    /// Some, and the directory that all are in where there would be more.
    Short,
    All,
}

/// # Errors
/// If `directory` itself cannot be read. Files in it that cannot are problems of the proposal.
pub fn propose(directory: &Path, paths: Paths) -> io::Result<Proposal> {
    let mut found = Found::default();
    let read = tree::read(
        directory,
        |name| reader(name).is_some(),
        |file| {
            if let Some(read) = reader(&file.path) {
                found.enter(&file.path);
                read_text(&mut found, read, &file.bytes);
            }
        },
    )?;
    found.problems.extend(read.problems);
    if read.links > 0 {
        found.note(format!(
            "{} other symbolic links are not followed, the first is {}",
            read.links, read.first_link
        ));
    }
    go::finish(&mut found);
    Ok(write::proposal(found, paths))
}

/// What [`propose`] makes of one file alone; `path` is relative to the project.
pub fn propose_from(path: &str, bytes: &[u8]) -> Proposal {
    let mut found = Found::default();
    if let Some(read) = reader(path) {
        found.enter(path);
        read_text(&mut found, read, bytes);
    }
    go::finish(&mut found);
    write::proposal(found, Paths::Short)
}

fn read_text(found: &mut Found, read: Reader, bytes: &[u8]) {
    if bytes.contains(&0) {
        return found.problem(None, "binary; it is not what its name says");
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => read(found, text.strip_prefix('\u{feff}').unwrap_or(text)),
        Err(error) => {
            let line = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count() + 1;
            found.problem(Some(line), "not UTF-8");
        }
    }
}

/// A path of each kind that is read.
pub const FILES: [&str; 23] = [
    "package-lock.json",
    ".npmrc",
    "yarn.lock",
    ".yarnrc",
    ".yarnrc.yml",
    "pnpm-lock.yaml",
    "pip.conf",
    "Pipfile.lock",
    "Pipfile",
    "poetry.lock",
    "pyproject.toml",
    "uv.toml",
    "uv.lock",
    "Cargo.lock",
    ".cargo/config.toml",
    "go.mod",
    "go.sum",
    "go.work",
    "go.work.sum",
    ".env",
    "requirements.txt",
    "dev-requirements.txt",
    "sub/constraints.in",
];

type Reader = fn(&mut Found, &str);

/// By the name of the file, and of the directory that it is in where that tells.
fn reader(path: &str) -> Option<Reader> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let directory = directory.rsplit('/').next().unwrap_or_default();
    Some(match name {
        "package-lock.json" | "npm-shrinkwrap.json" => npm::lock,
        ".npmrc" => npm::configuration,
        "yarn.lock" => yarn::lock,
        ".yarnrc" => yarn::classic_configuration,
        ".yarnrc.yml" => yarn::configuration,
        "pnpm-lock.yaml" => yarn::pnpm_lock,
        "pip.conf" | "pip.ini" => pip::configuration,
        "Pipfile.lock" => pip::pipfile_lock,
        "Pipfile" => python::pipfile,
        "poetry.lock" => python::poetry_lock,
        "pyproject.toml" => python::project,
        "uv.toml" => python::uv_configuration,
        "uv.lock" => python::uv_lock,
        "Cargo.lock" => cargo::lock,
        "config.toml" | "config" if directory == ".cargo" => cargo::configuration,
        "go.mod" | "go.work" => go::module,
        "go.sum" | "go.work.sum" => go::sums,
        ".env" | ".envrc" | "go.env" => lines::environment,
        _ if requirements(directory, name) => pip::requirements,
        _ => return None,
    })
}

fn requirements(directory: &str, name: &str) -> bool {
    let named = name.contains("requirements") || name.contains("constraints");
    (named || directory == "requirements") && (name.ends_with(".txt") || name.ends_with(".in"))
}

#[cfg(test)]
mod tests;
