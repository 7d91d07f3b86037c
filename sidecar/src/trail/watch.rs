//! `understudy watch`: each line as it comes, and questions, which a key answers. The request for what comes next waits in
//! the sidecar until there is something.

mod terminal;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use understudy_control::{
    CallError, Decide, Effect, Lasting, Mark, Pending, QuestionStatus, Reply, Request, Watch, Watched,
};

use super::filter::Filter;
use super::line;
use crate::control::Control;
use crate::status;
use terminal::Terminal;

#[derive(Debug, clap::Args)]
pub struct WatchArguments {
    #[command(flatten)]
    pub filter: Filter,
    /// Print the lines as they are; then nothing is answered
    #[arg(long)]
    pub json: bool,
}

/// Between two attempts to reach a sidecar that is gone.
const PAUSE: Duration = Duration::from_millis(500);
/// An agent that takes a question back and has another one at hand must not get the key that was meant for the first.
const TO_LOOK: Duration = Duration::from_secs(1);
const KEYS: &str = "[o]nce, for this [c]ontainer, [a]lways; [n]ot now, [d]eny for this container; [q]uit";

/// Until it is interrupted. A sidecar that goes away is waited for.
pub fn run(arguments: &WatchArguments, control: &Control) -> Result<()> {
    let terminal = if arguments.json { None } else { Terminal::of_standard_input()? };
    let mut watcher = Watcher { arguments, control, terminal, colour: line::is_coloured(), asked: None };
    // What was before is what `log` is for.
    let mut seen = watcher.show(answer_of(watcher.begin(None)?.answer()?)?, None)?;
    loop {
        match watcher.next(seen) {
            Ok(Some(watched)) => seen = watcher.show(watched, Some(seen))?,
            Ok(None) => return Ok(()),
            Err(error) if is_absence(&error) => {
                eprintln!("understudy: the sidecar does not answer: {error}; it is waited for");
                match watcher.again(seen)? {
                    Some(watched) => {
                        eprintln!("understudy: the sidecar is there again{}", is_new(&watched, seen));
                        seen = watcher.show(watched, Some(seen))?;
                    }
                    None => return Ok(()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the sidecar is gone, and can come back. Whatever else is wrong does not mend itself.
fn is_absence(error: &CallError) -> bool {
    match error {
        CallError::Connect { source, .. } => source.kind() != std::io::ErrorKind::PermissionDenied,
        CallError::Channel(_) => true,
        // Its files go with it, and come with the next one.
        CallError::Directory(error) => error.is_absent(),
        CallError::Peer { .. } | CallError::Garbage(_) | CallError::Unexpected | CallError::Refused(_) => {
            false
        }
    }
}

struct Watcher<'a> {
    arguments: &'a WatchArguments,
    control: &'a Control,
    terminal: Option<Terminal>,
    colour: bool,
    /// The question that was shown last, as long as it is open, and when it was shown.
    asked: Option<(QuestionStatus, Instant)>,
}

impl Watcher<'_> {
    fn begin(&self, seen: Option<Mark>) -> Result<Pending, CallError> {
        let wait = Watch { seen, seconds: Watch::LONGEST };
        self.control.begin(Request::Watch(wait), Duration::from_secs(Watch::LONGEST))
    }

    /// What comes after `seen`. None: a key ended it.
    fn next(&mut self, seen: Mark) -> Result<Option<Watched>, CallError> {
        let pending = self.begin(Some(seen))?;
        match self.keys_until(Some(&pending)) {
            true => answer_of(pending.answer()?).map(Some),
            false => Ok(None),
        }
    }

    /// The same, once there is a sidecar again.
    fn again(&mut self, seen: Mark) -> Result<Option<Watched>> {
        self.asked = None;
        loop {
            if !self.keys_until(None) {
                return Ok(None);
            }
            let answer = self.begin(Some(seen)).and_then(Pending::answer).and_then(answer_of);
            match answer {
                Ok(watched) => return Ok(Some(watched)),
                Err(error) if is_absence(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Does what keys say until the answer is there, or for a moment without one. False: it is to end.
    fn keys_until(&mut self, pending: Option<&Pending>) -> bool {
        loop {
            let mut ready = Vec::with_capacity(2);
            let stdin = std::io::stdin();
            ready.extend(pending.map(|pending| PollFd::from_borrowed_fd(pending.as_fd(), PollFlags::IN)));
            if self.terminal.is_some() {
                ready.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN));
            }
            let pause = Timespec::try_from(PAUSE).ok().filter(|_| pending.is_none());
            match poll(&mut ready, pause.as_ref()) {
                Ok(0) => return true,
                Err(rustix::io::Errno::INTR) => continue,
                // What is broken is told by the next call on it.
                Err(_) => return true,
                Ok(_) => {}
            }
            let has = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let answered = pending.is_some() && ready.first().is_some_and(has);
            let pressed = self.terminal.is_some() && ready.last().is_some_and(has);
            if pressed && !self.press() {
                return false;
            }
            if answered {
                return true;
            }
        }
    }

    /// False: it is to end.
    fn press(&mut self) -> bool {
        let Some(key) = Terminal::key() else { return false };
        // Also what Ctrl-C is while keys are read one by one.
        if matches!(key, b'q' | 3 | 4) {
            return false;
        }
        let Some((question, since)) = &self.asked else { return true };
        let answers = answers(question, key);
        if !answers.is_empty() && since.elapsed() < TO_LOOK {
            println!("  that was for another question, or too quick: look at this one, then press again");
            return true;
        }
        for decide in answers {
            let host = decide.host.clone();
            match self.control.call(Request::Decide(decide)) {
                Ok(Reply::Decided(kept)) => println!("  operator decision {}", status::decided(&kept)),
                Ok(_) => println!("  {} {host}", verb(key)),
                Err(error) => println!("  {error:#}"),
            }
        }
        true
    }

    /// Where to go on from. `before` is where it went on from.
    fn show(&mut self, watched: Watched, before: Option<Mark>) -> Result<Mark> {
        let Watched { mark, lines, lost, questions } = watched;
        if lost > 0 {
            let of = if before.is_some_and(|before| before.run != mark.run) { " of this run" } else { "" };
            eprintln!("understudy: {lost} lines{of} are missing here: they are not kept any more");
        }
        let mut out = std::io::stdout().lock();
        for text in &lines {
            let Ok(parsed) = serde_json::from_str::<Value>(text) else { continue };
            if self.arguments.filter.matches(&parsed) {
                match self.arguments.json {
                    true => writeln!(out, "{text}")?,
                    false => writeln!(out, "{}", line::shown(&parsed, self.colour))?,
                }
            }
        }
        out.flush()?;
        let Some(terminal) = &self.terminal else { return Ok(mark) };
        let open = questions.into_iter().find(|question| is_meant(&self.arguments.filter, question));
        let before = self.asked.take();
        if let Some((before, since)) = &before {
            if let Some(open) = open.as_ref().filter(|open| same(before, open)) {
                self.asked = Some((open.clone(), *since));
                return Ok(mark);
            }
            let and = if open.as_ref().is_some_and(|open| is_of_one(before, open)) { ", but" } else { "" };
            writeln!(out, "  {} is not asked any more{and}", asked_for(before))?;
        }
        if let Some(question) = open {
            // A key that was pressed before answers nothing that comes after it.
            terminal.forget()?;
            writeln!(out, "{}", shown(&question))?;
            self.asked = Some((question, Instant::now()));
        }
        out.flush()?;
        Ok(mark)
    }
}

fn answer_of(reply: Reply) -> Result<Watched, CallError> {
    match reply {
        Reply::Watched(watched) => Ok(watched),
        _ => Err(CallError::Unexpected),
    }
}

fn is_new(watched: &Watched, seen: Mark) -> &'static str {
    match watched.mark.run == seen.run {
        true => "",
        false => {
            ", and is another run: lines that the one before wrote last can be missing here (they are in its log)"
        }
    }
}

/// A question has a container and a host, and is nothing that was denied.
fn is_meant(filter: &Filter, question: &QuestionStatus) -> bool {
    let of = |wanted: &String| {
        question.container == *wanted
            || !wanted.is_empty() && question.container_id.as_str().starts_with(wanted.as_str())
    };
    let about = |wanted: &understudy_policies::HostPattern| {
        question.host.parse().is_ok_and(|host| wanted.matches(&host))
    };
    filter.container.as_ref().is_none_or(of) && filter.host.as_ref().is_none_or(about)
}

/// Ports that came to it, or left it, make another question of it: what is answered is what was shown.
fn same(asked: &QuestionStatus, open: &QuestionStatus) -> bool {
    is_of_one(asked, open) && asked.ports == open.ports
}

fn is_of_one(asked: &QuestionStatus, open: &QuestionStatus) -> bool {
    (&asked.container_id, &asked.host) == (&open.container_id, &open.host)
}

/// `a.example:443`, or `a.example:80,443`.
fn asked_for(question: &QuestionStatus) -> String {
    format!("{}:{}", question.host, ports(question).join(","))
}

fn ports(question: &QuestionStatus) -> Vec<String> {
    question.ports.iter().map(u16::to_string).collect()
}

/// With the rule that `always` would make. The host is ASCII: other letters are in Punycode.
fn shown(question: &QuestionStatus) -> String {
    let QuestionStatus { container, host, left, .. } = question;
    let asked_for = asked_for(question);
    let port = match ports(question).as_slice() {
        [port] => port.clone(),
        ports => format!("[{}]", ports.join(", ")),
    };
    format!(
        "? {container} asks for {asked_for} ({left} s left): [[allow]] host = \"{host}\", port = {port}\n  {KEYS}"
    )
}

fn verb(key: u8) -> &'static str {
    match key {
        b'n' | b'd' => "denied",
        _ => "allowed",
    }
}

/// One for each port that was shown.
fn answers(question: &QuestionStatus, key: u8) -> Vec<Decide> {
    let (effect, lasting) = match key {
        b'o' => (Effect::Allow, Lasting::Once),
        b'c' => (Effect::Allow, Lasting::Container),
        b'a' => (Effect::Allow, Lasting::Always),
        b'n' => (Effect::Deny, Lasting::Once),
        b'd' => (Effect::Deny, Lasting::Container),
        _ => return Vec::new(),
    };
    let container = (lasting != Lasting::Always).then(|| question.container_id.to_string());
    let of = |port| Decide {
        effect,
        host: format!("{}:{port}", question.host),
        container: container.clone(),
        lasting,
    };
    question.ports.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_an_answer_about_what_was_asked() {
        let question = QuestionStatus {
            container: "agent".to_owned(),
            container_id: "a".repeat(64).parse().unwrap(),
            host: "xn--bcher-kva.example".to_owned(),
            ports: vec![8443],
            waiting: 1,
            left: 50,
        };
        let text = shown(&question);
        assert!(text.contains("[[allow]] host = \"xn--bcher-kva.example\", port = 8443\n"), "{text}");
        let two = QuestionStatus { ports: vec![80, 443], ..question.clone() };
        let text = shown(&two);
        assert!(text.contains("asks for xn--bcher-kva.example:80,443 (50 s left)"), "{text}");
        assert!(text.contains("[[allow]] host = \"xn--bcher-kva.example\", port = [80, 443]\n"), "{text}");
        let hosts: Vec<String> = answers(&two, b'a').into_iter().map(|decide| decide.host).collect();
        assert_eq!(hosts, ["xn--bcher-kva.example:80", "xn--bcher-kva.example:443"]);
        assert!(!same(&question, &two) && same(&two, &two));
        for (key, effect, lasting, container) in [
            (b'o', Effect::Allow, Lasting::Once, true),
            (b'c', Effect::Allow, Lasting::Container, true),
            (b'a', Effect::Allow, Lasting::Always, false),
            (b'n', Effect::Deny, Lasting::Once, true),
            (b'd', Effect::Deny, Lasting::Container, true),
        ] {
            let decide = answers(&question, key).remove(0);
            assert_eq!(
                (decide.effect, decide.lasting, decide.container.is_some()),
                (effect, lasting, container)
            );
            assert_eq!(decide.host, "xn--bcher-kva.example:8443");
        }
        assert_eq!(answers(&question, b'x'), []);
    }

    #[test]
    fn questions_are_meant_by_container_and_host() {
        let question = QuestionStatus {
            container: "agent".to_owned(),
            container_id: "ab".repeat(32).parse().unwrap(),
            host: "docs.example.com".to_owned(),
            ports: vec![443],
            waiting: 1,
            left: 50,
        };
        for (container, host, meant) in [
            (None, None, true),
            (Some("agent"), None, true),
            (Some("abab"), None, true),
            (Some("age"), None, false),
            (Some(""), None, false),
            (Some("other"), None, false),
            (None, Some("*.example.com"), true),
            (None, Some("example.com"), false),
            (Some("agent"), Some("docs.example.com"), true),
            (Some("other"), Some("docs.example.com"), false),
        ] {
            let filter = Filter {
                container: container.map(str::to_owned),
                host: host.map(|host| host.parse().unwrap()),
                // Nothing that a question is, or is not.
                denied: true,
                since: Some(1),
            };
            assert_eq!(is_meant(&filter, &question), meant, "{container:?} {host:?}");
        }
    }
}
