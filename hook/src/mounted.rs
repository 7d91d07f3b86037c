//! Where a path lies in the file system that it is on, proc_pid_mountinfo(5).
//!
//! A bind mount gives a directory another name, and its parents there are not the ones that it has: `volumes/x/_data` can
//! be `~/.ssh/keys`, whatever `volumes/x` is. In the file system there is one path for both.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use understudy_control::HostMount;

use crate::workspace::guard::Guarded;

/// A path within a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// `major:minor`: the same for every mount of a file system, also where `st_dev` is not (btrfs).
    device: String,
    path: PathBuf,
    /// An overlay shows directories of other file systems, and says of none of its files where it comes from.
    #[serde(skip)]
    overlay: bool,
    /// The paths at which that file system is mounted; the first is the one on the way here.
    #[serde(skip)]
    mount_points: Vec<PathBuf>,
}

impl Place {
    /// For messages.
    pub(crate) fn shown(&self) -> String {
        self.path.display().to_string()
    }

    pub(crate) fn lies_in(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }

    /// For the sidecar. None of what has no such place.
    pub(crate) fn for_sidecar(&self, writable: bool, name: &str) -> Option<HostMount> {
        HostMount::new(&self.device, &self.path, writable, name)
    }

    /// Whether an overlay is mounted there or on the way there, below the first of `directories` (which have no links in
    /// them), and is to be seen nowhere but in them. One that is mounted elsewhere, as the root may be, is a file system
    /// of the host's like any other, of which a directory is bound here.
    pub(crate) fn is_of_an_overlay_of(&self, directories: &[&Path]) -> bool {
        let below = |point: &Path, directory: &Path| point != directory && point.starts_with(directory);
        let mut points = self.mount_points.iter();
        self.overlay
            && points.next().zip(directories.first()).is_some_and(|(point, first)| below(point, first))
            && points.all(|point| directories.iter().any(|directory| below(point, directory)))
    }
}

#[derive(Debug)]
pub(crate) struct Mounts(Vec<Mount>);

#[derive(Debug)]
struct Mount {
    id: u64,
    device: String,
    root: PathBuf,
    point: PathBuf,
    read_only: bool,
    overlay: bool,
}

impl Mounts {
    pub(crate) fn read() -> io::Result<Self> {
        Self::parse(&fs::read("/proc/self/mountinfo")?)
    }

    /// The first of `expected` that is not mounted here, each as often as it is expected. Where each is mounted does not
    /// matter: links in an image change that.
    pub(crate) fn first_missing<'a>(&self, expected: &'a [Place]) -> Option<&'a Place> {
        let mut left: Vec<&Mount> = self.0.iter().collect();
        expected.iter().find(|place| {
            let found =
                left.iter().position(|mount| mount.device == place.device && mount.root == place.path);
            found.map(|found| left.swap_remove(found)).is_none()
        })
    }

    /// The first of `expected` that is not mounted where it is to be, beside what it lies in.
    pub(crate) fn first_unguarded<'a>(&self, expected: &'a [Guarded]) -> Option<&'a Guarded> {
        expected.iter().find(|guarded| {
            !self.lying_over(guarded).iter().any(|mount| mount.read_only == guarded.read_only)
        })
    }

    /// The mounts that lie over it, read-only yet or not: the mount's number (statx(2), `stx_mnt_id`), and where.
    pub(crate) fn guards(&self, guarded: &Guarded) -> Vec<(u64, &Path)> {
        self.lying_over(guarded).into_iter().map(|mount| (mount.id, mount.point.as_path())).collect()
    }

    fn lying_over(&self, guarded: &Guarded) -> Vec<&Mount> {
        let of = |place: &Place, mount: &Mount| mount.device == place.device && mount.root == place.path;
        let points = self.0.iter().filter(|mount| of(&guarded.mount, mount));
        let points: Vec<PathBuf> = points.map(|mount| mount.point.join(&guarded.below)).collect();
        let mut all: Vec<&Mount> = self.0.iter().filter(|mount| of(&guarded.place, mount)).collect();
        all.retain(|mount| points.contains(&mount.point));
        all
    }

    /// What is mounted below a path that has no links in it, each with whether it is read-only.
    pub(crate) fn below(&self, path: &Path) -> io::Result<Vec<(Place, bool)>> {
        let below = self.0.iter().filter(|mount| mount.point != path && mount.point.starts_with(path));
        below.map(|mount| Ok((self.place(&mount.point)?, mount.read_only))).collect()
    }

    pub(crate) fn has(&self, id: u64) -> bool {
        self.0.iter().any(|mount| mount.id == id)
    }

    pub(crate) fn parse(text: &[u8]) -> io::Result<Self> {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let all = lines.map(|line| {
            mount(line).ok_or_else(|| io::Error::other("/proc/self/mountinfo is not understood"))
        });
        all.collect::<io::Result<_>>().map(Self)
    }

    /// `path` has no links in it.
    pub(crate) fn place(&self, path: &Path) -> io::Result<Place> {
        // Of mounts at one point the last one is seen. (`max_by_key` answers with the last of equals.)
        let covering = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        let mount = covering.max_by_key(|mount| mount.point.components().count());
        let mount = mount.ok_or_else(|| io::Error::other(format!("{} is on no mount", path.display())))?;
        let rest = path.strip_prefix(&mount.point).map_err(io::Error::other)?;
        let within = if rest.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(rest) };
        let others = self.0.iter().filter(|other| other.device == mount.device).map(|other| &other.point);
        let mount_points = std::iter::once(&mount.point).chain(others).cloned().collect();
        Ok(Place { device: mount.device.clone(), path: within, overlay: mount.overlay, mount_points })
    }
}

