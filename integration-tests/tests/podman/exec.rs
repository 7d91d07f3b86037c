//! `podman exec` gets none of the variables that the hook adds: a login shell has them, and an env file.

use std::io::Write as _;

use understudy_integration_tests::stand::{Agent, GENERIC};

use crate::{received, stand};

const KEY: &str = "EXAMPLE_API_KEY";

fn keyed() -> Agent {
    Agent::generic().annotation("understudy.secrets", GENERIC)
}

/// What `understudy env` printed.
fn env_file() -> tempfile::NamedTempFile {
    let text = stand().operator(&["env", "generic", "--secrets", GENERIC]).unwrap().success().unwrap();
    for line in [&format!("{KEY}="), "SSL_CERT_FILE=/run/understudy/bundle.pem\n", "JAVA_TOOL_OPTIONS="] {
        assert!(text.contains(line), "{line} is not in: {text}");
    }
    assert!(!text.contains(&stand().secrets.generic), "a real value was printed");
    let mut file = tempfile::NamedTempFile::new_in(std::env::var("HOME").unwrap()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn a_login_shell_has_the_variables_and_another_command_has_not() {
    stand();
    let agent =
        keyed().start(&["sh", "-c", &format!("printenv {KEY} >/tmp/key; exec sleep infinity")]).unwrap();
    understudy_integration_tests::podman::until("the key", || {
        Ok(agent.exec(&["test", "-s", "/tmp/key"])?.code == Some(0))
    })
    .unwrap();
    let key = agent.exec(&["cat", "/tmp/key"]).unwrap().success().unwrap();
    assert_ne!(agent.exec(&["printenv", KEY]).unwrap().code, Some(0));
    for shell in ["bash", "sh"] {
        let said = agent.exec(&[shell, "-lc", &format!("printenv {KEY}")]).unwrap().success().unwrap();
        assert_eq!(said, key, "{shell}");
    }
    let script = format!(
        "fetch('https://api.example/status/200?login-shell', {{headers: {{'x-api-key': process.env.{KEY}}}}})\
         .then(r => console.log(r.status))"
    );
    let command = format!("exec node -e \"{script}\"");
    let said = agent.exec(&["bash", "-lc", &command]).unwrap();
    assert_eq!(said.stdout, "200\n", "{}", said.text());
    assert!(received("/status/200", "x-api-key").contains(&Some(stand().secrets.generic.clone())));
}

#[test]
fn node_and_python_fetch_without_any_variable() {
    stand();
    let agent = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let node = "fetch('https://other.example/status/200').then(r => console.log(r.status))";
    let python = "import urllib.request as r; print(r.urlopen('https://other.example/status/200').status)";
    for command in [["node", "-e", node], ["python3", "-c", python]] {
        let said = agent.exec(&command).unwrap();
        assert_eq!(said.stdout, "200\n", "{command:?} {}", said.text());
    }
}

#[test]
fn an_env_file_of_the_sidecars_is_recognised_and_works() {
    stand();
    let file = env_file();
    let option = format!("--env-file={}", file.path().display());
    let notes = keyed().option(&option).shell("printenv UNDERSTUDY_NOTES || echo none").unwrap();
    assert_eq!(notes.stdout, "none\n", "{}", notes.text());
    let agent = keyed().option(&option).start(&["sleep", "infinity"]).unwrap();
    let script = format!(
        "curl -sS -o /dev/null -w '%{{http_code}}' -H \"x-api-key: ${KEY}\" https://api.example/status/200?env"
    );
    let said = agent.exec(&["sh", "-c", &script]).unwrap();
    assert_eq!(said.stdout, "200", "{}", said.text());
    // it gives nothing to a container that was not granted the secret
    let other = Agent::generic().option(&option).run(&["sh", "-c", &script]).unwrap();
    assert_ne!(other.stdout, "200", "{}", other.text());
}
