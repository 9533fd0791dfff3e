//! Operations of watch and notify: what they change in the object's info, and what they ask the PG to do.
//! Source: CEPH_OSD_OP_WATCH, NOTIFY, NOTIFY_ACK and LIST_WATCHERS in PrimaryLogPG::do_osd_ops.

use bytes::Bytes;
use codec::Encode;
use messages::osd::{ListWatchersResponse, WatchItem, watch_op};
use types::Errno;

use super::answer::{Answer, Outcome};
use super::scratch::Scratch;
use super::{Effect, ExecEnv, NOBODY};
use crate::object::WatchInfo;

/// Watches of one object: they stand in its info, which every write of it carries.
const MAX_WATCHES: usize = 1024;
/// Those of one client.
const MAX_WATCHES_OF_A_CLIENT: usize = 64;
/// Seconds that a silent watch may last, whatever its client wants: what is gone shall not be waited for for
/// ever.
const MAX_TIMEOUT_S: u32 = 3600;

pub(super) fn watch(env: &ExecEnv<'_>, s: &mut Scratch<'_>, cookie: u64, op: u8, timeout_s: u32) -> Outcome {
    if !s.state.exists {
        return Err(Errno::ENOENT.into());
    }
    let default = env.config.client_watch_timeout.as_secs() as u32;
    let timeout_s = if timeout_s == 0 { default } else { timeout_s.min(MAX_TIMEOUT_S) };
    let watcher = env.requester.name;
    let key = (cookie, watcher);
    let known = s.info().watchers.contains_key(&key);
    match op {
        watch_op::WATCH | watch_op::LEGACY_WATCH => {
            if !known {
                let watchers = &s.info().watchers;
                let own = watchers.keys().filter(|(_, who)| *who == watcher).count();
                if watchers.len() >= MAX_WATCHES || own >= MAX_WATCHES_OF_A_CLIENT {
                    return Err(Errno::ENOSPC.into());
                }
                let info = WatchInfo { cookie, timeout_seconds: timeout_s, addr: env.requester.addr };
                s.info_mut().watchers.insert(key, info);
                s.modify = true;
            }
            s.effects.push(Effect::Watch { cookie, timeout_s, will_ping: op == watch_op::WATCH });
        }
        watch_op::RECONNECT | watch_op::PING if !known => return Err(Errno::ENOTCONN.into()),
        watch_op::RECONNECT => s.effects.push(Effect::Watch { cookie, timeout_s, will_ping: true }),
        watch_op::PING => {
            if !env.watches.is_connected(&s.key.object, &key) {
                return Err(Errno::ETIMEDOUT.into());
            }
            s.effects.push(Effect::Ping { cookie });
        }
        watch_op::UNWATCH => {
            // What the OSD ends by itself goes in one write.
            let over =
                if env.requester.conn == NOBODY { env.watches.expired(&s.key.object) } else { vec![key] };
            for (cookie, watcher) in over {
                if s.info().watchers.contains_key(&(cookie, watcher)) {
                    s.info_mut().watchers.remove(&(cookie, watcher));
                    s.modify = true;
                    s.effects.push(Effect::Unwatch { cookie, watcher, tell: false });
                }
            }
        }
        _ => {}
    }
    Ok(Answer::done())
}

/// Answers the notify's id at once; the outcome comes in a message of its own.
pub(super) fn notify(
    env: &mut ExecEnv<'_>,
    s: &mut Scratch<'_>,
    cookie: u64,
    timeout_s: u32,
    payload: Bytes,
) -> Outcome {
    let default = env.config.default_notify_timeout.as_secs() as u32;
    let timeout_s = if timeout_s == 0 { default } else { timeout_s };
    let notify_id = env.watches.next_notify_id(env.map.epoch);
    let user_version = s.info().user_version;
    s.effects.push(Effect::Notify { notify_id, cookie, timeout_s, payload, user_version });
    Ok(Answer::kept(notify_id.to_bytes()))
}

pub(super) fn notify_ack(s: &mut Scratch<'_>, notify_id: u64, cookie: Option<u64>, reply: Bytes) -> Outcome {
    s.effects.push(Effect::NotifyAck { notify_id, cookie, reply });
    Ok(Answer::kept(Bytes::new()))
}

pub(super) fn list_watchers(s: &mut Scratch<'_>) -> Outcome {
    let answer = ListWatchersResponse { entries: watchers(s) }.to_bytes();
    s.work.spend(answer.len() as u64)?;
    s.delta.reads += 1;
    Ok(Answer::data(answer))
}

pub(super) fn watchers(s: &Scratch<'_>) -> Vec<WatchItem> {
    let item = |(key, w): (&(u64, _), &WatchInfo)| WatchItem {
        name: key.1,
        cookie: w.cookie,
        timeout_s: w.timeout_seconds,
        addr: w.addr,
    };
    s.info().watchers.iter().map(item).collect()
}
