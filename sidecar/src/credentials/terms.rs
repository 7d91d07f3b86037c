//! What a container that is about to start is given: harness, policy, secrets, variables, files; or why it must not
//! start. Pure.

mod several;

pub mod moved;
mod real;

use std::collections::BTreeMap;
use std::sync::Arc;

use understudy_control::{
    EnvironmentVariable, LoginFile, PlacedFile, Placement, Prepare, Refusal, Write, annotation,
};
use understudy_harnesses::{
    Descriptor, Filling, HarnessError, Harnesses, Login, TemplateError, Trap, TrapAction,
};
use understudy_policies::{Policies, Policy, PolicySet, builtin, document::closest};

use self::several::Part;
use super::assertions;
use super::aws;
use super::grants::{self, Choice, Grants};
use super::postgres;
use super::rights::Asked;
use super::ssh;
use super::vault::{Secret, Vault};
use crate::ceiling::SameGrants;
use crate::operator::Mode;

/// The harness of a container that names none.
pub const DEFAULT_HARNESS: &str = "generic";

#[derive(Debug, Clone)]
pub struct Terms {
    /// The harness's name; of several, with commas between them.
    pub harness: String,
    pub policy: Arc<PolicySet>,
    pub mode: Mode,
    pub grants: Arc<Grants>,
    /// What policy and grants are decided from again when the configuration changes.
    pub asked: Asked,
    /// Stand-ins, the harness's variables and its privacy settings, sorted by name.
    pub env: Vec<EnvironmentVariable>,
    pub placement: Placement,
    /// One line each.
    pub notes: Vec<String>,
    /// Set by a ceiling.
    pub same_grants: Option<SameGrants>,
}

pub fn terms(
    prepare: &Prepare,
    harnesses: &Harnesses,
    policies: &Policies,
    vault: &Vault,
) -> Result<Terms, Refusal> {
    real::no_value(prepare, vault)?;
    network(prepare)?;
    let asked = |key: &str| prepare.annotations.get(key).map(String::as_str);
    let harnesses = named(harnesses, asked(annotation::HARNESS))?;
    let mode = Mode::of(asked(annotation::MODE))?;
    let level = asked(annotation::PRIVACY);
    privacy(&harnesses, level)?;
    let choices = grants::choose_all(vault, &harnesses, prepare.image.as_ref(), asked(annotation::SECRETS))?;
    let logins: Vec<_> =
        choices.iter().map(|choice| choice.login.as_ref().map(|(login, _)| *login)).collect();
    let policy = policy(harnesses.iter().copied().zip(logins), policies, &prepare.annotations)?;
    let parts = harnesses.iter().zip(&choices).map(|(harness, choice)| {
        let level = harness.level(level);
        let env = environment(harness, choice, level)?;
        Ok(Part { harness, choice, placement: placement(harness, choice, level)?, env })
    });
    let parts = parts.collect::<Result<Vec<_>, Refusal>>()?;
    let env = several::environment(&parts)?;
    let mut notes: Vec<String> = choices.iter().flat_map(|choice| choice.notes.clone()).collect();
    notes.extend(failed_policies(&policy));
    real::nothing_like_one(prepare, &env, vault)?;
    notes.extend(replaced(prepare, &env, vault));
    for part in &parts {
        notes.extend(traps(prepare, part.harness, part.choice, &part.env, vault)?);
    }
    notes.extend(several::traps(&parts, &env)?);
    let grants: Grants = choices.iter().flat_map(|choice| choice.grants().names()).collect();
    let names: Vec<&str> = harnesses.iter().map(|harness| harness.name.as_str()).collect();
    let harness = names.join(",");
    let mut placement = several::placement(parts);
    let ssh = ssh::files(vault, choices.iter().flat_map(Choice::secrets))?;
    placement.files.extend(ssh.files);
    placement.login_files.extend(ssh.login_files);
    placement.stand_ins.extend(ssh.stand_ins);
    placement.files.extend(choices.iter().flat_map(Choice::secrets).filter_map(assertions::file));
    let passwords = choices.iter().flat_map(Choice::secrets);
    let passwords =
        passwords.filter_map(|secret| Some((secret.declaration().postgres.as_ref()?, secret.stand_in())));
    if let Some(file) = postgres::passfile(passwords) {
        placement.files.push(file);
        placement.login_files.push(postgres::login_file());
        // A home that is kept may hold the stand-in of an earlier start.
        let known = vault.secrets().iter().filter(|secret| secret.declaration().postgres.is_some());
        placement.stand_ins.extend(known.flat_map(Secret::stand_ins).map(str::to_owned));
    }
    for secret in choices.iter().flat_map(Choice::secrets) {
        let Some(key) = secret.aws_key() else { continue };
        let (file, login_file) = aws::file(key, secret.stand_in());
        placement.files.push(file);
        placement.login_files.push(login_file);
    }
    // A home that is kept may hold the login of an earlier start, which had another account.
    let logins = harnesses.iter().flat_map(|harness| grants::logins(vault, harness, prepare.image.as_ref()));
    placement.stand_ins.extend(logins.map(|(_, secret)| secret.stand_in().to_owned()));
    placement.stand_ins.extend_from_slice(vault.retired_stand_ins());
    placement.stand_ins.sort_unstable();
    placement.stand_ins.dedup();
    Ok(Terms {
        policy: Arc::new(policy),
        mode,
        grants: Arc::new(grants.clone()),
        asked: Asked::new(prepare, &harness, grants),
        placement,
        env: env.into_iter().map(|(name, value)| EnvironmentVariable { name, value }).collect(),
        harness,
        notes,
        same_grants: None,
    })
}

