//! What is in force until a reload replaces it. Whoever decides something takes it once and keeps it to the end.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Cheap to clone; all clones see the same.
pub struct Current<T>(Arc<ArcSwap<T>>);

impl<T> Current<T> {
    pub fn new(value: Arc<T>) -> Self {
        Self(Arc::new(ArcSwap::new(value)))
    }

    /// The same for as long as it is held.
    pub fn current(&self) -> Arc<T> {
        self.0.load_full()
    }

    pub fn replace(&self, value: Arc<T>) {
        self.0.store(value);
    }
}

impl<T> Clone for Current<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Default> Default for Current<T> {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl<T> From<T> for Current<T> {
    fn from(value: T) -> Self {
        Self::new(Arc::new(value))
    }
}

impl<T: fmt::Debug> fmt::Debug for Current<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.current().fmt(f)
    }
}
