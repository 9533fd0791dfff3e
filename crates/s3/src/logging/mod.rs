//! Logs of buckets: a record of each request, or of each change, in an object of another bucket. Source:
//! log_record and rollover_logging_object in src/rgw/rgw_bucket_logging.cc of 20.
//!
//! 1. The bucket that has the logs says by its policy whose requests it takes, at each record.
//! 2. A journal's record is written before its change is answered, or the change is answered with why not,
//!    unless it is a removal. Of other records one that cannot be written is missed, which is said to the
//!    administrator.
//! 3. Logs of one prefix follow each other by name: time, and a number that grows.

mod record;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use codec::Encode;
use gateway::{Appended, LogUnderWay};
use hyper::{Response, StatusCode};
use jiff::civil::DateTime;
use md5::{Digest, Md5};
use rgw::policy::{Action, Effect, Environment};
use rgw::{AccessControl, BucketLogging, LogKeys, LogKind, Owner};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};
use types::RealTime;

pub use record::{Removals, Seed};

use crate::attrs::{self, Attrs};
use crate::errors;
use crate::ops::writer::hex;
use crate::state::{BucketView, ENCRYPTION, Gateway, now};
use crate::users::Caller;

/// Who a policy lets write logs.
const SERVICE: &str = "logging.s3.amazonaws.com";
/// Bytes of a log that are summed up at a time.
const WINDOW: u64 = 4 << 20;
/// How often a record is tried to be written while others end the log.
const TRIES: usize = 8;
/// How long the end of a log waits for others that end it.
const TURN: Duration = Duration::from_secs(15);
/// As names of logs have their time, and what is behind it: a number, and letters.
const STAMP: &str = "%Y-%m-%d-%H-%M-%S";
const STAMP_LEN: usize = 19;
const COUNTER_LEN: usize = 10;
const LETTERS: usize = 6;

/// Tenant and name of a bucket as a setting has them. Source: rgw_parse_url_bucket in src/rgw/rgw_common.cc.
fn place(target: &Bytes, own_tenant: &Bytes) -> Option<(Bytes, String)> {
    let text = std::str::from_utf8(target).ok()?;
    let (tenant, name) = match text.split_once(':') {
        Some((tenant, name)) => (Bytes::copy_from_slice(tenant.as_bytes()), name),
        None => (own_tenant.clone(), text),
    };
    (!name.is_empty()).then(|| (tenant, name.to_owned()))
}

/// A bucket's log.
pub struct Log<'a> {
    gateway: &'a Gateway,
    source: &'a BucketView,
    conf: &'a BucketLogging,
    target: Arc<BucketView>,
}

fn refused(target: &BucketView, why: &str) -> String {
    format!("Logging bucket '{}' {why}", String::from_utf8_lossy(&target.info.bucket.name))
}

impl<'a> Log<'a> {
    /// The log of a bucket, as somebody wants it or as it is.
    ///
    /// # Errors
    /// NoSuchKey where there is no bucket for it, AccessDenied where that one's policy does not take it, and
    /// InvalidArgument where it takes no logs at all.
    pub async fn open(
        gateway: &'a Gateway,
        source: &'a BucketView,
        conf: &'a BucketLogging,
    ) -> S3Result<Self> {
        let own = &source.info.bucket;
        let (tenant, name) = place(&conf.target, &own.tenant).ok_or(S3ErrorCode::InvalidArgument)?;
        let there = gateway.bucket(&Caller::default().in_tenant(Some(tenant)), &name).await;
        let target = there.map_err(|e| match e.code() {
            S3ErrorCode::NoSuchBucket => S3ErrorCode::NoSuchKey.into(),
            _ => e,
        })?;
        if target.info.bucket.id == own.id {
            return Err(s3_error!(InvalidArgument, "a bucket does not have its own logs"));
        }
        let log = Self { gateway, source, conf, target };
        log.check()?;
        Ok(log)
    }

    /// Source: verify_target_bucket_policy and verify_target_bucket_attributes.
    fn check(&self) -> S3Result<()> {
        let (own, target) = (&self.source.info, &self.target);
        let denied = |why| Err(S3Error::with_message(S3ErrorCode::AccessDenied, refused(target, why)));
        let Some(policy) = &target.policy else { return denied("must have policy to allow logging") };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let source = [b"arn:aws:s3::", &own.bucket.tenant[..], b":", &own.bucket.name].concat();
        let env = Environment::from([
            ("aws:SourceArn".to_owned(), text(&source)),
            ("aws:SourceAccount".to_owned(), text(&own.owner.to_text())),
        ]);
        let name = [&target.info.bucket.name[..], b"/", &self.conf.prefix].concat();
        if policy.eval_service(&env, SERVICE, Action::PutObject, &name) != Effect::Allow {
            return denied("policy does not allow logging");
        }
        let why = match () {
            () if target.info.requester_pays => "is configured with requester pays",
            () if target.logging.is_some() => "is configured with bucket logging",
            () if target.state.instance.attrs.contains_key(ENCRYPTION) => "is configured with encryption",
            () => return Ok(()),
        };
        Err(S3Error::with_message(S3ErrorCode::InvalidArgument, refused(target, why)))
    }