fn network(prepare: &Prepare) -> Result<(), Refusal> {
    match prepare.annotations.get(annotation::NETWORK).map(String::as_str) {
        // What guarded lets in is the hook's business.
        None | Some("none" | annotation::SEALED | annotation::GUARDED) => Ok(()),
        Some(other) => Err(Refusal::new(
            format!("annotation {}: {:?} is not supported", annotation::NETWORK, shortened(other)),
            format!("use --network=none and `{0}=sealed`, or `{0}=guarded`", annotation::NETWORK),
        )),
    }
}

/// Those of a list, each once, in its order; the usual one if there is none.
pub(super) fn named<'h>(
    harnesses: &'h Harnesses,
    asked: Option<&str>,
) -> Result<Vec<&'h Descriptor>, Refusal> {
    let mut named: Vec<&Descriptor> = Vec::new();
    for name in annotation::list(asked.unwrap_or(DEFAULT_HARNESS)) {
        let harness = harness(harnesses, Some(name))?;
        if !named.iter().any(|other| other.name == harness.name) {
            named.push(harness);
        }
    }
    if named.is_empty() { Ok(vec![harness(harnesses, asked)?]) } else { Ok(named) }
}

fn harness<'h>(harnesses: &'h Harnesses, asked: Option<&str>) -> Result<&'h Descriptor, Refusal> {
    harnesses.harness(asked.unwrap_or(DEFAULT_HARNESS)).map_err(|error| {
        let remedy = match &error {
            HarnessError::Unknown { suggestion: Some(meant), .. } => format!("did you mean `{meant}`?"),
            HarnessError::Unknown { known, .. } => format!("known are: {}", known.join(", ")),
            HarnessError::Broken { .. } => "repair the file, then run: understudy check".to_owned(),
        };
        Refusal::new(format!("annotation {}: {error}", annotation::HARNESS), remedy)
    })
}

/// Without `understudy.policy`: what the harness needs. `understudy.allow` comes on top of either.
pub(super) fn policy<'a>(
    harnesses: impl Iterator<Item = (&'a Descriptor, Option<&'a Login>)> + Clone,
    policies: &Policies,
    annotations: &BTreeMap<String, String>,
) -> Result<PolicySet, Refusal> {
    let asked = |key: &str| annotations.get(key).map(String::as_str);
    let (named, allowed) = (asked(annotation::POLICY), asked(annotation::ALLOW));
    let names: Vec<&str> = harnesses.clone().map(|(harness, _)| harness.name.as_str()).collect();
    let needed = || {
        let hosts = |(harness, login): (&'a Descriptor, _)| {
            harness.allowed_hosts(login, harness.level(asked(annotation::PRIVACY)))
        };
        builtin::harness_only(&names.join(","), harnesses.clone().flat_map(hosts))
    };
    let mut set = Vec::new();
    for name in annotation::list(named.unwrap_or(builtin::HARNESS_ONLY)) {
        set.push(match name {
            builtin::HARNESS_ONLY => Arc::new(needed()),
            name => policies.policy(name).ok_or_else(|| unknown_policy(policies, name))?,
        });
    }
    if let Some(allowed) = allowed {
        let policy = Policy::from_allow_annotation(allowed).map_err(|error| {
            Refusal::new(error.to_string(), "write host names, as `api.example.com` or `*.example.com:8443`")
        })?;
        set.push(Arc::new(policy));
    }
    Ok(PolicySet::combine(set))
}

