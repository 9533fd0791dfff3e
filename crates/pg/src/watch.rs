//! Watch and notify: who watches an object, and notifies under way.

use crate::OsdCore;
use crate::exec::Effect;
use crate::osd::shared::Shared;
use crate::pg::{ClientOp, Pg};
use types::ConnId;

/// Carries out one effect of a request that has run (a write: is durable).
pub(crate) fn apply(pg: &mut Pg, op: &ClientOp, effect: &Effect, cx: &mut Shared) {
    let _ = (pg, op, effect, cx);
}

/// A connection is gone: its watches begin to time out.
pub(crate) fn disconnected(core: &mut OsdCore, conn: ConnId) {
    let _ = (core, conn);
}

/// Ends watches and notifies whose time is over.
pub(crate) fn tick(core: &mut OsdCore) {
    let _ = core;
}
