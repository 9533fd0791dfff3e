//! What clients may have of an inode: by what they want together, by what others have, and by what requests
//! and changes keep from them.
//!
//! Ceph has a state machine for each lock of an inode. Here the capabilities themselves are the state: a
//! client is given what the inode's mode allows (one writer alone has everything; several share reading and
//! writing, nobody caches), less what contradicts something that another client still has ([`conflicting`]),
//! less what a [`Hold`] keeps from it. A request that reads or changes a part of an inode holds it, waits
//! until no client has anything that the hold forbids, and runs. What a change made is held until it is safe
//! in the journal, so that no other client sees it before.
//!
//! Invariants ([`assert_coherent`]):
//! 1. No two clients have capabilities that contradict each other.
//!
//! Source: src/mds/locks.c, Locker::file_eval, Locker::simple_eval, CInode::calc_ideal_loner.

use messages::fs::Caps;
use types::GlobalId;

use super::cache::Inode;

/// A part of an inode that has capabilities of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Auth,
    Link,
    Xattr,
    /// Size, times, data; of a folder its names.
    File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Its attributes are told.
    Read,
    /// Its attributes change.
    Write,
    /// A name in the folder changes.
    Names,
    /// What clients changed before a snapshot is told: all of them give up writing.
    Flush,
}

/// How long a hold lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Until {
    /// The request of this number has run.
    Request(u64),
    /// This event is safe.
    Safe(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub by: GlobalId,
    pub part: Part,
    pub mode: Mode,
    pub until: Until,
}

const FILE_ALL: Caps = Caps(0xff << 8);

impl Part {
    fn shared(self) -> Caps {
        match self {
            Self::Auth => Caps::AUTH_SHARED,
            Self::Link => Caps::LINK_SHARED,
            Self::Xattr => Caps::XATTR_SHARED,
            Self::File => Caps::FILE_SHARED,
        }
    }

    fn excl(self) -> Caps {
        match self {
            Self::Auth => Caps::AUTH_EXCL,
            Self::Link => Caps::LINK_EXCL,
            Self::Xattr => Caps::XATTR_EXCL,
            Self::File => Caps::FILE_EXCL,
        }
    }
}

/// Whatever is at odds with a client that buffers.
const USING: Caps = Caps(WRITING.0 | Caps::FILE_SHARED.0 | Caps::FILE_CACHE.0 | Caps::FILE_RD.0);
const WRITING: Caps = Caps(Caps::FILE_EXCL.0 | Caps::FILE_WR.0 | Caps::FILE_BUFFER.0);

const OTHER_EXCL: Caps = Caps(Caps::AUTH_EXCL.0 | Caps::LINK_EXCL.0 | Caps::XATTR_EXCL.0);

impl Hold {
    /// What it keeps from a client.
    pub fn forbids(&self, client: GlobalId) -> Caps {
        let is_own = client == self.by;
        let simple = self.part != Part::File;
        match (self.mode, is_own) {
            (Mode::Read, true) => Caps::NONE,
            (Mode::Read, false) if simple => self.part.excl(),
            (Mode::Read, false) => WRITING,
            // Replies to the end of a link do not show the inode: its client has to ask anew, too.
            (Mode::Write, true) if self.part == Part::Link => self.part.shared() | self.part.excl(),
            (Mode::Write, true) if simple => self.part.excl(),
            (Mode::Write, false) if simple => self.part.shared() | self.part.excl(),
            (Mode::Write, true) => FILE_ALL.without(Caps::FILE_SHARED),
            (Mode::Write, false) => FILE_ALL,
            (Mode::Flush, _) => WRITING | OTHER_EXCL,
            (Mode::Names, true) => Caps::NONE,
            (Mode::Names, false) => FILE_ALL,
        }
    }

    /// Once the change is made, its client may have what others may not.
    fn forbids_now(&self, client: GlobalId) -> Caps {
        match self.until {
            Until::Safe(_) if client == self.by => Caps::NONE,
            Until::Safe(_) | Until::Request(_) => self.forbids(client),
        }
    }

