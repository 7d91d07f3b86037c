//! What an operator writes as a host, at each command.

use crate::Sidecar;

const REFUSED: [&str; 25] = [
    "a\nb.example",
    "a\r\n[[allow]]",
    "a\"b.example",
    "a%00b.example",
    "a%2eb.example",
    "a b.example",
    "a\\b.example",
    "user@a.example",
    "a\u{202e}b.example",
    "1.2.3.4",
    "1.2.3.4.",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "2130706433",
    "127.1",
    "[::1]",
    "fe80::1%eth0",
    "[fe80::1%25eth0]",
    "[::ffff:169.254.169.254]",
    "169\u{3002}254\u{ff0e}169.254",
    "*",
    "*.com",
    "",
    ".",
    "a..b",
];

#[test]
fn what_is_no_name_is_refused_by_each_command_and_look_alikes_become_what_they_are() {
    let mut sidecar = Sidecar::new();
    sidecar.start(&[]);
    let long = format!("{}.example", "a".repeat(300));
    for host in REFUSED.into_iter().chain([long.as_str()]) {
        for command in ["allow", "deny"] {
            let output =
                sidecar.program(command, &["control"]).args(["--always", "--", host]).output().unwrap();
            assert!(!output.status.success(), "{command} {host:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            let odd = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!said.contains(odd) && !said.is_empty(), "{command} {host:?}: {said:?}");
        }
        for url in [host.to_owned(), format!("https://{host}/x")] {
            let mut explain = sidecar.program("explain", &["config"]);
            let output = explain.args(["--policy", "locked", "--", &url]).output().unwrap();
            // 2 is a refusal of what it understood.
            assert_eq!(output.status.code(), Some(1), "{url:?}: {output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(
                !said.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'),
                "{url:?}: {said:?}"
            );
        }
    }
    for (host, name) in [
        ("\u{212a}elvin.example", "kelvin.example"),
        ("\u{130}stanbul.example", "xn--istanbul-o0e.example"),
        ("api\u{ff0e}example\u{ff0e}com", "api.example.com"),
        ("API.Example.ORG.", "api.example.org"),
    ] {
        assert!(
            sidecar.told(&["allow", "--always", "--", host]).contains(&format!(" allow {name}:443 ")),
            "{host:?}"
        );
        for url in [host.to_owned(), format!("https://{host}:8443/x")] {
            let output =
                sidecar.program("explain", &["config"]).args(["--policy", "locked", "--", &url]).output();
            let output = output.unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(2), "{url:?}: {text}");
            assert!(text.starts_with(&format!("GET {name}:")), "{url:?}: {text}");
        }
    }
    assert_eq!(sidecar.told(&["status"]).matches("decision: ").count(), 4);
}
