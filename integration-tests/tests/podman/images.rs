//! Images and volumes that somebody hostile made: what they hold is neither followed nor waited for nor believed.

use std::fs;
use std::path::Path;

use understudy_integration_tests::podman::{Outcome, podman, run, unique};
use understudy_integration_tests::stand::{AGENT_IMAGE, ANTHROPIC, Agent};

use crate::{assert_nothing_arrived, stand};

/// The agent's image after a script, which root ran in it, and with more lines of a Containerfile.
fn image(script: &str, more: &[&str]) -> String {
    stand();
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("script"), script).unwrap();
    let lines = format!(
        "FROM {AGENT_IMAGE}\nCOPY script /script\nRUN sh -e /script && rm /script\n{}\n",
        more.join("\n")
    );
    fs::write(directory.path().join("Containerfile"), lines).unwrap();
    let image = unique("localhost/hostile");
    let context = directory.path().display().to_string();
    let how = ["--quiet", "--isolation=chroot", "--network=host", "--tag", &image, &context];
    // Root's builds raise these limits else, which the test bed's root may not.
    let limits = ["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"];
    podman(["build"].into_iter().chain(limits).chain(how)).unwrap().success().unwrap();
    image
}

/// Claude Code's container, without Claude Code: files are placed in its home.
fn placed(image: &str) -> Agent {
    stand();
    Agent::new("claude-code").annotation("understudy.secrets", ANTHROPIC).image(image)
}

/// What the container said, and what `understudy-hook why` says.
fn said(outcome: &Outcome) -> String {
    let mut why = std::process::Command::new(stand().paths.program("understudy-hook"));
    format!("{}{}", outcome.text(), run(why.arg("why"), b"").unwrap().text())
}

/// That it did not run, and that somebody is told the reason.
fn assert_not_started(outcome: &Outcome, reasons: &[&str]) {
    let said = said(outcome);
    assert_ne!(outcome.code, Some(0), "{said}");
    assert!(!outcome.stdout.contains("it ran"), "{said}");
    for reason in reasons {
        assert!(said.contains(reason), "expected {reason:?} in: {said}");
    }
}

#[test]
fn bundles_that_are_no_bundles_are_left_out_and_told() {
    let host_file = Path::new(&std::env::var("HOME").unwrap()).join("of-the-host.pem");
    fs::copy(stand().paths.world.join("ca.crt"), &host_file).unwrap();
    let script = format!(
        "mkdir -p /etc/pki/tls/certs /opt /etc/ssl/certs/ca-bundle.crt; cp /etc/ssl/certs/ca-certificates.crt /opt/roots.pem; \
         rm /etc/ssl/certs/ca-certificates.crt; mkfifo /etc/ssl/certs/ca-certificates.crt; \
         ln -s {host} /etc/ssl/cert.pem; ln -s /opt/roots.pem /etc/ssl/ca-bundle.pem; \
         head -c 6000000 /dev/zero >/etc/pki/tls/certs/ca-bundle.crt; \
         printf -- '-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n' >/etc/pki/tls/certs/ca-bundle.trust.crt; \
         ln -s /proc/self/environ /etc/pki/tls/cert.pem; ln -s /etc/pki/tls/cacert.pem /etc/pki/tls/cacert.pem",
        host = host_file.display()
    );
    let agent = Agent::generic().image(&image(&script, &[]));
    let inside = "printenv UNDERSTUDY_NOTES; curl -sS https://other.example/status/200 >/dev/null && echo reached; \
                  grep -c BEGIN /run/understudy/bundle.pem; cat /etc/ssl/cert.pem 2>&1";
    let text = agent.shell(inside).unwrap().text();
    for path in [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/ssl/certs/ca-bundle.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/pki/tls/certs/ca-bundle.trust.crt",
        "/etc/pki/tls/cacert.pem",
    ] {
        assert!(text.contains(&format!("{path} of the image")), "nothing is told of {path}: {text}");
    }
    assert!(text.contains("reached"), "{text}");
    // the image's roots, found by a link that stays in it
    assert!(text.lines().any(|line| line.parse().is_ok_and(|roots: usize| roots > 50)), "{text}");
    assert!(text.contains("No such file"), "the host's file was mounted: {text}");
    assert_eq!(fs::read(&host_file).unwrap(), fs::read(stand().paths.world.join("ca.crt")).unwrap());
}

/// Not tried: a FIFO for a passwd, which Podman itself waits for; the placing binary's own tests have it.
#[test]
fn a_home_from_a_hostile_passwd_is_where_files_go_or_nothing_starts() {
    let passwd = |home: &str| format!("sed -i 's,^root:.*,root:x:0:0:root:{home}:/bin/bash,' /etc/passwd");
    // the home as the image tells it, and where the file must be then
    for (home, file) in [
        ("relative", "/root/.claude.json"),
        ("", "/root/.claude.json"),
        ("/missing/deep/home", "/missing/deep/home/.claude.json"),
        ("/../../../../root", "/root/.claude.json"),
    ] {
        let outcome = placed(&image(&passwd(home), &[])).run(&["cat", file]).unwrap();
        assert!(outcome.stdout.contains("hasCompletedOnboarding"), "{home}: {}", said(&outcome));
    }
    for home in ["/proc/1", "/proc/self/root/root", "/etc/passwd", "/dev"] {
        // of the machine, not of the container
        let outside = || fs::read("/root/.claude.json").ok();
        let before = outside();
        let outcome = placed(&image(&passwd(home), &[])).run(&["echo", "it ran"]).unwrap();
        assert_eq!(outside(), before, "{home}: it was written outside of the container");
        // /dev is a tmpfs in which it may be placed
        if home != "/dev" && outcome.code == Some(0) {
            panic!("{home}: it started without its files: {}", said(&outcome));
        }
    }
}

