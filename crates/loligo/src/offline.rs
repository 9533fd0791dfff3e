//! `loligo store ...`: looks into the object store of a stopped OSD.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use runtime::FileDevice;
use serde_json::json;
use store::{Device, ObjectKey, Options, Store};
use types::{HObject, PoolId};

use crate::args::{StoreArgs, StoreCommand, StoreExportArgs, StoreGetArgs};

/// Objects per step of a listing.
const PAGE: usize = 1024;
/// Bytes per read of an object.
const CHUNK: u64 = 4 << 20;

pub fn run(command: &StoreCommand) -> Result<()> {
    match command {
        StoreCommand::Fsck(args) => fsck(args),
        StoreCommand::List(args) => list(args),
        StoreCommand::Get(args) => get(args),
        StoreCommand::Export(args) => export(args),
    }
}

/// The OSD's folder holds a file `block`; anything else is the device itself.
fn block(osd: &Path) -> PathBuf {
    if osd.is_dir() { osd.join("block") } else { osd.to_owned() }
}

fn device(osd: &Path) -> Result<Arc<dyn Device>> {
    let path = block(osd);
    let device = FileDevice::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Arc::new(device))
}

fn open(osd: &Path) -> Result<Store> {
    Store::open(device(osd)?, Options::default())
        .with_context(|| format!("{} holds no usable store", osd.display()))
}

fn fsck(args: &StoreArgs) -> Result<()> {
    let device = device(&args.osd)?;
    let report = store::fsck(device.as_ref(), true)
        .with_context(|| format!("{} cannot be checked", args.osd.display()))?;
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    if args.json {
        let out = json!({
            "cluster": report.identity.fsid.to_string(),
            "osd_uuid": report.identity.osd_uuid.to_string(),
            "objects": report.objects,
            "stored_bytes": report.stored_bytes,
            "omap_entries": report.omap_entries,
            "other_keys": report.space_keys,
            "pages": report.pages,
            "blocks_verified": report.blocks_verified,
            "log_records": report.log_records,
            "findings": findings,
        });
        say!("{}", serde_json::to_string_pretty(&out)?);
    } else {
        say!(
            "{}: {} objects, {} bytes and {} omap entries in the last checkpoint, {} blocks and {} pages verified; {} log \
             records since",
            args.osd.display(),
            report.objects,
            report.stored_bytes,
            report.omap_entries,
            report.blocks_verified,
            report.pages,
            report.log_records
        );
        findings.iter().for_each(|f| say!("  {f}"));
    }
    match findings.len() {
        0 => Ok(()),
        n => bail!("{n} problem(s) found in {}", args.osd.display()),
    }
}

/// Calls `each` for every object, in store order.
fn for_each(store: &mut Store, mut each: impl FnMut(&mut Store, &ObjectKey) -> Result<()>) -> Result<()> {
    let mut from = HObject::min();
    loop {
        let page = store.list(types::SpgId::NO_SHARD, &from, &HObject::max(), PAGE)?;
        for object in &page {
            if *object != from || from.is_min() {
                each(store, &ObjectKey { shard: types::SpgId::NO_SHARD, object: object.clone() })?;
            }
        }
        match page.last() {
            Some(last) if *last != from => from = last.clone(),
            _ => return Ok(()),
        }
    }
}

fn list(args: &StoreArgs) -> Result<()> {
    let mut store = open(&args.osd)?;
    let mut out = std::io::stdout().lock();
    let mut rows = Vec::new();
    for_each(&mut store, |store, key| {
        let size = store.stat(key)?.map_or(0, |s| s.size);
        if args.json {
            let o = &key.object;
            rows.push(json!({
                "pool": o.pool.0, "namespace": o.nspace.as_str(), "name": o.name.as_str(), "locator": o.key.as_str(),
                "snap": o.snap.to_string(), "bytes": size,
            }));
        } else {
            writeln!(out, "{size:>12} {}", key.object)?;
        }
        Ok(())
    })?;
    if args.json {
        say!("{}", serde_json::to_string_pretty(&rows)?);
    }
    Ok(())
}

fn copy(store: &mut Store, key: &ObjectKey, to: &mut impl Write) -> Result<()> {
    let size = store.stat(key)?.map_or(0, |s| s.size);
    let mut at = 0;
    while at < size {
        let data = store.read(key, at, CHUNK.min(size - at))?;
        if data.is_empty() {
            bail!("{} ends at {at} instead of {size}", key.object);
        }
        to.write_all(&data)?;
        at += data.len() as u64;
    }
    Ok(())
}

fn get(args: &StoreGetArgs) -> Result<()> {
    let mut store = open(&args.osd)?;
    let mut found = None;
    for_each(&mut store, |_, key| {
        let o = &key.object;
        let wanted = o.pool == PoolId(args.pool) && o.name == args.object && o.nspace == args.namespace;
        if wanted && o.is_head() {
            found = Some(key.clone());
        }
        Ok(())
    })?;
    let Some(key) = found else {
        bail!("{} has no object '{}' in pool {}", args.osd.display(), args.object, args.pool);
    };
    copy(&mut store, &key, &mut std::io::stdout().lock())
}

/// One file per object, named by pool, namespace, name and snapshot, with unusual characters in percent form.
fn export(args: &StoreExportArgs) -> Result<()> {
    let mut store = open(&args.osd)?;
    std::fs::create_dir_all(&args.into).with_context(|| format!("cannot create {}", args.into.display()))?;
    if std::fs::read_dir(&args.into)?.next().is_some() {
        bail!("{} is not empty", args.into.display());
    }
    let mut count = 0;
    for_each(&mut store, |store, key| {
        let o = &key.object;
        let name = [o.pool.to_string(), escape(&o.nspace), escape(&o.name), o.snap.to_string()].join(":");
        let mut file = std::fs::File::create(args.into.join(name))?;
        copy(store, key, &mut file)?;
        count += 1;
        if count % 1000 == 0 {
            eprintln!("{count} objects");
        }
        Ok(())
    })?;
    say!("{count} objects written to {}", args.into.display());
    Ok(())
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-_.".contains(&b) {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02x}"));
        }
    }
    out
}
