//! What can be wrong with a profile, and what a codec refuses.

use types::Errno;

use crate::chunks::{ChunkSet, MAX_CHUNKS};

/// A profile that is refused. The numbers are those of Ceph's plug-ins wherever Ceph refuses it too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error(
        "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {0}"
    )]
    NoPlugin(String),
    #[error("there is no erasure code plugin '{0}': use jerasure, isa or lrc")]
    UnknownPlugin(String),
    #[error("technique={technique} is not a valid coding technique. Choose one of the following: {choices}")]
    UnknownTechnique { technique: String, choices: &'static str },
    /// A key that no plug-in and no rule of placement knows. Ceph keeps such keys; a misspelt one does
    /// nothing there.
    #[error("'{0}' is no key of an erasure code profile: check its spelling")]
    UnknownKey(String),
    /// Ceph has it, this is not built.
    #[error("{what} is not supported: {instead}")]
    Unsupported { what: String, instead: &'static str },
    #[error("could not convert {key}={value} to int because {reason}")]
    NotANumber { key: &'static str, value: String, reason: String },
    #[error("k={0} must be >= 2")]
    TooFewData(i64),
    #[error("m={0} must be >= 1")]
    TooFewCoding(i64),
    #[error("{0} chunks are too many: choose k and m so that there are at most {max} in all", max = MAX_CHUNKS)]
    TooManyChunks(i64),
    #[error("{technique}: m={m} must be 2 for RAID6: set m=2 or choose reed_sol_van")]
    NotRaid6 { technique: &'static str, m: i64 },
    #[error("{technique}: w={w} must be one of {{8, 16, 32}} : revert to 8")]
    WordSize { technique: &'static str, w: i64 },
    #[error(
        "Vandermonde: m={0} should be less than 5 to guarantee an MDS codec: set m to at most 4 or choose cauchy"
    )]
    VandermondeCoding(i64),
    #[error(
        "Vandermonde: k={0} should be less than 22 to guarantee an MDS codec with m=4: set k to at most 21 or choose \
         cauchy"
    )]
    VandermondeData(i64),
    #[error("packetsize={value} must be {rule}")]
    PacketSize { value: i64, rule: &'static str },
    #[error("the mapping parameter is for the lrc plugin: leave it out, {0} has its data first")]
    MappingOfPlain(&'static str),
    #[error("l={0} must be >= 1")]
    TooSmallGroup(i64),
    #[error("could not parse stripe_unit '{value}': {reason}")]
    StripeUnitNumber { value: String, reason: String },
    #[error("stripe_unit {0} is out of range: choose at most 16M")]
    StripeUnitRange(i64),
    #[error("stripe_unit {unit} does not match ec profile alignment. Would be padded to {padded}\n")]
    StripeUnitAlignment { unit: u32, padded: u64 },
    #[error(
        "stripe_unit should be a multiple of 4096 bytes for best performance.use --force to override this check\n"
    )]
    StripeUnitPages,
    #[error(
        "the stripe is too wide: choose fewer data chunks, a smaller stripe_unit or a smaller packetsize"
    )]
    StripeTooWide,
    #[error(transparent)]
    Lrc(#[from] LrcError),
}

impl ProfileError {
    pub fn errno(&self) -> Errno {
        match self {
            Self::UnknownPlugin(_) => Errno::EIO,
            Self::UnknownTechnique { .. } => Errno::ENOENT,
            Self::Unsupported { .. } => Errno::EOPNOTSUPP,
            Self::Lrc(e) => e.errno(),
            Self::NoPlugin(_)
            | Self::UnknownKey(_)
            | Self::NotANumber { .. }
            | Self::TooFewData(_)
            | Self::TooFewCoding(_)
            | Self::TooManyChunks(_)
            | Self::NotRaid6 { .. }
            | Self::WordSize { .. }
            | Self::VandermondeCoding(_)
            | Self::VandermondeData(_)
            | Self::PacketSize { .. }
            | Self::MappingOfPlain(_)
            | Self::TooSmallGroup(_)
            | Self::StripeUnitNumber { .. }
            | Self::StripeUnitRange(_)
            | Self::StripeUnitAlignment { .. }
            | Self::StripeUnitPages
            | Self::StripeTooWide => Errno::EINVAL,
        }
    }
}

