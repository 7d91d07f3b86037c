//! The mounts that keep a container from changing what programs of the host run.
//!
//! A mount point can be neither written (if it is read-only) nor renamed nor removed from within. Which one is mounted where
//! is compared afterwards, by the placing hook: between this look and the runtime's mounts, whoever shares the directory
//! may put a link there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use understudy_control::Refusal;
use understudy_control::annotation::WORKSPACE;

use super::folder::Folder;
use super::plan::{Plan, Unguardable, Users};
use super::protected::Relaxed;
use crate::mounted::{Mounts, Place};

/// More of them would cost a start more than it is worth.
const MOST: usize = 2048;
/// What may be mounted by itself out of a `.git`: data, and submodules, which are repositories.
const DATA: [&str; 4] = ["objects", "lfs", "annex", "modules"];
/// Paths that a note names.
const NAMED: usize = 12;

/// For the container's configuration.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Index of the mount in which it lies, after which it is to come.
    pub(crate) within: usize,
    pub(crate) mount: Value,
    pub(crate) expected: Guarded,
}

/// What must be mounted when the container starts.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guarded {
    pub(crate) mount: Place,
    /// The path from there to the mount point.
    pub(crate) below: PathBuf,
    pub(crate) place: Place,
    pub(crate) read_only: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Guards {
    pub(crate) all: Vec<Guard>,
    /// One line each.
    pub(crate) notes: Vec<String>,
}

/// `own` are Podman's directories for the container, `volumes` is where its volumes are, which are nobody's work trees.
/// `homes` are those of whom the configuration of git's is, besides the repositories' own. Makes in a repository what must
/// be there to be guarded.
pub(crate) fn guards(
    mounts: &[Mount],
    own: &[PathBuf],
    volumes: &Path,
    relaxed: &Relaxed,
    homes: &[PathBuf],
) -> Result<Guards, Refusal> {
    let mut guards = Guards::default();
    let mut host = None;
    let mut users = None;
    for (within, mount) in mounts.iter().enumerate() {
        if let Some(part) = writable(mount).and_then(part_of_git).filter(|_| !relaxed.everything()) {
            return Err(part);
        }
        let Some(source) =
            writable_directory(mount).filter(|source| !own.iter().any(|own| source.starts_with(own)))
        else {
            continue;
        };
        let host = match &host {
            Some(host) => host,
            None => host.insert(Mounts::read().map_err(|error| unexamined(source, &error))?),
        };
        let look = || -> io::Result<(PathBuf, Place, Option<Place>)> {
            let real = fs::canonicalize(source)?;
            let place = host.place(&real)?;
            let volumes = fs::canonicalize(volumes).ok().map(|volumes| host.place(&volumes)).transpose()?;
            Ok((real, place, volumes))
        };
        let (real, place, volumes) = look().map_err(|error| unexamined(source, &error))?;
        if volumes.is_some_and(|volumes| place.lies_in(&volumes)) {
            continue;
        }
        let users = match &users {
            Some(users) => users,
            None => users.insert(Users::at(homes)),
        };
        let plan = planned(&real, relaxed, users)?;
        if let Some(path) = plan.read_only.iter().find(|path| has_another_name(&real.join(path))) {
            return Err(linked(&real.join(path)));
        }
        note(&mut guards.notes, mount, &plan);
        let pinned = plan.pinned.iter().map(|path| (path, false));
        // Sorted, what contains comes before what is contained.
        let mut paths: Vec<_> = plan.read_only.iter().map(|path| (path, true)).chain(pinned).collect();
        paths.sort();
        for (below, read_only) in paths {
            let found = host.place(&real.join(below)).map_err(|error| unexamined(source, &error))?;
            guards.all.push(Guard {
                within,
                mount: bind(mount, &source.join(below), below, read_only),
                expected: Guarded { mount: place.clone(), below: below.clone(), place: found, read_only },
            });
        }
    }
    if guards.all.len() > MOST {
        return Err(Refusal::new(
            format!("the mounted directories hold more than {MOST} files that programs of the host run"),
            format!(
                "mount one project, or name what may be written: --annotation {WORKSPACE}=NAME,… (off: all)"
            ),
        ));
    }
    Ok(guards)
}

/// What git goes by, mounted by itself: there is nothing of it that could be guarded and still be of use.
fn part_of_git(source: &Path) -> Option<Refusal> {
    let real = fs::canonicalize(source).ok()?;
    let parts: Vec<_> = real.iter().collect();
    let git = parts.iter().position(|part| *part == ".git")?;
    let inner = parts.get(git + 1)?;
    if DATA.iter().any(|data| *inner == *data) {
        return None;
    }
    Some(Refusal::new(
        format!("the mount of {} lets the container change what git on the host goes by", source.display()),
        format!("mount the work tree, or add :ro (or --annotation {WORKSPACE}=off)"),
    ))
}

