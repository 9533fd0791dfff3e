//! Class `rgw_gc`: garbage in a queue, with the tags that were put off beside it. Source:
//! src/cls/rgw_gc/cls_rgw_gc.cc.
//!
//! 1. An entry counts only as long as its tag is not put off until behind the entry's time.
//! 2. Tags that are put off stand in the queue's head; those that have no place there in an attribute of the
//!    object.

use ::rgw::Garbage;
use bytes::Bytes;
use codec::{Decode, Encode, wire_struct};
use types::{Errno, RealTime};

use crate::ObjectView;
use crate::queue::{self, Head, Pages};
use crate::registry::{Class, Done, methods};
use crate::rgw::gc::{ListArgs, ListReply, SetArgs, time_in};
use crate::unordered::UnorderedMap;

pub static CLASS: Class = Class {
    name: "rgw_gc",
    methods: methods![
        rgw_gc_queue_init RD_WR init,
        rgw_gc_queue_enqueue RD_WR enqueue,
        rgw_gc_queue_list_entries RD list,
        rgw_gc_queue_remove_entries RD_WR remove,
        rgw_gc_queue_update_entry RD_WR update,
    ],
};

/// Bytes for tags in the head. Source: rgw_gc_max_deferred_entries_size in src/common/options.cc.
const MAX_URGENT: u64 = 3072;
/// Entries to remove when none are asked for.
const MAX_ENTRIES: u64 = 128;

/// Bytes of entries, with what each takes in memory, after which a listing ends with its page and says where
/// to go on.
const MAX_LISTED_BYTES: usize = 32 << 20;
const ENTRY_BYTES: usize = 128;

type Deferred = UnorderedMap<Bytes, RealTime>;

/// What the queue's head keeps.
#[derive(Debug, Default)]
struct Urgent {
    tags: Deferred,
    /// How many tags may be put off.
    max: u32,
    in_head: u32,
    in_attr: u32,
}
wire_struct!(Urgent(1, 1) { tags, max, in_head, in_attr });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitArgs {
    /// Bytes.
    pub size: u64,
    /// Tags, of which 32 bits count.
    pub max_deferred: u64,
}
wire_struct!(InitArgs(1, 1) { size, max_deferred });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveArgs {
    /// Entries that count.
    pub entries: u64,
}
wire_struct!(RemoveArgs(1, 1) { entries });

fn urgent(head: &Head) -> Result<Urgent, Errno> {
    Urgent::from_bytes(head.urgent.clone()).map_err(|_| Errno::EINVAL)
}

/// What a queue's head keeps, also when that is nothing.
fn urgent_or_none(head: &Head) -> Result<Urgent, Errno> {
    if head.urgent.is_empty() { Ok(Urgent::default()) } else { urgent(head) }
}

fn info(entry: queue::Entry) -> Result<Garbage, Errno> {
    Garbage::from_bytes(entry.data).map_err(|_| Errno::EINVAL)
}

/// Looks tags up, those in the attribute only when there are any.
struct Lookup {
    urgent: Urgent,
    /// What the attribute holds, once it was read.
    attr: Option<Deferred>,
}

impl Lookup {
    /// Until when a tag is put off, and whether the head says so.
    fn until(&mut self, v: &mut dyn ObjectView, tag: &Bytes) -> Result<Option<(RealTime, bool)>, Errno> {
        if let Some(until) = self.urgent.tags.get(tag) {
            return Ok(Some((*until, true)));
        }
        if self.urgent.in_attr == 0 {
            return Ok(None);
        }
        let attr = match self.attr.take() {
            Some(known) => known,
            None => queue::spilled(v)?.unwrap_or_default(),
        };
        Ok(self.attr.insert(attr).get(tag).map(|until| (*until, false)))
    }
}

fn init(v: &mut dyn ObjectView, args: InitArgs) -> Result<Done, Errno> {
    let urgent = Urgent { max: args.max_deferred as u32, ..Urgent::default() }.to_bytes();
    queue::init(v, queue::InitArgs { size: args.size, max_urgent: MAX_URGENT, urgent })
}

fn enqueue(v: &mut dyn ObjectView, args: SetArgs) -> Result<Done, Errno> {
    let mut info = args.info;
    info.time = time_in(v, args.expires_in_s);
    let mut head = Head::read(v)?;
    queue::enqueue(v, &mut head, vec![info.to_bytes()])?;
    head.write(v)
}

