//! A private key that signs tokens, and what containers have instead.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::super::catalogue::{Alphabet, TokenEndpoint};
use super::super::installation_key::InstallationKey;
use super::super::secret::SecretValue;
use super::super::stand_in;
use super::binding::Binding;
use super::der;
use super::jws::{BASE64, Jws};
use super::stand_in_key::{PUBLIC_EXPONENT, StandInKey};

/// Of the lines of a key's text, the shortest that is searched for by itself.
const LINE: usize = 40;

/// Members of a service account's file that are no secrets, and that programs may read.
const KEPT: [&str; 10] = [
    "type",
    "project_id",
    "client_email",
    "client_id",
    "auth_uri",
    "token_uri",
    "auth_provider_x509_cert_url",
    "client_x509_cert_url",
    "universe_domain",
    "quota_project_id",
];

/// Beside its text, which is the value of the secret.
pub struct AssertionKey {
    issuer: Issuer,
    real: RsaKeyPair,
    /// By which the provider knows the key.
    id: Option<String>,
    stand_in: Arc<StandIn>,
    /// What is placed in a container.
    file: String,
    lines: Vec<SecretValue>,
}

/// Whom its tokens are from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Issuer {
    Google { email: String, endpoint: TokenEndpoint },
    GitHub { ids: Vec<String> },
}

struct StandIn {
    key: StandInKey,
    /// Without the frame, in one line: PKCS #8 or PKCS #1, as the real key is written.
    text: String,
    pem: String,
    pkcs8: bool,
}

/// Why a file is not a key that can be used. Says nothing of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "it is not the JSON file of a service account's key (with `client_email`, `private_key` and `token_uri`)"
    )]
    NotAServiceAccount,
    #[error("its `type` is not service_account")]
    Type,
    #[error("its `token_uri` is not an https URL")]
    TokenUri,
    #[error(
        "it is not a private key in PEM, as the App's settings make it (-----BEGIN RSA PRIVATE KEY-----)"
    )]
    NotPem,
    #[error("the private key is not an RSA key of 2048 to 4096 bits, or it is damaged")]
    Damaged,
}

impl AssertionKey {
    /// With its value, which is the text of the key in one line. `name` is the secret's; `before` is the same secret's key
    /// that was read last, whose stand-in need not be made again.
    pub(in crate::credentials) fn read(
        bytes: &[u8],
        binding: &Binding,
        (key, name): (&InstallationKey, &str),
        before: Option<&Self>,
    ) -> Result<(Self, SecretValue), KeyError> {
        match binding {
            Binding::Google { .. } => Self::of_google(bytes, (key, name), before),
            Binding::GitHub { ids, .. } => {
                let text = std::str::from_utf8(bytes).map_err(|_| KeyError::NotPem)?;
                let issuer = Issuer::GitHub { ids: ids.clone() };
                let (key, value) = Self::of_pem(text.trim(), issuer, (key, name), before)?;
                let file = key.stand_in.pem.clone();
                Ok((Self { file, ..key }, value))
            }
        }
    }

