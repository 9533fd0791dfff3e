//! The ledger of simulated cluster-hours: takes over what the gate ran, counts each seed once, and says which seeds come next.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Where cluster-hours are kept, and which seeds the gate runs next.
const LEDGER: &str = "docs/ledger.md";
const HOURS: &str = "crates/simulator/hours.txt";
/// A run is so long (`SECONDS` in `crates/simulator/src/hours.rs`).
const RUNS_PER_HOUR: f64 = 6.0;
/// How the line begins that sums up the ledger.
const SUM: &str = "Distinct cluster-hours: ";

/// Adds the gate's lines that the repository's ledger does not have.
pub fn take(root: &Path, gate_ledger: &str) -> Result<()> {
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name)).with_context(|| format!("{name} cannot be read"))
    };
    let ran = read(gate_ledger).context("the gate has run no cluster-hours here")?;
    let (ledger, added) = merge(&read(LEDGER)?, &ran)?;
    let hours = raise(&read(HOURS)?, &added)?;
    for (name, text) in [(LEDGER, &ledger), (HOURS, &hours)] {
        std::fs::write(root.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    let sum = ledger.lines().find(|l| l.starts_with(SUM)).unwrap_or_default();
    println!("{} lines added to {LEDGER}. {sum}", added.len());
    Ok(())
}

/// A line of the ledger.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    date: String,
    commit: String,
    first: u64,
    last: u64,
    failed: Vec<u64>,
}

/// `None`: the line is none of the table's.
fn parse(line: &str) -> Result<Option<Line>> {
    if !line.starts_with("| 2") {
        return Ok(None);
    }
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [_, date, commit, seeds, .., failed, _, _] = cells[..] else {
        bail!("no line of the ledger: {line}")
    };
    let (first, last) = seeds.split_once("..").with_context(|| format!("no seeds: {line}"))?;
    let failed = failed.strip_prefix("seeds ").map(|all| all.split(' ').map(str::parse).collect());
    Ok(Some(Line {
        date: date.to_owned(),
        commit: commit.to_owned(),
        first: first.parse().with_context(|| format!("no seed: {line}"))?,
        last: last.parse().with_context(|| format!("no seed: {line}"))?,
        failed: failed.unwrap_or(Ok(Vec::new())).with_context(|| format!("no seeds: {line}"))?,
    }))
}

/// The ledger with what ran, and the lines that are new.
fn merge(kept: &str, ran: &str) -> Result<(String, Vec<Line>)> {
    let fresh: Vec<&str> =
        ran.lines().filter(|l| l.starts_with("| 2") && !kept.lines().any(|k| k == *l)).collect();
    let old = kept.lines().filter(|l| !l.starts_with(SUM));
    let all: Vec<&str> = old.chain(fresh.iter().copied()).collect();
    let mut good = BTreeSet::new();
    for line in &all {
        if let Some(line) = parse(line)? {
            good.extend((line.first..=line.last).filter(|seed| !line.failed.contains(seed)));
        }
    }
    let sum = format!("{SUM}{:.1}, of {} seeds", good.len() as f64 / RUNS_PER_HOUR, good.len());
    let mut text = String::new();
    for line in all {
        // Above the table, so that lines go on at its end.
        if line.starts_with("| date") {
            text += &format!("{sum}\n\n");
        }
        // Of what stood around the sum before, one empty line is enough.
        if !(line.is_empty() && text.ends_with("\n\n")) {
            text += &format!("{line}\n");
        }
    }
    let added = fresh.into_iter().filter_map(|l| parse(l).transpose()).collect::<Result<_>>()?;
    Ok((text, added))
}

/// The gate's seeds after these lines: it goes on after them, and keeps what failed.
fn raise(hours: &str, added: &[Line]) -> Result<String> {
    let next = hours.lines().find_map(|l| l.strip_prefix("next ")?.parse::<u64>().ok());
    let next = next.with_context(|| format!("{HOURS} has no next seed"))?;
    let after = added.iter().map(|l| l.last + 1).max().unwrap_or(0).max(next);
    let mut text = String::new();
    for line in hours.lines() {
        match line.starts_with("next ") {
            true => text += &format!("next {after}\n"),
            false => text += &format!("{line}\n"),
        }
    }
    for line in added {
        for seed in &line.failed {
            let known = text.lines().any(|l| l.starts_with(&format!("failed {seed} ")));
            if !known {
                text += &format!("failed {seed} on {} at commit {}\n", line.date, line.commit);
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "# Ledger\n\n| date | commit | seeds | hours | failed | real s |\n|---|---|---|---|---|---|\n";

    fn line(commit: &str, seeds: &str, failed: &str) -> String {
        format!("| 2026-11-23 | {commit} | {seeds} | 1.0 | {failed} | 9 |\n")
    }

    #[test]
    fn the_same_seeds_are_the_same_hours() {
        let kept = HEAD.to_owned() + &line("a", "1..6", "0") + &line("b", "1..6", "0");
        let ran = HEAD.to_owned() + &line("b", "1..6", "0") + &line("c", "7..18", "seeds 8 9");
        let (text, added) = merge(&kept, &ran).unwrap();
        assert_eq!(added.len(), 1);
        assert!(text.contains("\nDistinct cluster-hours: 2.7, of 16 seeds\n\n| date"), "{text}");
        assert_eq!(text.matches("| 2026").count(), 3);
        assert_eq!(
            merge(&text, &ran).unwrap(),
            (text.clone(), Vec::new()),
            "what was taken over is not again"
        );
        let hours = raise("# why\nnext 7\n", &added).unwrap();
        let kept = "failed 8 on 2026-11-23 at commit c\nfailed 9 on 2026-11-23 at commit c\n";
        assert_eq!(hours, format!("# why\nnext 19\n{kept}"));
        assert_eq!(raise(&hours, &added).unwrap(), hours);
    }

    #[test]
    fn the_number_never_falls() {
        let (_, added) = merge(HEAD, &line("a", "1..6", "0")).unwrap();
        assert_eq!(raise("next 361\n", &added).unwrap(), "next 361\n");
        assert!(raise("nothing\n", &added).is_err());
        assert!(merge(HEAD, &line("a", "1..x", "0")).is_err());
    }
}
