//! Class `hello`: the example that Ceph's own tests call. Source: src/cls/hello/cls_hello.cc.

use bytes::Bytes;
use types::Errno;

use crate::registry::{Class, Method, MethodFlags as F};
use crate::{ObjectView, Origin};

pub static CLASS: Class = Class {
    name: "hello",
    methods: &[
        Method::new("say_hello", F::RD, say_hello),
        Method::new("record_hello", F::WR, record_hello),
        Method::new("write_return_data", F::WR, write_return_data),
        Method::new("writes_dont_return_data", F::WR, write_return_data),
        Method::new("write_too_much_return_data", F::WR, write_too_much_return_data),
        Method::new("replay", F::RD, replay),
        Method::new("turn_it_to_11", F::RD_WR, turn_it_to_11),
        Method::new("bad_reader", F::WR, bad_reader),
        Method::new("bad_writer", F::RD, bad_writer),
    ],
};

/// Bytes of a name.
const MAX_INPUT: usize = 100;
/// Bytes of a greeting that are looked at.
const MAX_CONTENT: u64 = 1100;

fn greeting(input: &Bytes) -> Result<Bytes, Errno> {
    if input.len() > MAX_INPUT {
        return Err(Errno::EINVAL);
    }
    let name: &[u8] = if input.is_empty() { b"world" } else { input };
    Ok([b"Hello, ", name, b"!"].concat().into())
}

fn signature(o: Origin) -> Bytes {
    format!("{} {}", o.name, o.addr).into()
}

fn say_hello(_: &mut dyn ObjectView, input: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    *out = greeting(input)?;
    Ok(0)
}

fn record_hello(v: &mut dyn ObjectView, input: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let content = greeting(input)?;
    if v.stat().is_ok() {
        return Err(Errno::EEXIST);
    }
    v.write_full(content)?;
    let by = signature(v.origin());
    v.set_xattr(b"said_by", by)?;
    Ok(0)
}

fn write_return_data(v: &mut dyn ObjectView, input: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    v.set_xattr(b"foo", Bytes::from_static(b"bar"))?;
    if !input.is_empty() {
        *out = Bytes::from_static(b"too much input data!");
        return Err(Errno::EINVAL);
    }
    *out = Bytes::from_static(b"you might see this");
    Ok(42)
}

fn write_too_much_return_data(v: &mut dyn ObjectView, _: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    v.set_xattr(b"foo", Bytes::from_static(b"bar"))?;
    *out = "you should not see this because it is toooooo long. ".repeat(10).into();
    Ok(42)
}

fn replay(v: &mut dyn ObjectView, _: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    *out = v.read(0, MAX_CONTENT)?;
    Ok(0)
}

fn turn_it_to_11(v: &mut dyn ObjectView, input: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    if !input.is_empty() {
        return Err(Errno::EINVAL);
    }
    let loud = v.read(0, MAX_CONTENT)?.to_ascii_uppercase();
    v.write_full(loud.into())?;
    let by = signature(v.origin());
    v.set_xattr(b"amplified_by", by)?;
    Ok(0)
}

/// Reads although it is not declared to: the OSD answers EIO.
fn bad_reader(v: &mut dyn ObjectView, _: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    *out = v.read(0, 100)?;
    Ok(out.len() as i32)
}

/// Writes although it is not declared to: the OSD answers EIO.
fn bad_writer(v: &mut dyn ObjectView, input: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    v.write_full(input.clone())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use types::Errno;

    use crate::fake::Fake;

    #[test]
    fn it_greets_records_and_replays() {
        let mut f = Fake::with_data("");
        assert_eq!(f.call("hello", "say_hello", ""), Ok((0, "Hello, world!".into())));
        assert_eq!(f.call("hello", "say_hello", "x".repeat(101)), Err(Errno::EINVAL));
        f.object = None;
        assert_eq!(f.call("hello", "record_hello", "Tester"), Ok((0, "".into())));
        assert_eq!(f.call("hello", "record_hello", "Tester"), Err(Errno::EEXIST));
        assert_eq!(f.call("hello", "turn_it_to_11", ""), Ok((0, "".into())));
        assert_eq!(f.call("hello", "replay", ""), Ok((0, "HELLO, TESTER!".into())));
    }
}
