//! Class `journal`: the header of a journal (its clients, their positions, the tags of who writes) and guarded appends to
//! its data objects. Source: src/cls/journal/cls_journal.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, wire_plain, wire_struct};
use types::Errno;

use crate::registry::{Class, Done, Nothing, methods, stored};
use crate::{ObjectView, keys};

pub static CLASS: Class = Class {
    name: "journal",
    methods: methods![
        create RD_WR create,
        get_order RD get_order,
        get_splay_width RD get_splay_width,
        get_pool_id RD get_pool_id,
        get_minimum_set RD get_minimum_set,
        set_minimum_set RD_WR set_minimum_set,
        get_active_set RD get_active_set,
        set_active_set RD_WR set_active_set,
        get_client RD get_client,
        client_register RD_WR client_register,
        client_update_data RD_WR client_update_data,
        client_update_state RD_WR client_update_state,
        client_unregister RD_WR client_unregister,
        client_commit RD_WR client_commit,
        client_list RD client_list,
        get_next_tag_tid RD get_next_tag_tid,
        get_tag RD get_tag,
        tag_create RD_WR tag_create,
        tag_list RD tag_list,
        guard_append RD_WR guard_append,
        append RD_WR append,
    ],
};

const ORDER: &str = "order";
const SPLAY_WIDTH: &str = "splay_width";
const POOL_ID: &str = "pool_id";
const MINIMUM_SET: &str = "minimum_set";
const ACTIVE_SET: &str = "active_set";
const NEXT_TAG_TID: &str = "next_tag_tid";
const NEXT_TAG_CLASS: &str = "next_tag_class";
const CLIENT: &str = "client_";
const TAG: &str = "tag_";

/// Asks for a tag of a class of its own.
const NEW_CLASS: u64 = u64::MAX;

/// A client that fell too far behind: what it has not read may go. Source: ClientState.
const DISCONNECTED: u8 = 1;

/// An entry of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    object: u64,
    tag: u64,
    entry: u64,
}
wire_struct!(Position(1, 1) { object, tag, entry });

/// The newest entries that a client has done with, one in each of the objects that are written in turns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Commit {
    positions: Vec<Position>,
}
wire_struct!(Commit(1, 1) { positions });

