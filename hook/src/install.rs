//! `install` and `uninstall`: the hook files where this Podman reads them, and nothing else.

mod engine;
mod files;
mod hooks;
pub(crate) mod layout;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use understudy_control::ImageId;

use crate::generation;
use crate::installation::Installation;
use crate::precreate::remembered;
use engine::Podman;
use files::Ledger;
pub(crate) use hooks::REQUIRED;
use layout::{Layout, Scope};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    scope: ScopeArguments,
    /// Write the hook files here, and announce this directory to Podman
    #[arg(long, value_name = "DIR")]
    hooks_dir: Option<PathBuf>,
    /// An image that may be the sidecar: its id or name (can be repeated; what is registered stays)
    #[arg(long, value_name = "IMAGE")]
    sidecar_image: Vec<String>,
    /// Ask every container whether /etc/understudy/managed.toml requires an annotation of it (stays until `uninstall`)
    #[arg(long)]
    required: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UninstallArguments {
    #[command(flatten)]
    scope: ScopeArguments,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct ScopeArguments {
    /// For the calling user's containers (the default, but for root)
    #[arg(long)]
    user: bool,
    /// For root's containers (the default for root)
    #[arg(long)]
    system: bool,
}

impl ScopeArguments {
    fn scope(&self) -> Scope {
        match (self.user, self.system) {
            (true, _) => Scope::User,
            (_, true) => Scope::System,
            _ => Scope::of_caller(),
        }
    }
}

pub(crate) fn install(arguments: &Arguments) -> Result<ExitCode> {
    let scope = arguments.scope.scope();
    if scope == Scope::System && !rustix::process::geteuid().is_root() {
        bail!("--system needs root (without root: understudy-hook install --user)");
    }
    let layout = scope.layout()?;
    let podman = Podman::find(scope)?;
    let binary = fs::read("/proc/self/exe").context("this program's own file cannot be read")?;
    let nft = find_nft()?;
    let mut images = registered(&layout.state);
    for image in &arguments.sidecar_image {
        images.insert(podman.image_id(image)?);
    }
    let hooks_dir = arguments.hooks_dir.clone();
    let plan = Plan { layout: &layout, hooks_dir, images, nft, binary, required: arguments.required };
    for path in write(&plan, &podman)? {
        println!("wrote {}", path.display());
    }
    println!("hook files are for: {}", scope.describe());
    if plan.images.is_empty() {
        println!("next: understudy-hook install --sidecar-image IMAGE, then start the sidecar from it");
    } else {
        println!("next: start the sidecar, then run: understudy-hook doctor");
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn uninstall(arguments: &UninstallArguments) -> Result<ExitCode> {
    let layout = arguments.scope.scope().layout()?;
    let removed = remove(&layout)?;
    for path in &removed {
        println!("removed or restored {}", path.display());
    }
    if removed.is_empty() {
        println!("nothing was installed in {}", layout.state.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The directories of hooks that the caller's Podman is told to read.
pub(crate) fn configured_hooks_dirs() -> Result<Vec<PathBuf>> {
    Podman::find(Scope::of_caller())?.hooks_dirs(Path::new(""))
}

struct Plan<'a> {
    layout: &'a Layout,
    hooks_dir: Option<PathBuf>,
    images: BTreeSet<ImageId>,
    nft: PathBuf,
    binary: Vec<u8>,
    required: bool,
}

/// The hook files come last: none of them names a binary that is not there yet.
fn write(plan: &Plan<'_>, podman: &Podman) -> Result<Vec<PathBuf>> {
    let layout = plan.layout;
    for (directory, mode) in [(&layout.runtime, 0o700), (&layout.configuration, layout.configuration_mode)] {
        let made = fs::DirBuilder::new().recursive(true).mode(mode).create(directory);
        made.with_context(|| format!("{} cannot be made", directory.display()))?;
    }
    let mut ledger = Ledger::open(&layout.state)?;
    let hook = layout.state.join("bin/understudy-hook");
    ledger.write(&hook, &plan.binary, 0o755)?;
    ledger.write(&layout.state.join("guest/understudy-hook"), &plan.binary, 0o755)?;
    let installation = Installation {
        version: env!("CARGO_PKG_VERSION").into(),
        state: layout.state.clone(),
        runtime: layout.runtime.clone(),
        configuration: layout.configuration.clone(),
        homes: layout.homes.clone(),
        nft: plan.nft.clone(),
        sidecar_images: plan.images.clone(),
    };
    ledger.about_to_write(&Installation::file(&layout.state))?;
    installation.save()?;

    let hooks_dir = plan.hooks_dir.clone().unwrap_or_else(|| layout.hooks_dir.clone());
    let required = plan.required.then(|| hooks::required(&hook, &layout.state));
    let mut files = Vec::new();
    for (name, text) in hooks::all(&hook, &layout.state).into_iter().chain(required) {
        let file = hooks_dir.join(name);
        ledger.write(&file, text.as_bytes(), 0o644)?;
        files.push(file);
    }
    let mut read = podman.hooks_dirs(&layout.drop_in)?;
    if read.last() != Some(&hooks_dir) {
        // Last: a file of the same name in a later directory wins.
        read.retain(|directory| *directory != hooks_dir);
        read.push(hooks_dir);
        ledger.write(&layout.drop_in, engine::drop_in(&read)?.as_bytes(), 0o644)?;
    }
    // Only now: no container starts without a hook in between.
    for file in &files {
        ledger.moved_to(file)?;
    }
    Ok(ledger.written())
}

/// In the order in which nothing is left that names something that is gone: the announcement, the hook files, the
/// rest.
fn remove(layout: &Layout) -> Result<Vec<PathBuf>> {
    let Some(ledger) = Ledger::existing(&layout.state)? else { return Ok(Vec::new()) };
    let mut removed = ledger.undo()?;
    // What stages wrote since.
    for path in [remembered(&layout.state), generation::file(&layout.state)] {
        if files::remove(&path)? {
            removed.push(path);
        }
    }
    let of_state = ["bin", "guest", "backup", "hooks.d", ""].map(|name| layout.state.join(name));
    for directory in of_state.iter().chain([&layout.configuration]) {
        // Not empty, or not there: then it stays as it is.
        let _ = fs::remove_dir(directory);
    }
    Ok(removed)
}

/// What an earlier installation registered; of another version, too.
fn registered(state: &Path) -> BTreeSet<ImageId> {
    let text = fs::read(Installation::file(state)).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    serde_json::from_value(value["sidecar_images"].clone()).unwrap_or_default()
}

fn find_nft() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into(), "/usr/local/sbin".into()])
        .map(|directory| directory.join("nft"))
        .find(|nft| nft.is_absolute() && nft.is_file())
        .context("`nft` is not installed (package nftables), and without it no traffic is redirected")
}

#[cfg(test)]
mod tests;
