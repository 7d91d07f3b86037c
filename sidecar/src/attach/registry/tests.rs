mod mounts;
mod published;
mod shared;
mod state;
mod texts;
mod watching;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use understudy_control::{
    ArmLogin, Client, ControlDirectory, Decide, Effect, Explain, HelloSecret, Lasting, Listener, LoginMade,
    ManagedFile, Outcome, Placement, Reply, Request, User,
};
use understudy_policies::{Ceiling, Policy, PolicySet, Verdict};

use super::*;
use crate::accounts::Token;
use crate::accounts::record::{Record, StandIns, Tokens};
use crate::attach::descriptors::tests::{good as sockets, publishing};
use crate::audit::Audit;
use crate::ceiling::same_grants;
use crate::connection::doors::Doors;
use crate::connection::ssh::admission::Admission;
use crate::credentials::Grants;
use crate::current::Current;
use crate::operator::Mode;
use crate::operator::questions::QuestionLimits;
use crate::tls::Authority;

/// A harness for which the operator revokes the container while its terms are decided.
const REVOKED_MEANWHILE: &str = "revoked-meanwhile";

type AllLeased = Vec<(Arc<Container>, Leased)>;

struct Stand {
    registry: Registry,
    started: Arc<AtomicUsize>,
    /// What leads to containers, as the tasks of each hold it until it is revoked.
    leased: Arc<Mutex<AllLeased>>,
    all_withdrawn: Arc<Mutex<bool>>,
    audit: Audit,
    state: tempfile::TempDir,
    control: tempfile::TempDir,
}

fn stand() -> Stand {
    let (state, control) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    stand_in(state, control)
}

fn stand_in(state: tempfile::TempDir, control: tempfile::TempDir) -> Stand {
    if !state.path().join("authority.pem").exists() {
        AUTHORITY.keep(&state.path().join("authority.pem")).unwrap();
    }
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let leased: Arc<Mutex<AllLeased>> = Arc::default();
    let running = Arc::clone(&leased);
    let all_withdrawn = Arc::new(Mutex::new(false));
    let withdrawn = Arc::clone(&all_withdrawn);
    let decisions = Arc::new(Decisions::load(&state.path().join("decisions.json")).unwrap());
    let decided = Arc::clone(&decisions);
    let revocations = Revocations::new(state.path().join("revoked"));
    let meanwhile = revocations.clone();
    let audit = Audit::new(std::io::sink(), Current::default());
    let kept = audit.clone();
    let registry = Registry::new(RegistryParts {
        decide_terms: Box::new(move |prepare| {
            let harness = prepare.annotations.get("understudy.harness");
            let harness = harness.ok_or_else(|| Refusal::new("no harness", "name one"))?;
            if harness == REVOKED_MEANWHILE {
                meanwhile.add(&prepare.id).unwrap();
            }
            Ok(Terms {
                harness: harness.clone(),
                policy: Arc::new(PolicySet::default()),
                mode: Mode::Deny,
                grants: Arc::new(Grants::default()),
                asked: Asked::new(prepare, harness, ["a"].into_iter().collect()),
                env: Vec::new(),
                placement: Placement::default(),
                notes: Vec::new(),
                same_grants: same_grants(&prepare.managed, &Ceiling::default()),
            })
        }),
        look: Box::new(|name, text| match text {
            b"real" => Err(Refusal::new(name, "take it out")),
            text => Ok((text == b"suspicious").then(|| name.to_owned())),
        }),
        decide_rights: Box::new(move |asked| Rights {
            values: Vec::new(),
            grants: Arc::new(if *withdrawn.lock().unwrap() {
                Grants::default()
            } else {
                let own = asked.own.iter().filter(|own| own.name == "work" && asked.prepare.image.is_none());
                asked.granted.names().into_iter().chain(own.map(|_| "mine".to_owned())).collect()
            }),
            policy: Arc::new(PolicySet::combine(vec![Arc::new(Policy::new(
                "operator",
                decided.rules(&asked.prepare.id, 0),
            ))])),
            ..Rights::default()
        }),
        start: Box::new(move |container, _, leased| {
            count.fetch_add(1, Relaxed);
            running.lock().unwrap().extend(leased.into_iter().map(|leased| (Arc::clone(&container), leased)));
            Ok(())
        }),
        leases: Leases::new([127, 0, 0, 1].into()),
        history: Arc::new(History::open(state.path(), control.path(), &revocations).unwrap()),
        revocations,
        own_logins: OwnLogins::new(state.path().join("own-logins")),
        may_decide: Box::new(|rule, managed| match rule.place.is_empty() || !managed.is_empty() {
            true => Err(Refusal::new("beyond what is managed", "no")),
            false => Ok(()),
        }),
        decisions: Arc::clone(&decisions),
        named: Arc::default(),
        questions: Questions::new(QuestionLimits::default(), None, Arc::clone(audit.bell())),
        arming: Arc::default(),
        keep_login: Box::new(|_, made| match made.shown.account.as_str() {
            name @ "taken" => Err(KeepError::Stored(name.to_owned())),
            _ => Ok(vec![("mine".to_owned(), true), ("not-mine".to_owned(), false)]),
        }),
        authorities: Arc::new(Authorities::open(state.path()).unwrap()),
        key: "k".to_owned(),
        range: SyntheticRange::default(),
        own_cookie: 0,
        problems: Box::new(Vec::new),
        audit_file: None,
        metrics: Box::new(|_| String::new()),
        doors: Box::new(|grants, host, _| {
            let ssh = match (host.as_str(), grants.contains("a")) {
                ("git.example", true) => Admission::As(vec!["git".to_owned()]),
                ("git.example", false) => Admission::Closed("secret `a` is for git.example".to_owned()),
                _ => Admission::NoKey,
            };
            Doors { ssh, ..Doors::none() }
        }),
        bell: Arc::clone(audit.bell()),
        lines: Box::new(move |from| kept.since(from)),
        secrets: Box::new(|holders| holders.keys().map(|name| held(name, &holders[name])).collect()),
    });
    Stand { registry, started, leased, all_withdrawn, audit, state, control }
}

