//! Tables and numbers as Ceph's manager modules print them, who use Python's PrettyTable.
//!
//! Source: format_units in src/pybind/mgr/mgr_util.py; PrettyTable without borders and two spaces behind each column.

/// A table under construction.
pub struct PrettyTable {
    /// Headings, and whether the column stands right.
    columns: Vec<(&'static str, bool)>,
    rows: Vec<Vec<String>>,
}

impl PrettyTable {
    pub fn new(columns: &[(&'static str, bool)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Headings and rows, each line with its end.
    pub fn render(&self) -> String {
        let width = |i: usize, heading: &str| {
            let cells = self.rows.iter().filter_map(|r| r.get(i)).map(String::len);
            cells.max().unwrap_or(0).max(heading.len())
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(|(i, (h, _))| width(i, h)).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded = cells.zip(&widths).zip(&self.columns).map(|((text, w), (_, right))| match right {
                true => format!("{text:>w$}  "),
                false => format!("{text:<w$}  "),
            });
            padded.collect::<String>()
        };
        let mut lines = vec![line(&mut self.columns.iter().map(|(h, _)| *h))];
        lines.extend(self.rows.iter().map(|r| line(&mut r.iter().map(String::as_str))));
        lines.join("\n") + "\n"
    }
}

/// A count in `width` characters: ` 301k`.
pub fn dimless(v: f64, width: usize) -> String {
    units(v, width, 1000.0)
}

/// Bytes in `width` characters: `9938M`.
pub fn of_bytes(v: f64, width: usize) -> String {
    units(v, width, 1024.0)
}

fn units(v: f64, width: usize, factor: f64) -> String {
    const UNITS: [&str; 7] = [" ", "k", "M", "G", "T", "P", "E"];
    let digits = width.saturating_sub(1);
    let whole = |unit: usize| (v.trunc() / factor.powi(unit as i32)).floor();
    let unit =
        (0..UNITS.len()).find(|u| format!("{:.0}", whole(*u)).len() <= digits).unwrap_or(UNITS.len() - 1);
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 {
        return format!("{:>digits$}{name}", format!("{:.0}", v.trunc()));
    }
    let exact = format!("{:.6}", v / factor.powi(unit as i32));
    let cut = exact.get(..digits).unwrap_or(&exact);
    match cut.strip_suffix('.') {
        Some(number) => format!(" {number}{name}"),
        None => format!("{cut}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_the_status_module_prints_them() {
        // From `osd status` and `osd pool autoscale-status` of 16.2.15.
        let check = |kib: f64, want: &str| assert_eq!(of_bytes(kib * 1024.0, 5), want);
        check(0.0, "   0 ");
        check(308_412.0, " 301M");
        check(10_177_348.0, "9938M");
        assert_eq!(of_bytes(14_716_928.0, 6), "14372k");
        assert_eq!(of_bytes(2_306.0, 6), " 2306 ");
        assert_eq!(of_bytes(32_212_254_720.0, 6), "30720M");
        assert_eq!(of_bytes(65_536.0, 5), "64.0k");
        assert_eq!((dimless(10.7, 5), dimless(12_345.0, 5)), ("  10 ".to_owned(), "12.3k".to_owned()));
    }
}
