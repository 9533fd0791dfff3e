//! What happens to a bucket's objects as they grow older. Source: src/rgw/rgw_lc.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::Tags;

/// When objects are deleted; both are texts, as they were given, and empty where they were not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expiration {
    pub days: Bytes,
    pub date: Bytes,
}

impl Encode for Expiration {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            self.days.encode(w);
            self.date.encode(w);
        });
    }
}
impl Decode for Expiration {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("expiration", 3, 2, |r, version| {
            Ok(Self { days: r.blob()?, date: if version >= 3 { r.blob()? } else { Bytes::new() } })
        })
    }
}

/// When objects go to another storage class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transition {
    pub days: Bytes,
    pub date: Bytes,
    pub storage_class: Bytes,
}

impl Encode for Transition {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.days.encode(w);
            self.date.encode(w);
            self.storage_class.encode(w);
        });
    }
}
impl Decode for Transition {
    const MIN_SIZE: usize = 18;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("transition", 1, |r, _| {
            Ok(Self { days: r.blob()?, date: r.blob()?, storage_class: r.blob()? })
        })
    }
}

/// Which objects a rule is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub prefix: Bytes,
    pub tags: Tags,
}
wire_struct!(Filter(2, 1) { prefix } since 2 { tags });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    pub id: Bytes,
    /// Of those who give no filter.
    pub prefix: Bytes,
    /// `Enabled` or `Disabled`.
    pub status: Bytes,
    pub expiration: Expiration,
    pub noncurrent_expiration: Expiration,
    /// Of uploads that nobody completes.
    pub upload_expiration: Expiration,
    /// Delete markers that are all that is left of an object go.
    pub expires_markers: bool,
    pub filter: Filter,
    /// By storage class.
    pub transitions: BTreeMap<Bytes, Transition>,
    pub noncurrent_transitions: BTreeMap<Bytes, Transition>,
}

impl Encode for Rule {
    fn encode(&self, w: &mut Writer) {
        w.envelope(6, 1, |w| {
            self.id.encode(w);
            self.prefix.encode(w);
            self.status.encode(w);
            self.expiration.encode(w);
            self.noncurrent_expiration.encode(w);
            self.upload_expiration.encode(w);
            self.expires_markers.encode(w);
            self.filter.encode(w);
            self.transitions.encode(w);
            self.noncurrent_transitions.encode(w);
        });
    }
}
impl Decode for Rule {
    const MIN_SIZE: usize = 24;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("lifecycle rule", 6, 1, |r, version| {
            let mut l = Self { id: r.blob()?, prefix: r.blob()?, status: r.blob()?, ..Self::default() };
            l.expiration = Decode::decode(r)?;
            if version >= 2 {
                l.noncurrent_expiration = Decode::decode(r)?;
            }
            if version >= 3 {
                l.upload_expiration = Decode::decode(r)?;
            }
            if version >= 4 {
                l.expires_markers = Decode::decode(r)?;
            }
            if version >= 5 {
                l.filter = Decode::decode(r)?;
            }
            if version >= 6 {
                (l.transitions, l.noncurrent_transitions) = (Decode::decode(r)?, Decode::decode(r)?);
            }
            Ok(l)
        })
    }
}

/// The attribute `user.rgw.lc` of a bucket's instance: its rules by their ids. Source:
/// RGWLifecycleConfiguration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lifecycle {
    pub rules: BTreeMap<Bytes, Rule>,
}
wire_struct!(Lifecycle(1, 1) { rules });

/// A bucket whose objects expire, in the list that gateways work off. Source: cls_rgw_lc_entry in
/// src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LifecycleEntry {
    pub bucket: Bytes,
    /// Seconds since 1970, while it is worked on.
    pub started: u64,
    /// Of the last round: 0 not yet, 1 under way, 2 failed, 3 done.
    pub status: u32,
}
wire_struct!(LifecycleEntry(1, 1) { bucket, started, status });

/// How far a round along the list got. Source: cls_rgw_lc_obj_head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LifecycleHead {
    /// Seconds since 1970.
    pub started: u64,
    pub marker: Bytes,
}
wire_struct!(LifecycleHead(1, 1) { started, marker });