    /// Whose the logs are.
    pub fn owner(&self) -> Bytes {
        self.target.info.owner.to_text()
    }

    /// The name of a log that begins, behind another one.
    fn name(&self, begun: RealTime, after: Option<&[u8]>) -> Bytes {
        let at = jiff::Timestamp::from_second(begun.0.sec.into()).unwrap_or_default();
        let at = jiff::tz::Offset::UTC.to_datetime(at);
        let counter = after.and_then(counter_of).map_or(0, |last| last.wrapping_add(1));
        let letters = crate::state::at_once(|moment| moment.letters(4 * LETTERS));
        let plain = letters.iter().filter(|b| b.is_ascii_alphanumeric()).take(LETTERS);
        let letters: String = plain.map(|b| char::from(b.to_ascii_uppercase())).collect();
        let stamp = at.strftime(STAMP);
        let ending = format!("{stamp}-{counter:0COUNTER_LEN$}{letters:A<LETTERS$}");
        let own = &self.source.info;
        let prefix = &self.conf.prefix;
        match self.conf.keys {
            LogKeys::Simple => [&prefix[..], ending.as_bytes()].concat().into(),
            LogKeys::Partitioned => {
                let tenant = if own.bucket.tenant.is_empty() {
                    Bytes::new()
                } else {
                    [&own.bucket.tenant[..], b":"].concat().into()
                };
                let (zonegroup, day) = (&self.gateway.settings().zonegroup, at.strftime("%Y/%m/%d"));
                let place = [&prefix[..], &own.owner.to_text(), b"/", zonegroup.as_bytes(), b"/", &tenant];
                let place = [&place.concat()[..], &own.bucket.name].concat();
                [&place[..], format!("/{day}/{ending}").as_bytes()].concat().into()
            }
        }
    }

    async fn under_way(&self) -> S3Result<Option<LogUnderWay>> {
        let plan = self.gateway.site().log_under_way(&self.target.info, &self.conf.prefix);
        self.gateway.read(plan).await.map_err(errors::of)
    }

    /// Begins the next log; that somebody else did is as good.
    async fn begin(&self, known: Option<&LogUnderWay>) -> S3Result<()> {
        let name = self.name(now(), known.map(|known| &known.name[..]));
        let (site, target, prefix) = (self.gateway.site(), &self.target.info, &self.conf.prefix);
        let begun = self.gateway.now(|moment| site.begin_log(target, prefix, name, known, moment));
        begun.await.map(drop).map_err(errors::of)
    }

    /// Makes an object of a log that takes no more.
    async fn commit(&self, name: &Bytes) -> S3Result<()> {
        let (site, target) = (self.gateway.site(), &self.target.info);
        let closed = self.gateway.run(site.close_log(target, name)).await.map_err(errors::of)?;
        let Some(size) = closed else { return Ok(()) };
        let (mut sum, mut at) = (Md5::new(), 0);
        while at < size {
            let data = self.gateway.read(site.read_log(target, name, at, WINDOW.min(size - at))).await;
            let data = data.map_err(errors::of)?;
            if data.is_empty() {
                return Err(S3ErrorCode::InternalError.into());
            }
            at = at.saturating_add(data.len() as u64);
            sum.update(&data);
        }
        // Whose the bucket is has its logs.
        let owner =
            Owner { id: target.owner.clone(), display_name: self.target.acl.owner.display_name.clone() };
        let mut attrs = Attrs::from([(attrs::ETAG.into(), hex(&sum.finalize()).into())]);
        attrs.insert(attrs::ACL.into(), AccessControl::private(owner).to_bytes());
        attrs.insert("user.rgw.content_type".into(), Bytes::from_static(b"text/plain\0"));
        let number = self.gateway.number();
        let made = self.gateway.now(|moment| site.commit_log(target, name, (size, attrs), number, moment));
        made.await.map_err(errors::of)
    }

    /// Ends a log, and begins the next one, unless that was done.
    async fn roll(&self, known: &LogUnderWay) -> S3Result<()> {
        let id = [&self.target.info.bucket.id[..], b" ", &self.conf.prefix].concat().into();
        let turn = self.gateway.log_turn(id, TURN).await;
        let _turn = turn.ok_or(S3ErrorCode::SlowDown)?;
        if self.under_way().await?.as_ref() != Some(known) {
            return Ok(());
        }
        self.commit(&known.name).await?;
        self.begin(Some(known)).await
    }

