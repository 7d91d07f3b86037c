//! One DNS query to one answer (RFC 1035). Pure: what is asked never goes anywhere.

use std::net::Ipv4Addr;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType, rdata::A};
use understudy_policies::{HostName, PolicySet};

use crate::dns::SyntheticNames;

/// Seconds for which a name that policy could permit is answered; its address stays the same much longer.
const NAME_TTL: u32 = 60;
/// Seconds for the sink: policy may change.
const SINK_TTL: u32 = 5;

/// The bytes to send back, and what was asked if it should be told of.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub bytes: Vec<u8>,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A name that policy could permit, or a kind of record that is answered with "none".
    Answered,
    /// A name that policy cannot permit.
    Sunk(HostName),
    /// A record type, class or name that is not answered at all; in words.
    Refused(String),
}

/// The answer to the datagram or message `query`; `None` for what is not a query and so deserves no answer.
///
/// With `any`, every name is one that could be permitted: a person will be asked.
pub fn answer(query: &[u8], names: &SyntheticNames, policy: &PolicySet, any: bool) -> Option<Answer> {
    let Ok(message) = Message::from_vec(query) else {
        return malformed(query);
    };
    if message.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut response = Message::response(message.metadata.id, message.metadata.op_code);
    response.metadata.recursion_desired = message.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    let outcome = match message.queries.as_slice() {
        [question] if message.metadata.op_code == OpCode::Query => {
            response.add_query(question.clone());
            fill(&mut response, question, names, |name| any || policy.may_permit(name))
        }
        _ => {
            response.metadata.response_code = ResponseCode::NotImp;
            Outcome::Refused("not one standard query".to_owned())
        }
    };
    let bytes = response.to_vec().ok()?;
    Some(Answer { bytes, outcome })
}

fn fill(
    response: &mut Message,
    question: &Query,
    names: &SyntheticNames,
    may_permit: impl Fn(&HostName) -> bool,
) -> Outcome {
    let mut refuse = |why: String| {
        response.metadata.response_code = ResponseCode::Refused;
        Outcome::Refused(why)
    };
    if question.query_class() != DNSClass::IN {
        return refuse(format!("class {}", question.query_class()));
    }
    let Some(name) = host_name(question.name()) else {
        return refuse("not a host name".to_owned());
    };
    match question.query_type() {
        RecordType::A => {
            let (address, ttl, outcome) = if may_permit(&name) {
                (names.address(&name), NAME_TTL, Outcome::Answered)
            } else {
                (names.range().sink(), SINK_TTL, Outcome::Sunk(name))
            };
            response.add_answer(record(question.name(), ttl, address));
            outcome
        }
        // No data: clients go on with A at once.
        RecordType::AAAA | RecordType::HTTPS | RecordType::SVCB => Outcome::Answered,
        other => refuse(format!("type {other} of {name}")),
    }
}

fn record(name: &Name, ttl: u32, address: Ipv4Addr) -> Record {
    Record::from_rdata(name.clone(), ttl, RData::A(A(address)))
}

/// The canonical name; a label with a dot inside is not taken for two labels.
fn host_name(name: &Name) -> Option<HostName> {
    let mut wire = Vec::with_capacity(256);
    for label in name.iter() {
        if label.contains(&b'.') {
            return None;
        }
        wire.extend_from_slice(label);
        wire.push(b'.');
    }
    HostName::from_wire(&wire).ok()
}

