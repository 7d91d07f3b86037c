//! Whether a login file that is in the container already holds anything but stand-ins.

use std::fmt;

use serde_json::Value;
use understudy_policies::unique::{self, NotUnique};

/// Pointers that are none of JSON's: lines `KEY=value`, lines `KEY: value`, and lines that are URLs with a password.
const ENVIRONMENT: &str = "env:";
const YAML: &str = "yaml:";
const URL: &str = "url";
/// Lines of libpq's file of passwords (PostgreSQL's manual, "The Password File").
const PGPASS: &str = "pgpass";
/// What follows `password` and `account` in a file that curl and git read (curl's manual, "netrc").
const NETRC: &str = "netrc";
/// The whole file is a private key (PEM, RFC 7468), compared without its frame and its line breaks.
const PRIVATE_KEY: &str = "private-key";

/// Where a credential is; never the credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoginError {
    Credential { pointer: String },
    NotJson { line: usize },
    Twice { line: usize },
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credential { pointer } => {
                write!(f, "a credential that is not a stand-in at {pointer}")?;
            }
            Self::NotJson { line } => write!(f, "not JSON (line {line}), so it cannot be checked")?,
            Self::Twice { line } => {
                write!(
                    f,
                    "a member is named twice (line {line}), and which of the two is read is not known"
                )?;
            }
        }
        f.write_str("\na real login must not be in the container: remove the file from the image, volume or mount; the sidecar keeps the real one")
    }
}

impl std::error::Error for LoginError {}

/// `pointers` are JSON pointers (RFC 6901) in which a segment `*` stands for every member, or those of lines. Any string
/// at or below such a place must be empty or one of `stand_ins`.
pub(crate) fn check(content: &[u8], pointers: &[String], stand_ins: &[String]) -> Result<(), LoginError> {
    if content.trim_ascii().is_empty() {
        return Ok(());
    }
    let fine = |value: &str| {
        value.is_empty() || stand_ins.iter().any(|stand_in| stand_in == value || is_in_frame(value, stand_in))
    };
    let text = String::from_utf8_lossy(content);
    let (lines, pointers): (Vec<&String>, Vec<_>) =
        pointers.iter().partition(|pointer| values(&text, pointer).is_some());
    for pointer in lines {
        if !values(&text, pointer).unwrap_or_default().into_iter().all(fine) {
            return Err(LoginError::Credential { pointer: pointer.clone() });
        }
    }
    if pointers.is_empty() {
        return Ok(());
    }
    let json = unique::parse(content).map_err(|error| match error {
        NotUnique::Twice(line) => LoginError::Twice { line },
        NotUnique::Truncated(line) | NotUnique::NotJson(line) => LoginError::NotJson { line },
    })?;
    for pointer in pointers {
        let segments: Vec<String> =
            pointer.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect();
        if !at(&json, &segments).into_iter().all(|value| strings_are(value, &fine)) {
            return Err(LoginError::Credential { pointer: pointer.clone() });
        }
    }
    Ok(())
}

/// All that `segments` lead to.
fn at<'a>(value: &'a Value, segments: &[String]) -> Vec<&'a Value> {
    let Some((first, rest)) = segments.split_first() else { return vec![value] };
    let below: Vec<&Value> = match (value, first.as_str()) {
        (Value::Object(object), "*") => object.values().collect(),
        (Value::Array(array), "*") => array.iter().collect(),
        (Value::Object(object), key) => object.get(key).into_iter().collect(),
        (Value::Array(array), index) => {
            index.parse().ok().and_then(|i: usize| array.get(i)).into_iter().collect()
        }
        _ => Vec::new(),
    };
    below.into_iter().flat_map(|value| at(value, rest)).collect()
}

