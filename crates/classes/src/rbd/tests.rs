//! Methods in sequence, as librbd calls them.

use codec::Encode;
use types::Errno;

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
