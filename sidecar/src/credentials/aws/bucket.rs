//! The bucket that a request to Amazon S3, or to what speaks like it, is about. Pure.

use percent_encoding::percent_decode;
use understudy_policies::{HostName, HostPattern};

const AWS: [&str; 2] = [".amazonaws.com", ".amazonaws.com.cn"];
/// How often percent-encoding is undone to look for dot segments.
const DECODINGS: usize = 3;

/// Of the host, where it names one, else of the path. `hosts` are the secret's: what stands before one that begins with
/// `*` is the bucket.
pub(super) fn of(host: &HostName, hosts: &[HostPattern], path: &str) -> Result<String, String> {
    plainly(path.as_bytes())?;
    let name = host.as_str();
    let of_host = match AWS.iter().find_map(|end| name.strip_suffix(end)) {
        Some(rest) => of_amazon(rest),
        None => below(name, hosts),
    };
    match of_host {
        Some(bucket) => Ok(bucket.to_owned()),
        None => of_path(path),
    }
}

/// Whether the host is Amazon's, which holds a signature to the service that it names.
pub(super) fn is_amazon(host: &HostName) -> bool {
    AWS.iter().any(|end| host.as_str().ends_with(end))
}

/// Of `x-amz-copy-source`.
pub(super) fn copied(source: &[u8]) -> Result<String, String> {
    plainly(source)?;
    let source: Vec<u8> = percent_decode(source).collect();
    let source = String::from_utf8(source).map_err(|_| "its x-amz-copy-source is not UTF-8".to_owned())?;
    of_path(&format!("/{}", source.trim_start_matches('/')))
}

/// `BUCKET.s3.REGION`, `BUCKET.s3-accelerate`: the last label that begins with `s3` ends it. None: it names none.
fn of_amazon(rest: &str) -> Option<&str> {
    let mut end = None;
    let mut at = 0;
    for label in rest.split('.') {
        if label.starts_with("s3") {
            end = Some(at);
        }
        at += label.len() + 1;
    }
    rest.get(..end?.checked_sub(1)?)
}

/// What stands before a pattern's own name. None: the host is named in full.
fn below<'h>(name: &'h str, hosts: &[HostPattern]) -> Option<&'h str> {
    let exact = |pattern: &HostPattern| matches!(pattern, HostPattern::Exact(host) if host.as_str() == name);
    if hosts.iter().any(exact) {
        return None;
    }
    hosts.iter().find_map(|pattern| match pattern {
        HostPattern::Below(base) => name.strip_suffix(base.as_str())?.strip_suffix('.'),
        _ => None,
    })
}

fn of_path(path: &str) -> Result<String, String> {
    let bucket = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match bucket {
        "" => Err("it is for some `buckets` only, and this request names none".to_owned()),
        bucket if path.starts_with("//") || !bucket.bytes().all(plain) => {
            Err("it is for some `buckets` only, and the one of this request is not written plainly"
                .to_owned())
        }
        bucket => Ok(bucket.to_owned()),
    }
}

/// A server that takes dot segments out could read another bucket.
fn plainly(path: &[u8]) -> Result<(), String> {
    let mut path = path.to_vec();
    for _ in 0..=DECODINGS {
        let segments = path.split(|b| matches!(b, b'/' | b'\\'));
        // Some servers take path parameters out first (RFC 3986 section 3.3).
        let mut named = segments.map(|segment| segment.split(|b| *b == b';').next().unwrap_or_default());
        if named.any(|segment| matches!(segment, b"." | b"..")) {
            return Err("it is for some `buckets` only, and the path has dot segments".to_owned());
        }
        path = percent_decode(&path).collect();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_named_by_the_host_or_by_the_path() {
        let hosts = ["*.amazonaws.com", "s3.example.com", "*.s3.example.com"];
        let hosts: Vec<HostPattern> = hosts.iter().map(|host| host.parse().unwrap()).collect();
        let of = |host: &str, path: &str| of(&host.parse().unwrap(), &hosts, path);
        for (host, path, bucket) in [
            ("s3.amazonaws.com", "/b/key", "b"),
            ("s3.eu-central-1.amazonaws.com", "/b", "b"),
            ("b.s3.amazonaws.com", "/other/key", "b"),
            ("b.s3.dualstack.eu-central-1.amazonaws.com", "/", "b"),
            ("my.s3.b.s3.eu-central-1.amazonaws.com", "/", "my.s3.b"),
            ("b.s3-accelerate.amazonaws.com", "/", "b"),
            ("123.s3-control.eu-central-1.amazonaws.com", "/", "123"),
            ("s3.example.com", "/b/a//b/%2Fkey", "b"),
            ("b.s3.example.com", "/other", "b"),
        ] {
            assert_eq!(of(host, path).unwrap(), bucket, "{host}{path}");
        }
        for (host, path) in [
            ("s3.amazonaws.com", "/"),
            ("s3.example.com", "//b/key"),
            ("s3.example.com", "/b%2Fc/key"),
            ("s3.example.com", "/b/../other/key"),
            ("s3.example.com", "/b/%2e%2e/other"),
            ("s3.example.com", "/b/%252e%252e%252fother"),
            ("s3.example.com", "/b/..\\other"),
            ("s3.example.com", "/b/..;/other/key"),
        ] {
            assert!(of(host, path).is_err(), "{host}{path}");
        }
    }

    #[test]
    fn what_is_copied_has_a_bucket_too() {
        for (source, bucket) in [("/b/key", "b"), ("b/key?versionId=x", "b"), ("b%2Fkey", "b")] {
            assert_eq!(copied(source.as_bytes()).unwrap(), bucket, "{source}");
        }
        for source in ["", "arn:aws:s3:eu-central-1:1:accesspoint/x/object/k", "b/../c/key", "b/%2e%2e/c"] {
            assert!(copied(source.as_bytes()).is_err(), "{source}");
        }
    }
}
