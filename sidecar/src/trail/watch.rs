//! `understudy watch`: each line as it comes, and questions, which a key answers.

use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use serde_json::Value;
use understudy_control::{Decide, Effect, Lasting, Lines, QuestionStatus, Reply, Request};

use super::filter::Filter;
use super::{Call, line, since};

#[derive(Debug, clap::Args)]
pub struct WatchArguments {
    #[command(flatten)]
    pub filter: Filter,
    /// Print the lines as they are; then nothing is answered
    #[arg(long)]
    pub json: bool,
}

const PAUSE: Duration = Duration::from_millis(300);
const KEYS: &str = "[o]nce, for this [c]ontainer, [a]lways; [n]ot now, [d]eny for this container; [q]uit";

/// Until it is interrupted, or the sidecar is gone.
pub fn run(arguments: &WatchArguments, call: Call<'_>) -> Result<()> {
    let terminal = if arguments.json { None } else { Terminal::of_standard_input()? };
    let colour = line::is_coloured();
    // What was before is what `log` is for.
    let mut from = since(call, u64::MAX)?.next;
    let mut asked: Option<QuestionStatus> = None;
    loop {
        let Lines { lines, next, lost, more } = since(call, from)?;
        if lost > 0 {
            eprintln!("understudy: {lost} lines came too fast to be shown");
        }
        for text in &lines {
            let Ok(parsed) = serde_json::from_str::<Value>(text) else { continue };
            if arguments.filter.matches(&parsed) {
                match arguments.json {
                    true => println!("{text}"),
                    false => println!("{}", line::shown(&parsed, colour)),
                }
            }
        }
        std::io::stdout().flush()?;
        from = next;
        if more {
            continue;
        }
        let Some(terminal) = &terminal else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let open = question(arguments, call)?;
        if let Some(question) = open.as_ref().filter(|open| !same(asked.as_ref(), open)) {
            // A key that was pressed before answers nothing that comes after it.
            terminal.forget()?;
            println!("{}", shown(question));
        }
        asked = open;
        let Some(key) = terminal.key(PAUSE)? else { continue };
        // Also what Ctrl-C is while keys are read one by one.
        if matches!(key, b'q' | 3 | 4) {
            return Ok(());
        }
        if let (Some(question), Some(decide)) = (&asked, asked.as_ref().and_then(|asked| answer(asked, key)))
        {
            match call(Request::Decide(decide)) {
                Ok(_) => println!("  {} {}:{}", verb(key), question.host, question.port),
                Err(error) => println!("  {error:#}"),
            }
        }
    }
}

fn question(arguments: &WatchArguments, call: Call<'_>) -> Result<Option<QuestionStatus>> {
    let Reply::Status(status) = call(Request::Status)? else {
        bail!("the sidecar answered another question")
    };
    let mut meant = status.questions.into_iter().filter(|question| {
        arguments.filter.container.as_ref().is_none_or(|wanted| {
            question.container == *wanted || question.container_id.as_str().starts_with(wanted.as_str())
        })
    });
    Ok(meant.next())
}

fn same(asked: Option<&QuestionStatus>, open: &QuestionStatus) -> bool {
    asked.is_some_and(|asked| {
        (&asked.container_id, &asked.host, asked.port) == (&open.container_id, &open.host, open.port)
    })
}

/// With the rule that `always` would make. The host is ASCII: other letters are in Punycode.
fn shown(question: &QuestionStatus) -> String {
    let QuestionStatus { container, host, port, left, .. } = question;
    format!(
        "? {container} asks for {host}:{port} ({left} s left): [[allow]] host = \"{host}\", port = {port}\n  {KEYS}"
    )
}

fn verb(key: u8) -> &'static str {
    match key {
        b'n' | b'd' => "denied",
        _ => "allowed",
    }
}

fn answer(question: &QuestionStatus, key: u8) -> Option<Decide> {
    let (effect, lasting) = match key {
        b'o' => (Effect::Allow, Lasting::Once),
        b'c' => (Effect::Allow, Lasting::Container),
        b'a' => (Effect::Allow, Lasting::Always),
        b'n' => (Effect::Deny, Lasting::Once),
        b'd' => (Effect::Deny, Lasting::Container),
        _ => return None,
    };
    let container = (lasting != Lasting::Always).then(|| question.container_id.to_string());
    Some(Decide { effect, host: format!("{}:{}", question.host, question.port), container, lasting })
}

/// Standard input, one key at a time; as it was before once dropped.
struct Terminal(Termios);

impl Terminal {
    /// None if it is no terminal.
    fn of_standard_input() -> Result<Option<Self>> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Some(Self(before)))
    }

    /// Keys that were pressed and not read.
    fn forget(&self) -> Result<()> {
        Ok(tcflush(std::io::stdin(), QueueSelector::IFlush)?)
    }

    fn key(&self, patience: Duration) -> Result<Option<u8>> {
        let stdin = std::io::stdin();
        let patience = Timespec::try_from(patience)?;
        let ready = poll(&mut [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)], Some(&patience));
        match ready {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(None),
            Ok(_) => {
                let mut byte = [0];
                // Not through the buffer of the standard library, which `poll` knows nothing of.
                match rustix::io::read(&stdin, &mut byte)? {
                    0 => Ok(Some(4)),
                    _ => Ok(byte.first().copied()),
                }
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
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
            port: 8443,
            waiting: 1,
            left: 50,
        };
        let text = shown(&question);
        assert!(text.contains("[[allow]] host = \"xn--bcher-kva.example\", port = 8443"), "{text}");
        for (key, effect, lasting, container) in [
            (b'o', Effect::Allow, Lasting::Once, true),
            (b'c', Effect::Allow, Lasting::Container, true),
            (b'a', Effect::Allow, Lasting::Always, false),
            (b'n', Effect::Deny, Lasting::Once, true),
            (b'd', Effect::Deny, Lasting::Container, true),
        ] {
            let decide = answer(&question, key).unwrap();
            assert_eq!(
                (decide.effect, decide.lasting, decide.container.is_some()),
                (effect, lasting, container)
            );
            assert_eq!(decide.host, "xn--bcher-kva.example:8443");
        }
        assert_eq!(answer(&question, b'x'), None);
    }
}
