use std::os::unix::fs::PermissionsExt as _;

use super::super::record::{StandIns, Token, Tokens};
use super::*;

const STEPS: [Step; 6] =
    [Step::WriteHalf, Step::Write, Step::Sync, Step::Keep, Step::Rename, Step::SyncDirectory];

fn record(generation: u64) -> Record {
    let token = |what: &str| Token::new(format!("{what}-of-generation-{generation}"));
    let tokens = Tokens { access: token("access"), refresh: Some(token("refresh")), id: None };
    Record { generation, ..Record::new("kind", tokens, StandIns::default()) }
}

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::new(directory.path().join("accounts"));
    (directory, store)
}

fn generation(store: &Store) -> u64 {
    let record = store.read("a").unwrap();
    // Never a mixture.
    assert_eq!(
        record.refresh.as_ref().unwrap().expose(),
        format!("refresh-of-generation-{}", record.generation)
    );
    assert_eq!(record.access.expose(), format!("access-of-generation-{}", record.generation));
    record.generation
}

#[test]
fn a_crash_at_any_step_leaves_a_whole_record_and_loses_none_that_was_written_whole() {
    for reserved in [false, true] {
        for step in STEPS {
            let (_directory, store) = store();
            store.write("a", &record(1), None).unwrap();
            if reserved {
                store.reserve("a").unwrap();
            }
            store.faults.break_at(Some(step));
            store.write("a", &record(2), Some(1)).unwrap_err();
            // Another process, after the crash.
            store.faults.break_at(None);
            let expected = if step == Step::WriteHalf { 1 } else { 2 };
            assert_eq!(generation(&store), expected, "{step:?}");
            assert_eq!(store.previous("a").map(|record| record.generation), (expected == 2).then_some(1));
            store.write("a", &record(expected + 1), Some(expected)).unwrap();
            assert_eq!(generation(&store), expected + 1, "{step:?}");
            assert_eq!(store.previous("a").unwrap().generation, expected, "{step:?}");
        }
    }
}

#[test]
fn the_same_holds_for_the_first_record_and_for_crash_after_crash() {
    for first in STEPS {
        for second in STEPS {
            let (_directory, store) = store();
            for (number, step) in [(1, first), (2, second)] {
                // As the keeper does: it finishes what the crash before left.
                store.reserve("a").unwrap();
                store.faults.break_at(Some(step));
                let before = store.read("a").ok().map(|record| record.generation);
                let next = record(before.unwrap_or(0) + 1);
                store.write("a", &next, before).unwrap_err();
                store.faults.break_at(None);
                let now = store.read("a").ok().map(|record| record.generation);
                let whole = step != Step::WriteHalf;
                assert_eq!(
                    now,
                    if whole { Some(next.generation) } else { before },
                    "{number} {first:?} {second:?}"
                );
            }
            store.reserve("a").unwrap();
        }
    }
}

#[test]
fn room_is_made_without_touching_what_is_there() {
    let (directory, store) = store();
    store.write("a", &record(1), None).unwrap();
    store.reserve("a").unwrap();
    store.reserve("a").unwrap();
    assert_eq!(generation(&store), 1);
    let new = directory.path().join("accounts/a.json.new");
    assert!(fs::metadata(new).unwrap().len() >= ROOM);
    store.write("a", &record(2), Some(1)).unwrap();
    assert_eq!(generation(&store), 2);
    let bytes = fs::read(directory.path().join("accounts/a.json")).unwrap();
    assert_eq!(bytes, record(2).to_bytes().unwrap().as_slice());
}

#[test]
fn a_record_that_changed_meanwhile_is_not_written_over() {
    let (_directory, store) = store();
    assert!(matches!(store.read("a"), Err(StoreError::Missing(_))));
    store.write("a", &record(1), None).unwrap();
    assert!(matches!(store.write("a", &record(1), None), Err(StoreError::Changed(_))));
    assert!(matches!(store.write("a", &record(3), Some(2)), Err(StoreError::Changed(_))));
    assert_eq!(generation(&store), 1);
}

