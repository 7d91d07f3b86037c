//! What a client of SSH is told before any key is exchanged: our version, and why it ends (RFC 4253 sections 4.2 and 11.1;
//! the latter may be sent at any time). Pure.

use crate::reason::Reason;

const VERSION: &[u8] = b"SSH-2.0-understudy\r\n";
const MSG_DISCONNECT: u8 = 1;
/// SSH_DISCONNECT_BY_APPLICATION
const BY_APPLICATION: u32 = 11;
/// SSH_DISCONNECT_TOO_MANY_CONNECTIONS
const TOO_MANY: u32 = 12;
/// Of what is told, in bytes.
const LONGEST: usize = 1000;
/// Without a cipher (section 6): a packet is a multiple of it, and has this much padding at least.
const BLOCK: usize = 8;
const LEAST_PADDING: usize = 4;

pub(super) fn farewell(reason: Option<Reason>, text: &str) -> Vec<u8> {
    let code = match reason {
        Some(Reason::Overloaded | Reason::RateLimited | Reason::LimitReached) => TOO_MANY,
        _ => BY_APPLICATION,
    };
    // Clients print it as it is; some only ASCII.
    let text: Vec<u8> =
        text.bytes().take(LONGEST).map(|b| if matches!(b, b' '..=b'~') { b } else { b'?' }).collect();
    let mut payload = vec![MSG_DISCONNECT];
    payload.extend(code.to_be_bytes());
    payload.extend(string(&text));
    payload.extend(string(b""));
    [VERSION, &packet(&payload)].concat()
}

/// Section 6 of RFC 4253.
fn packet(payload: &[u8]) -> Vec<u8> {
    let unpadded = 4 + 1 + payload.len() + LEAST_PADDING;
    let padding = LEAST_PADDING + unpadded.next_multiple_of(BLOCK) - unpadded;
    let length = u32::try_from(1 + payload.len() + padding).unwrap_or(0);
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(u8::try_from(padding).unwrap_or(0));
    packet.extend_from_slice(payload);
    packet.resize(packet.len() + padding, 0);
    packet
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes();
    [&length[..], bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_version_and_one_whole_packet() {
        for length in 0..40 {
            let text = "x".repeat(length);
            let said = farewell(Some(Reason::Overloaded), &text);
            let packet = said.strip_prefix(b"SSH-2.0-understudy\r\n").unwrap();
            assert_eq!(packet.len() % 8, 0);
            let stated = u32::from_be_bytes(packet[..4].try_into().unwrap());
            assert_eq!(usize::try_from(stated).unwrap() + 4, packet.len());
            let padding = usize::from(packet[4]);
            assert!((4..12).contains(&padding), "{padding}");
            let payload = &packet[5..packet.len() - padding];
            assert_eq!(payload[..5], [1, 0, 0, 0, 12]);
            assert_eq!(payload[5..], [&string(text.as_bytes())[..], &[0; 4]].concat());
        }
    }

    #[test]
    fn what_it_says_is_short_and_plain() {
        let said = farewell(None, &format!("a\r\nb\u{e9}{}", "x".repeat(5000)));
        assert!(said.len() < 1100);
        assert!(said.windows(6).any(|part| part == b"a??b??"));
    }
}
