//! Clients that are too large for the image of the other tests (`images/build clients`).

use std::sync::OnceLock;

use understudy_integration_tests::podman::{Container, podman};
use understudy_integration_tests::stand::Agent;

use crate::stand;

const IMAGE: &str = "localhost/understudy-clients";

const JAVA: &str = r#"
import java.net.URI;
import java.net.http.*;
class Fetch {
    public static void main(String[] arguments) throws Exception {
        var request = HttpRequest.newBuilder(URI.create("https://other.example/echo")).build();
        var client = HttpClient.newBuilder().version(HttpClient.Version.valueOf(arguments[0])).build();
        var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.version() + " " + answer.body());
        // what the image trusts is trusted still
        var trust = javax.net.ssl.TrustManagerFactory.getInstance("PKIX");
        trust.init((java.security.KeyStore) null);
        var manager = (javax.net.ssl.X509TrustManager) trust.getTrustManagers()[0];
        System.out.println("roots: " + manager.getAcceptedIssuers().length);
    }
}
"#;

const HOST: &str = r#""host":"other.example""#;

fn agent() -> Agent {
    static IMPORTED: OnceLock<()> = OnceLock::new();
    IMPORTED.get_or_init(|| {
        let tar = stand().paths.cache.join("clients.tar");
        assert!(tar.exists(), "{} is missing: run integration-tests/images/build clients", tar.display());
        let path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        let import = ["import", "--quiet", "--change", path, tar.to_str().unwrap(), IMAGE];
        podman(import).unwrap().success().unwrap();
    });
    Agent::generic().image(IMAGE)
}

fn by_process(agent: &Agent, command: &[&str]) -> String {
    let answer = agent.run(command).unwrap();
    assert!(answer.clone().success().is_ok_and(|text| text.contains(HOST)), "{}", answer.text());
    answer.stdout
}

fn by_exec(container: &Container, command: &[&str]) -> String {
    let answer = container.exec(command).unwrap();
    assert!(answer.clone().success().is_ok_and(|text| text.contains(HOST)), "{}", answer.text());
    answer.stdout
}

#[test]
fn java_trusts_the_sidecar_and_what_its_image_trusts() {
    let agent = agent();
    let roots = agent.shell("grep -c BEGIN /etc/ssl/certs/ca-certificates.crt").unwrap().success().unwrap();
    let script =
        |version: &str| format!("cat >/tmp/Fetch.java <<'END'\n{JAVA}\nEND\njava /tmp/Fetch.java {version}");
    for version in ["HTTP_2", "HTTP_1_1"] {
        let text = by_process(&agent, &["sh", "-c", &script(version)]);
        // the bundle that is seen inside has ours in it
        assert!(
            text.contains(version) && text.contains(&format!("roots: {}", roots.trim())),
            "{roots} {text}"
        );
    }
    let container = agent.start(&["sleep", "infinity"]).unwrap();
    by_exec(&container, &["sh", "-c", &script("HTTP_2")]);
}

#[test]
fn a_program_in_go_trusts_the_sidecar() {
    // it wants to be logged in before it asks anybody anything
    let command = ["env", "GH_TOKEN=none", "gh", "api", "https://other.example/echo"];
    let agent = agent();
    by_process(&agent, &command);
    by_exec(&agent.start(&["sleep", "infinity"]).unwrap(), &command);
}

#[test]
fn chromium_trusts_the_sidecar() {
    let command = [
        "chromium",
        "--headless",
        // its own needs more capabilities than the container has
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--dump-dom",
        "https://other.example/echo",
    ];
    let agent = agent();
    by_process(&agent, &command);
    by_exec(&agent.start(&["sleep", "infinity"]).unwrap(), &command);
}

#[test]
fn deno_trusts_the_sidecar() {
    let agent = agent();
    let volume = format!("--volume={}:/usr/local/bin/deno:ro", stand().paths.cache.join("deno").display());
    let script = "console.log(await (await fetch('https://other.example/echo')).text())";
    by_process(&agent.option(&volume).option("--env=DENO_NO_UPDATE_CHECK=1"), &["deno", "eval", script]);
}
