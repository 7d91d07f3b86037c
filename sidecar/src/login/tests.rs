use serde_json::json;

use super::*;
use crate::accounts::seal::StoreKey;

fn arguments(root: &std::path::Path, format: &str) -> Import {
    Import {
        format: format.to_owned(),
        account: None,
        replace: false,
        write_back: None,
        config: root.join("config"),
        kept: Kept { state: root.to_owned(), store_key: StoreKeyFile::default() },
        output: Output::default(),
    }
}

fn claude(access: &str, account: &str) -> Vec<u8> {
    let refresh = access.replace("oat", "ort");
    let oauth = json!({ "accessToken": access, "refreshToken": refresh, "expiresAt": 2_000_000_000_000_u64,
                        "scopes": ["user:profile"], "subscriptionType": "max", "accountUuid": account });
    json!({ "claudeAiOauth": oauth }).to_string().into_bytes()
}

const FIRST: &str = "sk-ant-oat01-firstfirstfirstfirst0123456789";
const SECOND: &str = "sk-ant-oat01-secondsecondsecond9876543210";

#[test]
fn a_login_is_stored_and_the_next_one_of_the_same_account_keeps_its_stand_ins() {
    let root = tempfile::tempdir().unwrap();
    let arguments = arguments(root.path(), "claude-code");
    let stored = take_over(&arguments, &claude(FIRST, "a-1"), None).unwrap();
    let document = serde_json::to_value(&stored).unwrap();
    let left = declare("claude-code", "claude-account");
    let expected = json!({ "account": "claude-code", "kind": "claude-account", "whose": "a-1",
                           "expires": 2_000_000_000_000_u64, "left": left });
    assert_eq!(document, expected);
    let told = told(&stored, Millis(1_999_999_940_000));
    assert!(told.contains("account `claude-code` of a-1 is stored, as a `claude-account`"), "{told}");
    assert!(told.contains("good for 1 min") && told.contains("account = \"claude-code\""), "{told}");
    assert!(!told.contains("firstfirst"), "{told}");
    let store = Store::new(root.path().join("accounts"));
    let first = store.read("claude-code").unwrap();
    assert!(
        first.stand_ins.access.starts_with("sk-ant-oat01-")
            && first.stand_ins.refresh.as_ref().unwrap().starts_with("sk-ant-ort01-")
    );
    assert_eq!((first.generation, first.scopes.as_slice()), (1, ["user:profile".to_owned()].as_slice()));

    take_over(&arguments, &claude(SECOND, "a-1"), None).unwrap();
    let second = store.read("claude-code").unwrap();
    assert_eq!((second.generation, &second.stand_ins), (2, &first.stand_ins));
    assert_eq!(second.access.expose(), SECOND);
    assert_eq!(store.previous("claude-code").unwrap().access.expose(), FIRST);
}

#[test]
fn an_account_of_somebody_else_is_not_written_over_unless_that_is_meant() {
    let root = tempfile::tempdir().unwrap();
    let mut arguments = arguments(root.path(), "claude-code");
    take_over(&arguments, &claude(FIRST, "a-1"), None).unwrap();
    let error = take_over(&arguments, &claude(SECOND, "b-2"), None).unwrap_err().to_string();
    assert!(error.contains("is another one (a-1)") && error.contains("--replace"), "{error}");
    let store = Store::new(root.path().join("accounts"));
    let first = store.read("claude-code").unwrap();
    assert_eq!(first.access.expose(), FIRST);
    arguments.replace = true;
    take_over(&arguments, &claude(SECOND, "b-2"), None).unwrap();
    assert_eq!(store.read("claude-code").unwrap().facts["account-id"], "b-2");
}

fn changed(file: &[u8], field: &str, value: serde_json::Value) -> Vec<u8> {
    let mut file: serde_json::Value = serde_json::from_slice(file).unwrap();
    file["claudeAiOauth"][field] = value;
    file.to_string().into_bytes()
}

#[test]
fn a_login_that_does_not_say_whose_it_is_takes_nobodys_place() {
    let nobodys = |access: &str| changed(&claude(access, ""), "accountUuid", json!(null));
    for (stored, next) in [
        (nobodys(FIRST), nobodys(SECOND)),
        (nobodys(FIRST), claude(SECOND, "a-1")),
        (claude(FIRST, "a-1"), nobodys(SECOND)),
    ] {
        let root = tempfile::tempdir().unwrap();
        let mut arguments = arguments(root.path(), "claude-code");
        let store = Store::new(root.path().join("accounts"));
        take_over(&arguments, &stored, None).unwrap();
        let first = store.read("claude-code").unwrap();
        // The very same is.
        take_over(&arguments, &stored, None).unwrap();
        assert_eq!(store.read("claude-code").unwrap().uid, first.uid);
        let error = take_over(&arguments, &next, None).unwrap_err().to_string();
        assert!(error.contains("nothing tells whether") && error.contains("--replace"), "{error}");
        assert_eq!(store.read("claude-code").unwrap().access.expose(), FIRST);
        arguments.replace = true;
        take_over(&arguments, &next, None).unwrap();
        let second = store.read("claude-code").unwrap();
        assert!(second.access.expose() == SECOND && second.uid != first.uid, "it is another account by now");
    }
}

