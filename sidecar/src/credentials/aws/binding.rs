//! What a key may be used for: services, regions and buckets, as the scope and the address of a request tell them.

use http::Method;
use toml::Spanned;
use understudy_policies::document::OneOrMany;
use understudy_policies::{HostPattern, PathPattern, Readings};
use understudy_sigv4::Scope;

use super::super::catalogue::Creates;
use super::super::examine::{RequestHead, list};
use super::bucket;

/// Of one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Never empty.
    services: Vec<String>,
    /// Empty: all.
    regions: Vec<String>,
    /// Empty: all. One may end with `*`.
    buckets: Vec<String>,
}

/// The keys of a declaration that are about it.
pub(in crate::credentials) struct Written {
    pub(in crate::credentials) services: Option<Spanned<OneOrMany<String>>>,
    pub(in crate::credentials) regions: Option<Spanned<OneOrMany<String>>>,
    pub(in crate::credentials) buckets: Option<Spanned<OneOrMany<String>>>,
}

/// Services that answer with credentials, or create them. What they answer is not looked into.
const CREATING: [(&str, Creates); 19] = [
    ("airflow", Creates::Sts),
    ("codeartifact", Creates::Sts),
    ("cognito-identity", Creates::Sts),
    ("cognito-idp", Creates::Sts),
    ("ec2-instance-connect", Creates::SshKey),
    ("ecr", Creates::Sts),
    ("ecr-public", Creates::Sts),
    ("eks-auth", Creates::Sts),
    ("grafana", Creates::ApiKey),
    ("iam", Creates::ApiKey),
    ("lakeformation", Creates::Sts),
    ("redshift", Creates::Sts),
    ("redshift-serverless", Creates::Sts),
    ("rolesanywhere", Creates::Sts),
    ("s3express", Creates::Sts),
    ("signin", Creates::Sts),
    ("sso", Creates::Sts),
    ("sso-oauth", Creates::Sts),
    ("sts", Creates::Sts),
];

/// In lower case.
const ACTION: &[u8] = b"action=";
/// At a store that is not Amazon's: interfaces that make users and keys (MinIO's, Ceph's), as patterns of paths.
const ADMIN_ANYWHERE: [&str; 2] = ["/minio/admin/**", "/minio/kms/**"];
/// Where the host names no bucket: with one, this is an object.
const ADMIN: &str = "/admin/**";

impl Binding {
    /// What is wrong, and what to do about it. `hosts` are the secret's.
    pub fn check(&self, scope: &Scope, head: &RequestHead<'_>, hosts: &[HostPattern]) -> Result<(), String> {
        if !self.services.contains(&scope.service) {
            let allowed = list(&self.services);
            return Err(format!("it signs for {allowed}; for `{}`, add that to `services`", scope.service));
        }
        if !self.regions.is_empty() && !self.regions.contains(&scope.region) {
            let allowed = list(&self.regions);
            return Err(format!("it signs for {allowed}; for `{}`, add that to `regions`", scope.region));
        }
        if self.buckets.is_empty() || is_of_no_bucket(scope, head, hosts) {
            return Ok(());
        }
        let own = bucket::of(head.host, hosts, head.uri.path());
        let copied = bucket::sources(head.headers, head.uri.query().unwrap_or_default());
        for bucket in [own].into_iter().chain(copied.map(|source| bucket::copied(&source))) {
            let bucket = bucket?;
            if !self.buckets.iter().any(|pattern| fits(pattern, &bucket)) {
                let allowed = list(&self.buckets);
                return Err(format!("it is for {allowed}; for `{bucket}`, add that to `buckets`"));
            }
        }
        Ok(())
    }

    /// What a request creates, if its service is one of those that do, or answers for one of them: S3's access grants do, and
    /// stores that speak like S3 can have the actions of STS and IAM at their root and an interface for their
    /// administrators, whatever service was signed for.
    pub fn creates(&self, scope: &Scope, head: &RequestHead<'_>, hosts: &[HostPattern]) -> Option<Creates> {
        let mut labels = head.host.as_str().split('.').peekable();
        let mut grants = false;
        while let Some(label) = labels.next() {
            let private = label == "control" && labels.peek().is_some_and(|next| next.starts_with("vpce-"));
            grants |= label.starts_with("s3-control") || private;
        }
        creating(&scope.service).or(grants.then_some(Creates::Sts)).or_else(|| {
            let store = self.is_for_a_store() && !bucket::is_amazon(head.host);
            store.then(|| of_store(head, hosts)).flatten()
        })
    }

    /// Declared for nothing that a store which speaks like S3 has, its hosts are none: what else speaks AWS's protocols (a
    /// database, a queue) has all of its actions at its root.
    fn is_for_a_store(&self) -> bool {
        self.services.iter().any(|service| service.starts_with("s3") || creating(service).is_some())
    }
}

