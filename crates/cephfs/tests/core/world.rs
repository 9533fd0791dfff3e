//! A client, its effects, and a server's words.

use std::time::Duration;

use bytes::Bytes;
use cephfs::{Answer, Call, Client, Effect, Handle, Input, Node, ObjectTicket, SessionId, Settings, Ticket};
use codec::Encode;
use maps::{MdsInfo, MdsMap, MdsState, Rank};
use messages::Message;
use messages::fs::{
    CapOp, Caps, FileLayout, FsOp, InodeStat, LeaseStat, MClientCaps, MClientReply, MClientRequest,
    MClientSession, ReplyCap, SessionOp, SnapTrace, Trace, TraceDentry, features,
};
use messages::mon::MMdsMap;
use objecter::{OpReply, OpRequest};
use types::{Epoch, Errno, FeatureBits, Ino, Now, PoolId, Utime};

pub const FILE: Ino = Ino(100);
pub const ALL: Caps = Caps(0x3fdd);

pub struct World {
    pub client: Client,
    pub now: Now,
    pub map: MdsMap,
    /// What was not looked at yet.
    pub out: Vec<Effect>,
    last_ticket: u64,
    cap_seq: u32,
}

pub fn name(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A file or folder as a server shows it, with these capabilities.
pub fn stat(ino: Ino, mode: u32, caps: Caps) -> InodeStat {
    let layout = FileLayout {
        stripe_unit: 1 << 22,
        stripe_count: 1,
        object_size: 1 << 22,
        pool: PoolId(3),
        ..Default::default()
    };
    InodeStat {
        ino,
        version: 10,
        mode,
        nlink: 1,
        layout,
        max_size: 1 << 22,
        inline_version: InodeStat::INLINE_NONE,
        cap: ReplyCap {
            caps,
            wanted: caps,
            cap_id: ino.0,
            seq: 1,
            realm: Ino(1),
            flags: ReplyCap::AUTH,
            ..Default::default()
        },
        ..InodeStat::default()
    }
}

pub fn folder(ino: Ino) -> InodeStat {
    stat(ino, 0o040_755, Caps::ALL_SHARED)
}

pub fn file(caps: Caps) -> InodeStat {
    stat(FILE, 0o100_644, caps)
}

impl World {
    /// A client and a map with rank 0.
    pub fn new() -> Self {
        let mut map = MdsMap { enabled: true, fs_name: "cephfs".into(), ..MdsMap::default() };
        map.epoch = Epoch(1);
        let now = Now { mono: Duration::from_secs(100), wall: Utime::new(1000, 0) };
        let client = Client::new(Settings::default());
        let mut world = Self { client, now, map, out: Vec::new(), last_ticket: 0, cap_seq: 1 };
        world.hold(0, 10, MdsState::ACTIVE);
        world.input(Input::MonReady);
        world.input(Input::OsdMap(Epoch(5)));
        world
    }

    /// Mounted, with a session of rank 0.
    pub fn mounted() -> Self {
        let mut w = Self::new();
        w.send_map();
        let ticket = w.submit(Call::Mount { path: Bytes::new() });
        w.open_session(0);
        let (tid, _) = w.request();
        w.reply(tid, FsOp::GETATTR, true, None, Some(folder(Ino(1))));
        assert!(matches!(w.done(ticket), Ok(Answer::Attr(_))));
        w.out.clear();
        w
    }

    /// With a file open, and these capabilities of it.
    pub fn opened(caps: Caps) -> (Self, Handle) {
        let mut w = Self::mounted();
        let ticket = w.submit(Call::Create { dir: Node::ROOT, name: name("file"), mode: 0o644, flags: 2 });
        let (tid, _) = w.request();
        w.reply(tid, FsOp::CREATE, true, Some("file"), Some(file(caps)));
        let Ok(Answer::Opened { handle, .. }) = w.done(ticket) else { panic!("it is open") };
        w.out.clear();
        (w, handle)
    }

    pub fn input(&mut self, input: Input) {
        self.client.handle(self.now, input, &mut self.out);
        self.client.assert_invariants();
    }

    pub fn submit(&mut self, call: Call) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.input(Input::Submit(ticket, call));
        ticket
    }

    pub fn pass(&mut self, time: Duration) {
        self.now.mono += time;
        self.now.wall = self.now.wall.plus(time);
        self.input(Input::Tick);
    }

    /// A holder of a rank in this state, in the next map.
    pub fn hold(&mut self, rank: Rank, gid: u64, state: MdsState) {
        if let Some(old) = self.map.up.insert(rank, gid) {
            self.map.info.remove(&old);
        }
        self.map.r#in.insert(rank);
        let info =
            MdsInfo { gid, name: format!("m{gid}"), rank, state, inc: gid as i32, ..MdsInfo::default() };
        self.map.info.insert(gid, info);
    }

    pub fn send_map(&mut self) {
        self.map.epoch = self.map.epoch.next();
        let map = self.map.to_bytes();
        let m = MMdsMap { epoch: self.map.epoch, map, fs_name: "cephfs".into(), ..MMdsMap::default() };
        self.input(Input::FromMon(m.into()));
    }

    /// The newest connection to a rank.
    pub fn conn(&self) -> SessionId {
        SessionId(self.conns())
    }

    fn conns(&self) -> u64 {
        self.client.connections_opened()
    }

    pub fn say(&mut self, tid: u64, msg: impl Into<Message>) {
        let session = self.conn();
        self.input(Input::FromSession { session, tid, msg: msg.into() });
    }

    pub fn open_session(&mut self, _: Rank) {
        let asked = self.take(|e| match e {
            Effect::Send { msg: Message::ClientSession(m), .. } => Some(m.op),
            _ => None,
        });
        assert!(asked.contains(&SessionOp::REQUEST_OPEN), "{asked:?}");
        let mut bits = FeatureBits::default();
        (0..=features::RETRY_FWD_32BITS).for_each(|bit| bits.insert(bit));
        self.say(0, MClientSession { op: SessionOp::OPEN, features: bits, ..Default::default() });
    }

    /// Takes those effects out that `which` gives something for.
    pub fn take<T>(&mut self, which: impl Fn(&Effect) -> Option<T>) -> Vec<T> {
        let mut taken = Vec::new();
        self.out.retain(|effect| match which(effect) {
            Some(value) => {
                taken.push(value);
                false
            }
            None => true,
        });
        taken
    }

    pub fn requests(&mut self) -> Vec<(u64, MClientRequest)> {
        self.take(|e| match e {
            Effect::Send { tid, msg: Message::ClientRequest(m), .. } => Some((*tid, (**m).clone())),
            _ => None,
        })
    }

    /// The only request that was sent.
    pub fn request(&mut self) -> (u64, MClientRequest) {
        let mut all = self.requests();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    pub fn caps_said(&mut self) -> Vec<(u64, MClientCaps)> {
        self.take(|e| match e {
            Effect::Send { tid, msg: Message::ClientCaps(m), .. } => Some((*tid, (**m).clone())),
            _ => None,
        })
    }

    pub fn objects(&mut self) -> Vec<(ObjectTicket, OpRequest)> {
        self.take(|e| match e {
            Effect::Object(ticket, request) => Some((*ticket, (**request).clone())),
            _ => None,
        })
    }

    pub fn objects_done(&mut self, objects: Vec<(ObjectTicket, OpRequest)>) {
        for (ticket, _) in objects {
            let reply = OpReply { result: 0, ops: Vec::new(), version: 1 };
            self.input(Input::ObjectDone(ticket, Ok(reply)));
        }
    }

    pub fn is_done(&mut self, ticket: Ticket) -> Option<Result<Answer, Errno>> {
        let mut found = self.take(|e| match e {
            Effect::Done(t, result) if *t == ticket => Some(result.clone()),
            _ => None,
        });
        assert!(found.len() <= 1, "each call ends once");
        found.pop()
    }

    pub fn done(&mut self, ticket: Ticket) -> Result<Answer, Errno> {
        self.is_done(ticket).expect("it is done")
    }

    /// An answer, with a name in the root where there is one.
    pub fn reply(
        &mut self,
        tid: u64,
        op: FsOp,
        is_safe: bool,
        entry: Option<&str>,
        target: Option<InodeStat>,
    ) {
        let dentry = entry.map(|text| TraceDentry {
            dir: folder(Ino(1)),
            name: name(text),
            lease: LeaseStat::default(),
            ..TraceDentry::default()
        });
        let mut m =
            MClientReply { op, is_safe, snaps: SnapTrace::default().to_bytes(), ..MClientReply::default() };
        m.set_trace(&Trace { dentry, target });
        self.say(tid, m);
    }

    pub fn refuse(&mut self, tid: u64, op: FsOp, errno: Errno) {
        self.say(tid, MClientReply { op, result: errno.neg(), is_safe: true, ..MClientReply::default() });
    }

    /// The server's word of the file's capability.
    pub fn caps(&mut self, op: CapOp, caps: Caps) -> MClientCaps {
        self.cap_seq += 1;
        MClientCaps {
            op,
            ino: FILE,
            realm: Ino(1),
            cap_id: FILE.0,
            seq: self.cap_seq,
            caps,
            wanted: caps,
            mode: 0o100_644,
            nlink: 1,
            layout: file(caps).layout,
            max_size: 1 << 22,
            nfiles: -1,
            nsubdirs: -1,
            ..MClientCaps::default()
        }
    }
}
