//! Endpoints that create or store credentials, and whether a request is for one of them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::{HeaderName, Method};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use understudy_policies::document::closest;
use understudy_policies::{HostName, HostPattern};

/// What is created, or given to somebody else to keep: the word that `minting` in `secrets.toml` allows it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Creates {
    ApiKey,
    /// A personal access token, or one of a project or group.
    Pat,
    DeployKey,
    /// A key of an account, to log in or to sign with.
    SshKey,
    OauthApp,
    /// It sends what happens to an address of the caller's choice.
    Webhook,
    /// A short-lived credential.
    Sts,
    /// A credential that jobs of a CI service can read.
    CiSecret,
    /// Rights for another account.
    Invite,
    /// A machine that runs jobs of a CI service.
    Runner,
}

impl Creates {
    pub const ALL: [Self; 10] = [
        Self::ApiKey,
        Self::Pat,
        Self::DeployKey,
        Self::SshKey,
        Self::OauthApp,
        Self::Webhook,
        Self::Sts,
        Self::CiSecret,
        Self::Invite,
        Self::Runner,
    ];

    /// As it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApiKey => "api-key",
            Self::Pat => "pat",
            Self::DeployKey => "deploy-key",
            Self::SshKey => "ssh-key",
            Self::OauthApp => "oauth-app",
            Self::Webhook => "webhook",
            Self::Sts => "sts",
            Self::CiSecret => "ci-secret",
            Self::Invite => "invite",
            Self::Runner => "runner",
        }
    }

    /// Ends the sentence "it creates …".
    pub fn phrase(self) -> &'static str {
        match self {
            Self::ApiKey => "an API key",
            Self::Pat => "an access token",
            Self::DeployKey => "a deploy key",
            Self::SshKey => "a key of the account",
            Self::OauthApp => "an OAuth application",
            Self::Webhook => "a webhook",
            Self::Sts => "a short-lived credential",
            Self::CiSecret => "a secret or variable of a CI service",
            Self::Invite => "rights for another account",
            Self::Runner => "a runner of a CI service",
        }
    }
}

impl FromStr for Creates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|creates| creates.name() == text).ok_or_else(|| {
            match closest(text, Self::ALL.map(Self::name)) {
                Some(meant) => format!("unknown value; did you mean `{meant}`?"),
                None => format!("unknown value; known are: {}", Self::ALL.map(Self::name).join(", ")),
            }
        })
    }
}

/// An endpoint of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The name of the provider.
    pub provider: String,
    /// Empty: the hosts of the provider, and those of secrets that are like one of its kinds.
    pub hosts: Vec<HostPattern>,
    /// Empty: all.
    pub methods: Vec<Method>,
    pub path: EndpointPath,
    pub creates: Creates,
    /// Whether the provider's documentation says so.
    pub confirmed: bool,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        if !methods.is_empty() {
            write!(f, "{} ", methods.join("|"))?;
        }
        self.path.fmt(f)
    }
}

/// `/repos/*/*/keys`: `*` is one segment, `**` at the end any number of them. Letter case does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointPath {
    text: String,
    /// In lower case.
    segments: Vec<String>,
}

impl EndpointPath {
    /// Whether any of the ways in which servers read `path` (without a query) leads here.
    pub fn matches(&self, readings: &Readings) -> bool {
        readings.0.iter().any(|path| matched(&self.segments, path))
    }
}

fn matched(pattern: &[String], path: &[String]) -> bool {
    match (pattern.split_first(), path.split_first()) {
        (Some((rest, _)), _) if rest == "**" => true,
        (None, None) => true,
        (Some((segment, [])), Some((text, []))) => segment == "*" || bare(segment) == bare(text),
        (Some((segment, pattern)), Some((text, path))) => {
            (segment == "*" || segment == text) && matched(pattern, path)
        }
        _ => false,
    }
}

/// Frameworks take what the last segment ends with for the format of the answer, and need none of them.
const FORMATS: [&str; 6] = [".json", ".xml", ".html", ".js", ".txt", ".yaml"];

fn bare(segment: &str) -> &str {
    FORMATS.iter().find_map(|format| segment.strip_suffix(format)).unwrap_or(segment)
}

impl FromStr for EndpointPath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let path = text.strip_prefix('/').ok_or("a path starts with `/`, as `/v1/keys`")?;
        let segments: Vec<&str> = path.split('/').collect();
        let plain = |text: &str| {
            !matches!(text, "" | "." | "..")
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()+,=:@".contains(&b))
        };
        let last = segments.len() - 1;
        let valid = |(place, text): (usize, &&str)| match *text {
            "*" => true,
            "**" => place == last,
            text => plain(text),
        };
        if !segments.iter().enumerate().all(valid) {
            return Err(
                "a path has plain words between its slashes, `*` for a whole segment, and `**` only at its end",
            );
        }
        let segments = segments.into_iter().map(str::to_ascii_lowercase).collect();
        Ok(Self { text: text.to_owned(), segments })
    }
}

impl fmt::Display for EndpointPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The segments of a path, in every way that a server may read it: percent-encoding undone before or after it is
/// divided, also more than once; `.` and `..` followed; parameters, empty segments, suffixes for formats, and letter case left out.
#[derive(Debug, Clone)]
pub struct Readings(Vec<Vec<String>>);

/// How often percent-encoding is undone.
const DECODINGS: usize = 3;

