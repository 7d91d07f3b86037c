//! A managed policy for Chromium, which has roots of its own and reads neither a bundle nor a variable.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// Where builds look for policies: Chromium (Playwright's too), Chrome, and Chrome for Testing.
pub(super) const PATHS: [&str; 3] = [
    "/etc/chromium/policies/managed/understudy.json",
    "/etc/opt/chrome/policies/managed/understudy.json",
    "/etc/opt/chrome_for_testing/policies/managed/understudy.json",
];

/// The file of a policy that adds this certificate (DER) to what is trusted.
pub(super) fn policy(certificate: &[u8]) -> String {
    json!({ "CACertificates": [STANDARD.encode(certificate)] }).to_string()
}