fn held(name: &str, holders: &[String]) -> SecretStatus {
    SecretStatus {
        name: name.to_owned(),
        kind: String::new(),
        source: String::new(),
        usable: true,
        problem: None,
        hosts: Vec::new(),
        placements: Vec::new(),
        expires: None,
        holders: holders.to_vec(),
        last_use: None,
        swaps: 0,
        leaks: 0,
        agent_can_read: String::new(),
    }
}

/// Every stand's first, so that what a container was started with can be said without one.
static AUTHORITY: LazyLock<Authority> =
    LazyLock::new(|| Authority::load_or_create(tempfile::tempdir().unwrap().path()).unwrap());

/// As it comes back with a re-attach.
fn origin() -> Origin {
    Origin { authority: AUTHORITY.tag(), key: "k".to_owned() }
}

fn prepare(id: &str, name: &str) -> Prepare {
    Prepare {
        id: id.repeat(64).parse().unwrap(),
        name: Some(name.to_owned()),
        image: None,
        annotations: BTreeMap::from([("understudy.harness".to_owned(), "generic".to_owned())]),
        user: User { uid: 0, gid: 0 },
        env: BTreeMap::new(),
        args: Vec::new(),
        managed: Vec::new(),
        joins: None,
        origin: Some(origin()),
        mounts: None,
    }
}

fn attach(registry: &Registry, id: &str) -> Result<(), Refusal> {
    let (attach, descriptors) = sockets(id);
    registry.attach(&attach, descriptors)
}

fn states(registry: &Registry) -> Vec<(String, String)> {
    let status = registry.status();
    status.containers.into_iter().map(|c| (c.name.unwrap_or_default(), c.state)).collect()
}

