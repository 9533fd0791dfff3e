//! How far each site has come with an image, as its mirroring daemon reported it. A status is up while the daemon that
//! reported it watches the object.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain, wire_struct};
use types::{AddrKind, EntityAddr, EntityName, Errno, Utime};

use super::super::types::{ListArgs, NameArgs};
use super::image::{self, MirrorImage};
use super::peer::{Peer, direction};
use crate::registry::{Done, Nothing, Tail, stored};
use crate::{ObjectView, keys};

const LOCAL: &str = "status_global_";
const REMOTE: &str = "remote_status_global_";

/// Source: MirrorImageStatusState in src/cls/rbd/cls_rbd_types.h.
const UNKNOWN: u8 = 0;
const ERROR: u8 = 1;

/// A daemon; its address says no protocol, so that it compares equal however it came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rbd) struct Daemon {
    name: EntityName,
    addr: EntityAddr,
}
wire_plain!(Daemon { name, addr });

impl Daemon {
    fn new(name: EntityName, addr: EntityAddr) -> Self {
        Self { name, addr: EntityAddr { kind: AddrKind::Any, ..addr } }
    }
}

/// A site's status; the site that keeps it has an empty uuid.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::rbd) struct SiteStatus {
    mirror_uuid: Bytes,
    state: u8,
    description: Bytes,
    last_update: Utime,
    up: bool,
}

impl SiteStatus {
    fn is_local(&self) -> bool {
        self.mirror_uuid.is_empty()
    }

    /// Version 1 names no site.
    fn encode_fields(&self, version: u8, w: &mut Writer) {
        if version >= 2 {
            self.mirror_uuid.encode(w);
        }
        self.state.encode(w);
        self.description.encode(w);
        self.last_update.encode(w);
        self.up.encode(w);
    }
}

impl Encode for SiteStatus {
    fn encode(&self, w: &mut Writer) {
        let version = if self.is_local() { 1 } else { 2 };
        w.envelope(version, version, |w| self.encode_fields(version, w));
    }
}
impl Decode for SiteStatus {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rbd mirror status", 2, |r, env| {
            Ok(Self {
                mirror_uuid: if env.version >= 2 { r.blob()? } else { Bytes::new() },
                state: r.u8()?,
                description: r.blob()?,
                last_update: Decode::decode(r)?,
                up: Decode::decode(r)?,
            })
        })
    }
}

/// Who reported a status.
struct Reporter {
    daemon: Daemon,
}
wire_struct!(Reporter(1, 1) { daemon });

/// A status as stored.
struct Stored {
    by: Reporter,
    status: SiteStatus,
}
wire_plain!(Stored { by, status });

/// The statuses of all sites.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::rbd) struct Status {
    sites: Vec<SiteStatus>,
}

impl Status {
    fn local(&self) -> Option<&SiteStatus> {
        self.sites.iter().find(|s| s.is_local())
    }

    fn remotes(&self) -> impl Iterator<Item = &SiteStatus> {
        self.sites.iter().filter(|s| !s.is_local())
    }
}

impl Encode for Status {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.local().cloned().unwrap_or_default().encode_fields(1, w);
            self.local().is_some().encode(w);
            w.count(self.remotes().count());
            self.remotes().for_each(|s| s.encode_fields(2, w));
        });
    }
}

pub(in crate::rbd) struct SetArgs {
    global_id: Bytes,
    status: SiteStatus,
}
wire_plain!(SetArgs { global_id, status });

/// Mirrored images and the statuses of those that have one.
pub(in crate::rbd) struct ListReply {
    images: BTreeMap<Bytes, MirrorImage>,
    statuses: BTreeMap<Bytes, Status>,
}

impl Encode for ListReply {
    fn encode(&self, w: &mut Writer) {
        self.images.encode(w);
        self.statuses.encode(w);
    }
}

fn local_key(global_id: &Bytes) -> Bytes {
    keys::join(LOCAL, global_id)
}

/// What the keys of other sites' statuses of an image begin with.
fn remote_prefix(global_id: &Bytes) -> Vec<u8> {
    [REMOTE.as_bytes(), global_id, b"_"].concat()
}

fn key(global_id: &Bytes, mirror_uuid: &Bytes) -> Bytes {
    if mirror_uuid.is_empty() {
        return local_key(global_id);
    }
    [remote_prefix(global_id).as_slice(), mirror_uuid].concat().into()
}

/// Entries of other sites for one image. Ids come from clients and need not be text, hence the prefix in bytes.
fn remote_entries(v: &mut dyn ObjectView, global_id: &Bytes) -> Result<Vec<(Bytes, Bytes)>, Errno> {
    let prefix = remote_prefix(global_id);
    keys::list_bytes(v, &prefix, &prefix, u64::MAX)
}

/// The daemons that are there.
pub(super) fn watchers(v: &mut dyn ObjectView) -> Result<BTreeSet<Daemon>, Errno> {
    let watchers = keys::optional(v.watchers())?.unwrap_or_default();
    Ok(watchers.into_iter().map(|w| Daemon::new(w.name, w.addr)).collect())
}

/// Removes what all sites reported about an image.
pub(super) fn remove(v: &mut dyn ObjectView, global_id: &Bytes) -> Result<(), Errno> {
    for (key, _) in remote_entries(v, global_id)? {
        keys::remove(v, key)?;
    }
    keys::remove(v, local_key(global_id))
}

