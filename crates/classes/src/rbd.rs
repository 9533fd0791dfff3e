//! Class `rbd`, its beginning: what it can do, and the object that maps an image's name to its id. Everything else of it
//! answers EOPNOTSUPP. Source: src/cls/rbd/cls_rbd.cc.

use bytes::Bytes;
use codec::Encode;
use types::Errno;

use crate::ObjectView;
use crate::registry::{Class, Method, MethodFlags as F, input, stored};

pub static CLASS: Class = Class {
    name: "rbd",
    methods: &[
        Method::new("get_all_features", F::RD, get_all_features),
        Method::new("get_id", F::RD, get_id),
        Method::new("set_id", F::RD_WR, set_id),
    ],
};

/// Every feature bit that Ceph 16 knows, layering to dirty cache. Source: src/include/rbd/features.h.
const ALL_FEATURES: u64 = (1 << 12) - 1;

fn get_all_features(_: &mut dyn ObjectView, _: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    *out = ALL_FEATURES.to_bytes();
    Ok(0)
}

fn get_id(v: &mut dyn ObjectView, _: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    let size = v.stat()?.size;
    if size == 0 {
        return Err(Errno::ENOENT);
    }
    let id: String = stored(v.read(0, size)?)?;
    *out = id.to_bytes();
    Ok(0)
}

/// The object must exist and hold no id yet.
fn set_id(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let size = v.stat()?.size;
    let id: String = input(bytes)?;
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(Errno::EINVAL);
    }
    if size != 0 {
        return Err(Errno::EEXIST);
    }
    v.write(0, id.to_bytes())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, FakeObject};

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
}
