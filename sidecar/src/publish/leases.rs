//! Who has which port: each is one container's until that has ended, and its connections with it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use understudy_control::{ContainerId, Published, Refusal, annotation};

use crate::container::Container;

/// For a container that has ended: its tasks give its ports back at once, though not in the same moment.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where the ports of one machine are taken and given back.
#[derive(Debug)]
pub struct Leases {
    address: IpAddr,
    taken: Mutex<HashMap<u16, Arc<Container>>>,
    freed: Condvar,
}

/// A port that a container has until this is dropped. The listener is closed before.
#[derive(Debug)]
pub struct Leased {
    pub listener: TcpListener,
    pub ports: Published,
    pub place: Place,
}

/// Frees the port when dropped.
#[derive(Debug)]
pub struct Place {
    leases: Arc<Leases>,
    port: u16,
}

impl Leases {
    /// Ports of `address`, which may be the unspecified one.
    pub fn new(address: IpAddr) -> Arc<Self> {
        Arc::new(Self { address, taken: Mutex::default(), freed: Condvar::new() })
    }

    /// Whether a container that is about to start could have them now. It may have them itself, from a run of which nobody
    /// told that it is over.
    ///
    /// # Errors
    /// The first that it could not have, and who has it.
    pub fn check(&self, wanted: &[Published], id: &ContainerId) -> Result<(), Refusal> {
        let taken = self.taken();
        for Published { outside, .. } in wanted {
            match taken.get(outside) {
                Some(other) if other.id != *id && !other.is_revoked() => {
                    return Err(is_taken(*outside, other));
                }
                Some(_) => {}
                None => drop(self.bind(*outside)?),
            }
        }
        Ok(())
    }

    /// All of them, listened on from now on, or none. Waits a moment for those of containers that have just ended.
    ///
    /// # Errors
    /// As [`Leases::check`].
    pub fn take(
        self: &Arc<Self>,
        wanted: &[Published],
        container: &Arc<Container>,
    ) -> Result<Vec<Leased>, Refusal> {
        wanted.iter().map(|ports| self.one(*ports, container)).collect()
    }

    fn one(self: &Arc<Self>, ports: Published, container: &Arc<Container>) -> Result<Leased, Refusal> {
        let port = ports.outside;
        let ending = |taken: &mut HashMap<u16, Arc<Container>>| {
            taken.get(&port).is_some_and(|other| other.is_revoked())
        };
        let waited = self.freed.wait_timeout_while(self.taken(), PATIENCE, ending);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = taken.get(&port) {
            return Err(is_taken(port, other));
        }
        let listener = self.bind(port)?;
        taken.insert(port, Arc::clone(container));
        Ok(Leased { listener, ports, place: Place { leases: Arc::clone(self), port } })
    }

    fn bind(&self, port: u16) -> Result<TcpListener, Refusal> {
        let bound = TcpListener::bind((self.address, port));
        bound.and_then(|listener| listener.set_nonblocking(true).map(|()| listener)).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::AddrInUse => "something else listens there".to_owned(),
                _ => error.to_string(),
            };
            Refusal::new(
                format!("port {port} cannot be opened in the sidecar's network: {why}"),
                another_port(),
            )
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<u16, Arc<Container>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leases.taken().remove(&self.port);
        self.leases.freed.notify_all();
    }
}

fn is_taken(port: u16, by: &Container) -> Refusal {
    Refusal::new(
        format!("port {port} of the sidecar leads to container {} already", by.label()),
        format!("end that one, or {}", another_port()),
    )
}

fn another_port() -> String {
    format!("write another port before the container's, as {}=3001:3000", annotation::PUBLISH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Rights;
    use crate::dns::SyntheticNames;

    fn container(digit: &str) -> Arc<Container> {
        let (rights, names) = (Rights::default(), SyntheticNames::default());
        let (id, name) = (digit.repeat(64).parse().unwrap(), Some(format!("agent-{digit}")));
        Arc::new(Container::new(id, name, "generic".to_owned(), rights, names, Vec::new()))
    }

    fn leases() -> Arc<Leases> {
        Leases::new([127, 0, 0, 1].into())
    }

    /// One that was free a moment ago.
    fn free() -> Published {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Published { outside: port, inside: 3000 }
    }

    #[test]
    fn a_port_is_one_containers_and_the_refusal_names_it() {
        let (leases, ports, first, second) = (leases(), free(), container("a"), container("b"));
        leases.check(&[ports], &first.id).unwrap();
        let leased = leases.take(&[ports], &first).unwrap();
        for refusal in
            [leases.check(&[ports], &second.id).unwrap_err(), leases.take(&[ports], &second).unwrap_err()]
        {
            assert!(refusal.reason.contains("agent-a already"), "{refusal:?}");
        }
        leases.check(&[ports], &first.id).unwrap();
        drop(leased);
        leases.check(&[ports], &second.id).unwrap();
        leases.take(&[ports], &second).unwrap();
    }

    #[test]
    fn one_that_has_ended_is_waited_for() {
        let (leases, ports, first, second) = (leases(), free(), container("a"), container("b"));
        let leased = leases.take(&[ports], &first).unwrap();
        first.revoke();
        leases.check(&[ports], &second.id).unwrap();
        let ending = std::thread::spawn(move || drop(leased));
        leases.take(&[ports], &second).unwrap();
        ending.join().unwrap();
    }

    #[test]
    fn a_port_of_something_else_is_refused_and_none_is_kept_of_a_list_that_cannot_be_had() {
        let (leases, ports, first) = (leases(), free(), container("a"));
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = Published { outside: other.local_addr().unwrap().port(), inside: 3000 };
        let wanted = [ports, theirs];
        for refusal in
            [leases.check(&wanted, &first.id).unwrap_err(), leases.take(&wanted, &first).unwrap_err()]
        {
            assert!(refusal.reason.contains("something else listens there"), "{refusal:?}");
        }
        leases.take(&[ports], &container("b")).unwrap();
    }
}
