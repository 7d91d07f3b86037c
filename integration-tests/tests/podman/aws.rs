//! Keys of AWS: a client in a sealed container signs with what it was given, what arrives is signed with the real key, and
//! that is not in there. Clients that are more than curl are in the sidecar's own tests.

use ring::{digest, hmac};
use understudy_integration_tests::mock::Request;
use understudy_integration_tests::podman::until;
use understudy_integration_tests::stand::Agent;

use crate::stand;

const ID: &str = "AKIAREALREALREAL7777";
const KEY: &str = "rEaL/secret+access/key9876543210abcdefgh";
const TOKEN: &str = "rEaLsessionToken0123456789abcdefghijklmnop";
const DECLARED: &str = "[data]\nkind = \"aws\"\nfile = \"/etc/understudy/data\"\nhosts = \"s3.example\"\nservices = [\"s3\"]\n\
                        buckets = [\"status\"]\ngrant-to = { harnesses = [\"generic\"] }\n";
const POLICY: &str = "[[allow]]\nhost = \"s3.example\"\n";

/// As people do it who have no CLI of AWS's. An id of a key in one word would be refused before it starts.
const SIGN: &str = r#"
signed() { # USER URL...
    user=$1; shift
    curl -sS --aws-sigv4 aws:amz:eu-central-1:s3 --user "$user" -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' \
        -H "x-amz-security-token: $AWS_SESSION_TOKEN" -w '\nHTTP %{http_code}\n' "$@"
}
echo "== own"; signed "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -T /etc/hostname https://s3.example/status/200
echo "== bucket"; signed "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" https://s3.example/others/one
echo "== foreign"; signed AKIA''ZZZZZZZZZZZZ2345:0123456789012345678901234567890123456789 https://s3.example/status/201
echo "== wrong"; signed "$AWS_ACCESS_KEY_ID:0123456789012345678901234567890123456789" https://s3.example/status/201
echo "== unsigned"; curl -sS https://s3.example/status/201
"#;

#[test]
fn a_request_is_signed_with_a_stand_in_and_arrives_signed_with_the_key() {
    let stand = stand();
    let directory = &stand.paths.configuration;
    let value = format!(
        "[default]\naws_access_key_id = {ID}\naws_secret_access_key = {KEY}\naws_session_token = {TOKEN}\n"
    );
    std::fs::write(directory.join("data"), value).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(directory.join("data"), mode).unwrap();
    std::fs::write(directory.join("policies/aws.toml"), POLICY).unwrap();
    stand.declare(DECLARED).unwrap();
    until("the secret", || Ok(stand.operator(&["secrets"])?.stdout.contains("s3.example"))).unwrap();
    let script = format!("{{ {SIGN} }} >/tmp/said 2>&1; touch /tmp/done; exec sleep infinity");
    let agent = Agent::new("generic").annotation("understudy.policy", "aws");
    let container = agent.annotation("understudy.secrets", "data").start(&["sh", "-c", &script]).unwrap();
    until("the agent", || Ok(container.exec(&["test", "-e", "/tmp/done"])?.code == Some(0))).unwrap();
    let said = container.exec(&["cat", "/tmp/said"]).unwrap().text();
    for (case, expected) in [
        ("own", "HTTP 200"),
        ("bucket", "credential-restricted"),
        ("foreign", "foreign-credential"),
        ("wrong", "not-signed"),
        ("unsigned", "not-signed"),
    ] {
        let (_, told) = said.split_once(&format!("== {case}\n")).unwrap();
        let told = told.split("== ").next().unwrap();
        assert!(told.contains(expected), "{case}: {said}");
        assert!(case == "own" || told.contains("<Error>"), "{case}: {said}");
    }

    let arrived = |path: &str| -> Vec<Request> {
        let requests = stand.requests(path).unwrap().into_iter();
        requests.filter(|request| request.host == "s3.example").collect()
    };
    for path in ["/others/one", "/status/201"] {
        assert!(arrived(path).is_empty(), "{path}");
    }
    let [request] = arrived("/status/200").try_into().unwrap();
    assert_eq!(request.header("x-amz-security-token"), Some(TOKEN));
    let authorization = request.header("authorization").unwrap();
    let (given, signature) = authorization.split_once(", Signature=").unwrap();
    assert_eq!(signature, signed(&request, given), "{authorization}");

    // What it was given is found there, so the search would find the rest.
    let placed = container.exec(&["cat", "/root/.aws/credentials"]).unwrap().success().unwrap();
    let stand_ins: Vec<&str> = placed.lines().filter_map(|line| Some(line.split_once(" = ")?.1)).collect();
    assert_eq!(stand_ins.len(), 3);
    assert!(stand.hunt(&container, &stand_ins).unwrap().iter().any(|place| place.contains("environ")));
    assert_eq!(stand.hunt(&container, &[ID, KEY, TOKEN]).unwrap(), Vec::<String>::new());
}

/// Signature Version 4, written down here once more so that the sidecar is not asked about itself. `given` is the header
/// without the signature.
fn signed(request: &Request, given: &str) -> String {
    let field = |name: &str| given.split_once(&format!("{name}=")).unwrap().1.split(',').next().unwrap();
    let (names, scope) = (field("SignedHeaders"), field("Credential").strip_prefix(ID).unwrap());
    let scope = scope.strip_prefix('/').unwrap();
    let headers = names.split(';').map(|name| {
        let value = if name == "host" { Some(request.host.as_str()) } else { request.header(name) };
        format!("{name}:{}\n", value.unwrap().trim())
    });
    let canonical = format!(
        "{}\n{}\n\n{}\n{names}\n{}",
        request.method,
        request.path,
        headers.collect::<String>(),
        request.header("x-amz-content-sha256").unwrap()
    );
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{hashed}", request.header("x-amz-date").unwrap());
    let key = scope.split('/').fold(format!("AWS4{KEY}").into_bytes(), |key, part| sign(&key, part));
    hex(&sign(&key, &text))
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
