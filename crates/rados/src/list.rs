//! Listing a pool's objects, page by page, in the order of their hashes.
//!
//! Source: Objecter::enumerate_objects in src/osdc/Objecter.cc, src/librados/IoCtxImpl.cc.

use std::collections::VecDeque;

use bytes::Bytes;
use codec::{Decode, Encode, Writer};
use messages::osd::{ListArgs, ListFilter as WireFilter, Op, OsdOp, PgnlsResponse, flags};
use types::{HObject, Name, SnapContext, SnapId};

use crate::ops::Steps;
use crate::{IoCtx, Result};

pub use messages::osd::ListedObject;

/// The namespace that stands for all of them. Source: LIBRADOS_ALL_NSPACES.
const ALL_NAMESPACES: &str = "\u{1}";
/// Objects asked for at once.
const PAGE: u64 = 1000;

/// A position in a pool's list of objects; positions of one pool are ordered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(HObject);

impl Cursor {
    pub fn begin() -> Self {
        Self(HObject::min())
    }

    pub fn end() -> Self {
        Self(HObject::max())
    }
}

/// Which objects a list shows; the OSDs judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListFilter {
    /// Those whose attribute has this value; the name as stored, with its leading `_`.
    Plain { xattr: String, value: String },
    /// A filter of an object class, `class.filter`, with its arguments.
    Class { name: String, args: Bytes },
}

impl ListFilter {
    fn encode_with(&self, cursor: &HObject) -> WireFilter {
        let mut w = Writer::new();
        let kind = match self {
            Self::Plain { xattr, value } => {
                xattr.encode(&mut w);
                value.encode(&mut w);
                "plain".to_owned()
            }
            Self::Class { name, args } => {
                w.raw(args);
                name.clone()
            }
        };
        cursor.encode(&mut w);
        WireFilter { kind, args_and_cursor: w.into_bytes() }
    }
}

/// Lists objects. Objects that are there all the time are listed exactly once, also while PGs split.
#[derive(Debug)]
pub struct Objects {
    pool: IoCtx,
    nspace: String,
    next: HObject,
    end: HObject,
    filter: Option<ListFilter>,
    page: VecDeque<ListedObject>,
}

impl IoCtx {
    /// The objects of this namespace.
    pub fn objects(&self) -> Objects {
        self.objects_between(Cursor::begin(), Cursor::end())
    }

    /// Those from one position up to, without, another.
    pub fn objects_between(&self, begin: Cursor, end: Cursor) -> Objects {
        let nspace = self.namespace().to_owned();
        Objects { pool: self.clone(), nspace, next: begin.0, end: end.0, filter: None, page: VecDeque::new() }
    }

    /// The positions of slice `n` of `m` equal ones. Source: librados object_list_slice.
    pub fn slice(&self, n: u64, m: u64) -> (Cursor, Cursor) {
        let at = |n: u64| match n {
            0 => Cursor::begin(),
            n if n >= m => Cursor::end(),
            n => {
                let reversed = ((1u128 << 32) * u128::from(n) / u128::from(m.max(1))) as u32;
                let hash = reversed.reverse_bits();
                Cursor(HObject { pool: self.pool_id(), hash, snap: SnapId::HEAD, ..HObject::min() })
            }
        };
        (at(n), at(n.saturating_add(1)))
    }
}

impl Objects {
    /// Objects of every namespace.
    #[must_use]
    pub fn all_namespaces(self) -> Self {
        Self { nspace: ALL_NAMESPACES.to_owned(), ..self }
    }

    #[must_use]
    pub fn filter(self, filter: ListFilter) -> Self {
        Self { filter: Some(filter), ..self }
    }

    /// Where the next page begins.
    pub fn cursor(&self) -> Cursor {
        Cursor(self.next.clone())
    }

    /// The next object; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<ListedObject>> {
        loop {
            if let Some(object) = self.page.pop_front() {
                return Ok(Some(object));
            }
            match self.next_page().await? {
                Some(page) => self.page = page.into(),
                None => return Ok(None),
            }
        }
    }

    /// The next objects, possibly none; `None` at the end.
    pub async fn next_page(&mut self) -> Result<Option<Vec<ListedObject>>> {
        if self.next.max || self.next >= self.end {
            return Ok(None);
        }
        let epoch = self.pool.cluster().map().epoch.0;
        let op = match &self.filter {
            None => Op::Pgnls(ListArgs { count: PAGE, start_epoch: epoch, cursor: self.next.clone() }),
            Some(filter) => {
                let filter = filter.encode_with(&self.next);
                Op::PgnlsFilter { count: PAGE, start_epoch: epoch, filter }
            }
        };
        let object = HObject {
            pool: self.pool.pool_id(),
            hash: if self.next.is_min() { 0 } else { self.next.hash },
            nspace: self.nspace.as_str().into(),
            key: Name::new(),
            name: Name::new(),
            snap: SnapId::HEAD,
            max: false,
        };
        let steps = Steps { ops: vec![OsdOp::from(op)], ..Steps::default() };
        let kind = flags::READ | flags::PGOP | flags::IGNORE_OVERLAY;
        let reply = self.pool.submit_object(object, steps, kind, SnapContext::default()).await?;
        let page = PgnlsResponse::from_bytes(reply.output(0))?;
        // A position that does not move would be asked for again and again.
        self.next = if page.cursor > self.next { page.cursor } else { HObject::max() };
        let mut entries = page.entries;
        if !self.end.max && self.next >= self.end {
            entries.retain(|o| self.position(o).is_none_or(|at| at < self.end));
        }
        Ok(Some(entries))
    }

    /// Where an object stands in the order; `None` when the pool is gone.
    fn position(&self, o: &ListedObject) -> Option<HObject> {
        let map = self.pool.cluster().map();
        let key = if o.key == o.name { "" } else { o.key.as_str() };
        let mut at = HObject {
            pool: self.pool.pool_id(),
            hash: 0,
            nspace: o.nspace.as_str().into(),
            key: key.into(),
            name: o.name.as_str().into(),
            snap: SnapId::HEAD,
            max: false,
        };
        at.hash = map.pool(at.pool)?.hash_key(at.effective_key(), &at.nspace);
        Some(at)
    }
}
