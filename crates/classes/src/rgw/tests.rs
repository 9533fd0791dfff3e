//! What recorded calls do not show: bounds, and answers that librados hides.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, Encode, Writer};
use types::Errno;

use super::header::Header;
use super::names;
use super::olh::{Head, HeadChange};
use crate::fake::{Fake, FakeObject};
use ::rgw::index::entry::{Entry, Key};

fn enveloped(body: impl FnOnce(&mut Writer)) -> Bytes {
    Writer::collect(|w| w.envelope(1, 1, body))
}

fn entry(name: &str) -> Entry {
    Entry { key: Key::plain(Bytes::copy_from_slice(name.as_bytes())), exists: true, ..Entry::default() }
}

fn with_omap(omap: BTreeMap<Bytes, Bytes>) -> Fake {
    Fake::with(FakeObject { omap, ..FakeObject::default() })
}

#[test]
fn a_guard_answers_what_it_was_given_while_a_bucket_is_resharded() {
    let mut f = Fake::default();
    let guard = |result: i32| enveloped(|w| result.encode(w));
    let state =
        |status: u8| enveloped(|w| w.envelope(1, 1, |w| (status, (Bytes::from("new"), 7i32)).encode(w)));
    f.call("rgw", "set_bucket_resharding", state(0)).unwrap();
    for result in [-2300, 5, i32::MIN] {
        assert_eq!(f.call("rgw", "guard_bucket_resharding", guard(result)), Ok((0, Bytes::new())));
    }
    f.call("rgw", "set_bucket_resharding", state(1)).unwrap();
    let mut answer = |result| f.call("rgw", "guard_bucket_resharding", guard(result)).map(|(rval, _)| rval);
    assert_eq!(answer(-2300), Err(Errno(2300)));
    assert_eq!(answer(5), Ok(5));
    assert_eq!(answer(i32::MIN), Err(Errno::EINVAL), "it has no positive counterpart");
}

#[test]
fn answers_hold_a_thousand_entries() {
    let omap =
        (0..1005).map(|i| format!("o{i:04}")).map(|n| (n.clone().into(), entry(&n).to_bytes())).collect();
    let mut f = with_omap(omap);
    let list = |marker: &'static str| enveloped(|w| (u32::MAX, ("", marker)).encode(w));
    // An envelope, then the count; the flag for more is the last byte.
    let shape = |out: Bytes| (u32::from_bytes(out.slice(6..10)), out.last().copied());
    let (_, out) = f.call("rgw", "bi_list", list("")).unwrap();
    assert_eq!(shape(out), (Ok(1000), Some(1)));
    let (_, out) = f.call("rgw", "bi_list", list("o0999")).unwrap();
    assert_eq!(shape(out), (Ok(5), Some(0)));
    f.call("rgw", "bucket_rebuild_index", "").unwrap();
    let header = Header::from_bytes(f.object.unwrap().header).unwrap();
    let counted: BTreeMap<u8, Bytes> = header.stats.iter().map(|(c, s)| (*c, s.to_bytes())).collect();
    // Its third number, behind the envelope.
    assert_eq!(u64::from_bytes(counted[&0].slice(22..30)), Ok(1005));
}

#[test]
fn a_head_tells_a_thousand_epochs_of_its_log() {
    let log = (1..=1005).map(|epoch| (epoch, vec![HeadChange { epoch, ..HeadChange::default() }])).collect();
    let head = Head { log, tag: "t".into(), ..Head::default() };
    let mut f = with_omap([(names::head(&"o".into()), head.to_bytes())].into());
    let mut read = |epoch: u64| {
        let args = enveloped(|w| (Key::plain("o".into()), (epoch, "t")).encode(w));
        let (_, out) = f.call("rgw", "bucket_read_olh_log", args).unwrap();
        let first = out.get(10..18).and_then(|key| u64::from_bytes(key.to_vec()).ok());
        (u32::from_bytes(out.slice(6..10)).unwrap(), first, out.last().copied())
    };
    assert_eq!(read(0), (1000, Some(1), Some(1)));
    assert_eq!(read(5), (1000, Some(6), Some(0)));
    assert_eq!(read(1004), (1, Some(1005), Some(0)));
    assert_eq!(read(u64::MAX), (0, None, Some(0)));
}

/// Looks that find nothing to show end with a marker, and a code that says so.
#[test]
fn a_listing_that_only_skips_ends_with_a_place_to_go_on_from() {
    let hidden = Entry { flags: ::rgw::index::entry::DELETE_MARKER, ..entry("o") };
    let omap = (0..40).map(|i| (format!("o{i:04}").into(), hidden.to_bytes())).collect();
    let mut f = with_omap(omap);
    let args = Writer::collect(|w| {
        w.envelope(6, 4, |w| ((1u32, ""), (Key::default(), (false, ""))).encode(w));
    });
    assert_eq!(f.call("rgw", "bucket_list", args), Err(Errno::EFBIG));
}
