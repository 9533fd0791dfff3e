//! Storage against a model of objects: crashes at every operation, damage, pages, what a fresh rank is.

#[path = "../formats/common.rs"]
mod common;
mod model;

mod dirs;
mod files;
mod fresh;
mod journal;
mod purge;
mod tables;
