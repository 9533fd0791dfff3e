//! Tables in plain text, as `ceph df` and `ceph osd tree` lay them out.
//!
//! Source: src/common/TextTable.cc.

/// On which side a column's texts stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

#[derive(Debug, Clone)]
struct Column {
    heading: String,
    heading_align: Align,
    align: Align,
}

/// A table under construction. Columns are as wide as their widest text, counted in bytes as Ceph does.
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a column whose heading and texts stand on the same side.
    #[must_use]
    pub fn column(self, heading: &str, align: Align) -> Self {
        self.column_headed(heading, align, align)
    }

    #[must_use]
    pub fn left(self, heading: &str) -> Self {
        self.column(heading, Align::Left)
    }

    #[must_use]
    pub fn right(self, heading: &str) -> Self {
        self.column(heading, Align::Right)
    }

    /// Adds a column whose heading may stand on another side than its texts.
    #[must_use]
    pub fn column_headed(mut self, heading: &str, heading_align: Align, align: Align) -> Self {
        self.columns.push(Column { heading: heading.to_owned(), heading_align, align });
        self
    }

    /// Adds a row. Missing texts are empty, surplus ones are dropped.
    pub fn row<T: Into<String>>(&mut self, texts: impl IntoIterator<Item = T>) {
        let mut row: Vec<String> = texts.into_iter().map(Into::into).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Headings and rows, each line with its end.
    pub fn render(&self) -> String {
        let widths: Vec<usize> = self.columns.iter().enumerate().map(|(i, c)| self.width(i, c)).collect();
        let headings = self.columns.iter().map(|c| (c.heading.as_str(), c.heading_align));
        let mut out = line(&widths, headings);
        for row in &self.rows {
            let texts = row.iter().zip(&self.columns).map(|(text, c)| (text.as_str(), c.align));
            out += &line(&widths, texts);
        }
        out
    }

    fn width(&self, index: usize, column: &Column) -> usize {
        let texts = self.rows.iter().filter_map(|row| row.get(index)).map(String::len);
        texts.max().unwrap_or(0).max(column.heading.len())
    }
}

fn line<'a>(widths: &[usize], texts: impl Iterator<Item = (&'a str, Align)>) -> String {
    let padded = widths.iter().zip(texts).map(|(width, (text, align))| {
        let gap = " ".repeat(width.saturating_sub(text.len()));
        match align {
            Align::Left => format!("{text}{gap}"),
            Align::Right => format!("{gap}{text}"),
        }
    });
    padded.collect::<Vec<_>>().join("  ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_cephs() {
        let mut t = TextTable::new().left("CLASS").right("SIZE").right("AVAIL").left("");
        t.row(["hdd", "30 GiB", "29 GiB", ""]);
        t.row(["TOTAL"]);
        let want = "CLASS    SIZE   AVAIL  \nhdd    30 GiB  29 GiB  \nTOTAL                  \n";
        assert_eq!(t.render(), want);
    }
}
