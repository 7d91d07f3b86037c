//! The startContainer stage: places files inside the container, as its own user, among files that may be hostile, once
//! nothing can add a network any more.

pub(crate) mod block;
pub(crate) mod home;
pub(crate) mod lines;
pub(crate) mod login;
pub(crate) mod merge;
pub(crate) mod toml;
pub(crate) mod tree;
pub(crate) mod variables;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use understudy_control::{LoginFile, PlacedFile, Placement, Write};

use self::tree::{Directory, TreeError};
use crate::mounted::{Mounts, Place};
use crate::network::{listeners, netlink};
use crate::workspace::guard::Guarded;

/// Mounted read-only by precreate.
const PLACEMENT: &str = "run/understudy/place.json";
const MOUNTS: &str = "run/understudy/mounts.json";
const GUARDS: &str = "run/understudy/guards.json";
/// Bytes of state at the most; a runtime's is a few hundred.
const MAX_STATE: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What the container's environment calls its home
    #[arg(long, value_name = "DIR", hide = true)]
    home: Vec<PathBuf>,
    /// The container has a network, and rules that guard it
    #[arg(long, hide = true)]
    guarded: bool,
}

/// An error is an exit status other than 0, and then the runtime does not start the container.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    take_state(io::stdin().lock());
    let placed = enclosed_and_placed(arguments).context("the container is not started");
    if let Err(error) = &placed {
        tell_the_container(&format!("understudy-hook: {error:#}\n"));
    }
    placed.map(|()| ExitCode::SUCCESS)
}

/// With a user namespace Podman makes a network only now, after createRuntime, and its configuration does not always
/// tell (`--dns=none`), so this is where it is certain that there is none, or nothing but the network.
fn enclosed_and_placed(arguments: &Arguments) -> Result<()> {
    if arguments.guarded {
        listeners::only_the_sidecars(Path::new("/proc/self"))?;
    } else {
        netlink::only_loopback()?;
    }
    let root = Directory::root()?;
    let bound: Vec<Place> = read(&root, MOUNTS)?;
    let guards: Vec<Guarded> = read(&root, GUARDS)?;
    let mounts = Mounts::read().context("/proc/self/mountinfo")?;
    as_looked_at(&mounts, &bound)?;
    all_guarded(&mounts, &guards)?;
    start(&root, &arguments.home)
}

/// Precreate looked at paths, and the runtime mounted what they meant a moment later.
fn as_looked_at(mounts: &Mounts, bound: &[Place]) -> Result<()> {
    match mounts.first_missing(bound) {
        None => Ok(()),
        Some(place) => bail!(
            "{} was put in another's place while the container started: what is mounted is not what was looked at (start \
             it again; if that does not help, see what changes the directories that you mount)",
            place.shown()
        ),
    }
}

fn all_guarded(mounts: &Mounts, guards: &[Guarded]) -> Result<()> {
    match mounts.first_unguarded(guards) {
        None => Ok(()),
        Some(guarded) => bail!(
            "{} was to be guarded (read-only, or kept in its place) and is not: something changed it while the container \
             started (start it again; if that does not help, see what changes the directories that you mount)",
            guarded.place.shown()
        ),
    }
}

/// crun takes it for a failure of the hook (EPIPE, "exit code: -33") when that ends before its state was read. What it
/// says is of no use here, so an error in reading it is left.
fn take_state(stdin: impl io::Read) {
    let _ = io::copy(&mut stdin.take(MAX_STATE), &mut io::sink());
}

fn read<T: serde::de::DeserializeOwned>(root: &Directory, path: &str) -> Result<T> {
    let text = root
        .find(Path::new(path))?
        .with_context(|| format!("/{path} is missing (run: understudy-hook doctor)"))?;
    serde_json::from_slice(&text).with_context(|| format!("/{path} is damaged"))
}

fn start(root: &Directory, homes: &[PathBuf]) -> Result<()> {
    let placement: Placement = read(root, PLACEMENT)?;
    let uid = rustix::process::geteuid().as_raw();
    for note in place(root, &home::of(root, uid), homes, &placement)? {
        eprintln!("understudy-hook: {note}");
    }
    Ok(())
}

/// Runtimes drop what a hook writes. The container's first process waits for this one with the container's own stderr
/// open: runc's lets it be used, crun's does not, and then there may be a terminal. What fails here is left: the exit
/// status alone stops the container, and precreate has what a hook writes kept for `why`.
fn tell_the_container(message: &str) {
    use std::io::Write as _;
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    let open = |path: &str, flags: rustix::fs::OFlags| {
        let flags = flags | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        std::fs::OpenOptions::new().write(true).custom_flags(flags.bits().cast_signed()).open(path)
    };
    let is_device = |file: &std::fs::File| file.metadata().is_ok_and(|m| m.file_type().is_char_device());
    let stderr = open("/proc/1/fd/2", rustix::fs::OFlags::empty())
        .ok()
        .or_else(|| open("/dev/console", rustix::fs::OFlags::NOFOLLOW).ok().filter(is_device));
    if let Some(mut stderr) = stderr {
        let _ = stderr.write_all(message.as_bytes());
    }
}

