//! Keeps accounts fresh: before their tokens expire, and when an upstream did not take one.
//!
//! One renewal of an account is under way at a time, whoever asks for it; who comes meanwhile waits for the same answer.
//! It runs on a task of its own, so that a container that goes away does not take a rotated token with it. New tokens are
//! on disk before the vault has them, and the vault has them before anybody is answered.

mod schedule;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::arming::Arming;
use super::client::{Call, Client, Response, SendError};
use super::record::{Account, Millis, Record, Token};
use super::store::{Store, StoreError};
use super::token;
use crate::credentials::catalogue::Oauth;
use crate::credentials::{Secret, Source, Vault};
use crate::current::Current;

/// How often it is looked whether something is due, or was imported.
const TICK: Duration = Duration::from_millis(500);

pub struct Keeper {
    pub(super) store: Store,
    pub(super) vault: Current<Vault>,
    /// Makes the vault read accounts again.
    reload: Arc<dyn Fn() + Send + Sync>,
    pub(super) client: Client,
    /// That of the sidecar's own thread.
    pub(super) runtime: Handle,
    pub(super) arming: Arc<Arming>,
    flights: Mutex<HashMap<String, Arc<Flight>>>,
}

/// Renewals of one account, one at a time.
#[derive(Debug, Default)]
struct Flight(tokio::sync::Mutex<Past>);

/// What came of the last ones.
#[derive(Debug, Default)]
struct Past {
    failures: u32,
    /// Not before, and why.
    wait: Option<(Instant, RenewError)>,
    /// Renewals on end for which an upstream's 401 was the reason.
    refusals: u32,
    /// An answer that could not be written: it is the only copy of a login.
    unwritten: Option<Record>,
    /// The provider may have renewed it already, and the answer did not arrive.
    lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// They expire, or have.
    Old,
    /// An upstream answered 401.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// Only another login helps.
    #[error("the provider ended the login of account `{account}` ({code})")]
    Ended { account: String, code: String },
    /// Another try may help, later.
    #[error("account `{account}` cannot be renewed now: {why}")]
    Later { account: String, why: String },
}

impl Keeper {
    /// `reload` makes `vault` read the accounts of `store` again, and returns when it has.
    pub fn new(
        store: Store,
        vault: Current<Vault>,
        client: Client,
        runtime: Handle,
        reload: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (reload, arming) = (Arc::new(reload), Arc::default());
        Arc::new(Self { store, vault, reload, client, runtime, arming, flights: Mutex::default() })
    }