fn writable_directory(mount: &Mount) -> Option<&Path> {
    writable(mount).filter(|source| source.is_dir())
}

fn writable(mount: &Mount) -> Option<&Path> {
    let has =
        |wanted: &[&str]| mount.options().iter().flatten().any(|option| wanted.contains(&option.as_str()));
    let bound = mount.typ().as_deref() == Some("bind") || has(&["bind", "rbind"]);
    mount.source().as_deref().filter(|_| bound && !has(&["ro", "rro"]))
}

fn planned(real: &Path, relaxed: &Relaxed, users: &Users<'_>) -> Result<Plan, Refusal> {
    let folder = Folder::open(real).map_err(|error| unexamined(real, &error))?;
    let plan = Plan::of(&folder, real, relaxed, users).map_err(|error| unguardable(&error))?;
    for (path, what) in &plan.to_make {
        match folder.make(path, *what) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(unexamined(&real.join(path), &error));
            }
            _ => {}
        }
    }
    Ok(plan)
}

/// A hard link: the file could be written by its other name. One that a container made of what a program of the host was
/// about to put there stays when the container is gone.
fn has_another_name(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|status| status.is_file() && status.nlink() > 1)
}

fn linked(path: &Path) -> Refusal {
    let path = path.display();
    Refusal::new(
        format!(
            "the mounted project cannot be guarded: {path} has another name, by which it could be written"
        ),
        format!(
            "look at it; if all in it is yours, make it a file of its own: cp -p {path} {path}.own && mv {path}.own {path} (or add \
             --annotation {WORKSPACE}=off)"
        ),
    )
}

/// After the mount that it lies in; what the user mounts deeper comes later, and over it.
fn bind(mount: &Mount, source: &Path, below: &Path, read_only: bool) -> Value {
    let mut options = vec!["bind", if read_only { "ro" } else { "rw" }, "nosuid", "nodev", "rprivate"];
    if mount.options().iter().flatten().any(|option| option == "noexec") {
        options.push("noexec");
    }
    json!({
        "destination": mount.destination().join(below),
        "type": "bind",
        "source": source,
        "options": options,
    })
}

fn note(notes: &mut Vec<String>, mount: &Mount, plan: &Plan) {
    let at = mount.destination();
    let names: Vec<_> = plan.read_only.iter().map(|path| at.join(path).display().to_string()).collect();
    if !names.is_empty() {
        let more = names.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        notes.push(format!(
            "read-only here, since programs of the host run it or take orders from it: {shown}{more} (a person can start \
             the container with {WORKSPACE}=NAME)"
        ));
    }
    if plan.incomplete {
        notes.push(format!(
            "{} is too large or too deep to be searched for repositories; those that were not found are not guarded",
            at.display()
        ));
    }
}

fn unguardable(error: &Unguardable) -> Refusal {
    let remedy = match error {
        Unguardable::Link(_) => format!(
            "put what it points to in its place; or let the container write it: --annotation {WORKSPACE}=NAME (off: all)"
        ),
        Unguardable::CommonDirectory(path) => {
            format!("look at what it names; if you did not put it there, remove {}", path.display())
        }
        Unguardable::AllHooks(_) => {
            format!("give hooks a directory of their own, or add --annotation {WORKSPACE}=git-hooks")
        }
        Unguardable::TooMany => {
            format!(
                "mount one project; or let the container write them: --annotation {WORKSPACE}=NAME (off: all)"
            )
        }
        Unguardable::Io(..) => format!("make it readable, or add --annotation {WORKSPACE}=off"),
    };
    Refusal::new(format!("the mounted project cannot be guarded: {error}"), remedy)
}

