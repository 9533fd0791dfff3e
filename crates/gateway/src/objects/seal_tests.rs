//! Encrypted objects in a cluster in memory: as radosgw stores them, and never read without their key.
//!
//! `tests/data/encrypted.txt` is what radosgw 16.2.15 stored of ramps of bytes: for each key its size, or
//! those of its parts, the attributes of its head, and for each of its RADOS objects where it begins in the
//! whole and some of its bytes behind their offset in it.

use std::collections::BTreeMap;

use rgw::crypt::{KEY, Key as CipherKey};
use rgw::{Cipher, Encryption, Manifest};

use super::tests::*;
use super::upload_tests::{complete, joined, part};
use super::*;
use crate::cluster::{Cluster, NOW, run, site};
use crate::system::Attrs;
use crate::{Op, Plan, Request};

const CAPTURED: &str = include_str!("../../tests/data/encrypted.txt");

/// The key that a client of radosgw brought.
fn customer_key() -> CipherKey {
    let bytes: Vec<u8> = (0..KEY as u8).collect();
    CipherKey::new(&bytes).unwrap()
}

/// The keys that radosgw had in its configuration: of its service, and its own.
fn service_key() -> CipherKey {
    CipherKey::new(&[0x11; KEY]).unwrap()
}

fn own_key() -> CipherKey {
    CipherKey::new(&[0x22; KEY]).unwrap()
}

/// The key of what is encrypted so.
fn key_of(encryption: &Encryption) -> CipherKey {
    let selector = |bytes: &Bytes| <[u8; KEY]>::try_from(&bytes[..]).unwrap();
    match encryption {
        Encryption::Customer { .. } => customer_key(),
        Encryption::Service { selector: s, .. } => service_key().derived(&selector(s)),
        Encryption::Automatic { selector: s } => own_key().derived(&selector(s)),
        Encryption::Stored { .. } | Encryption::Unknown => panic!("radosgw 16.2 has none of these"),
    }
}

fn seal_of(encryption: &Encryption) -> Seal {
    Seal { cipher: Arc::new(Cipher::new(&key_of(encryption))), encryption: encryption.clone() }
}

pub(super) fn seal() -> Seal {
    seal_of(&Encryption::Customer { key_md5: "sixteen bytes ..".into() })
}

/// What radosgw stored under one key.
#[derive(Default)]
struct Captured {
    sizes: Vec<usize>,
    attrs: Attrs,
    /// Where the RADOS object begins in the whole, its size, an offset in it, and bytes from there on.
    data: Vec<(u64, usize, usize, Bytes)>,
}

impl Captured {
    fn all() -> BTreeMap<&'static str, Self> {
        let mut all: BTreeMap<&str, Self> = BTreeMap::new();
        for line in CAPTURED.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |n: usize| words[n].parse().unwrap();
            let hex = |n: usize| -> Bytes {
                let digits = (0..words[n].len()).step_by(2);
                digits.map(|i| u8::from_str_radix(&words[n][i..i + 2], 16).unwrap()).collect()
            };
            let of = all.entry(words[1]).or_default();
            match words[0] {
                "sizes" => of.sizes = (2..words.len()).map(|n| number(n) as usize).collect(),
                "attr" => drop(of.attrs.insert(words[2].into(), hex(3))),
                "data" => of.data.push((number(2), number(3) as usize, number(4) as usize, hex(5))),
                kind => panic!("{kind}"),
            }
        }
        all
    }

    fn plain(&self) -> Vec<u8> {
        self.sizes.iter().flat_map(|size| ramp(*size)).collect()
    }

    fn encryption(&self) -> Encryption {
        Encryption::told_by(&self.attrs).unwrap()
    }
}

pub(super) fn put_sealed(c: &mut Cluster, b: &SharedBucket, key: &str, data: &[u8], seal: Seal) {
    let number = c.done.len() as u64;
    let key = Key::plain(key.as_bytes().to_vec());
    let pieces: Vec<Bytes> = data.chunks(3 * MIB + 7).map(Bytes::copy_from_slice).collect();
    run(c, |moment| {
        let upload = site().put(b, key, Bytes::new(), number, moment).unwrap().sealed(Some(seal));
        let write = |plan: Plan<Upload>, piece| plan.and_then(move |upload: Upload| upload.write(piece));
        let written = pieces.into_iter().fold(Plan::ok(upload), write);
        written.and_then(move |upload| upload.finish(finish(Condition::Any)))
    })
    .unwrap();
}

