//! `--json`: one document of one form for each command, with the exit status and the standard error that it has without.

use serde_json::{Value, json};

use super::Sidecar;

/// Files only, or the control socket only.
const FILES: &[&str] = &["config", "state", "control"];
const SOCKET: &[&str] = &["control"];

impl Sidecar {
    /// The exit status, and what was printed; nothing else may have been.
    fn document(&self, words: &[&str], directories: &[&str]) -> (Option<i32>, Value) {
        let output = self.run(words, &["--json"], directories);
        let text = String::from_utf8(output.stdout).unwrap();
        let shape = ["{\n  ", "[\n  ", "[]\n"].iter().any(|start| text.starts_with(start));
        assert!(shape && text.ends_with('\n'), "{words:?}: {text}");
        (
            output.status.code(),
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}")),
        )
    }

    fn run(&self, words: &[&str], switches: &[&str], directories: &[&str]) -> std::process::Output {
        let mut program = self.program_of(words, directories);
        program.args(switches).output().unwrap()
    }
}

fn keys(value: &Value) -> Vec<&str> {
    let object = value.as_object().or_else(|| value.as_array()?.first()?.as_object());
    object.unwrap_or_else(|| panic!("{value}")).keys().map(String::as_str).collect()
}

#[test]
fn what_is_told_is_one_document_and_ends_as_it_does_for_a_person() {
    let mut sidecar = Sidecar::new();
    sidecar.write("config/policies/web.toml", "[[allow]]\nhost = \"a.example\"\n");
    sidecar.write("config/policies/bad.toml", "hots = 1\n");
    sidecar.write("project/package-lock.json", "{\"lockfileVersion\": 3, \"packages\": {\"node_modules/x\": {\"resolved\": \"https://registry.example/x/-/x-1.tgz\"}}}");
    sidecar.write("project/uv.lock", "\0");
    sidecar.start(&[]);
    let project = sidecar.path("project").display().to_string();
    let policy = [
        "built-in",
        "error",
        "max-bytes",
        "max-requests",
        "max-runtime",
        "name",
        "open",
        "rules",
        "text",
        "warnings",
    ];
    let explained = [
        "assumed",
        "container",
        "decision",
        "mode",
        "policy",
        "reason",
        "remedy",
        "request",
        "rule",
        "rules",
    ];
    let checked =
        ["catalogue", "configuration", "good", "harnesses", "policies", "problems", "secrets", "warnings"];
    for (words, directories, code, expected) in [
        (&["check"][..], FILES, 1, &checked[..]),
        (&["policy", "list"], FILES, 0, &["built-in", "error", "name", "open", "rules"]),
        (&["policy", "show", "web"], FILES, 0, &policy),
        (&["policy", "show", "open"], FILES, 0, &policy),
        (&["policy", "diff", "web", "web"], FILES, 0, &["limits", "only-after", "only-before", "same"]),
        (&["policy", "diff", "web", "locked"], FILES, 1, &["limits", "only-after", "only-before", "same"]),
        (&["policy", "from", &project], &[], 1, &["policy", "problems", "rules"]),
        (&["explain", "a.example", "--policy", "web"], FILES, 0, &explained),
        (&["explain", "b.example", "--policy", "web"], FILES, 2, &explained),
        (&["explain", "tcp://b.example:5432", "--policy", "web"], FILES, 2, &explained),
        (&["explain", "git@b.example:org/repo", "--policy", "web"], FILES, 2, &explained),
        (
            &["status"],
            SOCKET,
            0,
            &[
                "authority_ends",
                "containers",
                "decisions",
                "gone",
                "problems",
                "questions",
                "uptime",
                "version",
            ],
        ),
        (&["harness", "list"], FILES, 0, &["description", "error", "logins", "name", "proven"]),
    ] {
        let (status, document) = sidecar.document(words, directories);
        assert_eq!((status, keys(&document)), (Some(code), expected.to_vec()), "{words:?}");
        let (plain, json) =
            (sidecar.run(words, &[], directories), sidecar.run(words, &["--json"], directories));
        assert_eq!(plain.status.code(), Some(code), "{words:?}");
        let errors = |output: std::process::Output| String::from_utf8(output.stderr).unwrap();
        let (plain, json) = (errors(plain), errors(json));
        assert_eq!(plain, json, "{words:?}");
    }
    for words in [&["secrets"][..], &["login", "armed"]] {
        assert_eq!(sidecar.document(words, SOCKET), (Some(0), json!([])), "{words:?}");
    }
    let (_, found) = sidecar.document(&["check"], FILES);
    assert!(found["problems"][0].as_str().unwrap().contains("bad.toml:1:1"), "{found}");
    let (_, from) = sidecar.document(&["policy", "from", &project], &[]);
    assert_eq!(from["rules"][0]["hosts"], json!(["registry.example"]), "{from}");
    assert!(from["problems"][0].as_str().unwrap().contains("uv.lock"), "{from}");
    // An error is no document.
    for (words, directories) in [
        (&["policy", "show", "none"][..], FILES),
        (&["policy", "diff", "web", "bad"], FILES),
        (&["learn", "nobody"], SOCKET),
        (&["withdraw", "9"], SOCKET),
        (&["allow", "a.example", "--once"], SOCKET),
        (&["revoke", "nobody"], SOCKET),
    ] {
        let output = sidecar.run(words, &["--json"], directories);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{words:?}");
        assert!(output.stderr.starts_with(b"understudy: "), "{words:?}");
    }
}