fn unknown_policy(policies: &Policies, name: &str) -> Refusal {
    let remedy = match policies.suggestion(name) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => {
            let known: Vec<&str> = policies.names().chain([builtin::HARNESS_ONLY]).collect();
            format!("known are: {}", known.join(", "))
        }
    };
    Refusal::new(
        format!("annotation {}: there is no policy `{}`", annotation::POLICY, shortened(name)),
        format!("{remedy} (a file that was just written is known within five seconds)"),
    )
}

fn failed_policies(policy: &PolicySet) -> Vec<String> {
    let failed = |policy: &Arc<Policy>| {
        Some(format!(
            "policy `{}` could not be loaded when this container started, so nothing was allowed then: {}",
            policy.name(),
            policy.error()?
        ))
    };
    policy.policies().iter().filter_map(failed).collect()
}

/// The harness's variables, its privacy settings, the login's variables, and those of other secrets that were asked for.
fn environment(
    harness: &Descriptor,
    choice: &Choice<'_>,
    level: &str,
) -> Result<BTreeMap<String, String>, Refusal> {
    let mut env = harness.env.clone();
    env.extend(harness.privacy(level).flat_map(|level| level.env.clone()));
    if let Some((login, secret)) = &choice.login {
        env.extend(login.env.iter().map(|(name, value)| (name.clone(), value.render(secret.filling()))));
    }
    for secret in choice.others.iter().filter(|secret| secret.ssh_key().is_none()) {
        let declaration = secret.declaration();
        if let Some(server) = &declaration.postgres {
            for (name, value) in postgres::environment(server, declaration.env.as_deref(), secret.stand_in())
            {
                if env.contains_key(&name) {
                    return Err(taken(&name, secret));
                }
                env.insert(name, value);
            }
            continue;
        }
        if let Some(key) = secret.aws_key() {
            for (name, stand_in) in aws::environment(key, secret.stand_in()) {
                if env.insert(name.to_owned(), stand_in.to_owned()).is_some() {
                    return Err(taken(name, secret));
                }
            }
            continue;
        }
        if let Some(key) = secret.assertion_key() {
            for (name, value) in assertions::environment(key) {
                if env.insert(name.to_owned(), value).is_some() {
                    return Err(taken(name, secret));
                }
            }
            continue;
        }
        let Some(name) = &declaration.env else {
            return Err(Refusal::new(
                format!(
                    "secret `{}` has no variable for its stand-in, so nothing in the container could use it",
                    secret.name()
                ),
                format!("add `env = \"NAME\"` to it ({})", declaration.place),
            ));
        };
        if env.insert(name.clone(), secret.stand_in().to_owned()).is_some() {
            return Err(taken(name, secret));
        }
    }
    Ok(env)
}

fn taken(name: &str, secret: &Secret) -> Refusal {
    Refusal::new(
        format!("variable `{name}` of secret `{}` is needed for something else, too", secret.name()),
        format!("give it another `env` ({}), or leave one of the secrets out", secret.declaration().place),
    )
}

/// That one of the harnesses has the level that is asked for; the others keep theirs.
fn privacy(harnesses: &[&Descriptor], asked: Option<&str>) -> Result<(), Refusal> {
    let known = |level: &str| harnesses.iter().any(|harness| harness.privacy.levels.contains_key(level));
    match (asked, harnesses.first()) {
        (Some(level), Some(first)) if !known(level) => Err(unknown_level(first, level)),
        _ => Ok(()),
    }
}

