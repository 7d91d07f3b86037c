//! `understudy secrets add`: appends a table to `secrets.toml`. It never sees a value: an argument would be in the
//! shell's history and in the list of processes, and a value that is typed here would be in one more place.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use understudy_harnesses::Harnesses;
use understudy_policies::DocumentError;

use super::kinds;
use crate::credentials::catalogue::Kind;
use crate::credentials::{Catalogue, declaration};

/// What the operator said.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub name: String,
    pub like: String,
    pub source: Source,
    /// Instead of the kind's own; needed where it has none.
    pub hosts: Vec<String>,
    /// Empty: the harnesses of which it is the login, or `generic` if there are none.
    pub grant_to: Vec<String>,
}

/// Where the sidecar finds the value.
#[derive(Debug, Clone, Default)]
pub enum Source {
    /// Of the secret's own name.
    #[default]
    PodmanSecretOfThatName,
    PodmanSecret(String),
    File(PathBuf),
}

/// A secret that is declared now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Added {
    name: String,
    like: String,
    /// The file that declares it.
    declared_in: PathBuf,
    /// Harnesses.
    granted_to: Vec<String>,
    /// What is left to do, for a person.
    left: String,
}

#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error("secrets.toml has a secret `{0}` already; choose another name, or change that table")]
    Exists(String),
    #[error("secrets.toml must be repaired first: {0}")]
    Broken(DocumentError),
    #[error("`--like`: {0}")]
    Kind(String),
    #[error("`{0}` has no host of its own; name yours: --host HOST")]
    Hosts(String),
    #[error(
        "that is a credential, and not a name; it is in your shell's history now, so replace it at its provider"
    )]
    Credential,
    #[error("{0}")]
    Invalid(String),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl Added {
    pub fn text(&self) -> String {
        let Self { name, declared_in, granted_to, left, .. } = self;
        format!(
            "secret `{name}` is in {}, granted to {}\n{left}",
            declared_in.display(),
            granted_to.join(", ")
        )
    }
}

/// Appends the table, and says what is left to do.
pub fn run(
    file: &Path,
    wanted: &Wanted,
    catalogue: &Catalogue,
    harnesses: &Harnesses,
) -> Result<Added, AddError> {
    let io = |source| AddError::Io { path: file.to_owned(), source };
    let before = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(io(error)),
    };
    let kind = catalogue
        .kind(&wanted.like)
        .map_err(|error| AddError::Kind(kinds::by_hand(&wanted.like).unwrap_or_else(|| error.to_string())))?;
    let grant_to = grant_to(wanted, kind, harnesses);
    let after = appended(&before, wanted, kind, &grant_to, catalogue)?;
    replace(file, &after).map_err(io)?;
    Ok(Added {
        name: wanted.name.clone(),
        like: kind.name.clone(),
        declared_in: file.to_owned(),
        granted_to: grant_to,
        left: left_to_do(wanted),
    })
}

/// The text with the table at its end. What was there stays as it is.
fn appended(
    before: &str,
    wanted: &Wanted,
    kind: &Kind,
    grant_to: &[String],
    catalogue: &Catalogue,
) -> Result<String, AddError> {
    let there = declaration::parse("secrets.toml", before, catalogue).map_err(AddError::Broken)?;
    if there.iter().any(|declared| declared.name == wanted.name) {
        return Err(AddError::Exists(wanted.name.clone()));
    }
    if catalogue.credential_in(wanted.name.as_bytes()).is_some() {
        return Err(AddError::Credential);
    }
    if kind.hosts.is_empty() && wanted.hosts.is_empty() {
        return Err(AddError::Hosts(kind.name.clone()));
    }
    let mut after = before.to_owned();
    if !before.is_empty() {
        after.push_str(if before.ends_with('\n') { "\n" } else { "\n\n" });
    }
    after.push_str(&table(wanted, kind, grant_to));
    declaration::parse("secrets.toml", &after, catalogue)
        // Its position is one in a text that nobody has seen.
        .map_err(|error| AddError::Invalid(error.message))?;
    Ok(after)
}

fn table(wanted: &Wanted, kind: &Kind, grant_to: &[String]) -> String {
    // On one line, whatever is in it: the escapes of JSON are those of TOML's basic strings, too.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let list = |items: &[String]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
    let bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let is_bare = !wanted.name.is_empty() && wanted.name.bytes().all(bare);
    let key = if is_bare { wanted.name.clone() } else { quoted(&wanted.name) };
    let mut table = format!("[{key}]\nlike = {}\n", quoted(&kind.name));
    table.push_str(&match &wanted.source {
        Source::PodmanSecretOfThatName => format!("podman-secret = {}\n", quoted(&wanted.name)),
        Source::PodmanSecret(name) => format!("podman-secret = {}\n", quoted(name)),
        Source::File(path) => format!("file = {}\n", quoted(&path.to_string_lossy())),
    });
    if !wanted.hosts.is_empty() {
        table.push_str(&format!("hosts = [{}]\n", list(&wanted.hosts)));
    }
    table.push_str(&format!("grant-to = {{ harnesses = [{}] }}\n", list(grant_to)));
    table
}

