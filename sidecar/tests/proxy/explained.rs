//! `explain` says beforehand what then becomes of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use understudy::connection::doors::Doors;
use understudy::credentials::Rights;
use understudy::explain::asked::Asked;
use understudy::explain::verdict::explain;
use understudy::operator::Mode;
use understudy_policies::{Policy, PolicySet};

use crate::world::{HOST, TO_HOST, World};

/// Whether the audit line of it tells of the same decision, the same reason and the same rule.
pub(crate) fn agrees(world: &World, url: &str, method: Option<&str>, line: &serde_json::Value) {
    let said = explained(world, url, method);
    let decision = if line["decision"] == "allowed" { "allowed" } else { "refused" };
    assert_eq!(
        (&said["decision"], &said["reason"]),
        (&decision.into(), &line["reason"]),
        "{url}: {said}\n{line}"
    );
    if decision == "allowed" {
        assert_eq!(said["rule"], line["rule"], "{url}: {line}");
    }
}

pub(crate) fn explained(world: &World, url: &str, method: Option<&str>) -> serde_json::Value {
    let rights = world.container.rights();
    let vault = world.vault.current();
    let asked = Asked::parse(url, method).unwrap();
    let told = explain(&rights.policy, Mode::Deny, &asked, &|host, port| {
        Some(Doors::of(&vault, &rights.grants, host, port))
    });
    serde_json::to_value(&told).unwrap()
}

#[tokio::test]
async fn what_is_said_of_bytes_is_what_becomes_of_them() {
    let world = World::new().await;
    let denied = format!("\n[[deny]]\nhost = {HOST:?}\nmethods = \"PUT\"\n");
    let cases = [
        ("tcp = true", "", true),
        ("", "", false),
        ("tcp = true", denied.as_str(), false),
        ("git = \"read\"", "", false),
    ];
    for (number, (rest, more, passes)) in cases.into_iter().enumerate() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let text = format!("[[allow]]\nhost = {HOST:?}\nport = {port}\n{rest}\n{more}");
        let policy = Policy::parse("t", "t.toml", &text).unwrap();
        let policy = Arc::new(PolicySet::combine(vec![Arc::new(policy)]));
        world.container.set_rights(Rights { policy, ..Rights::default() });
        let mut client = world.connect_at(world.listener, SocketAddr::new(TO_HOST.into(), port)).await;
        client.write_all(b"\x00\x01hello").await.unwrap();
        if passes {
            drop(server.accept().await.unwrap());
        }
        drop(client);
        let line = world.audit(number + 1).await.pop().unwrap();
        assert_eq!(line["decision"] == "denied", !passes, "{line}");
        if passes {
            assert_eq!(line["rule"], "t.toml:2", "{line}");
        }
        let mut line = line;
        // Who ends it first is no matter of policy.
        if passes {
            line["decision"] = "allowed".into();
            line["reason"] = serde_json::Value::Null;
        }
        agrees(&world, &format!("tcp://{HOST}:{port}"), None, &line);
    }
}
