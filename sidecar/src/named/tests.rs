use proptest::prelude::*;
use understudy_harnesses::Pattern;

use super::{host as host_of, *};
use crate::credentials::Swaps;
use crate::credentials::fixture::{Values, declared, vault};

fn named_host(within: &str) -> Arc<NamedHost> {
    Arc::new(NamedHost {
        endpoint: "https://api.example.com/me".to_owned().try_into().unwrap(),
        field: "/endpoints/api".to_owned(),
        within: vec![Pattern(within.parse().unwrap())],
    })
}

fn id(digit: &str) -> ContainerId {
    digit.repeat(64).parse().unwrap()
}

#[test]
fn a_plain_https_url_names_a_host_and_nothing_else_does() {
    for (text, host) in [
        ("https://api.a.example", "api.a.example"),
        ("https://api.a.example/", "api.a.example"),
        ("https://1a-b.a.example/v1/x.y", "1a-b.a.example"),
    ] {
        assert_eq!(host_of(text).unwrap().as_str(), host);
    }
    for text in [
        "",
        "api.a.example",
        "http://api.a.example",
        "HTTPS://api.a.example",
        "wss://api.a.example",
        "https://",
        "https:///x",
        "https://example",
        "https://API.a.example",
        "https://api.a.example.",
        "https://api..a.example",
        "https://.a.example",
        "https://api.a.example:443",
        "https://me@api.a.example",
        "https://me:x@api.a.example",
        "https://api.a.example@b.example",
        "https://xn--e1afmkfd.a.example",
        "https://api.\u{430}.example",
        "https://api\u{3002}a.example",
        "https://127.0.0.1",
        "https://0x7f.1",
        "https://2130706433",
        "https://[::1]",
        "https://api.a.example?x",
        "https://api.a.example#x",
        "https://b.example\\.a.example",
        "https://api.a.example/a?b",
        "https://api.a.example/a b",
        "https://api.a.example/%2e",
        " https://api.a.example",
        "https://api.a.example\n",
        "https://*.a.example",
        "https://api_x.a.example",
        "https://api.a.example\0.b.example",
    ] {
        assert_eq!(host_of(text), Err(NotNamed::NotPlain), "{text:?}");
    }
}

/// What an answer to a request with these secrets makes of it.
fn answered(hosts: &Arc<NamedHosts>, within: &str, path: &str, secrets: &[&str], body: &str) -> Vec<String> {
    let text = declared("key", "").replace("api.example.com", "*.example.com");
    let vault = Arc::new(vault(&text, &Values::from([("key", "sk-0123456789abcdefghij")])));
    let swaps = Swaps { secrets: secrets.iter().map(|&name| name.to_owned()).collect(), ..Swaps::default() };
    let at = "api.example.com".parse().unwrap();
    let naming = Naming::of(&[named_host(within)], (&at, 443, path), &swaps, &vault, &id("a"), hosts);
    if let Some(mut naming) = naming {
        body.as_bytes().chunks(7).for_each(|chunk| naming.push(chunk));
        naming.finish();
    }
    hosts.of(&id("a")).into_iter().map(|named| named.host.to_string()).collect()
}

#[test]
fn only_the_declared_answer_to_a_swap_names_within_suffix_and_binding() {
    let body = |text: &str| format!("{{\"endpoints\":{{\"api\":\"{text}\"}}}}");
    let good = body("https://eu.example.com");
    let long = format!("{{\"x\":\"{}\",{}", "y".repeat(256 << 10), &good[1..]);
    for (within, path, secrets, body, named) in [
        ("*.example.com", "/me", &["key"][..], good.clone(), &["eu.example.com"][..]),
        ("*.example.com", "/me", &[], good.clone(), &[]),
        ("*.example.com", "/me", &["acme session"], good.clone(), &[]),
        ("*.example.com", "/you", &["key"], good.clone(), &[]),
        ("*.example.com", "/me/", &["key"], good.clone(), &[]),
        ("*.eu.example.com", "/me", &["key"], good.clone(), &[]),
        ("*.example.com", "/me", &["key"], body("https://eu.example.com.b.example"), &[]),
        ("*.example.com", "/me", &["key"], body("https://notexample.com"), &[]),
        ("*.example.com", "/me", &["key"], body("https://example.com"), &[]),
        // The secret is not bound there.
        ("*.example.net", "/me", &["key"], body("https://eu.example.net"), &[]),
        ("*.example.com", "/me", &["key"], "{\"endpoints\":{\"api\":1}}".to_owned(), &[]),
        ("*.example.com", "/me", &["key"], "not json".to_owned(), &[]),
        ("*.example.com", "/me", &["key"], good.replace("{\"api", "{\"api\":\"x\",\"api"), &[]),
        ("*.example.com", "/me", &["key"], long, &[]),
    ] {
        let hosts = Arc::default();
        assert_eq!(answered(&hosts, within, path, secrets, &body), named, "{within} {path} {secrets:?}");
    }
}

#[test]
fn they_are_bounded_and_of_one_container() {
    let hosts = Arc::new(NamedHosts::default());
    let changes = Arc::new(Mutex::new(0));
    let count = Arc::clone(&changes);
    hosts.on_change(Box::new(move || *count.lock().unwrap() += 1));
    for number in 0..MOST + 3 {
        let body = format!("{{\"endpoints\":{{\"api\":\"https://h{number}.example.com\"}}}}");
        answered(&hosts, "*.example.com", "/me", &["key"], &body);
        answered(&hosts, "*.example.com", "/me", &["key"], &body);
    }
    let all = hosts.of(&id("a"));
    assert_eq!((all.len(), all[0].host.as_str(), *changes.lock().unwrap()), (MOST, "h0.example.com", MOST));
    assert!(hosts.of(&id("b")).is_empty());
    hosts.forget(&id("a"));
    assert!(hosts.of(&id("a")).is_empty());
}

#[test]
fn it_lasts_as_long_as_descriptor_and_grant() {
    let declared = [named_host("*.example.com")];
    let host: HostName = "eu.example.com".parse().unwrap();
    let named = Named { host, by: Arc::clone(&declared[0]), secrets: vec!["key".to_owned()] };
    let granted: Grants = ["key"].into_iter().collect();
    assert!(named.rule(&declared, &granted).is_some());
    assert!(named.rule(&declared, &Grants::default()).is_none());
    assert!(named.rule(&[named_host("*.b.example")], &granted).is_none());
}

proptest! {
    #[test]
    fn whatever_is_named_is_the_host_that_a_url_parser_finds(text in "(https://)?[a-zA-Z0-9.:@/?#%_\\\\\\[\\]é。-]{0,30}") {
        if let Ok(host) = host_of(&text) {
            let rest = &text["https://".len()..];
            let behind = rest.strip_prefix(host.as_str());
            prop_assert!(behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('/')));
        }
    }
}
