//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677) as PostgreSQL speaks them: both sides, pure but for the
//! nonces, which come from outside. Channel binding is `tls-server-end-point` (RFC 5929 section 4). Passwords are ASCII
//! without spaces and controls, which SASLprep (RFC 4013) leaves as they are.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::{digest, hmac, pbkdf2};
use zeroize::Zeroizing;

pub const PLAIN: &str = "SCRAM-SHA-256";
pub const PLUS: &str = "SCRAM-SHA-256-PLUS";

/// RFC 7677 section 4: the fewest. What containers prove themselves by has no fewer, as some clients insist.
pub const ITERATIONS: u32 = 4096;
/// The most that a server may have us do, a tenth of a second or so of one processor: a role can set its own number.
const MOST_ITERATIONS: u32 = 100_000;
/// PostgreSQL's are of 24 characters.
const LONGEST_NONCE: usize = 256;
const LONGEST_SALT: usize = 256;

const CHANNEL: &str = "tls-server-end-point";

/// Says nothing of any secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    #[error("a SCRAM message that is not well-formed")]
    Malformed,
    #[error("an authorization identity, which PostgreSQL does not have")]
    Identity,
    #[error("channel binding that does not fit the mechanism or the connection")]
    Binding,
    #[error("a nonce that is not the one that was sent")]
    Nonce,
    #[error(
        "{0} iterations, of which at least {ITERATIONS} and at most {MOST_ITERATIONS} are accepted; set `scram_iterations` at \
         the server and the password anew"
    )]
    Iterations(u32),
    #[error("the server does not know the password itself")]
    Server,
}

/// What a client says of channel binding (RFC 5802 section 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// It cannot.
    Unsupported,
    /// It can, and believes that the server cannot.
    NotOffered,
    /// The hash of the server's certificate.
    EndPoint(Vec<u8>),
}

impl Channel {
    fn header(&self) -> String {
        match self {
            Self::Unsupported => "n,,".to_owned(),
            Self::NotOffered => "y,,".to_owned(),
            Self::EndPoint(_) => format!("p={CHANNEL},,"),
        }
    }

    /// What `c=` has to be.
    fn input(&self) -> String {
        let mut input = self.header().into_bytes();
        if let Self::EndPoint(hash) = self {
            input.extend_from_slice(hash);
        }
        BASE64_STANDARD.encode(input)
    }
}

/// The server's side, after the client's first message.
#[derive(Debug)]
pub struct Server {
    channel: Channel,
    /// `client-first-message-bare`.
    bare: String,
    nonce: String,
    first: String,
}

/// What a client has proved that it knows, for a password to be compared with.
#[derive(Debug)]
pub struct Proof {
    message: String,
    proof: [u8; digest::SHA256_OUTPUT_LEN],
}

/// What a server keeps of a password to tell who knows it (RFC 5802 section 3), as salted as it was asked for. Made slowly
/// on purpose.
#[derive(Debug)]
pub struct Verifier {
    stored: [u8; digest::SHA256_OUTPUT_LEN],
    server: hmac::Key,
}

impl Verifier {
    pub fn new(password: &str, salt: &[u8; 16]) -> Self {
        let Keys { stored, server, .. } = Keys::new(password, salt, ITERATIONS);
        Self { stored, server }
    }
}