impl Commit {
    /// The oldest tag among them.
    fn tag(&self) -> Option<u64> {
        self.positions.iter().map(|p| p.tag).min()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Client {
    id: Bytes,
    data: Bytes,
    commit: Commit,
    state: u8,
}
wire_struct!(Client(1, 1) { id, data, commit, state });

/// Who writes from an entry on. Tags of one class follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tag {
    tid: u64,
    class: u64,
    data: Bytes,
}
wire_struct!(Tag(1, 1) { tid, class, data });

struct CreateArgs {
    order: u8,
    splay_width: u8,
    pool_id: i64,
}
wire_plain!(CreateArgs { order, splay_width, pool_id });

struct ClientData {
    id: Bytes,
    data: Bytes,
}
wire_plain!(ClientData { id, data });

struct ClientState {
    id: Bytes,
    state: u8,
}
wire_plain!(ClientState { id, state });

struct ClientCommit {
    id: Bytes,
    commit: Commit,
}
wire_plain!(ClientCommit { id, commit });

struct ClientListArgs {
    start_after: Bytes,
    max: u64,
}
wire_plain!(ClientListArgs { start_after, max });

/// A tag as its maker asks for it.
struct NewTag {
    tid: u64,
    class: u64,
    data: Bytes,
}
wire_plain!(NewTag { tid, class, data });

struct TagListArgs {
    /// 0 for all.
    start_after: u64,
    max: u64,
    client: Bytes,
    class: Option<u64>,
}
wire_plain!(TagListArgs { start_after, max, client, class });

struct AppendArgs {
    soft_max: u64,
    data: Bytes,
}
wire_plain!(AppendArgs { soft_max, data });

/// EINVAL for a stored value that does not decode.
fn read<T: Decode>(v: &mut dyn ObjectView, key: impl AsRef<[u8]>) -> Result<T, Errno> {
    match keys::read(v, key) {
        Err(Errno::EIO) => Err(Errno::EINVAL),
        other => other,
    }
}

fn is_missing(v: &mut dyn ObjectView, key: impl AsRef<[u8]>) -> Result<bool, Errno> {
    Ok(keys::optional(v.omap_value(key.as_ref()))?.is_none())
}

fn client_key(id: &Bytes) -> Bytes {
    keys::join(CLIENT, id)
}

fn tag_key(tid: u64) -> Bytes {
    keys::join(TAG, format!("{tid:016x}"))
}

fn clients(v: &mut dyn ObjectView, start_after: &Bytes, max: u64) -> Result<Vec<Client>, Errno> {
    let behind = if start_after.is_empty() { Bytes::new() } else { client_key(start_after) };
    keys::list(v, &behind, CLIENT, max)?.into_iter().map(|(_, value)| stored(value)).collect()
}

fn tags(v: &mut dyn ObjectView) -> Result<Vec<(Bytes, Tag)>, Errno> {
    let found = keys::list(v, TAG.as_bytes(), TAG, u64::MAX)?;
    found.into_iter().map(|(key, value)| Ok((key, stored(value)?))).collect()
}

/// For each class the newest tag that was there when `oldest` was made: tags before it are needed no more.
fn newest_before<'a>(tags: impl Iterator<Item = &'a Tag>, oldest: u64) -> BTreeMap<u64, u64> {
    let mut newest = BTreeMap::new();
    for tag in tags {
        newest.insert(tag.class, tag.tid);
        if tag.tid >= oldest {
            break;
        }
    }
    newest
}

/// Removes tags that every connected client is past. A client without a position may still need any.
fn expire_tags(v: &mut dyn ObjectView, leaving: Option<&Bytes>) -> Result<(), Errno> {
    let mut oldest: Option<u64> = None;
    let skipped = leaving.map(client_key);
    for (key, value) in keys::list(v, b"", CLIENT, u64::MAX)? {
        if Some(&key) == skipped.as_ref() {
            continue;
        }
        let client: Client = stored(value)?;
        if client.state == DISCONNECTED {
            continue;
        }
        let Some(tag) = client.commit.tag() else { return Ok(()) };
        oldest = Some(oldest.map_or(tag, |o| o.min(tag)));
    }
    let Some(oldest) = oldest.filter(|tag| *tag != u64::MAX) else { return Ok(()) };
    let tags = tags(v)?;
    if tags.iter().any(|(key, tag)| *key != tag_key(tag.tid)) {
        return Err(Errno::EINVAL);
    }
    let newest = newest_before(tags.iter().map(|(_, tag)| tag), oldest);
    let over = |tag: &Tag| tag.tid < newest.get(&tag.class).copied().unwrap_or(0);
    for (key, tag) in tags {
        if over(&tag) {
            keys::remove(v, key)?;
        }
        if tag.tid >= oldest {
            break;
        }
    }
    Ok(())
}

/// Where a new client begins: at the position of the client that is furthest behind.
fn start_of_new(v: &mut dyn ObjectView) -> Result<Commit, Errno> {
    let mut furthest: Option<Commit> = None;
    for client in clients(v, &Bytes::new(), u64::MAX)? {
        let Some(at) = client.commit.positions.first().map(|p| (p.tag, p.entry)) else {
            return Ok(Commit::default());
        };
        let before = furthest.as_ref().and_then(|c| c.positions.first()).map(|p| (p.tag, p.entry));
        if before.is_none_or(|before| at < before) {
            furthest = Some(client.commit);
        }
    }
    Ok(furthest.unwrap_or_default())
}

