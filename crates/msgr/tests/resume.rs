//! Sessions over connections that break: cut at every byte, raced, forgotten. Every message arrives once and
//! in order.

use crate::common;

use std::collections::VecDeque;

use common::*;
use msgr::{
    ConMode, Connection, Error, Event, Existing, Limits, Peer, Phase, Policy, Session, SessionAnswer,
    SessionRequest, Verdict, decide,
};
use types::{AddrVec, EntityName, EntityType};

/// One process: the session it holds while no connection does, and what its application sent and got.
struct Host {
    num: i64,
    at: &'static str,
    policy: Policy,
    parked: Option<(Session, Phase)>,
    /// Not yet given to any session.
    to_send: VecDeque<u64>,
    got: Vec<u64>,
    resets: usize,
    global_seq: u64,
    cookies: u64,
}

impl Host {
    fn new(num: i64, at: &'static str, policy: Policy) -> Self {
        Self {
            num,
            at,
            policy,
            parked: None,
            to_send: VecDeque::new(),
            got: vec![],
            resets: 0,
            global_seq: 0,
            cookies: num as u64 * 1000,
        }
    }

    fn cookie(&mut self) -> u64 {
        self.cookies += 1;
        self.cookies
    }

    fn connect(&mut self, to: &Host, mode: ConMode, nr: u8) -> End {
        self.global_seq += 1;
        let cookie = self.cookie();
        let session = match self.parked.take() {
            Some((session, _)) => session,
            None => {
                let name = EntityName::new(EntityType::Osd, to.num);
                Session::outgoing(self.policy, Peer { name, addrs: AddrVec::single(addr(to.at)) }, cookie)
            }
        };
        let me = local(EntityType::Osd, self.num, self.at);
        let spare = self.cookie();
        let conn =
            Connection::connect(now(0), me, session, addr(to.at), self.global_seq, spare, Limits::default());
        End::new(conn, mode, nr)
    }

    fn accept(&mut self, mode: ConMode, nr: u8) -> End {
        let me = local(EntityType::Osd, self.num, self.at);
        let mut end = End::new(
            Connection::accept(now(0), me, addr("v2:127.0.0.1:50000/0"), Limits::default()),
            mode,
            nr,
        );
        end.connector = false;
        end
    }

    /// The owner's part: sends what waits, takes what came, judges requests.
    fn work(&mut self, end: &mut End) {
        for event in std::mem::take(&mut end.events) {
            match event {
                Event::Message(m) => {
                    assert_eq!(content(&m), message(m.header.tid, 40), "whole");
                    self.got.push(m.header.tid);
                }
                Event::RemoteReset => self.resets += 1,
                Event::RetryGlobal { peer_knows } => {
                    self.global_seq = self.global_seq.max(peer_knows) + 1;
                    end.conn.set_global_seq(self.global_seq);
                }
                Event::SessionRequest(request) => self.judge(end, &request),
                _ => {}
            }
        }
        while let Some(nr) = self.to_send.pop_front() {
            if end.conn.send(message(nr, 40)).is_err() {
                self.to_send.push_front(nr);
                break;
            }
        }
        end.settle();
    }

    fn judge(&mut self, end: &mut End, request: &SessionRequest) {
        let ours = AddrVec::single(addr(self.at));
        let cookie = self.cookie();
        self.global_seq += 1;
        let existing = self.parked.as_ref().map(|(session, phase)| Existing { session, phase: *phase });
        match decide(&ours, &self.policy, request, existing) {
            Verdict::Fresh { .. } => {
                end.conn.accept_session(Session::incoming(self.policy), self.global_seq, cookie);
            }
            Verdict::Take { reset } => {
                let (mut session, _) = self.parked.take().expect("one exists");
                if reset {
                    session.reset();
                    self.resets += 1;
                }
                end.conn.accept_session(session, self.global_seq, cookie);
            }
            Verdict::Answer(answer) => end.conn.answer_session(answer),
            Verdict::Close(error) => panic!("{error}"),
        }
    }

    fn lose(&mut self, mut end: End) {
        self.work(&mut end);
        if let Some(session) = end.conn.take_session() {
            session.assert_invariants();
            assert!(self.parked.is_none());
            self.parked = Some((session, Phase::Standby));
        }
    }
}