#[test]
fn what_a_login_is_renewed_as_is_kept() {
    let root = tempfile::tempdir().unwrap();
    let arguments = arguments(root.path(), "claude-code");
    let store = Store::new(root.path().join("accounts"));
    let catalogue = Catalogue::new([]).unwrap();
    let oauth = catalogue.kind("claude-account").unwrap().oauth.as_ref().unwrap();
    let sent = || {
        let record = store.read("claude-code").unwrap();
        let refresh = record.refresh.clone().unwrap();
        String::from_utf8(crate::accounts::token::request(oauth, &record, &refresh).1.to_vec()).unwrap()
    };
    take_over(&arguments, &changed(&claude(FIRST, "a-1"), "clientId", json!(oauth.client_id)), None).unwrap();
    assert!(store.read("claude-code").unwrap().client_id.is_none() && sent().contains(&oauth.client_id));
    let uid = store.read("claude-code").unwrap().uid;
    take_over(&arguments, &changed(&claude(SECOND, "a-1"), "clientId", json!("another-client")), None)
        .unwrap();
    assert!(sent().contains(r#""client_id":"another-client""#), "{}", sent());
    for wrong in [json!("two words"), json!(""), json!(7)] {
        let file = changed(&claude(SECOND, "a-1"), "clientId", wrong);
        let error = format!("{:#}", take_over(&arguments, &file, None).unwrap_err());
        assert!(error.contains("`/claudeAiOauth/clientId` is no name of an OAuth client"), "{error}");
    }
    // What its program said when it logged in inside of a container, and no file says.
    let record = store.read("claude-code").unwrap();
    let said = Some(crate::accounts::Token::new("of-the-program".to_owned()));
    let (before, mut next) = (record.generation, record);
    (next.generation, next.client_secret) = (before + 1, said);
    store.write("claude-code", &next, Some(before)).unwrap();
    take_over(&arguments, &claude(FIRST, "a-1"), None).unwrap();
    assert!(sent().contains("of-the-program") && sent().contains(&oauth.client_id), "{}", sent());
    assert_eq!(store.read("claude-code").unwrap().uid, uid);
}

#[test]
fn a_file_that_names_a_field_twice_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let text = String::from_utf8(claude(FIRST, "a-1")).unwrap();
    let twice = text.replacen("\"accessToken\"", &format!("\"accessToken\":\"{SECOND}\",\"accessToken\""), 1);
    let error = take_over(&arguments(root.path(), "claude-code"), twice.as_bytes(), None).unwrap_err();
    assert!(format!("{error:#}").contains("it has a field twice (line 1)"), "{error:#}");
}

#[test]
fn a_file_from_a_container_and_a_format_that_is_not_known_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let arguments_of = |format: &str| arguments(root.path(), format);
    take_over(&arguments_of("claude-code"), &claude(FIRST, "a-1"), None).unwrap();
    let stand_ins = Store::new(root.path().join("accounts")).read("claude-code").unwrap().stand_ins;
    let error = take_over(&arguments_of("claude-code"), &claude(&stand_ins.access, "a-1"), None);
    assert!(error.unwrap_err().to_string().contains("is a stand-in"));
    let error = take_over(&arguments_of("claude-cod"), b"{}", None).unwrap_err().to_string();
    assert!(error.contains("did you mean `claude-code`?") && error.contains("codex, "), "{error}");
    let named = Import { account: Some("../x".to_owned()), ..arguments_of("claude-code") };
    assert!(
        take_over(&named, &claude(FIRST, "a-1"), None)
            .unwrap_err()
            .to_string()
            .contains("name of an account")
    );
}

#[test]
fn what_is_stored_is_for_the_sidecar_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let root = tempfile::tempdir().unwrap();
    take_over(&arguments(root.path(), "claude-code"), &claude(FIRST, "a-1"), None).unwrap();
    take_over(&arguments(root.path(), "claude-code"), &claude(SECOND, "a-1"), None).unwrap();
    let directory = root.path().join("accounts");
    assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600);
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, ["claude-code.json", "claude-code.json.previous", "lock"]);
}

