//! With which methods and for which paths a secret may be used. Pure.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};
use understudy_policies::{PathPattern, RequestPath};

use super::catalogue::endpoint::dashed;
use super::examine::list;
use super::placement::Placement;
use super::slots::Part;

/// Empty lists: no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    pub methods: Vec<Method>,
    pub paths: Vec<PathPattern>,
}

/// Headers with which some servers let a client state another method or path than the request's own.
const OVERRIDES: [&str; 5] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"];
/// The same in a query or a form.
pub(super) const OVERRIDING_KEY: &str = "_method";

impl Scope {
    /// What to do, if the secret may not be used for this request.
    pub(super) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), String> {
        if self.methods.is_empty() && self.paths.is_empty() {
            return Ok(());
        }
        if !self.methods.is_empty() && !self.methods.contains(method) {
            let allowed = list(&self.methods);
            return Err(format!("it may be used with {allowed}; for others, add them to `methods`"));
        }
        let url = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        if let Some(name) = headers.keys().find(|name| OVERRIDES.contains(&dashed(name).as_ref())) {
            return Err(format!("it may be used with some methods or paths only; send no `{name}`"));
        }
        if !Part::url(url).slots(&Placement::Query(OVERRIDING_KEY.to_owned())).is_empty() {
            return Err(format!(
                "it may be used with some methods or paths only; send no `{OVERRIDING_KEY}` in the query"
            ));
        }
        if self.paths.is_empty() {
            return Ok(());
        }
        let path = RequestPath::parse(uri.path()).map_err(|error| {
            format!("it may be used for some paths only, and servers read this one differently: {error}")
        })?;
        if self.paths.iter().any(|pattern| pattern.matches_surely(&path)) {
            return Ok(());
        }
        Err(format!("it may be used for {}; for others, add them to `paths`", list(&self.paths)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(methods: &[&str], paths: &[&str]) -> Scope {
        Scope {
            methods: methods.iter().map(|method| method.parse().unwrap()).collect(),
            paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
        }
    }

    fn said(scope: &Scope, method: &str, url: &str, header: Option<&'static str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(name) = header {
            headers.insert(name, "x".parse().unwrap());
        }
        let result = scope.check(&method.parse().unwrap(), &url.parse().unwrap(), &headers);
        result.err().unwrap_or_default()
    }

    #[test]
    fn methods_and_paths_are_kept_to() {
        let read = scope(&["GET", "HEAD"], &["/v1/**", "/me"]);
        for (method, url, header, expected) in [
            ("GET", "/v1/a?x=/admin", None, ""),
            ("HEAD", "https://api.example.com/me", None, ""),
            ("POST", "/v1/a", None, "it may be used with `GET`, `HEAD`; for others"),
            ("get", "/v1/a", None, "it may be used with `GET`"),
            ("GET", "/v2/a", None, "it may be used for `/v1/**`, `/me`; for others"),
            (
                "GET",
                "/v1/../v2",
                None,
                "it may be used for some paths only, and servers read this one differently: the path has",
            ),
            (
                "GET",
                "/v1/%2e%2e/v2",
                None,
                "it may be used for some paths only, and servers read this one differently: the path has",
            ),
            ("GET", "/v1/a", Some("x-http-method-override"), "it may be used with some methods or paths"),
            ("GET", "/v1/a", Some("x_http_method_override"), "it may be used with some methods or paths"),
            ("GET", "/v1/a", Some("x-original-url"), "it may be used with some methods or paths"),
            ("GET", "/v1/a?_Method=PUT", None, "it may be used with some methods or paths"),
        ] {
            let said = said(&read, method, url, header);
            assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{url}: {said}");
        }
    }

    #[test]
    fn without_limits_nothing_is_asked() {
        assert_eq!(said(&Scope::default(), "DELETE", "/a/../b?_method=x", Some("x-original-url")), "");
        assert_eq!(said(&scope(&["GET"], &[]), "GET", "/a/../b", None), "");
    }
}
