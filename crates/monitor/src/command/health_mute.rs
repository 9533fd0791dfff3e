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
    let mut sum = 0u64;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        let behind = behind.trim_start();
        let letters = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(letters);
        if unit.is_empty() && !behind.is_empty() {
            return None;
        }
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(unit_seconds(unit)?)?)?;
        rest = next.trim_start();
    }
    (sum <= CENTURY_S).then(|| Duration::from_secs(sum))
}

fn unit_seconds(unit: &str) -> Option<u64> {
    Some(match unit {
        "" | "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hr" | "hour" | "hours" => 3_600,
        "d" | "day" | "days" => 86_400,
        "w" | "wk" | "week" | "weeks" => 7 * 86_400,
        "mo" | "month" | "months" => 30 * 86_400,
        "y" | "yr" | "year" | "years" => 365 * 86_400,
        _ => return None,
    })
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
