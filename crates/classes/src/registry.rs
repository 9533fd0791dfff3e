//! The classes by name, and their methods with what each may do.

use bytes::Bytes;
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
    &crate::hello::CLASS,
    &crate::lock::CLASS,
    &crate::numops::CLASS,
    &crate::rbd::CLASS,
    &crate::refcount::CLASS,
    &crate::timeindex::CLASS,
    &crate::version::CLASS,
];

/// There is no such class or method: EOPNOTSUPP to the caller.
///
/// An OSD of Ceph says EPERM to a class outside `osd_class_load_list`; ours has no list of what it may load, which is the
/// list `*` that Ceph's own tests run with.
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
pub(crate) fn input<T: codec::Decode>(bytes: &Bytes) -> Result<T, Errno> {
    T::from_bytes(bytes.clone()).map_err(|_| Errno::EINVAL)
}

/// Reads what a method stored earlier; what does not decode is damaged.
pub(crate) fn stored<T: codec::Decode>(bytes: Bytes) -> Result<T, Errno> {
    T::from_bytes(bytes).map_err(|_| Errno::EIO)
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
