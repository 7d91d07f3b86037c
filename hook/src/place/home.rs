//! The home directory of the container's user, in which files are placed: from its `/etc/passwd`, which is read as a
//! file, without NSS. The environment may be the image's: what it calls home is only searched for logins.

use std::path::{Path, PathBuf};

use super::tree::Directory;

const PASSWD: &str = "etc/passwd";

/// Always absolute. A passwd file that is missing, hostile or without this user is no error: images without one are
/// common.
pub(crate) fn of(root: &Directory, uid: u32) -> PathBuf {
    let passwd = root.find(Path::new(PASSWD)).ok().flatten().unwrap_or_default();
    match home(&String::from_utf8_lossy(&passwd), uid) {
        Some(home) => home,
        None if uid == 0 => PathBuf::from("/root"),
        None => PathBuf::from("/"),
    }
}

/// Field 6 of the first line with this uid, passwd(5).
pub(crate) fn home(passwd: &str, uid: u32) -> Option<PathBuf> {
    let home = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, found, _, _, home, ..] = fields.as_slice() else { return None };
        (found.parse() == Ok(uid)).then_some(*home)
    })?;
    (home.starts_with('/') && !home.contains('\0')).then(|| PathBuf::from(home))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n# note\nbad\nagent:x:1000:1000::/home/agent:/bin/sh\ntwin:x:1000:1:::/\nrel:x:7:7::home:\n";

    #[test]
    fn the_first_line_with_the_uid_counts() {
        assert_eq!(home(PASSWD, 1000), Some("/home/agent".into()));
        assert_eq!(home(PASSWD, 0), Some("/root".into()));
        assert_eq!(home(PASSWD, 5), None);
        assert_eq!(home(PASSWD, 7), None, "a relative home is none");
    }

    #[test]
    fn without_a_line_it_is_the_usual_one() {
        let scratch = tempfile::tempdir().unwrap();
        let root = Directory::open(scratch.path()).unwrap();
        assert_eq!(of(&root, 0), Path::new("/root"));
        assert_eq!(of(&root, 1000), Path::new("/"));
    }

    #[test]
    fn a_fifo_for_a_passwd_is_not_waited_for() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::create_dir(scratch.path().join("etc")).unwrap();
        let fifo = scratch.path().join("etc/passwd");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
        assert_eq!(of(&Directory::open(scratch.path()).unwrap(), 1000), Path::new("/"));
    }
}
