//! The stream of live figures: made once for all pages that are open, and not at all while none is.
//!
//! Invariants:
//! 1. What a page is told is of this moment: without an event there is nothing to be told, and what was made
//!    for pages that have gone is not shown to those that come.
//! 2. Figures are taken when the monitors have answered, so that they are no older than what stands beside
//!    them.
//! 3. A page gets of an event what its user may read.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use manager::Figures;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use types::Now;

use super::auth::Who;
use super::{Shared, lock};
use crate::docs::figures::{History, Moment, figures, history_seen, seen};

const EVERY: Duration = Duration::from_secs(2);
/// Events that wait for a page that does not take them; when it takes none for longer it is cut off.
const BACKLOG: usize = 4;

/// What all pages are told.
#[derive(Debug)]
pub struct Live {
    history: Mutex<History>,
    /// The event of this moment, if there is one.
    last: watch::Sender<Option<Arc<Value>>>,
    /// The first page has come.
    came: Notify,
}

impl Default for Live {
    fn default() -> Self {
        Self { history: Mutex::default(), last: watch::Sender::new(None), came: Notify::new() }
    }
}

impl Live {
    fn is_watched(&self) -> bool {
        self.last.receiver_count() > 0
    }

    fn subscribe(&self) -> watch::Receiver<Option<Arc<Value>>> {
        if !self.is_watched() {
            // Nothing is left of whoever watched before.
            self.last.send_replace(None);
            self.came.notify_one();
        }
        self.last.subscribe()
    }
}

/// Where figures come from.
pub trait Source {
    /// Until it is time to look again.
    fn tick(&self) -> impl Future<Output = ()> + Send;
    /// What clients get now, where that is known; the outer `None` when the manager has ended.
    fn rates(&self) -> Option<(Now, Option<Figures>)>;
    /// An event. It costs the monitors two commands, and the manager sums of all its PGs.
    fn event(&self) -> impl Future<Output = Option<Value>> + Send;
}

/// Looks at the manager all the time; ends when it has ended.
pub async fn feed(live: &Live, source: &impl Source) {
    // It goes on whoever comes, so that nobody keeps the history from its points.
    let mut tick = pin!(source.tick());
    loop {
        tokio::select! {
            () = &mut tick => {
                tick.set(source.tick());
                let Some((now, rates)) = source.rates() else { return };
                if let Some(rates) = rates {
                    lock(&live.history).add(seconds(now), &rates);
                }
            }
            () = live.came.notified() => {}
        }
        let event = if live.is_watched() { source.event().await } else { None };
        live.last.send_replace(event.map(Arc::new));
    }
}

pub fn seconds(now: Now) -> f64 {
    now.wall.as_nanos() as f64 / 1e9
}

impl Source for Shared {
    async fn tick(&self) {
        tokio::time::sleep(EVERY).await;
    }

    fn rates(&self) -> Option<(Now, Option<Figures>)> {
        self.site.manager.with(|m, now| (now, m.figures()))
    }

    async fn event(&self) -> Option<Value> {
        let health = json!({ "prefix": "health", "detail": "detail", "format": "json" });
        let status = json!({ "prefix": "status", "format": "json" });
        let (health, status) = tokio::join!(self.mon(health), self.mon(status));
        // Without an answer there is no event: the page says how old its figures are.
        let (health, status) = (health.ok()?, status.ok()?);
        let (now, rates, overview) = self.site.manager.with(|m, now| (now, m.figures(), m.overview(now)))?;
        Some(figures(&Moment {
            at: seconds(now),
            overview: &overview?,
            rates: &rates?,
            health: &health,
            status: &status,
            manager: &self.site.name,
            version: &self.site.version,
        }))
    }
}

