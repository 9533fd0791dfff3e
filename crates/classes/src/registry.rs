//! The classes by name, and their methods with what each may do.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::Errno;

use crate::ObjectView;

/// What a method may do to its object; it decides about caps and about how the request is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MethodFlags {
    pub read: bool,
    pub write: bool,
}

impl MethodFlags {
    pub const RD: Self = Self { read: true, write: false };
    pub const WR: Self = Self { read: false, write: true };
    pub const RD_WR: Self = Self { read: true, write: true };
}

/// A method's body: input, output, and a result of 0 or more. Output counts even beside an error.
pub type Run = fn(&mut dyn ObjectView, &Bytes, &mut Bytes) -> Result<i32, Errno>;

pub struct Method {
    pub name: &'static str,
    pub flags: MethodFlags,
    pub run: Run,
}

pub struct Class {
    pub name: &'static str,
    pub methods: &'static [Method],
}

/// Every class. Source: osd_class_load_list in src/common/options.cc.
pub const CLASSES: &[&Class] = &[
    &crate::two_pc_queue::CLASS,
    &crate::cas::CLASS,
    &crate::cephfs::CLASS,
    &crate::cmpomap::CLASS,
    &crate::fifo::CLASS,
    &crate::hello::CLASS,
    &crate::journal::CLASS,
    &crate::lock::CLASS,
    &crate::log::CLASS,
    &crate::numops::CLASS,
    &crate::otp::CLASS,
    &crate::queue::CLASS,
    &crate::rbd::CLASS,
    &crate::refcount::CLASS,
    &crate::rgw::CLASS,
    &crate::rgw_gc::CLASS,
    &crate::timeindex::CLASS,
    &crate::user::CLASS,
    &crate::version::CLASS,
];

/// There is no such class or method: EOPNOTSUPP to the caller.
///
/// A class that an OSD must not load is refused before it is looked up here (`osd_class_load_list`, in the `pg` crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown;

/// Looks a method up.
pub fn find(class: &str, method: &str) -> Result<&'static Method, Unknown> {
    let class = CLASSES.iter().find(|c| c.name == class).ok_or(Unknown)?;
    class.methods.iter().find(|m| m.name == method).ok_or(Unknown)
}

impl Method {
    pub const fn new(name: &'static str, flags: MethodFlags, run: Run) -> Self {
        Self { name, flags, run }
    }
}

/// Reads a method's input; what does not decode is the caller's fault.
pub(crate) fn input<T: Decode>(bytes: &Bytes) -> Result<T, Errno> {
    T::from_bytes(bytes.clone()).map_err(|_| Errno::EINVAL)
}

/// Reads what a method stored earlier; what does not decode is damaged.
pub(crate) fn stored<T: Decode>(bytes: Bytes) -> Result<T, Errno> {
    T::from_bytes(bytes).map_err(|_| Errno::EIO)
}

/// A method with typed input and output: `name FLAGS function`, where the function is given a view and the
/// decoded input. A name that is no identifier stands in quotes.
macro_rules! method {
    ($name:ident $flags:ident $run:path) => {
        $crate::registry::method!((stringify!($name)) $flags $run)
    };
    ($name:literal $flags:ident $run:path) => {
        $crate::registry::method!(($name) $flags $run)
    };
    (($name:expr) $flags:ident $run:path) => {
        $crate::registry::Method::new(
            $name,
            $crate::registry::MethodFlags::$flags,
            |v, bytes, out| {
                *out = codec::Encode::to_bytes(&$run(v, $crate::registry::input(bytes)?)?);
                Ok(0)
            },
        )
    };
}
pub(crate) use method;

/// Methods as `method` has them.
macro_rules! methods {
    ($($name:ident $flags:ident $run:path),+ $(,)?) => {
        &[$( $crate::registry::method!($name $flags $run) ),+]
    };
}
pub(crate) use methods;

/// `wire_struct!` for structs that grew: fields behind `; version:` are read from that version on, else left at their
/// default.
macro_rules! wire_grown {
    ($name:ident ($version:expr, $compat:expr) { $($field:ident),+ $(; $since:literal: $($late:ident),+)+ }) => {
        impl codec::Encode for $name {
            fn encode(&self, w: &mut codec::Writer) {
                w.envelope($version, $compat, |w| {
                    $( self.$field.encode(w); )+
                    $($( self.$late.encode(w); )+)+
                });
            }
        }
        impl codec::Decode for $name {
            const MIN_SIZE: usize = 6;
            fn decode(r: &mut codec::Reader) -> Result<Self, codec::DecodeError> {
                r.envelope(stringify!($name), $version, |r, env| {
                    let mut v = Self::default();
                    $( v.$field = codec::Decode::decode(r)?; )+
                    $( if env.version >= $since {
                        $( v.$late = codec::Decode::decode(r)?; )+
                    } )+
                    Ok(v)
                })
            }
        }
    };
}
pub(crate) use wire_grown;

/// Output of a method that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done;

impl Encode for Done {
    fn encode(&self, _: &mut Writer) {}
}
impl Decode for Done {
    const MIN_SIZE: usize = 0;
    fn decode(_: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

/// Input that a method does not look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nothing;

impl Encode for Nothing {
    fn encode(&self, _: &mut Writer) {}
}
impl Decode for Nothing {
    const MIN_SIZE: usize = 0;
    fn decode(_: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

/// Bytes as they are: input that the method decodes itself, output that is encoded already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Raw(pub Bytes);

impl Encode for Raw {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}
impl Decode for Raw {
    const MIN_SIZE: usize = 0;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let rest = r.rest();
        r.skip(rest.len())?;
        Ok(Self(rest))
    }
}

/// Input at the end that older callers leave out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tail<T>(pub Option<T>);

impl<T: Encode> Encode for Tail<T> {
    fn encode(&self, w: &mut Writer) {
        if let Some(v) = &self.0 {
            v.encode(w);
        }
    }
}
impl<T: Decode> Decode for Tail<T> {
    const MIN_SIZE: usize = 0;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        if r.is_empty() { Ok(Self(None)) } else { T::decode(r).map(|v| Self(Some(v))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        for (i, class) in CLASSES.iter().enumerate() {
            assert!(CLASSES.iter().skip(i + 1).all(|c| c.name != class.name), "{}", class.name);
            for (j, m) in class.methods.iter().enumerate() {
                assert!(
                    class.methods.iter().skip(j + 1).all(|n| n.name != m.name),
                    "{}.{}",
                    class.name,
                    m.name
                );
                assert_eq!(find(class.name, m.name).map(|f| f.flags).ok(), Some(m.flags));
            }
        }
        for (class, method) in [("hello", "say"), ("hell", "say_hello"), ("", "")] {
            assert_eq!(find(class, method).err(), Some(Unknown), "{class}.{method}");
        }
    }
}
