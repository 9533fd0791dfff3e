//! The monitor's services, each as methods of [`crate::Monitor`] and functions on the state.

pub(crate) mod auth;
pub(crate) mod commands;
pub(crate) mod digest;
pub(crate) mod erasure;
pub(crate) mod faults;
pub(crate) mod fresh;
pub(crate) mod genesis;
pub(crate) mod health_log;
pub(crate) mod held;
pub(crate) mod mds;
pub(crate) mod mds_tick;
pub(crate) mod merge;
pub(crate) mod mgr;
pub(crate) mod osd;
pub(crate) mod osd_tick;
pub(crate) mod pool;
pub(crate) mod pool_tick;
pub(crate) mod prepare;
pub(crate) mod proxy;
pub(crate) mod queries;
pub(crate) mod reports;
pub(crate) mod subscribe;
pub(crate) mod tell;
