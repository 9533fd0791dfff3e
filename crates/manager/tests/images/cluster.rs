//! A manager in a cluster whose client keeps what it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::{ADMIN, OSDMAP, World, full_map, osd_conn, peer, reports, text};
use bytes::Bytes;
use codec::{Decode, Encode};
use manager::job::{Failed, Found, ImageFacts, Job, Space, Work};
use manager::{Input, Output};
use maps::{MgrClient, MgrMap, OsdMap};
use messages::Message;
use messages::common::{MMgrCommand, MMgrCommandReply};
use messages::mgr::MMgrConfigure;
use messages::mon::{MConfig, MMgrMap};
use messages::payload::RestOfFront;
use serde_json::{Value, json};
use types::{AddrKind, AddrVec, EntityAddr, EntityType, Epoch, Errno, PoolId};

/// A cluster with a pool of images, and a client that keeps what it is told to.
pub struct Cluster {
    pub w: World,
    pub pool: PoolId,
    pub name: String,
    pub kept: BTreeMap<(Space, &'static str, String), String>,
    pub images: BTreeMap<String, ImageFacts>,
    pub namespaces: Vec<String>,
    /// What is under way, by its number.
    pub works: BTreeMap<u64, (Space, Work)>,
    pub cancelled: BTreeSet<u64>,
    pub replies: BTreeMap<u64, MMgrCommandReply>,
    pub wishes: Option<MMgrConfigure>,
    pub said: Vec<String>,
    pub clients: u32,
    pub tid: u64,
    /// Keys are not removed.
    pub keeps: bool,
    /// Of this pool nothing is heard.
    pub silent: Option<PoolId>,
    pub unheard: usize,
    /// Of a pool are told so many at most.
    pub most_namespaces: usize,
    /// How often names were asked for.
    pub named: usize,
}

pub fn addrs(nonce: u32) -> AddrVec {
    AddrVec::single(EntityAddr::parse(&format!("v2:127.0.0.1:0/{nonce}"), AddrKind::Msgr2).unwrap())
}

impl Cluster {
    pub fn new() -> Self {
        let mut c = Self::before();
        c.in_charge(4_100);
        c.go();
        c
    }

    /// Nobody is in charge yet.
    pub fn before() -> Self {
        let mut map = OsdMap::from_bytes(Bytes::from_static(OSDMAP)).unwrap();
        for p in map.pools.values_mut() {
            p.application_metadata.remove("rbd");
        }
        let (&pool, p) = map.pools.iter_mut().next().unwrap();
        p.application_metadata.insert("rbd".to_owned(), BTreeMap::new());
        let name = map.pool_name(pool).unwrap().to_owned();
        let mut w = World::new();
        w.input(Input::MonConnected { gid: 4_100 });
        w.mon_sends(full_map(map.to_bytes()));
        w.mon_sends(MConfig::default());
        for (osd, report) in reports() {
            w.connect_osd(osd);
            w.message(osd_conn(osd), report);
        }
        let (kept, images, works, cancelled) = Default::default();
        let (replies, wishes, said, clients, tid) = Default::default();
        let namespaces = vec!["ns".to_owned()];
        Self {
            w,
            pool,
            name,
            kept,
            images,
            namespaces,
            works,
            cancelled,
            replies,
            wishes,
            said,
            clients,
            tid,
            keeps: false,
            silent: None,
            unheard: 0,
            most_namespaces: usize::MAX,
            named: 0,
        }
    }

    /// With a second pool of images, whose name is given.
    pub fn with_other() -> (Self, PoolId, String) {
        let mut c = Self::before();
        let mut map = OsdMap::from_bytes(Bytes::from_static(OSDMAP)).unwrap();
        let other = *map.pools.keys().next_back().unwrap();
        assert_ne!(other, c.pool);
        map.epoch = Epoch(map.epoch.0 + 1);
        for (id, p) in &mut map.pools {
            p.application_metadata.remove("rbd");
            if *id == c.pool || *id == other {
                p.application_metadata.insert("rbd".to_owned(), BTreeMap::new());
            }
        }
        let name = map.pool_name(other).unwrap().to_owned();
        c.w.mon_sends(full_map(map.to_bytes()));
        (c, other, name)
    }

