//! Work on the store of a monitor that does not run: its monitor map, and the way back when it is the last one.

use std::path::Path;

use anyhow::{Context, Result, bail};
use codec::Encode;
use daemons::mon_store::MonStore;
use maps::MonMap;
use monitor::Survivor;
use quorum::{MemberId, Write};
use runtime::OsEntropy;
use types::AuthName;

use crate::args::DaemonArgs;
use crate::layout::{ClusterDir, write_atomically};
use crate::mkfs::{self, MonDir};
use crate::place::Place;

/// A stopped monitor's folder, and that of the cluster where `up` made it.
pub struct Stopped<'a> {
    pub name: &'a AuthName,
    pub dir: MonDir,
    pub cluster: Option<&'a ClusterDir>,
}

/// Whether the arguments ask for this.
pub fn is_asked_for(args: &DaemonArgs) -> bool {
    args.extract_monmap.is_some() || args.inject_monmap.is_some()
}

/// The store of a monitor by its configuration file.
pub fn by_conf(args: &DaemonArgs, place: &Place) -> Result<()> {
    let _lock = place.lock()?;
    run(args, &Stopped { name: &place.name, dir: MonDir(place.data.clone()), cluster: None })
}

/// Whoever calls holds the monitor's lock.
pub fn run(args: &DaemonArgs, mon: &Stopped<'_>) -> Result<()> {
    let store = MonStore::open(&mon.dir.store(), &mon.name.id, &mut OsEntropy)?;
    let start = store.recover().with_context(|| format!("{} cannot be used", mon.dir.store().display()))?;
    let survivor = Survivor::read(&start)?;
    if let Some(path) = &args.extract_monmap {
        write_atomically(&std::path::absolute(path)?, &survivor.monmap().to_bytes(), 0o644)?;
        say!("The monitor map of {}, epoch {}, is in {}.", mon.name, survivor.monmap().epoch, path.display());
    }
    match &args.inject_monmap {
        Some(path) => inject(args, mon, &store, survivor, path),
        None => Ok(()),
    }
}

fn inject(
    args: &DaemonArgs,
    mon: &Stopped<'_>,
    store: &MonStore,
    survivor: Survivor,
    path: &Path,
) -> Result<()> {
    let (name, map) = (&mon.name.id, mkfs::read_monmap_for(path)?);
    check(name, &map, &survivor)?;
    let others: Vec<String> = survivor.monmap().mons.keys().filter(|n| *n != name).cloned().collect();
    if !args.yes_i_really_mean_it {
        bail!(
            "this makes {} the only monitor. What others have and it lacks is lost, and the stores of {} must never run again: \
             they could go on as another cluster of the same name. If that is so, add --yes-i-really-mean-it",
            mon.name,
            said(&others)
        );
    }
    let (hard, snapshot) = survivor.alone(name, map.clone(), MemberId::draw(&mut OsEntropy));
    store.write(&Write { hard: Some(hard), snapshot: Some(snapshot), ..Write::default() })?;
    mon.dir.write_monmap(&map)?;
    if let Some(cluster) = mon.cluster {
        for other in &others {
            crate::create::forget_mon(cluster, other)?;
        }
    }
    say!("{} is the only monitor now. Others join it anew, with empty folders.", mon.name);
    Ok(())
}

/// The monitors of these names, for people.
fn said(names: &[String]) -> String {
    match names {
        [] => "others".to_owned(),
        _ => names.iter().map(|n| format!("mon.{n}")).collect::<Vec<_>>().join(" and "),
    }
}

fn check(name: &str, map: &MonMap, survivor: &Survivor) -> Result<()> {
    let known = survivor.monmap();
    if survivor.is_outdated() {
        bail!("the store of mon.{name} is an older copy of what it was: others have gone on without it");
    }
    if known.mons.is_empty() {
        bail!("the store of mon.{name} is empty: it never was in a quorum");
    }
    if map.fsid != known.fsid {
        bail!("that is a map of cluster {}, and the store is of {}", map.fsid, known.fsid);
    }
    let named: Vec<&str> = map.mons.keys().map(String::as_str).collect();
    if named != [name] {
        bail!(
            "the map names {}; it must name {name} alone (monmaptool --rm), for the others join it anew",
            named.join(", ")
        );
    }
    if map.mons.get(name).and_then(|m| m.addrs.msgr2()).is_none() {
        bail!("the map has no v2 address of mon.{name}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_as_they_are() {
        assert_eq!(said(&[]), "others");
        assert_eq!(said(&["b".to_owned(), "mon.x".to_owned()]), "mon.b and mon.mon.x");
    }
}
