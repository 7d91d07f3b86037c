//! An access key, and what containers have instead. The stand-ins have one shape, whatever the key's: a key of a session
//! that takes the place of another one leaves them as they are.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use understudy_sigv4::Time;
use zeroize::Zeroizing;

use super::super::catalogue::Alphabet;
use super::super::installation_key::InstallationKey;
use super::super::secret::{SecretValue, ValueError};
use super::super::stand_in;

/// Beside the secret access key, which is the value of the secret.
pub struct AwsKey {
    id: Arc<SecretValue>,
    token: Option<Arc<SecretValue>>,
    stand_in_id: String,
    stand_in_token: String,
    /// In seconds since 1970.
    expires: Option<i64>,
}

/// Why a file is not a key that can be used. Says nothing of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "it is neither a file of `aws configure` (lines aws_access_key_id = … and aws_secret_access_key = …) nor the JSON of a credential_process"
    )]
    Form,
    #[error("it holds several profiles; leave one, or make a file of its own for this one")]
    Profiles,
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{0}: {1}")]
    Value(&'static str, ValueError),
    #[error("its Expiration is not as 2027-01-31T12:00:00Z")]
    Expiration,
}

/// The three values as they were written.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Written {
    access_key_id: Option<Zeroizing<String>>,
    secret_access_key: Option<Zeroizing<String>>,
    session_token: Option<Zeroizing<String>>,
    expiration: Option<String>,
}

impl AwsKey {
    /// With the secret access key and its stand-in. `name` is the secret's.
    pub(in crate::credentials) fn read(
        bytes: &[u8],
        key: &InstallationKey,
        name: &str,
    ) -> Result<(Self, SecretValue, String), KeyError> {
        let text = std::str::from_utf8(bytes).map_err(|_| KeyError::Form)?.trim();
        let written = if text.starts_with('{') {
            serde_json::from_str(text).map_err(|_| KeyError::Form)?
        } else {
            lines(text)?
        };
        let value = |name: &'static str, text: Option<Zeroizing<String>>| {
            let text = text.filter(|text| !text.is_empty()).ok_or(KeyError::Missing(name))?;
            SecretValue::from_bytes(text.as_bytes()).map_err(|error| KeyError::Value(name, error))
        };
        let id = value("the id of the access key", written.access_key_id)?;
        let secret = value("the secret access key", written.secret_access_key)?;
        let token = match written.session_token.filter(|token| !token.is_empty()) {
            None => None,
            token => Some(value("the session token", token)?),
        };
        let expires =
            written.expiration.map(|text| seconds(&text).ok_or(KeyError::Expiration)).transpose()?;
        let drawn = |part: &str, prefix: &str, alphabet, length| {
            stand_in::of_shape(key, &format!("{name}/{part}"), prefix, alphabet, length)
        };
        let own = Self {
            id: Arc::new(id),
            token: token.map(Arc::new),
            stand_in_id: drawn("key-id", "AKIA", Alphabet::Base32, 16),
            stand_in_token: drawn("session-token", "IQoJb3JpZ2luX2Vj", Alphabet::Base62, 340),
            expires,
        };
        Ok((own, secret, drawn("secret-key", "", Alphabet::Base62, 40)))
    }

    /// With its stand-in.
    pub(in crate::credentials) fn id(&self) -> (&Arc<SecretValue>, &str) {
        (&self.id, &self.stand_in_id)
    }

    /// With its stand-in, if the key is that of a session.
    pub(in crate::credentials) fn token(&self) -> Option<(&Arc<SecretValue>, &str)> {
        self.token.as_ref().map(|token| (token, self.stand_in_token.as_str()))
    }

    /// The id and the token.
    pub(in crate::credentials) fn parts(&self) -> impl Iterator<Item = (&Arc<SecretValue>, &str)> {
        [self.id()].into_iter().chain(self.token())
    }

    /// What containers have instead of the id.
    pub fn stand_in_id(&self) -> &str {
        &self.stand_in_id
    }

    /// What a container may send as a token: it may have been started when the key had one.
    pub fn stand_in_token(&self) -> &str {
        &self.stand_in_token
    }

    /// In seconds since 1970.
    pub fn expires(&self) -> Option<i64> {
        self.expires
    }
}

impl fmt::Debug for AwsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsKey(..)")
    }
}

/// `name = value`, of one profile.
fn lines(text: &str) -> Result<Written, KeyError> {
    let (mut id, mut secret, mut token) = (None, None, None);
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';', '['])) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let place = match name.trim().to_ascii_lowercase().as_str() {
            "aws_access_key_id" => &mut id,
            "aws_secret_access_key" => &mut secret,
            "aws_session_token" => &mut token,
            _ => continue,
        };
        if place.replace(Zeroizing::new(value.trim().to_owned())).is_some() {
            return Err(KeyError::Profiles);
        }
    }
    if id.is_none() && secret.is_none() {
        return Err(KeyError::Form);
    }
    Ok(Written { access_key_id: id, secret_access_key: secret, session_token: token, expiration: None })
}

/// RFC 3339, in UTC; parts of a second do not count.
fn seconds(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let whole = text.split('.').next()?;
    Some(Time::parse(&format!("{}Z", whole.replace(['-', ':'], "")))?.seconds())
}
