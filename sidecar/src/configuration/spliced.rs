//! Rules that pass TLS through to hosts that secrets are bound to: what is not decrypted cannot be swapped.

use understudy_policies::{HostPattern, Policies, Rule};

use crate::credentials::{Declaration, Vault};

/// One line for each such rule and secret. Until one of them is changed, the host is decrypted.
pub(super) fn problems(policies: &Policies, vault: &Vault) -> Vec<String> {
    let names: Vec<&str> = policies.names().collect();
    let policies: Vec<_> = names.into_iter().filter_map(|name| policies.policy(name)).collect();
    let mut problems = Vec::new();
    for rule in policies.iter().flat_map(|policy| policy.rules()).filter(|rule| rule.splice) {
        for declaration in vault.declarations() {
            let Some(host) = shared(rule, declaration) else { continue };
            problems.push(format!(
                "{}: `splice` of {host}, a host of secret `{}` ({}): what is not decrypted cannot be swapped, so it is \
                 decrypted all the same; take the host out of one of them",
                rule.place, declaration.name, declaration.place
            ));
        }
    }
    problems.sort();
    problems.dedup();
    problems
}

/// The narrower pattern of two that share a host.
fn shared<'r>(rule: &'r Rule, declaration: &'r Declaration) -> Option<&'r HostPattern> {
    rule.hosts.iter().find_map(|spliced| {
        declaration.hosts.iter().find_map(|bound| {
            if bound.covers(spliced) { Some(spliced) } else { spliced.covers(bound).then_some(bound) }
        })
    })
}

#[cfg(test)]
mod tests {
    use understudy_policies::Policy;

    use super::*;
    use crate::credentials::fixture::{Values, declared, vault};

    #[test]
    fn a_host_of_a_secret_is_a_problem_also_below_a_star() {
        let vault = vault(&declared("key", ""), &Values::from([("key", "sk-0123456789abcdefghij")]));
        let of = |host: &str, more: &str| {
            let mut policies = Policies::default();
            let text = format!("[[allow]]\nhost = {host:?}\n{more}");
            policies.insert(Policy::parse("web", "web.toml", &text).unwrap());
            problems(&policies, &vault)
        };
        for (host, named) in [("api.example.com", "api.example.com"), ("*.example.com", "api.example.com")] {
            let [problem] = of(host, "splice = true").try_into().unwrap();
            let said = format!("web.toml:2: `splice` of {named}, a host of secret `key` (secrets.toml:1): ");
            assert!(problem.starts_with(&said), "{problem}");
        }
        assert!(of("api.example.com", "").is_empty());
        assert!(of("other.example.com", "splice = true").is_empty());
    }
}
