//! Every client trusts the sidecar without being told to: as a container's process, with the variables that it is given,
//! and started by `podman exec`, which has no variables and finds what it trusts in the image's own places.

use std::sync::OnceLock;

use understudy_integration_tests::podman::Container;
use understudy_integration_tests::stand::Agent;

use crate::{python, stand};

/// In the answer of `/echo`, and in no page of an error.
const HOST: &str = r#""host":"other.example""#;

/// As Ruby, Perl, PHP and .NET do it where there is no bundle.
const HASHED: &str = "printf 'GET /echo HTTP/1.0\\r\\nHost: other.example\\r\\n\\r\\n' | \
                      openssl s_client -quiet -verify_return_error -verify_quiet \
                      -CApath /etc/ssl/certs -no-CAfile -no-CAstore \
                      -servername other.example -connect other.example:443";

/// One container for all that is executed.
fn running() -> &'static Container {
    static RUNNING: OnceLock<Container> = OnceLock::new();
    RUNNING.get_or_init(|| Agent::generic().start(&["sleep", "infinity"]).unwrap())
}

fn as_process(command: &[&str]) {
    stand();
    let answer = Agent::generic().run(command).unwrap();
    assert!(answer.clone().success().is_ok_and(|text| text.contains(HOST)), "{}", answer.text());
}

fn as_exec(command: &[&str]) {
    stand();
    let answer = running().exec(command).unwrap();
    assert!(answer.clone().success().is_ok_and(|text| text.contains(HOST)), "{}", answer.text());
}

fn both(command: &[&str]) {
    as_process(command);
    as_exec(command);
}

#[test]
fn curl() {
    both(&["curl", "-sS", "https://other.example/echo"]);
}

#[test]
fn wget() {
    both(&["wget", "-qO-", "https://other.example/echo"]);
}

#[test]
fn openssl() {
    let script = "printf 'GET /echo HTTP/1.0\\r\\nHost: other.example\\r\\n\\r\\n' | \
                  openssl s_client -quiet -verify_return_error -verify_quiet -servername other.example -connect other.example:443";
    both(&["sh", "-c", script]);
}

#[test]
fn openssl_in_the_hashed_directory_alone() {
    both(&["sh", "-c", HASHED]);
}

#[test]
fn python_urllib() {
    both(&python(
        "import urllib.request as u; print(u.urlopen('https://other.example/echo').read().decode())",
    ));
}

#[test]
fn ruby() {
    both(&["ruby", "-ropen-uri", "-e", "puts URI.open('https://other.example/echo').read"]);
}

#[test]
fn perl_lwp() {
    let script = "my $r = LWP::UserAgent->new->get('https://other.example/echo'); \
                  die $r->status_line unless $r->is_success; print $r->content";
    both(&["perl", "-MLWP::UserAgent", "-e", script]);
}

#[test]
fn perl_http_tiny() {
    let script = "my $r = HTTP::Tiny->new(verify_SSL => 1)->get('https://other.example/echo'); \
                  die $r->{content} unless $r->{success}; print $r->{content}";
    both(&["perl", "-MHTTP::Tiny", "-e", script]);
}

#[test]
fn php() {
    both(&["php", "-r", "echo file_get_contents('https://other.example/echo') ?: exit(1);"]);
}

#[test]
fn git() {
    let script = "git ls-remote https://git.example/git/hello.git && echo '\"host\":\"other.example\"'";
    both(&["sh", "-c", script]);
}

#[test]
fn node() {
    let script = "fetch('https://other.example/echo').then(r => r.text()).then(console.log)";
    both(&["node", "-e", script]);
}

#[test]
fn a_container_that_is_started_again_trusts_it_still() {
    stand();
    let container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let directory = "ls /etc/ssl/certs | wc -l";
    let files = container.exec(&["sh", "-c", directory]).unwrap().success().unwrap();
    for _ in 0..2 {
        understudy_integration_tests::podman::podman(["restart", "--time", "0", &container.name])
            .unwrap()
            .success()
            .unwrap();
        let answer = container.exec(&["sh", "-c", HASHED]).unwrap().success().unwrap();
        assert!(answer.contains(HOST), "{answer}");
        assert_eq!(container.exec(&["sh", "-c", directory]).unwrap().success().unwrap(), files);
    }
}

#[test]
fn java_options_that_the_user_set_stay() {
    stand();
    let agent = Agent::generic().option("--env=JAVA_TOOL_OPTIONS=-Xmx64m");
    let set = agent.run(&["printenv", "JAVA_TOOL_OPTIONS", "UNDERSTUDY_NOTES"]).unwrap().success().unwrap();
    let ours = "-Djavax.net.ssl.trustStore=/run/understudy/trust.p12";
    assert!(
        set.starts_with(&format!("-Xmx64m {ours}\n")) && set.contains("JAVA_TOOL_OPTIONS was set"),
        "{set}"
    );
}
