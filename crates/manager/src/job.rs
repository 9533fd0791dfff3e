//! What the manager's client does: to images, to the objects in which pools keep things, and by commands to
//! OSDs; and what comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use monitor::command::Reply;
use types::{Errno, OsdId, PoolId, Utime};

/// Namespaces of a pool that are looked at.
pub const MAX_NAMESPACES: usize = 4_096;

/// What each namespace may have where `most` is for all of a pool, so that those before it by name leave
/// something; together it is four times `most` at most.
#[must_use]
pub fn share(most: usize, namespaces: usize) -> usize {
    (most / namespaces.max(1)).max(most / 64)
}

/// Where images are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Space {
    pub pool: PoolId,
    /// Empty: the pool itself.
    pub namespace: String,
}

/// Something to be done by a client of the cluster. Each is answered once, in any order.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// About so many keys of an object at most, in the pool itself or in its namespaces as well: these share
    /// them, so that none keeps another from being read.
    Load { pool: PoolId, object: &'static str, most: usize, with_namespaces: bool },
    /// A pool's namespaces.
    Namespaces { pool: PoolId },
    /// Sets a key of an object, or removes it.
    Keep { space: Space, object: &'static str, key: String, value: Option<String> },
    /// About so many keys of an object at most that begin with this.
    Values { pool: PoolId, object: String, prefix: String, most: usize },
    /// Sets a key of an object, and removes those below `from` of the first `most`.
    Sample { pool: PoolId, object: String, key: String, value: String, from: String, most: usize },
    /// Gives an OSD a command, which has so long.
    Tell { osd: OsdId, json: String, within: Duration },
    /// What an image is like.
    Look { space: Space, image: String },
    /// Whether an image is in the trash.
    LookInTrash { space: Space, id: String },
    /// Names of images by id.
    Names { space: Space },
    /// Takes long, tells how far it has come, and may be cancelled.
    Work { space: Space, work: Work },
}

impl Job {
    /// The pool that has to answer, if it is one.
    #[must_use]
    pub fn pool(&self) -> Option<PoolId> {
        match self {
            Self::Load { pool, .. }
            | Self::Namespaces { pool }
            | Self::Values { pool, .. }
            | Self::Sample { pool, .. } => Some(*pool),
            Self::Keep { space, .. }
            | Self::Look { space, .. }
            | Self::LookInTrash { space, .. }
            | Self::Names { space }
            | Self::Work { space, .. } => Some(space.pool),
            Self::Tell { .. } => None,
        }
    }
}

/// A change of an image as a whole. It fails with ENOENT where the image of that name has another id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    Flatten {
        image: String,
        id: String,
    },
    Remove {
        image: String,
        id: String,
    },
    TrashRemove {
        id: String,
    },
    /// Of all images that may go by now, but not of these ids, which others are at. It begins behind this id,
    /// and ends with it. When it is cancelled it has `Found::Stopped`.
    TrashPurge {
        now: Utime,
        behind: String,
        except: BTreeSet<String>,
    },
}

/// What was found where that was asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Nothing,
    /// Keys and values by namespace, of each namespace that was looked at.
    Keys {
        keys: BTreeMap<String, BTreeMap<Bytes, Bytes>>,
        /// Namespaces that have more.
        cut: BTreeSet<String>,
        /// Whether all namespaces were looked at.
        is_whole: bool,
    },
    /// No more than [`MAX_NAMESPACES`], nor than a bound for the bytes of their names.
    Namespaces {
        names: Vec<String>,
        is_whole: bool,
    },
    /// What a daemon answered to a command.
    Said(Reply),
    Image(ImageFacts),
    Names(BTreeMap<String, String>),
    /// The trash has more that may go, behind the image of this id first.
    Stopped {
        at: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageFacts {
    pub id: String,
    pub has_parent: bool,
    pub has_snapshots: bool,
    pub is_migrating: bool,
    /// Why our client can change nothing of it.
    pub unfit: Option<String>,
}

/// Why a job failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    pub errno: Errno,
    pub why: String,
}
