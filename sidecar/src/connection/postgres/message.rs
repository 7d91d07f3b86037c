//! The messages of PostgreSQL's protocol 3 (its manual, "Message Formats") that come before a session is one, and the
//! frames of those that follow. Pure, and bounded by what it is given.

/// Of a client's first packet (MAX_STARTUP_PACKET_LENGTH).
pub const LONGEST_OPENING: usize = 10_000;

/// Protocol 3.0, which every server speaks that is alive.
const VERSION: u32 = 3 << 16;
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("a packet that is not well-formed")]
    Malformed,
    #[error("protocol version {0}; only 3 is spoken")]
    Version(u16),
    #[error("`{0}` twice")]
    Twice(&'static str),
    #[error("no user")]
    NoUser,
    #[error("replication, which takes whole servers along; connect without it")]
    Replication,
    #[error("the name of the database is not UTF-8")]
    Name,
}

/// A client's first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    Tls,
    Gss,
    Cancel(CancelKey),
    Start(Startup),
}

/// By which a session's command is cancelled over another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CancelKey {
    pub process: [u8; 4],
    pub key: [u8; 4],
}

/// What a client says of the session that it wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Startup {
    minor: u16,
    user: String,
    database: String,
    /// All others, in their order.
    parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names of options of the protocol, none of which is known.
    options: Vec<Vec<u8>>,
}

impl Opening {
    /// Whether a packet that begins so is one, well-formed or not.
    pub fn is_code(code: u32) -> bool {
        matches!(code, TLS | GSS | CANCEL) || code >> 16 == VERSION >> 16
    }

    /// `body` is the packet without its length.
    pub fn parse(body: &[u8]) -> Result<Self, MessageError> {
        let (code, rest) = body.split_first_chunk().ok_or(MessageError::Malformed)?;
        match (u32::from_be_bytes(*code), rest) {
            (TLS, []) => Ok(Self::Tls),
            (GSS, []) => Ok(Self::Gss),
            (CANCEL, rest) => Ok(Self::Cancel(CancelKey::parse(rest)?)),
            (TLS | GSS, _) => Err(MessageError::Malformed),
            (version, rest) => match version.to_be_bytes() {
                [0, 3, high, low] => Startup::parse(u16::from_be_bytes([high, low]), rest).map(Self::Start),
                [high, low, ..] => Err(MessageError::Version(u16::from_be_bytes([high, low]))),
            },
        }
    }
}

impl CancelKey {
    /// Of BackendKeyData, and of a request to cancel.
    pub fn parse(body: &[u8]) -> Result<Self, MessageError> {
        match *body {
            [a, b, c, d, e, f, g, h] => Ok(Self { process: [a, b, c, d], key: [e, f, g, h] }),
            _ => Err(MessageError::Malformed),
        }
    }

    /// A whole CancelRequest.
    pub fn request(self) -> Vec<u8> {
        [16_u32.to_be_bytes(), CANCEL.to_be_bytes(), self.process, self.key].concat()
    }

    /// A whole BackendKeyData.
    pub fn message(self) -> Vec<u8> {
        message(b'K', &[&self.process, &self.key])
    }
}