fn unknown_level(harness: &Descriptor, level: &str) -> Refusal {
    let known = || harness.privacy.levels.keys().map(String::as_str);
    let remedy = match closest(level, known()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("known are: {}", known().collect::<Vec<_>>().join(", ")),
    };
    let reason = format!(
        "annotation {}: harness {} has no privacy level `{}`",
        annotation::PRIVACY,
        harness.name,
        shortened(level)
    );
    Refusal::new(reason, remedy)
}

/// Says which of the container's own variables lose their value.
fn replaced(prepare: &Prepare, env: &BTreeMap<String, String>, vault: &Vault) -> Vec<String> {
    let lost = |(name, value): (&String, &String)| {
        let own = prepare.env.get(name)?;
        let matters = !own.is_empty() && own != value && !vault.is_stand_in(own);
        matters.then(|| format!("the container's own value of {name} was replaced"))
    };
    env.iter().filter_map(lost).collect()
}

/// Variables that would make the harness use something else than its login.
fn traps(
    prepare: &Prepare,
    harness: &Descriptor,
    choice: &Choice<'_>,
    env: &BTreeMap<String, String>,
    vault: &Vault,
) -> Result<Vec<String>, Refusal> {
    let of_login = choice.login.iter().flat_map(|(login, _)| &login.traps);
    let set = |trap: &&Trap| {
        let own = prepare.env.get(&trap.env).filter(|_| !env.contains_key(&trap.env));
        own.is_some_and(|value| !value.is_empty() && !vault.is_stand_in(value))
    };
    let mut notes = Vec::new();
    for trap in of_login.chain(&harness.traps).filter(set) {
        let told = format!("environment variable `{}` is set: {}", trap.env, trap.why);
        match trap.action {
            TrapAction::Note => notes.push(told),
            TrapAction::Refuse => {
                let remedy =
                    format!("start the container without `--env {}` (an image can set it, too)", trap.env);
                return Err(Refusal::new(told, remedy));
            }
        }
    }
    Ok(notes)
}

fn placement(harness: &Descriptor, choice: &Choice<'_>, level: &str) -> Result<Placement, Refusal> {
    let filling = choice.login.as_ref().map(|(_, secret)| secret.filling()).unwrap_or_default();
    let of_login = choice.login.iter().flat_map(|(login, _)| &login.files);
    let of_level = harness.privacy(level).flat_map(|level| &level.files);
    let files = harness.files.iter().chain(of_level).chain(of_login).map(|file| placed(file, filling));
    let files = files.collect::<Result<_, _>>().map_err(|error| {
        // `understudy_harnesses` checked it when the descriptor was read.
        Refusal::new(format!("a file of harness {}: {error}", harness.name), "run: understudy check")
    })?;
    // With what `login import --write-back` leaves beside it.
    let login_file = |file: &understudy_harnesses::LoginFile| {
        let paths = [file.path.clone(), format!("{}.previous", file.path)];
        paths.map(|path| LoginFile { path, pointers: file.pointers.clone() })
    };
    Ok(Placement {
        files,
        login_files: harness.login_files.iter().flat_map(login_file).collect(),
        stand_ins: choice.secrets().flat_map(Secret::all_stand_ins).map(str::to_owned).collect(),
    })
}

fn placed(
    file: &understudy_harnesses::PlacedFile,
    filling: Filling<'_>,
) -> Result<PlacedFile, TemplateError> {
    let (write, content) = match file.write {
        understudy_harnesses::Write::Create => (Write::Create, file.content.render(filling)),
        understudy_harnesses::Write::Replace => (Write::Replace, file.content.render(filling)),
        understudy_harnesses::Write::MergeJson => (Write::MergeJson, file.content.render_json(filling)?),
        understudy_harnesses::Write::FillToml => (Write::FillToml, file.content.render(filling)),
        understudy_harnesses::Write::MergeEnv => (Write::MergeEnv, file.content.render(filling)),
    };
    Ok(PlacedFile { path: file.path.clone(), mode: file.mode, write, content })
}

/// At most 80 characters of what somebody wrote.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
#[path = "terms/tests.rs"]
mod tests;
