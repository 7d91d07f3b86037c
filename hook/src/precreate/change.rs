//! Writes into the configuration what the sidecar answered.

mod environment;
mod guest;
mod mounts;
mod profile;

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};
use understudy_control::{Prepare, Prepared};

use super::config::Config;
use super::{Described, GUEST_BINARY, guard, seccomp};
use crate::installation::Installation;
use crate::mounted::Place;
use crate::network::mode::Mode;
use crate::record::Record;
use crate::workspace::guard::Guards;
use crate::{refusals, trust};

/// What is written, besides what is the same for every container.
pub(crate) struct Work<'a> {
    pub(crate) prepared: &'a Prepared,
    /// Its root file system, as it is seen by this stage.
    pub(crate) root: &'a Path,
    /// Where its first process starts, as a path inside.
    pub(crate) directory: &'a Path,
    /// Places of the host that the container sees.
    pub(crate) bound: &'a [Place],
    pub(crate) guards: &'a Guards,
    /// Whether its network namespace is that of other containers, too.
    pub(crate) shared: bool,
    /// None if it cannot be told.
    pub(crate) image: Option<&'a Described>,
}

pub(crate) fn apply(
    config: &Config,
    installation: &Installation,
    request: Prepare,
    work: &Work<'_>,
) -> Result<Value> {
    let prepared = work.prepared;
    let mounted: Vec<&Path> = config.mounts().iter().map(|mount| mount.destination().as_path()).collect();
    let trust = trust::collect(work.root, &prepared.authority, &mounted)?;
    // Gone before it is made anew: the container may have been started before.
    Record::remove(installation, &config.id)?;
    let origin = Some(prepared.origin.clone());
    let prepare = Prepare { env: Default::default(), args: Vec::new(), origin, ..request };
    let mut record = Record {
        prepare,
        shared: work.shared,
        image: work.image.cloned(),
        environment: Vec::new(),
        running: None,
    };
    record.save(installation)?;
    let guest = guest::write(&Record::directory(installation, &config.id), &trust, work)?;

    let mut document = config.document.clone();
    let process = member(&mut document, "process")?;
    let mut notes = prepared.notes.clone();
    notes.extend(trust.notes.iter().cloned());
    notes.extend(work.guards.notes.iter().cloned());
    notes.extend(mounts::covered(config.mounts(), &trust.places));
    let environment = environment::change(process, &prepared.env, &mut notes)?;
    record.environment = environment.recorded;
    record.save(installation)?;
    drop_capabilities(process);
    let homes = environment::values(process, "HOME");
    mounts::guard(root(&mut document)?, &work.guards.all)?;
    mounts::change(root(&mut document)?, installation, &guest, &trust.places)?;
    if trust::may_lie_at(work.root, profile::PATH, &mounted) {
        guest::file(&guest, profile::FILE, profile::text(&environment.given).as_bytes())?;
        mounts::add(root(&mut document)?, &guest.join(profile::FILE), profile::PATH)?;
    }
    let linux = member(&mut document, "linux")?;
    seccomp::close(linux)?;
    if !work.guards.all.is_empty() {
        seccomp::close_user_namespaces(linux);
    }
    add_placing(&mut document, &homes, &Mode::asked(&record.prepare.annotations)?)?;
    // Podman's runtimes say nothing of a hook's output unless told where to put it (crun(1), ANNOTATIONS).
    let said = refusals::said_by_hooks(installation, &config.id)?;
    member(&mut document, "annotations")?.insert("run.oci.hooks.stderr".into(), json!(said));
    Ok(document)
}

fn root(document: &mut Value) -> Result<&mut Map<String, Value>> {
    document.as_object_mut().context("the configuration is not an object")
}

/// A member that is an object; made if it is not there.
fn member<'a>(document: &'a mut Value, name: &str) -> Result<&'a mut Map<String, Value>> {
    let member = root(document)?.entry(name).or_insert_with(|| json!({}));
    if member.is_null() {
        *member = json!({});
    }
    member.as_object_mut().with_context(|| format!("`{name}` of the configuration is not an object"))
}

/// The member as a list; made if it is not there.
fn list<'a>(object: &'a mut Map<String, Value>, name: &str) -> Result<&'a mut Vec<Value>> {
    let value = object.entry(name).or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().with_context(|| format!("`{name}` of the configuration is not a list"))
}

