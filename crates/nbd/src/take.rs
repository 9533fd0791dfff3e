//! Reads big-endian numbers and strings from an option's bytes; every read is checked.

/// The bytes do not hold what their type says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed")]
pub struct Malformed;

/// What is left of an option.
pub struct Take<'a>(pub &'a [u8]);

impl<'a> Take<'a> {
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.bytes(N)?.try_into().map_err(|_| Malformed)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with a 32-bit length before it: UTF-8, without NUL, at most `MAX_NAME` bytes.
    pub fn name(&mut self) -> Result<&'a str, Malformed> {
        let len = self.u32()? as usize;
        name(self.bytes(len)?)
    }

    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// Checks that bytes are a name the protocol allows.
pub fn name(bytes: &[u8]) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
    if text.len() > crate::MAX_NAME || text.contains('\0') { Err(Malformed) } else { Ok(text) }
}
