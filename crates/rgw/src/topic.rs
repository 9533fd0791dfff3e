//! Topics that are told of what happens in buckets, and which buckets tell them what. Source:
//! src/rgw/rgw_pubsub.h.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::names::join;
use crate::{Bucket, UserId};

/// Where events go. Source: rgw_pubsub_sub_dest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Destination {
    /// Where they are kept for clients that fetch them.
    pub bucket: Bytes,
    pub prefix: Bytes,
    /// A URL.
    pub endpoint: Bytes,
    pub arguments: Bytes,
    pub topic_arn: Bytes,
    /// The arguments have a password.
    pub has_secret: bool,
    /// Events wait in a queue until they are delivered.
    pub persistent: bool,
}
wire_struct!(Destination(5, 1) { bucket, prefix, endpoint } since 2 { arguments } since 3 { topic_arn }
    since 4 { has_secret } since 5 { persistent });

/// Source: rgw_pubsub_topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topic {
    pub user: UserId,
    pub name: Bytes,
    pub destination: Destination,
    pub arn: Bytes,
    /// Goes along with each event.
    pub opaque: Bytes,
}
wire_struct!(Topic(3, 1) { user, name } since 2 { destination, arn } since 3 { opaque });

/// Source: rgw_pubsub_topic_subs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscribedTopic {
    pub topic: Topic,
    pub subscriptions: BTreeSet<Bytes>,
}
wire_struct!(SubscribedTopic(1, 1) { topic, subscriptions });

/// A tenant's topics by name: the data of `pubsub.<tenant>` in the pool of logs. Source: rgw_pubsub_topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topics {
    pub topics: BTreeMap<Bytes, SubscribedTopic>,
}
wire_struct!(Topics(1, 1) { topics });

impl Topics {
    pub fn oid(tenant: &[u8]) -> Bytes {
        join(&[b"pubsub.", tenant])
    }
}

/// Which keys an event must be about; what is empty holds for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyFilter {
    pub prefix: Bytes,
    pub suffix: Bytes,
    pub regex: Bytes,
}
wire_struct!(KeyFilter(1, 1) { prefix, suffix, regex });

/// Which metadata or tags an object must have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValueFilter {
    pub values: BTreeMap<Bytes, Bytes>,
}
wire_struct!(ValueFilter(1, 1) { values });

/// Source: rgw_s3_filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub key: KeyFilter,
    pub metadata: ValueFilter,
    pub tags: ValueFilter,
}
wire_struct!(EventFilter(2, 1) { key, metadata } since 2 { tags });

/// A topic that a bucket tells of some of its events. Source: rgw_pubsub_topic_filter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notification {
    pub topic: Topic,
    /// By their names: S3's, or `OBJECT_CREATE` and its like where the notification has no id.
    pub events: Vec<Bytes>,
    /// As S3 names it.
    pub id: Bytes,
    pub filter: EventFilter,
}

impl Encode for Notification {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            self.topic.encode(w);
            self.events.encode(w);
            self.id.encode(w);
            self.filter.encode(w);
        });
    }
}
impl Decode for Notification {
    const MIN_SIZE: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("notification", 3, |r, env| {
            let mut n = Self { topic: Decode::decode(r)?, events: Decode::decode(r)?, ..Self::default() };
            if env.version >= 2 {
                n.id = r.blob()?;
            }
            if env.version >= 3 {
                n.filter = Decode::decode(r)?;
            }
            Ok(n)
        })
    }
}

/// A bucket's notifications by topic, or by notification and topic. Source: rgw_pubsub_bucket_topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notifications {
    pub topics: BTreeMap<Bytes, Notification>,
}
wire_struct!(Notifications(1, 1) { topics });

impl Notifications {
    /// Where a bucket's stand in the pool of logs, for a tenant's topics.
    pub fn oid(tenant: &[u8], bucket: &Bucket) -> Bytes {
        join(&[b"pubsub.", tenant, b".bucket.", &bucket.name, b"/", &bucket.id])
    }
}