#[test]
fn a_container_is_prepared_attached_and_detached() {
    let stand = stand();
    let prepared = stand.registry.prepare(prepare("a", "agent")).unwrap();
    assert_eq!(
        (prepared.authority.as_str(), prepared.nameserver.to_string()),
        (AUTHORITY.certificate_pem(), "28.0.0.1".to_owned())
    );
    assert_eq!(states(&stand.registry), [("agent".to_owned(), "prepared".to_owned())]);
    attach(&stand.registry, "a").unwrap();
    assert_eq!(states(&stand.registry), [("agent".to_owned(), "attached".to_owned())]);
    assert_eq!(stand.started.load(Relaxed), 1);
    stand.registry.detach(&"a".repeat(64).parse().unwrap());
    assert_eq!(states(&stand.registry), []);
}

#[test]
fn nothing_is_attached_that_was_not_prepared_or_twice() {
    let stand = stand();
    assert!(attach(&stand.registry, "a").is_err());
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    assert!(attach(&stand.registry, "a").unwrap_err().reason.contains("already"));
    assert_eq!(stand.started.load(Relaxed), 1);
    assert_eq!(states(&stand.registry), [("agent".to_owned(), "attached".to_owned())]);
}

#[test]
fn a_reload_reaches_running_containers_and_those_in_the_middle_of_a_start() {
    let stand = stand();
    let secrets = |at: usize| stand.registry.status().containers[at].secrets.clone();
    stand.registry.prepare(prepare("a", "a")).unwrap();
    attach(&stand.registry, "a").unwrap();
    stand.registry.prepare(prepare("b", "b")).unwrap();
    assert_eq!((secrets(0), secrets(1)), (vec!["a".to_owned()], vec!["a".to_owned()]));
    *stand.all_withdrawn.lock().unwrap() = true;
    stand.registry.reconsider();
    attach(&stand.registry, "b").unwrap();
    assert_eq!((secrets(0), secrets(1)), (vec![], vec![]));
    *stand.all_withdrawn.lock().unwrap() = false;
    stand.registry.reconsider();
    assert_eq!((secrets(0), secrets(1)), (vec!["a".to_owned()], vec!["a".to_owned()]));
}

fn login(account: &str) -> (LoginMade, String) {
    let (account, kind, code) = (account.to_owned(), "kind".to_owned(), "c0de".to_owned());
    (LoginMade { account, kind, whose: None, code, to_be_made: false }, "uid".to_owned())
}