/// Amazon holds a signature to the service that its host names. Another store may take one for any service, so only what its
/// root does for a service that creates credentials is about no bucket: for that, `minting` decides.
fn is_of_no_bucket(scope: &Scope, head: &RequestHead<'_>, hosts: &[HostPattern]) -> bool {
    if bucket::is_amazon(head.host) {
        return !scope.is_s3();
    }
    let root = *head.method == Method::POST && head.uri.path() == "/";
    creating(&scope.service).is_some() && root && bucket::of_host(head.host, hosts).is_none()
}

/// However the store reads the path and the query.
fn of_store(head: &RequestHead<'_>, hosts: &[HostPattern]) -> Option<Creates> {
    let readings = Readings::of(head.uri.path());
    // None of ours fails to parse; if one did, it would match everything.
    let is = |pattern: &str| {
        pattern.parse::<PathPattern>().map_or(true, |pattern| pattern.matches_possibly(&readings))
    };
    let of_host = bucket::of_host(head.host, hosts).is_some();
    if ADMIN_ANYWHERE.into_iter().any(is) || !of_host && is(ADMIN) {
        return Some(Creates::ApiKey);
    }
    let acts = || {
        let query = head.uri.query().unwrap_or_default();
        bucket::decodings(query.as_bytes())
            .any(|query| query.to_ascii_lowercase().windows(ACTION.len()).any(|part| part == ACTION))
    };
    (is("/") && (*head.method == Method::POST || acts())).then_some(Creates::Sts)
}

fn creating(service: &str) -> Option<Creates> {
    CREATING.iter().find(|(name, _)| *name == service).map(|(_, creates)| *creates)
}

fn fits(pattern: &str, bucket: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => bucket.starts_with(start),
        None => pattern == bucket,
    }
}

impl Written {
    /// `at` is where the secret's table begins. An error is a place in the file and what is wrong there.
    pub(in crate::credentials) fn binding(self, at: usize) -> Result<Binding, (usize, String)> {
        let Some(services) = self.services else {
            let message = "missing field `services`: what it may sign for, as `services = [\"s3\"]`";
            return Err((at, message.to_owned()));
        };
        Ok(Binding {
            services: words("services", services, false)?,
            regions: self.regions.map_or(Ok(Vec::new()), |regions| words("regions", regions, false))?,
            buckets: self.buckets.map_or(Ok(Vec::new()), |buckets| words("buckets", buckets, true))?,
        })
    }

    /// For a secret of another kind.
    pub(in crate::credentials) fn none(&self) -> Result<(), (usize, String)> {
        let keys = [("services", &self.services), ("regions", &self.regions), ("buckets", &self.buckets)];
        let written = keys.into_iter().find_map(|(key, written)| Some((key, written.as_ref()?)));
        written.map_or(Ok(()), |(key, written)| {
            Err((written.span().start, format!("`{key}` is for `kind = \"aws\"`; leave it out")))
        })
    }
}