    fn of_google(
        bytes: &[u8],
        (key, name): (&InstallationKey, &str),
        before: Option<&Self>,
    ) -> Result<(Self, SecretValue), KeyError> {
        #[derive(serde::Deserialize)]
        struct Written {
            client_email: String,
            private_key: Zeroizing<String>,
            private_key_id: Option<String>,
            token_uri: String,
            r#type: String,
            #[serde(flatten)]
            others: Map<String, Value>,
        }
        let written: Written = serde_json::from_slice(bytes).map_err(|_| KeyError::NotAServiceAccount)?;
        if written.r#type != "service_account" {
            return Err(KeyError::Type);
        }
        let endpoint = TokenEndpoint::parse(&written.token_uri).map_err(|_| KeyError::TokenUri)?;
        let issuer = Issuer::Google { email: written.client_email.clone(), endpoint };
        let (read, value) = Self::of_pem(written.private_key.trim(), issuer, (key, name), before)?;
        let id = stand_in::of_shape(key, &format!("{name}/key-id"), "", Alphabet::Hex, 40);
        let mut file: Map<String, Value> =
            written.others.into_iter().filter(|(name, _)| KEPT.contains(&name.as_str())).collect();
        for (name, value) in [
            ("type", json!(written.r#type)),
            ("client_email", json!(written.client_email)),
            ("token_uri", json!(written.token_uri)),
            ("private_key_id", json!(id)),
            ("private_key", json!(read.stand_in.pem)),
        ] {
            file.insert(name.to_owned(), value);
        }
        let file = format!("{:#}\n", Value::Object(file));
        Ok((Self { id: written.private_key_id, file, ..read }, value))
    }

    fn of_pem(
        pem: &str,
        issuer: Issuer,
        (key, name): (&InstallationKey, &str),
        before: Option<&Self>,
    ) -> Result<(Self, SecretValue), KeyError> {
        let parsed = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| KeyError::NotPem)?;
        let (real, pkcs8) = match &parsed {
            PrivateKeyDer::Pkcs8(der) => (RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()), true),
            PrivateKeyDer::Pkcs1(der) => (RsaKeyPair::from_der(der.secret_pkcs1_der()), false),
            _ => return Err(KeyError::Damaged),
        };
        let real = real.map_err(|_| KeyError::Damaged)?;
        let one_line = Zeroizing::new(body(pem));
        let value = SecretValue::from_bytes(one_line.as_bytes()).map_err(|_| KeyError::NotPem)?;
        // The first line is nearly the same for all keys.
        let lines = pem.lines().filter(|line| !line.starts_with('-')).skip(1).map(str::trim);
        let lines = lines.filter(|line| line.len() >= LINE);
        let lines = lines.filter_map(|line| SecretValue::from_bytes(line.as_bytes()).ok()).collect();
        let stand_in = match before.filter(|before| before.stand_in.pkcs8 == pkcs8) {
            Some(before) => Arc::clone(&before.stand_in),
            None => Arc::new(StandIn::of(key, name, pkcs8).ok_or(KeyError::Damaged)?),
        };
        Ok((Self { issuer, real, id: None, stand_in, file: String::new(), lines }, value))
    }

    pub(super) fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Whether a token that says to be from `issuer` says to be from this one.
    pub(super) fn is_of(&self, issuer: &str) -> bool {
        match &self.issuer {
            Issuer::Google { email, .. } => email == issuer,
            Issuer::GitHub { ids } => ids.iter().any(|id| id == issuer),
        }
    }

    /// Where assertions are exchanged, if the file of the key says it.
    pub fn endpoint(&self) -> Option<&TokenEndpoint> {
        match &self.issuer {
            Issuer::Google { endpoint, .. } => Some(endpoint),
            Issuer::GitHub { .. } => None,
        }
    }

    /// The stand-in's private key in one line, without its frame.
    pub fn stand_in_text(&self) -> &str {
        &self.stand_in.text
    }

    /// What a container is given: a file of the same kind as the real one.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Lines of the real key's text that no other key has.
    pub(in crate::credentials) fn lines(&self) -> &[SecretValue] {
        &self.lines
    }

    pub(super) fn is_by_stand_in(&self, token: &Jws<'_>) -> bool {
        let public =
            RsaPublicKeyComponents { n: self.stand_in.key.modulus.as_slice(), e: PUBLIC_EXPONENT.as_slice() };
        public.verify(&RSA_PKCS1_2048_8192_SHA256, token.signed().as_bytes(), token.signature()).is_ok()
    }

    /// Whether somebody has the real key.
    pub(super) fn is_by_real(&self, token: &Jws<'_>) -> bool {
        let public: RsaPublicKeyComponents<Vec<u8>> = self.real.public().into();
        public.verify(&RSA_PKCS1_2048_8192_SHA256, token.signed().as_bytes(), token.signature()).is_ok()
    }

    /// A token of the same claims with the real key: header and claims, and the signature. None only if no randomness is to
    /// be had, which the signature takes to hide how it is made.
    pub(super) fn sign(&self, token: &Jws<'_>) -> Option<(String, Zeroizing<String>)> {
        let header = match &self.id {
            Some(id) => json!({ "alg": "RS256", "kid": id, "typ": "JWT" }),
            None => json!({ "alg": "RS256", "typ": "JWT" }),
        };
        let signed = format!("{}.{}", BASE64.encode(header.to_string()), token.claims_text());
        let mut signature = vec![0; self.real.public().modulus_len()];
        self.real.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).ok()?;
        Some((signed, Zeroizing::new(BASE64.encode(signature))))
    }
}

impl StandIn {
    fn of(key: &InstallationKey, name: &str, pkcs8: bool) -> Option<Self> {
        let key = StandInKey::of(key, name)?;
        let (der, label) = match pkcs8 {
            true => (der::pkcs8(&key.private), "PRIVATE KEY"),
            false => (key.private.to_vec(), "RSA PRIVATE KEY"),
        };
        let text = BASE64_STANDARD.encode(der);
        // RFC 7468 section 2.
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        let pem = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"));
        Some(Self { key, text, pem, pkcs8 })
    }
}

impl fmt::Debug for AssertionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AssertionKey(..)")
    }
}

/// What is between the first line and the last.
fn body(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with('-')).map(str::trim).collect()
}
