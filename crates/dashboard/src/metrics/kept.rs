//! The text that was gathered last, and how it is gathered once for many.

use std::sync::Mutex;
use std::time::Duration;

use admin::Reply;
use bytes::{Bytes, BytesMut};
use daemons::mgr::MgrHandle;
use manager::Ask;
use manager::prometheus::collect_duration;
use tokio::time::Instant;

use crate::server::lock;

/// All series of a moment.
#[derive(Debug, Clone)]
pub struct Gathered {
    pub text: Bytes,
    /// When that began, and how long it took.
    pub begun: Instant,
    pub took: Duration,
}

/// See the module.
#[derive(Default)]
pub struct Kept {
    last: Mutex<Option<Gathered>>,
    /// Only one gathers at a time. How long all took together, and how many there were.
    turn: tokio::sync::Mutex<(Duration, u64)>,
}

impl Kept {
    pub fn last(&self) -> Option<Gathered> {
        lock(&self.last).clone()
    }

    /// What was gathered from now on, by whoever had the turn.
    pub async fn gather(&self, manager: &MgrHandle) -> Result<Gathered, String> {
        let asked = Instant::now();
        let mut turn = self.turn.lock().await;
        if let Some(last) = self.last().filter(|last| last.begun >= asked) {
            return Ok(last);
        }
        let begun = Instant::now();
        let reply: Reply = manager.ask(Ask::Metrics).await;
        if reply.is_error() {
            return Err(reply.outs);
        }
        let took = begun.elapsed();
        turn.0 += took;
        turn.1 += 1;
        let of_itself = collect_duration(turn.0.as_secs_f64(), turn.1);
        let mut text = BytesMut::with_capacity(reply.data.len() + of_itself.len());
        text.extend_from_slice(&reply.data);
        text.extend_from_slice(of_itself.as_bytes());
        let gathered = Gathered { text: text.freeze(), begun, took };
        *lock(&self.last) = Some(gathered.clone());
        Ok(gathered)
    }
}
