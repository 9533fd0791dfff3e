//! Objects: their list, data and attributes.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rados::{CopyFrom, WriteOp};
use serde_json::json;

use super::args::RadosCommand as C;
use super::{Failed, Target, failed, print_json, stdin_bytes};

/// Bytes of one request. Source: the default op_size of rados.cc.
const PIECE: u64 = 4 << 20;

pub async fn run(t: &Target, command: &C) -> Result<()> {
    let place = |object: &str| format!("{}/{object}", t.pool);
    match command {
        C::Ls { all } => ls(t, *all).await,
        C::Get { object, file } => {
            get(t, object, file).await.map_err(|e| explain(e, &format!("error getting {}", place(object))))
        }
        C::Put { object, file, offset } => {
            let done = put(t, object, file, *offset).await;
            done.map_err(|e| explain(e, &format!("error putting {}", place(object))))
        }
        C::Append { object, file } => {
            let done = append(t, object, file).await;
            done.map_err(|e| explain(e, &format!("error appending {}", place(object))))
        }
        C::Truncate { object, size } => {
            let done = t.io.truncate(object, *size).await;
            done.map_err(|e| failed(&format!("error truncating oid {object} to {size}"), &e))
        }
        C::Create { object } => {
            let done = t.io.create(object, true).await;
            done.map_err(|e| failed(&format!("error creating {}", place(object)), &e))
        }
        C::Rm { objects, force_full } => rm(t, objects, *force_full).await,
        C::Cp { object, target, target_pool, target_nspace, target_locator } => {
            let io = match target_pool {
                Some(name) => {
                    let opened = t.io.cluster().pool(name).await;
                    opened.map_err(|e| failed(&format!("error opening target pool {name}"), &e))?
                }
                None => t.io.with_namespace("").with_locator(""),
            };
            let to = io.with_namespace(&**target_nspace).with_locator(&**target_locator);
            cp(t, object, target.as_deref(), target_pool.as_deref(), &to).await
        }
        C::Stat { object } => stat(t, object).await,
        other => attributes(t, other).await,
    }
}

/// An error of the cluster in Ceph's words; one of a file as it is.
fn explain(error: anyhow::Error, what: &str) -> anyhow::Error {
    match error.downcast_ref::<rados::Error>() {
        Some(e) => failed(what, e),
        None => error,
    }
}