/// Runs both ends until they are silent or a direction's budget of bytes is used up.
fn run(
    a: &mut Host,
    ea: &mut End,
    b: &mut Host,
    eb: &mut End,
    mut up: usize,
    mut down: usize,
) -> (usize, usize) {
    let (start_up, start_down) = (up, down);
    loop {
        a.work(ea);
        b.work(eb);
        a.work(ea);
        b.work(eb);
        let (x, y) = (ea.outgoing(), eb.outgoing());
        let (x, y) = (&x[..x.len().min(up)], &y[..y.len().min(down)]);
        if x.is_empty() && y.is_empty() {
            return (start_up - up, start_down - down);
        }
        eb.receive(x);
        ea.receive(y);
        (up, down) = (up - x.len(), down - y.len());
    }
}

const ALL: usize = usize::MAX;

fn expect_all(a: &Host, b: &Host, n: u64, context: &str) {
    let want: Vec<u64> = (1..=n).collect();
    assert_eq!(a.got, want, "down: {context}");
    assert_eq!(b.got, want, "up: {context}");
    assert_eq!((a.resets, b.resets), (0, 0), "{context}");
}

/// Connections cut after the given budgets, one after the other, then a whole one; messages both ways all the
/// time.
fn cut_session(mode: ConMode, cuts: &[(usize, usize)], swap: bool) -> (usize, usize) {
    let policy = Policy::lossless_peer();
    let mut a = Host::new(2, CLIENT, policy);
    let mut b = Host::new(1, SERVER, policy);
    let mut used = (0, 0);
    let mut sent = 0;
    for (i, (up, down)) in cuts.iter().copied().chain([(ALL, ALL)]).enumerate() {
        for host in [&mut a, &mut b] {
            host.to_send.extend(sent + 1..=sent + 2);
        }
        sent += 2;
        let nr = i as u8;
        // The second connection may come from the other side.
        if swap && i % 2 == 1 && b.parked.is_some() {
            let (mut eb, mut ea) = (b.connect(&a, mode, nr), a.accept(mode, nr));
            run(&mut b, &mut eb, &mut a, &mut ea, up, down);
            a.lose(ea);
            b.lose(eb);
        } else {
            let (mut ea, mut eb) = (a.connect(&b, mode, nr), b.accept(mode, nr));
            used = run(&mut a, &mut ea, &mut b, &mut eb, up, down);
            a.lose(ea);
            b.lose(eb);
        }
    }
    // Where the last connection could not carry everything (the peer opened anew), one more does.
    let (mut ea, mut eb) = (a.connect(&b, mode, 99), b.accept(mode, 99));
    run(&mut a, &mut ea, &mut b, &mut eb, ALL, ALL);
    expect_all(&a, &b, sent, &format!("{mode:?} {cuts:?} {swap}"));
    used
}

#[test]
fn a_connection_cut_at_every_byte_loses_and_repeats_nothing() {
    for mode in [ConMode::Crc, ConMode::Secure] {
        let (up, down) = cut_session(mode, &[], false);
        // Which side connects next has nothing to do with the mode.
        for swap in [false, true].into_iter().filter(|swap| !swap || mode == ConMode::Crc) {
            for n in 0..=up {
                cut_session(mode, &[(n, ALL)], swap);
            }
            for n in 0..=down {
                cut_session(mode, &[(ALL, n)], swap);
            }
        }
    }
}

#[test]
fn several_cuts_in_a_row() {
    let mut x = 12345u64;
    let mut random = move |n: usize| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as usize % n
    };
    for i in 0..600 {
        let cuts: Vec<_> = (0..1 + random(6)).map(|_| (random(2500), random(2500))).collect();
        let mode = if i % 4 == 0 { ConMode::Secure } else { ConMode::Crc };
        cut_session(mode, &cuts, i % 2 == 0);
    }
}

/// Both ends have an established session and lost its connection.
fn established(policy: Policy) -> (Host, Host) {
    let (mut a, mut b) = (Host::new(2, CLIENT, policy), Host::new(1, SERVER, policy));
    let (mut ea, mut eb) = (a.connect(&b, ConMode::Crc, 0), b.accept(ConMode::Crc, 0));
    a.to_send.push_back(1);
    b.to_send.push_back(1);
    run(&mut a, &mut ea, &mut b, &mut eb, ALL, ALL);
    for end in [&mut ea, &mut eb] {
        end.conn.tick(now(60_000));
    }
    run(&mut a, &mut ea, &mut b, &mut eb, ALL, ALL);
    assert!([&ea, &eb].iter().all(|end| !end.conn.session().expect("session").has_pending()));
    a.lose(ea);
    b.lose(eb);
    (a, b)
}

