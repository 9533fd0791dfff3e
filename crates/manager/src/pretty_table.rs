//! Tables and numbers as Ceph's manager modules print them, who use Python's PrettyTable.
//!
//! Source: format_units in src/pybind/mgr/mgr_util.py; PrettyTable without borders and two spaces behind each column.

/// Where a cell stands in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Left,
    Right,
    /// What is left over goes to the right of texts of odd length, and to the left of others.
    Centre,
}

/// A table under construction.
pub struct PrettyTable {
    columns: Vec<(&'static str, Stands)>,
    rows: Vec<Vec<String>>,
}

impl PrettyTable {
    /// Headings, and whether the column stands right.
    pub fn new(columns: &[(&'static str, bool)]) -> Self {
        let stands = |right: bool| if right { Stands::Right } else { Stands::Left };
        let columns = columns.iter().map(|(heading, right)| (*heading, stands(*right))).collect();
        Self { columns, rows: Vec::new() }
    }

    /// A table whose columns all stand in the middle.
    pub fn centred(headings: &[&'static str]) -> Self {
        Self { columns: headings.iter().map(|h| (*h, Stands::Centre)).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Headings and rows, each line with its end; nothing without rows in a table of centred columns.
    pub fn render(&self) -> String {
        if self.rows.is_empty() && self.columns.iter().all(|(_, stands)| *stands == Stands::Centre) {
            return String::new();
        }
        let width = |i: usize, heading: &str| {
            let cells = self.rows.iter().filter_map(|r| r.get(i)).map(|cell| width_of(cell));
            cells.max().unwrap_or(0).max(heading.len())
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(|(i, (h, _))| width(i, h)).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded = cells.zip(&widths).zip(&self.columns).map(|((text, w), (_, stands))| {
                let (len, spare) = (width_of(text), w.saturating_sub(width_of(text)));
                let left = match stands {
                    Stands::Left => 0,
                    Stands::Right => spare,
                    Stands::Centre => spare / 2 + usize::from(spare % 2 == 1 && len % 2 == 0),
                };
                format!("{}{text}{}  ", " ".repeat(left), " ".repeat(spare - left))
            });
            padded.collect::<String>()
        };
        let mut lines = vec![line(&mut self.columns.iter().map(|(h, _)| *h))];
        lines.extend(self.rows.iter().map(|r| line(&mut r.iter().map(String::as_str))));
        lines.join("\n") + "\n"
    }
}

/// Characters of a cell on a terminal: what sets its colour takes no room.
fn width_of(text: &str) -> usize {
    let mut width = 0;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        width += before.chars().count();
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    width + rest.chars().count()
}

/// Bold text, and text in a bright colour (2 green, 3 yellow), on a terminal. Source: mgr_util.bold, colorize.
pub fn bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

pub fn coloured(text: &str, colour: u8) -> String {
    format!("\x1b[1;3{colour}m{text}\x1b[0m")
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

    /// As 16.2.15's manager shows them.
    #[test]
    fn columns_stand_in_the_middle() {
        let mut table = PrettyTable::centred(&["RANK", "STATE", "MDS"]);
        assert_eq!(table.render(), "");
        table.row([bold("0"), coloured("active", 2), "a".to_owned()]);
        table.row(["1-s", "standby-replay", "c"].map(str::to_owned));
        let want = "RANK      STATE       MDS  \n \x1b[1m0\x1b[0m        \x1b[1;32mactive\x1b[0m       a   \n\
                    1-s   standby-replay   c   \n";
        assert_eq!(table.render(), want);
    }

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
