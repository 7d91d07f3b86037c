//! The policies that are compiled in. Their names are reserved: no file can change what they mean.

use crate::annotation::{NAME, OPERATOR};
use crate::{Effect, HostPattern, Policy, Ports, Rule};

/// Allows nothing.
pub const LOCKED: &str = "locked";

/// Allows what the container's harness needs in order to work, as its descriptor says.
pub const HARNESS_ONLY: &str = "harness-only";
/// Hosts that a provider named in an answer.
pub const NAMED: &str = "named";

/// Reading at GitHub, and pushing and pull requests of the repositories that the policy which extends it names.
pub const GITHUB_PR: &str = "github-pr";

/// Those that are written as any other.
pub const FILES: [(&str, &str); 3] = [
    (LOCKED, include_str!("../data/locked.toml")),
    ("git-hosts", include_str!("../data/git-hosts.toml")),
    ("open", include_str!("../data/open.toml")),
];

/// Whether a file must not be named like this: as one that is built in, or one that is made of an annotation or of decisions,
/// to which the names of a ceiling do not apply.
pub fn is_reserved(name: &str) -> bool {
    matches!(name, HARNESS_ONLY | NAMED | GITHUB_PR | OPERATOR | NAME)
        || FILES.iter().any(|(file, _)| *file == name)
}

/// Those that a container can name, but for `harness-only`.
pub fn named() -> impl Iterator<Item = Policy> {
    let parse = |(name, text): (&str, &str)| {
        let file = format!("built-in {name}");
        Policy::parse(name, &file, text).unwrap_or_else(|error| Policy::failed(name, error.to_string()))
    };
    FILES.into_iter().map(parse).chain([github_pr(&[])])
}

/// `repositories` are `owner/name`, with stars as in paths.
pub fn github_pr(repositories: &[String]) -> Policy {
    if repositories.is_empty() {
        let error = "it needs repositories: write a policy with extends = [\"github-pr\"] and repos = [\"owner/name\"]";
        return Policy::failed(GITHUB_PR, error);
    }
    let list = |of: &dyn Fn(&str) -> String| {
        let items: Vec<String> = repositories
            .iter()
            .map(|name| format!("{:?}", of(name.strip_suffix(".git").unwrap_or(name))))
            .collect();
        items.join(", ")
    };
    let all = list(&|name| format!("/repos/{name}/**"));
    let pulls = list(&|name| format!("/repos/{name}/pulls/**"));
    let comments = list(&|name| format!("/repos/{name}/issues/*/comments"));
    let text = format!(
        "[[allow]]\nhost = \"github.com\"\ngit = \"read\"\n\
         [[allow]]\nhost = \"github-cloud.githubusercontent.com\"\nmethods = \"GET\"\npaths = \"/alambic/media/**\"\n\
         [[allow]]\nhost = \"github.com\"\ngit = \"write\"\nrepos = [{}]\n\
         [[allow]]\nhost = \"api.github.com\"\nmethods = \"GET\"\npaths = [{all}]\n\
         [[allow]]\nhost = \"api.github.com\"\nmethods = [\"POST\", \"PATCH\", \"PUT\"]\npaths = [{pulls}, {comments}]\n",
        list(&str::to_owned),
    );
    let file = format!("built-in {GITHUB_PR}");
    Policy::parse(GITHUB_PR, &file, &text).unwrap_or_else(|error| Policy::failed(GITHUB_PR, error.message))
}

