//! What a container must not be started with: real values of ours, and what looks like somebody's.

use std::collections::BTreeMap;

use understudy_control::{Prepare, Refusal};

use super::super::vault::Vault;

pub(super) fn no_value(prepare: &Prepare, vault: &Vault) -> Result<(), Refusal> {
    for (name, value) in &prepare.env {
        if let Some(secret) = vault.real_value_in(value.as_bytes()) {
            return Err(Refusal::new(
                format!("environment variable `{name}` holds the real value of secret `{secret}`"),
                format!("start the container without `--env {name}`; it is given a stand-in for `{secret}`"),
            ));
        }
        if let Some(secret) = vault.real_value_in(name.as_bytes()) {
            return Err(Refusal::new(
                format!("the name of an environment variable holds the real value of secret `{secret}`"),
                "start the container without that variable",
            ));
        }
    }
    for (place, argument) in prepare.args.iter().enumerate() {
        if let Some(secret) = vault.real_value_in(argument.as_bytes()) {
            return Err(Refusal::new(
                format!(
                    "argument {place} of the container's command holds the real value of secret `{secret}`"
                ),
                format!("leave it out of the command; the container is given a stand-in for `{secret}`"),
            ));
        }
    }
    for (key, value) in &prepare.annotations {
        if let Some(secret) = vault.real_value_in(value.as_bytes()) {
            return Err(Refusal::new(
                format!("annotation {key} holds the real value of secret `{secret}`"),
                format!("write the secret's name, `{secret}`, and never its value"),
            ));
        }
    }
    Ok(())
}

/// Credentials that the sidecar does not know, by their shape; but for variables of which the value is replaced (`given`).
/// What has a stand-in in it is ours.
pub(super) fn nothing_like_one(
    prepare: &Prepare,
    given: &BTreeMap<String, String>,
    vault: &Vault,
) -> Result<(), Refusal> {
    let kept = prepare.env.iter().filter(|(name, _)| !given.contains_key(*name));
    let variables = kept.map(|(name, value)| (format!("environment variable `{name}`"), value));
    let arguments = prepare.args.iter().enumerate();
    let arguments =
        arguments.map(|(place, argument)| (format!("argument {place} of the container's command"), argument));
    for (what, text) in variables.chain(arguments) {
        let text = text.as_bytes();
        let ours = vault.is_marked(text) || vault.stand_ins_in(text).next().is_some();
        let shape = vault.catalogue().credential_in(text).filter(|shape| shape.long_lived && !ours);
        if let Some(shape) = shape {
            return Err(Refusal::new(
                format!("{what} holds what looks like a real credential ({})", shape.what),
                "declare it as a secret of the sidecar's (understudy secrets add): the container gets a stand-in for it",
            ));
        }
    }
    Ok(())
}