    /// Renews ahead of expiry, and takes over what is imported. Never returns.
    pub async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.next()).await;
            self.take_over().await;
            // Side by side: a provider that does not answer keeps only its own accounts waiting. Failures are told where
            // they happen.
            let mut under_way = JoinSet::new();
            for account in self.due(Millis::now()) {
                let this = Arc::clone(&self);
                under_way.spawn(async move { this.renew(&account.name, account.generation).await });
            }
            while under_way.join_next().await.is_some() {}
        }
    }

    /// New tokens for an account whose tokens of that generation are no good, or soon will not be. Nothing is asked if
    /// there are newer ones by now.
    pub async fn renew(self: &Arc<Self>, account: &str, generation: u64) -> Result<(), RenewError> {
        self.renew_because(account, generation, Why::Old).await
    }

    /// The same where an upstream did not take them. New ones are left alone: a container may have that answer at will.
    pub async fn renew_refused(self: &Arc<Self>, account: &str, generation: u64) -> Result<(), RenewError> {
        self.renew_because(account, generation, Why::Refused).await
    }

    async fn renew_because(
        self: &Arc<Self>,
        account: &str,
        generation: u64,
        why: Why,
    ) -> Result<(), RenewError> {
        let (this, name) = (Arc::clone(self), account.to_owned());
        let alone = self.runtime.spawn(async move { this.renew_alone(&name, generation, why).await });
        alone.await.unwrap_or_else(|_| Err(later(account, "a fault of the sidecar itself")))
    }

    async fn renew_alone(&self, account: &str, generation: u64, why: Why) -> Result<(), RenewError> {
        let flight = self.flight(account);
        let mut past = flight.0.lock().await;
        if let Some(record) = past.unwritten.take() {
            self.keep(account, record, &mut past).await?;
        }
        let record = self.blocking(account, move |store, name| store.read(name)).await?;
        if record.generation != generation {
            if self.in_force(account) != Some(record.generation) {
                self.reload_aside().await;
            }
            return match record.ended {
                Some(code) => Err(RenewError::Ended { account: account.to_owned(), code }),
                None => Ok(()),
            };
        }
        if let Some(code) = record.ended {
            return Err(RenewError::Ended { account: account.to_owned(), code });
        }
        let Some(refresh) = record.refresh.clone() else {
            return Err(later(account, "it is a key, and keys are not renewed"));
        };
        if let Some((until, error)) = &past.wait
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let (renewed, expires, now) = (record.renewed, record.expires, Millis::now());
        if why == Why::Refused && schedule::is_new(renewed, expires, past.refusals, now) {
            return Err(later(account, "its tokens are new, so they are not what the upstream refuses"));
        }
        let outcome = self.ask(account, (record, refresh), &mut past).await;
        if outcome.is_ok() {
            past.refusals = match why {
                Why::Old => 0,
                Why::Refused => schedule::refusals(past.refusals, renewed, expires, now),
            };
        }
        match &outcome {
            Err(error @ RenewError::Later { .. }) => {
                past.failures = past.failures.saturating_add(1);
                past.wait = Some((Instant::now() + schedule::pause(past.failures), error.clone()));
                tracing::warn!("{error}");
            }
            _ => (past.failures, past.wait) = (0, None),
        }
        outcome
    }

    /// One request to the provider.
    async fn ask(
        &self,
        account: &str,
        (record, refresh): (Record, Token),
        past: &mut Past,
    ) -> Result<(), RenewError> {
        let vault = self.vault.current();
        let Some(oauth) = oauth_of(&vault, account) else {
            return Err(later(account, "no secret is declared for it"));
        };
        // A rotated token that cannot be written would be lost.
        self.blocking(account, move |store, name| store.reserve(name)).await?;
        let mut sent = self.send(oauth, &record, &refresh).await;
        if let Err(error) = &sent
            && error.was_sent
        {
            // Some providers take the token that they count as used once more, for a moment.
            tracing::warn!("{error}: the answer is lost, and the request is sent once more");
            past.lost = true;
            sent = self.send(oauth, &record, &refresh).await;
        }
        let response = sent.map_err(|error| later(account, &error.to_string()))?;
        let mut answered = token::answer(oauth, response.status, &response.body);
        if matches!(&answered, Err(token::Refused::Ended(code)) if code == "invalid_grant")
            && let Some(before) = self.refresh_before(account, &record).await?
        {
            // There is nothing left to lose: a provider that lost its own last step may know the token before.
            let again = self.send(oauth, &record, &before).await;
            let again = again.ok().and_then(|again| token::answer(oauth, again.status, &again.body).ok());
            if let Some(again) = again {
                tracing::warn!(
                    "account `{account}`: the provider does not know the refresh token that it gave last, and took the one before"
                );
                answered = Ok(again);
            }
        }
        match answered {
            Ok(answer) => {
                let renewed = record.renewed(oauth, answer, Millis::now());
                if let Some(field) = &renewed.undeclared {
                    tracing::error!(
                        "account `{account}`: the provider's answer has a field `{field}` that looks like a token and is not known: containers that ask for new tokens are refused"
                    );
                }
                self.keep(account, renewed, past).await?;
                past.lost = false;
                tracing::info!("account `{account}` was renewed");
                Ok(())
            }
            Err(token::Refused::Ended(code)) => {
                self.keep(account, record.ended(&code), past).await?;
                let why = if past.lost { ", after an answer of it was lost on the way" } else { "" };
                past.lost = false;
                tracing::error!(
                    "account `{account}`: the provider ended its login ({code}{why}); log in again, then: understudy login import FORMAT --account {account} < FILE"
                );
                Err(RenewError::Ended { account: account.to_owned(), code })
            }
            Err(refused) => Err(later(account, &refused.to_string())),
        }
    }

    /// The refresh token that was good for this one, which a renewal brought.
    async fn refresh_before(&self, account: &str, record: &Record) -> Result<Option<Token>, RenewError> {
        let before = self.blocking(account, |store, name| Ok(store.previous(name))).await?;
        let renewed = |before: &Record| record.renewed.0 > 0 && before.generation + 1 == record.generation;
        let before = before.filter(|before| renewed(before) && before.ended.is_none());
        Ok(before.and_then(|before| before.refresh).filter(|token| record.refresh.as_ref() != Some(token)))
    }

    async fn send(&self, oauth: &Oauth, record: &Record, refresh: &Token) -> Result<Response, SendError> {
        let (content_type, body) = token::request(oauth, record, refresh);
        self.client.send(Call::post(&oauth.token_endpoint, content_type, body)).await
    }

    /// Writes a record, then lets the vault have it. What cannot be written is tried again with the next renewal, and
    /// until then nobody hears of it.
    async fn keep(&self, account: &str, record: Record, past: &mut Past) -> Result<(), RenewError> {
        let before = record.generation.checked_sub(1);
        let copy = record.clone();
        match self.blocking(account, move |store, name| Ok(store.write(name, &copy, before))).await? {
            // Another login was imported meanwhile: that one counts.
            Ok(()) | Err(StoreError::Changed(_)) => {
                self.reload_aside().await;
                Ok(())
            }
            Err(error) => {
                past.unwritten = Some(record);
                Err(later(account, &error.to_string()))
            }
        }
    }

    /// Reads what other processes wrote.
    async fn take_over(&self) {
        let vault = self.vault.current();
        let declared = vault.declarations().filter_map(|declaration| match &declaration.source {
            Source::Account(name) => Some(name.clone()),
            _ => None,
        });
        for name in declared {
            let known = self.in_force(&name);
            let stored = self.blocking(&name, move |store, name| store.read(name)).await.ok();
            if stored.is_some_and(|record| Some(record.generation) != known) {
                self.reload_aside().await;
                // Unless it cannot be used: then its problem was told.
                if self.in_force(&name) != known {
                    tracing::info!("account `{name}` was taken over");
                }
            }
        }
    }

    /// How long nothing is due.
    fn next(&self) -> Duration {
        let (vault, now) = (self.vault.current(), Millis::now());
        let due = vault.accounts().filter_map(|(_, account)| schedule::due_in(account, now)).min();
        // One whose renewal fails is due all the time.
        due.filter(|due| !due.is_zero()).map_or(TICK, |due| due.min(TICK))
    }

    fn due(&self, now: Millis) -> Vec<Arc<Account>> {
        let vault = self.vault.current();
        let due = vault.accounts().map(|(_, account)| account);
        due.filter(|account| schedule::is_due(account, now)).cloned().collect()
    }

    fn in_force(&self, account: &str) -> Option<u64> {
        let vault = self.vault.current();
        vault.accounts().find(|(_, known)| known.name == account).map(|(_, known)| known.generation)
    }

    /// No file but those of accounts is read for it; what answers are searched for is built anew, which takes its time.
    pub(super) fn reload(&self) {
        (self.reload)();
    }

    /// The same, from a thread that others wait for.
    pub(super) async fn reload_aside(&self) {
        let reload = Arc::clone(&self.reload);
        if self.runtime.spawn_blocking(move || reload()).await.is_err() {
            tracing::error!("accounts cannot be taken over: a fault of the sidecar itself");
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        account: &str,
        work: impl FnOnce(&Store, &str) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, RenewError> {
        let (store, name) = (self.store.clone(), account.to_owned());
        let done = self.runtime.spawn_blocking(move || work(&store, &name)).await;
        let done = done.map_err(|_| later(account, "a fault of the sidecar itself"))?;
        done.map_err(|error| later(account, &error.to_string()))
    }

    fn flight(&self, account: &str) -> Arc<Flight> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(flights.entry(account.to_owned()).or_default())
    }
}

fn later(account: &str, why: &str) -> RenewError {
    RenewError::Later { account: account.to_owned(), why: why.to_owned() }
}

fn oauth_of<'v>(vault: &'v Vault, account: &str) -> Option<&'v Oauth> {
    let (secret, _) = vault.accounts().find(|(_, known)| known.name == account)?;
    kind_of(secret)
}

fn kind_of(secret: &Secret) -> Option<&Oauth> {
    secret.declaration().like.as_ref()?.oauth.as_ref()
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper(..)")
    }
}
