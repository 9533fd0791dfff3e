//! Class `otp`: secrets of one-time passwords, and checks of passwords. Source: src/cls/otp/cls_otp.cc.
//!
//! A check and its result are two calls, as one call cannot both answer and change the object.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use codec::wire_struct;
use types::{Errno, RealTime, Utime};

use crate::registry::{Class, Done, methods};
use crate::wire::{EmptyEnvelope, c_text};
use crate::{ObjectView, keys};

mod oath;

pub static CLASS: Class = Class {
    name: "otp",
    methods: methods![
        otp_set RD_WR set,
        otp_get RD get,
        otp_check RD_WR check,
        otp_get_result RD result,
        otp_remove RD_WR remove,
        get_current_time RD current_time,
    ],
};

const HEADER: &str = "header";
const PREFIX: &str = "otp/";
/// Checks that one step of time allows.
const ATTEMPTS_PER_STEP: usize = 5;
/// Steps by which a device may be early or late at most, and bytes of its secret. Ceph has neither bound:
/// each check there tries up to 2^33 passwords, each of which hashes the secret. A clock that is off by 1024
/// steps of 30 seconds is off by more than eight hours, and a secret of more than 64 bytes counts as the 20
/// bytes of its hash.
const MAX_WINDOW: u32 = 1024;
const MAX_SECRET: usize = 1024;
/// Kind of a secret that is given in base 32; any other is in base 16. Source: SeedType in
/// src/cls/otp/cls_otp_types.h.
const BASE32: u8 = 2;

/// Results of checks. Source: OTPCheckResult in src/cls/otp/cls_otp_types.h.
const UNKNOWN: u8 = 0;
const SUCCESS: u8 = 1;
const FAIL: u8 = 2;

/// A device that makes passwords, as a client describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    pub kind: u8,
    pub id: Bytes,
    pub seed: Bytes,
    pub seed_kind: u8,
    /// The secret that the seed stands for.
    pub secret: Bytes,
    /// When steps are counted from: seconds since 1970.
    pub time_offset: i32,
    /// Seconds.
    pub step: u32,
    /// Steps by which a device may be early or late.
    pub window: u32,
}
wire_struct!(Device(1, 1) { kind, id, seed, seed_kind, secret, time_offset, step, window });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// The caller's name for it.
    pub token: Bytes,
    pub time: RealTime,
    pub result: u8,
}
wire_struct!(Check(1, 1) { token, time, result });

/// What is stored of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Instance {
    device: Device,
    last_checks: Vec<Check>,
    /// The step of the newest password that was right.
    last_success: u64,
}
wire_struct!(Instance(1, 1) { device, last_checks, last_success });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Header {
    ids: BTreeSet<Bytes>,
}
wire_struct!(Header(1, 1) { ids });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetArgs {
    pub devices: Vec<Device>,
}
wire_struct!(SetArgs(1, 1) { devices });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckArgs {
    pub id: Bytes,
    pub password: Bytes,
    pub token: Bytes,
}
wire_struct!(CheckArgs(1, 1) { id, password, token });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReply {
    pub check: Check,
}
wire_struct!(CheckReply(1, 1) { check });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveArgs {
    pub ids: Vec<Bytes>,
}
wire_struct!(RemoveArgs(1, 1) { ids });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetArgs {
    pub all: bool,
    pub ids: Vec<Bytes>,
}
wire_struct!(GetArgs(1, 1) { all, ids });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetReply {
    pub devices: Vec<Device>,
}
wire_struct!(GetReply(1, 1) { devices });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeReply {
    pub time: RealTime,
}
wire_struct!(TimeReply(1, 1) { time });

impl Device {
    /// Reads the secret out of the seed: EINVAL when it is none, or when checks would try too much.
    fn parse_seed(&mut self) -> Result<(), Errno> {
        let secret = match self.seed_kind {
            BASE32 => oath::from_base32(&self.seed),
            _ => oath::from_hex(c_text(&self.seed)),
        };
        let is_bounded = |secret: &Bytes| secret.len() <= MAX_SECRET && self.window <= MAX_WINDOW;
        self.secret = secret.filter(is_bounded).ok_or(Errno::EINVAL)?;
        Ok(())
    }

    /// The step of time that a password belongs to. As in Ceph one that is some steps late counts as early by
    /// as many, and Ceph's own count of steps has 32 bits, where that of liboath has 64.
    fn step_of(&self, v: &mut dyn ObjectView, password: &[u8]) -> Result<Option<u64>, Errno> {
        let now_s = v.now().sec;
        let count = now_s.wrapping_sub(self.time_offset as u32).checked_div(self.step);
        let since = i64::from(now_s) - i64::from(self.time_offset);
        // An OSD of Ceph divides by zero when the password of such a device is right.
        let (Some(count), Some(step)) = (count, since.checked_div(i64::from(self.step))) else {
            return Ok(None);
        };
        let window = oath::Window { step: step as u64, width: self.window };
        let off = window.find(v, &self.secret, c_text(password))?;
        Ok(off.map(|off| count.wrapping_add(off).into()))
    }
}