#[test]
fn a_container_gets_a_login_that_it_made_once_the_operator_confirmed_it() {
    let stand = stand();
    let registry = &stand.registry;
    let arm = |container: &str, account: &str, seconds| {
        let account = Some(account.to_owned());
        registry.arm_login(&ArmLogin { container: container.to_owned(), account, seconds })
    };
    registry.prepare(prepare("a", "agent")).unwrap();
    assert!(arm("agent", "work", 60).unwrap_err().reason.contains("does not run yet"));
    attach(registry, "a").unwrap();
    assert!(arm("nobody", "work", 60).is_err() && arm("agent", "work", 86_401).is_err());
    assert!(arm("agent", "../work", 60).unwrap_err().reason.contains("lower-case"));
    assert!(registry.keep_login("agent", "c0de").unwrap_err().reason.contains("not armed"));
    let (agent, other) = ("a".repeat(64).parse().unwrap(), "b".repeat(64).parse().unwrap());
    assert!(!registry.parts.own_logins.is_known(&agent));
    arm("agent", "taken", 60).unwrap();
    assert!(registry.parts.own_logins.is_known(&agent));
    assert!(registry.keep_login("agent", "c0de").unwrap_err().reason.contains("no login was made"));
    let made = |account: &str| {
        let token = |text: &str| Token::new(text.to_owned());
        let tokens = Tokens { access: token("access"), refresh: Some(token("refresh")), id: None };
        let attempt = registry.parts.arming.begin(&"a".repeat(64).parse().unwrap(), false).unwrap();
        attempt.made(login(account), Some(Record::new("kind", tokens, StandIns::default())), false)
    };
    let mut hears = made("taken");
    assert_eq!(registry.armed_logins()[0].made.as_ref().map(|made| made.kind.as_str()), Some("kind"));
    assert!(registry.keep_login("agent", "c0de").unwrap_err().reason.contains("not replaced"));
    assert!(hears.try_recv().is_err());
    registry.forget_login("agent").unwrap();
    assert!(registry.armed_logins().is_empty());
    arm("agent", "work", 60).unwrap();
    let mut hears = made("work");
    // It is not the one that was there a moment ago.
    assert!(registry.keep_login("agent", "0ther").unwrap_err().reason.contains("a newer login is waiting"));
    let kept = registry.keep_login("agent", "c0de").unwrap();
    assert_eq!((kept.secrets.len(), kept.granted, kept.told), (2, vec!["mine".to_owned()], true));
    assert!(hears.try_recv().is_ok());
    assert_eq!(registry.status().containers[0].secrets, ["a", "mine"]);
    // A container that is gone is armed for nothing.
    arm("agent", "work", 60).unwrap();
    registry.detach(&"a".repeat(64).parse().unwrap());
    assert!(registry.armed_logins().is_empty() && !registry.parts.arming.concerns(&agent));
    // A sidecar that starts again gives the container what it was given, and looks at a login that comes late; and no other.
    for (id, name, expected) in [("a", "agent", &["a", "mine"][..]), ("b", "other", &["a"])] {
        let (attach, descriptors) = sockets(id);
        registry.reattach(Reattach { prepare: prepare(id, name), attach }, descriptors).unwrap();
        let status = registry.status();
        let found =
            status.containers.iter().find(|container| container.name.as_deref() == Some(name)).unwrap();
        assert_eq!(found.secrets, expected);
    }
    assert!(registry.parts.arming.concerns(&agent) && !registry.parts.arming.concerns(&other));
}

#[test]
fn a_container_that_is_started_again_goes_on_with_what_it_used_and_another_begins_anew() {
    let stand = stand();
    let meter = |name: &str| {
        let known = stand.registry.known();
        let mut all = known.values().filter_map(Known::container);
        Arc::clone(&all.find(|container| container.label() == name).unwrap().meter)
    };
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    meter("agent").pass(100);
    stand.registry.detach(&"a".repeat(64).parse().unwrap());
    for (id, name, used) in [("a", "agent", 100), ("b", "other", 0)] {
        stand.registry.prepare(prepare(id, name)).unwrap();
        attach(&stand.registry, id).unwrap();
        assert_eq!(meter(name).bytes(), used);
    }
    let (attach, descriptors) = sockets("a");
    stand.registry.reattach(Reattach { prepare: prepare("a", "agent"), attach }, descriptors).unwrap();
    assert_eq!(meter("agent").bytes(), 100);
}

#[test]
fn who_holds_a_stand_in_is_told_and_whether_it_is_still_worth_something() {
    let stand = stand();
    for (id, name) in [("a", "one"), ("b", "two"), ("c", "three")] {
        stand.registry.prepare(prepare(id, name)).unwrap();
    }
    attach(&stand.registry, "a").unwrap();
    attach(&stand.registry, "b").unwrap();
    let holders = || stand.registry.secrets()[0].holders.clone();
    assert_eq!(holders(), ["one", "two"]);
    stand.registry.revoke("two").unwrap();
    assert_eq!(holders(), ["one", "two (revoked)"]);
    *stand.all_withdrawn.lock().unwrap() = true;
    stand.registry.reconsider();
    assert_eq!(holders(), ["one (no longer granted)", "two (revoked)"]);
}

#[test]
fn a_refused_container_is_not_kept() {
    let stand = stand();
    let mut bad = prepare("a", "agent");
    bad.annotations.clear();
    assert_eq!(stand.registry.prepare(bad).unwrap_err().reason, "no harness");
    assert_eq!(states(&stand.registry), []);
}

