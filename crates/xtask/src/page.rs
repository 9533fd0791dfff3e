//! Holds the dashboard's page, which is committed as it was built, against its sources: builds it once more,
//! in a copy, and compares.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{Outcome, run, setup};

const SOURCES: &str = "crates/dashboard/web";
/// What of the folder is made and not written.
const MADE: [&str; 2] = ["dist", "node_modules"];

/// Needs Node, and the packages that `package-lock.json` names: from npm's registry or from its cache.
pub fn compare(root: &Path) -> Result<Outcome> {
    for program in ["node", "npm"] {
        if !setup::has_program(program) {
            eprintln!("{program} is not installed: whether the page is that of its sources is not known");
            return Ok(Outcome::Skipped);
        }
    }
    let (sources, copy) = (root.join(SOURCES), root.join("target/page"));
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
    }
    copy_folder(&sources, &copy)?;
    // No package's own programs run; the lock file has what each package's bytes hash to.
    if let Err(e) = run(npm(
        &copy,
        &["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1"],
    )) {
        eprintln!("the packages that the page is built with are not to be had: {e:#}");
        return Ok(Outcome::Skipped);
    }
    run(npm(&copy, &["run", "--silent", "build"]))?;
    let names = |of: &Path| -> Result<Vec<_>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(of).with_context(|| format!("cannot read {}", of.display()))? {
            names.push(entry?.file_name());
        }
        names.sort_unstable();
        Ok(names)
    };
    let (kept, made) = (sources.join("dist"), copy.join("dist"));
    let all = names(&made)?;
    let same = all == names(&kept)?
        && all.iter().all(|name| fs::read(kept.join(name)).ok() == fs::read(made.join(name)).ok());
    if !same {
        bail!("{SOURCES}/dist is not what its sources give; there: npm ci --ignore-scripts && npm run build");
    }
    Ok(Outcome::Done)
}

fn npm(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(args).current_dir(folder);
    command
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if MADE.iter().any(|made| name == *made) {
            continue;
        }
        let at = to.join(&name);
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &at)?;
        } else {
            fs::copy(entry.path(), &at).with_context(|| format!("cannot write {}", at.display()))?;
        }
    }
    Ok(())
}
