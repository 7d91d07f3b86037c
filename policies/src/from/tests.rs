mod hostile;

use std::os::unix::fs::symlink;
use std::sync::Arc;

use super::*;
use crate::{Policy, PolicySet, Request, Verdict};

/// The lines that name something: `host`, `port` and the items of lists, without indentation.
fn named(path: &str, text: &str) -> Vec<String> {
    let proposal = propose_from(path, text.as_bytes());
    let line = |line: &str| line.starts_with("host") || line.starts_with("port") || line.starts_with("    ");
    proposal.text.lines().filter(|text| line(text)).map(|line| line.trim().to_owned()).collect()
}

fn notes(path: &str, text: &str) -> String {
    let proposal = propose_from(path, text.as_bytes());
    proposal.text.lines().filter(|line| line.starts_with("# ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn npm_names_its_registries_and_packages() {
    let lock = r#"{
  "name": "x", "lockfileVersion": 3,
  "packages": {
    "": {"dependencies": {"a": "1"}},
    "node_modules/a": {
      "version": "1.0.0",
      "resolved": "https://npm.example.com/repo/a/-/a-1.0.0.tgz",
      "integrity": "sha512-x"
    },
    "node_modules/@s/b": {
      "resolved": "https://npm.example.com/repo/@s/b/-/b-1.0.0.tgz?cache=0", "integrity": "sha512-x"
    },
    "node_modules/g": {"resolved": "git+https://git.example.net/o/g.git#0123"},
    "node_modules/h": {"resolved": "git+ssh://git@git.example.net/o/h.git#0123"}
  }
}"#;
    assert_eq!(
        named("package-lock.json", lock),
        [
            "host = \"git.example.net\"",
            "\"o/g\", # package-lock.json:13",
            "host = \"npm.example.com\"",
            "\"/repo/@s/b/**\", # package-lock.json:11",
            "\"/repo/a/**\", # package-lock.json:7",
        ]
    );
    assert!(notes("package-lock.json", lock).contains("package-lock.json:14: over SSH"));
    let omitted = "{\"packages\": {\"a\": {\n\"version\": \"1\", \"integrity\": \"sha512-x\"}}}";
    let note = notes("sub/npm-shrinkwrap.json", omitted);
    assert!(
        note.contains("sub/npm-shrinkwrap.json:2: it names no host; what `npm config get registry`"),
        "{note}"
    );
    let old = "{\"dependencies\": {\"a\": {\"version\": \"https://dl.example.com/x/a.tgz\"}}}";
    assert_eq!(named("package-lock.json", old)[0], "host = \"dl.example.com\"");
    let rc = "; c\nregistry = https://npm.example.com:8443/repo/\n@s:registry=\"https://s.example.com\"\n\
              //npm.example.com/:_authToken=secret-token\n";
    let found = named(".npmrc", rc);
    assert_eq!(
        found,
        [
            "host = \"npm.example.com\"",
            "port = 8443",
            "\"/repo/**\", # .npmrc:2",
            "host = \"s.example.com\"",
            "\"/**\", # .npmrc:3"
        ]
    );
    assert!(!propose_from(".npmrc", rc.as_bytes()).text.contains("secret-token"));
    assert!(
        notes(".npmrc", "registry=${REGISTRY}").contains("not an http")
            || notes(".npmrc", "registry=https://${R}/").contains("a variable")
    );
}

#[test]
fn yarn_and_pnpm_name_their_registries() {
    let classic = "# yarn lockfile v1\n\na@^1:\n  version \"1.0.0\"\n  resolved \"https://yarn.example.com/a/-/a-1.0.0.tgz#0f\"\n";
    assert_eq!(named("yarn.lock", classic), ["host = \"yarn.example.com\"", "\"/a/**\", # yarn.lock:5"]);
    let berry = "__metadata:\n  version: 8\n\n\"@s/a@npm:^1\":\n  resolution: \"@s/a@npm:1.0.0\"\n\
                 \"b@npm:1\":\n  resolution: \"b@npm:1.0.0::__archiveUrl=https%3A%2F%2Fdl.example.com%2Fb%2F-%2Fb-1.0.0.tgz\"\n\
                 \"c@x\":\n  resolution: \"c@https://git.example.com/o/c.git#commit=0123\"\n";
    assert_eq!(
        named("yarn.lock", berry),
        [
            "host = \"dl.example.com\"",
            "\"/b/**\", # yarn.lock:7",
            "host = \"git.example.com\"",
            "\"o/c\", # yarn.lock:9"
        ]
    );
    assert!(notes("yarn.lock", berry).contains("yarn.lock:5: it names no host; what `yarn config get"));
    let rc = "npmRegistryServer: \"https://y.example.com/npm\"\nnpmScopes:\n  s:\n    npmRegistryServer: https://z.example.com\n";
    assert_eq!(named(".yarnrc.yml", rc).len(), 4);
    assert_eq!(named(".yarnrc", "registry \"https://y.example.com/\"")[0], "host = \"y.example.com\"");
    let pnpm = "packages:\n  a@1.0.0:\n    resolution: {integrity: sha512-x==}\n  b@1:\n\
                \x20   resolution: {integrity: sha512-y, tarball: https://t.example.com/b/-/b-1.tgz}\n  c@1:\n    resolution:\n\
                \x20     tarball: https://u.example.com/c.tgz\n  d@1:\n\
                \x20   resolution: {commit: 0123, repo: https://git.example.com/o/d.git, type: git}\n";
    assert_eq!(
        named("pnpm-lock.yaml", pnpm),
        [
            "host = \"git.example.com\"",
            "\"o/d\", # pnpm-lock.yaml:10",
            "host = \"t.example.com\"",
            "\"/b/**\", # pnpm-lock.yaml:5",
            "host = \"u.example.com\"",
            "\"/c.tgz\", # pnpm-lock.yaml:8"
        ]
    );
    assert!(
        notes("pnpm-lock.yaml", pnpm).contains("pnpm-lock.yaml:3: it names no host; what `pnpm config get")
    );
}

#[test]
fn python_names_its_indexes() {
    let requirements = "# c\n--index-url https://user:secret@pip.example.com/simple/\nflask==1 # x\n\
                        -e git+https://git.example.com/o/n.git@v1#egg=n\nx @ https://dl.example.com/x/x-1.whl ; python_version > '3'\n";
    assert_eq!(
        named("requirements-dev.txt", requirements),
        [
            "host = \"dl.example.com\"",
            "\"/x/**\", # requirements-dev.txt:5",
            "host = \"git.example.com\"",
            "\"o/n\", # requirements-dev.txt:4",
            "host = \"pip.example.com\"",
            "\"/simple/**\", # requirements-dev.txt:2"
        ]
    );
    let proposal = propose_from("requirements.txt", requirements.as_bytes());
    assert!(
        proposal.problems[0].starts_with("requirements.txt:2: a user or password in a URL"),
        "{proposal:?}"
    );
    assert!(!proposal.text.contains("secret@"), "{}", proposal.text);
    let note = notes("requirements/base.txt", "-r x.txt\nflask\n./local\n");
    assert!(note.contains("requirements/base.txt:2: it names no host; pip asks"), "{note}");
    let conf = "[global]\nindex-url = https://a.example.com/simple\nextra-index-url =\n    https://b.example.com/simple\n    http://c.example.com/simple\n";
    let found = named("pip.conf", conf);
    assert!(found.contains(&"port = 80".to_owned()) && found.len() == 7, "{found:?}");
    let poetry = "[[package]]\nname = \"a\"\n[[package]]\nname = \"b\"\n[package.source]\ntype = \"git\"\nurl = \"https://git.example.com/o/b.git\"\n\
                  [[package]]\nname = \"c\"\n[package.source]\ntype = \"legacy\"\nurl = \"https://p.example.com/simple\"\n";
    assert_eq!(named("poetry.lock", poetry).len(), 4);
    assert!(
        notes("poetry.lock", poetry).contains("poetry.lock:2: it names no host; what `poetry source show`")
    );
    let project = "[[tool.poetry.source]]\nname = \"p\"\nurl = \"https://p.example.com/simple\"\n[tool.uv]\nextra-index-url = [\"https://q.example.com/s\"]\n\
                   [[tool.uv.index]]\nurl = \"https://r.example.com/s\"\n[tool.uv.sources]\nx = { git = \"https://git.example.com/o/x\" }\n";
    assert_eq!(named("pyproject.toml", project).len(), 8);
    let standard = "[project]\ndependencies = [\n  \"flask>=1\",\n  \"a[x] @ https://dl.example.com/a/a-1.whl ; python_version > '3'\",\n]\n\
                    [project.optional-dependencies]\ndocs = [\"b@git+https://git@git.example.com/o/b.git@v1\"]\n\
                    [dependency-groups]\ntest = [\"c @ https://dl.example.com/c/c-1.whl\", {include-group = \"x\"}]\n\
                    [build-system]\nrequires = [\"d @ https://dl.example.com/d/d-1.whl\"]\n";
    assert_eq!(
        named("pyproject.toml", standard),
        [
            "host = \"dl.example.com\"",
            "\"/a/**\", # pyproject.toml:4",
            "\"/c/**\", # pyproject.toml:9",
            "\"/d/**\", # pyproject.toml:11",
            "host = \"git.example.com\"",
            "\"o/b\", # pyproject.toml:7",
        ]
    );
    for file in ["dev-requirements.txt", "test_requirements.in", "requirements.txt"] {
        let found = named(file, "x@https://dl.example.com/x/x-1.whl\n");
        assert_eq!(found, ["host = \"dl.example.com\"".to_owned(), format!("\"/x/**\", # {file}:1")]);
    }
    let uv = "[[package]]\nname = \"a\"\nsource = { registry = \"https://u.example.com/simple\" }\n\
              sdist = { url = \"https://files.example.com/p/aa/a.tar.gz\" }\nwheels = [\n    { url = \"https://files.example.com/p/bb/a.whl\" },\n]\n";
    assert_eq!(
        named("uv.lock", uv),
        [
            "host = \"files.example.com\"",
            "\"/p/aa/**\", # uv.lock:4",
            "\"/p/bb/**\", # uv.lock:6",
            "host = \"u.example.com\"",
            "\"/simple/**\", # uv.lock:3"
        ]
    );
    let pipfile =
        "{\"_meta\": {\"sources\": [{\"name\": \"x\", \"url\": \"https://p.example.com/simple\"}]}}";
    assert_eq!(named("Pipfile.lock", pipfile)[0], "host = \"p.example.com\"");
    assert_eq!(
        named("Pipfile", "[[source]]\nurl = \"https://p.example.com/s\"")[1],
        "\"/s/**\", # Pipfile:2"
    );
}

#[test]
fn cargo_and_go_name_theirs() {
    let lock = "[[package]]\nname = \"a\"\nsource = \"registry+https://git.example.com/o/index\"\n\
                [[package]]\nname = \"b\"\nsource = \"sparse+https://crates.example.com/i/\"\n\
                [[package]]\nname = \"c\"\nsource = \"git+https://git.example.com/o/c?branch=x#0123\"\n";
    assert_eq!(
        named("Cargo.lock", lock),
        [
            "host = \"crates.example.com\"",
            "\"/i/**\", # Cargo.lock:6",
            "host = \"git.example.com\"",
            "\"o/c\", # Cargo.lock:9",
            "\"o/index\", # Cargo.lock:3"
        ]
    );
    assert!(notes("Cargo.lock", lock).contains("`dl` in its config.json"));
    let config = "[registries.x]\nindex = \"sparse+https://crates.example.com/i/\"\ntoken = \"secret\"\n";
    assert_eq!(named(".cargo/config.toml", config).len(), 2);
    assert!(named("config.toml", config).is_empty());
    let sums = "example.com/Me/mod v1.0.0 h1:x=\nexample.com/Me/mod v1.0.0/go.mod h1:x=\n";
    assert!(notes("go.sum", sums).contains("go.sum:1: it names no host; what `go env GOPROXY GOSUMDB`"));
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("go.sum", sums);
    write("go.work", "go 1.22\n\nuse (\n\t./a\n)\n\nreplace w.example/x => w.example/fork v1.2.3\n");
    write("go.work.sum", "ws.example/y v1.0.0 h1:x=\n");
    write(
        "go.mod",
        "module m\n\nrequire (\n\texample.com/Me/mod v1.0.0 // indirect\n)\nrequire b.example/x v1\n\
         replace (\n\tb.example/x v1 => f.example/x v2 // fork\n\tc.example/x => ../c\n)\nexclude z.example/x v1\n",
    );
    write(".env", "SECRET=x\nexport GOPROXY=https://proxy.example.com/go,direct\n");
    let text = propose(directory.path(), Paths::Short).unwrap().text;
    for line in [
        "\"/go/w.example/fork/**\", # go.work:7",
        "\"/go/ws.example/y/**\", # go.work.sum:1",
        "\"/go/f.example/x/**\", # go.mod:8",
        "\"/go/b.example/x/**\", # go.mod:6",
        "\"/go/example.com/!me/mod/**\", # go.",
        "\"Me/mod\", # go.",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for never in ["c.example", "z.example", "../c"] {
        assert!(!text.contains(never), "{never}\n{text}");
    }
}

#[test]
fn the_policy_allows_what_it_names_and_nothing_else() {
    let lock = "{\"a\": {\"resolved\": \"https://npm.example.com/r/a/-/a-1.tgz\"},\n\"b\": {\"resolved\": \"git+https://git.example.com/o/n.git#1\"}}";
    let text = propose_from("package-lock.json", lock.as_bytes()).text;
    let set = PolicySet::combine(vec![Arc::new(Policy::parse("p", "p.toml", &text).unwrap())]);
    for (host, method, target, allowed) in [
        ("npm.example.com", "GET", "/r/a", true),
        ("npm.example.com", "GET", "/r/a/-/a-2.tgz", true),
        ("npm.example.com", "PUT", "/r/a", false),
        ("npm.example.com", "GET", "/r/b", false),
        ("npm.example.com", "GET", "/r/ab", false),
        ("git.example.com", "GET", "/o/n.git/info/refs?service=git-upload-pack", true),
        ("git.example.com", "GET", "/o/n.git/info/refs?service=git-receive-pack", false),
        ("git.example.com", "GET", "/o/m/info/refs?service=git-upload-pack", false),
        ("other.example.com", "GET", "/", false),
    ] {
        let host = host.parse().unwrap();
        let verdict = set.decide_request(&Request::new(&host, 443, method, target));
        assert_eq!(matches!(verdict, Verdict::Allowed { .. }), allowed, "{method} {host}{target}");
    }
}

#[test]
fn a_file_in_no_directory_does_not_name_its_whole_host() {
    for path in ["/x.tgz", "/-/x.tgz"] {
        let lock = format!("{{\"resolved\": \"https://a.example{path}\"}}");
        let text = propose_from("package-lock.json", lock.as_bytes()).text;
        let set = PolicySet::combine(vec![Arc::new(Policy::parse("p", "p.toml", &text).unwrap())]);
        let host = "a.example".parse().unwrap();
        for (target, allowed) in [(path, true), ("/", false), ("/y.tgz", false), ("/y/x.tgz", false)] {
            let verdict = set.decide_request(&Request::new(&host, 443, "GET", target));
            assert_eq!(matches!(verdict, Verdict::Allowed { .. }), allowed, "{target}\n{text}");
        }
    }
}

#[test]
fn many_paths_become_the_directory_that_they_share() {
    let member =
        |n: usize| format!("\"p{n}\": {{\"resolved\": \"https://npm.example.com/r/n/p{n}/-/p{n}-1.tgz\"}}");
    let lock = format!("{{{}}}", (0..100).map(member).collect::<Vec<_>>().join(",\n"));
    let found = named("package-lock.json", &lock);
    assert_eq!(found[1], "\"/r/n/**\", # package-lock.json:1 and 99 more; `--all-paths` writes each");
    let apart = lock.replace("npm.example.com/r/n/p", "npm.example.com/p");
    assert_eq!(
        named("package-lock.json", &apart)[1],
        "\"/**\", # THE WHOLE HOST, since these share no directory: package-lock.json:1 and 99 more; `--all-paths` writes each"
    );
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("package-lock.json"), lock).unwrap();
    let text = propose(directory.path(), Paths::All).unwrap().text;
    assert!(text.contains("\"/r/n/p99/**\", # package-lock.json:100") && !text.contains("\"/r/n/**\""));
}

#[test]
fn a_hostile_project_is_read_without_harm_and_what_was_not_read_is_told() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(
        outside.path().join("package-lock.json"),
        "{\"resolved\": \"https://stolen.example.com/x\"}",
    )
    .unwrap();
    let project = tempfile::tempdir().unwrap();
    let path = |name: &str| project.path().join(name);
    symlink(outside.path().join("package-lock.json"), path("package-lock.json")).unwrap();
    symlink(outside.path(), path("linked")).unwrap();
    symlink("/proc/self/environ", path(".npmrc")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("yarn.lock"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    std::fs::write(path("poetry.lock"), b"\0ELF").unwrap();
    std::fs::write(path("requirements.txt"), b"ok\n\xff\xfe").unwrap();
    std::fs::File::create(path("uv.lock")).unwrap().set_len(20 << 20).unwrap();
    std::fs::create_dir(path("Pipfile")).unwrap();
    std::fs::write(path("Pipfile.lock"), "[".repeat(1 << 20)).unwrap();
    std::fs::write(path("Cargo.lock"), format!("a = {}", "[".repeat(1 << 20))).unwrap();
    // What is made of a path grows faster than it.
    let long = "/a".repeat(4 << 20);
    std::fs::write(path("pnpm-lock.yaml"), format!("tarball: https://long.example{long}\n")).unwrap();
    let odd = path("a\n\u{1b}[2J\u{202e}b");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("go.sum"), "m.example/x v1 h1:x\n").unwrap();
    let deep = (0..12).fold(project.path().to_owned(), |path, _| path.join("d"));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::create_dir_all(path("node_modules/x")).unwrap();
    std::fs::write(
        path("node_modules/x/package-lock.json"),
        "{\"resolved\": \"https://inner.example.com/x\"}",
    )
    .unwrap();
    let proposal = propose(project.path(), Paths::Short).unwrap();
    for said in [
        "package-lock.json: a symbolic link, which is not followed",
        ".npmrc: a symbolic link, which is not followed",
        "yarn.lock: not a regular file",
        "poetry.lock: binary; it is not what its name says",
        "requirements.txt:2: not UTF-8",
        "uv.lock: larger than 16 MiB",
        "Pipfile.lock:1: not JSON: ",
        "Cargo.lock:1: not TOML, or nested too deep",
        "pnpm-lock.yaml:1: longer than 4096 bytes",
        "d/d/d/d/d/d/d/d: not read, since it is 8 directories deep",
    ] {
        assert!(
            proposal.problems.iter().any(|problem| problem.starts_with(said)),
            "{said}: {:#?}",
            proposal.problems
        );
        assert!(proposal.text.contains(said));
    }
    for never in ["stolen", "inner.example", "\u{1b}", "\u{202e}"] {
        assert!(!proposal.text.contains(never), "{never}: {}", proposal.text);
    }
    assert!(proposal.text.contains("a\\u{a}\\u{1b}[2J\\u{202e}b/go.sum:1"), "{}", proposal.text);
    assert!(Policy::parse("p", "p.toml", &proposal.text).unwrap().rules().is_empty());
    assert!(propose(&path("none"), Paths::Short).is_err());
}

#[test]
fn what_a_file_says_cannot_leave_its_quotes_or_its_comment() {
    for url in [
        "https://a.example/x\\\"]\\n[[allow]]\\nhost = \\\"evil.example\\\"/-/y",
        "https://a.example/\\\"/-/x.tgz",
        "https://a.example/x\\n#/-/y",
        "https://*.example/",
        "https://a.example/**/-/x",
    ] {
        let proposal = propose_from("package-lock.json", format!("{{\"resolved\": \"{url}\"}}").as_bytes());
        let policy = Policy::parse("p", "p.toml", &proposal.text).unwrap();
        let evil = "evil.example".parse().unwrap();
        assert!(policy.rules().iter().all(|rule| !rule.is_about(&evil)), "{}", proposal.text);
        assert!(policy.rules().len() <= 1 && proposal.problems.iter().all(|p| !p.contains("well-formed")));
    }
}

proptest::proptest! {
    #[test]
    fn any_text_makes_a_well_formed_policy(
        name in proptest::sample::select(vec![
            "package-lock.json", "yarn.lock", "pnpm-lock.yaml", ".npmrc", "requirements.txt", "pip.conf", "poetry.lock",
            "uv.lock", "Cargo.lock", "go.sum", "go.mod", ".env", "Pipfile.lock", ".yarnrc", ".yarnrc.yml",
        ]),
        text in "(\\PC|[\n\"\\\\{}=:/@#*% ]|https://a.b/|resolved|resolution: |GOPROXY=){0,40}",
    ) {
        let proposal = propose_from(name, text.as_bytes());
        proptest::prop_assert!(Policy::parse("p", "p.toml", &proposal.text).is_ok());
        proptest::prop_assert!(proposal.problems.iter().all(|problem| !problem.contains("well-formed")));
    }
}
