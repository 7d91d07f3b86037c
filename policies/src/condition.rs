//! What a rule asks of a request beyond host and port.
//!
//! A rule that allows holds only if a condition is met however the server reads the request; one that denies, if it is
//! met in any reading.

use std::ops::Deref;

use crate::git::Git;
use crate::path::PathIndex;
use crate::{Effect, PathError, PathPattern, Request};

/// Empty: any request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Upper case; `GET` stands for `HEAD`, too. Empty: any.
    pub methods: Vec<String>,
    /// Empty: any.
    pub paths: Paths,
    /// An allowance's request has no other keys, a denial's has one of these.
    pub query: Option<Vec<String>>,
    pub git: Option<Git>,
}

/// Patterns, any of which a path must match.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    list: Vec<PathPattern>,
    /// Of the places in it, if it is long.
    index: Option<PathIndex<usize>>,
}

/// More are not looked at one by one.
const FEW: usize = 16;

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

    /// Whether whatever meets `other` meets this, of two rules of this effect.
    pub(crate) fn cover(&self, other: &Self, effect: Effect) -> bool {
        let methods = self.methods.is_empty()
            || !other.methods.is_empty() && other.methods.iter().all(|method| self.has_method(method));
        let covers = |own: &PathPattern, path: &PathPattern| match effect {
            Effect::Allow => own.covers(path),
            Effect::Deny => own.takes(path),
        };
        let paths = self.paths.is_empty()
            || !other.paths.is_empty() && other.paths.iter().all(|path| self.paths.cover(path, covers));
        let query = match (&self.query, &other.query) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(keys)) => keys.iter().all(|key| own.contains(key)),
        };
        let git = self.git == other.git || *self == Self::default();
        git && methods && paths && query
    }

    /// The patterns of which a path must match one; none if any path will do.
    pub(crate) fn patterns(&self) -> Box<dyn Iterator<Item = &PathPattern> + '_> {
        match &self.git {
            Some(git) => Box::new(git.patterns()),
            None => Box::new(self.paths.iter()),
        }
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
            // `key[]`, `key[x]` and ` key` are `key` to some servers.
            let bare = |key: &str| key.split('[').next().unwrap_or_default().trim().to_owned();
            let meant = |key: &str| {
                denied.iter().any(|denied| {
                    denied.trim().eq_ignore_ascii_case(key) || denied.eq_ignore_ascii_case(&bare(key))
                })
            };
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
            Ok(path) if self.paths.any(request, |pattern| matches(pattern, path)) => Fit::Yes,
            Ok(_) => Fit::NotPath,
        }
    }

    fn has_method(&self, method: &str) -> bool {
        let is = |known: &String| known == method || (known == "GET" && method == "HEAD");
        self.methods.is_empty() || self.methods.iter().any(is)
    }
}

impl Paths {
    /// Whether one that could match does.
    fn any(&self, request: &Request<'_>, matches: impl Fn(&PathPattern) -> bool) -> bool {
        match &self.index {
            None => self.list.iter().any(matches),
            Some(index) => {
                let about = index.about(request.readings());
                about.into_iter().filter_map(|at| self.list.get(at)).any(matches)
            }
        }
    }
}

impl Paths {
    /// Whether one covers this one, as `covers` has it.
    fn cover(&self, path: &PathPattern, covers: impl Fn(&PathPattern, &PathPattern) -> bool) -> bool {
        match &self.index {
            None => self.list.iter().any(|own| covers(own, path)),
            Some(index) => {
                let about = index.covering(Some(path));
                about.into_iter().filter_map(|at| self.list.get(at)).any(|own| covers(own, path))
            }
        }
    }
}

impl FromIterator<PathPattern> for Paths {
    fn from_iter<I: IntoIterator<Item = PathPattern>>(patterns: I) -> Self {
        let list: Vec<PathPattern> = patterns.into_iter().collect();
        let index = (list.len() > FEW).then(|| {
            let mut index = PathIndex::default();
            list.iter().enumerate().for_each(|(at, pattern)| index.add(pattern, at));
            index
        });
        Self { list, index }
    }
}

impl Deref for Paths {
    type Target = [PathPattern];

    fn deref(&self) -> &[PathPattern] {
        &self.list
    }
}

impl PartialEq for Paths {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for Paths {}

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
    fn of_a_long_list_few_are_looked_at_and_none_is_missed() {
        let list: Vec<String> = (0..10_000).map(|at| format!("/v1/{at}")).collect();
        let list: Vec<&str> = list.iter().map(String::as_str).chain(["/**/x"]).collect();
        let conditions = conditions(&[], &list, None);
        let host = "a.example".parse().unwrap();
        for (target, looked_at, surely, possibly) in [
            ("/v1/4711", 2, true, true),
            ("/v1/4711.json", 2, false, true),
            ("/V1/4711/", 2, false, true),
            ("/v1/none", 1, false, false),
            ("/v1/y/x", 1, true, true),
        ] {
            let request = Request::new(&host, 443, "GET", target);
            let count = std::cell::Cell::new(0);
            conditions.paths.any(&request, |_| {
                count.set(count.get() + 1);
                false
            });
            assert_eq!(count.get(), looked_at, "{target}");
            let found = (conditions.surely(&request), conditions.possibly(&request));
            assert_eq!((found.0 == Fit::Yes, found.1 == Fit::Yes), (surely, possibly), "{target}");
        }
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
            (&read, "GET", "/v1/a?page[]=2", NotPath, Yes),
            (&read, "GET", "/v1/a?%20Page%5bx%5d=2", NotPath, Yes),
            (&read, "GET", "/v1/a?[page]=2", NotPath, NotPath),
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
