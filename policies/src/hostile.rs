//! Domain strings that are none, or that look like others, with what they become where a person or a file writes them. On
//! the wire none of them is a name.

const LONG: &str = concat!(
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example"
);

pub(crate) const HOSTS: [(&str, Option<&str>); 36] = [
    ("a\nb.example", None),
    ("a\r\n[[allow]]\r\nhost = evil.example", None),
    ("a\"b.example", None),
    ("a'b.example", None),
    ("a\0b.example", None),
    ("a%00b.example", None),
    ("a%2eb.example", None),
    ("a%b.example", None),
    ("a b.example", None),
    ("a\\b.example", None),
    ("user@a.example", None),
    ("a\u{202e}b.example", None),
    ("a\u{85}b.example", None),
    ("\u{212a}elvin.example", Some("kelvin.example")),
    ("\u{130}stanbul.example", Some("xn--istanbul-o0e.example")),
    ("api\u{ff0e}example\u{ff0e}com", Some("api.example.com")),
    ("api\u{3002}example\u{ff61}com", Some("api.example.com")),
    ("169\u{3002}254\u{ff0e}169.254", None),
    (LONG, None),
    ("1.2.3.4", None),
    ("1.2.3.4.", None),
    ("0177.0.0.1", None),
    ("0x7f.0.0.1", None),
    ("0x7f000001", None),
    ("017700000001", None),
    ("2130706433", None),
    ("127.1", None),
    ("[::1]", None),
    ("fe80::1%eth0", None),
    ("[fe80::1%eth0]", None),
    ("[fe80::1%25eth0]", None),
    ("[::ffff:169.254.169.254]", None),
    ("::ffff:169.254.169.254", None),
    (".", None),
    ("a..b", None),
    (".a.example", None),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ceiling, HostPattern, Policy};

    fn exact(name: &str) -> Vec<HostPattern> {
        vec![HostPattern::Exact(name.parse().unwrap())]
    }

    fn printable(text: &str) -> bool {
        !text.contains(|c: char| c.is_control() || c == '\u{202e}')
    }

    #[test]
    fn in_a_policy_each_is_an_error_with_its_place_or_its_name() {
        for (host, name) in HOSTS {
            for effect in ["allow", "deny"] {
                let quoted = serde_json::to_string(host).unwrap();
                let parsed = Policy::parse("p", "p.toml", &format!("[[{effect}]]\nhost = {quoted}\n"));
                let found = parsed.as_ref().map(|policy| policy.rules()[0].hosts.clone());
                match name {
                    Some(name) => assert_eq!(found.unwrap(), exact(name), "{host:?}"),
                    None => {
                        let error = found.unwrap_err().to_string();
                        assert!(error.starts_with("p.toml:2:8: `host`: ") && printable(&error), "{error:?}");
                    }
                }
            }
        }
    }

    /// Whose items white space and commas separate: a line break makes two of them, and no other rule.
    #[test]
    fn in_the_annotation_each_is_an_error_or_its_name() {
        for (host, name) in HOSTS {
            for text in [host.to_owned(), format!("{host}:8443"), format!("b.example,{host}")] {
                let found = Policy::from_allow_annotation(&text);
                match (found, name) {
                    (Ok(policy), Some(name)) => {
                        let hosts = &policy.rules().last().unwrap().hosts;
                        assert_eq!(*hosts, exact(name), "{text:?}");
                    }
                    (Ok(policy), None) => {
                        assert!(host.contains(char::is_whitespace), "{text:?}");
                        let hosts = policy.rules().iter().flat_map(|rule| &rule.hosts);
                        let mut items = text.split(|c: char| c == ',' || c.is_whitespace());
                        assert!(
                            hosts.eq(items
                                .by_ref()
                                .map(|item| exact(item.trim_end_matches(":8443")))
                                .collect::<Vec<_>>()
                                .iter()
                                .flatten())
                        );
                    }
                    (Err(error), None) => assert!(printable(&error.to_string()), "{:?}", error.to_string()),
                    (Err(error), Some(_)) => panic!("{text:?}: {error}"),
                }
            }
        }
    }

    #[test]
    fn in_a_ceiling_each_is_an_error_or_its_name() {
        for (host, name) in HOSTS {
            let quoted = serde_json::to_string(host).unwrap();
            for key in ["hosts", "deny", "annotations.allow-hosts"] {
                let parsed = Ceiling::parse("managed", "/m.toml", &format!("{key} = {quoted}\n"), &[]);
                assert_eq!(parsed.is_ok(), name.is_some(), "{key} {host:?}");
                let error = parsed.err().map(|error| error.to_string()).unwrap_or_default();
                assert!(printable(&error), "{error:?}");
            }
        }
    }
}
