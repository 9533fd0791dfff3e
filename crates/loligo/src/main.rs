//! One binary: the whole cluster, each daemon, and the tools.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic))]

/// `println!` for a reader that may have gone (`loligo up | head`): that is no reason to end a cluster.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod args;
mod bench;
mod client;
mod connect;
mod create;
mod failures;
mod fates;
mod layout;
mod log;
mod mkfs;
mod network;
mod of_manager;
mod offline;
mod place;
mod rados;
mod rbd;
mod rescue;
mod rgw;
mod rgw_keys;
mod rgw_options;
mod running;
mod serve;
mod size;
mod up;
mod up_dashboard;
mod up_fs;
mod up_s3;
mod user;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use types::EntityType;

/// A fifth of the OSD's instructions per small write went to the C library's allocator.
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    let cli = Cli::parse_from(args::with_options(std::env::args_os().collect()));
    let daemon = matches!(cli.command, Command::Mon(_) | Command::Osd(_) | Command::Mgr(_) | Command::Mds(_));
    if !daemon {
        serve::start_log(None);
    }
    if daemon || matches!(cli.command, Command::Serve(_) | Command::Up(_)) {
        // Before anything is allocated; an OSD that may use much memory takes it back.
        create::choose_pages(0);
    }
    let result = match cli.command {
        Command::Rbd(args) => return finish(rbd::run(&args)),
        Command::Up(args) => up::up(&args),
        Command::Down(args) => up::down(&args),
        Command::Status(args) => up::status(&args),
        Command::Serve(args) => serve::everything(&args.data),
        Command::Mon(args) => serve::one(&args, EntityType::Mon),
        Command::Osd(args) => serve::one(&args, EntityType::Osd),
        Command::Mgr(args) => serve::one(&args, EntityType::Mgr),
        Command::Mds(args) => serve::one(&args, EntityType::Mds),
        Command::Store(command) => offline::run(&command),
        Command::Rados(args) => rados::run(&args),
        Command::Rgw(args) => rgw::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    finish(result.map(|()| ExitCode::SUCCESS))
}

fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            match error.downcast_ref::<rados::Failed>() {
                // The words of Ceph's tool, when there are any.
                Some(failed) if failed.0.is_empty() => {}
                Some(failed) => eprintln!("{failed}"),
                None => eprintln!("loligo: {error:#}"),
            }
            ExitCode::FAILURE
        }
    }
}
