//! A request's body on its way upstream: watched for real values, which end it, and for stand-ins, which are counted.

use bytes::Bytes;
use http::HeaderMap;

use super::coding::{self, Decoder, Undecodable};
use super::failure::Failure;
use super::request::Upgrade;
use super::searches::Searches;
use super::websocket::{Replacing, Sender, Side};
use crate::credentials::scrub::{Detector, Watched};
use crate::reason::Reason;

#[derive(Debug)]
pub(super) struct Upload {
    body: Body,
    upgraded: bool,
    stand_ins: u64,
}

#[derive(Debug)]
enum Body {
    Plain { detector: Detector, encoded: Option<Encoded> },
    WebSocket(Box<Side>),
}

/// What an encoded body says, read beside it.
#[derive(Debug)]
struct Encoded {
    decoder: Decoder,
    detector: Detector,
}

/// Why a body must not go on.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) failure: Failure,
    /// Whose real value it holds.
    pub(super) secret: Option<String>,
}

impl Upload {
    pub(super) fn new(head: &HeaderMap, searches: &Searches) -> Self {
        let detector = || Detector::new(searches.requests());
        let coding = coding::of(head).ok().flatten();
        let encoded = coding.map(|coding| Encoded { decoder: Decoder::new(coding), detector: detector() });
        Self { body: Body::Plain { detector: detector(), encoded }, upgraded: false, stand_ins: 0 }
    }

    /// Of a client's side of what the connection became, after a body that it may have had.
    pub(super) fn upgraded(to: &Upgrade, searches: &Searches, before: Option<&Self>) -> Self {
        let body = match to {
            Upgrade::WebSocket if searches.of_frames() => {
                let side = Side::new(Sender::Client, Replacing::Text, searches.text(), searches.requests());
                Body::WebSocket(Box::new(side))
            }
            Upgrade::WebSocket | Upgrade::Other(_) | Upgrade::None | Upgrade::Ignored => {
                Body::Plain { detector: Detector::new(searches.requests()), encoded: None }
            }
        };
        Self { body, upgraded: true, stand_ins: before.map_or(0, Self::stand_ins) }
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded
    }

    /// What goes upstream now. Nothing of a chunk with the end of a real value does.
    pub(super) fn push(&mut self, chunk: Bytes, end: bool, searches: &Searches) -> Result<Bytes, Stopped> {
        let mut found = Vec::new();
        let out = match &mut self.body {
            Body::Plain { detector, encoded } => {
                found.extend(detector.push(chunk.clone()));
                if let Some(inside) = encoded {
                    match inside.decoder.push(&chunk) {
                        Ok(text) => found.extend(inside.detector.push(text)),
                        Err(error @ Undecodable::Bomb(_)) => {
                            let (reason, detail) = (Reason::BodyTooLarge, error.to_string());
                            let failure = Failure { reason, detail, client_gone: false };
                            return Err(Stopped { failure, secret: None });
                        }
                        // It is the upstream's to refuse; what was read so far was searched.
                        Err(_) => *encoded = None,
                    }
                }
                if end {
                    found.extend(detector.finish());
                    found.extend(encoded.iter_mut().flat_map(|inside| inside.detector.finish()));
                }
                chunk
            }
            Body::WebSocket(side) => {
                let out = side.push(chunk).map_err(|error| Stopped {
                    failure: Failure {
                        reason: Reason::Malformed,
                        detail: error.to_string(),
                        client_gone: false,
                    },
                    secret: None,
                })?;
                found.extend(side.found());
                out
            }
        };
        for owner in found {
            match searches.watched(owner) {
                Some(Watched::Real(name)) => return Err(stopped(name)),
                Some(Watched::StandIn(_)) => self.stand_ins += 1,
                None => {}
            }
        }
        Ok(out)
    }

    /// Whether a stand-in was swapped in it.
    pub(super) fn swapped(&self) -> bool {
        match &self.body {
            Body::Plain { .. } => false,
            Body::WebSocket(side) => side.count() > 0,
        }
    }

    /// How many stand-ins were in it so far.
    pub(super) fn stand_ins(&self) -> u64 {
        self.stand_ins
    }
}

fn stopped(secret: &str) -> Stopped {
    let detail = "in the body".to_owned();
    let failure = Failure { reason: Reason::RealCredential, detail, client_gone: false };
    Stopped { failure, secret: Some(secret.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http::{HeaderValue, header};

    use super::*;
    use crate::credentials::fixture::{Values, declared, vault};

    const REAL: &str = "sk-0123456789abcdefghij";

    fn searches() -> Searches {
        let vault = vault(&declared("key", ""), &Values::from([("key", REAL)]));
        Searches::of_host(vault, &[], "api.example.com")
    }

    #[test]
    fn the_end_of_a_real_value_goes_nowhere() {
        let searches = searches();
        let mut upload = Upload::new(&HeaderMap::new(), &searches);
        let (first, rest) = REAL.split_at(10);
        assert_eq!(upload.push(first.into(), false, &searches).unwrap(), first);
        let stopped = upload.push(rest.into(), false, &searches).unwrap_err();
        assert_eq!((stopped.failure.reason, stopped.secret), (Reason::RealCredential, Some("key".into())));
    }

    #[test]
    fn stand_ins_are_counted_and_go_on() {
        let searches = searches();
        let vault = vault(&declared("key", ""), &Values::from([("key", REAL)]));
        let body = format!("{0} {0}", vault.secret("key").unwrap().stand_in());
        let mut upload = Upload::new(&HeaderMap::new(), &searches);
        assert_eq!(upload.push(body.clone().into(), true, &searches).unwrap(), body);
        assert_eq!(upload.stand_ins(), 2);
    }

    #[test]
    fn what_is_encoded_is_read_and_what_cannot_be_goes_on() {
        let searches = searches();
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(format!("{{\"key\":\"{REAL}\"}}").as_bytes()).unwrap();
        let body = Bytes::from(encoder.finish().unwrap());
        let mut head = HeaderMap::new();
        head.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(Upload::new(&head, &searches).push(body, true, &searches).is_err());
        let other = Bytes::from("not gzip");
        assert_eq!(Upload::new(&head, &searches).push(other.clone(), true, &searches).unwrap(), other);
    }
}
