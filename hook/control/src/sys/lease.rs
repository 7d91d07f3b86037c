//! Leases, fcntl(2) `F_SETLEASE`: the kernel lets nobody open a file for writing until its holder gives way.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

/// While it is held, who opens the file for writing, or cuts it off, waits in the kernel, by whichever name, mount or descriptor they
/// come to it, for `fs.lease-break-time` (45 s by default) at the most; who does not want to wait is sent away. The holder is told either way:
/// see [`Wanted`]. It ends with the descriptor.
#[derive(Debug)]
pub struct ReadLease(File);

impl ReadLease {
    /// `None` if somebody has the regular file open for writing, or mapped so that it can be written. For the file's owner, and those who
    /// may act as one in this user namespace. Only with a [`Wanted`], or the first who wants the file ends this process.
    pub fn on(file: File) -> io::Result<Option<Self>> {
        match set(&file) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let owner = file.metadata()?.uid();
                // SAFETY: takes numbers only, concerns this thread alone, and answers with who it was.
                let own = unsafe { libc::setfsuid(owner) };
                let taken = set(&file);
                // SAFETY: as above.
                unsafe { libc::setfsuid(own.cast_unsigned()) };
                taken
            }
            taken => taken,
        }
        .map(|taken| taken.then_some(Self(file)))
    }

    pub fn file(&self) -> &File {
        &self.0
    }

    /// Whether somebody waits for it, or was sent away, or has waited for too long and has it.
    pub fn is_wanted(&self) -> io::Result<bool> {
        // SAFETY: takes numbers only.
        match unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_GETLEASE) } {
            -1 => Err(io::Error::last_os_error()),
            lease => Ok(lease != libc::F_RDLCK),
        }
    }
}

/// Whether it was given.
fn set(file: &File) -> io::Result<bool> {
    // SAFETY: takes numbers only.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

/// Readable once some lease of this process's is wanted; signalfd(2).
#[derive(Debug)]
pub struct Wanted(OwnedFd);

impl Wanted {
    /// Before there is any lease, in the thread that takes them, which must be the only one: the kernel tells by `SIGIO`, which ends a
    /// process that does not block it.
    pub fn listen() -> io::Result<Self> {
        let mut only = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` writes the whole set and does not fail; the other two are given it afterwards.
        let only = unsafe {
            libc::sigemptyset(only.as_mut_ptr());
            libc::sigaddset(only.as_mut_ptr(), libc::SIGIO);
            only.assume_init()
        };
        // SAFETY: reads the set, and writes none.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const only, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: reads the set, and answers with a descriptor that nobody else has.
        let descriptor =
            unsafe { libc::signalfd(-1, &raw const only, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as said, it is this one's alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Forgets what was told. Which lease is wanted is to be asked afterwards, of each: signals of one kind become one.
    pub fn heard(&self) -> io::Result<()> {
        let mut told = [0; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.0, &mut told) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Wanted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::Path;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn write_at_once(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path)
    }

    /// All in one test: the signal is the process's, and the threads of others must not get it.
    #[test]
    fn nobody_writes_a_leased_file_by_any_name_and_who_tries_is_noticed() {
        // The kernel gives a process's signal to any thread that does not block it: others than this one ignore it.
        // SAFETY: no handler is installed.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let wanted = Wanted::listen().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let (path, other) = (scratch.path().join("file"), scratch.path().join("other"));
        std::fs::write(&path, "text").unwrap();
        let opened = || File::open(&path).unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(ReadLease::on(opened()).unwrap().is_none());
        drop(writer);
        let lease = ReadLease::on(opened()).unwrap().unwrap();
        assert!(!lease.is_wanted().unwrap());
        std::fs::read(&path).unwrap();
        std::fs::hard_link(&path, &other).unwrap();
        std::fs::rename(&path, scratch.path().join("moved")).unwrap();
        assert!(!lease.is_wanted().unwrap(), "who reads, links or renames is not held up");
        assert_eq!(write_at_once(&other).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(lease.is_wanted().unwrap());
        drop(lease);
        write_at_once(&other).unwrap();
        wanted.heard().unwrap();
        let mut fds = [PollFd::new(&wanted, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap(), 0);
        assert!(ReadLease::on(File::open("/dev/null").unwrap()).is_err());
    }
}
