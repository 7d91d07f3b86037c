//! Containers that share a network namespace.

use super::*;
use crate::accounts::record::OwnAccount;

/// Prepares one that joins `with`.
fn prepare_joining(registry: &Registry, id: &str, name: &str, with: &str) -> Result<Prepared, Refusal> {
    registry.prepare(Prepare { joins: Some(with.repeat(64).parse().unwrap()), ..prepare(id, name) })
}

fn join(registry: &Registry, id: &str, with: &str) -> Result<(), Refusal> {
    registry.join(&id.repeat(64).parse().unwrap(), &with.repeat(64).parse().unwrap())
}

/// `agent` (a) and `tools` (b), one network.
fn pod() -> Stand {
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    prepare_joining(&stand.registry, "b", "tools", "a").unwrap();
    join(&stand.registry, "b", "a").unwrap();
    stand
}

fn container_of(registry: &Registry, id: &str) -> Arc<Container> {
    let known = registry.known();
    Arc::clone(known[&id.repeat(64).parse::<ContainerId>().unwrap()].container().unwrap())
}

#[test]
fn containers_that_share_a_network_are_one_and_served_once() {
    let stand = pod();
    assert_eq!(stand.started.load(Relaxed), 1);
    assert!(Arc::ptr_eq(&container_of(&stand.registry, "a"), &container_of(&stand.registry, "b")));
    container_of(&stand.registry, "a").counters.allowed.store(7, Relaxed);
    container_of(&stand.registry, "a").counters.open_connections.store(2, Relaxed);
    let told: Vec<_> = stand.registry.status().containers.into_iter().map(|c| (c.name, c.allowed)).collect();
    assert_eq!(told, [(Some("agent".to_owned()), 7), (Some("tools".to_owned()), 0)]);
    assert_eq!(stand.registry.open_connections(), 2);
}

#[test]
fn a_shared_network_is_served_until_the_last_is_gone() {
    let stand = pod();
    let container = container_of(&stand.registry, "a");
    stand.registry.detach(&"a".repeat(64).parse().unwrap());
    assert!(!container.is_revoked());
    container.counters.allowed.store(7, Relaxed);
    assert_eq!(stand.registry.status().containers[0].allowed, 7);
    // The first of them starts again, in the network that the other has kept.
    prepare_joining(&stand.registry, "a", "agent", "b").unwrap();
    assert!(!container.is_revoked());
    join(&stand.registry, "a", "b").unwrap();
    stand.registry.detach(&"b".repeat(64).parse().unwrap());
    assert!(!container.is_revoked());
    stand.registry.detach(&"a".repeat(64).parse().unwrap());
    assert!(container.is_revoked());
}

#[test]
fn a_container_that_asks_for_something_else_does_not_join() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    let other = |annotation: &str, value: &str| {
        let mut other = prepare("b", "tools");
        other.annotations.insert(annotation.to_owned(), value.to_owned());
        other
    };
    for other in [other("understudy.policy", "open"), other("understudy.harness", "claude-code")] {
        let joining = Prepare { joins: Some("a".repeat(64).parse().unwrap()), ..other.clone() };
        let refusal = stand.registry.prepare(joining).unwrap_err();
        assert!(refusal.reason.contains("agent") && refusal.reason.contains("understudy."), "{refusal:?}");
        // Prepared as the first of a network, it is stopped when it turns out not to be.
        stand.registry.prepare(other).unwrap();
        join(&stand.registry, "b", "a").unwrap_err();
        assert_eq!(states(&stand.registry), [("agent".to_owned(), "attached".to_owned())]);
    }
    let ruled = Prepare {
        managed: vec![ManagedFile::new("/m.toml", "")],
        joins: Some("a".repeat(64).parse().unwrap()),
        ..prepare("b", "tools")
    };
    assert!(stand.registry.prepare(ruled).unwrap_err().reason.contains("rules were changed"));
}

/// A pod's containers have different images.
#[test]
fn what_a_rule_of_the_machine_asks_of_one_image_only_keeps_nobody_from_joining() {
    let stand = stand();
    let rule = ManagedFile::new("/m.toml", "[[require]]\npolicy = \"p\"\nimages = \"a\"\n");
    let of = |spared: Vec<usize>, wanted: Prepare| Prepare {
        managed: vec![ManagedFile { spared, ..rule.clone() }],
        ..wanted
    };
    stand.registry.prepare(of(vec![0], prepare("a", "agent"))).unwrap();
    attach(&stand.registry, "a").unwrap();
    let joining = Prepare { joins: Some("a".repeat(64).parse().unwrap()), ..prepare("b", "tools") };
    assert!(stand.registry.prepare(of(vec![], joining)).is_ok());
}