/// ENOENT when no site reported anything.
fn get(v: &mut dyn ObjectView, global_id: &Bytes, there: &BTreeSet<Daemon>) -> Result<Status, Errno> {
    let mut entries: Vec<(Bytes, Bytes)> = Vec::new();
    if let Some(local) = keys::optional(v.omap_value(&local_key(global_id)))? {
        entries.push((Bytes::new(), local));
    }
    let prefix_len = remote_prefix(global_id).len();
    for (key, value) in remote_entries(v, global_id)? {
        entries.push((key.slice(prefix_len.min(key.len())..), value));
    }
    if entries.is_empty() {
        return Err(Errno::ENOENT);
    }
    let site = |(mirror_uuid, value)| {
        let Stored { by, status } = stored(value)?;
        let daemon = Daemon::new(by.daemon.name, by.daemon.addr);
        Ok(SiteStatus { up: there.contains(&daemon), mirror_uuid, ..status })
    };
    Ok(Status { sites: entries.into_iter().map(site).collect::<Result<_, Errno>>()? })
}

/// The daemon behind this site's status: ESTALE when it is gone.
pub(super) fn local_daemon(
    v: &mut dyn ObjectView,
    global_id: &Bytes,
    there: &BTreeSet<Daemon>,
) -> Result<Daemon, Errno> {
    let Stored { by, .. } = keys::read(v, local_key(global_id))?;
    let daemon = Daemon::new(by.daemon.name, by.daemon.addr);
    if there.contains(&daemon) { Ok(daemon) } else { Err(Errno::ESTALE) }
}

/// A report that comes after its image was disabled is dropped. Source: observed on 16.2.15.
pub(in crate::rbd) fn mirror_image_status_set(v: &mut dyn ObjectView, args: SetArgs) -> Result<Done, Errno> {
    if !image::is_enabled(v, &args.global_id) {
        return Ok(Done);
    }
    let origin = v.origin();
    let key = key(&args.global_id, &args.status.mirror_uuid);
    // The key says whose status it is, and who watches whether it is up.
    let status = SiteStatus { mirror_uuid: Bytes::new(), up: false, last_update: v.now(), ..args.status };
    let by = Reporter { daemon: Daemon::new(origin.name, origin.addr) };
    keys::write(v, key, &Stored { by, status })?;
    Ok(Done)
}

pub(in crate::rbd) fn mirror_image_status_remove(
    v: &mut dyn ObjectView,
    args: NameArgs,
) -> Result<Done, Errno> {
    remove(v, &args.name)?;
    Ok(Done)
}

pub(in crate::rbd) fn mirror_image_status_get(
    v: &mut dyn ObjectView,
    args: NameArgs,
) -> Result<Status, Errno> {
    let there = watchers(v)?;
    get(v, &args.name, &there)
}

pub(in crate::rbd) fn mirror_image_status_list(
    v: &mut dyn ObjectView,
    args: ListArgs,
) -> Result<ListReply, Errno> {
    let there = watchers(v)?;
    let images: BTreeMap<_, _> = image::list(v, &args.start_after, args.max)?.into_iter().collect();
    let mut statuses = BTreeMap::new();
    for (id, image) in &images {
        if let Ok(status) = get(v, &image.global_id, &there) {
            statuses.insert(id.clone(), status);
        }
    }
    Ok(ListReply { images, statuses })
}

/// One state for an image: the local one where data arrives, the worst of the peers' where it leaves; unknown while one
/// of those is missing.
fn summary_of(way: u8, tx_peers: &BTreeSet<Bytes>, status: &Status) -> u8 {
    let mut state = match status.local() {
        Some(local) if local.up && way != direction::TX => Some(local.state),
        _ => None,
    };
    let mut missing = 0;
    if way != direction::RX {
        missing = tx_peers.len();
        for remote in status.remotes() {
            if tx_peers.contains(&remote.mirror_uuid) {
                missing = missing.saturating_sub(1);
            }
            let now = if remote.up { remote.state } else { UNKNOWN };
            state = match state {
                _ if remote.state == ERROR => Some(ERROR),
                None => Some(now),
                Some(ERROR) => Some(ERROR),
                Some(worst) => Some(worst.min(now)),
            };
        }
    }
    if missing > 0 { UNKNOWN } else { state.unwrap_or(UNKNOWN) }
}

/// How many images are in which state. The input is the pool's peers.
pub(in crate::rbd) fn mirror_image_status_get_summary(
    v: &mut dyn ObjectView,
    peers: Tail<Vec<Peer>>,
) -> Result<BTreeMap<u8, i32>, Errno> {
    let peers = peers.0.unwrap_or_default();
    let mut way = peers.first().map_or(direction::RX, |p| p.direction);
    let mut tx_peers = BTreeSet::new();
    for peer in peers.into_iter().filter(|p| p.direction != direction::RX) {
        tx_peers.insert(peer.mirror_uuid);
        if way != peer.direction {
            way = direction::RX_TX;
        }
    }
    let there = watchers(v)?;
    let mut states = BTreeMap::new();
    for (_, image) in image::list(v, b"", u64::MAX)? {
        let status = keys::optional(get(v, &image.global_id, &there))?.unwrap_or_default();
        *states.entry(summary_of(way, &tx_peers, &status)).or_insert(0) += 1;
    }
    Ok(states)
}

/// Forgets what daemons reported that are gone.
pub(in crate::rbd) fn mirror_image_status_remove_down(
    v: &mut dyn ObjectView,
    _: Nothing,
) -> Result<Done, Errno> {
    let there = watchers(v)?;
    for prefix in [LOCAL, REMOTE] {
        for (key, value) in keys::list(v, prefix.as_bytes(), prefix, u64::MAX)? {
            let Reporter { daemon } = stored(value)?;
            if !there.contains(&Daemon::new(daemon.name, daemon.addr)) {
                v.omap_remove(key)?;
            }
        }
    }
    Ok(Done)
}
