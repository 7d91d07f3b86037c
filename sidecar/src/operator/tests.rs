use std::time::Duration;

use understudy_control::ContainerId;
use understudy_policies::{HostName, HostPattern, Policy};

use super::questions::QuestionLimits;
use super::*;
use crate::credentials::Rights;
use crate::dns::SyntheticNames;

const PATIENCE: Duration = Duration::from_millis(300);

fn policy(text: &str) -> Arc<PolicySet> {
    Arc::new(PolicySet::combine(vec![Arc::new(Policy::parse("p", "p.toml", text).unwrap())]))
}

fn container(digit: &str, mode: Mode, text: &str) -> Arc<Container> {
    let id: ContainerId = digit.repeat(64).parse().unwrap();
    let rights = Rights { policy: policy(text), mode, ..Rights::default() };
    let names = SyntheticNames::default();
    Arc::new(Container::new(id, None, "generic".to_owned(), rights, names, Vec::new()))
}

fn questions() -> Arc<Questions> {
    let limits =
        QuestionLimits { patience: PATIENCE, open: 2, ports: 2, hourly: 3, rest: Duration::from_secs(60) };
    Questions::new(limits, None, Arc::default())
}

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

async fn asked(questions: &Arc<Questions>, container: &Arc<Container>, name: &str) -> Result<Permit, Denial> {
    let name = host(name);
    permit(questions, container, &Request::new(&name, 443, "GET", "/"), None).await
}

/// A request that waits.
async fn waiting(
    questions: &Arc<Questions>,
    container: &Arc<Container>,
    name: &'static str,
) -> tokio::task::JoinHandle<Result<Permit, Denial>> {
    let before = waits(questions, name);
    let (of, container) = (Arc::clone(questions), Arc::clone(container));
    let task = tokio::spawn(async move { asked(&of, &container, name).await });
    while waits(questions, name) == before {
        tokio::task::yield_now().await;
    }
    task
}

fn waits(questions: &Questions, name: &str) -> u64 {
    questions.list().iter().filter(|question| question.host == name).map(|question| question.waiting).sum()
}

/// Of a port, that waits once it is asked about.
async fn waiting_on(
    questions: &Arc<Questions>,
    container: &Arc<Container>,
    port: u16,
) -> tokio::task::JoinHandle<Result<Permit, Denial>> {
    let before = waits(questions, "x.example");
    let (of, container) = (Arc::clone(questions), Arc::clone(container));
    let task = tokio::spawn(async move {
        permit(&of, &container, &Request::new(&host("x.example"), port, "GET", "/"), None).await
    });
    while waits(questions, "x.example") == before {
        tokio::task::yield_now().await;
    }
    task
}

#[tokio::test]
async fn ports_of_a_host_are_one_question_and_an_answer_covers_those_that_it_names() {
    let (questions, container) = (questions(), container("a", Mode::Ask, ""));
    let tls = waiting_on(&questions, &container, 443).await;
    let plain = waiting_on(&questions, &container, 80).await;
    let open = questions.list();
    assert_eq!((open.len(), &open[0].ports[..], open[0].waiting), (1, &[80, 443][..], 2));
    // One more is not asked about: what a person reads stays short.
    let third = permit(&questions, &container, &Request::new(&host("x.example"), 22, "GET", "/"), None).await;
    assert!(third.unwrap_err().remedy.starts_with("2 ports of this host"));
    let pattern = HostPattern::Exact(host("x.example"));
    assert_eq!(questions.answer(&pattern, Some(443), |id| *id == container.id, Heard::AllowedOnce), 1);
    assert_eq!(tls.await.unwrap().unwrap().port(), 443);
    assert_eq!((&questions.list()[0].ports[..], questions.list()[0].waiting), (&[80][..], 1));
    // It counts for the hour, and what comes back is another question than the one that was answered.
    let again = waiting_on(&questions, &container, 443).await;
    assert_eq!(questions.list()[0].ports, [80, 443]);
    plain.abort();
    let _ = plain.await;
    assert_eq!(questions.list()[0].ports, [443]);
    assert_eq!(questions.answer(&pattern, None, |_| true, Heard::DeniedOnce), 1);
    assert!(again.await.unwrap().is_err() && questions.list().is_empty());
    let denial = asked(&questions, &container, "y.example").await.unwrap_err();
    assert!(denial.remedy.starts_with("this container has asked 3 questions"), "{}", denial.remedy);
}

