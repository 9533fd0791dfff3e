//! The store's semantics, as plainly as possible: maps of byte vectors.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use store::{ObjectKey, Op, Space, Store, Txn};
use types::HObject;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelObject {
    pub data: Vec<u8>,
    /// Of each byte, whether it was written and not discarded since.
    pub written: Vec<bool>,
    pub attrs: BTreeMap<Bytes, Bytes>,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub header: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    pub objects: BTreeMap<ObjectKey, ModelObject>,
    pub keys: BTreeMap<(Space, Bytes), Bytes>,
}

impl Model {
    pub fn apply(&mut self, txn: &Txn) {
        for op in txn.ops() {
            self.op(txn, op);
        }
    }

    fn op(&mut self, txn: &Txn, op: &Op) {
        let key = |i| txn.object(i).expect("built by Txn").clone();
        match op {
            Op::Touch { object } | Op::AllocHint { object, .. } => {
                self.edit(key(*object));
            }
            Op::Write { object, offset, data } => self.edit(key(*object)).write(*offset, data),
            Op::Zero { object, offset, len } => {
                let o = self.edit(key(*object));
                o.write(*offset, &vec![0; *len as usize]);
                if *len > 0 {
                    o.written[*offset as usize..][..*len as usize].fill(false);
                }
            }
            Op::Truncate { object, size } => self.edit(key(*object)).resize(*size as usize),
            Op::Remove { object } => {
                self.objects.remove(&key(*object));
            }
            Op::SetAttr { object, name, value } => {
                self.edit(key(*object)).attrs.insert(name.clone(), value.clone());
            }
            Op::RmAttr { object, name } => self.existing(key(*object), |o| {
                o.attrs.remove(name);
            }),
            Op::RmAttrs { object } => self.existing(key(*object), |o| o.attrs.clear()),
            Op::OmapSet { object, entries } => self.edit(key(*object)).omap.extend(entries.iter().cloned()),
            Op::OmapRm { object, keys } => {
                self.existing(key(*object), |o| o.omap.retain(|k, _| !keys.contains(k)))
            }
            Op::OmapRmRange { object, start, end } => {
                self.existing(key(*object), |o| o.omap.retain(|k, _| k < start || k >= end))
            }
            Op::OmapClear { object } => self.existing(key(*object), |o| {
                o.omap.clear();
                o.header = Bytes::new();
            }),
            Op::OmapSetHeader { object, header } => self.edit(key(*object)).header = header.clone(),
            Op::Clone { src, dst } => {
                let copy = self.objects[&key(*src)].clone();
                self.objects.insert(key(*dst), copy);
            }
            Op::CloneRange { src, dst, src_offset, len, dst_offset } => {
                self.clone_range(&key(*src), key(*dst), *src_offset as usize, *len as usize, *dst_offset);
            }
            Op::MoveRange { src, dst, src_offset, len, dst_offset, .. } => {
                self.move_range(&key(*src), key(*dst), *src_offset as usize, *len as usize, *dst_offset);
            }
            Op::Rename { src, dst } => {
                if src != dst {
                    let moved = self.objects.remove(&key(*src)).expect("source");
                    self.objects.insert(key(*dst), moved);
                }
            }
            Op::Set { space, key, value } => {
                self.keys.insert((*space, key.clone()), value.clone());
            }
            Op::Unset { space, key } => {
                self.keys.remove(&(*space, key.clone()));
            }
            Op::UnsetRange { space, start, end } => {
                self.keys.retain(|(s, k), _| s != space || k < start || k >= end);
            }
            Op::DropSpace { space } => self.keys.retain(|(s, _), _| s != space),
        }
    }

    fn clone_range(&mut self, src: &ObjectKey, dst: ObjectKey, from: usize, len: usize, to: u64) {
        let mut copy = self.objects[src].clone();
        copy.resize(copy.data.len().max(from + len));
        let o = self.edit(dst);
        o.write(to, &copy.data[from..from + len]);
        if len > 0 {
            o.written[to as usize..][..len].copy_from_slice(&copy.written[from..from + len]);
        }
    }

    fn move_range(&mut self, src: &ObjectKey, dst: ObjectKey, from: usize, len: usize, to: u64) {
        let source = self.objects.get_mut(src).expect("source");
        let moved = source.data[from..from + len].to_vec();
        source.data[from..from + len].fill(0);
        source.written[from..from + len].fill(false);
        self.edit(dst).write(to, &moved);
    }