fn create(v: &mut dyn ObjectView, args: CreateArgs) -> Result<Done, Errno> {
    if !is_missing(v, ORDER)? {
        return Err(Errno::EEXIST);
    }
    keys::write(v, ORDER, &args.order)?;
    keys::write(v, SPLAY_WIDTH, &args.splay_width)?;
    keys::write(v, POOL_ID, &args.pool_id)?;
    for key in [ACTIVE_SET, MINIMUM_SET, NEXT_TAG_TID, NEXT_TAG_CLASS] {
        keys::write(v, key, &0u64)?;
    }
    Ok(Done)
}

fn get_order(v: &mut dyn ObjectView, _: Nothing) -> Result<u8, Errno> {
    read(v, ORDER)
}

fn get_splay_width(v: &mut dyn ObjectView, _: Nothing) -> Result<u8, Errno> {
    read(v, SPLAY_WIDTH)
}

fn get_pool_id(v: &mut dyn ObjectView, _: Nothing) -> Result<i64, Errno> {
    read(v, POOL_ID)
}

fn get_minimum_set(v: &mut dyn ObjectView, _: Nothing) -> Result<u64, Errno> {
    read(v, MINIMUM_SET)
}

fn get_active_set(v: &mut dyn ObjectView, _: Nothing) -> Result<u64, Errno> {
    read(v, ACTIVE_SET)
}

fn get_next_tag_tid(v: &mut dyn ObjectView, _: Nothing) -> Result<u64, Errno> {
    read(v, NEXT_TAG_TID)
}

/// Sets only move forward: ESTALE otherwise.
fn advance(v: &mut dyn ObjectView, key: &'static str, old: u64, new: u64) -> Result<Done, Errno> {
    if new < old {
        return Err(Errno::ESTALE);
    }
    if new > old {
        keys::write(v, key, &new)?;
    }
    Ok(Done)
}

/// The first set of objects is never behind the one that is written: EINVAL otherwise.
fn set_minimum_set(v: &mut dyn ObjectView, set: u64) -> Result<Done, Errno> {
    if read::<u64>(v, ACTIVE_SET)? < set {
        return Err(Errno::EINVAL);
    }
    let old = read(v, MINIMUM_SET)?;
    advance(v, MINIMUM_SET, old, set)
}

fn set_active_set(v: &mut dyn ObjectView, set: u64) -> Result<Done, Errno> {
    if read::<u64>(v, MINIMUM_SET)? > set {
        return Err(Errno::EINVAL);
    }
    let old = read(v, ACTIVE_SET)?;
    advance(v, ACTIVE_SET, old, set)
}

fn get_client(v: &mut dyn ObjectView, id: Bytes) -> Result<Client, Errno> {
    read(v, client_key(&id))
}

fn client_register(v: &mut dyn ObjectView, args: ClientData) -> Result<Done, Errno> {
    read::<u8>(v, ORDER)?;
    let key = client_key(&args.id);
    if !is_missing(v, &key)? {
        return Err(Errno::EEXIST);
    }
    let commit = start_of_new(v)?;
    keys::write(v, key, &Client { id: args.id, data: args.data, commit, state: 0 })?;
    Ok(Done)
}

fn client_update_data(v: &mut dyn ObjectView, args: ClientData) -> Result<Done, Errno> {
    let key = client_key(&args.id);
    let client: Client = read(v, &key)?;
    keys::write(v, key, &Client { data: args.data, ..client })?;
    Ok(Done)
}

fn client_update_state(v: &mut dyn ObjectView, args: ClientState) -> Result<Done, Errno> {
    let key = client_key(&args.id);
    let client: Client = read(v, &key)?;
    keys::write(v, key, &Client { state: args.state, ..client })?;
    Ok(Done)
}

fn client_unregister(v: &mut dyn ObjectView, id: Bytes) -> Result<Done, Errno> {
    let key = client_key(&id);
    v.omap_value(&key)?;
    v.omap_remove(key)?;
    expire_tags(v, Some(&id))?;
    Ok(Done)
}

