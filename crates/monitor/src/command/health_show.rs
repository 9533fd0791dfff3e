//! `ceph health`.

use crate::command::{Command, Ctx, Format, Handler, Reply, flags};
use crate::health::{Health, health_detail, health_json, health_line};

pub(super) const COMMANDS: &[Command] = &[Command {
    sig: "health name=detail,type=CephChoices,strings=detail,req=false",
    help: "show cluster health",
    module: "mon",
    perm: "r",
    flags: flags::NONE,
    handler: Handler::Read(health),
}];

fn health(ctx: &Ctx<'_>) -> Reply {
    let health = Health::of(ctx.state, ctx.settings, ctx.now);
    let detail = ctx.args.text("detail") == Some("detail");
    if ctx.format != Format::Plain {
        return Reply::json(ctx.format, &health_json(&health, detail));
    }
    let now = ctx.now.wall;
    let mut text = health_line(&health, now, " ", "; ") + "\n";
    if detail {
        text += &health_detail(&health, now);
    }
    Reply::text(text)
}