/// Not the place alone, but all below it: a client that once kept a string there may keep an object now.
fn strings_are(value: &Value, fine: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => fine(text),
        Value::Array(array) => array.iter().all(|value| strings_are(value, fine)),
        Value::Object(object) => object.values().all(|value| strings_are(value, fine)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Whether `text` is a private key and nothing else, and that is `key`.
fn is_in_frame(text: &str, key: &str) -> bool {
    let Some(framed) = text.strip_prefix("-----BEGIN OPENSSH PRIVATE KEY-----") else { return false };
    let Some(body) = framed.strip_suffix("-----END OPENSSH PRIVATE KEY-----") else { return false };
    body.bytes().filter(|byte| !byte.is_ascii_whitespace()).eq(key.bytes())
}

/// What a pointer that is none of JSON's leads to; None if it is one of JSON's.
fn values<'a>(text: &'a str, pointer: &str) -> Option<Vec<&'a str>> {
    if pointer == PRIVATE_KEY {
        return Some(vec![text.trim()]);
    }
    if pointer == URL {
        return Some(text.lines().filter_map(password).collect());
    }
    if pointer == NETRC {
        return Some(of_netrc(text));
    }
    if pointer == PGPASS {
        return Some(text.lines().filter_map(of_pgpass).collect());
    }
    let (key, separator) = match (pointer.strip_prefix(ENVIRONMENT), pointer.strip_prefix(YAML)) {
        (Some(key), _) => (key, '='),
        (None, Some(key)) => (key, ':'),
        (None, None) => return None,
    };
    let value = |line: &'a str| {
        let line = line.trim_start().trim_start_matches("- ");
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once(separator)?;
        (unquoted(name.trim()) == key).then(|| unquoted(value.trim()))
    };
    Some(text.lines().filter_map(value).collect())
}

/// Of `scheme://user:password@host`. With no password the user may be the credential; what is encoded is taken as it is,
/// and is then no stand-in.
fn password(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("://")?;
    let (user, _) = rest.split('/').next()?.rsplit_once('@')?;
    Some(user.split_once(':').map_or(user, |(_, password)| password))
}

/// Of `host:port:database:user:password`, in which a backslash takes its meaning from the sign that follows. What is escaped
/// in a password is taken as it is, and is then no stand-in.
fn of_pgpass(line: &str) -> Option<&str> {
    if line.starts_with('#') {
        return None;
    }
    let mut escaped = false;
    let is_separator = |sign: char| {
        let taken = escaped;
        escaped = sign == '\\' && !taken;
        sign == ':' && !taken
    };
    line.splitn(5, is_separator).nth(4)
}

/// One in quotes is taken as it is, and is then no stand-in.
fn of_netrc(text: &str) -> Vec<&str> {
    let mut words = text.split_whitespace();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if matches!(word, "password" | "account") {
            found.extend(words.next());
        }
    }
    found
}

