//! Which annotations are ours, and whether every one of them is understood.

use std::collections::BTreeMap;

use understudy_control::Refusal;
use understudy_control::annotation::{KNOWN, PREFIX};

/// Beginnings of keys that change how the runtime confines a container, and the few of them that do not. An image can
/// carry annotations (Podman 4.3 copies them), so this is not a matter of the user's trust alone.
const RUNTIME: [&str; 3] = ["run.oci.", "module.wasm.", "io.crun."];
const HARMLESS: [&str; 3] =
    ["run.oci.keep_original_groups", "run.oci.mount_context_type", "run.oci.systemd."];

/// Those with a key of ours, without the `/NAME` that `podman kube generate` adds to a key.
pub(crate) fn asked<'a>(
    all: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<String, String>, Refusal> {
    let mut asked: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in all {
        if RUNTIME.iter().any(|start| key.starts_with(start))
            && !HARMLESS.iter().any(|start| key.starts_with(start))
        {
            return Err(Refusal::new(
                format!("annotation {key:?} changes how the runtime confines the container"),
                format!("remove --annotation {key}"),
            ));
        }
        if !is_ours(key) {
            continue;
        }
        let known = KNOWN.into_iter().find(|known| {
            key.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let Some(known) = known else { return Err(unknown(key)) };
        if asked.insert(known.to_owned(), value.to_owned()).is_some_and(|other| other != value) {
            return Err(Refusal::new(
                format!("annotation {known} is given twice, with different values"),
                format!("keep one of {known} and {known}/NAME"),
            ));
        }
    }
    Ok(asked)
}

/// In any case, so that a slip of the shift key does not leave a container unprotected.
pub(crate) fn is_ours(key: &str) -> bool {
    let stem = PREFIX.trim_end_matches('.');
    key.get(..stem.len()).is_some_and(|start| start.eq_ignore_ascii_case(stem))
}

fn unknown(key: &str) -> Refusal {
    let lower = key.split('/').next().unwrap_or(key).to_ascii_lowercase();
    let nearest = KNOWN
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(&lower, known), known))
        .min()
        .filter(|(distance, _)| *distance <= 4);
    let remedy = match nearest {
        Some((_, known)) => format!("did you mean {known}?"),
        None => format!("known are: {}", KNOWN.join(", ")),
    };
    Refusal::new(format!("annotation {key:?} is not known"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_of(pairs: &[(&str, &str)]) -> Result<BTreeMap<String, String>, Refusal> {
        asked(pairs.iter().copied())
    }

    #[test]
    fn known_keys_pass_and_others_are_left_out() {
        let got = asked_of(&[("understudy.harness", "x"), ("io.container.manager", "libpod")]).unwrap();
        assert_eq!(got.into_iter().collect::<Vec<_>>(), [("understudy.harness".into(), "x".into())]);
    }

    #[test]
    fn a_name_added_by_kube_generate_is_cut() {
        assert_eq!(asked_of(&[("understudy.policy/agent", "p")]).unwrap()["understudy.policy"], "p");
        assert!(asked_of(&[("understudy.policy/agent", "p"), ("understudy.policy", "q")]).is_err());
    }

    #[test]
    fn misspelt_keys_are_refused_with_a_suggestion() {
        for (key, wanted) in [
            ("understudy.harnes", "did you mean understudy.harness?"),
            ("Understudy.Policy", "did you mean understudy.policy?"),
            ("understudy.secret", "did you mean understudy.secrets?"),
            ("understudyharness", "did you mean understudy.harness?"),
            ("understudy.something-else", "known are"),
            ("understudy", "known are"),
        ] {
            let refusal = asked_of(&[(key, "x")]).unwrap_err();
            assert!(refusal.remedy.contains(wanted), "{key}: {refusal:?}");
            assert!(refusal.reason.contains(key));
        }
    }

    #[test]
    fn annotations_that_loosen_the_runtime_are_refused() {
        assert!(asked_of(&[("run.oci.seccomp_bpf_data", "AAAA")]).is_err());
        assert!(asked_of(&[("run.oci.handler", "krun")]).is_err());
        assert!(asked_of(&[("run.oci.keep_original_groups", "1")]).is_ok());
    }
}
