//! The process's environment.

use anyhow::Result;
use serde_json::{Map, Value, json};
use understudy_control::EnvironmentVariable;
use understudy_control::guest::{JAVA, TRUST};

use super::list;
use crate::record::fingerprint;

/// The host's, copied by Podman: they would lead around the redirection, and mean nothing inside.
const PROXIES: [&str; 5] = ["http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"];

/// How Java is told of a trust store.
const JAVA_STORE: &str = "-Djavax.net.ssl.trustStore=";

const NOTES: &str = "UNDERSTUDY_NOTES";

pub(super) struct Changed {
    /// What is to be recorded: a fingerprint of every entry.
    pub(super) recorded: Vec<u64>,
    /// What was given to the process, for shells that `podman exec` starts: they get Podman's own configuration.
    pub(super) given: Vec<(String, String)>,
}

/// `notes` grows by what is found here, and is written as the last variable.
pub(super) fn change(
    process: &mut Map<String, Value>,
    given: &[EnvironmentVariable],
    notes: &mut Vec<String>,
) -> Result<Changed> {
    let env = list(process, "env")?;
    env.retain(|entry| {
        let name = name_of(entry);
        name != NOTES
            && !PROXIES.iter().any(|proxy| name.eq_ignore_ascii_case(proxy))
            && !given.iter().any(|variable| variable.name == name)
    });
    env.extend(given.iter().map(|variable| json!(format!("{}={}", variable.name, variable.value))));
    let mut given: Vec<_> =
        given.iter().map(|variable| (variable.name.clone(), variable.value.clone())).collect();
    for (name, value) in TRUST {
        let ours = json!(format!("{name}={value}"));
        if env.contains(&ours) {
            // From a file that `understudy env` printed.
        } else if env.iter().any(|entry| name_of(entry) == name) {
            notes.push(format!("{name} was set already and stays: its clients may not trust the sidecar"));
        } else {
            env.push(ours);
            given.push((name.to_owned(), value.to_owned()));
        }
    }
    add_java(env, notes);
    given.extend(env.iter().filter(|entry| name_of(entry) == JAVA.0).filter_map(|entry| {
        let (name, value) = entry.as_str()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    }));
    if !notes.is_empty() {
        env.push(json!(format!("{NOTES}={}", notes.join("\n").replace('\0', ""))));
    }
    Ok(Changed { recorded: env.iter().filter_map(Value::as_str).map(fingerprint).collect(), given })
}

/// Other options of Java's stay; so does another trust store.
fn add_java(env: &mut Vec<Value>, notes: &mut Vec<String>) {
    let (java, option) = JAVA;
    let set: Vec<_> = env.iter_mut().filter(|entry| name_of(entry) == java).collect();
    if set.is_empty() {
        env.push(json!(format!("{java}={option}")));
        return;
    }
    for entry in set {
        let options =
            entry.as_str().and_then(|entry| entry.split_once('=')).map_or("", |(_, options)| options);
        if options.split(' ').any(|other| other == option) {
            continue;
        } else if options.contains(JAVA_STORE) {
            notes.push(format!(
                "{java} names a trust store already, which stays: Java may not trust the sidecar"
            ));
        } else {
            notes.push(format!("{java} was set already; {option} was added to it"));
            *entry = json!(format!("{java}={options} {option}"));
        }
    }
}