/// `36 35 98:0 /root /point options [optional fields] - type source options`
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let id = number(fields.next()?)?;
    let device = String::from_utf8(fields.nth(1)?.to_vec()).ok()?;
    let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
    let read_only = fields.next()?.split(|byte| *byte == b',').any(|option| option == b"ro");
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let overlay = kind == b"overlay" || kind == b"fuse.fuse-overlayfs";
    Some(Mount { id, device, root, point, read_only, overlay })
}

/// Blank, tab, line feed and backslash are written as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, more)) = rest.split_first() {
        let code = rest.get(1..4).filter(|_| *first == b'\\').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = rest.get(4..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = br"
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /proc rw - proc proc rw
30 22 254:1 /home/u/.ssh/keys /srv/volumes/x/_data rw master:1 - ext4 /dev/vda1 rw
31 22 0:50 / /srv/volumes/o/_data rw - overlay overlay rw,lowerdir=/home/u/.ssh
32 22 254:1 /home/with\040blank /mnt/a\134b rw - ext4 /dev/vda1 rw
33 22 0:60 /first /mnt/twice rw - tmpfs tmpfs rw
34 33 0:61 /second /mnt/twice rw - tmpfs tmpfs rw
";

    fn place(path: &str) -> Place {
        Mounts::parse(MOUNTS).unwrap().place(Path::new(path)).unwrap()
    }

    #[test]
    fn below_a_bind_mount_the_place_is_where_it_comes_from() {
        let ssh = place("/home/u/.ssh");
        assert!(place("/srv/volumes/x/_data").lies_in(&ssh));
        assert!(place("/srv/volumes/x/_data/sub").lies_in(&ssh));
        assert!(!place("/srv/volumes/y/_data").lies_in(&ssh));
        assert!(!place("/home/u/.sshkeys").lies_in(&ssh));
        assert!(ssh.lies_in(&place("/")) && !place("/proc/1").lies_in(&place("/")));
    }

    #[test]
    fn escaped_names_and_the_uppermost_of_two_mounts_are_found() {
        assert_eq!(place(r"/mnt/a\b/c").path, Path::new("/home/with blank/c"));
        assert_eq!(place("/mnt/twice/x").path, Path::new("/second/x"));
    }

    const VOLUMES: &str = "/srv/storage/volumes";

    /// `root` is the type of the root file system.
    fn is_of_an_overlay(root: &str, path: &str) -> bool {
        let table = format!(
            "22 1 0:40 / / rw - {root} root rw,lowerdir=/x\n\
             30 22 0:40 /home/u/data {VOLUMES}/bound/_data rw - {root} root rw\n\
             31 22 0:50 / {VOLUMES}/own/_data rw - overlay overlay rw,lowerdir=/home/u/.ssh\n\
             32 22 0:50 /keys {VOLUMES}/of-own/_data rw - overlay overlay rw,lowerdir=/home/u/.ssh\n\
             33 22 0:51 / /srv/storage/overlay/l/merged rw - overlay overlay rw,lowerdir=/a\n\
             34 22 0:51 /root {VOLUMES}/containers/_data rw - overlay overlay rw,lowerdir=/a\n"
        );
        let storage = [Path::new(VOLUMES), Path::new("/srv/storage"), Path::new("/run/containers")];
        Mounts::parse(table.as_bytes()).unwrap().place(Path::new(path)).unwrap().is_of_an_overlay_of(&storage)
    }

    #[test]
    fn an_overlay_of_a_volume_or_a_container_is_told() {
        for root in ["ext4", "overlay"] {
            for volume in ["own", "of-own", "containers"] {
                assert!(is_of_an_overlay(root, &format!("{VOLUMES}/{volume}/_data/x")), "{root} {volume}");
            }
        }
    }

    #[test]
    fn a_host_whose_root_is_an_overlay_has_volumes_like_any_other() {
        for root in ["ext4", "overlay", "fuse.fuse-overlayfs"] {
            for path in [&format!("{VOLUMES}/bound/_data"), &format!("{VOLUMES}/plain/_data"), "/home/u/data"]
            {
                assert!(!is_of_an_overlay(root, path), "{root} {path}");
            }
        }
    }

    #[test]
    fn volumes_on_an_overlay_of_their_own_are_volumes_all_the_same() {
        let table = format!("22 1 0:40 / / rw - ext4 x rw\n23 22 0:41 / {VOLUMES} rw - overlay x rw\n");
        let mounts = Mounts::parse(table.as_bytes()).unwrap();
        let place = mounts.place(&Path::new(VOLUMES).join("x/_data")).unwrap();
        assert!(!place.is_of_an_overlay_of(&[Path::new(VOLUMES)]));
    }

    #[test]
    fn a_mount_of_something_else_is_missed() {
        let mounts = Mounts::parse(MOUNTS).unwrap();
        let keys = place("/srv/volumes/x/_data");
        assert_eq!(mounts.first_missing(&[keys.clone(), place("/mnt/twice")]), None);
        let twice = [keys.clone(), keys];
        assert_eq!(mounts.first_missing(&twice), Some(&twice[1]));
        let other = [place("/home/u/.ssh")];
        assert_eq!(mounts.first_missing(&other), Some(&other[0]));
        let written = serde_json::to_vec(&other).unwrap();
        assert_eq!(
            mounts.first_missing(&serde_json::from_slice::<Vec<Place>>(&written).unwrap()).unwrap().shown(),
            "/home/u/.ssh"
        );
    }

    #[test]
    fn a_guard_that_is_elsewhere_or_of_something_else_or_writable_is_missed() {
        let table = "22 1 254:1 /home/u/p /work rw - ext4 x rw\n\
                     23 22 254:1 /home/u/p/.git /work/.git rw - ext4 x rw\n\
                     24 23 254:1 /home/u/p/.git/hooks /work/.git/hooks ro,nosuid - ext4 x rw\n\
                     25 23 254:1 /home/u/.ssh /work/.git/config ro - ext4 x rw\n\
                     26 22 254:1 /home/u/p/.envrc /elsewhere/.envrc ro - ext4 x rw\n";
        let mounts = Mounts::parse(table.as_bytes()).unwrap();
        let at = |path: &str| Place {
            device: "254:1".into(),
            path: path.into(),
            overlay: false,
            mount_points: Vec::new(),
        };
        let missed = |below: &str, read_only| {
            let place = at(&format!("/home/u/p/{below}"));
            let guarded = [Guarded { mount: at("/home/u/p"), below: below.into(), place, read_only }];
            mounts.first_unguarded(&guarded).is_some()
        };
        assert!(!missed(".git", false) && !missed(".git/hooks", true));
        assert!(missed(".git", true) && missed(".git/hooks", false));
        assert!(missed(".git/config", true) && missed(".envrc", true) && missed(".vscode", true));
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(Mounts::parse(b"22 1 254:1 /\n").is_err());
        assert!(Mounts::parse(b"").unwrap().place(Path::new("/x")).is_err());
        Mounts::read().unwrap().place(Path::new("/proc/self")).unwrap();
    }
}
