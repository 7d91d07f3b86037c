//! Keys here are made for these tests.

use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;

use super::super::catalogue::Catalogue;
use super::super::declaration::parse;
use super::super::fixture::{Values, vault};
use super::super::installation_key::InstallationKey;
use super::*;

const GOOD: &str = "[work-git]\nkind = \"ssh-key\"\nfile = \"/run/secrets/git\"\nhosts = \"github.com\"\n\
                    grant-to = { harnesses = [\"generic\"] }\n";

fn pem(seed: u8) -> String {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32])).to_openssh(LineEnding::LF).unwrap().to_string()
}

fn read(text: &str) -> Result<super::super::Declaration, String> {
    let catalogue = Catalogue::new([]).unwrap();
    let read = parse("secrets.toml", text, &catalogue).map_err(|error| error.to_string())?;
    Ok(read.into_iter().next().unwrap())
}

#[test]
fn a_declaration_says_where_and_by_which_host_key() {
    let declared = read(GOOD).unwrap();
    let server = declared.ssh.unwrap();
    let (github, other) = ("github.com".parse().unwrap(), "gitlab.com".parse().unwrap());
    assert!(server.is_at(&github, 22) && !server.is_at(&github, 443) && !server.is_at(&other, 22));
    assert_eq!((server.user(), server.shown_hosts()), ("git", vec!["github.com".to_owned()]));
    // It is in no request, so it binds no host of requests.
    assert!(declared.hosts.is_empty() && declared.placements.is_empty());
    let mine = PrivateKey::from(Ed25519Keypair::from_seed(&[9; 32]));
    let own = format!(
        "{}port = 2222\nuser = \"gerrit\"\nhost-keys = [\"{}\"]\n",
        GOOD.replace("\"github.com\"", "[\"git.example\", \"github.com\"]"),
        mine.public_key().to_openssh().unwrap()
    );
    let server = read(&own).unwrap().ssh.unwrap();
    let fingerprint = mine.public_key().fingerprint(Default::default());
    assert_eq!((server.user(), server.port()), ("gerrit", 2222));
    assert_eq!(server.shown_hosts(), ["git.example:2222", "github.com:2222"]);
    assert!(server.knows(&"git.example".parse().unwrap(), &fingerprint));
    // What was written takes the place of what is built in.
    let published = host_keys::builtin(&github)[0];
    assert!(server.knows(&github, &fingerprint) && !server.knows(&github, &published));
    assert!(read(GOOD).unwrap().ssh.unwrap().knows(&github, &published));
}

#[test]
fn mistakes_are_named_with_their_place_and_the_way_out() {
    for (from, to, said) in [
        ("github.com", "git.example", "1:1: `host-keys` is missing: that of git.example is not built in"),
        ("\"github.com\"", "[]", "4:9: `hosts` is empty"),
        (
            "github.com",
            "*.github.com",
            "4:9: `hosts`: \"*.github.com\": each server of an SSH key is named in full",
        ),
        ("hosts = \"github.com\"\n", "", "1:1: missing field `hosts`"),
        ("hosts", "host-keys = [\"ssh-ed25519 AAAA\"]\nhosts", "4:13: `host-keys`: a host key is written as"),
        ("hosts", "host-keys = []\nhosts", "4:13: `host-keys` is empty"),
        ("hosts", "port = 0\nhosts", "4:8: `port` must be 1 to 65535"),
        ("hosts", "user = \"-oProxyCommand=x\"\nhosts", "4:8: `user` must be the name"),
        ("hosts", "env = \"KEY\"\nhosts", "4:7: `env` is not for `kind = \"ssh-key\"`"),
        ("hosts", "placements = \"bearer\"\nhosts", "4:14: `placements` is not for"),
        ("kind = \"ssh-key\"", "kind = \"bearer\"\nport = 22", "3:8: `port` is for `kind = \"ssh-key\"`"),
        ("ssh-key", "ssh-kye", "2:8: unknown value; did you mean `ssh-key`?"),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let error = read(&text).unwrap_err();
        assert!(error.starts_with(&format!("secrets.toml:{said}")), "{error}\nexpected {said}");
    }
}

const FINGERPRINT: &str = "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU";

fn kept(public_key: &str) -> String {
    GOOD.replace(
        "file = \"/run/secrets/git\"",
        &format!("agent = \"/run/agent/socket\"\npublic-key = \"{public_key}\""),
    )
}

