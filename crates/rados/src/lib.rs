//! The async client library of RADOS.
