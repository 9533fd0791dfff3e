//! What goes to the image next.

use crate::index::{Entry, Index, Source};
use crate::log::{Log, entry_of};

/// The oldest records of one group, newest bytes only: its pieces may go to the image at once and in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub(crate) last_seq: u64,
    pub pieces: Vec<BatchPiece>,
}

/// One range of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPiece {
    pub offset: u64,
    pub len: u64,
    pub work: BatchWork,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchWork {
    /// The data one behind the other: source and length of each part.
    Write(Vec<(Source, u64)>),
    Zero {
        punch: bool,
    },
}

/// Bounds of a batch.
const MAX_RECORDS: usize = 1024;
const MAX_PIECE: u64 = 4 << 20;

impl Log {
    /// The next records for the image, up to `max_bytes` of data; the shell writes them, flushes the image and calls
    /// [`Log::retire`]. The same batch comes again until then, perhaps longer. `None` when nothing is dirty.
    #[must_use]
    pub fn next_batch(&self, max_bytes: u64) -> Option<Batch> {
        let mut index = Index::default();
        let mut batch = Batch { last_seq: 0, pieces: Vec::new() };
        let (mut bytes, mut count) = (0, 0);
        let group = self.unretired().next()?.group;
        for live in self.unretired().take_while(|l| l.group == group) {
            bytes += live.record.len as u64;
            count += 1;
            if count > 1 && (bytes > max_bytes || count > MAX_RECORDS) {
                break;
            }
            if let Some((start, entry)) = entry_of(live) {
                index.insert(start, entry);
            }
            batch.last_seq = live.record.seq;
        }
        for (start, entry) in index.iter() {
            batch.push(start, entry);
        }
        Some(batch)
    }

    /// The batch is durable in the image.
    pub fn retire(&mut self, batch: &Batch) {
        for piece in &batch.pieces {
            self.forget(piece.offset, piece.offset + piece.len, batch.last_seq);
        }
        self.retire_through(batch.last_seq);
    }
}

impl Batch {
    fn push(&mut self, start: u64, entry: &Entry) {
        let len = entry.end - start;
        if let (Source::Record { .. }, Some(last)) = (entry.source, self.pieces.last_mut()) {
            if let BatchWork::Write(parts) = &mut last.work {
                if last.offset + last.len == start && last.len + len <= MAX_PIECE {
                    parts.push((entry.source, len));
                    last.len += len;
                    return;
                }
            }
        }
        let work = match entry.source {
            Source::Zero { punch } => BatchWork::Zero { punch },
            record @ Source::Record { .. } => BatchWork::Write(vec![(record, len)]),
        };
        self.pieces.push(BatchPiece { offset: start, len, work });
    }

    /// Bytes of the image that the batch changes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|p| p.len).sum()
    }
}
