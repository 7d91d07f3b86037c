//! Git over HTTPS: the smart protocol (gitprotocol-http(5)) and Git LFS (its API's `docs/api`).

use std::fmt;

use crate::condition::Fit;
use crate::{PathPattern, PathPatternError, Request};

/// Which of a server's repositories a rule is about, and whether fetching or pushing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Git {
    access: Access,
    /// As written; `**` alone if none was named.
    repositories: Vec<String>,
    allowed: Vec<Endpoint>,
    denied: Vec<Endpoint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    /// Read, too.
    Write,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// None: each that may change something.
    pub(crate) method: Option<&'static str>,
    pub(crate) path: PathPattern,
    /// The whole query, if it matters: which of two programs `info/refs` is asked of.
    service: Option<&'static str>,
}

/// Method, what follows the repository, service.
type Form = (Option<&'static str>, &'static str, Option<&'static str>);

/// The operation of an LFS batch is in its body: one that asks for an upload gets addresses that the uploads themselves are
/// still refused at. Forgejo appends a file's name to an object's, GitLab has a place of its own for objects.
const READ: [Form; 7] = [
    (Some("GET"), "info/refs", Some("git-upload-pack")),
    (Some("POST"), "git-upload-pack", None),
    (Some("POST"), "info/lfs/objects/batch", None),
    (Some("GET"), "info/lfs/objects/*", None),
    (Some("GET"), "info/lfs/objects/*/*", None),
    (Some("GET"), "gitlab-lfs/objects/*", None),
    (Some("GET"), "info/lfs/locks", None),
];

/// Forgejo and GitLab append an object's size.
const WRITE: [Form; 9] = [
    (Some("GET"), "info/refs", Some("git-receive-pack")),
    (Some("POST"), "git-receive-pack", None),
    (Some("PUT"), "info/lfs/objects/*", None),
    (Some("PUT"), "info/lfs/objects/*/*", None),
    (Some("PUT"), "gitlab-lfs/objects/*/*", None),
    (Some("POST"), "info/lfs/verify", None),
    (Some("POST"), "info/lfs/locks", None),
    (Some("POST"), "info/lfs/locks/verify", None),
    (Some("POST"), "info/lfs/locks/*/unlock", None),
];

/// What a denial of pushes takes: of LFS all but `GET`, batches with it. One that asks for an upload cannot be told from one
/// that asks for a download, and gets an address that may be another host's, which the denial is not about.
const NO_WRITE: [Form; 4] = [WRITE[0], WRITE[1], (None, "info/lfs/**", None), (None, "gitlab-lfs/**", None)];

/// What ends a repository's name where it is allowed.
const NAMES: [&str; 2] = ["", ".git"];
/// And where it is denied: git's own server finds a repository by each of these (its `enter_repo`), by its linked worktrees, too.
const ALL_NAMES: [&str; 7] =
    ["", ".git", "/.git", ".git/.git", "/worktrees/*", ".git/worktrees/*", "/.git/worktrees/*"];

impl Git {
    /// `repositories` are written as `owner/name`, with stars as in paths; with or without `.git`.
    pub fn new(access: Access, repositories: &[String]) -> Result<Self, PathPatternError> {
        let repositories = match repositories {
            [] => vec!["**".to_owned()],
            some => some.to_vec(),
        };
        let endpoints = |all: &[&[Form]], names: &[&str]| {
            let mut endpoints = Vec::new();
            for repository in &repositories {
                let stem = repository.strip_suffix(".git").unwrap_or(repository);
                // A star takes `.git` in, and two take any end.
                let is_new = |name: &&str| match stem {
                    _ if stem.ends_with("**") => name.is_empty(),
                    _ if stem.ends_with('*') => !name.starts_with(".git"),
                    _ => true,
                };
                for name in names.iter().copied().filter(is_new) {
                    for (method, rest, service) in all.iter().copied().flatten() {
                        let path = format!("/{stem}{name}/{rest}").parse()?;
                        endpoints.push(Endpoint { method: *method, path, service: *service });
                    }
                }
            }
            Ok(endpoints)
        };
        let (allowed, denied): (&[&[Form]], &[&[Form]]) = match access {
            Access::Read => (&[&READ], &[&NO_WRITE, &READ]),
            Access::Write => (&[&READ, &WRITE], &[&NO_WRITE]),
        };
        let (allowed, denied) = (endpoints(allowed, &NAMES)?, endpoints(denied, &ALL_NAMES)?);
        Ok(Self { access, allowed, denied, repositories })
    }

    /// Of the paths that it is about.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &PathPattern> {
        self.allowed.iter().chain(&self.denied).map(|endpoint| &endpoint.path)
    }

    pub(crate) fn methods(&self) -> Vec<String> {
        let methods = match self.access {
            Access::Read => &["GET", "POST"][..],
            Access::Write => &["GET", "POST", "PUT"],
        };
        methods.iter().map(|method| (*method).to_owned()).collect()
    }

    /// What a rule with it allows.
    pub(crate) fn allowed(&self) -> impl Iterator<Item = &Endpoint> {
        self.allowed.iter()
    }

    /// What one denies.
    pub(crate) fn denied(&self) -> impl Iterator<Item = &Endpoint> {
        self.denied.iter()
    }

    /// Of a rule that allows: `write` takes `read` in.
    pub(crate) fn surely(&self, request: &Request<'_>) -> Fit {
        fit(request.method, request, self.allowed(), |endpoint| {
            let service = endpoint.service.is_none_or(|service| {
                request.query().and_then(|query| query.strip_prefix("service=")) == Some(service)
            });
            service && request.path.as_ref().is_ok_and(|path| endpoint.path.matches_surely(path))
        })
    }

    /// Of a rule that denies: `read` takes `write` in.
    pub(crate) fn possibly(&self, request: &Request<'_>) -> Fit {
        // Some servers ignore letter case.
        let method = request.method.to_ascii_uppercase();
        fit(&method, request, self.denied(), |endpoint| {
            let query = request.query().unwrap_or_default();
            let service = endpoint
                .service
                .is_none_or(|service| query.contains('%') || query.to_ascii_lowercase().contains(service));
            service && request.path.is_ok() && endpoint.path.matches_possibly(request.readings())
        })
    }
}

