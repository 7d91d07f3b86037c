//! Answers that repeat the header `x-api-key`, in every form in which a value can come back.

use std::convert::Infallible;
use std::io::Write;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

use super::routes::Body;

pub(super) fn value(headers: &HeaderMap) -> Result<&str> {
    Ok(headers.get("x-api-key").context("no x-api-key to repeat")?.to_str()?)
}

pub(super) fn answer(kind: &str, headers: &HeaderMap) -> Result<Response<Body>> {
    let value = value(headers)?;
    let text = |text: String| Full::new(Bytes::from(text)).boxed();
    let response = Response::builder();
    Ok(match kind {
        "plain" => response.body(text(format!("your key is {value}.\n")))?,
        "header" => response
            .header("x-reflected", value)
            .header(header::SET_COOKIE, format!("key={value}; Path=/"))
            .header(header::LOCATION, format!("/?key={}", percent(value)))
            .header("x-basic", STANDARD.encode(format!("user:{value}")))
            .body(text("in the head\n".to_owned()))?,
        "base64" => response.body(text(STANDARD.encode(format!("user:{value}:more"))))?,
        "percent" => response.body(text(percent(value)))?,
        "hex" => response.body(text(value.bytes().map(|byte| format!("{byte:02x}")).collect()))?,
        "json" => {
            let escaped: String = value.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
            let body = text(format!(r#"{{"key":"{escaped}"}}"#));
            response.header(header::CONTENT_TYPE, "application/json").body(body)?
        }
        // whatever the client asked for
        "gzip" => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            writeln!(gzip, "your key is {value}.")?;
            let body = Full::new(Bytes::from(gzip.finish()?)).boxed();
            response.header(header::CONTENT_ENCODING, "gzip").body(body)?
        }
        "chunked" => response.body(pieces(format!("your key is {value}.\n"), 1))?,
        "sse" => {
            let body = pieces(format!("data: your key is {value}\n\ndata: again {value}\n\n"), 7);
            response.header(header::CONTENT_TYPE, "text/event-stream").body(body)?
        }
        other => anyhow::bail!("/reflect/{other}"),
    })
}

fn percent(value: &str) -> String {
    value.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Each a chunk or a DATA frame of its own.
fn pieces(text: String, length: usize) -> Body {
    let pieces: Vec<_> = text
        .as_bytes()
        .chunks(length)
        .map(|piece| Ok::<_, Infallible>(Frame::data(piece.to_vec().into())))
        .collect();
    StreamBody::new(futures_util::stream::iter(pieces)).boxed()
}
