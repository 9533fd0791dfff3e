//! Block images from both sides: `loligo rbd` beside Ceph's `rbd`, and NBD clients against `loligo rbd serve`.

#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../clients/cluster.rs"]
mod cluster;
mod formats;
mod server;
