//! The matrices of Ceph's plug-ins: for each coding chunk a row of coefficients, one for each data chunk.
//!
//! jerasure and isa both call their default `reed_sol_van`, and share nothing but the first row.

use crate::field::{double, inverse, mul};
use crate::matrix::Matrix;

/// jerasure's `reed_sol_van`: a Vandermonde matrix, extended by a first and a last row, made systematic by
/// column operations, and scaled so that the first coding row and the first column are ones.
/// Source: reed_sol_vandermonde_coding_matrix in jerasure's reed_sol.c.
pub(crate) fn jerasure_reed_sol_van(k: usize, m: usize) -> Matrix {
    let rows = k + m;
    let power = |base: usize, exponent: usize| (0..exponent).fold(1, |p, _| mul(p, base as u8));
    let mut v = Matrix::from_fn(rows, k, |r, c| match r {
        0 => u8::from(c == 0),
        _ if r == rows - 1 => u8::from(c == k - 1),
        _ => power(r, c),
    });
    for i in 1..k {
        let pivot = (i..rows).find(|r| v.at(*r, i) != 0).unwrap_or(i);
        v.swap_rows(i, pivot);
        v.scale_column(i, inverse(v.at(i, i)), 0);
        for j in (0..k).filter(|j| *j != i) {
            v.add_column(i, j, v.at(i, j));
        }
    }
    for column in 0..k {
        v.scale_column(column, inverse(v.at(k, column)), k);
    }
    for row in k + 1..rows {
        v.scale_row(row, inverse(v.at(row, 0)));
    }
    v.below(k)
}

/// A row of ones, and one of the powers of 2: jerasure's `reed_sol_r6_op` (m = 2), and with more powers of 2
/// isa's `reed_sol_van`. Source: reed_sol_r6_coding_matrix in jerasure, gf_gen_rs_matrix in ISA-L.
pub(crate) fn powers(k: usize, m: usize) -> Matrix {
    let power = |base: u8, exponent: usize| (0..exponent).fold(1, |p, _| mul(p, base));
    let bases: Vec<u8> = std::iter::successors(Some(1), |base| Some(double(*base))).take(m).collect();
    Matrix::from_fn(m, k, |r, c| power(bases.get(r).copied().unwrap_or(0), c))
}

/// isa's `cauchy`; its single parity is a plain sum whatever the matrix says. Source: gf_gen_cauchy1_matrix
/// in ISA-L, ErasureCodeIsaDefault::isa_encode.
pub(crate) fn isa_cauchy(k: usize, m: usize) -> Matrix {
    match m {
        1 => powers(k, 1),
        _ => Matrix::from_fn(m, k, |r, c| inverse(((k + r) ^ c) as u8)),
    }
}

/// jerasure's `cauchy_orig`. Source: cauchy_original_coding_matrix in jerasure's cauchy.c.
pub(crate) fn cauchy_orig(k: usize, m: usize) -> Matrix {
    Matrix::from_fn(m, k, |r, c| inverse((r ^ (m + c)) as u8))
}

/// jerasure's `cauchy_good`: fewer ones in the bits, so fewer sums. With two coding chunks the second row
/// takes the elements with the fewest ones; otherwise the original matrix is scaled.
/// Source: cauchy_good_general_coding_matrix, cauchy_improve_coding_matrix, cbest_8 in jerasure's cauchy.c,
/// cauchy_best_r6.c.
pub(crate) fn cauchy_good(k: usize, m: usize) -> Matrix {
    if m == 2 {
        let mut elements: Vec<u8> = (1..=255).collect();
        // The sort is stable: elements of as many ones stay in the order of their values.
        elements.sort_by_key(|element| ones(*element));
        return Matrix::from_fn(2, k, |r, c| if r == 0 { 1 } else { elements.get(c).copied().unwrap_or(0) });
    }
    let mut matrix = cauchy_orig(k, m);
    for column in 0..k {
        matrix.scale_column(column, inverse(matrix.at(0, column)), 0);
    }
    for row in 1..m {
        let row_ones = |factor: u8| (0..k).map(|c| ones(mul(matrix.at(row, c), factor))).sum::<u32>();
        let factors = (0..k).map(|c| matrix.at(row, c)).filter(|cell| *cell != 1).map(inverse);
        // The first of the best ones, and none that is no better than the row as it stands.
        let best = factors.fold((row_ones(1), 1), |best, factor| {
            let count = row_ones(factor);
            if count < best.0 { (count, factor) } else { best }
        });
        matrix.scale_row(row, best.1);
    }
    matrix
}

/// Ones in the 8 by 8 bits that multiply by an element. Source: cauchy_n_ones.
fn ones(element: u8) -> u32 {
    std::iter::successors(Some(element), |e| Some(double(*e))).take(8).map(u8::count_ones).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(matrix: &Matrix, rows: &[&[u8]]) {
        assert_eq!(matrix.rows(), rows);
    }

    /// As the plug-ins of Ceph 16.2.15 have them: their parity of chunks with a single one.
    #[test]
    fn matrices_are_those_of_the_plugins() {
        check(&jerasure_reed_sol_van(4, 2), &[&[1, 1, 1, 1], &[1, 70, 143, 200]]);
        check(&jerasure_reed_sol_van(6, 2), &[&[1; 6], &[1, 123, 245, 143, 244, 142]]);
        let third: &[u8] = &[1, 225, 151, 172, 82, 200];
        check(&jerasure_reed_sol_van(6, 3), &[&[1; 6], third, &[1, 123, 245, 143, 244, 142]]);
        check(&powers(6, 3), &[&[1; 6], &[1, 2, 4, 8, 16, 32], &[1, 4, 16, 64, 29, 116]]);
        check(&isa_cauchy(4, 1), &[&[1; 4]]);
    }
}
