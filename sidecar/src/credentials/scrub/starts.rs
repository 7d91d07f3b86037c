//! Where in a text a form could start. All that passes is looked at here, byte by byte, so this is what a search costs.

/// Of forms that are told by three bytes at least.
pub(super) struct Starts {
    /// The first two bytes of each.
    first: Pairs,
    /// The same, and its second and third: of two places side by side, one pair tells that nothing starts there.
    near: Pairs,
}

impl Starts {
    pub(super) fn new(starts: impl Iterator<Item = [u8; 3]>) -> Self {
        let (mut first, mut near) = (Pairs::default(), Pairs::default());
        for [one, two, three] in starts {
            first.add([one, two]);
            near.add([one, two]);
            near.add([two, three]);
        }
        Self { first, near }
    }

    /// The first place in `text` with the first two bytes of one.
    pub(super) fn first_in(&self, text: &[u8]) -> Option<usize> {
        let is_start = |at: &usize| match text.get(*at..) {
            Some([one, two, ..]) => self.first.has([*one, *two]),
            _ => false,
        };
        let (pairs, _) = text.as_chunks::<2>();
        let mut from = 0;
        while let Some(found) = pairs.get(from..)?.iter().position(|pair| self.near.has(*pair)) {
            let at = 2 * (from + found);
            if let Some(start) = [at.saturating_sub(1), at].into_iter().find(is_start) {
                return Some(start);
            }
            from += found + 1;
        }
        // Of an odd number of bytes, the last two are no pair.
        text.len().checked_sub(2).filter(is_start)
    }
}

/// One bit for each two bytes.
struct Pairs(Box<[u64; 1 << 10]>);

impl Default for Pairs {
    fn default() -> Self {
        Self(Box::new([0; 1 << 10]))
    }
}

impl Pairs {
    fn add(&mut self, pair: [u8; 2]) {
        let pair = u16::from_ne_bytes(pair);
        self.0[usize::from(pair >> 6)] |= 1 << (pair & 63);
    }

    fn has(&self, pair: [u8; 2]) -> bool {
        let pair = u16::from_ne_bytes(pair);
        self.0[usize::from(pair >> 6)] >> (pair & 63) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few letters, so that much starts, and much nearly does.
        #[test]
        fn no_place_is_passed_over(
            starts in proptest::collection::vec(proptest::array::uniform3(b'a'..=b'd'), 1..4),
            text in proptest::collection::vec(b'a'..=b'd', 0..40),
        ) {
            let known = Starts::new(starts.iter().copied());
            let (mut told, mut from) = (Vec::new(), 0);
            while let Some(at) = known.first_in(&text[from..]) {
                told.push(from + at);
                from += at + 1;
            }
            for at in 0..text.len() {
                let rest = &text[at..];
                let two = rest.len() >= 2 && starts.iter().any(|start| rest.starts_with(&start[..2]));
                let whole = starts.iter().any(|start| rest.starts_with(start)) || two && rest.len() == 2;
                prop_assert!(!whole || told.contains(&at), "{at} of {told:?}");
                prop_assert!(two || !told.contains(&at), "{at} of {told:?}");
            }
        }
    }
}