#[test]
fn a_store_is_encrypted_and_written_in_the_clear_again() {
    let root = tempfile::tempdir().unwrap();
    let arguments = arguments(root.path(), "claude-code");
    take_over(&arguments, &claude(FIRST, "a-1"), None).unwrap();
    let key = || StoreKey::from_bytes(&[7; 32]);
    let plain = Store::new(root.path().join("accounts"));
    let sealed = Store::new(root.path().join("accounts")).sealed_by(key());
    let text = || {
        let files = std::fs::read_dir(plain.directory()).unwrap();
        let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file.unwrap().path()).unwrap();
        String::from_utf8_lossy(&files.flat_map(read).collect::<Vec<_>>()).into_owned()
    };
    assert!(text().contains(FIRST));
    sealed.convert("claude-code", &sealed).unwrap();
    // Of the record before it, too.
    assert!(!text().contains(FIRST) && sealed.read("claude-code").unwrap().access.expose() == FIRST);
    // Who has no key writes nothing there, and not another account either.
    let before = text();
    for name in ["claude-code", "other"] {
        let arguments =
            Import { account: Some(name.to_owned()), ..self::arguments(root.path(), "claude-code") };
        let error = take_over(&arguments, &claude(SECOND, "a-1"), None).unwrap_err().to_string();
        assert!(error.contains("no key was given"), "{error}");
    }
    assert_eq!(text(), before);
    sealed.convert("claude-code", &plain).unwrap();
    assert_eq!(plain.read("claude-code").unwrap().generation, 5);
    assert!(plain.previous("claude-code").is_some() && text().contains(FIRST));
}

const GITHUB: [&str; 2] =
    ["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", "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"];

fn hosts(token: &str, user: &str) -> Vec<u8> {
    format!("github.com:\n    users:\n        {user}:\n            oauth_token: {token}\n    git_protocol: https\n    oauth_token: {token}\n    user: {user}\n")
        .into_bytes()
}

#[test]
fn a_key_is_stored_and_stays_what_it_is() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path().join("accounts"));
    let gh = arguments(root.path(), "gh");
    let stored = take_over(&gh, &hosts(GITHUB[0], "me"), None).unwrap();
    assert_eq!((stored.kind.as_str(), stored.whose.as_deref()), ("github-app-token", Some("me")));
    let record = store.read("gh").unwrap();
    assert_eq!((record.access.expose(), record.refresh.is_none(), record.expires), (GITHUB[0], true, None));
    // As `gh` checks it.
    assert!(record.stand_ins.access.starts_with("gho_") && record.stand_ins.refresh.is_none());
    assert!(record.stand_ins.access != GITHUB[0]);
    // A new one of the same account keeps its stand-in; one of another is not taken.
    take_over(&gh, &hosts(GITHUB[1], "me"), None).unwrap();
    assert_eq!(store.read("gh").unwrap().stand_ins, record.stand_ins);
    let error = take_over(&gh, &hosts(GITHUB[0], "you"), None).unwrap_err().to_string();
    assert!(error.contains("is another one (me)"), "{error}");
    // A personal token is of another kind.
    let pat = Import { account: Some("pat".to_owned()), ..arguments(root.path(), "gh") };
    let stored = take_over(&pat, &hosts("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", "me"), None).unwrap();
    assert_eq!(stored.kind, "github-pat");
    let vibe = arguments(root.path(), "vibe");
    let file = |letter: &str| format!("# Vibe\nMISTRAL_API_KEY='{}'\n", letter.repeat(32)).into_bytes();
    let stored = take_over(&vibe, &file("a"), None).unwrap();
    assert_eq!((stored.kind.as_str(), stored.whose), ("mistral-api-key", None));
    assert_eq!(store.read("vibe").unwrap().access.expose(), "a".repeat(32));
    take_over(&vibe, &file("a"), None).unwrap();
    let error = take_over(&vibe, &file("b"), None).unwrap_err().to_string();
    assert!(error.contains("holds another key already") && error.contains("--replace"), "{error}");
    let replace = Import { replace: true, ..arguments(root.path(), "vibe") };
    take_over(&replace, &file("b"), None).unwrap();
    let stand_in = store.read("vibe").unwrap().stand_ins.access;
    let error = take_over(&vibe, format!("MISTRAL_API_KEY={stand_in}\n").as_bytes(), None).unwrap_err();
    assert!(error.to_string().contains("is a stand-in"), "{error}");
}

