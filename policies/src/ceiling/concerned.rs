//! Which containers a managed rule is about, by names and labels of their image.

/// Patterns in which `*` is any text. Without any: every container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Concerned {
    pub(super) images: Vec<String>,
    pub(super) labels: Vec<String>,
}

impl Concerned {
    /// `names` are those of the container's image, `labels` its labels as `KEY=VALUE`.
    pub fn matches<S: AsRef<str>>(&self, names: &[S], labels: &[S]) -> bool {
        let any = |patterns: &[String], texts: &[S]| {
            texts.iter().any(|text| patterns.iter().any(|pattern| wildcard(pattern, text.as_ref())))
        };
        self.is_for_all() || any(&self.images, names) || any(&self.labels, labels)
    }

    /// Whether it is about every container, so that nothing needs to be known about one.
    pub fn is_for_all(&self) -> bool {
        self.images.is_empty() && self.labels.is_empty()
    }
}

/// `*` is any number of characters, of which none is special.
fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*b*b", "bab", true),
            ("a*b*c", "abxbc", true),
            ("a*b*c", "abxb", false),
        ] {
            assert_eq!(wildcard(pattern, text), expected, "{pattern} {text}");
        }
    }
}
