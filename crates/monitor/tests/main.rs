//! This crate's tests, as one program: each further one costs the gate seconds to build.

mod apart;
mod bad_settings;
mod changes;
mod common;
mod contained;
mod crush_commands;
mod departures;
mod file_system_commands;
mod file_systems;
mod gone;
mod health;
mod idle;
mod manager_faults;
mod managers;
mod members;
mod mon_places;
mod osds;
mod pools;
mod refusals;
mod reports;
mod sessions;
mod shares;
mod show;
