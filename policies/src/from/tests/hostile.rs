//! Files of a project that somebody hostile wrote, kind by kind.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, mknodat};

use super::super::*;
use crate::hostile::HOSTS;
use crate::{HostPattern, Policy};

/// A file of each format that has a string in it as any other text, with escapes.
fn quoted(url: &str) -> Vec<(&'static str, String)> {
    let url = serde_json::to_string(url).unwrap();
    vec![
        ("package-lock.json", format!("{{\"resolved\": {url}}}")),
        ("Pipfile.lock", format!("{{\"url\": {url}}}")),
        ("Pipfile", format!("[[source]]\nurl = {url}")),
        (
            "poetry.lock",
            format!("[[package]]\nname = \"a\"\n[package.source]\ntype = \"legacy\"\nurl = {url}"),
        ),
        ("pyproject.toml", format!("[[tool.uv.index]]\nurl = {url}")),
        ("uv.toml", format!("index-url = {url}")),
        ("uv.lock", format!("[[package]]\nsource = {{ registry = {url} }}")),
        ("Cargo.lock", format!("[[package]]\nsource = {url}")),
        (".cargo/config.toml", format!("[registries.x]\nindex = {url}")),
    ]
}

/// And of each that takes it as it is.
fn bare(url: &str) -> Vec<(&'static str, String)> {
    vec![
        (".npmrc", format!("registry={url}\n")),
        ("yarn.lock", format!("a@1:\n  resolved \"{url}\"\n")),
        (".yarnrc", format!("registry \"{url}\"\n")),
        (".yarnrc.yml", format!("npmRegistryServer: \"{url}\"\n")),
        ("pnpm-lock.yaml", format!("  a@1:\n    resolution: {{tarball: {url}}}\n")),
        ("pip.conf", format!("[global]\nindex-url = {url}\n")),
        ("requirements.txt", format!("--index-url {url}\n")),
        (".env", format!("PIP_INDEX_URL={url}\n")),
    ]
}

fn policy(text: &str) -> Policy {
    Policy::parse("p", "p.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn hosts(policy: &Policy) -> BTreeSet<String> {
    let hosts = policy.rules().iter().flat_map(|rule| &rule.hosts);
    hosts
        .map(|host| match host {
            HostPattern::Exact(name) => name.to_string(),
            _ => panic!("no file names a wildcard"),
        })
        .collect()
}

#[test]
fn hosts_that_are_none_or_look_like_others_are_refused_or_what_browsers_make_of_them() {
    let more = ["good.example\\@evil.example", "*.example.com", "*", ""].map(|host| (host, Err("")));
    for (host, name) in HOSTS.into_iter().chain(more) {
        // Who is asked is what stands behind the user.
        let host = host.strip_prefix("user@").map_or(host, |_| "[::1]");
        let url = format!("https://{host}/p/x.tgz");
        let plain = !host.contains(['\n', '\r', '\u{85}', '"', '\'', '\0', ' ', '\\']);
        for (file, text) in quoted(&url).into_iter().chain(if plain { bare(&url) } else { Vec::new() }) {
            let proposal = propose_from(file, text.as_bytes());
            let found = hosts(&policy(&proposal.text));
            assert_eq!(found, name.ok().map(str::to_owned).into_iter().collect(), "{host:?} in {file}");
            assert_eq!(proposal.problems.is_empty(), name.is_ok(), "{host:?} in {file}: {proposal:?}");
            let odd = |c: char| c != '\n' && !(c == ' ' || c.is_ascii_graphic());
            assert!(!proposal.text.contains(odd), "{host:?} in {file}: {:?}", proposal.text);
        }
    }
    // A module is a host and a path.
    for module in [
        "nodot",
        "nodot/x",
        "a.example/../x",
        "1.2.3.4/x",
        "a%2eb/x",
        "a\"b/x",
        "*.example/x",
        "[::1]/x",
        "a\u{ff0e}b/x",
    ] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("go.sum"), format!("{module} v1 h1:x=\n")).unwrap();
        std::fs::write(directory.path().join(".env"), "GOPROXY=direct\n").unwrap();
        let proposal = propose(directory.path(), Paths::Short).unwrap();
        assert!(hosts(&policy(&proposal.text)).is_empty(), "{module}: {}", proposal.text);
        assert_eq!(proposal.problems.len(), 1, "{module}: {proposal:?}");
    }
}

