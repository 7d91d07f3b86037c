//! Logins inside of containers: who may, and what the operator says to one that was made.

use std::time::{Duration, Instant, SystemTime};

use understudy_control::{ArmLogin, ArmedStatus, ContainerId, LoginKept, Refusal};

use super::{Known, Registry, find, shared};
use crate::accounts::arming::{ArmingError, Shown};
use crate::accounts::record::OwnAccount;
use crate::accounts::store;

/// A day: longer is no login that somebody is about to make.
const LONGEST: u64 = 86_400;

impl Registry {
    pub fn arm_login(&self, wanted: &ArmLogin) -> Result<ArmedStatus, Refusal> {
        if wanted.seconds > LONGEST {
            let remedy = "name a shorter time, as --for 10m";
            return Err(Refusal::new("a container can be armed for a day at the most", remedy));
        }
        if let Some(name) = &wanted.account {
            store::valid(name)
                .map_err(|error| Refusal::new(error.to_string(), "name another one with --as"))?;
        }
        let id = self.attached(&wanted.container)?;
        let known = self.known();
        self.parts.own_logins.forget_unused(SystemTime::now(), |id| known.contains_key(id));
        // Of those that are one, any can be the first for the next sidecar.
        for member in shared::members(&known, &id) {
            self.parts.own_logins.add(&member, []).map_err(|error| {
                let reason = format!("that it was armed could not be recorded, so it is not: {error}");
                Refusal::new(reason, "make the state volume writable, then try again")
            })?;
        }
        drop(known);
        self.parts.history.changed().map_err(|error| {
            let reason = format!("that it was armed could not be recorded, so it is not: {error}");
            Refusal::new(reason, "make the state volume and the control directory writable, then try again")
        })?;
        let until = Instant::now() + Duration::from_secs(wanted.seconds);
        self.parts.arming.arm(&id, wanted.account.clone(), until).map_err(refused)?;
        let armed = self.armed_logins().into_iter().find(|armed| armed.container_id == id);
        armed.ok_or_else(|| refused(ArmingError::NotArmed))
    }

    pub fn armed_logins(&self) -> Vec<ArmedStatus> {
        let known = self.known();
        let status = |(id, shown): (ContainerId, Shown)| {
            let attached = shared::attached_as(&known, &id);
            let label = attached.map_or(id.short(), |attached| attached.container.label()).to_owned();
            let made = shown.made;
            let (account, left, failed) = (shown.account, shown.left.as_secs(), shown.failed);
            ArmedStatus { container: label, container_id: id, account, left, made, failed }
        };
        let mut armed: Vec<_> = self.parts.arming.list().into_iter().map(status).collect();
        armed.sort_by(|a, b| (&a.container, &a.container_id).cmp(&(&b.container, &b.container_id)));
        armed
    }

    /// Stores the login that was made, if it is the one of that code, lets the container have it where its secret says so,
    /// and tells the program.
    pub fn keep_login(&self, wanted: &str, code: &str) -> Result<LoginKept, Refusal> {
        let id = self.attached(wanted)?;
        let asked = shared::attached_as(&self.known(), &id).map(|attached| attached.asked.clone());
        let asked = asked.ok_or_else(|| refused(ArmingError::NotArmed))?;
        let made = self.parts.arming.take(&id, code).map_err(refused)?;
        if made.record.is_none() && !made.is_waited_for() {
            let remedy = "start its program again";
            return Err(Refusal::new(
                "its program does not wait for the key any more, so none is made",
                remedy,
            ));
        }
        let secrets = match (self.parts.keep_login)(&asked, &made) {
            Ok(secrets) => secrets,
            Err(error) => {
                let told = error.to_string();
                self.parts.arming.put_back(&id, made, told.clone());
                let remedy = "mend that and confirm it again, or: understudy login decline CONTAINER";
                return Err(Refusal::new(told, remedy));
            }
        };
        let may: Vec<String> = secrets.iter().filter(|(_, may)| *may).map(|(name, _)| name.clone()).collect();
        let granted = self.grant(&id, &made.own(), may);
        let login = made.shown.clone();
        let secrets = secrets.into_iter().map(|(name, _)| name).collect();
        if made.followed {
            // Before its program hears of this one.
            self.parts.arming.follow(&id, &login.account);
        }
        // What it is answered is worth something by now.
        let told = made.tell();
        Ok(LoginKept { login, secrets, granted, told })
    }

    pub fn forget_login(&self, wanted: &str) -> Result<(), Refusal> {
        let id = find(&self.known(), wanted).map(|(id, entry)| shared::identity(id, entry).clone())?;
        self.parts.arming.disarm(&id);
        Ok(())
    }

    /// More than it was started with, as the operator confirmed it.
    fn grant(&self, id: &ContainerId, account: &OwnAccount, names: Vec<String>) -> Vec<String> {
        let mut known = self.known();
        let mut changed = Vec::new();
        for (of, entry) in known.iter_mut() {
            let Known::Attached(attached) = entry else { continue };
            if attached.container.id != *id {
                continue;
            }
            if let Err(error) = self.parts.own_logins.add(of, [account]) {
                tracing::warn!(container = %of.short(), "a login made inside is this run's alone: it cannot be recorded: {error}");
            }
            for asked in [Some(&mut *attached.asked), attached.own.as_deref_mut()].into_iter().flatten() {
                asked.own.insert(account.clone());
            }
            changed.push(&*attached);
        }
        let (Some(rights), Some(one)) = (self.rights_of_all(&changed), changed.first()) else {
            return Vec::new();
        };
        one.container.set_rights(rights);
        let rights = one.container.rights();
        names.into_iter().filter(|name| rights.grants.contains(name)).collect()
    }

    fn attached(&self, wanted: &str) -> Result<ContainerId, Refusal> {
        let known = self.known();
        let (id, entry) = find(&known, wanted)?;
        match entry {
            Known::Attached(_) if !self.parts.revocations.contains(id) => {
                Ok(shared::identity(id, entry).clone())
            }
            Known::Attached(_) => Err(Refusal::new("this container was revoked", "create a new one")),
            Known::Prepared { .. } => Err(Refusal::new("this container does not run yet", "start it first")),
        }
    }
}

fn refused(error: ArmingError) -> Refusal {
    let remedy = match error {
        ArmingError::NotArmed => "arm it with: understudy login arm CONTAINER, then log in inside",
        ArmingError::UnderWay => "see it with: understudy login armed; then confirm or decline it",
        ArmingError::NotMade => "log in inside of the container first; see: understudy login armed",
        ArmingError::Another => {
            "look at it with: understudy login armed; then confirm it by its code, or decline it"
        }
        ArmingError::Spent => "arm it once more with: understudy login arm CONTAINER",
    };
    Refusal::new(error.to_string(), remedy)
}
