//! Requests to hosts that no rule is about, in containers whose mode asks a person.

use std::sync::Arc;
use std::time::Duration;

use understudy::credentials::Rights;
use understudy::operator::Mode;
use understudy::operator::questions::{Heard, QuestionLimits};
use understudy_policies::PolicySet;

use crate::client::{Client, H1, H2, nothing, whole};
use crate::world::{HOST, Options, World};

fn nothing_allowed(world: &World, mode: Mode) {
    let policy = Arc::new(PolicySet::combine(Vec::new()));
    world.container.set_rights(Rights { policy, mode, ..Rights::default() });
}

async fn status(client: &mut Client) -> u16 {
    let request = client.request("/hello").body(nothing()).unwrap();
    whole(client.send(request).await.unwrap()).await.0.status.as_u16()
}

#[tokio::test]
async fn a_request_waits_for_the_answer_and_goes_on() {
    for alpn in [H1, H2] {
        let world = World::new().await;
        nothing_allowed(&world, Mode::Ask);
        let mut client = Client::new(&world, alpn).await;
        let waiting = tokio::spawn(async move { status(&mut client).await });
        let question = loop {
            if let Some(question) = world.questions.list().pop() {
                break question;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!((question.container.as_str(), question.host.as_str()), ("agent-a", HOST));
        assert_eq!((&question.ports[..], world.upstream.requests()), (&[world.upstream.port()][..], 0));
        world.questions.answer(&HOST.parse().unwrap(), None, |_| true, Heard::AllowedOnce);
        assert_eq!(waiting.await.unwrap(), 200);
        let line = world.only_line().await;
        assert_eq!(
            (&line["decision"], &line["rule"]),
            (&"allowed".into(), &"operator, once".into()),
            "{line}"
        );
    }
}

#[tokio::test]
async fn without_an_answer_it_is_refused_in_time_and_nothing_was_sent() {
    let questions = QuestionLimits { patience: Duration::from_millis(200), ..QuestionLimits::default() };
    let world = World::with(Options { questions, ..Options::default() }).await;
    nothing_allowed(&world, Mode::Ask);
    assert_eq!(status(&mut Client::new(&world, H1).await).await, 403);
    assert_eq!(
        (world.only_line().await["reason"].as_str(), world.upstream.requests()),
        (Some("host-not-allowed"), 0)
    );
}

#[tokio::test]
async fn a_revoked_container_does_not_wait_on() {
    let world = World::new().await;
    nothing_allowed(&world, Mode::Ask);
    let mut client = Client::new(&world, H1).await;
    let waiting = tokio::spawn(async move {
        let request = client.request("/hello").body(nothing()).unwrap();
        client.send(request).await.map(|response| response.status().as_u16())
    });
    while world.questions.list().is_empty() {
        tokio::task::yield_now().await;
    }
    world.container.revoke();
    assert!(waiting.await.unwrap().is_err());
    assert!(world.questions.list().is_empty() && world.upstream.requests() == 0);
}

#[tokio::test]
async fn in_mode_log_it_passes_and_the_line_says_by_what() {
    let world = World::new().await;
    nothing_allowed(&world, Mode::Log);
    assert_eq!(status(&mut Client::new(&world, H1).await).await, 200);
    assert_eq!(world.only_line().await["rule"], "mode log");
}
