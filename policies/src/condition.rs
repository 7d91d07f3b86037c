//! What a rule asks of a request beyond host and port.
//!
//! A rule that allows holds only if a condition is met however the server reads the request; one that denies, if it is
//! met in any reading.

use crate::git::Git;
use crate::{PathError, PathPattern, Request};

/// Empty: any request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Upper case; `GET` stands for `HEAD`, too. Empty: any.
    pub methods: Vec<String>,
    /// Empty: any.
    pub paths: Vec<PathPattern>,
    /// An allowance's request has no other keys, a denial's has one of these.
    pub query: Option<Vec<String>>,
    pub git: Option<Git>,
}

/// How a request meets conditions; otherwise the first that it does not meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    Yes,
    /// Everything but the path, which cannot be told.
    Unclear(PathError),
    NotMethod,
    /// Path or query.
    NotPath,
}

impl Conditions {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The methods that it asks for.
    pub(crate) fn methods(&self) -> Vec<String> {
        match &self.git {
            Some(git) => git.methods(),
            None => self.methods.clone(),
        }
    }

    /// Of a rule that allows.
    pub(crate) fn surely(&self, request: &Request<'_>) -> Fit {
        if let Some(git) = &self.git {
            return git.surely(request);
        }
        let query = |allowed: &Vec<String>| {
            request.query_keys().all(|key| key.is_some_and(|key| allowed.contains(&key)))
        };
        let query = self.query.as_ref().is_none_or(query);
        self.fit(request.method, request, query, PathPattern::matches_surely)
    }

    /// Of a rule that denies.
    pub(crate) fn possibly(&self, request: &Request<'_>) -> Fit {
        if let Some(git) = &self.git {
            return git.possibly(request);
        }
        let query = |denied: &Vec<String>| {
            let meant = |key: &str| denied.iter().any(|denied| denied.eq_ignore_ascii_case(key));
            request.query_keys().any(|key| key.is_none_or(|key| meant(&key)))
        };
        let query = self.query.as_ref().is_none_or(query);
        // Some servers ignore letter case.
        self.fit(&request.method.to_ascii_uppercase(), request, query, |pattern, _| {
            pattern.matches_possibly(request.readings())
        })
    }

    fn fit(
        &self,
        method: &str,
        request: &Request<'_>,
        query: bool,
        matches: impl Fn(&PathPattern, &crate::RequestPath) -> bool,
    ) -> Fit {
        if !self.has_method(method) {
            return Fit::NotMethod;
        }
        if !query {
            return Fit::NotPath;
        }
        match &request.path {
            _ if self.paths.is_empty() => Fit::Yes,
            Err(error) => Fit::Unclear(*error),
            Ok(path) if self.paths.iter().any(|pattern| matches(pattern, path)) => Fit::Yes,
            Ok(_) => Fit::NotPath,
        }
    }

    fn has_method(&self, method: &str) -> bool {
        let is = |known: &String| known == method || (known == "GET" && method == "HEAD");
        self.methods.is_empty() || self.methods.iter().any(is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(methods: &[&str], paths: &[&str], query: Option<&[&str]>) -> Conditions {
        let own = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        Conditions {
            methods: own(methods),
            paths: paths.iter().map(|path| path.parse().unwrap()).collect(),
            query: query.map(own),
            git: None,
        }
    }

    fn fits(conditions: &Conditions, method: &str, target: &str) -> (Fit, Fit) {
        let host = "a.example".parse().unwrap();
        let request = Request::new(&host, 443, method, target);
        (conditions.surely(&request), conditions.possibly(&request))
    }

    #[test]
    fn the_table_of_conditions() {
        use Fit::{NotMethod, NotPath, Unclear, Yes};
        let dots = Unclear(PathError::DotSegment);
        let read = conditions(&["GET"], &["/v1/**"], Some(&["page"]));
        for (conditions, method, target, surely, possibly) in [
            (&conditions(&[], &[], None), "BREW", "/a/../b?x;y", Yes, Yes),
            (&read, "GET", "/v1/a", Yes, NotPath),
            (&read, "HEAD", "/v1/a?page=2", Yes, Yes),
            (&read, "get", "/v1/a?page=2", NotMethod, Yes),
            (&read, "head", "/v1/a?page=2", NotMethod, Yes),
            (&read, "POST", "/v1/a?page=2", NotMethod, NotMethod),
            (&read, "GET", "/V1/a?PAGE=2", NotPath, Yes),
            (&read, "GET", "/v1/a?page=2&x=1", NotPath, Yes),
            (&read, "GET", "/v1/a?page;x", NotPath, Yes),
            (&read, "GET", "/v1/../b?page", dots, dots),
            (&read, "POST", "/v1/../b?page", NotMethod, NotMethod),
            (&conditions(&[], &[], Some(&[])), "GET", "/a?", Yes, NotPath),
            (&conditions(&[], &[], Some(&[])), "GET", "/a?b", NotPath, NotPath),
        ] {
            assert_eq!(fits(conditions, method, target), (surely, possibly), "{method} {target}");
        }
    }
}
