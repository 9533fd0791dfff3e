//! Locks on objects: the rule of a bucket, until when a version is kept, and whether it is held. Source:
//! RGWPutBucketObjectLock, RGWPutObjRetention, RGWPutObjLegalHold and their like in src/rgw/rgw_op.cc,
//! src/rgw/rgw_object_lock.cc.
//!
//! 1. A retention never becomes shorter or weaker, but for who may bypass governance and says so.
//! 2. Who bypasses has the right to: radosgw asks for it only where a policy denies it.

use bytes::Bytes;
use codec::Encode;
use gateway::{Error, Head, Lock};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Response, StatusCode};
use rgw::policy::Action;
use rgw::{DefaultRetention, Key, LegalHold, ObjectLock, Retention, Versioning, iso_8601};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};
use types::RealTime;

use super::{Asked, empty};
use crate::attrs::Attrs;
use crate::ops::reader;
use crate::rights::Target;
use crate::state::{BucketView, Gateway, now};
use crate::users::Caller;
use crate::xml::{Document, Element};
use crate::{attrs, errors};

const ROOT: &str = "ObjectLockConfiguration";
const RETENTION: &str = "user.rgw.object-retention";
const LEGAL_HOLD: &str = "user.rgw.object-legal-hold";
/// Headers of requests that write an object, and of answers.
const MODE: &str = "x-amz-object-lock-mode";
const UNTIL: &str = "x-amz-object-lock-retain-until-date";
const HOLD: &str = "x-amz-object-lock-legal-hold";
const BYPASS: &str = "x-amz-bypass-governance-retention";
/// Days and years that a rule may say. Source: S3's documentation of DefaultRetention.
const MAX_DAYS: i32 = 36_500;
const MAX_YEARS: i32 = 100;
/// How often a lock is set that others change at the same time.
const TRIES: usize = 8;

pub fn has_locks(view: &BucketView) -> bool {
    view.info.flags.has(Versioning::OBJECT_LOCK)
}

fn malformed() -> S3Error {
    S3ErrorCode::MalformedXML.into()
}

/// What is asked of locks in a bucket that has none.
fn without_locks() -> S3Error {
    s3_error!(InvalidRequest, "Bucket is missing ObjectLockConfiguration")
}

fn none_set() -> S3Error {
    errors::custom("ObjectLockConfigurationNotFoundError", 404)
}

fn mode(text: &str) -> Option<Bytes> {
    let known = [Retention::GOVERNANCE, Retention::COMPLIANCE];
    known.into_iter().find(|known| *known == text.as_bytes()).map(Bytes::from_static)
}

pub async fn get_rule(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::GetBucketObjectLockConfiguration;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, right).await?;
    if !has_locks(&view) {
        return Err(none_set());
    }
    let mut document = Document::plain(ROOT);
    document.text("ObjectLockEnabled", "Enabled");
    if let Some(rule) = &view.info.object_lock.rule {
        document.open("Rule");
        document.open("DefaultRetention");
        document.text("Mode", &rule.mode);
        match rule.days > 0 {
            true => document.text("Days", rule.days.to_string()),
            false => document.text("Years", rule.years.to_string()),
        }
        document.close("DefaultRetention");
        document.close("Rule");
    }
    Ok(document.done(ROOT))
}

fn read_rule(document: &[u8]) -> S3Result<ObjectLock> {
    let root = Element::read(document, ROOT)?;
    if root.text_of("ObjectLockEnabled").map(str::trim) != Some("Enabled") {
        return Err(malformed());
    }
    let Some(rule) = root.first("Rule") else { return Ok(ObjectLock { enabled: true, rule: None }) };
    let rule = rule.first("DefaultRetention").ok_or_else(malformed)?;
    let mode = rule.text_of("Mode").and_then(|text| mode(text.trim())).ok_or_else(malformed)?;
    let number = |name| match rule.text_of(name) {
        Some(text) => text.trim().parse::<i32>().map(Some).map_err(|_| malformed()),
        None => Ok(None),
    };
    let (days, years) = match (number("Days")?, number("Years")?) {
        (Some(days), None) if (1..=MAX_DAYS).contains(&days) => (days, 0),
        (None, Some(years)) if (1..=MAX_YEARS).contains(&years) => (0, years),
        (Some(_), None) | (None, Some(_)) => return Err(errors::custom("InvalidRetentionPeriod", 400)),
        _ => return Err(malformed()),
    };
    Ok(ObjectLock { enabled: true, rule: Some(DefaultRetention { mode, days, years }) })
}

