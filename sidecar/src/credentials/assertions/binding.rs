//! What a key may be used for, as its declaration says.

use serde::Deserialize;
use toml::Spanned;
use understudy_harnesses::SecretKind;
use understudy_policies::HostPattern;
use understudy_policies::document::OneOrMany;

use super::super::placement::{BasicHalf, Placement};

/// Of one secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Binding {
    Google {
        /// Empty: all, and tokens of no scope.
        scopes: Vec<String>,
        /// Whom it may act for (domain-wide delegation).
        subjects: Vec<String>,
    },
    GitHub {
        /// The App's id or client id, or both; never empty. The first is what the container is told.
        ids: Vec<String>,
        /// Empty: all.
        installations: Vec<u64>,
    },
}

/// The keys of a declaration that are about it.
pub(in crate::credentials) struct Written {
    pub(in crate::credentials) scopes: Option<Spanned<OneOrMany<String>>>,
    pub(in crate::credentials) subjects: Option<Spanned<OneOrMany<String>>>,
    pub(in crate::credentials) app: Option<Spanned<Ids>>,
    pub(in crate::credentials) installations: Option<Spanned<Ids>>,
}

/// One id or several: numbers, or client ids.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a number, a text, or a list of such")]
pub(in crate::credentials) enum Ids {
    Number(u64),
    Text(String),
    Several(Vec<Id>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a number or a text")]
pub(in crate::credentials) enum Id {
    Number(u64),
    Text(String),
}

impl Ids {
    fn texts(self) -> Vec<String> {
        let text = |id| match id {
            Id::Number(number) => number.to_string(),
            Id::Text(text) => text,
        };
        match self {
            Self::Number(number) => vec![number.to_string()],
            Self::Text(text) => vec![text],
            Self::Several(ids) => ids.into_iter().map(text).collect(),
        }
    }
}

/// Where the tokens go of a declaration that names no hosts.
const GOOGLE: [&str; 1] = ["*.googleapis.com"];
const GITHUB: [&str; 3] = ["api.github.com", "github.com", "uploads.github.com"];

impl Binding {
    pub(in crate::credentials) fn usual_hosts(&self) -> Vec<HostPattern> {
        let hosts: &[&str] = match self {
            Self::Google { .. } => &GOOGLE,
            Self::GitHub { .. } => &GITHUB,
        };
        hosts.iter().filter_map(|host| host.parse().ok()).collect()
    }

    /// Where the token stands that comes for an assertion.
    pub(super) fn placements(&self) -> Vec<Placement> {
        let scheme = |word: &str| Placement::Header {
            name: http::header::AUTHORIZATION,
            scheme: Some(word.to_owned()),
        };
        match self {
            Self::Google { .. } => vec![Placement::bearer()],
            Self::GitHub { .. } => {
                vec![
                    Placement::bearer(),
                    scheme("token"),
                    Placement::Basic(BasicHalf::Password),
                    Placement::Basic(BasicHalf::User),
                ]
            }
        }
    }
}

impl Written {
    /// `at` is where the secret's table begins. An error is a place in the file and what is wrong there. None: it is a secret
    /// of another kind.
    pub(in crate::credentials) fn binding(
        self,
        kind: SecretKind,
        at: usize,
    ) -> Result<Option<Binding>, (usize, String)> {
        let of_google = [("scopes", place(&self.scopes)), ("subjects", place(&self.subjects))];
        let of_github = [("app", place(&self.app)), ("installations", place(&self.installations))];
        let none = |keys: [(&str, Option<usize>); 2], of: SecretKind| match keys
            .iter()
            .find_map(|(key, at)| Some((key, (*at)?)))
        {
            Some((key, at)) => {
                Err((at, format!("`{key}` is for `kind = \"{}\"`; leave it out", of.as_str())))
            }
            None => Ok(()),
        };
        if kind != SecretKind::GoogleServiceAccount {
            none(of_google, SecretKind::GoogleServiceAccount)?;
        }
        if kind != SecretKind::GithubApp {
            none(of_github, SecretKind::GithubApp)?;
        }
        match kind {
            SecretKind::GoogleServiceAccount => {
                let scopes = self.scopes.map_or(Ok(Vec::new()), |scopes| words("scopes", scopes))?;
                let subjects =
                    self.subjects.map_or(Ok(Vec::new()), |subjects| words("subjects", subjects))?;
                Ok(Some(Binding::Google { scopes, subjects }))
            }
            SecretKind::GithubApp => {
                let Some(app) = self.app else {
                    let message =
                        "missing field `app`: the id of the App, or its client id, as `app = 12345`";
                    return Err((at, message.to_owned()));
                };
                let at_app = app.span().start;
                let ids = app.into_inner().texts();
                if ids.is_empty() || !ids.iter().all(|id| is_id(id)) {
                    let message = "`app` is a number, or a client id, as \"Iv23liABCDEF\", or a list of both";
                    return Err((at_app, message.to_owned()));
                }
                let installations = self.installations.map_or(Ok(Vec::new()), |written| {
                    let at = written.span().start;
                    let ids: Option<Vec<u64>> =
                        written.into_inner().texts().iter().map(|id| id.parse().ok()).collect();
                    let message = "`installations` is one number or several; leave it out if all may be used";
                    ids.filter(|ids| !ids.is_empty()).ok_or_else(|| (at, message.to_owned()))
                })?;
                Ok(Some(Binding::GitHub { ids, installations }))
            }
            _ => Ok(None),
        }
    }
}

fn place<T>(written: &Option<Spanned<T>>) -> Option<usize> {
    written.as_ref().map(|written| written.span().start)
}

fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn words(key: &str, written: Spanned<OneOrMany<String>>) -> Result<Vec<String>, (usize, String)> {
    let at = written.span().start;
    let words = written.into_inner().0;
    if words.is_empty() {
        return Err((at, format!("`{key}` is empty; leave it out, or name one")));
    }
    match words.iter().find(|word| word.is_empty() || !word.bytes().all(|b| b.is_ascii_graphic())) {
        None => Ok(words),
        Some(word) => Err((at, format!("`{key}`: {word:?} must be one word of ASCII"))),
    }
}
