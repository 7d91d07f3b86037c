//! What people are told of the vault's secrets.

use understudy_policies::document::closest;

use super::Vault;
use crate::credentials::declaration::Declaration;
use crate::credentials::expiry::{Day, Notice};

impl Vault {
    /// One line for each secret that cannot be used, or not as its declaration says, or that has expired.
    pub fn problems(&self, today: Day) -> Vec<String> {
        let unusable = self.unusable.iter().map(|u| line(&u.declaration, &u.error));
        let stale = self.secrets.iter().filter_map(|secret| {
            let error = secret.stale()?;
            Some(line(
                &secret.declaration,
                &format!("{error}; the value that was read before stays in force"),
            ))
        });
        let over = self.declarations().filter_map(|declaration| {
            let expiry = declaration.expires.filter(|expiry| expiry.notice(today) == Some(Notice::Over))?;
            let told = format!(
                "EXPIRED on {expiry}; it is still sent, so replace it at its provider, then `expires`"
            );
            Some(line(declaration, &told))
        });
        let ended =
            self.secrets.iter().filter_map(|secret| Some(line(&secret.declaration, &secret.login_needed()?)));
        let away = self
            .secrets
            .iter()
            .filter_map(|secret| Some(line(&secret.declaration, &secret.declaration.source.problem()?)));
        unusable.chain(stale).chain(over).chain(ended).chain(away).collect()
    }

    /// One line each for what works, and should be looked at.
    pub fn warnings(&self, today: Day) -> Vec<String> {
        let schemes = self.secrets.iter().filter_map(|secret| {
            let scheme = secret.scheme()?;
            let told = format!(
                "`{scheme} ` before the value was left out; take it out of {}",
                secret.declaration.source
            );
            Some(line(&secret.declaration, &told))
        });
        let soon = self.declarations().filter_map(|declaration| {
            let expiry = declaration.expires?;
            let Some(Notice::Soon(days)) = expiry.notice(today) else { return None };
            Some(line(declaration, &format!("expires on {expiry}, in {days} days")))
        });
        schemes.chain(soon).collect()
    }

    /// The name that a misspelt one was probably meant to be.
    pub fn suggestion(&self, name: &str) -> Option<&str> {
        closest(name, self.declarations().map(|declaration| declaration.name.as_str()))
    }
}

fn line(declaration: &Declaration, what: &str) -> String {
    format!("secret `{}` ({}): {what}", declaration.name, declaration.place)
}
