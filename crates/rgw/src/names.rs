//! Names of users, pools, buckets and objects, and what they are called in RADOS.
//!
//! Source: src/rgw/rgw_basic_types.h, rgw_obj_key in src/rgw/rgw_common.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

/// Joins texts.
pub(crate) fn join(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}

/// What is before a byte and what is behind it.
fn split(text: &Bytes, at: u8) -> Option<(Bytes, Bytes)> {
    let found = text.iter().position(|b| *b == at)?;
    Some((text.slice(..found), text.slice(found + 1..)))
}

/// A user: `id`, `tenant$id`, or `tenant$namespace$id`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UserId {
    pub tenant: Bytes,
    pub id: Bytes,
    /// Of those that other services vouch for.
    pub namespace: Bytes,
}
wire_struct!(UserId(2, 1) { tenant, id } since 2 { namespace });

impl UserId {
    /// A user without a tenant.
    pub fn plain(id: impl Into<Bytes>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    pub fn from_text(text: &Bytes) -> Self {
        let Some((tenant, rest)) = split(text, b'$') else { return Self::plain(text.clone()) };
        match split(&rest, b'$') {
            Some((namespace, id)) => Self { tenant, id, namespace },
            None => Self { tenant, id: rest, namespace: Bytes::new() },
        }
    }

    pub fn to_text(&self) -> Bytes {
        match (self.tenant.is_empty(), self.namespace.is_empty()) {
            (true, true) => self.id.clone(),
            (false, true) => join(&[&self.tenant, b"$", &self.id]),
            (_, false) => join(&[&self.tenant, b"$", &self.namespace, b"$", &self.id]),
        }
    }
}

/// A pool, and a namespace in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pool {
    pub name: Bytes,
    pub namespace: Bytes,
}

impl Pool {
    pub fn new(name: impl Into<Bytes>, namespace: impl Into<Bytes>) -> Self {
        Self { name: name.into(), namespace: namespace.into() }
    }

    pub fn is_empty(&self) -> bool {
        self.name.is_empty()
    }

    /// `name` or `name:namespace`, with a backslash before a colon or a backslash of either.
    pub fn from_text(text: &[u8]) -> Self {
        let (mut parts, mut escaped) = (vec![Vec::new()], false);
        for &b in text {
            match b {
                b'\\' if !escaped => {
                    escaped = true;
                    continue;
                }
                // Behind a second colon nothing is read.
                b':' if !escaped && parts.len() == 2 => break,
                b':' if !escaped => parts.push(Vec::new()),
                _ => parts.last_mut().into_iter().for_each(|part| part.push(b)),
            }
            escaped = false;
        }
        let mut parts = parts.into_iter();
        Self::new(parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    pub fn to_text(&self) -> Bytes {
        let escape = |text: &Bytes| -> Vec<u8> {
            let byte = |b: &u8| if matches!(b, b'\\' | b':') { vec![b'\\', *b] } else { vec![*b] };
            text.iter().flat_map(byte).collect()
        };
        let name = escape(&self.name);
        if self.namespace.is_empty() { name.into() } else { join(&[&name, b":", &escape(&self.namespace)]) }
    }
}

impl Encode for Pool {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 10, |w| {
            self.name.encode(w);
            self.namespace.encode(w);
        });
    }
}
impl Decode for Pool {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        // Before version 10 a bucket stood here, which begins with its name.
        r.legacy_envelope("pool", 10, 3, |r, version| {
            Ok(Self { name: r.blob()?, namespace: if version < 10 { Bytes::new() } else { r.blob()? } })
        })
    }
}

/// The pools of a bucket that is older than placement targets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExplicitPlacement {
    pub data: Pool,
    pub data_extra: Pool,
    pub index: Pool,
}

/// An instance of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bucket {
    pub tenant: Bytes,
    pub name: Bytes,
    /// In front of the names of its objects in RADOS; of its first instance the id.
    pub marker: Bytes,
    /// Of this instance.
    pub id: Bytes,
    pub explicit: ExplicitPlacement,
}

impl Bucket {
    /// What the bucket is called in RADOS: `name`, or `tenant/name`.
    pub fn entry_point(&self) -> Bytes {
        if self.tenant.is_empty() { self.name.clone() } else { join(&[&self.tenant, b"/", &self.name]) }
    }

    /// Where its instance is described. Source: RGWSI_BucketInstance_SObj's module, which turns the first
    /// slash of a key into a colon.
    pub fn instance(&self) -> Bytes {
        if self.tenant.is_empty() {
            return join(&[b".bucket.meta.", &self.name, b":", &self.id]);
        }
        join(&[b".bucket.meta.", &self.tenant, b":", &self.name, b":", &self.id])
    }

