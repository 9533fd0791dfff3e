//! Whole images and differences as streams: raw bytes, and librbd's format of differences, version 1.
//!
//! Source: doc/dev/rbd-diff.rst, src/tools/rbd/action/{ExportDiff,ImportDiff}.cc.

use std::io::{self, Read, Write};

use bytes::Bytes;
use types::Errno;

use block::Piece;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::io::flatten;

const BANNER: &[u8] = b"rbd diff v1\n";
/// Bytes read from the image, or the stream, at once.
pub(crate) const STEP: u64 = 4 << 20;
/// The longest name of a snapshot in a stream.
const MAX_NAME: u32 = 4096;

/// Called with what is done and the whole, in bytes.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Where a raw export goes: zeros may be skipped.
pub trait Sink: Send {
    /// # Errors
    /// The bytes could not be written.
    fn data(&mut self, data: &[u8]) -> io::Result<()>;

    /// # Errors
    /// The zeros could not be written.
    fn zeros(&mut self, len: u64) -> io::Result<()>;
}

/// Writes an image's bytes in order.
///
/// # Errors
/// The image or the sink fails.
pub async fn export(image: &Image, to: &mut dyn Sink, progress: Progress<'_>) -> Result<()> {
    let size = image.size();
    let mut at = 0;
    while at < size {
        let len = STEP.min(size - at);
        for piece in image.read_pieces(at, len).await? {
            match piece {
                Piece::Data(data) => to.data(&data)?,
                Piece::Zeros(len) => to.zeros(len)?,
            }
        }
        at += len;
        progress(at, size);
    }
    Ok(())
}

/// Writes raw bytes into an image that reads as zeros; runs of zeros are left out.
///
/// # Errors
/// EINVAL when there are more bytes than the image holds.
pub async fn import(image: &Image, from: &mut (dyn Read + Send), progress: Progress<'_>) -> Result<()> {
    let mut at = 0;
    loop {
        let data = read_up_to(from, STEP as usize)?;
        if data.is_empty() {
            return Ok(());
        }
        let len = data.len() as u64;
        if data.iter().any(|b| *b != 0) {
            image.write(at, data.into()).await?;
        }
        at += len;
        progress(at, image.size());
    }
}

/// Writes what changed since the snapshot `from` (nothing: since the beginning) up to what is open.
///
/// # Errors
/// ENOENT when there is no such snapshot; EINVAL when it is newer than what is open.
pub async fn export_diff(
    image: &Image,
    from: Option<&str>,
    to_name: Option<&str>,
    out: &mut (dyn Write + Send),
    progress: Progress<'_>,
) -> Result<()> {
    let from_id = image.diff_start(from)?;
    out.write_all(BANNER)?;
    for (tag, name) in [(b'f', from), (b't', to_name)] {
        if let Some(name) = name {
            out.write_all(&[tag])?;
            out.write_all(&(name.len() as u32).to_le_bytes())?;
            out.write_all(name.as_bytes())?;
        }
    }
    let size = image.size();
    out.write_all(b"s")?;
    out.write_all(&size.to_le_bytes())?;
    for change in image.changes(from_id).await? {
        let end = change.offset + change.len;
        let mut at = change.offset;
        while at < end {
            let len = STEP.min(end - at);
            let data = if change.exists { flatten(image.read_pieces(at, len).await?) } else { Bytes::new() };
            let has_data = data.iter().any(|b| *b != 0);
            // Zeros that were nothing before need no word.
            if has_data || from_id != 0 {
                out.write_all(if has_data { b"w" } else { b"z" })?;
                out.write_all(&at.to_le_bytes())?;
                out.write_all(&len.to_le_bytes())?;
                if has_data {
                    out.write_all(&data)?;
                }
            }
            at += len;
        }
        progress(end.min(size), size);
    }
    out.write_all(b"e")?;
    progress(size, size);
    Ok(())
}

