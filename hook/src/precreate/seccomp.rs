//! Leaves `socket` the families that are redirected or local, and closes the ways around it.
//!
//! `AF_VSOCK` reaches the hypervisor from any network namespace; `socketcall` (32 bit) and `io_uring` make sockets
//! without the system call that is filtered. A profile that is stricter already stays as strict.
//!
//! Where an architecture has `socketcall`, libseccomp turns a rule that permits `socket` for some families into one
//! that permits `socketcall(SYS_SOCKET, …)` for all, since it cannot look at arguments in memory. So architectures
//! with it are taken out of a profile that has such rules; a call of theirs (a 32-bit x86 program) is then killed.

mod family;
mod namespaces;

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use family::{Condition, Verdict, verdict};
pub(crate) use namespaces::close_user_namespaces;

const UNIX: u64 = 1;
const INET: u64 = 2;
const INET6: u64 = 10;
const NETLINK: u64 = 16;
const FAMILIES: [u64; 4] = [UNIX, INET, INET6, NETLINK];

/// `NETLINK_AUDIT`, which Podman's own profile keeps from containers.
const AUDIT: Condition = Condition { index: 2, value: 9, op: family::Op::Ne };

/// Also the key rings: they belong to a user, not to a container, so they lead to whoever shares the user (all rootless
/// containers do), and hold credentials of root's in a container of root's.
const WAYS_AROUND: [&str; 7] = [
    "socketcall",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "add_key",
    "keyctl",
    "request_key",
];

const ENOSYS: u32 = 38;
const EAFNOSUPPORT: u32 = 97;

/// `linux` is the configuration's member of that name.
pub(crate) fn close(linux: &mut Map<String, Value>) -> Result<()> {
    let Some((native, others)) = architectures() else {
        bail!("vsock cannot be closed on {}: it has socketcall", std::env::consts::ARCH);
    };
    let seccomp = linux.entry("seccomp").or_insert(Value::Null);
    if !seccomp.is_object() {
        // Unconfined: everything but what is closed here.
        let all: Vec<&str> = native.iter().chain(others).copied().collect();
        *seccomp = json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": all});
    }
    let Some(profile) = seccomp.as_object_mut() else { bail!("the seccomp profile is not an object") };
    let default = profile.get("defaultAction").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut rules = match profile.remove("syscalls") {
        Some(Value::Array(rules)) => rules,
        _ => Vec::new(),
    };
    let verdicts = FAMILIES.map(|family| (family, limited(family, verdict(&default, &rules, family))));
    for rule in &mut rules {
        if let Some(names) = rule.get_mut("names").and_then(Value::as_array_mut) {
            names.retain(|name| {
                name.as_str().is_none_or(|name| name != "socket" && !WAYS_AROUND.contains(&name))
            });
        }
    }
    rules.retain(|rule| rule.get("names").and_then(Value::as_array).is_some_and(|names| !names.is_empty()));
    let open = !family::denies(&default);
    for (family, verdict) in verdicts {
        rules.extend(rules_for(family, verdict, open));
    }
    // Families up to 16 that are not among the four, and all above: 16 bits of a register's upper half count, too.
    for other in (0..NETLINK).filter(|other| !FAMILIES.contains(other)) {
        rules.push(deny("socket", EAFNOSUPPORT, &[(0, other, "SCMP_CMP_EQ")]));
    }
    rules.push(deny("socket", EAFNOSUPPORT, &[(0, NETLINK, "SCMP_CMP_GT")]));
    // A closed profile denies them by being silent; its own answer is as good, and two rules could collide.
    for name in WAYS_AROUND.into_iter().filter(|_| open) {
        rules.push(deny(name, ENOSYS, &[]));
    }
    if !open && let Some(listed) = profile.get_mut("architectures").and_then(Value::as_array_mut) {
        listed.retain(|name| native.iter().any(|native| name == native));
    }
    profile.insert("syscalls".into(), Value::Array(rules));
    Ok(())
}