fn grant_to(wanted: &Wanted, kind: &Kind, harnesses: &Harnesses) -> Vec<String> {
    if !wanted.grant_to.is_empty() {
        return wanted.grant_to.clone();
    }
    let is_login = |name: &&str| {
        harnesses.harness(name).is_ok_and(|harness| {
            harness.logins.iter().filter(|login| login.hosts.is_empty()).any(|login| {
                login.kind == kind.kind && kind.hosts.iter().any(|pattern| pattern.matches(&login.host))
            })
        })
    };
    let fitting: Vec<String> = harnesses.names().filter(is_login).map(str::to_owned).collect();
    if fitting.is_empty() { vec!["generic".to_owned()] } else { fitting }
}

/// Written whole or not at all; who may read it stays as it is.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mode = fs::metadata(file).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
    let new = file.with_extension(format!("new-{}", std::process::id()));
    let mut written = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    let done = written
        .write_all(text.as_bytes())
        .and_then(|()| written.sync_all())
        .and_then(|()| fs::rename(&new, file));
    if done.is_err() {
        let _ = fs::remove_file(&new);
    }
    done
}

fn left_to_do(wanted: &Wanted) -> String {
    let value = match &wanted.source {
        Source::File(path) => {
            let path = path.display();
            format!(
                "put the value into {path} (mode 0600), and let the sidecar see it:\n  \
                 Quadlet:     Volume={path}:{path}:ro\n  podman run:  -v {path}:{path}:ro\n"
            )
        }
        named => {
            let name = match named {
                Source::PodmanSecret(name) => name,
                _ => &wanted.name,
            };
            format!(
                "give Podman the value (it is read from standard input, so it is in no history):\n  \
                 podman secret create {name} -\nlet the sidecar see it:\n  Quadlet:     Secret={name}\n  \
                 podman run:  --secret {name}\n"
            )
        }
    };
    value + "a sidecar that sees the value takes it over by itself; a new mount needs a new start\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, like: &str) -> Wanted {
        Wanted { name: name.to_owned(), like: like.to_owned(), ..Wanted::default() }
    }

    fn add(file: &Path, wanted: &Wanted) -> Result<String, String> {
        run(file, wanted, &Catalogue::new([]).unwrap(), &Harnesses::default())
            .map(|added| added.text())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_is_appended_and_what_was_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secrets.toml");
        let told = add(&file, &wanted("claude", "anthropic-api-key")).unwrap();
        assert!(told.contains("podman secret create claude -") && told.contains("Secret=claude"), "{told}");
        let first = fs::read_to_string(&file).unwrap();
        assert_eq!(
            first,
            "[claude]\nlike = \"anthropic-api-key\"\npodman-secret = \"claude\"\ngrant-to = { harnesses = [\"claude-code\"] }\n"
        );
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let odd = format!("# mine\n{first}  env = \"X\" # odd");
        fs::write(&file, &odd).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let own = Wanted {
            source: Source::File("/run/own/token".into()),
            hosts: vec!["git.example.com".to_owned()],
            grant_to: vec!["generic".to_owned(), "claude-code".to_owned()],
            ..wanted("git.own", "gitlab-pat")
        };
        let told = add(&file, &own).unwrap();
        assert!(told.contains("Volume=/run/own/token:/run/own/token:ro"), "{told}");
        let both = fs::read_to_string(&file).unwrap();
        assert_eq!(
            both.strip_prefix(&odd).unwrap(),
            "\n\n[\"git.own\"]\nlike = \"gitlab-pat\"\nfile = \"/run/own/token\"\nhosts = [\"git.example.com\"]\n\
             grant-to = { harnesses = [\"generic\", \"claude-code\"] }\n"
        );
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_login_is_granted_to_the_generic_harness() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secrets.toml");
        for (like, granted) in [
            ("linear-api-key", "generic"),
            ("github-pat", "gh"),
            // One of several providers' that some harnesses could use: only one is made for it.
            ("openrouter-api-key", "generic"),
            ("mistral-api-key", "mistral-vibe"),
        ] {
            add(&file, &wanted(like, like)).unwrap();
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.ends_with(&format!("harnesses = [{granted:?}] }}\n")), "{text}");
        }
    }

    #[test]
    fn mistakes_change_nothing_and_repeat_no_credential() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secrets.toml");
        add(&file, &wanted("github", "github-pat")).unwrap();
        let before = fs::read_to_string(&file).unwrap();
        let registry = wanted("registry", "container-registry");
        let file_source = Wanted { source: Source::File("relative".into()), ..wanted("a", "github-pat") };
        let host = Wanted { hosts: vec!["*".to_owned()], ..wanted("a", "github-pat") };
        for (wanted, said) in [
            (wanted("github", "github-pat"), "has a secret `github` already"),
            (wanted("a", "github-pta"), "did you mean `github-pat`?"),
            (wanted("a", "postgres"), "docs/postgres.md has one to copy"),
            (wanted("A B", "github-pat"), "the name of a secret must be"),
            (wanted("", "github-pat"), "the name of a secret must be"),
            (wanted("a]\n[b", "github-pat"), "the name of a secret must be"),
            (wanted("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", "github-pat"), "that is a credential"),
            (registry, "`container-registry` has no host of its own; name yours: --host HOST"),
            (file_source, "`file` must be the absolute path"),
            (host, "a bare `*`"),
        ] {
            let error = add(&file, &wanted).unwrap_err();
            assert!(error.contains(said) && !error.contains("zQWB"), "{error}\nexpected {said}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        fs::write(&file, "[github]\nkid = 1\n").unwrap();
        let error = add(&file, &wanted("a", "github-pat")).unwrap_err();
        assert!(error.contains("must be repaired first: secrets.toml:2:1: unknown key `kid`"), "{error}");
    }
}
