//! Where the sidecar's things are, and what `sidecar.toml` says.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use serde::Deserialize;
use toml::Spanned;
use understudy_policies::document::{OneOrMany as Patterns, place_of};
use understudy_policies::terms::size;
use understudy_policies::{HostName, HostPattern};

use crate::accounts::Store;
use crate::accounts::seal::{self, KeyError, StoreKey};
use crate::audit::file::{AuditFile, Sync};
use crate::credentials::source::written::Written;
use crate::credentials::{Source, Surroundings};
use crate::dns::{PinnedAddress, ProxyCredentials, ProxyHost, SyntheticRange, UpstreamProxy};
use crate::places;
use crate::publish::Ports;

/// The three directories of an installation, as the sidecar's container sees them.
#[derive(Debug, Clone, clap::Args)]
pub struct Directories {
    /// Configuration, read-only: sidecar.toml, secrets.toml, ceiling.toml, policies/, harnesses/, instructions/,
    /// catalogue/ [default: ~/.config/understudy if it is there, else /etc/understudy]
    #[arg(long, value_name = "DIR", default_value_os_t = places::configuration(), hide_default_value = true)]
    pub config: PathBuf,
    /// State, a volume of its own: the authority's key and the installation's key
    #[arg(long, value_name = "DIR", default_value = "/var/lib/understudy")]
    pub state: PathBuf,
    /// The control socket and its hello secret, shared with the hook [default: $XDG_RUNTIME_DIR/understudy/control if it is there, else /run/understudy/control]
    #[arg(long, value_name = "DIR", default_value_os_t = places::control(), hide_default_value = true)]
    pub control: PathBuf,
    #[command(flatten)]
    pub store_key: StoreKeyFile,
}

/// The key of the store of accounts.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct StoreKeyFile {
    /// Encrypt stored accounts with the 32 bytes of this file [default: systemd's credential or Podman's secret
    /// `understudy-store-key`, if there is one]
    #[arg(long = "store-key", value_name = "FILE")]
    file: Option<PathBuf>,
}

impl StoreKeyFile {
    /// The accounts that are kept in `state`.
    pub fn store(&self, state: &Path, around: &Surroundings) -> Result<Store, KeyError> {
        let store = Store::new(state.join("accounts"));
        if let Some(file) = &self.file {
            return Ok(store.sealed_by(Some(StoreKey::read(file, around.is_mounted_for_us(file))?)));
        }
        let places = around.credentials.iter().chain([&around.podman_secrets]);
        let places = places.map(|directory| directory.join(seal::CREDENTIAL));
        let found = places.into_iter().find(|path| path.exists());
        let key = found.map(|path| StoreKey::read(&path, true)).transpose()?;
        Ok(store.sealed_by(key))
    }
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

    /// The accounts that are kept.
    pub fn accounts(&self, around: &Surroundings) -> Result<Store, KeyError> {
        self.store_key.store(&self.state, around)
    }

    pub fn instructions(&self) -> PathBuf {
        self.config.join("instructions")
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
    pub upstream_proxy: Option<ProxySettings>,
    /// A command that is told of questions, leaks and refusals, with its arguments.
    pub notify: Vec<String>,
    /// Where counts can be read over HTTP; None: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Ports of this machine that containers may publish by.
    pub publish: Ports,
    /// Where audit lines go; None: to standard output.
    pub audit: Option<AuditFile>,
}

/// `[upstream-proxy]`: the HTTP proxy that the sidecar itself leaves by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySettings {
    pub host: ProxyHost,
    pub port: u16,
    /// Whether it is asked for names instead of addresses.
    pub by_name: bool,
    pub direct: Vec<HostPattern>,
    /// Of `user:password`.
    pub credentials: Option<Source>,
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    /// With line, column and the text, as the `toml` crate shows them.
    #[error("{path}: {error}")]
    Toml { path: PathBuf, error: toml::de::Error },
    /// `place` is line and column, as `:3:9`.
    #[error("{path}{place}: {key}: {why}")]
    Value { path: PathBuf, place: String, key: String, why: String },
}

impl ProxySettings {
    /// With its credentials read. An error says where they are, and nothing of them.
    pub fn read(&self, around: &Surroundings) -> Result<UpstreamProxy, String> {
        let read = |source: &Source| {
            let value = source.read(around)?;
            ProxyCredentials::parse(&value).map_err(|error| error.to_string())
        };
        let credentials = self.credentials.as_ref().map(|source| {
            read(source).map_err(|error| format!("sidecar.toml: [upstream-proxy]: {source}: {error}"))
        });
        let (host, direct) = (self.host.clone(), self.direct.clone());
        let (port, by_name) = (self.port, self.by_name);
        Ok(UpstreamProxy { host, port, by_name, direct, credentials: credentials.transpose()? })
    }
}

