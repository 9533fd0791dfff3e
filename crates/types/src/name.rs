//! Names of objects: shared text of one word, which a request hands on a dozen times.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use arcstr::ArcStr;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A text that never changes. A clone counts references whatever the length (names of block images have 39 bytes); the
/// empty one, as most locator keys and namespaces are, takes no memory at all.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(ArcStr);

impl Name {
    pub const fn new() -> Self {
        Self(ArcStr::new())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Bytes of memory of the text and its head, shared by all clones; none for the empty one.
    pub fn memory_bytes(&self) -> usize {
        // The head: length and count of references.
        if self.0.is_empty() { 0 } else { self.0.len() + 2 * size_of::<usize>() }
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}
impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(ArcStr::from(text))
    }
}
impl From<String> for Name {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}
impl From<&String> for Name {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}
impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}
impl From<&Name> for String {
    fn from(name: &Name) -> Self {
        name.as_str().to_owned()
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == text
    }
}
impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == *text
    }
}
impl PartialEq<String> for Name {
    fn eq(&self, text: &String) -> bool {
        self.as_str() == text
    }
}
impl PartialEq<Name> for String {
    fn eq(&self, name: &Name) -> bool {
        self == name.as_str()
    }
}
impl PartialEq<Name> for &str {
    fn eq(&self, name: &Name) -> bool {
        *self == name.as_str()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Encode for Name {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.blob(self.as_bytes());
    }
}
impl Decode for Name {
    const MIN_SIZE: usize = 4;
    #[inline]
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.text(|text| Self::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_travels_as_text_and_only_as_text() {
        for text in ["", "a", "rbd_data.10226b8b4567.0000000000000000"] {
            let name = Name::from(text);
            let raw = name.to_bytes();
            assert_eq!(raw, text.to_bytes());
            assert_eq!(Name::from_bytes(raw.clone()), Ok(name));
            assert!((0..raw.len()).all(|cut| Name::from_bytes(raw.slice(..cut)).is_err()));
        }
        assert!(Name::from_bytes(vec![1, 0, 0, 0, 0xff]).is_err());
    }

    #[test]
    fn clones_share_the_text_and_the_empty_one_has_none() {
        let name = Name::from("a name that is longer than any that would fit in place");
        assert_eq!(name.clone().as_ptr(), name.as_ptr());
        assert_eq!(Name::from("").memory_bytes(), 0);
        assert_eq!(size_of::<Name>(), size_of::<usize>());
    }
}