    pub fn keep_task(&mut self, space: (PoolId, &str), key: &str, task: Value) {
        let space = Space { pool: space.0, namespace: space.1.to_owned() };
        self.kept.insert((space, "rbd_task", key.to_owned()), task.to_string());
    }

    pub fn all_works(&self) -> Vec<Work> {
        self.works.values().map(|(_, work)| work.clone()).collect()
    }

    pub fn mgr_map(&mut self, gid: u64, clients: Vec<MgrClient>) {
        let map = MgrMap { epoch: Epoch(10), active_gid: gid, clients, ..MgrMap::initial() };
        self.w.mon_sends(MMgrMap { map: RestOfFront(map.to_bytes()) });
    }

    pub fn in_charge(&mut self, gid: u64) {
        self.mgr_map(gid, Vec::new());
        // Who lost its place closed all sessions.
        self.w.input(Input::Connected { conn: ADMIN, peer: peer(EntityType::Client, 4_200, "allow *") });
        for (osd, report) in reports() {
            self.w.connect_osd(osd);
            self.w.message(osd_conn(osd), report);
        }
    }

    /// Time passes, and all that is asked of the client and the monitors is done, but what takes long.
    pub fn go(&mut self) {
        let mut quiet = 0;
        while quiet < 3 {
            self.w.advance(Duration::from_millis(250));
            let sent = self.w.sent();
            let mut answers = Vec::new();
            for o in sent {
                self.take(o, &mut answers);
            }
            quiet = if answers.is_empty() { quiet + 1 } else { 0 };
            answers.into_iter().for_each(|input| self.w.input(input));
        }
    }

    pub fn take(&mut self, o: Output, answers: &mut Vec<Input>) {
        match o {
            Output::StartClient { start } => {
                self.clients += 1;
                answers.push(Input::Client { start, started: Ok(addrs(self.clients)) });
            }
            Output::SendMon { msg: Message::MgrBeacon(b), .. } if !b.client_addrs.is_empty() => {
                let named = b.client_names.into_iter().zip(b.client_addrs);
                let clients = named.map(|(name, addrs)| MgrClient { name, addrs }).collect();
                self.mgr_map(4_100, clients);
            }
            Output::SendMon { tid, msg: Message::MonCommand(m) } if m.cmd[0].contains("rbd_support") => {
                let ack = messages::mon::MMonCommandAck::default();
                self.said.push(m.cmd[0].clone());
                answers.push(Input::FromMon { tid, msg: ack.into() });
            }
            Output::Job { job, .. } if job.pool() == self.silent && self.silent.is_some() => {
                self.unheard += 1
            }
            Output::Job { id, job: Job::Work { space, work } } => drop(self.works.insert(id, (space, work))),
            Output::Job { id, job } => answers.push(Input::JobDone { id, result: self.perform(job) }),
            Output::CancelJob { id } => drop(self.cancelled.insert(id)),
            Output::EndClient => self.works.clear(),
            Output::Send { conn: ADMIN, tid, msg: Message::MgrCommandReply(r) } => {
                self.replies.insert(tid, r);
            }
            Output::Send { conn, msg: Message::MgrConfigure(m), .. } if conn == osd_conn(0) => {
                self.wishes = Some(m);
            }
            Output::Warn(text) => self.said.push(text),
            _ => {}
        }
    }

