//! The mock's own certificate authority: a leaf for any name that a client asks for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificate for clients that send no SNI.
const NAMELESS: &str = "nameless.invalid";

/// An authority that lives as long as the process.
#[derive(Debug)]
pub struct Authority {
    issuer: Arc<Issuer<'static, KeyPair>>,
    certificate: rcgen::Certificate,
}

impl Authority {
    /// Makes a key and a self-signed certificate.
    ///
    /// # Errors
    /// If the key cannot be made.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Mock provider authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        Ok(Self { issuer: Arc::new(Issuer::new(params, key)), certificate })
    }

    /// The authority's certificate.
    pub fn certificate_pem(&self) -> String {
        self.certificate.pem()
    }

    /// A server that mints a leaf for whatever name it is asked for.
    ///
    /// # Errors
    /// If no protocol version is available.
    pub fn server(&self, alpn: &[&str]) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Leaves { issuer: self.issuer.clone(), minted: Mutex::default() }));
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Arc::new(config))
    }
}

#[derive(Debug)]
struct Leaves {
    issuer: Arc<Issuer<'static, KeyPair>>,
    minted: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl ResolvesServerCert for Leaves {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or(NAMELESS);
        let mut minted = self.minted.lock().ok()?;
        if let Some(leaf) = minted.get(name) {
            return Some(leaf.clone());
        }
        let leaf = Arc::new(mint(&self.issuer, name).ok()?);
        minted.insert(name.to_owned(), leaf.clone());
        Some(leaf)
    }
}

fn mint(issuer: &Issuer<'static, KeyPair>, name: &str) -> Result<CertifiedKey> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, issuer)?;
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key)?))
}
