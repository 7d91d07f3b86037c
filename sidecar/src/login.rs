//! `understudy login`: logins of programs become accounts of the sidecar's store.

mod inside;
mod write_back;

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use zeroize::Zeroizing;

use self::write_back::Original;
use crate::accounts::import::{self, Format, ImportError};
use crate::accounts::record::new_uid;
use crate::accounts::seal::{CREDENTIAL, KeyError};
use crate::accounts::store::StoreError;
use crate::accounts::{Millis, Record, Store};
use crate::config::StoreKeyFile;
use crate::credentials::{Catalogue, InstallationKey, Surroundings};
use crate::output::Output;
use crate::places;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Take over a login file, read from standard input; the file itself is not changed, unless --write-back says so
    ///
    ///   podman exec -i understudy /understudy login import codex < ~/.codex/auth.json
    ///
    /// A running sidecar has it within a second. Log in once for the sidecar alone: where a provider takes each refresh
    /// token once, the program that you logged in with is logged out as soon as the sidecar renews the account.
    #[command(verbatim_doc_comment)]
    Import(Import),
    /// Encrypt all stored accounts with the key that is given, or write them in the clear again
    Reseal(Reseal),
    /// Let a program in a container log in, once, and keep that login in the sidecar; the program gets stand-ins
    ///
    /// On a terminal (podman exec -it) it waits for the login, shows whose account it is, and asks. Elsewhere, or with
    /// --no-wait, `login confirm` answers.
    Arm(inside::Arm),
    /// List the containers that may log in, and whose login waits for you
    Armed(inside::Armed),
    /// Keep the login that was made in a container
    Confirm(inside::Confirm),
    /// Forget the login that was made in a container, and let it make none
    Decline(inside::Answer),
}

#[derive(Debug, clap::Args)]
pub struct Import {
    /// Whose file it is: `codex`, `claude-code`, `gemini`, `gh`, `vibe`, …
    format: String,
    /// What you call the account [default: the format]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Also if an account of somebody else is stored under that name, or nobody says whose
    #[arg(long)]
    replace: bool,
    /// Read FILE instead of standard input, and once the account is stored, put its stand-ins in the place of the file's
    /// tokens; the file as it was stays as FILE.previous
    #[arg(long, value_name = "FILE")]
    write_back: Option<PathBuf>,
    /// Configuration: catalogue/ [default: ~/.config/understudy if it is there, else /etc/understudy]
    #[arg(long, value_name = "DIR", default_value_os_t = places::configuration(), hide_default_value = true)]
    config: PathBuf,
    #[command(flatten)]
    kept: Kept,
    #[command(flatten)]
    output: Output,
}

/// An account that was taken over.
#[derive(Debug, Serialize)]
struct Stored {
    account: String,
    kind: String,
    whose: Option<String>,
    expires: Option<Millis>,
    /// Where the login file is as it was, if it was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<PathBuf>,
    /// What is left to do, for a person.
    left: String,
}

/// Where accounts are stored.
#[derive(Debug, clap::Args)]
struct Kept {
    /// State, where accounts are stored
    #[arg(long, value_name = "DIR", default_value = "/var/lib/understudy")]
    state: PathBuf,
    #[command(flatten)]
    store_key: StoreKeyFile,
}

#[derive(Debug, clap::Args)]
pub struct Reseal {
    #[command(flatten)]
    kept: Kept,
    /// Not encrypted; the key is given to read them
    #[arg(long)]
    plain: bool,
}

/// What is left to do, for a person.
pub fn run(command: &Command) -> Result<String> {
    match command {
        Command::Import(arguments) => import_file(arguments),
        Command::Reseal(arguments) => reseal(arguments),
        Command::Arm(arguments) => inside::arm(arguments),
        Command::Armed(arguments) => inside::armed(arguments),
        Command::Confirm(arguments) => inside::confirm(arguments),
        Command::Decline(arguments) => inside::decline(arguments),
    }
}

fn import_file(arguments: &Import) -> Result<String> {
    let now = Millis::now();
    let stored = match &arguments.write_back {
        Some(path) => {
            let original = Original::read(path)?;
            take_over(arguments, original.bytes(), Some(&original))?
        }
        None => take_over(arguments, &standard_input()?, None)?,
    };
    arguments.output.form(&stored, |stored| told(stored, now))
}