fn list(v: &mut dyn ObjectView, args: ListArgs) -> Result<ListReply, Errno> {
    let head = Head::read(v)?;
    let mut lookup = Lookup { urgent: urgent_or_none(&head)?, attr: None };
    let (max, now) = (args.max(), RealTime(v.now()));
    let (mut entries, mut counted, mut bytes) = (Vec::new(), 0u32, 0usize);
    let mut pages = Pages::from(args.marker);
    let (truncated, marker) = loop {
        let page = pages.next(v, &head, u64::from(max - counted))?;
        let is_empty = page.entries.is_empty();
        for entry in page.entries {
            let size = entry.data.len();
            let info = info(entry)?;
            if lookup.until(v, &info.tag)?.is_some_and(|(until, _)| until > info.time) {
                continue;
            }
            counted += 1;
            if !args.expired_only || info.time <= now {
                entries.push(info);
                bytes += size + ENTRY_BYTES;
            }
        }
        if is_empty || counted >= max || bytes >= MAX_LISTED_BYTES || !page.truncated {
            break (page.truncated, page.next_marker);
        }
    };
    let next_marker = if truncated { marker } else { Bytes::new() };
    Ok(ListReply { entries, next_marker, truncated })
}

/// Removes entries from the front on until so many of them counted. Tags that were put off until an entry's
/// very time are forgotten with it; as in Ceph, those in the attribute stay there and are no longer counted.
fn remove(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    let mut head = Head::read(v)?;
    let mut lookup = Lookup { urgent: urgent_or_none(&head)?, attr: None };
    // One more, for its marker.
    let wanted = if args.entries == 0 { MAX_ENTRIES } else { args.entries }.wrapping_add(1);
    let (mut pages, mut counted, mut end) = (Pages::from(Bytes::new()), 0u64, None);
    loop {
        let page = pages.next(v, &head, wanted.wrapping_sub(counted))?;
        let Some(last) = page.entries.last().map(|e| e.marker.clone()) else { break };
        for entry in page.entries {
            counted += u64::from(passes(v, &mut lookup, &info(entry)?)?);
        }
        if counted >= wanted {
            end = Some(last);
            break;
        }
        if !page.truncated {
            end = Some(page.next_marker);
            break;
        }
    }
    if let Some(end) = end {
        queue::remove(v, &mut head, &end)?;
    }
    head.urgent = lookup.urgent.to_bytes();
    head.write(v)
}

/// Whether an entry that is removed counts; a tag that is no longer put off is taken out.
fn passes(v: &mut dyn ObjectView, lookup: &mut Lookup, info: &Garbage) -> Result<bool, Errno> {
    let Some((until, in_head)) = lookup.until(v, &info.tag)? else { return Ok(true) };
    let urgent = &mut lookup.urgent;
    if until == info.time && in_head {
        urgent.tags.remove(&info.tag);
        urgent.in_head = urgent.in_head.wrapping_sub(1);
    } else if until == info.time {
        urgent.in_attr = urgent.in_attr.wrapping_sub(1);
    }
    Ok(until <= info.time)
}

/// Puts a tag off: where it is put off already, else in the head, else in the attribute. ENOSPC when more are
/// than may be.
fn update(v: &mut dyn ObjectView, args: SetArgs) -> Result<Done, Errno> {
    let (tag, until) = (args.info.tag, time_in(v, args.expires_in_s));
    let mut head = Head::read(v)?;
    let mut urgent = urgent(&head)?;
    let mut attr = None;
    if let Some(earlier) = urgent.tags.get_mut(&tag) {
        *earlier = until;
    } else {
        let mut known: Deferred = queue::spilled(v)?.unwrap_or_default();
        if let Some(earlier) = known.get_mut(&tag) {
            *earlier = until;
            v.set_xattr(queue::SPILLED_ATTR, known.to_bytes())?;
            // The head stays as it is, in the order in which its tags were.
            return if urgent.is_over() { Err(Errno::ENOSPC) } else { head.write(v) };
        }
        if !urgent.put_off(tag.clone(), until, head.max_urgent) {
            known.insert(tag, until);
            attr = Some(known);
        }
    }
    if urgent.is_over() {
        return Err(Errno::ENOSPC);
    }
    if let Some(attr) = attr {
        v.set_xattr(queue::SPILLED_ATTR, attr.to_bytes())?;
    }
    head.urgent = urgent.to_bytes();
    head.write(v)
}

impl Urgent {
    fn is_over(&self) -> bool {
        self.in_head.wrapping_add(self.in_attr) > self.max
    }

