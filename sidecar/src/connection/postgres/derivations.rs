//! Keys from passwords are made slowly on purpose (PBKDF2), and a container asks for that before it has proved anything: so
//! one at a time for each container, and few for all, in the order in which they were asked for.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::super::line::Fault;
use crate::reason::Reason;

/// For all containers together. Each waits for one of every other container at the most.
static ALL: Semaphore = Semaphore::const_new(2);

/// Those of one container.
#[derive(Debug, Clone)]
pub(super) struct Derivations(Arc<Semaphore>);

impl Default for Derivations {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Derivations {
    /// Work that has begun cannot be stopped, so it is counted until it is done, also when nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Fault> {
        let internal = |error: &dyn std::fmt::Display| Fault::new(Reason::Internal, &error.to_string());
        let own = Arc::clone(&self.0).acquire_owned().await.map_err(|error| internal(&error))?;
        let shared = ALL.acquire().await.map_err(|error| internal(&error))?;
        let done = tokio::task::spawn_blocking(move || {
            let held = (own, shared);
            let result = work();
            drop(held);
            result
        });
        done.await.map_err(|error| internal(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn work_that_nobody_waits_for_counts_until_it_is_done() {
        let (one, other) = (Derivations::default(), Derivations::default());
        let (finish, finished) = mpsc::channel::<()>();
        let abandoned = timeout(SHORT, one.run(move || finished.recv().is_err()));
        assert!(abandoned.await.is_err());
        assert!(timeout(SHORT, one.run(|| ())).await.is_err(), "a second one of the same container");
        assert!(timeout(LONG, other.run(|| ())).await.is_ok(), "another container's");
        drop(finish);
        assert!(timeout(LONG, one.run(|| ())).await.is_ok());
    }
}
