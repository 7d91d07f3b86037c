//! Which parts of a value its stand-in shares, and what the others are made of. Pure.

use std::borrow::Cow;

use super::{Look, ShapeError, jwt};
use crate::credentials::catalogue::{Alphabet, Checksum, MIN_DRAWN, Piece};

/// A part of a stand-in, in the order in which they stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part<'v> {
    Same(Cow<'v, str>),
    /// So many letters of it.
    Drawn(Alphabet, usize),
    /// One of these letters.
    OneOf(&'static str),
    /// Of the part before.
    Checksum(Checksum),
}

impl<'v> Part<'v> {
    pub(super) fn same(text: &'v str) -> Self {
        Self::Same(Cow::Borrowed(text))
    }
}

/// What was declared goes before what is known, and that before what the value itself shows.
pub(super) fn of<'v>(real: &'v str, look: Look<'_>) -> Result<Vec<Part<'v>>, ShapeError> {
    if let Some(prefix) = look.prefix {
        let rest = real.strip_prefix(prefix).ok_or(ShapeError::Prefix)?;
        if rest.len() < MIN_DRAWN {
            return Err(ShapeError::Short);
        }
        return Ok(after(real, prefix.len()));
    }
    if let Some(pattern) = look.pattern {
        return pattern.split(real).map(parts).ok_or(ShapeError::Pattern);
    }
    if let Some(kind) = look.like {
        let fitting = kind.shapes.iter().find_map(|shape| shape.pattern.split(real));
        return fitting.map(parts).ok_or_else(|| ShapeError::Like {
            what: kind.what.clone(),
            expected: match kind.prefixes() {
                Some(prefixes) if !kind.shapes.iter().any(|s| real.starts_with(s.pattern.prefix())) => {
                    format!("expected prefix {prefixes}")
                }
                Some(_) => "its length, its letters or its checksum are others".to_owned(),
                None => "its length or its letters are others".to_owned(),
            },
        });
    }
    if let Some(parts) = jwt::parts(real) {
        return Ok(parts);
    }
    if let Some(pieces) = look.catalogue.shape_of(real).and_then(|shape| shape.pattern.split(real)) {
        return Ok(parts(pieces));
    }
    let fits = |known: &&str| real.strip_prefix(*known).is_some_and(|rest| rest.len() >= MIN_DRAWN);
    Ok(after(real, look.catalogue.prefixes().filter(fits).map(str::len).max().unwrap_or(0)))
}

fn parts(pieces: Vec<Piece<'_>>) -> Vec<Part<'_>> {
    let part = |piece| match piece {
        Piece::Same(text) => Part::same(text),
        Piece::Drawn(alphabet, text) => Part::Drawn(alphabet, text.len()),
        Piece::Checksum(checksum) => Part::Checksum(checksum),
    };
    pieces.into_iter().map(part).collect()
}

/// `prefix` characters, and whatever the rest is.
fn after(real: &str, prefix: usize) -> Vec<Part<'_>> {
    let (prefix, rest) = real.split_at(prefix);
    let mut parts = vec![Part::same(prefix)];
    // Base64 padding says no more than the length does; drawn, it would end up in the middle.
    let body = rest.trim_end_matches('=');
    let body = if rest.len() - body.len() <= 2 && body.len() >= MIN_DRAWN { body } else { rest };
    if is_uuid(body) {
        let upper = body.bytes().any(|b| b.is_ascii_uppercase());
        let alphabet = if upper { Alphabet::HexUpper } else { Alphabet::Hex };
        for (place, group) in body.split('-').enumerate() {
            parts.extend((place > 0).then(|| Part::same("-")));
            parts.push(Part::Drawn(alphabet, group.len()));
        }
    } else {
        parts.push(Part::Drawn(Alphabet::of(body), body.len()));
    }
    parts.push(Part::same(rest.get(body.len()..).unwrap_or_default()));
    parts
}

/// RFC 9562 section 4.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}
