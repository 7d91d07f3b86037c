//! Whether a ceiling has only containers with the same grants share what one of them may write to.

use understudy_control::annotation::KNOWN;
use understudy_control::{ManagedFile, Refusal};
use understudy_policies::{Ceiling, SharedMounts};

/// That it does, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SameGrants {
    whose: &'static str,
    place: String,
    /// Who can change it, where that is somebody else.
    ask: &'static str,
}

impl SameGrants {
    /// `what` is a sentence.
    pub fn refusal(&self, what: &str, instead: &str) -> Refusal {
        Refusal::new(
            format!("{what}, beyond {} `mounts.shared` ({})", self.whose, self.place),
            format!("{instead}; or {}change {}", self.ask, self.place),
        )
    }
}

/// A file that is not understood has let nothing start before.
pub(crate) fn same_grants(managed: &[ManagedFile], own: &Ceiling) -> Option<SameGrants> {
    let place = |ceiling: &Ceiling| match ceiling.shared_mounts() {
        Some((SharedMounts::SameGrants, place)) => Some(place.to_owned()),
        _ => None,
    };
    let mut managed =
        managed.iter().filter_map(|file| Ceiling::parse("managed", &file.path, &file.text, &KNOWN).ok());
    let ask = "ask the administrator of this machine to ";
    let of_machine = managed.find_map(|ceiling| place(&ceiling));
    let of_machine = of_machine.map(|place| SameGrants { whose: "managed rule", place, ask });
    of_machine.or_else(|| Some(SameGrants { whose: "your own rule", place: place(own)?, ask: "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_that_says_so_is_enough() {
        let (any, same) = ("mounts.shared = \"any\"", "mounts.shared = \"same-grants\"");
        for (managed, own, said) in [
            (&[][..], "", None),
            (&[any], any, None),
            (&[any, same], any, Some(("managed rule", "/m.toml:1"))),
            (&[""], same, Some(("your own rule", "ceiling.toml:1"))),
        ] {
            let managed: Vec<_> = managed.iter().map(|text| ManagedFile::new("/m.toml", *text)).collect();
            let own = Ceiling::parse("ceiling", "ceiling.toml", own, &KNOWN).unwrap();
            let found = same_grants(&managed, &own);
            assert_eq!(found.as_ref().map(|found| (found.whose, found.place.as_str())), said);
        }
    }
}
