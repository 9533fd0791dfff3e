//! A server that says anything: nothing panics, and the invariants hold.

use std::time::Duration;

use cephfs::{Call, Input, Node};
use messages::Message;
use messages::fs::{
    CapOp, CapPeer, Caps, FsOp, MClientCaps, MClientLease, MClientReply, MClientRequestForward,
    MClientSession, MClientSnap, SessionOp, SnapOp, SnapRealmInfo, SnapTrace, Trace, TraceDentry,
};
use types::{Epoch, Errno, Ino, SnapId};

use crate::world::{ALL, World, name, stat};

/// A generator with a fixed seed: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
    fn ino(&mut self) -> Ino {
        Ino(self.pick(&[0, 1, 60, 61, 100, 101, u64::MAX]))
    }
    fn caps(&mut self) -> Caps {
        let some = self.below(1 << 16) as u32;
        Caps(self.pick(&[0, 1, 0x155, ALL.0, u32::MAX, some]))
    }
    fn small(&mut self) -> u32 {
        self.pick(&[0, 1, 2, 3, 0x7fff_ffff, u32::MAX])
    }
    fn wide(&mut self) -> u64 {
        self.pick(&[0, 1, 5, 1 << 22, 1 << 40, u64::MAX])
    }
}

fn message(r: &mut Random) -> Message {
    match r.below(8) {
        0 => MClientSession {
            op: SessionOp(r.below(14) as u32),
            seq: r.wide(),
            max_caps: r.small(),
            features: types::FeatureBits::from([9, 18]),
            ..Default::default()
        }
        .into(),
        1 | 2 => reply(r).into(),
        3 => MClientRequestForward {
            rank: r.pick(&[-1, 0, 1, 7]),
            num_fwd: r.small() as i32,
            must_resend: true,
        }
        .into(),
        4 => MClientLease {
            action: messages::fs::LeaseAction(r.below(5) as u8),
            ino: r.ino(),
            name: name("file"),
            ..Default::default()
        }
        .into(),
        5 => {
            let realm = SnapRealmInfo {
                ino: r.ino(),
                parent: r.ino(),
                seq: r.wide(),
                parent_since: r.wide(),
                snaps: vec![r.wide(), 3],
                ..Default::default()
            };
            let split_inos = vec![r.ino().0, 100];
            let op = SnapOp(r.below(5) as u32);
            MClientSnap {
                op,
                split: r.ino(),
                split_inos,
                split_realms: vec![1],
                trace: SnapTrace(vec![realm]),
            }
            .into()
        }
        _ => caps(r).into(),
    }
}

fn caps(r: &mut Random) -> MClientCaps {
    MClientCaps {
        op: CapOp(r.below(14) as u32),
        ino: r.ino(),
        realm: r.ino(),
        cap_id: r.pick(&[0, 1, 100, 500]),
        seq: r.small(),
        migrate_seq: r.small(),
        caps: r.caps(),
        wanted: r.caps(),
        dirty: r.caps(),
        snap_follows: r.wide(),
        size: r.wide(),
        max_size: r.wide(),
        truncate_size: r.wide(),
        truncate_seq: r.small(),
        nfiles: -7,
        peer: CapPeer {
            cap_id: r.pick(&[0, 500]),
            seq: r.small(),
            migrate_seq: r.small(),
            rank: r.pick(&[-1, 0, 1]),
            flags: 3,
        },
        ..Default::default()
    }
}

fn reply(r: &mut Random) -> MClientReply {
    let any = |r: &mut Random| {
        let mut s = stat(r.ino(), r.pick(&[0, 0o040_755, 0o100_644, 0o120_777, 0o106_644]), r.caps());
        s.snap = r.pick(&[SnapId::HEAD, SnapId::SNAPDIR, SnapId(3)]);
        (s.version, s.size, s.cap.seq) = (r.wide(), r.wide(), r.small());
        (s.layout.stripe_unit, s.layout.stripe_count) = (r.pick(&[0, 3, 1 << 22]), r.pick(&[0, 1, u32::MAX]));
        s.symlink = name("file/../file");
        s
    };
    let op = r.pick(&[FsOp::LOOKUP, FsOp::CREATE, FsOp::OPEN, FsOp::READDIR, FsOp::GETATTR, FsOp::MKSNAP]);
    let mut m = MClientReply {
        op,
        is_safe: r.below(2) == 0,
        result: r.pick(&[0, 0, 0, -2, -116]),
        ..Default::default()
    };
    let dentry =
        (r.below(2) == 0).then(|| TraceDentry { dir: any(r), name: name("file"), ..Default::default() });
    let target = (r.below(3) > 0).then(|| any(r));
    m.set_trace(&Trace { dentry, target });
    m
}