impl Server {
    /// `end_point` is the hash of the certificate that was shown, if one was. `nonce` must be random and printable.
    ///
    /// # Errors
    /// If the message is not what a client of `mechanism` sends first.
    pub fn new(
        mechanism: &str,
        message: &[u8],
        end_point: Option<&[u8]>,
        nonce: &str,
        salt: [u8; 16],
    ) -> Result<Self, ScramError> {
        let message = std::str::from_utf8(message).map_err(|_| ScramError::Malformed)?;
        let (flag, rest) = message.split_once(',').ok_or(ScramError::Malformed)?;
        let (identity, bare) = rest.split_once(',').ok_or(ScramError::Malformed)?;
        if !identity.is_empty() {
            return Err(ScramError::Identity);
        }
        let channel = match (mechanism, flag, end_point) {
            (PLAIN, "n", _) => Channel::Unsupported,
            (PLAIN, "y", None) => Channel::NotOffered,
            (PLUS, flag, Some(hash)) if flag.strip_prefix("p=") == Some(CHANNEL) => {
                Channel::EndPoint(hash.to_vec())
            }
            // `y` where it was offered: somebody on the way took the offer out.
            _ => return Err(ScramError::Binding),
        };
        // The name is that of the startup message, whatever stands here. `m=` would be an extension to be understood.
        let (name, rest) = bare.split_once(',').ok_or(ScramError::Malformed)?;
        let own = rest.split(',').next().and_then(|part| part.strip_prefix("r="));
        let own = own.filter(|own| is_nonce(own)).ok_or(ScramError::Malformed)?;
        if !name.starts_with("n=") {
            return Err(ScramError::Malformed);
        }
        let nonce = format!("{own}{nonce}");
        let first = format!("r={nonce},s={},i={ITERATIONS}", BASE64_STANDARD.encode(salt));
        Ok(Self { channel, bare: bare.to_owned(), nonce, first })
    }

    /// What the server sends first.
    pub fn first(&self) -> &str {
        &self.first
    }

    pub fn proof(self, message: &[u8]) -> Result<Proof, ScramError> {
        let message = std::str::from_utf8(message).map_err(|_| ScramError::Malformed)?;
        let (without, proof) = message.rsplit_once(",p=").ok_or(ScramError::Malformed)?;
        let mut parts = without.split(',');
        let (channel, nonce) = (parts.next(), parts.next());
        if channel.and_then(|part| part.strip_prefix("c=")) != Some(&self.channel.input()) {
            return Err(ScramError::Binding);
        }
        if nonce.and_then(|part| part.strip_prefix("r=")) != Some(&self.nonce) {
            return Err(ScramError::Nonce);
        }
        let proof = BASE64_STANDARD.decode(proof).map_err(|_| ScramError::Malformed)?;
        let proof = proof.try_into().map_err(|_| ScramError::Malformed)?;
        Ok(Proof { message: format!("{},{},{without}", self.bare, self.first), proof })
    }
}

impl Proof {
    /// The server's last message, if the client knows the password of this verifier, which has to be of the salt that was
    /// asked for.
    pub fn is_of(&self, verifier: &Verifier) -> Option<String> {
        let Verifier { stored, server } = verifier;
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, stored), self.message.as_bytes());
        let client = xor(&self.proof, signature.as_ref());
        if !is_equal(digest::digest(&digest::SHA256, client.as_slice()).as_ref(), stored) {
            return None;
        }
        let signature = hmac::sign(server, self.message.as_bytes());
        Some(format!("v={}", BASE64_STANDARD.encode(signature)))
    }
}

/// The client's side.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    nonce: String,
    bare: String,
}

/// What the server asks to be proved.
#[derive(Debug)]
pub struct Challenge {
    salt: Vec<u8>,
    iterations: u32,
    without: String,
    message: String,
}

/// The client's last message, and what the server has to answer.
pub struct Proved {
    pub last: String,
    server: hmac::Key,
    message: String,
}

impl Client {
    /// `nonce` must be random and printable. PostgreSQL takes the user from its startup message, so `user` can be empty.
    pub fn new(user: &str, nonce: String, channel: Channel) -> Self {
        let bare = format!("n={user},r={nonce}");
        Self { channel, nonce, bare }
    }

    pub fn mechanism(&self) -> &'static str {
        if matches!(self.channel, Channel::EndPoint(_)) { PLUS } else { PLAIN }
    }

    pub fn first(&self) -> String {
        format!("{}{}", self.channel.header(), self.bare)
    }

    pub fn challenge(self, first: &[u8]) -> Result<Challenge, ScramError> {
        let first = std::str::from_utf8(first).map_err(|_| ScramError::Malformed)?;
        let mut parts = first.split(',');
        let mut next = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let (nonce, salt, iterations) = (next("r="), next("s="), next("i="));
        let nonce = nonce.filter(|nonce| is_nonce(nonce)).ok_or(ScramError::Malformed)?;
        // It has to add something of its own.
        if nonce.strip_prefix(&self.nonce).is_none_or(str::is_empty) {
            return Err(ScramError::Nonce);
        }
        let salt = BASE64_STANDARD.decode(salt.ok_or(ScramError::Malformed)?);
        let salt = salt.ok().filter(|salt| (1..=LONGEST_SALT).contains(&salt.len()));
        let salt = salt.ok_or(ScramError::Malformed)?;
        let iterations: u32 =
            iterations.and_then(|number| number.parse().ok()).ok_or(ScramError::Malformed)?;
        if !(ITERATIONS..=MOST_ITERATIONS).contains(&iterations) {
            return Err(ScramError::Iterations(iterations));
        }
        let without = format!("c={},r={nonce}", self.channel.input());
        let message = format!("{},{first},{without}", self.bare);
        Ok(Challenge { salt, iterations, without, message })
    }
}