/// Applies a stream of differences, and takes the snapshot that it ends in.
///
/// # Errors
/// EINVAL when the stream is malformed or starts from a snapshot that the image lacks; EEXIST when it has the one that the
/// stream ends in.
pub async fn import_diff(image: &Image, from: &mut (dyn Read + Send), progress: Progress<'_>) -> Result<()> {
    match apply_diff(image, from, progress).await {
        Err(Error::Stream(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
            Err(Error::refused(Errno::EINVAL, "the stream of differences ends too early"))
        }
        other => other,
    }
}

async fn apply_diff(image: &Image, from: &mut (dyn Read + Send), progress: Progress<'_>) -> Result<()> {
    read_banner(from)?;
    let mut to_snap = None;
    loop {
        match Record::read(from)? {
            Record::From(name) if image.header().snapshot(&name).is_none() => {
                return Err(Error::refused(Errno::EINVAL, format!("the image has no snapshot {name}")));
            }
            Record::From(_) => {}
            Record::To(name) if image.header().snapshot(&name).is_some() => {
                return Err(Error::refused(Errno::EEXIST, format!("the image has snapshot {name}")));
            }
            Record::To(name) => to_snap = Some(name),
            Record::Size(size) => {
                if size != image.size() {
                    image.resize(size, &|_, _| {}).await?;
                }
            }
            Record::Range { is_data, offset, len } => {
                let Some(end) = offset.checked_add(len).filter(|end| *end <= image.size()) else {
                    return Err(malformed("a range outside the image"));
                };
                apply(image, from, is_data, offset, len).await?;
                progress(end, image.size());
            }
            Record::End => break,
        }
    }
    if let Some(name) = to_snap {
        image.create_snap(&name).await?;
    }
    Ok(())
}

fn malformed(what: &str) -> Error {
    Error::refused(Errno::EINVAL, format!("not a stream of differences: {what}"))
}

pub(crate) fn read_banner(from: &mut (dyn Read + Send)) -> Result<()> {
    if read_exact(from, BANNER.len())? == BANNER { Ok(()) } else { Err(malformed("another banner")) }
}

/// A record of a stream of differences, without the data that follows a range of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// The snapshots between which the differences are.
    From(String),
    To(String),
    /// Of the image, in bytes.
    Size(u64),
    /// In bytes; zeros unless it is data.
    Range {
        is_data: bool,
        offset: u64,
        len: u64,
    },
    End,
}

impl Record {
    pub fn read(from: &mut (dyn Read + Send)) -> Result<Self> {
        let mut tag = [0];
        from.read_exact(&mut tag)?;
        let [tag] = tag;
        Ok(match tag {
            b'f' => Self::From(read_name(from)?),
            b't' => Self::To(read_name(from)?),
            b's' => Self::Size(read_u64(from)?),
            b'w' | b'z' => {
                let (offset, len) = (read_u64(from)?, read_u64(from)?);
                Self::Range { is_data: tag == b'w', offset, len }
            }
            b'e' => Self::End,
            _ => return Err(malformed("an unknown record")),
        })
    }
}

async fn apply(
    image: &Image,
    from: &mut (dyn Read + Send),
    is_data: bool,
    offset: u64,
    len: u64,
) -> Result<()> {
    if !is_data {
        return image.discard(offset, len).await;
    }
    let mut done = 0;
    while done < len {
        let part = STEP.min(len - done);
        let data = read_exact(from, part as usize)?;
        image.write(offset + done, data.into()).await?;
        done += part;
    }
    Ok(())
}

pub(crate) fn read_exact(from: &mut (dyn Read + Send), len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u64(from: &mut (dyn Read + Send)) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_name(from: &mut (dyn Read + Send)) -> Result<String> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > MAX_NAME {
        return Err(Error::refused(Errno::EINVAL, "a snapshot's name is too long"));
    }
    let bytes = read_exact(from, len as usize)?;
    String::from_utf8(bytes).map_err(|_| Error::refused(Errno::EINVAL, "a snapshot's name is not text"))
}

fn read_up_to(from: &mut (dyn Read + Send), len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    from.take(len as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