/// FORMERR for what has at least a header of a query, so that a client does not wait for its time-out.
fn malformed(query: &[u8]) -> Option<Answer> {
    let [high, low, flags, ..] = *query else { return None };
    if query.len() < 12 || flags & 0x80 != 0 {
        return None;
    }
    let response = Message::error_msg(u16::from_be_bytes([high, low]), OpCode::Query, ResponseCode::FormErr);
    Some(Answer { bytes: response.to_vec().ok()?, outcome: Outcome::Refused("malformed".to_owned()) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use understudy_policies::Policy;

    use super::*;

    fn policy() -> PolicySet {
        let policy = Policy::from_allow_annotation("api.example.com").unwrap();
        PolicySet::combine(vec![Arc::new(policy)])
    }

    fn query(name: &str, kind: RecordType) -> Vec<u8> {
        let mut message = Message::query();
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        message.to_vec().unwrap()
    }

    fn ask(bytes: &[u8], names: &SyntheticNames) -> (Message, Outcome) {
        let policy = policy();
        let answer = answer(bytes, names, &policy, false).unwrap();
        (Message::from_vec(&answer.bytes).unwrap(), answer.outcome)
    }

    fn address(message: &Message) -> Ipv4Addr {
        match &message.answers[0].data {
            RData::A(a) => a.0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_that_policy_could_permit_gets_an_address_of_its_own() {
        let names = SyntheticNames::default();
        let (message, outcome) = ask(&query("API.example.com.", RecordType::A), &names);
        assert_eq!(outcome, Outcome::Answered);
        let name: HostName = "api.example.com".parse().unwrap();
        assert_eq!(names.origin(address(&message).into()), crate::dns::Origin::Name(name));
    }

    #[test]
    fn every_other_name_gets_the_sink() {
        let names = SyntheticNames::default();
        for name in ["evil.example.", "c2VjcmV0.evil.example.", "localhost."] {
            let (message, outcome) = ask(&query(name, RecordType::A), &names);
            assert!(matches!(outcome, Outcome::Sunk(_)), "{name}");
            assert_eq!(address(&message), names.range().sink());
        }
    }

    #[test]
    fn where_a_person_is_asked_every_name_gets_an_address() {
        let names = SyntheticNames::default();
        let answer = answer(&query("evil.example.", RecordType::A), &names, &policy(), true).unwrap();
        assert_eq!(answer.outcome, Outcome::Answered);
        let address = address(&Message::from_vec(&answer.bytes).unwrap());
        assert_ne!(address, names.range().sink());
    }

    #[test]
    fn aaaa_https_and_svcb_have_no_data_and_the_rest_is_refused() {
        let names = SyntheticNames::default();
        for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB] {
            let (message, outcome) = ask(&query("api.example.com.", kind), &names);
            assert_eq!((message.metadata.response_code, message.answers.len()), (ResponseCode::NoError, 0));
            assert_eq!(outcome, Outcome::Answered);
        }
        for kind in [
            RecordType::TXT,
            RecordType::NULL,
            RecordType::ANY,
            RecordType::MX,
            RecordType::CNAME,
            RecordType::PTR,
        ] {
            let (message, outcome) = ask(&query("api.example.com.", kind), &names);
            assert_eq!(message.metadata.response_code, ResponseCode::Refused, "{kind}");
            assert!(matches!(outcome, Outcome::Refused(_)));
        }
    }

    #[test]
    fn a_label_with_a_dot_or_a_nul_is_not_a_host_name() {
        let names = SyntheticNames::default();
        let odd: Vec<Vec<u8>> =
            b"\n\r\t\0 \"'\\%@/:[]*,;\x7f\x80\xff".iter().map(|b| vec![b'a', *b, b'b']).collect();
        let letters =
            ["\u{212a}", "\u{130}", "api\u{ff0e}example", "\u{3002}"].map(|text| text.as_bytes().to_vec());
        for label in odd.into_iter().chain(letters).chain([b"api.example.com".to_vec()]) {
            for last in [&b"com"[..], b"1", b"0x7f"] {
                let name = Name::from_labels([&label, last]).unwrap();
                let mut message = Message::query();
                message.add_query(Query::query(name, RecordType::A));
                let (message, outcome) = ask(&message.to_vec().unwrap(), &names);
                assert_eq!(message.metadata.response_code, ResponseCode::Refused, "{label:?}");
                assert!(message.answers.is_empty() && matches!(outcome, Outcome::Refused(_)), "{label:?}");
            }
        }
        for address in ["1.2.3.4.", "127.1.", "2130706433.", "0x7f.0.0.1.", "0177.0.0.1."] {
            let (message, _) = ask(&query(address, RecordType::A), &names);
            assert_eq!(message.metadata.response_code, ResponseCode::Refused, "{address}");
        }
    }

    #[test]
    fn what_is_not_a_query_is_not_answered() {
        let names = SyntheticNames::default();
        let policy = policy();
        let mut reply = query("api.example.com.", RecordType::A);
        reply[2] |= 0x80;
        assert_eq!(answer(&reply, &names, &policy, false), None);
        assert_eq!(answer(b"short", &names, &policy, false), None);
        let mut cut = query("api.example.com.", RecordType::A);
        cut.truncate(14);
        assert!(answer(&cut, &names, &policy, false).is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_or_not_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = answer(&bytes, &SyntheticNames::default(), &policy(), false);
        }
    }
}