fn unexamined(path: &Path, error: &io::Error) -> Refusal {
    Refusal::new(
        format!("{} cannot be examined: {error}", path.display()),
        format!("make it readable, or remove the mount of it (or add --annotation {WORKSPACE}=off)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(value: Value) -> Mount {
        serde_json::from_value(value).unwrap()
    }

    fn project() -> tempfile::TempDir {
        let project = tempfile::tempdir().unwrap();
        for directory in [".git/objects", ".git/refs"] {
            fs::create_dir_all(project.path().join(directory)).unwrap();
        }
        for file in [".git/HEAD", ".git/config", ".envrc"] {
            fs::write(project.path().join(file), "").unwrap();
        }
        project
    }

    fn guarded(mounts: &[Mount], volumes: &Path) -> Guards {
        guards(mounts, &[PathBuf::from("/own")], volumes, &Relaxed::default(), &[]).unwrap()
    }

    #[test]
    fn a_file_that_has_another_name_is_refused() {
        let project = project();
        let mounts = [mount(
            json!({"destination": "/work", "type": "bind", "source": project.path(), "options": ["rbind"]}),
        )];
        fs::hard_link(project.path().join(".git/HEAD"), project.path().join("other")).unwrap();
        guarded(&mounts, Path::new("/nonexistent"));
        fs::hard_link(project.path().join(".git/config"), project.path().join("another")).unwrap();
        let refused = guards(&mounts, &[], Path::new("/nonexistent"), &Relaxed::default(), &[]).unwrap_err();
        assert!(refused.reason.contains(".git/config has another name"), "{refused:?}");
    }

    #[test]
    fn writable_directories_are_guarded_and_nothing_else() {
        let project = project();
        let source = project.path();
        let bound = |options: &[&str]| {
            mount(json!({"destination": "/work", "type": "bind", "source": source, "options": options}))
        };
        let nowhere = Path::new("/nonexistent");
        for mounts in [
            vec![bound(&["rbind", "ro"])],
            vec![mount(json!({"destination": "/work", "type": "tmpfs", "source": source}))],
            vec![mount(json!({"destination": "/x", "type": "bind", "source": source.join(".envrc")}))],
        ] {
            assert!(guarded(&mounts, nowhere).all.is_empty(), "{mounts:?}");
        }
        assert!(guarded(&[bound(&["rbind"])], source.parent().unwrap()).all.is_empty(), "a volume");
        let other = mount(json!({"destination": "/proc", "type": "proc", "source": "proc"}));
        let guards = guarded(&[other, bound(&["rbind", "rw", "noexec"])], nowhere);
        let shown: Vec<_> = guards
            .all
            .iter()
            .map(|guard| {
                (guard.within, guard.mount["destination"].as_str().unwrap(), guard.expected.read_only)
            })
            .collect();
        assert_eq!(
            shown,
            [
                (1, "/work/.envrc", true),
                (1, "/work/.git", false),
                (1, "/work/.git/commondir", true),
                (1, "/work/.git/config", true),
                (1, "/work/.git/config.worktree", true),
                (1, "/work/.git/hooks", true)
            ]
        );
        for option in ["bind", "ro", "nosuid", "nodev", "rprivate", "noexec"] {
            assert!(guards.all[0].mount["options"].as_array().unwrap().contains(&json!(option)), "{option}");
        }
        assert!(guards.notes[0].contains("/work/.git/hooks"), "{:?}", guards.notes);
        assert!(project.path().join(".git/hooks").is_dir(), "it was made");
    }

    #[test]
    fn a_part_of_a_git_directory_is_not_mounted_writable() {
        let project = project();
        fs::create_dir(project.path().join(".git/hooks")).unwrap();
        let tried = |path: &str, how: &str| {
            let source = project.path().join(path);
            let mounts =
                [mount(json!({"destination": "/x", "type": "bind", "source": source, "options": [how]}))];
            guards(&mounts, &[], Path::new("/nonexistent"), &Relaxed::default(), &[])
        };
        for path in [".git/hooks", ".git/config", ".git/refs"] {
            assert!(tried(path, "rw").unwrap_err().remedy.contains("mount the work tree"), "{path}");
            tried(path, "ro").unwrap();
        }
        tried(".git/objects", "rw").unwrap();
        assert_eq!(tried(".git", "rw").unwrap().all.len(), 4, "a git directory is guarded");
    }

    #[test]
    fn what_cannot_be_guarded_is_refused_with_a_way_out() {
        let project = project();
        std::os::unix::fs::symlink("/etc", project.path().join(".git/hooks")).unwrap();
        let mounts = [mount(json!({"destination": "/w", "type": "bind", "source": project.path()}))];
        let refused = |relaxed: &str| {
            guards(&mounts, &[], Path::new("/nonexistent"), &Relaxed::asked(Some(relaxed)).unwrap(), &[])
        };
        let refusal = refused("").unwrap_err();
        assert!(refusal.reason.contains("symbolic link") && refusal.remedy.contains("understudy.workspace"));
        assert!(refused("git-hooks").is_ok());
        assert!(refused("off").unwrap().all.is_empty());
    }
}
