//! google-auth and PyJWT for Python, google-auth-library and @octokit/auth-app for Node, unmodified: each signs with a stand-in, and
//! what answers verifies with the real key. `integration-tests/images/tokens` fetches them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::assertions::{ACCESS, ACCOUNT, APP, INSTALLATION};
use crate::world::{Options, WELL_KNOWN, World};

/// They look names up by themselves, and nobody looks up for them here: each name is a port that leads to the sidecar.
const LOOKUP: &str = "import socket\nown, names = socket.getaddrinfo, NAMES\n\
    def look(host, port, *rest, **more):\n    name = host.decode() if isinstance(host, bytes) else host\n\
    \x20   there = ('127.0.0.1', names[name]) if name in names else (host, port)\n    return own(*there, *rest, **more)\n\
    socket.getaddrinfo = look\n";
const PRELOADED: &str = "const net = require('net'), names = NAMES, own = net.Socket.prototype.connect;
net.Socket.prototype.connect = function (...args) {
  const normal = Array.isArray(args[0]), options = normal ? args[0][0] : args[0];
  if (options && names[options.host]) {
    const changed = { ...options, host: '127.0.0.1', port: names[options.host] };
    if (normal) args[0][0] = changed; else args[0] = changed;
  }
  return own.apply(this, args);
};
";

const GOOGLE: &str = "kind = \"google-service-account\"\nhosts = \"storage.googleapis.com\"\n\
                      scopes = \"https://www.googleapis.com/auth/devstorage.read_only\"";
const GITHUB: &str =
    "kind = \"github-app\"\napp = 12345\ninstallations = 7\nhosts = [\"api.github.com\", \"github.com\"]";

const PYTHON_GOOGLE: &str = r#"
import os
import google.auth
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import AuthorizedSession, Request
from google.oauth2 import service_account

path, scope = os.environ["GOOGLE_APPLICATION_CREDENTIALS"], "https://www.googleapis.com/auth/devstorage.read_only"
credentials, project = google.auth.default(scopes=[scope])
credentials.refresh(Request())
assert project == "project" and credentials.token.startswith("ya29.") and credentials.valid, credentials.token
session = AuthorizedSession(credentials)
assert session.get("https://storage.googleapis.com/storage/v1/b").text == "hello"
assert session.get("https://storage.googleapis.com/repeat").text == "Bearer " + credentials.token

# Without a token endpoint.
own = service_account.Credentials.from_service_account_file(path, scopes=[scope], always_use_jwt_access=True)
session = AuthorizedSession(own, default_host="storage.googleapis.com")
answer = session.get("https://storage.googleapis.com/repeat")
assert answer.status_code == 200 and answer.text.count(".") == 2, answer.text
own = service_account.Credentials.from_service_account_file(path, always_use_jwt_access=True)
answer = AuthorizedSession(own, default_host="storage.googleapis.com").get("https://storage.googleapis.com/storage/v1/b")
assert answer.status_code == 403 and "instead of `aud`" in answer.json()["error"]["message"], answer.text

def refused(credentials, said):
    try:
        credentials.refresh(Request())
    except RefreshError as error:
        assert "understudy: " in str(error) and said in str(error), error
        return
    raise SystemExit("it was not refused")

refused(credentials.with_scopes(["https://www.googleapis.com/auth/cloud-platform"]), "`scopes`")
refused(credentials.with_subject("boss@example.com"), "`subjects`")
refused(service_account.IDTokenCredentials.from_service_account_file(path, target_audience="https://x.example"), "an ID token has none")
print("all done", credentials.token)
"#;

const PYTHON_GITHUB: &str = r#"
import os, time
import jwt, requests

key, app = os.environ["GITHUB_APP_PRIVATE_KEY"], os.environ["GITHUB_APP_ID"]
now = int(time.time())

def ask(method, path, claims, **more):
    token = jwt.encode(claims, key, algorithm="RS256")
    return requests.request(method, "https://api.github.com" + path, headers={"Authorization": "Bearer " + token}, **more)

fine = {"iat": now - 60, "exp": now + 540, "iss": app}
assert ask("GET", "/app", fine).text == "hello"
answer = ask("POST", "/app/installations/7/access_tokens", fine, json={"repositories": ["repo"]})
assert answer.status_code == 201, answer.text
token = answer.json()["token"]
assert token.startswith("ghs_")
answer = requests.get("https://api.github.com/repeat", headers={"Authorization": "token " + token})
assert answer.text == "token " + token, answer.text
assert requests.get("https://github.com/org/repo.git/info/refs", auth=("x-access-token", token)).status_code == 200
answer = ask("POST", "/app/installations/8/access_tokens", fine)
assert answer.status_code == 403 and "`installations`" in answer.json()["message"], answer.text
answer = ask("POST", "/app/installations/7/access_tokens", {**fine, "exp": now + 3600})
assert answer.status_code == 403 and "10 minutes" in answer.json()["message"], answer.text
print("all done", token)
"#;

