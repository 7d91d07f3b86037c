//! What a running container may do now: decided anew whenever the configuration changes. It can lose what it was given
//! when it started and get that back, and never gets more, but for an account that its own program logged in to and that the
//! operator confirmed.

use std::collections::BTreeSet;
use std::sync::Arc;

use understudy_control::{Prepare, Refusal, annotation};
use understudy_harnesses::Harnesses;
use understudy_policies::{Policies, Policy, PolicySet};

use super::declaration::Declaration;
use super::grants::Grants;
use super::holdings::HeldValue;
use super::source::Source;
use super::terms;
use super::vault::{Secret, Vault};
use crate::accounts::Account;
use crate::accounts::record::OwnAccount;
use crate::operator::Mode;

#[derive(Debug, Clone, Default)]
pub struct Rights {
    pub policy: Arc<PolicySet>,
    pub grants: Arc<Grants>,
    /// What is granted now, to be searched for even when it is no longer.
    pub values: Vec<HeldValue>,
    /// What becomes of a host that no rule is about.
    pub mode: Mode,
}

/// What a container asked for and was given when it started.
#[derive(Debug, Clone)]
pub struct Asked {
    /// As in [`terms::Terms`].
    pub harness: String,
    pub granted: Grants,
    /// Accounts that its own program logged in to, and that the operator confirmed: whatever secrets are declared to be
    /// them now.
    pub own: BTreeSet<OwnAccount>,
    /// Without environment and arguments, which are not looked at again.
    pub prepare: Prepare,
}

impl Rights {
    pub fn new(policy: Arc<PolicySet>, grants: Arc<Grants>, vault: &Vault) -> Self {
        let values = values(&grants, vault);
        Self { policy, grants, values, mode: Mode::default() }
    }

    /// The same with what the granted secrets are now: the tokens of accounts change without a reload.
    pub fn with_values(&self, vault: &Vault) -> Self {
        Self { values: values(&self.grants, vault), ..self.clone() }
    }

    /// For a container that may do nothing any more; every refusal says why.
    pub fn none(asked: &Asked, why: String) -> Self {
        let named = asked.annotation(annotation::POLICY).unwrap_or(&asked.harness);
        let policy = PolicySet::combine(vec![Arc::new(Policy::failed(named, why))]);
        Self { policy: Arc::new(policy), ..Self::default() }
    }
}

impl Asked {
    pub fn new(prepare: &Prepare, harness: &str, granted: Grants) -> Self {
        let Prepare { id, name, image, annotations, user, managed, joins, origin, mounts, .. } =
            prepare.clone();
        let (env, args) = Default::default();
        let prepare =
            Prepare { id, name, image, annotations, user, env, args, managed, joins, origin, mounts };
        Self { harness: harness.to_owned(), granted, own: BTreeSet::new(), prepare }
    }

    /// Secrets that are declared to be that account, each with whether the container may have it.
    pub fn of_account(&self, vault: &Vault, own: &OwnAccount) -> Vec<(String, bool)> {
        let image = self.prepare.image.as_ref();
        let declared = vault.declarations().filter(|declaration| match &declaration.source {
            // What cannot be used gives nothing, whichever account it is.
            Source::Account(name) if *name == own.name => vault
                .secret(&declaration.name)
                .and_then(Secret::account)
                .is_none_or(|account| is_same(account, own)),
            _ => false,
        });
        let may = |declaration: &Declaration| {
            annotation::list(&self.harness).any(|harness| declaration.grant_to.includes(harness, image))
        };
        declared.map(|declaration| (declaration.name.clone(), may(declaration))).collect()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.prepare.annotations.get(key).map(String::as_str)
    }
}

/// Of the name alone another account may have been stored since.
fn is_same(account: &Account, own: &OwnAccount) -> bool {
    account.uid.as_ref() == Some(&own.uid)
}

fn values(grants: &Grants, vault: &Vault) -> Vec<HeldValue> {
    let granted = vault.secrets().iter().filter(|secret| grants.contains(secret.name()));
    granted.flat_map(Secret::held).collect()
}

