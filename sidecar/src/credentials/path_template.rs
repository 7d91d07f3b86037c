//! A segment of a path that holds a credential.

use std::fmt;
use std::str::FromStr;

use understudy_policies::{PathPattern, PathPatternError, RequestPath};

/// A [`PathPattern`] in which `{}` marks where in one segment the credential stands: `/bot{}/**`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate {
    text: String,
    /// With `*` for the credential.
    pattern: PathPattern,
    /// The segment that holds it, from 0.
    number: usize,
    /// What stands around it there.
    before: String,
    behind: String,
}

// What was written is not quoted: people paste credentials into the wrong line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathTemplateError {
    #[error("exactly one `{{}}` must mark where in the path the credential stands, as `/bot{{}}/**`")]
    Mark,
    #[error("no `**` can stand before the credential's segment, and no `*` in it")]
    Star,
    #[error(transparent)]
    Pattern(#[from] PathPatternError),
}

impl PathTemplate {
    /// For a path that fits: the number of the segment that holds the credential, and what stands around it there.
    pub fn slot(&self, path: &RequestPath) -> Option<(usize, &str, &str)> {
        let found = self.pattern.matches_surely(path);
        found.then_some((self.number, self.before.as_str(), self.behind.as_str()))
    }
}

impl FromStr for PathTemplate {
    type Err = PathTemplateError;

    fn from_str(text: &str) -> Result<Self, PathTemplateError> {
        let (left, right) = text.split_once("{}").ok_or(PathTemplateError::Mark)?;
        if [left, right].iter().any(|part| part.contains(['{', '}', '%'])) {
            return Err(PathTemplateError::Mark);
        }
        let before = left.rsplit('/').next().unwrap_or_default();
        let behind = right.split('/').next().unwrap_or_default();
        if left.contains("**") || before.contains('*') || behind.contains('*') {
            return Err(PathTemplateError::Star);
        }
        let pattern = format!("{left}*{right}").parse()?;
        Ok(Self {
            text: text.to_owned(),
            pattern,
            number: left.matches('/').count().saturating_sub(1),
            before: before.to_owned(),
            behind: behind.to_owned(),
        })
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_tells_where_the_credential_stands() {
        let template: PathTemplate = "/bot{}/**".parse().unwrap();
        let slot = |path| template.slot(&RequestPath::parse(path).unwrap());
        assert_eq!(slot("/botTOKEN/send"), Some((0, "bot", "")));
        assert_eq!(slot("/file/botTOKEN/send"), None);
        let template: PathTemplate = "/a/*/{}.json".parse().unwrap();
        assert_eq!(template.slot(&RequestPath::parse("/a/b/x.json").unwrap()), Some((2, "", ".json")));
        assert_eq!(template.to_string(), "/a/*/{}.json");
    }

    #[test]
    fn what_is_no_template_is_an_error() {
        for text in ["/a", "/{}/{}", "/{}{}", "/{", "/a{b}", "/{}}", "/%41{}"] {
            assert_eq!(text.parse::<PathTemplate>(), Err(PathTemplateError::Mark), "{text}");
        }
        for text in ["/**/{}", "/a*{}", "/{}*/b"] {
            assert_eq!(text.parse::<PathTemplate>(), Err(PathTemplateError::Star), "{text}");
        }
        for text in ["a{}", "/a//{}", "/../{}", "/{}?x", "/a;{}"] {
            let error = text.parse::<PathTemplate>();
            assert!(matches!(error, Err(PathTemplateError::Pattern(_))), "{text}: {error:?}");
        }
    }
}
