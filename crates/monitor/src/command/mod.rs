//! Commands: one table from which parsing, validation, capability checks, help and dispatch follow.
//!
//! A group of commands is one file with a `COMMANDS` list; to add a group, name it in [`GROUPS`].

mod auth;
mod config;
mod config_key;
mod crush_edit;
mod crush_rules;
mod crush_sets;
mod crush_show;
mod describe;
mod df;
mod erasure;
mod fs_authorize;
mod fs_edit;
mod fs_set;
pub(crate) mod fs_show;
mod fsid;
mod health_mute;
mod health_show;
mod log_show;
mod mds_edit;
mod metadata;
mod mgr_edit;
mod mgr_show;
mod module_options;
pub(crate) mod mon;
mod mon_edit;
mod mon_place;
mod mon_show;
mod osd_life;
mod osd_settings;
mod osd_show;
mod osd_state;
mod osd_tree;
mod pg_force;
mod pool;
mod pool_app;
mod pool_get;
mod pool_set;
mod report;
mod shape;
mod status;
mod tier;

use std::collections::BTreeMap;

use bytes::Bytes;
use cephx::Entropy;
use maps::OsdMap;
use types::{ConnId, Now};

use crate::proposal::Batch;
use crate::session::Session;
use crate::settings::Settings;
use crate::state::{Change, Priority, State};

pub use admin::{
    ArgValue, Args, CommandError, Format, MAX_COMMAND_BYTES, Param, ParamKind, Reply, Signature, json_text,
};
pub use describe::{describe_all, describe_commands};
pub use df::{pool_space, pool_stats};
pub use mon::mon_status;

/// Every group of commands, in the order in which clients are told of them.
const GROUPS: &[&[Command]] = &[
    fsid::COMMANDS,
    status::COMMANDS,
    health_show::COMMANDS,
    health_mute::COMMANDS,
    df::COMMANDS,
    osd_tree::COMMANDS,
    osd_show::COMMANDS,
    crush_show::COMMANDS,
    mon_show::COMMANDS,
    mon_edit::COMMANDS,
    mon_place::COMMANDS,
    metadata::COMMANDS,
    mgr_show::COMMANDS,
    mgr_edit::COMMANDS,
    fs_show::COMMANDS,
    fs_edit::COMMANDS,
    fs_set::COMMANDS,
    mds_edit::COMMANDS,
    fs_authorize::COMMANDS,
    log_show::COMMANDS,
    report::COMMANDS,
    pool::COMMANDS,
    pool_get::COMMANDS,
    pool_set::COMMANDS,
    pool_app::COMMANDS,
    osd_state::COMMANDS,
    osd_life::COMMANDS,
    osd_settings::COMMANDS,
    crush_edit::COMMANDS,
    crush_rules::COMMANDS,
    crush_sets::COMMANDS,
    pg_force::COMMANDS,
    erasure::COMMANDS,
    tier::COMMANDS,
    config::COMMANDS,
    config_key::COMMANDS,
    auth::COMMANDS,
];

/// A command.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// The prefix's words, then parameters: `osd pool get name=pool,type=CephPoolname name=var,type=CephString`.
    pub sig: &'static str,
    pub help: &'static str,
    /// The service that caps must allow: `mon`, `osd`, `pg`, `auth`, `config-key`, `mgr`, `fs`, `log`, ...
    pub module: &'static str,
    /// Of `r`, `w`, `x`.
    pub perm: &'static str,
    /// `flags::*`.
    pub flags: u32,
    pub handler: Handler,
}

/// The service that a command belongs to, and what caps must allow there.
#[derive(Debug, Clone, Copy)]
struct Access {
    module: &'static str,
    perm: &'static str,
}

/// A command that changes the state.
const fn write(
    access: Access,
    sig: &'static str,
    help: &'static str,
    flags: u32,
    handler: fn(&mut WriteCtx<'_>) -> Reply,
) -> Command {
    let Access { module, perm } = access;
    Command { sig, help, module, perm, flags, handler: Handler::Write(handler) }
}

/// What runs a command.
#[derive(Debug, Clone, Copy)]
pub enum Handler {
    /// Answers at once from the committed state.
    Read(fn(&Ctx<'_>) -> Reply),
    /// Runs on the leader against a working copy; a reply with code 0 or above waits for the commit, and so does one
    /// with an error, whose changes are kept: check first, change then.
    Write(fn(&mut WriteCtx<'_>) -> Reply),
}

/// Source: MonCommand::FLAG_* in src/mon/MonCommand.h.
pub mod flags {
    pub const NONE: u32 = 0;
    pub const NOFORWARD: u32 = 1;
    pub const OBSOLETE: u32 = 2;
    pub const DEPRECATED: u32 = 4;
    pub const MGR: u32 = 8;
    pub const POLL: u32 = 16;
    pub const HIDDEN: u32 = 32;
    pub const TELL: u32 = 64;
}

/// What a command that only reads can see.
pub struct Ctx<'a> {
    pub now: Now,
    pub state: &'a State,
    pub args: &'a Args,
    pub format: Format,
    pub settings: &'a Settings,
    pub sessions: &'a BTreeMap<ConnId, Session>,
    /// Whose command it is.
    pub conn: ConnId,
    /// Data sent along.
    pub input: &'a Bytes,
}

impl Ctx<'_> {
    pub fn osdmap(&self) -> &OsdMap {
        self.state.osdmap()
    }

    pub fn session(&self) -> Option<&Session> {
        self.sessions.get(&self.conn)
    }
}

/// What a command that changes the state works with.
pub struct WriteCtx<'a> {
    pub now: Now,
    pub batch: &'a mut Batch,
    pub args: &'a Args,
    pub format: Format,
    pub settings: &'a Settings,
    pub session: &'a Session,
    pub input: &'a Bytes,
    pub entropy: &'a mut dyn Entropy,
}

impl WriteCtx<'_> {
    /// The state as earlier requests of the batch leave it.
    pub fn state(&self) -> &State {
        self.batch.state()
    }

    pub fn osdmap(&self) -> &OsdMap {
        self.batch.osdmap()
    }

    /// The OSD map to edit.
    pub fn osdmap_mut(&mut self) -> &mut OsdMap {
        self.batch.osdmap_mut()
    }

    pub fn change(&mut self, change: Change) {
        self.batch.change(change);
    }

    /// Adds an entry to the cluster log in our name.
    pub fn clog(&mut self, prio: Priority, msg: impl Into<String>) {
        let entry = self.settings.log_entry(self.now, prio, "cluster", msg.into());
        self.batch.log(entry);
    }

    /// An option's value from the config database or the local settings.
    pub fn option(&self, name: &str) -> Option<String> {
        self.settings.option(self.state(), name)
    }
}

/// Every command of the table.
pub fn all() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().copied().flatten()
}

/// The command with this prefix.
pub fn find(prefix: &str) -> Option<&'static Command> {
    all().find(|c| Signature::prefix_of(c.sig).eq(prefix.split_whitespace()))
}
