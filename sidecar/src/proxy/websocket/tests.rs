use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::credentials::scrub::{Forms, Pair, Patterns};

const REAL: &str = "sk-0123456789abcdef";
const STAND_IN: &str = "sk-fedcba9876543210";

fn patterns(value: &str, other: &str) -> Arc<Patterns> {
    Arc::new(Patterns::new([Pair { owner: 7, value, other: other.into(), forms: Forms::All }]))
}

fn server() -> Side {
    let nothing = Arc::new(Patterns::new([]));
    Side::new(Sender::Server, Replacing::All, patterns(REAL, STAND_IN), nothing)
}

fn client() -> Side {
    Side::new(Sender::Client, Replacing::Text, patterns(STAND_IN, REAL), patterns(REAL, REAL))
}

const TEXT: u8 = 0x81;
const TEXT_BEGINS: u8 = 0x01;
const BINARY: u8 = 0x82;
const GOES_ON: u8 = 0x00;
const ENDS: u8 = 0x80;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;

/// RFC 6455 section 5.2, with the mask that the payload's length chooses.
fn frame(sender: Sender, first: u8, payload: &[u8]) -> Vec<u8> {
    let masked = if sender == Sender::Client { 0x80 } else { 0 };
    let mut frame = vec![first];
    match payload.len() {
        length @ ..126 => frame.push(masked | length as u8),
        length @ ..65_536 => {
            frame.push(masked | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(masked | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    if sender == Sender::Server {
        frame.extend(payload);
        return frame;
    }
    let mask = (payload.len() as u32).wrapping_mul(2_654_435_761).to_be_bytes();
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

fn through(mut side: Side, bytes: &[u8], size: usize) -> Result<(Vec<u8>, Vec<usize>), BadFrame> {
    let mut out = Vec::new();
    for chunk in bytes.chunks(size) {
        out.extend_from_slice(&side.push(Bytes::copy_from_slice(chunk))?);
    }
    Ok((out, side.found()))
}

#[test]
fn values_are_replaced_across_the_frames_of_a_message() {
    let (first, rest) = REAL.split_at(5);
    let (new_first, new_rest) = STAND_IN.split_at(5);
    let frames = |first: &str, rest: &str, whole: &str, long: usize| {
        let long = "x".repeat(long) + whole;
        [
            frame(Sender::Server, TEXT_BEGINS, first.as_bytes()),
            frame(Sender::Server, PING, b"ping"),
            frame(Sender::Server, GOES_ON, b""),
            frame(Sender::Server, ENDS, rest.as_bytes()),
            frame(Sender::Server, BINARY, whole.as_bytes()),
            frame(Sender::Server, TEXT, b""),
            frame(Sender::Server, TEXT, long.as_bytes()),
            frame(Sender::Server, CLOSE, format!("\u{3}\u{1}{whole}").as_bytes()),
        ]
        .concat()
    };
    for long in [0, 130, 70_000] {
        let sent = frames(first, rest, REAL, long);
        let wanted = frames(new_first, new_rest, STAND_IN, long);
        for size in [1, 2, 3, 7, 64, 4096, sent.len()] {
            assert!(through(server(), &sent, size).unwrap().0 == wanted, "{long} {size}");
        }
    }
}

#[test]
fn a_message_does_not_wait_for_the_next_and_a_frame_only_for_what_decides() {
    let mut side = server();
    let whole = frame(Sender::Server, TEXT, b"ends with sk-0123");
    assert_eq!(side.push(whole.clone().into()).unwrap(), whole);
    // Two bytes of head, and what cannot be the beginning.
    let begins = frame(Sender::Server, TEXT_BEGINS, b"abc sk-");
    assert_eq!(side.push(begins.clone().into()).unwrap(), begins[..6]);
    let ping = frame(Sender::Server, PING, b"");
    assert_eq!(side.push(ping.clone().into()).unwrap(), "");
    let ends = frame(Sender::Server, ENDS, b"x");
    assert_eq!(side.push(ends.clone().into()).unwrap(), [&begins[6..], &ping, &ends].concat());
}

#[test]
fn a_client_swaps_in_text_only_and_keeps_its_masks() {
    let frames = |text: &str, other: &str| {
        [
            frame(Sender::Client, TEXT, format!("{{\"key\":\"{text}\"}}").as_bytes()),
            frame(Sender::Client, BINARY, other.as_bytes()),
            frame(Sender::Client, PING, other.as_bytes()),
        ]
        .concat()
    };
    let sent = frames(STAND_IN, STAND_IN);
    for size in [1, 5, 4096] {
        assert_eq!(through(client(), &sent, size), Ok((frames(REAL, STAND_IN), vec![])));
    }
}

#[test]
fn a_real_value_of_a_client_is_found_in_every_kind_of_frame() {
    let (first, rest) = REAL.split_at(9);
    let fragmented = [
        frame(Sender::Client, TEXT_BEGINS, first.as_bytes()),
        frame(Sender::Client, PING, b""),
        frame(Sender::Client, ENDS, rest.as_bytes()),
    ]
    .concat();
    for sent in [
        frame(Sender::Client, TEXT, REAL.as_bytes()),
        frame(Sender::Client, BINARY, REAL.as_bytes()),
        frame(Sender::Client, PING, REAL.as_bytes()),
        fragmented,
    ] {
        for size in [1, 4096] {
            assert_eq!(through(client(), &sent, size).unwrap().1, [7]);
        }
    }
    // Two messages are two texts.
    let sent = [frame(Sender::Client, TEXT, first.as_bytes()), frame(Sender::Client, TEXT, rest.as_bytes())];
    assert!(through(client(), &sent.concat(), 4096).unwrap().1.is_empty());
}

#[test]
fn what_is_not_well_formed_ends_it() {
    let server_frame = |first, payload: &[u8]| frame(Sender::Server, first, payload);
    for (sent, error) in [
        (vec![0xc1, 0], BadFrame::ReservedBit),
        (vec![0xa1, 0], BadFrame::ReservedBit),
        (vec![0x83, 0], BadFrame::ReservedOpcode(3)),
        (vec![0x8b, 0], BadFrame::ReservedOpcode(11)),
        (vec![0x81, 0x80, 0, 0, 0, 0], BadFrame::Masked),
        (vec![0x09, 0], BadFrame::Control),
        (vec![0x89, 126, 0, 126], BadFrame::Control),
        (vec![0x81, 126, 0, 125], BadFrame::Length),
        (vec![0x81, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff], BadFrame::Length),
        (vec![0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], BadFrame::Length),
        (server_frame(ENDS, b"x"), BadFrame::Fragment),
        ([server_frame(TEXT_BEGINS, b"x"), server_frame(TEXT, b"x")].concat(), BadFrame::Fragment),
        (
            [server_frame(TEXT_BEGINS, b"sk-"), server_frame(PING, b"").repeat(300)].concat(),
            BadFrame::TooMany,
        ),
    ] {
        assert_eq!(through(server(), &sent, 1), Err(error));
        assert_eq!(through(server(), &sent, 4096), Err(error));
    }
    assert_eq!(through(client(), &[0x81, 0], 2), Err(BadFrame::NotMasked));
}

proptest! {
    #[test]
    fn nothing_makes_it_panic_and_cuts_make_no_difference(bytes in vec(any::<u8>(), 0..300), size in 1..20_usize) {
        for side in [server, client] {
            let whole = through(side(), &bytes, 4096);
            let cut = through(side(), &bytes, size);
            prop_assert_eq!(whole, cut);
        }
    }

    /// Frames of a server with anything in them: as many bytes, and no real value in any message.
    #[test]
    fn no_message_holds_the_real_value(cuts in vec(0..40_usize, 0..6), around in "[a-z]{0,20}", size in 1..50_usize) {
        let text = format!("{around}{REAL}{around}sk-0{REAL}");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let parts: Vec<&str> = cuts.windows(2).map(|two| &text[two[0]..two[1]]).collect();
        let first = |at: usize| match (at == 0, at + 1 == parts.len()) {
            (true, true) => TEXT,
            (true, false) => TEXT_BEGINS,
            (false, false) => GOES_ON,
            (false, true) => ENDS,
        };
        let frames = |parts: &[&str]| -> Vec<u8> {
            parts.iter().enumerate().flat_map(|(at, part)| frame(Sender::Server, first(at), part.as_bytes())).collect()
        };
        let replaced = text.replace(REAL, STAND_IN);
        let wanted: Vec<&str> = cuts.windows(2).map(|two| &replaced[two[0]..two[1]]).collect();
        prop_assert_eq!(through(server(), &frames(&parts), size).unwrap().0, frames(&wanted));
    }
}
