//! The kinds of events in the journal.
//!
//! Source: src/mds/events, src/mds/journal.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use messages::fs::Frag;
use types::{EntityInst, GlobalId, Ino, InoSet, SnapId, Utime};

use super::blob::MetaBlob;
use super::names::DirFrag;
use super::rollback::Rollback;
use super::sessions::{ClientMetadata, MetaReqId};
use super::stats::Fnode;
use super::wire::stored;

/// Opens a segment: which subtrees are this rank's, and the inodes above them. Source: ESubtreeMap.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SubtreeMap {
    pub stamp: Utime,
    pub metadata: MetaBlob,
    /// Subtrees with those below that are not part of them.
    pub subtrees: BTreeMap<DirFrag, Vec<DirFrag>>,
    /// Imports that are under way.
    pub ambiguous: BTreeSet<DirFrag>,
    pub expire_pos: u64,
    /// The number of the segment.
    pub event_seq: u64,
}
stored!(SubtreeMap(6, 5, 5) { stamp, metadata, subtrees, ambiguous, expire_pos } since 6 { event_seq });

/// Sessions that an event opens, because clients came with what another rank handed over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenedSessions {
    pub clients: BTreeMap<GlobalId, EntityInst>,
    /// `None`: written by an older server.
    pub metadata: Option<BTreeMap<GlobalId, ClientMetadata>>,
}

/// In a buffer that is empty for none.
fn encode_opened(opened: Option<&OpenedSessions>, w: &mut Writer) {
    w.sized(|w| {
        if let Some(opened) = opened {
            opened.clients.encode(w);
            opened.metadata.iter().for_each(|m| m.encode(w));
        }
    });
}

fn decode_opened(r: &mut Reader) -> Result<Option<OpenedSessions>, DecodeError> {
    let blob = r.blob()?;
    if blob.is_empty() {
        return Ok(None);
    }
    let mut r = Reader::new(blob);
    let clients = Decode::decode(&mut r)?;
    let metadata = if r.is_empty() { None } else { Some(Decode::decode(&mut r)?) };
    Ok(Some(OpenedSessions { clients, metadata }))
}

/// A change of metadata. Source: EUpdate.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Update {
    pub stamp: Utime,
    /// What changed it, for people (`mkdir`).
    pub what: Bytes,
    pub metadata: MetaBlob,
    pub opened: Option<OpenedSessions>,
    /// The version of the table of sessions after `opened`.
    pub session_map_version: u64,
    pub req: MetaReqId,
    /// Other ranks take part: a [`Committed`] follows.
    pub had_peers: bool,
}

impl Encode for Update {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 4, |w| {
            self.stamp.encode(w);
            w.blob(&self.what);
            self.metadata.encode(w);
            encode_opened(self.opened.as_ref(), w);
            w.u64(self.session_map_version);
            self.req.encode(w);
            self.had_peers.encode(w);
        });
    }
}
impl Decode for Update {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("EUpdate", 4, 4, |r, _| {
            Ok(Self {
                stamp: Utime::decode(r)?,
                what: r.blob()?,
                metadata: MetaBlob::decode(r)?,
                opened: decode_opened(r)?,
                session_map_version: r.u64()?,
                req: MetaReqId::decode(r)?,
                had_peers: bool::decode(r)?,
            })
        })
    }
}

/// A session opens or closes. Source: ESession.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionEvent {
    pub stamp: Utime,
    pub client: EntityInst,
    pub open: bool,
    pub session_map_version: u64,
    /// Numbers that were set aside for it and are free again.
    pub inos: InoSet,
    pub ino_table_version: u64,
    pub metadata: ClientMetadata,
    /// Numbers that it may have used without a word to the server: their objects are purged first.
    pub purge_inos: InoSet,
}
stored!(SessionEvent(6, 5, 5) {
    stamp, client, open, session_map_version, inos, ino_table_version, metadata
} since 6 { purge_inos });

/// Sessions that open at once: after a failover, or with an import. Source: ESessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sessions {
    pub clients: BTreeMap<GlobalId, EntityInst>,
    pub session_map_version: u64,
    pub stamp: Utime,
    pub metadata: BTreeMap<GlobalId, ClientMetadata>,
}
stored!(Sessions(2, 1, 1) { clients, session_map_version, stamp } since 2 { metadata });

