//! Where the sidecar's things are, and what `sidecar.toml` says.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use serde::Deserialize;
use understudy_policies::HostName;

use crate::dns::{PinnedAddress, SyntheticRange};

/// The three directories of an installation, as the sidecar's container sees them.
#[derive(Debug, Clone, clap::Args)]
pub struct Directories {
    /// Configuration, read-only: sidecar.toml, secrets.toml, ceiling.toml, policies/, harnesses/, catalogue/
    #[arg(long, value_name = "DIR", default_value = "/etc/understudy")]
    pub config: PathBuf,
    /// State, a volume of its own: the authority's key and the installation's key
    #[arg(long, value_name = "DIR", default_value = "/var/lib/understudy")]
    pub state: PathBuf,
    /// The control socket and its hello secret, shared with the hook
    #[arg(long, value_name = "DIR", default_value = "/run/understudy/control")]
    pub control: PathBuf,
}

impl Directories {
    pub fn sidecar_toml(&self) -> PathBuf {
        self.config.join("sidecar.toml")
    }

    pub fn secrets_toml(&self) -> PathBuf {
        self.config.join("secrets.toml")
    }

    pub fn ceiling_toml(&self) -> PathBuf {
        self.config.join("ceiling.toml")
    }

    pub fn policies(&self) -> PathBuf {
        self.config.join("policies")
    }

    pub fn harnesses(&self) -> PathBuf {
        self.config.join("harnesses")
    }

    /// The store of accounts.
    pub fn accounts(&self) -> PathBuf {
        self.state.join("accounts")
    }

    pub fn catalogue(&self) -> PathBuf {
        self.config.join("catalogue")
    }
}

/// `sidecar.toml`. All of it is optional; a missing file is an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// PEM files with further roots for upstream TLS.
    pub extra_ca: Vec<PathBuf>,
    /// DNS servers to ask instead of those of `/etc/resolv.conf`.
    pub resolvers: Vec<SocketAddr>,
    pub synthetic_range: SyntheticRange,
    /// Names that are where the operator says, private addresses included.
    pub names: HashMap<HostName, Vec<PinnedAddress>>,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    /// With line, column and the text, as the `toml` crate shows them.
    #[error("{path}: {source}")]
    Toml { path: PathBuf, source: toml::de::Error },
    #[error("{path}: {key}: {why}")]
    Value { path: PathBuf, key: String, why: String },
}

impl Settings {
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(SettingsError::Io { path: path.to_owned(), source }),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, SettingsError> {
        let file: File =
            toml::from_str(text).map_err(|source| SettingsError::Toml { path: path.to_owned(), source })?;
        let value =
            |key: &str, why: String| SettingsError::Value { path: path.to_owned(), key: key.to_owned(), why };
        let synthetic_range = match file.synthetic_range {
            Some(net) => SyntheticRange::new(net).map_err(|e| value("synthetic-range", e.to_string()))?,
            None => SyntheticRange::default(),
        };
        let resolvers = file
            .resolvers
            .iter()
            .map(|text| socket_address(text, 53).ok_or_else(|| value("resolvers", not_an_address(text))))
            .collect::<Result<_, _>>()?;
        let mut names = HashMap::new();
        for (name, addresses) in file.names {
            let host = name.parse().map_err(|e| value(&format!("names.{name}"), format!("{e}")))?;
            let pins = addresses
                .into_vec()
                .iter()
                .map(|text| pin(text).ok_or_else(|| value(&format!("names.{name}"), not_an_address(text))))
                .collect::<Result<Vec<_>, _>>()?;
            if pins.is_empty() {
                return Err(value(&format!("names.{name}"), "at least one address is needed".to_owned()));
            }
            names.insert(host, pins);
        }
        Ok(Self { extra_ca: file.extra_ca, resolvers, synthetic_range, names })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    extra_ca: Vec<PathBuf>,
    resolvers: Vec<String>,
    synthetic_range: Option<Ipv4Net>,
    names: HashMap<String, OneOrMany>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// `ADDRESS` or `ADDRESS:PORT`, IPv6 in brackets where a port follows.
fn pin(text: &str) -> Option<PinnedAddress> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(PinnedAddress { address, port: None });
    }
    let socket: SocketAddr = text.parse().ok()?;
    (socket.port() != 0).then(|| PinnedAddress { address: socket.ip(), port: Some(socket.port()) })
}

fn socket_address(text: &str, default_port: u16) -> Option<SocketAddr> {
    pin(text).map(|pin| SocketAddr::new(pin.address, pin.port.unwrap_or(default_port)))
}

fn not_an_address(text: &str) -> String {
    format!("{text:?} is not an address (expected \"10.0.0.1\", \"10.0.0.1:8443\" or \"[fd00::1]:8443\")")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        Settings::parse(Path::new("sidecar.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn everything_can_be_said() {
        let settings = parse(
            "extra-ca = [\"/etc/understudy/ca.pem\"]\nresolvers = [\"127.0.0.1:5353\", \"::1\"]\n\
             synthetic-range = \"29.0.0.0/16\"\n[names]\n\"a.example\" = \"127.0.0.1\"\n\"b.example\" = [\"10.0.0.1:8443\", \"[fd00::1]:1\"]\n",
        )
        .unwrap();
        assert_eq!(settings.resolvers[1], "[::1]:53".parse().unwrap());
        assert_eq!(settings.names[&"b.example".parse().unwrap()][0].port, Some(8443));
        assert!(settings.synthetic_range.contains("29.0.3.4".parse().unwrap()));
    }

    #[test]
    fn mistakes_are_named_with_their_key() {
        for (text, needle) in [
            ("extra-cas = []", "unknown field `extra-cas`"),
            ("synthetic-range = \"28.0.0.0/24\"", "/18"),
            ("[names]\n\"a.example\" = \"localhost\"", "names.a.example"),
            ("[names]\n\"a.example\" = []", "at least one"),
            ("[names]\n\"a.example\" = \"10.0.0.1:0\"", "names.a.example"),
            ("[names]\n\"127.0.0.1\" = \"10.0.0.1\"", "names.127.0.0.1"),
            ("resolvers = [\"dns\"]", "resolvers"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }

    #[test]
    fn no_file_is_an_empty_one_and_an_unreadable_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Settings::load(&dir.path().join("none")).unwrap(), Settings::default());
        assert!(Settings::load(dir.path()).is_err());
    }
}