    /// Whether the other one has to wait for this one.
    pub fn bars(&self, by: GlobalId, part: Part, mode: Mode) -> bool {
        let reads = |mode| matches!(mode, Mode::Read | Mode::Flush);
        let shares = reads(self.mode) && reads(mode) || (self.mode, mode) == (Mode::Names, Mode::Names);
        self.by != by && self.part == part && !shares
    }
}

/// What no other client may have while one has these.
pub(crate) fn conflicting(caps: Caps) -> Caps {
    let pairs = [
        (Caps::AUTH_SHARED, Caps::AUTH_EXCL),
        (Caps::AUTH_EXCL, Caps::AUTH_SHARED | Caps::AUTH_EXCL),
        (Caps::LINK_SHARED, Caps::LINK_EXCL),
        (Caps::LINK_EXCL, Caps::LINK_SHARED | Caps::LINK_EXCL),
        (Caps::XATTR_SHARED, Caps::XATTR_EXCL),
        (Caps::XATTR_EXCL, Caps::XATTR_SHARED | Caps::XATTR_EXCL),
        (Caps::FILE_SHARED, WRITING),
        (Caps::FILE_CACHE, WRITING),
        (Caps::FILE_RD, Caps::FILE_EXCL | Caps::FILE_BUFFER),
        (Caps::FILE_WR, Caps::FILE_EXCL | Caps::FILE_BUFFER | Caps::FILE_SHARED | Caps::FILE_CACHE),
        (Caps::FILE_BUFFER, USING),
        (Caps::FILE_EXCL, USING),
    ];
    pairs.iter().filter(|(has, _)| caps.intersects(*has)).fold(Caps::NONE, |all, (_, bars)| all | *bars)
}

const SIMPLE_SHARED: Caps =
    Caps(Caps::PIN.0 | Caps::AUTH_SHARED.0 | Caps::LINK_SHARED.0 | Caps::XATTR_SHARED.0);
const SYNC: Caps = Caps(Caps::FILE_SHARED.0 | Caps::FILE_CACHE.0 | Caps::FILE_RD.0 | Caps::FILE_LAZYIO.0);
const MIX: Caps = Caps(Caps::FILE_RD.0 | Caps::FILE_WR.0 | Caps::FILE_LAZYIO.0);

/// What a client that has an inode is given besides what it wants. Source: CInode::get_caps_liked.
pub(crate) fn liked(inode: &Inode) -> Caps {
    match inode.is_dir() {
        true => Caps::ALL_SHARED | Caps::ANY_EXCL,
        false => Caps(0x7fff).without(Caps::FILE_WREXTEND),
    }
}

/// What all clients together have and want of an inode.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// The only client that uses it. Source: CInode::calc_ideal_loner.
    loner: Option<GlobalId>,
    wanted: Caps,
    /// By bit, how many have it.
    holders: [u32; BITS],
}

const BITS: usize = 16;

impl Sum {
    pub fn of(inode: &Inode, is_stale: &dyn Fn(GlobalId) -> bool) -> Self {
        let uses = Caps::ANY_WR | Caps::FILE_RD;
        let mut sum = Self { loner: None, wanted: Caps::NONE, holders: [0; BITS] };
        let mut users = 0_usize;
        for (client, cap) in &inode.caps {
            for (bit, count) in sum.holders.iter_mut().enumerate() {
                *count += cap.issued().0 >> bit & 1;
            }
            if is_stale(*client) {
                continue;
            }
            sum.wanted |= cap.wanted;
            if inode.is_dir() || cap.wanted.intersects(uses) {
                users += 1;
                sum.loner = Some(*client);
            }
        }
        sum.loner = sum.loner.filter(|_| users == 1);
        sum
    }

