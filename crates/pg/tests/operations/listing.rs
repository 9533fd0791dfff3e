//! Listing a PG: every head once, in every namespace, with filters, page by page.

use codec::{Decode, Encode, Writer};
use messages::osd::{ListArgs, ListFilter, Op, OpCode, PglsResponse, PgnlsResponse};
use types::{Errno, HObject, PoolId, SnapContext, SnapId};

use crate::bench::{Bench, POOL, Request, object};

/// Names with their namespaces, in the order of the list.
type Names = Vec<(String, String)>;

fn populated() -> (Bench, Vec<HObject>) {
    let mut b = Bench::new();
    let mut all = Vec::new();
    for i in 0..40 {
        for nspace in ["", "n", "m"] {
            let o = HObject { nspace: nspace.into(), ..object(&format!("o{i}")) };
            let mut ops =
                vec![Op::WriteFull { extent: messages::osd::Extent::new(0, 1), data: "x".into() }.into()];
            if i % 3 == 0 {
                ops.push(Op::SetXattr { name: "third".into(), value: "yes".into() }.into());
            }
            b.run(&Request { object: o.clone(), ..Request::new("", ops.clone()) });
            // Clones lie between the heads.
            let snapc = SnapContext { seq: 1, snaps: vec![1] };
            b.run(&Request { object: o.clone(), snapc, ..Request::new("", ops) });
            all.push(o);
        }
    }
    all.sort();
    (b, all)
}

fn ask(b: &mut Bench, nspace: &str, op: Op) -> (i32, Option<PgnlsResponse>) {
    let namespace = HObject { nspace: nspace.into(), ..object("") };
    let reply = b.run(&Request { object: namespace, ..Request::new("", vec![op.into()]) });
    (reply.result, PgnlsResponse::from_bytes(reply.results[0].outdata.clone()).ok())
}

/// Follows cursors to the end; returns what was listed and in how many pages.
fn follow(b: &mut Bench, nspace: &str, page: impl Fn(HObject) -> Op) -> (Names, usize) {
    let (mut cursor, mut names, mut pages) = (HObject::min(), Names::new(), 0);
    loop {
        let (result, got) = ask(b, nspace, page(cursor));
        let got = got.unwrap_or_else(|| panic!("{nspace}: {result}"));
        names.extend(got.entries.into_iter().map(|e| (e.nspace, e.name)));
        pages += 1;
        cursor = got.cursor;
        if result == 1 {
            assert!(cursor.max, "the end of the only PG");
            return (names, pages);
        }
        assert_eq!(result, 0);
    }
}

fn pgnls(count: u64) -> impl Fn(HObject) -> Op {
    move |cursor| Op::Pgnls(ListArgs { count, start_epoch: 0, cursor })
}

fn names<'a>(all: impl Iterator<Item = &'a HObject>) -> Names {
    all.map(|o| (o.nspace.to_string(), o.name.to_string())).collect()
}

#[test]
fn every_head_is_listed_once_whatever_the_page() {
    let (mut b, all) = populated();
    for count in [1, 2, 7, 100, 10_000] {
        for nspace in ["", "n", "m", "none"] {
            let want = names(all.iter().filter(|o| o.nspace == nspace));
            assert_eq!(follow(&mut b, nspace, pgnls(count)).0, want, "{nspace} by {count}");
        }
        let (got, pages) = follow(&mut b, "\u{1}", pgnls(count));
        assert_eq!(got, names(all.iter()), "all by {count}");
        assert_eq!(pages as u64, 240u64.div_ceil(count.min(b.config.max_pgls)), "clones count");
    }
    b.config.max_pgls = 10;
    assert_eq!(follow(&mut b, "\u{1}", pgnls(10_000)).1, 24);
}

#[test]
fn filters_look_at_attributes() {
    let (mut b, all) = populated();
    let filter = |kind: &'static str, attr: &'static str, value: &'static str| {
        move |cursor: HObject| {
            let mut w = Writer::new();
            (attr.to_owned(), value.to_owned()).encode(&mut w);
            cursor.encode(&mut w);
            let filter = ListFilter { kind: kind.into(), args_and_cursor: w.into_bytes() };
            Op::PgnlsFilter { count: 9, start_epoch: 0, filter }
        }
    };
    let third = |o: &&HObject| o.name[1..].parse::<u32>().unwrap() % 3 == 0;
    let want = names(all.iter().filter(third));
    assert_eq!(follow(&mut b, "\u{1}", filter("plain", "_third", "yes")).0, want);
    assert_eq!(follow(&mut b, "\u{1}", filter("hello.hello", "_third", "yes")).0, want);
    assert_eq!(follow(&mut b, "\u{1}", filter("plain", "_third", "no")).0, []);
    for kind in ["none", "hello.", "hello.nothing", "nothing.hello"] {
        assert_eq!(ask(&mut b, "", filter(kind, "a", "b")(HObject::min())).0, Errno::EINVAL.neg(), "{kind}");
    }
}

#[test]
fn old_clients_list_one_namespace() {
    let (mut b, all) = populated();
    let namespace = HObject { nspace: "n".into(), ..object("") };
    let op = Op::Pgls(ListArgs { count: 1000, start_epoch: 0, cursor: HObject::min() });
    let reply = b.run(&Request { object: namespace, ..Request::new("", vec![op.into()]) });
    let got = PglsResponse::from_bytes(reply.results[0].outdata.clone()).unwrap();
    let want: Vec<String> = all.iter().filter(|o| o.nspace == "n").map(|o| o.name.to_string()).collect();
    assert_eq!(got.entries.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), want);
    assert_eq!((reply.result, got.cursor), (1, HObject::max()));
}

#[test]
fn cursors_outside_the_pg_are_refused() {
    let (mut b, _) = populated();
    let below = HObject { pool: PoolId(POOL.0 - 1), ..object("x") };
    let above = HObject { pool: PoolId(POOL.0 + 1), ..object("x") };
    assert_eq!(ask(&mut b, "", pgnls(5)(below)).0, Errno::EINVAL.neg());
    // The only PG ends where all objects end.
    let (result, got) = ask(&mut b, "", pgnls(5)(above));
    assert_eq!((result, got.unwrap().entries.len()), (1, 0));
    let (result, got) = ask(&mut b, "", pgnls(5)(HObject::max()));
    assert_eq!((result, got.unwrap().entries.len()), (1, 0));
    let at_snap = HObject { snap: SnapId(1), ..object("") };
    let reply =
        b.run(&Request { object: at_snap, ..Request::new("", vec![pgnls(5)(HObject::min()).into()]) });
    assert_eq!(reply.result, Errno::EINVAL.neg());
}

#[test]
fn there_are_no_hit_sets_and_no_scrub_records() {
    let mut b = Bench::new();
    let mut ask = |code| {
        let op = messages::osd::OsdOp { code, ..Default::default() };
        let reply = b.run(&Request::new("", vec![op]));
        (reply.result, reply.results[0].outdata.clone())
    };
    assert_eq!(ask(OpCode::PG_HITSET_LS), (0, 0u32.to_bytes()));
    assert_eq!(ask(OpCode::PG_HITSET_GET).0, Errno::ENOENT.neg());
    assert_eq!(ask(OpCode::SCRUBLS).0, Errno::ENOENT.neg());
}
