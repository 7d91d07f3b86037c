//! Whatever an upstream sends back of a credential, the container gets the stand-in, in the framing that the answer has.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;

use crate::client::{Client, H2, WAYS, ends, nothing, whole};
use crate::reflect::every_form;
use crate::upstream::Protocols;
use crate::world::{REAL, STAND_IN, World};

/// By a client that would read other codings.
fn asked(client: &Client, path: &str) -> http::request::Builder {
    let request = client.request(path).header("accept-encoding", "gzip, br");
    request.header("authorization", format!("Bearer {STAND_IN}"))
}

#[tokio::test]
async fn no_echo_shows_the_real_value() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        for coding in ["identity", "gzip", "deflate", "br", "zstd"] {
            for size in [0, 1, 7, 100] {
                let request = asked(&client, &format!("/reflect/{coding}/{size}"));
                let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
                let (head, body) = response.into_parts();
                assert_eq!(head.headers["x-echo"], format!("<{STAND_IN}>"));
                assert!(!format!("{:?}", head.headers).contains(REAL));
                assert!(!head.headers.contains_key("content-encoding"));
                let length = head.headers.get("content-length").map(|length| length.to_str().unwrap());
                let wanted = every_form(STAND_IN);
                let fixed = (coding, size) == ("identity", 0);
                assert_eq!(length.is_some(), fixed, "{coding} {size} {protocols:?}");
                assert!(length.is_none_or(|length| length == wanted.len().to_string()));
                assert_eq!(head.headers["etag"], if coding == "identity" { "\"tag\"" } else { "W/\"tag\"" });
                let body = body.collect().await.unwrap();
                if let Some(trailers) = body.trailers() {
                    assert_eq!(trailers["x-echo"], STAND_IN);
                }
                let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
                assert_eq!(body, wanted, "{coding} {size} {protocols:?}");
                assert_eq!(world.upstream.last().headers["authorization"], format!("Bearer {REAL}"));
                assert_eq!(world.upstream.last().headers["accept-encoding"], "identity");
            }
        }
        let lines = world.audit(20).await;
        assert!(lines.iter().all(|line| line["scrubbed"].as_u64().unwrap() >= 12), "{lines:#?}");
        assert!(!world.audit_text().contains(REAL));
    }
}

/// The value is at the very end of the body, so what is held back there is decided by the trailers.
#[tokio::test]
async fn trailers_do_not_cut_a_body_off() {
    let world = World::speaking(Protocols::Http2).await;
    let script = world.upstream.script();
    let mut client = Client::new(&world, H2).await;
    let response = client.send(client.request("/script").body(nothing()).unwrap()).await.unwrap();
    script.send(Frame::data(Bytes::from(format!("{REAL} {}", &REAL[..9])))).await.unwrap();
    let mut trailers = hyper::HeaderMap::new();
    trailers.insert("x-checksum", "1".parse().unwrap());
    script.send(Frame::trailers(trailers)).await.unwrap();
    drop(script);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        format!("{STAND_IN} {}", &REAL[..9])
    );
}

#[tokio::test]
async fn events_wait_for_nothing_and_a_value_may_be_in_two_of_their_chunks() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let script = world.upstream.script();
        let mut client = Client::new(&world, alpn).await;
        let mut response = client.send(client.request("/script").body(nothing()).unwrap()).await.unwrap();
        let (first, rest) = REAL.split_at(10);
        for (sent, received) in [
            ("data: task\n\n".to_owned(), "data: task\n\n".to_owned()),
            (format!("data: {first}"), "data: ".to_owned()),
            (format!("{rest}\n\n"), format!("{STAND_IN}\n\n")),
            (format!("data: {first}"), "data: ".to_owned()),
            ("\n\n".to_owned(), format!("{first}\n\n")),
        ] {
            script.send(Frame::data(Bytes::from(sent))).await.unwrap();
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), received);
        }
        drop(script);
        assert!(ends(response.body_mut()).await);
    }
}