/// Logins are looked at before anything is written, so that a real one is found and not overwritten; in `others` as well,
/// where clients go by the environment. Answers with what could not be placed and need not be.
fn place(root: &Directory, home: &Path, others: &[PathBuf], placement: &Placement) -> Result<Vec<String>> {
    for file in &placement.login_files {
        check_login(root, home, file, &placement.stand_ins)?;
        for other in others.iter().filter(|other| *other != home) {
            check_login(root, other, file, &placement.stand_ins)
                .with_context(|| format!("HOME is {}, which is searched too", other.display()))?;
        }
    }
    let mut notes = Vec::new();
    for file in &placement.files {
        match put(root, home, file) {
            Ok(()) => {}
            // A container with a read-only root and no writable home has to start all the same.
            Err(PutError::Tree(error)) if error.is_unwritable() && file.write != Write::Replace => {
                notes.push(format!("{} was not placed: {error}", file.path));
            }
            // What an agent is told protects nothing, and people keep such files as links into their projects.
            Err(PutError::Tree(error)) if file.write == Write::Block => {
                notes.push(format!("{} has no instructions of ours: {error}", file.path));
            }
            Err(PutError::Tree(error)) if error.is_unwritable() => {
                return Err(error).with_context(|| {
                    format!("{} cannot be placed (mount a tmpfs or a volume over its directory)", file.path)
                });
            }
            Err(error) => return Err(error).with_context(|| format!("{} cannot be placed", file.path)),
        }
    }
    Ok(notes)
}

fn check_login(root: &Directory, home: &Path, file: &LoginFile, stand_ins: &[String]) -> Result<()> {
    let target = Target::new(home, &file.path)?;
    let content = match target.parent(root, false) {
        Ok(Some((directory, name))) => directory.read(name)?,
        // Nothing lies in what is no directory: /dev/null is a usual home of services.
        Ok(None) | Err(TreeError::NotDirectory(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let Some(content) = content else { return Ok(()) };
    login::check(&content, &file.pointers, stand_ins)
        .with_context(|| format!("login file {}", target.shown()))
}

fn put(root: &Directory, home: &Path, file: &PlacedFile) -> Result<(), PutError> {
    let target = Target::new(home, &file.path)?;
    let Some((directory, name)) = target.parent(root, true)? else { return Ok(()) };
    let existing = directory.read(name)?;
    let content = match (file.write, &existing) {
        (Write::Create, Some(_)) => return Ok(()),
        (Write::Create | Write::Replace, _) => file.content.clone().into_bytes(),
        (Write::MergeJson, existing) => merge::merge(existing.as_deref().unwrap_or_default(), &file.content)?,
        (Write::FillToml, existing) => toml::fill(existing.as_deref().unwrap_or_default(), &file.content)?,
        (Write::MergeEnv, existing) => {
            variables::merge(existing.as_deref().unwrap_or_default(), &file.content)
        }
        (Write::MergeLines, existing) => lines::merge(existing.as_deref().unwrap_or_default(), &file.content),
        (Write::Block, None) if file.content.is_empty() => return Ok(()),
        (Write::Block, existing) => block::put(existing.as_deref().unwrap_or_default(), &file.content),
    };
    if existing.as_ref() == Some(&content) {
        return Ok(());
    }
    Ok(directory.write(name, &content, file.mode)?)
}

/// Where a file goes: components below the home directory or the root, none of which may be a symlink.
struct Target<'a> {
    home: Option<&'a Path>,
    components: Vec<&'a str>,
}

impl<'a> Target<'a> {
    fn new(home: &'a Path, path: &'a str) -> Result<Self, PutError> {
        let (home, rest) = match (path.strip_prefix("~/"), path.strip_prefix('/')) {
            (Some(rest), _) => (Some(home), rest),
            (None, Some(rest)) => (None, rest),
            (None, None) => return Err(PutError::Path(path.to_owned())),
        };
        let components: Vec<&str> = rest.split('/').collect();
        if components.iter().any(|part| matches!(*part, "" | "." | "..") || part.contains('\0')) {
            return Err(PutError::Path(path.to_owned()));
        }
        Ok(Self { home, components })
    }

    /// The directory that holds it, made (0700) if that is asked for; `None` if there is none and it was not.
    fn parent(&self, root: &Directory, create: bool) -> Result<Option<(Directory, &'a str)>, TreeError> {
        let Some((name, directories)) = self.components.split_last() else { return Ok(None) };
        let top = match self.home {
            Some(home) => root.resolve(home, create)?,
            None => Some(root.again()?),
        };
        let Some(top) = top else { return Ok(None) };
        Ok(top.descend(directories, create)?.map(|directory| (directory, *name)))
    }

    fn shown(&self) -> String {
        let home = self.home.unwrap_or(Path::new("/"));
        home.join(self.components.join("/")).display().to_string()
    }
}

#[derive(Debug, thiserror::Error)]
enum PutError {
    #[error("{0:?} is neither an absolute path nor one that starts with ~/")]
    Path(String),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Merge(#[from] merge::MergeError),
    #[error(transparent)]
    Fill(#[from] toml::FillError),
}

#[cfg(test)]
mod tests;
