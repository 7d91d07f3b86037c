use base64::Engine as _;
use base64::prelude::{BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
use serde_json::json;

use super::*;

fn catalogue() -> Catalogue {
    Catalogue::new([]).unwrap()
}

fn jwt_of(claims: &Value, padded: bool) -> String {
    let encode = |value: &Value| match padded {
        true => BASE64_URL_SAFE.encode(value.to_string()),
        false => BASE64_URL_SAFE_NO_PAD.encode(value.to_string()),
    };
    format!("{}.{}.{}", encode(&json!({"alg": "RS256"})), encode(claims), "s".repeat(86))
}

fn codex(padded: bool, exp: u64) -> Value {
    let claims = json!({"exp": exp, "email": "a@b.example", "x": "y"});
    json!({
        "OPENAI_API_KEY": null,
        "tokens": {
            "access_token": jwt_of(&claims, padded), "id_token": jwt_of(&claims, padded),
            "refresh_token": "rt_0123456789abcdefghij", "account_id": "acc-1",
        },
    })
}

fn read_as<'c>(catalogue: &'c Catalogue, name: &str, bytes: &[u8]) -> Result<Login<'c>, ImportError> {
    Format::named(catalogue, name)?.read(bytes)
}

#[test]
fn files_of_each_program_are_read() {
    let catalogue = catalogue();
    for padded in [false, true] {
        let login =
            read_as(&catalogue, "codex", codex(padded, 2_000_000_000).to_string().as_bytes()).unwrap();
        assert_eq!(login.expires(), Some(Millis(2_000_000_000_000)));
        assert_eq!(
            (login.whose().as_deref(), login.identity.as_deref()),
            (Some("a@b.example"), Some("acc-1"))
        );
    }
    let gemini = json!({"access_token": "ya29.0123456789abcdef", "refresh_token": "1//0123456789abcdef",
                        "scope": "a b", "token_type": "Bearer", "expiry_date": 2_000_000_000_000_u64});
    let login = read_as(&catalogue, "gemini", gemini.to_string().as_bytes()).unwrap();
    assert_eq!((login.scopes.len(), login.expires()), (2, Some(Millis(2_000_000_000_000))));
    let opencode = json!({"openai": {"type": "oauth", "access": "at-0123456789abcdef", "refresh": "rt_0123456789abcdef",
                          "expires": 5, "accountId": "acc-1"}});
    let login = read_as(&catalogue, "opencode-openai", opencode.to_string().as_bytes()).unwrap();
    assert_eq!(login.expires(), Some(Millis(5000)));
}

#[test]
fn what_a_file_says_of_itself_cannot_write_on_a_terminal() {
    let catalogue = catalogue();
    let mut file = codex(false, 5);
    let claims = json!({"exp": 5, "email": "a@b.example\u{1b}[2J\u{9b}31m\r\nof\u{202e}you"});
    file["tokens"]["id_token"] = json!(jwt_of(&claims, false));
    let login = read_as(&catalogue, "codex", file.to_string().as_bytes()).unwrap();
    assert_eq!(login.whose().as_deref(), Some("a@b.example[2J31mofyou"));
}

#[test]
fn a_byte_order_mark_and_white_space_do_not_matter() {
    let catalogue = catalogue();
    let text = format!("\u{feff}\n{}\r\n\n", codex(false, 5));
    assert!(read_as(&catalogue, "codex", text.as_bytes()).is_ok());
}

#[test]
fn seconds_and_milliseconds_are_told_apart_and_nonsense_is_refused() {
    let catalogue = catalogue();
    let expires = |value: Value| {
        let file = json!({"claudeAiOauth": {"accessToken": "sk-ant-oat01-0123456789abcdef",
                          "refreshToken": "sk-ant-ort01-0123456789abcdef", "expiresAt": value}});
        read_as(&catalogue, "claude-code", file.to_string().as_bytes()).map(|login| login.expires())
    };
    assert_eq!(expires(json!(2_000_000_000)), Ok(Some(Millis(2_000_000_000_000))));
    assert_eq!(expires(json!(2_000_000_000_000_u64)), Ok(Some(Millis(2_000_000_000_000))));
    assert_eq!(expires(json!(1_700_000_000.5)), Ok(Some(Millis(1_700_000_000_000))));
    assert_eq!(expires(Value::Null), Ok(None));
    for wrong in [json!(0), json!(-5), json!("tomorrow"), json!(2e18), json!([])] {
        assert_eq!(expires(wrong), Err(ImportError::Time("/claudeAiOauth/expiresAt".to_owned())));
    }
}

#[test]
fn what_is_wrong_is_told_and_nothing_of_the_file() {
    let catalogue = catalogue();
    let whole = codex(false, 5).to_string();
    let changed = |pointer: &str, value: Value| {
        let mut file = codex(false, 5);
        *file.pointer_mut(pointer).unwrap() = value;
        file.to_string()
    };
    for (text, said) in [
        (String::new(), "it is empty"),
        (" \n".to_owned(), "it is empty"),
        (whole[..whole.len() / 2].to_owned(), "breaks off in line 1"),
        ("<html>".to_owned(), "not JSON (line 1)"),
        ("[]".to_owned(), "has no `/tokens/access_token`"),
        (
            "{\"token\": \"older\"}".to_owned(),
            "is not ~/.codex/auth.json of Codex of a version that is known",
        ),
        ("{\"OPENAI_API_KEY\": \"sk-secret\"}".to_owned(), "it holds an API key"),
        (changed("/tokens/refresh_token", Value::Null), "has no `/tokens/refresh_token`"),
        (changed("/tokens/refresh_token", json!("")), "has no `/tokens/refresh_token`"),
        (changed("/tokens/refresh_token", json!({"a": "sk-secret"})), "is no token: it is not a text"),
        (changed("/tokens/refresh_token", json!("sk-secret")), "at least 16"),
        (changed("/tokens/access_token", json!("sk-secret with spaces in it")), "white space"),
        (
            changed("/tokens/id_token", json!("sk-secret-0123456789")),
            "`/tokens/id_token` is no JSON Web Token",
        ),
        ("x".repeat(MOST + 1), "larger than 1 MiB"),
    ] {
        let Err(error) = read_as(&catalogue, "codex", text.as_bytes()) else { panic!("{said}") };
        let error = error.to_string();
        assert!(error.contains(said) && !error.contains("sk-secret"), "{error}\nexpected {said}");
    }
}
