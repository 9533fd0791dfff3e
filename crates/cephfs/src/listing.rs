//! Listing folders, fragment by fragment; a folder that was listed whole without a change has no other names.
//!
//! Source: Client::_readdir_get_frag, readdir_r_cb.

use messages::fs::{Caps, FilePath, FsOp, ReaddirArgs, RequestArgs};
use types::{Errno, Ino};

use crate::call::{Event, Stage, Step};
use crate::core::Client;
use crate::io::{Answer, Cursor, Node, Ticket};
use crate::request::Ask;

/// Names in one part, and bytes of them.
const MAX_ENTRIES: u32 = 1024;
const MAX_BYTES: u32 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Listing {
    /// What the folder's counts were when the listing began.
    seen: (u64, u64),
    retries: u32,
}

impl Client {
    pub(crate) fn readdir(
        &mut self,
        ticket: Ticket,
        dir: Node,
        from: Option<&Cursor>,
        stage: &mut Stage,
        event: Event,
    ) -> Step {
        match event {
            Event::Start => {
                let now = self.inodes.get(&dir).map_or((0, 0), |i| (i.shared_gen, i.release_count));
                let seen = from.map_or(now, |c| c.seen);
                *stage = Stage::List(Listing { seen, retries: 0 });
                self.ask_listing(ticket, dir, from).map(|()| None)
            }
            Event::Reply(mut reply) => {
                let Stage::List(listing) = stage else { return Err(Errno::EIO) };
                if reply.result == Err(Errno::EAGAIN) && listing.retries < 8 {
                    // The folder is being split otherwise.
                    listing.retries += 1;
                    return self.ask_listing(ticket, dir, from).map(|()| None);
                }
                reply.result?;
                // The shared capability may have come with the first part.
                let mut seen = listing.seen;
                if from.is_none() {
                    seen = self.inodes.get(&dir).map_or(seen, |i| (i.shared_gen, i.release_count));
                }
                if let Some(next) = &mut reply.next {
                    next.seen = seen;
                } else {
                    self.note_complete(dir, seen);
                }
                Ok(Some(Answer::Listing { entries: reply.entries, next: reply.next }))
            }
            Event::Retry | Event::Object(..) => Ok(None),
        }
    }

    fn note_complete(&mut self, dir: Node, seen: (u64, u64)) {
        let is_shared = self.issued(dir).contains(Caps::FILE_SHARED);
        let Some(inode) = self.inodes.get_mut(&dir).filter(|_| dir.is_head() && is_shared) else { return };
        inode.is_complete = seen == (inode.shared_gen, inode.release_count);
    }

    fn ask_listing(&mut self, ticket: Ticket, dir: Node, from: Option<&Cursor>) -> Result<(), Errno> {
        let op = if dir.is_snapdir() { FsOp::LSSNAP } else { FsOp::READDIR };
        let cursor = from.cloned().unwrap_or_default();
        let args = RequestArgs::Readdir(ReaddirArgs {
            frag: cursor.frag,
            max_entries: MAX_ENTRIES,
            max_bytes: MAX_BYTES,
            flags: ReaddirArgs::REPLY_BITFLAGS,
            offset_hash: 0,
        });
        let (path, path2) = (self.path(dir, None)?, FilePath { base: Ino(0), path: cursor.after });
        self.ask(Some(ticket), Ask { op, args, path, path2, about: Some(dir), ..Ask::default() });
        Ok(())
    }
}
