//! Who gets which secret. A declaration says who may; an annotation can ask for less, never take more.

use std::collections::BTreeSet;

use understudy_control::{ImageId, Refusal, annotation};
use understudy_harnesses::{Descriptor, HarnessError, Harnesses, Login};

use super::declaration::{Declaration, whole_name};
use super::vault::{Secret, Vault};

/// The secrets that one container was granted, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Grants {
    names: BTreeSet<String>,
}

/// The secrets of a container that starts, with what each is for.
#[derive(Debug)]
pub struct Choice<'a> {
    /// The harness's login and the secret that it gets.
    pub login: Option<(&'a Login, &'a Secret)>,
    /// Asked for, and no login.
    pub others: Vec<&'a Secret>,
    pub notes: Vec<String>,
}

impl Grants {
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains(whole_name(name))
    }

    /// The login of `harness` that one of them is, as [`choose`] saw to it that there is one at the most.
    pub(super) fn login<'h>(
        &self,
        harness: &'h Descriptor,
        image: Option<&ImageId>,
        vault: &Vault,
    ) -> Option<&'h Login> {
        let secrets = self.names.iter().filter_map(|name| vault.secret(name));
        let secrets = secrets.filter(|secret| secret.declaration().grant_to.includes(&harness.name, image));
        let mut logins = secrets
            .filter_map(|secret| harness.logins.iter().find(|login| fits(login, secret.declaration())));
        logins.next()
    }

    /// Names of the granted secrets, sorted.
    pub fn names(&self) -> Vec<String> {
        self.names.iter().cloned().collect()
    }
}

impl<S: Into<String>> FromIterator<S> for Grants {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self { names: names.into_iter().map(Into::into).collect() }
    }
}

impl Choice<'_> {
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.login.iter().map(|(_, secret)| *secret).chain(self.others.iter().copied())
    }

    pub fn grants(&self) -> Grants {
        self.secrets().map(Secret::name).collect()
    }
}

/// `asked` is the value of `understudy.secrets`: with it the container gets these secrets and no others (none if it is
/// empty); without it, the one secret that fits a login of the harness.
pub fn choose<'a>(
    vault: &'a Vault,
    harness: &'a Descriptor,
    image: Option<&ImageId>,
    asked: Option<&str>,
) -> Result<Choice<'a>, Refusal> {
    match asked {
        Some(asked) => asked_for(vault, harness, image, annotation::list(asked).collect()),
        None => fitting(vault, harness, image),
    }
}

/// For several harnesses, each by [`choose`]: a secret that is asked for is a login of all that it fits, or else goes with
/// the first one that it is granted to.
pub fn choose_all<'a>(
    vault: &'a Vault,
    harnesses: &[&'a Descriptor],
    image: Option<&ImageId>,
    asked: Option<&str>,
) -> Result<Vec<Choice<'a>>, Refusal> {
    let Some(asked) = asked else {
        return harnesses.iter().map(|harness| choose(vault, harness, image, None)).collect();
    };
    let mut of_each: Vec<Vec<&str>> = harnesses.iter().map(|_| Vec::new()).collect();
    for name in annotation::list(asked) {
        let granted = |harness: &Descriptor| {
            vault
                .secret(name)
                .is_some_and(|secret| secret.declaration().grant_to.includes(&harness.name, image))
        };
        let is_login = |harness: &Descriptor| {
            let secret = vault.secret(name).map(Secret::declaration);
            secret.is_some_and(|secret| harness.logins.iter().any(|login| fits(login, secret)))
        };
        let with = |wanted: &dyn Fn(&Descriptor) -> bool| -> Vec<usize> {
            let indexed = harnesses.iter().enumerate();
            indexed.filter(|(_, harness)| wanted(harness)).map(|(index, _)| index).collect()
        };
        let logins = with(&|harness| granted(harness) && is_login(harness));
        // What none of them can have is refused by the first.
        let first = with(&granted).first().copied().unwrap_or(0);
        for index in if logins.is_empty() { vec![first] } else { logins } {
            of_each.get_mut(index).into_iter().for_each(|names| names.push(name));
        }
    }
    let each = harnesses.iter().zip(of_each);
    each.map(|(harness, names)| choose(vault, harness, image, Some(&names.join(",")))).collect()
}

