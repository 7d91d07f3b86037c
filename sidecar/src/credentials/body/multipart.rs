//! `multipart/form-data` (RFC 7578), as strictly as every program that writes it does: servers differ in what they make of
//! anything else.

use zeroize::Zeroizing;

use super::{Field, FieldError};

/// RFC 2046 section 5.1.1.
const LONGEST_BOUNDARY: usize = 70;
/// Of one part. More would be work, and no program writes them.
const MOST_HEADERS: usize = 16;
const MOST_PARTS: usize = 4096;

/// The one field of that name. `content_type` is the header's value.
pub(super) fn find(body: &[u8], content_type: &[u8], name: &str) -> Result<Option<Field>, FieldError> {
    let boundary = boundary(content_type).ok_or(FieldError::Malformed)?;
    let delimiter = [b"\r\n--", boundary.as_slice()].concat();
    let opening = delimiter.get(2..).unwrap_or_default();
    let mut at = if body.starts_with(opening) { opening.len() } else { return Err(FieldError::Malformed) };
    let mut found = None;
    for _ in 0..MOST_PARTS {
        let rest = body.get(at..).unwrap_or_default();
        if let Some(end) = rest.strip_prefix(b"--") {
            return if matches!(end, b"" | b"\r\n") { Ok(found) } else { Err(FieldError::Malformed) };
        }
        if !rest.starts_with(b"\r\n") {
            return Err(FieldError::Malformed);
        }
        at += 2;
        let part = body.get(at..).unwrap_or_default();
        let length = position(part, &delimiter).ok_or(FieldError::Malformed)?;
        let part = part.get(..length).unwrap_or_default();
        let (own, content) = named(part)?;
        if own == name.as_bytes() {
            let value = part.get(content..).unwrap_or_default();
            let field =
                Field { range: at + content..at + length, value: String::from_utf8(value.to_vec()).ok() };
            if found.replace(field).is_some() {
                return Err(FieldError::Twice);
            }
        }
        at += length + delimiter.len();
    }
    Err(FieldError::Malformed)
}

pub(super) fn spelled(credential: &str) -> Zeroizing<String> {
    Zeroizing::new(credential.to_owned())
}

/// RFC 9110 section 8.3.1; stated once, bare or in quotes without escapes.
fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    for parameter in std::str::from_utf8(content_type).ok()?.split(';').skip(1) {
        let (key, value) = parameter.split_once('=')?;
        if !key.trim().eq_ignore_ascii_case("boundary") {
            continue;
        }
        let value = value.trim();
        let value = match value.strip_prefix('"') {
            Some(rest) => rest.strip_suffix('"')?,
            None => value,
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"'()+_,-./:=?".contains(&b);
        if value.is_empty() || value.len() > LONGEST_BOUNDARY || !value.bytes().all(plain) {
            return None;
        }
        if found.replace(value.as_bytes().to_vec()).is_some() {
            return None;
        }
    }
    found
}

/// The name of a part, and where its content begins.
fn named(part: &[u8]) -> Result<(Vec<u8>, usize), FieldError> {
    let end = position(part, b"\r\n\r\n").ok_or(FieldError::Malformed)?;
    let mut name = None;
    let head = part.get(..end).unwrap_or_default();
    for (number, line) in head.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A fold, or a line that ends otherwise, is read differently by different servers.
        if number >= MOST_HEADERS || line.iter().any(|b| *b < b' ' && *b != b'\t') || line.starts_with(b" ") {
            return Err(FieldError::Malformed);
        }
        let colon = line.iter().position(|b| *b == b':').ok_or(FieldError::Malformed)?;
        let (key, value) = (line.get(..colon).unwrap_or_default(), line.get(colon + 1..).unwrap_or_default());
        if key.is_empty() || !key.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-') {
            return Err(FieldError::Malformed);
        }
        if key.eq_ignore_ascii_case(b"content-disposition") {
            let own = disposition(value.trim_ascii()).ok_or(FieldError::Malformed)?;
            if name.replace(own).is_some() {
                return Err(FieldError::Malformed);
            }
        }
    }
    // Bare line feeds were split as well: there is one for each CRLF.
    if head.iter().filter(|b| **b == b'\n').count() != head.windows(2).filter(|two| two == b"\r\n").count() {
        return Err(FieldError::Malformed);
    }
    Ok((name.ok_or(FieldError::Malformed)?, end + 4))
}

