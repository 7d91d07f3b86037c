//! What a container is to trust: the roots of its own image, and the installation's authority.

mod chromium;
mod der;
mod image;
mod java;
mod rooted;
mod subject_hash;

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use x509_parser::parse_x509_certificate;
use x509_parser::pem::Pem;

use image::Image;

/// More than ten times what distributions ship.
const MOST: usize = 2000;

/// A file of ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum File {
    Authority,
    Bundle,
    Java,
    Chromium,
}

impl File {
    pub(crate) const ALL: [Self; 4] = [Self::Authority, Self::Bundle, Self::Java, Self::Chromium];

    /// Its name in `/run/understudy/`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Authority => "ca.crt",
            Self::Bundle => "bundle.pem",
            Self::Java => "trust.p12",
            Self::Chromium => "chromium.json",
        }
    }
}

#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Trust {
    /// Our certificate alone, one PEM block.
    authority: String,
    /// The image's roots, then ours.
    bundle: String,
    /// The same for Java.
    java: Vec<u8>,
    chromium: String,
    /// Where in the container a file of ours is to be seen.
    pub(crate) places: Vec<(String, File)>,
    pub(crate) notes: Vec<String>,
}

impl Trust {
    pub(crate) fn content(&self, file: File) -> &[u8] {
        match file {
            File::Authority => self.authority.as_bytes(),
            File::Bundle => self.bundle.as_bytes(),
            File::Java => &self.java,
            File::Chromium => self.chromium.as_bytes(),
        }
    }
}

/// `root` is the container's root, which is hostile; `authority` is what the sidecar gave; `mounted` are the places in the
/// container where something of the user's is mounted.
pub(crate) fn collect(root: &Path, authority: &str, mounted: &[&Path]) -> Result<Trust> {
    let Ok([ours]) = <[Vec<u8>; 1]>::try_from(only_certificates(authority)?) else {
        bail!("the sidecar's authority is not exactly one certificate")
    };
    let mut image = Image::new(root, mounted);
    let mut all = image.bundles();
    image.java();
    let (_, parsed) = parse_x509_certificate(&ours).context("the sidecar's authority")?;
    image.hashed(&subject_hash::subject_hash(&parsed)?, &encode(std::slice::from_ref(&ours)));
    image.chromium();
    let chromium = chromium::policy(&ours);
    let authority = encode(std::slice::from_ref(&ours));
    all.push(ours);
    let java = java::trust_store(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let Image { places, notes, .. } = image;
    Ok(Trust { authority, bundle: encode(&all), java, chromium, places, notes })
}

/// Whether a file can be mounted at `path`, whose directory the image must have, without making one in what is `mounted`.
pub(crate) fn may_lie_at(root: &Path, path: &str, mounted: &[&Path]) -> bool {
    let spot = rooted::spot(root, path, false);
    // A file of the image's own is not covered.
    spot.is_ok_and(|spot| {
        spot.is_some_and(|spot| {
            spot.size.is_none_or(|size| size == 0)
                && !mounted.iter().any(|mounted| spot.real.starts_with(mounted))
        })
    })
}

fn only_certificates(pem: &str) -> Result<Vec<Vec<u8>>> {
    match certificates(pem.as_bytes()) {
        (good, 0) => Ok(good),
        (_, skipped) => bail!("the sidecar's authority has {skipped} entries that are not certificates"),
    }
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
                if parse_x509_certificate(&contents).is_ok_and(|(rest, _)| rest.is_empty()) =>
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
    let mut pem = String::with_capacity(certificates.iter().map(|der| der.len() * 3 / 2 + 64).sum());
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

    use super::image::BUNDLES;
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

    fn paths(trust: &Trust, file: File) -> Vec<&str> {
        let of_file = trust.places.iter().filter(|(_, seen)| *seen == file);
        of_file.map(|(path, _)| path.as_str()).collect()
    }

    #[test]
    fn an_image_without_a_bundle_gets_ours_alone() {
        let root = tempfile::tempdir().unwrap();
        let trust = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(trust.bundle, trust.authority);
        assert_eq!(count(&trust.bundle), 1);
        assert!(paths(&trust, File::Bundle).is_empty() && trust.notes.is_empty());
    }

    #[test]
    fn bundles_are_merged_without_doubles_and_comments_and_ours_comes_last() {
        let root = tempfile::tempdir().unwrap();
        let (one, two, ours) = (certificate("one"), certificate("two"), certificate("ours"));
        put(root.path(), BUNDLES[0], &format!("# evil comment\n{one}{two}"));
        put(root.path(), BUNDLES[4], &one);
        let trust = collect(root.path(), &ours, &[]).unwrap();
        assert_eq!(count(&trust.bundle), 3);
        assert!(trust.bundle.ends_with(&trust.authority));
        assert!(!trust.bundle.contains("evil"));
        assert_eq!(paths(&trust, File::Bundle), [BUNDLES[0], BUNDLES[4]]);
    }

    #[test]
    fn what_is_not_a_certificate_is_left_out_and_told() {
        let root = tempfile::tempdir().unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        put(
            root.path(),
            BUNDLES[0],
            &format!("{broken}{}-----BEGIN CERTIFICATE-----\ncut", certificate("one")),
        );
        let trust = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(count(&trust.bundle), 2);
        assert!(trust.notes[0].contains("2 entries"), "{:?}", trust.notes);
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
        let trust = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(count(&trust.bundle), 1);
        assert!(paths(&trust, File::Bundle).is_empty());
    }

    #[test]
    fn a_link_into_a_mount_of_the_users_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "/project/x", &certificate("image"));
        put(root.path(), "/etc/ssl/real.pem", &certificate("image"));
        symlink("/project/x", root.path().join("etc/ssl/cert.pem")).unwrap();
        symlink("real.pem", root.path().join("etc/ssl/ca-bundle.pem")).unwrap();
        let mounted = [Path::new("/project"), Path::new("/etc/hosts")];
        let trust = collect(root.path(), &certificate("ours"), &mounted).unwrap();
        assert_eq!(paths(&trust, File::Bundle), ["/etc/ssl/ca-bundle.pem"]);
        assert!(trust.notes[0].contains("/project/x"), "{:?}", trust.notes);
        let all = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(paths(&all, File::Bundle).len(), 2);
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
        let trust = collect(root.path(), &certificate("ours"), &[]).unwrap();
        assert_eq!(count(&trust.bundle), 1);
        assert!(paths(&trust, File::Bundle).is_empty());
        assert_eq!(trust.notes.len(), 4, "{:?}", trust.notes);
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
