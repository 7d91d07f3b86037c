//! Hook stage `precreate`: reads the configuration on stdin, prints the one that the container is to run with.
//!
//! A refusal does not fail the stage, since Podman drops what a failed one says: the container's process is replaced
//! by one that says it. Only what cannot be understood, or could not be told, fails.

mod annotations;
mod change;
mod config;
mod guard;
mod host;
mod joined;
mod prepare;
mod refused;
pub(crate) mod required;
mod search;
mod seccomp;
mod sidecar;
mod storage;
#[cfg(test)]
pub(crate) mod tests;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use understudy_control::{ManagedFile, Refusal, annotation};

use crate::generation;
use crate::installation::Installation;
use crate::managed;
use crate::network::mode::Mode;
use crate::record::Record;
use crate::refusals;
use crate::workspace::guard::guards;
use crate::workspace::protected::Relaxed;
pub(crate) use annotations::is_ours;
use config::Config;
pub(crate) use sidecar::remembered;
pub(crate) use storage::Described;
use storage::Storage;

/// Where a container sees its guest files and the hook's binary, both read-only.
const GUEST: &str = understudy_control::guest::DIRECTORY;
const GUEST_BINARY_DIRECTORY: &str = "/run/understudy-bin";
const GUEST_BINARY: &str = "/run/understudy-bin/understudy-hook";

pub(crate) fn run(state: &Path) -> Result<ExitCode> {
    let installation = Installation::load(state)?;
    changed(&installation).inspect_err(|error| {
        // The failure itself is what matters.
        let _ = refusals::note_failure(&installation, error);
    })
}

fn changed(installation: &Installation) -> Result<ExitCode> {
    let binary = installation.guest_binary_directory().join("understudy-hook");
    if !binary.is_file() {
        bail!("{} is missing (run: understudy-hook install)", binary.display());
    }
    let config = Config::read(io::stdin().lock())?;
    let document = decide(installation, config);
    let text = serde_json::to_vec(&document).context("the configuration cannot be written")?;
    let mut out = io::stdout().lock();
    out.write_all(&text)
        .and_then(|()| out.flush())
        .context("the configuration cannot be written to stdout")?;
    Ok(ExitCode::SUCCESS)
}

fn decide(installation: &Installation, config: Config) -> Value {
    let mut name = None;
    match permitted(installation, &config, &mut name) {
        Ok(document) => document,
        Err(refusal) => {
            // What cannot be noted or tidied up does not make the refusal weaker.
            let _ = Record::remove(installation, &config.id);
            let _ = refusals::note(installation, &config.id, name.as_deref(), &refusal);
            refused::document(&config, &installation.guest_binary_directory(), &refusal)
        }
    }
}

/// `name` is told as soon as it is known, so that a later refusal has it.
fn permitted(
    installation: &Installation,
    config: &Config,
    name: &mut Option<String>,
) -> Result<Value, Refusal> {
    let asked = annotations::asked(config.annotations())?;
    let storage = Storage::locate(config)?;
    let origin = storage.origin(config)?;
    name.clone_from(&origin.name);
    if let Some(role) = asked.get(annotation::ROLE) {
        sidecar::check_role(role, origin.image.as_ref(), installation)?;
        sidecar::remember_mounts(installation, config, &storage).map_err(|error| failed(&error))?;
        generation::give_back(installation).map_err(|error| failed(&error))?;
        return Ok(config.document.clone());
    }
    let mode = Mode::asked(&asked)?;
    let private = sidecar::remembered_mounts(installation).map_err(|error| failed(&error))?;
    let joined = joined::joined(&config.spec, installation, &storage, &mode)?;
    let guard::Bound { places: mut bound, shared, searched } = guard::check(
        &config.spec,
        &guard::Surroundings {
            installation,
            storage: &storage,
            root: &origin.root,
            private: &private,
            mode: &mode,
            joined: joined.as_ref(),
            host: &host::Kernel::default(),
        },
    )?;
    bound.extend(origin.to_come.clone());
    let root = origin.root.clone();
    let relaxed = Relaxed::asked(asked.get(annotation::WORKSPACE).map(String::as_str))?;
    let mut request = prepare::request(config, origin, asked);
    request.mounts = Some(shared);
    let files = managed::files()?;
    let image = described(&files, &storage, config)?;
    request.managed = managed::sparing(files, image.as_ref())?;
    request.joins = joined.as_ref().and_then(|joined| joined.with.clone());
    let suspicious = search::ask(installation, config, &searched)?;
    let mut prepared = prepare::ask(installation, request.clone())?;
    prepared.notes.extend(suspicious);
    generation::keep(installation);
    // Last, since it may make a directory of git's: nothing is made for a container that is refused.
    let volumes = storage.graph_root.join("volumes");
    let guards = guards(config.mounts(), &storage.userdata, &volumes, &relaxed, &installation.homes)?;
    let work = change::Work {
        prepared: &prepared,
        root: &root,
        directory: config.directory(),
        bound: &bound,
        guards: &guards,
        shared: joined.is_some(),
        image: image.as_ref(),
    };
    change::apply(config, installation, request, &work).map_err(|error| failed(&error))
}

/// What the image is called: kept for a re-attach, which cannot look it up and may find rules that there are not yet. Only
/// where a rule is about images must it be found.
fn described(
    files: &[ManagedFile],
    storage: &Storage,
    config: &Config,
) -> Result<Option<Described>, Refusal> {
    let described = storage.described(config);
    if managed::name_images(files)? { described.map(Some) } else { Ok(described.ok()) }
}

/// Id, refusal and whether AF_VSOCK passes, of a configuration that is understood.
pub(crate) fn fuzzed(stdin: &[u8]) -> Option<(String, Value, Option<bool>)> {
    let config = Config::read(stdin).ok()?;
    let installation = Installation {
        version: String::new(),
        state: "/state".into(),
        runtime: "/runtime".into(),
        configuration: "/configuration".into(),
        homes: Vec::new(),
        nft: "/nft".into(),
        sidecar_images: Default::default(),
    };
    let refusal = match annotations::asked(config.annotations()) {
        Ok(_) => Refusal::new("a reason", "a remedy"),
        Err(refusal) => refusal,
    };
    let refused = refused::document(&config, &installation.guest_binary_directory(), &refusal);
    let mut linux = config.document.get("linux").and_then(Value::as_object).cloned()?;
    let vsock = seccomp::close(&mut linux).ok().map(|()| seccomp::lets_vsock_pass(&linux));
    Some((config.id.to_string(), refused, vsock))
}

/// Something of our own went wrong: also a refusal, and told like one.
fn failed(error: &anyhow::Error) -> Refusal {
    Refusal::new(
        format!("the hook could not prepare the container: {error:#}"),
        "run: understudy-hook doctor",
    )
}
