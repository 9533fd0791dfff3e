//! Watches and notifies: between clients, after a lost watch, and many at once.

use std::time::Duration;

use rados::{Cluster, Errno, WatchEvent};

use crate::setup::{Bed, with_pool};

const LIMIT: Duration = Duration::from_secs(180);

#[test]
fn who_watches_hears_and_answers() {
    with_pool("watch", LIMIT, |Bed { pool, server, .. }| async move {
        assert_eq!(pool.watch("none", None).await.expect_err("no object").errno(), Errno::ENOENT);
        pool.create("o", true).await.expect("made");
        let empty = pool.notify("o", "nobody hears", None).await.expect("notified");
        assert_eq!((empty.replies.len(), empty.missed.len()), (0, 0));

        let other = Cluster::connect(server.config()).await.expect("another client");
        let theirs = other.pool_by_id(pool.pool_id()).await.expect("the pool");
        let watch = theirs.watch("o", Some(Duration::from_secs(20))).await.expect("watched");
        assert!(watch.check().await.expect("good") < Duration::from_secs(10));
        let listed = pool.list_watchers("o").await.expect("watchers");
        assert_eq!((listed.len(), listed[0].cookie, listed[0].timeout_s), (1, watch.cookie(), 20));
        assert_eq!(listed[0].name.num as u64, other.global_id());

        let notify = tokio::spawn({
            let pool = pool.clone();
            async move { pool.notify("o", "hello", None).await }
        });
        let WatchEvent::Notify { notify_id, notifier, payload } = watch.next().await else {
            panic!("a notify was expected");
        };
        assert_eq!((notifier, payload.as_ref()), (pool.cluster().global_id(), b"hello".as_ref()));
        watch.ack(notify_id, "heard").await.expect("acknowledged");
        let reply = notify.await.expect("the task").expect("notified");
        assert_eq!(reply.missed, []);
        assert_eq!((reply.replies.len(), reply.replies[0].reply.as_ref()), (1, b"heard".as_ref()));
        assert_eq!((reply.replies[0].client, reply.replies[0].cookie), (other.global_id(), watch.cookie()));

        // Nobody answers in time.
        let missed = pool.notify("o", "again", Some(Duration::from_secs(1))).await.expect("it ends");
        assert_eq!(missed.missed, [(other.global_id(), watch.cookie())]);
        assert!(matches!(watch.next().await, WatchEvent::Notify { .. }));
        watch.unwatch().await.expect("ended");
        assert!(pool.list_watchers("o").await.expect("watchers").is_empty());
    });
}

#[test]
fn a_watch_on_a_removed_object_is_lost() {
    with_pool("lost", LIMIT, |Bed { pool, .. }| async move {
        pool.create("o", true).await.expect("made");
        let watch = pool.watch("o", None).await.expect("watched");
        pool.remove("o").await.expect("removed");
        assert_eq!(watch.next().await, WatchEvent::Error(Errno::ENOTCONN));
        assert!(watch.check().await.expect_err("lost").is_lost_watch());
        drop(watch);
        pool.create("o", true).await.expect("made again");
        let again = pool.watch("o", None).await.expect("watched again");
        assert_eq!(pool.list_watchers("o").await.expect("watchers").len(), 1);
        drop(again);
    });
}
