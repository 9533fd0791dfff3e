//! The manual in docs/guide: its summary names each chapter, and links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const SOURCES: &str = "docs/guide/src";
const SUMMARY: &str = "SUMMARY.md";

/// What is wrong with the manual, a line each.
pub fn faults(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(SOURCES);
    let mut pages = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {SOURCES}"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "md") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            pages.push((name, fs::read_to_string(&path)?));
        }
    }
    pages.sort();
    Ok(faults_of(&pages))
}

fn faults_of(pages: &[(String, String)]) -> Vec<String> {
    let page = |name: &str| pages.iter().find(|(n, _)| n == name).map(|(_, text)| text.as_str());
    let mut out = Vec::new();
    let listed: BTreeSet<&str> = links(page(SUMMARY).unwrap_or_default()).map(|(_, to)| to).collect();
    for (name, _) in pages.iter().filter(|(name, _)| name != SUMMARY && !listed.contains(name.as_str())) {
        out.push(format!("{SOURCES}/{SUMMARY}: {name} is not listed"));
    }
    for (name, text) in pages {
        for (line, to) in links(text).filter(|(_, to)| !to.contains("://")) {
            let (file, place) = to.split_once('#').unwrap_or((to, ""));
            let target = page(if file.is_empty() { name } else { file });
            let found = target.is_some_and(|t| place.is_empty() || anchors(t).any(|a| a == place));
            if !found {
                out.push(format!("{SOURCES}/{name}:{line}: the link to {to} leads nowhere"));
            }
        }
    }
    out
}

/// Lines that are no commands, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let fence = line.starts_with("```");
        in_block ^= fence;
        (!fence && !in_block).then_some((i + 1, line))
    })
}

/// Where links lead, with the numbers of their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        line.split("](").skip(1).filter_map(move |rest| Some((number, rest.split_once(')')?.0)))
    })
}

/// The names that headings have as places to link to.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chapters_and_links_that_are_not_there_are_named() {
        let page = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let fine = [
            page(SUMMARY, "- [A](a.md)\n- [B](b.md)\n"),
            page("a.md", "See [B](b.md#two-words_of-it), [here](#a), [there](https://x.y/z).\n# A\n"),
            page("b.md", "## Two words_of it\n```sh\n# [no](nowhere.md)\n```\n"),
        ];
        assert_eq!(faults_of(&fine), Vec::<String>::new());
        let bad = [
            page(SUMMARY, "- [A](a.md)\n- [C](c.md)\n"),
            page("a.md", "\n[B](b.md#none) and [here](#no)\n"),
            page("b.md", "```sh\n## None\n```\n"),
        ];
        let told = faults_of(&bad);
        let of = |what: &str| told.iter().filter(|t| t.contains(what)).count();
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(
            [of("b.md is not listed"), of("SUMMARY.md:2: the link to c.md"), of("a.md:2: ")],
            [1, 1, 2]
        );
    }
}