pub(super) fn begin_sealed(c: &mut Cluster, b: &SharedBucket, name: &'static str, seal: &Seal) -> UploadId {
    let rule = PlacementRule::named("default-placement");
    let attrs = seal.encryption.attrs().into_iter().chain(super::upload_tests::attrs()).collect();
    run(c, |moment| site().begin_upload(b, name.into(), rule, attrs, moment)).unwrap()
}

pub(super) fn part_sealed(
    c: &mut Cluster,
    b: &SharedBucket,
    upload: &UploadId,
    number: u32,
    data: &[u8],
    seal: &Seal,
) -> Bytes {
    let etag: Bytes = format!("{number}").into();
    let finish = FinishPart {
        attrs: super::upload_tests::attrs(),
        etag: etag.clone(),
        accounted_size: None,
        compression: rgw::Compression::default(),
        checksum: None,
        now: NOW,
    };
    let pieces: Vec<Bytes> = data.chunks(3 * MIB + 7).map(Bytes::copy_from_slice).collect();
    let cipher = seal.cipher.clone();
    run(c, |moment| {
        let begun = site().put_part(b, upload.clone(), number, moment);
        let begun = begun.and_then(move |part| Plan::ok(part.unlocked(cipher)));
        let write = |plan: Plan<Part>, piece| plan.and_then(move |part: Part| part.write(piece));
        pieces.into_iter().fold(begun, write).and_then(move |part| part.finish(finish))
    })
    .unwrap();
    etag
}

fn open(c: &mut Cluster, b: &SharedBucket, key: &str, prefetch: u64) -> Opened {
    run(c, |m| site().open(b, &Key::plain(key.as_bytes().to_vec()), prefetch, m)).unwrap()
}

/// What lies in RADOS of an object, stripe by stripe.
fn stored(c: &Cluster, head: &Head) -> Vec<(u64, Bytes)> {
    let manifest = head.manifest.clone().unwrap();
    let stripes = manifest.stripes(100);
    let stripe = |s: &rgw::Stripe| {
        let raw = site().raw(&s.object, &s.placement).unwrap();
        let data = &c.get(DATA, std::str::from_utf8(&raw.oid).unwrap()).unwrap().data;
        (s.at, Bytes::copy_from_slice(data))
    };
    stripes.iter().map(stripe).collect()
}

#[test]
fn objects_are_stored_as_radosgw_stores_them() {
    for (key, captured) in Captured::all() {
        let (mut c, seal) = (Cluster::default(), seal_of(&captured.encryption()));
        let b = bucket(&mut c);
        match &captured.sizes[..] {
            [size] => put_sealed(&mut c, &b, key, &ramp(*size), seal),
            sizes => {
                let upload = begin_sealed(&mut c, &b, "parts", &seal);
                let parts: Vec<(u32, Bytes)> = (1..)
                    .zip(sizes)
                    .map(|(n, size)| (n, part_sealed(&mut c, &b, &upload, n, &ramp(*size), &seal)))
                    .collect();
                let done = Complete {
                    parts,
                    etag: joined,
                    condition: Condition::Any,
                    of_parts: None,
                    number: 900,
                    now: NOW,
                };
                run(&mut c, |m| site().complete_upload(&b, upload, done, m)).unwrap();
            }
        }
        let opened = open(&mut c, &b, key, 0);
        let said = |attrs: &Attrs| -> Attrs {
            attrs.iter().filter(|(n, _)| Encryption::tells(n)).map(|(n, v)| (n.clone(), v.clone())).collect()
        };
        assert_eq!(said(&opened.head.attrs), said(&captured.attrs), "{key}");
        let stored: BTreeMap<u64, Bytes> = stored(&c, &opened.head).into_iter().collect();
        for (at, size, offset, bytes) in &captured.data {
            let none = Bytes::new();
            let data = if *size == 0 { &none } else { &stored[at] };
            assert_eq!((data.len(), &data[*offset..offset + bytes.len()]), (*size, &bytes[..]), "{key} {at}");
        }
        // And the other way round.
        let plain = captured.plain();
        let opened = opened.unlocked(Arc::new(Cipher::new(&key_of(&captured.encryption()))));
        assert!(opened.read(0, u64::MAX).run(&mut c).unwrap() == plain, "{key}");
    }
}

