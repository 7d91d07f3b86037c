//! Capabilities that a container may keep.

use oci_spec::runtime::{Capability, Spec};
use understudy_control::Refusal;

/// Podman's default set.
const ALLOWED: [Capability; 11] = [
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::NetBindService,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysChroot,
];

/// In the default set of some distributions, and of no use here: taken away without a word.
pub(crate) const NOT_NEEDED: [Capability; 3] =
    [Capability::NetRaw, Capability::AuditWrite, Capability::Mknod];

pub(super) fn check(spec: &Spec) -> Result<(), Refusal> {
    let Some(sets) = spec.process().as_ref().and_then(|process| process.capabilities().as_ref()) else {
        return Ok(());
    };
    let all = [sets.bounding(), sets.effective(), sets.inheritable(), sets.permitted(), sets.ambient()];
    let refused =
        |capability: &&Capability| !ALLOWED.contains(capability) && !NOT_NEEDED.contains(capability);
    match all.into_iter().flatten().flatten().filter(refused).map(|capability| format!("{capability}")).min()
    {
        None => Ok(()),
        Some(name) => Err(Refusal::new(
            format!("capability {name} is not allowed (--cap-add={name})"),
            format!("remove --cap-add={name}, or add --cap-drop={name}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::tests::{config_of, sample};
    use super::*;

    fn checked(set: &str, capability: &str) -> Result<(), Refusal> {
        let mut document = sample("none-4.3.1").document;
        document["process"]["capabilities"][set] = json!(["CAP_CHOWN", capability]);
        check(&config_of(&document).spec)
    }

    #[test]
    fn a_capability_outside_of_the_list_is_refused_in_every_set() {
        for set in ["bounding", "effective", "inheritable", "permitted", "ambient"] {
            for name in ["NET_ADMIN", "SYS_ADMIN", "SYS_PTRACE", "BPF", "SYS_MODULE", "DAC_READ_SEARCH"] {
                let refusal = checked(set, &format!("CAP_{name}")).unwrap_err();
                assert!(refusal.reason.contains(&format!("--cap-add={name}")), "{set} {refusal:?}");
            }
        }
    }

    #[test]
    fn defaults_of_distributions_pass() {
        for name in ["CAP_NET_RAW", "CAP_AUDIT_WRITE", "CAP_MKNOD", "CAP_SYS_CHROOT"] {
            assert!(checked("bounding", name).is_ok());
        }
    }
}
