//! Understudy's sidecar: the only way out of an agent's container, and the only place where real credentials are.

pub mod attach;
pub mod audit;
pub mod ceiling;
pub mod check;
pub mod config;
pub mod configuration;
pub mod connection;
pub mod container;
pub mod credentials;
pub mod current;
pub mod decide;
pub mod dns;
pub mod environment_file;
pub mod explain;
pub mod harden;
pub mod harness_files;
pub mod instructions;
pub mod policy_files;
pub mod proxy;
pub mod reason;
pub mod reload;
pub mod secrets;
pub mod serve;
pub mod status;
pub mod tls;
pub mod workers;
