//! Methods in sequence, as librbd calls them.

use std::collections::BTreeSet;

use bytes::Bytes;
use codec::{Decode, Encode};
use serde_json::Value;
use types::Errno;

use super::bits::BitVector;
use super::children::ChildSpec;
use super::types::{HEAD, Parent, Snap};
use super::{group, migration, mirror, trash};
use crate::fake::{Fake, FakeObject};
use crate::replay::bytes;

#[test]
fn an_id_is_set_once() {
    let mut f = Fake::default();
    let id = |text: &str| text.to_owned().to_bytes();
    assert_eq!(f.call("rbd", "set_id", id("a1")), Err(Errno::ENOENT));
    assert_eq!(f.call("rbd", "get_id", ""), Err(Errno::ENOENT));
    f.object = Some(FakeObject::default());
    assert_eq!(f.call("rbd", "get_id", ""), Err(Errno::ENOENT));
    for bad in ["", "a b", "ä"] {
        assert_eq!(f.call("rbd", "set_id", id(bad)), Err(Errno::EINVAL), "{bad:?}");
    }
    assert!(f.call("rbd", "set_id", id("a1")).is_ok());
    assert_eq!(f.call("rbd", "set_id", id("b2")), Err(Errno::EEXIST));
    assert_eq!(f.call("rbd", "get_id", ""), Ok((0, id("a1"))));
    let mut f = Fake::with_data("no id");
    assert_eq!(f.call("rbd", "get_id", ""), Err(Errno::EIO));
}

/// A value comes back as it was stored.
fn round_trip<T: Encode + Decode>(raw: Bytes) {
    assert_eq!(T::from_bytes(raw.clone()).unwrap().to_bytes(), raw);
    for n in 0..raw.len() {
        assert!(T::from_bytes(raw.slice(..n)).is_err(), "{n} of {raw:x?}");
    }
}

/// `tests/data/stored.jsonl` holds the objects that `rbd` 16.2.15 left in two pools of Ceph after it had made, in one or
/// the other, an image with metadata, a limit, protected, plain and trashed snapshots and clones of both generations, a
/// striped image with a data pool in a group with a snapshot, an image in the trash, a namespace, a mirrored image with
/// mirror snapshots, a migrating image and a journaled one.
#[test]
fn what_ceph_stored_is_what_we_would_store() {
    let mut values = 0;
    for line in include_str!("../../tests/data/stored.jsonl").lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let name = object["object"].as_str().unwrap();
        if name.starts_with("rbd_object_map") {
            round_trip::<BitVector>(bytes(&object["data"]));
        }
        for (key, value) in object["omap"].as_object().unwrap() {
            let (key, value) = (bytes(&key.as_str().into()), bytes(value));
            values += 1;
            let begins = |prefix: &str| key.starts_with(prefix.as_bytes());
            match name.split('.').next().unwrap() {
                "rbd_header" if begins("snapshot_") => round_trip::<Snap>(value),
                "rbd_header" if begins("snap_children_") => round_trip::<BTreeSet<ChildSpec>>(value),
                "rbd_header" if begins("parent") => round_trip::<Parent>(value),
                "rbd_header" if begins("migration") => round_trip::<migration::Spec>(value),
                "rbd_header" if begins("rbd_group_ref") => round_trip::<group::GroupSpec>(value),
                "rbd_header" if begins("metadata_") => assert_eq!(value, "blue"),
                "rbd_header" if begins("object_prefix") => round_trip::<Bytes>(value),
                "rbd_header" if key == "order" => round_trip::<u8>(value),
                "rbd_header" => round_trip::<u64>(value),
                "rbd_group_header" if begins("snapshot_") => round_trip::<group::GroupSnap>(value),
                "rbd_group_header" => round_trip::<u8>(value),
                "rbd_trash" => round_trip::<trash::TrashSpec>(value),
                "rbd_children" => round_trip::<BTreeSet<Bytes>>(value),
                "rbd_mirroring" if begins("mirror_peer_") => round_trip::<mirror::peer::Peer>(value),
                "rbd_mirroring" if begins("image_") => round_trip::<mirror::image::MirrorImage>(value),
                "rbd_mirroring" if begins("global_") => round_trip::<Bytes>(value),
                "rbd_mirroring" if begins("mirror_mode") => round_trip::<u32>(value),
                "rbd_directory" | "rbd_group_directory" => round_trip::<Bytes>(value),
                _ => values -= 1,
            }
        }
    }
    assert!(values > 100, "{values}");
}

