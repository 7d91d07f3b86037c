use proptest::prelude::*;

use super::*;

fn identity() -> Identity {
    Identity { name: Some("api.example.com".parse().unwrap()), standing: Standing::LookedUp }
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
    }
    headers
}

fn ask(
    method: Method,
    uri: &str,
    version: Version,
    wire: Wire,
    pairs: &[(&str, &str)],
) -> Result<Target, Reason> {
    let uri: Uri = uri.parse().unwrap();
    let headers = headers(pairs);
    let head = Head { method: &method, uri: &uri, version, headers: &headers };
    target(&identity(), wire, if wire == Wire::Tls { 443 } else { 80 }, head)
        .map_err(|refused| refused.reason)
}

fn get(uri: &str, tls: bool, pairs: &[(&str, &str)]) -> Result<Target, Reason> {
    let wire = if tls { Wire::Tls } else { Wire::Tunnelled };
    ask(Method::GET, uri, Version::HTTP_11, wire, pairs)
}

#[test]
fn a_length_is_stated_once_and_in_digits() {
    let host = ("host", "api.example.com");
    let post = |lengths: &[&str]| {
        let lengths = lengths.iter().map(|length| ("content-length", *length));
        ask(
            Method::POST,
            "/",
            Version::HTTP_11,
            Wire::Tls,
            &[host].into_iter().chain(lengths).collect::<Vec<_>>(),
        )
    };
    for lengths in [&[][..], &["0"], &["4"], &["0004"], &["18446744073709551615"]] {
        assert!(post(lengths).is_ok(), "{lengths:?}");
    }
    for lengths in [
        &["4, 4"][..],
        &["4", "4"],
        &["4,4"],
        &["4", "5"],
        &["+4"],
        &["-0"],
        &["4 "],
        &["0x4"],
        &[""],
        &["18446744073709551616"],
    ] {
        assert_eq!(post(lengths), Err(Reason::Malformed), "{lengths:?}");
    }
}

#[test]
fn the_name_must_be_that_of_the_connection() {
    for (host, wanted) in [
        ("api.example.com", Ok("api.example.com")),
        ("API.example.com.", Ok("api.example.com")),
        ("api.example.com:443", Ok("api.example.com:443")),
        ("api.example.com:80", Err(Reason::NameMismatch)),
        ("other.example.com", Err(Reason::NameMismatch)),
        ("example.com", Err(Reason::NameMismatch)),
        ("192.0.2.1", Err(Reason::NameMismatch)),
        ("[::1]", Err(Reason::NameMismatch)),
        ("user@api.example.com", Err(Reason::Malformed)),
        ("api.example.com:", Err(Reason::Malformed)),
        ("api.example.com:+443", Err(Reason::Malformed)),
        ("api.example.com:99999", Err(Reason::Malformed)),
        ("api.example.com:443:443", Err(Reason::Malformed)),
        ("api.example.com/x", Err(Reason::Malformed)),
        ("api.example.com, other.example", Err(Reason::Malformed)),
        ("api%2eexample.com", Err(Reason::Malformed)),
        ("", Err(Reason::Malformed)),
    ] {
        let result = get("/", true, &[("host", host)]);
        assert_eq!(result.map(|target| target.authority), wanted.map(str::to_owned), "{host:?}");
    }
}

#[test]
fn all_places_that_name_a_host_must_agree() {
    let good = "api.example.com";
    assert_eq!(get("/", true, &[]), Err(Reason::Malformed));
    assert_eq!(get("/", true, &[("host", good), ("host", good)]), Err(Reason::Malformed));
    let h2 = |authority: &str, pairs: &[(&str, &str)]| {
        ask(Method::GET, &format!("https://{authority}/p?q"), Version::HTTP_2, Wire::Tls, pairs)
    };
    assert_eq!(h2(good, &[]).unwrap().path.as_str(), "/p?q");
    assert!(h2(good, &[("host", "API.example.com")]).is_ok());
    assert_eq!(h2(good, &[("host", "evil.example")]), Err(Reason::NameMismatch));
    assert_eq!(h2("evil.example", &[]), Err(Reason::NameMismatch));
    assert_eq!(h2("evil.example", &[("host", good)]), Err(Reason::NameMismatch));
}