#[test]
fn numbers_at_their_end_break_nothing() {
    let (mut w, handle) = World::opened(ALL);
    let node = Node::head(crate::world::FILE);
    let grant = w.caps(CapOp::GRANT, ALL);
    w.say(0, MClientCaps { change_attr: u64::MAX, ..grant });
    let write = w.submit(Call::Write { handle, offset: Some(0), data: name("x") });
    let objects = w.objects();
    w.objects_done(objects);
    assert!(w.done(write).is_ok());
    let answer = |result| objecter::OpReply { result, ops: Vec::new(), version: 1 };
    for result in [i32::MIN, i32::MIN + 1] {
        let calls = [
            Call::Write { handle, offset: Some(0), data: name("x") },
            Call::Read { handle, offset: 0, length: 1 },
        ];
        for call in calls {
            let ticket = w.submit(call);
            let objects = w.objects();
            w.input(Input::ObjectDone(objects[0].0, Ok(answer(result))));
            assert_eq!(w.done(ticket), Err(Errno(i32::MAX)));
        }
        let set = messages::fs::SetAttr { mask: messages::fs::SetAttr::MODE, ..Default::default() };
        let ticket = w.submit(Call::SetAttr { node, set });
        let (tid, _) = w.request();
        w.say(tid, MClientReply { op: FsOp::SETATTR, result, is_safe: true, ..Default::default() });
        assert_eq!(w.done(ticket), Err(Errno(i32::MAX)));
    }
    for text in ["ceph.dir.entries", "ceph.dir.rentries"] {
        let ticket = w.submit(Call::GetXattr { node: Node::ROOT, name: name(text) });
        let (tid, _) = w.request();
        let mut many = crate::world::folder(Ino(1));
        (many.version, many.cap.seq) = (20, 2);
        (many.nfiles, many.nsubdirs, many.rfiles, many.rsubdirs) = (u64::MAX, 1, u64::MAX, 1);
        w.reply(tid, FsOp::GETATTR, true, None, Some(many));
        assert_eq!(w.done(ticket), Ok(cephfs::Answer::Value(u64::MAX.to_string().into())));
    }
}

#[test]
fn nothing_that_a_server_says_breaks_the_client() {
    for seed in 1..=150 {
        let r = &mut Random(seed * 0x9e37_79b9);
        let (mut w, handle) = World::opened(ALL);
        for _ in 0..150 {
            match r.below(10) {
                0 => {
                    let call = match r.below(8) {
                        0 => Call::Write { handle, offset: Some(r.wide()), data: name("0123456789") },
                        1 => Call::Read { handle, offset: r.wide(), length: 1 << 16 },
                        2 => Call::Fsync { handle },
                        3 => Call::Walk { path: name("/file/x/../file"), follow: true },
                        4 => Call::Mkdir { dir: Node::head(r.ino()), name: name("new"), mode: 0o755 },
                        5 => Call::Open { node: Node::head(r.ino()), flags: 2 },
                        6 => Call::Readdir { dir: Node::head(r.ino()), from: None },
                        _ => Call::Sync,
                    };
                    w.submit(call);
                }
                1 if r.below(20) == 0 => drop(w.submit(Call::Close { handle })),
                1 => w.pass(Duration::from_secs(r.below(30))),
                2 => {
                    let objects = w.objects();
                    w.objects_done(objects);
                }
                3 => {
                    let state = r.pick(&[8, 10, 11, 13, 13, 13]);
                    w.hold(0, 10 + r.below(2), maps::MdsState(state));
                    w.send_map();
                }
                4 if r.below(4) == 0 => {
                    let conn = w.conn();
                    w.input(Input::SessionGone(conn));
                }
                5 => w.input(Input::OsdMap(Epoch(r.small()))),
                _ => {
                    let tid = r.below(12);
                    let msg = message(r);
                    w.say(tid, msg);
                }
            }
            w.out.retain(|e| matches!(e, cephfs::Effect::Object(..)));
        }
    }
}
