//! Placing below a scratch root, with what a hostile image could have left there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;
use crate::testing::in_private_netns;

const HOME: &str = "/home/agent";

fn scratch() -> (TempDir, Directory) {
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir_all(scratch.path().join("home/agent")).unwrap();
    let root = Directory::open(scratch.path()).unwrap();
    (scratch, root)
}

fn file(path: &str, write: Write, content: &str) -> Placement {
    let file = PlacedFile { path: path.to_owned(), mode: 0o640, write, content: content.to_owned() };
    Placement { files: vec![file], ..Placement::default() }
}

fn login(path: &str) -> Placement {
    let file = LoginFile { path: path.to_owned(), pointers: vec!["/token".to_owned()] };
    Placement { login_files: vec![file], stand_ins: vec!["stand-in".to_owned()], ..Placement::default() }
}

fn try_place(root: &Directory, placement: &Placement) -> Result<Vec<String>> {
    place(root, Path::new(HOME), &[], placement)
}

#[test]
fn files_appear_with_their_mode_and_directories_are_private() {
    let (scratch, root) = scratch();
    assert!(try_place(&root, &file("~/.agent/deep/x", Write::Create, "text")).unwrap().is_empty());
    try_place(&root, &file("/etc/agent.md", Write::Replace, "text")).unwrap();
    let placed = scratch.path().join("home/agent/.agent/deep/x");
    assert_eq!(fs::read_to_string(&placed).unwrap(), "text");
    assert_eq!(fs::metadata(&placed).unwrap().permissions().mode() & 0o7777, 0o640);
    for directory in ["home/agent/.agent", "home/agent/.agent/deep"] {
        assert_eq!(
            fs::metadata(scratch.path().join(directory)).unwrap().permissions().mode() & 0o7777,
            0o700
        );
    }
    assert_eq!(fs::read_to_string(scratch.path().join("etc/agent.md")).unwrap(), "text");
    assert_eq!(fs::read_dir(placed.parent().unwrap()).unwrap().count(), 1, "a temporary file stayed");
}