/// One line for each harness that a declaration grants to and that does not exist: a grant to nobody.
pub fn warnings(vault: &Vault, harnesses: &Harnesses) -> Vec<String> {
    let granted = vault.declarations().flat_map(|d| d.grant_to.harnesses.iter().map(move |name| (d, name)));
    let unknown = granted.filter_map(|(declaration, name)| match harnesses.harness(name) {
        Err(HarnessError::Unknown { suggestion, .. }) => {
            let meant = suggestion.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            let Declaration { name: secret, place, .. } = declaration;
            Some(format!(
                "secret `{secret}` ({place}) is granted to harness {name:?}, which does not exist{meant}"
            ))
        }
        _ => None,
    });
    unknown.collect()
}

fn asked_for<'a>(
    vault: &'a Vault,
    harness: &'a Descriptor,
    image: Option<&ImageId>,
    names: BTreeSet<&str>,
) -> Result<Choice<'a>, Refusal> {
    let mut logins: Vec<(&Login, &Secret)> = Vec::new();
    let mut others = Vec::new();
    for name in names {
        let secret = usable(vault, name)?;
        let declaration = secret.declaration();
        if !declaration.grant_to.includes(&harness.name, image) {
            return Err(not_granted(declaration, harness, image));
        }
        match harness.logins.iter().find(|login| fits(login, declaration)) {
            Some(login) => logins.push((login, secret)),
            None => others.push(secret),
        }
    }
    let login = one_login(harness, &logins)?;
    Ok(Choice { login, others, notes: login_missing(harness, login.is_none()) })
}

fn fitting<'a>(
    vault: &'a Vault,
    harness: &'a Descriptor,
    image: Option<&ImageId>,
) -> Result<Choice<'a>, Refusal> {
    let candidates: Vec<_> = logins(vault, harness, image).collect();
    let login = one_login(harness, &candidates)?;
    if login.is_none() {
        // Starting without it would only put the error off, to where nobody can explain it.
        let is_login = |declaration| login_of(declaration, harness, image).is_some();
        if let Some(unusable) = vault.unusable().iter().find(|u| is_login(u.declaration())) {
            return Err(cannot_be_used(unusable.name(), unusable.error()));
        }
    }
    let mut notes = login_missing(harness, login.is_none());
    if login.is_none() {
        let fitting = |d: &&Declaration| harness.logins.iter().any(|login| fits(login, d));
        notes.extend(vault.declarations().filter(fitting).map(|Declaration { name, place, .. }| {
            format!("secret `{name}` would fit, but its `grant-to` does not name {} ({place})", harness.name)
        }));
    }
    Ok(Choice { login, others: Vec::new(), notes })
}

/// Every secret that could be a login of a harness, with which it would be.
pub(super) fn logins<'a>(
    vault: &'a Vault,
    harness: &'a Descriptor,
    image: Option<&ImageId>,
) -> impl Iterator<Item = (&'a Login, &'a Secret)> {
    vault
        .secrets()
        .iter()
        .filter_map(move |secret| Some((login_of(secret.declaration(), harness, image)?, secret)))
}

fn login_of<'a>(
    declaration: &Declaration,
    harness: &'a Descriptor,
    image: Option<&ImageId>,
) -> Option<&'a Login> {
    let granted = declaration.grant_to.includes(&harness.name, image);
    harness.logins.iter().find(|login| granted && fits(login, declaration))
}

fn fits(login: &Login, declaration: &Declaration) -> bool {
    login.kind == declaration.kind && declaration.is_bound_to(&login.host)
}