/// Heads and bytes that radosgw wrote, put into a cluster as they were.
#[test]
fn what_radosgw_stored_is_read() {
    let mut read = 0;
    for (key, captured) in Captured::all() {
        let [(0, size, 0, bytes)] = &captured.data[..] else { continue };
        if *size != bytes.len() {
            continue;
        }
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        let object = site().head_object(&b, &Key::plain(key)).unwrap();
        let request = Request::new(object).op(Op::WriteFull(bytes.clone()));
        let write = |request: Request, (n, v): (&Bytes, &Bytes)| request.set_attr(n.clone(), v.clone());
        Plan::ask(captured.attrs.iter().fold(request, write)).run(&mut c).unwrap();
        for prefetch in [0, 4096] {
            let opened = open(&mut c, &b, key, prefetch);
            assert_eq!(opened.read(0, u64::MAX).run(&mut c), refused(opened.size()), "{key}");
            let opened = opened.unlocked(Arc::new(Cipher::new(&key_of(&captured.encryption()))));
            assert_eq!(opened.read(0, u64::MAX).run(&mut c).unwrap(), captured.plain(), "{key}");
        }
        read += 1;
    }
    assert!(read >= 8, "{read}");
}

/// Of nothing there is nothing to keep from anybody.
fn refused(_size: u64) -> Result<Bytes, Error> {
    Err(Error::Encrypted)
}

#[test]
fn manifests_of_radosgw_tell_where_parts_begin() {
    use codec::Decode;
    for (key, captured) in Captured::all() {
        let Some(raw) = captured.attrs.get(attr::MANIFEST) else { continue };
        let manifest = Manifest::from_bytes(raw.clone()).unwrap();
        let mut at = 0;
        for size in captured.sizes.iter().map(|size| *size as u64).filter(|size| *size > 0) {
            for offset in [at, at + size / 2, at + size - 1] {
                assert_eq!(manifest.part_at(offset), Some(at..at + size), "{key} {offset}");
            }
            at += size;
        }
        assert_eq!(manifest.part_at(at), None);
    }
}

#[test]
fn ranges_are_those_of_what_was_written() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let seal = seal();
    let data = ramp(9 * MIB + 4099);
    put_sealed(&mut c, &b, "k", &data, seal.clone());
    let sizes = [5 * MIB + 3, 6 * MIB + 4097, 5];
    let upload = begin_sealed(&mut c, &b, "parts", &seal);
    let parts: Vec<(u32, Bytes)> = (1..)
        .zip(sizes)
        .map(|(n, size)| (n, part_sealed(&mut c, &b, &upload, n, &ramp(size), &seal)))
        .collect();
    let done =
        Complete { parts, etag: joined, condition: Condition::Any, of_parts: None, number: 900, now: NOW };
    run(&mut c, |m| site().complete_upload(&b, upload, done, m)).unwrap();
    let whole: Vec<u8> = sizes.iter().flat_map(|size| ramp(*size)).collect();
    for (key, data, edges) in [
        ("k", &data, vec![4 * MIB, 8 * MIB, 9 * MIB + 4096]),
        ("parts", &whole, vec![4 * MIB, sizes[0], sizes[0] + 4096, sizes[0] + 4 * MIB, sizes[0] + sizes[1]]),
    ] {
        let opened = open(&mut c, &b, key, 1 << 20).unlocked(seal.cipher.clone());
        let ends = [0, 1, 15, 16, 17, 4095, 4096, 4097, data.len()];
        let near = edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]);
        let places: Vec<usize> = ends.into_iter().chain(near).filter(|at| *at <= data.len()).collect();
        for from in &places {
            // To decipher all of them takes minutes.
            let is_short = |to: &usize| to - from <= 64 << 10 || (*from == 15 && *to == data.len());
            for to in places.iter().filter(|to| *to >= from && is_short(to)) {
                let read = opened.read(*from as u64, (to - from) as u64).run(&mut c).unwrap();
                assert!(read == data[*from..*to], "{key} {from}..{to}");
            }
        }
    }
}

