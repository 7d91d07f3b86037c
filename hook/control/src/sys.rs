//! The one module with `unsafe`: system calls that no safe wrapper offers.
#![allow(unsafe_code)]

mod lease;

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

pub use lease::{ReadLease, Wanted};

/// `SO_NETNS_COOKIE` of socket(7): a number that names the network namespace a socket was made in, never used
/// twice while the kernel runs. `ENOPROTOOPT` before Linux 5.14.
pub fn netns_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie: u64 = 0;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `cookie`, which is that long and lives through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != size_of::<u64>() {
        return Err(io::Error::other("SO_NETNS_COOKIE answered with another length"));
    }
    Ok(cookie)
}

/// Takes variables out of this process's environment, so that no program it starts inherits them. Only while the process
/// has one thread: another one could be reading the environment. Those that are about to end are waited for, a second.
pub fn forget_variables<'n>(names: impl IntoIterator<Item = &'n str>) -> io::Result<()> {
    for name in names {
        let deadline = Instant::now() + Duration::from_secs(1);
        while std::fs::read_dir("/proc/self/task")?.count() != 1 {
            if Instant::now() >= deadline {
                return Err(io::Error::other("variables can be forgotten only before threads are started"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // SAFETY: this is the only thread, as was just seen, and it starts none in between.
        unsafe { std::env::remove_var(name) };
    }
    Ok(())
}

/// Who is at the other end of a Unix socket, numbered as this process's namespaces number them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// 0 for a process that has no number in this pid namespace: the hook, seen from the sidecar's container.
    pub pid: i32,
    pub uid: u32,
}

/// `SO_PEERCRED` of unix(7). Not rustix's `socket_peercred`, whose pid cannot be 0: with a peer from outside of this
/// pid namespace its result reads as an error.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<PeerCredentials> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `credentials`, which is that long and lives through the
    // call; every bit pattern is a valid `ucred`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != size_of::<libc::ucred>() {
        return Err(io::Error::other("SO_PEERCRED answered with another length"));
    }
    Ok(PeerCredentials { pid: credentials.pid, uid: credentials.uid })
}

/// What a mount is made to be, mount_setattr(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountIs {
    /// Read-only, without set-user-ID programs and devices.
    ReadOnly,
    /// Writable if it was, without those.
    Writable,
    /// What is mounted in other copies of it is not mounted in it, and the other way around.
    Private,
}

/// `mount` is a descriptor of the mount's root.
pub fn make_mount(mount: impl AsFd, is: MountIs) -> io::Result<()> {
    /// `struct mount_attr` of linux/mount.h.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const READ_ONLY: u64 = 1;
    const NO_SET_USER_ID_NO_DEVICES: u64 = 2 | 4;
    let (set, propagation) = match is {
        MountIs::ReadOnly => (READ_ONLY | NO_SET_USER_ID_NO_DEVICES, 0),
        MountIs::Writable => (NO_SET_USER_ID_NO_DEVICES, 0),
        MountIs::Private => (0, libc::MS_PRIVATE),
    };
    let attributes = Attributes { set, clear: 0, propagation, user_namespace: 0 };
    // SAFETY: the path is a string that ends with NUL, and the kernel reads as many bytes of `attributes` as it is told.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes what this process inherited: every descriptor from 3 on. To be called before it has opened any of its own, and
/// while it has one thread: nothing in it then owns one of them.
pub fn close_inherited() -> io::Result<()> {
    const FIRST: RawFd = 3;
    // SAFETY: takes numbers only. Nothing of this process owns a descriptor yet, as is asked of the caller.
    let result = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stay_where_another_thread_could_be_reading_them() {
        // The harness of tests has a thread of its own.
        assert!(forget_variables(["CARGO_PKG_NAME"]).is_err());
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    }

    #[test]
    fn two_sockets_of_one_namespace_share_a_cookie() {
        let a = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let cookie = netns_cookie(&a).unwrap();
        assert_ne!(cookie, 0);
        assert_eq!(cookie, netns_cookie(&b).unwrap());
    }

    #[test]
    fn a_file_has_none() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(netns_cookie(&file).is_err());
    }
}
