//! What every process needs towards a cluster: an identity, and a session with a monitor that is kept up.

pub mod auth;
mod mon;

pub use auth::{Method, SharedAuth};
pub use mon::MonSession;