#[test]
fn what_others_could_have_written_or_read_is_refused() {
    let (directory, store) = store();
    store.write("a", &record(1), None).unwrap();
    let path = directory.path().join("accounts/a.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = store.read("a").unwrap_err().to_string();
    assert!(error.ends_with(&format!("chmod 600 {}", path.display())), "{error}");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(matches!(store.read("a"), Err(StoreError::Io { .. })));
    for name in ["", "..", "a/b", "A", "a.json", &"a".repeat(65)] {
        assert!(matches!(store.read(name), Err(StoreError::Name)), "{name}");
    }
}

#[test]
fn a_broken_record_is_told_and_can_be_imported_over() {
    let (directory, store) = store();
    store.write("a", &record(1), None).unwrap();
    let path = directory.path().join("accounts/a.json");
    fs::write(&path, "{").unwrap();
    let error = store.read("a").unwrap_err().to_string();
    assert!(
        error.contains("a.json: it is not a whole record") && error.contains("import the login again"),
        "{error}"
    );
    store.write("a", &record(1), None).unwrap();
    assert_eq!(generation(&store), 1);
}

fn key(byte: u8) -> Option<StoreKey> {
    StoreKey::from_bytes(&[byte; 32])
}

#[test]
fn what_cannot_be_opened_is_told_precisely_and_never_replaced() {
    let (_directory, store) = store();
    let sealed = store.clone().sealed_by(key(1));
    sealed.write("a", &record(1), None).unwrap();
    sealed.write("a", &record(2), Some(1)).unwrap();
    assert_eq!(generation(&sealed), 2);
    assert_eq!(sealed.previous("a").unwrap().generation, 1);
    let path = sealed.path("a");
    let whole = fs::read(&path).unwrap();
    let wrong = store.clone().sealed_by(key(2));
    for (reader, said) in [(&store, "no key was given"), (&wrong, "give the right one")] {
        for before in [None, Some(2)] {
            let error = reader.write("a", &record(3), before).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("a.json"), "{error}");
        }
    }
    assert_eq!(fs::read(&path).unwrap(), whole);
    // A crash before the rename: who has another key must not take the older record.
    sealed.faults.break_at(Some(Step::Sync));
    sealed.write("a", &record(3), Some(2)).unwrap_err();
    sealed.faults.break_at(None);
    assert!(matches!(store.write("a", &record(3), Some(2)), Err(StoreError::Sealed { .. })));
    assert_eq!(generation(&sealed), 3);
    sealed.write("a", &record(4), Some(3)).unwrap();
    // Changed, cut short.
    let mut changed = fs::read(&path).unwrap();
    let at = changed.len() - 9;
    changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
    fs::write(&path, &changed).unwrap();
    assert!(sealed.read("a").unwrap_err().to_string().contains("was changed after it was encrypted"));
    assert!(sealed.write("a", &record(5), None).is_err());
    fs::write(&path, &changed[..40]).unwrap();
    assert!(sealed.read("a").unwrap_err().to_string().contains("not a whole record"));
    assert_eq!(record_of_previous(&sealed), 3);
}

fn record_of_previous(store: &Store) -> u64 {
    let path = store.path("a").with_extension("json.previous");
    store.parse("a", &path, &fs::read(&path).unwrap()).unwrap().generation
}

#[test]
fn a_crash_at_any_step_loses_nothing_of_a_sealed_store() {
    for step in STEPS {
        let (_directory, store) = store();
        let store = store.sealed_by(key(1));
        store.write("a", &record(1), None).unwrap();
        store.reserve("a").unwrap();
        store.faults.break_at(Some(step));
        store.write("a", &record(2), Some(1)).unwrap_err();
        store.faults.break_at(None);
        let expected = if step == Step::WriteHalf { 1 } else { 2 };
        assert_eq!(generation(&store), expected, "{step:?}");
        store.write("a", &record(expected + 1), Some(expected)).unwrap();
        assert_eq!(generation(&store), expected + 1, "{step:?}");
    }
}
