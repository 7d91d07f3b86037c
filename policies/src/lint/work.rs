//! How much is compared at most.

/// Comparisons that are left. Without it, a file that somebody made for it would cost the square of its size.
#[derive(Debug)]
pub(super) struct Work(usize);

#[derive(Debug)]
pub(super) struct TooMany;

impl Work {
    pub(super) fn of(most: usize) -> Self {
        Self(most)
    }

    pub(super) fn charge(&mut self, work: usize) -> Result<(), TooMany> {
        self.0 = self.0.checked_sub(work).ok_or(TooMany)?;
        Ok(())
    }

    /// Whether all of `these` are among `those` by `is`.
    pub(super) fn all_among<T>(
        &mut self,
        these: &[T],
        those: &[T],
        is: impl Fn(&T, &T) -> bool,
    ) -> Result<bool, TooMany> {
        for this in these {
            let found = those.iter().position(|that| is(this, that));
            self.charge(found.map_or(those.len(), |at| at + 1))?;
            if found.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
