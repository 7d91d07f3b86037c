//! The bucket that a request to Amazon S3, or to what speaks like it, is about. Pure.

use http::HeaderMap;
use percent_encoding::percent_decode;
use understudy_policies::{HostName, HostPattern};

const AWS: [&str; 2] = [".amazonaws.com", ".amazonaws.com.cn"];
const COPY_SOURCE: &str = "x-amz-copy-source";
/// How often percent-encoding is undone to look for what is hidden by it.
const DECODINGS: usize = 3;

/// Of the host, where it names one, else of the path. `hosts` are the secret's: what stands before one that begins with
/// `*` is the bucket.
pub(super) fn of(host: &HostName, hosts: &[HostPattern], path: &str) -> Result<String, String> {
    plainly(path.as_bytes())?;
    match of_host(host, hosts) {
        Some(bucket) => Ok(bucket.to_owned()),
        None => of_path(path),
    }
}

/// None: it names none.
pub(super) fn of_host<'h>(host: &'h HostName, hosts: &[HostPattern]) -> Option<&'h str> {
    match amazon(host) {
        Some(rest) => of_amazon(rest),
        None => below(host.as_str(), hosts),
    }
}

/// Whether the host is a service of Amazon's, which holds a signature to the service that it names.
pub(super) fn is_amazon(host: &HostName) -> bool {
    amazon(host).is_some()
}

/// What stands before Amazon's own name.
fn amazon(host: &HostName) -> Option<&str> {
    let rest = AWS.iter().find_map(|end| host.as_str().strip_suffix(end))?;
    // Balancers, machines; services behind an endpoint of one's own, and interfaces.
    let is_of_customer = |label: &str| label == "elb" || label.starts_with("compute");
    let is_behind = |label: &str| label.starts_with("vpce-svc-") || label == "execute-api";
    let is_amazons = rest.rsplit('.').take(2).all(|label| !is_of_customer(label));
    (is_amazons && !rest.split('.').any(is_behind)).then_some(rest)
}

/// Each `x-amz-copy-source`. Of a query, too: in a presigned URL stores read there what is else a header. In its name `_` is as
/// good as `-`, and its parameters end at `;` or do not.
pub(super) fn sources<'r>(headers: &'r HeaderMap, query: &'r str) -> impl Iterator<Item = Vec<u8>> + 'r {
    let parts = query.split('&').flat_map(|part| [part].into_iter().chain(part.split(';')));
    let of_query = parts.filter_map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let is = |name: Vec<u8>| {
            let name: Vec<u8> = name.iter().map(|b| if *b == b'_' { b'-' } else { *b }).collect();
            name.trim_ascii().eq_ignore_ascii_case(COPY_SOURCE.as_bytes())
        };
        decodings(name.as_bytes()).any(is).then(|| percent_decode(value.as_bytes()).collect())
    });
    headers.get_all(COPY_SOURCE).iter().map(|value| value.as_bytes().to_vec()).chain(of_query)
}

/// Of one of the [sources].
pub(super) fn copied(source: &[u8]) -> Result<String, String> {
    plainly(source)?;
    let source: Vec<u8> = percent_decode(source).collect();
    let source = String::from_utf8(source).map_err(|_| "its x-amz-copy-source is not UTF-8".to_owned())?;
    of_path(&format!("/{}", source.trim_start_matches('/')))
}

/// As it is, and with its percent-encoding undone, as often as a careless server would.
pub(super) fn decodings(text: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    std::iter::successors(Some(text.to_vec()), |text| Some(percent_decode(text).collect()))
        .take(DECODINGS + 1)
}

/// `BUCKET.s3.REGION`, `BUCKET.s3-accelerate`: the last label that begins with `s3` ends it. At an endpoint of a private network
/// (`BUCKET.bucket.vpce-ID.s3.REGION.vpce`) `bucket` is none. None: it names none.
fn of_amazon(rest: &str) -> Option<&str> {
    let mut end = None;
    let mut at = 0;
    for label in rest.split('.') {
        if label.starts_with("s3") {
            end = Some(at);
        }
        at += label.len() + 1;
    }
    let named = rest.get(..end?.checked_sub(1)?)?;
    let Some((named, _)) = named.rsplit_once(".vpce-") else { return Some(named) };
    let is_kind = |label: &str| ["bucket", "accesspoint", "control"].contains(&label);
    match named.rsplit_once('.') {
        Some((bucket, kind)) if is_kind(kind) => Some(bucket),
        None if is_kind(named) => None,
        _ => Some(named),
    }
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
    for path in decodings(path) {
        let segments = path.split(|b| matches!(b, b'/' | b'\\'));
        // Some servers take path parameters out first (RFC 3986 section 3.3).
        let mut named = segments.map(|segment| segment.split(|b| *b == b';').next().unwrap_or_default());
        if named.any(|segment| matches!(segment, b"." | b"..")) {
            return Err("it is for some `buckets` only, and the path has dot segments".to_owned());
        }
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
            ("bucket.vpce-1a.s3.us-east-1.vpce.amazonaws.com", "/b/key", "b"),
            ("b.bucket.vpce-1a.s3.us-east-1.vpce.amazonaws.com", "/other", "b"),
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

    #[test]
    fn what_is_copied_is_found_in_the_query_however_it_is_written() {
        let headers = HeaderMap::from_iter([(COPY_SOURCE.parse().unwrap(), "/a/1".parse().unwrap())]);
        let all = |query: &str| -> Vec<String> {
            sources(&headers, query).map(|source| String::from_utf8(source).unwrap()).collect()
        };
        assert_eq!(all("prefix=x-amz-copy-source"), ["/a/1"]);
        for query in [
            "X-Amz-Copy-Source=b/2",
            "x=y&x-amz-copy-source=b%2f2",
            "X%2DAmz-Copy%2dsource=b/2",
            "X%252DAmz-Copy-Source=b/2",
            "x_amz_copy_source=b/2",
            "+=&x=y;X-Amz-Copy-Source=b/2",
            "%20x-amz-copy-source=b/2",
        ] {
            assert!(all(query)[1..].iter().any(|source| source == "b/2"), "{query}: {:?}", all(query));
        }
        assert_eq!(all("x-amz-copy-source=b/2&x-amz-copy-source=c/3;d").len(), 5);
        assert_eq!(all("x-amz-copy-source"), ["/a/1", "", ""]);
    }
}
