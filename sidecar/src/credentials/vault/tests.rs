use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::credentials::expiry::Day;
use crate::credentials::fixture::{Values, declared, vault};
use crate::credentials::source::Surroundings;

fn problems(vault: &Vault) -> Vec<String> {
    vault.problems(Day::today())
}

/// Files of a directory as an installation has them.
struct Files {
    directory: tempfile::TempDir,
    key: InstallationKey,
    known: KnownStandIns,
}

impl Files {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory, key: InstallationKey::from_bytes(&[1; 32]), known: KnownStandIns::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn value(&self, name: &str, value: &str) {
        fs::write(self.path(name), value).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn declare(&self, names: &[&str]) {
        let here = format!("\"{}/", self.directory.path().display());
        let text: String = names.iter().map(|name| declared(name, "")).collect();
        fs::write(self.path("secrets.toml"), text.replace("\"/run/secrets/", &here)).unwrap();
    }

    fn load(&mut self, previous: Option<&Vault>) -> Vault {
        let around = Surroundings {
            podman_secrets: "/none".into(),
            credentials: None,
            host_run: true,
            ..Surroundings::default()
        };
        let (key, known) = (&self.key, &self.known);
        let catalogue = &Arc::new(Catalogue::new([]).unwrap());
        let loading = Loading { catalogue, key, around: &around, known, previous, ask_again: false };
        let vault = Vault::load(&self.path("secrets.toml"), loading).unwrap();
        self.known = self.known.with(&vault);
        vault
    }
}

#[test]
fn a_secret_that_cannot_be_read_does_not_stop_the_others() {
    let text = [declared("good", ""), declared("missing", ""), declared("short", "")].concat();
    let vault = vault(&text, &Values::from([("good", "sk-0123456789abcdefghij"), ("short", "abc")]));
    assert_eq!(vault.secrets().iter().map(Secret::name).collect::<Vec<_>>(), ["good"]);
    let problems = problems(&vault);
    assert_eq!(problems.len(), 2);
    assert!(problems[0].starts_with("secret `missing` (secrets.toml:") && problems[0].contains("no such"));
    assert!(problems[1].contains("`short`") && problems[1].contains("at least 16"), "{problems:?}");
    assert!(vault.secret("missing").is_none() && vault.secret("good").is_some());
    // What cannot be used still binds its host.
    assert_eq!(vault.bound_to(&"api.example.com".parse().unwrap()).count(), 3);
}

#[test]
fn secrets_with_one_value_are_refused_and_the_value_is_still_searched_for() {
    let value = "sk-0123456789abcdefghij";
    let text = [declared("a", ""), declared("b", ""), declared("c", "")].concat();
    let vault = vault(&text, &Values::from([("a", value), ("b", value), ("c", value)]));
    let usable: Vec<_> = vault.secrets().iter().map(Secret::name).collect();
    assert!(usable.is_empty(), "{usable:?}");
    assert!(vault.real_value_in(value.as_bytes()).is_some());
    assert_eq!(problems(&vault).len(), 3);
    assert!(problems(&vault).iter().all(|problem| problem.contains("same value")));
}

#[test]
fn a_declared_prefix_that_does_not_fit_is_a_problem() {
    let text = declared("a", "prefix = \"other_\"\n");
    let vault = vault(&text, &Values::from([("a", "sk-0123456789abcdefghij")]));
    assert!(problems(&vault)[0].contains("does not start with"), "{:?}", problems(&vault));
    assert_eq!(vault.real_value_in(b"sk-0123456789abcdefghij"), Some("a"));
}

#[test]
fn values_are_read_from_where_the_declaration_says() {
    let mut files = Files::new();
    assert!(files.load(None).secrets().is_empty());
    files.declare(&["a"]);
    assert!(problems(&files.load(None))[0].contains("No such file"));
    files.value("a", "Bearer sk-0123456789abcdefghij\n");
    let vault = files.load(None);
    assert_eq!(vault.secrets()[0].value().unwrap().expose(), "sk-0123456789abcdefghij");
    let warnings = vault.warnings(Day::today());
    assert!(warnings.len() == 1 && warnings[0].contains("`Bearer ` before the value was left out"));
    assert!(!warnings[0].contains("0123456789"), "{warnings:?}");
    fs::write(files.path("secrets.toml"), "[a]\nkid = 1").unwrap();
    let around = Surroundings {
        podman_secrets: "/none".into(),
        credentials: None,
        host_run: true,
        ..Surroundings::default()
    };
    let (key, known) = (&files.key, &files.known);
    let catalogue = &Arc::new(Catalogue::new([]).unwrap());
    let loading = Loading { catalogue, key, around: &around, known, previous: None, ask_again: false };
    let error = Vault::load(&files.path("secrets.toml"), loading).unwrap_err().to_string();
    assert!(error.starts_with("secrets.toml:2:1: unknown key"), "{error}");
}

#[test]
fn a_value_that_does_not_look_like_what_it_is_said_to_be_is_a_problem() {
    let text = declared("a", "like = \"github-pat\"\n");
    let vault = vault(&text, &Values::from([("a", "sk-0123456789abcdefghij")]));
    let problem = &problems(&vault)[0];
    assert!(problem.contains("does not look like GitHub") && problem.contains("expected prefix `ghp_`"));
    assert!(!problem.contains("0123456789"), "{problem}");
    assert_eq!(vault.real_value_in(b"sk-0123456789abcdefghij"), Some("a"));
}

#[test]
fn a_stand_in_is_told_from_other_words_without_its_secret() {
    let first = vault(&declared("a", ""), &Values::from([("a", "sk-0123456789abcdefghij")]));
    let stand_in: &'static str = first.secrets()[0].stand_in().to_owned().leak();
    let second = vault(&declared("b", ""), &Values::from([("b", stand_in)]));
    assert!(problems(&second)[0].contains("is a stand-in of this installation"));
    assert!(second.is_marked(stand_in.as_bytes()) && !second.is_stand_in(stand_in));
    assert!(!second.is_marked(b"sk-0123456789abcdefghij"));
}

#[test]
fn another_value_of_the_same_shape_has_the_same_stand_in() {
    let mut files = Files::new();
    files.declare(&["a"]);
    files.value("a", "sk-0123456789abcdefghij");
    let before = files.load(None);
    files.value("a", "sk-9876543210zyxwvutsrq");
    let after = files.load(Some(&before));
    assert_eq!(before.secrets()[0].stand_in(), after.secrets()[0].stand_in());
    assert_eq!(after.secrets()[0].value().unwrap().expose(), "sk-9876543210zyxwvutsrq");
    assert!(after.real_value_in(b"sk-0123456789abcdefghij").is_none());
}

#[test]
fn an_earlier_stand_in_is_still_one_of_its_secret() {
    let mut files = Files::new();
    files.declare(&["a"]);
    files.value("a", "sk-0123456789abcdefghij");
    let before = files.load(None);
    let old = before.secrets()[0].stand_in().to_owned();
    files.value("a", "other-ABCDEFGHIJKLMNOPQRSTUVWXYZ0123");
    // Also for a sidecar that starts anew.
    for previous in [Some(&before), None] {
        let after = files.load(previous);
        let secret = &after.secrets()[0];
        assert_ne!(secret.stand_in(), old);
        assert!(secret.answers_to(old.as_bytes()) && secret.answers_to(secret.stand_in().as_bytes()));
        assert_eq!(after.stand_ins_in(format!("x {old} y").as_bytes()).count(), 1);
        assert!(after.is_stand_in(&old) && !after.has_retired());
    }
}

#[test]
fn the_stand_in_of_a_secret_that_is_gone_or_broken_is_still_known() {
    let mut files = Files::new();
    files.declare(&["a", "b"]);
    files.value("a", "sk-0123456789abcdefghij");
    files.value("b", "sk-9876543210zyxwvutsrq");
    let before = files.load(None);
    let [a, b] = [0, 1].map(|number| before.secrets()[number].stand_in().to_owned());
    files.declare(&["b"]);
    fs::remove_file(files.path("b")).unwrap();
    let after = files.load(None);
    assert_eq!(after.retired_in(a.as_bytes()), Some("a"));
    assert_eq!(after.retired_in(format!("Bearer {b}").as_bytes()), Some("b"));
    assert!(after.retired_in(b"sk-0123456789abcdefghij").is_none());
}

#[test]
fn a_value_that_cannot_be_read_any_more_stays_what_it_was() {
    let mut files = Files::new();
    files.declare(&["a"]);
    files.value("a", "sk-0123456789abcdefghij");
    let mut vault = files.load(None);
    let stand_in = vault.secrets()[0].stand_in().to_owned();
    for bad in [Some(""), Some("sk-0123"), Some("sk-0123456789\nabcdefghij"), Some(stand_in.as_str()), None] {
        match bad {
            Some(text) => files.value("a", text),
            None => fs::remove_file(files.path("a")).unwrap(),
        }
        vault = files.load(Some(&vault));
        assert_eq!(vault.secrets()[0].value().unwrap().expose(), "sk-0123456789abcdefghij");
        let problems = problems(&vault);
        assert!(problems.len() == 1 && problems[0].contains("stays in force"), "{problems:?}");
        assert!(problems[0].contains(files.path("a").to_str().unwrap()), "{problems:?}");
    }
    files.value("a", "sk-9876543210zyxwvutsrq");
    let repaired = files.load(Some(&vault));
    assert_eq!(repaired.secrets()[0].value().unwrap().expose(), "sk-9876543210zyxwvutsrq");
    assert!(problems(&repaired).is_empty());
}

#[test]
fn a_value_that_cannot_be_used_is_searched_for_beside_the_one_that_is() {
    let mut files = Files::new();
    files.declare(&["a"]);
    let text = fs::read_to_string(files.path("secrets.toml")).unwrap() + "prefix = \"sk-\"\n";
    fs::write(files.path("secrets.toml"), text).unwrap();
    files.value("a", "sk-0123456789abcdefghij");
    let before = files.load(None);
    files.value("a", "other_9876543210zyxwvutsrq");
    let after = files.load(Some(&before));
    for value in ["sk-0123456789abcdefghij", "other_9876543210zyxwvutsrq"] {
        assert_eq!(after.real_value_in(value.as_bytes()), Some("a"));
    }
    assert!(after.secret("a").is_some());
}

#[test]
fn a_value_of_another_source_is_not_kept() {
    let mut files = Files::new();
    files.declare(&["a"]);
    files.value("a", "sk-0123456789abcdefghij");
    let before = files.load(None);
    let text = fs::read_to_string(files.path("secrets.toml")).unwrap();
    fs::write(files.path("secrets.toml"), text.replace("/a\"", "/elsewhere\"")).unwrap();
    assert!(files.load(Some(&before)).secrets().is_empty());
}

#[test]
fn a_stand_in_is_not_a_value() {
    let mut files = Files::new();
    files.declare(&["a", "b"]);
    files.value("a", "sk-0123456789abcdefghij");
    files.value("b", "sk-9876543210zyxwvutsrq");
    let vault = files.load(None);
    let [a, _] = [0, 1].map(|number| vault.secrets()[number].stand_in().to_owned());
    files.known = KnownStandIns::default();
    for name in ["a", "b"] {
        files.value(name, &a);
        let vault = files.load(None);
        let problems = problems(&vault);
        assert!(problems[0].contains("is the stand-in of `a` in this installation"), "{problems:?}");
        assert!(!problems[0].contains(&a), "{problems:?}");
        files.value("a", "sk-0123456789abcdefghij");
    }
}

#[test]
fn a_command_is_asked_again_when_its_cache_is_over_or_the_operator_says() {
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("count");
    let script = format!("echo >> {0} && echo sk-0123456789abcdefghi$(wc -l < {0})", count.display());
    let declare = |more: &str| {
        let text = declared("a", more)
            .replace("file = \"/run/secrets/a\"", &format!("command = [\"sh\", \"-c\", '{script}']"));
        fs::write(directory.path().join("secrets.toml"), text).unwrap();
    };
    let around = Surroundings {
        podman_secrets: "/none".into(),
        credentials: None,
        host_run: true,
        ..Surroundings::default()
    };
    let (key, known) = (InstallationKey::from_bytes(&[1; 32]), KnownStandIns::default());
    let load = |previous: Option<&Vault>, ask_again| {
        let catalogue = &Arc::new(Catalogue::new([]).unwrap());
        let loading = Loading { catalogue, key: &key, around: &around, known: &known, previous, ask_again };
        Vault::load(&directory.path().join("secrets.toml"), loading).unwrap()
    };
    let last = |vault: &Vault| vault.secrets()[0].value().unwrap().expose().chars().last().unwrap();
    declare("");
    let vault = load(None, false);
    assert_eq!((last(&vault), vault.is_outdated(Instant::now())), ('1', false), "{:?}", problems(&vault));
    let vault = load(Some(&vault), false);
    assert_eq!(last(&vault), '1');
    let vault = load(Some(&vault), true);
    assert_eq!(last(&vault), '2');
    declare("cache = 1\n");
    let vault = load(Some(&vault), false);
    assert_eq!(last(&vault), '3');
    std::thread::sleep(std::time::Duration::from_millis(1010));
    assert!(vault.is_outdated(Instant::now()));
    let vault = load(Some(&vault), false);
    assert_eq!(last(&vault), '4');
    fs::remove_file(&count).unwrap();
    fs::create_dir(&count).unwrap();
    let vault = load(Some(&vault), true);
    assert_eq!(last(&vault), '4');
    assert!(problems(&vault)[0].contains("stays in force") && !vault.is_outdated(Instant::now()));
}

#[test]
fn an_expiry_is_told_ahead_and_when_it_is_over() {
    let text =
        [declared("over", "expires = 2020-01-31\n"), declared("later", "expires = 9000-01-31\n")].concat();
    let vault = vault(
        &text,
        &Values::from([("over", "sk-0123456789abcdefghij"), ("later", "sk-9876543210zyxwvutsrq")]),
    );
    let told = problems(&vault);
    assert!(told.len() == 1 && told[0].contains("`over`") && told[0].contains("EXPIRED on 2020-01-31"));
    assert!(vault.warnings(Day::today()).is_empty());
    // It works all the same.
    assert!(vault.secret("over").is_some());
}

#[test]
fn no_value_is_ever_printed() {
    let value = "sk-0123456789abcdefghij";
    let text = [declared("a", ""), declared("b", ""), declared("c", "")].concat();
    let vault = vault(&text, &Values::from([("a", value), ("b", value), ("c", "zz-9876543210zyxwvutsrq")]));
    let shown = format!("{vault:?}{vault:#?}{:?}", problems(&vault));
    assert!(!shown.contains("0123456789abc") && !shown.contains("9876543210zyx"), "{shown}");
}
