//! The ends of outputs: Ceph's commands differ in how they end theirs, and scripts compare them byte by byte.

use std::borrow::Cow;

use maps::OsdMap;
use serde_json::Value;
use types::{Epoch, Errno};

use crate::command::{Ctx, Format, Reply, json_text};
use crate::text::full_lines;

/// Of a command that writes through a stream: no empty lines, and a newline behind either form.
pub(super) fn streamed(
    format: Format,
    plain: impl FnOnce() -> String,
    value: impl FnOnce() -> Value,
) -> Reply {
    match format {
        Format::Plain => Reply::text(full_lines(&plain())),
        _ => Reply::json_line(format, &value()),
    }
}

/// Of a command that answers in JSON alone, with a newline more than the formatter writes.
pub(super) fn padded(format: Format, value: &Value) -> Reply {
    Reply::text(json_text(format, value) + "\n")
}

/// The OSD map of the epoch that the command names, or of now.
pub(super) fn osdmap_of_epoch<'a>(ctx: &'a Ctx<'_>) -> Result<Cow<'a, OsdMap>, Reply> {
    let map = ctx.osdmap();
    let Some(wanted) = ctx.args.int("epoch").filter(|e| *e != i64::from(map.epoch.0)) else {
        return Ok(Cow::Borrowed(map));
    };
    let then = u32::try_from(wanted).ok().and_then(|e| ctx.state.osds.map_at(Epoch(e)));
    then.map(Cow::Owned).ok_or_else(|| no_map(wanted))
}

pub(super) fn no_map(epoch: i64) -> Reply {
    Reply::error(Errno::ENOENT, format!("there is no map for epoch {epoch}"))
}
