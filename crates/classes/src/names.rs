//! Names that methods make up.

use bytes::Bytes;

use crate::ObjectView;

/// Letters of base 64.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// 24 letters that no other call is given. Source: cls_gen_rand_base64 in src/objclass/class_api.cc, where
/// they are random.
pub(crate) fn made_up(v: &dyn ObjectView) -> Bytes {
    let letter = |six: u8| LETTERS.get(usize::from(six & 63)).copied().unwrap_or(b'A');
    let bytes = v.unique();
    let (low, high) = (bytes.iter().map(|b| letter(*b)), bytes.iter().map(|b| letter(*b >> 2)));
    low.chain(high.take(8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn every_letter_stands_for_six_bits() {
        assert_eq!(made_up(&Fake::default()), "wxyz012345hijklmMMMMNNNN");
    }
}
