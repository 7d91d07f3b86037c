//! One JSON line for each request, or for each connection that never became one. Names of secrets, never a value.

pub mod file;
mod lines;
mod outlet;
mod recent;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use understudy_control::Status;
use understudy_policies::is_plain;

use self::file::{AuditFile, Rotating};
use self::lines::Lines;
use self::outlet::Health;
use crate::bell::Bell;
use crate::container::Container;
use crate::credentials::Vault;
use crate::credentials::ledger::Ledger;
use crate::current::Current;
use crate::metrics::Metrics;
use crate::operator::notify::Notifier;
use crate::reason::Reason;

/// Of the lines, as docs/audit.md describes it.
pub const SCHEMA: u8 = 1;

/// What happened. Start it with [`Entry::new`], fill in what becomes known, hand it to [`Audit::write`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Entry {
    /// [`SCHEMA`].
    schema: u8,
    /// Milliseconds since the epoch.
    pub time: u64,
    pub container: String,
    pub container_id: String,
    pub harness: String,
    pub policy: String,
    /// `https`, `http`, `tls` (passed through), `ssh`, `postgres`, `dns`, `tcp`, `published` (came in from outside), `control`.
    pub protocol: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path with the names of query parameters, without their values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub decision: Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Names of the secrets that were swapped in, or that a denial is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The status that the container saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Body bytes from and to the container; of what is passed through, all.
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// Stand-ins in the request's body or in frames of the container: harmless there.
    #[serde(skip_serializing_if = "is_zero")]
    pub stand_ins_in_body: u64,
    /// Real values that the upstream sent, and that left as stand-ins.
    #[serde(skip_serializing_if = "is_zero")]
    pub scrubbed: u64,
    /// Milliseconds from the request's first byte to its end.
    pub duration: u64,
    /// A fault in words, without any value of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(skip)]
    started: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    Allowed,
    Denied,
    /// It was allowed, and ended before its end: a revocation, or one side broke off.
    Terminated,
}

impl Entry {
    pub fn new(container: &Container, protocol: &'static str) -> Self {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            schema: SCHEMA,
            time: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            container: container.label().to_owned(),
            container_id: container.id.short().to_owned(),
            harness: container.harness.clone(),
            policy: container.rights().policy.label().to_owned(),
            protocol,
            host: None,
            port: None,
            method: None,
            path: None,
            decision: Decision::Denied,
            reason: None,
            rule: None,
            secrets: Vec::new(),
            status: None,
            bytes_up: 0,
            bytes_down: 0,
            stand_ins_in_body: 0,
            scrubbed: 0,
            duration: 0,
            detail: None,
            started: Instant::now(),
        }
    }
}

#[cfg(test)]
impl Entry {
    pub(crate) fn sample() -> Self {
        use crate::credentials::Rights;
        use crate::dns::SyntheticNames;
        let id = "a".repeat(64).parse().unwrap();
        let (rights, names) = (Rights::default(), SyntheticNames::default());
        let container = Container::new(id, None, "generic".to_owned(), rights, names, Vec::new());
        Self::new(&container, "https")
    }
}

/// Where entries go. Cheap to clone.
#[derive(Clone)]
pub struct Audit {
    lines: Arc<Lines>,
    vault: Current<Vault>,
    ledger: Arc<Ledger>,
    metrics: Arc<Metrics>,
    notifier: Option<Arc<Notifier>>,
}

/// The most characters of a text that a container chose, in one field of a line.
const LONGEST: usize = 1024;

impl Audit {
    /// Whatever holds a real value of the vault is withheld from the lines.
    pub fn new(sink: impl Write + Send + 'static, vault: Current<Vault>) -> Self {
        Self::of(Lines::new(sink), vault)
    }

    fn of(lines: Arc<Lines>, vault: Current<Vault>) -> Self {
        let (ledger, metrics) = Default::default();
        Self { lines, vault, ledger, metrics, notifier: None }
    }

