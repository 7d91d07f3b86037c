//! The log: one JSON line for everything that arrived.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One line of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// A TCP connection was accepted; nothing has been read yet.
    Connection { port: u16 },
    /// A handshake or a connection failed.
    Failed { port: u16, error: String },
    /// A query reached the resolver; `transport` is `udp` or `tcp`, `qtype` the number of RFC 1035 3.2.2.
    Query { transport: String, name: String, qtype: u16 },
    /// A token was made, or can be from now on.
    Minted { value: String },
    /// A whole request, its body included, was read.
    Request(Box<Request>),
}

/// A request as it arrived.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub port: u16,
    pub tls: bool,
    pub sni: Option<String>,
    pub alpn: Option<String>,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    pub method: String,
    /// `Host` or `:authority`, as sent.
    pub host: String,
    pub path: String,
    pub query: Option<String>,
    /// In the order of arrival; names in lower case.
    pub headers: Vec<(String, String)>,
    pub body_length: usize,
    /// Lower-case hexadecimal.
    pub body_sha256: String,
    /// The first 4 KiB, lossily.
    pub body_start: String,
}

impl Request {
    /// Value of the first header of this name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Where entries are appended.
#[derive(Clone, Debug)]
pub struct Log(Arc<Mutex<File>>);

impl Log {
    /// Opens the file for appending.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// All entries written so far; a line that is still being written is left out.
    ///
    /// # Errors
    /// If the file cannot be read or holds something else.
    pub fn read(path: &Path) -> Result<Vec<Entry>> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }

    /// Appends in one write, before the answer is sent: who has the answer finds the line.
    pub(crate) fn write(&self, entry: &Entry) {
        let Ok(mut line) = serde_json::to_vec(entry) else { return };
        line.push(b'\n');
        if let Ok(mut file) = self.0.lock() {
            // a log that cannot be written shows as a test that misses its line
            let _ = file.write_all(&line);
        }
    }
}