#[test]
fn a_server_that_forgot_resets_the_client() {
    let (mut a, mut b) = established(Policy::lossless_peer());
    b.parked = None;
    a.parked.as_mut().expect("parked").0.push(message(2, 40));
    let (mut ea, mut eb) = (a.connect(&b, ConMode::Crc, 1), b.accept(ConMode::Crc, 1));
    run(&mut a, &mut ea, &mut b, &mut eb, ALL, ALL);
    assert!(ea.conn.is_ready() && eb.conn.is_ready());
    assert_eq!((a.resets, b.resets), (1, 0));
    assert_eq!(b.got, [1], "what was queued is gone, and the owner knows");
    a.to_send.push_back(3);
    run(&mut a, &mut ea, &mut b, &mut eb, ALL, ALL);
    assert_eq!(b.got, [1, 3]);
}

#[test]
fn a_client_that_forgot_resets_the_server_where_the_policy_says() {
    for (policy, resets, got) in
        [(Policy::lossless_peer_reuse(), 1, vec![]), (Policy::lossless_peer(), 0, vec![2])]
    {
        let (mut a, mut b) = established(policy);
        a.parked = None;
        a.got.clear();
        b.parked.as_mut().expect("parked").0.push(message(2, 40));
        let (mut ea, mut eb) = (a.connect(&b, ConMode::Crc, 1), b.accept(ConMode::Crc, 1));
        run(&mut a, &mut ea, &mut b, &mut eb, ALL, ALL);
        assert_eq!((b.resets, a.got.clone()), (resets, got));
        a.to_send.push_back(5);
        b.to_send.push_back(6);
        run(&mut a, &mut ea, &mut b, &mut eb, ALL, ALL);
        assert_eq!((a.got.last(), b.got.last()), (Some(&6), Some(&5)));
    }
}

#[test]
fn stale_numbers_are_asked_again() {
    let (mut a, mut b) = established(Policy::lossless_peer());
    b.parked.as_mut().expect("parked").0.connect_seq = 7;
    b.parked.as_mut().expect("parked").0.peer_global_seq = 70;
    let (mut ea, mut eb) = (a.connect(&b, ConMode::Crc, 1), b.accept(ConMode::Crc, 1));
    a.to_send.push_back(2);
    run(&mut a, &mut ea, &mut b, &mut eb, ALL, ALL);
    assert_eq!(b.got, [1, 2]);
    assert_eq!(a.global_seq, 71);
    assert_eq!(ea.conn.session().expect("session").connect_seq, 8);
    assert_eq!(eb.conn.session().expect("session").connect_seq, 8);
}

/// Both connect at once; the connection made by the smaller address (the server's constant) goes on.
#[test]
fn a_race_has_one_winner() {
    for first_time in [true, false] {
        let policy = Policy::lossless_peer();
        let (mut a, mut b) = if first_time {
            (Host::new(2, CLIENT, policy), Host::new(1, SERVER, policy))
        } else {
            established(policy)
        };
        let (mut ca, cb) = (a.connect(&b, ConMode::Crc, 1), b.connect(&a, ConMode::Crc, 2));
        // Each acceptor sees the session that its own connector holds.
        a.parked = ca.conn.session().cloned().map(|s| (s, Phase::Connecting));
        b.parked = cb.conn.session().cloned().map(|s| (s, Phase::Connecting));
        let mut sb = b.accept(ConMode::Crc, 1);
        run(&mut a, &mut ca, &mut b, &mut sb, ALL, ALL);
        let (loser, mut winner) = ((ca, sb), cb);
        // 6800 with nonce 77 is below 6900 with nonce 88 in the order of bytes: b's connection wins.
        assert!(loser.0.conn.is_closed() && !loser.1.conn.is_ready());
        let mut sa = a.accept(ConMode::Crc, 2);
        run(&mut b, &mut winner, &mut a, &mut sa, ALL, ALL);
        assert!(winner.conn.is_ready() && sa.conn.is_ready(), "{first_time}");
        a.to_send.push_back(2);
        b.to_send.push_back(2);
        run(&mut b, &mut winner, &mut a, &mut sa, ALL, ALL);
        assert_eq!((a.got.last(), b.got.last()), (Some(&2), Some(&2)));
    }
}

