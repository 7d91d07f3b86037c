//! The whole way of a connection over loopback: a real client, our accept loop, TLS on both sides, a real upstream.
//! Only the original destination is stated, as redirecting takes a network namespace.

// Helpers of tests, too: a fault in one is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accounts;
mod ask;
mod assertions;
mod audit;
mod aws;
mod aws_clients;
mod bodies;
mod client;
mod explained;
mod frames;
mod hostile;
mod kept;
mod key_login;
mod limits;
mod login;
mod minted;
mod minting;
mod named;
mod names;
mod openssh;
mod openssh_agent;
mod placements;
mod pool;
mod postgres;
mod postgres_clients;
#[path = "../../../integration-tests/src/mock/accounts.rs"]
#[allow(dead_code, unreachable_pub, reason = "the mock provider of other tests uses it, too")]
mod provider;
mod published;
mod raw;
mod reflect;
mod refusals;
mod reload;
mod report;
mod revoke;
mod scrub;
mod splice;
mod ssh;
mod streaming;
mod terms;
mod token_clients;
mod tunnels;
mod turned_away;
mod upgrades;
mod uploads;
mod upstream;
mod versions;
mod way_out;
mod workers;
mod world;
