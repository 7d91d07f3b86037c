//! Where an image's clients look for what they trust. The image is hostile.

use std::collections::HashSet;
use std::path::Path;

use super::rooted::{self, Seen, Spot};
use super::{File, MOST, certificates, chromium};

/// Where distributions keep their bundle: Debian, Alpine, Arch; Fedora and its kin; openSUSE; NixOS.
pub(super) const BUNDLES: [&str; 11] = [
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

/// Where they keep the certificates in a file each, whose name is found by a hash of the subject.
const HASHED: [&str; 5] = [
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted/pem/directory-hash",
    "/etc/ca-certificates/extracted/cadir",
    "/var/lib/ca-certificates/openssl",
];

/// Where they keep a trust store for Java.
const JAVA: [&str; 4] = [
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/var/lib/ca-certificates/java-cacerts",
];

/// As many certificates as may have one subject in a directory.
const MOST_OF_ONE_HASH: usize = 16;

/// What is seen in the image, and what is to lie over it.
pub(super) struct Image<'a> {
    root: &'a Path,
    mounted: &'a [&'a Path],
    pub(super) places: Vec<(String, File)>,
    pub(super) notes: Vec<String>,
}

impl<'a> Image<'a> {
    pub(super) fn new(root: &'a Path, mounted: &'a [&'a Path]) -> Self {
        Self { root, mounted, places: Vec::new(), notes: Vec::new() }
    }

    /// The image's roots.
    pub(super) fn bundles(&mut self) -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = Vec::new();
        let mut known = HashSet::new();
        for path in BUNDLES {
            let seen = rooted::read(self.root, path);
            let Some(Seen { bytes, real }) = self.told(path, seen) else { continue };
            if self.is_link_into_a_mount(path, &real) {
                continue;
            }
            let (found, skipped) = certificates(&bytes);
            if skipped > 0 {
                let note =
                    format!("{path} of the image: {skipped} entries are not certificates and are left out");
                self.notes.push(note);
            }
            for certificate in found {
                if known.insert(certificate.clone()) {
                    all.push(certificate);
                }
            }
            self.places.push((path.to_owned(), File::Bundle));
        }
        if all.len() > MOST {
            self.notes.push(format!("the image has {} certificates, of which {MOST} are used", all.len()));
            all.truncate(MOST);
        }
        all
    }

    /// A trust store of the image's is replaced by one of what its bundles hold.
    pub(super) fn java(&mut self) {
        for path in JAVA {
            let spot = rooted::spot(self.root, path, false);
            let Some(Spot { real, size: Some(_) }) = self.told(path, spot) else { continue };
            if !self.is_link_into_a_mount(path, &real) {
                self.places.push((path.to_owned(), File::Java));
            }
        }
    }

    /// Our certificate beside the image's, under the first name that is free.
    pub(super) fn hashed(&mut self, hash: &str, ours: &str) {
        let mut seen = Vec::new();
        for directory in HASHED {
            for number in 0..MOST_OF_ONE_HASH {
                let path = format!("{directory}/{hash}.{number}");
                let spot = rooted::spot(self.root, &path, false);
                let Some(Spot { real, size }) = self.told(&path, spot) else { break };
                // two names of one directory
                if seen.contains(&real) || self.is_mounted(&path, &real) {
                    break;
                }
                // An empty one is what an earlier mount of ours lay over.
                let free = size.is_none_or(|size| size == 0);
                if free || self.holds(&path, ours) {
                    seen.push(real);
                    self.places.push((path, File::Authority));
                    break;
                }
            }
        }
    }

    pub(super) fn chromium(&mut self) {
        for path in chromium::PATHS {
            let spot = rooted::spot(self.root, path, true);
            let Some(Spot { real, .. }) = self.told(path, spot) else { continue };
            if !self.is_mounted(path, &real) {
                self.places.push((path.to_owned(), File::Chromium));
            }
        }
    }

    fn holds(&self, path: &str, content: &str) -> bool {
        matches!(rooted::read(self.root, path), Ok(Some(seen)) if seen.bytes == content.as_bytes())
    }

    fn told<T>(&mut self, path: &str, seen: std::io::Result<Option<T>>) -> Option<T> {
        seen.unwrap_or_else(|error| {
            self.notes.push(format!("{path} of the image is left out: {error}"));
            None
        })
    }

    /// A link of the image's leads there. To mount over its end makes a file in the user's directory.
    fn is_link_into_a_mount(&mut self, path: &str, real: &Path) -> bool {
        real != Path::new(path) && self.is_mounted(path, real)
    }

