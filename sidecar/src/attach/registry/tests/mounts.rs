//! Containers that share something of the host.

use std::path::Path;

use understudy_control::{HostMount, MOST_MOUNTS, annotation};

use super::*;
use crate::accounts::record::OwnAccount;

fn at(path: &str, writable: bool) -> HostMount {
    HostMount::new("8:1", Path::new(path), writable, path).unwrap()
}

fn having(id: &str, name: &str, mounts: &[HostMount]) -> Prepare {
    Prepare { origin: None, mounts: Some(mounts.to_vec()), ..prepare(id, name) }
}

/// With other hosts than a container without.
fn allowing(mut prepare: Prepare, hosts: &str) -> Prepare {
    prepare.annotations.insert(annotation::ALLOW.to_owned(), hosts.to_owned());
    prepare
}

fn ruled(prepare: Prepare) -> Prepare {
    Prepare { managed: vec![ManagedFile::new("/m.toml", "mounts.shared = \"same-grants\"")], ..prepare }
}

fn start(stand: &Stand, prepare: Prepare) -> Result<Vec<String>, Refusal> {
    let id = prepare.id.clone();
    let prepared = stand.registry.prepare(prepare)?;
    let (mut attach, descriptors) = sockets("a");
    attach.id = id;
    stand.registry.attach(&attach, descriptors)?;
    Ok(prepared.notes)
}

#[test]
fn what_one_of_two_may_write_to_is_noted_for_the_later_one_and_in_its_status() {
    for (first, second, shared) in [
        (at("/p", true), at("/p", true), true),
        (at("/p", true), at("/p/sub", true), true),
        (at("/p/sub", true), at("/p", true), true),
        (at("/p", true), at("/p", false), true),
        (at("/p", false), at("/p", true), true),
        (at("/p", false), at("/p", false), false),
        (at("/p", true), at("/q", true), false),
        (at("/p", true), HostMount::new("8:2", Path::new("/p"), true, "/p").unwrap(), false),
    ] {
        let stand = stand();
        assert!(start(&stand, having("a", "agent", &[at("/x", true), first])).unwrap().is_empty());
        let path = second.clone();
        let notes =
            start(&stand, allowing(having("b", "other", &[at("/y", true), second]), "a.example")).unwrap();
        assert_eq!(notes.len(), usize::from(shared), "{path:?} {notes:?}");
        let status = stand.registry.status().containers;
        let of = |name: &str| status.iter().find(|c| c.name.as_deref() == Some(name)).unwrap().notes.clone();
        assert_eq!((of("agent").len(), of("other")), (0, notes.clone()));
        for note in notes {
            assert!(note.starts_with("it shares /p"), "{note}");
            assert!(note.contains("with agent, which has another understudy.allow: what either"), "{note}");
        }
    }
}

#[test]
fn the_same_grants_are_no_reason_and_others_are() {
    let project = [at("/p", true)];
    let with = |key: &str, value: &str| {
        let mut prepare = having("b", "other", &project);
        prepare.annotations.insert(key.to_owned(), value.to_owned());
        prepare
    };
    for (other, said) in [
        (with(annotation::MODE, "deny"), None),
        (with(annotation::NETWORK, "none"), None),
        (with(annotation::POLICY, "harness-only"), None),
        (with(annotation::INSTRUCTIONS, "off"), None),
        (with(annotation::WORKSPACE, "off"), Some("another understudy.workspace")),
        (with(annotation::MODE, "ask"), Some("another understudy.mode")),
        (with(annotation::NETWORK, "guarded"), Some("another understudy.network")),
        (with(annotation::POLICY, "web"), Some("another understudy.policy")),
        (with(annotation::HARNESS, "codex"), Some("another understudy.harness")),
        (with(annotation::PRIVACY, "strict"), Some("another understudy.privacy")),
        (with(annotation::INBOUND, "80"), Some("another understudy.inbound")),
    ] {
        let stand = stand();
        start(&stand, having("a", "agent", &project)).unwrap();
        let notes = start(&stand, other).unwrap();
        assert_eq!(
            notes.first().map(|note| note.contains(said.unwrap_or("nothing"))),
            said.map(|_| true),
            "{notes:?}"
        );
    }
    let stand = stand();
    start(&stand, allowing(having("a", "agent", &project), "a.example b.example")).unwrap();
    assert!(
        start(&stand, allowing(having("b", "other", &project), "b.example,a.example")).unwrap().is_empty()
    );
    // One that has nothing left borrows what the other has.
    stand.registry.revoke("agent").unwrap();
    let notes = start(&stand, allowing(having("d", "fourth", &project), "a.example b.example")).unwrap();
    assert!(notes.iter().any(|note| note.contains("agent, which was revoked")), "{notes:?}");
}

