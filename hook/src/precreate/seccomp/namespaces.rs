//! Leaves a container no user namespace of its own making.
//!
//! In one it may make a mount namespace, whose copies of mounts it can cut off from the container's. What is mounted over a guarded
//! file there goes like all others when the host replaces the file, and nobody can put it back.

use serde_json::{Map, Value, json};

use super::family::{denies, permits};
use super::{ENOSYS, deny};

const EPERM: u32 = 1;
/// `CLONE_NEWUSER`, in the first argument of both.
const NEW_USER: u64 = 0x1000_0000;
const BY_FLAG: [&str; 2] = ["clone", "unshare"];
/// Has its flags in memory, where no filter sees them. Without it programs take `clone`.
const BY_POINTER: &str = "clone3";

/// After [`super::close`], which sees to it that there is a profile. A stricter one stays as strict.
pub(crate) fn close_user_namespaces(linux: &mut Map<String, Value>) {
    let Some(profile) = linux.get_mut("seccomp").and_then(Value::as_object_mut) else { return };
    let open = !denies(profile.get("defaultAction").and_then(Value::as_str).unwrap_or_default());
    let silent_is_enosys = profile.get("defaultErrnoRet").and_then(Value::as_u64) == Some(u64::from(ENOSYS));
    let Some(rules) = profile.get_mut("syscalls").and_then(Value::as_array_mut) else { return };
    let mut permitted: Vec<(&str, Value)> = Vec::new();
    for rule in rules.iter_mut() {
        let permit = rule.get("action").and_then(Value::as_str).is_some_and(permits);
        let action = rule.get("action").cloned().unwrap_or_default();
        let conditions = rule.get("args").and_then(Value::as_array).cloned().unwrap_or_default();
        let Some(names) = rule.get_mut("names").and_then(Value::as_array_mut) else { continue };
        for name in BY_FLAG.into_iter().filter(|_| permit && !conditions.iter().any(without_new_user)) {
            let before = names.len();
            names.retain(|named| named != name);
            // One with other conditions is not put back: there may be no second one on the same argument.
            if names.len() < before && conditions.is_empty() {
                permitted.push((name, action.clone()));
            }
        }
        names.retain(|named| named != BY_POINTER);
    }
    rules.retain(|rule| rule.get("names").and_then(Value::as_array).is_some_and(|names| !names.is_empty()));
    permitted.dedup();
    if open {
        rules.extend(BY_FLAG.map(|name| {
            let new =
                json!([{"index": 0, "value": NEW_USER, "valueTwo": NEW_USER, "op": "SCMP_CMP_MASKED_EQ"}]);
            json!({"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM, "args": new})
        }));
    } else {
        rules.extend(permitted.into_iter().map(|(name, action)| {
            let not_new = json!([{"index": 0, "value": NEW_USER, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]);
            json!({"names": [name], "action": action, "args": not_new})
        }));
    }
    // A rule that says what the profile says by being silent is an error for libseccomp.
    if open || !silent_is_enosys {
        rules.push(deny(BY_POINTER, ENOSYS, &[]));
    }
}

/// Holds only if no user namespace is asked for.
fn without_new_user(condition: &Value) -> bool {
    let number = |name: &str| condition.get(name).and_then(Value::as_u64).unwrap_or_default();
    number("index") == 0
        && condition.get("op").and_then(Value::as_str) == Some("SCMP_CMP_MASKED_EQ")
        && number("value") & NEW_USER != 0
        && number("valueTwo") & NEW_USER == 0
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::sample;
    use super::super::close;
    use super::*;

    fn closed(seccomp: Value) -> Value {
        let mut linux = Map::new();
        linux.insert("seccomp".into(), seccomp);
        close(&mut linux).unwrap();
        close_user_namespaces(&mut linux);
        linux["seccomp"].clone()
    }

    /// Every rule for the call: its action and conditions.
    fn rules(profile: &Value, name: &str) -> Vec<(String, Value)> {
        let all = profile["syscalls"].as_array().unwrap().iter();
        let of = all.filter(|rule| rule["names"].as_array().unwrap().contains(&json!(name)));
        of.map(|rule| (rule["action"].as_str().unwrap().to_owned(), rule["args"].clone())).collect()
    }

    #[test]
    fn podmans_profile_permits_all_but_a_user_namespace() {
        for sampled in ["none-4.3.1", "none-5.4.2"] {
            // The samples are shortened, and name none of these.
            let mut whole = sample(sampled).document["linux"]["seccomp"].clone();
            let permitted = json!({"names": ["clone", "clone3", "read", "unshare"], "action": "SCMP_ACT_ALLOW", "args": []});
            whole["syscalls"].as_array_mut().unwrap().push(permitted);
            let profile = closed(whole);
            assert!(!rules(&profile, "read").is_empty());
            for name in BY_FLAG {
                let rules = rules(&profile, name);
                assert!(!rules.is_empty(), "{name}");
                for (action, conditions) in rules {
                    let held = conditions.as_array().into_iter().flatten().any(without_new_user);
                    assert!(action == "SCMP_ACT_ERRNO" || held, "{name}: {action} {conditions}");
                }
            }
            assert!(rules(&profile, BY_POINTER).iter().all(|(action, _)| action == "SCMP_ACT_ERRNO"));
        }
    }

    #[test]
    fn an_unconfined_one_is_denied_that_alone() {
        let profile = closed(Value::Null);
        for name in BY_FLAG {
            let new =
                json!([{"index": 0, "value": NEW_USER, "valueTwo": NEW_USER, "op": "SCMP_CMP_MASKED_EQ"}]);
            assert_eq!(rules(&profile, name), [("SCMP_ACT_ERRNO".to_owned(), new)]);
        }
        assert_eq!(rules(&profile, BY_POINTER), [("SCMP_ACT_ERRNO".to_owned(), Value::Null)]);
    }

    #[test]
    fn a_stricter_profile_is_not_widened() {
        let none = json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]});
        assert!(BY_FLAG.iter().all(|name| rules(&closed(none.clone()), name).is_empty()));
        let args =
            json!([{"index": 0, "value": 2_114_060_288_u64, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]);
        let strict = json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "syscalls": [
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": args}]});
        let profile = closed(strict);
        assert_eq!(rules(&profile, "clone"), [("SCMP_ACT_ALLOW".to_owned(), args)]);
        assert!(rules(&profile, BY_POINTER).is_empty());
    }
}