/// `hosts` of the descriptor of `harness`, on port 443.
pub fn harness_only(harness: &str, hosts: impl IntoIterator<Item = HostPattern>) -> Policy {
    let hosts: Vec<_> = hosts.into_iter().collect();
    let rules = (!hosts.is_empty())
        .then(|| Rule::new(Effect::Allow, hosts, Ports::These(vec![443]), format!("harness {harness}")));
    Policy::new(HARNESS_ONLY, rules.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{PolicySet, Request, Verdict};

    #[test]
    fn harness_only_allows_the_hosts_of_the_harness_and_locked_none() {
        let api = "api.example.com".parse().unwrap();
        let set = PolicySet::combine(vec![Arc::new(harness_only("h", [HostPattern::Exact(api)]))]);
        let host = "api.example.com".parse().unwrap();
        assert_eq!(
            set.decide(&host, 443),
            Verdict::Allowed { rule: "harness h".into(), given: crate::Given::default() }
        );
        assert_eq!(set.decide(&host, 80), Verdict::NoPort { ports: vec![443] });
        let none = [named().find(|policy| policy.name() == LOCKED).unwrap(), harness_only("generic", [])];
        for policy in none {
            assert_eq!(PolicySet::combine(vec![Arc::new(policy)]).decide(&host, 443), Verdict::NoHost);
        }
    }
    fn allows(policy: &Policy, method: &str, host: &str, target: &str) -> bool {
        let set = PolicySet::combine(vec![Arc::new(policy.clone())]);
        let host = host.parse().unwrap();
        matches!(set.decide_request(&Request::new(&host, 443, method, target)), Verdict::Allowed { .. })
    }

    #[test]
    fn every_built_in_policy_is_well_formed_and_its_name_reserved() {
        for policy in named().chain([github_pr(&["o/r".to_owned()])]) {
            assert!(is_reserved(policy.name()));
            assert_eq!(policy.error().is_some(), policy.name() == GITHUB_PR && policy.rules().is_empty());
            assert!(policy.warnings().is_empty(), "{:?}", policy.warnings());
        }
    }

    #[test]
    fn git_hosts_fetches_from_forges_and_pushes_nowhere() {
        let policy = named().find(|policy| policy.name() == "git-hosts").unwrap();
        for host in ["github.com", "gitlab.com", "codeberg.org", "bitbucket.org"] {
            assert!(allows(&policy, "GET", host, "/o/r.git/info/refs?service=git-upload-pack"), "{host}");
            assert!(allows(&policy, "POST", host, "/group/sub/r.git/git-upload-pack"), "{host}");
            assert!(!allows(&policy, "POST", host, "/o/r.git/git-receive-pack"), "{host}");
            assert!(!allows(&policy, "GET", host, "/o/r"), "{host}");
            assert!(allows(&policy, "POST", host, "/o/r.git/info/lfs/objects/batch"), "{host}");
            assert!(!allows(&policy, "PUT", host, "/o/r.git/info/lfs/objects/0123abcd/7"), "{host}");
        }
        assert!(allows(&policy, "GET", "codeberg.org", "/o/r.git/info/lfs/objects/0123abcd"));
        assert!(allows(&policy, "GET", "gitlab.com", "/group/sub/r.git/gitlab-lfs/objects/0123abcd"));
        lfs_of_github_is_fetched_only(&policy);
    }

    /// Whoever may push somewhere at GitHub can have an upload signed, and give it to an agent that is to send what it has read.
    fn lfs_of_github_is_fetched_only(policy: &Policy) {
        let object = "/alambic/media/7/01/23/0123abcd?X-Amz-Signature=f00";
        for (method, host, target, expected) in [
            ("GET", "github-cloud.githubusercontent.com", object, true),
            ("GET", "github-cloud.githubusercontent.com", "/other", false),
            ("PUT", "github-cloud.githubusercontent.com", object, false),
            ("PUT", "github-cloud.s3.amazonaws.com", object, false),
            ("POST", "lfs.github.com", "/o/r/objects/0123abcd/verify", false),
        ] {
            assert_eq!(allows(policy, method, host, target), expected, "{method} {host}{target}");
        }
    }

    #[test]
    fn github_pr_pushes_to_the_repositories_that_are_named_and_to_no_other() {
        let policy = github_pr(&["me/project.git".to_owned(), "team/*".to_owned()]);
        for (method, host, target, expected) in [
            ("POST", "github.com", "/anybody/anything.git/git-upload-pack", true),
            ("POST", "github.com", "/me/project.git/git-receive-pack", true),
            ("POST", "github.com", "/team/x/git-receive-pack", true),
            ("POST", "github.com", "/me/other.git/git-receive-pack", false),
            ("GET", "api.github.com", "/repos/me/project/pulls/1", true),
            ("POST", "api.github.com", "/repos/me/project/pulls", true),
            ("POST", "api.github.com", "/repos/team/x/issues/1/comments", true),
            ("POST", "api.github.com", "/repos/me/project/keys", false),
            ("DELETE", "api.github.com", "/repos/me/project/pulls", false),
            ("POST", "api.github.com", "/repos/me/other/pulls", false),
            ("POST", "api.github.com", "/gists", false),
            ("POST", "api.github.com", "/graphql", false),
        ] {
            assert_eq!(allows(&policy, method, host, target), expected, "{method} {host}{target}");
        }
        lfs_of_github_is_fetched_only(&policy);
        assert!(github_pr(&["../x".to_owned()]).error().is_some());
    }
}
