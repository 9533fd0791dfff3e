//! Reading an object. Source: RGWRados::Object::Read, iterate_obj in src/rgw/rgw_rados.cc.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rgw::{Cipher, Key, RawObject};
use types::Errno;

use super::put::STRIPE;
use super::{Head, SharedBucket, attr};
use crate::plan::optional;
use crate::system::{Attrs, own};
use crate::{Error, Moment, Op, Plan, Reply, Request, Site};

/// An object whose head was read. Its bytes are those of that moment, also when another one replaces it
/// meanwhile: the tail stays for two hours, and a head that is another one is not read.
#[derive(Debug, Clone)]
pub struct Opened {
    site: Site,
    pub head: Head,
    /// Its key's, where it is encrypted.
    pub(super) cipher: Option<Arc<Cipher>>,
}

impl Site {
    /// Opens an object: the version that the key names, or the one that is shown. Up to `prefetch` bytes come
    /// with the head: a small object takes one request. In a bucket that keeps versions, the plan may change
    /// something, and is to be carried out to its end.
    pub fn open(&self, bucket: &SharedBucket, key: &Key, prefetch: u64, moment: &mut Moment) -> Plan<Opened> {
        let site = self.clone();
        self.shown(bucket, key, prefetch.min(STRIPE), moment).try_map(move |head| {
            let head = head.ok_or(Error::NoSuchKey)?;
            Ok(Opened { site, head, cipher: None })
        })
    }
}

impl Opened {
    /// An object whose head was read.
    pub(super) fn of(site: &Site, head: Head) -> Self {
        Self { site: site.clone(), head, cipher: None }
    }

    pub fn size(&self) -> u64 {
        self.head.size()
    }

    /// Bytes from `offset` on, fewer than `length` at the end. They are read at once: the caller bounds what
    /// it holds. Those of an encrypted object are read with its key alone.
    pub fn read(&self, offset: u64, length: u64) -> Plan<Bytes> {
        let end = offset.saturating_add(length).min(self.size());
        match self.head.encryption() {
            Some(_) => self.read_deciphered(offset, end),
            None => self.read_stored(offset, end),
        }
    }

    /// Attributes of parts, by their numbers, which their first objects have; nothing for those that are not
    /// there. The caller bounds how many are asked for at once.
    pub fn part_attrs(&self, numbers: &[u32]) -> Plan<Vec<Attrs>> {
        let place = |number: &u32| -> Result<Request, Error> {
            let span = self.head.manifest.as_ref().and_then(|manifest| manifest.part_numbered(*number));
            let (object, ..) = self.place(span.ok_or(Error::InvalidPart)?.start)?;
            Ok(Request::new(object).op(Op::Attrs))
        };
        let requests: Vec<Request> = match numbers.iter().map(place).collect::<Result<_, Error>>() {
            Ok(requests) => requests,
            Err(e) => return Plan::failed(e),
        };
        let attrs = |reply: Result<Reply, Errno>| -> Result<Attrs, Error> {
            match reply {
                Ok(reply) => Ok(own(reply.attrs(0)?)),
                Err(Errno::ENOENT) => Ok(Attrs::new()),
                Err(e) => Err(Error::from(e)),
            }
        };
        Plan::ask_each(requests).try_map(move |replies| replies.into_iter().map(attrs).collect())
    }

    /// Bytes as they are stored.
    pub(super) fn read_stored(&self, offset: u64, end: u64) -> Plan<Bytes> {
        let opened = self.clone();
        self.read_to(offset, end).then(move |read| match read {
            // Of the head alone it is asked which one it is.
            Err(Error::Raced) => opened.reopened().and_then(move |opened| opened.read_to(offset, end)),
            read => Plan::Done(read),
        })
    }