/// Of every variable of this name, in order.
pub(super) fn values(process: &Map<String, Value>, name: &str) -> Vec<String> {
    let env = process.get("env").and_then(Value::as_array);
    let entries = env.into_iter().flatten().filter_map(Value::as_str);
    let values = entries.filter_map(|entry| entry.strip_prefix(name)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

fn name_of(entry: &Value) -> &str {
    let entry = entry.as_str().unwrap_or_default();
    entry.split_once('=').map_or(entry, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(env: Value, given: &[(&str, &str)], notes: &[&str]) -> Vec<String> {
        let mut process = Map::from_iter([("env".to_owned(), env)]);
        let given: Vec<_> = given
            .iter()
            .map(|(name, value)| EnvironmentVariable { name: (*name).into(), value: (*value).into() })
            .collect();
        change(&mut process, &given, &mut notes.iter().map(|note| (*note).to_owned()).collect()).unwrap();
        serde_json::from_value(process["env"].clone()).unwrap()
    }

    #[test]
    fn proxy_variables_go_in_both_cases() {
        let env = changed(
            json!(["HTTP_PROXY=x", "https_proxy=x", "No_Proxy=x", "ALL_PROXY=x", "ftp_proxy=x", "A=1"]),
            &[],
            &[],
        );
        assert!(!env.iter().any(|entry| entry.to_ascii_lowercase().contains("_proxy=")), "{env:?}");
        assert!(env.contains(&"A=1".to_owned()));
    }

    #[test]
    fn what_is_given_replaces_every_variable_of_its_name() {
        let env = changed(json!(["KEY=a", "KEY=b", "KEYS=c", "KEY"]), &[("KEY", "stand-in")], &[]);
        let of_name: Vec<_> = env.iter().filter(|entry| entry.starts_with("KEY")).collect();
        assert_eq!(of_name, ["KEYS=c", "KEY=stand-in"]);
    }

    #[test]
    fn trust_variables_are_set_unless_they_are_and_then_a_note_says_so() {
        let env = changed(json!(["SSL_CERT_FILE=/mine.pem"]), &[], &[]);
        assert!(env.contains(&"SSL_CERT_FILE=/mine.pem".to_owned()));
        assert!(env.contains(&"NODE_EXTRA_CA_CERTS=/run/understudy/ca.crt".to_owned()));
        assert!(env.contains(&"CURL_CA_BUNDLE=/run/understudy/bundle.pem".to_owned()));
        assert!(env.last().unwrap().starts_with("UNDERSTUDY_NOTES=SSL_CERT_FILE was set"), "{env:?}");
    }

    #[test]
    fn what_understudy_env_printed_is_recognised() {
        let own = ["SSL_CERT_FILE=/run/understudy/bundle.pem", "NODE_EXTRA_CA_CERTS=/run/understudy/ca.crt"];
        let java = "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/run/understudy/trust.p12";
        let env = changed(json!([own[0], own[1], java, "KEY=stand-in"]), &[("KEY", "stand-in")], &[]);
        assert!(!env.iter().any(|entry| entry.starts_with(NOTES)), "{env:?}");
        assert_eq!(env.iter().filter(|entry| entry.starts_with("SSL_CERT_FILE")).count(), 1);
    }

    #[test]
    fn java_gets_a_trust_store_beside_its_other_options_unless_it_has_one() {
        let store = "-Djavax.net.ssl.trustStore=/run/understudy/trust.p12";
        assert!(changed(json!([]), &[], &[]).contains(&format!("JAVA_TOOL_OPTIONS={store}")));
        let env = changed(json!(["JAVA_TOOL_OPTIONS=-Xmx1g -ea"]), &[], &[]);
        assert!(env.contains(&format!("JAVA_TOOL_OPTIONS=-Xmx1g -ea {store}")), "{env:?}");
        assert!(env.last().unwrap().contains(&format!("{store} was added")), "{env:?}");
        let own = "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=/mine";
        let env = changed(json!([own]), &[], &[]);
        assert!(env.contains(&own.to_owned()) && env.last().unwrap().contains("which stays"), "{env:?}");
    }

    #[test]
    fn without_notes_there_is_no_variable_for_them_and_a_forged_one_goes() {
        let env = changed(json!(["UNDERSTUDY_NOTES=all is permitted"]), &[], &[]);
        assert!(!env.iter().any(|entry| entry.starts_with(NOTES)));
        assert!(changed(json!(null), &[], &["one", "two"]).contains(&"UNDERSTUDY_NOTES=one\ntwo".to_owned()));
    }
}
