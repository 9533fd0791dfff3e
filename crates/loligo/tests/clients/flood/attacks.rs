//! What a client with an ordinary key, or none, throws at daemons. Nothing here waits for politeness: when a
//! daemon closes a connection or does not read, the next attempt begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use maps::OsdMap;

use messages::log::{LogEntry, MLog, log_priority};
use messages::mon::{MMonCommand, MMonSubscribe, SubscribeItem};
use messages::osd::{CopyFromArgs, CopySource, Extent, MOsdOp, Op, OsdOp, flags, watch_op};
use msgr::Policy;
use runtime::Clock;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use types::{
    EntityAddr, EntityName, EntityType, Epoch, Fsid, HObject, ObjectLocator, PgId, PoolId, ReqId, SnapId,
    SpgId, Utime,
};

use super::peer::{As, Auth, Peer};

/// Objects that the floods ask for: some MiB of data, and an omap.
pub const LARGE: [&str; 3] = ["large 0", "large 1", "large 2"];
pub const LARGE_BYTES: usize = 16 << 20;

/// The cluster, as the hostile client knows it.
pub struct Target {
    pub clock: Clock,
    pub auth: Auth,
    pub mon: EntityAddr,
    pub map: Arc<OsdMap>,
    pub pool: PoolId,
    pub fsid: Fsid,
    /// Attempts that came as far as they were meant to.
    pub done: AtomicU64,
}

/// The floods, by the findings of the security review that they belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    /// X2: requests that name a map which nobody has.
    UnknownMaps,
    /// X3: the same number twice, large writes that wait for a map, and connections that leave them behind.
    SameNumbers,
    /// X4: small requests for much work.
    HeavyRequests,
    /// X5: large frames that never end.
    LargeFrames,
    /// X5: answers that nobody reads.
    Unread,
    /// X5: notifies that nobody answers.
    Notifies,
    /// X5: subscriptions to the whole history.
    Subscriptions,
    /// X12: sessions in the name of an OSD.
    ForgedSessions,
    /// X15: connections that never prove who they are.
    HalfOpen,
    /// X18: commands and log lines for the monitor.
    Commands,
}

impl Flood {
    pub const ALL: [Self; 10] = [
        Self::UnknownMaps,
        Self::SameNumbers,
        Self::HeavyRequests,
        Self::LargeFrames,
        Self::Unread,
        Self::Notifies,
        Self::Subscriptions,
        Self::ForgedSessions,
        Self::HalfOpen,
        Self::Commands,
    ];

    /// How many do it at once.
    fn workers(self) -> usize {
        match self {
            Self::HalfOpen => 700,
            Self::ForgedSessions => 4,
            Self::HeavyRequests => 4,
            _ => 12,
        }
    }

    /// Goes on until the time is over.
    pub async fn run(self, floods: &Handle, target: &Arc<Target>, length: Duration) {
        let until = tokio::time::Instant::now() + length;
        let workers: Vec<_> = (0..self.workers())
            .map(|nr| floods.spawn(tokio::time::timeout_at(until, self.repeat(Arc::clone(target), nr))))
            .collect();
        for worker in workers {
            let ended = worker.await.expect("no flood panics");
            assert!(ended.is_err(), "floods end when their time is over");
        }
    }