#[test]
fn a_container_of_other_grants_does_not_join() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    let mut known = stand.registry.known();
    let Some(Known::Attached(first)) = known.get_mut(&"a".repeat(64).parse::<ContainerId>().unwrap()) else {
        panic!()
    };
    first.asked.granted = ["a", "more"].into_iter().collect();
    drop(known);
    let refusal = prepare_joining(&stand.registry, "b", "tools", "a").unwrap_err();
    assert!(refusal.reason.contains("other secrets (a) than agent (a, more)"), "{refusal:?}");
}

#[test]
fn nobody_joins_what_is_not_attached_or_was_revoked() {
    let stand = stand();
    assert!(prepare_joining(&stand.registry, "b", "tools", "a").unwrap_err().reason.contains("not known"));
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    assert!(prepare_joining(&stand.registry, "b", "tools", "a").is_err());
    attach(&stand.registry, "a").unwrap();
    assert!(join(&stand.registry, "b", "a").unwrap_err().reason.contains("not prepared"));
    prepare_joining(&stand.registry, "b", "tools", "a").unwrap();
    stand.registry.revoke("agent").unwrap();
    assert!(join(&stand.registry, "b", "a").unwrap_err().reason.contains("revoked"));
    assert!(prepare_joining(&stand.registry, "c", "more", "a").unwrap_err().reason.contains("revoked"));
}

#[test]
fn whoever_of_a_network_is_revoked_all_are() {
    for wanted in ["tools", "agent"] {
        let stand = pod();
        stand.registry.prepare(prepare("c", "apart")).unwrap();
        attach(&stand.registry, "c").unwrap();
        assert_eq!(stand.registry.revoke(wanted).unwrap(), ["agent", "tools"]);
        assert!(container_of(&stand.registry, "b").is_revoked());
        assert!(!container_of(&stand.registry, "c").is_revoked());
        for id in ["a", "b"] {
            assert!(stand.registry.prepare(prepare(id, "again")).unwrap_err().reason.contains("revoked"));
        }
    }
}

#[test]
fn a_revocation_holds_when_the_first_of_a_network_is_gone() {
    let stand = pod();
    stand.registry.detach(&"a".repeat(64).parse().unwrap());
    assert_eq!(stand.registry.revoke("tools").unwrap(), ["tools"]);
    assert!(container_of(&stand.registry, "b").is_revoked());
    // It was that one, too.
    assert!(stand.registry.prepare(prepare("a", "agent")).unwrap_err().reason.contains("revoked"));
}

#[test]
fn what_the_operator_decides_of_one_holds_for_all_of_a_network() {
    let stand = pod();
    let decided = Decide {
        effect: Effect::Allow,
        host: "api.example".to_owned(),
        container: Some("tools".to_owned()),
        lasting: Lasting::Always,
    };
    stand.registry.decide(&decided).unwrap();
    let explained = |container: &str| {
        let url = "https://api.example/".to_owned();
        let asked = Explain { container: container.to_owned(), url, method: None };
        stand.registry.explain(&asked).unwrap().decision
    };
    assert_eq!((explained("agent"), explained("tools")), (Outcome::Allowed, Outcome::Allowed));
}

#[test]
fn a_network_has_nothing_more_once_one_in_it_was_to_have_less() {
    let stand = pod();
    let rights = || container_of(&stand.registry, "a").rights();
    stand.registry.reconsider();
    assert!(rights().grants.contains("a"));
    let mut known = stand.registry.known();
    let Some(Known::Attached(second)) = known.get_mut(&"b".repeat(64).parse::<ContainerId>().unwrap()) else {
        panic!()
    };
    second.own.as_mut().unwrap().granted = Grants::default();
    drop(known);
    stand.registry.reconsider();
    assert!(!rights().grants.contains("a"));
}

#[test]
fn a_running_member_is_given_back_to_a_new_sidecar() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    stand.registry.rejoin(prepare("b", "tools")).unwrap_err();
    let member = Prepare { joins: Some("a".repeat(64).parse().unwrap()), ..prepare("b", "tools") };
    stand.registry.rejoin(member).unwrap();
    assert_eq!(states(&stand.registry).len(), 2);
    assert!(Arc::ptr_eq(&container_of(&stand.registry, "a"), &container_of(&stand.registry, "b")));
}

