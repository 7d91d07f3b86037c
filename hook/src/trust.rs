//! What a container is to trust: the roots of its own image, and the installation's authority.

mod rooted;

use std::path::Path;

use anyhow::{Result, bail};
use base64::Engine as _;
use x509_parser::pem::Pem;

use rooted::Seen;

/// Where distributions keep their bundle: Debian, Alpine, Arch; Fedora and its kin; openSUSE; NixOS.
const PATHS: [&str; 11] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/tls/certs/ca-bundle.trust.crt",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
];

/// More than ten times what distributions ship.
const MOST: usize = 2000;

#[derive(Debug)]
pub(crate) struct Bundle {
    /// Our certificate alone, one PEM block.
    pub(crate) authority: String,
    /// The image's roots, then ours.
    pub(crate) pem: String,
    /// Those of `PATHS` that the image has.
    pub(crate) paths: Vec<String>,
    pub(crate) notes: Vec<String>,
}

/// `root` is the container's root, which is hostile; `authority` is what the sidecar gave; `mounted` are the places in the
/// container where something of the user's is mounted.
pub(crate) fn collect(root: &Path, authority: &str, mounted: &[&Path]) -> Result<Bundle> {
    let authority = match certificates(authority.as_bytes()) {
        (ours, 0) if ours.len() == 1 => encode(&ours),
        _ => bail!("the sidecar's authority is not exactly one certificate"),
    };
    let mut paths = Vec::new();
    let mut notes = Vec::new();
    let mut all: Vec<Vec<u8>> = Vec::new();
    for path in PATHS {
        match rooted::read(root, path) {
            Ok(None) => continue,
            // A link of the image's leads there. To mount over its end makes a file in the user's directory.
            Ok(Some(seen))
                if seen.real != Path::new(path) && mounted.iter().any(|m| seen.real.starts_with(m)) =>
            {
                notes.push(format!(
                    "{path} of the image leads to {}, where something is mounted, and is left out",
                    seen.real.display().to_string().replace(char::is_control, "?")
                ));
            }
            Ok(Some(Seen { bytes, .. })) => {
                let (found, skipped) = certificates(&bytes);
                if skipped > 0 {
                    notes.push(format!(
                        "{path} of the image: {skipped} entries are not certificates and are left out"
                    ));
                }
                for certificate in found {
                    if !all.contains(&certificate) {
                        all.push(certificate);
                    }
                }
                paths.push(path.to_owned());
            }
            Err(error) => notes.push(format!("{path} of the image is left out: {error}")),
        }
    }
    if all.len() > MOST {
        notes.push(format!("the image has {} certificates, of which {MOST} are used", all.len()));
        all.truncate(MOST);
    }
    let pem = format!("{}{authority}", encode(&all));
    Ok(Bundle { authority, pem, paths, notes })
}

/// The certificates of a bundle, and nothing else of it.
pub(crate) fn encoded_again(pem: &[u8]) -> String {
    encode(&certificates(pem).0)
}

/// Certificates that parse, in DER, and how many entries do not.
fn certificates(pem: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let mut good = Vec::new();
    let mut skipped = 0;
    for entry in Pem::iter_from_buffer(pem).take(4 * MOST) {
        match entry {
            Ok(Pem { label, .. }) if label != "CERTIFICATE" => {}
            Ok(Pem { contents, .. })
                if x509_parser::parse_x509_certificate(&contents).is_ok_and(|(rest, _)| rest.is_empty()) =>
            {
                good.push(contents);
            }
            _ => skipped += 1,
        }
    }
    (good, skipped)
}

