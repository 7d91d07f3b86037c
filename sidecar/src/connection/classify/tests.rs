use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// A real client's hello, as it leaves it.
fn client_hello(name: &str, alpn: &[&[u8]]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let name = rustls_pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// The same handshake bytes in records of `size`.
fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for fragment in hello[5..].chunks(size) {
        bytes.extend([22, 3, 1]);
        bytes.extend(u16::try_from(fragment.len()).unwrap().to_be_bytes());
        bytes.extend(fragment);
    }
    bytes
}

fn record(content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![22, 3, 1];
    bytes.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
    bytes.extend(content);
    bytes
}

/// A TLS 1.0 hello without a single extension, as old clients sent it.
fn tls10_hello() -> Vec<u8> {
    let mut body = vec![3, 1];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x00, 0x2f, 1, 0]);
    let mut message = vec![1, 0, 0, u8::try_from(body.len()).unwrap()];
    message.extend(body);
    record(&message)
}

/// With unknown (GREASE, RFC 8701) suites, extension and ALPN.
fn grease_hello() -> Vec<u8> {
    let name = b"grease.example";
    let mut sni = vec![0, 0];
    sni.extend(u16::try_from(name.len() + 5).unwrap().to_be_bytes());
    sni.extend(u16::try_from(name.len() + 3).unwrap().to_be_bytes());
    sni.push(0);
    sni.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
    sni.extend(name);
    let mut extensions = vec![0x0a, 0x0a, 0, 0];
    extensions.extend(sni);
    extensions.extend([0, 16, 0, 8, 0, 6, 2, 0x8a, 0x8a, 2, b'h', b'2']);
    extensions.extend([0, 10, 0, 4, 0, 2, 0, 23]);
    extensions.extend([0, 13, 0, 4, 0, 2, 4, 3]);
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 4, 0x1a, 0x1a, 0xc0, 0x2b, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend(body);
    record(&message)
}

fn sni_of(classified: Classified) -> Option<String> {
    let Classified::Tls(hello) = classified else { panic!("not TLS: {classified:?}") };
    hello.sni.map(|name| String::from_utf8(name).unwrap())
}

#[test]
fn a_hello_is_read_whole_however_it_is_cut() {
    let hello = client_hello("api.example.com", &[b"h2", b"http/1.1"]);
    let wanted = Classified::Tls(Hello {
        sni: Some(b"api.example.com".to_vec()),
        alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    });
    assert_eq!(classify(&hello), wanted);
    for size in [5, 16, 100] {
        assert_eq!(classify(&in_records(&hello, size)), wanted, "records of {size}");
    }
    let mut with_more = hello.clone();
    with_more.extend(b"what follows");
    assert_eq!(classify(&with_more), wanted);
    for end in 0..hello.len() {
        let Classified::NeedMore { at_least } = classify(&hello[..end]) else { panic!("decided at {end}") };
        assert!(at_least > end && at_least <= hello.len());
    }
}

#[test]
fn names_that_tls_does_not_carry_are_none() {
    assert_eq!(sni_of(classify(&client_hello("192.0.2.1", &[]))), None);
    assert_eq!(sni_of(classify(&grease_hello())).as_deref(), Some("grease.example"));
}

#[test]
fn what_only_begins_like_tls_is_malformed() {
    let hello = client_hello("api.example.com", &[]);
    let too_many = in_records(&hello, 1);
    let mut endless = hello[..9].to_vec();
    endless[5..9].copy_from_slice(&[1, 0xff, 0xff, 0xff]);
    let mut server_hello = hello.clone();
    server_hello[5] = 2;
    let mut interleaved = in_records(&hello, 100);
    interleaved[105] = 23;
    let mut bad_sni = hello;
    let at = bad_sni.windows(15).position(|w| w == b"api.example.com").unwrap();
    bad_sni[at + 3] = 0;
    for (bytes, what) in [
        (too_many, "one-byte records"),
        (record(&endless[5..]), "huge"),
        (server_hello, "server hello"),
        (interleaved, "application data inside"),
        (bad_sni, "NUL in the name"),
        (vec![22, 2, 0, 0, 5], "SSL 2 version"),
        (vec![22, 3, 1, 0, 0], "empty record"),
        (vec![22, 3, 1, 0xff, 0xff], "record too long"),
        (record(&[1, 0, 0, 1, 0]), "nothing in it"),
        (tls10_hello(), "TLS 1.0"),
    ] {
        assert!(matches!(classify(&bytes), Classified::Malformed { .. }), "{what}: {:?}", classify(&bytes));
    }
}