/// EINVAL for more positions than there are objects in turn.
fn client_commit(v: &mut dyn ObjectView, args: ClientCommit) -> Result<Done, Errno> {
    let width: u8 = read(v, SPLAY_WIDTH)?;
    if args.commit.positions.len() > usize::from(width) {
        return Err(Errno::EINVAL);
    }
    let key = client_key(&args.id);
    let client: Client = read(v, &key)?;
    if client.commit != args.commit {
        keys::write(v, key, &Client { commit: args.commit, ..client })?;
    }
    Ok(Done)
}

fn client_list(v: &mut dyn ObjectView, args: ClientListArgs) -> Result<Vec<Client>, Errno> {
    clients(v, &args.start_after, args.max)
}

fn get_tag(v: &mut dyn ObjectView, tid: u64) -> Result<Tag, Errno> {
    read(v, tag_key(tid))
}

/// Tags are made in order: ESTALE otherwise.
fn tag_create(v: &mut dyn ObjectView, args: NewTag) -> Result<Done, Errno> {
    let NewTag { tid, mut class, data } = args;
    let key = tag_key(tid);
    if !is_missing(v, &key)? {
        return Err(Errno::EEXIST);
    }
    if tid != read::<u64>(v, NEXT_TAG_TID)? {
        return Err(Errno::ESTALE);
    }
    let next_class: u64 = read(v, NEXT_TAG_CLASS)?;
    if class == NEW_CLASS {
        class = next_class;
        keys::write(v, NEXT_TAG_CLASS, &class.wrapping_add(1))?;
    } else if class >= next_class {
        return Err(Errno::EINVAL);
    }
    expire_tags(v, None)?;
    keys::write(v, NEXT_TAG_TID, &tid.wrapping_add(1))?;
    keys::write(v, key, &Tag { tid, class, data })?;
    Ok(Done)
}

/// The tags that a client still needs.
fn tag_list(v: &mut dyn ObjectView, args: TagListArgs) -> Result<Vec<Tag>, Errno> {
    let client: Client = read(v, client_key(&args.client))?;
    let all: Vec<Tag> = tags(v)?.into_iter().map(|(_, tag)| tag).collect();
    let newest = match client.commit.tag() {
        None | Some(u64::MAX) => BTreeMap::new(),
        Some(oldest) => newest_before(all.iter(), oldest),
    };
    let mut listed = Vec::new();
    let mut tids = BTreeSet::new();
    for tag in all {
        if args.start_after != 0 && tag.tid <= args.start_after {
            continue;
        }
        let needed = tag.tid >= newest.get(&tag.class).copied().unwrap_or(0);
        if needed && args.class.is_none_or(|class| class == tag.class) && tids.insert(tag.tid) {
            listed.push(tag);
        }
        if listed.len() as u64 >= args.max {
            break;
        }
    }
    Ok(listed)
}

/// EOVERFLOW when the object has reached its size: the writer goes on in the next one.
fn room(v: &mut dyn ObjectView, soft_max: u64) -> Result<u64, Errno> {
    let size = keys::optional(v.stat())?.map(|s| s.size);
    match size {
        Some(size) if size >= soft_max => Err(Errno::EOVERFLOW),
        _ => Ok(size.unwrap_or(0)),
    }
}

fn guard_append(v: &mut dyn ObjectView, soft_max: u64) -> Result<Done, Errno> {
    room(v, soft_max)?;
    Ok(Done)
}