/// Pure.
///
/// # Errors
/// A policy or harness that is gone. Nothing is allowed then ([`Rights::none`]).
pub fn rights(
    asked: &Asked,
    harnesses: &Harnesses,
    policies: &Policies,
    vault: &Vault,
) -> Result<Rights, Refusal> {
    let image = asked.prepare.image.as_ref();
    let still = |name: &String| {
        vault.secret(name).is_some_and(|secret| {
            let granted = |harness| secret.declaration().grant_to.includes(harness, image);
            annotation::list(&asked.harness).any(granted)
        })
    };
    let own = asked.own.iter().flat_map(|account| asked.of_account(vault, account));
    let own = own.filter(|(_, may)| *may).map(|(name, _)| name);
    let grants: Grants = asked.granted.names().into_iter().filter(still).chain(own).collect();
    let named = terms::named(harnesses, Some(&asked.harness))?;
    let logins = named.iter().map(|harness| (*harness, grants.login(harness, image, vault)));
    let policy = terms::policy(logins, policies, &asked.prepare.annotations)?;
    let mode = Mode::of(asked.annotation(annotation::MODE))?;
    Ok(Rights { mode, ..Rights::new(Arc::new(policy), Arc::new(grants), vault) })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use understudy_control::User;
    use understudy_policies::Verdict;

    use super::super::fixture::{Values, declared, vault};
    use super::*;
    use crate::accounts::record::{Record, StandIns, Token, Tokens};

    fn asked() -> Asked {
        let prepare = Prepare {
            id: "a".repeat(64).parse().unwrap(),
            name: None,
            image: None,
            annotations: BTreeMap::from([(annotation::POLICY.to_owned(), "web".to_owned())]),
            user: User { uid: 0, gid: 0 },
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            args: vec!["c".to_owned()],
            managed: Vec::new(),
            joins: None,
            origin: None,
            mounts: None,
        };
        let asked = Asked::new(&prepare, "claude-code", ["a", "b"].into_iter().collect());
        assert!(asked.prepare.env.is_empty() && asked.prepare.args.is_empty());
        asked
    }

    fn own(name: &str) -> OwnAccount {
        OwnAccount { name: name.to_owned(), uid: "a-uid".to_owned() }
    }

    /// One of that name that was stored later, or before accounts were told apart, is another one.
    #[test]
    fn an_account_that_took_the_place_of_the_one_that_was_confirmed_is_not_it() {
        let token = |text: &str| Token::new(text.to_owned());
        let tokens = Tokens { access: token("access"), refresh: None, id: None };
        let record = Record::new("chatgpt-account", tokens, StandIns::default());
        for (uid, expected) in [(Some("a-uid"), true), (Some("another"), false), (None, false)] {
            let mut record = record.clone();
            record.uid = uid.map(str::to_owned);
            assert_eq!(is_same(&record.account("mine"), &own("mine")), expected, "{uid:?}");
        }
    }

    /// An account is what was confirmed, and not what a secret is called.
    #[test]
    fn a_login_made_inside_is_an_account_whatever_its_secret_is_called() {
        let vault = |name: &str, account: &str, harness: &str| {
            let text = format!(
                "[{name}]\nlike = \"chatgpt-account\"\naccount = \"{account}\"\ngrant-to = {{ harnesses = [\"{harness}\"] }}\n"
            );
            vault(&text, &Values::new())
        };
        let asked = Asked { own: [own("mine")].into(), ..asked() };
        let policies = policies("[[allow]]\nhost = \"a.example\"\n");
        let granted =
            |vault: &Vault| rights(&asked, &Harnesses::load(None), &policies, vault).unwrap().grants.names();
        assert_eq!(granted(&vault("work", "mine", "claude-code")), ["work"]);
        assert_eq!(granted(&vault("renamed", "mine", "claude-code")), ["renamed"]);
        for other in [vault("work", "another", "claude-code"), vault("work", "mine", "codex")] {
            assert!(granted(&other).is_empty());
        }
    }

    fn policies(rule: &str) -> Policies {
        let mut policies = Policies::default();
        policies.insert(Policy::parse("web", "web.toml", rule).unwrap());
        policies
    }

    #[test]
    fn grants_are_lost_and_come_back_and_never_grow() {
        let values = Values::from([
            ("a", "sk-0123456789abcdefghij"),
            ("b", "sk-9876543210zyxwvutsrq"),
            ("c", "sk-aaaaaaaaaaaaaaaaaaaaa"),
        ]);
        let (harnesses, policies) = (Harnesses::default(), policies(""));
        let now = |text: &str| {
            let vault = vault(text, &values);
            rights(&asked(), &harnesses, &policies, &vault).unwrap().grants.names()
        };
        let all = [declared("a", ""), declared("b", ""), declared("c", "")].concat();
        assert_eq!(now(&all), ["a", "b"]);
        assert_eq!(now(&declared("b", "")), ["b"]);
        assert_eq!(now(&all.replacen("claude-code", "generic", 1)), ["b"]);
        assert_eq!(now(&declared("gone", "")), Vec::<String>::new());
    }

    #[test]
    fn of_several_harnesses_each_keeps_what_it_is_granted() {
        let values = Values::from([("a", "sk-0123456789abcdefghij")]);
        let text = declared("a", "")
            .replace("api.example.com", "api.anthropic.com")
            .replace("claude-code", "opencode");
        let both = Asked { harness: "claude-code,opencode".to_owned(), ..asked() };
        let mut prepare = both.prepare.clone();
        prepare.annotations.clear();
        let both = Asked { prepare, ..both };
        let now = |text: &str| {
            rights(&both, &Harnesses::default(), &Policies::default(), &vault(text, &values)).unwrap()
        };
        let allows = |rights: &Rights| {
            matches!(
                rights.policy.decide(&"api.anthropic.com".parse().unwrap(), 443),
                Verdict::Allowed { .. }
            )
        };
        let rights = now(&text);
        assert!(rights.grants.names() == ["a"] && allows(&rights));
        let rights = now(&text.replace("opencode", "generic"));
        assert!(rights.grants.names().is_empty());
        assert!(allows(&rights), "claude-code's own host");
        let alone = Asked { harness: "opencode".to_owned(), ..both.clone() };
        let without = vault(&text.replace("opencode", "generic"), &values);
        let rights = super::rights(&alone, &Harnesses::default(), &Policies::default(), &without).unwrap();
        assert!(!allows(&rights), "a provider's host goes with the login");
    }

    #[test]
    fn a_policy_is_what_it_says_now_and_an_error_once_it_is_gone() {
        let harnesses = Harnesses::default();
        let now = |policies: &Policies| {
            let rights = rights(&asked(), &harnesses, policies, &Vault::default())?;
            Ok::<_, Refusal>(rights.policy.decide(&"a.example".parse().unwrap(), 443))
        };
        assert!(matches!(now(&policies("[[allow]]\nhost = \"a.example\"")), Ok(Verdict::Allowed { .. })));
        assert_eq!(now(&policies("[[allow]]\nhost = \"b.example\"")), Ok(Verdict::NoHost));
        let refusal = now(&Policies::default()).unwrap_err();
        assert!(refusal.reason.contains("there is no policy `web`"), "{refusal}");
        let elsewhere = Asked { harness: "gone".to_owned(), ..asked() };
        assert!(rights(&elsewhere, &harnesses, &policies(""), &Vault::default()).is_err());
    }
}
