//! The text in which series are told: one buffer that is only added to.
//!
//! Invariants:
//! 1. The series of a name stand together, behind one `HELP` and one `TYPE`: the second family of a name is
//!    left out, whoever declared it.
//! 2. A name has letters, digits, `_` and `:` alone, and does not begin with a digit.
//! 3. A label's value cannot end early, begin a line, or move the cursor of whoever reads it: quotes,
//!    backslashes and newlines are escaped as the format has it, other control characters by their number.
//!
//! Source: Metric.str_expfmt in src/pybind/mgr/prometheus/module.py (16.2); the exposition format 0.0.4.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What a family's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Untyped,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Untyped => "untyped",
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    out: String,
    names: BTreeSet<String>,
}

/// The family whose series are being written.
pub(super) struct Family<'a> {
    out: &'a mut String,
    name: String,
}

impl Exposition {
    /// With room for so many bytes.
    pub fn with_room(bytes: usize) -> Self {
        Self { out: String::with_capacity(bytes), names: BTreeSet::new() }
    }

    /// Begins a family, whose full name is `ceph_` and this one; `None` where there is one of that name.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> Option<Family<'_>> {
        let full = metric_name(name);
        if self.names.contains(&full) {
            return None;
        }
        self.out.push_str("# HELP ");
        self.out.push_str(&full);
        self.out.push(' ');
        // Quotes are no end of anything here.
        escape(&mut self.out, help, false);
        let _ = writeln!(self.out, "\n# TYPE {full} {}", kind.name());
        self.names.insert(full.clone());
        Some(Family { out: &mut self.out, name: full })
    }

    /// A family of one value without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        if let Some(mut family) = self.family(name, kind, help) {
            family.series(&[], value);
        }
    }

    pub fn finish(self) -> String {
        self.out
    }
}

impl Family<'_> {
    pub fn series(&mut self, labels: &[(&str, &str)], value: f64) {
        self.out.push_str(&self.name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.out.push(if at == 0 { '{' } else { ',' });
            self.out.push_str(label);
            self.out.push_str("=\"");
            escape(self.out, text, true);
            self.out.push('"');
        }
        self.out.push_str(if labels.is_empty() { " " } else { "} " });
        number(self.out, value);
        self.out.push('\n');
    }
}

/// As Python writes a float, which Go reads.
fn number(out: &mut String, value: f64) {
    let _ = match value {
        v if v == f64::INFINITY => write!(out, "+Inf"),
        v if v == f64::NEG_INFINITY => write!(out, "-Inf"),
        v => write!(out, "{v:?}"),
    };
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' if quotes => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(out, "\\\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// The full name of a family. Source: promethize.
pub(super) fn metric_name(path: &str) -> String {
    let mut name = String::with_capacity(path.len() + 8);
    name.push_str("ceph_");
    let (path, is_minus) = match path.strip_suffix('-') {
        Some(path) => (path, true),
        None => (path, false),
    };
    let mut rest = path.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            ':' if rest.peek() == Some(&':') => {
                rest.next();
                name.push('_');
            }
            '+' => name.push_str("_plus"),
            c if c.is_ascii_alphanumeric() || c == ':' => name.push(c),
            _ => name.push('_'),
        }
    }
    if is_minus {
        name.push_str("_minus");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_cephs_module_and_never_illegal() {
        for (path, want) in [
            ("osd.op_r_latency", "ceph_osd_op_r_latency"),
            ("osd_flag_nodeep-scrub", "ceph_osd_flag_nodeep_scrub"),
            ("mds_mem.dir+", "ceph_mds_mem_dir_plus"),
            ("mds_mem.dir-", "ceph_mds_mem_dir_minus"),
            ("a::b c/d", "ceph_a_b_c_d"),
            ("a:b", "ceph_a:b"),
            ("x{le=\"1\"} 5\nceph_y", "ceph_x_le__1___5_ceph_y"),
            ("\u{e4}", "ceph__"),
        ] {
            assert_eq!(metric_name(path), want, "{path}");
        }
    }

    #[test]
    fn labels_and_help_cannot_break_out() {
        let mut all = Exposition::default();
        let mut family = all.family("a", Kind::Gauge, "say \"a\\b\"\n# TYPE x").expect("new");
        family.series(&[("n", "x\"} 1\ny\\z\u{1b}[0m\u{202e}<b>")], 1.0);
        family.series(&[("n", ""), ("m", "\r\0")], f64::NAN);
        assert!(all.family("a", Kind::Counter, "").is_none(), "there is one already");
        all.single("b", Kind::Untyped, "", f64::INFINITY);
        let want = "# HELP ceph_a say \"a\\\\b\"\\n# TYPE x\n# TYPE ceph_a gauge\n\
                    ceph_a{n=\"x\\\"} 1\\ny\\\\z\\\\x1b[0m\u{202e}<b>\"} 1.0\n\
                    ceph_a{n=\"\",m=\"\\\\x0d\\\\x00\"} NaN\n\
                    # HELP ceph_b \n# TYPE ceph_b untyped\nceph_b +Inf\n";
        assert_eq!(all.finish(), want);
    }

    #[test]
    fn numbers_are_written_so_that_none_is_lost() {
        for value in [0.0, 1.0, -2.5, 1e300, 5e-324, 0.1, 9_007_199_254_740_993_f64, 1_795_933_580.786_796] {
            let mut text = String::new();
            number(&mut text, value);
            assert_eq!(text.parse(), Ok(value), "{text}");
            assert!(text.contains(['.', 'e']), "a float in Python as well: {text}");
        }
    }
}