impl Readings {
    pub fn of(path: &str) -> Self {
        let mut readings = Vec::new();
        let mut text = path.to_owned();
        for _ in 0..=DECODINGS {
            let divided = segments(&text);
            let within = divided.iter().map(|segment| decoded(segment)).collect();
            for reading in [divided, within] {
                for reading in [without_dots(&reading), reading] {
                    if !readings.contains(&reading) {
                        readings.push(reading);
                    }
                }
            }
            let next = decoded(&text);
            if next == text {
                break;
            }
            text = next;
        }
        Self(readings)
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().to_ascii_lowercase()
}

fn segments(path: &str) -> Vec<String> {
    let path = path.to_ascii_lowercase().replace('\\', "/");
    let bare = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    bare.filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

fn without_dots(segments: &[String]) -> Vec<String> {
    let mut path: Vec<String> = Vec::new();
    for segment in segments {
        match segment.as_str() {
            "." => {}
            ".." => drop(path.pop()),
            segment => path.push(segment.to_owned()),
        }
    }
    path
}

/// The methods that a server may take the request for: some ignore letter case, some frameworks believe a header.
pub fn methods(method: &Method, headers: &http::HeaderMap) -> Vec<Method> {
    let upper = |bytes: &[u8]| Method::from_bytes(bytes.trim_ascii().to_ascii_uppercase().as_slice()).ok();
    let said = headers.iter().filter(|(name, _)| METHOD_HEADERS.contains(&dashed(name).as_ref()));
    let named = said.filter_map(|(_, value)| upper(value.as_bytes()));
    upper(method.as_str().as_bytes()).into_iter().chain(named).collect()
}

const METHOD_HEADERS: [&str; 3] = ["x-http-method-override", "x-http-method", "x-method-override"];

/// As servers read a header's name that hand headers on as variables (RFC 3875 section 4.1.18).
pub fn dashed(name: &HeaderName) -> Cow<'_, str> {
    let name = name.as_str();
    if name.contains('_') { name.replace('_', "-").into() } else { name.into() }
}

/// Whether `host` is one of `hosts`; without any, `own` says it.
pub(super) fn is_among(hosts: &[HostPattern], host: &HostName, own: bool) -> bool {
    if hosts.is_empty() { own } else { hosts.iter().any(|pattern| pattern.matches(host)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_found_in_whatever_way_it_is_written() {
        let keys: EndpointPath = "/repos/*/*/keys".parse().unwrap();
        for (path, expected) in [
            ("/repos/o/r/keys", true),
            ("/repos/o/r/keys/", true),
            ("/REPOS/o/r/Keys", true),
            ("//repos//o/r/keys", true),
            ("/repos/o/r/%6beys", true),
            ("/repos/o/r/%256beys", true),
            ("/repos/o/r%2Fkeys", true),
            ("/repos%2fo%2fr%2fkeys", true),
            ("/x/../repos/o/r/./keys", true),
            ("/x/%2e%2e/repos/o/r/keys", true),
            ("/x%2f..%2frepos/o/r/keys", true),
            ("/repos/o/r/keys;a=b", true),
            ("/repos\\o\\r\\keys", true),
            ("/repos/o/r/keys.json", true),
            ("/repos/o/r/keys%2EXML/", true),
            ("/repos/o/r/keys.", false),
            ("/repos/o/r/keys.jsonp", false),
            ("/repos.json/o/r/keys", false),
            ("/repos/o/a%2Fr/keys", true),
            ("/repos/o/r/keys/1", false),
            ("/repos/o/r", false),
            ("/repos/o/r/pulls", false),
            ("/", false),
            ("", false),
        ] {
            assert_eq!(keys.matches(&Readings::of(path)), expected, "{path}");
        }
        let hooks: EndpointPath = "/admin/webhooks.json".parse().unwrap();
        assert!(hooks.matches(&Readings::of("/admin/webhooks")));
        let rest: EndpointPath = "/admin/**".parse().unwrap();
        assert!(rest.matches(&Readings::of("/admin/a/b")) && rest.matches(&Readings::of("/admin")));
        assert!(!rest.matches(&Readings::of("/administrators")));
    }

    #[test]
    fn a_method_in_a_header_counts_too() {
        let mut headers = http::HeaderMap::new();
        headers.insert("x-http-method-override", "put".parse().unwrap());
        assert_eq!(methods(&Method::POST, &headers), [Method::POST, Method::PUT]);
        let mut headers = http::HeaderMap::new();
        headers.insert("x_http_method_override", "put".parse().unwrap());
        assert_eq!(methods(&"post".parse().unwrap(), &headers), [Method::POST, Method::PUT]);
    }

    #[test]
    fn what_is_no_path_is_an_error() {
        for text in ["", "repos", "/a//b", "/**/a", "/v*", "/a?b", "/a b", "/../a", "/"] {
            assert!(text.parse::<EndpointPath>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_word_of_a_switch_is_known_and_others_are_corrected() {
        for creates in Creates::ALL {
            assert_eq!(creates.name().parse(), Ok(creates));
            let quoted = format!("\"{}\"", creates.name());
            assert_eq!(serde_json::from_str::<Creates>(&quoted).unwrap(), creates);
        }
        assert!("webhok".parse::<Creates>().unwrap_err().contains("did you mean `webhook`?"));
    }

    proptest! {
        #[test]
        fn encoding_letters_hides_nothing(
            path in Just("/api/v4/user/keys"), encode in proptest::collection::vec(any::<bool>(), 20),
        ) {
            let keys: EndpointPath = "/api/v4/user/keys".parse().unwrap();
            let written: String = path.bytes().zip(encode).map(|(b, encode)| {
                if encode { format!("%{b:02x}") } else { char::from(b).to_string() }
            }).collect();
            prop_assert!(keys.matches(&Readings::of(&written)), "{}", written);
        }

        #[test]
        fn nothing_makes_it_panic(path in "\\PC{0,60}") {
            Readings::of(&path);
        }
    }
}