const NODE_GOOGLE: &str = r#"
const assert = require('assert');
const { GoogleAuth } = require('google-auth-library');
const scope = 'https://www.googleapis.com/auth/devstorage.read_only';
(async () => {
  const client = await new GoogleAuth({ scopes: scope }).getClient();
  const { token } = await client.getAccessToken();
  assert(token.startsWith('ya29.'), token);
  const answer = await client.request({ url: 'https://storage.googleapis.com/repeat', responseType: 'text' });
  assert.equal(answer.data, 'Bearer ' + token);
  const own = await new GoogleAuth({ scopes: scope }).getClient();
  own.useJWTAccessWithScope = true;
  own.defaultServicePath = 'storage.googleapis.com';
  const signed = await own.request({ url: 'https://storage.googleapis.com/repeat', responseType: 'text' });
  assert.equal(signed.data.split('.').length, 3, signed.data);
  const wide = await new GoogleAuth({ scopes: 'https://www.googleapis.com/auth/cloud-platform' }).getClient();
  await assert.rejects(wide.getAccessToken(), (error) => JSON.stringify(error.response.data).includes('`scopes`'));
  console.log('all done', token);
})();
"#;

const NODE_GITHUB: &str = r#"
const assert = require('assert');
(async () => {
  const { createAppAuth } = await import(process.env.MODULES + '/@octokit/auth-app/index.js').catch(() => import(process.env.MODULES + '/@octokit/auth-app/dist-node/index.js'));
  const auth = createAppAuth({ appId: process.env.GITHUB_APP_ID, privateKey: process.env.GITHUB_APP_PRIVATE_KEY, installationId: 7 });
  const { token, expiresAt } = await auth({ type: 'installation' });
  assert(token.startsWith('ghs_') && expiresAt, token);
  const answer = await fetch('https://api.github.com/repeat', { headers: { authorization: 'token ' + token } });
  assert.equal(await answer.text(), 'token ' + token);
  await assert.rejects(auth({ type: 'installation', installationId: 8 }), (error) => error.message.includes('`installations`'));
  console.log('all done', token);
})();
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs integration-tests/images/tokens; make test-all"]
async fn clients_of_google_and_github_work_with_a_stand_in_and_read_what_is_refused() {
    for (provider, value, programs) in [
        (GOOGLE, ACCOUNT, [("tokens-python", PYTHON_GOOGLE), ("tokens-node", NODE_GOOGLE)]),
        (GITHUB, APP, [("tokens-python", PYTHON_GITHUB), ("tokens-node", NODE_GITHUB)]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let world = World::with(Options { provider, value, ..Options::default() }).await;
        let mut names = String::from("{");
        for (name, address) in WELL_KNOWN {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _ = write!(names, "\"{name}\":{},", listener.local_addr().unwrap().port());
            tokio::spawn(lead(
                listener,
                SocketAddr::new(address.into(), 443),
                world.listener,
                world.stated(),
            ));
        }
        names.push('}');
        let path = |name: &str| directory.path().join(name);
        let file =
            world.vault.current().secret("provider").unwrap().assertion_key().unwrap().file().to_owned();
        for (name, content) in [
            ("ca.pem", world.authority_pem.clone()),
            ("sitecustomize.py", LOOKUP.replace("NAMES", &names)),
            ("preloaded.js", PRELOADED.replace("NAMES", &names)),
            ("key", file.clone()),
        ] {
            std::fs::write(path(name), content).unwrap();
        }
        for (program, script) in programs {
            std::fs::write(path("script"), script).unwrap();
            let done = run(directory.path(), program, &file).await;
            let said = String::from_utf8_lossy(&[done.stdout.as_slice(), &done.stderr].concat()).into_owned();
            assert!(done.status.success() && said.contains("all done "), "{program}: {said}");
            assert!(!said.contains(ACCESS) && !said.contains(INSTALLATION), "{said}");
            let held = said.split("all done ").nth(1).unwrap().trim();
            assert!(!world.audit_text().contains(held));
        }
        let audit = world.audit_text();
        assert!(
            !audit.contains(ACCESS) && !audit.contains(INSTALLATION) && !audit.contains("eyJ"),
            "{audit}"
        );
    }
}

/// Hands what comes in to the sidecar, as redirecting would.
async fn lead(listener: TcpListener, to: SocketAddr, sidecar: SocketAddr, stated: Arc<crate::world::Stated>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let stated = Arc::clone(&stated);
        tokio::spawn(async move {
            let mut redirected = stated.connect(sidecar, to).await;
            let _ = tokio::io::copy_bidirectional(&mut client, &mut redirected).await;
        });
    }
}

async fn run(directory: &Path, program: &str, key: &str) -> Output {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .find(|path| path.join(program).exists())
        .expect("integration-tests/images/tokens fetches the clients");
    let mut command = Command::new(found.join(program));
    let preloaded = directory.join("preloaded.js");
    command.arg(directory.join("script")).env_clear().current_dir(directory).stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", directory);
    command.env("PYTHONPATH", directory).env("NODE_OPTIONS", format!("--require {}", preloaded.display()));
    command.env("NODE_PATH", found.join("node_modules")).env("MODULES", found.join("node_modules"));
    for name in ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        command.env(name, directory.join("ca.pem"));
    }
    command.env("GOOGLE_APPLICATION_CREDENTIALS", directory.join("key"));
    command.env("GITHUB_APP_ID", "12345").env("GITHUB_APP_PRIVATE_KEY", key);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}