#[test]
fn a_revoked_container_gets_nothing_back() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    attach(&stand.registry, "a").unwrap();
    stand.registry.revoke("agent").unwrap();
    assert_eq!(states(&stand.registry), [("agent".to_owned(), "revoked".to_owned())]);
    assert!(stand.registry.prepare(prepare("a", "agent")).unwrap_err().reason.contains("revoked"));
    let (attach, descriptors) = sockets("a");
    let both = Reattach { prepare: prepare("a", "agent"), attach };
    assert!(stand.registry.reattach(both, descriptors).unwrap_err().reason.contains("revoked"));
}

#[test]
fn a_revocation_in_the_middle_of_a_start_holds() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "agent")).unwrap();
    stand.registry.revoke("agent").unwrap();
    assert!(attach(&stand.registry, "a").unwrap_err().reason.contains("revoked"));

    let mut late = prepare("b", "other");
    late.annotations.insert("understudy.harness".to_owned(), REVOKED_MEANWHILE.to_owned());
    let (attach, descriptors) = sockets("b");
    let both = Reattach { prepare: late, attach };
    assert!(stand.registry.reattach(both, descriptors).unwrap_err().reason.contains("revoked"));
    assert_eq!(stand.started.load(Relaxed), 0);
}

#[test]
fn a_decision_is_in_force_at_once_for_whom_it_was_made_and_can_be_taken_back() {
    let stand = stand();
    for (id, name) in [("a", "one"), ("b", "two")] {
        stand.registry.prepare(prepare(id, name)).unwrap();
        attach(&stand.registry, id).unwrap();
    }
    let decide = |effect, host: &str, container: Option<&str>, lasting| {
        let container = container.map(str::to_owned);
        match stand.registry.decide(&Decide { effect, host: host.to_owned(), container, lasting })? {
            Decided::Kept(decision) => Ok(decision),
            other => panic!("{other:?}"),
        }
    };
    let allowed = |id: &str| {
        let known = stand.registry.known();
        let rights = known[&id.repeat(64).parse().unwrap()].container().unwrap().rights();
        matches!(rights.policy.decide(&"a.example".parse().unwrap(), 443), Verdict::Allowed { .. })
    };
    let one = decide(Effect::Allow, "a.example", Some("one"), Lasting::Container).unwrap();
    assert!(allowed("a") && !allowed("b"));
    let all = decide(Effect::Allow, "a.example", None, Lasting::Always).unwrap();
    assert!(allowed("a") && allowed("b"));
    decide(Effect::Deny, "a.example", Some("two"), Lasting::Seconds(60)).unwrap();
    assert!(allowed("a") && !allowed("b"));
    stand.registry.withdraw(all.number).unwrap();
    stand.registry.withdraw(one.number).unwrap();
    assert!(!allowed("a"));
    assert_eq!(stand.registry.status().decisions.len(), 1);
    for (host, container, lasting, said) in [
        ("a.example/x", None, Lasting::Always, "a scheme or path"),
        ("*", None, Lasting::Always, "every host"),
        ("a.example", None, Lasting::Container, "no container is named"),
        ("a.example", Some("three"), Lasting::Always, "no container \"three\""),
        ("a.example", None, Lasting::Once, "no request waits"),
    ] {
        let refusal: Refusal = decide(Effect::Allow, host, container, lasting).unwrap_err();
        assert!(refusal.reason.contains(said), "{refusal}");
    }
    assert!(stand.registry.withdraw(99).is_err());
}

