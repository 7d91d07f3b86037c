//! A login that a program makes in a container which the operator armed: the sidecar asks the provider in its place, and
//! the program hears stand-ins once the operator has confirmed whose account it is.

use std::sync::Arc;

use understudy_control::LoginMade;
use understudy_policies::HostName;
use zeroize::Zeroizing;

use super::arming::{Arming, Attempt, Made};
use super::broker::{self, Grant, Reply};
use super::client::Call;
use super::import::{self, Login};
use super::keeper::Keeper;
use super::key::{self, KeyError};
use super::record::{Account, Millis, OwnAccount, Record, Token, Tokens, new_uid};
use super::store::StoreError;
use super::token::{self, Refused};
use crate::credentials::Vault;
use crate::credentials::catalogue::{Encoding, KeyLogin, Kind, Oauth, TokenEndpoint};

/// The request of a program that logs in.
#[derive(Clone, Copy)]
pub struct LoginRequest<'r> {
    pub host: &'r HostName,
    pub path: &'r str,
    pub grant: &'r Grant,
    pub body: &'r [u8],
    /// What it says in `Authorization: Bearer`.
    pub bearer: Option<&'r str>,
}

/// What the operator is to look at.
enum New {
    /// What the provider gave.
    Given {
        account: String,
        record: Box<Record>,
        /// Where its program reads the key, if it is one.
        field: Option<String>,
        /// Whether the provider gives its programs something more after this login.
        followed: bool,
    },
    /// A key of the account that was just confirmed: the provider is not asked before the operator said yes.
    ToBeMade { account: String, kind: String, whose: Option<String>, of: Token },
}

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
    #[error("its path is not written plainly")]
    Path,
    #[error(
        "a key is made only by the login that was just confirmed, within two minutes, and with its own token: arm the container and log in once more, under another name"
    )]
    NotAfter,
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
    pub async fn log_in(&self, mut attempt: Attempt, asked: LoginRequest<'_>) -> (Reply, Option<String>) {
        let new = match self.made(&mut attempt, asked).await {
            Ok(new) => new,
            Err(error) => {
                attempt.failed(error.to_string(), error.is_unusable());
                return (failed(&error), None);
            }
        };
        let answered = self.answered(attempt, new, asked).await;
        match answered {
            Ok((reply, name)) => (reply, Some(name)),
            Err(error) => (failed(&error), None),
        }
    }

    async fn answered(
        &self,
        attempt: Attempt,
        new: New,
        asked: LoginRequest<'_>,
    ) -> Result<(Reply, String), LoginError> {
        match new {
            New::Given { account: name, record, field, followed } => {
                let (shown, uid) = shown(&name, &record.kind, import::whose(&record.facts), false)?;
                let record = record.of_uid(uid.clone());
                let account = record.account(&name);
                confirmed(attempt, (shown, uid), Some(record), followed).await?;
                Ok((self.reply(&account, field.as_deref()), name))
            }
            New::ToBeMade { account, kind, whose, of } => {
                let (shown, uid) = shown(&account, &kind, whose, true)?;
                confirmed(attempt, (shown, uid.clone()), None, false).await?;
                self.make_key(OwnAccount { name: account, uid }, asked, &of).await
            }
        }
    }

    /// Keeps what the operator confirmed: on disk, then in force. A key that is to be made is kept once it is.
    pub fn keep_login(&self, made: &Made) -> Result<(), KeepError> {
        match &made.record {
            Some(record) => self.keep_new(&made.shown.account, record),
            None => Ok(()),
        }
    }

    /// Never in the place of another.
    fn keep_new(&self, name: &str, record: &Record) -> Result<(), KeepError> {
        match self.store.write(name, record, None) {
            Ok(()) => {
                self.reload();
                Ok(())
            }
            Err(StoreError::Changed(_)) => Err(KeepError::Stored(name.to_owned())),
            Err(error) => Err(KeepError::Store(error)),
        }
    }

    async fn made(&self, attempt: &mut Attempt, asked: LoginRequest<'_>) -> Result<New, LoginError> {
        let vault = self.vault.current();
        let client = asked.grant.client_id.as_deref();
        let mut keys = vault.catalogue().key_logins(asked.host, asked.path);
        if let Some((kind, login)) = keys.find(|(_, login)| login.is_of(client)) {
            return self.made_key(attempt, asked, (&vault, kind, login)).await;
        }
        let mut kinds = vault.catalogue().token_endpoints(asked.host, asked.path);
        let known = kinds.find(|(_, oauth)| Some(oauth.client_id.as_str()) == client);
        let (kind, oauth) = known.ok_or(LoginError::Client)?;
        self.made_account(attempt, asked, (&vault, kind, oauth)).await
    }

    async fn made_account(
        &self,
        attempt: &mut Attempt,
        asked: LoginRequest<'_>,
        (vault, kind, oauth): (&Vault, &Kind, &Oauth),
    ) -> Result<New, LoginError> {
        let name = attempt.account().or(kind.usual_name()).ok_or(LoginError::Internal)?.to_owned();
        self.is_free(&name).await?;
        let response = self.client.send(asked.call(&oauth.token_endpoint)).await;
        let response = response.map_err(|error| LoginError::Send(error.to_string()))?;
        let answer = token::answer(oauth, response.status, &response.body).map_err(LoginError::Provider)?;
        let key = vault.key().ok_or(LoginError::Internal)?;
        let (login, said) = answer.login(kind, oauth, Millis::now()).map_err(LoginError::Unusable)?;
        let record = login.record(&name, (key, vault.catalogue()), None, false);
        let record = record.map_err(|error| LoginError::Unusable(error.to_string()))?;
        let client_secret = asked.grant.client_secret.clone();
        let record = Box::new(Record { said, renewed: Millis::now(), client_secret, ..record });
        let mut keys = vault.catalogue().all_key_logins();
        let followed = keys.any(|(_, login)| login.follows.as_ref() == Some(&kind.name));
        Ok(New::Given { account: name, record, field: None, followed })
    }

    async fn made_key(
        &self,
        attempt: &mut Attempt,
        asked: LoginRequest<'_>,
        (vault, kind, login): (&Vault, &Kind, &KeyLogin),
    ) -> Result<New, LoginError> {
        let account = attempt.account().unwrap_or(&login.name).to_owned();
        self.is_free(&account).await?;
        if login.follows.is_some() {
            let before = self.just_confirmed(attempt, asked.bearer).await?;
            let whose = import::whose(&before.facts);
            return Ok(New::ToBeMade { account, kind: kind.name.clone(), whose, of: before.access });
        }
        let record = Box::new(self.ask_for_key(&account, asked, (vault, kind, login), None).await?);
        Ok(New::Given { account, record, field: Some(login.field.clone()), followed: false })
    }

    /// Once, after the operator said yes.
    async fn make_key(
        &self,
        OwnAccount { name: account, uid }: OwnAccount,
        asked: LoginRequest<'_>,
        of: &Token,
    ) -> Result<(Reply, String), LoginError> {
        let vault = self.vault.current();
        let mut keys = vault.catalogue().key_logins(asked.host, asked.path);
        let (kind, login) = keys.find(|(_, login)| login.follows.is_some()).ok_or(LoginError::Client)?;
        let made = async {
            let record = self.ask_for_key(&account, asked, (&vault, kind, login), Some(of)).await?;
            let record = record.of_uid(uid);
            let (store, name, kept) = (self.store.clone(), account.clone(), record.clone());
            let written = self.runtime.spawn_blocking(move || store.write(&name, &kept, None)).await;
            match written.map_err(|_| LoginError::Internal)? {
                Err(StoreError::Changed(name)) => return Err(LoginError::Stored(name)),
                written => written?,
            }
            self.reload_aside().await;
            Ok(record)
        };
        match made.await {
            Ok(record) => Ok((self.reply(&record.account(&account), Some(&login.field)), account)),
            Err(error) => {
                tracing::error!("account `{account}`: its key, which was confirmed, is not kept: {error}");
                Err(error)
            }
        }
    }

    /// The key that the provider makes, for the account `of` if one is given.
    async fn ask_for_key(
        &self,
        name: &str,
        asked: LoginRequest<'_>,
        (vault, kind, login): (&Vault, &Kind, &KeyLogin),
        of: Option<&Token>,
    ) -> Result<Record, LoginError> {
        let endpoint = login.endpoint.at(asked.path).ok_or(LoginError::Path)?;
        let call = asked.call(&endpoint);
        let call = match of {
            Some(token) => call.with_bearer(token),
            None => call,
        };
        let response = self.client.send(call).await;
        let response = response.map_err(|error| LoginError::Send(error.to_string()))?;
        let answer = key::answer(login, response.status, &response.body).map_err(|error| match error {
            KeyError::Refused(refused) => LoginError::Provider(refused),
            error => LoginError::Unusable(error.to_string()),
        })?;
        let facts = match &login.whose {
            Some(whose) => {
                // Who it is, is told to the operator; that nobody says so, too.
                let told = self.client.send(Call::get(whose).with_bearer(&answer.key)).await.ok();
                let told = told.filter(|told| told.status == 200);
                let told = told.and_then(|told| serde_json::from_slice(&told.body).ok()).unwrap_or_default();
                import::facts(&login.facts, &told, None)
            }
            None => serde_json::Map::new(),
        };
        let key = vault.key().ok_or(LoginError::Internal)?;
        let identity = kind.identity().and_then(|name| facts.get(name)?.as_str()).map(str::to_owned);
        let tokens = Tokens { access: answer.key, refresh: None, id: None };
        let made =
            Login { kind, tokens, expires: None, scopes: Vec::new(), facts, identity, client_id: None };
        let record = made.record(name, (key, vault.catalogue()), None, false);
        let record = record.map_err(|error| LoginError::Unusable(error.to_string()))?;
        Ok(Record { said: answer.said, renewed: Millis::now(), ..record })
    }

    /// The account that the operator confirmed just now, if `bearer` is its stand-in.
    async fn just_confirmed(&self, attempt: &Attempt, bearer: Option<&str>) -> Result<Record, LoginError> {
        let name = attempt.after().ok_or(LoginError::NotAfter)?.to_owned();
        let store = self.store.clone();
        let read = self.runtime.spawn_blocking(move || store.read(&name)).await;
        let record = read.map_err(|_| LoginError::Internal)??;
        match bearer == Some(record.stand_ins.access.as_str()) {
            true => Ok(record),
            false => Err(LoginError::NotAfter),
        }
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
    fn reply(&self, account: &Account, field: Option<&str>) -> Reply {
        let reply = match field {
            None => broker::tokens(account, Millis::now()),
            Some(field) => broker::key(account, field),
        };
        let text = reply.body.to_string();
        let stored = self.store.read(&account.name);
        let repeats = |record: &Record| record.tokens().any(|token| text.contains(token.expose()));
        match stored {
            Ok(record) if !repeats(&record) => reply,
            _ => broker::repeated(),
        }
    }
}

