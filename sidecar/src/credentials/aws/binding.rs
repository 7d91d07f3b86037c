//! What a key may be used for: services, regions and buckets, as the scope and the address of a request tell them.

use http::HeaderMap;
use toml::Spanned;
use understudy_policies::document::OneOrMany;
use understudy_policies::{HostName, HostPattern};
use understudy_sigv4::Scope;

use super::super::catalogue::Creates;
use super::super::examine::list;
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
const CREATING: [(&str, Creates); 12] = [
    ("codeartifact", Creates::Sts),
    ("cognito-identity", Creates::Sts),
    ("ecr", Creates::Sts),
    ("ecr-public", Creates::Sts),
    ("iam", Creates::ApiKey),
    ("redshift", Creates::Sts),
    ("redshift-serverless", Creates::Sts),
    ("rolesanywhere", Creates::Sts),
    ("s3express", Creates::Sts),
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
        if self.buckets.is_empty() || !scope.is_s3() {
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

    /// What the service of a request creates, if it is one of those that do.
    pub(super) fn creates(scope: &Scope) -> Option<Creates> {
        CREATING.iter().find(|(service, _)| *service == scope.service).map(|(_, creates)| *creates)
    }
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