#[test]
fn files_that_lead_into_the_project_are_not_written_through() {
    let project = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    let file = project.path().join("precious.json");
    let volume = format!("--volume={}:/project", project.path().display());
    for (script, reason) in [
        ("ln -s /project/precious.json /root/.claude.json", "symbolic link"),
        ("mkfifo /root/.claude.json", "not a regular file"),
        ("mkdir /root/.claude.json", "not a regular file"),
        ("head -c 2000000 /dev/zero >/root/.claude.json", "larger than"),
        ("echo 'not json' >/root/.claude.json", "JSON"),
        ("ln -s /project /root/.claude", "symbolic link"),
    ] {
        fs::write(&file, r#"{"mine":1}"#).unwrap();
        let outcome = placed(&image(script, &[])).option(&volume).run(&["echo", "it ran"]).unwrap();
        assert_not_started(&outcome, &[reason]);
        assert_eq!(fs::read_to_string(&file).unwrap(), r#"{"mine":1}"#, "{script}");
        assert_eq!(fs::read_dir(project.path()).unwrap().count(), 1, "{script}");
    }
}

#[test]
fn a_hard_link_to_a_project_file_is_replaced_and_not_written_through() {
    let project = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    let home = project.path().join("home");
    fs::create_dir(&home).unwrap();
    let file = project.path().join("precious.json");
    fs::write(&file, r#"{"mine":1}"#).unwrap();
    fs::hard_link(&file, home.join(".claude.json")).unwrap();
    let volume = format!("--volume={}:/root", home.display());
    let outcome = placed(AGENT_IMAGE).option(&volume).run(&["cat", "/root/.claude.json"]).unwrap();
    let text = outcome.success().unwrap();
    assert!(text.contains("hasCompletedOnboarding") && text.contains("mine"), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), r#"{"mine":1}"#);
}

/// As real as a search needs it: prefix, length, alphabet.
const LOGIN: &str = r#"{"claudeAiOauth":{"accessToken":"sk-ant-oat01-REALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREALREAL-AA","refreshToken":"","expiresAt":9999999999999}}"#;

#[test]
fn a_real_login_in_the_image_is_refused_and_left_alone() {
    let script = format!("mkdir /root/.claude; echo '{LOGIN}' >/root/.claude/.credentials.json");
    let outcome = placed(&image(&script, &[])).run(&["echo", "it ran"]).unwrap();
    assert_not_started(
        &outcome,
        &["/root/.claude/.credentials.json", "/claudeAiOauth/accessToken", "remove the file"],
    );
    assert!(!said(&outcome).contains("REALREAL"), "the credential is in the message");
}

#[test]
fn a_real_login_in_a_volume_is_refused_and_left_alone() {
    stand();
    let volume = unique("login");
    let mount = format!("--volume={volume}:/root/.claude");
    let write = format!("echo '{LOGIN}' >/root/.claude/.credentials.json");
    let plain = Agent::plain().option("--network=none").option(&mount);
    plain.shell(&write).unwrap().success().unwrap();
    let outcome = placed(AGENT_IMAGE).option(&mount).run(&["echo", "it ran"]).unwrap();
    assert_not_started(&outcome, &["/root/.claude/.credentials.json", "a credential that is not a stand-in"]);
    let after = plain.shell("cat /root/.claude/.credentials.json").unwrap().success().unwrap();
    assert_eq!(after.trim(), LOGIN);
}

#[test]
fn a_real_login_of_the_users_own_is_refused() {
    stand();
    let home = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    fs::write(home.path().join(".credentials.json"), LOGIN).unwrap();
    let mount = format!("--volume={}:/root/.claude", home.path().display());
    let outcome = placed(AGENT_IMAGE).option(&mount).run(&["echo", "it ran"]).unwrap();
    assert_not_started(&outcome, &[".credentials.json"]);
}

#[test]
fn the_images_environment_moves_neither_the_placing_nor_the_traffic() {
    let changes = [
        "ENV HOME=/proc/1",
        "ENV GLIBC_TUNABLES=glibc.malloc.check=3:glibc.malloc.perturb=165",
        "ENV LD_PRELOAD=/evil.so",
        "ENV RUST_BACKTRACE=full",
        "ENV TMPDIR=/proc/1",
        "ENV http_proxy=http://proxy.evil.example:3128",
        "ENV HTTPS_PROXY=http://proxy.evil.example:3128",
        "ENV ALL_PROXY=socks5://proxy.evil.example:1080",
        "ENV NO_PROXY=*",
        "ENV UNDERSTUDY_POLICY=evil",
    ];
    let outcome = placed(&image("echo x >/evil.so", &changes))
        .shell("cat /root/.claude.json; env | grep -i proxy | grep -v '^NODE'; curl -sS -o /dev/null -w 'HTTP %{http_code}\n' https://denied.example/image-env")
        .unwrap();
    let text = outcome.text();
    assert!(text.contains("hasCompletedOnboarding") && text.contains("HTTP 403"), "{}", said(&outcome));
    assert!(!text.contains("proxy.evil"), "{text}");
    assert_nothing_arrived("/image-env");
}

#[test]
fn a_real_key_in_the_images_environment_is_refused() {
    let image = image("true", &[&format!("ENV SOMETHING={}", stand().secrets.generic)]);
    let outcome = Agent::generic().image(&image).run(&["echo", "it ran"]).unwrap();
    assert_not_started(&outcome, &["SOMETHING"]);
    assert!(!said(&outcome).contains(&stand().secrets.generic));
}