#[test]
fn an_agent_is_named_with_the_key_that_it_is_to_sign_with() {
    let source = |text: &str| read(text).map(|declared| declared.source.to_string());
    assert_eq!(source(&kept(FINGERPRINT)).unwrap(), format!("ssh-agent /run/agent/socket {FINGERPRINT}"));
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&[9; 32]));
    let (line, fingerprint) = (key.public_key().to_openssh().unwrap(), key.fingerprint(Default::default()));
    assert_eq!(source(&kept(&line)).unwrap(), format!("ssh-agent /run/agent/socket {fingerprint}"));
    for (from, to, said) in [
        ("/run/agent/socket", "agent", "3:9: `agent` must be the absolute path"),
        ("/run/agent/socket", "/run/../agent", "3:9: `agent` must be the absolute path"),
        (FINGERPRINT, "MD5:00", "4:14: `public-key` is written as"),
        (FINGERPRINT, "SHA256:AAAA", "4:14: `public-key` is written as"),
        ("public-key", "# public-key", "3:9: `public-key` is missing: which of the agent's keys?"),
        ("agent =", "file =", "4:14: `public-key` is for an `agent`"),
        ("agent =", "file = \"/x\"\nagent =", "1:1: it has several sources"),
        ("kind = \"ssh-key\"", "kind = \"bearer\"", "3:9: `agent` is for `kind = \"ssh-key\"`"),
    ] {
        let text = kept(FINGERPRINT).replacen(from, to, 1);
        assert_ne!(text, kept(FINGERPRINT));
        let error = read(&text).unwrap_err();
        assert!(error.starts_with(&format!("secrets.toml:{said}")), "{error}\nexpected {said}");
    }
}

#[test]
fn a_key_that_an_agent_keeps_has_a_stand_in_and_no_value_and_its_agent_may_come_later() {
    let here = vault(GOOD, &Values::from([("git", &*pem(7).leak())]));
    // One key for two secrets: their stand-ins tell them apart.
    let two = kept(FINGERPRINT) + &kept(FINGERPRINT).replace("work-git", "other");
    let vault = vault(&two, &Values::new());
    let secret = vault.secret("work-git").unwrap();
    assert!(vault.unusable().is_empty() && vault.secret("other").is_some());
    assert_eq!(secret.stand_in(), here.secret("work-git").unwrap().stand_in());
    assert!(secret.value().is_none() && vault.real_values().next().is_none());
    assert_eq!(vault.real_value_in(FINGERPRINT.as_bytes()), None);
    let problems = vault.problems(super::super::expiry::Day::today());
    assert_eq!(problems.len(), 2);
    assert!(
        problems[1].contains("`work-git`") && problems[1].contains("no ssh-agent is at /run/agent/socket")
    );
}

#[test]
fn a_stand_in_is_a_key_of_its_own_that_depends_on_name_and_installation_only() {
    let key = |byte: u8, name: &str, seed: u8| {
        SshKey::read(pem(seed).as_bytes(), &InstallationKey::from_bytes(&[byte; 32]), name).unwrap().0
    };
    let one = key(1, "a", 7);
    assert_eq!(one.stand_in(), key(1, "a", 8).stand_in());
    for other in [key(1, "b", 7), key(2, "a", 7)] {
        assert_ne!(one.stand_in(), other.stand_in());
    }
    let placed = PrivateKey::from_openssh(one.stand_in_pem()).unwrap();
    assert_eq!(placed.public_key().key_data(), one.stand_in().key_data());
    let Real::Plain(real) = one.real() else { panic!("its type") };
    assert_ne!(real.public_key().key_data(), one.stand_in().key_data());
    let host_key = HostKey::of(&InstallationKey::from_bytes(&[1; 32]));
    assert_ne!(host_key.public().key_data(), one.stand_in().key_data());
    let shown = format!("{one:?}{host_key:?}");
    assert_eq!(shown, "SshKey(..)HostKey(..)");
}