impl Startup {
    fn parse(minor: u16, mut rest: &[u8]) -> Result<Self, MessageError> {
        let (mut user, mut database, mut replication) = (None, None, None);
        let (mut parameters, mut options) = (Vec::new(), Vec::new());
        loop {
            let name = string(&mut rest)?;
            if name.is_empty() {
                break;
            }
            let value = string(&mut rest)?;
            let once = |known: &mut Option<Vec<u8>>, name| match known.replace(value.to_vec()) {
                None => Ok(()),
                // Servers take the last one; who looks at the first is deceived.
                Some(_) => Err(MessageError::Twice(name)),
            };
            match name {
                b"user" => once(&mut user, "user")?,
                b"database" => once(&mut database, "database")?,
                b"replication" => once(&mut replication, "replication")?,
                name if name.starts_with(b"_pq_.") => options.push(name.to_vec()),
                name => parameters.push((name.to_vec(), value.to_vec())),
            }
        }
        if !rest.is_empty() {
            return Err(MessageError::Malformed);
        }
        if replication.is_some_and(|value| !matches!(&value[..], b"false" | b"off" | b"no" | b"0")) {
            return Err(MessageError::Replication);
        }
        let user = user.filter(|user| !user.is_empty()).ok_or(MessageError::NoUser)?;
        let user = String::from_utf8(user).map_err(|_| MessageError::Name)?;
        let database = database.filter(|name| !name.is_empty()).map(String::from_utf8);
        let database = database.transpose().map_err(|_| MessageError::Name)?;
        let database = database.unwrap_or_else(|| user.clone());
        Ok(Self { minor, user, database, parameters, options })
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    /// The user's own if the client has named none.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The packet of the same session as another user.
    pub fn packet(&self, user: &str) -> Vec<u8> {
        let own = [(&b"user"[..], user.as_bytes()), (b"database", self.database.as_bytes())];
        let others = self.parameters.iter().map(|(name, value)| (&name[..], &value[..]));
        let mut body = VERSION.to_be_bytes().to_vec();
        for (name, value) in own.into_iter().chain(others) {
            body.extend_from_slice(name);
            body.push(0);
            body.extend_from_slice(value);
            body.push(0);
        }
        body.push(0);
        packet(&body)
    }

    /// What is said to a client that asks for more than protocol 3.0 (NegotiateProtocolVersion).
    pub fn negotiation(&self) -> Option<Vec<u8>> {
        if self.minor == 0 && self.options.is_empty() {
            return None;
        }
        let mut options = Vec::new();
        for option in &self.options {
            options.extend_from_slice(option);
            options.push(0);
        }
        let count = u32::try_from(self.options.len()).unwrap_or(0).to_be_bytes();
        Some(message(b'v', &[&VERSION.to_be_bytes(), &count, &options]))
    }
}

/// What a server asks for in AuthenticationXXX.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    Password,
    Md5 {
        salt: [u8; 4],
    },
    /// By the names of mechanisms.
    Sasl(Vec<String>),
    SaslContinue(Vec<u8>),
    SaslFinal(Vec<u8>),
    /// Kerberos, GSSAPI, SSPI and what is not known.
    Other(u32),
}

impl Asked {
    /// The most mechanisms that are looked at.
    const MOST: usize = 16;

    /// Of a message of type `R`.
    pub fn parse(body: &[u8]) -> Result<Self, MessageError> {
        let (code, mut rest) = body.split_first_chunk().ok_or(MessageError::Malformed)?;
        match u32::from_be_bytes(*code) {
            0 => Ok(Self::Nothing),
            3 => Ok(Self::Password),
            5 => Ok(Self::Md5 { salt: rest.try_into().map_err(|_| MessageError::Malformed)? }),
            10 => {
                let mut names = Vec::new();
                while names.len() < Self::MOST {
                    match string(&mut rest)? {
                        [] => break,
                        name => names.push(String::from_utf8_lossy(name).into_owned()),
                    }
                }
                Ok(Self::Sasl(names))
            }
            11 => Ok(Self::SaslContinue(rest.to_vec())),
            12 => Ok(Self::SaslFinal(rest.to_vec())),
            other => Ok(Self::Other(other)),
        }
    }
}

/// Whole messages of the server's side.
pub mod say {
    use super::message;

    pub fn ok() -> Vec<u8> {
        message(b'R', &[&0_u32.to_be_bytes()])
    }

    pub fn sasl<'m>(mechanisms: impl Iterator<Item = &'m str>) -> Vec<u8> {
        let names: Vec<u8> = mechanisms.flat_map(|name| name.bytes().chain([0])).collect();
        message(b'R', &[&10_u32.to_be_bytes(), &names, &[0]])
    }

    pub fn sasl_continue(text: &str) -> Vec<u8> {
        message(b'R', &[&11_u32.to_be_bytes(), text.as_bytes()])
    }

    pub fn sasl_final(text: &str) -> Vec<u8> {
        message(b'R', &[&12_u32.to_be_bytes(), text.as_bytes()])
    }

    /// ErrorResponse, after which the connection ends.
    pub fn fatal(sqlstate: &str, text: &str) -> Vec<u8> {
        // No text of ours has one; it would end the field.
        let text = text.replace('\0', " ");
        let fields = [("S", "FATAL"), ("V", "FATAL"), ("C", sqlstate), ("M", text.as_str())];
        let fields: Vec<u8> =
            fields.iter().flat_map(|(name, value)| name.bytes().chain(value.bytes()).chain([0])).collect();
        message(b'E', &[&fields, &[0]])
    }
}

