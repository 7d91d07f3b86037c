//! What of the host is mounted into a container, by where it lies in its file system: that is the same for whoever looks,
//! whatever it is called and however it is reached.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Of one container. Each is compared with those of all others.
pub const MOST_MOUNTS: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "Raw")]
pub struct HostMount {
    device: String,
    path: String,
    /// Whether the container may write there.
    pub writable: bool,
    /// What people call it.
    pub name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    device: String,
    path: String,
    writable: bool,
    name: String,
}

impl HostMount {
    /// `device` is `major:minor`, `path` the one within that file system, absolute and with no links in it
    /// (proc_pid_mountinfo(5)).
    pub fn new(device: &str, path: &Path, writable: bool, name: &str) -> Option<Self> {
        Raw { device: device.to_owned(), path: escaped(path), writable, name: name.to_owned() }
            .try_into()
            .ok()
    }

    /// Whether one is the other, or lies in it.
    pub fn overlaps(&self, other: &Self) -> bool {
        let [short, long] = match self.path.len() <= other.path.len() {
            true => [&self.path, &other.path],
            false => [&other.path, &self.path],
        };
        let rest = long.strip_prefix(short.as_str());
        let lies_in = |rest: &str| rest.is_empty() || rest.starts_with('/') || short == "/";
        self.device == other.device && rest.is_some_and(lies_in)
    }
}

impl TryFrom<Raw> for HostMount {
    type Error = &'static str;

    fn try_from(Raw { device, path, writable, name }: Raw) -> Result<Self, Self::Error> {
        let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_device = device.split_once(':').is_some_and(|(major, minor)| number(major) && number(minor));
        let plain = |parts: &str| parts.split('/').all(|part| !matches!(part, "" | "." | ".."));
        match is_device && (path == "/" || path.strip_prefix('/').is_some_and(plain)) {
            true => Ok(Self { device, path, writable, name }),
            false => Err("not a place in a file system"),
        }
    }
}

/// A path may hold any bytes. Different ones stay different, and each part a part.
fn escaped(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(String::new(), |text, byte| match byte {
        b'!'..=b'~' if *byte != b'\\' => text + char::from(*byte).encode_utf8(&mut [0; 4]),
        _ => text + &format!("\\{byte:03o}"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::*;

    use super::*;

    fn at(device: &str, path: &str) -> HostMount {
        HostMount::new(device, Path::new(path), true, "x").unwrap()
    }

    #[test]
    fn they_overlap_where_one_lies_in_the_other() {
        let project = at("8:1", "/home/u/project");
        for (device, path, overlaps) in [
            ("8:1", "/home/u/project", true),
            ("8:1", "/home/u/project/sub", true),
            ("8:1", "/home/u", true),
            ("8:1", "/", true),
            ("8:1", "/home/u/project2", false),
            ("8:1", "/home/u/other", false),
            ("8:17", "/home/u/project", false),
        ] {
            let other = at(device, path);
            assert_eq!((project.overlaps(&other), other.overlaps(&project)), (overlaps, overlaps), "{path}");
        }
    }

    #[test]
    fn what_is_no_place_is_not_taken_for_one() {
        for (device, path) in [
            ("8", "/x"),
            ("8:", "/x"),
            ("a:1", "/x"),
            ("8:1", "x"),
            ("8:1", "/x/../y"),
            ("8:1", ""),
            ("8:1", "/x/"),
            ("8:1", "/x//y"),
        ] {
            assert!(HostMount::new(device, Path::new(path), true, "x").is_none(), "{device} {path}");
            let text = serde_json::json!({"device": device, "path": path, "writable": true, "name": "x"});
            assert!(serde_json::from_value::<HostMount>(text).is_err(), "{device} {path}");
        }
    }

    proptest! {
        #[test]
        fn paths_of_any_bytes_stay_what_they_are(
            a in proptest::collection::vec(1u8..255, 1..12), b in proptest::collection::vec(1u8..255, 1..12),
        ) {
            let [x, y] = [&a, &b].map(|bytes| Path::new("/d").join(std::ffi::OsStr::from_bytes(bytes)));
            if let (Some(one), Some(other)) = (HostMount::new("8:1", &x, true, ""), HostMount::new("8:1", &y, true, "")) {
                prop_assert_eq!(one.overlaps(&other), x.starts_with(&y) || y.starts_with(&x));
                let text = serde_json::to_string(&one).unwrap();
                prop_assert_eq!(serde_json::from_str::<HostMount>(&text).unwrap(), one);
            }
        }
    }
}
