//! Comparisons that guard a request: of extended attributes and of omap values. Source: PrimaryLogPG::do_xattr_cmp_str,
//! do_xattr_cmp_u64, CEPH_OSD_OP_OMAP_CMP.

use std::cmp::Ordering;

use bytes::Bytes;
use messages::osd::CmpOp;
use types::Errno;

/// Whether `given op stored` holds; the client's value stands on the left.
pub(super) fn holds(op: u8, order: Ordering) -> Result<bool, Errno> {
    Ok(match CmpOp::from_u8(op).ok_or(Errno::EINVAL)? {
        CmpOp::Eq => order.is_eq(),
        CmpOp::Ne => order.is_ne(),
        CmpOp::Gt => order.is_gt(),
        CmpOp::Gte => order.is_ge(),
        CmpOp::Lt => order.is_lt(),
        CmpOp::Lte => order.is_le(),
    })
}

/// The number that a stored attribute spells, as strtoull reads it: 0 without digits, the largest when too large.
pub(super) fn stored_number(value: &[u8]) -> u64 {
    let text = value.trim_ascii_start();
    // strtoull takes a vertical tab for a space, Rust does not; nobody stores one.
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        other => (false, other),
    };
    let mut number = 0u64;
    for d in digits.iter().take_while(|d| d.is_ascii_digit()) {
        let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(d - b'0')));
        match next {
            Some(n) => number = n,
            None => return u64::MAX,
        }
    }
    if negative { number.wrapping_neg() } else { number }
}

/// Whether a stored omap value (empty when the key is missing) fulfils an assertion; here it stands on the left. Bytes
/// compare as signed, as they do in Ceph on x86 and to its clients.
pub(super) fn omap_value_holds(stored: &[u8], op: i32, given: &Bytes) -> Result<bool, Errno> {
    let order = || stored.iter().map(|b| *b as i8).cmp(given.iter().map(|b| *b as i8));
    match u8::try_from(op).ok().and_then(CmpOp::from_u8) {
        Some(CmpOp::Eq) => Ok(stored == given.as_ref()),
        Some(CmpOp::Lt) => Ok(order().is_lt()),
        Some(CmpOp::Gt) => Ok(order().is_gt()),
        _ => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_strtoull_does() {
        for (text, number) in [
            (&b""[..], 0),
            (b"17", 17),
            (b"  17x", 17),
            (b"+3", 3),
            (b"-1", u64::MAX),
            (b"x", 0),
            (b"18446744073709551615", u64::MAX),
            (b"18446744073709551616", u64::MAX),
        ] {
            assert_eq!(stored_number(text), number, "{text:?}");
        }
    }

    #[test]
    fn omap_values_compare_as_signed_bytes() {
        let high = Bytes::from_static(&[0x80]);
        assert_eq!(omap_value_holds(b"a", CmpOp::Gt as i32, &high), Ok(true));
        assert_eq!(omap_value_holds(b"", CmpOp::Lt as i32, &high), Ok(true));
        assert_eq!(omap_value_holds(b"a", CmpOp::Lte as i32, &high), Err(Errno::EINVAL));
        assert_eq!(omap_value_holds(b"a", 257, &high), Err(Errno::EINVAL));
    }
}
