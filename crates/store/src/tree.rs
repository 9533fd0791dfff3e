//! Reading the metadata tree: lookups, ordered walks, and a walk over its pages.

use bytes::Bytes;

use crate::page::{Page, PageRef};
use crate::{Corruption, Device, StoreError};

/// Where pages come from: the device, or a cache in front of it.
pub(crate) trait Pages {
    fn page(&mut self, r: &PageRef) -> Result<Page, StoreError>;

    /// These pages are wanted next.
    fn will_read(&mut self, _refs: &[PageRef]) {}

    /// The page that begins at this block, when it is at hand without a reference that proves it.
    fn cached(&mut self, _block: u32) -> Option<Page> {
        None
    }
}

impl Pages for &dyn Device {
    fn page(&mut self, r: &PageRef) -> Result<Page, StoreError> {
        r.read(*self)
    }
}

/// A child one level below `parent`; anything else would let a damaged tree send a walk in circles.
pub(crate) fn child_page(
    pages: &mut impl Pages,
    parent: &Page,
    i: u32,
) -> Result<(PageRef, Page), StoreError> {
    let r = parent.child(i)?;
    let page = pages.page(&r)?;
    match is_child(parent, &page) {
        true => Ok((r, page)),
        false => Err(Corruption::Page { block: u64::from(r.block()) }.into()),
    }
}

fn is_child(parent: &Page, page: &Page) -> bool {
    page.level().checked_add(1) == Some(parent.level()) && page.count() > 0
}

/// The same without its reference: of a page in the cache that is not even decoded.
fn descend(pages: &mut impl Pages, parent: &Page, i: u32) -> Result<Page, StoreError> {
    match parent.child_block(i).and_then(|block| pages.cached(block)) {
        Some(page) if is_child(parent, &page) => Ok(page),
        _ => child_page(pages, parent, i).map(|(_, page)| page),
    }
}

pub(crate) fn lookup(
    pages: &mut impl Pages,
    root: Option<&PageRef>,
    key: &[u8],
) -> Result<Option<Bytes>, StoreError> {
    let Some(root) = root else { return Ok(None) };
    let mut page = pages.page(root)?;
    while page.level() > 0 {
        page = descend(pages, &page, page.child_for(key))?;
    }
    Ok(page.find(key))
}

/// A place in the tree between entries; the tree must not change while it is used.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// From the root to a leaf, each with the index of the entry the walk is at.
    stack: Vec<(Page, u32)>,
}

impl Cursor {
    /// Stands at the first entry at or above `key`.
    pub(crate) fn seek(
        pages: &mut impl Pages,
        root: Option<&PageRef>,
        key: &[u8],
    ) -> Result<Self, StoreError> {
        let mut cursor = Self::default();
        let Some(root) = root else { return Ok(cursor) };
        let mut page = pages.page(root)?;
        while page.level() > 0 {
            let i = page.child_for(key);
            let child = descend(pages, &page, i)?;
            cursor.stack.push((page, i));
            page = child;
        }
        let i = page.lower_bound(key);
        cursor.stack.push((page, i));
        cursor.settle(pages)?;
        Ok(cursor)
    }

    /// The entry the cursor stands at; `None` at the end.
    pub(crate) fn entry(&self) -> Option<(Bytes, Bytes)> {
        let (page, i) = self.stack.last()?;
        Some((page.key_bytes(*i)?, page.value(*i)?))
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        let (page, i) = self.stack.last()?;
        page.key(*i)
    }

    pub(crate) fn advance(&mut self, pages: &mut impl Pages) -> Result<(), StoreError> {
        if let Some((_, i)) = self.stack.last_mut() {
            *i += 1;
        }
        self.settle(pages)
    }

    /// Moves from behind the end of a leaf to the start of the next one.
    fn settle(&mut self, pages: &mut impl Pages) -> Result<(), StoreError> {
        while self.stack.last().is_some_and(|(page, i)| *i >= page.count()) {
            self.stack.pop();
            let Some((_, i)) = self.stack.last_mut() else { return Ok(()) };
            *i += 1;
            while let Some((page, i)) = self.stack.last() {
                if page.level() == 0 || *i >= page.count() {
                    break;
                }
                let child = descend(pages, page, *i)?;
                self.stack.push((child, 0));
            }
        }
        Ok(())
    }
}

/// Keys from the first up to, without, the second.
pub(crate) type KeyRange = (Bytes, Bytes);

/// Announces the pages that hold the keys of some ranges, which are in order and do not overlap, level by
/// level, at most `max` pages of each level: a slow device then serves a level in the time of one page.
/// Leaves are not read.
pub(crate) fn will_read(
    pages: &mut impl Pages,
    root: Option<&PageRef>,
    ranges: &[KeyRange],
    max: usize,
) -> Result<(), StoreError> {
    let Some(root) = root.filter(|_| !ranges.is_empty()) else { return Ok(()) };
    pages.will_read(std::slice::from_ref(root));
    let mut level = vec![(pages.page(root)?, ranges)];
    while let Some(height) = level.first().map(|(page, _)| page.level()).filter(|height| *height > 0) {
        let mut children = Vec::new();
        for (page, ranges) in &level {
            children_with(page, ranges, max, &mut children);
        }
        let refs = children.iter().map(|(page, i, _)| page.child(*i)).collect::<Result<Vec<_>, _>>()?;
        pages.will_read(&refs);
        if height == 1 {
            break;
        }
        let below = children
            .into_iter()
            .map(|(page, i, ranges)| child_page(pages, page, i).map(|(_, child)| (child, ranges)));
        level = below.collect::<Result<_, _>>()?;
    }
    Ok(())
}

/// Adds the children of a page that a walk through each of the ranges comes by, with the ranges in them, up
/// to `max`.
fn children_with<'p, 'r>(
    page: &'p Page,
    ranges: &'r [KeyRange],
    max: usize,
    children: &mut Vec<(&'p Page, u32, &'r [KeyRange])>,
) {
    let (known, mut since) = (children.len(), 0);
    for (n, (from, until)) in ranges.iter().enumerate() {
        let first = page.child_for(from);
        for i in first..page.lower_bound(until).max(first + 1) {
            if children.len() > known && children.last().is_some_and(|(_, last, _)| *last == i) {
                // Another range of the same child.
                if let Some((_, _, inside)) = children.last_mut() {
                    *inside = ranges.get(since..=n).unwrap_or_default();
                }
            } else if children.len() < max {
                since = n;
                children.push((page, i, ranges.get(n..=n).unwrap_or_default()));
            } else {
                return;
            }
        }
    }
}

/// Shows every page reference below `page` with its level; leaves are not read.
pub(crate) fn pages_below(
    pages: &mut impl Pages,
    page: &Page,
    visit: &mut impl FnMut(&PageRef, u8),
) -> Result<(), StoreError> {
    if page.level() == 0 {
        return Ok(());
    }
    for i in 0..page.count() {
        if page.level() == 1 {
            visit(&page.child(i)?, 0);
        } else {
            let (r, child) = child_page(pages, page, i)?;
            visit(&r, child.level());
            pages_below(pages, &child, visit)?;
        }
    }
    Ok(())
}
