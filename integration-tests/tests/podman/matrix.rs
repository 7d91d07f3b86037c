//! Every network with every user namespace: what becomes of the container. `docs/matrix.md` says the same, by these rows.

use understudy_integration_tests::podman::{Container, Outcome, podman, unique};
use understudy_integration_tests::stand::{Agent, is_root};

use crate::{assert_nothing_arrived, stand};

const DOCUMENTED: &str = include_str!("../../../docs/matrix.md");

/// A request that is allowed, then one that is not, then one that would go past a sidecar.
const LOOK: &str = "
curl -sS -o /dev/null -w '%{http_code} ' --max-time 20 https://other.example/status/200
curl -sS --max-time 20 https://denied.example/matrix | grep -o host-not-allowed | head -n 1
timeout 3 bash -c 'exec 3<>/dev/udp/192.0.2.1/53 && echo x >&3 && head -c 1 <&3' 2>/dev/null && echo out
true";

fn user_namespaces() -> [(&'static str, Vec<&'static str>); 5] {
    let maps = match is_root() {
        true => vec!["--uidmap=0:200000:1000", "--gidmap=0:200000:1000"],
        false => vec!["--uidmap=0:1:1000", "--gidmap=0:1:1000"],
    };
    [
        ("none", vec![]),
        ("keep-id", vec!["--userns=keep-id"]),
        ("nomap", vec!["--userns=nomap"]),
        ("auto", vec!["--userns=auto"]),
        ("written-out maps", maps),
    ]
}

/// A network that is gone with this.
struct Network(String);

impl Network {
    fn new(options: &[&str]) -> Self {
        let network = Self(unique("matrix"));
        podman([&["network", "create"], options, &[&network.0]].concat()).unwrap().success().unwrap();
        network
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = podman(["network", "rm", "--force", &self.0]);
    }
}

fn outcome(network: &str, guarded: bool, userns: &[&str]) -> String {
    let agent = Agent::plain()
        .annotation("understudy.harness", "generic")
        .annotation("understudy.policy", "world")
        .option(&format!("--network={network}"));
    let agent = if guarded { agent.annotation("understudy.network", "guarded") } else { agent };
    let agent = userns.iter().fold(agent, |agent, option| agent.option(option));
    // Podman can lose what a process says that ends at once
    let mut outcomes =
        (0..3).map(|_| agent.shell(LOOK).unwrap_or_else(|error| panic!("{agent:?}: {error:#}")));
    judge(
        &outcomes
            .find(|outcome| !outcome.text().is_empty())
            .unwrap_or_else(|| panic!("{agent:?}: no output")),
    )
}

fn judge(outcome: &Outcome) -> String {
    let text = outcome.text();
    if text.contains("understudy: refused: ") && outcome.code == Some(126) {
        "refused".to_owned()
    } else if matches!(outcome.code, Some(125..=127)) && outcome.stderr.contains("Error: ") {
        "Podman cannot".to_owned()
    } else {
        let said = outcome.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        match said.as_str() {
            "200 host-not-allowed" => "protected".to_owned(),
            _ => panic!("neither protected nor refused: {outcome:?}"),
        }
    }
}

fn session() -> String {
    let format = "{{.Version.Version}} {{.Host.OCIRuntime.Name}}";
    let info = podman(["info", "--format", format]).unwrap().success().unwrap();
    let (version, runtime) = info.trim().split_once(' ').unwrap();
    let version = version.split('.').take(2).collect::<Vec<_>>().join(".");
    format!("Podman {version}, {runtime}, {}", if is_root() { "rootful" } else { "rootless" })
}

#[test]
fn every_network_and_user_namespace_is_as_documented() {
    stand();
    let joined: Container = Agent::generic().start(&["sleep", "infinity"]).unwrap();
    let (bridge, internal) = (Network::new(&[]), Network::new(&["--internal"]));
    let shared = format!("container:{}", joined.name);
    let networks = [
        ("`none`", "none", false),
        ("the default one, guarded", if is_root() { "bridge" } else { "" }, true),
        ("`bridge`, guarded", bridge.0.as_str(), true),
        ("`bridge`, internal, guarded", internal.0.as_str(), true),
        ("`slirp4netns`, guarded", "slirp4netns", true),
        ("`pasta`, guarded", "pasta", true),
        ("`bridge`", bridge.0.as_str(), false),
        ("`host`, guarded", "host", true),
        ("`container:` of a protected one", shared.as_str(), false),
    ];
    let namespaces = user_namespaces();
    let names = namespaces.each_ref().map(|(name, _)| *name).join(" | ");
    let mut section = format!("## {}\n\n| network | {names} |\n|---|---|---|---|---|---|\n", session());
    for (name, network, guarded) in networks.into_iter().filter(|(_, network, _)| !network.is_empty()) {
        let cells: Vec<String> =
            namespaces.iter().map(|(_, options)| outcome(network, guarded, options)).collect();
        section.push_str(&format!("| {name} | {} |\n", cells.join(" | ")));
    }
    assert_nothing_arrived("/matrix");
    println!("--- matrix\n{section}--- end");
    let recorded = std::env::var_os("UNDERSTUDY_TEST_MATRIX").is_some_and(|value| !value.is_empty());
    assert!(
        recorded || DOCUMENTED.contains(&section),
        "docs/matrix.md does not say so (run: make matrix)\n{section}"
    );
}
