//! Whether what a container would be given stays below two ceilings: the machine's, whose text the hook has read on the
//! host and sends along, and the user's own `ceiling.toml`.

mod mounts;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use understudy_control::annotation::{self, KNOWN};
use understudy_control::{ManagedFile, Prepare, Refusal};
use understudy_policies::annotation::{NAME as ALLOWED, OPERATOR};
use understudy_policies::ceiling::{Held, Missing};
use understudy_policies::{Asked, Ceiling, Log, Policies, Policy, PolicySet, Rule, builtin};

use crate::credentials::{DEFAULT_HARNESS, Rights, Terms};
use crate::operator::Mode;
pub use mounts::SameGrants;
pub(crate) use mounts::same_grants;

/// Lines about rules that others leave nothing of; `explain` and `check` tell all.
const MOST_NOTES: usize = 5;

/// Comparisons to find those lines while a container waits for its start: some milliseconds.
const MOST_COMPARED: usize = 100_000;

/// What a container has that does not carry an annotation.
pub(crate) const DEFAULTS: [(&str, &str); 4] = [
    (annotation::NETWORK, annotation::SEALED),
    (annotation::MODE, "deny"),
    (annotation::POLICY, builtin::HARNESS_ONLY),
    (annotation::HARNESS, DEFAULT_HARNESS),
];