impl Instance {
    fn load(v: &mut dyn ObjectView, id: &[u8]) -> Result<Self, Errno> {
        keys::read(v, keys::join(PREFIX, id))
    }

    fn save(&self, v: &mut dyn ObjectView) -> Result<(), Errno> {
        keys::write(v, keys::join(PREFIX, &self.device.id), self)
    }

    /// Forgets checks in front, from before one step of time.
    fn forget(&mut self, now: Utime) {
        let step = Duration::from_secs(self.device.step.into());
        let is_old = |check: &Check| {
            u128::from(check.time.0.as_nanos()) + step.as_nanos() < u128::from(now.as_nanos())
        };
        let old = self.last_checks.iter().take_while(|check| is_old(check)).count();
        self.last_checks.drain(..old);
    }

    /// Notes a check and its result; whether there was an attempt left for it.
    fn check(&mut self, v: &mut dyn ObjectView, password: &[u8], token: Bytes) -> Result<bool, Errno> {
        let now = v.now();
        self.forget(now);
        if self.last_checks.len() >= ATTEMPTS_PER_STEP {
            return Ok(false);
        }
        let step = self.device.step_of(v, password)?.filter(|step| *step > self.last_success);
        self.last_success = step.unwrap_or(self.last_success);
        let result = if step.is_some() { SUCCESS } else { FAIL };
        self.last_checks.push(Check { token, time: RealTime(now), result });
        Ok(true)
    }
}

fn header(v: &mut dyn ObjectView) -> Result<Header, Errno> {
    match v.omap_value(HEADER.as_bytes()) {
        Err(Errno::ENOENT | Errno::ENODATA) => Ok(Header::default()),
        Ok(raw) if raw.is_empty() => Ok(Header::default()),
        raw => crate::registry::stored(raw?),
    }
}

fn set(v: &mut dyn ObjectView, args: SetArgs) -> Result<Done, Errno> {
    let mut header = header(v)?;
    for mut device in args.devices {
        let mut instance = keys::optional(Instance::load(v, &device.id))?.unwrap_or_default();
        device.parse_seed()?;
        header.ids.insert(device.id.clone());
        instance.device = device;
        instance.save(v)?;
    }
    keys::write(v, HEADER, &header)?;
    Ok(Done)
}

/// Those of the devices that are there.
fn remove(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    let mut header = header(v)?;
    let mut removed = false;
    for id in args.ids {
        if header.ids.remove(&id) {
            v.omap_remove(keys::join(PREFIX, &id))?;
            removed = true;
        }
    }
    if removed {
        keys::write(v, HEADER, &header)?;
    }
    Ok(Done)
}

/// Those of the devices that are there. ENOENT when one is in the header alone.
fn get(v: &mut dyn ObjectView, args: GetArgs) -> Result<GetReply, Errno> {
    let header = header(v)?;
    let ids = if args.all { header.ids.iter().cloned().collect() } else { args.ids };
    let known = ids.iter().filter(|id| header.ids.contains(*id));
    let devices = known.map(|id| Ok(Instance::load(v, id)?.device)).collect::<Result<_, Errno>>()?;
    Ok(GetReply { devices })
}

/// Checks a password; `otp_get_result` says how it went.
fn check(v: &mut dyn ObjectView, args: CheckArgs) -> Result<Done, Errno> {
    let mut instance = Instance::load(v, &args.id)?;
    if instance.check(v, &args.password, args.token)? {
        instance.save(v)?;
    }
    Ok(Done)
}

fn result(v: &mut dyn ObjectView, args: CheckArgs) -> Result<CheckReply, Errno> {
    let mut instance = Instance::load(v, &args.id)?;
    let now = v.now();
    instance.forget(now);
    let found = instance.last_checks.into_iter().rev().find(|check| check.token == args.token);
    let unknown = Check { token: args.token, time: RealTime(now), result: UNKNOWN };
    Ok(CheckReply { check: found.unwrap_or(unknown) })
}

fn current_time(v: &mut dyn ObjectView, _: EmptyEnvelope) -> Result<TimeReply, Errno> {
    Ok(TimeReply { time: RealTime(v.now()) })
}

#[cfg(test)]
mod tests {
    use codec::{Decode, Encode};

    use super::*;
    use crate::fake::Fake;

