//! Git over smart HTTP by `git http-backend`, a CGI program (RFC 3875).

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use http::request::Parts;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::routes::Body;

pub(super) async fn backend(root: &Path, rest: &str, parts: &Parts, body: &[u8]) -> Result<Response<Body>> {
    let value = |name: header::HeaderName| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_COUNT", "2")
        // the repositories belong to another user than the one that serves them
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("GIT_CONFIG_KEY_1", "http.receivepack")
        .env("GIT_CONFIG_VALUE_1", "true")
        .env("PATH_INFO", format!("/{rest}"))
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", value(header::CONTENT_TYPE))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", value(header::CONTENT_ENCODING))
        .env("HTTP_GIT_PROTOCOL", value(header::HeaderName::from_static("git-protocol")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("cannot run git http-backend")?;
    let mut stdin = child.stdin.take().context("no pipe to git")?;
    let body = body.to_vec();
    let feed = tokio::spawn(async move {
        // git may answer before it has read everything
        let _ = stdin.write_all(&body).await;
    });
    let output = child.wait_with_output().await?;
    feed.await?;
    response(&output.stdout)
}

fn response(output: &[u8]) -> Result<Response<Body>> {
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").context("git gave no header")?;
    let (head, body) = output.split_at(end);
    let mut response = Response::builder().status(StatusCode::OK);
    for line in std::str::from_utf8(head)?.split("\r\n") {
        let (name, value) = line.split_once(": ").with_context(|| format!("header line {line:?}"))?;
        response = match name {
            "Status" => response.status(value.split(' ').next().unwrap_or_default()),
            _ => response.header(name, value),
        };
    }
    let body = body.get(4..).unwrap_or_default().to_vec();
    Ok(response.body(Full::new(body.into()).boxed())?)
}