/// Ceph pads to an allocation unit where only clients of Octopus or newer are let in; ours never does, which every reader
/// of a journal understands.
fn append(v: &mut dyn ObjectView, args: AppendArgs) -> Result<Done, Errno> {
    let size = room(v, args.soft_max)?;
    if size >= args.soft_max {
        return Err(Errno::EOVERFLOW);
    }
    v.write(size, args.data)?;
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use codec::Encode;

    use super::*;
    use crate::fake::Fake;

    fn journal() -> Fake {
        let mut f = Fake::default();
        let args = CreateArgs { order: 24, splay_width: 4, pool_id: -1 }.to_bytes();
        assert!(f.call("journal", "create", args.clone()).is_ok());
        assert_eq!(f.call("journal", "create", args), Err(Errno::EEXIST));
        f
    }

    fn call(f: &mut Fake, method: &str, args: impl Encode) -> Result<Bytes, Errno> {
        f.call("journal", method, args.to_bytes()).map(|(_, out)| out)
    }

    fn commit(f: &mut Fake, id: &'static str, tag: u64) {
        let commit = Commit { positions: vec![Position { object: 0, tag, entry: 1 }] };
        call(f, "client_commit", ClientCommit { id: id.into(), commit }).unwrap();
    }

    fn listed(f: &mut Fake, client: &'static str, max: u64) -> Vec<u64> {
        let args = TagListArgs { start_after: 0, max, client: client.into(), class: None };
        let out = call(f, "tag_list", args).unwrap();
        Vec::<Tag>::from_bytes(out).unwrap().iter().map(|t| t.tid).collect()
    }

    #[test]
    fn tags_expire_when_every_client_is_past_them() {
        let mut f = journal();
        for id in ["a", "b"] {
            call(&mut f, "client_register", ClientData { id: id.into(), data: Bytes::new() }).unwrap();
        }
        for tid in 0..4u64 {
            let class = if tid == 0 { NEW_CLASS } else { 0 };
            call(&mut f, "tag_create", NewTag { tid, class, data: Bytes::new() }).unwrap();
        }
        assert_eq!(listed(&mut f, "a", 10), [0, 1, 2, 3]);
        commit(&mut f, "a", 2);
        assert_eq!(listed(&mut f, "a", 10), [2, 3]);
        assert_eq!(listed(&mut f, "b", 2), [0, 1]);
        let tag = |tid| NewTag { tid, class: 0, data: Bytes::new() };
        // `b` has no position yet and holds everything.
        call(&mut f, "tag_create", tag(4)).unwrap();
        assert_eq!(listed(&mut f, "b", 10), [0, 1, 2, 3, 4]);
        call(&mut f, "client_unregister", Bytes::from_static(b"b")).unwrap();
        assert_eq!(call(&mut f, "get_tag", 1u64), Err(Errno::ENOENT));
        assert!(call(&mut f, "get_tag", 2u64).is_ok());
        assert_eq!(call(&mut f, "tag_create", tag(7)), Err(Errno::ESTALE));
        assert_eq!(call(&mut f, "tag_create", NewTag { class: 9, ..tag(5) }), Err(Errno::EINVAL));
    }

    #[test]
    fn sets_move_forward_and_keep_their_order() {
        let mut f = journal();
        assert_eq!(call(&mut f, "set_minimum_set", 1u64), Err(Errno::EINVAL));
        assert!(call(&mut f, "set_active_set", 3u64).is_ok());
        assert!(call(&mut f, "set_minimum_set", 2u64).is_ok());
        assert_eq!(call(&mut f, "set_minimum_set", 1u64), Err(Errno::ESTALE));
        assert_eq!(call(&mut f, "set_active_set", 2u64), Err(Errno::ESTALE));
        assert_eq!(call(&mut f, "set_active_set", 1u64), Err(Errno::EINVAL));
    }

    #[test]
    fn appends_stop_at_the_size() {
        let mut f = Fake::default();
        assert!(call(&mut f, "guard_append", 0u64).is_ok());
        let args = |soft_max| AppendArgs { soft_max, data: "abc".into() };
        assert_eq!(call(&mut f, "append", args(0)), Err(Errno::EOVERFLOW));
        assert!(call(&mut f, "append", args(4)).is_ok());
        assert!(call(&mut f, "append", args(4)).is_ok());
        assert_eq!(call(&mut f, "append", args(4)), Err(Errno::EOVERFLOW));
        assert_eq!(f.object.unwrap().data, b"abcabc");
    }
}