#[test]
fn in_a_tunnel_proxy_requests_reach_its_own_host_only() {
    let host = ("host", "api.example.com");
    let same = get("http://api.example.com/a?b", false, &[host]).unwrap();
    assert_eq!((same.path.as_str(), same.authority.as_str()), ("/a?b", "api.example.com"));
    assert_eq!(get("http://api.example.com", false, &[host]).unwrap().path.as_str(), "/");
    let other = ("host", "evil.example");
    assert_eq!(get("http://evil.example/", false, &[other]), Err(Reason::ProxyRequest));
    assert_eq!(get("http://evil.example/", false, &[host]), Err(Reason::NameMismatch));
    assert_eq!(get("https://api.example.com/", false, &[host]), Err(Reason::ProxyRequest));
    assert_eq!(get("http://api.example.com/", true, &[host]), Err(Reason::ProxyRequest));
    let connect = ask(Method::CONNECT, "api.example.com:443", Version::HTTP_11, Wire::Plain, &[host]);
    assert_eq!(connect, Err(Reason::ProxyRequest));
    let connect = ask(Method::CONNECT, "https://api.example.com/", Version::HTTP_2, Wire::Tls, &[]);
    assert_eq!(connect, Err(Reason::ProxyRequest));
}

#[test]
fn what_is_asked_of_a_proxy_is_for_the_host_that_it_names() {
    let plain = |uri: &str, host| ask(Method::GET, uri, Version::HTTP_11, Wire::Plain, &[("host", host)]);
    let other = plain("http://Other.example/a?b", "other.example").unwrap();
    assert_eq!((other.host.as_str(), other.port, other.by_proxy), ("other.example", 80, true));
    assert_eq!((other.path.as_str(), other.authority.as_str()), ("/a?b", "other.example"));
    assert_eq!(plain("http://other.example:8080/", "other.example:8080").unwrap().port, 8080);
    assert_eq!(plain("http://other.example/", "api.example.com"), Err(Reason::NameMismatch));
    assert_eq!(plain("http://other.example:8080/", "other.example"), Err(Reason::NameMismatch));
    assert_eq!(plain("https://other.example/", "other.example"), Err(Reason::ProxyRequest));
    assert_eq!(plain("http://me@other.example/", "other.example"), Err(Reason::Malformed));
    assert_eq!(plain("http://192.0.2.1/", "192.0.2.1"), Err(Reason::NameMismatch));
    let own = plain("/a", "api.example.com").unwrap();
    assert_eq!((own.port, own.by_proxy), (80, false));
    let nameless = Identity { name: None, standing: Standing::Refused(Reason::AddressLiteral) };
    let headers = headers(&[("host", "other.example")]);
    let uri = Uri::from_static("http://other.example/");
    let head = Head { method: &Method::GET, uri: &uri, version: Version::HTTP_11, headers: &headers };
    assert!(target(&nameless, Wire::Plain, 3128, head).is_ok());
    let refused = target(&nameless, Wire::Tunnelled, 3128, head).unwrap_err();
    assert_eq!(refused.reason, Reason::AddressLiteral);
}

#[test]
fn announced_trailers_are_refused() {
    let host = ("host", "api.example.com");
    assert_eq!(get("/", false, &[host, ("trailer", "digest")]), Err(Reason::RequestTrailers));
    assert!(get("/", false, &[host, ("te", "trailers")]).is_ok());
}