#[test]
fn no_credential_of_a_url_is_printed_and_one_is_said() {
    for (url, named) in [
        ("https://user:hunter2@a.example/p/x.tgz", true),
        ("https://hunter2@a.example/p/x.tgz", true),
        ("https://user:hun:hunter2@ter@a.example/p/x.tgz", true),
        ("https://user:hunter2@a.example:8443/p/x.tgz", true),
        ("git+https://hunter2:x-oauth-basic@a.example/o/n.git", true),
        ("https://user:hunter2@a.example:99999/p", false),
        ("https://user:hunter2@[::1]/p", false),
        ("https://user:hunter2@/p", false),
        ("https://user:hunter2@a.example/../p", false),
        ("https://user:hunter2/p@a.example/", false),
        ("ssh://user:hunter2@a.example/p", false),
        ("ftp://user:hunter2@a.example/p", false),
        ("https://user:hunter2@${HOST}/p", false),
    ] {
        for (file, text) in quoted(url).into_iter().chain(bare(url)) {
            let proposal = propose_from(file, text.as_bytes());
            let expected = if named { BTreeSet::from(["a.example".to_owned()]) } else { BTreeSet::new() };
            assert_eq!(hosts(&policy(&proposal.text)), expected, "{url} in {file}");
            assert!(!format!("{proposal:?}").contains("hunter2"), "{url} in {file}: {proposal:?}");
            assert!(!proposal.problems.is_empty(), "{url} in {file}");
        }
    }
    for url in ["https://a.example/p/x.tgz?token=hunter2&b", "https://a.example/p/x.tgz#hunter2"] {
        for (file, text) in quoted(url) {
            let proposal = propose_from(file, text.as_bytes());
            assert!(!format!("{proposal:?}").contains("hunter2"), "{url} in {file}: {proposal:?}");
        }
    }
    for (file, text) in [
        (".npmrc", "//a.example/:_authToken=hunter2\n_auth = hunter2\nregistry=https://a.example/r/\n"),
        (".env", "API_KEY=hunter2\nPIP_INDEX_URL=hunter2\n"),
        (".yarnrc.yml", "npmAuthToken: hunter2\nnpmRegistryServer: https://a.example\n"),
        (".cargo/config.toml", "[registries.x]\ntoken = \"hunter2\nindex = 1\n"),
        (".cargo/config.toml", "[registries.x]\ntoken = hunter2\n"),
        ("pyproject.toml", "hunter2 = 1\nhunter2 = 2\n"),
        ("package-lock.json", "{\"token\": \"hunter2\", hunter2}"),
        ("Pipfile.lock", "\"hunter2"),
    ] {
        let proposal = propose_from(file, text.as_bytes());
        assert!(!format!("{proposal:?}").contains("hunter2"), "{file}: {proposal:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("go.sum"), "a.example/m v1 h1:x=\n").unwrap();
    let proxy = "GOPROXY=https://user:hunter2@p.example/go|https://user:hunter2@[::1],hunter2,direct\n";
    std::fs::write(directory.path().join(".env"), proxy).unwrap();
    let proposal = propose(directory.path(), Paths::All).unwrap();
    assert!(!format!("{proposal:?}").contains("hunter2"), "{proposal:?}");
    assert!(proposal.problems.iter().any(|problem| problem.contains(".env:1: a user or password")));
}

#[test]
fn what_is_nested_without_end_is_an_error_at_once() {
    for depth in [10_000, 1_000_000] {
        let (open, keys) = ("[".repeat(depth), "a.".repeat(depth));
        for (file, text) in [
            ("package-lock.json", open.clone()),
            ("package-lock.json", "{\"a\":".repeat(depth)),
            ("uv.lock", format!("a = {open}")),
            ("uv.lock", format!("a = {}", "{a = ".repeat(depth))),
            ("poetry.lock", format!("{keys}a = 1")),
            ("Cargo.lock", format!("[{keys}a]")),
            ("pyproject.toml", format!("[[{keys}a]]\nx = \"https://a.example/\"")),
        ] {
            let proposal = propose_from(file, text.as_bytes());
            assert!(
                proposal.problems.iter().any(|problem| problem.contains(":1: not ")),
                "{file}: {:?}",
                proposal.problems
            );
            assert!(policy(&proposal.text).rules().is_empty());
        }
        // JSON that is well-formed is read at any depth.
        let deep = format!("{}\"https://a.example/r/x\"{}", "{\"url\":".repeat(depth), "}".repeat(depth));
        let proposal = propose_from("Pipfile.lock", deep.as_bytes());
        assert_eq!((hosts(&policy(&proposal.text)).len(), proposal.problems.len()), (1, 0));
    }
}

/// 70 keys before each of 400,000 strings, which is more memory than machines have if each string keeps its keys.
#[test]
fn strings_far_below_are_not_kept() {
    let text = format!("{}a = [{}]", "aaaaaaaaaaaaaaaa.".repeat(70), "\"\",".repeat(400_000));
    assert!(toml_values::values(&text).unwrap().is_empty());
    assert_eq!(toml_values::values("a.b.c.d = [\"x\"]").unwrap().len(), 1);
}

/// The page of a module that is a host alone is that host's first page, and not all that it has.
#[test]
fn a_module_without_a_path_does_not_name_its_whole_host() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("go.sum"), "a.example v1 h1:x=\nb.example/m v1 h1:x=\n").unwrap();
    std::fs::write(directory.path().join(".env"), "GOPROXY=direct\n").unwrap();
    let text = propose(directory.path(), Paths::Short).unwrap().text;
    assert!(text.contains("\"/\", # go.sum:1") && text.contains("\"/m/**\", # go.sum:2"), "{text}");
    assert!(!text.contains("\"/**\""), "{text}");
}

