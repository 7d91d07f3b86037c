use super::*;

fn start(minor: u16, pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut body = (VERSION | u32::from(minor)).to_be_bytes().to_vec();
    for (name, value) in pairs {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    body
}

fn startup(minor: u16, pairs: &[(&str, &str)]) -> Result<Startup, MessageError> {
    match Opening::parse(&start(minor, pairs))? {
        Opening::Start(startup) => Ok(startup),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_first_packet_is_one_of_four() {
    for (body, opening) in [
        (80_877_103_u32.to_be_bytes().to_vec(), Opening::Tls),
        (80_877_104_u32.to_be_bytes().to_vec(), Opening::Gss),
        (
            [&80_877_102_u32.to_be_bytes()[..], &[0, 0, 0, 7, 1, 2, 3, 4]].concat(),
            Opening::Cancel(CancelKey { process: [0, 0, 0, 7], key: [1, 2, 3, 4] }),
        ),
    ] {
        assert_eq!(Opening::parse(&body), Ok(opening.clone()));
        // Nothing may follow, and nothing be missing.
        let longer = Opening::parse(&[&body[..], &[0]].concat());
        let shorter = Opening::parse(&body[..body.len() - 1]);
        assert!(longer.is_err() && shorter.is_err(), "{opening:?}");
        if let Opening::Cancel(key) = opening {
            assert_eq!(key.request(), packet(&body));
        }
    }
    assert_eq!(packet(&80_877_103_u32.to_be_bytes()), tls_request());
    assert_eq!(Opening::parse(&[0, 2, 0, 0, 0]), Err(MessageError::Version(2)));
}

#[test]
fn a_session_is_asked_for_again_as_another_user() {
    let pairs = [("user", "agent"), ("database", "app"), ("options", "-c x=1"), ("client_encoding", "UTF8")];
    let asked = startup(0, &pairs).unwrap();
    assert_eq!((asked.user(), asked.database(), asked.negotiation()), ("agent", "app", None));
    let again = [("user", "real"), ("database", "app"), ("options", "-c x=1"), ("client_encoding", "UTF8")];
    assert_eq!(asked.packet("real"), packet(&start(0, &again)));
    let own = startup(0, &[("user", "agent"), ("replication", "off")]).unwrap();
    assert_eq!(own.database(), "agent");
    assert_eq!(own.packet("agent"), packet(&start(0, &[("user", "agent"), ("database", "agent")])));
}

#[test]
fn a_newer_client_is_told_what_is_spoken() {
    let newer = startup(2, &[("_pq_.x", "1"), ("user", "a"), ("_pq_.y", "2")]).unwrap();
    let told = [&[b'v', 0, 0, 0, 26, 0, 3, 0, 0, 0, 0, 0, 2][..], b"_pq_.x\0_pq_.y\0"].concat();
    assert_eq!(newer.negotiation(), Some(told));
    assert_eq!(newer.packet("a"), packet(&start(0, &[("user", "a"), ("database", "a")])));
    assert!(startup(2, &[("user", "a")]).unwrap().negotiation().is_some());
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    for (pairs, error) in [
        (&[("user", "a"), ("user", "b")][..], MessageError::Twice("user")),
        (&[("user", "a"), ("database", "x"), ("database", "y")], MessageError::Twice("database")),
        (&[("database", "x")], MessageError::NoUser),
        (&[("user", "")], MessageError::NoUser),
        (&[("user", "a"), ("replication", "true")], MessageError::Replication),
        (&[("user", "a"), ("replication", "database")], MessageError::Replication),
        (&[("user", "a"), ("replication", "")], MessageError::Replication),
    ] {
        assert_eq!(startup(0, pairs), Err(error), "{pairs:?}");
    }
    let good = start(0, &[("user", "a")]);
    for bad in [&good[..good.len() - 1], &[&good[..], b"x"].concat(), &good[..6], &good[..3], &[]] {
        assert_eq!(Opening::parse(bad), Err(MessageError::Malformed), "{bad:?}");
    }
    let mut bytes = start(0, &[("user", "a"), ("database", "xx")]);
    let at = bytes.len() - 4;
    bytes[at] = 0xff;
    assert_eq!(Opening::parse(&bytes), Err(MessageError::Name));
}

#[test]
fn what_a_server_asks_for_is_told_apart() {
    for (code, rest, asked) in [
        (0, &b""[..], Ok(Asked::Nothing)),
        (3, b"", Ok(Asked::Password)),
        (5, b"abcd", Ok(Asked::Md5 { salt: *b"abcd" })),
        (5, b"abc", Err(MessageError::Malformed)),
        (10, b"A\0B\0\0", Ok(Asked::Sasl(vec!["A".to_owned(), "B".to_owned()]))),
        (10, b"A", Err(MessageError::Malformed)),
        (11, b"r=", Ok(Asked::SaslContinue(b"r=".to_vec()))),
        (12, b"v=", Ok(Asked::SaslFinal(b"v=".to_vec()))),
        (7, b"", Ok(Asked::Other(7))),
    ] {
        let body = [&u32::to_be_bytes(code)[..], rest].concat();
        assert_eq!(Asked::parse(&body), asked, "{code}");
    }
}

#[test]
fn an_error_is_told_with_its_sqlstate() {
    let fatal = say::fatal("28P01", "no\0t");
    assert_eq!(&fatal[..5], &[b'E', 0, 0, 0, 32]);
    assert_eq!(fatal.len(), 33);
    let told = Told { sqlstate: "28P01".to_owned(), text: "no t".to_owned() };
    assert_eq!(Told::parse(&fatal[5..]), Ok(told));
    for bad in [&b"C28P01\0"[..], b"C28P\0\0", b"\0", b"Mx\0\0", b"C28p01\0\0"] {
        assert_eq!(Told::parse(bad), Err(MessageError::Malformed));
    }
}

#[test]
fn a_first_answer_says_its_length() {
    let whole = sasl_response("SCRAM-SHA-256", "n,,n=,r=x");
    assert_eq!(sasl_initial(&whole[5..]), Ok(("SCRAM-SHA-256", &b"n,,n=,r=x"[..])));
    for bad in [&whole[5..whole.len() - 1], &[&whole[5..], b"x"].concat(), b"S\0", b"S", b""] {
        assert_eq!(sasl_initial(bad), Err(MessageError::Malformed));
    }
}

#[test]
fn frames_are_followed_however_they_are_cut() {
    let stream = [message(b'D', &[&[b'K'; 300]]), message(b'Z', &[b"I"]), message(b'n', &[])].concat();
    for size in [1, 2, 3, 5, 7, 64, stream.len()] {
        let (mut frames, mut between) = (Frames::default(), Vec::new());
        let mut at = 0;
        for piece in stream.chunks(size) {
            frames.advance(piece).unwrap();
            at += piece.len();
            if frames.is_between() {
                between.push(at);
            }
        }
        let ends = [305, 311, 316];
        assert!(between.iter().all(|at| ends.contains(at)) && between.last() == Some(&316), "{between:?}");
        assert_eq!(between.len() == 3, size == 1);
    }
    for (kind, error) in [(b'R', Unexpected::Authentication), (b'K', Unexpected::Key)] {
        assert_eq!(Frames::default().advance(&message(kind, &[&[0; 8]])), Err(error));
    }
    for length in [0_u32, 3, 1 << 30 | 4, u32::MAX] {
        let head = [&[b'D'][..], &length.to_be_bytes()].concat();
        assert_eq!(Frames::default().advance(&head), Err(Unexpected::Length), "{length}");
    }
}
