//! Certificates for the hosts that a container asks for: one name each, so that clients do not share an HTTP/2
//! connection between hosts (RFC 9113 section 9.1.1).

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lru::LruCache;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose};
use ring::digest::{SHA256, digest};
use rustls::ServerConfig;
use rustls::server::ServerSessionMemoryCache;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use understudy_policies::HostName;

use super::Authority;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A leaf that ends sooner than this is made anew, so that none ends under a running client.
const MARGIN: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const CACHED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);
/// Longest CommonName that certificates allow (RFC 5280 appendix A.1).
const LONGEST_COMMON_NAME: usize = 64;

/// Mints leaves and keeps the TLS configuration for each name. A configuration has a session store of its own, so that
/// a session of one name is never resumed for another.
#[derive(Debug)]
pub struct Leaves {
    authority: Authority,
    cache: Mutex<LruCache<HostName, Cached>>,
}

#[derive(Debug, Clone)]
struct Cached {
    config: Arc<ServerConfig>,
    /// Of the leaf.
    hash: [u8; 32],
    stale: SystemTime,
}

#[derive(Debug, thiserror::Error)]
pub enum LeafError {
    #[error("cannot mint a leaf: {0}")]
    Mint(#[from] rcgen::Error),
    #[error("cannot serve a leaf: {0}")]
    Serve(#[from] rustls::Error),
}

impl Leaves {
    pub fn new(authority: Authority) -> Self {
        Self { authority, cache: Mutex::new(LruCache::new(CACHED)) }
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// What to serve `name` with: its leaf, ALPN `h2` and `http/1.1`, TLS 1.2 and 1.3.
    pub fn config(&self, name: &HostName) -> Result<Arc<ServerConfig>, LeafError> {
        self.config_at(name, SystemTime::now())
    }

    /// The same, with the SHA-256 of the leaf: what logins over it can be bound to (RFC 5929 section 4.1; leaves are signed
    /// with ECDSA and SHA-256).
    pub fn bound(&self, name: &HostName) -> Result<(Arc<ServerConfig>, [u8; 32]), LeafError> {
        self.cached_at(name, SystemTime::now()).map(|cached| (cached.config, cached.hash))
    }

    fn config_at(&self, name: &HostName, now: SystemTime) -> Result<Arc<ServerConfig>, LeafError> {
        self.cached_at(name, now).map(|cached| cached.config)
    }

    fn cached_at(&self, name: &HostName, now: SystemTime) -> Result<Cached, LeafError> {
        if let Some(cached) = self.lock().get(name).filter(|cached| cached.stale > now) {
            return Ok(cached.clone());
        }
        // Minted outside the lock: two at once for one name cost a signature, a lock held costs every container.
        let (leaf, key) = mint(&self.authority, name, now)?;
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, &leaf).as_ref());
        let config = Arc::new(serve((leaf, key))?);
        let stale = (now + LIFETIME).min(self.authority.ends()) - MARGIN;
        let cached = Cached { config, hash, stale };
        self.lock().put(name.clone(), cached.clone());
        Ok(cached)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LruCache<HostName, Cached>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mint(
    authority: &Authority,
    name: &HostName,
    now: SystemTime,
) -> Result<(CertificateDer<'static>, KeyPair), rcgen::Error> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut parameters = CertificateParams::new([name.to_string()])?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    if name.as_str().len() <= LONGEST_COMMON_NAME {
        parameters.distinguished_name.push(DnType::CommonName, name.as_str());
    }
    parameters.is_ca = IsCa::ExplicitNoCa;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    parameters.not_before = (now - DAY).into();
    parameters.not_after = (now + LIFETIME).min(authority.ends()).into();
    let certificate = parameters.signed_by(&key, authority.issuer())?;
    Ok((certificate.der().clone(), key))
}

fn serve((certificate, key): (CertificateDer<'static>, KeyPair)) -> Result<ServerConfig, rustls::Error> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.session_storage = ServerSessionMemoryCache::new(32);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use x509_parser::extensions::{GeneralName, ParsedExtension};
    use x509_parser::parse_x509_certificate;

    use super::*;

    fn leaves() -> (Leaves, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        (Leaves::new(Authority::load_or_create(directory.path()).unwrap()), directory)
    }

    #[test]
    fn a_leaf_names_exactly_one_host_and_is_no_authority() {
        let (leaves, _directory) = leaves();
        for name in ["api.example.com", "a_b.example.com", &format!("{}.example.com", "x".repeat(63))] {
            let name: HostName = name.parse().unwrap();
            let (der, _) = mint(leaves.authority(), &name, SystemTime::now()).unwrap();
            let (_, leaf) = parse_x509_certificate(&der).unwrap();
            let names = &leaf.subject_alternative_name().unwrap().unwrap().value.general_names;
            assert_eq!(names[..], [GeneralName::DNSName(name.as_str())]);
            assert!(!leaf.basic_constraints().unwrap().unwrap().value.ca);
            let usage = leaf.key_usage().unwrap().unwrap().value;
            assert!(usage.digital_signature() && !usage.key_cert_sign());
            let extended = leaf.extended_key_usage().unwrap().unwrap().value;
            assert!(extended.server_auth && !extended.client_auth && !extended.any);
            let has = |wanted: fn(&ParsedExtension<'_>) -> bool| {
                leaf.extensions().iter().any(|e| wanted(e.parsed_extension()))
            };
            assert!(has(|e| matches!(e, ParsedExtension::SubjectKeyIdentifier(_))));
            assert!(has(|e| matches!(e, ParsedExtension::AuthorityKeyIdentifier(_))));
        }
    }

    #[test]
    fn a_loaded_authority_signs_what_its_certificate_verifies() {
        let (_, directory) = leaves();
        let leaves = Leaves::new(Authority::load_or_create(directory.path()).unwrap());
        let pem = leaves.authority().certificate_pem().to_owned();
        let authority =
            <CertificateDer<'_> as rustls_pki_types::pem::PemObject>::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let name: HostName = "api.example.com".parse().unwrap();
        let (der, _) = mint(leaves.authority(), &name, SystemTime::now()).unwrap();
        let verify = |host: &str| {
            use rustls::client::danger::ServerCertVerifier;
            let host = rustls_pki_types::ServerName::try_from(host.to_owned()).unwrap();
            verifier.verify_server_cert(&der, &[], &host, &[], rustls_pki_types::UnixTime::now())
        };
        verify("api.example.com").unwrap();
        assert!(verify("example.com").is_err());
    }

    #[test]
    fn leaves_are_cached_for_their_name_and_made_anew_in_time() {
        let (leaves, _directory) = leaves();
        let name: HostName = "api.example.com".parse().unwrap();
        let now = SystemTime::now();
        let first = leaves.config_at(&name, now).unwrap();
        assert!(Arc::ptr_eq(&first, &leaves.config_at(&name, now + 22 * DAY).unwrap()));
        assert!(!Arc::ptr_eq(&first, &leaves.config_at(&name, now + 24 * DAY).unwrap()));
        let other = leaves.config_at(&"other.example.com".parse().unwrap(), now).unwrap();
        assert!(!Arc::ptr_eq(&first.session_storage, &other.session_storage));
    }

    #[test]
    fn the_cache_is_bounded() {
        let (leaves, _directory) = leaves();
        for n in 0..1100 {
            leaves.config(&format!("h{n}.example.com").parse().unwrap()).unwrap();
        }
        assert_eq!(leaves.lock().len(), 1024);
    }
}
