//! PostgreSQL: first packets of containers, messages about logins of both sides, and the frames of a server's messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use understudy::connection::postgres::message::{Asked, Frames, Opening, Told, sasl_initial};
use understudy::credentials::postgres::scram::{Channel, Client, PLAIN, PLUS, Server, Verifier};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 6 {
        0 => {
            if let Ok(Opening::Start(startup)) = Opening::parse(bytes) {
                // What goes on is the same session, of the named user and nobody else.
                let packet = startup.packet("real");
                let Ok(Opening::Start(again)) = Opening::parse(&packet[4..]) else { panic!("{packet:?}") };
                assert_eq!((again.user(), again.database()), ("real", startup.database()));
                assert!(again.negotiation().is_none() && again.packet("real") == packet);
            }
        }
        1 => drop(Asked::parse(bytes)),
        2 => drop(Told::parse(bytes)),
        3 => {
            let Ok((mechanism, first)) = sasl_initial(bytes) else { return };
            for end_point in [None, Some(&[1; 32][..])] {
                if let Ok(server) = Server::new(mechanism, first, end_point, "nonce", [0; 16]) {
                    assert!(server.first().starts_with("r="));
                    drop(server.proof(bytes));
                }
            }
        }
        4 => {
            let cut = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
            let (first, last) = bytes.split_at(cut);
            if let Ok(server) = Server::new(PLAIN, first, None, "nonce", [0; 16]) {
                // Nobody proves what nobody has told it.
                let nobody = Verifier::new("a password of nobody", &[0; 16]);
                assert!(server.proof(last).ok().and_then(|proof| proof.is_of(&nobody)).is_none());
            }
            drop(Server::new(PLUS, first, Some(&[1; 32]), "nonce", [0; 16]));
            drop(Client::new("", "client".to_owned(), Channel::NotOffered).challenge(last));
        }
        _ => {
            // However it is cut, it is the same.
            let (mut whole, mut cut) = (Frames::default(), Frames::default());
            let result = whole.advance(bytes);
            let pieces = bytes.chunks(usize::from(kind / 6) + 1).try_for_each(|piece| cut.advance(piece));
            assert_eq!(result, pieces);
            assert!(result.is_err() || whole.is_between() == cut.is_between());
        }
    }
});
