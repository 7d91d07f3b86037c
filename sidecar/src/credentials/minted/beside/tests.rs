use std::sync::LazyLock;

use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use serde_json::json;

use super::*;

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::new([]).unwrap());
const TOKEN: &str = "ses_0123456789abcdefghijABCDEFGHIJ";

fn open(value: &Value) -> Result<Value, MintError> {
    let inside = Inside {
        at: "/token".parse().unwrap(),
        harmless: vec!["args".to_owned()],
        left_out: vec!["auth".to_owned(), "sources".to_owned()],
    };
    let places = ["/token".parse().unwrap()];
    let places: Vec<&Pointer> = places.iter().collect();
    let text = BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let opened = opened(&text, &inside, &places, &CATALOGUE.clone())?;
    Ok(serde_json::from_slice(&opened).unwrap())
}

fn beside(more: Value) -> Result<Value, MintError> {
    let Value::Object(more) = more else { panic!("no object") };
    let mut all = json!({"version": 1, "token": TOKEN});
    all.as_object_mut().unwrap().extend(more);
    open(&all).map(|mut opened| {
        assert_eq!(opened["token"], TOKEN);
        opened.as_object_mut().unwrap().retain(|name, _| name != "version" && name != "token");
        opened
    })
}

#[test]
fn what_no_client_reads_is_taken_out() {
    let got = beside(json!({
        "auth": [{"type": "account", "token": "sk-ant-oat01-secret"}],
        "sources": [{"git_info": {"token": "ghs_x"}}],
        "use_code_sessions": true,
    }));
    assert_eq!(got, Ok(json!({"use_code_sessions": true})));
}

#[test]
fn what_a_session_is_told_stays() {
    let servers = json!({"mcpServers": {"meta": {"type": "http", "tools": [{"name": "x"}],
        "url": "https://api.anthropic.com/v1/code/sessions/cse_0123456789abcdefghij/meta-mcp"}}});
    for told in [
        json!({"api_base_url": "https://api.anthropic.com"}),
        json!({"args": {"model": "claude-sonnet-4-5-20250929", "max-thinking-tokens": "32000",
            "append-system-prompt": "The key to this is in docs/a-very-long-name-2.md"}}),
        json!({"mcp_config": {"content": BASE64_STANDARD.encode(servers.to_string()), "path": "mcp.json", "mode": 384}}),
        json!({"max_tokens": 100, "secret": null, "password": "", "list": [true, 1.5, "words of a person"]}),
        json!({"id": "00000000-0000-4000-8000-00000000000a"}),
    ] {
        assert_eq!(beside(told.clone()), Ok(told));
    }
}

#[test]
fn any_other_credential_is_refused_by_its_place() {
    let in_base64 = |value: Value| BASE64_STANDARD.encode(value.to_string());
    let headers = |name: &str| json!({"mcpServers": {"x": {"headers": {name: "Bearer s3"}}}});
    let deep = (0..6).fold(json!([1]), |value, _| json!([value.to_string()]));
    for (more, at) in [
        (json!({"git_token": "x"}), "git_token"),
        (json!({"other": [{"git_info": {"token": "short"}}]}), "other/git_info/token"),
        (
            json!({"mcp_config": {"content": in_base64(headers("Authorization"))}}),
            "mcp_config/content/mcpServers/x/headers/Authorization",
        ),
        (
            json!({"mcp_config": headers("x-api-key").to_string()}),
            "mcp_config/mcpServers/x/headers/x-api-key",
        ),
        (json!({"environment": {"GITHUB_PAT": "x"}}), "environment/GITHUB_PAT"),
        (json!({"environment": [{"name": "GH_TOKEN", "value": "x"}]}), "environment"),
        (json!({"word": TOKEN}), "word"),
        (json!({"list": ["a", TOKEN]}), "list"),
        (json!({ TOKEN: 1 }), ""),
        (json!({"a": { TOKEN: 1 }}), "a"),
        (json!({"repository": "https://x-access-token:s3@example.com/a"}), "repository"),
        (json!({"repository": "https://example.com/a?x=1&access_token=s3"}), "repository"),
        (json!({"args": {"settings": "{\"env\":{\"API_KEY\":\"s3\"}}"}}), "args/settings/env/API_KEY"),
        (json!({"args": {"x": "use sk-ant-oat02-0123456789abcdefghijABCDEFGHIJ for it"}}), "args/x"),
        (json!({"args": {"x": "use%20sk-ant-oat02-0123456789abcdefghijABCDEFGHIJ"}}), "args/x"),
        (json!({"deep": deep}), "deep"),
    ] {
        assert_eq!(beside(more.clone()), Err(MintError::Beside(at.to_owned())), "{more}");
    }
}

