//! Paths as clients write them into what they sign.

use super::{decoded, encoded};

/// What becomes of the path as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathForm {
    /// Amazon S3.
    AsWritten,
    /// Amazon S3, where what is sent is encoded in another way than what is signed.
    Recoded,
    /// Other services.
    Encoded,
    /// Other services, without dot segments and empty ones.
    Normalised,
    /// The same, with the `/` that a dot segment at the end leaves (RFC 3986 section 5.2.4). Clients differ in that.
    NormalisedToEnd,
}

impl PathForm {
    pub(crate) const ALL: [Self; 5] =
        [Self::AsWritten, Self::Normalised, Self::NormalisedToEnd, Self::Encoded, Self::Recoded];

    pub(crate) fn of(self, path: &str) -> String {
        match self {
            Self::AsWritten => path.to_owned(),
            Self::Recoded => segments(path, |segment| encoded(&decoded(segment))),
            Self::Encoded => segments(path, |segment| encoded(segment.as_bytes())),
            Self::Normalised => segments(&normalised(path, &[""]), |segment| encoded(segment.as_bytes())),
            Self::NormalisedToEnd => {
                segments(&normalised(path, &["", ".", ".."]), |segment| encoded(segment.as_bytes()))
            }
        }
    }
}

fn segments(path: &str, each: impl Fn(&str) -> String) -> String {
    path.split('/').map(each).collect::<Vec<_>>().join("/")
}

/// `ends` are the last segments that leave a `/`.
fn normalised(path: &str, ends: &[&str]) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let ends = path.rsplit('/').next().is_some_and(|last| ends.contains(&last));
    let end = if ends && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_what_its_clients_write() {
        for (path, as_written, recoded, encoded, normalised) in [
            ("/", "/", "/", "/", "/"),
            ("/a%20b/~c", "/a%20b/~c", "/a%20b/~c", "/a%2520b/~c", "/a%2520b/~c"),
            ("/a//b/../c/./", "/a//b/../c/./", "/a//b/../c/./", "/a//b/../c/./", "/a/c/"),
            ("/%7Ea(b)", "/%7Ea(b)", "/~a%28b%29", "/%257Ea%28b%29", "/%257Ea%28b%29"),
            ("/../..", "/../..", "/../..", "/../..", "/"),
        ] {
            let forms = [PathForm::AsWritten, PathForm::Recoded, PathForm::Encoded, PathForm::Normalised];
            assert_eq!(forms.map(|form| form.of(path)), [as_written, recoded, encoded, normalised], "{path}");
        }
        for (path, normalised, to_end) in [
            ("/a/.", "/a", "/a/"),
            ("/a/b/..", "/a", "/a/"),
            ("/a/./", "/a/", "/a/"),
            ("/a.", "/a.", "/a."),
            ("/..", "/", "/"),
        ] {
            assert_eq!(PathForm::Normalised.of(path), normalised, "{path}");
            assert_eq!(PathForm::NormalisedToEnd.of(path), to_end, "{path}");
        }
    }
}
