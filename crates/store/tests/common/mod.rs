//! What the store's tests share: a naive model, random transactions, and a comparison of the two.
#![allow(dead_code)] // each test file uses its part

mod driver;
mod model;
mod random;

pub use driver::*;
pub use model::*;
pub use random::*;