    pub fn perform(&mut self, job: Job) -> Result<Found, Failed> {
        let none = || Failed { errno: Errno::ENOENT, why: "there is none".to_owned() };
        match job {
            Job::Load { pool, object, most, with_namespaces } => {
                let inner = self.namespaces.iter().filter(|_| with_namespaces).cloned();
                let namespaces: Vec<String> = inner.chain([String::new()]).collect();
                let share = manager::job::share(most, namespaces.len());
                let (mut all, mut cut) = (BTreeMap::new(), BTreeSet::new());
                for namespace in namespaces {
                    let is_here = |s: &Space| s.pool == pool && s.namespace == namespace;
                    let kept = self.kept.iter().filter(|((s, of, _), _)| is_here(s) && *of == object);
                    let mut keys: BTreeMap<Bytes, Bytes> =
                        kept.map(|((_, _, k), v)| (k.clone().into(), v.clone().into())).collect();
                    if keys.len() > share {
                        cut.insert(namespace.clone());
                        keys = keys.into_iter().take(share).collect();
                    }
                    all.insert(namespace, keys);
                }
                Ok(Found::Keys { keys: all, cut, is_whole: true })
            }
            Job::Namespaces { .. } => {
                let mut names = self.namespaces.clone();
                names.truncate(self.most_namespaces);
                let is_whole = names.len() == self.namespaces.len();
                Ok(Found::Namespaces { names, is_whole })
            }
            Job::Keep { space, object, key, value } => {
                match value {
                    None if self.keeps => {
                        return Err(Failed { errno: Errno::EIO, why: "no way".to_owned() });
                    }
                    Some(value) => drop(self.kept.insert((space, object, key), value)),
                    None => drop(self.kept.remove(&(space, object, key))),
                }
                Ok(Found::Nothing)
            }
            Job::Look { image, .. } => self.images.get(&image).cloned().map(Found::Image).ok_or_else(none),
            Job::LookInTrash { id, .. } if id == "t1" => Ok(Found::Nothing),
            Job::LookInTrash { .. } => Err(none()),
            Job::Names { .. } => {
                self.named += 1;
                let names = self.images.iter().map(|(name, facts)| (facts.id.clone(), name.clone()));
                Ok(Found::Names(names.collect()))
            }
            Job::Work { .. } => unreachable!("it takes long"),
            Job::Values { .. } | Job::Sample { .. } | Job::Tell { .. } => unreachable!("there are no disks"),
        }
    }

    pub fn ask(&mut self, command: Value) -> u64 {
        self.tid += 1;
        let msg = MMgrCommand { cmd: vec![command.to_string()], ..MMgrCommand::default() };
        self.w.input(Input::Message { conn: ADMIN, tid: 1_000_000 + self.tid, msg: msg.into() });
        1_000_000 + self.tid
    }

    /// Code, words and output.
    pub fn run(&mut self, command: Value) -> (i32, String, String) {
        let tid = self.ask(command);
        self.go();
        let r = self.replies.remove(&tid).expect("an answer");
        (r.result, r.status.clone(), text(&r).trim_end().to_owned())
    }

    pub fn task(&mut self, what: &str, image: &str) -> (i32, String, String) {
        let spec = if what == "trash remove" { "image_id_spec" } else { "image_spec" };
        let image = format!("{}/{image}", self.name);
        self.run(json!({ "prefix": format!("rbd task add {what}"), spec: image }))
    }

    pub fn tasks(&mut self) -> Vec<Value> {
        let (code, _, out) = self.run(json!({ "prefix": "rbd task list" }));
        assert_eq!(code, 0);
        serde_json::from_str(&out).unwrap()
    }

    pub fn image(&mut self, name: &str, has_parent: bool) {
        let facts = ImageFacts { id: format!("id{name}"), has_parent, ..ImageFacts::default() };
        self.images.insert(name.to_owned(), facts);
    }

    /// The work that is under way is over.
    pub fn over(&mut self, result: Result<Found, Failed>) {
        let (id, _) = self.works.pop_first().expect("something is under way");
        self.w.input(Input::JobDone { id, result });
        self.go();
    }

    pub fn stored(&self) -> usize {
        self.kept.keys().filter(|(_, object, _)| *object == "rbd_task").count()
    }

    pub fn events(&mut self) -> Value {
        serde_json::from_str(&self.run(json!({ "prefix": "progress json" })).2).unwrap()
    }
}

/// The number of the start that is asked for.
pub fn start_in(sent: &[Output]) -> Option<u64> {
    sent.iter().find_map(|o| match o {
        Output::StartClient { start } => Some(*start),
        _ => None,
    })
}

pub fn flatten(image: &str) -> Work {
    Work::Flatten { image: image.to_owned(), id: format!("id{image}") }
}

pub fn failed(errno: Errno) -> Result<Found, Failed> {
    Err(Failed { errno, why: "it is so".to_owned() })
}

/// As it is kept of a removal.
pub fn removal(sequence: u64, pool: &str, namespace: &str, image: &str) -> Value {
    json!({ "sequence": sequence, "id": format!("t{sequence}"), "message": "Removing", "refs": {
        "action": "remove", "pool_name": pool, "pool_namespace": namespace, "image_name": image,
        "image_id": format!("id{image}") } })
}

pub fn remove(image: &str) -> Work {
    Work::Remove { image: image.to_owned(), id: format!("id{image}") }
}
