//! System objects: users, entry points, bucket instances and their like. They are read and written whole,
//! held to the version that was read, and each change is told to the other gateways. Source:
//! src/rgw/services/svc_sys_obj_core.cc, svc_sys_obj_cache.cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use classes::client::Nothing;
use classes::client::version::{self, CondArgs, Condition, VersionArgs};
use codec::{Decode, Encode};
use rgw::{Notice, NoticeOp, Noticed, ObjectVersion, RawObject};
use types::RealTime;

use crate::{Op, Plan, Request, Site};

pub type Attrs = BTreeMap<Bytes, Bytes>;

/// Versions are equal. Source: VER_COND_EQ in src/cls/version/cls_version_types.h.
const EQUAL: u32 = 1;

/// What was read of a system object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored<T> {
    pub value: T,
    pub attrs: Attrs,
    pub version: ObjectVersion,
    pub mtime: RealTime,
}

/// How a write takes what is there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Over {
    /// Fails with EEXIST.
    Nothing,
    Anything,
    /// Fails with `Raced` when it is of another version.
    Version(ObjectVersion),
}

/// A system object to be written.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub object: RawObject,
    pub data: Bytes,
    pub attrs: Attrs,
    pub over: Over,
    /// Nothing for objects whose versions nobody counts.
    pub version: Option<ObjectVersion>,
    pub now: RealTime,
}

/// The version behind one.
pub(crate) fn next_version(known: &ObjectVersion) -> ObjectVersion {
    ObjectVersion { version: known.version.wrapping_add(1), tag: known.tag.clone() }
}

/// The first version of an object.
pub(crate) fn first_version(tag: Bytes) -> ObjectVersion {
    ObjectVersion { version: 1, tag }
}

/// Reads an object with its attributes and its version.
pub(crate) fn read<T: Decode + Send + 'static>(object: RawObject) -> Plan<Stored<T>> {
    let request = Request::new(object)
        .call(&version::READ, &Nothing)
        .op(Op::Attrs)
        .op(Op::Read { offset: 0, length: 0 })
        .op(Op::Stat);
    Plan::ask(request).try_map(|reply| {
        Ok(Stored {
            version: reply.answer(0, &version::READ)?.version,
            attrs: own(reply.attrs(1)?),
            value: T::from_bytes(reply.data(2)?)?,
            mtime: reply.stat(3)?.1,
        })
    })
}

/// Attributes that gateways set; beside them is the version.
pub(crate) fn own(mut attrs: Attrs) -> Attrs {
    attrs.retain(|name, _| name.starts_with(b"user.rgw."));
    attrs
}

fn check(request: Request, known: &ObjectVersion) -> Request {
    let conditions = vec![Condition { version: known.clone(), op: EQUAL }];
    request.call(&version::CHECK, &CondArgs { version: known.clone(), conditions })
}

/// The request of a write.
pub(crate) fn request(write: &Write) -> Request {
    let mut request = Request::new(write.object.clone()).at(write.now);
    request = match &write.over {
        Over::Nothing => request.op(Op::Create { exclusive: true }),
        _ => request.op(Op::Remove { may_miss: true }).op(Op::Create { exclusive: false }),
    };
    if let Over::Version(known) = &write.over {
        request = check(request, known);
    }
    if let Some(version) = &write.version {
        request = request.call(&version::SET, &VersionArgs { version: version.clone() });
    }
    request = request.op(Op::WriteFull(write.data.clone()));
    write.attrs.iter().fold(request, |request, (name, value)| request.set_attr(name.clone(), value.clone()))
}

/// Writes an object, and tells the other gateways.
pub(crate) fn write(site: &Site, write: Write) -> Plan<()> {
    let site = site.clone();
    Plan::ask(request(&write)).and_then(move |reply| {
        let mut flags = Noticed::DATA | Noticed::ATTRS | Noticed::META;
        if write.version.is_some() {
            flags |= Noticed::VERSION;
        }
        let info = Noticed {
            status: 0,
            flags,
            size: write.data.len() as u64,
            data: write.data,
            attrs: write.attrs,
            mtime: write.now,
            removed_attrs: Attrs::new(),
            epoch: reply.version,
            version: write.version.unwrap_or_default(),
        };
        tell(&site, NoticeOp::UPDATE, write.object, info)
    })
}

/// Removes an object, of the version that was read where that is counted, and tells the other gateways.
pub(crate) fn remove(site: &Site, object: RawObject, known: Option<&ObjectVersion>) -> Plan<()> {
    let mut request = Request::new(object.clone());
    if let Some(known) = known {
        request = check(request, known).call(&version::SET, &VersionArgs { version: next_version(known) });
    }
    let site = site.clone();
    Plan::ask(request.op(Op::Remove { may_miss: false }))
        .and_then(move |_| tell(&site, NoticeOp::REMOVE, object, Noticed::default()))
}

/// A gateway that does not hear of a change finds it within its cache's time; the change itself is done.
fn tell(site: &Site, op: NoticeOp, object: RawObject, info: Noticed) -> Plan<()> {
    let control = RawObject::new(&site.zone.control, Site::notice_oid(&object.pool, &object.oid));
    let notice = Notice::new(op, object, info).to_bytes();
    Plan::ask(Request::new(control).op(Op::Notify(notice))).then(|_| Plan::ok(()))
}
