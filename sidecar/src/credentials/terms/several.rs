//! Several harnesses in one container, such as an agent and the tools that it is to use: all that each needs, where that
//! does not contradict what another needs.

use std::collections::BTreeMap;

use understudy_control::{Placement, Refusal, annotation};
use understudy_harnesses::{Descriptor, TrapAction};

use super::Choice;

/// What one of them gets.
pub(super) struct Part<'a> {
    pub(super) harness: &'a Descriptor,
    pub(super) choice: &'a Choice<'a>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) placement: Placement,
}

/// The variables of all.
///
/// # Errors
/// If two need another value of the same one.
pub(super) fn environment(parts: &[Part<'_>]) -> Result<BTreeMap<String, String>, Refusal> {
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    for part in parts {
        for (name, value) in &part.env {
            if env.insert(name.clone(), value.clone()).is_some_and(|other| other != *value) {
                return Err(together(parts, &format!("they need different values of variable `{name}`")));
            }
        }
    }
    Ok(env)
}

/// Notes on what one sets and another would use instead of its login.
///
/// # Errors
/// If that must not be.
pub(super) fn traps(parts: &[Part<'_>], env: &BTreeMap<String, String>) -> Result<Vec<String>, Refusal> {
    let mut notes = Vec::new();
    for Part { harness, choice, env: own, .. } in parts {
        let of_login = choice.login.iter().flat_map(|(login, _)| &login.traps);
        let set = |name: &String| env.contains_key(name) && !own.contains_key(name);
        for trap in of_login.chain(&harness.traps).filter(|trap| set(&trap.env)) {
            let told =
                format!("another one's variable `{}` is a trap for {}: {}", trap.env, harness.name, trap.why);
            match trap.action {
                TrapAction::Note => notes.push(told),
                TrapAction::Refuse => return Err(together(parts, &told)),
            }
        }
    }
    Ok(notes)
}

/// All files and logins; which harness a stand-in is for makes no difference to where it may lie.
pub(super) fn placement(parts: Vec<Part<'_>>) -> Placement {
    let mut all = Placement::default();
    for Part { placement, .. } in parts {
        all.files.extend(placement.files);
        all.login_files.extend(placement.login_files);
        all.stand_ins.extend(placement.stand_ins);
    }
    all
}

fn together(parts: &[Part<'_>], why: &str) -> Refusal {
    let names: Vec<&str> = parts.iter().map(|part| part.harness.name.as_str()).collect();
    Refusal::new(
        format!("harnesses {} cannot be in one container: {why}", names.join(", ")),
        format!(
            "give them the same secret or other ones (--annotation \"{}=NAME NAME\"), or leave one of them out",
            annotation::SECRETS
        ),
    )
}
