//! Where a credential may stand in a request, and the words for it: in `secrets.toml`, in the catalogue, in messages.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use http::header::AUTHORIZATION;
use understudy_policies::{PathPattern, PathPatternError};

use super::path_template::{PathTemplate, PathTemplateError};

/// Written as its `Display`; parsing and showing are inverse to each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// `header x-api-key`: the value is the credential. `header authorization Bearer`: a scheme, white space, the
    /// credential (RFC 9110 section 11.4). A name in `-bin` holds Base64, as gRPC's metadata does.
    Header { name: HeaderName, scheme: Option<String> },
    /// `basic user`, `basic password`: a half of `Authorization: Basic` (RFC 7617).
    Basic(BasicHalf),
    /// `cookie NAME`: the value of one cookie (RFC 6265 section 4.2).
    Cookie(String),
    /// `query KEY`: the value of a parameter of the query, its key decoded.
    Query(String),
    /// `path /bot{}/**`: a part of one segment.
    Path(PathTemplate),
    /// `form PATH FIELD`: a field of a body of the type `application/x-www-form-urlencoded`.
    Form { path: PathPattern, field: String },
    /// `json PATH POINTER`: a string in a JSON body (RFC 6901).
    Json { path: PathPattern, pointer: Pointer },
    /// `multipart PATH FIELD`: a field of a body of the type `multipart/form-data` (RFC 7578).
    Multipart { path: PathPattern, field: String },
    /// `websocket-protocol PREFIX`: what follows the prefix in an item of `Sec-WebSocket-Protocol`.
    WebSocketProtocol { prefix: String },
    /// `websocket-text`: text messages of a WebSocket.
    WebSocketText,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BasicHalf {
    User,
    Password,
}

/// A JSON pointer to a member of objects or an item of arrays (RFC 6901); never the whole document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// Unescaped.
    pub fn tokens(&self) -> &[String] {
        &self.0
    }
}