fn check(request: &SessionRequest, session: Option<(&Session, Phase)>, want: &Verdict) {
    let ours = AddrVec::single(addr(SERVER));
    let existing = session.map(|(session, phase)| Existing { session, phase });
    assert_eq!(&decide(&ours, &Policy::lossless_peer(), request, existing), want, "{request:?} {session:?}");
}

#[test]
fn every_verdict() {
    let ident = msgr::ClientIdent {
        addrs: AddrVec::single(addr(CLIENT)),
        target: addr(SERVER),
        gid: 2,
        global_seq: 10,
        features_supported: types::features::PACIFIC,
        features_required: 0,
        flags: 0,
        cookie: 5,
    };
    let open = |f: &dyn Fn(&mut msgr::ClientIdent)| {
        let mut i = ident.clone();
        f(&mut i);
        SessionRequest::Open(i)
    };
    let usual = Policy::stateful_server();
    assert_eq!(open(&|_| {}).policy(usual), usual);
    assert_eq!(open(&|i| i.cookie = 0).policy(usual), Policy::stateless_server(), "nothing is kept for it");
    assert_eq!(open(&|_| {}).addrs(), &ident.addrs);
    let mut s = Session::incoming(Policy::lossless_peer());
    (s.client_cookie, s.server_cookie, s.peer_global_seq, s.connect_seq) = (5, 6, 10, 3);
    let fresh = Verdict::Fresh { close_existing: false };
    check(&open(&|_| {}), None, &fresh);
    check(&open(&|i| i.addrs = AddrVec::default()), None, &Verdict::Close(Error::NoPeerAddress));
    let other = addr("v2:127.0.0.1:1/1");
    check(&open(&|i| i.target = other), None, &Verdict::Close(Error::WrongTarget { wanted: other }));
    let missing = Verdict::Answer(SessionAnswer::MissingFeatures(msgr::MSG_ADDR2));
    check(&open(&|i| i.features_supported = 1), None, &missing);
    check(&open(&|i| i.global_seq = 9), Some((&s, Phase::Ready)), &Verdict::Close(Error::Stale));
    let take = Verdict::Take { reset: false };
    check(&open(&|_| {}), Some((&s, Phase::Ready)), &take);
    check(&open(&|i| i.cookie = 50), Some((&s, Phase::Ready)), &take);
    check(&open(&|_| {}), Some((&s, Phase::Replacing)), &Verdict::Answer(SessionAnswer::Wait));
    let lossy = Session::incoming(Policy::stateless_server());
    check(&open(&|_| {}), Some((&lossy, Phase::Ready)), &Verdict::Fresh { close_existing: true });

    let resume = |f: &dyn Fn(&mut msgr::Reconnect)| {
        let addrs = AddrVec::single(addr(CLIENT));
        let mut r = msgr::Reconnect {
            addrs,
            client_cookie: 5,
            server_cookie: 6,
            global_seq: 11,
            connect_seq: 4,
            msg_seq: 0,
        };
        f(&mut r);
        SessionRequest::Resume(r)
    };
    let reset = |full| Verdict::Answer(SessionAnswer::Reset { full });
    check(&resume(&|_| {}), None, &reset(true));
    check(&resume(&|_| {}), Some((&s, Phase::Ready)), &take);
    check(&resume(&|_| {}), Some((&s, Phase::Standby)), &take);
    check(&resume(&|r| r.client_cookie = 1), Some((&s, Phase::Standby)), &reset(false));
    check(&resume(&|r| r.server_cookie = 1), Some((&s, Phase::Standby)), &reset(true));
    let retry = Verdict::Answer(SessionAnswer::Retry { connect_seq: 3 });
    check(&resume(&|r| r.connect_seq = 2), Some((&s, Phase::Standby)), &retry);
    let global = Verdict::Answer(SessionAnswer::RetryGlobal { global_seq: 10 });
    check(&resume(&|r| r.global_seq = 9), Some((&s, Phase::Standby)), &global);
    check(&resume(&|_| {}), Some((&s, Phase::Replacing)), &global);
    check(
        &resume(&|r| r.connect_seq = 3),
        Some((&s, Phase::Connecting)),
        &Verdict::Answer(SessionAnswer::Wait),
    );
    s.server_cookie = 0;
    check(&resume(&|_| {}), Some((&s, Phase::Connecting)), &reset(false));
}