#[test]
fn decisions_of_containers_that_are_gone_are_marked_and_can_be_taken_back_together() {
    let stand = stand();
    for (id, name) in [("a", "stays"), ("b", "goes"), ("c", "prepared")] {
        stand.registry.prepare(prepare(id, name)).unwrap();
    }
    for id in ["a", "b"] {
        attach(&stand.registry, id).unwrap();
    }
    let decide = |host: &str, container: Option<&str>, lasting| {
        let (host, container) = (host.to_owned(), container.map(str::to_owned));
        stand.registry.decide(&Decide { effect: Effect::Deny, host, container, lasting })
    };
    decide("a.example", Some("stays"), Lasting::Container).unwrap();
    decide("a.example", Some("prepared"), Lasting::Container).unwrap();
    decide("a.example", Some("goes"), Lasting::Container).unwrap();
    decide("b.example", Some("goes"), Lasting::Seconds(600)).unwrap();
    decide("c.example", Some("goes"), Lasting::Always).unwrap();
    decide("d.example", None, Lasting::Always).unwrap();
    assert!(stand.registry.status().gone.is_empty());
    assert!(stand.registry.withdraw_gone().unwrap().is_empty());

    stand.registry.detach(&"b".repeat(64).parse().unwrap());
    let numbers = |decisions: Vec<understudy_control::DecisionStatus>| -> Vec<u64> {
        decisions.iter().map(|decision| decision.number).collect()
    };
    assert_eq!(stand.registry.status().gone, [3, 4]);
    assert_eq!(numbers(stand.registry.withdraw_gone().unwrap()), [3, 4]);
    let status = stand.registry.status();
    assert_eq!((numbers(status.decisions), status.gone), (vec![1, 2, 5, 6], vec![]));

    for number in 0..196 {
        decide(&format!("{number}.example"), Some("stays"), Lasting::Container).unwrap();
    }
    let refusal = decide("e.example", Some("stays"), Lasting::Container).unwrap_err();
    assert!(refusal.reason.contains("200 decisions are kept already"), "{refusal}");
    assert!(refusal.remedy.contains("understudy withdraw --gone"), "{refusal}");
}

#[test]
fn what_is_said_once_answers_what_is_asked_now_and_says_how_much_that_was() {
    let stand = stand();
    let questions = Arc::clone(&stand.registry.parts.questions);
    let mut waiting = Vec::new();
    for (id, name) in [("a", "one"), ("b", "two")] {
        stand.registry.prepare(prepare(id, name)).unwrap();
        attach(&stand.registry, id).unwrap();
        let container = stand.registry.known()[&id.repeat(64).parse().unwrap()].container().cloned().unwrap();
        // Two requests are one question.
        for _ in 0..2 {
            waiting.push(questions.ask(&container, &"a.example".parse().unwrap(), 443).unwrap());
        }
    }
    let once = |container: Option<&str>| {
        let (host, container) = ("a.example".to_owned(), container.map(str::to_owned));
        let wanted = Decide { effect: Effect::Allow, host, container, lasting: Lasting::Once };
        stand.registry.decide(&wanted)
    };
    assert_eq!(once(Some("one")).unwrap(), Decided::Answered(1));
    assert_eq!(once(None).unwrap(), Decided::Answered(1));
    assert!(once(None).is_err());
    assert!(stand.registry.status().decisions.is_empty());
}

#[test]
fn what_is_said_once_to_all_goes_to_none_whose_own_managed_rules_forbid_it() {
    let stand = stand();
    let questions = Arc::clone(&stand.registry.parts.questions);
    let managed = ManagedFile { path: "m.toml".to_owned(), text: String::new(), spared: Vec::new() };
    stand.registry.prepare(Prepare { managed: vec![managed], ..prepare("a", "managed") }).unwrap();
    stand.registry.prepare(prepare("b", "free")).unwrap();
    let mut waiting = Vec::new();
    for id in ["a", "b"] {
        attach(&stand.registry, id).unwrap();
        let container = stand.registry.known()[&id.repeat(64).parse().unwrap()].container().cloned().unwrap();
        waiting.push(questions.ask(&container, &"a.example".parse().unwrap(), 443).unwrap());
    }
    let once = |effect| {
        let host = "a.example".to_owned();
        stand.registry.decide(&Decide { effect, host, container: None, lasting: Lasting::Once })
    };
    assert_eq!(once(Effect::Allow).unwrap(), Decided::Answered(1));
    assert_eq!(questions.list()[0].container, "managed");
    let refusal = once(Effect::Allow).unwrap_err();
    assert!(refusal.reason.contains("beyond what is managed"), "{refusal}");
    assert_eq!(questions.list().len(), 1);
}