    fn read_to(&self, offset: u64, end: u64) -> Plan<Bytes> {
        let (mut requests, mut pieces, mut at) = (Vec::new(), Vec::new(), offset);
        while at < end {
            let (object, from, left) = match self.place(at) {
                Ok(place) => place,
                Err(e) => return Plan::failed(e),
            };
            let length = left.min(end - at);
            match self.prefetched(&object, from, length) {
                Some(bytes) => pieces.push(Piece::Known(bytes)),
                None => {
                    requests.push(self.request(object, from, length));
                    pieces.push(Piece::Asked(length));
                }
            }
            at += length;
        }
        Plan::<Vec<Reply>>::ask_all(requests).try_map(move |replies| join(pieces, replies))
    }

    /// The object with the head that it has now, if that is the same object with other attributes.
    fn reopened(self) -> Plan<Self> {
        let (raw, version) = (self.head.object.clone(), self.head.version.clone());
        optional(Plan::ask(Request::new(raw.clone()).op(Op::Attrs).op(Op::Stat))).and_then(move |reply| {
            match reply.map(|reply| Head::read(raw, version, &reply)).transpose() {
                Ok(Some(head))
                    if head.is_same_object(&self.head) && head.head_size == self.head.head_size =>
                {
                    let tag = head.id_tag().cloned();
                    let mut opened = self;
                    opened.head.attrs.extend(tag.map(|tag| (Bytes::from_static(attr::ID_TAG), tag)));
                    Plan::ok(opened)
                }
                Ok(_) => Plan::failed(Error::Raced),
                Err(e) => Plan::failed(e),
            }
        })
    }

    /// The RADOS object that holds a byte, where in it, and how many follow there.
    fn place(&self, at: u64) -> Result<(RawObject, u64, u64), Error> {
        let Some(manifest) = &self.head.manifest else {
            return Ok((self.head.object.clone(), at, self.head.head_size - at));
        };
        let stripe = manifest.stripe_at(at).ok_or(Error::Unexpected)?;
        let within = at - stripe.at;
        let left = stripe.length.checked_sub(within).filter(|left| *left > 0).ok_or(Error::Unexpected)?;
        let object = self.site.raw(&stripe.object, &stripe.placement)?;
        // An object may have moved to another bucket's name; its head is the one that was opened.
        let object = if stripe.object == manifest.object { self.head.object.clone() } else { object };
        Ok((object, stripe.offset.saturating_add(within), left))
    }

    fn prefetched(&self, object: &RawObject, from: u64, length: u64) -> Option<Bytes> {
        if *object != self.head.object {
            return None;
        }
        let from = usize::try_from(from).ok()?;
        let end = from.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.head.first.len()).then(|| self.head.first.slice(from..end))
    }

    fn request(&self, object: RawObject, offset: u64, length: u64) -> Request {
        let is_head = object == self.head.object;
        let mut request = Request::new(object);
        if let Some(tag) = self.head.id_tag().filter(|_| is_head) {
            request = request.op(Op::AttrIs { name: Bytes::from_static(attr::ID_TAG), value: tag.clone() });
        }
        request.op(Op::Read { offset, length })
    }
}

enum Piece {
    Known(Bytes),
    /// So many bytes of the next reply.
    Asked(u64),
}

fn join(pieces: Vec<Piece>, replies: Vec<Reply>) -> Result<Bytes, Error> {
    let mut replies = replies.into_iter();
    let mut found = Vec::with_capacity(pieces.len());
    for piece in pieces {
        found.push(match piece {
            Piece::Known(bytes) => bytes,
            Piece::Asked(length) => {
                let reply = replies.next().ok_or(Error::Unexpected)?;
                let data = reply.data(reply.outputs.len().saturating_sub(1))?;
                // Less than the manifest says is not what was written.
                if data.len() as u64 != length {
                    return Err(Error::Unexpected);
                }
                data
            }
        });
    }
    if let [one] = &found[..] {
        return Ok(one.clone());
    }
    let all = found.iter().fold(BytesMut::new(), |mut all, bytes| {
        all.extend_from_slice(bytes);
        all
    });
    Ok(all.freeze())
}