/// An event in the form of the stream. JSON has no line breaks of its own.
fn framed(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Begins a stream, which ends with the session that `who` asks for.
pub fn stream(live: &Live, who: impl Fn() -> Option<Who> + Send + 'static) -> mpsc::Receiver<Bytes> {
    let (tx, rx) = mpsc::channel(BACKLOG);
    let mut last = live.subscribe();
    let history = lock(&live.history).value();
    tokio::spawn(async move {
        let Some(first) = who() else { return };
        let history = framed("history", &history_seen(history, |scope| first.may_read(scope)));
        if tx.send(history).await.is_err() {
            return;
        }
        loop {
            let event = last.borrow_and_update().clone();
            let Some(who) = who().filter(Who::may_read_at_all) else { return };
            if let Some(event) = event {
                let event = framed("figures", &seen(&event, |scope| who.may_read(scope)));
                if tx.send(event).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                changed = last.changed() => if changed.is_err() { return },
                () = tx.closed() => return,
            }
        }
    });
    rx
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::server::auth::Permissions;

    /// A manager that has an event whenever it is asked for one, and whose clock goes when it is told to.
    struct Made {
        ticks: Semaphore,
        looks: AtomicU32,
        events: AtomicU32,
        silent: AtomicBool,
        ended: AtomicBool,
    }

    impl Made {
        fn new() -> Arc<Self> {
            let (looks, events) = (AtomicU32::new(0), AtomicU32::new(0));
            let (silent, ended) = (AtomicBool::new(false), AtomicBool::new(false));
            Arc::new(Self { ticks: Semaphore::new(0), looks, events, silent, ended })
        }

        /// Lets it look so often. What follows from the last look may come later.
        async fn look(&self, times: u32) {
            let until = self.looks.load(Relaxed) + times;
            self.ticks.add_permits(times as usize);
            while self.looks.load(Relaxed) < until {
                tokio::task::yield_now().await;
            }
        }
    }

    impl Source for Made {
        async fn tick(&self) {
            self.ticks.acquire().await.expect("open").forget();
        }

        fn rates(&self) -> Option<(Now, Option<Figures>)> {
            self.looks.fetch_add(1, Relaxed);
            (!self.ended.load(Relaxed)).then(|| (Now::default(), Some(Figures::default())))
        }

        async fn event(&self) -> Option<Value> {
            let n = self.events.fetch_add(1, Relaxed) + 1;
            (!self.silent.load(Relaxed)).then(|| json!({ "at": n, "osds": {}, "pools": 3 }))
        }
    }

    fn ann(scopes: &[&str], update_required: bool) -> Option<Who> {
        let read = |scope: &&str| ((*scope).to_owned(), ["read".to_owned()].into());
        let permissions: Permissions = scopes.iter().map(read).collect();
        let (username, token) = ("ann".to_owned(), "t".to_owned());
        Some(Who { username, permissions, update_required, token })
    }

    /// The name and the data of the next event of a stream.
    async fn next(rx: &mut mpsc::Receiver<Bytes>) -> Option<(String, Value)> {
        let text = String::from_utf8(rx.recv().await?.to_vec()).expect("text");
        let (name, data) = text.strip_prefix("event: ")?.split_once("\ndata: ")?;
        Some((name.to_owned(), serde_json::from_str(data.strip_suffix("\n\n")?).expect("JSON")))
    }

    fn at(n: u32) -> Option<(String, Value)> {
        Some(("figures".to_owned(), json!({ "at": n, "osds": {}, "pools": 3 })))
    }

    #[tokio::test]
    async fn events_are_made_while_a_page_is_open_and_none_is_older_than_it() {
        let (live, made) = (Arc::new(Live::default()), Made::new());
        let feeding = tokio::spawn({
            let (live, made) = (Arc::clone(&live), Arc::clone(&made));
            async move { feed(&live, &*made).await }
        });
        made.look(5).await;
        assert_eq!(made.events.load(Relaxed), 0, "nobody listens");
        let mut rx = stream(&live, || ann(&["osd", "pool"], false));
        assert_eq!(next(&mut rx).await.map(|(name, _)| name), Some("history".to_owned()));
        assert_eq!(next(&mut rx).await, at(1), "without having waited for the next look");
        made.look(1).await;
        assert_eq!(next(&mut rx).await, at(2));
        drop(rx);
        while live.is_watched() {
            tokio::task::yield_now().await;
        }
        made.look(5).await;
        assert_eq!(made.events.load(Relaxed), 2, "nobody listens any more");
        let mut rx = stream(&live, || ann(&["osd", "pool"], false));
        next(&mut rx).await;
        assert_eq!(next(&mut rx).await, at(3), "whoever comes now is told of now");
        // While the monitors do not answer there is nothing to be told, also to whoever comes then.
        made.silent.store(true, Relaxed);
        made.look(2).await;
        assert_eq!(*live.last.borrow(), None);
        made.ended.store(true, Relaxed);
        made.ticks.add_permits(1);
        assert!(feeding.await.is_ok(), "ends with the manager");
    }

    #[tokio::test]
    async fn a_page_is_told_what_its_user_may_read_and_nothing_before_the_password_is_changed() {
        let live = Live::default();
        lock(&live.history).add(1.0, &Figures::default());
        let mut rx = stream(&live, || ann(&["osd"], false));
        live.last.send_replace(Some(Arc::new(json!({ "at": 1, "osds": {}, "pools": 3 }))));
        assert_eq!(next(&mut rx).await, Some(("history".to_owned(), json!({ "points": [] }))));
        let of_osds = json!({ "at": 1, "osds": {} });
        assert_eq!(next(&mut rx).await, Some(("figures".to_owned(), of_osds)));
        let mut rx = stream(&live, || ann(&["osd"], true));
        next(&mut rx).await;
        assert_eq!(next(&mut rx).await, None, "the stream ends");
        let mut rx = stream(&live, || None);
        assert_eq!(next(&mut rx).await, None);
    }

    /// Time passes each time that somebody looks whether it has.
    #[derive(Default)]
    struct Patient {
        looks: AtomicU32,
    }

    impl Source for Patient {
        async fn tick(&self) {
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        }

        fn rates(&self) -> Option<(Now, Option<Figures>)> {
            self.looks.fetch_add(1, Relaxed);
            Some((Now::default(), Some(Figures::default())))
        }

        async fn event(&self) -> Option<Value> {
            Some(json!({}))
        }
    }

    #[tokio::test]
    async fn pages_that_come_and_go_do_not_keep_the_history_from_its_points() {
        let (live, source) = (Live::default(), Patient::default());
        let mut feeding = pin!(feed(&live, &source));
        for _ in 0..100 {
            drop(live.subscribe());
            let polled =
                std::future::poll_fn(|cx| std::task::Poll::Ready(feeding.as_mut().poll(cx).is_ready()));
            assert!(!polled.await, "it goes on");
        }
        assert!(source.looks.load(Relaxed) > 10);
    }
}