impl Endpoint {
    /// Of a denial: whether it takes every request that an allowance with the other allows.
    pub(crate) fn takes(&self, other: &Self) -> bool {
        let method = match (self.method, other.method) {
            (None, Some(method)) => !matches!(method, "GET" | "HEAD"),
            (one, other) => one == other,
        };
        let service = self.service.is_none() || self.service == other.service;
        method && service && self.path.surely_takes(&other.path)
    }
}

fn fit<'e>(
    method: &str,
    request: &Request<'_>,
    endpoints: impl Iterator<Item = &'e Endpoint>,
    matches: impl Fn(&Endpoint) -> bool,
) -> Fit {
    let meant = |endpoint: &&Endpoint| match endpoint.method {
        Some(meant) => meant == method,
        None => !matches!(method, "GET" | "HEAD"),
    };
    let mut of_method = endpoints.filter(meant).peekable();
    match &request.path {
        _ if of_method.peek().is_none() => Fit::NotMethod,
        Err(error) => Fit::Unclear(*error),
        Ok(_) if of_method.any(matches) => Fit::Yes,
        Ok(_) => Fit::NotPath,
    }
}

/// `git read of org/*`
impl fmt::Display for Git {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            Access::Read => "read",
            Access::Write => "write",
        };
        write!(f, "git {access} of {}", self.repositories.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(access: Access, repositories: &[&str]) -> Git {
        let repositories: Vec<String> = repositories.iter().map(|name| (*name).to_owned()).collect();
        Git::new(access, &repositories).unwrap()
    }

    fn allows(git: &Git, method: &str, target: &str) -> bool {
        let host = "git.example".parse().unwrap();
        git.surely(&Request::new(&host, 443, method, target)) == Fit::Yes
    }

    fn denies(git: &Git, method: &str, target: &str) -> bool {
        let host = "git.example".parse().unwrap();
        git.possibly(&Request::new(&host, 443, method, target)) == Fit::Yes
    }

    /// As the forges' own sources and documentation have them: GitHub and the reference server, Forgejo and Gitea, GitLab.
    const FETCH: [(&str, &str); 8] = [
        ("GET", "/org/repo.git/info/refs?service=git-upload-pack"),
        ("POST", "/org/repo/git-upload-pack"),
        ("GET", "/org/repo.git/info/lfs/objects/0123abcd"),
        ("GET", "/org/repo/info/lfs/objects/0123abcd/cGljdHVyZS5wbmc"),
        ("GET", "/org/repo.git/info/lfs/objects/0123abcd/direct"),
        ("GET", "/org/repo.git/gitlab-lfs/objects/0123abcd"),
        ("GET", "/org/repo.git/info/lfs/locks?path=a"),
        BATCH,
    ];

    /// For a download or an upload: its body says which.
    const BATCH: (&str, &str) = ("POST", "/org/repo.git/info/lfs/objects/batch");

    const PUSH: [(&str, &str); 9] = [
        ("GET", "/org/repo.git/info/refs?service=git-receive-pack"),
        ("POST", "/org/repo.git/git-receive-pack"),
        ("PUT", "/org/repo.git/info/lfs/objects/0123abcd"),
        ("PUT", "/org/repo.git/info/lfs/objects/0123abcd/4096"),
        ("PUT", "/org/repo.git/gitlab-lfs/objects/0123abcd/4096"),
        ("POST", "/org/repo.git/info/lfs/verify"),
        ("POST", "/org/repo.git/info/lfs/locks"),
        ("POST", "/org/repo.git/info/lfs/locks/verify"),
        ("POST", "/org/repo.git/info/lfs/locks/7/unlock"),
    ];

    #[test]
    fn reading_allows_a_fetch_and_no_push() {
        for repositories in [&["org/repo"][..], &["org/repo.git"], &["org/*"], &["**"], &[]] {
            let (read, write) = (git(Access::Read, repositories), git(Access::Write, repositories));
            for (method, target) in FETCH {
                assert!(allows(&read, method, target) && allows(&write, method, target), "{target}");
            }
            for (method, target) in PUSH {
                assert!(!allows(&read, method, target) && allows(&write, method, target), "{target}");
            }
        }
    }

    #[test]
    fn other_repositories_and_other_pages_are_not_meant() {
        let write = git(Access::Write, &["org/repo", "team/*"]);
        for (method, target) in [
            ("POST", "/org/repository/git-upload-pack"),
            ("POST", "/org/repo/x/git-upload-pack"),
            ("POST", "/evil/org/repo/git-receive-pack"),
            ("POST", "/team/a/b/git-receive-pack"),
            ("GET", "/org/repo/info/refs"),
            ("GET", "/org/repo/info/refs?service=git-upload-pack&service=git-receive-pack"),
            ("GET", "/org/repo/info/refs?service=git-archive"),
            ("GET", "/org/repo/settings"),
            ("DELETE", "/org/repo.git/git-receive-pack"),
            // For GitLab's own parts alone.
            ("PUT", "/org/repo.git/gitlab-lfs/objects/0123abcd/4096/authorize"),
            ("PUT", "/org/other.git/info/lfs/objects/0123abcd/4096"),
            ("DELETE", "/org/repo.git/info/lfs/objects/0123abcd"),
            ("POST", "/org%2Frepo/git-receive-pack"),
        ] {
            assert!(!allows(&write, method, target), "{method} {target}");
        }
        assert!(allows(&write, "POST", "/team/a.git/git-receive-pack"));
    }

    #[test]
    fn a_denied_push_cannot_be_spelled_around_and_leaves_fetching_alone() {
        let no_push = git(Access::Write, &["org/repo"]);
        for (method, target) in PUSH {
            assert!(denies(&no_push, method, target), "{target}");
        }
        for (method, target) in FETCH {
            assert_eq!(denies(&no_push, method, target), (method, target) == BATCH, "{target}");
            assert!(denies(&git(Access::Read, &[]), method, target), "{target}");
        }
        for (method, target) in [
            ("POST", "/ORG/Repo.git/git-receive-pack"),
            ("GET", "/org/repo.git/info/refs?x=1&service=git-receive-pack"),
            ("GET", "/org/repo.git/info/refs?service=git%2Dreceive-pack"),
            ("POST", "/org%2Frepo/git-receive-pack"),
            ("post", "/org/repo/git-receive-pack"),
            // What another server may have in these places.
            ("PATCH", "/org/repo/info/lfs/uploads/7"),
            ("PUT", "/org/repo.git/gitlab-lfs/objects/0123abcd/4096/authorize"),
            ("DELETE", "/org/repo.git/info/lfs/objects/0123abcd"),
            ("POST", "/Org/repo.git/info%2Flfs/objects/batch/"),
            // Git's own server finds it by these names, too.
            ("POST", "/org/repo/.git/git-receive-pack"),
            ("POST", "/org/repo.git/.git/git-receive-pack"),
            ("POST", "/org/repo/.git/worktrees/a/git-receive-pack"),
            ("POST", "/org/repo.git/worktrees/a/git-receive-pack"),
            ("GET", "/org/repo/.git/info/refs?service=git-receive-pack"),
        ] {
            assert!(denies(&no_push, method, target), "{target}");
        }
        for name in ["/.git", "/worktrees/a", ".git/worktrees/a", "/.git/worktrees/a"] {
            let target = format!("/org/repo{name}/git-upload-pack");
            assert!(denies(&git(Access::Read, &["org/*"]), "POST", &target), "{name}");
        }
        assert!(!denies(&no_push, "POST", "/org/repo/x/.git/git-receive-pack"));
        assert!(!allows(&git(Access::Write, &["org/repo"]), "POST", "/org/repo/.git/git-receive-pack"));
    }

    #[test]
    fn a_repository_that_is_no_path_is_an_error() {
        for name in ["/org/repo", "org/../x", "org/repo?x", "org//repo"] {
            assert!(Git::new(Access::Read, &[name.to_owned()]).is_err(), "{name}");
        }
    }
}