    fn is_mounted(&mut self, path: &str, real: &Path) -> bool {
        let is_mounted = self.mounted.iter().any(|mounted| real.starts_with(mounted));
        if is_mounted {
            let real = real.display().to_string().replace(char::is_control, "?");
            self.notes.push(match real == path {
                true => format!("{path} is left out, since something is mounted there"),
                false => format!(
                    "{path} of the image leads to {real}, where something is mounted, and is left out"
                ),
            });
        }
        is_mounted
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    const HASH: &str = "0123abcd";
    const OURS: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    fn put(root: &Path, path: &str, content: &str) {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn places(root: &Path, mounted: &[&Path]) -> (Vec<String>, Vec<String>) {
        let mut image = Image::new(root, mounted);
        image.java();
        image.hashed(HASH, OURS);
        image.chromium();
        let of_chromium = image.places.iter().filter(|(_, file)| *file == File::Chromium).count();
        image.places.retain(|(_, file)| *file != File::Chromium);
        image.notes.push(format!("{of_chromium} of Chromium's"));
        (image.places.into_iter().map(|(path, _)| path).collect(), image.notes)
    }

    fn image(paths: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        paths.iter().for_each(|path| put(root.path(), path, "another"));
        root
    }

    #[test]
    fn ours_gets_the_first_name_that_is_free_in_every_hashed_directory() {
        let root = image(&["/etc/ssl/certs/x", "/etc/ssl/certs/0123abcd.0", "/etc/pki/tls/certs/x"]);
        let (found, notes) = places(root.path(), &[]);
        assert_eq!(found, ["/etc/ssl/certs/0123abcd.1", "/etc/pki/tls/certs/0123abcd.0"]);
        assert_eq!(notes, ["3 of Chromium's"]);
    }

    #[test]
    fn what_an_earlier_start_left_is_used_again() {
        let root = image(&["/etc/ssl/certs/x", "/etc/pki/tls/certs/x"]);
        put(root.path(), "/etc/ssl/certs/0123abcd.0", "");
        put(root.path(), "/etc/pki/tls/certs/0123abcd.0", OURS);
        assert_eq!(
            places(root.path(), &[]).0,
            ["/etc/ssl/certs/0123abcd.0", "/etc/pki/tls/certs/0123abcd.0"]
        );
    }

    #[test]
    fn two_names_of_one_directory_are_one() {
        let root = image(&["/etc/pki/tls/certs/x"]);
        fs::create_dir_all(root.path().join("etc/ssl")).unwrap();
        symlink("../pki/tls/certs", root.path().join("etc/ssl/certs")).unwrap();
        assert_eq!(places(root.path(), &[]).0, ["/etc/ssl/certs/0123abcd.0"]);
    }

    #[test]
    fn a_trust_store_is_covered_where_the_image_has_one() {
        let root = image(&["/etc/ssl/certs/java/cacerts", "/etc/pki/java/x"]);
        let (found, _) = places(root.path(), &[]);
        assert_eq!(found, ["/etc/ssl/certs/java/cacerts", "/etc/ssl/certs/0123abcd.0"]);
    }

    /// Whatever is not there is made by who mounts, in the user's own directory if a link leads there.
    #[test]
    fn no_link_leads_a_mount_into_a_directory_of_the_users() {
        let root = image(&["/project/x", "/etc/ssl/certs/x", "/etc/pki/tls/certs/x", "/etc/opt/x"]);
        let link = |target: &str, path: &str| symlink(target, root.path().join(path)).unwrap();
        link("/project/made", "etc/ssl/certs/0123abcd.0");
        link("/project/made", "etc/chromium");
        link("/project", "etc/opt/chrome");
        link("../../../../../../project", "etc/opt/chrome_for_testing");
        fs::remove_dir_all(root.path().join("etc/pki/tls/certs")).unwrap();
        link("/project", "etc/pki/tls/certs");
        let (found, notes) = places(root.path(), &[Path::new("/project")]);
        assert_eq!(found, Vec::<String>::new());
        assert_eq!(notes.len(), 6, "{notes:?}");
        assert_eq!(notes.last().unwrap(), "0 of Chromium's");
        // without that mount they are the image's own affair, but for links that lead nowhere
        let (found, notes) = places(root.path(), &[]);
        assert_eq!(found, ["/etc/pki/tls/certs/0123abcd.0"]);
        assert_eq!(notes.last().unwrap(), "2 of Chromium's");
    }

    #[test]
    fn a_directory_that_the_user_mounted_gets_no_file() {
        let root = image(&["/etc/ssl/certs/x"]);
        for mount in ["/etc/ssl/certs", "/etc"] {
            let (found, notes) = places(root.path(), &[Path::new(mount)]);
            assert!(found.is_empty() && notes[0].contains("something is mounted there"), "{notes:?}");
        }
    }
}