impl Settings {
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(SettingsError::Io { path: path.to_owned(), error }),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, SettingsError> {
        let file: File =
            toml::from_str(text).map_err(|error| SettingsError::Toml { path: path.to_owned(), error })?;
        let at = |keys: &[&str], item: Option<&str>, why: String| {
            let place = place_of(text, keys, item).map(|(line, column)| format!(":{line}:{column}"));
            let (path, place) = (path.to_owned(), place.unwrap_or_default());
            SettingsError::Value { path, place, key: keys.join("."), why }
        };
        let value = |key: &str, why: String| at(&[key], None, why);
        let synthetic_range = match file.synthetic_range {
            Some(net) => SyntheticRange::new(net).map_err(|e| value("synthetic-range", e.to_string()))?,
            None => SyntheticRange::default(),
        };
        let resolvers = file
            .resolvers
            .iter()
            .map(|text| {
                socket_address(text, 53).ok_or_else(|| at(&["resolvers"], Some(text), not_an_address(text)))
            })
            .collect::<Result<_, _>>()?;
        let mut names = HashMap::new();
        for (name, addresses) in file.names {
            let keys = ["names", &name];
            let host = name.parse().map_err(|e| at(&keys, None, format!("{e}")))?;
            let pins = addresses
                .into_vec()
                .iter()
                .map(|text| pin(text).ok_or_else(|| at(&keys, Some(text), not_an_address(text))))
                .collect::<Result<Vec<_>, _>>()?;
            if pins.is_empty() {
                return Err(at(&keys, None, "at least one address is needed".to_owned()));
            }
            names.insert(host, pins);
        }
        let upstream_proxy = file.upstream_proxy.map(proxy).transpose();
        let upstream_proxy = upstream_proxy.map_err(|(key, why)| at(&["upstream-proxy", key], None, why))?;
        let metrics = file.metrics.map(|metrics| listening(&metrics).map_err(|why| value("metrics", why)));
        let metrics = metrics.transpose()?;
        let publish = ports(file.publish).map_err(|why| value("publish", why))?;
        let audit = file.audit.map(audit).transpose();
        let audit = audit.map_err(|(key, why)| at(&["audit", key], None, why))?;
        let (extra_ca, notify) = (file.extra_ca, file.notify);
        Ok(Self {
            extra_ca,
            resolvers,
            synthetic_range,
            names,
            upstream_proxy,
            notify,
            metrics,
            publish,
            audit,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    extra_ca: Vec<PathBuf>,
    resolvers: Vec<String>,
    synthetic_range: Option<Ipv4Net>,
    names: HashMap<String, OneOrMany>,
    upstream_proxy: Option<ProxyTable>,
    notify: Vec<String>,
    metrics: Option<PortOrAddress>,
    publish: Option<OneOrManyPorts>,
    audit: Option<AuditTable>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrManyPorts {
    One(PortOrRange),
    Many(Vec<PortOrRange>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PortOrRange {
    Port(u16),
    Range(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AuditTable {
    file: PathBuf,
    max_size: Option<String>,
    keep: Option<u32>,
    sync: Option<Sync>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PortOrAddress {
    Port(u16),
    Address(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ProxyTable {
    url: String,
    #[serde(default)]
    by_name: bool,
    direct: Option<Patterns<String>>,
    file: Option<Spanned<String>>,
    podman_secret: Option<Spanned<String>>,
    credential: Option<Spanned<String>>,
    variable: Option<Spanned<String>>,
    command: Option<Spanned<Vec<String>>>,
    timeout: Option<Spanned<u64>>,
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

/// Its settings, or the key that is wrong and why.
fn audit(table: AuditTable) -> Result<AuditFile, (&'static str, String)> {
    if !table.file.is_absolute() || table.file.file_name().is_none() {
        return Err((
            "file",
            "expected the absolute path of a file, as \"/var/lib/understudy/audit.jsonl\"".to_owned(),
        ));
    }
    let max_size = match table.max_size {
        Some(text) => size(&text).map_err(|error| ("max-size", error.to_string()))?,
        None => 64 << 20,
    };
    if max_size < 1 << 16 {
        return Err(("max-size", "at least \"64K\": a file holds some lines".to_owned()));
    }
    let keep = table.keep.unwrap_or(8);
    if keep > 1000 {
        return Err(("keep", "1000 former files at most".to_owned()));
    }
    Ok(AuditFile { path: table.file, max_size, keep, sync: table.sync.unwrap_or(Sync::Never) })
}

/// Its settings, or the key that is wrong and why.
fn proxy(table: ProxyTable) -> Result<ProxySettings, (&'static str, String)> {
    let ProxyTable { url, by_name, direct, file, podman_secret, credential, variable, command, timeout } =
        table;
    let (host, port) = proxy_url(&url).map_err(|why| ("url", why.to_owned()))?;
    let patterns = direct.map(|list| list.0).unwrap_or_default();
    let pattern =
        |text: &String| text.parse::<HostPattern>().map_err(|error| ("direct", format!("{text:?}: {error}")));
    let direct = patterns.iter().map(pattern).collect::<Result<_, _>>()?;
    let none = file.is_none()
        && podman_secret.is_none()
        && credential.is_none()
        && variable.is_none()
        && command.is_none();
    let (account, cache, agent, public_key) = Default::default();
    let written = Written {
        file,
        podman_secret,
        credential,
        variable,
        command,
        account,
        agent,
        public_key,
        timeout,
        cache,
    };
    let credentials = match none {
        true => None,
        false => Some(written.source(0).map_err(|(_, why)| ("credentials", why))?),
    };
    Ok(ProxySettings { host, port, by_name, direct, credentials })
}

/// Quotes nothing: people write passwords into it.
fn proxy_url(url: &str) -> Result<(ProxyHost, u16), &'static str> {
    let Some(authority) = url.strip_prefix("http://") else {
        return Err("expected \"http://HOST:PORT\"; a proxy that is spoken to over TLS is not supported");
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains('@') {
        return Err("credentials in a URL; name where `user:password` is, as `podman-secret = \"NAME\"`");
    }
    let wrong = "expected \"http://HOST:PORT\"";
    let (host, port) = authority.rsplit_once(':').ok_or(wrong)?;
    let port = understudy_control::publish::port(port).ok_or(wrong)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bare.unwrap_or(host).parse::<IpAddr>() {
        Ok(address) if address.is_ipv6() == bare.is_some() => ProxyHost::Address(address),
        _ => ProxyHost::Name(host.parse().map_err(|_| wrong)?),
    };
    Ok((host, port))
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

/// Of a port alone: on loopback.
fn listening(metrics: &PortOrAddress) -> Result<SocketAddr, String> {
    let address = match metrics {
        PortOrAddress::Port(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))),
        PortOrAddress::Address(text) => text.parse().ok(),
    };
    address.filter(|address| address.port() != 0).ok_or_else(|| {
        "expected a port, which is opened on 127.0.0.1, or \"ADDRESS:PORT\", as 9464 or \"10.0.0.5:9464\""
            .to_owned()
    })
}

fn ports(written: Option<OneOrManyPorts>) -> Result<Ports, String> {
    let all = match written {
        None => Vec::new(),
        Some(OneOrManyPorts::One(one)) => vec![one],
        Some(OneOrManyPorts::Many(all)) => all,
    };
    let mut ports = Ports::default();
    for one in all {
        match one {
            PortOrRange::Port(port) => ports.add(&port.to_string())?,
            PortOrRange::Range(text) => ports.add(&text)?,
        }
    }
    Ok(ports)
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
    fn an_upstream_proxy_is_an_address_or_a_name_with_a_port() {
        let of = |text: &str| {
            parse(&format!("[upstream-proxy]\n{text}")).map(|settings| settings.upstream_proxy.unwrap())
        };
        let proxy =
            of("url = \"http://proxy.example:3128/\"\nby-name = true\ndirect = \"*.intern.example\"\n\
                        podman-secret = \"proxy\"")
            .unwrap();
        assert_eq!((proxy.host, proxy.port), (ProxyHost::Name("proxy.example".parse().unwrap()), 3128));
        assert!(proxy.by_name && proxy.direct.len() == 1);
        assert_eq!(proxy.credentials, Some(Source::PodmanSecret("proxy".to_owned())));
        let plain = of("url = \"http://[fd00::1]:8080\"").unwrap();
        assert_eq!((plain.host, plain.by_name), (ProxyHost::Address("fd00::1".parse().unwrap()), false));
        for (text, needle) in [
            (
                "url = \"https://proxy.example:443\"",
                "upstream-proxy.url: expected \"http://HOST:PORT\"; a proxy",
            ),
            ("url = \"http://me:secret@proxy.example:1\"", "upstream-proxy.url: credentials in a URL"),
            ("url = \"http://proxy.example\"", "upstream-proxy.url: expected"),
            ("url = \"http://proxy.example:0\"", "upstream-proxy.url: expected"),
            ("url = \"http://proxy.example:+80\"", "upstream-proxy.url: expected"),
            ("url = \"http://p.example:1\"\ndirect = [\"*\"]", "upstream-proxy.direct: \"*\": a bare `*`"),
            ("url = \"http://p.example:1\"\nfile = \"/a\"\nvariable = \"B\"", "several sources"),
            ("url = \"http://p.example:1\"\npassword = \"x\"", "unknown field `password`"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(needle), "{text}: {error}");
        }
    }

    #[test]
    fn audit_lines_go_to_a_file_if_one_is_named() {
        let audit = |text: &str| parse(text).map(|settings| settings.audit);
        assert_eq!(audit("").unwrap(), None);
        let path = PathBuf::from("/var/lib/understudy/audit.jsonl");
        let file = AuditFile { path, max_size: 64 << 20, keep: 8, sync: Sync::Never };
        let table = "[audit]\nfile = \"/var/lib/understudy/audit.jsonl\"\n";
        assert_eq!(audit(table).unwrap(), Some(file.clone()));
        let more = format!("{table}max-size = \"1M\"\nkeep = 0\nsync = \"write\"\n");
        let expected = AuditFile { max_size: 1 << 20, keep: 0, sync: Sync::Write, ..file };
        assert_eq!(audit(&more).unwrap(), Some(expected));
        for (wrong, said) in [
            ("file = \"audit.jsonl\"".to_owned(), "audit.file: expected the absolute path"),
            ("file = \"/\"".to_owned(), "audit.file: "),
            ("max-size = \"1M\"".to_owned(), "missing field `file`"),
            (format!("{}max-size = \"1\"", &table[8..]), "audit.max-size: at least"),
            (format!("{}max-size = \"1T\"", &table[8..]), "audit.max-size: write a size"),
            (format!("{}keep = 1001", &table[8..]), "audit.keep: 1000"),
            (format!("{}sync = \"often\"", &table[8..]), "unknown variant"),
            (format!("{}other = 1", &table[8..]), "unknown field"),
        ] {
            let error = audit(&format!("[audit]\n{wrong}\n")).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn metrics_are_off_and_on_loopback_if_nothing_else_is_said() {
        let metrics = |text: &str| parse(text).map(|settings| settings.metrics);
        assert_eq!(metrics("").unwrap(), None);
        assert_eq!(metrics("metrics = 9464").unwrap(), Some("127.0.0.1:9464".parse().unwrap()));
        for address in ["10.0.0.5:9464", "0.0.0.0:9464", "[::1]:9464"] {
            let found = metrics(&format!("metrics = {address:?}")).unwrap();
            assert_eq!(found, Some(address.parse().unwrap()));
        }
        for wrong in ["0", "\"127.0.0.1:0\"", "\"9464\"", "\"localhost:9464\"", "\":9464\"", "true"] {
            assert!(metrics(&format!("metrics = {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_is_published_but_by_the_ports_that_are_said() {
        let publish = |text: &str| parse(text).map(|settings| settings.publish);
        assert_eq!(publish("").unwrap(), Ports::default());
        for text in
            ["3000", "\"3000\"", "\"2999-3001\"", "[3000]", "[\"1-2\", 3000]", "[\"2999-3001\", 8080]"]
        {
            let ports = publish(&format!("publish = {text}")).unwrap();
            assert!(ports.contain(3000) && !ports.contain(3002), "{text}");
        }
        for wrong in ["0", "\"0\"", "\"3001-3000\"", "true", "[\"http\"]", "70000"] {
            assert!(publish(&format!("publish = {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place_and_key() {
        for (text, said) in [
            ("synthetic-range = \"28.0.0.0/24\"", "sidecar.toml:1:1: synthetic-range: "),
            (
                "[names]\n\"a.example\" = \"localhost\"",
                "sidecar.toml:2:15: names.a.example: \"localhost\" is not",
            ),
            (
                "[names]\n\"a.example\" = [\n  \"10.0.0.1\",\n  \"10.0.0.1:0\",\n]",
                "sidecar.toml:4:3: names.a.example: \"10.0.0.1:0\" is not",
            ),
            ("[names]\n\"a.example\" = []", "sidecar.toml:2:1: names.a.example: at least one"),
            ("[names]\n\"127.0.0.1\" = \"10.0.0.1\"", "sidecar.toml:2:1: names.127.0.0.1: "),
            ("resolvers = [\"::1\",\n\"dns\"]", "sidecar.toml:2:1: resolvers: \"dns\" is not"),
            ("[audit]\nfile = \"x\"", "sidecar.toml:2:1: audit.file: "),
            ("\n[upstream-proxy]\nurl = \"https://x\"", "sidecar.toml:3:1: upstream-proxy.url: "),
            ("metrics = \"9464\"", "sidecar.toml:1:1: metrics: "),
            ("publish = \"0\"", "sidecar.toml:1:1: publish: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(said), "{text}: {error}");
        }
        assert!(parse("extra-cas = []").unwrap_err().contains("unknown field `extra-cas`"));
    }

    #[test]
    fn no_file_is_an_empty_one_and_an_unreadable_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Settings::load(&dir.path().join("none")).unwrap(), Settings::default());
        assert!(Settings::load(dir.path()).is_err());
    }
}