    /// Puts a tag off that is nowhere put off, and says whether the head has place for it.
    fn put_off(&mut self, tag: Bytes, until: RealTime, max_bytes: u64) -> bool {
        self.tags.insert(tag.clone(), until);
        self.in_head = self.in_head.wrapping_add(1);
        let fits = self.to_bytes().len() as u64 <= max_bytes;
        if !fits {
            self.tags.remove(&tag);
            self.in_head = self.in_head.wrapping_sub(1);
            self.in_attr = self.in_attr.wrapping_add(1);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use types::Utime;

    use super::*;
    use crate::fake::Fake;

    fn entry(tag: &'static str, sec: u32) -> Bytes {
        Garbage { tag: tag.into(), time: RealTime(Utime::new(sec, 0)), ..Garbage::default() }.to_bytes()
    }

    fn put_off(tag: &'static str, sec: u32) -> Deferred {
        let mut tags = Deferred::default();
        tags.insert(tag.into(), RealTime(Utime::new(sec, 0)));
        tags
    }

    /// A queue that holds entries, of which one tag is put off in the attribute.
    fn queue_of(entries: Vec<Bytes>, attr: Deferred) -> Fake {
        let mut f = Fake::default();
        let urgent = Urgent { max: 5, in_attr: 1, ..Urgent::default() }.to_bytes();
        let args = queue::InitArgs { size: 15 << 20, max_urgent: 200, urgent };
        f.call("queue", "queue_init", args.to_bytes()).unwrap();
        struct Enqueue(Vec<Bytes>);
        impl Encode for Enqueue {
            fn encode(&self, w: &mut codec::Writer) {
                w.envelope(1, 1, |w| self.0.encode(w));
            }
        }
        f.call("queue", "queue_enqueue", Enqueue(entries).to_bytes()).unwrap();
        f.object.as_mut().unwrap().attrs.insert(queue::SPILLED_ATTR.into(), attr.to_bytes());
        f
    }

    fn tags(f: &mut Fake) -> Result<Vec<Bytes>, Errno> {
        let args = ListArgs { max: 10, expired_only: false, ..ListArgs::default() }.to_bytes();
        let (_, out) = f.call("rgw_gc", "rgw_gc_queue_list_entries", args)?;
        Ok(ListReply::from_bytes(out).unwrap().entries.into_iter().map(|e| e.tag).collect())
    }

    #[test]
    fn a_tag_that_is_put_off_in_the_attribute_does_not_count() {
        let mut f = queue_of(vec![entry("a", 10), entry("b", 20), entry("a", 40)], put_off("a", 30));
        assert_eq!(tags(&mut f), Ok(vec!["b".into(), "a".into()]));
        // The first of "a" goes with "b".
        let one = RemoveArgs { entries: 1 }.to_bytes();
        assert!(f.call("rgw_gc", "rgw_gc_queue_remove_entries", one).is_ok());
        assert_eq!(tags(&mut f), Ok(vec!["a".into()]));
        f.object.as_mut().unwrap().attrs.insert(queue::SPILLED_ATTR.into(), "torn".into());
        assert_eq!(tags(&mut f), Err(Errno::EINVAL));
    }

    #[test]
    fn a_listing_ends_with_a_page_that_is_full() {
        const ENTRIES: usize = 250_000;
        let mut f = queue_of(vec![entry("a", 10); ENTRIES], Deferred::default());
        let mut list = |marker: Bytes| {
            let args = ListArgs { marker, max: u32::MAX, expired_only: false }.to_bytes();
            let (_, out) = f.call("rgw_gc", "rgw_gc_queue_list_entries", args).unwrap();
            ListReply::from_bytes(out).unwrap()
        };
        let first = list(Bytes::new());
        assert!(first.truncated);
        let rest = list(first.next_marker);
        assert_eq!((first.entries.len() + rest.entries.len(), rest.truncated), (ENTRIES, false));
    }

    #[test]
    fn putting_off_a_tag_in_the_attribute_again_leaves_the_head_as_it_is() {
        let mut f = queue_of(vec![entry("a", 10)], put_off("a", 30));
        let mut update = |tag: &'static str| {
            let args = SetArgs { expires_in_s: 5, info: Garbage { tag: tag.into(), ..Garbage::default() } };
            assert!(f.call("rgw_gc", "rgw_gc_queue_update_entry", args.to_bytes()).is_ok());
            Head::read(&mut f).unwrap().urgent
        };
        update("x");
        update("y");
        let before = update("z");
        // Read and stored again, the tags would stand in another order.
        assert_ne!(Urgent::from_bytes(before.clone()).unwrap().to_bytes(), before);
        assert_eq!(update("a"), before);
        let attr = Deferred::from_bytes(f.object.unwrap().attrs[queue::SPILLED_ATTR].clone()).unwrap();
        assert_eq!(attr.get(&"a".into()), Some(&RealTime(Utime::new(1_700_000_005, 0))));
    }

    #[test]
    fn entries_that_go_round_without_end_are_told() {
        // The tail is a round further than there is place for: no page reaches it.
        let mut f = queue_of(vec![entry("a", 10), entry("a", 20)], put_off("a", 30));
        let mut head = Head::read(&mut f).unwrap();
        (head.end, head.tail.offset, head.tail.round) = (head.tail.offset, head.front.offset, 7);
        let stored =
            [&[0xad, 0xde], &(head.to_bytes().len() as u64).to_le_bytes()[..], &head.to_bytes()].concat();
        f.object.as_mut().unwrap().data.splice(..stored.len(), stored);
        let list = ListArgs { max: 1, ..ListArgs::default() }.to_bytes();
        assert_eq!(f.call("rgw_gc", "rgw_gc_queue_list_entries", list), Err(Errno::EINVAL));
        let one = RemoveArgs { entries: 1 }.to_bytes();
        assert_eq!(f.call("rgw_gc", "rgw_gc_queue_remove_entries", one), Err(Errno::EINVAL));
    }
}
