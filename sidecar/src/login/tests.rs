use serde_json::json;

use super::*;
use crate::accounts::seal::StoreKey;

fn arguments(root: &std::path::Path, format: &str) -> Import {
    Import {
        format: format.to_owned(),
        account: None,
        replace: false,
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
    let stored = take_over(&arguments, &claude(FIRST, "a-1")).unwrap();
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
            && first.stand_ins.refresh.starts_with("sk-ant-ort01-")
    );
    assert_eq!((first.generation, first.scopes.as_slice()), (1, ["user:profile".to_owned()].as_slice()));

    take_over(&arguments, &claude(SECOND, "a-1")).unwrap();
    let second = store.read("claude-code").unwrap();
    assert_eq!((second.generation, &second.stand_ins), (2, &first.stand_ins));
    assert_eq!(second.access.expose(), SECOND);
    assert_eq!(store.previous("claude-code").unwrap().access.expose(), FIRST);
}

#[test]
fn an_account_of_somebody_else_is_not_written_over_unless_that_is_meant() {
    let root = tempfile::tempdir().unwrap();
    let mut arguments = arguments(root.path(), "claude-code");
    take_over(&arguments, &claude(FIRST, "a-1")).unwrap();
    let error = take_over(&arguments, &claude(SECOND, "b-2")).unwrap_err().to_string();
    assert!(error.contains("is another one (a-1)") && error.contains("--replace"), "{error}");
    let store = Store::new(root.path().join("accounts"));
    let first = store.read("claude-code").unwrap();
    assert_eq!(first.access.expose(), FIRST);
    arguments.replace = true;
    take_over(&arguments, &claude(SECOND, "b-2")).unwrap();
    assert_eq!(store.read("claude-code").unwrap().facts["account-id"], "b-2");
}

#[test]
fn a_file_from_a_container_and_a_format_that_is_not_known_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let arguments_of = |format: &str| arguments(root.path(), format);
    take_over(&arguments_of("claude-code"), &claude(FIRST, "a-1")).unwrap();
    let stand_ins = Store::new(root.path().join("accounts")).read("claude-code").unwrap().stand_ins;
    let error = take_over(&arguments_of("claude-code"), &claude(&stand_ins.access, "a-1"));
    assert!(error.unwrap_err().to_string().contains("is a stand-in"));
    let error = take_over(&arguments_of("claude-cod"), b"{}").unwrap_err().to_string();
    assert!(error.contains("did you mean `claude-code`?") && error.contains("codex, "), "{error}");
    let named = Import { account: Some("../x".to_owned()), ..arguments_of("claude-code") };
    assert!(take_over(&named, &claude(FIRST, "a-1")).unwrap_err().to_string().contains("name of an account"));
}

#[test]
fn what_is_stored_is_for_the_sidecar_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let root = tempfile::tempdir().unwrap();
    take_over(&arguments(root.path(), "claude-code"), &claude(FIRST, "a-1")).unwrap();
    take_over(&arguments(root.path(), "claude-code"), &claude(SECOND, "a-1")).unwrap();
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
    take_over(&arguments, &claude(FIRST, "a-1")).unwrap();
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
        let error = take_over(&arguments, &claude(SECOND, "a-1")).unwrap_err().to_string();
        assert!(error.contains("no key was given"), "{error}");
    }
    assert_eq!(text(), before);
    sealed.convert("claude-code", &plain).unwrap();
    assert_eq!(plain.read("claude-code").unwrap().generation, 5);
    assert!(plain.previous("claude-code").is_some() && text().contains(FIRST));
}
