//! The one module with `unsafe`: socket options that no safe wrapper offers.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

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

#[cfg(test)]
mod tests {
    use super::*;

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