/// Modules times proxies is what would be asked.
#[test]
fn many_proxies_of_many_modules_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let modules: String = (0..50_000).map(|n| format!("m{n}.example/x v1 h1:x=\n")).collect();
    let proxies: String = (0..50_000).map(|n| format!("https://p{n}.example,{n},")).collect();
    std::fs::write(directory.path().join("go.sum"), modules).unwrap();
    std::fs::write(directory.path().join(".env"), format!("GOPROXY={proxies}\n")).unwrap();
    let proposal = propose(directory.path(), Paths::Short).unwrap();
    assert!(proposal.problems.iter().any(|problem| problem.contains("more than 8 proxies")));
    assert!(hosts(&policy(&proposal.text)).len() <= 8 && proposal.problems.len() < 200);
}

/// What a few megabytes of modules and a long proxy would make.
#[test]
fn the_paths_of_all_modules_together_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let modules: String = (0..20_000).map(|n| format!("m.example/{n}/abcdefghijkl v1 h1:x=\n")).collect();
    std::fs::write(directory.path().join("go.sum"), modules).unwrap();
    for (segment, length, said) in [
        ("/abcdefghijklmnopqrstuvw", 4000, "URLs of more than 8 MiB"),
        ("/abcdefghijklmnopqrstuvw", 4096, "longer than 4096 bytes"),
        ("/abcdefgh", 4000, "more than 256 segments"),
    ] {
        let proxy = format!("https://p.example{}", segment.repeat(4096 / segment.len()));
        let proxy = proxy.get(..length).unwrap();
        std::fs::write(directory.path().join(".env"), format!("GOPROXY={proxy}\n")).unwrap();
        let proposal = propose(directory.path(), Paths::Short).unwrap();
        let problems = &proposal.problems;
        assert!(problems.iter().any(|problem| problem.contains(said)), "{length}: {problems:?}");
        assert!(proposal.text.len() < 100_000 && policy(&proposal.text).rules().len() <= 1, "{length}");
    }
}

fn special(path: &Path, kind: FileType) {
    // A device of number 0, which anybody may make.
    mknodat(CWD, path, kind, 0o666.into(), 0).unwrap();
}

