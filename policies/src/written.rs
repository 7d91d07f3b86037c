//! Every key of the language, for properties: over few hosts, ports, methods and paths, so that rules meet.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// One rule, as it stands in a file.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) is_allow: bool,
    host: String,
    port: Option<&'static str>,
    rest: String,
}

impl Written {
    pub(crate) fn text(&self) -> String {
        let port = self.port.map(|port| format!("port = {port}\n")).unwrap_or_default();
        let effect = if self.is_allow { "allow" } else { "deny" };
        format!("[[{effect}]]\nhost = {}\n{port}{}", self.host, self.rest)
    }

    pub(crate) fn inspects(&self) -> bool {
        self.rest.contains("inspect = true\n")
    }

    /// The same about one host and port.
    pub(crate) fn about(&self, host: &str, port: &'static str) -> Self {
        Self { host: format!("{host:?}"), port: Some(port), ..self.clone() }
    }
}

/// A rule of either kind.
pub(crate) fn rule() -> BoxedStrategy<Written> {
    prop_oneof![3 => allowance(), 2 => denial()].boxed()
}

pub(crate) fn allowance() -> BoxedStrategy<Written> {
    let seen = (prop_oneof![3 => asked(Just("query = []\n")), 1 => git()], terms(), upgrade(), inspect());
    let seen = seen.prop_map(|(asked, terms, upgrade, inspect)| asked + &terms + &upgrade + inspect);
    let session = select(vec!["postgres = true\n", "postgres = true\ndatabases = [\"d\", \"e\"]\n"]);
    let session = (session, unseen_terms()).prop_map(|(what, terms)| what.to_owned() + &terms);
    let unseen = prop_oneof![1 => spliced(), 1 => session];
    let rule = (hosts(), ports(), prop_oneof![2 => seen, 1 => unseen], note());
    let rule =
        rule.prop_map(|(host, port, rest, note)| Written { is_allow: true, host, port, rest: rest + note });
    prop_oneof![5 => rule, 1 => raw()].boxed()
}

/// One that allows every request there.
pub(crate) fn for_all() -> BoxedStrategy<Written> {
    let said = prop_oneof![3 => (terms(), upgrade(), inspect()).prop_map(|(terms, upgrade, inspect)| terms + &upgrade + inspect), 1 => spliced()];
    (hosts(), ports(), said, note())
        .prop_map(|(host, port, rest, note)| Written { is_allow: true, host, port, rest: rest + note })
        .boxed()
}

pub(crate) fn splicing() -> BoxedStrategy<Written> {
    (hosts(), ports(), spliced())
        .prop_map(|(host, port, rest)| Written { is_allow: true, host, port, rest })
        .boxed()
}

fn spliced() -> impl Strategy<Value = String> {
    unseen_terms().prop_map(|terms| format!("splice = true\n{terms}"))
}

fn raw() -> impl Strategy<Value = Written> {
    (hosts(), ports(), unseen_terms(), note()).prop_map(|(host, port, terms, note)| {
        let rest = format!("tcp = true\n{terms}{note}");
        Written { is_allow: true, host, port: port.or(Some("443")), rest }
    })
}

pub(crate) fn denial() -> BoxedStrategy<Written> {
    let rest = prop_oneof![4 => asked(Just("query = \"k\"\n")), 1 => git()];
    let rule = (hosts(), ports(), rest, note());
    rule.prop_map(|(host, port, rest, note)| Written { is_allow: false, host, port, rest: rest + note })
        .boxed()
}

fn hosts() -> impl Strategy<Value = String> {
    let some = vec!["a.x", "*.a.x", "b.x", "*.b.x", "A.X.", "c.a.x"];
    prop_oneof![
        3 => select(some.clone()).prop_map(|host| format!("{host:?}")),
        1 => subsequence(some, 1..4).prop_map(|hosts| format!("{hosts:?}")),
    ]
}

fn ports() -> impl Strategy<Value = Option<&'static str>> {
    select(vec![
        None,
        None,
        Some("443"),
        Some("444"),
        Some("5432"),
        Some("[444, 443]"),
        Some("[22, 443, 5432]"),
    ])
}

/// `none` is what an effect has of queries beside what both have.
fn asked(none: impl Strategy<Value = &'static str>) -> impl Strategy<Value = String> {
    let methods = select(vec!["", "", "methods = \"GET\"\n", "methods = [\"POST\", \"PUT\"]\n"]);
    let paths = select(vec![
        "",
        "",
        "paths = \"/a\"\n",
        "paths = \"/**\"\n",
        "paths = [\"/a/**\", \"/*\"]\n",
        "paths = \"/%61\"\n",
    ]);
    let query = prop_oneof![3 => Just(""), 1 => select(vec!["query = \"k\"\n", "query = [\"l\", \"k\"]\n"]), 1 => none];
    (methods, paths, query).prop_map(|(methods, paths, query)| [methods, paths, query].concat())
}

fn git() -> impl Strategy<Value = String> {
    let repos = select(vec!["", "repos = \"o/r\"\n", "repos = [\"o/*\", \"p/r.git\"]\n"]);
    (select(vec!["git = \"read\"\n", "git = \"write\"\n"]), repos)
        .prop_map(|(git, repos)| git.to_owned() + repos)
}

fn terms() -> impl Strategy<Value = String> {
    let max_body = select(vec![
        "",
        "",
        "max-body = 0\n",
        "max-body = 4096\n",
        "max-body = \"1K\"\n",
        "max-body = \"10M\"\n",
    ]);
    (unseen_terms(), max_body).prop_map(|(terms, max_body)| terms + max_body)
}

/// What may be said of what nobody sees, too.
fn unseen_terms() -> impl Strategy<Value = String> {
    let private = select(vec!["", "", "private = true\n", "private = false\n"]);
    let rate = select(vec!["", "", "rate = \"1/s\"\n", "rate = \"60/m\"\n", "rate = \"1/h\"\n"]);
    (private, rate).prop_map(|(private, rate)| [private, rate].concat())
}

fn upgrade() -> impl Strategy<Value = String> {
    select(vec!["", "", "", "upgrade = \"tcp\"\n", "upgrade = [\"SPDY/3.1\", \"TCP\"]\n"])
        .prop_map(str::to_owned)
}

fn inspect() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "inspect = true\n"])
}

fn note() -> impl Strategy<Value = &'static str> {
    select(vec!["", "", "note = \"why\"\n", "note = \"a \\\"quoted\\\" one\"\n"])
}

/// What stands before the rules of a file.
pub(crate) fn head() -> impl Strategy<Value = String> {
    let open = prop_oneof![6 => Just(""), 1 => Just("open = true\n"), 1 => Just("open = false\n")];
    let requests = select(vec!["", "", "max-requests = 10\n", "max-requests = 7\n"]);
    let bytes = select(vec!["", "", "max-bytes = \"2G\"\n", "max-bytes = 4096\n"]);
    let runtime = select(vec!["", "", "max-runtime = \"8h\"\n", "max-runtime = \"30s\"\n"]);
    (open, requests, bytes, runtime)
        .prop_map(|(open, requests, bytes, runtime)| [open, requests, bytes, runtime].concat())
}

/// Whole files, some of which say nothing.
pub(crate) fn files() -> impl Strategy<Value = Vec<String>> {
    let file = (head(), proptest::collection::vec(rule(), 0..5));
    let file = file.prop_map(|(head, rules)| head + &rules.iter().map(Written::text).collect::<String>());
    proptest::collection::vec(file, 1..4)
}
