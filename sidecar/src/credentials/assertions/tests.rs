//! Keys here are made up.
