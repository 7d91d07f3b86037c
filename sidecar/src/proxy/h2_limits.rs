//! HTTP/2 settings, most of them towards containers. pingora's bounds hold only as long as nobody sets options of their
//! own, so each bound is set here.

use pingora_core::protocols::http::v2::server::{H2Options, default_h2_options};

/// Decoded headers of one request; an agent's are a few KiB.
pub(super) const HEADER_LIST: u32 = 64 * 1024;
pub(super) const STREAMS: u32 = 128;
/// What an upstream may send of one response before the container reads it (bytes). It is memory, and part of the
/// connection's 8 MiB, which other responses need, too. Enough for 160 Mbit/s from 100 ms away.
pub(super) const UPSTREAM_WINDOW: u32 = 2 << 20;
/// Requests whose streams were reset still run for a moment: this many at once before more are refused.
pub(super) const REQUESTS_IN_FLIGHT: usize = 2 * STREAMS as usize;

pub(super) fn options() -> H2Options {
    let mut options = default_h2_options();
    options
        .max_header_list_size(HEADER_LIST)
        .max_concurrent_streams(STREAMS)
        // Rapid reset (CVE-2023-44487) and its kin end the connection.
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(Some(100))
        .max_concurrent_reset_streams(20)
        // Windows are memory that one connection can fill while the upstream does not read, and the buffer is memory
        // that each stream can fill while the container does not. Loopback needs no more for its full speed.
        .initial_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .max_send_buffer_size(128 << 10);
    options
}