#[test]
fn a_first_that_starts_anew_in_another_network_leaves_nothing_of_the_old_one() {
    for again in [false, true] {
        let stand = pod();
        let old = container_of(&stand.registry, "a");
        let (new, descriptors) = sockets("a");
        if again {
            stand
                .registry
                .reattach(Reattach { prepare: prepare("a", "agent"), attach: new }, descriptors)
                .unwrap();
        } else {
            stand.registry.detach(&"a".repeat(64).parse().unwrap());
            assert!(!old.is_revoked());
            stand.registry.prepare(prepare("a", "agent")).unwrap();
            stand.registry.attach(&new, descriptors).unwrap();
        }
        assert!(old.is_revoked());
        assert!(!container_of(&stand.registry, "a").is_revoked());
        assert_eq!(states(&stand.registry), [("agent".to_owned(), "attached".to_owned())]);
    }
}

#[test]
fn a_member_that_is_not_given_back_takes_the_network_from_all() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    let mut member = Prepare { joins: Some("a".repeat(64).parse().unwrap()), ..prepare("b", "tools") };
    member.annotations.insert("understudy.policy".to_owned(), "other".to_owned());
    stand.registry.rejoin(member).unwrap_err();
    assert!(container_of(&stand.registry, "a").is_revoked());
    assert_eq!(states(&stand.registry), [("agent".to_owned(), "revoked".to_owned())]);
}

#[test]
fn a_denial_is_kept_for_whoever_is_the_first_next_time() {
    let stand = pod();
    let decide = |effect, host: &str| {
        let (host, container) = (host.to_owned(), Some("tools".to_owned()));
        stand.registry.decide(&Decide { effect, host, container, lasting: Lasting::Always }).unwrap();
    };
    decide(Effect::Deny, "denied.example");
    decide(Effect::Allow, "allowed.example");
    let of = |host: &str| stand.registry.status().decisions.iter().filter(|d| d.host == host).count();
    assert_eq!((of("denied.example"), of("allowed.example")), (2, 1));
}

#[test]
fn a_reload_between_prepare_and_join_is_not_missed() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    prepare_joining(&stand.registry, "b", "tools", "a").unwrap();
    *stand.all_withdrawn.lock().unwrap() = true;
    join(&stand.registry, "b", "a").unwrap();
    assert!(!container_of(&stand.registry, "b").rights().grants.contains("a"));
}

/// A login that was made in a pod is its own, however often its containers are made anew.
#[test]
fn a_new_member_joins_after_a_login_was_made_inside() {
    let stand = pod();
    let registry = &stand.registry;
    let arm = ArmLogin { container: "agent".to_owned(), account: Some("work".to_owned()), seconds: 60 };
    registry.arm_login(&arm).unwrap();
    registry.forget_login("agent").unwrap();
    // By the name of another one of the pod: it is told by what it is known.
    let by_member = registry.arm_login(&ArmLogin { container: "tools".to_owned(), ..arm }).unwrap();
    assert_eq!(by_member.container_id.as_str(), "a".repeat(64));
    let token = |text: &str| Token::new(text.to_owned());
    let tokens = Tokens { access: token("access"), refresh: Some(token("refresh")), id: None };
    let attempt = registry.parts.arming.begin(&"a".repeat(64).parse().unwrap(), false).unwrap();
    let _hears = attempt.made(login("work"), Some(Record::new("kind", tokens, StandIns::default())), false);
    registry.keep_login("agent", "c0de").unwrap();
    registry.detach(&"b".repeat(64).parse().unwrap());
    let (joins, image) = ("a".repeat(64).parse().ok(), "d".repeat(64).parse().ok());
    let barred = Prepare { joins, image, ..prepare("d", "barred") };
    assert!(registry.prepare(barred).unwrap_err().reason.contains("may not have the login"));
    prepare_joining(registry, "c", "tools", "a").unwrap();
    join(registry, "c", "a").unwrap();
    let secrets = || {
        let status = registry.status();
        status.containers.into_iter().map(|container| container.secrets).collect::<Vec<_>>()
    };
    assert_eq!(secrets(), [["a", "mine"], ["a", "mine"]]);
    // It has it when the first is gone, and after a restart.
    let own = OwnAccount { name: "work".to_owned(), uid: "uid".to_owned() };
    assert_eq!(registry.parts.own_logins.of(&"c".repeat(64).parse().unwrap()), [own].into());
    registry.detach(&"a".repeat(64).parse().unwrap());
    registry.reconsider();
    assert_eq!(secrets(), [["a", "mine"]]);
}
