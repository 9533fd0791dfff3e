//! An image's object map: which of its data objects exist, and which changed since the last snapshot.

use codec::{Encode, wire_plain};
use types::Errno;

use super::bits::{BitVector, HEADER_LEN, Window};
use crate::registry::{Done, Nothing, input};
use crate::{ObjectView, keys};

/// Data objects of an image with an object map. Source: MAX_OBJECT_MAP_OBJECT_COUNT in cls_rbd_types.h.
const MAX_OBJECTS: u64 = 256_000_000;

/// States of a data object. Source: src/include/rbd/object_map_types.h.
const EXISTS: u8 = 1;
/// It did not change since the last snapshot.
const EXISTS_CLEAN: u8 = 3;

pub(super) struct ResizeArgs {
    objects: u64,
    /// Of what is added; what is cut off must be of it too.
    state: u8,
}
wire_plain!(ResizeArgs { objects, state });

pub(super) struct UpdateArgs {
    from: u64,
    to: u64,
    state: u8,
    /// Objects in another state stay as they are.
    expected: Option<u8>,
}
wire_plain!(UpdateArgs { from, to, state, expected });

/// ENOENT for an empty object, EINVAL for one that does not decode.
fn load(v: &mut dyn ObjectView) -> Result<BitVector, Errno> {
    match v.stat()?.size {
        0 => Err(Errno::ENOENT),
        size => input(&v.read(0, size)?),
    }
}

fn save(v: &mut dyn ObjectView, map: &BitVector) -> Result<Done, Errno> {
    v.write_full(map.to_bytes())?;
    Ok(Done)
}

pub(super) fn object_map_load(v: &mut dyn ObjectView, _: Nothing) -> Result<BitVector, Errno> {
    Ok(load(v)?.with_crc(false))
}

pub(super) fn object_map_save(v: &mut dyn ObjectView, map: BitVector) -> Result<Done, Errno> {
    save(v, &map.with_crc(true))
}

/// ESTALE when an object that is cut off is not in the default state.
pub(super) fn object_map_resize(v: &mut dyn ObjectView, args: ResizeArgs) -> Result<Done, Errno> {
    if args.objects > MAX_OBJECTS {
        return Err(Errno::EINVAL);
    }
    let mut map = keys::optional(load(v))?.unwrap_or_default();
    let old = map.len();
    if (args.objects..old).any(|i| map.get(i) != args.state) {
        return Err(Errno::ESTALE);
    }
    if args.objects != old {
        map.resize(args.objects);
        (old..args.objects).for_each(|i| map.set(i, args.state));
    }
    save(v, &map)
}

/// Reads and writes no more than the blocks that the range is in.
pub(super) fn object_map_update(v: &mut dyn ObjectView, args: UpdateArgs) -> Result<Done, Errno> {
    v.stat()?;
    let elements = Window::elements(v.read(0, HEADER_LEN)?).map_err(|_| Errno::EINVAL)?;
    if args.from >= args.to || args.to > elements {
        return Err(Errno::ERANGE);
    }
    let (at, crcs_at) = Window::extents(elements, args.from, args.to);
    let crcs = v.read(crcs_at.offset, crcs_at.length)?;
    let data = v.read(at.offset, at.length)?;
    let mut window = Window::new(elements, at, data, crcs).map_err(|_| Errno::EINVAL)?;
    let mut changed = false;
    for i in args.from..args.to {
        let old = window.get(i);
        let expected = args.expected.is_none_or(|e| old == e || (e == EXISTS && old == EXISTS_CLEAN));
        if expected && old != args.state {
            window.set(i, args.state);
            changed = true;
        }
    }
    if changed {
        let (data, crcs) = window.into_parts();
        v.write(at.offset, data)?;
        v.write(crcs_at.offset, crcs)?;
    }
    Ok(Done)
}

/// With a new snapshot nothing has changed since the last one.
pub(super) fn object_map_snap_add(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    change(v, |_, state| if state == EXISTS { EXISTS_CLEAN } else { state })
}

/// What changed before the removed snapshot now counts as changed since the one before it. The input is the map of the
/// removed snapshot.
pub(super) fn object_map_snap_remove(v: &mut dyn ObjectView, removed: BitVector) -> Result<Done, Errno> {
    change(v, |i, state| {
        let changed_before = i >= removed.len() || removed.get(i) == EXISTS;
        if state == EXISTS_CLEAN && changed_before { EXISTS } else { state }
    })
}

/// Stores the map if a state changes.
fn change(v: &mut dyn ObjectView, f: impl Fn(u64, u8) -> u8) -> Result<Done, Errno> {
    let mut map = load(v)?;
    let mut changed = false;
    for i in 0..map.len() {
        let (old, new) = (map.get(i), f(i, map.get(i)));
        if new != old {
            map.set(i, new);
            changed = true;
        }
    }
    if changed { save(v, &map) } else { Ok(Done) }
}
