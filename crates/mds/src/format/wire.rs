//! The envelope of stored structures, with the oldest version that is still read.

/// Implements `Encode` and `Decode` for a struct with an envelope: `(version, compat, oldest)`, then the
/// fields in order. A field that came `since` a later version is its default in what is older.
macro_rules! stored {
    (
        $name:ident ($version:literal, $compat:literal, $oldest:literal) { $($field:ident),+ $(,)? }
        $(since $later:literal { $($new:ident),+ $(,)? })*
    ) => {
        impl codec::Encode for $name {
            fn encode(&self, w: &mut codec::Writer) {
                w.envelope($version, $compat, |w| {
                    $( codec::Encode::encode(&self.$field, w); )+
                    $($( codec::Encode::encode(&self.$new, w); )+)*
                });
            }
        }
        impl codec::Decode for $name {
            const MIN_SIZE: usize = 6;
            fn decode(r: &mut codec::Reader) -> Result<Self, codec::DecodeError> {
                r.envelope_since(stringify!($name), $version, $oldest, |r, _version| {
                    Ok(Self {
                        $( $field: codec::Decode::decode(r)?, )+
                        $($( $new: if _version >= $later { codec::Decode::decode(r)? } else { Default::default() }, )+)*
                    })
                })
            }
        }
    };
}
pub(super) use stored;
