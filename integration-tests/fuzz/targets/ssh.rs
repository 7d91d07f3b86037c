//! Commands that a container sends over SSH: what is understood is one program and one plain word, and is sent on as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy::connection::ssh::command::Command;

fuzz_target!(|bytes: &[u8]| {
    let Ok(command) = Command::parse(bytes) else { return };
    let sent = command.to_string();
    assert_eq!(sent.as_bytes(), bytes);
    let inner = sent.split_once(' ').map(|(_, word)| &word[1..word.len() - 1]).unwrap_or_default();
    assert!(!inner.is_empty() && inner.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.+@/".contains(&b)));
    assert!(!command.path().split('/').skip(1).any(|part| matches!(part, "" | "." | "..")));
});