/// The `name` of `form-data; name="…"; filename="…"`.
fn disposition(value: &[u8]) -> Option<Vec<u8>> {
    let mut rest = value.strip_prefix(b"form-data")?;
    let mut name = None;
    while !rest.is_empty() {
        rest = rest.strip_prefix(b";")?.trim_ascii_start();
        let equals = rest.iter().position(|b| *b == b'=')?;
        let (key, quoted) = (rest.get(..equals)?, rest.get(equals + 1..)?.strip_prefix(b"\"")?);
        let end = quoted.iter().position(|b| *b == b'"')?;
        let text = quoted.get(..end)?;
        // Escapes are written in three ways; none is needed for the name of a field.
        match key {
            b"name" if !text.iter().any(|b| matches!(b, b'\\' | b'%')) => {
                if name.replace(text.to_vec()).is_some() {
                    return None;
                }
            }
            b"filename" if !text.contains(&b'\\') => {}
            _ => return None,
        }
        rest = quoted.get(end + 1..)?.trim_ascii_start();
    }
    name
}

fn position(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &[u8] = b"multipart/form-data; boundary=\"x-1\"";

    fn part(head: &str, content: &str) -> String {
        format!("--x-1\r\n{head}\r\n\r\n{content}\r\n")
    }

    fn value(body: &str) -> Result<Option<String>, FieldError> {
        let found = find(body.as_bytes(), TYPE, "key")?;
        Ok(found.map(|field| {
            assert_eq!(&body[field.range], field.value.as_deref().unwrap());
            field.value.unwrap()
        }))
    }

    #[test]
    fn one_field_is_found_and_told_from_others() {
        let key = part("Content-Disposition: form-data; name=\"key\"", "value");
        let file = part(
            "content-disposition: form-data; name=\"file\"; filename=\"key\"\r\nContent-Type: text/plain",
            "--x\r\nname=\"key\"\r\n\r\n",
        );
        for (body, expected) in [
            (format!("{key}--x-1--\r\n"), Ok(Some("value"))),
            (format!("{file}{key}--x-1--"), Ok(Some("value"))),
            (format!("{file}--x-1--"), Ok(None)),
            ("--x-1--".to_owned(), Ok(None)),
            (format!("{key}{key}--x-1--"), Err(FieldError::Twice)),
        ] {
            assert_eq!(value(&body), expected.map(|found| found.map(str::to_owned)), "{body}");
        }
    }

    #[test]
    fn what_servers_could_read_differently_is_refused() {
        let good = part("Content-Disposition: form-data; name=\"key\"", "value") + "--x-1--";
        for (from, to) in [
            ("--x-1\r\n", "preamble\r\n--x-1\r\n"),
            ("--x-1--", ""),
            ("--x-1--", "--x-1--epilogue"),
            ("--x-1\r\n", "--x-1 \r\n"),
            ("\r\n\r\n", "\n\n"),
            ("Content-Disposition", "Content-Type: text/plain\nContent-Disposition"),
            ("Content-Disposition", " Content-Disposition"),
            ("Content-Disposition: ", "Content-Disposition : "),
            ("Content-Disposition: form-data; name=\"key\"", "X: y"),
            ("name=\"key\"", "name=key"),
            ("name=\"key\"", "name=\"k\\ey\""),
            ("name=\"key\"", "name=\"k%65y\""),
            ("name=\"key\"", "name*=\"key\""),
            ("name=\"key\"", "name=\"x\"; name=\"key\""),
            ("form-data", "attachment"),
            ("name=\"key\"", "name=\"x\"\r\nContent-Disposition: form-data; name=\"key\""),
            ("name=\"key\"", "name=\"x\"\r\n folded: y"),
        ] {
            let body = good.replacen(from, to, 1);
            assert_ne!(body, good);
            assert_eq!(value(&body), Err(FieldError::Malformed), "{body:?}");
        }
        for kind in [
            "",
            "; boundary=",
            "; boundary=x-1; boundary=x-2",
            "; boundary=\"x\\-1\"",
            "; boundary=x 1",
            "; x",
        ] {
            let kind = format!("multipart/form-data{kind}");
            assert_eq!(find(good.as_bytes(), kind.as_bytes(), "key"), Err(FieldError::Malformed), "{kind}");
        }
    }
}