    /// Reads what was written when pools stood in a bucket.
    fn decode_old(r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        let mut b = Self { name: r.blob()?, ..Self::default() };
        b.explicit.data.name = r.blob()?;
        if version >= 2 {
            b.marker = r.blob()?;
            b.id = if version <= 3 { r.u64()?.to_string().into() } else { r.blob()? };
        }
        if version >= 5 {
            b.explicit.index.name = r.blob()?;
        } else {
            b.explicit.index = b.explicit.data.clone();
        }
        if version >= 7 {
            b.explicit.data_extra.name = r.blob()?;
        }
        if version >= 8 {
            b.tenant = r.blob()?;
        }
        Ok(b)
    }
}

impl Encode for Bucket {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 10, |w| {
            self.name.encode(w);
            self.marker.encode(w);
            self.id.encode(w);
            self.tenant.encode(w);
            let explicit = !self.explicit.data.is_empty();
            explicit.encode(w);
            if explicit {
                self.explicit.data.encode(w);
                self.explicit.data_extra.encode(w);
                self.explicit.index.encode(w);
            }
        });
    }
}
impl Decode for Bucket {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("bucket", 10, 3, |r, version| {
            if version < 10 {
                return Self::decode_old(r, version);
            }
            let mut b = Self { name: r.blob()?, marker: r.blob()?, id: r.blob()?, ..Self::default() };
            b.tenant = r.blob()?;
            if Decode::decode(r)? {
                b.explicit = ExplicitPlacement {
                    data: Decode::decode(r)?,
                    data_extra: Decode::decode(r)?,
                    index: Decode::decode(r)?,
                };
            }
            Ok(b)
        })
    }
}

/// An object of a bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub name: Bytes,
    /// Of its versions; empty without, `null` for the one that was there before versions were kept.
    pub instance: Bytes,
    /// Of what is no object to clients, as parts of uploads.
    pub namespace: Bytes,
}
wire_struct!(Key(2, 1) { name, instance } since 2 { namespace });

impl Key {
    pub fn plain(name: impl Into<Bytes>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub fn within(namespace: impl Into<Bytes>, name: impl Into<Bytes>) -> Self {
        Self { name: name.into(), namespace: namespace.into(), instance: Bytes::new() }
    }

    fn has_id(&self) -> bool {
        !self.instance.is_empty() && self.instance.as_ref() != b"null"
    }

    /// What it is called in RADOS behind the bucket's marker: `name`, `_namespace:instance_name`; a name that
    /// begins with an underscore has another one in front.
    pub fn oid(&self) -> Bytes {
        match (self.namespace.is_empty(), self.has_id()) {
            (true, false) if self.name.starts_with(b"_") => join(&[b"_", &self.name]),
            (true, false) => self.name.clone(),
            (_, false) => join(&[b"_", &self.namespace, b"_", &self.name]),
            (_, true) => join(&[b"_", &self.namespace, b":", &self.instance, b"_", &self.name]),
        }
    }

    /// What it is called in the bucket's index.
    pub fn index_name(&self) -> Bytes {
        match self.namespace.is_empty() {
            true if self.name.starts_with(b"_") => join(&[b"_", &self.name]),
            true => self.name.clone(),
            false => join(&[b"_", &self.namespace, b"_", &self.name]),
        }
    }

    /// What decides of its place, behind the bucket's marker, instead of its name in RADOS; empty for the
    /// name itself. Source: rgw_obj_key::get_loc, which keeps objects where they were before underscores were
    /// doubled.
    pub fn locator(&self) -> Bytes {
        if self.namespace.is_empty() && self.name.starts_with(b"_") {
            self.name.clone()
        } else {
            Bytes::new()
        }
    }

    /// Which object has this name behind the bucket's marker.
    pub fn from_oid(oid: &Bytes) -> Option<Self> {
        if !oid.starts_with(b"_") {
            return Some(Self::plain(oid.clone()));
        }
        if oid.starts_with(b"__") {
            return Some(Self::plain(oid.slice(1..)));
        }
        let end = oid.iter().skip(2).position(|b| *b == b'_')? + 2;
        let (place, name) = (oid.slice(1..end), oid.slice(end + 1..));
        let (namespace, instance) = split(&place, b':').unwrap_or((place, Bytes::new()));
        Some(Self { name, instance, namespace })
    }
}

/// An object, and the bucket that it is in. Source: rgw_obj in src/rgw/rgw_obj_manifest.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    pub bucket: Bucket,
    pub key: Key,
}

impl Object {
    /// Where it lies, in the pool that the bucket's placement says.
    pub fn raw(&self, pool: Pool) -> RawObject {
        let marked = |name: Bytes| join(&[&self.bucket.marker, b"_", &name]);
        let locator = Some(self.key.locator()).filter(|l| !l.is_empty());
        RawObject { pool, oid: marked(self.key.oid()), locator: locator.map(marked).unwrap_or_default() }
    }