/// By a profile as this module reads it. Without one all passes.
pub(super) fn lets_vsock_pass(linux: &Map<String, Value>) -> bool {
    const VSOCK: u64 = 40;
    let Some(profile) = linux.get("seccomp").filter(|profile| profile.is_object()) else { return true };
    let default = profile.get("defaultAction").and_then(Value::as_str).unwrap_or_default();
    let rules = profile.get("syscalls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    verdict(default, rules, VSOCK) != Verdict::Never
}

/// No netlink of the audit system, even where a profile would let it pass.
fn limited(family: u64, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Always if family == NETLINK => Verdict::When(vec![vec![AUDIT]]),
        Verdict::When(ways) if family == NETLINK => {
            let ways: Vec<_> = ways.into_iter().filter_map(without_audit).collect();
            if ways.is_empty() { Verdict::Never } else { Verdict::When(ways) }
        }
        other => other,
    }
}

/// libseccomp takes one condition on an argument in a rule, so one that is there is kept if it is narrow enough.
fn without_audit(mut way: Vec<Condition>) -> Option<Vec<Condition>> {
    match way.iter().find(|condition| condition.index == AUDIT.index) {
        None => {
            way.push(AUDIT);
            Some(way)
        }
        Some(found) if *found == AUDIT => Some(way),
        Some(found) if found.op == family::Op::Eq && found.value != AUDIT.value => Some(way),
        Some(_) => None,
    }
}

/// `open`: what the profile does not name is not denied, so that only denials need rules.
fn rules_for(family: u64, verdict: Verdict, open: bool) -> Vec<Value> {
    let this = (0, family, "SCMP_CMP_EQ");
    match (verdict, open) {
        (Verdict::Always, true) => Vec::new(),
        (Verdict::Always, false) => vec![allow(&[this])],
        (Verdict::Never, _) => vec![deny("socket", EAFNOSUPPORT, &[this])],
        (Verdict::When(ways), false) => ways
            .iter()
            .map(|way| {
                let mut conditions = vec![this];
                conditions.extend(way.iter().map(Condition::parts));
                allow(&conditions)
            })
            .collect(),
        // The opposite of one way with one condition is one rule; of more it is not, and then nothing passes.
        (Verdict::When(ways), true) => match ways.as_slice() {
            [way] if way.len() == 1 => way
                .iter()
                .map(|condition| deny("socket", EAFNOSUPPORT, &[this, condition.opposite().parts()]))
                .collect(),
            _ => vec![deny("socket", EAFNOSUPPORT, &[this])],
        },
    }
}

fn allow(conditions: &[(u32, u64, &str)]) -> Value {
    json!({"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": arguments(conditions)})
}

fn deny(name: &str, errno: u32, conditions: &[(u32, u64, &str)]) -> Value {
    let mut rule = json!({"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": errno});
    if let (false, Some(rule)) = (conditions.is_empty(), rule.as_object_mut()) {
        rule.insert("args".into(), arguments(conditions));
    }
    rule
}

fn arguments(conditions: &[(u32, u64, &str)]) -> Value {
    conditions.iter().map(|(index, value, op)| json!({"index": index, "value": value, "op": op})).collect()
}

