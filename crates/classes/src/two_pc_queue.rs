//! Class `2pc_queue`: a queue in which place is reserved before entries are put in. Source:
//! src/cls/2pc_queue/cls_2pc_queue.cc.
//!
//! 1. Reservations stand in the queue's head; those that have no place there in an attribute of the object.
//! 2. What is reserved counts as used for those who reserve, until it is committed, given back or too old.

use bytes::Bytes;
use codec::{Decode, Encode, wire_struct};
use types::{Errno, RealTime};

use crate::ObjectView;
use crate::queue::{self, Head};
use crate::registry::{Class, Done, Nothing, method};
use crate::unordered::UnorderedMap;

pub static CLASS: Class = Class {
    name: "2pc_queue",
    methods: &[
        method!("2pc_queue_init" RD_WR init),
        method!("2pc_queue_get_capacity" RD queue::get_capacity),
        method!("2pc_queue_reserve" RD_WR reserve),
        method!("2pc_queue_commit" RD_WR commit),
        method!("2pc_queue_abort" RD_WR abort),
        method!("2pc_queue_list_reservations" RD list_reservations),
        method!("2pc_queue_list_entries" RD queue::list_entries),
        method!("2pc_queue_remove_entries" RD_WR queue::remove_entries),
        method!("2pc_queue_expire_reservations" RD_WR expire_reservations),
    ],
};

/// Bytes for reservations in the head.
const MAX_URGENT: u64 = 23552;
/// Bytes that an entry takes beside its own.
const OVERHEAD: u32 = queue::FRAME as u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reservation {
    /// Bytes, without the entries' overhead.
    size: u64,
    time: RealTime,
}
wire_struct!(Reservation(1, 1) { size, time });

type Reservations = UnorderedMap<u32, Reservation>;

/// What the queue's head keeps.
#[derive(Debug, Default)]
struct Urgent {
    /// Bytes in all.
    reserved: u64,
    last_id: u32,
    reservations: Reservations,
    /// Whether there ever were others in the attribute.
    spilled: bool,
}
wire_struct!(Urgent(1, 1) { reserved, last_id, reservations, spilled });

struct ReserveArgs {
    /// Bytes.
    size: u64,
    entries: u32,
}
wire_struct!(ReserveArgs(1, 1) { size, entries });

struct ReserveReply {
    id: u32,
}
wire_struct!(ReserveReply(1, 1) { id });

struct CommitArgs {
    id: u32,
    entries: Vec<Bytes>,
}
wire_struct!(CommitArgs(1, 1) { id, entries });

struct AbortArgs {
    id: u32,
}
wire_struct!(AbortArgs(1, 1) { id });

struct ExpireArgs {
    /// Reservations from before it go.
    stale: RealTime,
}
wire_struct!(ExpireArgs(1, 1) { stale });

struct ReservationsReply {
    reservations: Reservations,
}
wire_struct!(ReservationsReply(1, 1) { reservations });

/// EINVAL when there is no such queue.
fn read(v: &mut dyn ObjectView) -> Result<(Head, Urgent), Errno> {
    let head = Head::read(v)?;
    let urgent = Urgent::from_bytes(head.urgent.clone()).map_err(|_| Errno::EINVAL)?;
    Ok((head, urgent))
}

fn write(v: &mut dyn ObjectView, mut head: Head, urgent: &Urgent) -> Result<Done, Errno> {
    head.urgent = urgent.to_bytes();
    head.write(v)
}

/// A reservation that was taken out.
struct Taken {
    /// Bytes that it was of.
    size: u64,
    /// What the attribute is to hold, if it was taken out of there.
    attr: Option<Bytes>,
}

impl Taken {
    fn store(self, v: &mut dyn ObjectView) -> Result<(), Errno> {
        self.attr.map_or(Ok(()), |attr| v.set_xattr(queue::SPILLED_ATTR, attr))
    }
}

/// Takes a reservation out; ENOENT when there is none.
fn take(v: &mut dyn ObjectView, urgent: &mut Urgent, id: u32) -> Result<Taken, Errno> {
    if let Some(found) = urgent.reservations.remove(&id) {
        return Ok(Taken { size: found.size, attr: None });
    }
    let elsewhere: Option<Reservations> = if urgent.spilled { queue::spilled(v)? } else { None };
    let mut elsewhere = elsewhere.ok_or(Errno::ENOENT)?;
    let found = elsewhere.remove(&id).ok_or(Errno::ENOENT)?;
    Ok(Taken { size: found.size, attr: Some(elsewhere.to_bytes()) })
}