/// Files that are open, told again because the segment that told of them goes. Source: EOpen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Opened {
    pub stamp: Utime,
    pub metadata: MetaBlob,
    pub inos: Vec<Ino>,
    pub snap_inos: Vec<(Ino, SnapId)>,
}
stored!(Opened(4, 3, 3) { stamp, metadata, inos } since 4 { snap_inos });

/// All ranks have committed an [`Update`]. Source: ECommitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Committed {
    pub stamp: Utime,
    pub req: MetaReqId,
}
stored!(Committed(3, 3, 3) { stamp, req });

/// Inode numbers are free again, for their inodes are purged. Source: EPurged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Purged {
    pub inos: InoSet,
    pub ino_table_version: u64,
    /// The segment of their session's end.
    pub segment: u64,
}
stored!(Purged(1, 1, 1) { inos, ino_table_version, segment });

/// This rank's part of a change that another one leads. Source: EPeerUpdate.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PeerUpdate {
    pub stamp: Utime,
    pub what: Bytes,
    pub req: MetaReqId,
    /// The rank that decides.
    pub leader: i32,
    /// `PREPARE`, `COMMIT`, `ROLLBACK`.
    pub op: u8,
    /// [`Rollback::op`] of the change.
    pub change: u8,
    pub commit: MetaBlob,
    /// Of a `PREPARE`.
    pub rollback: Option<Rollback>,
}

impl PeerUpdate {
    pub const PREPARE: u8 = 1;
    pub const COMMIT: u8 = 2;
    pub const ROLLBACK: u8 = 3;
}

impl Encode for PeerUpdate {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 3, |w| {
            self.stamp.encode(w);
            w.blob(&self.what);
            self.req.encode(w);
            w.i32(self.leader);
            w.u8(self.op);
            w.u8(self.change);
            self.commit.encode(w);
            w.sized(|w| self.rollback.iter().for_each(|rollback| rollback.encode(w)));
        });
    }
}
impl Decode for PeerUpdate {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("EPeerUpdate", 3, 3, |r, _| {
            let mut update = Self {
                stamp: Utime::decode(r)?,
                what: r.blob()?,
                req: MetaReqId::decode(r)?,
                leader: r.i32()?,
                op: r.u8()?,
                change: r.u8()?,
                commit: MetaBlob::decode(r)?,
                rollback: None,
            };
            let blob = r.blob()?;
            if !blob.is_empty() {
                update.rollback = Some(Rollback::decode(update.change, &mut Reader::new(blob))?);
            }
            Ok(update)
        })
    }
}

/// A step of the rank that serves a table. Source: ETableServer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableServer {
    pub stamp: Utime,
    /// 1: the table of snapshots.
    pub table: u16,
    /// Source: TABLESERVER_OP_* in src/mds/mds_table_types.h.
    pub op: i16,
    pub req: u64,
    pub rank: i32,
    /// Of a `PREPARE`: [`super::SnapMutation`]; of a `SERVER_UPDATE`: what OSDs removed, by pool.
    pub mutation: Bytes,
    pub tid: u64,
    /// Of the table, after this.
    pub version: u64,
}
stored!(TableServer(3, 3, 3) { stamp, table, op, req, rank, mutation, tid, version });

impl TableServer {
    pub const PREPARE: i16 = 3;
    pub const COMMIT: i16 = 5;
    pub const ROLLBACK: i16 = 7;
    pub const SERVER_UPDATE: i16 = 8;
}

/// A table's change that a rank asked for is agreed on, or acknowledged. Source: ETableClient.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableClient {
    pub stamp: Utime,
    pub table: u16,
    /// `ACK`: nothing else is journaled.
    pub op: i16,
    pub tid: u64,
}
stored!(TableClient(3, 3, 3) { stamp, table, op, tid });

impl TableClient {
    pub const ACK: i16 = -6;
}