#[test]
fn files_of_keys_that_are_none_are_refused_and_nothing_of_them_is_told() {
    let root = tempfile::tempdir().unwrap();
    let whole = String::from_utf8(hosts(GITHUB[0], "me")).unwrap();
    for (format, text, said) in [
        ("gh", String::new(), "it is empty"),
        ("gh", "<html>".to_owned(), "it is not YAML as it is known of such files (line 1)"),
        ("gh", "{\"github.com\": {}}".to_owned(), "it is not YAML"),
        // Cut in the middle of its token, or before it.
        ("gh", whole[..whole.find("BZsC").unwrap()].to_owned(), "has no `/github.com/oauth_token`"),
        (
            "gh",
            whole[..whole.rfind("BZsC").unwrap()].to_owned(),
            "expected a whole one, which starts with `gho_`",
        ),
        // Of the keyring, of a server of one's own, of an unknown version.
        ("gh", "github.com:\n    user: me\n".to_owned(), "the system's keyring"),
        ("gh", whole.replace("github.com", "ghe.example"), "has no `/github.com/oauth_token`"),
        ("gh", "github.com:\n    - oauth_token: x\n".to_owned(), "(line 2)"),
        ("gh", whole.replace(GITHUB[0], "glpat-secret-0123456789"), "none of a shape that is known"),
        ("vibe", "OPENAI_API_KEY=sk-secret\n".to_owned(), "has no `/MISTRAL_API_KEY`"),
        ("vibe", "MISTRAL_API_KEY=\n".to_owned(), "the system's keyring"),
        ("vibe", "MISTRAL_API_KEY=secret0123456789\n".to_owned(), "copy the whole file"),
        ("vibe", "MISTRAL_API_KEY='secretsecretsecret\n".to_owned(), "KEY=value (line 1)"),
        ("vibe", "<html>".to_owned(), "KEY=value (line 1)"),
    ] {
        let error = take_over(&arguments(root.path(), format), text.as_bytes(), None).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(said), "{text}: {error}\nexpected {said}");
        assert!(
            !error.contains("secret0") && !error.contains("sk-secret") && !error.contains("realreal"),
            "{error}"
        );
    }
    assert!(Store::new(root.path().join("accounts")).names().unwrap().is_empty());
}

#[test]
fn a_file_is_changed_only_when_that_is_said_and_is_kept_as_it_was() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("hosts.yml");
    let path = |ending: &str| root.path().join(format!("hosts.yml{ending}"));
    std::fs::write(&file, hosts(GITHUB[0], "me")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    take_over(&arguments(root.path(), "gh"), &hosts(GITHUB[0], "me"), None).unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), hosts(GITHUB[0], "me"));

    let original = Original::read(&file).unwrap();
    let stored = take_over(&arguments(root.path(), "gh"), original.bytes(), Some(&original)).unwrap();
    let stand_in = Store::new(root.path().join("accounts")).read("gh").unwrap().stand_ins.access;
    // Wherever it stood, and nothing else of it.
    assert_eq!(std::fs::read(&file).unwrap(), hosts(&stand_in, "me"));
    assert_eq!(stored.previous.as_deref(), Some(path(".previous").as_path()));
    assert_eq!(std::fs::read(path(".previous")).unwrap(), hosts(GITHUB[0], "me"));
    for kept in [file.clone(), path(".previous")] {
        assert_eq!(std::fs::metadata(kept).unwrap().mode() & 0o777, 0o600);
    }
    assert!(!path(".new").exists() && !path(".keeping").exists());
    // What cannot be put there is told with what is left to do.
    std::fs::create_dir(path(".new")).unwrap();
    std::fs::write(&file, hosts(GITHUB[0], "me")).unwrap();
    let error = take_over(&arguments(root.path(), "gh"), original.bytes(), Some(&original)).unwrap_err();
    assert!(
        error.to_string().contains("the account is stored, and the file still has its tokens"),
        "{error}"
    );
    assert_eq!(std::fs::read(&file).unwrap(), hosts(GITHUB[0], "me"));
    std::fs::remove_dir(path(".new")).unwrap();
    // What was changed meanwhile, or is no file, stays.
    std::fs::write(&file, hosts(GITHUB[1], "me")).unwrap();
    let error = take_over(&arguments(root.path(), "gh"), original.bytes(), Some(&original)).unwrap_err();
    assert!(error.to_string().contains("changed meanwhile"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), hosts(GITHUB[1], "me"));
    assert!(!path(".keeping").exists());
    std::os::unix::fs::symlink(&file, path(".link")).unwrap();
    assert!(Original::read(&path(".link")).err().unwrap().to_string().contains("name the file itself"));
    // A token that is written in another way than it is read, as JSON can.
    let file = root.path().join("auth.json");
    let text = String::from_utf8(claude(FIRST, "a-1")).unwrap();
    std::fs::write(&file, text.replace("sk-ant-ort01", "sk-\\u0061nt-ort01")).unwrap();
    let original = Original::read(&file).unwrap();
    let error =
        take_over(&arguments(root.path(), "claude-code"), original.bytes(), Some(&original)).unwrap_err();
    assert!(error.to_string().contains("its refresh token is not written there"), "{error}");
    assert!(Store::new(root.path().join("accounts")).read("claude-code").is_err());
}
