//! Option haggling: one option in, its replies out.

use bytes::{BufMut, BytesMut};

use crate::export::{Export, find};
use crate::limits::MAX_PAYLOAD;
use crate::take::{Malformed, Take, name};
use crate::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, FLAG_NO_ZEROES, OPTION_REPLY_MAGIC, info, option,
    option_reply as reply,
};

/// What was agreed so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The client's handshake flags.
    pub flags: u16,
    pub structured: bool,
    /// TLS is on.
    pub is_secure: bool,
    /// The export for which `base:allocation` was selected.
    pub allocation_of: Option<usize>,
}

/// What the session does after an option.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Another option.
    Option,
    /// Requests, on the export at this position.
    Transmission(usize),
    /// The client leaves.
    Abort,
    /// TLS from the next byte on, then options anew.
    Tls,
    /// The old way to name an export has no reply for an unknown one.
    NoSuchExport,
}

/// Answers one option.
///
/// # Errors
/// The option's bytes are not what its type says; the connection is to be closed.
pub fn answer(
    code: u32,
    data: &[u8],
    exports: &[Export],
    agreed: &mut Agreed,
    out: &mut BytesMut,
) -> Result<Next, Malformed> {
    match code {
        option::EXPORT_NAME => return export_name(data, exports, agreed, out),
        option::ABORT => {
            put(out, code, reply::ACK, &[]);
            return Ok(Next::Abort);
        }
        option::LIST => {
            Take(data).end()?;
            for export in exports {
                let mut body = BytesMut::new();
                body.put_u32(len32(&export.name));
                body.put_slice(export.name.as_bytes());
                body.put_slice(export.description.as_bytes());
                put(out, code, reply::SERVER, &body);
            }
            put(out, code, reply::ACK, &[]);
        }
        option::INFO | option::GO => return info_or_go(code, data, exports, agreed, out),
        option::STRUCTURED_REPLY => {
            Take(data).end()?;
            agreed.structured = true;
            put(out, code, reply::ACK, &[]);
        }
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            meta_context(code, data, exports, agreed, out)?;
        }
        option::STARTTLS if agreed.is_secure => put(out, code, reply::ERR_INVALID, b"TLS is on"),
        // STARTTLS among them where there is no TLS: a client that insists on it leaves.
        _ => put(out, code, reply::ERR_UNSUP, b"not supported"),
    }
    Ok(Next::Option)
}

/// Answers one option of a client that must speak TLS and does not yet: nothing is told to it, and nothing is
/// agreed.
pub fn answer_before_tls(code: u32, data: &[u8], out: &mut BytesMut) -> Next {
    match code {
        option::STARTTLS if data.is_empty() => {
            put(out, code, reply::ACK, &[]);
            return Next::Tls;
        }
        option::STARTTLS => put(out, code, reply::ERR_INVALID, b"STARTTLS has no data"),
        option::ABORT => {
            put(out, code, reply::ACK, &[]);
            return Next::Abort;
        }
        option::EXPORT_NAME => return Next::NoSuchExport,
        _ => put(out, code, reply::ERR_TLS_REQD, b"TLS comes first"),
    }
    Next::Option
}

fn export_name(
    data: &[u8],
    exports: &[Export],
    agreed: &Agreed,
    out: &mut BytesMut,
) -> Result<Next, Malformed> {
    let Some(at) = find(exports, name(data)?) else { return Ok(Next::NoSuchExport) };
    let Some(export) = exports.get(at) else { return Ok(Next::NoSuchExport) };
    out.put_u64(export.size);
    out.put_u16(export.flags(agreed.structured));
    if agreed.flags & FLAG_NO_ZEROES == 0 {
        out.put_bytes(0, 124);
    }
    Ok(Next::Transmission(at))
}

fn info_or_go(
    code: u32,
    data: &[u8],
    exports: &[Export],
    agreed: &Agreed,
    out: &mut BytesMut,
) -> Result<Next, Malformed> {
    let mut take = Take(data);
    let wanted_name = take.name()?;
    let count = take.u16()?;
    let mut wanted = Vec::new();
    for _ in 0..count {
        wanted.push(take.u16()?);
    }
    take.end()?;
    let Some((at, export)) = find(exports, wanted_name).and_then(|at| Some((at, exports.get(at)?))) else {
        put(out, code, reply::ERR_UNKNOWN, b"no such export");
        return Ok(Next::Option);
    };
    let mut body = BytesMut::new();
    body.put_u16(info::EXPORT);
    body.put_u64(export.size);
    body.put_u16(export.flags(agreed.structured));
    put(out, code, reply::INFO, &body);
    for (kind, text) in [(info::NAME, &export.name), (info::DESCRIPTION, &export.description)] {
        if wanted.contains(&kind) {
            let mut body = BytesMut::new();
            body.put_u16(kind);
            body.put_slice(text.as_bytes());
            put(out, code, reply::INFO, &body);
        }
    }
    // Any offset and length is served; the client may know the sizes without having asked.
    let mut body = BytesMut::new();
    body.put_u16(info::BLOCK_SIZE);
    body.put_u32(1);
    body.put_u32(export.preferred_block);
    body.put_u32(MAX_PAYLOAD);
    put(out, code, reply::INFO, &body);
    put(out, code, reply::ACK, &[]);
    Ok(if code == option::GO { Next::Transmission(at) } else { Next::Option })
}

fn meta_context(
    code: u32,
    data: &[u8],
    exports: &[Export],
    agreed: &mut Agreed,
    out: &mut BytesMut,
) -> Result<(), Malformed> {
    let mut take = Take(data);
    let wanted_name = take.name()?;
    let count = take.u32()?;
    let is_set = code == option::SET_META_CONTEXT;
    // Nothing asked lists everything; setting nothing selects nothing.
    let mut hit = count == 0 && !is_set;
    for _ in 0..count {
        let query = take.name()?;
        hit |= query == BASE_ALLOCATION || (!is_set && query == "base:");
    }
    take.end()?;
    if is_set {
        agreed.allocation_of = None;
    }
    if is_set && !agreed.structured {
        put(out, code, reply::ERR_INVALID, b"structured replies come first");
        return Ok(());
    }
    let Some(at) = find(exports, wanted_name) else {
        put(out, code, reply::ERR_UNKNOWN, b"no such export");
        return Ok(());
    };
    if hit {
        let mut body = BytesMut::new();
        body.put_u32(if is_set { BASE_ALLOCATION_ID } else { 0 });
        body.put_slice(BASE_ALLOCATION.as_bytes());
        put(out, code, reply::META_CONTEXT, &body);
        if is_set {
            agreed.allocation_of = Some(at);
        }
    }
    put(out, code, reply::ACK, &[]);
    Ok(())
}

fn put(out: &mut BytesMut, code: u32, kind: u32, body: &[u8]) {
    out.put_u64(OPTION_REPLY_MAGIC);
    out.put_u32(code);
    out.put_u32(kind);
    out.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    out.put_slice(body);
}

fn len32(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}
