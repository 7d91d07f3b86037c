//! What a provider answers to a program that logs in for a key. Pure.

use serde_json::{Map, Value};

use super::record::Token;
use super::token::{self, MOST, Refused};
use crate::credentials::SecretValue;
use crate::credentials::catalogue::KeyLogin;

/// A key.
pub(super) struct Answer {
    pub(super) key: Token,
    /// What else was said, and is no credential.
    pub(super) said: Map<String, Value>,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyError {
    #[error("{0}")]
    Refused(Refused),
    #[error(
        "the provider's answer has a field `{0}` that looks like a credential and is not known; the operator can add it to `harmless` of the login in the catalogue"
    )]
    Undeclared(String),
    #[error("the provider's answer has no `{0}` that can be used")]
    NoKey(String),
}

/// Some say with status 200 that there is none yet.
pub(super) fn answer(login: &KeyLogin, status: u16, body: &[u8]) -> Result<Answer, KeyError> {
    let refused = |refused| Err(KeyError::Refused(refused));
    if body.len() > MOST {
        return refused(Refused::TooLarge);
    }
    let object = match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    };
    let code = object.as_ref().and_then(token::code);
    match (status, object, code) {
        (300..400, ..) => refused(Refused::Redirect(status)),
        (200..300, Some(object), None) => read(login, object),
        (200..300, None, _) => refused(Refused::NotJson),
        (_, _, Some(code)) => refused(Refused::Code { status, code }),
        (_, _, None) => refused(Refused::Status(status)),
    }
}

fn read(login: &KeyLogin, mut said: Map<String, Value>) -> Result<Answer, KeyError> {
    let key = match said.remove(&login.field) {
        Some(Value::String(text)) if SecretValue::from_bytes(text.as_bytes()).is_ok() => Token::new(text),
        _ => return Err(KeyError::NoKey(login.field.clone())),
    };
    // The type of a token is none (RFC 6749 section 7.1).
    let harmless = |name: &String| name == "token_type" || login.harmless.contains(name);
    let mut unknown = said.iter().filter(|(name, _)| !harmless(name));
    if let Some(field) = unknown.find_map(|(name, value)| token::looks_like_a_token(name, value)) {
        return Err(KeyError::Undeclared(field));
    }
    Ok(Answer { key, said })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Catalogue;

    fn login() -> KeyLogin {
        let catalogue = Catalogue::new([]).unwrap();
        let kind = catalogue.kind("github-app-token").unwrap();
        kind.logins.iter().find(|login| login.name == "gh").unwrap().clone()
    }

    #[test]
    fn a_key_is_taken_out_of_what_is_said() {
        let body = br#"{"access_token":"gho_0123456789abcdef","token_type":"bearer","scope":"repo,gist"}"#;
        let answer = answer(&login(), 200, body).ok().unwrap();
        assert_eq!(answer.key.expose(), "gho_0123456789abcdef");
        assert_eq!(
            Value::Object(answer.said),
            serde_json::json!({"token_type": "bearer", "scope": "repo,gist"})
        );
    }

    #[test]
    fn what_is_no_key_is_told_by_the_providers_word_alone() {
        let code = |status, code: &str| KeyError::Refused(Refused::Code { status, code: code.to_owned() });
        for (status, body, expected) in [
            (200, r#"{"error":"authorization_pending","interval":5}"#, code(200, "authorization_pending")),
            (403, r#"{"error":"access_denied"}"#, code(403, "access_denied")),
            (200, "<html>", KeyError::Refused(Refused::NotJson)),
            (302, "", KeyError::Refused(Refused::Redirect(302))),
            (500, "gho_0123456789abcdef", KeyError::Refused(Refused::Status(500))),
            (200, "{}", KeyError::NoKey("access_token".to_owned())),
            (200, r#"{"access_token":7}"#, KeyError::NoKey("access_token".to_owned())),
            (
                200,
                r#"{"access_token":"gho_0123456789abcdef","refresh_token":"ghr_0123456789abcdef"}"#,
                KeyError::Undeclared("refresh_token".to_owned()),
            ),
        ] {
            assert_eq!(answer(&login(), status, body.as_bytes()).err(), Some(expected), "{body}");
        }
        let large = vec![b' '; MOST + 1];
        assert_eq!(answer(&login(), 200, &large).err(), Some(KeyError::Refused(Refused::TooLarge)));
    }
}
