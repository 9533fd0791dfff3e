//! An object's omap.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use serde_json::{Map, json};

use super::args::RadosCommand as C;
use super::{Failed, Target, failed, hex, print_json, stdin_bytes};

/// Keys of one request. Source: MAX_OMAP_BYTES_PER_REQUEST in rados.cc.
const PAGE: u64 = 1 << 10;

pub async fn run(t: &Target, command: &C) -> Result<()> {
    let place = |object: &str, key: &str| format!("{}/{object}/{key}", t.pool);
    match command {
        C::Listomapkeys { object } => keys(t, object).await,
        C::Listomapvals { object } => vals(t, object).await,
        C::Getomapval { object, key, file } => {
            let what = format!("error getting omap value {}", place(object, key));
            let wanted = BTreeSet::from([Bytes::from(key.clone())]);
            let got = t.io.omap_by_keys(object, wanted).await.map_err(|e| failed(&what, &e))?;
            match got.get(key.as_bytes()) {
                Some(value) => show("value", value, file.as_deref()),
                None => {
                    // On standard output, as Ceph's tool has it.
                    say!("No such key: {}", place(object, key));
                    bail!(Failed(String::new()))
                }
            }
        }
        C::Setomapval { object, key, value } => {
            let value = value.clone().map_or_else(stdin_bytes, |v| Ok(v.into_bytes()))?;
            let what = format!("error setting omap value {}", place(object, key));
            let vals = BTreeMap::from([(Bytes::from(key.clone()), Bytes::from(value))]);
            t.io.omap_set(object, vals).await.map_err(|e| failed(&what, &e))
        }
        C::Rmomapkey { object, key } => {
            let what = format!("error removing omap key {}", place(object, key));
            let keys = BTreeSet::from([Bytes::from(key.clone())]);
            t.io.omap_rm_keys(object, keys).await.map_err(|e| failed(&what, &e))
        }
        C::Clearomap { objects } => {
            for object in objects {
                let what = format!("error clearing omap keys {}/{object}", t.pool);
                t.io.omap_clear(object).await.map_err(|e| failed(&what, &e))?;
            }
            Ok(())
        }
        C::Getomapheader { object, file } => {
            let what = format!("error getting omap header {}/{object}", t.pool);
            let header = t.io.omap_header(object).await.map_err(|e| failed(&what, &e))?;
            show("header", &header, file.as_deref())
        }
        C::Setomapheader { object, value } => {
            let what = format!("error setting omap value {}/{object}", t.pool);
            t.io.omap_set_header(object, value.clone()).await.map_err(|e| failed(&what, &e))
        }
        _ => bail!("not a command on the omap"),
    }
}

fn show(what: &str, value: &Bytes, file: Option<&Path>) -> Result<()> {
    match file {
        Some(file) => {
            eprintln!("Writing to {}", file.display());
            std::fs::write(file, value).with_context(|| format!("cannot write {}", file.display()))?;
        }
        None => say!("{what} ({} bytes) :\n{}", value.len(), hex::dump(value)),
    }
    Ok(())
}

async fn keys(t: &Target, object: &str) -> Result<()> {
    let what = format!("error getting omap key set {}/{object}", t.pool);
    let (mut after, mut shown) = (Bytes::new(), Vec::new());
    loop {
        let (keys, more) = t.io.omap_keys(object, after, PAGE).await.map_err(|e| failed(&what, &e))?;
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for key in &keys {
            match t.json {
                true => shown.push(json!(String::from_utf8_lossy(key))),
                false => {
                    out.write_all(key)?;
                    out.write_all(b"\n")?;
                }
            }
        }
        match keys.into_iter().next_back() {
            Some(last) if more => after = last,
            _ => break,
        }
    }
    if t.json {
        print_json(&json!(shown));
    }
    Ok(())
}

async fn vals(t: &Target, object: &str) -> Result<()> {
    let what = format!("error getting omap keys {}/{object}", t.pool);
    let (mut after, mut shown) = (Bytes::new(), Map::new());
    loop {
        let page = t.io.omap_vals(object, after, "", PAGE).await.map_err(|e| failed(&what, &e))?;
        for (key, value) in &page.entries {
            let text = String::from_utf8_lossy(key);
            if t.json {
                shown.insert(text.into_owned(), json!(String::from_utf8_lossy(value)));
                continue;
            }
            match key.iter().all(|b| (0x20..0x7f).contains(b)) {
                true => say!("{text}"),
                false => say!("key ({} bytes):\n{}", key.len(), hex::dump(key)),
            }
            say!("value ({} bytes) :\n{}", value.len(), hex::dump(value));
        }
        match page.entries.into_keys().next_back() {
            Some(last) if page.more => after = last,
            _ => break,
        }
    }
    if t.json {
        print_json(&json!(shown));
    }
    Ok(())
}
