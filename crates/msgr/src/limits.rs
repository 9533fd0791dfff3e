//! Bounds on what a peer can make us hold or wait for.

use std::time::Duration;

/// Sizes in bytes. One value serves all connections of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Everything a peer may send before it has proven who it is; also the cap of one control frame.
    pub handshake_bytes: usize,
    /// From the first byte to a usable session.
    pub handshake_timeout: Duration,
    /// Cap of a message's front, and of its middle.
    pub front_bytes: u32,
    /// Cap of a message's data.
    pub data_bytes: u32,
    /// How far the receive buffer may run ahead of the bytes that have come in. Beyond it the buffer doubles.
    pub reserve_bytes: usize,
    /// A new receive buffer's room for small reads; at least a quarter of it is free before each read.
    pub read_bytes: usize,
    /// Send a keepalive when nothing was heard for this long; `None`: only when asked.
    pub keepalive_after: Option<Duration>,
    /// Close when nothing was heard for this long. Source: ms_connection_idle_timeout is 900 s.
    pub idle_timeout: Duration,
    /// Close when a frame has not come whole within this time for each MiB of it that was begun. Single bytes that keep the
    /// idle time from running out do not help here.
    pub frame_timeout_per_mib: Duration,
    /// A peer that the owner does not read from is sent something after so long, and again: only that shows that it is gone
    /// when its end stands behind what it has sent.
    pub probe_held_after: Duration,
    /// Acknowledge received messages of a lossless session when there are so many of them, or so many bytes in them, or
    /// the first has waited so long (as exactly as `Connection::tick` is called).
    pub ack_messages: usize,
    pub ack_bytes: usize,
    pub ack_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_bytes: 64 << 10,
            handshake_timeout: Duration::from_secs(10),
            front_bytes: 16 << 20,
            data_bytes: 128 << 20,
            reserve_bytes: (4 << 20) + (64 << 10),
            read_bytes: 64 << 10,
            keepalive_after: None,
            idle_timeout: Duration::from_secs(900),
            frame_timeout_per_mib: Duration::from_secs(30),
            probe_held_after: Duration::from_secs(5),
            ack_messages: 32,
            ack_bytes: 256 << 10,
            ack_after: Duration::from_millis(500),
        }
    }
}
