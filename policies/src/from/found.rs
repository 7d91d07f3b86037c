//! What the files of a project name, as the readers find it.

use super::url::{LONGEST, Url, UrlError};
use crate::{HostName, PathPattern};

/// More than a project names; what a larger one says is not read to its end.
const MOST: usize = 100_000;
/// Of their paths together.
const MOST_BYTES: usize = 8 << 20;
const MOST_PROBLEMS: usize = 100;
/// Proxies of Go in one project, each with all modules behind it.
const MOST_PROXIES: usize = 8;
const CREDENTIALS: &str =
    "a user or password in a URL, which the container would have; make it a secret (docs/secrets.md)";

#[derive(Debug, Default)]
pub(super) struct Found {
    file: String,
    pub(super) uses: Vec<Use>,
    /// Of the paths in `uses`.
    bytes: usize,
    /// What the files do not say, and how to tell.
    pub(super) notes: Vec<String>,
    pub(super) problems: Vec<String>,
    /// Modules of Go by path, which are somewhere that no file of theirs names.
    pub(super) modules: Vec<(String, String)>,
    /// URLs of proxies of Go, or `direct`.
    pub(super) proxies: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) host: HostName,
    pub(super) port: u16,
    pub(super) access: Access,
    /// `package-lock.json:12`.
    pub(super) place: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    /// Reading what is below; a path that begins with `/` and does not end with one.
    Below(String),
    /// Reading this file alone.
    File(String),
    /// Fetching `owner/name`.
    Repository(String),
}

impl Found {
    /// What follows is in this file.
    pub(super) fn enter(&mut self, path: &str) {
        path.clone_into(&mut self.file);
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// An index of packages: all below it.
    pub(super) fn index(&mut self, line: usize, text: &str) {
        self.url(line, text, |url| Access::Below(url.path.trim_end_matches('/').to_owned()));
    }

    /// One file, and those beside it: `/pkg/-/pkg-1.0.tgz` is all of `/pkg`. Beside one in no directory is all of the host,
    /// which the URL does not name.
    pub(super) fn download(&mut self, line: usize, text: &str) {
        self.url(line, text, |url| {
            let package = url.path.split_once("/-/").map(|(package, _)| package);
            let directory = || url.path.rsplit_once('/').map_or("", |(directory, _)| directory);
            match package.unwrap_or_else(directory) {
                "" => Access::File(url.path.clone()),
                directory => Access::Below(directory.to_owned()),
            }
        });
    }

    /// A repository that is fetched with git.
    pub(super) fn repository(&mut self, line: usize, text: &str) {
        self.url(line, text, |url| {
            let path = url.path.trim_matches('/');
            // pip: `…/name.git@v1.0`
            let path =
                path.split_once(".git@").or_else(|| path.split_once('@')).map_or(path, |(path, _)| path);
            Access::Repository(path.strip_suffix(".git").unwrap_or(path).to_owned())
        });
    }

    /// Whichever of the two it looks like.
    pub(super) fn download_or_repository(&mut self, line: usize, text: &str) {
        let bare = text.split(['#', '?']).next().unwrap_or_default();
        if text.starts_with("git+") || bare.ends_with(".git") {
            self.repository(line, text);
        } else {
            self.download(line, text);
        }
    }

    fn url(&mut self, line: usize, text: &str, access: impl Fn(&Url) -> Access) {
        match Url::parse(text.trim()) {
            Ok(url) => {
                if url.credentials {
                    self.problem(Some(line), CREDENTIALS);
                }
                let access = access(&url);
                if access == Access::Repository(String::new()) {
                    return self.problem(Some(line), "a URL of a repository without its name");
                }
                let place = format!("{}:{line}", self.file);
                self.push(Use { host: url.host, port: url.port, access, place });
            }
            // A path in the project.
            Err(UrlError::Scheme) if !text.contains("://") => {}
            Err(error) => self.problem(Some(line), &error.to_string()),
        }
    }

    pub(super) fn push(&mut self, found: Use) {
        let (Access::Below(path) | Access::File(path) | Access::Repository(path)) = &found.access;
        let bytes = self.bytes.saturating_add(path.len());
        // A short one cannot have too many segments.
        let whole = || format!("/{}/a/b/c/d/e", path.trim_start_matches('/')).parse::<PathPattern>();
        if path.len() > LONGEST {
            self.problem_at(&found.place, &UrlError::Long.to_string());
        } else if path.len() > 200
            && let Err(error) = whole()
        {
            self.problem_at(&found.place, &error.to_string());
        } else if self.uses.len() >= MOST {
            self.problem(None, &format!("more than {MOST} URLs; those after them are left out"));
        } else if bytes > MOST_BYTES {
            self.problem(
                None,
                &format!("URLs of more than {} MiB; those after them are left out", MOST_BYTES >> 20),
            );
        } else {
            self.bytes = bytes;
            self.uses.push(found);
        }
    }

    pub(super) fn module(&mut self, line: usize, module: &str) {
        if module.len() > LONGEST {
            return self.problem(Some(line), &UrlError::Long.to_string());
        }
        if self.modules.len() < MOST {
            self.modules.push((module.to_owned(), format!("{}:{line}", self.file)));
        }
    }

    /// A value of `GOPROXY`: a list of proxies.
    pub(super) fn proxy(&mut self, line: usize, value: &str) {
        let each = value.split([',', '|']).map(str::trim).filter(|proxy| !matches!(*proxy, "" | "off"));
        for proxy in each {
            if self.proxies.len() == MOST_PROXIES {
                let what = format!("more than {MOST_PROXIES} proxies of Go; those after them are left out");
                return self.problem(Some(line), &what);
            }
            if Url::parse(proxy).is_ok_and(|url| url.credentials) {
                self.problem(Some(line), CREDENTIALS);
            }
            self.proxies.push((proxy.to_owned(), format!("{}:{line}", self.file)));
        }
    }

    /// `FILE names no host …`, once for each file.
    pub(super) fn names_no_host(&mut self, line: usize, how_to_tell: &str) {
        let note = format!("{}:{line}: it names no host; {how_to_tell}", self.file);
        self.note(note);
    }

    pub(super) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) && self.notes.len() < MOST_PROBLEMS {
            self.notes.push(note);
        }
    }

    pub(super) fn problem(&mut self, line: Option<usize>, what: &str) {
        let what: String = what.chars().filter(|c| !c.is_control()).collect();
        let place = match line {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file.clone(),
        };
        self.problem_at(&place, &what);
    }

    /// `place` is `FILE` or `FILE:LINE`. Both have no control characters.
    pub(super) fn problem_at(&mut self, place: &str, what: &str) {
        let problem = format!("{place}: {what}");
        match self.problems.len() {
            MOST_PROBLEMS => self.problems.push("more is wrong than is told here".to_owned()),
            len if len < MOST_PROBLEMS && !self.problems.contains(&problem) => self.problems.push(problem),
            _ => {}
        }
    }
}