impl Challenge {
    pub(super) fn prove(self, password: &str) -> Proved {
        let keys = Keys::new(password, &self.salt, self.iterations);
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &keys.stored), self.message.as_bytes());
        let proof = xor(&keys.client, signature.as_ref());
        let last = format!("{},p={}", self.without, BASE64_STANDARD.encode(proof.as_slice()));
        Proved { last, server: keys.server, message: self.message }
    }
}

impl Proved {
    /// Whether the server knows the password, too.
    pub fn verify(&self, last: &[u8]) -> Result<(), ScramError> {
        let last = std::str::from_utf8(last).map_err(|_| ScramError::Malformed)?;
        let signature = last.split(',').next().and_then(|part| part.strip_prefix("v="));
        let signature = BASE64_STANDARD.decode(signature.ok_or(ScramError::Server)?);
        let signature = signature.map_err(|_| ScramError::Malformed)?;
        hmac::verify(&self.server, self.message.as_bytes(), &signature).map_err(|_| ScramError::Server)
    }
}

/// RFC 5802 section 3.
struct Keys {
    client: Zeroizing<[u8; digest::SHA256_OUTPUT_LEN]>,
    stored: [u8; digest::SHA256_OUTPUT_LEN],
    server: hmac::Key,
}

impl Keys {
    fn new(password: &str, salt: &[u8], iterations: u32) -> Self {
        let mut salted = Zeroizing::new([0; digest::SHA256_OUTPUT_LEN]);
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, password.as_bytes(), &mut *salted);
        let salted = hmac::Key::new(hmac::HMAC_SHA256, &*salted);
        let mut client = Zeroizing::new([0; digest::SHA256_OUTPUT_LEN]);
        client.copy_from_slice(hmac::sign(&salted, b"Client Key").as_ref());
        let mut stored = [0; digest::SHA256_OUTPUT_LEN];
        stored.copy_from_slice(digest::digest(&digest::SHA256, &*client).as_ref());
        let server = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&salted, b"Server Key").as_ref());
        Self { client, stored, server }
    }
}

fn xor(one: &[u8; digest::SHA256_OUTPUT_LEN], other: &[u8]) -> Zeroizing<[u8; digest::SHA256_OUTPUT_LEN]> {
    let mut both = Zeroizing::new(*one);
    both.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
    both
}

/// In a time that depends on the lengths only.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |seen, (a, b)| std::hint::black_box(seen | (a ^ b)));
    one.len() == other.len() && differences == 0
}

