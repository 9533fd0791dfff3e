//! Bytes that no log may show.

use std::ops::Deref;

use bytes::Bytes;

/// A key or a secret in transit; `Debug` tells its length only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Bytes);

impl Deref for Secret {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for Secret {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_it_is_printed() {
        let shown = format!("{:?}", Secret::from(&b"sixteen byte key"[..]));
        assert_eq!(shown, "Secret(16 bytes)");
    }
}