/// gRPC: a message is answered before the next one is sent, so its last bytes must not be held back.
#[tokio::test]
async fn a_grpc_message_does_not_wait_for_the_next() {
    let world = World::speaking(Protocols::Http2).await;
    let script = world.upstream.script();
    let mut client = Client::new(&world, H2).await;
    let request = client.request("/script").header("content-type", "application/grpc");
    let request = request.header("grpc-accept-encoding", "gzip").body(nothing()).unwrap();
    let mut response = client.send(request).await.unwrap();
    assert_eq!(world.upstream.last().headers["grpc-accept-encoding"], "identity");
    for text in ["ends like a value: sk-test-", "another"] {
        let mut message = vec![0, 0, 0, 0, text.len() as u8];
        message.extend(text.as_bytes());
        script.send(Frame::data(Bytes::from(message.clone()))).await.unwrap();
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), message);
    }
}

#[tokio::test]
async fn without_a_swap_the_clients_codings_are_asked_for_as_far_as_they_can_be_read() {
    let world = World::new().await;
    let mut client = Client::new(&world, H2).await;
    for (asked, wanted) in
        [(Some("gzip;q=0.5, dcb, br"), "gzip;q=0.5, br"), (Some("*"), "identity"), (None, "identity")]
    {
        let mut request = client.request("/reflect/gzip/0");
        if let Some(asked) = asked {
            request = request.header("accept-encoding", asked);
        }
        let (head, body) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
        assert_eq!(world.upstream.last().headers["accept-encoding"], wanted);
        assert!(!head.headers.contains_key("content-encoding"));
        assert_eq!(body, every_form("nothing"));
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_passed_on() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        for (coding, status) in [("compress", "200"), ("gzip", "206")] {
            let request = asked(&client, &format!("/reflect/{coding}/0")).header("x-status", status);
            let (head, body) = whole(client.send(request.body(nothing()).unwrap()).await.unwrap()).await;
            assert_eq!(head.status, 502);
            assert_eq!(head.headers["x-understudy-reason"], "unreadable-answer");
            assert!(!String::from_utf8_lossy(&body).contains(REAL));
            client = Client::new(&world, alpn).await;
        }
        let lines = world.audit(2).await;
        assert!(lines.iter().all(|line| line["reason"] == "unreadable-answer"), "{lines:#?}");
        assert_eq!(lines[1]["detail"], "it is a part of an encoded text");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_short_or_grows_too_much_has_no_clean_end() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        for path in
            ["/reflect/cut-gzip/50", "/reflect/cut-br/50", "/reflect/cut-zstd/50", "/reflect/bomb/20000"]
        {
            let mut client = Client::new(&world, alpn).await;
            let response = client.send(asked(&client, path).body(nothing()).unwrap()).await.unwrap();
            // The fault may be known before anything was answered.
            let page = response.status() == 502;
            let body = response.into_body().collect().await;
            assert!(page || body.is_err(), "{path} {protocols:?}");
        }
        for line in world.audit(4).await {
            assert_eq!(line["reason"], "unreadable-answer");
            assert_eq!(line["decision"], "terminated");
        }
    }
}

#[tokio::test]
async fn answers_without_a_body_stay_without() {
    for (alpn, protocols) in WAYS {
        let world = World::speaking(protocols).await;
        let mut client = Client::new(&world, alpn).await;
        for (method, status) in [("HEAD", "200"), ("GET", "204"), ("GET", "304")] {
            let request = asked(&client, "/reflect/gzip/0").method(method).header("x-status", status);
            let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
            let (head, body) = whole(response).await;
            assert_eq!((head.status.as_str(), body.len()), (status, 0), "{method} {protocols:?}");
            assert_eq!(head.headers["x-echo"], format!("<{STAND_IN}>"));
        }
        assert_eq!(client.get("/hello").await.1, "hello");
    }
}
