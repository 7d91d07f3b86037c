//! Plans while somebody swaps parts of the mounted directory for links out of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use oci_spec::runtime::Mount;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;

use super::guard::guards;
use super::protected::Relaxed;
use crate::mounted::Mounts;

const PLANS: usize = 400;

/// What is swapped for what has the same name outside.
const SWAPPED: [&str; 6] =
    [".git", ".git/hooks", ".git/modules", ".git/modules/lib", ".git/worktrees", "conf"];

/// A repository that lacks what the hook makes, so that each plan makes it.
fn repository(at: &Path) {
    for git in [".git", ".git/modules/lib"] {
        for directory in ["objects", "refs"] {
            fs::create_dir_all(at.join(git).join(directory)).unwrap();
        }
        fs::write(at.join(git).join("HEAD"), "").unwrap();
    }
    fs::create_dir_all(at.join(".git/hooks")).unwrap();
    fs::create_dir_all(at.join(".git/worktrees/w")).unwrap();
    fs::create_dir_all(at.join("conf")).unwrap();
    let config =
        "[core]\nhooksPath = conf/hooks\n[include]\npath = ../conf/git\n[extensions]\nworktreeConfig\n";
    fs::write(at.join(".git/config"), config).unwrap();
    fs::write(at.join(".git/modules/lib/config"), "[core]\nworktree = ../../../conf\n").unwrap();
}

fn files(at: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(at).unwrap().flatten();
    let mut all: Vec<_> = entries
        .flat_map(|entry| {
            let below = if entry.file_type().unwrap().is_dir() { files(&entry.path()) } else { Vec::new() };
            below.into_iter().chain([entry.path()])
        })
        .collect();
    all.sort();
    all
}

#[test]
fn nothing_is_made_or_expected_outside() {
    let scratch = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(scratch.path()).unwrap();
    let (work, outside) = (root.join("work"), root.join("outside"));
    repository(&outside);
    repository(&work);
    for (number, path) in SWAPPED.iter().enumerate() {
        symlink(outside.join(path), work.join(format!("link-{number}"))).unwrap();
    }
    let before = files(&outside);
    let place = Mounts::read().unwrap().place(&work).unwrap();
    let mount: Mount = serde_json::from_value(
        json!({"destination": "/w", "type": "bind", "source": work, "options": ["rbind", "rw"]}),
    )
    .unwrap();
    let made = [".git/commondir", "conf/hooks", "conf/git", ".git/modules/lib/commondir"];
    let (stop, in_place) = (AtomicBool::new(false), Mutex::new(()));
    let mut elsewhere = Vec::new();
    let (mut planned, mut refused) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (number, path) in SWAPPED.iter().enumerate() {
                    let (path, link) = (work.join(path), work.join(format!("link-{number}")));
                    let _whole = in_place.lock().unwrap();
                    for _ in 0..2 {
                        renameat_with(CWD, &path, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                        thread::yield_now();
                    }
                }
            }
        });
        for _ in 0..PLANS {
            match guards(
                std::slice::from_ref(&mount),
                &[],
                Path::new("/nonexistent"),
                &Relaxed::default(),
                &[],
            ) {
                Ok(guards) => {
                    planned += 1;
                    let places = guards.all.into_iter().map(|guard| guard.expected.place);
                    elsewhere.extend(places.filter(|found| !found.lies_in(&place)));
                }
                Err(_) => refused += 1,
            }
            let _whole = in_place.lock().unwrap();
            for path in made {
                let path = work.join(path);
                let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
    assert_eq!(files(&outside), before, "{planned} planned, {refused} refused");
    assert!(planned > 0 && refused > 0, "nothing was raced: {planned} planned, {refused} refused");
}