async fn ls(t: &Target, all: bool) -> Result<()> {
    let mut list = t.io.objects();
    if all {
        list = list.all_namespaces();
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut objects = Vec::new();
    while let Some(o) = list.next().await.map_err(|e| failed("error listing objects", &e))? {
        if t.json {
            let mut entry = json!({"namespace": o.nspace, "name": o.name});
            if let (false, Some(map)) = (o.key.is_empty(), entry.as_object_mut()) {
                map.insert("locator".into(), json!(o.key));
            }
            objects.push(entry);
            continue;
        }
        let nspace = if all { format!("{}\t", o.nspace) } else { String::new() };
        let key = if o.key.is_empty() { String::new() } else { format!("\t{}", o.key) };
        if writeln!(out, "{nspace}{}{key}", o.name).is_err() {
            return Ok(());
        }
    }
    drop(out);
    if t.json {
        print_json(&json!(objects));
    }
    Ok(())
}

async fn get(t: &Target, object: &str, file: &Path) -> Result<()> {
    let mut offset = 0;
    // Ceph's tool makes the file although the object may not exist.
    let mut out: Box<dyn Write> = match file.to_str() {
        Some("-") => Box::new(std::io::stdout()),
        _ => {
            Box::new(std::fs::File::create(file).with_context(|| format!("cannot write {}", file.display()))?)
        }
    };
    loop {
        let piece = t.io.read(object, offset, PIECE).await?;
        out.write_all(&piece).with_context(|| format!("cannot write {}", file.display()))?;
        offset += piece.len() as u64;
        if (piece.len() as u64) < PIECE {
            return Ok(out.flush()?);
        }
    }
}

fn open(file: &Path) -> Result<Box<dyn Read>> {
    match file.to_str() {
        Some("-") => Ok(Box::new(std::io::stdin())),
        _ => {
            let opened = std::fs::File::open(file).map_err(|e| {
                Failed(format!("error reading input file {}: {}", file.display(), io_errno(&e)))
            });
            Ok(Box::new(opened?))
        }
    }
}

fn io_errno(e: &std::io::Error) -> String {
    e.raw_os_error().map_or_else(|| e.to_string(), |n| types::Errno(n).to_string())
}

fn piece_of(input: &mut dyn Read) -> Result<Vec<u8>> {
    let mut piece = Vec::new();
    input.take(PIECE).read_to_end(&mut piece).context("cannot read the input")?;
    Ok(piece)
}

async fn put(t: &Target, object: &str, file: &Path, offset: Option<u64>) -> Result<()> {
    let mut input = open(file)?;
    let mut at = offset.unwrap_or(0);
    let first = piece_of(&mut *input)?;
    let mut len = first.len() as u64;
    match offset {
        None => t.io.write_full(object, first).await?,
        Some(_) if len == 0 => {}
        Some(_) => t.io.write(object, at, first).await?,
    }
    while len == PIECE {
        at += len;
        let piece = piece_of(&mut *input)?;
        len = piece.len() as u64;
        if len > 0 {
            t.io.write(object, at, piece).await?;
        }
    }
    Ok(())
}

async fn append(t: &Target, object: &str, file: &Path) -> Result<()> {
    let mut input = open(file)?;
    loop {
        let piece = piece_of(&mut *input)?;
        if piece.is_empty() {
            return Ok(());
        }
        t.io.append(object, piece).await?;
    }
}

async fn rm(t: &Target, objects: &[String], force_full: bool) -> Result<()> {
    let flags = messages::osd::flags::FULL_FORCE | messages::osd::flags::FULL_TRY;
    for object in objects {
        let op = WriteOp::new().remove();
        let op = if force_full { op.flags(flags) } else { op };
        if let Err(e) = t.io.write_op(object, op).await {
            let nspace = t.io.namespace();
            let name = if nspace.is_empty() { object.clone() } else { format!("{nspace}/{object}") };
            return Err(failed(&format!("error removing {}>{name}", t.pool), &e));
        }
    }
    Ok(())
}

async fn cp(
    t: &Target,
    object: &str,
    target: Option<&str>,
    target_pool: Option<&str>,
    to: &rados::IoCtx,
) -> Result<()> {
    let same_pool = target_pool.is_none_or(|p| p == t.pool);
    let name = match target {
        Some(name) => name,
        None if same_pool => bail!(Failed("cannot copy object into itself".into())),
        None => object,
    };
    let from = CopyFrom { pool: &t.io, object, version: 0, src_fadvise: 0 };
    let what = format!("error copying {}/{object} => {}/{name}", t.pool, target_pool.unwrap_or(&t.pool));
    to.copy_from(name, &from).await.map_err(|e| failed(&what, &e))
}

async fn stat(t: &Target, object: &str) -> Result<()> {
    let place = format!("{}/{object}", t.pool);
    let s = t.io.stat(object).await.map_err(|e| failed(&format!(" error stat-ing {place}"), &e))?;
    // Whole seconds, as the tool has them.
    let mtime = types::Utime::new(s.mtime.sec, 0);
    match t.json {
        true => print_json(&json!({"name": object, "mtime": s.mtime.to_string(), "size": s.size})),
        false => say!("{place} mtime {mtime}, size {}", s.size),
    }
    Ok(())
}

async fn attributes(t: &Target, command: &C) -> Result<()> {
    let place = |object: &str, name: &str| format!("{}/{object}/{name}", t.pool);
    match command {
        C::Listxattr { object } => {
            let what = format!("error getting xattr set {}/{object}", t.pool);
            let all = t.io.get_xattrs(object).await.map_err(|e| failed(&what, &e))?;
            match t.json {
                true => print_json(&json!(all.keys().collect::<Vec<_>>())),
                false => all.keys().for_each(|name| say!("{name}")),
            }
        }
        C::Getxattr { object, name } => {
            let what = format!("error getting xattr {}", place(object, name));
            let value = t.io.get_xattr(object, name).await.map_err(|e| failed(&what, &e))?;
            std::io::stdout().write_all(&value)?;
            std::io::stdout().flush()?;
        }
        C::Setxattr { object, name, value } => {
            let value = value.clone().map_or_else(stdin_bytes, |v| Ok(v.into_bytes()))?;
            let what = format!("error setting xattr {}", place(object, name));
            t.io.set_xattr(object, name, value).await.map_err(|e| failed(&what, &e))?;
        }
        C::Rmxattr { object, name } => {
            let what = format!("error removing xattr {}", place(object, name));
            t.io.rm_xattr(object, name).await.map_err(|e| failed(&what, &e))?;
        }
        _ => bail!("not a command on attributes"),
    }
    Ok(())
}
