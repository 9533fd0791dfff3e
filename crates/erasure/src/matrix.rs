//! Matrices over the field, for setting codes up.

use crate::field::{inverse, mul};

/// Rows of equal length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    columns: usize,
    rows: Vec<Vec<u8>>,
}

impl Matrix {
    pub(crate) fn from_fn(rows: usize, columns: usize, cell: impl Fn(usize, usize) -> u8) -> Self {
        let row = |r| (0..columns).map(|c| cell(r, c)).collect();
        Self { columns, rows: (0..rows).map(row).collect() }
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn rows(&self) -> &[Vec<u8>] {
        &self.rows
    }

    /// A cell; 0 outside.
    pub(crate) fn at(&self, row: usize, column: usize) -> u8 {
        self.rows.get(row).and_then(|r| r.get(column)).copied().unwrap_or(0)
    }

    pub(crate) fn scale_row(&mut self, row: usize, factor: u8) {
        self.rows.get_mut(row).into_iter().flatten().for_each(|cell| *cell = mul(*cell, factor));
    }

    /// Scales a column in the rows from `first` on.
    pub(crate) fn scale_column(&mut self, column: usize, factor: u8, first: usize) {
        for row in self.rows.iter_mut().skip(first) {
            row.get_mut(column).into_iter().for_each(|cell| *cell = mul(*cell, factor));
        }
    }

    /// Adds `factor` times column `from` to column `to`.
    pub(crate) fn add_column(&mut self, from: usize, to: usize, factor: u8) {
        for row in &mut self.rows {
            let more = mul(row.get(from).copied().unwrap_or(0), factor);
            row.get_mut(to).into_iter().for_each(|cell| *cell ^= more);
        }
    }

    pub(crate) fn swap_rows(&mut self, a: usize, b: usize) {
        if a.max(b) < self.rows.len() {
            self.rows.swap(a, b);
        }
    }

    /// The rows from `first` on.
    pub(crate) fn below(mut self, first: usize) -> Self {
        self.rows.drain(..first.min(self.rows.len()));
        self
    }

    /// What rebuilds `targets` from `survivors`, by chunk: the first ones are data, the others are the rows
    /// of `self`. One row for each target, one column for each survivor. `None` when the survivors do not
    /// determine the data.
    pub(crate) fn recovery(&self, survivors: &[usize], targets: &[usize]) -> Option<Self> {
        let full_row = |chunk: usize| match chunk.checked_sub(self.columns) {
            Some(coding) => self.rows.get(coding).cloned().unwrap_or_default(),
            None => (0..self.columns).map(|c| u8::from(c == chunk)).collect(),
        };
        let known = Self { columns: self.columns, rows: survivors.iter().map(|s| full_row(*s)).collect() };
        let to_data = known.inverse()?;
        let rows = targets.iter().map(|t| to_data.combine(&full_row(*t))).collect();
        Some(Self { columns: survivors.len(), rows })
    }

    /// The sum of the rows, each scaled by its factor.
    fn combine(&self, factors: &[u8]) -> Vec<u8> {
        let mut sum = vec![0; self.columns];
        for (row, factor) in self.rows.iter().zip(factors).filter(|(_, factor)| **factor != 0) {
            sum.iter_mut().zip(row).for_each(|(s, cell)| *s ^= mul(*cell, *factor));
        }
        sum
    }

    /// Gauss and Jordan; `None` for a matrix that is singular or not square.
    fn inverse(&self) -> Option<Self> {
        let n = self.columns;
        if self.rows.len() != n {
            return None;
        }
        let identity = |r: usize| (0..n).map(move |c| u8::from(c == r));
        let mut rows: Vec<Vec<u8>> = self
            .rows
            .iter()
            .enumerate()
            .map(|(r, row)| row.iter().copied().chain(identity(r)).collect())
            .collect();
        for pivot in 0..n {
            let lead = |row: &Vec<u8>| row.get(pivot).copied().unwrap_or(0);
            let found = rows.iter().skip(pivot).position(|row| lead(row) != 0)? + pivot;
            rows.swap(pivot, found);
            let mut chosen = std::mem::take(rows.get_mut(pivot)?);
            let scale = inverse(lead(&chosen));
            chosen.iter_mut().for_each(|cell| *cell = mul(*cell, scale));
            for row in rows.iter_mut().filter(|row| !row.is_empty()) {
                let factor = lead(row);
                if factor != 0 {
                    row.iter_mut().zip(&chosen).for_each(|(cell, c)| *cell ^= mul(*c, factor));
                }
            }
            *rows.get_mut(pivot)? = chosen;
        }
        rows.iter_mut().for_each(|row| drop(row.drain(..n)));
        Some(Self { columns: n, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_matrix_loses_its_inverse_gives_back() {
        let m = Matrix::from_fn(5, 5, |r, c| inverse((r as u8) ^ (c as u8 + 16)));
        let back = m.inverse().expect("a Cauchy matrix has an inverse");
        for r in 0..5 {
            let unit: Vec<u8> = (0..5).map(|c| u8::from(c == r)).collect();
            assert_eq!(m.combine(&back.rows[r]), unit);
        }
        assert_eq!(Matrix::from_fn(2, 2, |_, c| c as u8 + 1).inverse(), None, "two equal rows");
        assert_eq!(Matrix::from_fn(2, 3, |r, c| u8::from(r == c)).inverse(), None, "not square");
    }

    #[test]
    fn an_inverse_needs_rows_to_be_swapped() {
        let m = Matrix::from_fn(2, 2, |r, c| u8::from(r != c));
        assert_eq!(m.inverse(), Some(m.clone()));
    }
}