#[tokio::test]
async fn what_a_rule_is_about_is_not_asked() {
    let text = "[[allow]]\nhost = \"a.example\"\n[[deny]]\nhost = \"b.example\"\n[[allow]]\nhost = \"c.example\"\nmethods = \"PUT\"";
    let (questions, container) = (questions(), container("a", Mode::Ask, text));
    assert!(asked(&questions, &container, "a.example").await.is_ok());
    for (name, reason) in [("b.example", Reason::DeniedByRule), ("c.example", Reason::MethodNotAllowed)] {
        assert_eq!(asked(&questions, &container, name).await.unwrap_err().reason, reason);
    }
}

#[tokio::test]
async fn many_requests_are_one_question_and_one_answer_for_once() {
    let (questions, container) = (questions(), container("a", Mode::Ask, ""));
    let first = waiting(&questions, &container, "x.example").await;
    let second = waiting(&questions, &container, "x.example").await;
    assert!(questions.list().len() == 1 && questions.list()[0].waiting == 2);
    let pattern = HostPattern::Exact(host("x.example"));
    assert_eq!(questions.answer(&pattern, Some(443), |id| *id == container.id, Heard::AllowedOnce), 1);
    for task in [first, second] {
        let permit = task.await.unwrap().unwrap();
        assert_eq!((permit.host().as_str(), permit.rule()), ("x.example", "operator, once"));
    }
    assert!(questions.list().is_empty());
    let third = waiting(&questions, &container, "x.example").await;
    questions.answer(&pattern, None, |_| true, Heard::DeniedOnce);
    assert!(third.await.unwrap().unwrap_err().remedy.contains("said no"));
}

#[tokio::test]
async fn a_rule_that_comes_between_deciding_and_asking_decides() {
    let (questions, container) = (questions(), container("a", Mode::Ask, ""));
    let name = host("x.example");
    let request = Request::new(&name, 443, "GET", "/");
    let denial = decide(&container.rights().policy, &request).unwrap_err();
    let allowing = policy("[[allow]]\nhost = \"x.example\"");
    container.set_rights(Rights { policy: allowing, mode: Mode::Ask, ..Rights::default() });
    // Nobody waits yet, so nobody is told.
    questions.changed();
    assert_eq!(wait(&questions, &container, &request, denial).await.unwrap().rule(), "p.toml:2");
    assert!(questions.list().is_empty());
}

#[tokio::test]
async fn a_rule_that_comes_meanwhile_decides() {
    let (questions, container) = (questions(), container("a", Mode::Ask, ""));
    let change = |text: &str| {
        container.set_rights(Rights { policy: policy(text), mode: Mode::Ask, ..Rights::default() });
        questions.changed();
    };
    let allowed = waiting(&questions, &container, "x.example").await;
    let denied = waiting(&questions, &container, "y.example").await;
    change("[[allow]]\nhost = \"z.example\"");
    change("[[allow]]\nhost = \"x.example\"\n[[deny]]\nhost = \"y.example\"");
    assert_eq!(allowed.await.unwrap().unwrap().rule(), "p.toml:2");
    assert_eq!(denied.await.unwrap().unwrap_err().reason, Reason::DeniedByRule);
}