#[test]
fn a_rule_refuses_it_and_says_which_and_what_to_do() {
    let project = [at("/p", true)];
    let stand = stand();
    start(&stand, ruled(having("a", "agent", &project))).unwrap();
    start(&stand, ruled(having("b", "same", &project))).unwrap();
    let refusal = start(&stand, ruled(allowing(having("c", "other", &project), "a.example"))).unwrap_err();
    assert!(refusal.reason.starts_with("it shares /p with "), "{refusal}");
    assert!(refusal.reason.ends_with("beyond managed rule `mounts.shared` (/m.toml:1)"), "{refusal}");
    assert!(
        refusal.remedy.contains("mount another directory") && refusal.remedy.contains("/m.toml:1"),
        "{refusal}"
    );
    assert_eq!(stand.registry.status().containers.len(), 2);
    start(&stand, ruled(allowing(having("c", "other", &[at("/q", true)]), "a.example"))).unwrap();
    // What an older hook does not say is not taken for nothing.
    let silent = Prepare { mounts: None, ..ruled(allowing(having("d", "silent", &[]), "x.example")) };
    assert!(start(&stand, silent).unwrap_err().reason.contains("not known to an older hook"));
    // One that runs is told, and goes on.
    let running =
        Prepare { origin: Some(origin()), ..ruled(allowing(having("e", "back", &project), "a.example")) };
    let (mut attach, descriptors) = sockets("a");
    attach.id = running.id.clone();
    stand.registry.reattach(Reattach { prepare: running, attach }, descriptors).unwrap();
    let status = stand.registry.status().containers;
    let back = status.iter().find(|c| c.name.as_deref() == Some("back")).unwrap();
    assert_eq!(back.notes.len(), 2, "{:?}", back.notes);
}

#[test]
fn two_that_start_at_once_find_each_other_and_what_never_ran_does_not_count() {
    let stand = stand();
    let project = [at("/p", true)];
    stand.registry.prepare(having("a", "agent", &project)).unwrap();
    let other = || allowing(having("b", "other", &project), "a.example");
    assert_eq!(stand.registry.prepare(other()).unwrap().notes.len(), 1);
    let id: ContainerId = "a".repeat(64).parse().unwrap();
    if let Some(Known::Prepared { since, .. }) = stand.registry.known().get_mut(&id) {
        *since = Instant::now().checked_sub(PREPARED_FOR).unwrap();
    }
    assert!(stand.registry.prepare(other()).unwrap().notes.is_empty());
    // Nor does it itself, before.
    let again = allowing(having("b", "other", &project), "b.example");
    assert!(stand.registry.prepare(again).unwrap().notes.is_empty());
}

#[test]
fn those_of_one_network_are_one_already() {
    let stand = stand();
    let project = [at("/p", true)];
    start(&stand, ruled(having("a", "agent", &project))).unwrap();
    let id: ContainerId = "a".repeat(64).parse().unwrap();
    if let Some(Known::Attached(attached)) = stand.registry.known().get_mut(&id) {
        let own = OwnAccount { name: "work".to_owned(), uid: "u".to_owned() };
        attached.asked.own.insert(own);
    }
    let joining = Prepare { joins: Some(id.clone()), ..having("b", "tools", &project) };
    let notes = stand.registry.prepare(ruled(joining.clone())).unwrap().notes;
    assert!(notes.len() == 1 && notes[0].contains("shares its network"), "{notes:?}");
    stand.registry.join(&joining.id, &id).unwrap();
    // One outside is told of both.
    let notes = start(&stand, having("c", "other", &project)).unwrap();
    assert!(notes.len() == 2 && notes[0].contains("login work"), "{notes:?}");
}

#[test]
fn more_mounts_than_are_compared_are_refused() {
    let stand = stand();
    let many: Vec<HostMount> = (0..=MOST_MOUNTS).map(|n| at(&format!("/p{n}"), true)).collect();
    let refusal = start(&stand, having("a", "agent", &many)).unwrap_err();
    assert!(refusal.reason.contains("more than 128 mounts"), "{refusal}");
    start(&stand, having("a", "agent", &many[1..])).unwrap();
    for n in 0..7 {
        start(&stand, allowing(having(&format!("{n}"), &format!("n{n}"), &many[2..3]), "a.example")).unwrap();
    }
    let notes = start(&stand, allowing(having("b", "other", &many[2..3]), "b.example")).unwrap();
    assert!(notes.len() == 6 && notes[5].contains("3 more"), "{notes:?}");
}
