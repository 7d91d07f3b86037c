//! Domain strings that are none, or that look like others, with what they become where a person or a file writes them. On
//! the wire none of them is a name.

const LONG: &str = concat!(
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example"
);

const CHARACTER: &str = "host name with a character that no host name has";
const LABEL: &str = "host name with an empty label or one of more than 63 characters";
const ADDRESS: &str = "an address, which no rule is about; give it a name below `[names]` of sidecar.toml, and write that name here";

/// What each is, or what is said of it.
pub(crate) const HOSTS: [(&str, Result<&str, &str>); 39] = [
    ("a\nb.example", Err(CHARACTER)),
    ("a\r\n[[allow]]\r\nhost = evil.example", Err(CHARACTER)),
    ("a\"b.example", Err(CHARACTER)),
    ("a'b.example", Err(CHARACTER)),
    ("a\0b.example", Err(CHARACTER)),
    ("a%00b.example", Err(CHARACTER)),
    ("a%2eb.example", Err(CHARACTER)),
    ("a%b.example", Err(CHARACTER)),
    ("a b.example", Err(CHARACTER)),
    ("a\\b.example", Err(CHARACTER)),
    ("user@a.example", Err(CHARACTER)),
    ("a\u{202e}b.example", Err(CHARACTER)),
    ("a\u{85}b.example", Err(CHARACTER)),
    ("\u{212a}elvin.example", Ok("kelvin.example")),
    ("\u{130}stanbul.example", Ok("xn--istanbul-o0e.example")),
    ("api\u{ff0e}example\u{ff0e}com", Ok("api.example.com")),
    ("api\u{3002}example\u{ff61}com", Ok("api.example.com")),
    ("169\u{3002}254\u{ff0e}169.254", Err(ADDRESS)),
    (LONG, Err("host name of more than 253 characters")),
    ("1.2.3.4", Err(ADDRESS)),
    ("1.2.3.4.", Err(ADDRESS)),
    ("0177.0.0.1", Err(ADDRESS)),
    ("0x7f.0.0.1", Err(ADDRESS)),
    ("0x7f000001", Err(ADDRESS)),
    ("017700000001", Err(ADDRESS)),
    ("2130706433", Err(ADDRESS)),
    ("127.1", Err(ADDRESS)),
    ("[::1]", Err(ADDRESS)),
    ("fe80::1%eth0", Err(ADDRESS)),
    ("[fe80::1%eth0]", Err(ADDRESS)),
    ("[fe80::1%25eth0]", Err(ADDRESS)),
    ("[::ffff:169.254.169.254]", Err(ADDRESS)),
    ("::ffff:169.254.169.254", Err(ADDRESS)),
    (".", Err("empty host name")),
    ("a..b", Err(LABEL)),
    (".a.example", Err(LABEL)),
    ("fe80::1", Err(ADDRESS)),
    ("[::1]:443", Err(ADDRESS)),
    ("10.0.0.1:443", Err(ADDRESS)),
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
                    Ok(name) => assert_eq!(found.unwrap(), exact(name), "{host:?}"),
                    Err(said) => {
                        let error = found.unwrap_err().to_string();
                        assert_eq!(error, format!("p.toml:2:8: `host`: {host:?}: {said}"));
                        assert!(printable(&error), "{error:?}");
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
                    (Ok(policy), Ok(name)) => {
                        let hosts = &policy.rules().last().unwrap().hosts;
                        assert_eq!(*hosts, exact(name), "{text:?}");
                    }
                    (Ok(policy), Err(_)) => {
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
                    (Err(error), Err(said)) => {
                        let error = error.to_string();
                        assert!(printable(&error), "{error:?}");
                        let whole = error.starts_with("annotation understudy.allow: \"")
                            && error.ends_with(&format!("\": {said}"));
                        assert!(whole || host.contains(char::is_whitespace), "{error}");
                    }
                    (Err(error), Ok(_)) => panic!("{text:?}: {error}"),
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
                assert_eq!(parsed.is_ok(), name.is_ok(), "{key} {host:?}");
                let error = parsed.err().map(|error| error.to_string()).unwrap_or_default();
                assert!(printable(&error), "{error:?}");
            }
        }
    }
}