/// Objects of Ceph, read by the methods that librbd opens an image with.
#[test]
fn an_image_of_ceph_opens() {
    let lines = include_str!("../../tests/data/stored.jsonl").lines();
    let objects: Vec<Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
    let find = |name: &str| {
        let found = objects.iter().find(|o| o["object"] == name).unwrap();
        Fake::with(crate::replay::stored(found))
    };
    let text = |out: Bytes| Bytes::from_bytes(out).unwrap();
    let call = |f: &mut Fake, method: &str, input: Bytes| f.call("rbd", method, input).unwrap().1;
    let id = text(call(&mut find("rbd_id.img"), "get_id", Bytes::new()));
    let mut dir = find("rbd_directory");
    assert_eq!(text(call(&mut dir, "dir_get_name", id.to_bytes())), "img");
    assert_eq!(text(call(&mut dir, "dir_get_id", Bytes::from_static(b"img").to_bytes())), id);
    let mut f = find(&format!("rbd_header.{}", std::str::from_utf8(&id).unwrap()));
    assert_eq!(call(&mut f, "get_size", HEAD.to_bytes()), [&[22][..], &(64u64 << 20).to_le_bytes()].concat());
    let (seq, ids) = <(u64, Vec<u64>)>::from_bytes(call(&mut f, "get_snapcontext", Bytes::new())).unwrap();
    assert_eq!((seq, ids.len(), ids[0]), (6, 3, 6));
    assert_eq!(call(&mut f, "get_protection_status", ids[2].to_bytes())[..], [2]);
    let children = call(&mut f, "children_list", ids[1].to_bytes());
    assert_eq!(BTreeSet::<ChildSpec>::from_bytes(children).unwrap().len(), 1);
    assert_eq!(f.call("rbd", "snapshot_remove", ids[1].to_bytes()), Err(Errno::EBUSY));
    assert_eq!(call(&mut f, "snapshot_get_limit", Bytes::new()), 9u64.to_bytes());
}

/// `src/cls/rbd` at hand stores every report; 16.2.15 was seen to drop those of images that are not enabled.
#[test]
fn a_status_is_kept_only_while_its_image_is_mirrored() {
    let status = |uuid: &[u8]| {
        let mut w = codec::Writer::new();
        Bytes::from_static(b"g").encode(&mut w);
        let version = if uuid.is_empty() { 1 } else { 2 };
        w.envelope(version, version, |w| {
            if version == 2 {
                w.blob(uuid);
            }
            w.u8(4);
            w.blob(b"replaying");
            w.u64(0);
            w.u8(0);
        });
        w.into_bytes()
    };
    let image = |state: u8| {
        let mut w = codec::Writer::new();
        w.blob(b"1a");
        w.envelope(2, 1, |w| {
            w.blob(b"g");
            w.u8(state);
            w.u8(0);
        });
        w.into_bytes()
    };
    let mut f = Fake::default();
    let keys = |f: &Fake| f.object.as_ref().map_or(0, |o| o.omap.len());
    assert!(f.call("rbd", "mirror_image_status_set", status(b"")).is_ok());
    assert_eq!(keys(&f), 0);
    f.call("rbd", "mirror_image_set", image(1)).unwrap();
    for uuid in [&b""[..], b"m"] {
        f.call("rbd", "mirror_image_status_set", status(uuid)).unwrap();
    }
    assert_eq!(keys(&f), 4);
    f.call("rbd", "mirror_image_set", image(0)).unwrap();
    f.call("rbd", "mirror_image_status_remove", Bytes::from_static(b"g").to_bytes()).unwrap();
    f.call("rbd", "mirror_image_status_set", status(b"")).unwrap();
    assert_eq!(keys(&f), 2);
}

/// A stored map without checksums, as librbd copies one for a snapshot, can still be changed in part.
#[test]
fn an_object_map_without_checksums_takes_updates() {
    let mut map = BitVector::default().with_crc(false);
    map.resize(100_000);
    let mut f = Fake::with(FakeObject { data: map.to_bytes().to_vec(), ..FakeObject::default() });
    let update = (40_000u64, (40_001u64, (2u8, None::<u8>))).to_bytes();
    assert!(f.call("rbd", "object_map_update", update).is_ok());
    let (_, out) = f.call("rbd", "object_map_load", "").unwrap();
    map.set(40_000, 2);
    assert_eq!(BitVector::from_bytes(out), Ok(map));
}

/// Sizes and features that librbd lets through and the class refuses, with the image untouched.
#[test]
fn bad_headers_are_refused() {
    let create = |features: u64, prefix: &'static str, pool: Option<i64>| {
        let mut w = codec::Writer::new();
        w.u64(1 << 20);
        w.u8(22);
        w.u64(features);
        w.blob(prefix.as_bytes());
        if let Some(pool) = pool {
            pool.encode(&mut w);
        }
        w.into_bytes()
    };
    let mut f = Fake::default();
    for (features, prefix, pool, error) in [
        (1 << 12, "p", None, Errno::ENOSYS),
        (1, "", None, Errno::EINVAL),
        (1 << 8, "p", None, Errno::EINVAL),
        (1 << 7, "p", None, Errno::EINVAL),
        (1, "p", Some(3), Errno::EINVAL),
    ] {
        assert_eq!(f.call("rbd", "create", create(features, prefix, pool)), Err(error), "{features:x}");
        assert_eq!(f.object, None);
    }
    f.call("rbd", "create", create(0x3d, "p", None)).unwrap();
    assert_eq!(f.call("rbd", "create", create(0x3d, "p", None)), Err(Errno::EEXIST));
    let before = f.object.clone();
    // Layering cannot be switched, and nobody but the class itself says that an image migrates.
    for (bits, mask) in [(0u64, 1u64), (1, 1), (0x200, 0x200), (0x20, 0x20)] {
        assert_eq!(f.call("rbd", "set_features", (bits, mask).to_bytes()), Err(Errno::EINVAL), "{bits:x}");
    }
    assert_eq!(f.object, before);
}