fn init(v: &mut dyn ObjectView, args: queue::InitArgs) -> Result<Done, Errno> {
    let urgent = Urgent::default().to_bytes();
    queue::init(v, queue::InitArgs { size: args.size, max_urgent: MAX_URGENT, urgent })
}

/// ENOSPC when there is not as much left, EAGAIN when the id that is next is taken.
fn reserve(v: &mut dyn ObjectView, args: ReserveArgs) -> Result<ReserveReply, Errno> {
    if args.size == 0 || args.entries == 0 {
        return Err(Errno::EINVAL);
    }
    let (head, mut urgent) = read(v)?;
    let (front, tail) = (head.front.offset, head.tail.offset);
    let between = front.wrapping_sub(tail);
    let around = head.end.wrapping_sub(tail).wrapping_add(front.wrapping_sub(head.start));
    let left = if tail >= front { around } else { between };
    // All of it counts with 64 bits at most, the overhead with 32.
    let overhead = u64::from(args.entries.wrapping_mul(OVERHEAD));
    let wanted = args.size.wrapping_add(overhead);
    if urgent.reserved.wrapping_add(wanted) > left {
        return Err(Errno::ENOSPC);
    }
    urgent.reserved = urgent.reserved.wrapping_add(wanted);
    urgent.last_id = urgent.last_id.wrapping_add(1);
    let id = urgent.last_id;
    let made = Reservation { size: args.size, time: RealTime(v.now()) };
    if !urgent.reservations.insert(id, made) {
        return Err(Errno::EAGAIN);
    }
    if urgent.to_bytes().len() as u64 > head.max_urgent {
        let mut elsewhere: Reservations = queue::spilled(v)?.unwrap_or_default();
        if !elsewhere.insert(id, made) {
            return Err(Errno::EAGAIN);
        }
        v.set_xattr(queue::SPILLED_ATTR, elsewhere.to_bytes())?;
        urgent.spilled = true;
        urgent.reservations.remove(&id);
    }
    write(v, head, &urgent)?;
    Ok(ReserveReply { id })
}

/// ENOENT without the reservation, EINVAL when it is of fewer bytes. As in Ceph, what was reserved for the
/// entries' overhead stays reserved.
fn commit(v: &mut dyn ObjectView, args: CommitArgs) -> Result<Done, Errno> {
    let (mut head, mut urgent) = read(v)?;
    let taken = take(v, &mut urgent, args.id)?;
    if taken.size < args.entries.iter().map(|e| e.len() as u64).sum() {
        return Err(Errno::EINVAL);
    }
    queue::enqueue(v, &mut head, args.entries)?;
    urgent.reserved = urgent.reserved.wrapping_sub(taken.size);
    // Last, as in Ceph: where a request goes on in spite of an error, the reservation is still there.
    taken.store(v)?;
    write(v, head, &urgent)
}

/// A reservation that is not there is given back already.
fn abort(v: &mut dyn ObjectView, args: AbortArgs) -> Result<Done, Errno> {
    let (head, mut urgent) = read(v)?;
    let taken = match take(v, &mut urgent, args.id) {
        Err(Errno::ENOENT) => return Ok(Done),
        taken => taken?,
    };
    urgent.reserved = urgent.reserved.wrapping_sub(taken.size);
    taken.store(v)?;
    write(v, head, &urgent)
}

fn list_reservations(v: &mut dyn ObjectView, _: Nothing) -> Result<ReservationsReply, Errno> {
    let (_, mut urgent) = read(v)?;
    if urgent.spilled {
        urgent.reservations.merge(queue::spilled(v)?.unwrap_or_default());
    }
    Ok(ReservationsReply { reservations: urgent.reservations })
}

fn expire_reservations(v: &mut dyn ObjectView, args: ExpireArgs) -> Result<Done, Errno> {
    let (head, mut urgent) = read(v)?;
    let mut freed = 0u64;
    let mut keep = |r: &Reservation| {
        let stale = r.time < args.stale;
        freed = freed.wrapping_add(if stale { r.size } else { 0 });
        !stale
    };
    let mut any = urgent.reservations.retain(&mut keep);
    let elsewhere: Option<Reservations> = if urgent.spilled { queue::spilled(v)? } else { None };
    if let Some(mut elsewhere) = elsewhere
        && elsewhere.retain(&mut keep)
    {
        v.set_xattr(queue::SPILLED_ATTR, elsewhere.to_bytes())?;
        any = true;
    }
    if !any {
        return Ok(Done);
    }
    urgent.reserved = urgent.reserved.wrapping_sub(freed);
    write(v, head, &urgent)
}

