//! The text form that operators edit: `crushtool -d` and `crushtool -c`.
//!
//! Source: src/crush/CrushCompiler.cc, src/crush/grammar.h.

mod compile;
mod decompile;
mod words;

/// A text that is no map, or a map that has no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TextError {
    /// From 1; 0 when the fault is in no line.
    pub line: usize,
    pub problem: TextProblem,
}

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextProblem {
    #[error("expected {expected}, found '{found}'")]
    Syntax { expected: &'static str, found: String },
    #[error("'{0}' is defined twice")]
    DefinedTwice(String),
    #[error("'{0}' is not defined")]
    NotDefined(String),
    #[error("tunable '{0}' is not known")]
    UnknownTunable(String),
    #[error("bucket algorithm '{0}' is not known")]
    UnknownAlg(String),
    #[error("position {0} is taken twice or lies outside the bucket")]
    BadPosition(i64),
    #[error("weight {0} is negative or above the limit")]
    BadWeight(String),
    #[error("the items of uniform bucket '{0}' have different weights")]
    NotUniform(String),
    #[error("number {0} is out of range here")]
    OutOfRange(String),
    #[error("'{item}' has no shadow bucket for class '{class}'")]
    NoClass { item: String, class: String },
    #[error("bucket {bucket} takes {wanted} values, found {got}")]
    WrongCount { bucket: i32, wanted: usize, got: usize },
    #[error("buckets '{0}' and '{1}' contain one another")]
    Mutual(String, String),
    #[error("buckets stand behind a rule; they have to come first")]
    BucketAfterRule,
    #[error("{0}")]
    Edit(#[from] crate::EditError),
    #[error("{0}")]
    Map(#[from] crate::MapError),
}

impl TextProblem {
    fn at(self, line: usize) -> TextError {
        TextError { line, problem: self }
    }
}
