//! The submodules that git's index names, gitformat-index(5).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Kernel's limit of a path.
const LONGEST: usize = 4096;
/// Submodules of one work tree.
const MOST: usize = 4096;

const TYPE: u32 = 0o170_000;
/// A commit of another repository.
const GITLINK: u32 = 0o160_000;
const EXTENDED: u16 = 0x4000;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// Relative to the work tree.
    pub(super) submodules: Vec<PathBuf>,
    /// The file beside it that has the other entries, if it is split.
    pub(super) shared: Option<String>,
}

/// `id` is the length of an object's name: 20 bytes, or 32 with SHA-256. `None` if it is not understood; git, too, refuses
/// such an index.
pub(super) fn parse(bytes: &[u8], id: usize) -> Option<Index> {
    let mut rest = bytes.strip_prefix(b"DIRC")?;
    let version = number(&mut rest)?;
    let count = number(&mut rest)?;
    if !(2..=4).contains(&version) {
        return None;
    }
    let mut index = Index::default();
    let mut path = Vec::new();
    for _ in 0..count {
        let before = rest.len();
        // times, device, inode; after the mode owner, group, size, object's name
        take(&mut rest, 24)?;
        let mode = number(&mut rest)?;
        take(&mut rest, 12 + id)?;
        let flags = u16::from_be_bytes(take(&mut rest, 2)?.try_into().ok()?);
        if version > 2 && flags & EXTENDED != 0 {
            take(&mut rest, 2)?;
        }
        // the fourth version cuts off the last path's end, and appends
        let kept = if version == 4 { path.len().checked_sub(offset(&mut rest)?)? } else { 0 };
        path.truncate(kept);
        let length = rest.iter().position(|byte| *byte == 0)?;
        path.extend(take(&mut rest, length)?);
        let padding = if version == 4 { 1 } else { 8 - (before - rest.len()) % 8 };
        take(&mut rest, padding)?;
        if path.len() > LONGEST || index.submodules.len() > MOST {
            return None;
        }
        // In a split index those that replace an entry of the shared one have no path.
        if mode & TYPE == GITLINK && !path.is_empty() {
            index.submodules.push(PathBuf::from(OsStr::from_bytes(&path)));
        }
    }
    // what is left at last is a checksum
    while rest.len() > id {
        let signature = take(&mut rest, 4)?;
        let length = number(&mut rest)?;
        let data = take(&mut rest, usize::try_from(length).ok()?)?;
        match signature {
            b"link" => {
                let name = data.get(..id)?;
                let hex = name.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
                index.shared = name.iter().any(|byte| *byte != 0).then(|| format!("sharedindex.{hex}"));
            }
            b"sdir" => {}
            [b'A'..=b'Z', ..] => {}
            // Who does not know it does not know what the index says.
            _ => return None,
        }
    }
    Some(index)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
}

/// The encoding of offsets in gitformat-pack(5).
fn offset(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0usize;
    loop {
        let byte = *take(rest, 1)?.first()?;
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 127))?;
        if byte & 128 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// What git itself writes, of a work tree with some files and the submodules `lib` and `vendor/deep/er/lib`.
    fn written(format: &str, configure: &str) -> (tempfile::TempDir, Vec<u8>) {
        let scratch = tempfile::tempdir().unwrap();
        let script = format!(
            "git init -q --object-format={format} . && {configure} && mkdir -p a/b vendor/deep/er && \
             for f in a/b/x a/b/longer-name a/c vendor/deep/file z; do echo $f >$f; done && git add . && \
             id=$(git hash-object z) && for s in lib vendor/deep/er/lib; do \
             git update-index --add --cacheinfo 160000,$id,$s; done && echo n >new && \
             git add -N new && git update-index --skip-worktree z"
        );
        let mut sh = Command::new("sh");
        sh.args(["-euc", &script]).current_dir(scratch.path()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(sh.status().unwrap().success());
        let index = std::fs::read(scratch.path().join(".git/index")).unwrap();
        (scratch, index)
    }

    #[test]
    fn what_git_writes_is_read() {
        for (format, id) in [("sha1", 20), ("sha256", 32)] {
            for version in 2..=4 {
                let (_scratch, bytes) = written(
                    format,
                    &format!("git config index.version {version} && git config core.untrackedCache true"),
                );
                let expected = [Path::new("lib"), Path::new("vendor/deep/er/lib")];
                let index = parse(&bytes, id).unwrap();
                assert_eq!(
                    (index.submodules.as_slice(), index.shared),
                    (&expected.map(PathBuf::from)[..], None)
                );
                assert_eq!(parse(&bytes[..bytes.len() / 2], id), None);
            }
        }
    }

    #[test]
    fn a_split_index_names_the_file_that_has_the_rest() {
        let (scratch, _) = written("sha1", "true");
        let mut git = Command::new("git");
        assert!(
            git.args(["update-index", "--split-index"])
                .current_dir(scratch.path())
                .status()
                .unwrap()
                .success()
        );
        let read = |name: &str| std::fs::read(scratch.path().join(".git").join(name)).unwrap();
        let shared = parse(&read("index"), 20).unwrap().shared.unwrap();
        assert_eq!(parse(&read(&shared), 20).unwrap().submodules.len(), 2);
    }

    #[test]
    fn what_is_none_is_not_understood() {
        let unknown = b"DIRC\0\0\0\x02\0\0\0\0abcd\0\0\0\0....................";
        assert_eq!(parse(unknown, 20), None);
        assert!(parse(&unknown.map(|byte| byte.to_ascii_uppercase()), 20).is_some());
        for bytes in [&b""[..], b"DIRC", b"DIRC\0\0\0\x05\0\0\0\0", b"DIRC\0\0\0\x02\0\0\0\x01"] {
            assert_eq!(parse(bytes, 20), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_end(version in 2u8..5, count in 0u8..9, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse(&[&[b'D', b'I', b'R', b'C', 0, 0, 0, version, 0, 0, 0, count][..], &bytes].concat(), 20);
        }
    }
}