#[test]
fn http_is_known_by_its_request_line() {
    let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(20_000));
    for (bytes, wanted) in [
        (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], Classified::Http1),
        (b"M-SEARCH * HTTP/1.1\n", Classified::Http1),
        (b"CONNECT a.example:443 HTTP/1.1\r\n", Classified::Http1),
        (b"POST / HTTP/1.0\r\n", Classified::Http1),
        (long.as_bytes(), Classified::Http1),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", Classified::Http2Preface),
        (b"PRI * HTTP/2.0\r\n\r\nSM", Classified::NeedMore { at_least: 21 }),
        (b"GET /", Classified::NeedMore { at_least: 6 }),
        (b"", Classified::NeedMore { at_least: 1 }),
        (b"GET /\r\n", Classified::Malformed { why: "HTTP/0.9" }),
        (b"GET / HTTP/3.0\r\n", Classified::Malformed { why: "HTTP version that does not exist" }),
        (b"PRI * HTTP/2.0\r\n\r\nXX", Classified::Malformed { why: "HTTP version that does not exist" }),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Classified::Other),
        (b"EHLO mail.example\r\n", Classified::Other),
        // Of other protocols: memcached's, telnet's, one with a length.
        (b"\x80\x0b\x00\x00\x00\x00\x00\x00", Classified::Other),
        (b"\x80\x01\x01\x00\x80", Classified::Other),
        (b"\xff\xfb\x01", Classified::Other),
        (b"\xff\xfd\x03\xff\xfb\x01", Classified::Other),
        (b"\x80\x2e\x02", Classified::Other),
        (b"\n\x05hello", Classified::Other),
        (b"\r\n\r\n\0\r\nQUIZ", Classified::Other),
        (b"*1\r\n$4\r\nPING\r\n", Classified::Other),
        (b"QUIT\r\n", Classified::Other),
        (b"PROXY\r\n", Classified::Other),
        (b"NICK HTTP\r\n", Classified::Other),
        (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", Classified::Other),
        (b"\x05\x01\x00", Classified::Other),
        (b"get key\r\n", Classified::Other),
        (b"\r\nQUIT\r\n", Classified::Other),
    ] {
        assert_eq!(classify(bytes), wanted, "{:?}", String::from_utf8_lossy(bytes));
    }
}

/// Servers take it for a request, so it must not pass for another protocol.
#[test]
fn what_a_lenient_server_takes_for_http_is_no_other_protocol() {
    for bytes in [
        &b"\r\nGET / HTTP/1.1\r\n"[..],
        b"\n\n\r\nGET / HTTP/1.1\r\n",
        b"get / HTTP/1.1\r\n",
        b"G_T / HTTP/1.1\r\n",
        b"GET  / HTTP/1.1\r\n",
        b"GET\t/\tHTTP/1.1\r\n",
        b"GET / HTTP/1.1 \r\n",
        b"GET / HTTP/1.1\r\r\n",
        b"GET / http/1.1\r\n",
        b"GET  /\r\n",
        b"GET  HTTP/1.1\r\n",
        b" GET / HTTP/1.1\r\n",
        b"\tGET / HTTP/1.1\r\n",
        b"\r\n \x0b\x0cGET / HTTP/1.1\r\n",
        b"GET\x0b/\x0bHTTP/1.1\r\n",
        b"GET\x0c/\x0cHTTP/1.1\n",
        b"GET\r/\rHTTP/1.1\r\n",
        b"GET / HTTP/1.1\x0b\r\n",
        b"POST / HTTP/1.1\rHost: a\r\r\n",
        // White in Latin-1, to servers that read a line so.
        b"\x1cGET /x HTTP/1.1\r\n",
        b"\x85GET /x HTTP/1.1\r\n",
        b"\xa0\x1fGET /x HTTP/1.1\r\n",
        b"POST\x1d/x HTTP/1.1\r\n",
        b"POST / HTTP/1.1 more\r\n",
        b"aMethodOfMoreThanTwentyFourLetters / HTTP/1.1\r\n",
        b" PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        // What makes a server take what follows for the beginning.
        b"PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\n",
        b"PROXY UNKNOWN\r\nGET / HTTP/1.1\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c",
        // SSL 2, asking for itself or for TLS.
        b"\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10",
        b"\x81\x03\x01\x03\x03\x00\x15",
        b"\x80\x2e\x01\x00\x02\x00\x15",
    ] {
        let whole = classify(bytes);
        assert!(
            matches!(whole, Classified::Malformed { .. }),
            "{:?}: {whole:?}",
            bytes.escape_ascii().to_string()
        );
        for end in 0..bytes.len() {
            assert!(
                !matches!(classify(&bytes[..end]), Classified::Other),
                "{end} of {}",
                bytes.escape_ascii()
            );
        }
    }
    // It begins as a request does, and is judged as one.
    assert_eq!(classify(b"POST /x\x1fHTTP/1.1\r\n"), Classified::Http1);
}

proptest! {
    #[test]
    fn it_never_panics_and_always_comes_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Classified::NeedMore { at_least } = classify(&bytes) {
            prop_assert!(at_least > bytes.len() && at_least <= LIMIT);
        }
    }

    #[test]
    fn changed_hellos_neither_panic_nor_stall(at in 0_usize..300, to in any::<u8>(), end in 0_usize..400) {
        let mut bytes = grease_hello();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = to;
        }
        bytes.truncate(end);
        if let Classified::NeedMore { at_least } = classify(&bytes) {
            prop_assert!(at_least > bytes.len() && at_least <= LIMIT);
        }
    }

    #[test]
    fn more_bytes_never_change_a_decision(
        start in proptest::sample::select(vec![&b"GET /"[..], b"GET ", b"GET / HTTP/1.", b"PRI * HTTP/2.0\r\n", b"\x16\x03\x01\x00\x08", b"\x80\x2e", b"\x80\x2e\x01\x03", b"\r\n\r\n\0", b" \t", b"PROXY", b"PROXY T", b""]),
        rest in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let bytes = [start, &rest].concat();
        let decided = (0..=bytes.len()).map(|end| classify(&bytes[..end]))
            .find(|c| !matches!(c, Classified::NeedMore { .. }));
        if let Some(decided) = decided {
            prop_assert_eq!(classify(&bytes), decided);
        }
    }
}
