//! The certificate authority of one installation. Its key never leaves the state volume; containers get the certificate.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, DnValue, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use super::replace;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LIFETIME: Duration = Duration::from_secs(3652 * 24 * 60 * 60);

/// Key and certificate in one file, so that neither can be there without the other.
const KEY_FILE: &str = "authority.pem";
const CERTIFICATE_FILE: &str = "authority.crt";

/// An ECDSA P-256 authority that signs leaves and nothing below them (RFC 5280 section 4.2.1.9, `pathlen` 0).
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate_pem: String,
    ends: SystemTime,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: mode {mode:03o}, so others can read the authority's key; run: chmod 600 {}", path.display(), path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{}: {fault}; remove it and start again for a new authority (running containers do not trust that one)",
        path.display()
    )]
    Unusable { path: PathBuf, fault: String },
    #[error("cannot make an authority: {0}")]
    Make(#[from] rcgen::Error),
}

impl Authority {
    /// Reads the authority in `directory`, or makes one if there is none. Whoever comes second, of two at once,
    /// uses what the first one made.
    pub fn load_or_create(directory: &Path) -> Result<Self, AuthorityError> {
        let path = directory.join(KEY_FILE);
        let authority = match fs::read_to_string(&path) {
            Ok(text) => load(&path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(directory, &path)?,
            Err(error) => return Err(AuthorityError::Io { path, error }),
        };
        authority.publish(&directory.join(CERTIFICATE_FILE))?;
        Ok(authority)
    }

    /// One in a file of its own. None if it has ended.
    pub(super) fn former(path: &Path) -> Result<Option<Self>, AuthorityError> {
        let text =
            fs::read_to_string(path).map_err(|error| AuthorityError::Io { path: path.to_owned(), error })?;
        let authority = parse(path, &text)?;
        Ok((authority.ends > SystemTime::now()).then_some(authority))
    }

    /// Another one in the place of the one in `directory`.
    pub(super) fn replace(directory: &Path, now: SystemTime) -> Result<Self, AuthorityError> {
        let (path, authority) = (directory.join(KEY_FILE), make(now)?);
        authority.keep(&path)?;
        authority.publish(&directory.join(CERTIFICATE_FILE))?;
        Ok(authority)
    }

    /// Whole or not at all.
    pub(crate) fn keep(&self, path: &Path) -> Result<(), AuthorityError> {
        replace::replace(path, 0o600, self.text().as_bytes())
            .map_err(|error| AuthorityError::Io { path: path.to_owned(), error })
    }

    fn text(&self) -> String {
        format!("{}{}", self.issuer.key().serialize_pem(), self.certificate_pem)
    }

    /// When its certificate ends, and all leaves with it.
    pub fn ends(&self) -> SystemTime {
        self.ends
    }

    /// As `2036-11-28`.
    pub fn last_day(&self) -> String {
        let ends = i64::try_from(self.ends_at()).unwrap_or(i64::MAX);
        match ASN1Time::from_timestamp(ends).map(|time| time.to_datetime()) {
            Ok(day) => format!("{:04}-{:02}-{:02}", day.year(), u8::from(day.month()), day.day()),
            Err(_) => "a day that no certificate can have".to_owned(),
        }
    }

    /// In seconds since the epoch.
    pub fn ends_at(&self) -> u64 {
        self.ends.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
    }

    /// What containers are made to trust.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Tells one from another.
    pub fn tag(&self) -> String {
        tag(self.issuer.key())
    }

    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    fn publish(&self, path: &Path) -> Result<(), AuthorityError> {
        if fs::read_to_string(path).is_ok_and(|text| text == self.certificate_pem) {
            return Ok(());
        }
        replace::replace(path, 0o644, self.certificate_pem.as_bytes())
            .map_err(|error| AuthorityError::Io { path: path.to_owned(), error })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority(..)")
    }
}

fn create(directory: &Path, path: &Path) -> Result<Authority, AuthorityError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| AuthorityError::Io { path, error }
    };
    if !directory.exists() {
        fs::create_dir_all(directory).map_err(io(directory))?;
        fs::set_permissions(directory, Permissions::from_mode(0o700)).map_err(io(directory))?;
    }
    let made = make(SystemTime::now())?;
    match replace::create(path, 0o600, made.text().as_bytes()) {
        Ok(()) => Ok(made),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            load(path, &fs::read_to_string(path).map_err(io(path))?)
        }
        Err(error) => Err(io(path)(error)),
    }
}

fn make(now: SystemTime) -> Result<Authority, AuthorityError> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut parameters = parameters(&format!("Understudy {}", tag(&key)));
    let ends = now + LIFETIME;
    parameters.not_before = (now - DAY).into();
    parameters.not_after = ends.into();
    let certificate_pem = parameters.self_signed(&key)?.pem();
    Ok(Authority { issuer: Issuer::new(parameters, key), certificate_pem, ends })
}