/// What the plug-in lrc says of its own. Source: ERROR_LRC_* in src/erasure-code/lrc/ErasureCodeLrc.h, which
/// stand above the system's numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LrcError {
    #[error("All of k, m, l must be set or none of them")]
    AllOrNothing,
    #[error("The {0} parameter cannot be set when k, m, l are set: leave it out")]
    Generated(&'static str),
    #[error("k + m must be a multiple of l")]
    TotalNotMultiple,
    #[error("k must be a multiple of (k + m) / l")]
    DataNotMultiple,
    #[error("m must be a multiple of (k + m) / l")]
    CodingNotMultiple,
    #[error("could not find 'layers': set k, m and l, or mapping and layers")]
    NoLayers,
    #[error("the 'mapping' profile is missing: it says which chunks hold data, as in DD_DD_")]
    NoMapping,
    #[error("failed to parse {key}='{text}': {reason}")]
    NotJson { key: &'static str, text: String, reason: String },
    #[error("{0} must be a JSON array")]
    NotAnArray(String),
    #[error("the first element of layer {0} must be a string such as DDc")]
    LayerMap(usize),
    #[error("the second element of layer {0} must be a string or an object of strings")]
    LayerOptions(usize),
    #[error("the layers parameter has no layer, at least one is needed")]
    TooFewLayers,
    #[error("layer {layer} is {len} characters long where the mapping has {expected}")]
    LayerSize { layer: usize, len: usize, expected: usize },
    #[error("element 0 of the step {0} must be a string, choose or chooseleaf")]
    StepOperation(String),
    #[error("element 1 of the step {0} must be a string, the type of a bucket")]
    StepType(String),
    #[error("element 2 of the step {0} must be a whole number")]
    StepCount(String),
    /// Ceph takes it, and leaves a chunk without content or lays parity over data.
    #[error("layers that lose data: {0}")]
    Unsound(String),
}

/// The first number above those of the system. Source: MAX_ERRNO in src/include/err.h.
const MAX_ERRNO: i32 = 4095;

impl LrcError {
    fn errno(&self) -> Errno {
        let above = match self {
            Self::Unsound(_) => return Errno::EINVAL,
            Self::NotAnArray(_) => 1,
            Self::LayerMap(_) => 4,
            Self::NoLayers => 6,
            Self::NotJson { .. } => 7,
            Self::NoMapping => 8,
            Self::LayerSize { .. } => 9,
            Self::LayerOptions(_) => 12,
            Self::TooFewLayers => 13,
            Self::StepOperation(_) => 14,
            Self::StepType(_) => 15,
            Self::StepCount(_) => 16,
            Self::AllOrNothing => 17,
            Self::Generated(_) => 18,
            Self::TotalNotMultiple => 19,
            Self::DataNotMultiple => 20,
            Self::CodingNotMultiple => 21,
        };
        Errno(MAX_ERRNO + above)
    }
}

/// What a codec refuses to do. Nothing has been written then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The chunks at hand do not determine what is wanted.
    #[error("not enough chunks in {available} to read {want}")]
    NotEnough { want: ChunkSet, available: ChunkSet },
    #[error("{got} {what} instead of {expected}")]
    Count { what: &'static str, expected: usize, got: usize },
    #[error("a chunk of {got} bytes among chunks of {expected}")]
    Length { expected: usize, got: usize },
    #[error("{len} bytes of a chunk are no multiple of the {grain} bytes that belong together")]
    Grain { len: usize, grain: usize },
    #[error("the code has no chunk {0} of that kind")]
    NoSuchChunk(usize),
    #[error("chunk {0} is needed and was not given")]
    Missing(usize),
    #[error("the change lies outside the range that its coding chunks were given for")]
    OutOfRange,
}

impl CodecError {
    /// What a client hears: the fault is with the copies, or with the program.
    pub fn errno(&self) -> Errno {
        match self {
            Self::NotEnough { .. } => Errno::EIO,
            Self::Count { .. }
            | Self::Length { .. }
            | Self::Grain { .. }
            | Self::NoSuchChunk(_)
            | Self::Missing(_)
            | Self::OutOfRange => Errno::EINVAL,
        }
    }
}