/// RFC 7468: lines of 64 characters. Nothing of the source but the certificate itself is carried over.
fn encode(certificates: &[Vec<u8>]) -> String {
    let mut pem = String::new();
    for der in certificates {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = more;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn certificate(name: &str) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(vec![name.into()]).unwrap().self_signed(&key).unwrap().pem()
    }

    fn put(root: &Path, path: &str, content: &str) {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn count(pem: &str) -> usize {
        certificates(pem.as_bytes()).0.len()
    }

    #[test]
    fn an_image_without_a_bundle_gets_ours_alone() {
        let root = tempfile::tempdir().unwrap();
        let bundle = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(bundle.pem, bundle.authority);
        assert_eq!(count(&bundle.pem), 1);
        assert!(bundle.paths.is_empty() && bundle.notes.is_empty());
    }

    #[test]
    fn bundles_are_merged_without_doubles_and_comments_and_ours_comes_last() {
        let root = tempfile::tempdir().unwrap();
        let (one, two, ours) = (certificate("one"), certificate("two"), certificate("ours"));
        put(root.path(), PATHS[0], &format!("# evil comment\n{one}{two}"));
        put(root.path(), PATHS[4], &one);
        let bundle = collect(root.path(), &ours, &[]).unwrap();
        assert_eq!(count(&bundle.pem), 3);
        assert!(bundle.pem.ends_with(&bundle.authority));
        assert!(!bundle.pem.contains("evil"));
        assert_eq!(bundle.paths, [PATHS[0], PATHS[4]]);
    }

    #[test]
    fn what_is_not_a_certificate_is_left_out_and_told() {
        let root = tempfile::tempdir().unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        put(
            root.path(),
            PATHS[0],
            &format!("{broken}{}-----BEGIN CERTIFICATE-----\ncut", certificate("one")),
        );
        let bundle = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(count(&bundle.pem), 2);
        assert!(bundle.notes[0].contains("2 entries"), "{:?}", bundle.notes);
    }

    #[test]
    fn other_entries_and_comments_that_are_not_utf_8_pass_without_a_word() {
        let other = "-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----\n";
        let text = [b"# caf\xe9\n", other.as_bytes(), certificate("one").as_bytes(), b"\xff"].concat();
        let (good, skipped) = certificates(&text);
        assert_eq!((good.len(), skipped), (1, 0));
    }

    #[test]
    fn a_link_out_of_the_image_stays_in_it() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        put(outside.path(), "/host.pem", &certificate("host"));
        put(root.path(), "/etc/ssl/x", "");
        symlink(outside.path().join("host.pem"), root.path().join("etc/ssl/cert.pem")).unwrap();
        symlink(
            "../../../../../../../../../..".to_owned() + outside.path().to_str().unwrap() + "/host.pem",
            root.path().join("etc/ssl/ca-bundle.pem"),
        )
        .unwrap();
        let bundle = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(count(&bundle.pem), 1);
        assert!(bundle.paths.is_empty());
    }

    #[test]
    fn a_link_into_a_mount_of_the_users_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "/project/x", &certificate("image"));
        put(root.path(), "/etc/ssl/real.pem", &certificate("image"));
        symlink("/project/x", root.path().join("etc/ssl/cert.pem")).unwrap();
        symlink("real.pem", root.path().join("etc/ssl/ca-bundle.pem")).unwrap();
        let mounted = [Path::new("/project"), Path::new("/etc/hosts")];
        let bundle = collect(root.path(), &certificate("ours"), &mounted).unwrap();
        assert_eq!(bundle.paths, ["/etc/ssl/ca-bundle.pem"]);
        assert!(bundle.notes[0].contains("/project/x"), "{:?}", bundle.notes);
        let all = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(all.paths.len(), 2);
    }

    #[test]
    fn fifos_devices_directories_loops_and_giants_are_left_out_at_once() {
        let root = tempfile::tempdir().unwrap();
        let ssl = root.path().join("etc/ssl");
        fs::create_dir_all(ssl.join("certs/ca-certificates.crt")).unwrap();
        let mode = rustix::fs::Mode::from(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, ssl.join("cert.pem"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        symlink("ca-bundle.pem", ssl.join("ca-bundle.pem")).unwrap();
        fs::File::create(ssl.join("certs/ca-bundle.crt")).unwrap().set_len(1 << 33).unwrap();
        fs::create_dir_all(root.path().join("etc/pki/tls")).unwrap();
        symlink("/proc/self/fd/0", root.path().join("etc/pki/tls/cert.pem")).unwrap();
        let bundle = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(count(&bundle.pem), 1);
        assert!(bundle.paths.is_empty());
        assert_eq!(bundle.notes.len(), 4, "{:?}", bundle.notes);
    }

    #[test]
    fn an_authority_that_is_not_one_certificate_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let two = certificate("a") + &certificate("b");
        for bad in ["", "nonsense", &two] {
            assert!(collect(root.path(), bad, &[]).is_err());
        }
    }
}
