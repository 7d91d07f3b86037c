//! What every container finds, and the variables by which clients find it: written by the hook, printed by
//! `understudy env`.

/// Files of ours, read-only.
pub const DIRECTORY: &str = "/run/understudy";

/// Clients that add to what they trust get our certificate alone (some read only the first of a file), and clients that
/// replace what they trust get everything. Variable and value.
pub const TRUST: [(&str, &str); 16] = [
    ("NODE_EXTRA_CA_CERTS", "/run/understudy/ca.crt"),
    ("SSL_CERT_FILE", "/run/understudy/bundle.pem"),
    ("REQUESTS_CA_BUNDLE", "/run/understudy/bundle.pem"),
    ("CURL_CA_BUNDLE", "/run/understudy/bundle.pem"),
    ("GIT_SSL_CAINFO", "/run/understudy/bundle.pem"),
    ("AWS_CA_BUNDLE", "/run/understudy/bundle.pem"),
    ("PIP_CERT", "/run/understudy/bundle.pem"),
    ("npm_config_cafile", "/run/understudy/bundle.pem"),
    ("CODEX_CA_CERTIFICATE", "/run/understudy/bundle.pem"),
    ("CARGO_HTTP_CAINFO", "/run/understudy/bundle.pem"),
    ("DENO_CERT", "/run/understudy/bundle.pem"),
    ("NIX_SSL_CERT_FILE", "/run/understudy/bundle.pem"),
    ("PERL_LWP_SSL_CA_FILE", "/run/understudy/bundle.pem"),
    ("BUNDLE_SSL_CA_CERT", "/run/understudy/bundle.pem"),
    ("HEX_CACERTS_PATH", "/run/understudy/bundle.pem"),
    ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "/run/understudy/bundle.pem"),
];

/// Options for every Java. Java has a trust store for itself, in a file whose place depends on how it was installed.
pub const JAVA: (&str, &str) = ("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStore=/run/understudy/trust.p12");