#[test]
fn create_leaves_replace_replaces_and_merge_merges() {
    let (scratch, root) = scratch();
    let path = scratch.path().join("home/agent/x");
    fs::write(&path, r#"{"a":1}"#).unwrap();
    try_place(&root, &file("~/x", Write::Create, "new")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"a":1}"#);
    try_place(&root, &file("~/x", Write::MergeJson, r#"{"b":2}"#)).unwrap();
    let merged: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(merged, serde_json::json!({"a":1,"b":2}));
    try_place(&root, &file("~/x", Write::Replace, "new")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    let error = try_place(&root, &file("~/x", Write::MergeJson, "{}")).unwrap_err();
    assert!(format!("{error:#}").contains("~/x") && format!("{error:#}").contains("not JSON"), "{error:#}");
}

#[test]
fn a_block_goes_into_a_text_and_a_link_to_one_is_left_with_a_note() {
    let (scratch, root) = scratch();
    let path = scratch.path().join("home/agent/x.md");
    assert!(try_place(&root, &file("~/x.md", Write::Block, "")).unwrap().is_empty());
    assert!(!path.exists(), "nothing to say makes no file");
    fs::write(&path, "mine\n").unwrap();
    try_place(&root, &file("~/x.md", Write::Block, "be brief")).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("mine\n") && text.contains("\nbe brief\n"), "{text}");
    try_place(&root, &file("~/x.md", Write::Block, "")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n");
    symlink("x.md", scratch.path().join("home/agent/link.md")).unwrap();
    let notes = try_place(&root, &file("~/link.md", Write::Block, "be brief")).unwrap();
    assert!(notes.len() == 1 && notes[0].contains("~/link.md has no instructions of ours"), "{notes:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n");
}

#[test]
fn lines_of_variables_are_merged() {
    let (scratch, root) = scratch();
    let path = scratch.path().join("home/agent/.env");
    fs::write(&path, "A=1\nKEY=old\n").unwrap();
    try_place(&root, &file("~/.env", Write::MergeEnv, "KEY=new")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "A=1\nKEY=new\n");
}

#[test]
fn another_name_of_an_old_file_is_not_written_through() {
    let (scratch, root) = scratch();
    let shared = scratch.path().join("precious");
    fs::write(&shared, "precious").unwrap();
    fs::hard_link(&shared, scratch.path().join("home/agent/x")).unwrap();
    try_place(&root, &file("~/x", Write::Replace, "new")).unwrap();
    assert_eq!(fs::read_to_string(&shared).unwrap(), "precious");
    assert_eq!(fs::metadata(&shared).unwrap().nlink(), 1);
}

#[test]
fn a_symlink_in_any_component_is_refused_by_name() {
    for (link, target) in [("home/agent/.agent", "../../etc"), ("home/agent/.agent", "/etc")] {
        let (scratch, root) = scratch();
        fs::create_dir(scratch.path().join("etc")).unwrap();
        symlink(target, scratch.path().join(link)).unwrap();
        for placement in [file("~/.agent/passwd", Write::Replace, "x"), login("~/.agent/passwd")] {
            let error = try_place(&root, &placement).unwrap_err();
            assert!(format!("{error:#}").contains("/home/agent/.agent is a symbolic link"), "{error:#}");
        }
        assert_eq!(fs::read_dir(scratch.path().join("etc")).unwrap().count(), 0);
    }
    let (scratch, root) = scratch();
    fs::write(scratch.path().join("precious"), "precious").unwrap();
    symlink("/precious", scratch.path().join("home/agent/x")).unwrap();
    for write in [Write::Create, Write::Replace, Write::MergeJson] {
        let error = try_place(&root, &file("~/x", write, "{}")).unwrap_err();
        assert!(format!("{error:#}").contains("/home/agent/x is a symbolic link"), "{error:#}");
    }
    assert!(try_place(&root, &login("~/x")).is_err());
    assert_eq!(fs::read_to_string(scratch.path().join("precious")).unwrap(), "precious");
}

#[test]
fn a_home_behind_a_symlink_is_found_below_the_root() {
    let (scratch, root) = scratch();
    fs::create_dir(scratch.path().join("var")).unwrap();
    fs::rename(scratch.path().join("home"), scratch.path().join("var/home")).unwrap();
    // Absolute: it must not lead out of the root.
    symlink("/var/home", scratch.path().join("home")).unwrap();
    try_place(&root, &file("~/x", Write::Create, "text")).unwrap();
    assert!(scratch.path().join("var/home/agent/x").exists());
}

#[test]
fn a_missing_home_is_made() {
    let (scratch, root) = scratch();
    place(&root, Path::new("/srv/agent"), &[], &file("~/x", Write::Create, "text")).unwrap();
    assert!(scratch.path().join("srv/agent/x").exists());
}

#[test]
fn fifos_sockets_and_directories_are_refused_and_not_waited_for() {
    let (scratch, root) = scratch();
    let home = scratch.path().join("home/agent");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, home.join("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(home.join("socket")).unwrap();
    fs::create_dir(home.join("directory")).unwrap();
    for name in ["fifo", "socket", "directory"] {
        for placement in [file(&format!("~/{name}"), Write::Replace, "x"), login(&format!("~/{name}"))] {
            let error = try_place(&root, &placement).unwrap_err();
            assert!(format!("{error:#}").contains("not a regular file"), "{name}: {error:#}");
        }
        assert!(
            try_place(&root, &file(&format!("~/{name}/x"), Write::Create, "x")).is_err()
                || name == "directory"
        );
    }
}

#[test]
fn a_file_without_end_is_refused() {
    let (scratch, root) = scratch();
    let file_ = fs::File::create(scratch.path().join("home/agent/x")).unwrap();
    file_.set_len(tree::MAX_FILE + 1).unwrap();
    for placement in [file("~/x", Write::MergeJson, "{}"), login("~/x")] {
        let error = try_place(&root, &placement).unwrap_err();
        assert!(format!("{error:#}").contains("larger than"), "{error:#}");
    }
}

#[test]
fn paths_that_climb_are_refused() {
    let (_scratch, root) = scratch();
    for path in ["x", "~x", "~/../x", "/a//b", "/a/./b", "~/", "/", "", "~/a\0b"] {
        assert!(try_place(&root, &file(path, Write::Create, "x")).is_err(), "{path:?}");
        assert!(try_place(&root, &login(path)).is_err(), "{path:?}");
    }
}

#[test]
fn a_real_login_stops_the_start_before_anything_is_written() {
    let (scratch, root) = scratch();
    let login_file = scratch.path().join("home/agent/login.json");
    fs::write(&login_file, r#"{"token":"real"}"#).unwrap();
    let placement = Placement {
        files: file("~/login.json", Write::Replace, r#"{"token":"stand-in"}"#).files,
        ..login("~/login.json")
    };
    let text = format!("{:#}", try_place(&root, &placement).unwrap_err());
    assert!(text.contains("/home/agent/login.json") && text.contains("remove"), "{text}");
    assert!(!text.contains("real\""), "{text}");
    assert_eq!(fs::read_to_string(&login_file).unwrap(), r#"{"token":"real"}"#);
    fs::write(&login_file, r#"{"token":"stand-in"}"#).unwrap();
    try_place(&root, &placement).unwrap();
    fs::remove_file(&login_file).unwrap();
    try_place(&root, &placement).unwrap();
    assert!(login_file.exists());
}

#[test]
fn a_read_only_home_is_a_note_unless_the_file_is_needed() {
    if !in_private_netns("place::tests::a_read_only_home_is_a_note_unless_the_file_is_needed") {
        return;
    }
    let (scratch, root) = scratch();
    let home = scratch.path().join("home/agent");
    let mount = |flags| rustix::mount::mount("none", &home, "tmpfs", flags, None).unwrap();
    mount(rustix::mount::MountFlags::RDONLY);
    for path in ["~/x", "~/.agent/x"] {
        for write in [Write::Create, Write::MergeJson] {
            let notes = try_place(&root, &file(path, write, "{}")).unwrap();
            assert!(notes.concat().contains("was not placed"), "{notes:?}");
        }
        let error = format!("{:#}", try_place(&root, &file(path, Write::Replace, "{}")).unwrap_err());
        assert!(error.contains("mount"), "{error}");
    }
    mount(rustix::mount::MountFlags::empty());
    fs::write(home.join("login.json"), r#"{"token":"real"}"#).unwrap();
    let again = rustix::mount::MountFlags::RDONLY;
    rustix::mount::mount_remount(&home, again, "").unwrap();
    assert!(try_place(&root, &login("~/login.json")).is_err());
}

#[test]
fn a_mount_of_another_directory_than_was_looked_at_stops_the_start() {
    let mounts = Mounts::read().unwrap();
    let seen = mounts.place(Path::new("/proc")).unwrap();
    as_looked_at(&mounts, std::slice::from_ref(&seen)).unwrap();
    let other = mounts.place(Path::new("/proc/1/fd")).unwrap();
    let error = as_looked_at(&mounts, &[seen, other]).unwrap_err().to_string();
    assert!(error.contains("/1/fd") && error.contains("start it again"), "{error}");
}

#[test]
fn the_state_is_read_to_its_end() {
    struct Counting<'a>(&'a [u8], &'a std::cell::Cell<bool>);
    impl io::Read for Counting<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1.set(self.0.is_empty());
            io::Read::read(&mut self.0, buffer)
        }
    }
    let ended = std::cell::Cell::new(false);
    take_state(Counting(&[b' '; 100_000], &ended));
    assert!(ended.get());
}

#[test]
fn a_login_in_the_home_of_the_environment_is_found_and_nothing_is_placed_there() {
    let search = |home: &str, root: &Directory| {
        let placement =
            Placement { files: file("~/x", Write::Create, "text").files, ..login("~/.agent/login.json") };
        place(root, Path::new(HOME), &[home.into(), HOME.into()], &placement)
    };
    let (scratch, root) = scratch();
    let other = scratch.path().join("workspace/home/.agent");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("login.json"), r#"{"token":"real"}"#).unwrap();
    symlink("/workspace/home", scratch.path().join("linked")).unwrap();
    for home in
        ["/workspace/home", "/workspace/home/", "/linked", "/workspace/../workspace/home", "workspace/home"]
    {
        let text = format!("{:#}", search(home, &root).unwrap_err());
        assert!(text.contains("HOME is") && text.contains(".agent/login.json"), "{text}");
        assert!(!text.contains("real\""), "{text}");
    }
    assert!(!scratch.path().join("home/agent/x").exists());

    fs::write(other.join("login.json"), r#"{"token":"stand-in"}"#).unwrap();
    search("/workspace/home", &root).unwrap();
    assert!(
        scratch.path().join("home/agent/x").exists() && !scratch.path().join("workspace/home/x").exists()
    );
}

#[test]
fn a_home_of_the_environment_is_as_hostile_as_any() {
    let (scratch, root) = scratch();
    let at = |name: &str| scratch.path().join(name);
    let search = |home: &str| place(&root, Path::new(HOME), &[home.into()], &login("~/.agent/login.json"));
    fs::create_dir_all(at("fifo/.agent")).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, at("fifo/.agent/login.json"), rustix::fs::FileType::Fifo, mode, 0)
        .unwrap();
    fs::create_dir_all(at("link")).unwrap();
    symlink("/fifo/.agent", at("link/.agent")).unwrap();
    symlink("/loop", at("loop")).unwrap();
    symlink("/proc/self/root", at("magic")).unwrap();
    fs::write(at("plain"), "").unwrap();
    for (home, reason) in [("/fifo", "not a regular file"), ("/link", "symbolic link"), ("/loop", "")] {
        let text = format!("{:#}", search(home).unwrap_err());
        assert!(text.contains(reason), "{text}");
    }
    for nothing in ["/missing", "/plain", "/magic", ""] {
        search(nothing).unwrap();
    }
}

#[test]
fn an_ssh_key_that_is_no_stand_in_keeps_the_container_from_starting_and_stays() {
    let framed = |body: &str| {
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
    };
    let key = LoginFile { path: "~/.ssh/id_ed25519".to_owned(), pointers: vec!["private-key".to_owned()] };
    let mut placement = file("~/.ssh/id_ed25519", Write::Replace, &framed("new"));
    placement
        .files
        .extend(file("~/.ssh/known_hosts", Write::MergeLines, "a.example ssh-ed25519 AAAA\n").files);
    placement.login_files = vec![key];
    placement.stand_ins = vec!["old".to_owned(), "new".to_owned()];
    let (scratch, root) = scratch();
    let at = |name: &str| scratch.path().join("home/agent/.ssh").join(name);
    fs::create_dir(at("")).unwrap();
    fs::write(at("known_hosts"), "b.example ssh-rsa BBBB\n").unwrap();
    fs::write(at("id_ed25519"), framed("real")).unwrap();
    let text = format!("{:#}", try_place(&root, &placement).unwrap_err());
    assert!(text.contains(".ssh/id_ed25519") && text.contains("not a stand-in"), "{text}");
    assert_eq!(fs::read_to_string(at("id_ed25519")).unwrap(), framed("real"));
    for before in ["old", "new"] {
        fs::write(at("id_ed25519"), framed(before)).unwrap();
        try_place(&root, &placement).unwrap();
        assert_eq!(fs::read_to_string(at("id_ed25519")).unwrap(), framed("new"));
        let known = fs::read_to_string(at("known_hosts")).unwrap();
        assert_eq!(known, "a.example ssh-ed25519 AAAA\nb.example ssh-rsa BBBB\n");
    }
}

#[test]
fn a_password_file_with_a_real_password_keeps_the_container_from_starting_and_ours_are_found_first() {
    let mut placement = file("~/.pgpass", Write::MergeLines, "db.example:5432:*:app:new\n");
    placement.login_files =
        vec![LoginFile { path: "~/.pgpass".to_owned(), pointers: vec!["pgpass".to_owned()] }];
    placement.stand_ins = vec!["old".to_owned(), "new".to_owned()];
    let (scratch, root) = scratch();
    let path = scratch.path().join("home/agent/.pgpass");
    for real in ["db.example:5432:*:app:real\n", "other.example:*:*:me:real"] {
        fs::write(&path, real).unwrap();
        let text = format!("{:#}", try_place(&root, &placement).unwrap_err());
        assert!(text.contains(".pgpass") && text.contains("not a stand-in"), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), real);
    }
    // Of an earlier start, when the secret had another name.
    fs::write(&path, "db.example:5432:*:app:old\n# mine\n").unwrap();
    try_place(&root, &placement).unwrap();
    let now = fs::read_to_string(&path).unwrap();
    assert_eq!(now, "db.example:5432:*:app:new\ndb.example:5432:*:app:old\n# mine\n");
}