#[test]
fn nothing_stored_is_read_without_its_key() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    put_sealed(&mut c, &b, "k", &ramp(5 * MIB), seal());
    let opened = open(&mut c, &b, "k", 1024);
    assert_eq!(opened.read(0, 10).run(&mut c), Err(Error::Encrypted));
    assert_eq!(opened.read(5 * MIB as u64 - 1, 10).run(&mut c), Err(Error::Encrypted));
    // Nor is it copied.
    for to in ["copy", "k"] {
        let before = c.names(DATA).len();
        assert_eq!(copy(&mut c, &b, "k", to), Err(Error::Encrypted), "{to}");
        assert_eq!((c.names(DATA).len(), list(&mut c, &b)), (before, vec!["k".to_owned()]));
    }
    // What says something of encryption that radosgw does not say is not read either.
    for name in ["user.rgw.crypt.mode", "user.rgw.crypt.datakey"] {
        put(&mut c, &b, "odd", b"data").unwrap();
        let object = open(&mut c, &b, "odd", 0).head.object;
        let request = Request::new(object).set_attr(Bytes::from(name), Bytes::from("AES256"));
        Plan::ask(request).run(&mut c).unwrap();
        let odd = open(&mut c, &b, "odd", 1024);
        assert_eq!(odd.head.encryption(), Some(Encryption::Unknown));
        assert_eq!(odd.read(0, 10).run(&mut c), Err(Error::Encrypted), "{name}");
        remove(&mut c, &b, "odd").unwrap();
    }
}

#[test]
fn a_copy_is_encrypted_as_it_is_asked_for() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let data = ramp(9 * MIB + 5);
    let other = Seal {
        cipher: Arc::new(Cipher::new(&service_key())),
        encryption: Encryption::Customer { key_md5: "another sixteen.".into() },
    };
    let copied = |c: &mut Cluster, from: &str, to: &str, key: Option<&Seal>, seal: Option<&Seal>| {
        let opened = open(c, &b, from, 0);
        let opened = key.map_or(opened.clone(), |key| opened.unlocked(key.cipher.clone()));
        let mut finish = finish(Condition::Any);
        finish.attrs.extend(opened.head.attrs.clone());
        let key = Key::plain(to.as_bytes().to_vec());
        let to = CopyTo { finish, seal: seal.cloned(), ..copy_to(&b, key, c.done.len() as u64) };
        run(c, |moment| site().copy(opened, to, moment)).unwrap();
    };
    put(&mut c, &b, "plain", &data).unwrap();
    copied(&mut c, "plain", "sealed", None, Some(&seal()));
    copied(&mut c, "sealed", "other", Some(&seal()), Some(&other));
    copied(&mut c, "other", "again", Some(&other), None);
    copied(&mut c, "sealed", "sealed", Some(&seal()), Some(&other));
    for (key, with) in [("sealed", Some(&other)), ("other", Some(&other)), ("again", None), ("plain", None)] {
        let opened = open(&mut c, &b, key, 0);
        let says = opened.head.encryption();
        assert_eq!(says, with.map(|seal| seal.encryption.clone()), "{key}");
        let opened = with.map_or(opened.clone(), |seal| opened.unlocked(seal.cipher.clone()));
        assert!(opened.read(0, u64::MAX).run(&mut c).unwrap() == data, "{key}");
    }
    collect_garbage(&mut c);
    let opened = open(&mut c, &b, "sealed", 0).unlocked(other.cipher.clone());
    assert!(opened.read(0, u64::MAX).run(&mut c).unwrap() == data, "its own tail is not garbage");
}

#[test]
fn a_part_is_written_with_its_uploads_key_alone() {
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    let seal = seal();
    let upload = begin_sealed(&mut c, &b, "parts", &seal);
    for size in [0, 5, 5 * MIB] {
        let before = c.names(DATA).len();
        assert_eq!(part(&mut c, &b, &upload, 1, &ramp(size), "a").map(drop), Err(Error::Encrypted));
        assert_eq!(c.names(DATA).len(), before);
    }
    // One that was uploaded before lies beside the one that takes its place, and both are encrypted once.
    part_sealed(&mut c, &b, &upload, 1, &ramp(9 * MIB), &seal);
    part_sealed(&mut c, &b, &upload, 1, &ramp(6 * MIB + 1), &seal);
    complete(&mut c, &b, &upload, &[(1, "1")]).unwrap();
    let opened = open(&mut c, &b, "parts", 0).unlocked(seal.cipher.clone());
    assert!(opened.read(0, u64::MAX).run(&mut c).unwrap() == ramp(6 * MIB + 1));
}