#[tokio::test]
async fn nobody_answers_and_the_request_ends_in_time_and_is_not_asked_again() {
    let (questions, container) = (questions(), container("a", Mode::Ask, ""));
    let start = Instant::now();
    let denial = asked(&questions, &container, "x.example").await.unwrap_err();
    assert!(start.elapsed() >= PATIENCE && denial.reason == Reason::HostNotAllowed);
    assert!(denial.remedy.starts_with("the operator was asked, and did not answer"), "{}", denial.remedy);
    assert!(questions.list().is_empty());
    let start = Instant::now();
    asked(&questions, &container, "x.example").await.unwrap_err();
    assert!(start.elapsed() < PATIENCE);
}

#[tokio::test]
async fn questions_are_few_at_once_and_in_an_hour_for_each_container() {
    let (questions, one) = (questions(), container("a", Mode::Ask, ""));
    let tasks = [waiting(&questions, &one, "a.example").await, waiting(&questions, &one, "b.example").await];
    let denial = asked(&questions, &one, "c.example").await.unwrap_err();
    assert!(denial.remedy.starts_with("2 questions of this container are open"), "{}", denial.remedy);
    let two = container("b", Mode::Ask, "");
    let other = waiting(&questions, &two, "a.example").await;
    // Whoever gives up takes the question along.
    for task in tasks {
        task.abort();
        let _ = task.await;
    }
    assert_eq!(questions.list().len(), 1);
    drop(waiting(&questions, &one, "d.example").await);
    let denial = asked(&questions, &one, "e.example").await.unwrap_err();
    assert!(denial.remedy.starts_with("this container has asked 3 questions"), "{}", denial.remedy);
    drop(other);
}

#[tokio::test]
async fn in_mode_log_only_what_is_denied_is_refused() {
    let text = "[[deny]]\nhost = \"b.example\"\n[[allow]]\nhost = \"c.example\"\nmethods = \"PUT\"";
    let (questions, container) = (questions(), container("a", Mode::Log, text));
    for name in ["a.example", "c.example"] {
        assert_eq!(asked(&questions, &container, name).await.unwrap().rule(), "mode log");
    }
    assert_eq!(asked(&questions, &container, "b.example").await.unwrap_err().reason, Reason::DeniedByRule);
}

#[tokio::test]
async fn a_request_that_is_judged_again_is_neither_asked_about_nor_counted_again() {
    let (questions, asking) = (questions(), container("a", Mode::Ask, ""));
    let name = host("x.example");
    let request = Request::new(&name, 443, "POST", "/");
    assert!(permit(&questions, &asking, &request, Some(ONCE)).await.is_ok());
    let limited = container("b", Mode::Deny, "[[allow]]\nhost = \"x.example\"\nrate = \"1/h\"");
    assert!(permit(&questions, &limited, &request, None).await.is_ok());
    assert!(permit(&questions, &limited, &request, Some("p.toml:2")).await.is_ok());
    let denial = permit(&questions, &limited, &request, None).await.unwrap_err();
    assert_eq!((denial.reason, denial.rule.as_deref()), (Reason::RateLimited, Some("p.toml:2")));
    assert!(denial.remedy.starts_with("wait 360"), "{}", denial.remedy);
    let denied = container("c", Mode::Ask, "[[deny]]\nhost = \"x.example\"");
    assert!(permit(&questions, &denied, &request, Some(ONCE)).await.is_err());
}

#[tokio::test]
async fn a_limit_that_was_passed_meanwhile_ends_a_request_whatever_let_it_in() {
    for (rules, rule) in [("", ONCE), ("[[allow]]\nhost = \"x.example\"", "p.toml:2")] {
        let (questions, name) = (questions(), host("x.example"));
        let container = container("a", Mode::Ask, &format!("max-bytes = 10\n{rules}"));
        let request = Request::new(&name, 443, "GET", "/");
        assert!(permit(&questions, &container, &request, Some(rule)).await.is_ok());
        assert!(pass(&container, 11).is_err());
        let denial = permit(&questions, &container, &request, Some(rule)).await.unwrap_err();
        assert_eq!(denial.reason, Reason::LimitReached);
    }
}