/// The one that is in force must not have ended.
fn load(path: &Path, text: &str) -> Result<Authority, AuthorityError> {
    let authority = parse(path, text)?;
    if authority.ends <= SystemTime::now() {
        let fault = format!("its certificate ended on {}", authority.last_day());
        return Err(AuthorityError::Unusable { path: path.to_owned(), fault });
    }
    Ok(authority)
}

fn parse(path: &Path, text: &str) -> Result<Authority, AuthorityError> {
    let unusable = |fault: String| AuthorityError::Unusable { path: path.to_owned(), fault };
    let mode = fs::metadata(path).map_err(|error| AuthorityError::Io { path: path.to_owned(), error })?;
    let mode = mode.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(AuthorityError::Exposed { path: path.to_owned(), mode });
    }
    let key = KeyPair::from_pem(text).map_err(|error| unusable(format!("no usable key ({error})")))?;
    let der = CertificateDer::from_pem_slice(text.as_bytes())
        .map_err(|error| unusable(format!("no usable certificate ({error})")))?;
    let (_, certificate) =
        parse_x509_certificate(&der).map_err(|error| unusable(format!("no usable certificate ({error})")))?;
    if certificate.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err(unusable("its certificate is not for its key".to_owned()));
    }
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or_default();
    let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let name = name.ok_or_else(|| unusable("its certificate has no common name".to_owned()))?;
    // The issuer in a leaf must be, byte for byte, the subject here: both are made by `parameters`.
    let parameters = parameters(name);
    let start = text.find("-----BEGIN CERTIFICATE-----").unwrap_or_default();
    let certificate_pem = text.get(start..).unwrap_or_default().to_owned();
    Ok(Authority { issuer: Issuer::new(parameters, key), certificate_pem, ends })
}

fn parameters(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, DnValue::Utf8String(name.to_owned()));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

/// The first eight digits of the key's SHA-256.
fn tag(key: &KeyPair) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key_raw());
    digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_file(directory: &tempfile::TempDir) -> PathBuf {
        directory.path().join(KEY_FILE)
    }

    #[test]
    fn it_is_made_once_and_the_key_is_for_the_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let made = Authority::load_or_create(directory.path()).unwrap();
        let loaded = Authority::load_or_create(directory.path()).unwrap();
        assert_eq!(made.certificate_pem(), loaded.certificate_pem());
        assert_eq!(fs::metadata(key_file(&directory)).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!made.certificate_pem().contains("PRIVATE"));
        let published = fs::read_to_string(directory.path().join(CERTIFICATE_FILE)).unwrap();
        assert_eq!(published, made.certificate_pem());
        let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    #[test]
    fn the_certificate_is_a_constrained_authority_for_ten_years() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::load_or_create(directory.path()).unwrap();
        let der = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).unwrap();
        let (_, certificate) = parse_x509_certificate(&der).unwrap();
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(0));
        assert!(certificate.key_usage().unwrap().unwrap().value.key_cert_sign());
        let oids: Vec<String> = certificate.extensions().iter().map(|e| e.oid.to_id_string()).collect();
        assert!(oids.contains(&"2.5.29.14".to_owned()), "no SKID: {oids:?}");
        let validity = certificate.validity();
        let now = i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
        assert!(validity.not_before.timestamp() <= now - 86_000);
        assert!(validity.not_after.timestamp() > now + 3600 * 24 * 3650);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_file_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        Authority::load_or_create(directory.path()).unwrap();
        Authority::load_or_create(other.path()).unwrap();
        let good = fs::read_to_string(key_file(&directory)).unwrap();
        let foreign = fs::read_to_string(key_file(&other)).unwrap();
        let certificate_at = good.find("-----BEGIN CERT").unwrap();
        let foreign_at = foreign.find("-----BEGIN CERT").unwrap();
        for bad in [
            String::new(),
            "garbage".to_owned(),
            good[..certificate_at].to_owned(),
            good[certificate_at..].to_owned(),
            format!("{}{}", &good[..certificate_at], &foreign[foreign_at..]),
        ] {
            fs::write(key_file(&directory), &bad).unwrap();
            let error = Authority::load_or_create(directory.path()).unwrap_err();
            assert!(error.to_string().contains("authority.pem: "), "{error}");
            assert_eq!(fs::read_to_string(key_file(&directory)).unwrap(), bad);
        }
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        Authority::load_or_create(directory.path()).unwrap();
        fs::set_permissions(key_file(&directory), Permissions::from_mode(0o640)).unwrap();
        let error = Authority::load_or_create(directory.path()).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
}
