//! Containers that publish ports.

use std::net::TcpStream;

use super::*;

impl Stand {
    /// What has been revoked is not served any more, as its tasks end.
    fn settle(&self) {
        self.leased.lock().unwrap().retain(|(container, _)| !container.is_revoked());
    }
}

/// One that was free a moment ago.
fn free() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wanting(id: &str, name: &str, port: u16) -> Prepare {
    let mut prepare = prepare(id, name);
    prepare.annotations.insert(PUBLISH.to_owned(), format!("{port}:3000"));
    prepare
}

fn attach_publishing(registry: &Registry, id: &str) -> Result<(), Refusal> {
    let (attach, descriptors) = publishing(id);
    registry.attach(&attach, descriptors)
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn a_port_is_open_while_its_container_is_attached_and_no_other_gets_it() {
    let (stand, port) = (stand(), free());
    stand.registry.prepare(wanting("a", "agent", port)).unwrap();
    assert!(!is_open(port));
    attach_publishing(&stand.registry, "a").unwrap();
    assert!(is_open(port));
    let refusal = stand.registry.prepare(wanting("b", "other", port)).unwrap_err();
    assert!(refusal.reason.contains("agent already"), "{refusal:?}");
    stand.registry.detach(&"a".repeat(64).parse().unwrap());
    stand.settle();
    assert!(!is_open(port));
    stand.registry.prepare(wanting("b", "other", port)).unwrap();
    attach_publishing(&stand.registry, "b").unwrap();
    assert!(is_open(port));
    stand.registry.revoke("other").unwrap();
    stand.settle();
    assert!(!is_open(port));
}

#[test]
fn of_two_that_start_at_once_one_gets_it() {
    let (stand, port) = (stand(), free());
    for (id, name) in [("a", "agent"), ("b", "other")] {
        stand.registry.prepare(wanting(id, name, port)).unwrap();
    }
    attach_publishing(&stand.registry, "b").unwrap();
    let refusal = attach_publishing(&stand.registry, "a").unwrap_err();
    assert!(refusal.reason.contains("other already"), "{refusal:?}");
}

#[test]
fn one_of_whose_end_nobody_told_gets_its_port_again() {
    let (stand, port) = (stand(), free());
    stand.registry.prepare(wanting("a", "agent", port)).unwrap();
    attach_publishing(&stand.registry, "a").unwrap();
    stand.registry.prepare(wanting("a", "agent", port)).unwrap();
    stand.settle();
    attach_publishing(&stand.registry, "a").unwrap();
    assert!(is_open(port));
}

#[test]
fn a_container_that_runs_has_its_port_with_a_new_sidecar_too() {
    let (stand, port) = (stand(), free());
    let (attach, descriptors) = publishing("a");
    stand.registry.reattach(Reattach { prepare: wanting("a", "agent", port), attach }, descriptors).unwrap();
    assert!(is_open(port));
}

#[test]
fn sockets_and_annotation_belong_together() {
    let (stand, port) = (stand(), free());
    stand.registry.prepare(wanting("a", "agent", port)).unwrap();
    let refusal = attach(&stand.registry, "a").unwrap_err();
    assert!(refusal.reason.contains(PUBLISH), "{refusal:?}");
    stand.registry.prepare(prepare("b", "other")).unwrap();
    assert!(attach_publishing(&stand.registry, "b").is_err());
    assert!(!is_open(port));
    assert_eq!(stand.started.load(Relaxed), 0);
}

#[test]
fn the_port_of_a_pod_leads_to_all_of_it_until_the_last_has_ended() {
    let (stand, port) = (stand(), free());
    let id = |digit: &str| digit.repeat(64).parse().unwrap();
    stand.registry.prepare(wanting("a", "agent", port)).unwrap();
    attach_publishing(&stand.registry, "a").unwrap();
    stand.registry.prepare(Prepare { joins: Some(id("a")), ..wanting("b", "tools", port) }).unwrap();
    stand.registry.join(&id("b"), &id("a")).unwrap();
    let other = Prepare { joins: Some(id("a")), ..wanting("c", "web", free()) };
    assert!(stand.registry.prepare(other).unwrap_err().reason.contains(PUBLISH));
    stand.registry.detach(&id("a"));
    stand.settle();
    assert!(is_open(port));
    stand.registry.detach(&id("b"));
    stand.settle();
    assert!(!is_open(port));
}