    fn decode_old(r: &mut Reader, version: u8) -> Result<Self, DecodeError> {
        let mut o = Self::default();
        o.bucket.name = r.blob()?;
        let _locator = r.blob()?;
        (o.key.namespace, o.key.name) = (r.blob()?, r.blob()?);
        if version >= 2 {
            o.bucket = Decode::decode(r)?;
        }
        if version >= 4 {
            o.key.instance = r.blob()?;
        }
        if o.key.namespace.is_empty() && o.key.instance.is_empty() {
            if o.key.name.starts_with(b"_") {
                o.key.name = o.key.name.slice(1..);
            }
        } else if version >= 5 {
            o.key.name = r.blob()?;
        } else {
            let end = o.key.name.iter().skip(1).position(|b| *b == b'_');
            let end = end.ok_or(DecodeError::Invalid { what: "object of old", value: version.into() })?;
            o.key.name = o.key.name.slice(end + 2..);
        }
        Ok(o)
    }
}

impl Encode for Object {
    fn encode(&self, w: &mut Writer) {
        w.envelope(6, 6, |w| {
            self.bucket.encode(w);
            self.key.namespace.encode(w);
            self.key.name.encode(w);
            self.key.instance.encode(w);
        });
    }
}
impl Decode for Object {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("object", 6, 3, |r, version| {
            if version < 6 {
                return Self::decode_old(r, version);
            }
            let bucket = Decode::decode(r)?;
            let (namespace, name, instance) = (r.blob()?, r.blob()?, r.blob()?);
            Ok(Self { bucket, key: Key { name, instance, namespace } })
        })
    }
}

/// An object in RADOS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawObject {
    pub pool: Pool,
    pub oid: Bytes,
    /// Decides of its place instead of its name; empty for the name itself.
    pub locator: Bytes,
}
wire_struct!(RawObject(6, 6) { pool, oid, locator });

impl RawObject {
    pub fn new(pool: &Pool, oid: impl Into<Bytes>) -> Self {
        Self { pool: pool.clone(), oid: oid.into(), locator: Bytes::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_one_text_each() {
        for text in ["id", "t$id", "t$n$id", "$n$id", "t$n$i$d"] {
            let user = UserId::from_text(&text.into());
            assert_eq!(user.to_text(), text);
        }
        assert_eq!(UserId::from_text(&"t$n$i$d".into()).id, "i$d");
    }

    #[test]
    fn pools_have_one_text_each() {
        for (text, name, namespace) in
            [("p", "p", ""), ("p:n", "p", "n"), (r"a\:b:n\\", "a:b", r"n\"), ("", "", "")]
        {
            let pool = Pool::new(name, namespace);
            assert_eq!((Pool::from_text(text.as_bytes()), pool.to_text()), (pool.clone(), text.into()));
        }
        assert_eq!(Pool::from_text(b"p:n:more"), Pool::new("p", "n"));
    }

    #[test]
    fn objects_are_found_by_their_names_in_rados() {
        let key = |name: &'static str, instance: &'static str, namespace: &'static str| Key {
            name: name.into(),
            instance: instance.into(),
            namespace: namespace.into(),
        };
        for (k, oid, locator) in [
            (key("a", "", ""), "a", ""),
            (key("_a", "", ""), "__a", "_a"),
            (key("a_b", "", "multipart"), "_multipart_a_b", ""),
            (key("a", "v1", ""), "_:v1_a", ""),
            (key("_a", "v1", ""), "_:v1__a", "_a"),
            (key("a", "v1", "shadow"), "_shadow:v1_a", ""),
        ] {
            assert_eq!((k.oid(), k.locator()), (oid.into(), locator.into()));
            assert_eq!(Key::from_oid(&oid.into()), Some(k));
        }
        assert_eq!(key("a", "null", "").oid(), "a");
        // The bucket's index has versions in fields of their own.
        assert_eq!(key("_a", "v1", "").index_name(), "__a");
        assert_eq!(key("a", "v1", "multipart").index_name(), "_multipart_a");
        assert_eq!((Key::from_oid(&"_".into()), Key::from_oid(&"_a".into())), (None, None));
    }

    #[test]
    fn buckets_of_old_have_pools() {
        // Version 2 alone in front, then name, pool, marker and a number.
        let old = Writer::collect(|w| {
            w.u8(2);
            ["b", "data", "m"].iter().for_each(|t| t.encode(w));
            w.u64(7);
        });
        let bucket = Bucket::from_bytes(old.clone()).unwrap();
        assert_eq!((bucket.id.as_ref(), bucket.explicit.index.name.as_ref()), (&b"7"[..], &b"data"[..]));
        assert_eq!(Bucket::from_bytes(bucket.to_bytes()), Ok(bucket));
        for n in 0..old.len() {
            assert!(Bucket::from_bytes(old.slice(..n)).is_err(), "{n}");
        }
    }
}