pub async fn put_rule(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::PutBucketObjectLockConfiguration;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, right).await?;
    let keeps =
        |flags: Versioning| flags.has(Versioning::VERSIONED) && !flags.has(Versioning::VERSIONS_SUSPENDED);
    // 16.2 gives no bucket locks that was made without.
    if !has_locks(&view) && !keeps(view.info.flags) {
        return Err(errors::custom("InvalidBucketState", 409));
    }
    let lock = read_rule(&asked.document)?;
    let change = move |info: &mut rgw::BucketInfo, _: &mut Attrs| {
        let Versioning(flags) = info.flags;
        info.flags = Versioning(flags | Versioning::OBJECT_LOCK);
        info.object_lock = lock.clone();
    };
    gateway.change_bucket(&asked.caller, &view, change).await?;
    Ok(empty(StatusCode::OK))
}

/// Whether a request says that it bypasses governance.
fn says_bypass(headers: &HeaderMap) -> bool {
    headers.get(BYPASS).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// Whether a request may bypass the governance of a key's versions, and says that it does.
pub fn bypasses(caller: &Caller, view: &BucketView, key: &str, headers: &HeaderMap) -> bool {
    says_bypass(headers)
        && has_locks(view)
        && view.may_with_key(caller, Action::BypassGovernanceRetention, key.as_bytes())
}

/// The head of a version whose lock the caller may see or set.
async fn head(
    gateway: &Gateway,
    asked: &Asked,
    action: Action,
) -> S3Result<(std::sync::Arc<BucketView>, Key, Head)> {
    let view = gateway.bucket(&asked.caller, &asked.bucket).await?;
    let key = asked.key();
    let head = reader::head(gateway, &asked.caller, &view, &key).await?;
    let acl = attrs::acl(&head)?;
    let target = Target { key: &key.name, acl: &acl, attrs: &head.attrs };
    match view.may_with(&asked.caller, action, &target) {
        false => Err(S3ErrorCode::AccessDenied.into()),
        true if !has_locks(&view) => Err(without_locks()),
        true => Ok((view, key, head)),
    }
}

fn lock_of(head: &Head) -> S3Result<Lock> {
    Lock::of(&head.attrs).map_err(errors::of)
}

pub async fn get_retention(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let (_, _, head) = head(gateway, &asked, Action::GetObjectRetention).await?;
    let retention = lock_of(&head)?.retention.ok_or_else(none_set)?;
    let mut document = Document::plain("Retention");
    document.text("Mode", &retention.mode);
    document.text("RetainUntilDate", iso_8601::text(retention.until, 9));
    Ok(document.done("Retention"))
}

fn read_retention(document: &[u8]) -> S3Result<Retention> {
    let root = Element::read(document, "Retention")?;
    let mode = root.text_of("Mode").and_then(|text| mode(text.trim())).ok_or_else(malformed)?;
    let until = root.text_of("RetainUntilDate").map(str::trim).ok_or_else(malformed)?;
    iso_8601::read(until).ok_or_else(malformed)?;
    let until = iso_8601::time(until).ok_or_else(too_late)?;
    Ok(Retention { mode, until })
}

fn too_late() -> S3Error {
    s3_error!(InvalidArgument, "times behind the year 2106 cannot be kept")
}

/// Whether a retention may take the place of another one. Source: RGWPutObjRetention::execute of 16.2.15.
fn may_replace(old: &Retention, new: &Retention, bypasses: bool) -> bool {
    if new.until.0.sec < old.until.0.sec {
        return old.mode == Retention::GOVERNANCE && bypasses;
    }
    old.mode == new.mode || (old.mode == Retention::GOVERNANCE && bypasses)
}

/// Sets an attribute that follows from what was read, as long as that is so.
async fn set(
    gateway: &Gateway,
    (view, key): (&BucketView, &Key),
    head: Head,
    name: &'static str,
    value: Bytes,
) -> Result<(), Error> {
    let change = vec![(Bytes::from_static(name.as_bytes()), Some(value))];
    let site = gateway.site();
    gateway.now(|moment| site.set_attrs_as_seen(&view.info, key, head, change, moment)).await.map(drop)
}

fn raced() -> S3Error {
    s3_error!(OperationAborted, "another one changed the object at the same time")
}

pub async fn put_retention(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    for _ in 0..TRIES {
        let (view, key, head) = head(gateway, &asked, Action::PutObjectRetention).await?;
        let retention = read_retention(&asked.document)?;
        if retention.until.0.sec <= now().0.sec {
            return Err(s3_error!(InvalidArgument, "The retain until date must be in the future"));
        }
        let acl = attrs::acl(&head)?;
        let target = Target { key: &key.name, acl: &acl, attrs: &head.attrs };
        let bypasses = says_bypass(&asked.headers)
            && view.may_with(&asked.caller, Action::BypassGovernanceRetention, &target);
        if lock_of(&head)?.retention.is_some_and(|old| !may_replace(&old, &retention, bypasses)) {
            return Err(S3ErrorCode::AccessDenied.into());
        }
        match set(gateway, (&view, &key), head, RETENTION, retention.to_bytes()).await {
            Err(Error::Raced) => {}
            done => return done.map(|()| empty(StatusCode::OK)).map_err(errors::of),
        }
    }
    Err(raced())
}

pub async fn get_hold(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let (_, _, head) = head(gateway, &asked, Action::GetObjectLegalHold).await?;
    let hold = lock_of(&head)?.hold.ok_or_else(none_set)?;
    let mut document = Document::plain("LegalHold");
    document.text("Status", &hold.status);
    Ok(document.done("LegalHold"))
}

fn hold(text: &str) -> Option<LegalHold> {
    matches!(text, "ON" | "OFF").then(|| LegalHold { status: text.to_owned().into() })
}

pub async fn put_hold(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    for _ in 0..TRIES {
        let (view, key, head) = head(gateway, &asked, Action::PutObjectLegalHold).await?;
        let root = Element::read(&asked.document, "LegalHold")?;
        let hold = root.text_of("Status").and_then(|text| hold(text.trim())).ok_or_else(malformed)?;
        match set(gateway, (&view, &key), head, LEGAL_HOLD, hold.to_bytes()).await {
            Err(Error::Raced) => {}
            done => return done.map(|()| empty(StatusCode::OK)).map_err(errors::of),
        }
    }
    Err(raced())
}

/// The lock that a request's headers give a new object. Source: RGWPutObj_ObjStore_S3::get_params in
/// src/rgw/rgw_rest_s3.cc.
fn of_headers(headers: &HeaderMap, now: RealTime) -> S3Result<Lock> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let retention = match (text(MODE), text(UNTIL)) {
        (None, None) => None,
        (Some(given), Some(until)) => {
            let wrong = || s3_error!(InvalidArgument, "the retention of the object is none");
            iso_8601::read(until).ok_or_else(wrong)?;
            let until = iso_8601::time(until).ok_or_else(too_late)?;
            let mode = mode(given).filter(|_| until.0.sec > now.0.sec).ok_or_else(wrong)?;
            Some(Retention { mode, until })
        }
        _ => return Err(s3_error!(InvalidArgument, "a retention has a mode and a time")),
    };
    let wrong = || s3_error!(InvalidArgument, "a legal hold is ON or OFF");
    let hold = text(HOLD).map(|text| hold(text).ok_or_else(wrong)).transpose()?;
    Ok(Lock { retention, hold })
}

