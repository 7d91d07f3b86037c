//! `mounts.shared`: whether containers with different grants may have the same directory of the host.

use serde::Deserialize;
use toml::Spanned;

use super::{Ceiling, Source};

/// Which containers may share something of the host that one of them may write to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedMounts {
    /// All; those that are given something else are warned.
    #[default]
    Any,
    /// Those that are given the same.
    SameGrants,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    shared: Option<Spanned<SharedMounts>>,
}

impl Ceiling {
    /// What it says of mounts that containers share, and where.
    pub fn shared_mounts(&self) -> Option<(SharedMounts, &str)> {
        self.shared_mounts.as_ref().map(|(shared, place)| (*shared, place.as_str()))
    }
}

impl Source<'_> {
    pub(super) fn shared_mounts(&self, raw: Option<&Raw>) -> Option<(SharedMounts, String)> {
        let shared = raw?.shared.as_ref()?;
        Some((*shared.get_ref(), self.place(shared.span().start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_with_its_place_or_not_at_all() {
        let parse = |text: &str| Ceiling::parse("managed", "m.toml", text, &[]);
        assert_eq!(parse("").unwrap().shared_mounts(), None);
        let said = parse("hosts = \"*.a.example\"\n[mounts]\nshared = \"same-grants\"").unwrap();
        assert_eq!(said.shared_mounts(), Some((SharedMounts::SameGrants, "m.toml:3")));
        assert_eq!(
            parse("mounts.shared = \"any\"").unwrap().shared_mounts(),
            Some((SharedMounts::Any, "m.toml:1"))
        );
        for wrong in ["mounts.shared = \"same\"", "mounts.share = \"any\"", "mounts.shared = true"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