impl LoginRequest<'_> {
    /// The same, to the provider.
    fn call<'e>(&self, endpoint: &'e TokenEndpoint) -> Call<'e> {
        let content_type = match self.grant.encoding {
            Encoding::Json => "application/json",
            Encoding::Form => "application/x-www-form-urlencoded",
        };
        Call::post(endpoint, content_type, Zeroizing::new(self.body.to_vec()))
    }
}

/// Waits for the operator.
async fn confirmed(
    attempt: Attempt,
    (shown, uid): (LoginMade, String),
    record: Option<Record>,
    followed: bool,
) -> Result<(), LoginError> {
    let name = shown.account.clone();
    let hears = attempt.made((shown, uid), record, followed);
    tracing::warn!("a container logged in to account `{name}`: see `understudy login armed`");
    hears.await.map_err(|_| LoginError::NotConfirmed)
}

/// With the uid that its account gets, whose beginning is the code.
fn shown(
    account: &str,
    kind: &str,
    whose: Option<String>,
    to_be_made: bool,
) -> Result<(LoginMade, String), LoginError> {
    let uid = new_uid().map_err(|_| LoginError::Internal)?;
    let code = uid.chars().take(8).collect();
    Ok((LoginMade { account: account.to_owned(), kind: kind.to_owned(), whose, code, to_be_made }, uid))
}

impl LoginError {
    /// Whether the provider may have made something that nobody has now.
    fn is_unusable(&self) -> bool {
        let of_answer = |refused: &Refused| match refused {
            Refused::NotJson | Refused::NoToken(_) | Refused::TooLarge => true,
            Refused::Ended(_) | Refused::Code { .. } | Refused::Status(_) | Refused::Redirect(_) => false,
        };
        matches!(self, Self::Unusable(_)) || matches!(self, Self::Provider(refused) if of_answer(refused))
    }
}

fn failed(error: &LoginError) -> Reply {
    match error {
        LoginError::Provider(Refused::Ended(code)) => broker::said(400, code),
        LoginError::Provider(Refused::Code { status, code }) => broker::said(*status, code),
        LoginError::Client
        | LoginError::Stored(_)
        | LoginError::Path
        | LoginError::NotAfter
        | LoginError::NotConfirmed => broker::refused(&error.to_string()),
        _ => broker::login_failed(&error.to_string()),
    }
}
