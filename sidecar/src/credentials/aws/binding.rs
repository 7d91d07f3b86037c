//! What a key may be used for: services, regions and buckets, as the scope and the address of a request tell them.

use http::{HeaderMap, Method};
use toml::Spanned;
use understudy_policies::document::OneOrMany;
use understudy_policies::{HostName, HostPattern};
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

impl Binding {
    /// What is wrong, and what to do about it.
    pub(super) fn check(
        &self,
        scope: &Scope,
        host: &HostName,
        hosts: &[HostPattern],
        path: &str,
        headers: &HeaderMap,
    ) -> Result<(), String> {
        if !self.services.contains(&scope.service) {
            let allowed = list(&self.services);
            return Err(format!("it signs for {allowed}; for `{}`, add that to `services`", scope.service));
        }
        if !self.regions.is_empty() && !self.regions.contains(&scope.region) {
            let allowed = list(&self.regions);
            return Err(format!("it signs for {allowed}; for `{}`, add that to `regions`", scope.region));
        }
        // Another store may take a signature for any service; of one that creates credentials, `minting` decides.
        let other = !scope.is_s3() && (bucket::is_amazon(host) || creating(&scope.service).is_some());
        if self.buckets.is_empty() || other {
            return Ok(());
        }
        let copied = headers.get_all("x-amz-copy-source").iter();
        let copied = copied.map(|source| bucket::copied(source.as_bytes()));
        for bucket in [bucket::of(host, hosts, path)].into_iter().chain(copied) {
            let bucket = bucket?;
            if !self.buckets.iter().any(|pattern| fits(pattern, &bucket)) {
                let allowed = list(&self.buckets);
                return Err(format!("it is for {allowed}; for `{bucket}`, add that to `buckets`"));
            }
        }
        Ok(())
    }

    /// What a request creates, if its service is one of those that do, or answers for one of them: S3's access grants do, and
    /// stores that speak like S3 can have the actions of STS and IAM at their root, whatever service was signed for.
    pub(super) fn creates(scope: &Scope, head: &RequestHead<'_>) -> Option<Creates> {
        let known = creating(&scope.service);
        let grants = head.host.as_str().split('.').any(|label| label.starts_with("s3-control"));
        let acts = head.uri.query().is_some_and(|query| query.to_ascii_lowercase().contains("action="));
        let at_root = head.uri.path().trim_matches('/').is_empty();
        let elsewhere = !bucket::is_amazon(head.host) && at_root && (head.method == Method::POST || acts);
        known.or((grants || elsewhere && scope.is_s3()).then_some(Creates::Sts))
    }
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
    use http::Uri;

    use super::*;

    #[test]
    fn what_answers_with_credentials_is_told_by_service_host_and_action() {
        for (service, host, method, target, creates) in [
            ("s3", "s3.eu-central-1.amazonaws.com", Method::GET, "/b/key", None),
            ("s3", "s3.eu-central-1.amazonaws.com", Method::POST, "/?delete", None),
            ("iam", "iam.amazonaws.com", Method::POST, "/", Some(Creates::ApiKey)),
            (
                "s3",
                "1.s3-control.eu-central-1.amazonaws.com",
                Method::GET,
                "/v20180820/x",
                Some(Creates::Sts),
            ),
            ("s3", "store.example.com", Method::GET, "/", None),
            ("s3", "store.example.com", Method::POST, "/b?delete", None),
            ("s3", "store.example.com", Method::POST, "/", Some(Creates::Sts)),
            ("s3", "store.example.com", Method::GET, "/?action=AssumeRole", Some(Creates::Sts)),
        ] {
            let (host, uri) = (host.parse().unwrap(), Uri::from_static(target));
            let headers = HeaderMap::new();
            let head = RequestHead {
                host: &host,
                method: &method,
                verified_tls: true,
                uri: &uri,
                headers: &headers,
            };
            let (date, region) = ("20150830".to_owned(), "x".to_owned());
            let scope = Scope { date, region, service: service.to_owned() };
            assert_eq!(Binding::creates(&scope, &head), creates, "{service} {host} {method} {target}");
        }
    }
}