fn is_nonce(text: &str) -> bool {
    (1..=LONGEST_NONCE).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
    const CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                               p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_LAST: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn salt() -> [u8; 16] {
        BASE64_STANDARD.decode(SALT).unwrap().try_into().unwrap()
    }

    fn server() -> Server {
        Server::new(PLAIN, CLIENT_FIRST.as_bytes(), None, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", salt()).unwrap()
    }

    fn client() -> Client {
        Client::new("user", "rOprNGfwEbeRWgbNEkqO".to_owned(), Channel::Unsupported)
    }

    #[test]
    fn both_sides_say_what_rfc_7677_has_as_its_example() {
        let (server, client) = (server(), client());
        assert_eq!((client.first().as_str(), server.first()), (CLIENT_FIRST, SERVER_FIRST));
        let proved = client.challenge(SERVER_FIRST.as_bytes()).unwrap().prove("pencil");
        assert_eq!(proved.last, CLIENT_LAST);
        let proof = server.proof(CLIENT_LAST.as_bytes()).unwrap();
        let is_of = |password| proof.is_of(&Verifier::new(password, &salt()));
        assert_eq!(is_of("pencil").as_deref(), Some(SERVER_LAST));
        for other in ["pencils", "Pencil", "", "penci"] {
            assert_eq!(is_of(other), None);
        }
        assert_eq!(proved.verify(SERVER_LAST.as_bytes()), Ok(()));
        let another = SERVER_LAST.replace("6rr", "6rq");
        for bad in ["e=invalid-proof", "v=", "v=AAAA", &another, ""] {
            assert_eq!(proved.verify(bad.as_bytes()), Err(ScramError::Server), "{bad}");
        }
    }

    #[test]
    fn the_channel_is_bound_to_the_certificate_that_was_shown() {
        let (shown, other) = ([1; 32], [2; 32]);
        let talk = |seen: &[u8], mechanism: &str, channel: Channel| {
            let client = Client::new("", "abc".to_owned(), channel);
            let server = Server::new(mechanism, client.first().as_bytes(), Some(seen), "def", [0; 16])?;
            let proved = client.challenge(server.first().as_bytes())?.prove("pencil");
            let verifier = Verifier::new("pencil", &[0; 16]);
            server.proof(proved.last.as_bytes()).map(|proof| proof.is_of(&verifier).is_some())
        };
        assert_eq!(talk(&shown, PLUS, Channel::EndPoint(shown.to_vec())), Ok(true));
        assert_eq!(talk(&shown, PLUS, Channel::EndPoint(other.to_vec())), Err(ScramError::Binding));
        assert_eq!(talk(&shown, PLAIN, Channel::Unsupported), Ok(true));
        for (mechanism, channel) in [
            // It was offered.
            (PLAIN, Channel::NotOffered),
            (PLAIN, Channel::EndPoint(shown.to_vec())),
            (PLUS, Channel::Unsupported),
            ("SCRAM-SHA-1", Channel::Unsupported),
        ] {
            assert_eq!(talk(&shown, mechanism, channel), Err(ScramError::Binding));
        }
        assert!(Server::new(PLAIN, b"y,,n=,r=abc", None, "def", [0; 16]).is_ok());
        assert!(Server::new(PLUS, b"p=tls-server-end-point,,n=,r=abc", None, "def", [0; 16]).is_err());
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        for bad in [
            "",
            "n",
            "n,,",
            "n,a=x,n=,r=abc",
            "n,,m=x,n=,r=abc",
            "n,,n=",
            "n,,n=,r=",
            "n,,n=,r=a\u{7f}",
            "n,,r=abc,n=",
        ] {
            assert!(Server::new(PLAIN, bad.as_bytes(), None, "def", [0; 16]).is_err(), "{bad}");
        }
        for (from, to, error) in [
            ("c=biws", "c=eSws", ScramError::Binding),
            ("r=rOp", "r=rOq", ScramError::Nonce),
            (",p=", ",q=", ScramError::Malformed),
            ("dHzb", "", ScramError::Malformed),
            ("dHzb", "d!zb", ScramError::Malformed),
        ] {
            let last = CLIENT_LAST.replace(from, to);
            assert_eq!(server().proof(last.as_bytes()).unwrap_err(), error, "{last}");
        }
        for (from, to, error) in [
            ("r=rOp", "r=rOq", ScramError::Nonce),
            ("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", "", ScramError::Nonce),
            ("i=4096", "i=4095", ScramError::Iterations(4095)),
            ("i=4096", "i=100001", ScramError::Iterations(100_001)),
            ("i=4096", "i=x", ScramError::Malformed),
            ("s=W22Z", "s=!", ScramError::Malformed),
            ("s=W22ZaJ0SNY7soEsUEjb6gQ==", "s=", ScramError::Malformed),
            ("r=", "m=", ScramError::Malformed),
        ] {
            let first = SERVER_FIRST.replace(from, to);
            assert_eq!(client().challenge(first.as_bytes()).unwrap_err(), error, "{first}");
        }
    }
}