/// Attributes of the lock that a request gives a new object: who may write it and has the right to lock it.
pub fn new_attrs(caller: &Caller, view: &BucketView, key: &str, headers: &HeaderMap) -> S3Result<Attrs> {
    let Lock { retention, hold } = of_headers(headers, now())?;
    if !has_locks(view) && (retention.is_some() || hold.is_some()) {
        return Err(without_locks());
    }
    let (by_time, by_hold) = (Action::PutObjectRetention, Action::PutObjectLegalHold);
    let denied = |action| !view.may_with_key(caller, action, key.as_bytes());
    if (retention.is_some() && denied(by_time)) || (hold.is_some() && denied(by_hold)) {
        return Err(S3ErrorCode::AccessDenied.into());
    }
    let mut attrs = Attrs::new();
    attrs.extend(retention.map(|retention| (RETENTION.into(), retention.to_bytes())));
    attrs.extend(hold.map(|hold| (LEGAL_HOLD.into(), hold.to_bytes())));
    Ok(attrs)
}

/// Takes the source's lock off what is copied: a copy has its own.
pub fn take_off(attrs: &mut Attrs) {
    attrs.remove(RETENTION.as_bytes());
    attrs.remove(LEGAL_HOLD.as_bytes());
}

/// Headers that tell of a version's lock, as far as the caller may know. The time is in S3's form, which
/// clients read; radosgw 16.2 has that of other headers.
pub fn headers(caller: &Caller, view: &BucketView, key: &Key, head: &Head) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if !has_locks(view) {
        return Ok(headers);
    }
    let (acl, Lock { retention, hold }) = (attrs::acl(head)?, lock_of(head)?);
    let target = Target { key: &key.name, acl: &acl, attrs: &head.attrs };
    let mut add = |name: &'static str, value: &[u8]| {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.insert(name, value);
        }
    };
    if let Some(retention) = retention.filter(|_| view.may_with(caller, Action::GetObjectRetention, &target))
    {
        add(MODE, &retention.mode);
        add(UNTIL, iso_8601::text(retention.until, 3).as_bytes());
    }
    if let Some(hold) = hold.filter(|_| view.may_with(caller, Action::GetObjectLegalHold, &target)) {
        add(HOLD, &hold.status);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use types::Utime;

    use super::*;

    fn code<T>(result: S3Result<T>) -> String {
        result.err().map(|e| e.code().as_str().to_owned()).unwrap_or_default()
    }

    fn at(sec: u32) -> RealTime {
        RealTime(Utime { sec, nsec: 0 })
    }

    #[test]
    fn rules_have_a_mode_and_one_period() {
        let rule = |inner: &str| {
            let rule = format!("<Rule><DefaultRetention>{inner}</DefaultRetention></Rule>");
            let enabled = "<ObjectLockEnabled>Enabled</ObjectLockEnabled>";
            read_rule(format!("<{ROOT}>{enabled}{rule}</{ROOT}>").as_bytes())
        };
        let read = rule("<Mode>GOVERNANCE</Mode><Days>1</Days>").unwrap().rule.unwrap();
        assert_eq!((&read.mode[..], read.days, read.years), (&b"GOVERNANCE"[..], 1, 0));
        for (inner, want) in [
            ("<Mode>COMPLIANCE</Mode><Years>1</Years>", ""),
            ("<Mode>COMPLIANCE</Mode><Days>0</Days>", "InvalidRetentionPeriod"),
            ("<Mode>COMPLIANCE</Mode><Years>-1</Years>", "InvalidRetentionPeriod"),
            ("<Mode>COMPLIANCE</Mode><Days>36501</Days>", "InvalidRetentionPeriod"),
            ("<Mode>COMPLIANCE</Mode><Days>1</Days><Years>1</Years>", "MalformedXML"),
            ("<Mode>COMPLIANCE</Mode>", "MalformedXML"),
            ("<Mode>governance</Mode><Days>1</Days>", "MalformedXML"),
            ("<Days>1</Days>", "MalformedXML"),
            ("<Mode>COMPLIANCE</Mode><Days>99999999999</Days>", "MalformedXML"),
        ] {
            assert_eq!(code(rule(inner)), want, "{inner}");
        }
        let none = format!("<{ROOT}><ObjectLockEnabled>Disabled</ObjectLockEnabled></{ROOT}>");
        assert_eq!(code(read_rule(none.as_bytes())), "MalformedXML");
    }

    #[test]
    fn a_retention_never_becomes_shorter_or_weaker() {
        let of = |mode: &'static [u8], sec| Retention { mode: mode.into(), until: at(sec) };
        let (g, c) = (Retention::GOVERNANCE, Retention::COMPLIANCE);
        for (old, new, plain, bypassed) in [
            (of(g, 5), of(g, 6), true, true),
            (of(g, 5), of(g, 5), true, true),
            (of(g, 5), of(g, 4), false, true),
            (of(g, 5), of(c, 5), false, true),
            (of(c, 5), of(c, 6), true, true),
            (of(c, 5), of(c, 4), false, false),
            (of(c, 5), of(g, 5), false, false),
            (of(c, 5), of(g, 9), false, false),
        ] {
            let got = (may_replace(&old, &new, false), may_replace(&old, &new, true));
            assert_eq!(got, (plain, bypassed), "{old:?} {new:?}");
        }
    }

    #[test]
    fn headers_lock_what_is_written() {
        let of = |list: &[(&'static str, &str)]| {
            let headers = list.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            of_headers(&headers.collect(), at(1_893_456_000))
        };
        let lock = of(&[(MODE, "GOVERNANCE"), (UNTIL, "2030-01-01T00:00:01.000Z"), (HOLD, "ON")]).unwrap();
        assert_eq!(lock.retention.unwrap().until, at(1_893_456_001));
        assert!(lock.hold.unwrap().is_on());
        for wrong in [
            &[(MODE, "GOVERNANCE")][..],
            &[(UNTIL, "2031-01-01T00:00:00Z")],
            &[(MODE, "GOVERNANCE"), (UNTIL, "2030-01-01T00:00:00Z")],
            &[(MODE, "GOVERNANCE"), (UNTIL, "2140-01-01T00:00:00Z")],
            &[(MODE, "GOVERNANCE"), (UNTIL, "tomorrow")],
            &[(MODE, "gov"), (UNTIL, "2031-01-01T00:00:00Z")],
            &[(HOLD, "on")],
        ] {
            assert_eq!(code(of(wrong)), "InvalidArgument", "{wrong:?}");
        }
        assert_eq!(of(&[]).unwrap(), Lock::default());
    }

    #[test]
    fn times_of_retentions_are_those_that_can_be_kept() {
        let of = |until: &str| {
            let text = format!(
                "<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"
            );
            read_retention(text.as_bytes())
        };
        assert_eq!(of("2030-01-01T00:00:00Z").unwrap().until, at(1_893_456_000));
        assert_eq!(
            (code(of("2030")), code(of("x")), code(of("2140-01-01"))),
            (String::new(), "MalformedXML".into(), "InvalidArgument".into())
        );
    }
}
