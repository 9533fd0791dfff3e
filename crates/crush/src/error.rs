//! Why an edit of a map was refused; the caller asked for something the map cannot do.

/// An edit that was not made; the map is as it was before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("item id {0} does not exist")]
    NoSuchItem(i32),
    #[error("item '{0}' does not exist")]
    NoSuchName(String),
    #[error("type '{0}' does not exist")]
    NoSuchType(String),
    #[error("device class '{0}' does not exist")]
    NoSuchClass(String),
    #[error("rule {0} does not exist")]
    NoSuchRule(String),
    #[error("'{0}' exists already")]
    NameExists(String),
    #[error("bucket {0} exists already")]
    BucketExists(i32),
    #[error("item {item} is in bucket {bucket} already")]
    ItemExists { item: i32, bucket: i32 },
    #[error("rule {0} exists already")]
    RuleExists(u32),
    #[error("'{0}' is not a valid CRUSH name")]
    InvalidName(String),
    #[error("location '{0}' is not of the form type=name")]
    InvalidLocation(String),
    #[error("no place found for item {item} in the location given")]
    NoParentInLocation { item: i32 },
    #[error("'{name}' is of type {got}, the location says {wanted}")]
    WrongType { name: String, got: i32, wanted: i32 },
    #[error("bucket {inner} contains bucket {outer}, which it would be put into")]
    Cycle { inner: i32, outer: i32 },
    #[error("the hierarchy would be deeper than {} levels", crate::MAX_DEPTH)]
    TooDeep,
    #[error("bucket {0} is not empty")]
    NotEmpty(i32),
    #[error("{0} is in use")]
    Busy(String),
    #[error("{0} is a shadow bucket of a device class, which follows its original")]
    Shadow(String),
    #[error("weight {0:#x} makes a sum that does not fit 16.16 bits")]
    WeightOverflow(u64),
    #[error("uniform bucket {bucket} has items of weight {expected:#x}, not {got:#x}")]
    NotUniform { bucket: i32, expected: u32, got: u32 },
    #[error("bucket {0} has as many items as its algorithm allows")]
    BucketFull(i32),
    #[error("no bucket algorithm is allowed by the tunables")]
    NoAllowedAlg,
    #[error("there is no free id left")]
    NoFreeId,
    #[error("'{0}' is not a rule mode: firstn or indep")]
    UnknownMode(String),
    #[error("'{0}' is not a bucket, so no rule can start there")]
    NotABucket(String),
    #[error("choose_args {0} do not exist")]
    NoSuchChooseArgs(i64),
    #[error("item {0} is not a device")]
    NotADevice(i32),
    #[error("device {0} has a class already: '{1}'")]
    HasClass(i32, String),
    #[error("bucket {0} has no name, so no shadow bucket can be named after it")]
    Unnamed(i32),
    #[error("{0} and {1} lie above one another and cannot be swapped")]
    Related(i32, i32),
    #[error("the map would be broken: {0}")]
    Broken(crate::MapError),
}

impl EditError {
    /// The errno that Ceph's monitor answers with for the same refusal, as a positive number.
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const EBUSY: i32 = 16;
        const EEXIST: i32 = 17;
        const EINVAL: i32 = 22;
        const ENOSPC: i32 = 28;
        const ERANGE: i32 = 34;
        const ENOTEMPTY: i32 = 39;
        const ELOOP: i32 = 40;
        match self {
            Self::NoSuchItem(_)
            | Self::NoSuchName(_)
            | Self::NoSuchClass(_)
            | Self::NoSuchRule(_)
            | Self::NoSuchChooseArgs(_) => ENOENT,
            Self::NameExists(_) | Self::BucketExists(_) | Self::RuleExists(_) => EEXIST,
            Self::NoSuchType(_)
            | Self::ItemExists { .. }
            | Self::InvalidName(_)
            | Self::InvalidLocation(_)
            | Self::NoParentInLocation { .. }
            | Self::WrongType { .. }
            | Self::NotUniform { .. }
            | Self::NoAllowedAlg
            | Self::UnknownMode(_)
            | Self::NotABucket(_)
            | Self::NotADevice(_)
            | Self::Shadow(_)
            | Self::Unnamed(_)
            | Self::Related(..)
            | Self::Broken(_)
            | Self::TooDeep => EINVAL,
            Self::Cycle { .. } => ELOOP,
            Self::NotEmpty(_) => ENOTEMPTY,
            Self::Busy(_) | Self::HasClass(..) => EBUSY,
            Self::WeightOverflow(_) => ERANGE,
            Self::BucketFull(_) | Self::NoFreeId => ENOSPC,
        }
    }
}