fn drop_capabilities(process: &mut Map<String, Value>) {
    let gone: Vec<String> = guard::NOT_NEEDED.iter().map(|capability| format!("CAP_{capability}")).collect();
    let sets = process.get_mut("capabilities").and_then(Value::as_object_mut);
    for set in sets.into_iter().flat_map(|sets| sets.values_mut()).filter_map(Value::as_array_mut) {
        set.retain(|name| !name.as_str().is_some_and(|name| gone.iter().any(|gone| gone == name)));
    }
}

/// Before any other hook of this stage: it must be the first program that runs inside.
fn add_placing(document: &mut Value, homes: &[String], mode: &Mode) -> Result<()> {
    let mut args = vec!["understudy-hook".to_owned(), "place".to_owned()];
    args.extend(homes.iter().filter(|home| !home.is_empty()).map(|home| format!("--home={home}")));
    if mode.is_guarded() {
        args.push("--guarded".to_owned());
    }
    list(member(document, "hooks")?, "startContainer")?.insert(
        0,
        json!({
            "path": GUEST_BINARY,
            "args": args,
            // An empty environment would be replaced by the image's.
            "env": ["PATH=/nonexistent"],
            "timeout": 10,
        }),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::{Tree, apply_simply, config_of};
    use super::*;

    fn changed(tree: &Tree, document: &Value) -> Value {
        let config = config_of(document);
        apply_simply(&config, &tree.installation()).unwrap()
    }

    #[test]
    fn all_that_podman_wrote_stays_but_what_is_changed_on_purpose() {
        let tree = Tree::new();
        let mut before = tree.config().document;
        before["x-unknown"] = json!({"kept": [1, 2]});
        let after = changed(&tree, &before);
        assert_eq!(after["x-unknown"], before["x-unknown"]);
        assert_eq!(after["process"]["args"], before["process"]["args"]);
        assert_eq!(after["root"], before["root"]);
        assert_eq!(after["linux"]["namespaces"], before["linux"]["namespaces"]);
        assert_eq!(after["linux"]["readonlyPaths"], before["linux"]["readonlyPaths"]);
    }

    #[test]
    fn the_record_and_the_guest_files_are_there_and_hold_no_environment() {
        let tree = Tree::new();
        let mut document = tree.config().document;
        document["process"]["env"].as_array_mut().unwrap().push(json!("SECRET=real"));
        document["process"]["args"] = json!(["sh", "-c", "use real"]);
        let config = config_of(&document);
        changed(&tree, &document);
        let record = Record::load(&tree.installation(), &config.id).unwrap().unwrap();
        assert!(record.prepare.env.is_empty());
        let directory = Record::directory(&tree.installation(), &config.id);
        for file in
            ["ca.crt", "bundle.pem", "trust.p12", "chromium.json", "resolv.conf", "place.json", "mounts.json"]
        {
            assert!(!fs::read(directory.join("guest").join(file)).unwrap().is_empty(), "{file}");
        }
        assert!(!fs::read_to_string(directory.join("record.json")).unwrap().contains("real"));
    }

    #[test]
    fn capabilities_without_a_use_are_taken_out_of_every_set() {
        let tree = Tree::new();
        let mut document = tree.config().document;
        for set in ["bounding", "effective", "permitted", "inheritable", "ambient"] {
            document["process"]["capabilities"][set] = json!(["CAP_CHOWN", "CAP_NET_RAW", "CAP_MKNOD"]);
        }
        let after = changed(&tree, &document);
        for (_, set) in after["process"]["capabilities"].as_object().unwrap() {
            assert_eq!(*set, json!(["CAP_CHOWN"]));
        }
    }

    #[test]
    fn the_placing_hook_comes_first_and_never_with_an_empty_environment() {
        let tree = Tree::new();
        let mut document = tree.config().document;
        document["hooks"] = json!({"startContainer": [{"path": "/other"}], "poststart": [{"path": "/p"}]});
        document["process"]["env"] = json!(["HOME=/a b", "HOMER=/x", "HOME=", "HOME=--help"]);
        let after = changed(&tree, &document);
        let hooks = &after["hooks"]["startContainer"];
        assert_eq!(hooks[0]["path"], GUEST_BINARY);
        assert_eq!(hooks[0]["env"], json!(["PATH=/nonexistent"]));
        assert_eq!(hooks[0]["args"], json!(["understudy-hook", "place", "--home=/a b", "--home=--help"]));
        assert_eq!(hooks[0]["timeout"], 10);
        assert_eq!(hooks[1]["path"], "/other");
        assert_eq!(after["hooks"]["poststart"], document["hooks"]["poststart"]);
    }
}