#[test]
fn nothing_but_files_is_opened_and_no_link_is_followed() {
    let outside = tempfile::tempdir().unwrap();
    let lock = "{\"resolved\": \"https://stolen.example/x/y\"}";
    std::fs::write(outside.path().join("package-lock.json"), lock).unwrap();
    std::fs::create_dir(outside.path().join("sub")).unwrap();
    std::fs::write(outside.path().join("sub/package-lock.json"), lock).unwrap();
    let project = tempfile::tempdir().unwrap();
    let path = |name: &str| project.path().join(name);
    symlink(outside.path(), path("linked")).unwrap();
    symlink("..", path("above")).unwrap();
    symlink("/", path("package-lock.json")).unwrap();
    symlink(".", path(".npmrc")).unwrap();
    symlink("yarn.lock", path("yarn.lock")).unwrap();
    special(&path("Cargo.lock"), FileType::Fifo);
    special(&path("uv.lock"), FileType::CharacterDevice);
    let _socket = std::os::unix::net::UnixListener::bind(path("go.sum")).unwrap();
    std::fs::create_dir(path(".cargo")).unwrap();
    special(&path(".cargo/config.toml"), FileType::Fifo);
    let proposal = propose(project.path(), Paths::Short).unwrap();
    let mut problems = proposal.problems.clone();
    problems.sort();
    assert_eq!(
        problems,
        [
            ".cargo/config.toml: not a regular file",
            ".npmrc: a symbolic link, which is not followed",
            "Cargo.lock: not a regular file",
            "go.sum: not a regular file",
            "package-lock.json: a symbolic link, which is not followed",
            "uv.lock: not a regular file",
            "yarn.lock: a symbolic link, which is not followed",
        ]
    );
    assert!(policy(&proposal.text).rules().is_empty(), "{}", proposal.text);
    assert!(
        proposal.text.contains("# 2 other symbolic links are not followed, the first is above"),
        "{}",
        proposal.text
    );
}

/// Whoever runs it named it, so a link there is followed; what is no directory is an error, and nothing waits for it.
#[test]
fn the_directory_itself_may_be_a_link_and_must_be_a_directory() {
    let project = tempfile::tempdir().unwrap();
    let path = |name: &str| project.path().join(name);
    std::fs::create_dir(path("real")).unwrap();
    std::fs::write(path("real/.npmrc"), "registry=https://a.example/r/\n").unwrap();
    symlink("real", path("link")).unwrap();
    let proposal = propose(&path("link"), Paths::Short).unwrap();
    assert_eq!(hosts(&policy(&proposal.text)).len(), 1);
    special(&path("fifo"), FileType::Fifo);
    special(&path("device"), FileType::CharacterDevice);
    symlink("fifo", path("to-fifo")).unwrap();
    symlink("loop", path("loop")).unwrap();
    for name in ["fifo", "device", "to-fifo", "real/.npmrc", "loop", "none"] {
        assert!(propose(&path(name), Paths::Short).is_err(), "{name}");
    }
}

#[test]
fn thousands_of_files_and_directories_are_read_within_bounds() {
    let project = tempfile::tempdir().unwrap();
    // More directories than a process may have files open.
    for n in 0..1500 {
        let directory = project.path().join(format!("d{n:04}"));
        std::fs::create_dir(&directory).unwrap();
        if n >= 1400 {
            std::fs::write(directory.join(".npmrc"), format!("registry=https://r{n}.example/r/\n")).unwrap();
        }
    }
    let proposal = propose(project.path(), Paths::Short).unwrap();
    assert_eq!(
        (hosts(&policy(&proposal.text)).len(), proposal.problems.len()),
        (100, 0),
        "{:?}",
        proposal.problems
    );
    for n in 0..1400 {
        std::fs::write(project.path().join(format!("d{n:04}/.npmrc")), "registry=https://r.example/r/\n")
            .unwrap();
    }
    let proposal = propose(project.path(), Paths::Short).unwrap();
    assert_eq!(proposal.problems, ["d0500/.npmrc: not read, since 500 files were"]);
    let many = project.path().join("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..50_100 {
        std::fs::File::create(many.join(format!("{n}"))).unwrap();
    }
    let proposal = propose(&many, Paths::Short).unwrap();
    assert_eq!(proposal.problems.len(), 1);
    assert!(proposal.problems[0].starts_with("more than 50000 files"), "{:?}", proposal.problems);
}