fn standard_input() -> Result<Zeroizing<Vec<u8>>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        bail!(ImportError::Empty);
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(1 << 16));
    stdin.lock().take(import::MOST as u64 + 1).read_to_end(&mut bytes).context("standard input")?;
    Ok(bytes)
}

fn take_over(arguments: &Import, bytes: &[u8], original: Option<&Original>) -> Result<Stored> {
    let Import { format, account, replace, config, kept, .. } = arguments;
    let catalogue = Catalogue::load(&config.join("catalogue"))?;
    let known = Format::named(&catalogue, format)?;
    let name = account.as_deref().unwrap_or(format);
    let store = kept.store()?;
    let key = InstallationKey::load_or_create(&kept.state.join("installation.key")).context(
        "the installation's key (run this in the sidecar's container, or name its volume with --state)",
    )?;
    let login = known.read(bytes).with_context(|| format!("the file ({})", known.what()))?;
    let mut stored = Stored {
        account: name.to_owned(),
        kind: login.kind.name.clone(),
        whose: login.whose(),
        expires: login.expires(),
        previous: None,
        left: declare(name, &login.kind.name),
    };
    let changed = loop {
        let before = match store.read(name) {
            Ok(record) => Some(record),
            Err(StoreError::Missing(_)) => None,
            // What cannot be read cannot be kept, and this is the way to mend it.
            Err(StoreError::Record { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let record: Record =
            known.read(bytes)?.record(name, (&key, &catalogue), before.as_ref(), *replace)?;
        let uid = match record.uid.clone() {
            Some(uid) => uid,
            None => new_uid().map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?,
        };
        let record = record.of_uid(uid);
        // Before anything is stored: whether it can be done at all.
        let changed = original.map(|original| original.with_stand_ins(&record)).transpose()?;
        match store.write(name, &record, before.as_ref().map(|before| before.generation)) {
            Ok(()) => break changed,
            // The sidecar renewed it at this very moment.
            Err(StoreError::Changed(_)) => {}
            Err(error) => return Err(error.into()),
        }
    };
    if let (Some(original), Some(changed)) = (original, changed) {
        stored.previous = Some(original.replace(&changed)?);
    }
    Ok(stored)
}

fn declare(name: &str, kind: &str) -> String {
    format!(
        "to use it, declare it in secrets.toml (if it is not there yet):\n  [{name}]\n  like = \"{kind}\"\n  account = \"{name}\"\n  grant-to = {{ harnesses = [\"…\"] }}\n"
    )
}

impl Kept {
    fn store(&self) -> Result<Store, KeyError> {
        self.store_key.store(&self.state, &Surroundings::of_this_process())
    }
}

fn reseal(arguments: &Reseal) -> Result<String> {
    let Reseal { kept, plain } = arguments;
    let store = kept.store()?;
    if !store.is_sealed() {
        bail!(
            "there is no key: give it with --store-key, or as the credential or Podman secret `{CREDENTIAL}`"
        );
    }
    let to = if *plain { Store::new(store.directory().to_owned()) } else { store.clone() };
    let names = store.names()?;
    for name in &names {
        store.convert(name, &to)?;
    }
    let how = if *plain { "in the clear" } else { "encrypted" };
    Ok(format!("{} accounts are {how} now\n", names.len()))
}

fn told(stored: &Stored, now: Millis) -> String {
    let Stored { account, kind, whose, expires, previous, left } = stored;
    let whose = whose.as_ref().map(|whose| format!(" of {whose}")).unwrap_or_default();
    let expiry = match *expires {
        None => "nobody said when it expires".to_owned(),
        Some(expires) if expires <= now => "its token has expired; it is renewed at once".to_owned(),
        Some(expires) => {
            format!("its token is good for {} min, and is renewed before", expires.since(now) / 60_000)
        }
    };
    let previous = previous.as_ref().map(|previous| {
        format!(
            "the file has stand-ins now; as it was, it is {}: delete that once the account works\n",
            previous.display()
        )
    });
    let previous = previous.unwrap_or_default();
    format!("account `{account}`{whose} is stored, as a `{kind}`; {expiry}\n{previous}{left}")
}

#[cfg(test)]
#[path = "login/tests.rs"]
mod tests;
