//! Whose objects are that others than a bucket's owner write to it. 16.2 knows no such settings, and passes
//! over them. Source: src/rgw/rgw_object_ownership.h of 20.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The attribute `user.rgw.ownership-controls`. Source: OwnershipControls, with ObjectOwnership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The bucket's owner has all objects, and lists of grants count for nothing.
    Enforced,
    /// The bucket's owner has what is written with all rights for it.
    Preferred,
    Writer,
}

impl Ownership {
    pub const ALL: [Self; 3] = [Self::Enforced, Self::Preferred, Self::Writer];

    pub fn name(self) -> &'static str {
        match self {
            Self::Enforced => "BucketOwnerEnforced",
            Self::Preferred => "BucketOwnerPreferred",
            Self::Writer => "ObjectWriter",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl Encode for Ownership {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| w.u8(*self as u8));
    }
}
impl Decode for Ownership {
    const MIN_SIZE: usize = 7;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("ownership", 1, |r, _| {
            let value = r.u8()?;
            let wrong = DecodeError::Invalid { what: "ownership", value: value.into() };
            Self::ALL.into_iter().nth(value.into()).ok_or(wrong)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the source: no release that writes it is at hand.
    #[test]
    fn ownership_is_as_later_releases_have_it() {
        for (n, one) in Ownership::ALL.into_iter().enumerate() {
            let bytes = one.to_bytes();
            assert_eq!(&bytes[..], &[1, 1, 1, 0, 0, 0, n as u8]);
            assert_eq!(Ownership::from_bytes(bytes.clone()), Ok(one));
            assert_eq!(Ownership::named(one.name()), Some(one));
            for end in 0..bytes.len() {
                assert!(Ownership::from_bytes(bytes.slice(..end)).is_err());
            }
        }
        assert!(Ownership::from_bytes(vec![1u8, 1, 1, 0, 0, 0, 3]).is_err());
        assert_eq!(Ownership::named("Other"), None);
    }
}
