//! Whom the sidecar lets in where a password of PostgreSQL is for a server. Pure: the door asks it of a connection,
//! `explain` of none.

use understudy_policies::HostName;

use crate::credentials::{Grants, Vault};
use crate::reason::Reason;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// No secret of the installation is for this server.
    NoSecret,
    /// One is, and this container cannot use it; why, and what to do.
    Closed(String),
    /// Secrets, and the user of each.
    Users(Vec<(String, String)>),
}

pub fn door(vault: &Vault, grants: &Grants, host: &HostName, port: u16) -> Door {
    let declared: Vec<&str> =
        vault.postgres_at(host, port).map(|declaration| declaration.name.as_str()).collect();
    if declared.is_empty() {
        return Door::NoSecret;
    }
    let granted = vault.secrets().iter().filter_map(|secret| {
        let server = secret.declaration().postgres.as_ref()?;
        let is = server.is_at(host, port) && grants.contains(secret.name());
        is.then(|| (secret.name().to_owned(), server.user().to_owned()))
    });
    let granted: Vec<_> = granted.collect();
    if granted.is_empty() {
        return Door::Closed(format!(
            "secret {} is for {host}:{port}, and this container was not given it, or it cannot be used (understudy \
             secrets); start it with --annotation understudy.secrets=NAME",
            quoted(declared.into_iter())
        ));
    }
    Door::Users(granted)
}

impl Door {
    /// The secrets whose stand-in lets this user in; of any user, if it is not known who.
    pub fn admits(
        &self,
        host: &HostName,
        port: u16,
        user: Option<&str>,
    ) -> Result<Vec<String>, (Reason, String)> {
        let users = match self {
            Self::NoSecret => {
                let why = format!(
                    "no secret of kind \"postgres\" is for {host}:{port}; declare one in secrets.toml (docs/postgres.md)"
                );
                return Err((Reason::CredentialNotGranted, why));
            }
            Self::Closed(why) => return Err((Reason::CredentialNotGranted, why.clone())),
            Self::Users(users) => users,
        };
        let fits = |own: &String| user.is_none_or(|user| user == own);
        let fitting: Vec<String> =
            users.iter().filter(|(_, own)| fits(own)).map(|(secret, _)| secret.clone()).collect();
        if fitting.is_empty() {
            let own = quoted(users.iter().map(|(_, own)| own.as_str()));
            return Err((
                Reason::CredentialRestricted,
                format!("the password is that of {own} alone; connect as that (PGUSER)"),
            ));
        }
        Ok(fitting)
    }
}

fn quoted<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}
