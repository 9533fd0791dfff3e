//! Class `version`: a version number with a tag in an object's attribute. Source: src/cls/version/cls_version.cc.

use ::rgw::ObjectVersion;
use bytes::Bytes;
use codec::{Encode, wire_struct};
use types::Errno;

use crate::registry::{Class, Method, MethodFlags as F, input, stored};
use crate::{ObjectView, names};

pub static CLASS: Class = Class {
    name: "version",
    methods: &[
        Method::new("set", F::RD_WR, set),
        Method::new("inc", F::RD_WR, inc),
        Method::new("inc_conds", F::RD_WR, inc),
        Method::new("read", F::RD, read),
        Method::new("check_conds", F::RD, check),
    ],
};

const ATTR: &[u8] = b"ceph.objclass.version";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub version: ObjectVersion,
    /// Source: VersionCond in src/cls/version/cls_version_types.h.
    pub op: u32,
}
wire_struct!(Condition(1, 1) { version, op });

impl Condition {
    fn holds(&self, stored: &ObjectVersion) -> bool {
        let given = &self.version;
        match self.op {
            1 => stored == given,
            2 => stored.version > given.version,
            3 => stored.version >= given.version,
            4 => stored.version < given.version,
            5 => stored.version <= given.version,
            6 => stored.tag == given.tag,
            7 => stored.tag != given.tag,
            _ => true,
        }
    }
}

/// Input of `set`, output of `read`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionArgs {
    pub version: ObjectVersion,
}
wire_struct!(VersionArgs(1, 1) { version });

/// Input of `inc`, `inc_conds` and `check_conds`; the version is not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CondArgs {
    pub version: ObjectVersion,
    pub conditions: Vec<Condition>,
}
wire_struct!(CondArgs(1, 1) { version, conditions });

fn load(v: &mut dyn ObjectView) -> Result<Option<ObjectVersion>, Errno> {
    match v.xattr(ATTR) {
        Err(Errno::ENOENT | Errno::ENODATA) => Ok(None),
        raw => stored(raw?).map(Some),
    }
}

fn save(v: &mut dyn ObjectView, version: &ObjectVersion) -> Result<i32, Errno> {
    v.set_xattr(ATTR, version.to_bytes())?;
    Ok(0)
}

/// The first version of an object: 1 with a tag of its own.
fn first(v: &dyn ObjectView) -> ObjectVersion {
    ObjectVersion { version: 1, tag: names::made_up(v) }
}

fn set(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: VersionArgs = input(bytes)?;
    save(v, &args.version)
}

fn inc(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: CondArgs = input(bytes)?;
    let mut version = match load(v)? {
        Some(version) => version,
        None => first(v),
    };
    if !args.conditions.iter().all(|c| c.holds(&version)) {
        return Err(Errno::ECANCELED);
    }
    version.version = version.version.wrapping_add(1);
    save(v, &version)
}

fn check(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: CondArgs = input(bytes)?;
    let version = load(v)?.unwrap_or_default();
    if args.conditions.iter().all(|c| c.holds(&version)) { Ok(0) } else { Err(Errno::ECANCELED) }
}

fn read(v: &mut dyn ObjectView, _: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    *out = VersionArgs { version: load(v)?.unwrap_or_default() }.to_bytes();
    Ok(0)
}

#[cfg(test)]
mod tests {
    use codec::Decode;

    use super::*;
    use crate::fake::Fake;

    fn conditions(op: u32, number: u64, tag: &'static str) -> Bytes {
        let version = ObjectVersion { version: number, tag: tag.into() };
        let condition = Condition { version, op };
        CondArgs { version: ObjectVersion::default(), conditions: vec![condition] }.to_bytes()
    }

    #[test]
    fn conditions_guard_increments() {
        let mut f = Fake::with_data("x");
        let version = ObjectVersion { version: 7, tag: "t".into() };
        assert!(f.call("version", "set", VersionArgs { version }.to_bytes()).is_ok());
        for (op, number, tag, ok) in [
            (0, 0, "", true),
            (1, 7, "t", true),
            (1, 7, "u", false),
            (2, 6, "", true),
            (2, 7, "", false),
            (3, 7, "", true),
            (4, 7, "", false),
            (5, 7, "", true),
            (6, 0, "t", true),
            (7, 0, "t", false),
            (99, 0, "", true),
        ] {
            let got = f.call("version", "check_conds", conditions(op, number, tag)).is_ok();
            assert_eq!(got, ok, "{op} {number} {tag}");
        }
        assert_eq!(f.call("version", "inc_conds", conditions(1, 8, "t")), Err(Errno::ECANCELED));
        assert!(f.call("version", "inc_conds", conditions(1, 7, "t")).is_ok());
        let (_, out) = f.call("version", "read", "").unwrap();
        let want = ObjectVersion { version: 8, tag: "t".into() };
        assert_eq!(VersionArgs::from_bytes(out).unwrap().version, want);
    }

    #[test]
    fn the_first_increment_makes_a_tag() {
        let mut f = Fake::default();
        let none = CondArgs { version: ObjectVersion::default(), conditions: Vec::new() }.to_bytes();
        assert!(f.call("version", "inc", none).is_ok());
        let (_, out) = f.call("version", "read", "").unwrap();
        let got = VersionArgs::from_bytes(out).unwrap().version;
        assert_eq!((got.version, got.tag.len()), (2, 24));
    }
}
