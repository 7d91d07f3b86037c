//! A login that a program makes in a container which the operator armed: the sidecar asks the provider in its place, and
//! the program hears stand-ins once the operator has confirmed whose account it is.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::arming::{Arming, Attempt};
use super::broker::{self, Grant, Reply};
use super::keeper::Keeper;
use super::record::{Account, Millis, Record};
use super::store::StoreError;
use super::token::{self, Refused};
use crate::credentials::catalogue::{Encoding, Kind, Oauth};

/// Why a login inside a container came to nothing.
#[derive(Debug, thiserror::Error)]
enum LoginError {
    #[error(
        "this program logs in as a client that the catalogue does not know for this provider, so its tokens could not be renewed"
    )]
    Client,
    #[error(
        "account `{0}` is stored already, and a login inside a container never replaces one: arm it with --as OTHER-NAME, or run: understudy login import FORMAT --account {0} < FILE"
    )]
    Stored(String),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("the provider could not be asked: {0}")]
    Send(String),
    #[error("{0}")]
    Provider(Refused),
    #[error("{0}")]
    Unusable(String),
    #[error("the operator did not confirm it")]
    NotConfirmed,
    #[error("a fault of the sidecar itself")]
    Internal,
}

/// How an account that was confirmed is kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("account `{0}` is stored by now, and is not replaced")]
    Stored(String),
    #[error("{0}")]
    Store(StoreError),
}

impl Keeper {
    pub fn arming(&self) -> &Arc<Arming> {
        &self.arming
    }

    /// Asks the provider for what a container's program asked, and waits for the operator. The reply holds stand-ins, or
    /// says why there are none; then the account's name, if there is one.
    pub async fn log_in(
        &self,
        mut attempt: Attempt,
        kinds: &[Arc<Kind>],
        grant: &Grant,
        body: &[u8],
    ) -> (Reply, Option<String>) {
        match self.made(&mut attempt, kinds, grant, body).await {
            Ok((name, record)) => {
                let account = record.account(&name);
                let hears = attempt.made(name.clone(), record);
                tracing::warn!("a container logged in to account `{name}`: see `understudy login armed`");
                match hears.await {
                    Ok(()) => (self.reply(&account), Some(name)),
                    Err(_) => (failed(&LoginError::NotConfirmed), None),
                }
            }
            Err(error) => {
                attempt.failed(error.to_string());
                (failed(&error), None)
            }
        }
    }

    /// Keeps an account that the operator confirmed: on disk, then in force. Never in the place of another.
    pub fn keep_login(&self, name: &str, record: &Record) -> Result<(), KeepError> {
        match self.store.write(name, record, None) {
            Ok(()) => {
                self.reload();
                Ok(())
            }
            Err(StoreError::Changed(_)) => Err(KeepError::Stored(name.to_owned())),
            Err(error) => Err(KeepError::Store(error)),
        }
    }

    async fn made(
        &self,
        attempt: &mut Attempt,
        kinds: &[Arc<Kind>],
        grant: &Grant,
        body: &[u8],
    ) -> Result<(String, Record), LoginError> {
        let asks = |oauth: &&Oauth| Some(oauth.client_id.as_str()) == grant.client_id.as_deref();
        let known = kinds.iter().find_map(|kind| Some((kind, kind.oauth.as_ref().filter(asks)?)));
        let (kind, oauth) = known.ok_or(LoginError::Client)?;
        let name = attempt.account().or(kind.usual_name()).ok_or(LoginError::Internal)?.to_owned();
        self.is_free(&name).await?;
        let content_type = match grant.encoding {
            Encoding::Json => "application/json",
            Encoding::Form => "application/x-www-form-urlencoded",
        };
        let body = Zeroizing::new(body.to_vec());
        let response = self.client.post(&oauth.token_endpoint, content_type, body).await;
        let response = response.map_err(|error| LoginError::Send(error.to_string()))?;
        let answer = token::answer(oauth, response.status, &response.body).map_err(LoginError::Provider)?;
        let vault = self.vault.current();
        let key = vault.key().ok_or(LoginError::Internal)?;
        let (login, said) = answer.login(kind, oauth, Millis::now()).map_err(LoginError::Unusable)?;
        let record = login.record(&name, (key, vault.catalogue()), None, false);
        let record = record.map_err(|error| LoginError::Unusable(error.to_string()))?;
        Ok((name, Record { said, renewed: Millis::now(), ..record }))
    }

    /// Before a code is used up: whether the account could be kept.
    async fn is_free(&self, name: &str) -> Result<(), LoginError> {
        let (store, name) = (self.store.clone(), name.to_owned());
        let free = self.runtime.spawn_blocking(move || match store.read(&name) {
            Err(StoreError::Missing(_)) => store.reserve(&name).map(drop).map_err(LoginError::from),
            Ok(_) | Err(StoreError::Record { .. }) => Err(LoginError::Stored(name)),
            Err(error) => Err(error.into()),
        });
        free.await.map_err(|_| LoginError::Internal)?
    }

    /// What the program hears, if no token of the account is in it.
    fn reply(&self, account: &Account) -> Reply {
        let reply = broker::tokens(account, Millis::now());
        let text = reply.body.to_string();
        let stored = self.store.read(&account.name);
        let repeats = |record: &Record| record.tokens().any(|token| text.contains(token.expose()));
        match stored {
            Ok(record) if !repeats(&record) => reply,
            _ => broker::repeated(),
        }
    }
}

fn failed(error: &LoginError) -> Reply {
    match error {
        LoginError::Provider(Refused::Ended(code)) => broker::said(400, code),
        LoginError::Provider(Refused::Code { status, code }) => broker::said(*status, code),
        LoginError::Client | LoginError::Stored(_) | LoginError::NotConfirmed => {
            broker::refused(&error.to_string())
        }
        _ => broker::login_failed(&error.to_string()),
    }
}
