//! Private keys with which programs sign JSON Web Tokens that say who they are (assertions, RFC 7523): those of service accounts
//! of Google and of GitHub Apps. A container signs with a stand-in key; what holds is signed again with the real one
//! ([`check`] in a header, [`exchange`] at a token endpoint), and the token that comes for it is a stand-in, too. `key` is
//! the key with its stand-in, `binding` what it may be used for, `claims`, `google` and `github` what a token may say, `jws` how one is read.

mod binding;
mod claims;
mod der;
mod endpoint;
mod github;
mod google;
mod header;
pub mod jws;
mod key;
mod signed;
mod stand_in_key;
pub mod unique;

pub use self::binding::Binding;
pub(super) use self::binding::{Ids, Written};
pub use self::endpoint::{Exchanged, exchange, is_asked};
pub(crate) use self::endpoint::{GRANT, is_at};
pub(super) use self::header::{Authorized, check};
pub use self::key::{AssertionKey, KeyError};

use understudy_control::{PlacedFile, Write};
use understudy_policies::HostName;

use super::vault::{Secret, Vault};

/// How an API tells its errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Google,
    /// At a token endpoint (RFC 6749 section 5.2).
    Token,
    GitHub,
}

/// Of the keys that are for a host. None: there is none.
pub(crate) fn api(vault: &Vault, host: &HostName) -> Option<Api> {
    if is_at(vault, host) {
        return Some(Api::Token);
    }
    vault.bound_to(host).find_map(|declaration| match declaration.assertion.as_ref()? {
        Binding::Google { .. } => Some(Api::Google),
        Binding::GitHub { .. } => Some(Api::GitHub),
    })
}

/// Where a container finds the file; nothing of its own is there.
fn path(key: &AssertionKey) -> &'static str {
    match key.issuer() {
        key::Issuer::Google { .. } => "/run/understudy/google-credentials.json",
        key::Issuer::GitHub { .. } => "/run/understudy/github-app.pem",
    }
}

/// The variables by which programs find the stand-in.
pub(super) fn environment(key: &AssertionKey) -> Vec<(&'static str, String)> {
    match key.issuer() {
        key::Issuer::Google { .. } => vec![("GOOGLE_APPLICATION_CREDENTIALS", path(key).to_owned())],
        key::Issuer::GitHub { ids } => vec![
            ("GITHUB_APP_ID", ids.first().cloned().unwrap_or_default()),
            ("GITHUB_APP_PRIVATE_KEY", key.file().to_owned()),
            ("GITHUB_APP_PRIVATE_KEY_PATH", path(key).to_owned()),
        ],
    }
}

pub(super) fn file(secret: &Secret) -> Option<PlacedFile> {
    let key = secret.assertion_key()?;
    let (path, content) = (path(key).to_owned(), key.file().to_owned());
    Some(PlacedFile { path, mode: 0o444, write: Write::Replace, content })
}

#[cfg(test)]
mod tests;
