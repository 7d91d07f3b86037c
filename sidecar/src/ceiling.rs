//! Whether what a container would be given stays below two ceilings: the machine's, whose text the hook has read on the
//! host and sends along, and the user's own `ceiling.toml`.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use understudy_control::annotation::{self, KNOWN};
use understudy_control::{Prepare, Refusal};
use understudy_policies::{Asked, Ceiling, PolicySet};

use crate::credentials::{Rights, Terms};

/// The user's; a missing file limits nothing.
pub fn load(path: &Path) -> Result<Ceiling> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Ceiling::parse("ceiling", "ceiling.toml", &text, &KNOWN)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ceiling::default()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// The same terms, with the hosts that a ceiling denies taken out of their policy.
///
/// # Errors
/// The first thing in them that goes beyond a ceiling.
pub fn apply(terms: Terms, prepare: &Prepare, own: &Ceiling) -> Result<Terms, Refusal> {
    let (policy, grants) = (Arc::clone(&terms.policy), Arc::clone(&terms.grants));
    let rights = Rights { policy, grants, ..Rights::default() };
    let Rights { policy, grants, .. } = limit(rights, &terms.harness, prepare, own)?;
    let mut notes = terms.notes;
    notes.extend(open(&policy).map(|name| format!("policy `{name}` allows every public host")));
    Ok(Terms { policy, grants, notes, ..terms })
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
        policies.extend(managed.denials().map(Arc::new));
    }
    if let Some(open) = open(&rights.policy).find(|name| !own.permits_open(name)) {
        // A compose file of a stranger's can name it, too.
        return Err(Refusal::new(
            format!("policy `{open}` allows every public host, which needs your word"),
            format!("write `policies.open = [\"{open}\"]` into ceiling.toml, if that is what you want"),
        ));
    }
    check(own, prepare, harness, &rights, "your own rule", |place| {
        format!("leave it out, or change {place}")
    })?;
    policies.extend(own.denials().map(Arc::new));
    let mut rights = rights;
    if policies.len() > rights.policy.policies().len() {
        rights.policy = Arc::new(PolicySet::combine(policies));
    }
    Ok(rights)
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
        ceiling.check(&asked).map_err(|beyond| {
            let reason = format!("{} goes beyond {whose} `{}` ({})", beyond.what, beyond.rule, beyond.place);
            Refusal::new(reason, remedy(&beyond.place))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use understudy_control::{ManagedFile, Placement, User, annotation};
    use understudy_policies::{Policy, Verdict};

    use super::*;
    use crate::credentials::Grants;

    fn prepare(managed: &[&str]) -> Prepare {
        let file = |text: &&str| ManagedFile { path: "/m.toml".into(), text: (*text).to_owned() };
        Prepare {
            id: "a".repeat(64).parse().unwrap(),
            name: None,
            image: None,
            annotations: BTreeMap::from([(annotation::ALLOW.to_owned(), "evil.example".to_owned())]),
            user: User { uid: 0, gid: 0 },
            env: BTreeMap::new(),
            args: Vec::new(),
            managed: managed.iter().map(file).collect(),
        }
    }

    fn given(policy: Policy, managed: &[&str], own: &str) -> Result<Terms, Refusal> {
        let prepare = prepare(managed);
        let terms = Terms {
            harness: "generic".to_owned(),
            policy: Arc::new(PolicySet::combine(vec![Arc::new(policy)])),
            grants: Arc::new(Grants::default()),
            asked: crate::credentials::Asked::new(&prepare, "generic", Grants::default()),
            env: Vec::new(),
            placement: Placement::default(),
            notes: Vec::new(),
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
        assert!(open("policies.open = [\"other\"]").is_err());
        let terms = open("policies.open = [\"open\"]").unwrap();
        assert_eq!(terms.notes, ["policy `open` allows every public host"]);
        assert_eq!(terms.policy.label(), "open(open)");
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
        assert!(error.starts_with("ceiling.toml:1:22: `forbid`: no annotation"), "{error}");
    }
}