    fn edit(&mut self, key: ObjectKey) -> &mut ModelObject {
        self.objects.entry(key).or_default()
    }

    fn existing(&mut self, key: ObjectKey, change: impl FnOnce(&mut ModelObject)) {
        if let Some(o) = self.objects.get_mut(&key) {
            change(o);
        }
    }

    /// Everything a store holds, read through its public calls.
    pub fn read_from(store: &mut Store) -> Self {
        let mut model = Self::default();
        for shard in [-1, 0, 1] {
            let mut from = HObject::min();
            loop {
                let page = store.list(shard, &from, &HObject::max(), 7).expect("list");
                let skip = page.first() == Some(&from);
                if page.len() <= usize::from(skip) {
                    break;
                }
                for object in page.iter().skip(usize::from(skip)) {
                    let key = ObjectKey::new(shard, object.clone());
                    let read = read_object(store, &key);
                    model.objects.insert(key, read);
                }
                from = page.last().expect("not empty").clone();
            }
        }
        let all: Vec<ObjectKey> = model.objects.keys().cloned().collect();
        assert_eq!(store.list_all(None, usize::MAX), Ok(all.clone()));
        assert_eq!(store.list_all(all.first(), 2), Ok(all.iter().skip(1).take(2).cloned().collect()));
        for space in store.spaces().expect("spaces") {
            for (k, v) in store.scan(space, &[], None, usize::MAX).expect("scan") {
                assert_eq!(store.get(space, &k), Ok(Some(v.clone())));
                model.keys.insert((space, k), v);
            }
        }
        model
    }

    /// Asserts that the store holds exactly this.
    pub fn assert_same(&self, store: &mut Store, what: &str) {
        let found = Self::read_from(store);
        assert_eq!(
            found.objects.keys().collect::<Vec<_>>(),
            self.objects.keys().collect::<Vec<_>>(),
            "{what}: objects"
        );
        for (key, object) in &self.objects {
            let other = &found.objects[key];
            assert_eq!(other.attrs, object.attrs, "{what}: attributes of {}", key.object);
            assert_eq!(other.omap, object.omap, "{what}: omap of {}", key.object);
            assert_eq!(other.header, object.header, "{what}: header of {}", key.object);
            assert_eq!(other.data.len(), object.data.len(), "{what}: size of {}", key.object);
            let differs = other.written.iter().zip(&object.written).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{what}: a hole of {}", key.object);
            if other.data != object.data {
                let differs = other.data.iter().zip(&object.data).position(|(a, b)| a != b);
                panic!("{what}: data of {} differs at byte {differs:?}", key.object);
            }
        }
        assert_eq!(found.keys, self.keys, "{what}: keys");
    }
}

fn read_object(store: &mut Store, key: &ObjectKey) -> ModelObject {
    let stat = store.stat(key).expect("stat").expect("listed");
    let data = store.read(key, 0, u64::MAX).expect("read");
    assert_eq!(data.len() as u64, stat.size);
    let mut written = vec![false; data.len()];
    let mut allocated = std::collections::BTreeSet::new();
    for (offset, len) in store.extents(key, 0, u64::MAX).expect("extents") {
        let range = offset as usize..(offset + len) as usize;
        allocated.extend(range.start / 4096..=(range.end - 1) / 4096);
        written[range].fill(true);
    }
    assert_eq!(stat.allocated_bytes, allocated.len() as u64 * 4096, "blocks without data are free");
    let mut omap = BTreeMap::new();
    let mut last: Option<Bytes> = None;
    loop {
        let from = last.as_ref().map_or(Bound::Unbounded, |k| Bound::Excluded(k.as_ref()));
        let (page, more) = store.omap_list(key, from, 5, 1 << 20).expect("omap");
        last = page.last().map(|(k, _)| k.clone());
        omap.extend(page);
        if !more {
            break;
        }
    }
    ModelObject {
        data: data.to_vec(),
        written,
        attrs: store.attrs(key).expect("attrs").into_iter().collect(),
        omap,
        header: store.omap_header(key).expect("header"),
    }
}

impl ModelObject {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset as usize + data.len();
        if data.is_empty() {
            return;
        }
        if self.data.len() < end {
            self.resize(end);
        }
        self.data[offset as usize..end].copy_from_slice(data);
        self.written[offset as usize..end].fill(true);
    }

    fn resize(&mut self, size: usize) {
        self.data.resize(size, 0);
        self.written.resize(size, false);
    }
}
