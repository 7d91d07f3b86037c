//! Connections that come in from outside, to what listens on the loopback of a sealed container: `understudy.publish`.

mod pool;

pub use pool::Pool;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use understudy_control::{Family, Published, annotation};

use super::accept::each;
use super::line::{Fault, Line};
use super::refusal;
use super::relay::{Broken, Passed, relay};
use crate::container::{Container, OpenConnection};
use crate::operator::{ended, within_limits};
use crate::proxy::Gateway;
use crate::publish::Leased;
use crate::reason::Reason;
use crate::workers::Seat;

/// While all sockets of the container are in use.
const PATIENCE: Duration = Duration::from_secs(5);

/// Leads from a port of the sidecar's to a port inside. Cheap to clone.
#[derive(Clone)]
struct Door {
    ports: Published,
    pool: Arc<Pool>,
    container: Arc<Container>,
    gateway: Arc<Gateway>,
}

/// Serves one published port until the container is revoked; the port is free once this has returned.
///
/// # Errors
/// If the runtime cannot watch the port.
pub fn serve(
    leased: Leased,
    pool: &Arc<Pool>,
    container: &Arc<Container>,
    gateway: &Arc<Gateway>,
) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let Leased { listener, ports, place } = leased;
    let listener = TcpListener::from_std(listener)?;
    let (pool, container, gateway) = (Arc::clone(pool), Arc::clone(container), Arc::clone(gateway));
    let door = Door { ports, pool, container, gateway };
    Ok(async move {
        each(&listener, &door.container, |stream| door.place(stream)).await;
        drop(listener);
        drop(place);
    })
}

impl Door {
    /// Hands a connection over to the worker with the fewest, for its whole life.
    fn place(&self, stream: TcpStream) {
        let open = self.container.open_connection();
        let seat = self.gateway.workers().seat();
        let runtime = seat.runtime().clone();
        let door = self.clone();
        // Only a socket that no runtime watches yet can be watched by another one.
        let socket = stream.into_std();
        runtime.spawn(async move { door.connection(socket.and_then(TcpStream::from_std), open, seat).await });
    }

    async fn connection(self, outside: io::Result<TcpStream>, _open: OpenConnection, _seat: Seat) {
        let mut line = Line::new(Arc::clone(&self.container), self.gateway.audit().clone());
        line.entry(|entry| {
            (entry.protocol, entry.host) = ("published", Some("localhost".to_owned()));
            entry.port = Some(self.ports.inside);
        });
        let outside = match outside {
            Ok(stream) => stream,
            Err(error) => return line.fail(Fault::new(Reason::Internal, &error.to_string())),
        };
        let mut revocation = self.container.revocation();
        let fault = tokio::select! {
            biased;
            _ = revocation.wait_for(|revoked| *revoked) => Some(Fault::new(Reason::Revoked, "")),
            fault = self.forbidden() => Some(fault),
            result = self.pass(&outside, &mut line) => result.err(),
        };
        if let Some(fault) = fault {
            refusal::reset(outside);
            line.fail(fault);
        }
    }

    /// Returns once the container may do nothing any more, by a ceiling that was changed, for example.
    async fn forbidden(&self) -> Fault {
        let mut changing = self.container.changing();
        loop {
            if let Some(denial) = ended(&self.container) {
                return Fault::of(denial);
            }
            let rights = self.container.rights();
            if let Some(why) = rights.policy.policies().iter().find_map(|policy| policy.error()) {
                return Fault::new(Reason::PolicyFailed, why);
            }
            if changing.changed().await.is_err() {
                return Fault::new(Reason::Revoked, "");
            }
        }
    }

    /// Ok when both sides have ended.
    async fn pass(&self, outside: &TcpStream, line: &mut Line) -> Result<(), Fault> {
        if self.container.counters.open_connections.load(Relaxed) > self.gateway.limits().connections {
            return Err(Fault::new(Reason::Overloaded, "too many open connections"));
        }
        // Dropped in this order: the stream, then the socket.
        let (_taken, inside) = self.reach().await?;
        within_limits(&self.container).map_err(Fault::of)?;
        let passed = Passed::new(&self.container);
        line.passes(&format!("{} {}", annotation::PUBLISH, self.ports), &passed);
        drop(outside.set_nodelay(true));
        drop(inside.set_nodelay(true));
        match relay(&inside, outside, &passed).await {
            Ok(()) => {
                pool::delivered(&inside).await;
                Ok(())
            }
            Err(Broken::Limit(denial)) => Err(Fault::of(denial)),
            Err(Broken::Container(error)) => {
                Err(Fault::broken_off(&format!("the container broke off: {error}")))
            }
            Err(Broken::Upstream(error)) => {
                Err(Fault::broken_off(&format!("the client outside broke off: {error}")))
            }
        }
    }

    /// What listens inside: on 127.0.0.1, or else on ::1, where `localhost` leads first in many programs.
    async fn reach(&self) -> Result<(pool::Taken, TcpStream), Fault> {
        let port = self.ports.inside;
        let limit = self.gateway.limits().connect;
        let mut why = String::new();
        for (family, address) in
            [(Family::V4, Ipv4Addr::LOCALHOST.into()), (Family::V6, Ipv6Addr::LOCALHOST.into())]
        {
            let Some(taken) = self.pool.take(family, PATIENCE).await else {
                return Err(Fault::new(Reason::Overloaded, "as many connections are open to it as can be"));
            };
            match timeout(limit, taken.connect(SocketAddr::new(address, port))).await {
                Ok(Ok(stream)) => return Ok((taken, stream)),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => return Err(Fault::new(Reason::UpstreamTimeout, "no connection in time")),
            }
        }
        let detail = format!("nothing inside answers on port {port} of 127.0.0.1 or ::1: {why}");
        Err(Fault::new(Reason::UpstreamFailed, &detail))
    }
}
