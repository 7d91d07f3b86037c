//! Where git keeps what it runs, gitrepository-layout(5).

use std::io;
use std::path::{Path, PathBuf};

use super::config::{self, Entry};
use super::folder::{Folder, Kind, Make};
use super::plan::{Plan, Unguardable, inside};
use super::protected::{CONFIG, HOOKS, Relaxed};

/// How deep submodules are looked for in `modules`: their names may have slashes, and they may have submodules.
const DEEPEST_MODULE: usize = 6;
/// Who can make this file in a repository has git take configuration and hooks from wherever it says; what says `.` changes
/// nothing, and cannot be made.
pub(super) const COMMON: &str = "commondir";
/// Names in one directory of git's.
const MOST: usize = 4096;

/// What has a `.git`, at `at`.
pub(super) fn guard_work_tree(
    folder: &Folder,
    at_host: &Path,
    at: &Path,
    relaxed: &Relaxed,
    plan: &mut Plan,
) -> Result<(), Unguardable> {
    let git = at.join(".git");
    match kind(folder, at_host, &git)? {
        Some(Kind::Folder) => guard_directory(folder, at_host, &git, Some(at), relaxed, plan),
        Some(Kind::Link) => Err(Unguardable::Link(at_host.join(git))),
        // A submodule's, a linked worktree's: it says which repository this is.
        Some(Kind::File | Kind::Program) if !relaxed.allows(CONFIG) => {
            if let Some(named) = git_file(folder, &git).and_then(|path| inside(at_host, at, &path)) {
                let elsewhere = !named.components().any(|part| part.as_os_str() == ".git");
                if elsewhere && kind(folder, at_host, &named)? == Some(Kind::Folder) {
                    guard_directory(folder, at_host, &named, Some(at), relaxed, plan)?;
                }
            }
            plan.guard(git);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether a `commondir` names the directory that it is in.
pub(super) fn is_own(folder: &Folder, common: &Path) -> bool {
    folder.read(common).is_ok_and(|text| text.trim_ascii() == b".")
}

/// `gitdir: PATH`.
pub(super) fn git_file(folder: &Folder, git: &Path) -> Option<PathBuf> {
    let text = String::from_utf8(folder.read(git).ok()?).ok()?;
    Some(PathBuf::from(text.strip_prefix("gitdir:")?.trim()))
}

pub(super) fn is_git_directory(folder: &Folder, at: &Path) -> io::Result<bool> {
    Ok(folder.kind(&at.join("HEAD"))?.is_some()
        && folder.is_folder(&at.join("objects"))?
        && folder.is_folder(&at.join("refs"))?)
}

/// `work_tree` is where its hooks run, unless it is bare.
pub(super) fn guard_directory(
    folder: &Folder,
    at_host: &Path,
    at: &Path,
    work_tree: Option<&Path>,
    relaxed: &Relaxed,
    plan: &mut Plan,
) -> Result<(), Unguardable> {
    let unexamined = |error| Unguardable::Io(at_host.join(at), error);
    if relaxed.allows(CONFIG) && relaxed.allows(HOOKS) {
        return Ok(());
    }
    if !is_git_directory(folder, at).map_err(unexamined)? {
        // It is none yet, and would become one.
        plan.guard(at.to_owned());
        return Ok(());
    }
    plan.pin(at.to_owned());
    let kind = |path: &Path| kind(folder, at_host, path);
    let entries = folder.read(&at.join("config")).map(|text| config::parse(&text)).unwrap_or_default();
    if !relaxed.allows(HOOKS) {
        let named = entries.iter().filter(|entry| entry.is("core", "hookspath"));
        for path in
            named.filter_map(|entry| inside(at_host, work_tree.unwrap_or(at), Path::new(&entry.value)))
        {
            present(&kind, at_host, path, plan)?;
        }
        required(&kind, at_host, at, "hooks", Make::Directory, plan)?;
    }
    if !relaxed.allows(CONFIG) {
        let common = at.join(COMMON);
        if kind(&common)?.is_some() && !is_own(folder, &common) {
            return Err(Unguardable::CommonDirectory(at_host.join(common)));
        }
        required(&kind, at_host, at, COMMON, Make::File(".\n"), plan)?;
        required(&kind, at_host, at, "config", Make::File(""), plan)?;
        let includes = entries.iter().filter(|entry| is_include(entry));
        for path in includes.filter_map(|entry| inside(at_host, at, Path::new(&entry.value))) {
            present(&kind, at_host, path, plan)?;
        }
        if entries.iter().any(|entry| entry.is("extensions", "worktreeconfig") && entry.is_true()) {
            required(&kind, at_host, at, "config.worktree", Make::File(""), plan)?;
        }
        for path in ["config.worktree", "info/attributes"] {
            present(&kind, at_host, at.join(path), plan)?;
        }
        worktrees(folder, &kind, at_host, at, plan)?;
    }
    modules(folder, at_host, &at.join("modules"), DEEPEST_MODULE, relaxed, plan)
}

pub(super) fn is_include(entry: &Entry) -> bool {
    entry.is("include", "path") || entry.is("includeif", "path")
}

/// Who writes a linked worktree's `commondir` or `gitdir` chooses its configuration.
fn worktrees(
    folder: &Folder,
    kind: &impl Fn(&Path) -> Result<Option<Kind>, Unguardable>,
    at_host: &Path,
    at: &Path,
    plan: &mut Plan,
) -> Result<(), Unguardable> {
    let all = at.join("worktrees");
    if kind(&all)?.is_none() {
        return Ok(());
    }
    let names = folder.list(&all, MOST).map_err(|error| Unguardable::Io(at_host.join(&all), error))?;
    for (name, _) in names {
        for file in ["commondir", "gitdir", "config.worktree"] {
            present(kind, at_host, all.join(&name).join(file), plan)?;
        }
    }
    Ok(())
}

fn modules(
    folder: &Folder,
    at_host: &Path,
    at: &Path,
    depth: usize,
    relaxed: &Relaxed,
    plan: &mut Plan,
) -> Result<(), Unguardable> {
    let unexamined = |error| Unguardable::Io(at_host.join(at), error);
    match kind(folder, at_host, at)? {
        Some(Kind::Folder) if depth > 0 => {}
        Some(Kind::Folder) => {
            plan.incomplete = true;
            return Ok(());
        }
        Some(Kind::Link) => return Err(Unguardable::Link(at_host.join(at))),
        _ => return Ok(()),
    }
    for (name, is_directory) in folder.list(at, MOST).map_err(unexamined)? {
        let below = at.join(name);
        if !is_directory {
            continue;
        }
        if is_git_directory(folder, &below).map_err(unexamined)? {
            guard_directory(folder, at_host, &below, None, relaxed, plan)?;
        } else {
            modules(folder, at_host, &below, depth - 1, relaxed, plan)?;
        }
    }
    Ok(())
}

fn kind(folder: &Folder, at_host: &Path, path: &Path) -> Result<Option<Kind>, Unguardable> {
    folder.kind(path).map_err(|error| Unguardable::Io(at_host.join(path), error))
}

/// Guards what is there.
fn present(
    kind: &impl Fn(&Path) -> Result<Option<Kind>, Unguardable>,
    at_host: &Path,
    path: PathBuf,
    plan: &mut Plan,
) -> Result<bool, Unguardable> {
    match kind(&path)? {
        Some(Kind::Link) => Err(Unguardable::Link(at_host.join(path))),
        Some(Kind::Other) | None => Ok(false),
        Some(Kind::File | Kind::Program | Kind::Folder) => {
            plan.guard(path);
            Ok(true)
        }
    }
}

/// Guards it, and has it made if it is not there.
fn required(
    kind: &impl Fn(&Path) -> Result<Option<Kind>, Unguardable>,
    at_host: &Path,
    at: &Path,
    name: &'static str,
    what: Make,
    plan: &mut Plan,
) -> Result<(), Unguardable> {
    if !present(kind, at_host, at.join(name), plan)? {
        plan.to_make.push((at.to_owned(), name, what));
        plan.guard(at.join(name));
    }
    Ok(())
}
