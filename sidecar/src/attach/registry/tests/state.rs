//! A sidecar with another state than containers were started with.

use super::*;

impl Stand {
    fn reattach(&self, prepare: Prepare) -> Result<(), Refusal> {
        let (attach, descriptors) = sockets("a");
        self.registry.reattach(Reattach { prepare, attach }, descriptors)
    }

    /// The next sidecar, whose state volume holds what `state` does.
    fn next(self, state: tempfile::TempDir) -> Self {
        let Self { registry, control, .. } = self;
        drop(registry);
        stand_in(state, control)
    }
}

#[test]
fn a_container_of_another_installation_is_not_given_back() {
    let stand = stand();
    let other = |authority: &str, key: &str| {
        let origin = Some(Origin { authority: authority.to_owned(), key: key.to_owned() });
        Prepare { origin, ..prepare("a", "agent") }
    };
    let ours = AUTHORITY.tag();
    for unknown in [other("b", "k"), other(&ours, "l"), Prepare { origin: None, ..prepare("a", "agent") }] {
        let refusal = stand.reattach(unknown.clone()).unwrap_err();
        assert_eq!(refusal.remedy, "start it again", "{refusal}");
        assert_eq!(stand.started.load(Relaxed), 0);
        // Nor as a member of a pod, which is cut.
        stand.registry.prepare(prepare("b", "first")).unwrap();
        attach(&stand.registry, "b").unwrap();
        let joins = Some("b".repeat(64).parse().unwrap());
        stand.registry.rejoin(Prepare { joins, ..unknown }).unwrap_err();
        assert_eq!(states(&stand.registry), [("first".to_owned(), "revoked".to_owned())]);
        stand.registry.detach(&"b".repeat(64).parse().unwrap());
        stand.started.store(0, Relaxed);
    }
    stand.reattach(other(&ours, "k")).unwrap();
    // At its start it gets what there is now.
    stand.registry.prepare(other("b", "l")).unwrap();
}

#[test]
fn a_state_that_lacks_what_was_decided_gives_nothing_until_it_is_accepted() {
    let stand = stand();
    for (id, name) in [("a", "agent"), ("b", "bad")] {
        stand.registry.prepare(prepare(id, name)).unwrap();
        attach(&stand.registry, id).unwrap();
    }
    stand.registry.accept_state().unwrap_err();
    stand.registry.revoke("bad").unwrap();
    let next = stand.next(tempfile::tempdir().unwrap());
    for refusal in [
        next.reattach(prepare("a", "agent")).unwrap_err(),
        next.registry.prepare(prepare("a", "agent")).unwrap_err(),
        next.registry.prepare(prepare("c", "new")).unwrap_err(),
    ] {
        assert!(refusal.remedy.contains("understudy accept-state"), "{refusal}");
    }
    // What those trust that could not be given back yet stays.
    next.registry.rotate_authority().unwrap();
    let unused = || {
        next.registry.expire();
        next.registry.parts.authorities.unused()
    };
    assert_eq!(unused(), 0);
    next.registry.accept_state().unwrap();
    assert_eq!(unused(), 1);
    next.reattach(prepare("a", "agent")).unwrap();
    assert_eq!(unused(), 0);
    let refusal = next.registry.prepare(prepare("b", "bad")).unwrap_err();
    assert!(refusal.reason.contains("revoked"), "{refusal}");
}

