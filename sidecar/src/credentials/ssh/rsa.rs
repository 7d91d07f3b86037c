//! Logging in with an RSA key (RFC 8332). ring signs, as it takes the same time for every key, and never with SHA-1.

use std::sync::Arc;

use crypto_bigint::{BoxedUint, NonZero};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair, KeyPairComponents, PublicKeyComponents};
use ring::signature::{RSA_PKCS1_SHA256, RSA_PKCS1_SHA512};
use russh::Signer;
use russh::keys::agent::AgentIdentity;
use russh::keys::ssh_key::private::RsaKeypair;
use russh::keys::{HashAlg, ssh_key::Mpint};
use zeroize::Zeroizing;

/// Signs one login.
pub(crate) struct RsaSigner(Arc<KeyPair>);

#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    #[error("the connection is gone")]
    Gone(#[from] russh::SendError),
    #[error("the login could not be signed")]
    Failed,
}

/// None: it is not one of 2048 to 4096 bits, or it is damaged.
pub(super) fn pair(written: &RsaKeypair) -> Option<KeyPair> {
    let part = |number: &Mpint| number.as_positive_bytes().map(|bytes| Zeroizing::new(bytes.to_vec()));
    let (public, private) = (written.public(), written.private());
    let (d, p, q) = (part(private.d())?, part(private.p())?, part(private.q())?);
    let components = KeyPairComponents {
        public_key: PublicKeyComponents { n: part(public.n())?, e: part(public.e())? },
        dP: exponent(&d, &p)?,
        dQ: exponent(&d, &q)?,
        qInv: part(private.iqmp())?,
        d,
        p,
        q,
    };
    KeyPair::from_components(&bytes(&components)).ok()
}

type Part = Zeroizing<Vec<u8>>;

fn bytes(of: &KeyPairComponents<Part>) -> KeyPairComponents<&[u8]> {
    KeyPairComponents {
        public_key: PublicKeyComponents { n: &of.public_key.n, e: &of.public_key.e },
        d: &of.d,
        p: &of.p,
        q: &of.q,
        dP: &of.dP,
        dQ: &of.dQ,
        qInv: &of.qInv,
    }
}

/// d modulo one less than a prime, which is not in the file (RFC 8017 section 3.2).
fn exponent(d: &[u8], prime: &[u8]) -> Option<Part> {
    let (d, prime) = (BoxedUint::from_be_slice_vartime(d), BoxedUint::from_be_slice_vartime(prime));
    let before: Option<NonZero<BoxedUint>> = NonZero::new(prime.wrapping_sub(BoxedUint::one())).into();
    let digits = Zeroizing::new(d.rem(&before?).to_be_bytes().to_vec());
    let zeros = digits.iter().take_while(|byte| **byte == 0).count();
    Some(Zeroizing::new(digits.get(zeros..)?.to_vec()))
}

impl RsaSigner {
    pub(crate) fn new(pair: Arc<KeyPair>) -> Self {
        Self(pair)
    }
}

impl Signer for RsaSigner {
    type Error = SignError;

    /// Behind the text comes the signature (RFC 4252 section 7, RFC 8332 section 3).
    async fn auth_sign(
        &mut self,
        _key: &AgentIdentity,
        hash: Option<HashAlg>,
        mut text: Vec<u8>,
    ) -> Result<Vec<u8>, SignError> {
        let (name, encoding) = match hash {
            Some(HashAlg::Sha512) => ("rsa-sha2-512", &RSA_PKCS1_SHA512),
            _ => ("rsa-sha2-256", &RSA_PKCS1_SHA256),
        };
        let mut signature = vec![0; self.0.public().modulus_len()];
        let signed = self.0.sign(encoding, &SystemRandom::new(), &text, &mut signature);
        signed.map_err(|_| SignError::Failed)?;
        let inner = [string(name.as_bytes())?, string(&signature)?].concat();
        text.extend(string(&inner)?);
        Ok(text)
    }
}

/// RFC 4251 section 5.
fn string(bytes: &[u8]) -> Result<Vec<u8>, SignError> {
    let length = u32::try_from(bytes.len()).map_err(|_| SignError::Failed)?;
    Ok([&length.to_be_bytes(), bytes].concat())
}