fn words(key: &str, written: Spanned<OneOrMany<String>>, star: bool) -> Result<Vec<String>, (usize, String)> {
    let at = written.span().start;
    let words = written.into_inner().0;
    if words.is_empty() {
        return Err((at, format!("`{key}` is empty, so the secret could never be used")));
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    let wrong = |word: &&String| {
        let word = if star { word.strip_suffix('*').unwrap_or(word) } else { word };
        word.is_empty() || !word.bytes().all(plain)
    };
    match words.iter().find(wrong) {
        None => Ok(words),
        Some(word) => Err((
            at,
            format!(
                "`{key}`: {word:?} is not a name in lower case{}",
                if star { ", with `*` at its end at the most" } else { "" }
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Uri};

    use super::*;

    fn binding(services: &[&str], buckets: &[&str]) -> Binding {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        Binding { services: words(services), regions: Vec::new(), buckets: words(buckets) }
    }

    fn scope(service: &str) -> Scope {
        let (date, region) = ("20150830".to_owned(), "x".to_owned());
        Scope { date, region, service: service.to_owned() }
    }

    const HOSTS: [&str; 3] = ["store.example.com", "*.store.example.com", "*.amazonaws.com"];

    /// With the hosts of the secret, and a head of that request.
    fn with<T>(
        (method, host, target): (&str, &str, &str),
        ask: impl FnOnce(&RequestHead<'_>, &[HostPattern]) -> T,
    ) -> T {
        let (host, uri): (_, Uri) = (host.parse().unwrap(), target.parse().unwrap());
        let (method, headers) = (method.parse().unwrap(), HeaderMap::new());
        let head =
            RequestHead { host: &host, method: &method, verified_tls: true, uri: &uri, headers: &headers };
        ask(&head, &HOSTS.map(|host| host.parse().unwrap()))
    }

    #[test]
    fn what_answers_with_credentials_is_told_by_service_host_and_action() {
        const AWS: &str = "s3.eu-central-1.amazonaws.com";
        const STORE: &str = "store.example.com";
        const OF_BUCKET: &str = "b.store.example.com";
        let (sts, key) = (Some(Creates::Sts), Some(Creates::ApiKey));
        let store = binding(&["s3", "dynamodb", "iam"], &[]);
        for (service, method, host, target, creates) in [
            ("s3", "GET", AWS, "/b/key", None),
            ("s3", "POST", AWS, "/?delete", None),
            ("iam", "POST", "iam.amazonaws.com", "/", key),
            ("s3", "GET", "1.s3-control.eu-central-1.amazonaws.com", "/v20180820/x", sts),
            ("s3", "GET", "control.vpce-1a.s3.eu-central-1.vpce.amazonaws.com", "/v20180820/x", sts),
            ("s3", "GET", "1.control.vpce-1a.s3.eu-central-1.vpce.amazonaws.com", "/v20180820/x", sts),
            ("s3", "POST", "vpce-1-x.vpce-svc-2.eu-central-1.vpce.amazonaws.com", "/", sts),
            ("s3", "GET", STORE, "/", None),
            ("s3", "GET", STORE, "/?prefix=x", None),
            ("s3", "POST", STORE, "/b?delete", None),
            ("s3", "POST", STORE, "/", sts),
            ("s3", "GET", STORE, "/?action=AssumeRole", sts),
            ("s3", "GET", STORE, "/?%41ction=AssumeRole", sts),
            ("s3", "GET", STORE, "/?x&%2541ction%3dAssumeRole", sts),
            ("s3", "POST", STORE, "/%2F", sts),
            ("s3", "POST", STORE, "/%252f//", sts),
            ("s3", "POST", STORE, "/./", sts),
            ("s3", "POST", STORE, "/b/%2e%2e", sts),
            ("s3", "POST", OF_BUCKET, "/", sts),
            // Whatever it was signed for.
            ("dynamodb", "POST", STORE, "/", sts),
            ("dynamodb", "POST", "dynamodb.eu-central-1.amazonaws.com", "/", None),
            // A customer's machine is no service of Amazon's.
            ("dynamodb", "POST", "store.eu-central-1.elb.amazonaws.com", "/", sts),
            ("s3", "PUT", STORE, "/minio/admin/v3/add-user", key),
            ("s3", "PUT", OF_BUCKET, "/minio//%61dmin/v3/add-user", key),
            ("s3", "POST", STORE, "/minio/kms/v1/key/create", key),
            ("s3", "PUT", STORE, "/admin/user?key", key),
            ("s3", "PUT", STORE, "/x/../admin/user", key),
            ("s3", "PUT", OF_BUCKET, "/admin/user", None),
            ("s3", "PUT", STORE, "/b/admin/user", None),
            ("s3", "PUT", AWS, "/admin/user", None),
        ] {
            let found =
                with((method, host, target), |head, hosts| store.creates(&scope(service), head, hosts));
            assert_eq!(found, creates, "{service} {method} {host}{target}");
        }
        let database = binding(&["dynamodb"], &[]);
        let asked = ("POST", STORE, "/");
        assert_eq!(with(asked, |head, hosts| database.creates(&scope("dynamodb"), head, hosts)), None);
    }

    #[test]
    fn a_service_that_creates_credentials_is_no_way_around_buckets() {
        let bound = binding(&["s3", "sts"], &["mine"]);
        for (service, method, host, target, fits) in [
            ("s3", "GET", "store.example.com", "/mine/key", true),
            ("s3", "GET", "store.example.com", "/others/key", false),
            ("sts", "GET", "store.example.com", "/others/key", false),
            ("sts", "PUT", "store.example.com", "/others/key", false),
            ("sts", "GET", "others.store.example.com", "/", false),
            ("sts", "POST", "others.store.example.com", "/", false),
            ("sts", "GET", "store.example.com", "/", false),
            ("sts", "POST", "store.example.com", "/%2Fothers", false),
            ("sts", "POST", "store.example.com", "/", true),
            ("sts", "POST", "sts.eu-central-1.amazonaws.com", "/", true),
            ("sts", "GET", "store.eu-central-1.elb.amazonaws.com", "/others/key", false),
        ] {
            let found = with((method, host, target), |head, hosts| bound.check(&scope(service), head, hosts));
            assert_eq!(found.is_ok(), fits, "{service} {method} {host}{target}: {found:?}");
        }
    }
}