// What was written is not quoted: people paste credentials into the wrong line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error(
        "not a placement; write one of `header NAME`, `header NAME SCHEME`, `basic user`, `basic password`, `cookie NAME`, `query KEY`, `path TEMPLATE`, `form PATH FIELD`, `json PATH POINTER`, `multipart PATH FIELD`, `websocket-protocol PREFIX`, `websocket-text`"
    )]
    Kind,
    #[error("this placement is written as `{0}`")]
    Form(&'static str),
    #[error("not the name of a header; as `header x-api-key` or `header authorization Bearer`")]
    Header,
    #[error("`{0}` says something about the connection or the message, so no credential can stand in it")]
    Connection(HeaderName),
    #[error("several values stand in that header; write `{0}` for one of them")]
    List(&'static str),
    #[error("not a scheme; write one word and no credential, as `header authorization Bearer`")]
    Scheme,
    #[error("what Basic holds is encoded; write `basic user` or `basic password`")]
    Basic,
    #[error("not the name of a cookie; as `cookie session`")]
    Cookie,
    #[error("not a key: 1 to 64 ASCII characters without white space and `&=%+#`, as the server reads it")]
    Key,
    #[error("not a JSON pointer; as `/client_secret` or `/auth/0/key`, with `~0` for `~` and `~1` for `/`")]
    Pointer,
    #[error("not the start of an item of Sec-WebSocket-Protocol; as `websocket-protocol api-key.`")]
    Protocol,
    #[error(transparent)]
    Path(#[from] PathPatternError),
    #[error(transparent)]
    Template(#[from] PathTemplateError),
}

/// Headers that proxies change or take off (RFC 9110 section 7.6.1), those that frame the message, and those that are
/// not sent beside a credential. So are all that start with `proxy-`.
const NOT_FOR_CREDENTIALS: [&str; 12] = [
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "if-range",
    "keep-alive",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The most characters of a name, key or field.
const LONGEST_NAME: usize = 64;

impl Placement {
    /// `Authorization: Bearer` (RFC 6750 section 2.1).
    pub fn bearer() -> Self {
        Self::Header { name: AUTHORIZATION, scheme: Some("Bearer".to_owned()) }
    }

    /// The header that is for the credential alone, if there is one.
    pub fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Header { name, .. } => Some(name),
            Self::Basic(_) => Some(&AUTHORIZATION),
            _ => None,
        }
    }
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match *words.as_slice() {
            ["header", name] => header(name, None),
            ["header", name, scheme] => header(name, Some(scheme)),
            ["header", ..] => Err(PlacementError::Header),
            ["basic", "user"] => Ok(Self::Basic(BasicHalf::User)),
            ["basic", "password"] => Ok(Self::Basic(BasicHalf::Password)),
            ["basic", ..] => Err(PlacementError::Form("basic user` or `basic password")),
            ["cookie", name] if is_name(name, token) => Ok(Self::Cookie(name.to_owned())),
            ["cookie", ..] => Err(PlacementError::Cookie),
            ["query", name] => Ok(Self::Query(key(name)?)),
            ["query", ..] => Err(PlacementError::Form("query KEY")),
            ["path", template] => Ok(Self::Path(template.parse()?)),
            ["path", ..] => Err(PlacementError::Form("path /bot{}/**")),
            ["form", path, field] => Ok(Self::Form { path: path.parse()?, field: key(field)? }),
            ["form", ..] => Err(PlacementError::Form("form PATH FIELD")),
            ["json", path, pointer] => Ok(Self::Json { path: path.parse()?, pointer: pointer.parse()? }),
            ["json", ..] => Err(PlacementError::Form("json PATH POINTER")),
            ["multipart", path, field] => Ok(Self::Multipart { path: path.parse()?, field: key(field)? }),
            ["multipart", ..] => Err(PlacementError::Form("multipart PATH FIELD")),
            ["websocket-protocol"] => Ok(Self::WebSocketProtocol { prefix: String::new() }),
            ["websocket-protocol", prefix] if is_name(prefix, token) => {
                Ok(Self::WebSocketProtocol { prefix: prefix.to_owned() })
            }
            ["websocket-protocol", ..] => Err(PlacementError::Protocol),
            ["websocket-text"] => Ok(Self::WebSocketText),
            _ => Err(PlacementError::Kind),
        }
    }
}

fn header(name: &str, scheme: Option<&str>) -> Result<Placement, PlacementError> {
    let name: HeaderName = name.parse().map_err(|_| PlacementError::Header)?;
    match name.as_str() {
        "cookie" => return Err(PlacementError::List("cookie NAME")),
        "sec-websocket-protocol" => return Err(PlacementError::List("websocket-protocol PREFIX")),
        other if NOT_FOR_CREDENTIALS.contains(&other) || other.starts_with("proxy-") => {
            return Err(PlacementError::Connection(name));
        }
        _ => {}
    }
    let Some(scheme) = scheme else { return Ok(Placement::Header { name, scheme: None }) };
    if scheme.eq_ignore_ascii_case("basic") {
        return Err(PlacementError::Basic);
    }
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if scheme.len() > 32 || !scheme.bytes().all(word) {
        return Err(PlacementError::Scheme);
    }
    Ok(Placement::Header { name, scheme: Some(scheme.to_owned()) })
}

fn key(text: &str) -> Result<String, PlacementError> {
    let plain = |b: u8| b.is_ascii_graphic() && !b"&=%+#".contains(&b);
    if is_name(text, plain) { Ok(text.to_owned()) } else { Err(PlacementError::Key) }
}

fn is_name(text: &str, letter: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(letter)
}

/// RFC 9110 section 5.6.2.
pub(super) fn token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

impl FromStr for Pointer {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let unescaped = |token: &str| {
            // `~` stands only before 0 and 1.
            let whole = token.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            let plain = token.bytes().all(|b| b.is_ascii_graphic());
            (whole && plain).then(|| token.replace("~1", "/").replace("~0", "~"))
        };
        let tokens = text.strip_prefix('/').ok_or(PlacementError::Pointer)?.split('/').map(unescaped);
        let tokens: Option<Vec<String>> = tokens.collect();
        let short = |tokens: &Vec<String>| {
            tokens.len() <= LONGEST_NAME && tokens.iter().all(|token| token.len() <= LONGEST_NAME)
        };
        tokens.filter(short).map(Self).ok_or(PlacementError::Pointer)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header { name, scheme: None } => write!(f, "header {name}"),
            Self::Header { name, scheme: Some(scheme) } => write!(f, "header {name} {scheme}"),
            Self::Basic(BasicHalf::User) => f.write_str("basic user"),
            Self::Basic(BasicHalf::Password) => f.write_str("basic password"),
            Self::Cookie(name) => write!(f, "cookie {name}"),
            Self::Query(key) => write!(f, "query {key}"),
            Self::Path(template) => write!(f, "path {template}"),
            Self::Form { path, field } => write!(f, "form {path} {field}"),
            Self::Json { path, pointer } => write!(f, "json {path} {pointer}"),
            Self::Multipart { path, field } => write!(f, "multipart {path} {field}"),
            Self::WebSocketProtocol { prefix } if prefix.is_empty() => f.write_str("websocket-protocol"),
            Self::WebSocketProtocol { prefix } => write!(f, "websocket-protocol {prefix}"),
            Self::WebSocketText => f.write_str("websocket-text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_placement_is_read_as_it_is_shown() {
        for text in [
            "header x-api-key",
            "header authorization Bearer",
            "header x-token-bin",
            "basic user",
            "basic password",
            "cookie __Host-session",
            "query key",
            "query auth[token]",
            "path /bot{}/**",
            "path /a/*/x-{}.json",
            "form /oauth/token client_secret",
            "form /** token",
            "json /oauth/token /client_secret",
            "json /* /auth/0/a~1b~0c",
            "multipart /upload api_key",
            "websocket-protocol",
            "websocket-protocol openai-insecure-api-key.",
            "websocket-text",
        ] {
            assert_eq!(text.parse::<Placement>().map(|placement| placement.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("header  X-Api-Key ".parse::<Placement>().unwrap().to_string(), "header x-api-key");
    }

    #[test]
    fn what_is_no_placement_is_an_error_that_says_how_to_write_it_and_repeats_nothing() {
        let value = "sk-live-0123456789abcdef";
        for (text, said) in [
            ("", "not a placement; write one of `header NAME`"),
            ("x-api-key", "not a placement"),
            ("authorization: Bearer", "not a placement"),
            ("VALUE", "not a placement"),
            ("header", "not the name of a header"),
            ("header VALUE=", "not the name of a header"),
            ("header authorization Bearer VALUE", "not the name of a header"),
            ("header authorization: Bearer", "not the name of a header"),
            ("header h\u{e9}", "not the name of a header"),
            ("header Host", "`host` says something"),
            ("header proxy-authorization", "`proxy-authorization` says something"),
            ("header Transfer-Encoding", "`transfer-encoding` says something"),
            ("header Cookie", "several values stand in that header; write `cookie NAME`"),
            ("header sec-websocket-protocol", "several values stand"),
            ("header authorization VALUE/", "not a scheme"),
            ("header authorization Basic", "what Basic holds is encoded; write `basic user`"),
            ("basic", "this placement is written as `basic user` or `basic password`"),
            ("basic VALUE", "this placement is written as"),
            ("cookie a=VALUE", "not the name of a cookie"),
            ("cookie", "not the name of a cookie"),
            ("query", "this placement is written as `query KEY`"),
            ("query key=VALUE", "not a key"),
            ("query ke%79", "not a key"),
            ("path /bot/**", "exactly one `{}` must mark"),
            ("path VALUE", "exactly one `{}` must mark"),
            ("path", "this placement is written as `path /bot{}/**`"),
            ("form /token", "this placement is written as `form PATH FIELD`"),
            ("form token VALUE", "a path starts with `/`"),
            ("form /a?VALUE field", "a path has no `?`"),
            ("json /token client_secret", "not a JSON pointer"),
            ("json /token /a~2", "not a JSON pointer"),
            ("json /token /a~", "not a JSON pointer"),
            ("json /token", "this placement is written as `json PATH POINTER`"),
            ("multipart /upload", "this placement is written as `multipart PATH FIELD`"),
            ("websocket-protocol a,VALUE", "not the start of an item"),
            ("websocket-text VALUE", "not a placement"),
        ] {
            let error = text.replace("VALUE", value).parse::<Placement>().unwrap_err().to_string();
            assert!(error.starts_with(said), "{text}: {error}");
            assert!(!error.contains("0123456789"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_shown_and_read_again(
            kind in "(header|basic|cookie|query|path|form|json|multipart|websocket-protocol|websocket-text|[a-z]{1,8})",
            rest in "( [!-~]{1,12}){0,3}", slashed in "( /[!-~]{1,12}){0,2}",
        ) {
            for text in [format!("{kind}{rest}"), format!("{kind}{slashed}{rest}")] {
                if let Ok(placement) = text.parse::<Placement>() {
                    prop_assert_eq!(placement.to_string().parse::<Placement>(), Ok(placement));
                }
            }
        }
    }
}
