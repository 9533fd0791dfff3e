//! What a cluster, a watcher or a file tells of a block image: headers, object maps, locks, clones, streams
//! of differences.

use std::collections::BTreeMap;

use bytes::Bytes;
use classes::fake::{Fake, FakeObject};
use codec::Encode;
use messages::osd::{CloneInfo, ListSnapsResponse, SparseReadResponse};
use types::SnapId;

use crate::recorded;

const HEAD: u64 = SnapId::HEAD.0;
/// Methods of the class that a header is read with, in the order in which the client takes the answers.
const OF_HEAD: [&str; 12] = [
    "get_size",
    "get_features",
    "get_flags",
    "get_snapcontext",
    "get_object_prefix",
    "parent_get",
    "parent_overlap_get",
    "op_features_get",
    "get_data_pool",
    "get_create_timestamp",
    "get_access_timestamp",
    "get_modify_timestamp",
];
const OF_SNAPSHOT: [&str; 4] = ["snapshot_get", "get_flags", "get_protection_status", "parent_overlap_get"];
/// Snapshots of a stored header that are looked at.
const SNAPSHOTS: usize = 20;

/// Byte strings, each behind its length of two bytes.
struct Parts<'a>(&'a [u8]);

impl Iterator for Parts<'_> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let (len, body) = self.0.split_first_chunk::<2>()?;
        let (part, rest) = body.split_at(usize::from(u16::from_le_bytes(*len)).min(body.len()));
        self.0 = rest;
        Some(Bytes::copy_from_slice(part))
    }
}

fn joined(parts: impl IntoIterator<Item = Bytes>) -> Vec<u8> {
    parts.into_iter().flat_map(|p| [&(p.len() as u16).to_le_bytes()[..], &p].concat()).collect()
}

/// What a header is read with; `None` when the class refuses part of it.
struct Replies {
    head: Vec<Bytes>,
    striping: Option<Bytes>,
    snaps: Vec<Vec<Bytes>>,
}

/// The replies as they come: those of the image, the striping (empty for none), and those of each snapshot.
pub(crate) fn rbd_header(data: &[u8]) {
    let mut parts = Parts(data);
    let head: Vec<Bytes> = parts.by_ref().take(OF_HEAD.len()).collect();
    let striping = parts.next().filter(|s| !s.is_empty());
    let rest: Vec<Bytes> = parts.collect();
    let snaps: Vec<Vec<Bytes>> = rest.chunks(OF_SNAPSHOT.len()).map(<[Bytes]>::to_vec).collect();
    let _ = rbd::hostile::header(&head, striping, &snaps);
}

/// The keys and values of a header as stored: through the class, then as the client takes them.
pub(crate) fn rbd_stored(data: &[u8]) {
    let parts: Vec<Bytes> = Parts(data).collect();
    let pairs = parts.chunks_exact(2);
    if let Some(Replies { head, striping, snaps }) =
        replies(pairs.map(|p| (p[0].clone(), p[1].clone())).collect())
    {
        let _ = rbd::hostile::header(&head, striping, &snaps);
    }
}

fn replies(omap: BTreeMap<Bytes, Bytes>) -> Option<Replies> {
    let mut header = Fake::with(FakeObject { omap, ..FakeObject::default() });
    let mut call = |method: &str, snap: u64| {
        let read_only = if method == "get_features" { &[1][..] } else { &[] };
        let input = [&snap.to_le_bytes()[..], read_only].concat();
        header.call("rbd", method, input).ok().map(|(_, output)| output)
    };
    let head: Vec<Bytes> = OF_HEAD.iter().map(|method| call(method, HEAD)).collect::<Option<_>>()?;
    let context = <types::SnapContext as codec::Decode>::from_bytes(head.get(3).cloned()?).ok()?;
    let striping = call("get_stripe_unit_count", HEAD);
    let of_snap = |snap: &u64| OF_SNAPSHOT.iter().map(|method| call(method, *snap)).collect();
    let snaps = context.snaps.iter().rev().take(SNAPSHOTS).map(of_snap).collect::<Option<_>>()?;
    Some(Replies { head, striping, snaps })
}

/// One byte says what the rest is.
pub(crate) fn rbd_part(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let raw = Bytes::copy_from_slice(rest);
    let number =
        |at: usize| raw.get(at..at + 8).and_then(|n| n.try_into().ok()).map_or(0, u64::from_le_bytes);
    // Behind two numbers.
    let behind = raw.slice(raw.len().min(16)..);
    let _ = match kind % 5 {
        0 => rbd::hostile::object_map(raw),
        1 => rbd::hostile::notification(raw),
        2 => rbd::hostile::clones(behind, number(0), number(8)),
        3 => rbd::hostile::pieces(behind, number(0) % (1 << 40), number(8) % (1 << 40)),
        _ => {
            let mut parts = Parts(&raw);
            rbd::hostile::mark(parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
        }
    };
}

/// A stream of differences.
pub(crate) fn rbd_diff(data: &[u8]) {
    let _ = rbd::hostile::differences(data);
}

/// What was captured, by kind and name.
fn captured(kind: &str) -> Vec<(String, String, Bytes)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [of, name, key, hex] = words[..] else { return None };
        (of == kind).then(|| (name.to_owned(), key.to_owned(), Bytes::from(recorded::unhex(hex))))
    };
    recorded::text("rbd", "images.txt").lines().filter_map(line).collect()
}