    async fn write(&self, record: Bytes) -> S3Result<()> {
        let record: Bytes = [&record[..], b"\n"].concat().into();
        for _ in 0..TRIES {
            let Some(known) = self.under_way().await? else {
                self.begin(None).await?;
                continue;
            };
            let end = begun_s(&known.name).map(|begun| begun.saturating_add(self.conf.roll_s.into()));
            if end.is_none_or(|end| end <= i64::from(now().0.sec)) {
                self.roll(&known).await?;
                continue;
            }
            let plan = self.gateway.site().append_log(&self.target.info, &known.name, record.clone());
            match self.gateway.run(plan).await.map_err(errors::of)? {
                Appended::Done => return Ok(()),
                Appended::Closed => self.roll(&known).await?,
            }
        }
        Err(s3_error!(ServiceUnavailable, "the log is ended again and again"))
    }

    /// Makes an object of what is logged so far; its name, where there is anything.
    pub async fn flush(&self) -> S3Result<Option<Bytes>> {
        let Some(known) = self.under_way().await? else { return Ok(None) };
        self.roll(&known).await?;
        Ok(Some(known.name))
    }

    /// The same, and the bucket's next record begins anew.
    pub async fn end(&self) -> S3Result<Option<Bytes>> {
        let Some(known) = self.under_way().await? else { return Ok(None) };
        self.commit(&known.name).await?;
        let plan = self.gateway.site().end_log(&self.target.info, &self.conf.prefix, &known);
        self.gateway.run(plan).await.map_err(errors::of)?;
        Ok(Some(known.name))
    }
}

/// When a log was begun, in seconds since the epoch, as its name has it.
fn begun_s(name: &[u8]) -> Option<i64> {
    let end = name.len().checked_sub(1 + COUNTER_LEN + LETTERS)?;
    let stamp = std::str::from_utf8(name.get(end.checked_sub(STAMP_LEN)?..end)?).ok()?;
    let at = DateTime::strptime(STAMP, stamp).ok()?;
    Some(jiff::tz::Offset::UTC.to_timestamp(at).ok()?.as_second())
}

fn counter_of(name: &[u8]) -> Option<u32> {
    let end = name.len().checked_sub(LETTERS)?;
    std::str::from_utf8(name.get(end.checked_sub(COUNTER_LEN)?..end)?).ok()?.parse().ok()
}

/// Brings what is logged of a bucket to its end: it goes, or is logged in another way. The name of the object
/// that its log became.
pub async fn end(gateway: &Gateway, view: &BucketView) -> Option<Bytes> {
    let conf = view.logging.as_ref()?;
    let ended = match Log::open(gateway, view, conf).await {
        Ok(log) => log.end().await,
        Err(e) => Err(e),
    };
    ended.unwrap_or_else(|e| {
        tracing::warn!("the last records of a bucket's log are not an object of it: {e}");
        None
    })
}

/// Logs a request that was answered so, where its bucket has a log.
pub async fn logged(
    gateway: &Gateway,
    caller: &Caller,
    seed: &Seed,
    answered: S3Result<Response<Body>>,
) -> S3Result<Response<Body>> {
    let Some(bucket) = seed.bucket() else { return answered };
    // Of a bucket that is not there nobody asks again.
    let is_gone = answered.as_ref().is_ok_and(|response| response.status() == StatusCode::NOT_FOUND);
    let Some(view) = gateway.known_bucket(caller, &bucket, is_gone).await else { return answered };
    let Some(conf) = view.logging.clone() else { return answered };
    let mut answered = answered;
    let records = seed.records(&view, caller, &conf, &mut answered).await;
    if records.is_empty() {
        return answered;
    }
    let written = async {
        let log = Log::open(gateway, &view, &conf).await?;
        for record in records {
            log.write(record).await?;
        }
        Ok::<(), S3Error>(())
    };
    match written.await {
        Err(e) if conf.kind == LogKind::Journal && !seed.removes() => Err(e),
        Err(e) => {
            tracing::warn!("a request is missing in the log of {bucket}: {e}");
            answered
        }
        Ok(()) => answered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_logs_tell_when_they_were_begun() {
        let name = b"log/2026-11-29-06-12-40-0000000041ABCDEF";
        assert_eq!((begun_s(name), counter_of(name)), (Some(1_795_932_760), Some(41)));
        for wrong in [&b"log/"[..], b"", b"log/2026-11-29-06-12-4x-0000000041ABCDEF"] {
            assert_eq!(begun_s(wrong), None);
        }
        assert_eq!(counter_of(b"x"), None);
    }

    #[test]
    fn buckets_for_logs_are_in_the_own_tenant_or_in_another_one() {
        let of = |text: &'static str| place(&text.into(), &"own".into());
        let is = |tenant: &'static str, name: &str| Some((Bytes::from(tenant), name.to_owned()));
        assert_eq!([of("b"), of("t:b"), of(":b")], [is("own", "b"), is("t", "b"), is("", "b")]);
        assert_eq!((of(""), of("t:")), (None, None));
    }
}
