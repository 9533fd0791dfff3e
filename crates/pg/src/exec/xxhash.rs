//! The xxHash checksums that clients may ask for. Source: <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>.

const P32: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
const P64: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

fn le<const N: usize>(b: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.iter_mut().zip(b).for_each(|(o, b)| *o = *b);
    out
}

fn round32(acc: u32, lane: u32) -> u32 {
    acc.wrapping_add(lane.wrapping_mul(P32[1])).rotate_left(13).wrapping_mul(P32[0])
}

/// XXH32.
pub(super) fn xxh32(seed: u32, data: &[u8]) -> u32 {
    let stripes = data.chunks_exact(16);
    let mut tail = stripes.remainder();
    let mut h = if data.len() < 16 {
        seed.wrapping_add(P32[4])
    } else {
        let mut acc = [
            seed.wrapping_add(P32[0]).wrapping_add(P32[1]),
            seed.wrapping_add(P32[1]),
            seed,
            seed.wrapping_sub(P32[0]),
        ];
        for stripe in stripes {
            for (a, lane) in acc.iter_mut().zip(stripe.chunks_exact(4)) {
                *a = round32(*a, u32::from_le_bytes(le(lane)));
            }
        }
        let [a, b, c, d] = acc;
        let sum = a.rotate_left(1).wrapping_add(b.rotate_left(7));
        sum.wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18))
    };
    h = h.wrapping_add(data.len() as u32);
    while let Some((lane, rest)) = tail.split_at_checked(4) {
        h = h
            .wrapping_add(u32::from_le_bytes(le(lane)).wrapping_mul(P32[2]))
            .rotate_left(17)
            .wrapping_mul(P32[3]);
        tail = rest;
    }
    for b in tail {
        h = h.wrapping_add(u32::from(*b).wrapping_mul(P32[4])).rotate_left(11).wrapping_mul(P32[0]);
    }
    h = (h ^ (h >> 15)).wrapping_mul(P32[1]);
    h = (h ^ (h >> 13)).wrapping_mul(P32[2]);
    h ^ (h >> 16)
}

fn round64(acc: u64, lane: u64) -> u64 {
    acc.wrapping_add(lane.wrapping_mul(P64[1])).rotate_left(31).wrapping_mul(P64[0])
}

fn merge64(h: u64, acc: u64) -> u64 {
    (h ^ round64(0, acc)).wrapping_mul(P64[0]).wrapping_add(P64[3])
}

/// XXH64.
pub(super) fn xxh64(seed: u64, data: &[u8]) -> u64 {
    let stripes = data.chunks_exact(32);
    let mut tail = stripes.remainder();
    let mut h = if data.len() < 32 {
        seed.wrapping_add(P64[4])
    } else {
        let mut acc = [
            seed.wrapping_add(P64[0]).wrapping_add(P64[1]),
            seed.wrapping_add(P64[1]),
            seed,
            seed.wrapping_sub(P64[0]),
        ];
        for stripe in stripes {
            for (a, lane) in acc.iter_mut().zip(stripe.chunks_exact(8)) {
                *a = round64(*a, u64::from_le_bytes(le(lane)));
            }
        }
        let [a, b, c, d] = acc;
        let sum = a.rotate_left(1).wrapping_add(b.rotate_left(7));
        let sum = sum.wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
        acc.iter().fold(sum, |h, a| merge64(h, *a))
    };
    h = h.wrapping_add(data.len() as u64);
    while let Some((lane, rest)) = tail.split_at_checked(8) {
        let k = round64(0, u64::from_le_bytes(le(lane)));
        h = (h ^ k).rotate_left(27).wrapping_mul(P64[0]).wrapping_add(P64[3]);
        tail = rest;
    }
    if let Some((lane, rest)) = tail.split_at_checked(4) {
        let k = u64::from(u32::from_le_bytes(le(lane))).wrapping_mul(P64[0]);
        h = (h ^ k).rotate_left(23).wrapping_mul(P64[1]).wrapping_add(P64[2]);
        tail = rest;
    }
    for b in tail {
        h = (h ^ u64::from(*b).wrapping_mul(P64[4])).rotate_left(11).wrapping_mul(P64[0]);
    }
    h = (h ^ (h >> 33)).wrapping_mul(P64[1]);
    h = (h ^ (h >> 29)).wrapping_mul(P64[2]);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference implementation (`xxhsum` prints them for seed 0).
    #[test]
    fn known_values() {
        assert_eq!(xxh32(0, b""), 0x02cc_5d05);
        assert_eq!(xxh32(0, b"abc"), 0x32d1_53ff);
        assert_eq!(xxh64(0, b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(0, b"abc"), 0x44bc_2cf5_ad77_0999);
    }
}
