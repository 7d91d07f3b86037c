//! Which authorities an upstream may be vouched for by: the public ones, and those that the operator adds.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::replace;

#[derive(Debug, thiserror::Error)]
pub enum RootsError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: not a PEM file with certificates ({error})", path.display())]
    Pem { path: PathBuf, error: rustls_pki_types::pem::Error },
    #[error("{}: certificate {number} cannot be a root ({error})", path.display())]
    Root { path: PathBuf, number: usize, error: rustls::Error },
    #[error("{}: no certificate in it; expected PEM blocks of certificates", path.display())]
    Empty { path: PathBuf },
}

/// Writes the public roots and those of the `extra` PEM files to `path` as one PEM file; gives their number.
/// Certificates are parsed and written anew, never copied, so that nothing else can be in the file.
pub fn write_roots(path: &Path, extra: &[PathBuf]) -> Result<usize, RootsError> {
    let mut roots: Vec<CertificateDer<'static>> = webpki_root_certs::TLS_SERVER_ROOT_CERTS.to_vec();
    for file in extra {
        roots.extend(read_roots(file)?);
    }
    let text: String = roots.iter().map(|root| pem(root)).collect();
    replace::replace(path, 0o644, text.as_bytes())
        .map_err(|error| RootsError::Io { path: path.to_owned(), error })?;
    Ok(roots.len())
}

/// The certificates of a PEM file, at least one, each of which can serve as a root.
pub fn read_roots(path: &Path) -> Result<Vec<CertificateDer<'static>>, RootsError> {
    let text = fs::read(path).map_err(|error| RootsError::Io { path: path.to_owned(), error })?;
    let roots = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| RootsError::Pem { path: path.to_owned(), error })?;
    if roots.is_empty() {
        return Err(RootsError::Empty { path: path.to_owned() });
    }
    for (index, root) in roots.iter().enumerate() {
        RootCertStore::empty().add(root.clone()).map_err(|error| RootsError::Root {
            path: path.to_owned(),
            number: index + 1,
            error,
        })?;
    }
    Ok(roots)
}

/// RFC 7468 section 3.
fn pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_roots_and_extra_ones_come_in_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let authority = crate::tls::Authority::load_or_create(directory.path()).unwrap();
        let extra = directory.path().join("corporate.pem");
        fs::write(&extra, format!("a comment\n{}", authority.certificate_pem())).unwrap();
        let path = directory.path().join("roots.pem");
        let number = write_roots(&path, std::slice::from_ref(&extra)).unwrap();
        assert_eq!(number, webpki_root_certs::TLS_SERVER_ROOT_CERTS.len() + 1);
        let read = read_roots(&path).unwrap();
        assert_eq!(read.len(), number);
        assert_eq!(read.last(), read_roots(&extra).unwrap().last());
        assert_eq!(write_roots(&path, &[]).unwrap(), number - 1);
    }

    #[test]
    fn faults_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("roots.pem");
        let extra = directory.path().join("corporate.pem");
        let not_a_certificate = pem(b"not DER");
        for (content, wanted) in [
            (None, "No such file"),
            (Some(""), "no certificate"),
            (Some("-----BEGIN CERTIFICATE-----\n"), "PEM"),
            (Some(not_a_certificate.as_str()), "certificate 1"),
        ] {
            if let Some(content) = content {
                fs::write(&extra, content).unwrap();
            }
            let error = write_roots(&path, std::slice::from_ref(&extra)).unwrap_err().to_string();
            assert!(error.contains("corporate.pem: ") && error.contains(wanted), "{error}");
            assert!(!path.exists());
        }
    }
}
