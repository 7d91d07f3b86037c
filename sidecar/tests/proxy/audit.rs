//! What lines show of what a container chose.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::client::{Client, H1, H2, nothing, tls, whole};
use crate::world::{HOST, REAL, TO_HOST, TO_SINK, World};

#[tokio::test]
async fn a_real_value_is_in_no_line_wherever_a_container_puts_it() {
    let encoded = BASE64_URL_SAFE_NO_PAD.encode(format!("x{REAL}y"));
    let percent: String = REAL.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for alpn in [H1, H2] {
        let world = World::new().await;
        let long = format!("/{}{REAL}", "x".repeat(1010));
        let paths = [
            format!("/a/{REAL}/b"),
            format!("/{encoded}"),
            format!("/{percent}"),
            format!("/?{REAL}=x"),
            long,
        ];
        for path in &paths {
            let (head, _) = Client::new(&world, alpn).await.get(path).await;
            assert_eq!(head.headers["x-understudy-reason"], "real-credential", "{path}");
        }
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/").method(REAL).body(nothing()).unwrap();
        let (head, _) = whole(client.send(request).await.unwrap()).await;
        assert_eq!(head.headers["x-understudy-reason"], "real-credential");

        let name = format!("{REAL}.evil.example");
        let stream = tls(&world, world.connect(TO_SINK).await, &name, alpn).await.unwrap();
        let mut sunk = Client::over(stream).await;
        let request = sunk.request_for(&name, "/").body(nothing()).unwrap();
        assert_eq!(whole(sunk.send(request).await.unwrap()).await.0.status, 403);

        let lines = world.audit(paths.len() + 2).await;
        let text = world.audit_text();
        for value in [REAL, &encoded, &percent, "sk-test-the-"] {
            assert!(!text.contains(value), "{text}");
        }
        assert!(lines.iter().all(|line| line.to_string().contains("withheld")), "{lines:#?}");
        assert_eq!(world.upstream.connections(), 0);
    }
}

#[tokio::test]
async fn an_offered_protocol_fills_no_line_and_shows_no_value() {
    let world = World::new().await;
    let long = vec![0xc2_u8; 255];
    let offered: Vec<&[u8]> = std::iter::repeat_n(long.as_slice(), 100).collect();
    assert!(tls(&world, world.connect(TO_HOST).await, HOST, &offered).await.is_err());
    world.audit(1).await;
    assert!(tls(&world, world.connect(TO_HOST).await, HOST, &[REAL.as_bytes()]).await.is_err());
    world.audit(2).await;
    let text = world.audit_text();
    assert!(text.lines().all(|line| line.len() < 16_000), "{}", text.len());
    assert!(!text.contains(REAL), "{text}");
}