    async fn repeat(self, target: Arc<Target>, nr: usize) {
        loop {
            if self.attempt(&target, nr).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn attempt(self, t: &Target, nr: usize) -> Result<(), String> {
        match self {
            Self::UnknownMaps => t.unknown_maps(nr).await,
            Self::SameNumbers => t.same_numbers(nr).await,
            Self::HeavyRequests => t.heavy_requests(nr).await,
            Self::LargeFrames => t.large_frames(nr).await,
            Self::Unread => t.unread(nr).await,
            Self::Notifies => t.notifies(nr).await,
            Self::Subscriptions => t.subscriptions().await,
            Self::ForgedSessions => t.forged_sessions(nr).await,
            Self::HalfOpen => t.half_open(nr).await,
            Self::Commands => t.commands().await,
        }
    }
}

fn read(bytes: u64) -> OsdOp {
    Op::Read(Extent::new(0, bytes)).into()
}

impl Target {
    fn object(&self, name: &str) -> HObject {
        let pool = self.map.pool(self.pool).expect("the pool");
        let hash = pool.hash_key(name, "");
        HObject { pool: self.pool, hash, name: name.into(), snap: SnapId::HEAD, ..HObject::min() }
    }

    /// A request, and the OSD that it is for.
    fn request(&self, name: &str, ops: Vec<OsdOp>) -> (i32, MOsdOp) {
        let object = self.object(name);
        let pgid = self.map.raw_pg_to_pg(PgId::new(self.pool, object.hash)).expect("a PG");
        let primary = self.map.pg_to_up_acting(pgid).acting_primary;
        let msg = MOsdOp {
            pgid: SpgId::replicated(pgid),
            epoch: self.map.epoch,
            flags: flags::WRITE | flags::READ | flags::ONDISK,
            explicit_reqid: ReqId::default(),
            client_inc: 0,
            mtime: Utime::default(),
            object,
            ops,
            snapc: Default::default(),
            retry_attempt: 0,
            features: 0,
        };
        (primary, msg)
    }

    fn addr_of(&self, osd: i32) -> EntityAddr {
        self.map.osd(osd).and_then(|o| o.client_addrs.0.first().copied()).expect("an address")
    }

    async fn to_osd_as(&self, osd: i32, me: As) -> Result<Peer, String> {
        let auth = self.auth.to_service(EntityType::Osd);
        Peer::open(self.clock, (self.addr_of(osd), EntityName::osd(osd)), me, auth).await
    }

    async fn to_osd(&self, osd: i32) -> Result<Peer, String> {
        self.to_osd_as(osd, As::client()).await
    }

    /// A login, which brings tickets.
    pub async fn to_mon(&self) -> Result<Peer, String> {
        let name = EntityName::new(EntityType::Mon, 0);
        Peer::open(self.clock, (self.mon, name), As::client(), self.auth.login()).await
    }

    fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    async fn unknown_maps(&self, nr: usize) -> Result<(), String> {
        let (osd, mut msg) = self.request(LARGE[nr % 3], vec![read(1)]);
        let mut peer = self.to_osd(osd).await?;
        msg.epoch = Epoch(u32::MAX);
        loop {
            peer.send(msg.clone()).await?;
            self.count();
        }
    }

    async fn same_numbers(&self, nr: usize) -> Result<(), String> {
        let extent = Extent::new(0, 4 << 20);
        let write = Op::Write { extent, data: vec![1; 4 << 20].into() };
        let (osd, mut msg) = self.request(&format!("parked {nr}"), vec![write.into()]);
        msg.epoch = Epoch(self.map.epoch.0 + 1_000);
        let mut peer = self.to_osd(osd).await?;
        let number = peer.next_tid();
        for _ in 0..8 {
            peer.set_next_tid(number);
            peer.send(msg.clone()).await?;
            self.count();
        }
        Ok(())
    }

    async fn heavy_requests(&self, nr: usize) -> Result<(), String> {
        let list = Op::OmapGetVals { start_after: Bytes::new(), max: u64::MAX, prefix: Bytes::new() };
        let from = |name: &str| {
            let source = CopySource { object: name.into(), locator: ObjectLocator::pool(self.pool) };
            let args = CopyFromArgs { snap: SnapId::HEAD, ..Default::default() };
            OsdOp::from(Op::CopyFrom2 { from: source, args, truncation: None })
        };
        let ops: Vec<OsdOp> = match nr % 4 {
            0 => vec![list.into(); 1_000],
            1 => vec![from(LARGE[0]); 5],
            2 => vec![read(LARGE_BYTES as u64); 9],
            _ => vec![read(LARGE_BYTES as u64); 1_000],
        };
        let name = if nr % 4 == 1 { format!("copy {nr}") } else { LARGE[nr % 3].to_owned() };
        let (osd, msg) = self.request(&name, ops);
        let mut peer = self.to_osd(osd).await?;
        loop {
            for _ in 0..4 {
                peer.send(msg.clone()).await?;
                self.count();
            }
            peer.messages(4).await?;
        }
    }

    /// Half of a large frame, and then a byte now and then.
    async fn large_frames(&self, nr: usize) -> Result<(), String> {
        let extent = Extent::new(0, 16 << 20);
        let write = Op::Write { extent, data: vec![1; 16 << 20].into() };
        let (osd, msg) = self.request(LARGE[nr % 3], vec![write.into()]);
        let mut peer = self.to_osd(osd).await?;
        let bytes = peer.bytes_of(msg);
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        // A daemon without room for the frame reads no more of it.
        let written = peer.write(first).await;
        self.count();
        written?;
        for byte in rest {
            peer.write(&[*byte]).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn unread(&self, nr: usize) -> Result<(), String> {
        let (osd, msg) = self.request(LARGE[nr % 3], vec![read(LARGE_BYTES as u64)]);
        let mut peer = self.to_osd(osd).await?;
        let asked: Vec<u8> = (0..16).flat_map(|_| peer.bytes_of(msg.clone())).collect();
        loop {
            peer.write(&asked).await?;
            self.count();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn notifies(&self, nr: usize) -> Result<(), String> {
        let name = LARGE[nr % 3];
        let cookie = nr as u64 + 1;
        let watch = Op::Watch { cookie, op: watch_op::WATCH, generation: 0, timeout_s: 600 };
        let (osd, msg) = self.request(name, vec![watch.into()]);
        let mut peer = self.to_osd(osd).await?;
        peer.send(msg).await?;
        let notify = Op::Notify { cookie, timeout_s: 600, payload: vec![1; 4 << 20].into() };
        let (_, msg) = self.request(name, vec![notify.into()]);
        let mut last = Instant::now();
        loop {
            peer.send(msg.clone()).await?;
            self.count();
            // Now and then it reads what others notify, and answers nothing.
            if last.elapsed() > Duration::from_secs(1) {
                peer.receive().await?;
                last = Instant::now();
            }
        }
    }

    async fn subscriptions(&self) -> Result<(), String> {
        let mut peer = self.to_mon().await?;
        let item = SubscribeItem { start: 1, flags: 0 };
        let what = ["osdmap", "monmap", "mgrmap", "config"].map(|name| (name.to_owned(), item));
        let msg = MMonSubscribe { what: what.into(), hostname: "x".repeat(200) };
        loop {
            peer.send(msg.clone()).await?;
            self.count();
        }
    }

    /// An OSD's name and address with a client's ticket: the hello is refused, and what it left behind must
    /// not stay.
    async fn forged_sessions(&self, nr: usize) -> Result<(), String> {
        let (osd, msg) = self.request(LARGE[nr % 3], vec![read(4 << 20)]);
        let other = (osd + 1) % 3;
        let (name, addr) = (EntityName::osd(other), self.addr_of(other));
        let forged = As { name, addr, policy: Policy::lossless_client() };
        if let Ok(mut peer) = self.to_osd_as(osd, forged).await {
            return Err(format!("osd.{osd} takes a client for osd.{other}: {:?}", peer.send(msg).await));
        }
        // The same address as a client that keeps its session.
        let stated = As { addr, policy: Policy::lossless_client(), ..As::client() };
        if let Ok(mut peer) = self.to_osd_as(osd, stated).await {
            peer.send(msg).await?;
        }
        self.count();
        Ok(())
    }

    async fn half_open(&self, nr: usize) -> Result<(), String> {
        let at = if nr < 600 { self.mon } else { self.addr_of((nr % 3) as i32) };
        let connect = TcpStream::connect(at.socket.expect("an address"));
        let mut stream = connect.await.map_err(|e| e.to_string())?;
        self.count();
        // A banner that promises more to come.
        let _ = stream.write_all(b"ceph v2\n\x10\x00").await;
        let mut end = [0; 1_024];
        while matches!(tokio::io::AsyncReadExt::read(&mut stream, &mut end).await, Ok(n) if n > 0) {}
        Ok(())
    }

    async fn commands(&self) -> Result<(), String> {
        let mut peer = self.to_mon().await?;
        let command = MMonCommand {
            fsid: self.fsid,
            cmd: vec![r#"{"prefix": "osd dump", "format": "json-pretty"}"#.to_owned()],
            ..MMonCommand::default()
        };
        let entry = LogEntry {
            priority: log_priority::INFO,
            text: "x".repeat(4_000),
            channel: "cluster".to_owned(),
            ..LogEntry::default()
        };
        let mut seq = 0;
        loop {
            for _ in 0..20 {
                peer.send(command.clone()).await?;
            }
            let entries = (0..100).map(|nr| LogEntry { seq: seq + nr, ..entry.clone() }).collect();
            seq += 100;
            peer.send(MLog { fsid: self.fsid, entries, ..MLog::default() }).await?;
            self.count();
        }
    }
}
