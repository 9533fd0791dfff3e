//! The forms on the wire and on the disk: whole, cut short, damaged.

use std::time::Duration;

use bytes::Bytes;
use codec::{Decode, Reader};
use quorum::{
    Append, AppendReply, Body, Entry, HardState, InstallSnapshot, MemberId, Membership, Message, PartReply,
    Payload, PeerStatus, Snapshot, SnapshotPart, stored,
};
use types::{Fsid, Utime};

fn entry(index: u64) -> Entry {
    Entry { index, term: 3, payload: Payload::Data(Bytes::from(format!("entry {index}"))) }
}

fn members() -> Membership {
    Membership::of([(MemberId(5), "a".to_owned()), (MemberId(6), "b".to_owned())])
}

fn bodies() -> Vec<Body> {
    let active = vec![PeerStatus { id: MemberId(5), skew_ms: -70, latency_ms: 2 }];
    let entries = vec![
        entry(8),
        Entry { payload: Payload::Members(members()), ..entry(9) },
        Entry { payload: Payload::Empty, ..entry(10) },
    ];
    let sent = Duration::from_micros(1_234_567);
    let snapshot = Snapshot { index: 7, term: 2, members: members(), state: Bytes::from_static(b"state") };
    vec![
        Body::PreVote { last_index: 1, last_term: 2 },
        Body::PreVoteReply { granted: true },
        Body::Vote { last_index: 1, last_term: 2 },
        Body::VoteReply { granted: false },
        Body::Append(Append {
            prev_index: 7,
            prev_term: 2,
            entries,
            commit: 6,
            sent,
            active: active.clone(),
        }),
        Body::AppendReply(AppendReply {
            ok: true,
            index: 9,
            sent,
            wall: Utime { sec: 1, nsec: 2 },
            last_index: 12,
            refused: 8,
        }),
        Body::Snapshot(InstallSnapshot { snapshot: snapshot.clone(), sent, active: active.clone() }),
        Body::SnapshotPart(SnapshotPart { snapshot, offset: 5, total: 70, sent, active }),
        Body::PartReply(PartReply { index: 7, held: 10, sent, wall: Utime { sec: 1, nsec: 2 } }),
        Body::ReadIndex { ctx: 4 },
        Body::ReadIndexReply { ctx: 4, index: 9 },
        Body::Join { name: "c".to_owned() },
        Body::Resign { next: MemberId(6) },
        Body::Outdated,
    ]
}

#[test]
fn messages_come_back_and_are_refused_at_every_shorter_length() {
    for body in bodies() {
        let m = Message { cluster: Fsid([1; 16]), from: MemberId(5), to: MemberId(6), term: 3, body };
        let wire = m.to_wire();
        assert_eq!(Message::decode(&mut Reader::new(wire.clone())), Ok(m));
        for len in 0..wire.len() {
            assert!(Message::decode(&mut Reader::new(wire.slice(..len))).is_err(), "cut at {len}");
        }
        for at in 0..wire.len() {
            let mut bent = wire.to_vec();
            bent[at] ^= 0x80;
            // Whatever it means then, it does not panic.
            let _ = Message::decode(&mut Reader::new(bent.into()));
        }
    }
}

fn rows(marks: &[(u64, u64)]) -> Vec<(u64, Bytes)> {
    marks.iter().map(|(index, durable)| (*index, stored::pack_entry(&entry(*index), *durable))).collect()
}

#[test]
fn a_torn_tail_is_cut_and_corruption_below_the_mark_is_refused() {
    let hard = stored::pack_hard_state(&HardState {
        id: MemberId(5),
        term: 3,
        vote: MemberId(5),
        ..HardState::default()
    });
    let snapshot =
        stored::pack_snapshot(&Snapshot { index: 3, term: 2, members: members(), state: Bytes::new() });
    let good = rows(&[(4, 3), (5, 4), (6, 4), (7, 4)]);
    let last = |rows: Vec<(u64, Bytes)>| stored::recover(&hard, &snapshot, rows).map(|s| s.entries.len());
    assert_eq!(last(good.clone()), Ok(4));
    // 5 is above every mark: the tail begins there, even with good records after it.
    for at in 1..4 {
        for byte in 0..good[at].1.len() {
            let mut rows = good.clone();
            let mut bent = rows[at].1.to_vec();
            bent[byte] ^= 1;
            rows[at].1 = bent.into();
            assert_eq!(last(rows), Ok(at), "record {at}, byte {byte}");
        }
        let mut rows = good.clone();
        rows[at].1 = rows[at].1.slice(..rows[at].1.len() / 2);
        assert_eq!(last(rows), Ok(at));
    }
    // 4 was durable when 5 was written.
    for byte in 0..good[0].1.len() {
        let mut rows = good.clone();
        let mut bent = rows[0].1.to_vec();
        bent[byte] ^= 1;
        rows[0].1 = bent.into();
        assert!(last(rows).is_err(), "byte {byte}");
    }
    assert!(last(good[1..].to_vec()).is_err(), "a missing record that was durable");
    for byte in 0..hard.len() {
        let mut bent = hard.to_vec();
        bent[byte] ^= 1;
        assert!(stored::recover(&bent.into(), &snapshot, good.clone()).is_err());
    }
}

#[test]
fn where_writes_are_atomic_no_damage_above_the_snapshot_is_cut_away() {
    let hard = stored::pack_hard_state(&HardState {
        id: MemberId(5),
        term: 3,
        vote: MemberId(5),
        ..HardState::default()
    });
    let snapshot =
        stored::pack_snapshot(&Snapshot { index: 3, term: 2, members: members(), state: Bytes::new() });
    let good = rows(&[(2, 1), (4, 3), (5, 4), (6, 4)]);
    let check = |rows: Vec<(u64, Bytes)>, expected: Result<usize, u64>| {
        let got = stored::recover_whole(&hard, &snapshot, rows).map(|s| s.entries.len());
        let got = got.map_err(|e| match e {
            stored::StoredError::Corrupt { index, .. } => index,
            other => panic!("{other}"),
        });
        assert_eq!(got, expected);
    };
    check(good.clone(), Ok(3));
    check(Vec::new(), Ok(0));
    for at in 1..good.len() {
        for byte in 0..good[at].1.len() {
            let mut rows = good.clone();
            let mut bent = rows[at].1.to_vec();
            bent[byte] ^= 1;
            rows[at].1 = bent.into();
            check(rows, Err(good[at].0));
        }
    }
    let mut gapped = good.clone();
    gapped.remove(2);
    check(gapped, Err(5));
    let mut misplaced = good.clone();
    misplaced[3].1 = stored::pack_entry(&entry(7), 4);
    check(misplaced, Err(6));
    // What the snapshot holds is not needed.
    let mut below = good;
    below[0].1 = Bytes::from_static(b"nothing");
    check(below, Ok(3));
}

#[test]
fn votes_of_the_older_form_are_read() {
    use codec::{Encode, Writer};
    let mut w = Writer::new();
    w.envelope(1, 1, |w| {
        MemberId(5).encode(w);
        w.u64(3);
        MemberId(6).encode(w);
    });
    let hard = HardState { id: MemberId(5), term: 3, vote: MemberId(6), outdated: false };
    assert_eq!(HardState::decode(&mut Reader::new(w.into_bytes())), Ok(hard));
}
