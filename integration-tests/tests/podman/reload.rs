//! A configuration that changes under a running sidecar and a running agent. All that is added here is of its own, so
//! that the tests beside it keep what they have.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use understudy_integration_tests::podman::{Container, until};
use understudy_integration_tests::stand::Agent;

use crate::{received, stand};

const HOST: &str = "reload.example";
const SECRET: &str = r#"
[reloaded]
kind = "api-key"
file = "/etc/understudy/reloaded"
hosts = ["reload.example"]
placements = ["header x-api-key"]
env = "RELOADED_KEY"
grant-to = { harnesses = ["generic"] }
"#;
const POLICY: &str = "[[allow]]\nhost = \"reload.example\"\n";

/// Files of the stand's configuration, put back at the end.
struct Files(Vec<(PathBuf, Option<String>)>);

impl Files {
    fn of_the_stand(names: &[&str]) -> Self {
        let directory = &stand().paths.configuration;
        let now = |name: &&str| (directory.join(name), fs::read_to_string(directory.join(name)).ok());
        Self(names.iter().map(now).collect())
    }

    fn before(&self, name: &str) -> &str {
        self.0.iter().find(|(path, _)| path.ends_with(name)).unwrap().1.as_deref().unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for (path, text) in &self.0 {
            let done = match text {
                Some(text) => fs::write(path, text),
                None => fs::remove_file(path),
            };
            drop(done);
        }
        drop(stand().take_back(SECRET));
    }
}

/// Whole, by a rename: the sidecar must not need the file that it once opened.
fn write(name: &str, text: &str) {
    let path = stand().paths.configuration.join(name);
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, path).unwrap();
}

fn told(command: &[&str]) -> String {
    stand().operator(command).unwrap().text()
}

fn reloaded() -> Option<serde_json::Value> {
    let secrets: serde_json::Value = serde_json::from_str(&told(&["secrets", "--json"])).unwrap();
    secrets.as_array().unwrap().iter().find(|secret| secret["name"] == "reloaded").cloned()
}

fn answer(agent: &Container, path: &str) -> String {
    let script =
        format!("curl -sS -w '\nHTTP %{{http_code}}' -H \"x-api-key: $(cat /tmp/key)\" https://{HOST}{path}");
    agent.exec(&["sh", "-c", &script]).unwrap().text()
}

#[test]
fn a_running_agent_is_under_the_configuration_of_the_moment() {
    let stand = stand();
    let files = Files::of_the_stand(&["sidecar.toml", "policies/reload.toml", "reloaded"]);
    let (first, second) = (unique_value("first"), unique_value("second"));

    write("reloaded", &first);
    write("policies/reload.toml", POLICY);
    write("sidecar.toml", &format!("{}\n\"{HOST}\" = \"127.0.0.1\"\n", files.before("sidecar.toml")));
    stand.declare(SECRET).unwrap();
    until("the secret", || Ok(reloaded().is_some_and(|secret| secret["usable"] == true))).unwrap();

    let agent = Agent::new("generic")
        .annotation("understudy.policy", "reload")
        .annotation("understudy.secrets", "reloaded")
        // `podman exec` does not see what the hook put into the environment
        .start(&["sh", "-c", "printenv RELOADED_KEY >/tmp/key; exec sleep infinity"])
        .unwrap();
    until("its key", || Ok(agent.exec(&["test", "-s", "/tmp/key"])?.code == Some(0))).unwrap();
    let stand_in = agent.exec(&["cat", "/tmp/key"]).unwrap().success().unwrap();
    assert!(
        answer(&agent, "/reload/first").contains("mock: no route"),
        "{}",
        answer(&agent, "/reload/first")
    );
    assert_eq!(received("/reload/first", "x-api-key")[0].as_ref(), Some(&first));

    // another value, of another length: the agent keeps the stand-in that it was given
    write("reloaded", &second);
    until("the second value", || {
        answer(&agent, "/reload/second");
        Ok(received("/reload/second", "x-api-key").last().unwrap().as_ref() == Some(&second))
    })
    .unwrap();
    assert!(
        received("/reload/second", "x-api-key").iter().flatten().all(|key| key == &first || key == &second)
    );
    let secret = reloaded().unwrap();
    assert!(secret["swaps"].as_u64().unwrap() >= 2, "{secret}");
    assert_eq!(secret["holders"].as_array().unwrap().len(), 1, "{secret}");
    assert!(!told(&["secrets"]).contains(&second) && !told(&["secrets"]).contains(stand_in.trim()));

    // a bad file: named, and what was good stays
    write("policies/reload.toml", "[[alow]]");
    until("the bad file", || Ok(told(&["status"]).contains("policy `reload`: reload.toml:1"))).unwrap();
    assert!(answer(&agent, "/reload/third").contains("mock: no route"));

    // another policy
    write("policies/reload.toml", "[[allow]]\nhost = \"elsewhere.example\"\n");
    until("the other policy", || Ok(answer(&agent, "/reload/denied").contains("host-not-allowed"))).unwrap();
    write("policies/reload.toml", POLICY);
    until("the first policy", || Ok(answer(&agent, "/reload/again").contains("mock: no route"))).unwrap();

    // the secret goes, and with it what the agent holds
    stand.take_back(SECRET).unwrap();
    until("the secret to go", || Ok(reloaded().is_none())).unwrap();
    assert!(answer(&agent, "/reload/gone").contains("credential-not-granted"));
    assert!(received("/reload/gone", "x-api-key").is_empty());
    let log = stand.sidecar_log().unwrap();
    assert!(!log.contains(&first) && !log.contains(&second));
}

fn unique_value(name: &str) -> String {
    understudy_integration_tests::podman::unique(&format!("reloaded_{name}-0123456789"))
}
