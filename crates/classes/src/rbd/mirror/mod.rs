//! Mirroring of a pool's images: its mode, the peers, the images, and how far each has come.

pub(super) mod image;
pub(super) mod instance;
pub(super) mod peer;
pub(super) mod pool;
pub(super) mod snapshot;
pub(super) mod status;
