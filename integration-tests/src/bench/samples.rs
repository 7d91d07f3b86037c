//! Medians, and ratios of what was measured in the same round.

/// One figure, round by round.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub(super) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// NaN if there is none.
    pub(super) fn median(&self) -> f64 {
        median(self.0.clone())
    }

    /// Median over rounds of this figure by the other one's.
    pub(super) fn ratio(&self, other: &Self) -> f64 {
        median(self.0.iter().zip(&other.0).map(|(mine, other)| mine / other).collect())
    }

    /// Median over rounds of this figure less the other one's.
    pub(super) fn difference(&self, other: &Self) -> f64 {
        median(self.0.iter().zip(&other.0).map(|(mine, other)| mine - other).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle.wrapping_sub(1)), values.get(middle)) {
        (Some(below), Some(above)) if values.len().is_multiple_of(2) => f64::midpoint(*below, *above),
        (_, Some(value)) => *value,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_even_odd_and_no_samples() {
        for (values, expected) in
            [(vec![3.0, 1.0, 2.0], 2.0), (vec![4.0, 1.0, 3.0, 2.0], 2.5), (vec![7.0], 7.0)]
        {
            assert_eq!(median(values), expected);
        }
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_ratio_pairs_the_rounds() {
        // the second round ran on a machine half as fast, which says nothing of the ratio
        let (mine, other) = (Samples(vec![10.0, 5.0, 10.0]), Samples(vec![20.0, 10.0, 20.0]));
        assert_eq!((mine.ratio(&other), mine.difference(&other)), (0.5, -10.0));
    }
}
