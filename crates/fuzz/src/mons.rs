//! What monitors say to each other and what their stores hold: decoded, and then given to a member.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer};
use messages::mon::MMonCommand;
use quorum::{
    Append, AppendReply, Body, Entry, HardState, InstallSnapshot, MemberId, Membership, Message, PartReply,
    Payload, PeerStatus, Raft, Snapshot, SnapshotPart, Start, Tuning, stored,
};
use types::{
    AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Fsid, GlobalId, Now, SeededEntropy,
};

const CLUSTER: Fsid = Fsid([7; 16]);
const US: MemberId = MemberId(1);
const LEADER: MemberId = MemberId(2);
const CONN: ConnId = ConnId(9);

fn members() -> Membership {
    Membership::of([(US, "a".to_owned()), (LEADER, "b".to_owned()), (MemberId(3), "c".to_owned())])
}

fn entry(index: u64, text: &'static str) -> Entry {
    Entry { index, term: 2, payload: Payload::Data(Bytes::from_static(text.as_bytes())) }
}

/// A follower with a snapshot and three entries that are not committed.
fn start(state: Bytes) -> Start {
    Start {
        hard: HardState { id: US, term: 3, vote: LEADER, outdated: false },
        snapshot: Snapshot { index: 5, term: 1, members: members(), state },
        entries: (6..9).map(|index| entry(index, "old")).collect(),
    }
}

/// A message of the quorum, to a follower.
pub(crate) fn quorum_message(data: &[u8]) {
    let Ok(message) = Message::decode(&mut Reader::new(Bytes::copy_from_slice(data))) else { return };
    let wire = message.to_wire();
    assert_eq!(Message::decode(&mut Reader::new(wire)).as_ref(), Ok(&message), "it comes back as it went");
    let now = Now { mono: Duration::from_secs(100), ..Now::default() };
    let entropy = Box::new(SeededEntropy(1));
    let mut raft =
        Raft::new(CLUSTER, "a".to_owned(), Tuning::default(), entropy, start(Bytes::new()), Now::default());
    let mut out = Vec::new();
    raft.handle(now, quorum::Input::Message(message), &mut out);
    raft.handle(now, quorum::Input::Tick, &mut out);
    raft.assert_invariants();
}

/// The vote, the snapshot and one row of a monitor's store, each after its length in two bytes.
pub(crate) fn mon_store(data: &[u8]) {
    let mut rest = Bytes::copy_from_slice(data);
    let mut record = || {
        let len = rest.get(..2).map_or(0, |l| usize::from(l[0]) | usize::from(l[1]) << 8);
        let body = rest.split_off(rest.len().min(2));
        rest = body.slice(len.min(body.len())..);
        body.slice(..len.min(body.len()))
    };
    let (vote, snapshot, row) = (record(), record(), record());
    for recover in [stored::recover, stored::recover_whole] {
        let _ = recover(&vote, &snapshot, [(6, row.clone())]);
    }
}

pub(crate) fn blank() -> Bytes {
    static STATE: OnceLock<Bytes> = OnceLock::new();
    let make = || {
        let key = cephx::CryptoKey::new([1; 16], types::Utime::ZERO);
        let auth = cephx::EntityAuth { key, caps: BTreeMap::new() };
        monitor::Monitor::blank(CLUSTER, auth, Now::default(), &mut SeededEntropy(3))
    };
    STATE.get_or_init(make).clone()
}

/// A message from another monitor, over a connection that proved to be one.
pub(crate) fn mon_peer(data: &[u8]) {
    let now = Now::default();
    let mut settings = monitor::Settings::new("a", AddrVec::single(EntityAddr::default()));
    settings.auth_methods = vec![cephx::METHOD_NONE];
    let mut start = start(blank());
    start.snapshot.index = 0;
    start.entries.clear();
    let entropy = Box::new(SeededEntropy(2));
    let made = monitor::Member::new(settings, Tuning::default(), Vec::new(), entropy, start, now);
    let Ok(mut member) = made else { return };
    let mut out = Vec::new();
    let name = AuthName::new(EntityType::Mon, "");
    let login = monitor::Input::AuthRequest {
        conn: CONN,
        peer_type: EntityType::Mon,
        method: cephx::METHOD_NONE,
        preferred_modes: vec![1],
        payload: cephx::none_login_request(&name, GlobalId(0)),
        peer_addr: EntityAddr::default(),
    };
    member.handle(now, login, &mut out);
    let connected = monitor::Input::Connected {
        conn: CONN,
        peer: EntityName::mon(1),
        addrs: AddrVec::single(EntityAddr::default()),
        features: u64::MAX,
    };
    member.handle(now, connected, &mut out);
    let data = Bytes::copy_from_slice(data);
    member.handle(now, monitor::Input::Peer { conn: CONN, data }, &mut out);
    member.handle(now, monitor::Input::Tick, &mut out);
}