/// What ErrorResponse and NoticeResponse say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Five letters or digits.
    pub sqlstate: String,
    pub text: String,
}

impl Told {
    pub fn parse(mut body: &[u8]) -> Result<Self, MessageError> {
        let (mut sqlstate, mut text) = (String::new(), String::new());
        loop {
            let field = string(&mut body)?;
            let Some((kind, value)) = field.split_first() else { break };
            match kind {
                b'C' => sqlstate = String::from_utf8_lossy(value).into_owned(),
                b'M' => text = String::from_utf8_lossy(value).into_owned(),
                _ => {}
            }
        }
        if sqlstate.len() != 5 || !sqlstate.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()) {
            return Err(MessageError::Malformed);
        }
        Ok(Self { sqlstate, text })
    }
}

/// The mechanism and the content of SASLInitialResponse.
pub fn sasl_initial(mut body: &[u8]) -> Result<(&str, &[u8]), MessageError> {
    let mechanism = std::str::from_utf8(string(&mut body)?).map_err(|_| MessageError::Malformed)?;
    let (length, content) = body.split_first_chunk().ok_or(MessageError::Malformed)?;
    if usize::try_from(u32::from_be_bytes(*length)) != Ok(content.len()) {
        return Err(MessageError::Malformed);
    }
    Ok((mechanism, content))
}

/// A whole SASLInitialResponse.
pub fn sasl_response(mechanism: &str, content: &str) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(0).to_be_bytes();
    message(b'p', &[mechanism.as_bytes(), &[0], &length, content.as_bytes()])
}

/// With its length, as a client's first packet.
pub fn packet(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap_or(0).to_be_bytes();
    [&length[..], body].concat()
}

/// SSLRequest.
pub fn tls_request() -> Vec<u8> {
    packet(&TLS.to_be_bytes())
}

/// With its type and length.
pub fn message(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length + 4).unwrap_or(0).to_be_bytes();
    let mut all = vec![kind];
    all.extend_from_slice(&length);
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all
}

/// Up to a zero byte, which is taken off, too.
fn string<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8], MessageError> {
    let end = rest.iter().position(|byte| *byte == 0).ok_or(MessageError::Malformed)?;
    let (text, after) = rest.split_at(end);
    *rest = after.get(1..).unwrap_or_default();
    Ok(text)
}

/// Where a server's messages begin and end in what it sends, however that is cut.
#[derive(Debug, Clone, Copy, Default)]
pub struct Frames {
    head: [u8; 5],
    /// Of `head`.
    have: usize,
    /// Of the message's body, yet to come.
    left: usize,
}

/// What a server must not send in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unexpected {
    #[error("a message with a length that cannot be")]
    Length,
    #[error("a question for credentials in the middle of a session")]
    Authentication,
    #[error("another key for cancelling in the middle of a session")]
    Key,
}

impl Frames {
    /// Whether a message of the sidecar's own can follow.
    pub fn is_between(&self) -> bool {
        self.have == 0 && self.left == 0
    }

    pub fn advance(&mut self, mut bytes: &[u8]) -> Result<(), Unexpected> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = self.left.min(bytes.len());
                self.left -= taken;
                bytes = bytes.get(taken..).unwrap_or_default();
                continue;
            }
            let taken = (self.head.len() - self.have).min(bytes.len());
            let (now, rest) = bytes.split_at(taken);
            if let Some(free) = self.head.get_mut(self.have..self.have + taken) {
                free.copy_from_slice(now);
            }
            (self.have, bytes) = (self.have + taken, rest);
            if self.have == self.head.len() {
                self.have = 0;
                let [kind, length @ ..] = self.head;
                let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.left = length.checked_sub(4).filter(|left| *left < 1 << 30).ok_or(Unexpected::Length)?;
                match kind {
                    b'R' => return Err(Unexpected::Authentication),
                    b'K' => return Err(Unexpected::Key),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "message/tests.rs"]
mod tests;
