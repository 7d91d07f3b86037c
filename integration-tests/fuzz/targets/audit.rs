//! Audit lines of a file that anybody may have written: what a person reads of them steers no terminal and is one line each, and what
//! `learn` makes of them is a policy.
#![no_main]

use std::io::{BufReader, Read};

use libfuzzer_sys::fuzz_target;
use understudy::trail::filter::Filter;
use understudy::trail::learn::Learned;
use understudy::trail::line::shown;
use understudy::trail::source::read_from;
use understudy_policies::Policy;

/// Gives as much at once as the input's first byte says: a line is the same however it comes.
struct Pieces<'b>(&'b [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = buffer.len().min(self.1);
        self.0.read(buffer.get_mut(..length).unwrap_or_default())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, bytes)) = input.split_first() else { return };
    let filter = Filter { denied: true, since: Some(60), ..Filter::default() };
    let (mut learned, mut lines) = (Learned::default(), Vec::new());
    let missing =
        read_from(BufReader::new(Pieces(bytes, usize::from(*first) + 1)), |text, line| {
            let text_of = |colour| shown(line, colour);
            assert!(!text_of(false).contains(
                |c: char| c.is_control() || !(c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric())
            ));
            assert!(!text_of(true).contains('\n'));
            assert!(!text.contains('\n'));
            filter.matches(line);
            learned.add(line);
            lines.push(text.to_owned());
            Ok(true)
        });
    let Ok(missing) = missing else { return };
    // Each line is one of those that are there, and none is both.
    let whole = bytes.split(|byte| *byte == b'\n').count() as u64;
    assert!(lines.len() as u64 + missing.passed_over <= whole);
    let policy = learned.policy();
    assert!(Policy::parse("learned", "learned.toml", &policy).is_ok(), "{policy}");
    let mut again = Vec::new();
    let same = read_from(bytes, |text, _| {
        again.push(text.to_owned());
        Ok(true)
    });
    assert!(same.is_ok_and(|same| same == missing) && again == lines);
});
