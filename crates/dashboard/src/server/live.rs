//! The stream of live figures: made once for all pages that are open, and not at all while none is.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use manager::Figures;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use types::Now;

use super::{Shared, lock};
use crate::docs::figures::{History, Moment, figures};

const EVERY: Duration = Duration::from_secs(2);
/// Events that wait for a page that does not take them; when it takes none for longer it is cut off.
const BACKLOG: usize = 4;

/// What all pages are told.
#[derive(Debug)]
pub struct Live {
    history: Mutex<History>,
    /// The last event; empty before the first one.
    last: watch::Sender<Bytes>,
}

impl Default for Live {
    fn default() -> Self {
        Self { history: Mutex::default(), last: watch::Sender::new(Bytes::new()) }
    }
}

/// Looks at the manager all the time; ends when it has ended.
pub async fn feed(shared: Arc<Shared>) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let looked = shared.site.manager.with(|m, now| (now, m.figures(), m.overview(now)));
        let Some((now, rates, overview)) = looked else { return };
        let (Some(rates), Some(overview)) = (rates, overview) else { continue };
        lock(&shared.live.history).add(seconds(now), &rates);
        if shared.live.last.receiver_count() == 0 {
            continue;
        }
        if let Some(event) = event(&shared, now, &rates, &overview).await {
            shared.live.last.send_replace(event);
        }
    }
}

pub fn seconds(now: Now) -> f64 {
    now.wall.as_nanos() as f64 / 1e9
}

async fn event(shared: &Shared, now: Now, rates: &Figures, overview: &Value) -> Option<Bytes> {
    let health = json!({ "prefix": "health", "detail": "detail", "format": "json" });
    let status = json!({ "prefix": "status", "format": "json" });
    let (health, status) = tokio::join!(shared.mon(health), shared.mon(status));
    // Without an answer there is no event: the page says how old its figures are.
    let (health, status) = (health.ok()?, status.ok()?);
    let m = Moment {
        at: seconds(now),
        overview,
        rates,
        health: &health,
        status: &status,
        manager: &shared.site.name,
        version: &shared.site.version,
    };
    Some(framed("figures", &figures(&m)))
}

/// An event in the form of the stream. JSON has no line breaks of its own.
fn framed(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Begins a stream, which ends with the session that `lasts` asks for.
pub fn stream(shared: &Arc<Shared>, lasts: impl Fn() -> bool + Send + 'static) -> mpsc::Receiver<Bytes> {
    let (tx, rx) = mpsc::channel(BACKLOG);
    let mut last = shared.live.last.subscribe();
    let history = framed("history", &lock(&shared.live.history).value());
    tokio::spawn(async move {
        if tx.send(history).await.is_err() {
            return;
        }
        loop {
            let event = last.borrow_and_update().clone();
            if !lasts() || (!event.is_empty() && tx.send(event).await.is_err()) {
                return;
            }
            tokio::select! {
                changed = last.changed() => if changed.is_err() { return },
                () = tx.closed() => return,
            }
        }
    });
    rx
}