/// Architectures without `socketcall` that a kernel of this one runs, and those with it. None where the native one
/// has it.
fn architectures() -> Option<(&'static [&'static str], &'static [&'static str])> {
    match std::env::consts::ARCH {
        "x86_64" => Some((&["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"], &["SCMP_ARCH_X86"])),
        "aarch64" => Some((&["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"], &[])),
        "riscv64" => Some((&["SCMP_ARCH_RISCV64"], &[])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    /// What the filter answers for `socket(family, _, protocol)`: a denial wins, as in libseccomp for disjoint rules.
    fn passes(profile: &Value, family: u64, protocol: u64) -> bool {
        let arguments = [family, 1, protocol];
        let matching: Vec<&str> = profile["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["names"].as_array().unwrap().contains(&json!("socket")))
            .filter(|rule| {
                rule["args"].as_array().into_iter().flatten().all(|condition| {
                    let found = arguments[condition["index"].as_u64().unwrap() as usize];
                    let value = condition["value"].as_u64().unwrap();
                    match condition["op"].as_str().unwrap() {
                        "SCMP_CMP_EQ" => found == value,
                        "SCMP_CMP_NE" => found != value,
                        "SCMP_CMP_GT" => found > value,
                        other => panic!("{other}"),
                    }
                })
            })
            .map(|rule| rule["action"].as_str().unwrap())
            .collect();
        match matching.as_slice() {
            [] => profile["defaultAction"] == "SCMP_ACT_ALLOW",
            all => all.iter().all(|action| *action == "SCMP_ACT_ALLOW"),
        }
    }

    fn closed(seccomp: Value) -> Value {
        let mut linux = Map::new();
        if !seccomp.is_null() {
            linux.insert("seccomp".into(), seccomp);
        }
        close(&mut linux).unwrap();
        for rule in linux["seccomp"]["syscalls"].as_array().unwrap() {
            let mut seen: Vec<_> =
                rule["args"].as_array().into_iter().flatten().map(|arg| arg["index"].as_u64()).collect();
            seen.sort_unstable();
            let before = seen.len();
            seen.dedup();
            assert_eq!(seen.len(), before, "two conditions on one argument: {rule}");
        }
        linux["seccomp"].clone()
    }

    fn allowed_families(profile: &Value) -> Vec<u64> {
        (0..64).chain([(1 << 32) | 40, (1 << 32) | 2]).filter(|family| passes(profile, *family, 0)).collect()
    }

    #[test]
    fn podmans_profile_keeps_four_families_and_loses_the_ways_around() {
        for name in ["none-4.3.1", "none-5.4.2"] {
            let profile = closed(sample(name).document["linux"]["seccomp"].clone());
            assert_eq!(allowed_families(&profile), [1, 2, 10, 16]);
            assert!(!passes(&profile, NETLINK, 9));
            assert!(!profile["architectures"].as_array().unwrap().contains(&json!("SCMP_ARCH_X86")));
            for rule in profile["syscalls"].as_array().unwrap() {
                if rule["action"] == "SCMP_ACT_ALLOW" {
                    for name in WAYS_AROUND {
                        assert!(!rule["names"].as_array().unwrap().contains(&json!(name)));
                    }
                }
            }
        }
    }

    #[test]
    fn unconfined_gets_a_profile_that_only_closes() {
        let profile = closed(Value::Null);
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ALLOW");
        for name in ["socketcall", "io_uring_setup", "keyctl", "add_key", "request_key"] {
            assert!(WAYS_AROUND.contains(&name), "{name}");
        }
        assert_eq!(allowed_families(&profile), [1, 2, 10, 16]);
        assert!(!passes(&profile, NETLINK, 9));
        let denied = |name: &str| {
            profile["syscalls"].as_array().unwrap().iter().any(|rule| {
                rule["names"] == json!([name])
                    && rule["action"] == "SCMP_ACT_ERRNO"
                    && rule.get("args").is_none()
            })
        };
        assert!(WAYS_AROUND.into_iter().all(denied));
        // A rule whose action is the default one is an error for libseccomp.
        assert!(!profile["syscalls"].to_string().contains("SCMP_ACT_ALLOW"));
    }

    #[test]
    fn a_profile_that_asks_a_tracer_is_closed_like_one_that_permits() {
        let profile = closed(json!({"defaultAction": "SCMP_ACT_TRACE", "syscalls": []}));
        let denied = |rule: &Value| rule["names"] == json!(["socket"]) && rule["action"] == "SCMP_ACT_ERRNO";
        let rules: Vec<_> =
            profile["syscalls"].as_array().unwrap().iter().filter(|rule| denied(rule)).collect();
        assert!(
            rules.iter().any(|rule| rule["args"][0] == json!({"index": 0, "value": 16, "op": "SCMP_CMP_GT"}))
        );
        assert!(
            rules.iter().any(|rule| rule["args"][0] == json!({"index": 0, "value": 4, "op": "SCMP_CMP_EQ"}))
        );
        assert!(profile["syscalls"].to_string().contains("io_uring_setup"));
    }

    #[test]
    fn a_stricter_profile_is_never_widened() {
        let none = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]});
        assert_eq!(allowed_families(&closed(none)), [0u64; 0]);

        let unix = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["socket"],
            "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]}]});
        assert_eq!(allowed_families(&closed(unix)), [1]);

        let no_netlink = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["socket"],
            "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 16, "op": "SCMP_CMP_EQ"}]}]});
        assert_eq!(allowed_families(&closed(no_netlink)), [1, 2, 10]);

        let killed = json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["socket"], "action": "SCMP_ACT_KILL_PROCESS"}]});
        assert_eq!(allowed_families(&closed(killed)), [0u64; 0]);

        // One stream socket only: the condition on the type stays.
        let stream = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["socket"],
            "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": 2, "op": "SCMP_CMP_EQ"}]}]});
        assert_eq!(allowed_families(&closed(stream)), [0u64; 0]);
    }
}