#[test]
fn the_real_key_is_found_in_any_of_its_lines_and_its_stand_in_is_not_taken_for_it() {
    let text: &'static str = pem(7).leak();
    let vault = vault(GOOD, &Values::from([("git", text)]));
    let secret = vault.secret("work-git").unwrap();
    assert_eq!(vault.real_value_in(text.as_bytes()), Some("work-git"));
    // The seed is in the fourth line.
    let line = text.lines().nth(4).unwrap();
    assert_eq!(vault.real_value_in(format!("x {line} y").as_bytes()), Some("work-git"));
    let stand_in = secret.ssh_key().unwrap().stand_in_pem();
    assert_eq!(vault.real_value_in(stand_in.as_bytes()), None);
    assert!(vault.is_stand_in(secret.stand_in()));
    let stand_in: &'static str = stand_in.to_owned().leak();
    let wrong = super::super::fixture::vault(GOOD, &Values::from([("git", stand_in)]));
    assert!(wrong.unusable()[0].error().contains("is a stand-in of this installation"));
}

#[test]
fn what_is_no_usable_key_is_refused_with_what_to_do() {
    let installation = InstallationKey::from_bytes(&[1; 32]);
    let truncated = pem(7).replace("AAAAB", "AAAAC");
    for (bytes, said) in [
        ("", "empty"),
        ("sk-0123456789abcdefghij", "not a private key of OpenSSH"),
        ("ssh-ed25519 AAAA x", "put the private one there"),
        ("-----BEGIN RSA PRIVATE KEY-----\n", "ssh-keygen -p -N '' -f COPY"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "damaged"),
        (truncated.as_str(), "damaged"),
    ] {
        let error = SshKey::read(bytes.as_bytes(), &installation, "a").unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_container_is_given_the_stand_in_where_ssh_looks_and_the_sidecars_host_key() {
    use understudy_control::{Placement, Write};
    let other = GOOD.replace("work-git", "other").replace("secrets/git", "secrets/other");
    let other = other.replace(
        "\"github.com\"",
        "\"git.example\"\nport = 2222\nhost-keys = \"SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU\"",
    );
    let (one, two): (&'static str, &'static str) = (pem(7).leak(), pem(8).leak());
    let vault = vault(&(GOOD.to_owned() + &other), &Values::from([("git", one), ("other", two)]));
    assert!(vault.problems(super::super::expiry::Day::today()).is_empty());
    let terms = |secrets: &str| -> Placement {
        let annotations = [("understudy.harness", "generic"), ("understudy.secrets", secrets)];
        let prepare = understudy_control::Prepare {
            id: "a".repeat(64).parse().unwrap(),
            name: None,
            image: None,
            annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            user: understudy_control::User { uid: 0, gid: 0 },
            env: Default::default(),
            args: Vec::new(),
            managed: Vec::new(),
            joins: None,
            origin: None,
            mounts: None,
        };
        let (harnesses, policies) = (understudy_harnesses::Harnesses::default(), Default::default());
        super::super::terms(&prepare, &harnesses, &policies, &vault).unwrap().placement
    };
    let host_key = vault.ssh_host_key().unwrap().public().to_openssh().unwrap();
    let placed = terms("work-git other");
    let files: Vec<_> = placed.files.iter().filter(|file| file.path.starts_with("~/.ssh/")).collect();
    let paths: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.mode, file.write)).collect();
    assert_eq!(
        paths,
        [
            ("~/.ssh/id_ed25519", 0o600, Write::Replace),
            ("~/.ssh/id_ecdsa", 0o600, Write::Replace),
            ("~/.ssh/known_hosts", 0o644, Write::MergeLines)
        ]
    );
    // In the order of their names.
    for (file, name) in [(0, "other"), (1, "work-git")] {
        assert_eq!(files[file].content, vault.secret(name).unwrap().ssh_key().unwrap().stand_in_pem());
    }
    assert_eq!(files[2].content, format!("[git.example]:2222 {host_key}\ngithub.com {host_key}\n"));
    // A real key at any place is found, and the stand-ins are known.
    let logins = placed.login_files.iter().filter(|file| file.pointers == ["private-key"]);
    assert_eq!(logins.count(), 3);
    assert!(placed.stand_ins.iter().any(|text| text == vault.secret("other").unwrap().stand_in()));
    for file in placed.files {
        assert_eq!(vault.real_value_in(file.content.as_bytes()), None, "{}", file.path);
    }
    // Without a key nothing is placed.
    assert!(!terms("").files.iter().any(|file| file.path.starts_with("~/.ssh")));
}