fn bodies() -> Vec<Body> {
    let active = vec![PeerStatus { id: LEADER, skew_ms: -70, latency_ms: 2 }];
    let sent = Duration::from_micros(1_234);
    let snapshot = Snapshot { index: 20, term: 3, members: members(), state: Bytes::from_static(b"state") };
    let entries = vec![
        entry(9, "new"),
        Entry { payload: Payload::Members(members()), ..entry(10, "") },
        Entry { payload: Payload::Empty, ..entry(11, "") },
    ];
    vec![
        Body::PreVote { last_index: 1, last_term: 2 },
        Body::PreVoteReply { granted: true },
        Body::Vote { last_index: 9, last_term: 3 },
        Body::VoteReply { granted: true },
        Body::Append(Append {
            prev_index: 8,
            prev_term: 2,
            entries,
            commit: 7,
            sent,
            active: active.clone(),
        }),
        Body::AppendReply(AppendReply { ok: true, index: 9, sent, ..AppendReply::default() }),
        Body::Snapshot(InstallSnapshot { snapshot: snapshot.clone(), sent, active: active.clone() }),
        Body::SnapshotPart(SnapshotPart { snapshot, offset: 0, total: 70, sent, active }),
        Body::PartReply(PartReply { index: 7, held: 10, sent, ..PartReply::default() }),
        Body::ReadIndex { ctx: 4 },
        Body::ReadIndexReply { ctx: 4, index: 9 },
        Body::Join { name: "c".to_owned() },
    ]
}

fn all_messages() -> Vec<Message> {
    let message = |body| Message { cluster: CLUSTER, from: LEADER, to: US, term: 3, body };
    bodies().into_iter().map(message).collect()
}

pub(crate) fn quorum_seeds() -> Vec<Vec<u8>> {
    all_messages().iter().map(|m| m.to_wire().to_vec()).collect()
}

pub(crate) fn store_seeds() -> Vec<Vec<u8>> {
    let start = start(Bytes::new());
    let records = [
        stored::pack_hard_state(&start.hard),
        stored::pack_snapshot(&start.snapshot),
        stored::pack_entry(&entry(6, "old"), 5),
    ];
    let seed: Vec<u8> =
        records.iter().flat_map(|r| [&(r.len() as u16).to_le_bytes()[..], r].concat()).collect();
    vec![seed]
}

/// Each kind of message among monitors.
pub(crate) fn peer_seeds() -> Vec<Vec<u8>> {
    let peer = |kind: u8, body: &dyn Fn(&mut Writer)| {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            AddrVec::single(EntityAddr::default()).encode(w);
            w.u8(kind);
            body(w);
        });
        w.into_bytes().to_vec()
    };
    let client = |w: &mut Writer| {
        w.envelope(1, 1, |w| {
            AuthName::new(EntityType::Client, "x").encode(w);
            EntityName::client(7).encode(w);
            GlobalId(7).encode(w);
            "allow *".to_owned().encode(w);
            AddrVec::single(EntityAddr::default()).encode(w);
            AddrVec::single(EntityAddr::default()).encode(w);
            w.u64(u64::MAX);
            "host".to_owned().encode(w);
        });
    };
    let request = |w: &mut Writer| {
        let cmd = vec![r#"{"prefix":"status"}"#.to_owned()];
        let msg = messages::Message::from(MMonCommand { cmd, ..MMonCommand::default() }).into_wire(3);
        w.u64(3);
        for number in [msg.header.ty, 0, msg.header.version, msg.header.compat_version, 0] {
            w.u16(number);
        }
        [&msg.front, &msg.middle, &msg.data].into_iter().for_each(|part| w.blob(part));
    };
    let mut out: Vec<Vec<u8>> = all_messages().iter().map(|m| peer(1, &|w| m.encode(w))).collect();
    out.push(peer(2, &|w| {
        w.u64(4);
        client(w);
        request(w);
    }));
    out.push(peer(3, &|w| w.u64(4)));
    out.push(peer(4, &|w| {
        w.u64(CONN.0);
        request(w);
    }));
    out.push(peer(5, &|w| w.u64(CONN.0)));
    out.push(peer(6, &|w| "b/1".to_owned().encode(w)));
    out
}
