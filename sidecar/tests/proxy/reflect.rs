//! An upstream that sends back the credential it was sent, in every way that an upstream has.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame};
use hyper::{HeaderMap, Response};

use crate::upstream::AnyBody;

/// `/reflect/CODING/SIZE`: the credential in all forms, encoded so, in chunks of so many bytes; 0: at once, with its length.
/// A coding that starts with `cut-` is cut short.
pub(crate) fn answer(request: &http::request::Parts) -> Response<AnyBody> {
    let authorization = request.headers.get("authorization").map_or("", |value| value.to_str().unwrap());
    let value = authorization.strip_prefix("Bearer ").unwrap_or("nothing");
    let mut path = request.uri.path().split('/').skip(2);
    let (coding, size) = (path.next().unwrap(), path.next().unwrap().parse::<usize>().unwrap());
    let body = match coding {
        "bomb" => encoded("gzip", &vec![0; 64 << 20]),
        _ => encoded(coding, every_form(value).as_bytes()),
    };
    let status = request.headers.get("x-status").map_or("200", |status| status.to_str().unwrap());
    // Over HTTP/2 hyper sends what it is given.
    let bodiless = request.method == "HEAD" || matches!(status, "204" | "304");
    let body = if bodiless { Bytes::new() } else { body };
    let mut response = match size {
        0 => Response::new(Box::pin(Full::new(body)) as AnyBody),
        size => Response::new(Box::pin(Chunks::new(&body, size, value)) as AnyBody),
    };
    let coding = coding.trim_start_matches("cut-");
    let headers = response.headers_mut();
    if coding != "identity" {
        let coding = if coding == "bomb" { "gzip" } else { coding };
        headers.insert("content-encoding", coding.parse().unwrap());
    }
    headers.insert("etag", "\"tag\"".parse().unwrap());
    headers.insert("x-echo", format!("<{value}>").parse().unwrap());
    headers.insert("x-echo-encoded", BASE64_STANDARD.encode(format!("user:{value}")).parse().unwrap());
    *response.status_mut() = status.parse().unwrap();
    response
}

/// The value in each form, at each alignment.
pub(crate) fn every_form(value: &str) -> String {
    let percent: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let json: String = value.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut text = format!("data: {{\"plain\": \"{value}\", \"json\": \"{json}\"}}\n\n{percent} {hex}\n");
    for before in ["", "x", "xy"] {
        let around = format!("{before}{value}y");
        text += &format!("{} {}\n", BASE64_STANDARD.encode(&around), BASE64_URL_SAFE_NO_PAD.encode(&around));
    }
    text + &"harmless text, and sk-test-the-real-on, which is not all of it\n".repeat(20) + value
}

fn encoded(coding: &str, text: &[u8]) -> Bytes {
    let body = match coding.trim_start_matches("cut-") {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "br" => {
            let mut body = Vec::new();
            let fast = brotli::enc::BrotliEncoderParams { quality: 4, ..Default::default() };
            brotli::BrotliCompress(&mut &text[..], &mut body, &fast).unwrap();
            body
        }
        "zstd" => zstd::encode_all(text, 3).unwrap(),
        _ => text.to_vec(),
    };
    let length = if coding.starts_with("cut-") { body.len() - 20 } else { body.len() };
    Bytes::from(body).slice(..length)
}

/// A body of no known length, and trailers (over HTTP/2).
struct Chunks(VecDeque<Frame<Bytes>>);

impl Chunks {
    fn new(body: &Bytes, size: usize, value: &str) -> Self {
        let mut frames: VecDeque<_> =
            body.chunks(size).map(|chunk| Frame::data(Bytes::copy_from_slice(chunk))).collect();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-echo", value.parse().unwrap());
        frames.push_back(Frame::trailers(trailers));
        Self(frames)
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}
