//! Bytes as Ceph's tools show them.

use std::fmt::Write as _;

/// Sixteen bytes a line with their offset; lines of zeros beyond the first of a run are a star.
///
/// Source: buffer::list::hexdump in src/common/buffer.cc.
pub fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    let (mut were_zeros, mut starred) = (false, false);
    for (line, row) in bytes.chunks(16).enumerate() {
        let offset = line * 16;
        let is_last = offset + 16 >= bytes.len();
        let zeros = !is_last && row.iter().all(|b| *b == 0);
        if zeros && were_zeros {
            if !starred {
                out.push_str("\n*");
                starred = true;
            }
            continue;
        }
        starred &= zeros;
        were_zeros = zeros;
        if line > 0 {
            out.push('\n');
        }
        let _ = write!(out, "{offset:08x} ");
        for i in 0..16 {
            if i == 8 {
                out.push(' ');
            }
            match row.get(i) {
                Some(byte) => drop(write!(out, " {byte:02x}")),
                None => out.push_str("   "),
            }
        }
        let text: String =
            row.iter().map(|b| if (0x20..0x7f).contains(b) { char::from(*b) } else { '.' }).collect();
        let _ = write!(out, "  |{text}|");
    }
    let _ = writeln!(out, "\n{:08x}", bytes.len());
    out
}

#[cfg(test)]
mod tests {
    use super::dump;

    /// What `rados getomapval` of Ceph 16.2 prints for these values.
    #[test]
    fn looks_like_cephs() {
        let line = "00000000  68 65 6c 6c 6f                                    |hello|\n00000005\n";
        assert_eq!(dump(b"hello"), line);
        let zeros = [[0u8; 64].as_slice(), b"x"].concat();
        let want = "00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|\n*\n\
                    00000040  78                                                |x|\n00000041\n";
        assert_eq!(dump(&zeros), want);
    }
}