#[test]
fn all_that_the_operator_takes_away_is_noted() {
    let number = |stand: &Stand| {
        let path = stand.control.path().join(understudy_control::generation::FILE);
        understudy_control::Generation::read(&path).unwrap().unwrap().number
    };
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    let container = Some("agent".to_owned());
    let denied =
        Decide { effect: Effect::Deny, host: "a.example".to_owned(), container, lasting: Lasting::Container };
    let steps: [(&str, &dyn Fn()); 5] = [
        ("deny", &|| drop(stand.registry.decide(&denied).unwrap())),
        ("withdraw", &|| drop(stand.registry.withdraw(1).unwrap())),
        ("arm", &|| {
            let wanted = ArmLogin { container: "agent".to_owned(), account: None, seconds: 60 };
            drop(stand.registry.arm_login(&wanted).unwrap());
        }),
        ("withdraw --gone", &|| {
            stand.registry.decide(&denied).unwrap();
            stand.registry.detach(&"a".repeat(64).parse().unwrap());
            let before = number(&stand);
            assert_eq!(stand.registry.withdraw_gone().unwrap().len(), 1);
            assert_eq!(number(&stand), before + 1);
        }),
        ("revoke", &|| {
            stand.registry.prepare(prepare("a", "agent")).unwrap();
            drop(stand.registry.revoke("agent").unwrap());
        }),
    ];
    for (what, step) in steps {
        let before = number(&stand);
        step();
        assert!(number(&stand) > before, "{what}");
    }
    // What cannot be noted is said.
    std::fs::remove_dir_all(stand.control.path()).unwrap();
    let refusal =
        stand.registry.decide(&Decide { container: None, lasting: Lasting::Always, ..denied }).unwrap_err();
    assert!(refusal.reason.contains("it is in force"), "{refusal}");
    let refusal = stand.registry.revoke_all().unwrap_err();
    assert!(refusal.reason.contains("the connections were ended"), "{refusal}");
    assert!(stand.state.path().join("revoked").join("a".repeat(64)).exists());
}

#[test]
fn each_container_is_answered_by_the_authority_that_it_was_started_with() {
    let trusted = |stand: &Stand, id: &str| {
        let id: ContainerId = id.repeat(64).parse().unwrap();
        let known = stand.registry.known();
        known[&id].container().unwrap().leaves().unwrap().authority().tag()
    };
    let stand = stand();
    let started = |id: &str, joins: Option<&str>| {
        let joins = joins.map(|id| id.repeat(64).parse().unwrap());
        stand.registry.prepare(Prepare { joins, ..prepare(id, id) }).unwrap()
    };
    let old = started("a", None);
    attach(&stand.registry, "a").unwrap();
    // In the middle of its start.
    let between = started("b", None);
    stand.registry.rotate_authority().unwrap();
    attach(&stand.registry, "b").unwrap();
    let new = started("c", None);
    attach(&stand.registry, "c").unwrap();
    assert_eq!((&old.origin, &old.authority), (&between.origin, &between.authority));
    assert_ne!(old.authority, new.authority);
    // Of a pod, all trust what the first does.
    let joined = started("d", Some("a"));
    assert_eq!((&joined.origin, &joined.authority), (&old.origin, &old.authority));
    assert_eq!(
        ["a", "b", "c"].map(|id| trusted(&stand, id)),
        [&old, &old, &new].map(|p| p.origin.authority.clone())
    );
    // For the next sidecar, too.
    let (state, control) = (stand.state, stand.control);
    drop(stand.registry);
    let next = stand_in(state, control);
    for (id, origin) in [("a", &old.origin), ("c", &new.origin)] {
        let (attach, descriptors) = sockets(id);
        let prepare = Prepare { origin: Some(origin.clone()), ..prepare(id, id) };
        next.registry.reattach(Reattach { prepare, attach }, descriptors).unwrap();
        assert_eq!(trusted(&next, id), origin.authority);
    }
    // And a member of a pod that trusts another one than the first is not answered by it.
    let joins = Some("a".repeat(64).parse().unwrap());
    let member =
        |origin: &Origin| Prepare { origin: Some(origin.clone()), joins: joins.clone(), ..prepare("d", "d") };
    next.registry.rejoin(member(&old.origin)).unwrap();
    next.registry.detach(&"d".repeat(64).parse().unwrap());
    let refusal = next.registry.rejoin(member(&new.origin)).unwrap_err();
    assert!(refusal.reason.contains("another authority"), "{refusal}");
}
