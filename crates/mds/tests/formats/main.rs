//! Formats against what a real file system left, and against bytes that no server writes.

mod common;
mod golden;
mod hostile;
mod meaning;