#[test]
fn revoke_needs_one_container() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "one")).unwrap();
    stand.registry.prepare(prepare("b", "two")).unwrap();
    for wanted in ["", "none", "c"] {
        assert!(stand.registry.revoke(wanted).is_err(), "{wanted:?}");
    }
    stand.registry.revoke("aaaa").unwrap();
    assert!(stand.registry.prepare(prepare("b", "two")).is_ok());

    // The name of one is how the id of another begins.
    stand.registry.prepare(prepare("c", "bbb")).unwrap();
    stand.registry.revoke("bbb").unwrap();
    assert!(stand.registry.prepare(prepare("c", "bbb")).is_err());
    assert!(stand.registry.prepare(prepare("b", "two")).is_ok());

    // One that calls itself what Podman prints of another's id gets nobody in the other's stead, and a whole id is never a name.
    let (short, whole) = ("b".repeat(12), "b".repeat(64));
    stand.registry.prepare(prepare("d", &short)).unwrap();
    stand.registry.prepare(prepare("e", &whole)).unwrap();
    let refusal = stand.registry.revoke(&short).unwrap_err();
    assert!(refusal.remedy.contains("--no-trunc"), "{refusal}");
    stand.registry.revoke(&whole).unwrap();
    assert!(stand.registry.prepare(prepare("b", "two")).is_err());
    assert!(stand.registry.prepare(prepare("e", &whole)).is_ok());
}

#[test]
fn all_are_revoked_at_once_those_in_the_middle_of_their_start_too() {
    let stand = stand();
    for (id, name) in [("a", "one"), ("b", "two"), ("c", "starting")] {
        stand.registry.prepare(prepare(id, name)).unwrap();
    }
    attach(&stand.registry, "a").unwrap();
    attach(&stand.registry, "b").unwrap();
    let running: Vec<_> =
        stand.registry.known().values().filter_map(|entry| entry.container().cloned()).collect();
    assert_eq!(stand.registry.revoke_all().unwrap(), ["one", "starting", "two"]);
    assert!(running.len() == 2 && running.iter().all(|container| container.is_revoked()));
    assert!(attach(&stand.registry, "c").unwrap_err().reason.contains("revoked"));
    for id in ["a", "b", "c"] {
        assert!(stand.registry.prepare(prepare(id, "again")).is_err(), "{id}");
    }
    // One that comes later is another.
    stand.registry.prepare(prepare("d", "later")).unwrap();
    attach(&stand.registry, "d").unwrap();
}

#[test]
fn what_cannot_be_recorded_is_told_and_cut_all_the_same() {
    let stand = stand();
    for (id, name) in [("a", "one"), ("b", "two")] {
        stand.registry.prepare(prepare(id, name)).unwrap();
        attach(&stand.registry, id).unwrap();
    }
    std::fs::write(stand.state.path().join("revoked"), "not a directory").unwrap();
    let running: Vec<_> =
        stand.registry.known().values().filter_map(|entry| entry.container().cloned()).collect();
    let refusal = stand.registry.revoke_all().unwrap_err();
    assert!(refusal.reason.contains("could not be recorded"), "{refusal}");
    assert!(running.len() == 2 && running.iter().all(|container| container.is_revoked()));
}

