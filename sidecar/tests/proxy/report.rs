//! What the report on secrets says is what happened.

use std::collections::BTreeMap;

use understudy::credentials::expiry::Day;
use understudy::credentials::report::report;
use understudy::proxy::answered;

use crate::client::{Client, H1, H2, nothing, whole};
use crate::world::{REAL, STAND_IN, World};

#[tokio::test]
async fn swaps_and_leaks_are_counted_and_the_word_is_what_an_echo_shows() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        let mut client = Client::new(&world, alpn).await;
        let mut statuses = Vec::new();
        for (header, value) in [
            ("authorization", format!("Bearer {STAND_IN}")),
            ("authorization", format!("Bearer {STAND_IN}")),
            ("x-elsewhere", STAND_IN.to_owned()),
            ("authorization", format!("Bearer {REAL}")),
        ] {
            let request = client.request("/hello").header(header, value).body(nothing()).unwrap();
            let (head, _) = whole(client.send(request).await.unwrap()).await;
            statuses.push(head.status.as_u16());
        }
        assert_eq!(statuses, [200, 200, 403, 403]);
        let lines = world.audit(4).await;
        let vault = world.vault.current();
        let holders = BTreeMap::from([("provider".to_owned(), vec!["agent-a".to_owned()])]);
        let ledger = world.gateway.audit().ledger();
        let told = report(&vault, ledger, &holders, |name, text| answered(&vault, name, text), Day::today());
        let [told] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((told.swaps, told.leaks), (2, 2));
        assert_eq!(told.last_use, lines[1]["time"].as_u64());
        assert_eq!(
            (told.holders.as_slice(), told.agent_can_read.as_str()),
            (["agent-a".to_owned()].as_slice(), "nothing")
        );

        // An upstream that repeats what it received: the agent sees the value exactly if the word says so.
        let mut client = Client::new(&world, alpn).await;
        let request = client.request("/repeat").header("authorization", format!("Bearer {STAND_IN}"));
        let response = client.send(request.body(nothing()).unwrap()).await.unwrap();
        let (head, body) = whole(response).await;
        let seen = format!("{head:?}{}", String::from_utf8_lossy(&body));
        assert_eq!(seen.contains(REAL), told.agent_can_read != "nothing", "{}: {seen}", told.agent_can_read);
    }
}
