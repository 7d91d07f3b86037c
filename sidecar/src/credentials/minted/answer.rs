//! Taking what was minted out of an answer, and putting stand-ins in its place. Pure, but for the container's holdings.

use std::sync::Arc;
use std::time::Instant;

use http::Method;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use understudy_policies::{HostName, HostPattern, RequestPath};
use zeroize::Zeroizing;

use super::beside::around;
use super::found::Found;
use crate::accounts::token::looks_like_a_token;
use crate::credentials::assertions::unique::Members;
use crate::credentials::body::FieldError;
use crate::credentials::catalogue::minted::Minted;
use crate::credentials::examine::Swaps;
use crate::credentials::holdings::{Holdings, MintedCredential, MintedNow};
use crate::credentials::secret::SecretValue;
use crate::credentials::stand_in::derive_minted;
use crate::credentials::vault::Vault;

/// A request whose answer holds credentials that are made for this container.
#[derive(Debug)]
pub struct Minting {
    host: HostName,
    fields: Vec<Minted>,
    /// The secrets that it was asked for with.
    by: Vec<String>,
    /// Whether the answer is of a token endpoint, where what looks like a token and is not declared must not go on.
    strict: bool,
}

/// Why an answer must not go on: a credential could be in it that the container must not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    #[error("it should hold a credential for a session, and is not JSON that can be told: {0}")]
    Body(FieldError),
    #[error("the field with a credential for a session is no text")]
    NoText,
    #[error("the credential for a session has a shape that no stand-in can have")]
    Shape,
    #[error("it has a field that looks like a token and is not known")]
    Undeclared,
    #[error("what it encodes has no credential for a session where one is known")]
    Absent,
    #[error(
        "what it encodes has `{0}`, which looks like a credential and is not known: the container must not have it"
    )]
    Beside(String),
}

impl Minting {
    /// None if nothing is declared for this request, or no stand-in was swapped in it.
    pub fn of(
        vault: &Vault,
        host: &HostName,
        method: &Method,
        path: &str,
        swaps: &Swaps,
        minted: &MintedNow,
    ) -> Option<Self> {
        if swaps.secrets.is_empty() {
            return None;
        }
        let likes: Vec<&str> =
            vault.bound_to(host).filter_map(|d| Some(d.like.as_ref()?.name.as_str())).collect();
        let here = vault.catalogue().minted_at(host, &likes);
        let path = RequestPath::parse(path).ok()?;
        let fields: Vec<Minted> = here.filter(|minted| minted.is_made_by(method, &path)).cloned().collect();
        let strict = !swaps.minted.is_empty();
        let fields = [swaps.minted.clone(), fields].concat();
        if fields.is_empty() {
            return None;
        }
        // What was minted is good for as long as what it was minted by.
        let of_name = |name: &String| match minted.all().find(|known| known.label == *name) {
            Some(known) => known.by.clone(),
            None => vec![name.clone()],
        };
        let by = swaps.secrets.iter().flat_map(of_name).collect();
        Some(Self { host: host.clone(), fields, by, strict })
    }

    /// What the container gets of the answer's body, and from now on holds.
    pub fn settle(
        &self,
        vault: &Vault,
        holdings: &Holdings,
        body: &[u8],
        now: Instant,
    ) -> Result<Zeroizing<Vec<u8>>, MintError> {
        self.no_other_token(body)?;
        if self.fields.iter().any(|declared| declared.inside.is_some()) {
            around(body, &self.fields, vault.catalogue())?;
        }
        let mut out = Zeroizing::new(body.to_vec());
        let mut settled = Vec::new();
        for declared in &self.fields {
            let place = (&declared.field, &declared.inside);
            if settled.contains(&place) {
                continue;
            }
            settled.push(place);
            let Some(found) = Found::of(&out, declared, &self.fields, vault.catalogue())? else { continue };
            let text = &found.text;
            if text.is_empty() || vault.is_stand_in(text) || vault.real_value_in(text.as_bytes()).is_some() {
                continue;
            }
            let value = match SecretValue::from_bytes(text.as_bytes()) {
                Ok(value) => value,
                Err(_) if declared.wrap => return Err(MintError::Shape),
                // It is passed on, and refused when it comes back.
                Err(_) => continue,
            };
            let credential = holdings.mint(self.credential(vault, declared, value)?, now);
            if let Some(stand_in) = &credential.stand_in {
                out = found.replaced(&out, stand_in);
            }
        }
        Ok(out)
    }

    fn no_other_token(&self, body: &[u8]) -> Result<(), MintError> {
        if !self.strict {
            return Ok(());
        }
        let Ok(Members(mut members)) = Members::parse(body) else {
            return Err(MintError::Body(FieldError::Malformed));
        };
        let declared = self.fields.iter().filter_map(|declared| declared.field.tokens().first());
        for name in declared.map(String::as_str).chain(["token_type", "permissions"]) {
            members.remove(name);
        }
        // Of GitHub: what the token is for. It is full of identifiers that look like anything.
        if members.remove("repositories").is_some_and(|repositories| names_a_token(&repositories)) {
            return Err(MintError::Undeclared);
        }
        match members.iter().any(|(name, value)| looks_like_a_token(name, value).is_some()) {
            true => Err(MintError::Undeclared),
            false => Ok(()),
        }
    }

    fn credential(
        &self,
        vault: &Vault,
        declared: &Minted,
        value: SecretValue,
    ) -> Result<MintedCredential, MintError> {
        let stand_in = declared.wrap.then(|| stand_in(vault, &value)).transpose()?;
        let hosts = match declared.used_at.as_slice() {
            [] => vec![HostPattern::Exact(self.host.clone())],
            hosts => hosts.to_vec(),
        };
        Ok(MintedCredential {
            label: declared.label.clone(),
            value: Arc::new(value),
            stand_in,
            hosts,
            placements: declared.placements.clone(),
            by: self.by.clone(),
        })
    }
}

fn names_a_token(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(names_a_token),
        Value::Object(members) => members.iter().any(|(name, value)| match value {
            Value::String(text) => !text.is_empty() && name.to_ascii_lowercase().contains("token"),
            value => names_a_token(value),
        }),
        _ => false,
    }
}

/// Another one each time: it is good for as long as the container is, and means nothing to anybody after that.
fn stand_in(vault: &Vault, value: &SecretValue) -> Result<String, MintError> {
    let mut unique = [0_u8; 16];
    SystemRandom::new().fill(&mut unique).map_err(|_| MintError::Shape)?;
    let name = format!("minted {}", unique.map(|byte| format!("{byte:02x}")).concat());
    let key = vault.key().ok_or(MintError::Shape)?;
    derive_minted(key, &name, value, vault.catalogue()).map_err(|_| MintError::Shape)
}