#[test]
fn a_request_is_explained_by_what_the_container_is_under_now() {
    let stand = stand();
    stand.registry.prepare(prepare("a", "one")).unwrap();
    attach(&stand.registry, "a").unwrap();
    let explain = |container: &str, url: &str| {
        let (container, url) = (container.to_owned(), url.to_owned());
        stand.registry.explain(&Explain { container, method: None, url })
    };
    let refused = explain("one", "https://a.example/x").unwrap();
    assert_eq!((refused.decision, refused.reason.as_deref()), (Outcome::Refused, Some("host-not-allowed")));
    assert!(refused.remedy.contains("understudy allow a.example --container one"), "{refused:?}");
    let decide = |effect, lasting| {
        let host = "a.example".to_owned();
        let container = Some("one".to_owned());
        stand.registry.decide(&Decide { effect, host, container, lasting }).unwrap();
    };
    decide(Effect::Allow, Lasting::Container);
    let allowed = explain(&"a".repeat(64), "a.example").unwrap();
    assert_eq!((allowed.decision, allowed.rule.as_deref()), (Outcome::Allowed, Some("operator decision 1")));
    decide(Effect::Deny, Lasting::Always);
    let denied = explain("one", "a.example").unwrap();
    assert_eq!(denied.rule.as_deref(), Some("operator decision 2"));
    assert!(denied.remedy.contains("`understudy withdraw 2`"), "{denied:?}");
    assert_eq!(denied.rules.len(), 2);
    // Git over SSH, by the key that it has.
    let pushed = |url: &str| {
        let (container, method) = ("one".to_owned(), Some("git-receive-pack".to_owned()));
        stand.registry.explain(&Explain { container, method, url: url.to_owned() }).unwrap()
    };
    let refused = pushed("git@git.example:org/repo");
    assert_eq!(refused.reason.as_deref(), Some("host-not-allowed"));
    assert!(refused.remedy.contains("`understudy allow git.example:22 --container one`"), "{refused:?}");
    assert!(refused.assumed.is_none());
    assert_eq!(pushed("root@git.example:org/repo").reason.as_deref(), Some("credential-restricted"));
    assert_eq!(pushed("git@other.example:org/repo").reason.as_deref(), Some("protocol-not-allowed"));
    *stand.all_withdrawn.lock().unwrap() = true;
    stand.registry.reconsider();
    assert_eq!(pushed("git@git.example:org/repo").reason.as_deref(), Some("credential-not-granted"));
    stand.registry.revoke("one").unwrap();
    for url in ["a.example", "tcp://a.example:1", "ssh://git.example/org/repo"] {
        assert_eq!(explain("one", url).unwrap().reason.as_deref(), Some("revoked"), "{url}");
    }
    assert!(explain("none", "a.example").is_err());
    assert!(explain("one", "https://10.0.0.1/").unwrap_err().reason.contains("address"));
}

/// A control packet holds 128 KiB.
#[test]
fn the_status_of_a_thousand_containers_reaches_whoever_asks() {
    let stand = stand();
    for number in 0..1000 {
        let mut one = prepare("a", &format!("agent-{number:04}"));
        one.id = format!("{number:064x}").parse().unwrap();
        stand.registry.prepare(one).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let control = ControlDirectory::new(directory.path().join("control"));
    let hello = HelloSecret::from_hex(&"a".repeat(64)).unwrap();
    let listener = Listener::bind(&control, hello).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (registry, stopped) = (Arc::new(stand.registry), Arc::clone(&stop));
    let server = std::thread::spawn(move || crate::attach::server::serve(listener, registry, stopped));
    let client = Client::new(control, Duration::from_secs(30));
    let Reply::Status(status) = client.call(Request::Status, &[]).unwrap() else { panic!("no status") };
    assert_eq!(status.containers.len(), 1000);
    assert!(serde_json::to_vec(&status).unwrap().len() > understudy_control::MAX_PACKET);
    assert!(status.containers.iter().enumerate().all(|(number, container)| {
        container.name.as_deref() == Some(format!("agent-{number:04}").as_str())
    }));
    stop.store(true, Relaxed);
    server.join().unwrap();
}

#[test]
fn a_reattach_replaces_the_sockets_and_must_be_about_one_container() {
    let stand = stand();
    let both = |id: &str| {
        let (attach, descriptors) = sockets("a");
        (Reattach { prepare: prepare(id, "agent"), attach }, descriptors)
    };
    let (good, descriptors) = both("a");
    stand.registry.reattach(good, descriptors).unwrap();
    let (again, descriptors) = both("a");
    stand.registry.reattach(again, descriptors).unwrap();
    assert_eq!(stand.started.load(Relaxed), 2);
    let (mixed, descriptors) = both("b");
    assert!(stand.registry.reattach(mixed, descriptors).is_err());
}