#[test]
fn what_is_changed_is_told_as_one_document() {
    let mut sidecar = Sidecar::new();
    sidecar.start(&[]);
    let decided = |number: u64, effect: &str, host: &str, port: Value| json!({"number": number, "effect": effect, "host": host, "port": port, "container": null, "until": null});
    let allow = sidecar.document(&["allow", "a.example", "--always"], SOCKET);
    assert_eq!(allow, (Some(0), decided(1, "allow", "a.example", 443.into())));
    let deny = sidecar.document(&["deny", "*.b.example", "--always"], SOCKET);
    assert_eq!(deny, (Some(0), decided(2, "deny", "*.b.example", Value::Null)));
    let (_, timed) = sidecar.document(&["allow", "c.example", "--for", "1h"], SOCKET);
    assert!(timed["until"].is_u64(), "{timed}");
    let (_, status) = sidecar.document(&["status"], SOCKET);
    assert_eq!(status["decisions"], json!([allow.1, deny.1, timed]));
    assert_eq!(sidecar.document(&["withdraw", "1"], SOCKET), allow);
    let (_, added) = sidecar.document(&["secrets", "add", "git", "--like", "github-pat"], &["config"]);
    assert_eq!(keys(&added), ["declared-in", "granted-to", "left", "like", "name"]);
    assert!(added["left"].as_str().unwrap().contains("podman secret create git -"), "{added}");
    let (_, kinds) = sidecar.document(&["secrets", "kinds"], &["config"]);
    assert_eq!(keys(&kinds), ["hosts", "kind", "name", "provider", "variable", "what"]);
    let (_, kind) = sidecar.document(&["secrets", "kinds", "github-pat"], &["config"]);
    assert_eq!(kind["name"], "github-pat");
    assert!(sidecar.document(&["secrets", "kinds", "--unconfirmed"], &["config"]).1[0].is_string());
    assert_eq!(sidecar.document(&["withdraw", "--gone"], SOCKET), (Some(0), json!([])));
    assert_eq!(sidecar.document(&["revoke", "--all"], SOCKET), (Some(0), json!({"revoked": []})));
}

#[test]
fn a_configuration_that_cannot_be_read_at_all_is_a_document_too() {
    let sidecar = Sidecar::new();
    sidecar.write("config/sidecar.toml", "resolver = 1");
    let (code, found) = sidecar.document(&["check"], FILES);
    assert_eq!((code, &found["good"]), (Some(1), &false.into()));
    let problem = found["problems"][0].as_str().unwrap();
    assert!(problem.contains("sidecar.toml: TOML parse error at line 1, column 1"), "{problem}");
    assert_eq!(problem.matches("unknown field").count(), 1, "{problem}");
}
