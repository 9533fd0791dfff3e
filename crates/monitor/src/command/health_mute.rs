//! `ceph health mute` and `health unmute`.
//!
//! Source: HealthMonitor::prepare_command, parse_timespan in src/common/ceph_time.cc.

use std::time::Duration;

use types::{Errno, Utime};

use crate::command::{Command, Handler, Reply, WriteCtx, flags};
use crate::health::Health;
use crate::state::{Change, Mute};

const fn write(sig: &'static str, help: &'static str, handler: fn(&mut WriteCtx<'_>) -> Reply) -> Command {
    Command { sig, help, module: "mon", perm: "w", flags: flags::NONE, handler: Handler::Write(handler) }
}

pub(super) const COMMANDS: &[Command] = &[
    write(
        "health mute name=code,type=CephString name=ttl,type=CephString,req=false \
         name=sticky,type=CephBool,req=false",
        "mute health alert",
        mute,
    ),
    write(
        "health unmute name=code,type=CephString,req=false",
        "unmute existing health alert mute(s)",
        unmute,
    ),
];

fn mute(ctx: &mut WriteCtx<'_>) -> Reply {
    let code = ctx.args.text_or_empty("code").to_owned();
    if code.is_empty() {
        return Reply::error(Errno::EINVAL, "must specify an alert code to mute");
    }
    let sticky = ctx.args.flag("sticky");
    let until = match ctx.args.text("ttl").map(|text| (text, parse_timespan(text))) {
        None => Utime::ZERO,
        Some((_, Some(span))) if !span.is_zero() => ctx.now.wall.plus(span),
        Some((text, _)) => return Reply::error(Errno::EINVAL, format!("not a valid duration: {text}")),
    };
    let mut mute = Mute { until, sticky, summary: String::new(), count: 0 };
    if !sticky {
        let health = Health::of(ctx.state(), ctx.settings, ctx.now);
        let Some(check) = health.checks.get(&code) else {
            return Reply::error(Errno::ENOENT, format!("health alert {code} is not currently raised"));
        };
        mute.summary.clone_from(&check.summary);
        mute.count = check.count;
    }
    ctx.change(Change::Mute(code, Some(mute)));
    Reply::ok()
}

fn unmute(ctx: &mut WriteCtx<'_>) -> Reply {
    let codes: Vec<String> = match ctx.args.text("code") {
        Some(code) => vec![code.to_owned()],
        None => ctx.state().mutes.keys().cloned().collect(),
    };
    for code in codes {
        if ctx.state().mutes.contains_key(&code) {
            ctx.change(Change::Mute(code, None));
        }
    }
    Reply::ok()
}

/// `90`, `2h`, `1d 12h`: numbers with units, seconds without; `None` for other texts and for more than a century.
fn parse_timespan(text: &str) -> Option<Duration> {
    const CENTURY_S: u64 = 100 * 365 * 86_400;
    admin::options::parse_span(text).ok().filter(|s| *s <= CENTURY_S).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: Option<u64>) {
        assert_eq!(parse_timespan(text), want.map(Duration::from_secs), "{text}");
    }

    #[test]
    fn spans_are_read() {
        check("90", Some(90));
        check("2h", Some(7_200));
        check("1d 12 hr", Some(129_600));
        check("1w1d", Some(691_200));
        check("", Some(0));
        check("h", None);
        check("5 fortnights", None);
        check("5-", None);
        check("99999999999999999999y", None);
        check("200y", None);
    }
}