/// What radosgw 16.2 would take for plain bytes.
fn stored_seal() -> Seal {
    let encryption = Encryption::Stored { key_id: "a.b".into(), selector: vec![7; KEY].into() };
    Seal { cipher: Arc::new(Cipher::new(&own_key())), encryption }
}

/// Source: RGWGetObj_Decompress::handle_data in src/rgw/rgw_compression.cc, and get_multipart_info in
/// src/rgw/rgw_op.cc.
#[test]
fn radosgw_is_kept_from_what_it_would_give_away() {
    use codec::{Decode, Encode};
    let compression = |head: &Head| {
        let raw = head.attrs.get(attr::COMPRESSION).cloned().map(rgw::Compression::from_bytes);
        raw.transpose().unwrap()
    };
    let mut c = Cluster::default();
    let b = bucket(&mut c);
    with_queues(&mut c);
    let (seal, data) = (stored_seal(), ramp(6 * MIB));
    put_sealed(&mut c, &b, "k", &data, seal.clone());
    put_sealed(&mut c, &b, "empty", b"", seal.clone());
    let upload = begin_sealed(&mut c, &b, "parts", &seal);
    let object = site().head_object(&b, &Key::within(NAMESPACE, [&b"parts."[..], &upload.id, META].concat()));
    let read = Request::new(object.unwrap()).op(Op::Read { offset: 0, length: 0 });
    let begun = Plan::ask(read).run(&mut c).unwrap().data(0).unwrap();
    assert_eq!(begun.get(..2), Some(&[255, 255][..]), "a version that 16.2 refuses");
    assert!(rgw::UploadInfo::from_bytes(begun).unwrap().is_sealed);
    part_sealed(&mut c, &b, &upload, 1, &data, &seal);
    part_sealed(&mut c, &b, &upload, 2, b"end", &seal);
    complete(&mut c, &b, &upload, &[(1, "1"), (2, "2")]).unwrap();
    for (key, blocks, size) in [("k", 1, data.len()), ("empty", 1, 0), ("parts", 2, data.len() + 3)] {
        let opened = open(&mut c, &b, key, 0);
        let told = compression(&opened.head).unwrap();
        assert!(told.is_sealed() && told.kind != rgw::Compression::default().kind);
        assert_eq!(
            (told.blocks.len(), told.size, opened.size()),
            (blocks, size as u64, size as u64),
            "{key}"
        );
        let last = told.blocks.last().unwrap();
        assert_eq!(last.stored + last.length, size as u64);
        let opened = opened.unlocked(seal.cipher.clone());
        assert_eq!(opened.read(0, 4).run(&mut c).unwrap(), data[..4.min(size)], "{key}");
    }
    // A copy in plain bytes says nothing of it.
    let opened = open(&mut c, &b, "k", 0).unlocked(seal.cipher.clone());
    let mut done = finish(Condition::Any);
    done.attrs.extend(opened.head.attrs.clone());
    let to = CopyTo { finish: done, ..copy_to(&b, Key::plain("plain"), 901) };
    run(&mut c, |moment| site().copy(opened, to, moment)).unwrap();
    let plain = open(&mut c, &b, "plain", 0).head;
    assert_eq!((compression(&plain), plain.encryption()), (None, None));
    assert!(get(&mut c, &b, "plain").unwrap() == data);
    // Of what is sealed otherwise nothing is said: radosgw reads it, or refuses.
    put_sealed(&mut c, &b, "customer", b"data", seal_of(&Encryption::Customer { key_md5: "sum".into() }));
    assert_eq!(compression(&open(&mut c, &b, "customer", 0).head), None);
    assert_eq!(rgw::UploadInfo::default().to_bytes().get(..2), Some(&[1, 1][..]));
}