fn one_login<'a>(
    harness: &Descriptor,
    candidates: &[(&'a Login, &'a Secret)],
) -> Result<Option<(&'a Login, &'a Secret)>, Refusal> {
    match candidates {
        [] => Ok(None),
        [only] => Ok(Some(*only)),
        several => {
            let choice =
                |(login, secret): &(&Login, &Secret)| format!("`{}` ({})", secret.name(), login.name);
            let choices: Vec<String> = several.iter().map(choice).collect();
            Err(Refusal::new(
                format!("several secrets fit the login of {}: {}", harness.name, choices.join(", ")),
                format!("choose one: --annotation {}=NAME", annotation::SECRETS),
            ))
        }
    }
}

fn login_missing(harness: &Descriptor, missing: bool) -> Vec<String> {
    if !missing || harness.logins.is_empty() {
        return Vec::new();
    }
    let login = harness.logins.iter().map(|login| format!("{} at {}", login.kind.as_str(), login.host));
    let logins: Vec<String> = login.collect();
    vec![format!(
        "{} has no login: none of its secrets is of kind {} with grant-to for it (secrets.toml)",
        harness.name,
        logins.join(" or ")
    )]
}

fn usable<'a>(vault: &'a Vault, name: &str) -> Result<&'a Secret, Refusal> {
    if let Some(secret) = vault.secret(name) {
        return Ok(secret);
    }
    if let Some(unusable) = vault.unusable().iter().find(|unusable| unusable.name() == name) {
        return Err(cannot_be_used(name, unusable.error()));
    }
    let shown: String = name.chars().take(64).collect();
    let remedy = match vault.suggestion(name) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "declare it in secrets.toml, or leave the annotation out".to_owned(),
    };
    Err(Refusal::new(format!("annotation {}: there is no secret `{shown}`", annotation::SECRETS), remedy))
}

fn cannot_be_used(name: &str, error: &str) -> Refusal {
    Refusal::new(
        format!("secret `{name}` cannot be used: {error}"),
        "repair it, then start the container again",
    )
}

