//! Live migration of an image: what source and destination know of each other, stored in both headers.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};
use types::Errno;

use super::features::{self, MIGRATING};
use crate::registry::{Done, Nothing};
use crate::{ObjectView, keys};

const KEY: &str = "migration";

/// What the header of an image of the first format begins with, and what while it migrates. Source: rbd_types.h.
const HEADER_TEXT: &[u8] = b"<<< Rados Block Device Image >>>\n\0";
const MIGRATING_TEXT: &[u8] = b"<<< Migrating RBD Image      >>>\n\0";

/// Which of both headers a spec is in. Source: MigrationHeaderType.
const SOURCE: u8 = 1;
const DESTINATION: u8 = 2;

#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// `SOURCE` in the source's header.
    header_type: u8,
    pool_id: i64,
    pool_namespace: Bytes,
    image_name: Bytes,
    image_id: Bytes,
    snap_seqs: BTreeMap<u64, u64>,
    overlap: u64,
    flatten: bool,
    mirroring: bool,
    mirror_mode: u8,
    state: u8,
    description: Bytes,
    /// JSON that describes a source outside RBD.
    source: Bytes,
}

impl Encode for Spec {
    fn encode(&self, w: &mut Writer) {
        // Only a source outside RBD needs readers that know about such sources.
        let compat = if self.source.is_empty() { 1 } else { 3 };
        w.envelope(3, compat, |w| {
            self.header_type.encode(w);
            self.pool_id.encode(w);
            self.pool_namespace.encode(w);
            self.image_name.encode(w);
            self.image_id.encode(w);
            self.snap_seqs.encode(w);
            self.overlap.encode(w);
            self.flatten.encode(w);
            self.mirroring.encode(w);
            self.state.encode(w);
            self.description.encode(w);
            self.mirror_mode.encode(w);
            self.source.encode(w);
        });
    }
}
impl Decode for Spec {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rbd migration", 3, |r, env| {
            Ok(Self {
                header_type: r.u8()?,
                pool_id: r.i64()?,
                pool_namespace: r.blob()?,
                image_name: r.blob()?,
                image_id: r.blob()?,
                snap_seqs: Decode::decode(r)?,
                overlap: r.u64()?,
                flatten: Decode::decode(r)?,
                mirroring: Decode::decode(r)?,
                state: r.u8()?,
                description: r.blob()?,
                mirror_mode: if env.version >= 2 { r.u8()? } else { 0 },
                source: if env.version >= 3 { r.blob()? } else { Bytes::new() },
            })
        })
    }
}

pub(super) struct StateArgs {
    state: u8,
    description: Bytes,
}
wire_plain!(StateArgs { state, description });

/// What an image of the first format says about itself.
enum OldHeader {
    Plain,
    Migrating,
}

fn old_header(v: &mut dyn ObjectView) -> Result<OldHeader, Errno> {
    match v.read(0, HEADER_TEXT.len() as u64)? {
        text if text == HEADER_TEXT => Ok(OldHeader::Plain),
        text if text == MIGRATING_TEXT => Ok(OldHeader::Migrating),
        _ => Err(Errno::ENXIO),
    }
}

/// Writes a header's text, without the zero at its end.
fn write_text(v: &mut dyn ObjectView, text: &'static [u8]) -> Result<(), Errno> {
    v.write(0, Bytes::from_static(text.strip_suffix(b"\0").unwrap_or(text)))
}

fn read(v: &mut dyn ObjectView) -> Result<Spec, Errno> {
    match features::read(v)? {
        Some(features) if features & MIGRATING == 0 => return Err(Errno::EINVAL),
        Some(_) => {}
        None => {
            if let OldHeader::Plain = old_header(v)? {
                return Err(Errno::EINVAL);
            }
        }
    }
    keys::read(v, KEY)
}

/// EEXIST for an image that migrates already.
pub(super) fn migration_set(v: &mut dyn ObjectView, spec: Spec) -> Result<Done, Errno> {
    if keys::optional(v.omap_value(KEY.as_bytes()))?.is_some() {
        return Err(Errno::EEXIST);
    }
    match features::read(v)? {
        None => {
            if let OldHeader::Migrating = old_header(v)? {
                return Err(Errno::EEXIST);
            }
            if spec.header_type != SOURCE {
                return Err(Errno::EINVAL);
            }
            write_text(v, MIGRATING_TEXT)?;
        }
        Some(features) if features & MIGRATING == 0 => features::write(v, features | MIGRATING)?,
        // A destination is made with the feature.
        Some(_) if spec.header_type == DESTINATION => {}
        Some(_) => return Err(Errno::EEXIST),
    }
    keys::write(v, KEY, &spec)?;
    Ok(Done)
}

pub(super) fn migration_set_state(v: &mut dyn ObjectView, args: StateArgs) -> Result<Done, Errno> {
    let spec = Spec { state: args.state, description: args.description, ..read(v)? };
    keys::write(v, KEY, &spec)?;
    Ok(Done)
}

pub(super) fn migration_get(v: &mut dyn ObjectView, _: Nothing) -> Result<Spec, Errno> {
    read(v)
}

pub(super) fn migration_remove(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    keys::remove(v, KEY)?;
    match features::read(v)? {
        None => {
            if let OldHeader::Plain = old_header(v)? {
                return Err(Errno::EINVAL);
            }
            write_text(v, HEADER_TEXT)?;
        }
        Some(features) if features & MIGRATING != 0 => features::write(v, features & !MIGRATING)?,
        Some(_) => {}
    }
    Ok(Done)
}
