//! Watchers and locks of objects.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use rados::{LockKind, LockRequest, WatchEvent};
use serde_json::json;
use types::{EntityName, EntityType};

use super::args::LockCommand;
use super::{Failed, Target, failed, hex, print_json};

/// Source: the default of `rados notify`.
const NOTIFY_LIMIT: Duration = Duration::from_secs(10);

pub async fn watch(t: &Target, object: &str) -> Result<()> {
    let watch = t.io.watch(object, None).await.map_err(|e| failed("error calling watch", &e))?;
    say!("press enter to exit...");
    // Reading standard input cannot be given up, so a thread does it; it ends with the process.
    let (enter, mut entered) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        let _ = enter.send(());
    });
    loop {
        let event = tokio::select! {
            _ = &mut entered => return watch.unwatch().await.map_err(|e| failed("error ending the watch", &e)),
            event = watch.next() => event,
        };
        match event {
            WatchEvent::Notify { notify_id, notifier, payload } => {
                say!("NOTIFY cookie {} notify_id {notify_id} from {notifier}", watch.cookie());
                say!("{}", hex::dump(&payload).trim_end());
                watch.ack(notify_id, payload).forget();
            }
            WatchEvent::Error(errno) => say!("ERROR cookie {} err {errno}", watch.cookie()),
        }
    }
}

pub async fn notify(t: &Target, object: &str, message: &str) -> Result<()> {
    // A string with its length, as Ceph's tool encodes it.
    let payload = codec::Encode::to_bytes(&message.to_owned());
    let reply = t.io.notify(object, payload, Some(NOTIFY_LIMIT)).await;
    let reply = reply.map_err(|e| failed("error calling notify", &e))?;
    if t.json {
        let replies: Vec<_> = reply
            .replies
            .iter()
            .map(|r| json!({"client": r.client, "cookie": r.cookie, "bytes": r.reply.len()}))
            .collect();
        let missed: Vec<_> =
            reply.missed.iter().map(|(client, cookie)| json!({"client": client, "cookie": cookie})).collect();
        print_json(&json!({"replies": replies, "timeouts": missed}));
    } else {
        for r in &reply.replies {
            say!("reply client.{} cookie {} : {} bytes", r.client, r.cookie, r.reply.len());
            if !r.reply.is_empty() {
                say!("{}", hex::dump(&r.reply).trim_end());
            }
        }
        for (client, cookie) in &reply.missed {
            say!("timeout client.{client} cookie {cookie}");
        }
    }
    if !reply.missed.is_empty() {
        bail!(Failed(format!("error calling notify: {}", types::Errno::ETIMEDOUT)));
    }
    Ok(())
}

pub async fn listwatchers(t: &Target, object: &str) -> Result<()> {
    let what = format!("error listing watchers {}/{object}", t.pool);
    let watchers = t.io.list_watchers(object).await.map_err(|e| failed(&what, &e))?;
    if t.json {
        let all: Vec<_> = watchers
            .iter()
            .map(|w| json!({"addr": w.addr.without_kind(), "client": w.name.num, "cookie": w.cookie}))
            .collect();
        print_json(&json!(all));
        return Ok(());
    }
    for w in watchers {
        say!("watcher={} client.{} cookie={}", w.addr.without_kind(), w.name.num, w.cookie);
    }
    Ok(())
}

/// JSON is the only form of Ceph's lock commands.
pub async fn lock(t: &Target, command: &LockCommand) -> Result<()> {
    match command {
        LockCommand::List { object } => {
            let locks = t.io.list_locks(object).await.map_err(|e| failed("ERROR: rados_list_locks()", &e))?;
            let locks: Vec<_> = locks.iter().map(|name| json!({"name": name})).collect();
            print_json(&json!({"objname": object, "locks": locks}));
        }
        LockCommand::Info { object, lock } => {
            let info = t.io.lock_info(object, lock).await;
            let info = info.map_err(|e| failed("ERROR: rados_lock_get_lock_info()", &e))?;
            let holders: Vec<_> = info
                .holders
                .iter()
                .map(|h| {
                    json!({
                        "name": h.client.to_string(), "cookie": h.cookie, "description": h.description,
                        "expiration": h.expiration.to_string(), "addr": h.addr.without_kind(),
                    })
                })
                .collect();
            let kind = info.kind.map_or("none", LockKind::name);
            print_json(&json!({"name": lock, "type": kind, "tag": info.tag, "lockers": holders}));
        }
        LockCommand::Get { object, lock, options } => {
            let kind = if options.lock_type == "shared" { LockKind::Shared } else { LockKind::Exclusive };
            let request = LockRequest {
                kind,
                tag: &options.lock_tag,
                description: &options.lock_description,
                duration: (options.lock_duration > 0).then(|| Duration::from_secs(options.lock_duration)),
                ..LockRequest::exclusive(lock, &options.lock_cookie)
            };
            t.io.lock(object, &request).await.map_err(|e| failed("ERROR: failed locking", &e))?;
        }
        LockCommand::Break { object, lock, holder, lock_cookie } => {
            let name = parse_holder(holder);
            let name =
                name.with_context(|| Failed(format!("ERROR: failed to parse locker name ({holder})")))?;
            let done = t.io.break_lock(object, lock, name, lock_cookie).await;
            done.map_err(|e| failed("ERROR: failed breaking lock", &e))?;
        }
    }
    Ok(())
}

/// `client.4123`.
fn parse_holder(text: &str) -> Option<EntityName> {
    let (kind, num) = text.split_once('.')?;
    Some(EntityName::new(EntityType::parse(kind)?, num.parse().ok()?))
}
