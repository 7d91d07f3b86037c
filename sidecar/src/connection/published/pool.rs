//! Sockets that were made in a container's network namespace, and stay in it wherever they are connected from. Each is used
//! for one connection after the other: connect(2) to AF_UNSPEC leaves a TCP socket as it was made.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::connect_unspec;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use understudy_control::Family;

/// For what was sent last to arrive, where who receives it is slow and has said already that it sends no more.
const DELIVERY: Duration = Duration::from_secs(60);

/// Those of one container.
#[derive(Debug)]
pub struct Pool {
    v4: Arc<Free>,
    v6: Arc<Free>,
}

/// As many places as sockets.
#[derive(Debug)]
struct Free {
    sockets: Mutex<Vec<OwnedFd>>,
    places: Arc<Semaphore>,
}

/// A socket that is given back when dropped, whatever has become of its connection. Streams of it must be gone by then.
#[derive(Debug)]
pub(super) struct Taken {
    socket: Option<OwnedFd>,
    home: Arc<Free>,
    place: Option<OwnedSemaphorePermit>,
}

impl Pool {
    /// Of sockets that do not block, and are neither bound nor connected.
    pub fn new(sockets: Vec<(Family, OwnedFd)>) -> Arc<Self> {
        let (v4, v6): (Vec<_>, Vec<_>) = sockets.into_iter().partition(|(family, _)| *family == Family::V4);
        let free = |sockets: Vec<(Family, OwnedFd)>| {
            let sockets: Vec<_> = sockets.into_iter().map(|(_, socket)| socket).collect();
            let places = Arc::new(Semaphore::new(sockets.len()));
            Arc::new(Free { sockets: sockets.into(), places })
        };
        Arc::new(Self { v4: free(v4), v6: free(v6) })
    }

    /// None if all are in use for so long.
    pub(super) async fn take(&self, family: Family, patience: Duration) -> Option<Taken> {
        let home = match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let place = timeout(patience, Arc::clone(&home.places).acquire_owned()).await.ok()?.ok()?;
        let socket = home.sockets().pop()?;
        Some(Taken { socket: Some(socket), home: Arc::clone(home), place: Some(place) })
    }
}

impl Free {
    fn sockets(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Watched by the runtime that this is called on; takes as long as the container does.
    pub(super) async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let socket = self.socket.as_ref().ok_or_else(|| io::Error::other("it was given back"))?;
        TcpSocket::from_std_stream(socket.try_clone()?.into()).connect(address).await
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        match connect_unspec(&socket) {
            // Before its place is free.
            Ok(()) => self.home.sockets().push(socket),
            Err(error) => {
                tracing::warn!(%error, "a socket of a container cannot be used again");
                if let Some(place) = self.place.take() {
                    place.forget();
                }
            }
        }
    }
}

/// Returns once all that was sent has been received, or cannot be. What was not would be thrown away with the connection,
/// which a closed socket would go on delivering. The kernel has closed the connection by itself where both ends are over.
pub(super) async fn delivered(stream: &TcpStream) {
    let wait = async {
        let mut pause = Duration::from_millis(1);
        while stream.peer_addr().is_ok() {
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    };
    // Too slow: it is cut off.
    drop(timeout(DELIVERY, wait).await);
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn pool(sockets: usize) -> Arc<Pool> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = || socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        Pool::new((0..sockets).map(|_| (Family::V4, made())).collect())
    }

    async fn take(pool: &Pool, patience: Duration) -> Option<Taken> {
        pool.take(Family::V4, patience).await
    }

    #[tokio::test]
    async fn there_are_as_many_as_were_given_and_each_comes_back() {
        let (pool, short, long) = (pool(2), Duration::from_millis(10), Duration::from_secs(60));
        assert!(pool.take(Family::V6, short).await.is_none());
        let (one, two) = (take(&pool, long).await.unwrap(), take(&pool, long).await.unwrap());
        assert!(take(&pool, short).await.is_none());
        drop(one);
        let three = take(&pool, long).await.unwrap();
        assert!(take(&pool, short).await.is_none());
        drop((two, three));
        assert!(take(&pool, long).await.is_some());
    }

    /// One whose queue is full does not answer at all.
    #[tokio::test]
    async fn an_attempt_that_was_broken_off_leaves_nothing_to_the_next() {
        let silent =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&silent, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        rustix::net::listen(&silent, 0).unwrap();
        let full = SocketAddr::try_from(rustix::net::getsockname(&silent).unwrap()).unwrap();
        let _queued = TcpStream::connect(full).await.unwrap();
        let (pool, long) = (pool(1), Duration::from_secs(60));
        let taken = take(&pool, long).await.unwrap();
        assert!(timeout(Duration::from_millis(50), taken.connect(full)).await.is_err(), "it answered");
        drop(taken);
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = take(&pool, long).await.unwrap();
        let mut stream = taken.connect(server.local_addr().unwrap()).await.unwrap();
        let mut inside = server.accept().await.unwrap().0;
        stream.write_all(b"x").await.unwrap();
        assert_eq!(inside.read(&mut [0; 9]).await.unwrap(), 1);
    }
}