#[test]
fn what_all_files_say_is_bounded() {
    assert!(FILES.iter().all(|file| reader(file).is_some()));
    let project = tempfile::tempdir().unwrap();
    for number in 10..27 {
        let directory = project.path().join(format!("d{number}"));
        std::fs::create_dir(&directory).unwrap();
        std::fs::File::create(directory.join("uv.lock")).unwrap().set_len(16 << 20).unwrap();
    }
    let problems = propose(project.path(), Paths::Short).unwrap().problems;
    assert_eq!(problems.len(), 17, "{problems:?}");
    assert!(problems.contains(&"d26/uv.lock: not read, since 256 MiB were".to_owned()), "{problems:?}");
    let line = |number: usize| format!("https://a.example/p{number}/x.whl\n");
    let text: String = (0..100_000).map(line).collect();
    assert!(propose_from("requirements.txt", text.as_bytes()).problems.is_empty());
    let more = text + "https://left.example/x/y.whl\n";
    let proposal = propose_from("requirements.txt", more.as_bytes());
    let said = "requirements.txt: more than 100000 URLs; those after them are left out";
    assert_eq!(proposal.problems, [said]);
    assert!(!proposal.text.contains("left.example"));
}

#[test]
fn names_of_files_stay_in_their_comment() {
    for name in [
        "x\n[[allow]]\nhost = \"evil.example\"\n#",
        "x\r[[allow]]",
        "\"]\nhost = 1",
        "a\u{85}b\u{2028}c\u{2029}d",
        "\u{1b}[2J\u{9b}2J",
        "\u{202e}\u{61c}\u{2066}\u{feff}\u{e0041}\u{ad}",
    ] {
        let project = tempfile::tempdir().unwrap();
        let directory = project.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join(".npmrc"), "registry=https://a.example/r/\nregistry=https://[::1]/\n")
            .unwrap();
        let proposal = propose(project.path(), Paths::Short).unwrap();
        assert_eq!(hosts(&policy(&proposal.text)), BTreeSet::from(["a.example".to_owned()]));
        for text in proposal.problems.iter().chain([&proposal.text]) {
            let plain = |c: char| c == '\n' || c == ' ' || c.is_ascii_graphic();
            assert!(text.chars().all(plain), "{name:?}: {text:?}");
        }
    }
}

/// Text in which every escape that a format knows is undone, for names to be looked for in.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let code = rest.strip_prefix("\\u").and_then(|rest| rest.get(..4));
        let percent = rest.strip_prefix('%').and_then(|rest| rest.get(..2));
        let (c, length) = match (code, percent) {
            (Some(hex), _) => (u32::from_str_radix(hex, 16).ok().and_then(char::from_u32), 6),
            (None, Some(hex)) => (u8::from_str_radix(hex, 16).ok().map(char::from), 3),
            _ => (None, 0),
        };
        match c {
            Some(c) => {
                plain.push(c);
                rest = &rest[length..];
            }
            None => {
                let c = rest.chars().next().unwrap();
                plain.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    plain.to_lowercase()
}

fn of_both(file: &str, bytes: &[u8]) -> [Proposal; 2] {
    [Paths::Short, Paths::All].map(|paths| {
        let mut found = Found::default();
        found.enter(file);
        read_text(&mut found, reader(file).unwrap(), bytes);
        // Modules are asked of a proxy and of their own hosts.
        found.proxy(1, "https://proxy.example/go,direct");
        go::finish(&mut found);
        write::proposal(found, paths)
    })
}

proptest! {
    #[test]
    fn no_bytes_make_what_does_not_parse(
        file in proptest::sample::select(FILES.to_vec()),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        for proposal in of_both(file, &bytes) {
            prop_assert!(Policy::parse("p", "p.toml", &proposal.text).is_ok(), "{}", proposal.text);
        }
    }

    #[test]
    fn no_host_is_allowed_that_the_file_does_not_name(
        file in proptest::sample::select(FILES.to_vec()),
        text in "(https?://|git\\+|sparse\\+|[abk]\\.(example|co\\.uk)|\u{212a}|\\\\u0061|%61|/-/|/o/n\\.git|:8443|user:pw@|[@:/ \n\"'{}\\[\\],=#*]|\
                 resolved |\"resolved\": |resolution: |tarball: |registry ?= ?|url = |index-url = |--index-url |\\[\\[package\\]\\]|source = |require |\
                 npmRegistryServer: | v1 h1:x){0,40}",
    ) {
        for proposal in of_both(file, text.as_bytes()) {
            let policy = Policy::parse("p", "p.toml", &proposal.text);
            prop_assert!(policy.is_ok(), "{}", proposal.text);
            let named = unescaped(&text);
            for host in hosts(&policy.unwrap()) {
                prop_assert!(host == "proxy.example" || named.contains(&host), "{host} in\n{}\nof\n{text}", proposal.text);
            }
        }
    }
}