fn stored_headers() -> Vec<BTreeMap<Bytes, Bytes>> {
    let mut of: BTreeMap<String, BTreeMap<Bytes, Bytes>> = BTreeMap::new();
    for (id, key, value) in captured("header") {
        of.entry(id).or_default().insert(key.into(), value);
    }
    of.into_values().collect()
}

pub(crate) fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "rbd_header" => stored_headers()
            .into_iter()
            .filter_map(replies)
            .map(|r| {
                let striping = r.striping.unwrap_or_default();
                joined(r.head.into_iter().chain([striping]).chain(r.snaps.into_iter().flatten()))
            })
            .collect(),
        "rbd_stored" => stored_headers()
            .into_iter()
            .map(|omap| joined(omap.into_iter().flat_map(|(k, v)| [k, v])))
            .collect(),
        "rbd_diff" => ["diff", "export2"]
            .iter()
            .flat_map(|kind| captured(kind))
            .map(|(_, _, raw)| raw.to_vec())
            .collect(),
        _ => parts(),
    }
}

fn parts() -> Vec<Vec<u8>> {
    let kind = |n: u8, raw: &[u8]| [&[n][..], raw].concat();
    let mut out: Vec<Vec<u8>> = Vec::new();
    for (_, _, map) in captured("map") {
        // As the class gives it.
        let mut object = Fake::with(FakeObject { data: map.to_vec(), ..FakeObject::default() });
        out.extend(object.call("rbd", "object_map_load", Bytes::new()).map(|(_, loaded)| kind(0, &loaded)));
    }
    let client = [7u64.to_le_bytes(), 9u64.to_le_bytes()].concat();
    for operation in 0..4u32 {
        let body = [&operation.to_le_bytes()[..], &client, &[1]].concat();
        out.push(kind(1, &[&[7, 1][..], &(body.len() as u32).to_le_bytes(), &body].concat()));
    }
    let clone = |id: u64, snaps: &[u64], overlap: &[(u64, u64)]| CloneInfo {
        clone: SnapId(id),
        snaps: snaps.iter().map(|s| SnapId(*s)).collect(),
        overlap: overlap.to_vec(),
        size: 100,
    };
    let clones =
        vec![clone(4, &[4], &[(0, 10), (20, 80)]), clone(6, &[5, 6], &[(0, 50)]), clone(HEAD, &[], &[])];
    let clones = ListSnapsResponse { clones, seq: SnapId(6) }.to_bytes();
    for (from, to) in [(0, HEAD), (4, 6), (4, HEAD), (6, HEAD)] {
        out.push(kind(2, &[&u64::to_le_bytes(from)[..], &to.to_le_bytes(), &clones].concat()));
    }
    let sparse = SparseReadResponse { extents: [(0, 512), (8_192, 100)].into(), data: vec![5; 612].into() };
    for (len, output) in [(1u64 << 16, sparse.to_bytes()), (512, vec![6; 300].into())] {
        out.push(kind(3, &[&0u64.to_le_bytes()[..], &len.to_le_bytes(), &output].concat()));
    }
    for (_, _, lock) in captured("lock") {
        out.push(kind(4, &joined([lock.clone()])));
        let name = "lock.rbd_lock".to_owned();
        let mark = r#"{"token":"t","client":4100,"cookie":"auto 7","place":"/p"}"#;
        let features = Bytes::copy_from_slice(&(1u64 << 11 | 61).to_le_bytes());
        let omap: BTreeMap<Bytes, Bytes> =
            [("features".into(), features), ("metadata_.loligo/write-back-cache".into(), mark.into())].into();
        out.push(kind(4, &joined([BTreeMap::from([(name, lock)]).to_bytes(), omap.to_bytes()])));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_captured_is_understood() {
        let headers: Vec<_> = stored_headers()
            .into_iter()
            .map(|omap| {
                let Replies { head, striping, snaps } = replies(omap).expect("the class gives it");
                rbd::hostile::header(&head, striping, &snaps).expect("a header")
            })
            .collect();
        let told: Vec<_> = headers.iter().map(|h| (h.size, h.snaps.len(), h.layout.stripe_count)).collect();
        assert_eq!(told, [(20 << 20, 3, 1), (40 << 20, 0, 5), (20 << 20, 0, 1)]);
        assert_eq!(headers[2].parent.as_ref().map(|p| p.snap), headers[0].snaps.last().map(|s| s.id));
        let bytes: Vec<_> =
            captured("diff").iter().map(|(_, _, raw)| rbd::hostile::differences(raw).ok()).collect();
        assert!(bytes.iter().all(Option::is_some), "{bytes:?}");
        // Nobody reads the second version.
        assert!(captured("export2").iter().all(|(_, _, raw)| rbd::hostile::differences(raw).is_err()));
        assert_eq!(captured("map").len(), 5);
    }
}
