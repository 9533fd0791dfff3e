//! Decoders of what a medium holds, on bytes alone: for fuzz targets, which would hardly get past a checksum.

use bytes::Bytes;
use codec::{Decode, Reader};

use crate::checksum::{BLOCK, crc32c};
use crate::key::{parse_onode_key, pool_of_onode_key, split_space_key};
use crate::onode::Onode;
use crate::page::Page;
use crate::record::{RECORD_HEAD, RecordHead, read_logged};
use crate::refs::RefRegion;
use crate::superblock::Superblock;

/// A superblock; its checksum is made to fit.
pub fn superblock(data: &[u8]) {
    let mut raw = data.to_vec();
    raw.resize(BLOCK - 4, 0);
    let crc = crc32c(&raw);
    raw.extend(crc.to_le_bytes());
    let Ok(Some(found)) = Superblock::decode_block(&raw.into()) else { return };
    if let Some(root) = &found.root {
        let bytes: u64 = root.ranges().map(|(_, len)| len).sum();
        assert_eq!(bytes, root.len.next_multiple_of(BLOCK as u32).into(), "the first copy is whole");
        root.mirror_blocks();
    }
    found.encode_block();
}

/// A record of the log: its head, then the transactions.
pub fn record(data: &[u8]) {
    let _ = RecordHead::parse(data);
    let mut body = Reader::new(Bytes::copy_from_slice(data.get(RECORD_HEAD..).unwrap_or_default()));
    while !body.is_empty() && read_logged(&mut body).is_ok() {}
}

/// A page of the metadata tree, and what its entries are taken for.
pub fn page(data: &[u8]) {
    let Some(page) = Page::parse(Bytes::copy_from_slice(data)) else { return };
    for i in 0..page.count() {
        let _ = page.child(i);
        page.child_block(i);
        let entry = page.entry(i);
        assert!(entry.is_some(), "a parsed page has all its entries");
        let (Some((key, _)), Some(value)) = (entry, page.value(i)) else { continue };
        parse_onode_key(key);
        pool_of_onode_key(key);
        split_space_key(key);
        let _ = Onode::from_bytes(value.clone());
        let _ = RefRegion::from_bytes(value);
        page.child_for(key);
    }
}

/// The superblocks, records and pages on a medium, as inputs of those functions.
#[must_use]
pub fn found_on(medium: &[u8]) -> [Vec<Vec<u8>>; 3] {
    let mut found = [const { Vec::new() }; 3];
    for (at, block) in medium.chunks_exact(BLOCK).enumerate() {
        let longer = medium.get(at * BLOCK..).unwrap_or_default();
        let longer = longer.get(..longer.len().min(2 * BLOCK)).unwrap_or_default().to_vec();
        if matches!(Superblock::decode_block(&block.to_vec().into()), Ok(Some(_))) {
            found[0].push(block.to_vec());
        } else if let Some((head, _)) = RecordHead::parse(block) {
            let end = longer.len().min(RECORD_HEAD + head.body_len as usize);
            found[1].push(longer.get(..end).unwrap_or_default().to_vec());
        } else if Page::parse(longer.clone().into()).is_some_and(|p| p.count() > 0) {
            found[2].push(longer);
        }
    }
    found
}