#[test]
fn words_options_and_other_forms_tell() {
    let word = "0a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d";
    let lenient = "eyJhIjoiZ2hwXzAxMjM0NTY3ODlhYmNkZWZnaGlqMDEyMzQ1Njc4OWFiY2RlZiJ9";
    for told in [
        json!({"mcp": {"x": {"command": "npx", "args": ["mcp-remote", "https://h/mcp", "--header", format!("Authorization: Bearer {word}")]}}}),
        json!({"list": ["--api-key", "short"]}),
        json!({"list": ["Authorization", "Bearer s3"]}),
        json!({"text": format!("A=x B={word}")}),
        json!({"text": format!("{word} https://x.example/")}),
        json!({"text": format!("https://x.example/mcp --header {word}")}),
        json!({"text": "https://x.example/?next=https://u:p@y.example/"}),
        json!({"text": format!("user:{word}")}),
        json!({"text": "--session-key=short"}),
        json!({"sessionKey": "short"}),
        json!({"proxyAuth": "short"}),
        json!({"bearer": "short"}),
        json!({"headers": [{"name": "Authorization", "values": ["Bearer s3"]}]}),
        json!({"text": BASE64_STANDARD.encode("sk-ant-oat02-0123456789abcdefghijABCDEFGHIJ")}),
        json!({"args": BASE64_STANDARD.encode("sk-ant-oat02-0123456789abcdefghijABCDEFGHIJ")}),
        json!({"text": lenient}),
    ] {
        assert!(matches!(beside(told.clone()), Err(MintError::Beside(_))), "{told}");
    }
    for told in [
        json!({"args": "Note: the key: look into docs; token: none"}),
        json!({"list": ["--verbose", "--max-tokens", "100", "--model", "claude-sonnet-4-5"]}),
        json!({"text": "a key is a word, and a token is, too"}),
    ] {
        assert_eq!(beside(told.clone()), Ok(told));
    }
}

#[test]
fn a_list_is_not_what_it_holds() {
    let place = "/secret".parse().unwrap();
    let search = Search { places: &[&place], catalogue: &CATALOGUE, harmless: true, depth: 0 };
    let blob = BASE64_URL_SAFE_NO_PAD.encode(json!({"auth": [{"token": "opaque"}]}).to_string());
    let at = |value: Value| search.value(&mut Vec::new(), "", &value);
    assert_eq!(at(json!({"secret": blob})), None);
    assert!(at(json!([{"secret": blob}])).is_some());
}

#[test]
fn the_message_has_nothing_of_what_was_sent() {
    for named in [json!({"a\nb": {"token": "s3"}}), json!({ "x".repeat(65): {"token": "s3"} })] {
        assert_eq!(beside(named), Err(MintError::Beside("…/token".to_owned())));
    }
}

#[test]
fn what_cannot_be_told_is_refused() {
    let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let inside = Inside { at: "/token".parse().unwrap(), harmless: vec![], left_out: vec![] };
    let catalogue = CATALOGUE.clone();
    for bad in ["!", &text(b"[]"), &text(b"{\"token\":1,\"token\":2}"), &text(b"{"), &text(b"\xff")] {
        let error = opened(bad, &inside, &[], &catalogue).unwrap_err();
        assert_eq!(error, MintError::Body(FieldError::Malformed), "{bad}");
    }
}

#[test]
fn the_rest_of_the_answer_is_looked_at_by_names() {
    let declared = [];
    let catalogue = CATALOGUE.clone();
    let look = |value: Value| around(value.to_string().as_bytes(), &declared, &catalogue);
    assert_eq!(look(json!({"id": TOKEN, "data": {"id": "session_0123456789abcdefghij"}})), Ok(()));
    let error = look(json!({"data": {"access_token": "s3"}}));
    assert_eq!(error, Err(MintError::Beside("data/access_token".to_owned())));
    assert!(around(b"{\"a\":1,\"a\":1}", &declared, &catalogue).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::String),
        Just(json!(TOKEN)),
        Just(json!({"token": TOKEN})),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            proptest::collection::hash_map("[a-z/~\u{e9}]{0,6}", inner.clone(), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
            inner.clone().prop_map(|value| Value::String(value.to_string())),
            inner.prop_map(|value| Value::String(BASE64_URL_SAFE_NO_PAD.encode(value.to_string()))),
        ]
    })
}

fn holds_one(value: &Value) -> bool {
    match value {
        Value::String(text) => text == TOKEN || encoded(text).is_some_and(|value| holds_one(&value)),
        Value::Array(items) => items.iter().any(holds_one),
        Value::Object(members) => members.values().any(holds_one),
        _ => false,
    }
}

proptest! {
    #[test]
    fn no_token_goes_on_wherever_it_is(value in any_json()) {
        let opened = beside(json!({"more": value, "auth": value}));
        match opened {
            Ok(opened) => {
                prop_assert!(!holds_one(&opened));
                prop_assert_eq!(opened, json!({"more": value}));
            }
            Err(MintError::Beside(at)) => prop_assert!(at.starts_with("more") && !at.contains(TOKEN)),
            Err(error) => prop_assert!(false, "{}", error),
        }
    }

    #[test]
    fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let inside = Inside { at: "/token".parse().unwrap(), harmless: vec![], left_out: vec!["a".to_owned()] };
        let catalogue = Catalogue::default();
        let _ = opened(&String::from_utf8_lossy(&bytes), &inside, &[], &catalogue);
        let _ = opened(&BASE64_URL_SAFE_NO_PAD.encode(&bytes), &inside, &[], &catalogue);
    }
}
