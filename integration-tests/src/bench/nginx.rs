//! nginx twice: as the origin, and as a proxy with TLS on both sides and kept-alive upstream connections.

use std::fs;
use std::path::Path;

use anyhow::Result;

pub(super) const ORIGIN: u16 = 7443;
pub(super) const SINK: u16 = 7444;
pub(super) const PROXY: u16 = 7445;

/// Writes `origin.conf` and `proxy.conf` for a directory that the containers see as `/bench`.
pub(super) fn write(directory: &Path) -> Result<()> {
    fs::write(directory.join("origin.conf"), configuration("origin", &origin()))?;
    fs::write(directory.join("proxy.conf"), configuration("proxy", &proxy()))?;
    Ok(())
}

fn configuration(name: &str, servers: &str) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path /tmp/nginx-{kind};\n"))
        .collect();
    format!(
        "user root; daemon off; worker_processes auto; pid /tmp/{name}.pid; error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
{temporary}
default_type application/octet-stream;
access_log off;
keepalive_requests 1000000000;
keepalive_timeout 300s;
ssl_certificate /bench/leaf.crt;
ssl_certificate_key /bench/leaf.key;
ssl_protocols TLSv1.2 TLSv1.3;
{servers}
}}
"
    )
}

fn origin() -> String {
    format!("server {{ listen 127.0.0.1:{ORIGIN} ssl http2; root /bench/www; }}")
}

/// Buffers are larger than nginx's defaults, and nothing goes to disk but what the sidecar also writes: a line for
/// each request.
fn proxy() -> String {
    format!(
        r#"
log_format audit escape=json '{{"time":$msec,"host":"$host","method":"$request_method","path":"$uri","status":$status,"bytes-down":$body_bytes_sent,"duration":$request_time}}';
upstream origin {{ server 127.0.0.1:{ORIGIN}; keepalive 64; keepalive_requests 1000000000; }}
upstream sink {{ server 127.0.0.1:{SINK}; keepalive 64; keepalive_requests 1000000000; }}
server {{
    listen 127.0.0.1:{PROXY} ssl http2;
    access_log /tmp/access.log audit;
    client_max_body_size 0;
    proxy_http_version 1.1;
    proxy_request_buffering off;
    proxy_buffer_size 16k;
    proxy_buffers 16 32k;
    proxy_busy_buffers_size 256k;
    proxy_max_temp_file_size 0;
    proxy_set_header Connection "";
    proxy_set_header Host $host;
    proxy_ssl_server_name on;
    proxy_ssl_name $host;
    proxy_ssl_verify on;
    proxy_ssl_trusted_certificate /bench/ca.crt;
    location / {{ proxy_pass https://origin; }}
    location /up {{ proxy_pass https://sink; }}
}}"#
    )
}
