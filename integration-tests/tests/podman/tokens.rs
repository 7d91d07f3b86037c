//! Keys that sign tokens: a program of the container signs with what it was given, and the real key is not in there.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, RsaPublicKeyComponents};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::Value;
use understudy_integration_tests::mock::GOOGLE_ACCESS;
use understudy_integration_tests::podman::until;
use understudy_integration_tests::stand::Agent;

use crate::{received, stand};

const ACCOUNT: &str = include_str!("../../../sidecar/tests/keys/service-account.json");
const DECLARED: &str = "[gcp]\nkind = \"google-service-account\"\nfile = \"/etc/understudy/gcp.json\"\n\
                        hosts = \"api.example\"\ngrant-to = { harnesses = [\"generic\"] }\n";

/// As a program does it that has no library for it.
const SIGN: &str = r#"
set -eu
member() { python3 -c "import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])" "$1" "$2"; }
b64() { base64 -w0 | tr '+/' '-_' | tr -d =; }
member "$GOOGLE_APPLICATION_CREDENTIALS" private_key >/tmp/key
endpoint=$(member "$GOOGLE_APPLICATION_CREDENTIALS" token_uri)
now=$(date +%s)
head=$(printf '{"alg":"RS256","typ":"JWT"}' | b64)
claims=$(printf '{"iss":"%s","aud":"%s","scope":"x","iat":%d,"exp":%d}' \
    "$(member "$GOOGLE_APPLICATION_CREDENTIALS" client_email)" "$endpoint" "$now" $((now + 3600)) | b64)
signature=$(printf '%s.%s' "$head" "$claims" | openssl dgst -sha256 -sign /tmp/key | b64)
curl -sS --data-urlencode grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer \
    --data "assertion=$head.$claims.$signature" "$endpoint" >/tmp/answer
curl -sS -H "authorization: Bearer $(member /tmp/answer access_token)" -w '\nHTTP %{http_code}\n' https://api.example/status/200?signed
"#;

#[test]
fn a_service_account_signs_with_a_stand_in_and_its_token_is_one() {
    let stand = stand();
    let account =
        ACCOUNT.replace("https://oauth2.googleapis.com/token", "https://other.example/google/token");
    let path = stand.paths.configuration.join("gcp.json");
    std::fs::write(&path, &account).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    stand.declare(DECLARED).unwrap();
    let known = || Ok(stand.operator(&["secrets"])?.stdout.contains("gcp"));
    until("the secret", known).unwrap();
    let script = format!("{{ {SIGN} }} >/tmp/said 2>&1; touch /tmp/done; exec sleep infinity");
    let container =
        Agent::generic().annotation("understudy.secrets", "gcp").start(&["sh", "-c", &script]).unwrap();
    until("the agent", || Ok(container.exec(&["test", "-e", "/tmp/done"])?.code == Some(0))).unwrap();
    let said = container.exec(&["cat", "/tmp/said", "/tmp/answer"]).unwrap().text();
    assert!(said.contains("HTTP 200") && said.contains("ya29."), "{said}");

    let asked = stand.requests("/google/token").unwrap();
    let body = asked.last().unwrap().body_start.clone();
    let (_, assertion) = body.split_once("assertion=").unwrap();
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let json: Value = serde_json::from_str(&account).unwrap();
    let pem = json["private_key"].as_str().unwrap();
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let real = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public: RsaPublicKeyComponents<Vec<u8>> = real.public().into();
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    public.verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &signature).unwrap();
    let bearer = Some(format!("Bearer {GOOGLE_ACCESS}"));
    assert!(received("/status/200", "authorization").contains(&bearer));

    let lines: Vec<&str> = pem.lines().filter(|line| line.len() == 64).skip(20).collect();
    let real = [&lines[..], &[GOOGLE_ACCESS]].concat();
    let found = stand.hunt(&container, &real).unwrap();
    assert!(found.is_empty(), "{found:?}");
}