/// The user's; a missing file limits nothing.
pub fn load(path: &Path) -> Result<Ceiling> {
    match fs::read_to_string(path) {
        Ok(text) => {
            let ceiling = Ceiling::parse("ceiling", "ceiling.toml", &text, &KNOWN)?;
            // Only the hook sees containers without an annotation, and what an image is called.
            let unseen = ceiling.requirements().iter().find(|rule| !rule.of.is_for_all());
            let unseen = unseen.map(|rule| (&rule.place, "`images` and `labels` of a [[require]]"));
            let required = ceiling.required().map(|rule| (&rule.place, "`required`"));
            if let Some((place, what)) = required.or(unseen) {
                bail!("{place}: {what} can be asked in /etc/understudy/managed.toml only");
            }
            Ok(ceiling)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ceiling::default()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// What the user's own ceiling makes of the policies that are files, one line each. Of large ones it can take long.
pub fn warnings(policies: &Policies, own: &Ceiling) -> Vec<String> {
    let files = policies.names().filter(|name| !builtin::is_reserved(name));
    files.filter_map(|name| policies.policy(name)).flat_map(|policy| warnings_of(&policy, own)).collect()
}

/// That no container starts with it, or of which of its rules nothing is left.
pub fn warnings_of(policy: &Arc<Policy>, own: &Ceiling) -> Vec<String> {
    let beyond = beyond(policy, own);
    // Without denials of its own it leaves what the policy's own warnings say.
    let denied = own
        .denials()
        .map(|denials| PolicySet::combine(vec![Arc::clone(policy), Arc::new(denials)]).warnings());
    beyond.into_iter().chain(denied.into_iter().flatten()).collect()
}

/// That no container starts with it.
pub fn beyond(policy: &Policy, own: &Ceiling) -> Option<String> {
    let beyond = own.check_hosts(policy).err()?;
    let place = &beyond.place;
    Some(format!("{beyond}, so that no container starts with it; leave it out there, or change {place}"))
}

/// The same terms, with the hosts that a ceiling denies taken out of their policy.
///
/// # Errors
/// The first thing in them that goes beyond a ceiling.
pub fn apply(terms: Terms, prepare: &Prepare, own: &Ceiling) -> Result<Terms, Refusal> {
    let (policy, grants) = (Arc::clone(&terms.policy), Arc::clone(&terms.grants));
    let rights = Rights { policy, grants, mode: terms.mode, ..Rights::default() };
    let Rights { policy, grants, mode, .. } = limit(rights, &terms.harness, prepare, own)?;
    let mut notes = terms.notes;
    // Those of files, `check` tells.
    let annotations = policy.policies().iter().filter(|policy| policy.name() == ALLOWED);
    notes.extend(annotations.flat_map(|policy| policy.warnings()).take(MOST_NOTES).cloned());
    notes.extend(policy.warnings_within(MOST_COMPARED).into_iter().take(MOST_NOTES));
    notes.extend(open(&policy).map(|name| format!("policy `{name}` allows every public host")));
    if mode == Mode::Log {
        notes.push("mode `log`: every public host is allowed, and recorded".to_owned());
    }
    let same_grants = same_grants(&prepare.managed, own);
    Ok(Terms { policy, grants, notes, same_grants, ..terms })
}

fn open(policy: &PolicySet) -> impl Iterator<Item = &str> {
    policy.policies().iter().filter(|policy| policy.is_open()).map(|policy| policy.name())
}

/// The same for the rights of a container that may run already.
///
/// # Errors
/// As [`apply`].
pub fn limit(rights: Rights, harness: &str, prepare: &Prepare, own: &Ceiling) -> Result<Rights, Refusal> {
    let mut policies = rights.policy.policies().to_vec();
    for file in &prepare.managed {
        let managed = Ceiling::parse("managed", &file.path, &file.text, &KNOWN).map_err(|error| {
            Refusal::new(error.to_string(), "the administrator of this machine must mend it")
        })?;
        check(&managed, prepare, harness, &rights, "managed rule", |place| {
            format!("leave it out, or ask the administrator of this machine to change {place}")
        })?;
        let (log, place) = managed.log().unwrap_or((Log::WithSecrets, &file.path));
        may_log(&rights, log, place)?;
        required(&managed, &file.spared, prepare, &rights, "managed rule", |place| {
            format!("ask the administrator of this machine to change {place}")
        })?;
        policies.extend(managed.denials().map(Arc::new));
    }
    // As with an open policy: the annotation can be a stranger's. A ceiling that says nothing of it has no line.
    let (log, place) = own.log().unwrap_or((Log::default(), "ceiling.toml"));
    may_log(&rights, log, place)?;
    if let Some(open) = open(&rights.policy).find(|name| !own.permits_open(name)) {
        // A compose file of a stranger's can name it, too.
        return Err(Refusal::new(
            format!("policy `{open}` allows every public host, which needs your word"),
            match own.place_of_open() {
                Some(place) => {
                    format!("add \"{open}\" to `policies.open` ({place}), if that is what you want")
                }
                None => {
                    format!(
                        "write `policies.open = [\"{open}\"]` into ceiling.toml, if that is what you want"
                    )
                }
            },
        ));
    }
    check(own, prepare, harness, &rights, "your own rule", |place| {
        format!("leave it out, or change {place}")
    })?;
    required(own, &[], prepare, &rights, "your own rule", |place| format!("change {place}"))?;
    let secrets = rights.grants.names();
    if let Some(host) = own.unnamed(&rights.policy).filter(|_| !secrets.is_empty()) {
        // It can be a stranger's, too: what a secret lets the agent read could be sent there.
        return Err(Refusal::new(
            format!(
                "annotation understudy.allow opens `{host}` to a container that is given `{}`, which needs your word",
                secrets.join("`, `")
            ),
            format!(
                "write `annotations.allow-hosts = [\"{host}\"]` into ceiling.toml; or leave it out, and let `{host}` in when \
                 it is needed: understudy.mode=ask, or `understudy allow {host} --container NAME`"
            ),
        ));
    }
    policies.extend(own.denials().map(Arc::new));
    let mut rights = rights;
    if policies.len() > rights.policy.policies().len() {
        rights.policy = Arc::new(PolicySet::combine(policies));
    }
    Ok(rights)
}

/// In mode `log`, a container that was talked into it can send what it likes where it likes.
fn may_log(rights: &Rights, said: Log, place: &str) -> Result<(), Refusal> {
    if rights.mode != Mode::Log {
        return Ok(());
    }
    let secrets = rights.grants.names();
    let (what, needed) = match said {
        Log::WithSecrets => return Ok(()),
        Log::WithoutSecrets if secrets.is_empty() => return Ok(()),
        Log::WithoutSecrets | Log::Never if !secrets.is_empty() => (
            format!(
                "mode `log` allows every public host to a container that is given `{}`",
                secrets.join("`, `")
            ),
            "with-secrets",
        ),
        Log::WithoutSecrets | Log::Never => {
            ("mode `log` allows every public host".to_owned(), "without-secrets")
        }
    };
    Err(Refusal::new(
        format!("{what}, which needs a second word"),
        format!(
            "write `modes.log = \"{needed}\"` into {place}, if that is what you want; or use understudy.mode=ask"
        ),
    ))
}

/// The same rights with rules that the operator decided on, but for those that go beyond a ceiling now.
#[must_use]
pub fn with_decided(
    mut rights: Rights,
    decided: Vec<Rule>,
    managed: &[ManagedFile],
    own: &Ceiling,
) -> Rights {
    let within: Vec<Rule> =
        decided.into_iter().filter(|rule| may_decide(rule, managed, own).is_ok()).collect();
    if !within.is_empty() {
        let mut policies = rights.policy.policies().to_vec();
        policies.push(Arc::new(Policy::new(OPERATOR, within)));
        rights.policy = Arc::new(PolicySet::combine(policies));
    }
    rights
}

/// Whether an operator may decide so.
///
/// # Errors
/// The ceiling that it goes beyond.
pub fn may_decide(rule: &Rule, managed: &[ManagedFile], own: &Ceiling) -> Result<(), Refusal> {
    let policy = Policy::new(OPERATOR, vec![rule.clone()]);
    for file in managed {
        let managed = Ceiling::parse("managed", &file.path, &file.text, &KNOWN).map_err(|error| {
            Refusal::new(error.to_string(), "the administrator of this machine must mend it")
        })?;
        managed.check_hosts(&policy).map_err(|beyond| {
            Refusal::new(
                beyond.to_string(),
                format!("ask the administrator of this machine to change {}", beyond.place),
            )
        })?;
    }
    own.check_hosts(&policy)
        .map_err(|beyond| Refusal::new(beyond.to_string(), format!("change {}", beyond.place)))
}

fn check(
    ceiling: &Ceiling,
    prepare: &Prepare,
    harness: &str,
    rights: &Rights,
    whose: &str,
    remedy: impl Fn(&str) -> String,
) -> Result<(), Refusal> {
    let annotations: Vec<&str> = prepare.annotations.keys().map(String::as_str).collect();
    let secrets = rights.grants.names();
    annotation::list(harness).try_for_each(|harness| {
        let asked = Asked { annotations: &annotations, harness, policy: &rights.policy, secrets: &secrets };
        ceiling.check(&asked).and_then(|()| ceiling.check_mode(rights.mode.name())).map_err(|beyond| {
            let reason = format!("{} goes beyond {whose} `{}` ({})", beyond.what, beyond.rule, beyond.place);
            Refusal::new(reason, remedy(&beyond.place))
        })
    })
}

/// Whether the container has what a ceiling requires. `spared` are the positions of rules about others.
fn required(
    ceiling: &Ceiling,
    spared: &[usize],
    prepare: &Prepare,
    rights: &Rights,
    whose: &str,
    otherwise: impl Fn(&str) -> String,
) -> Result<(), Refusal> {
    let secrets = rights.grants.names();
    let policies = rights.policy.policies().iter().map(|policy| policy.name());
    let held = Held {
        annotations: prepare
            .annotations
            .iter()
            .map(|(key, value)| (key.as_str(), items(key, value)))
            .collect(),
        defaults: &DEFAULTS,
        policies: policies.filter(|name| *name != annotation::ALLOW).collect(),
        secrets: secrets.iter().map(String::as_str).collect(),
    };
    let rules = ceiling.requirements().iter().enumerate().filter(|(at, _)| !spared.contains(at));
    rules.map(|(_, rule)| rule).try_for_each(|rule| rule.check(&held)).map_err(|missing| {
        let Missing { what, remedy, place, note } = missing;
        let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
        let reason = format!("{whose} `require` ({place}) is not met: {what}{note}");
        Refusal::new(reason, format!("{remedy}, or {}", otherwise(&place)))
    })
}

/// One value can be written in two ways.
pub(crate) fn items<'a>(key: &str, value: &'a str) -> Vec<&'a str> {
    let one = |item| if key == annotation::NETWORK && item == "none" { annotation::SEALED } else { item };
    annotation::list(value).map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use understudy_control::{Placement, User, annotation};
    use understudy_policies::Verdict;

    use super::*;
    use crate::credentials::Grants;

    fn prepare(managed: &[&str]) -> Prepare {
        let file = |text: &&str| ManagedFile::new("/m.toml", *text);
        Prepare {
            id: "a".repeat(64).parse().unwrap(),
            name: None,
            image: None,
            annotations: BTreeMap::from([(annotation::ALLOW.to_owned(), "evil.example".to_owned())]),
            user: User { uid: 0, gid: 0 },
            env: BTreeMap::new(),
            args: Vec::new(),
            managed: managed.iter().map(file).collect(),
            joins: None,
            origin: None,
            mounts: None,
        }
    }

    fn given(policy: Policy, managed: &[&str], own: &str) -> Result<Terms, Refusal> {
        holding(Grants::default(), Mode::Deny, policy, managed, own)
    }

    fn holding(
        grants: Grants,
        mode: Mode,
        policy: Policy,
        managed: &[&str],
        own: &str,
    ) -> Result<Terms, Refusal> {
        let prepare = prepare(managed);
        let terms = Terms {
            harness: "generic".to_owned(),
            policy: Arc::new(PolicySet::combine(vec![Arc::new(policy)])),
            mode,
            grants: Arc::new(grants),
            asked: crate::credentials::Asked::new(&prepare, "generic", Grants::default()),
            env: Vec::new(),
            placement: Placement::default(),
            notes: Vec::new(),
            same_grants: None,
        };
        apply(terms, &prepare, &Ceiling::parse("ceiling", "ceiling.toml", own, &KNOWN).unwrap())
    }

    /// Of a container whose compose file asks for a host.
    fn started(managed: &[&str], own: &str) -> Result<Terms, Refusal> {
        given(Policy::from_allow_annotation("evil.example, *.good.example").unwrap(), managed, own)
    }

    #[test]
    fn without_a_ceiling_annotations_open_what_they_ask_for() {
        let terms = started(&[], "").unwrap();
        assert_eq!(terms.policy.label(), "understudy.allow");
        let verdict = terms.policy.decide(&"evil.example".parse().unwrap(), 443);
        assert!(matches!(verdict, Verdict::Allowed { .. }), "{verdict:?}");
    }

    #[test]
    fn with_a_secret_they_open_what_the_user_named() {
        let with = |own| {
            let policy = Policy::from_allow_annotation("a.example, b.example:8443").unwrap();
            holding(["key"].into_iter().collect(), Mode::Deny, policy, &[], own)
        };
        let refusal = with("").unwrap_err();
        assert!(refusal.reason.contains("opens `a.example` to a container that is given `key`"), "{refusal}");
        assert!(
            refusal.remedy.starts_with("write `annotations.allow-hosts = [\"a.example\"]` into"),
            "{refusal}"
        );
        let refusal = with("annotations.allow-hosts = \"a.example\"").unwrap_err();
        assert!(refusal.remedy.contains("change ceiling.toml:1"), "{refusal}");
        assert!(refusal.reason.contains("`b.example`"), "{refusal}");
        assert!(with("annotations.allow-hosts = [\"a.example\", \"b.example\"]").is_ok());
        assert!(with("annotations.allow-hosts = \"*\"").is_ok());
    }

    #[test]
    fn what_an_annotation_is_warned_of_is_a_note() {
        let policy = Policy::from_allow_annotation("*.github.io").unwrap();
        let notes = given(policy, &[], "").unwrap().notes;
        let said = "annotation understudy.allow: anybody can have a name below `github.io`";
        assert!(notes.iter().any(|note| note.starts_with(said)), "{notes:?}");
    }

    #[test]
    fn mode_log_needs_a_second_word_and_another_for_secrets() {
        let of = |grants: &[&str], managed: &[&str], own: &str| {
            let grants: Grants = grants.iter().copied().collect();
            holding(grants, Mode::Log, Policy::new("p", Vec::new()), managed, own)
        };
        for (grants, own, said) in [
            (&[][..], "", Some("without-secrets")),
            (&["key"], "", Some("with-secrets")),
            (&["key"], "modes.log = \"without-secrets\"", Some("with-secrets")),
            (&[], "modes.log = \"never\"", Some("without-secrets")),
            (&[], "modes.log = \"without-secrets\"", None),
            (&["key"], "modes.log = \"with-secrets\"", None),
        ] {
            let found = of(grants, &[], own).err().map(|refusal| refusal.remedy);
            assert_eq!(found.is_some(), said.is_some(), "{own}: {found:?}");
            assert!(found.unwrap_or_default().contains(said.unwrap_or_default()));
        }
        // With its line, where there is one.
        let into = |own: &str| of(&[], &[], own).unwrap_err().remedy;
        assert!(into("").contains("into ceiling.toml, if"), "{}", into(""));
        assert!(into("\nmodes.log = \"never\"").contains("into ceiling.toml:2, if"));
        let all = "modes.log = \"with-secrets\"";
        assert!(of(&[], &["modes.forbid = \"log\""], all).unwrap_err().reason.contains("modes.forbid"));
        assert!(of(&["key"], &["modes.log = \"without-secrets\""], all).is_err());
        assert!(of(&[], &[""], all).unwrap().notes.iter().any(|note| note.contains("mode `log`")));
    }

    #[test]
    fn an_operator_decides_within_both_ceilings() {
        let managed = |text: &str| vec![ManagedFile::new("/m.toml", text)];
        let rule = |host: &str| {
            Rule::new(
                understudy_policies::Effect::Allow,
                vec![host.parse().unwrap()],
                understudy_policies::Ports::These(vec![443]),
                "operator decision 1",
            )
        };
        let own = Ceiling::parse("ceiling", "ceiling.toml", "deny = \"b.example\"", &KNOWN).unwrap();
        let files = managed("hosts = [\"*.corp.example\", \"b.example\"]");
        assert!(may_decide(&rule("a.corp.example"), &files, &own).is_ok());
        assert!(may_decide(&rule("a.example"), &files, &own).unwrap_err().remedy.contains("/m.toml:1"));
        assert!(may_decide(&rule("b.example"), &files, &own).unwrap_err().remedy.contains("ceiling.toml:1"));
        let rights =
            with_decided(Rights::default(), vec![rule("a.example"), rule("x.corp.example")], &files, &own);
        let decide = |host: &str| rights.policy.decide(&host.parse().unwrap(), 443);
        assert!(matches!(decide("x.corp.example"), Verdict::Allowed { .. }));
        assert_eq!(decide("a.example"), Verdict::NoHost);
    }

    #[test]
    fn one_line_closes_them() {
        let line = "annotations.forbid = [\"understudy.allow\"]";
        let refusal = started(&[], line).unwrap_err();
        assert_eq!(
            refusal.reason,
            "annotation understudy.allow goes beyond your own rule `annotations.forbid` (ceiling.toml:1)"
        );
        let refusal = started(&["", line], "").unwrap_err();
        assert!(refusal.reason.ends_with("managed rule `annotations.forbid` (/m.toml:1)"), "{refusal}");
        assert!(refusal.remedy.contains("the administrator"), "{refusal}");
    }

    #[test]
    fn every_ceiling_holds_whatever_the_other_says() {
        let wide = "hosts = [\"evil.example\", \"*.good.example\"]";
        let narrow = "hosts = \"*.good.example\"";
        assert!(started(&[wide], wide).is_ok());
        for (managed, own) in [(vec![wide, narrow], wide), (vec![narrow, wide], wide), (vec![wide], narrow)] {
            let refusal = started(&managed, own).unwrap_err();
            assert!(refusal.reason.contains("allows `evil.example` goes beyond"), "{refusal}");
        }
    }

    #[test]
    fn a_denied_host_is_denied_below_what_an_annotation_opens() {
        let terms = started(&["deny = \"up.good.example\""], "deny = \"down.good.example\"").unwrap();
        assert_eq!(terms.policy.label(), "understudy.allow+managed+ceiling");
        for (host, rule) in [("up.good.example", "/m.toml:1"), ("down.good.example", "ceiling.toml:1")] {
            let denied = Verdict::Denied { rule: rule.into(), note: None };
            assert_eq!(terms.policy.decide(&host.parse().unwrap(), 443), denied);
        }
    }

    #[test]
    fn an_open_policy_needs_the_users_own_word_and_is_noted() {
        let open = |own| given(Policy::parse("open", "open.toml", "open = true").unwrap(), &[], own);
        let refusal = open("").unwrap_err();
        assert!(
            refusal.remedy.starts_with("write `policies.open = [\"open\"]` into ceiling.toml"),
            "{refusal}"
        );
        let refusal = open("\npolicies.open = [\"other\"]").unwrap_err();
        let said = "add \"open\" to `policies.open` (ceiling.toml:2), if that is what you want";
        assert_eq!(refusal.remedy, said);
        let terms = open("policies.open = [\"open\"]").unwrap();
        assert_eq!(terms.notes, ["policy `open` allows every public host"]);
        assert_eq!(terms.policy.label(), "open(open)");
    }

    /// It would allow every host, whatever the ceiling says of hosts.
    #[test]
    fn mode_log_does_not_reach_beyond_the_hosts_of_a_ceiling() {
        let log = |managed: &[&str], own: &str| {
            holding(Grants::default(), Mode::Log, Policy::new("p", Vec::new()), managed, own)
        };
        let own = "modes.log = \"with-secrets\"";
        assert!(log(&[], own).is_ok() && log(&["deny = \"a.example\""], own).is_ok());
        let narrow = "hosts = \"*.good.example\"";
        for (managed, own) in [(vec![narrow], own.to_owned()), (vec![], format!("{narrow}\n{own}"))] {
            let refusal = log(&managed, &own).unwrap_err();
            assert!(refusal.reason.starts_with("mode `log` allows every public host"), "{refusal}");
            assert!(refusal.reason.contains("`hosts`"), "{refusal}");
        }
        let open = "policies.open = [\"web\"]";
        assert!(log(&[open], own).unwrap_err().reason.contains("`policies.open` (/m.toml:1)"));
        assert!(log(&[&format!("{open}\n{own}")], own).is_ok());
    }

    #[test]
    fn what_is_required_must_be_there_and_the_refusal_says_what_to_set() {
        let with = |annotations: &[(&str, &str)], mode: Mode, managed: Vec<ManagedFile>, own: &str| {
            let mut prepare = prepare(&[]);
            prepare.annotations =
                annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            prepare.managed = managed;
            let web = Arc::new(Policy::new("web", Vec::new()));
            let policy = Arc::new(PolicySet::combine(vec![web]));
            let grants = Arc::new(["git"].into_iter().collect::<Grants>());
            let rights = Rights { policy, grants, mode, ..Rights::default() };
            limit(
                rights,
                "generic",
                &prepare,
                &Ceiling::parse("ceiling", "ceiling.toml", own, &KNOWN).unwrap(),
            )
            .map(|_| ())
        };
        let rule =
            |what: &str| vec![ManagedFile::new("/m.toml", format!("[[require]]\n{what}\nnote = \"ours\"\n"))];
        let sealed = || rule("annotation = \"understudy.network\"\nvalues = \"sealed\"");
        for annotations in [&[][..], &[("understudy.network", "sealed")], &[("understudy.network", "none")]] {
            assert!(with(annotations, Mode::Deny, sealed(), "").is_ok(), "{annotations:?}");
        }
        let refusal = with(&[("understudy.network", "guarded")], Mode::Deny, sealed(), "").unwrap_err();
        assert_eq!(
            (refusal.reason.as_str(), refusal.remedy.as_str()),
            (
                "managed rule `require` (/m.toml:2) is not met: annotation understudy.network says `guarded` (ours)",
                "start it with --annotation understudy.network=sealed, or ask the administrator of this machine to change /m.toml:2"
            )
        );
        let deny = || rule("annotation = \"understudy.mode\"\nvalues = \"deny\"");
        assert!(with(&[], Mode::Deny, deny(), "").is_ok());
        assert!(with(&[("understudy.mode", "ask")], Mode::Ask, deny(), "").is_err());
        for (what, met) in [
            ("policy = \"web\"", true),
            ("policy = \"house\"", false),
            ("secret = \"git\"", true),
            ("secret = \"key\"", false),
            ("annotation = \"understudy.harness\"\nvalues = \"generic\"", true),
            ("annotation = \"understudy.harness\"\nvalues = \"codex\"", false),
            ("annotation = \"understudy.policy\"\nvalues = [\"web\", \"house\"]", false),
            ("annotation = \"understudy.privacy\"", false),
        ] {
            assert_eq!(with(&[], Mode::Deny, rule(what), "").is_ok(), met, "{what}");
        }
        let both = &[("understudy.policy", "web,open")];
        assert!(
            with(both, Mode::Deny, rule("annotation = \"understudy.policy\"\nvalues = \"web\""), "").is_err()
        );
        // Every file holds; what is about other images does not.
        let mut files = rule("policy = \"web\"");
        files.extend(rule("policy = \"house\"\nimages = \"x\""));
        assert!(with(&[], Mode::Deny, files.clone(), "").is_err());
        files[1].spared = vec![0];
        assert!(with(&[], Mode::Deny, files.clone(), "").is_ok());
        files[1].spared = vec![1];
        assert!(with(&[], Mode::Deny, files, "").is_err());
        let own = "[[require]]\nannotation = \"understudy.privacy\"";
        let refusal = with(&[], Mode::Deny, Vec::new(), own).unwrap_err();
        assert!(refusal.reason.starts_with("your own rule `require` (ceiling.toml:2)"), "{refusal}");
        assert!(refusal.remedy.ends_with("=VALUE, or change ceiling.toml:2"), "{refusal}");
    }

    #[test]
    fn a_rule_that_the_whole_leaves_nothing_of_is_noted() {
        let web = "[[allow]]\nhost = \"*.up.example\"\nmethods = \"GET\"\n[[allow]]\nhost = \"b.example\"\n";
        let policy = || Policy::parse("web", "web.toml", web).unwrap();
        assert!(given(policy(), &[], "").unwrap().notes.is_empty());
        let narrowed = given(policy(), &["deny = \"*.example.com\""], "").unwrap();
        assert!(narrowed.notes.is_empty(), "{:?}", narrowed.notes);
        let deny =
            Policy::parse("deny", "deny.toml", "[[deny]]\nhost = \"*.up.example\"\nmethods = \"GET\"\n")
                .unwrap();
        let both = Arc::new(PolicySet::combine(vec![Arc::new(policy()), Arc::new(deny)]));
        let prepare = prepare(&[]);
        let terms = Terms { policy: both, ..given(policy(), &[], "").unwrap() };
        let notes = apply(terms, &prepare, &Ceiling::default()).unwrap().notes;
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with(
            "web.toml:2:8: this rule about `*.up.example` can never match: the [[deny]] rule at deny.toml:2"
        ));
    }

    #[test]
    fn a_start_does_not_wait_for_a_look_at_a_very_large_policy() {
        let rule = |effect: &str, at: usize| {
            format!("[[{effect}]]\nhost = \"a.example\"\npaths = \"/{effect}/{at}\"\n")
        };
        let of = |effect: &str, count: usize| (0..count).map(|at| rule(effect, at)).collect::<String>();
        let set = |count: usize| {
            let parse = |name, text: String| Arc::new(Policy::parse(name, name, &text).unwrap());
            Arc::new(PolicySet::combine(vec![
                parse("web", of("allow", count)),
                parse("deny", of("deny", count)),
            ]))
        };
        let notes = |policy: Arc<PolicySet>| {
            let terms = Terms { policy, ..started(&[], "").unwrap() };
            apply(terms, &prepare(&[]), &Ceiling::default()).unwrap().notes
        };
        assert!(set(300).warnings().is_empty() && notes(set(100)).is_empty());
        let notes = notes(set(300));
        assert!(notes.len() == 1 && notes[0].contains("nobody looked"), "{notes:?}");
    }

    #[test]
    fn what_a_users_ceiling_leaves_of_the_policies_is_told_beforehand() {
        let mut policies = Policies::default();
        policies.insert(Policy::parse("web", "web.toml", "[[allow]]\nhost = \"a.b.example\"\n").unwrap());
        policies.insert(
            Policy::parse("raw", "raw.toml", "[[allow]]\nhost = \"*.c.example\"\nport = [1, 2]\n").unwrap(),
        );
        let of =
            |own: &str| warnings(&policies, &Ceiling::parse("ceiling", "ceiling.toml", own, &KNOWN).unwrap());
        assert!(of("").is_empty() && of("hosts = [\"a.b.example\", \"*.c.example\"]").is_empty());
        assert_eq!(
            of("hosts = \"*.c.example\""),
            [
                "policy `web` (web.toml:2) allows `a.b.example`, beyond `hosts` (ceiling.toml:1), so that no container starts with \
              it; leave it out there, or change ceiling.toml:1"
            ]
        );
        let denied = of("deny = [\"*.c.example:1\", \"*.c.example:2\"]");
        assert!(denied.iter().any(|line| line.contains("beyond `deny`")), "{denied:?}");
        assert!(
            denied.iter().any(|line| line.starts_with("raw.toml:2:8: ") && line.contains("can never match")),
            "{denied:?}"
        );
    }

    #[test]
    fn a_broken_managed_file_lets_nothing_start() {
        let refusal = started(&["hots = []"], "").unwrap_err();
        assert!(refusal.reason.starts_with("/m.toml:1:1: unknown key `hots`"), "{refusal}");
    }

    #[test]
    fn a_users_ceiling_is_a_file_or_nothing_and_never_half_of_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ceiling.toml");
        assert_eq!(load(&path).unwrap(), Ceiling::default());
        fs::write(&path, "annotations.forbid = [\"understudy.alow\"]").unwrap();
        let error = load(&path).unwrap_err().to_string();
        assert!(error.starts_with("ceiling.toml:1:23: `forbid`: no annotation"), "{error}");
        for (text, said) in [
            ("required = true", "ceiling.toml:1: `required` can be asked in /etc"),
            ("[[require]]\npolicy = \"a\"\nlabels = \"b\"", "ceiling.toml:2: `images` and `labels`"),
        ] {
            fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
