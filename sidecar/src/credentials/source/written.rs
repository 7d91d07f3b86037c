//! The keys of a declaration that say where its value is.

use std::path::{Component, PathBuf};
use std::time::Duration;

use toml::Spanned;

use super::{AgentKey, CommandSource, Source};
use crate::accounts::store;
use crate::credentials::ssh::fingerprint;

const TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_TIMEOUT: u64 = 120;
const LONGEST_CACHE: u64 = 30 * 24 * 3600;

/// As they are in the file, of which exactly one says where.
pub(crate) struct Written {
    pub(crate) file: Option<Spanned<String>>,
    pub(crate) podman_secret: Option<Spanned<String>>,
    pub(crate) credential: Option<Spanned<String>>,
    pub(crate) variable: Option<Spanned<String>>,
    pub(crate) command: Option<Spanned<Vec<String>>>,
    pub(crate) account: Option<Spanned<String>>,
    pub(crate) agent: Option<Spanned<String>>,
    pub(crate) public_key: Option<Spanned<String>>,
    pub(crate) timeout: Option<Spanned<u64>>,
    pub(crate) cache: Option<Spanned<u64>>,
}

/// What is wrong, and the offset in the text at which it is.
type Mistake = (usize, String);

impl Written {
    /// `at` is where the declaration begins. Messages quote nothing: people paste values into the wrong line.
    pub(crate) fn source(self, at: usize) -> Result<Source, Mistake> {
        let of_command = [("timeout", &self.timeout), ("cache", &self.cache)];
        if self.command.is_none()
            && let Some((key, written)) = of_command.iter().find_map(|(key, w)| Some((key, w.as_ref()?)))
        {
            return Err((written.span().start, format!("`{key}` is for a `command`")));
        }
        if let (None, Some(written)) = (&self.agent, &self.public_key) {
            return Err((written.span().start, "`public-key` is for an `agent`".to_owned()));
        }
        let (timeout, cache, public_key) = (self.timeout, self.cache, self.public_key);
        let sources = [
            self.file.map(|written| file(&written)),
            self.podman_secret.map(|written| Ok(Source::PodmanSecret(name("podman-secret", written)?))),
            self.credential.map(|written| Ok(Source::Credential(name("credential", written)?))),
            self.variable.map(|written| variable(written).map(Source::Variable)),
            self.command.map(|written| command(written, timeout, cache)),
            self.account.map(account),
            self.agent.map(|written| agent(&written, public_key)),
        ];
        let mut sources = sources.into_iter().flatten();
        match (sources.next(), sources.next()) {
            (Some(source), None) => source,
            (None, _) => Err((
                at,
                "where is its value? Add one of `podman-secret`, `file`, `credential`, `variable`, `command`"
                    .to_owned(),
            )),
            (Some(_), Some(_)) => Err((
                at,
                "it has several sources; keep one of `podman-secret`, `file`, `credential`, `variable`, `command`"
                    .to_owned(),
            )),
        }
    }
}

fn file(written: &Spanned<String>) -> Result<Source, Mistake> {
    let message =
        "`file` must be the absolute path, without `..`, of a file that holds the value, and not the value";
    Ok(Source::File(path(written, message)?))
}

fn path(written: &Spanned<String>, message: &str) -> Result<PathBuf, Mistake> {
    let path = PathBuf::from(written.get_ref());
    // `/run/secrets/../x` is not below `/run/secrets`.
    if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
        return Err((written.span().start, message.to_owned()));
    }
    Ok(path)
}

fn agent(written: &Spanned<String>, public_key: Option<Spanned<String>>) -> Result<Source, Mistake> {
    let message =
        "`agent` must be the absolute path, without `..`, of an ssh-agent's socket as the sidecar sees it";
    let socket = path(written, message)?;
    let Some(public_key) = public_key else {
        let message = "`public-key` is missing: which of the agent's keys? `ssh-add -l` prints them, as \
                       public-key = \"SHA256:…\"";
        return Err((written.span().start, message.to_owned()));
    };
    match fingerprint(public_key.get_ref()) {
        Some(key) => Ok(Source::Agent(AgentKey { socket, key })),
        None => {
            let message = "`public-key` is written as \"ssh-ed25519 AAAA…\" (the file that ends in .pub) or \
                           \"SHA256:…\" (as `ssh-add -l` prints it)";
            Err((public_key.span().start, message.to_owned()))
        }
    }
}

fn name(key: &str, written: Spanned<String>) -> Result<String, Mistake> {
    let at = written.span().start;
    let name = written.into_inner();
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 253 || name.starts_with('.') || !name.bytes().all(plain) {
        return Err((
            at,
            format!("`{key}` must be a name of letters, digits, `-`, `_` and `.`, and not the value"),
        ));
    }
    Ok(name)
}

fn account(written: Spanned<String>) -> Result<Source, Mistake> {
    let at = written.span().start;
    let name = written.into_inner();
    store::valid(&name).map_err(|error| (at, format!("`account`: {error}")))?;
    Ok(Source::Account(name))
}

fn variable(written: Spanned<String>) -> Result<String, Mistake> {
    let at = written.span().start;
    let name = written.into_inner();
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if name.is_empty() || !letters || name.starts_with(|c: char| c.is_ascii_digit()) {
        let message =
            "`variable` must be the name of a variable of the sidecar's environment, and not the value";
        return Err((at, message.to_owned()));
    }
    Ok(name)
}

fn command(
    written: Spanned<Vec<String>>,
    timeout: Option<Spanned<u64>>,
    cache: Option<Spanned<u64>>,
) -> Result<Source, Mistake> {
    let at = written.span().start;
    let words = written.into_inner();
    let program = words.first().map_or("", String::as_str);
    if program.is_empty() || (program.contains('/') && !program.starts_with('/')) {
        let message = "`command` must begin with a program: an absolute path, or a name in PATH, as [\"op\", \"read\", \"...\"]";
        return Err((at, message.to_owned()));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err((at, "`command` holds a NUL".to_owned()));
    }
    let timeout = timeout.map(|written| seconds("timeout", LONGEST_TIMEOUT, &written)).transpose()?;
    let cache = cache.map(|written| seconds("cache", LONGEST_CACHE, &written)).transpose()?;
    Ok(Source::Command(CommandSource { words, timeout: timeout.unwrap_or(TIMEOUT), cache }))
}

fn seconds(key: &str, most: u64, written: &Spanned<u64>) -> Result<Duration, Mistake> {
    match *written.get_ref() {
        seconds if (1..=most).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err((written.span().start, format!("`{key}` must be 1 to {most} seconds"))),
    }
}