    /// A device of the secret in RFC 4226 whose second step has begun.
    fn device(f: &Fake, step: u32, window: u32) -> Device {
        let seed = "3132333435363738393031323334353637383930".into();
        let time_offset = f.now.sec as i32 - step as i32;
        Device { kind: 2, id: "d".into(), seed, time_offset, step, window, ..Device::default() }
    }

    fn with_device(step: u32, window: u32) -> Fake {
        let mut f = Fake::default();
        let devices = vec![device(&f, step, window)];
        f.call("otp", "otp_set", SetArgs { devices }.to_bytes()).unwrap();
        f
    }

    fn check(f: &mut Fake, password: &'static str, token: &'static str) -> u8 {
        let args = CheckArgs { id: "d".into(), password: password.into(), token: token.into() }.to_bytes();
        f.call("otp", "otp_check", args.clone()).unwrap();
        let (_, out) = f.call("otp", "otp_get_result", args).unwrap();
        CheckReply::from_bytes(out).unwrap().check.result
    }

    #[test]
    fn a_password_is_good_once() {
        let mut f = with_device(30, 0);
        assert_eq!(check(&mut f, "755224", "a"), FAIL, "of the step before");
        assert_eq!(check(&mut f, "287082", "b"), SUCCESS);
        assert_eq!(check(&mut f, "287082", "c"), FAIL);
        let get = GetArgs { all: true, ids: vec![] }.to_bytes();
        let (_, out) = f.call("otp", "otp_get", get).unwrap();
        assert_eq!(GetReply::from_bytes(out).unwrap().devices[0].secret, "12345678901234567890");
    }

    #[test]
    fn a_step_allows_five_attempts() {
        let mut f = with_device(30, 2);
        for token in ["1", "2", "3", "4", "5"] {
            assert_eq!(check(&mut f, "000000", token), FAIL);
        }
        assert_eq!(check(&mut f, "287082", "6"), UNKNOWN);
        f.now.sec += 30;
        assert_eq!(check(&mut f, "287082", "7"), UNKNOWN, "the checks are of the step that ends");
        f.now.nsec += 1;
        assert_eq!(check(&mut f, "359152", "8"), SUCCESS);
    }

    #[test]
    fn a_late_password_moves_the_count_ahead() {
        let mut f = with_device(30, 2);
        assert_eq!(check(&mut f, "755224", "a"), SUCCESS, "one step late");
        assert_eq!(check(&mut f, "287082", "b"), FAIL, "its step is behind that count");
    }

    #[test]
    fn a_step_without_length_has_no_password() {
        let mut f = with_device(0, 2);
        assert_eq!(check(&mut f, "755224", "a"), FAIL);
    }

    #[test]
    fn a_device_whose_checks_cost_too_much_is_refused() {
        let mut f = Fake::default();
        let known = device(&f, 30, 2);
        let mut set = |device| {
            let args = SetArgs { devices: vec![device] }.to_bytes();
            f.call("otp", "otp_set", args).map(|(code, _)| code)
        };
        for (window, secret, want) in [
            (MAX_WINDOW, MAX_SECRET, Ok(0)),
            (MAX_WINDOW + 1, MAX_SECRET, Err(Errno::EINVAL)),
            (u32::MAX, 20, Err(Errno::EINVAL)),
            (2, MAX_SECRET + 1, Err(Errno::EINVAL)),
        ] {
            let device = Device { window, seed: "41".repeat(secret).into(), ..known.clone() };
            assert_eq!(set(device), want, "{window} {secret}");
        }
    }

    /// A gateway's check finds room beside others in one request; what many of them try is bounded.
    #[test]
    fn a_request_tries_so_many_passwords() {
        let mut f = with_device(30, MAX_WINDOW);
        let args = CheckArgs { id: "d".into(), password: "000000".into(), token: "t".into() }.to_bytes();
        f.begin();
        let checked =
            (0..1_000).take_while(|_| f.call_within("otp", "otp_check", args.clone()).is_ok()).count();
        assert!((10..100).contains(&checked), "{checked}");
    }

    #[test]
    fn steps_before_the_offset_are_counted_as_liboath_does() {
        let device = Device {
            time_offset: 1000,
            step: 30,
            secret: "12345678901234567890".into(),
            ..Device::default()
        };
        let password = oath::Passwords::new(&device.secret).at(31_u64.wrapping_neg(), 6).unwrap();
        let mut f = Fake::default();
        f.now = Utime::new(59, 0);
        // Ceph's own division has no sign.
        let step = device.step_of(&mut f, password.as_bytes());
        assert_eq!(step.unwrap(), Some((59_u32.wrapping_sub(1000) / 30).into()));
    }
}