fn not_granted(declaration: &Declaration, harness: &Descriptor, image: Option<&ImageId>) -> Refusal {
    let image = image.map(|image| format!(" or `images = [\"{image}\"]`")).unwrap_or_default();
    Refusal::new(
        format!(
            "annotation {}: secret `{}` is not granted to harness {}",
            annotation::SECRETS,
            declaration.name,
            harness.name
        ),
        format!(
            "if it should be, add `harnesses = [\"{}\"]`{image} to its `grant-to` ({})",
            harness.name, declaration.place
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Values, declared, vault};
    use super::*;

    const KEY: &str = "sk-ant-api03-0123456789abcdefghij";
    const TOKEN: &str = "sk-ant-oat01-0123456789abcdefghij";
    const OTHER: &str = "ghp_0123456789abcdefghijABCDEFGHIJ";

    fn key(name: &str) -> String {
        declared(name, "").replace("api.example.com", "api.anthropic.com")
    }

    fn token(name: &str) -> String {
        key(name)
            .replace("api-key\"\nfile", "bearer\"\nfile")
            .replace("placements = [\"header x-api-key\"]\n", "")
    }

    fn chosen(
        text: &str,
        harness: &str,
        asked: Option<&str>,
    ) -> Result<(Option<String>, Vec<String>), Refusal> {
        let values = Values::from([
            ("key", KEY),
            ("key2", "sk-ant-api03-zzzz456789abcdefghij"),
            ("token", TOKEN),
            ("git", OTHER),
        ]);
        let vault = vault(text, &values);
        let harnesses = Harnesses::default();
        let choice = choose(&vault, harnesses.harness(harness).unwrap(), None, asked)?;
        let login = choice.login.map(|(login, secret)| format!("{}={}", login.name, secret.name()));
        Ok((login, choice.grants().names()))
    }

    #[test]
    fn the_only_secret_that_fits_is_the_login() {
        let found = chosen(&(key("key") + &declared("git", "")), "claude-code", None).unwrap();
        assert_eq!(found, (Some("api-key=key".into()), vec!["key".into()]));
        let found = chosen(&token("token"), "claude-code", None).unwrap();
        assert_eq!(found, (Some("account-token=token".into()), vec!["token".into()]));
    }

    #[test]
    fn what_is_asked_for_is_all_there_is() {
        let text = key("key") + &token("token") + &declared("git", "");
        let found = |asked| chosen(&text, "claude-code", Some(asked)).unwrap();
        assert_eq!(
            found("token, git"),
            (Some("account-token=token".into()), vec!["git".into(), "token".into()])
        );
        assert_eq!(found("git git"), (None, vec!["git".into()]));
        assert_eq!(found(""), (None, vec![]));
    }

    #[test]
    fn what_cannot_be_decided_or_granted_is_refused_with_the_way_out() {
        let both = key("key") + &token("token") + &key("key2");
        for (text, harness, asked, reason, remedy) in [
            (
                both.clone(),
                "claude-code",
                None,
                "`key` (api-key), `key2` (api-key), `token` (account-token)",
                "choose one",
            ),
            (
                both.clone(),
                "claude-code",
                Some("key,token"),
                "several secrets fit",
                "understudy.secrets=NAME",
            ),
            (both.clone(), "claude-code", Some("kye"), "there is no secret `kye`", "did you mean `key`?"),
            (
                both,
                "generic",
                Some("key"),
                "not granted to harness generic",
                "add `harnesses = [\"generic\"]`",
            ),
            (
                key("gone"),
                "claude-code",
                None,
                "secret `gone` cannot be used: file /run/secrets/gone",
                "repair",
            ),
            (key("gone"), "claude-code", Some("gone"), "secret `gone` cannot be used", "repair"),
        ] {
            let refusal = chosen(&text, harness, asked).unwrap_err();
            assert!(refusal.reason.contains(reason) && refusal.remedy.contains(remedy), "{refusal}");
        }
    }

    #[test]
    fn generic_gets_only_what_is_asked_for() {
        let text = declared("git", "").replace("claude-code", "generic");
        assert_eq!(chosen(&text, "generic", None).unwrap(), (None, vec![]));
        assert_eq!(chosen(&text, "generic", Some("git")).unwrap(), (None, vec!["git".into()]));
    }

    #[test]
    fn a_grant_that_reaches_nobody_is_told() {
        let elsewhere = key("key").replace("claude-code", "claude-cod");
        let vault = vault(&elsewhere, &Values::from([("key", KEY)]));
        let harnesses = Harnesses::default();
        let told = warnings(&vault, &harnesses);
        assert!(told.len() == 1 && told[0].contains("did you mean `claude-code`?"), "{told:?}");
        let choice = choose(&vault, harnesses.harness("claude-code").unwrap(), None, None).unwrap();
        assert!(choice.login.is_none() && choice.notes[1].contains("`key` would fit"), "{:?}", choice.notes);
        assert!(warnings(&Vault::default(), &harnesses).is_empty());
    }

    #[test]
    fn an_image_can_be_granted_too() {
        let image: ImageId = "a".repeat(64).parse().unwrap();
        let text =
            declared("git", "").replace("harnesses = [\"claude-code\"]", &format!("images = [\"{image}\"]"));
        let vault = vault(&text, &Values::from([("git", OTHER)]));
        let harnesses = Harnesses::default();
        let choose = |image| choose(&vault, harnesses.harness("generic").unwrap(), image, Some("git"));
        assert!(choose(Some(&image)).is_ok());
        let other: ImageId = "b".repeat(64).parse().unwrap();
        assert!(choose(Some(&other)).is_err() && choose(None).is_err());
    }
}