fn unquoted(value: &str) -> &str {
    ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(content: &str, pointers: &[&str]) -> Result<(), LoginError> {
        let pointers: Vec<String> = pointers.iter().map(|&pointer| pointer.to_owned()).collect();
        check(content.as_bytes(), &pointers, &["sk-stand-in".to_owned(), "other".to_owned()])
    }

    #[test]
    fn stand_ins_empty_and_absent_ones_pass() {
        for content in [
            "",
            " \n",
            "{}",
            r#"{"oauth":{"token":"sk-stand-in"}}"#,
            r#"{"oauth":{"token":""}}"#,
            r#"{"oauth":{"token":null,"expires":5}}"#,
            r#"{"oauth":"x","name":"free text"}"#,
        ] {
            verdict(content, &["/oauth/token"]).unwrap();
        }
    }

    #[test]
    fn a_real_one_is_named_by_its_place_and_never_printed() {
        for (content, pointer) in [
            (r#"{"oauth":{"token":"sk-real"}}"#, "/oauth/token"),
            (r#"{"oauth":{"token":"sk-stand-in "}}"#, "/oauth/token"),
            (r#"{"oauth":{"token":{"value":["sk-real"]}}}"#, "/oauth/token"),
            (r#"{"a":{"key":"other"},"b":{"key":"sk-real"}}"#, "/*/key"),
            (r#"[{"key":"sk-real"}]"#, "/*/key"),
            (r#"[{"key":"sk-real"}]"#, "/0/key"),
            (r#"{"a/b":"sk-real"}"#, "/a~1b"),
            (r#""sk-real""#, ""),
        ] {
            let error = verdict(content, &["/none", pointer]).unwrap_err();
            assert_eq!(error, LoginError::Credential { pointer: pointer.to_owned() }, "{content}");
            assert!(!error.to_string().contains("sk-real"));
        }
    }

    #[test]
    fn what_cannot_be_parsed_is_refused() {
        assert_eq!(verdict("{\n token: sk-real", &["/token"]), Err(LoginError::NotJson { line: 2 }));
        assert!(verdict("\u{feff}{}", &["/token"]).is_err());
        let twice = "{\"token\": \"sk-real\",\n\"token\": \"other\"}";
        assert_eq!(verdict(twice, &["/token"]), Err(LoginError::Twice { line: 2 }));
    }

    #[test]
    fn lines_of_yaml_and_urls_are_understood() {
        for (fine, pointer) in [
            ("github.com:\n    oauth_token: sk-stand-in\n    user: me\n", "yaml:oauth_token"),
            ("- 'oauth_token': \"other\"", "yaml:oauth_token"),
            ("https://me:sk-stand-in@github.com\n# note\n", "url"),
            ("https://github.com/a@b\n", "url"),
        ] {
            verdict(fine, &[pointer]).unwrap();
        }
        for (real, pointer) in [
            ("github.com:\n    users:\n        me:\n            oauth_token: sk-real\n", "yaml:oauth_token"),
            ("\"oauth_token\": sk-real", "yaml:oauth_token"),
            ("https://me:sk-real@github.com", "url"),
            ("https://sk-real@github.com", "url"),
            ("https://me:sk-stand-in@a.example\nhttps://me:sk-real@b.example", "url"),
        ] {
            assert!(verdict(real, &[pointer]).is_err(), "{real}");
        }
    }

    #[test]
    fn a_private_key_is_a_stand_in_or_a_credential() {
        let framed = |body: &str| {
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
        };
        for fine in ["", "\n", &framed("sk-st\nand-in"), &framed("other")] {
            verdict(fine, &["private-key"]).unwrap();
        }
        for real in [&framed("sk-real"), "sk-real", &(framed("other") + &framed("sk-real")), &framed("")] {
            let error = verdict(real, &["private-key"]).unwrap_err();
            assert_eq!(error, LoginError::Credential { pointer: "private-key".to_owned() }, "{real}");
        }
    }

    #[test]
    fn passwords_of_netrc_files_are_understood() {
        for fine in [
            "",
            "machine a.example login me password sk-stand-in\n",
            "machine a.example\n  login me\n  password\n other",
        ] {
            verdict(fine, &["netrc"]).unwrap();
        }
        for real in [
            "machine a.example login me password sk-real",
            "machine a.example password other\ndefault\npassword sk-real\n",
            "machine a.example login me account sk-real",
            "default password \"sk-stand-in\"",
        ] {
            assert!(verdict(real, &["netrc"]).is_err(), "{real}");
        }
    }

    #[test]
    fn lines_of_password_files_are_understood() {
        for fine in [
            "",
            "db.example:5432:*:app:sk-stand-in\n*:*:*:*:other\r\n",
            "# host:port:database:user:sk-real\nno password here\n",
            r"a\:b\\:5432:*:app:other",
            "db.example:5432:*:app:",
        ] {
            verdict(fine, &["pgpass"]).unwrap();
        }
        for real in [
            "db.example:5432:*:app:sk-real",
            "db.example:5432:*:app:sk-stand-in\nb.example:5432:*:app:sk-real:and:more\n",
            r"a\:b:5432:*:app:sk-real",
            r"a\\:5432:*:app:sk-real",
            r"db.example:5432:*:app:sk-stand\-in",
            "::::sk-real",
            " # x:5432:*:app:sk-real",
        ] {
            let error = verdict(real, &["pgpass"]).unwrap_err();
            assert_eq!(error, LoginError::Credential { pointer: "pgpass".to_owned() }, "{real}");
        }
    }

    #[test]
    fn lines_of_variables_are_understood() {
        for fine in
            ["KEY=sk-stand-in", "export KEY='other'\n", "KEY=\"\"", "# KEY=sk-real", "OTHER=sk-real\nKEY="]
        {
            verdict(fine, &["env:KEY"]).unwrap();
        }
        for real in [
            "KEY=sk-real",
            "A=1\n export KEY = \"sk-real\"",
            "KEY=other\nKEY=sk-real",
            "KEY=\"other",
            "KEY=other\r\nKEY=x\r\n",
        ] {
            assert!(verdict(real, &["env:KEY"]).is_err(), "{real}");
        }
    }
}