    /// To the operator's file, or to standard output.
    ///
    /// # Errors
    /// If the file cannot be opened or made.
    pub fn open(file: Option<&AuditFile>, vault: Current<Vault>) -> io::Result<Self> {
        Ok(match file {
            Some(file) => {
                let health = Arc::<Health>::default();
                let sink = Rotating::open(file.clone(), Arc::clone(&health))?;
                Self::of(Lines::threaded(sink, health)?, vault)
            }
            None => Self::new(io::stdout(), vault),
        })
    }

    /// The same, and the operator's command is told of leaks and of hosts that are refused for the first time.
    #[must_use]
    pub fn notifying(self, notifier: Option<Arc<Notifier>>) -> Self {
        Self { notifier, ..self }
    }

    /// Counts for Prometheus, with what `status` knows.
    pub fn counts(&self, status: &Status) -> String {
        self.metrics.text(status, self.lines.health().lost())
    }

    /// What keeps lines from being written, or did.
    pub fn problems(&self) -> Vec<String> {
        self.lines.health().problems()
    }

    /// Writes what still waits. Lines can come later, too.
    pub fn close(&self) {
        self.lines.close();
    }

    /// What lines may show of a text that a container chose: all of it is searched before it is shortened.
    pub fn shown(&self, text: &str, longest: usize) -> String {
        self.withheld(text).unwrap_or_else(|| printable(text, longest))
    }

    /// The same for a path with a query, whose values are left out. A stand-in in the path is shown as its secret's name:
    /// lines of one secret can be told by it, whatever the installation.
    pub fn shown_path(&self, path_and_query: &str) -> String {
        let vault = self.vault.current();
        let named = |path: String| {
            let stand_ins =
                vault.secrets().iter().flat_map(|secret| secret.stand_ins().map(move |s| (s, secret)));
            stand_ins.fold(path, |path, (stand_in, secret)| match path.contains(stand_in) {
                true => path.replace(stand_in, &format!("{{{}}}", secret.name())),
                false => path,
            })
        };
        self.withheld(path_and_query)
            .unwrap_or_else(|| printable(&named(path_without_values(path_and_query)), LONGEST))
    }

    /// What the lines so far say of secrets.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Lines of this run from number `from` on, as far as they are kept.
    pub fn since(&self, from: u64) -> understudy_control::Lines {
        self.lines.since(from)
    }

    /// Rung for each line that [`Audit::since`] has more.
    pub fn bell(&self) -> &Arc<Bell> {
        self.lines.bell()
    }