    /// What others have than a client that has `own`.
    fn of_others(&self, own: Caps) -> Caps {
        let others = |(bit, count): (usize, &u32)| *count > own.0 >> bit & 1;
        let bits = self.holders.iter().enumerate().filter(|(b, c)| others((*b, *c)));
        bits.fold(Caps::NONE, |all, (bit, _)| all | Caps(1 << bit))
    }
}

/// What a client may have by what all of them want.
fn by_mode(inode: &Inode, client: GlobalId, sum: &Sum) -> Caps {
    let (loner, wanted) = (sum.loner, sum.wanted);
    let mut allowed = SIMPLE_SHARED;
    for part in [Part::Auth, Part::Link, Part::Xattr] {
        if loner.is_some() && wanted.intersects(part.excl()) {
            match loner == Some(client) {
                true => allowed |= part.excl(),
                false => allowed = allowed.without(part.shared()),
            }
        }
    }
    if inode.is_dir() {
        let is_alone = loner == Some(client);
        allowed |= if is_alone { Caps::FILE_SHARED | Caps::FILE_EXCL } else { Caps::FILE_SHARED };
        return allowed;
    }
    if loner.is_some() && wanted.intersects(WRITING) {
        return if loner == Some(client) { allowed | FILE_ALL.without(Caps::FILE_WREXTEND) } else { allowed };
    }
    allowed | if wanted.intersects(Caps::FILE_WR | Caps::FILE_BUFFER) { MIX } else { SYNC }
}

/// What a client may have; what it has beyond that is taken back.
pub(crate) fn allowed(inode: &Inode, client: GlobalId, sum: &Sum) -> Caps {
    let by_mode = by_mode(inode, client, sum);
    // Nobody writes to a file whose end is being looked for.
    let by_mode = if inode.needs_recover { by_mode.without(WRITING) } else { by_mode };
    inode.holds.iter().fold(by_mode, |left, hold| left.without(hold.forbids_now(client)))
}

/// What a client may be given now.
pub(crate) fn grantable(inode: &Inode, client: GlobalId, sum: &Sum) -> Caps {
    let own = inode.caps.get(&client).map_or(Caps::NONE, super::cap::Cap::issued);
    allowed(inode, client, sum).without(conflicting(sum.of_others(own)))
}

/// Whether clients have given up what a hold forbids.
pub(crate) fn is_free(inode: &Inode, by: GlobalId, part: Part, mode: Mode) -> bool {
    let hold = Hold { by, part, mode, until: Until::Request(0) };
    inode.caps.iter().all(|(client, cap)| !cap.issued().intersects(hold.forbids(*client)))
}

/// What a client has of an inode's version in a snapshot: it never changes, and the server does not count it.
/// Source: CInode::encode_inodestat.
pub(crate) fn in_snapshot(is_dir: bool) -> Caps {
    if is_dir { SIMPLE_SHARED | Caps::FILE_SHARED } else { SIMPLE_SHARED | SYNC }
}

/// Checks the numbered invariants where that costs little; tests check them everywhere.
pub(crate) fn assert_coherent_if_few(inode: &Inode) {
    if inode.caps.len() <= 4 {
        assert_coherent(inode);
    }
}

/// Checks the numbered invariants.
pub(crate) fn assert_coherent(inode: &Inode) {
    for (a, cap_a) in &inode.caps {
        for (b, cap_b) in inode.caps.iter().filter(|(b, _)| *b > a) {
            let bad = conflicting(cap_a.issued()) & cap_b.issued();
            assert!(
                bad.is_empty(),
                "invariant 1: client {a} has {} and {b} {} of {}",
                cap_a.issued(),
                cap_b.issued(),
                inode.store.inode.ino
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_mutual() {
        let bits: Vec<Caps> = (0..16).map(|b| Caps(1 << b)).collect();
        for a in &bits {
            for b in &bits {
                let there = conflicting(*a).contains(*b);
                let back = conflicting(*b).contains(*a);
                assert_eq!(there, back, "{a} {b}");
            }
        }
    }
}