#[test]
fn one_protocol_is_asked_for_and_of_most_a_rule_is() {
    let with = |values: &[&str]| {
        let mut pairs = vec![("host", "api.example.com"), ("connection", "close, Upgrade")];
        pairs.extend(values.iter().map(|value| ("upgrade", *value)));
        get("/", false, &pairs).map(|target| target.upgrade)
    };
    assert_eq!(with(&[]), Ok(Upgrade::None));
    assert_eq!(with(&["WebSocket"]), Ok(Upgrade::WebSocket));
    assert_eq!(with(&["h2c"]), Ok(Upgrade::Ignored));
    assert_eq!(with(&["SPDY/3.1"]), Ok(Upgrade::Other("spdy/3.1".parse().unwrap())));
    for bad in [&["websocket, h2c"][..], &["websocket", "websocket"], &["h2c", "tcp"], &["tcp,"]] {
        assert_eq!(with(bad), Err(Reason::UpgradeNotAllowed), "{bad:?}");
    }
    for bad in ["", "tcp/", "a b"] {
        assert_eq!(with(&[bad]), Err(Reason::Malformed), "{bad:?}");
    }
    // Nobody asked for it (RFC 9110 section 7.8).
    let pairs = [("host", "api.example.com"), ("upgrade", "tcp")];
    assert_eq!(get("/", false, &pairs).unwrap().upgrade, Upgrade::Ignored);
    let pairs = [&pairs[..], &[("connection", "upgrade")]].concat();
    for (version, upgrade) in [
        (Version::HTTP_10, Upgrade::None),
        (Version::HTTP_11, Upgrade::Other("tcp".parse().unwrap())),
        (Version::HTTP_2, Upgrade::None),
    ] {
        let target = ask(Method::POST, "/", version, Wire::Tls, &pairs).unwrap();
        assert_eq!(target.upgrade, upgrade, "{version:?}");
    }
}

#[test]
fn a_websocket_begins_without_a_body() {
    let with = |method, more: &[(&str, &str)]| {
        let own = [("host", "api.example.com"), ("connection", "upgrade"), ("upgrade", "websocket")];
        let pairs = [&own[..], more].concat();
        ask(method, "/", Version::HTTP_11, Wire::Tls, &pairs).map(|target| target.upgrade)
    };
    assert_eq!(with(Method::GET, &[]), Ok(Upgrade::WebSocket));
    assert_eq!(with(Method::POST, &[]), Err(Reason::Malformed));
    for framing in [("content-length", "5"), ("transfer-encoding", "chunked")] {
        assert_eq!(with(Method::GET, &[framing]), Err(Reason::Malformed));
    }
}

#[test]
fn a_refused_connection_refuses_everything_and_names_what_was_asked_for() {
    let identity = Identity { name: None, standing: Standing::Refused(Reason::AddressLiteral) };
    let headers = headers(&[("host", "metadata.example")]);
    let head = Head {
        method: &Method::GET,
        uri: &Uri::from_static("/"),
        version: Version::HTTP_11,
        headers: &headers,
    };
    let refused = target(&identity, Wire::Plain, 80, head).unwrap_err();
    assert_eq!(refused.reason, Reason::AddressLiteral);
    assert_eq!(refused.host, Some("metadata.example".parse().unwrap()));
}

#[test]
fn targets_are_read_as_they_were_written() {
    let written = |target: &[u8]| {
        let request = RequestHeader::build("GET", target, None).unwrap();
        written(&request).map(|uri| uri.to_string())
    };
    assert_eq!(written(b"/a?b").as_deref(), Some("/a?b"));
    assert_eq!(written(b"*").as_deref(), Some("*"));
    assert_eq!(written(b"http://evil.example/a").as_deref(), Some("http://evil.example/a"));
    assert_eq!(written(b"/\xff"), None);
}

proptest! {
    #[test]
    fn a_target_is_always_the_connections_own_host(host in "[ -~]{0,40}", path in "/[!-~&&[^#\"<>`{}|\\\\^]]{0,20}") {
        let (Ok(value), Ok(uri)) = (http::HeaderValue::from_str(&host), path.parse::<Uri>()) else { return Ok(()) };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, value);
        let head = Head { method: &Method::GET, uri: &uri, version: Version::HTTP_11, headers: &headers };
        if let Ok(target) = target(&identity(), Wire::Tls, 443, head) {
            prop_assert_eq!(Some(target.host), identity().name);
            prop_assert!(matches!(target.authority.as_str(), "api.example.com" | "api.example.com:443"));
        }
    }
}