    /// Sees to it that one whole line is written, now or with others of this moment.
    pub fn write(&self, mut entry: Entry) {
        entry.duration = u64::try_from(entry.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let chosen = [&mut entry.host, &mut entry.method, &mut entry.path, &mut entry.detail];
        for text in chosen.into_iter().flatten() {
            *text = self.shown(text, LONGEST);
        }
        match (entry.decision, entry.reason) {
            (Decision::Denied | Decision::Terminated, Some(reason)) if reason.is_leak() => {
                self.ledger.leaked(&entry.secrets);
            }
            (Decision::Denied, _) => {}
            _ => self.ledger.swapped(&entry.secrets, entry.time),
        }
        self.metrics.count(&entry);
        if let Some(notifier) = &self.notifier {
            notifier.tell_of(&entry);
        }
        self.lines.push(&entry.container_id, &entry);
    }

    fn withheld(&self, text: &str) -> Option<String> {
        let vault = self.vault.current();
        let secret = vault.real_value_in(text.as_bytes())?;
        Some(format!("(withheld: it holds the real value of secret `{secret}`)"))
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Audit(..)")
    }
}

// The signature that serde asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// At most `longest` characters. Those that steer a terminal or hide text (C1 controls and writing direction among them,
/// which JSON leaves as they are) are escaped.
fn printable(text: &str, longest: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(longest));
    for (count, c) in text.chars().enumerate() {
        if count == longest {
            shown.push_str("...");
            break;
        }
        if is_plain(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

/// `/v1/messages?beta=&key=` for `/v1/messages?beta=true&key=secret`.
fn path_without_values(path_and_query: &str) -> String {
    let Some((path, query)) = path_and_query.split_once('?') else { return path_and_query.to_owned() };
    let keys: Vec<&str> =
        query.split('&').map(|pair| pair.split_once('=').map_or("", |(key, _)| key)).collect();
    format!("{path}?{}=", keys.join("=&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With every field that a line can have.
    fn full(text: &str) -> Entry {
        let chosen = || Some(text.to_owned());
        Entry {
            host: chosen(),
            port: Some(443),
            method: chosen(),
            path: chosen(),
            detail: chosen(),
            reason: Some(Reason::HostNotAllowed),
            rule: Some("web.toml:1".to_owned()),
            secrets: vec!["a".to_owned()],
            status: Some(403),
            stand_ins_in_body: 1,
            scrubbed: 1,
            ..Entry::sample()
        }
    }

    fn written(entry: Entry) -> String {
        let audit = Audit::new(io::sink(), Current::default());
        audit.write(entry);
        let lines = audit.since(0).lines;
        assert_eq!(lines.len(), 1);
        lines.into_iter().next().unwrap()
    }

    #[test]
    fn the_documentation_has_each_field_of_this_schema_and_no_other() {
        let documentation = include_str!("../../docs/audit.md");
        let table = documentation.split("| field | |").nth(1).unwrap().split("\n\n").next().unwrap();
        let documented: std::collections::BTreeSet<&str> = table
            .lines()
            .filter_map(|row| row.strip_prefix("| `")?.split(" | ").next())
            .flat_map(|names| names.split(", ").map(|name| name.trim_matches('`')))
            .collect();
        let line: serde_json::Value = serde_json::from_str(&written(full("x"))).unwrap();
        let fields = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(documented, fields);
        assert_eq!(line["schema"], SCHEMA);
        assert!(documentation.contains(&format!("This is schema {SCHEMA}.")));
    }

    #[test]
    fn no_text_of_a_container_becomes_a_second_line_or_another_field() {
        let keys = |line: &str| -> Vec<String> {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line.as_object().unwrap().keys().cloned().collect()
        };
        let expected = keys(&written(full("x")));
        for text in [
            "a\n{\"schema\":1,\"decision\":\"allowed\"}",
            "a\r\n{}",
            "a\",\"decision\":\"allowed\",\"x\":\"",
            "a\\\",\"decision\":\"allowed",
            "\0\u{1b}[2J\u{7f}\u{85}\u{2028}\u{2029}\u{202e}\u{feff}\u{3164}\u{115f}\u{ffa0}",
            "\u{9b}1;31m",
        ] {
            let line = written(full(text));
            assert_eq!(keys(&line), expected, "{line}");
            let parsed: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(parsed["decision"], "denied", "{line}");
            assert!(line.bytes().all(|byte| byte >= b' ' && byte != 0x7f), "{line:?}");
            for field in ["host", "method", "path", "detail"] {
                let shown = parsed[field].as_str().unwrap();
                assert!(shown.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{field}: {shown:?}");
            }
        }
    }

    #[test]
    fn query_values_are_left_out_and_bare_values_too() {
        assert_eq!(path_without_values("/v1/messages"), "/v1/messages");
        assert_eq!(path_without_values("/a?beta=true&key=sk-1=2"), "/a?beta=&key=");
        assert_eq!(path_without_values("/a?sk-secret"), "/a?=");
    }

    #[test]
    fn what_a_container_chose_is_short_and_steers_no_terminal() {
        let audit = Audit::new(io::sink(), Current::default());
        assert_eq!(
            audit.shown_path("/caf\u{e9}/\u{9b}2J\u{202e}\u{3164}?\u{7f}=1"),
            "/caf\u{e9}/\\u{9b}2J\\u{202e}\\u{3164}?\\u{7f}="
        );
        assert_eq!(audit.shown_path(&"/\u{e9}".repeat(2000)).chars().count(), LONGEST + 3);
        assert_eq!(audit.shown("MKCALENDAR", 3), "MKC...");
    }
}