/// A directory's fragments split or merge. Source: EFragment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fragment {
    pub stamp: Utime,
    /// `PREPARE`, `COMMIT`, `ROLLBACK`, `FINISH`.
    pub op: u8,
    pub ino: Ino,
    pub base: Frag,
    /// By as many bits it splits; below 0: parts are merged into it.
    pub bits: i32,
    pub metadata: MetaBlob,
    /// The fragments before.
    pub from: Vec<Frag>,
    /// Of a `PREPARE`: what each of them said of itself.
    pub rollback: Vec<Fnode>,
}

impl Fragment {
    pub const PREPARE: u8 = 1;
    pub const COMMIT: u8 = 2;
    pub const ROLLBACK: u8 = 3;
    /// The objects of the fragments before are gone.
    pub const FINISH: u8 = 4;
}

impl Encode for Fragment {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 4, |w| {
            self.stamp.encode(w);
            w.u8(self.op);
            self.ino.encode(w);
            self.base.encode(w);
            w.i32(self.bits);
            self.metadata.encode(w);
            self.from.encode(w);
            w.sized(|w| self.rollback.iter().for_each(|fnode| w.envelope(1, 1, |w| fnode.encode(w))));
        });
    }
}
impl Decode for Fragment {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("EFragment", 5, 5, |r, _| {
            let mut fragment = Self {
                stamp: Utime::decode(r)?,
                op: r.u8()?,
                ino: Ino::decode(r)?,
                base: Frag::decode(r)?,
                bits: r.i32()?,
                metadata: MetaBlob::decode(r)?,
                from: Decode::decode(r)?,
                rollback: Vec::new(),
            };
            let mut rollback = Reader::new(r.blob()?);
            while !rollback.is_empty() {
                fragment.rollback.push(rollback.envelope("dirfrag_rollback", 1, |r, _| Fnode::decode(r))?);
            }
            Ok(fragment)
        })
    }
}

/// A subtree goes to another rank. Source: EExport.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Export {
    pub stamp: Utime,
    pub metadata: MetaBlob,
    pub base: DirFrag,
    /// Subtrees below that do not go.
    pub bounds: BTreeSet<DirFrag>,
    pub target: i32,
}
stored!(Export(4, 3, 4) { stamp, metadata, base, bounds, target });

/// A subtree comes from another rank. Source: EImportStart.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImportStart {
    pub stamp: Utime,
    pub base: DirFrag,
    pub metadata: MetaBlob,
    pub bounds: Vec<DirFrag>,
    pub session_map_version: u64,
    pub opened: Option<OpenedSessions>,
    pub from: i32,
}

impl Encode for ImportStart {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 3, |w| {
            self.stamp.encode(w);
            self.base.encode(w);
            self.metadata.encode(w);
            self.bounds.encode(w);
            w.u64(self.session_map_version);
            encode_opened(self.opened.as_ref(), w);
            w.i32(self.from);
        });
    }
}
impl Decode for ImportStart {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope_since("EImportStart", 4, 4, |r, _| {
            Ok(Self {
                stamp: Utime::decode(r)?,
                base: DirFrag::decode(r)?,
                metadata: MetaBlob::decode(r)?,
                bounds: Decode::decode(r)?,
                session_map_version: r.u64()?,
                opened: decode_opened(r)?,
                from: r.i32()?,
            })
        })
    }
}

/// The subtree is here, or was not given. Source: EImportFinish.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportFinish {
    pub stamp: Utime,
    pub base: DirFrag,
    pub success: bool,
}
stored!(ImportFinish(3, 3, 3) { stamp, base, success });

/// A tool threw the journal away: sessions are gone. Source: EResetJournal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResetJournal {
    pub stamp: Utime,
}
stored!(ResetJournal(2, 2, 2) { stamp });

/// Bytes in the place of an event that a tool took out. Source: ENoOp.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NoOp {
    pub padding: u32,
}

const PAD: u8 = 0xff;

impl Encode for NoOp {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            w.u32(self.padding);
            (0..self.padding).for_each(|_| w.u8(PAD));
        });
    }
}
impl Decode for NoOp {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ENoOp", 2, |r, _| {
            let padding = r.u32()?;
            r.skip(padding as usize)?;
            match r.is_empty() {
                true => Ok(Self { padding }),
                false => Err(DecodeError::Invalid { what: "padding", value: padding.into() }),
            }
        })
    }
}
