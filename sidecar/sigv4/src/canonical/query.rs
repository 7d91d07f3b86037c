//! Queries as clients write them into what they sign: sorted, and the signature itself left out.

use super::{decoded, encoded};

/// What becomes of each name and value as it is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryForm {
    AsWritten,
    /// Decoded, and encoded as signatures have it.
    Recoded,
}

impl QueryForm {
    pub(crate) const ALL: [Self; 2] = [Self::AsWritten, Self::Recoded];

    /// `without` is a parameter that is left out.
    pub(crate) fn of(self, query: &str, without: Option<&str>) -> String {
        let written = |text: &str| match self {
            Self::AsWritten => text.to_owned(),
            Self::Recoded => encoded(&decoded(text)),
        };
        let kept = parameters(query)
            .filter(|(name, _)| without.is_none_or(|other| decoded(name) != other.as_bytes()));
        let mut pairs: Vec<_> = kept.map(|(name, value)| (written(name), written(value))).collect();
        pairs.sort();
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    }
}

/// Names and values as they are written.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_sorted_and_the_signature_is_left_out() {
        let query = "b=2&a=%7e&X-Amz-Signature=ff&acl&a=1+%2b&X%2DAmz-Signature=0";
        let of = |form: QueryForm| form.of(query, Some("X-Amz-Signature"));
        assert_eq!(of(QueryForm::AsWritten), "a=%7e&a=1+%2b&acl=&b=2");
        assert_eq!(of(QueryForm::Recoded), "a=1%2B%2B&a=~&acl=&b=2");
        assert_eq!(QueryForm::AsWritten.of("", None), "");
        assert_eq!(QueryForm::AsWritten.of("x=1&&y", None), "x=1&y=");
    }
}
