//! Tests that `docs/reviews.md` names, and what the tree has by those names: a row whose test is gone proves
//! nothing.

use std::collections::BTreeSet;

/// The document whose rows name tests in their last column.
pub const DOCUMENT: &str = "docs/reviews.md";

/// What can be named: functions and modules, rows of macros that make tests, files and folders.
#[derive(Debug, Default)]
pub struct Named(BTreeSet<String>);

impl Named {
    /// A file's own name, or a folder's.
    pub fn add_path(&mut self, name: &str) {
        self.0.insert(name.split('.').next().unwrap_or_default().to_owned());
    }

    /// A file of Rust or Python. What a comment names is not there.
    pub fn add(&mut self, text: &str) {
        for line in text.lines().map(str::trim_start) {
            if line.starts_with("//") || line.starts_with('#') {
                continue;
            }
            let words: Vec<&str> =
                line.split(|c: char| !is_part(c)).filter(|word| !word.is_empty()).collect();
            let made = words.windows(2).filter(|w| matches!(w[0], "fn" | "def" | "mod")).map(|w| w[1]);
            self.0.extend(made.map(str::to_owned));
            // `name [...]` and `name Mutant::...`, which macros make tests of.
            let first = line.split(|c: char| !is_part(c)).next().unwrap_or_default();
            let rest = &line[first.len()..];
            if is_name(first) && (rest.starts_with(" [") || rest.starts_with(" Mutant::")) {
                self.0.insert(first.to_owned());
            }
        }
    }

    /// What the last column of the document's tables names and nothing has, each with its line.
    pub fn missing<'a>(&self, document: &'a str) -> Vec<(usize, &'a str)> {
        let rows = document.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
        let names = rows.flat_map(|(i, line)| tests_of(line).map(move |name| (i + 1, name)));
        names.filter(|(_, name)| !self.0.contains(*name)).collect()
    }
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Tests are told from other words by their form: several small words in one.
fn is_name(word: &str) -> bool {
    word.contains('_') && !word.chars().any(|c| c.is_ascii_uppercase())
}

fn tests_of(row: &str) -> impl Iterator<Item = &str> {
    let cells = row.trim_end().trim_end_matches('|');
    let last = cells.rsplit(" | ").next().unwrap_or_default();
    last.split(|c: char| !is_part(c)).filter(|word| is_name(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_tests_that_are_there() {
        let mut named = Named::default();
        named.add("    async fn it_holds() {\n// fn it_is_gone() {\n");
        named.add("rows![\n    one_row [\"what\" 3],\n    other_row Mutant::Odd;\n    no_row_here();\n");
        named.add("def in_python(self):\n");
        named.add_path("in_a_file.rs");
        let table =
            "| X1 | closed | `option_of_ours` | pg `it_holds`, a::{one_row, other_row}, in_a_file |\n";
        assert_eq!(named.missing(table), []);
        let bad = "not_in_a_table\n| X2 | `a` \\| b | it_is_gone; tests::no_row_here, in_python, word |\n";
        assert_eq!(named.missing(bad), [(2, "it_is_gone"), (2, "no_row_here")]);
    }
}
