//! The peers that a pool is mirrored to and from.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};
use types::{Errno, Utime};

use super::super::types::NameArgs;
use super::pool;
use crate::registry::{Done, Nothing};
use crate::{ObjectView, keys};

const PREFIX: &str = "mirror_peer_";

/// Which way data goes. Source: MirrorPeerDirection in src/cls/rbd/cls_rbd_types.h.
pub(super) mod direction {
    pub const RX: u8 = 0;
    pub const TX: u8 = 1;
    pub const RX_TX: u8 = 2;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::rbd) struct Peer {
    uuid: Bytes,
    pub(super) direction: u8,
    site_name: Bytes,
    client_name: Bytes,
    pub(super) mirror_uuid: Bytes,
    last_seen: Utime,
}

impl Peer {
    /// Only who pulls needs a client's name.
    fn is_valid(&self) -> bool {
        let way = match self.direction {
            direction::TX => true,
            direction::RX | direction::RX_TX => !self.client_name.is_empty(),
            _ => false,
        };
        way && !self.uuid.is_empty() && !self.site_name.is_empty()
    }
}

impl Encode for Peer {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.uuid.encode(w);
            self.site_name.encode(w);
            self.client_name.encode(w);
            (-1i64).encode(w); // a pool, once
            self.direction.encode(w);
            self.mirror_uuid.encode(w);
            self.last_seen.encode(w);
        });
    }
}
impl Decode for Peer {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rbd mirror peer", 2, |r, env| {
            let (uuid, site_name, client_name) = (r.blob()?, r.blob()?, r.blob()?);
            r.i64()?;
            let (direction, mirror_uuid, last_seen) = match env.version {
                2.. => (r.u8()?, r.blob()?, Decode::decode(r)?),
                _ => (direction::RX_TX, Bytes::new(), Utime::ZERO),
            };
            Ok(Self { uuid, direction, site_name, client_name, mirror_uuid, last_seen })
        })
    }
}

pub(in crate::rbd) struct PingArgs {
    site_name: Bytes,
    mirror_uuid: Bytes,
    direction: u8,
}
wire_plain!(PingArgs { site_name, mirror_uuid, direction });

pub(in crate::rbd) struct SetNameArgs {
    uuid: Bytes,
    name: Bytes,
}
wire_plain!(SetNameArgs { uuid, name });

pub(in crate::rbd) struct SetDirectionArgs {
    uuid: Bytes,
    direction: u8,
}
wire_plain!(SetDirectionArgs { uuid, direction });

fn key(uuid: &Bytes) -> Bytes {
    keys::join(PREFIX, uuid)
}

pub(super) fn all(v: &mut dyn ObjectView) -> Result<Vec<Peer>, Errno> {
    Ok(keys::list_typed(v, b"", PREFIX, u64::MAX)?.into_iter().map(|(_, peer)| peer).collect())
}

fn write(v: &mut dyn ObjectView, peer: &Peer) -> Result<Done, Errno> {
    keys::write(v, key(&peer.uuid), peer)?;
    Ok(Done)
}

/// The peer that a ping is from. Its site's name and its own may each have changed since the last one, not both.
fn pinged(v: &mut dyn ObjectView, args: PingArgs) -> Result<Peer, Errno> {
    let peers = all(v)?;
    let by_site = peers.iter().find(|p| p.site_name == args.site_name);
    let is_other = |p: &Peer| !p.mirror_uuid.is_empty() && p.mirror_uuid != args.mirror_uuid;
    let by_uuid = match by_site {
        Some(peer) if !is_other(peer) => None,
        _ => peers.iter().find(|p| p.mirror_uuid == args.mirror_uuid),
    };
    let mut peer = match (by_site, by_uuid) {
        (Some(_), Some(peer)) => peer.clone(),
        (None, Some(peer)) => Peer { site_name: args.site_name, ..peer.clone() },
        (Some(peer), None) => Peer { mirror_uuid: args.mirror_uuid, ..peer.clone() },
        (None, None) => Peer {
            uuid: super::super::random_uuid(v).into(),
            direction: direction::TX,
            site_name: args.site_name,
            client_name: Bytes::new(),
            mirror_uuid: args.mirror_uuid,
            last_seen: Utime::ZERO,
        },
    };
    if peer.direction == direction::RX {
        peer.direction = direction::RX_TX;
    }
    peer.last_seen = v.now();
    Ok(peer)
}

pub(in crate::rbd) fn mirror_peer_ping(v: &mut dyn ObjectView, args: PingArgs) -> Result<Done, Errno> {
    if args.direction != direction::TX {
        return Err(Errno::EINVAL);
    }
    pool::require_enabled(v)?;
    if args.site_name.is_empty() || args.mirror_uuid.is_empty() {
        return Err(Errno::EINVAL);
    }
    let peer = pinged(v, args)?;
    if !peer.is_valid() {
        return Err(Errno::EINVAL);
    }
    write(v, &peer)
}

pub(in crate::rbd) fn mirror_peer_list(v: &mut dyn ObjectView, _: Nothing) -> Result<Vec<Peer>, Errno> {
    all(v)
}

pub(in crate::rbd) fn mirror_peer_add(v: &mut dyn ObjectView, peer: Peer) -> Result<Done, Errno> {
    pool::require_enabled(v)?;
    if !peer.is_valid() || peer.uuid == pool::uuid(v)? || peer.direction == direction::TX {
        return Err(Errno::EINVAL);
    }
    for other in all(v)? {
        if other.uuid == peer.uuid {
            return Err(Errno::ESTALE);
        }
        let same_mirror = !peer.mirror_uuid.is_empty() && other.mirror_uuid == peer.mirror_uuid;
        if other.site_name == peer.site_name || same_mirror {
            return Err(Errno::EEXIST);
        }
    }
    write(v, &peer)
}

pub(in crate::rbd) fn mirror_peer_remove(v: &mut dyn ObjectView, args: NameArgs) -> Result<Done, Errno> {
    keys::remove(v, key(&args.name))?;
    Ok(Done)
}

pub(in crate::rbd) fn mirror_peer_set_client(
    v: &mut dyn ObjectView,
    args: SetNameArgs,
) -> Result<Done, Errno> {
    let peer = keys::read(v, key(&args.uuid))?;
    write(v, &Peer { client_name: args.name, ..peer })
}

pub(in crate::rbd) fn mirror_peer_set_cluster(
    v: &mut dyn ObjectView,
    args: SetNameArgs,
) -> Result<Done, Errno> {
    let (mine, others): (Vec<Peer>, Vec<Peer>) = all(v)?.into_iter().partition(|p| p.uuid == args.uuid);
    if others.iter().any(|p| p.site_name == args.name) {
        return Err(Errno::EEXIST);
    }
    let peer = mine.into_iter().next_back().ok_or(Errno::ENOENT)?;
    write(v, &Peer { site_name: args.name, ..peer })
}

pub(in crate::rbd) fn mirror_peer_set_direction(
    v: &mut dyn ObjectView,
    args: SetDirectionArgs,
) -> Result<Done, Errno> {
    let peer = keys::read(v, key(&args.uuid))?;
    write(v, &Peer { direction: args.direction, ..peer })
}
