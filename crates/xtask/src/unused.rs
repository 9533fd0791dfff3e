//! `pub` functions and types that nothing names. The compiler takes them for what another crate may use; here
//! are all crates.
//!
//! Names are compared as words, whoever they belong to: what is found is unused, and some of what is unused
//! is not found.

use std::collections::BTreeMap;

const KINDS: [&str; 5] = ["fn ", "struct ", "enum ", "trait ", "type "];

/// How often each word stands in the code that was given.
#[derive(Debug, Default)]
pub struct Words(BTreeMap<String, usize>);

impl Words {
    /// Comments name nothing, and neither does a re-export.
    pub fn add(&mut self, text: &str) {
        let mut is_export = false;
        for line in text.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
            is_export |= line.starts_with("pub use ") || line.starts_with("pub(crate) use ");
            if !is_export {
                let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
                words.for_each(|word| *self.0.entry(word.to_owned()).or_default() += 1);
            }
            is_export &= !line.contains(';');
        }
    }

    /// The public functions and types of a file, which was given too, that are named where they are made
    /// alone; each with its line.
    pub fn unused<'a>(&self, text: &'a str) -> Vec<(&'a str, usize)> {
        let is_unused = |name: &str| self.0.get(name) == Some(&1);
        let lines = text.lines().enumerate();
        lines.filter_map(|(i, line)| Some((made(line)?, i + 1))).filter(|(name, _)| is_unused(name)).collect()
    }
}

/// The public function or type that a line makes.
fn made(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("pub ")?;
    for word in ["const ", "async "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = KINDS.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comments_and_re_exports_name_is_not_used() {
        let one = "//! left, right\npub fn left() {}\n    pub const fn right(&self) {}\npub struct Both;\npub fn $made() {}\n";
        let two = "pub use one::{\n    Both, left,\n};\n// left();\nfn private() {\n    right();\n}\n";
        let mut words = Words::default();
        words.add(one);
        words.add(two);
        assert_eq!(words.unused(one), [("left", 2), ("Both", 4)]);
        assert_eq!(words.unused(two), []);
    }
}
