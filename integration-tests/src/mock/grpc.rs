//! A gRPC service that sends every message back as it comes, whatever the method: `…/Fail` ends with NOT_FOUND. What it is
//! told in `x-api-key` comes back as metadata, before and after the messages.

use std::convert::Infallible;

use anyhow::Result;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};

use super::routes::Body;

pub(super) fn wanted(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

pub(super) fn answer(path: &str, headers: &HeaderMap, body: Incoming) -> Result<Response<Body>> {
    let key = headers.get("x-api-key").cloned().unwrap_or(HeaderValue::from_static("none"));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-reflected", key.clone());
    if path.ends_with("/Fail") {
        trailers.insert("grpc-status", HeaderValue::from_static("5"));
        trailers.insert("grpc-message", HeaderValue::from_static("no such thing"));
    } else {
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
    }
    let frames = futures_util::stream::unfold((body, Some(trailers)), |(mut body, trailers)| async move {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                return Some((Ok::<_, Infallible>(Frame::data(data)), (body, trailers)));
            }
        }
        trailers.map(|trailers| (Ok(Frame::trailers(trailers)), (body, None)))
    });
    Ok(Response::builder()
        .header(header::CONTENT_TYPE, "application/grpc")
        .header("x-reflected-at-first", key)
        .body(StreamBody::new(Box::pin(frames)).boxed())?)
}