#[cfg(test)]
mod tests {
    use codec::Writer;

    use super::*;
    use crate::fake::Fake;

    /// A queue of 1000 bytes with room for no reservation in its head.
    fn queue() -> Fake {
        let mut f = Fake::default();
        let urgent = Urgent::default().to_bytes();
        let args = queue::InitArgs { size: 1000, max_urgent: urgent.len() as u64, urgent };
        f.call("queue", "queue_init", args.to_bytes()).unwrap();
        f
    }

    fn reserve_ids(f: &mut Fake, count: u32) {
        for id in 1..=count {
            let args = ReserveArgs { size: 20, entries: 1 }.to_bytes();
            let (_, out) = f.call("2pc_queue", "2pc_queue_reserve", args).unwrap();
            assert_eq!(ReserveReply::from_bytes(out).unwrap().id, id);
        }
    }

    fn ids(f: &mut Fake) -> Result<Vec<u32>, Errno> {
        let (_, out) = f.call("2pc_queue", "2pc_queue_list_reservations", "")?;
        let reply = ReservationsReply::from_bytes(out).unwrap();
        let mut ids: Vec<u32> = reply.reservations.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    #[test]
    fn reservations_without_place_in_the_head_are_as_good_as_others() {
        let mut f = queue();
        reserve_ids(&mut f, 3);
        assert_eq!(ids(&mut f), Ok(vec![1, 2, 3]));
        let commit = |id, size| CommitArgs { id, entries: vec![vec![7; size].into()] }.to_bytes();
        assert_eq!(f.call("2pc_queue", "2pc_queue_commit", commit(2, 21)), Err(Errno::EINVAL));
        assert!(f.call("2pc_queue", "2pc_queue_commit", commit(2, 20)).is_ok());
        assert_eq!(f.call("2pc_queue", "2pc_queue_commit", commit(2, 20)), Err(Errno::ENOENT));
        assert!(f.call("2pc_queue", "2pc_queue_abort", AbortArgs { id: 1 }.to_bytes()).is_ok());
        assert_eq!(ids(&mut f), Ok(vec![3]));
        let stale = RealTime(types::Utime::new(u32::MAX, 0));
        assert!(
            f.call("2pc_queue", "2pc_queue_expire_reservations", ExpireArgs { stale }.to_bytes()).is_ok()
        );
        assert_eq!(ids(&mut f), Ok(vec![]));
    }

    #[test]
    fn a_commit_that_fails_leaves_the_reservation() {
        let mut f = queue();
        reserve_ids(&mut f, 1);
        // Full, so that the second commit has no place.
        let fill = Writer::collect(|w| w.envelope(1, 1, |w| vec![Bytes::from(vec![7; 990])].encode(w)));
        f.call("queue", "queue_enqueue", fill).unwrap();
        let before = f.object.clone();
        for (size, error) in [(21, Errno::EINVAL), (20, Errno::ENOSPC)] {
            let commit = CommitArgs { id: 1, entries: vec![vec![7; size].into()] }.to_bytes();
            // A request that goes on in spite of an error keeps what was written before it.
            f.begin();
            assert_eq!(f.call_within("2pc_queue", "2pc_queue_commit", commit), Err(error));
            f.commit();
            assert!(f.object == before, "{size}");
        }
        assert_eq!(ids(&mut f), Ok(vec![1]));
    }

    #[test]
    fn a_torn_attribute_is_told() {
        let mut f = queue();
        reserve_ids(&mut f, 1);
        f.object.as_mut().unwrap().attrs.insert(queue::SPILLED_ATTR.into(), "torn".into());
        let expire = ExpireArgs { stale: RealTime::default() }.to_bytes();
        let commit = CommitArgs { id: 1, entries: Vec::new() }.to_bytes();
        for (method, input) in [
            ("2pc_queue_reserve", ReserveArgs { size: 20, entries: 1 }.to_bytes()),
            ("2pc_queue_commit", commit),
            ("2pc_queue_abort", AbortArgs { id: 1 }.to_bytes()),
            ("2pc_queue_expire_reservations", expire),
            ("2pc_queue_list_reservations", Bytes::new()),
        ] {
            assert_eq!(f.call("2pc_queue", method, input), Err(Errno::EINVAL), "{method}");
        }
        // Without the attribute there is none of the reservations in it.
        f.object.as_mut().unwrap().attrs.clear();
        assert_eq!(ids(&mut f), Ok(vec![]));
    }
}
