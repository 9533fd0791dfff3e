//! Conditions of requests. Source: RFC 9110, section 13.2.2; RGWGetObj::execute in src/rgw/rgw_op.cc.

use std::time::SystemTime;

use s3s::dto::Timestamp;
use s3s::{S3ErrorCode, S3Result};

/// What a client asks of an object before anything is done.
#[derive(Debug, Default)]
pub struct Conditions<'a> {
    pub matches: Option<&'a str>,
    pub none_matches: Option<&'a str>,
    pub modified_since: Option<&'a Timestamp>,
    pub unmodified_since: Option<&'a Timestamp>,
}

/// Whether a header with tags names one.
pub fn names(header: &str, etag: &str) -> bool {
    let bare = |tag: &str| {
        let tag = tag.trim();
        tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"').to_owned()
    };
    header.split(',').map(bare).any(|tag| tag == "*" || tag == etag)
}

/// Seconds since the epoch: headers have no parts of one.
pub fn whole_seconds(time: &Timestamp) -> i64 {
    let mut text = Vec::new();
    let formatted = time.format(s3s::dto::TimestampFormat::EpochSeconds, &mut text);
    let text = String::from_utf8(text).unwrap_or_default();
    let whole = text.split('.').next().and_then(|seconds| seconds.parse().ok());
    formatted.ok().and(whole).unwrap_or(0)
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl Conditions<'_> {
    /// Whether they hold for a read; an object that the client has already is `NotModified`.
    pub fn check(&self, etag: &str, modified: SystemTime) -> S3Result<()> {
        self.check_as(etag, modified, S3ErrorCode::NotModified)
    }

    /// The same for the source of a copy, where nothing is "not modified".
    pub fn check_source(&self, etag: &str, modified: SystemTime) -> S3Result<()> {
        self.check_as(etag, modified, S3ErrorCode::PreconditionFailed)
    }

    fn check_as(&self, etag: &str, modified: SystemTime, unchanged: S3ErrorCode) -> S3Result<()> {
        let modified = seconds(modified);
        let fails = match (self.matches, self.unmodified_since) {
            (Some(tags), _) => !names(tags, etag),
            (None, Some(since)) => modified > whole_seconds(since),
            (None, None) => false,
        };
        if fails {
            return Err(S3ErrorCode::PreconditionFailed.into());
        }
        let known = match (self.none_matches, self.modified_since) {
            (Some(tags), _) => names(tags, etag),
            (None, Some(since)) => modified <= whole_seconds(since),
            (None, None) => false,
        };
        if known { Err(unchanged.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn conditions_hold_in_their_order() {
        let at = |s: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        let (before, after) = (Timestamp::from(at(99)), Timestamp::from(at(100)));
        let check = |conditions: Conditions, want: Option<&str>| {
            let got = conditions.check("e", at(100) + Duration::from_millis(5));
            assert_eq!(got.err().map(|e| e.code().as_str().to_owned()).as_deref(), want);
        };
        let none = Conditions::default;
        check(none(), None);
        check(Conditions { matches: Some("\"e\""), ..none() }, None);
        check(Conditions { matches: Some("\"f\", W/\"e\""), ..none() }, None);
        check(Conditions { matches: Some("\"f\""), ..none() }, Some("PreconditionFailed"));
        check(Conditions { matches: Some("*"), unmodified_since: Some(&before), ..none() }, None);
        check(Conditions { unmodified_since: Some(&before), ..none() }, Some("PreconditionFailed"));
        check(Conditions { unmodified_since: Some(&after), ..none() }, None);
        check(Conditions { none_matches: Some("e"), ..none() }, Some("NotModified"));
        check(Conditions { none_matches: Some("f"), modified_since: Some(&after), ..none() }, None);
        check(Conditions { modified_since: Some(&after), ..none() }, Some("NotModified"));
        check(Conditions { modified_since: Some(&before), ..none() }, None);
    }
}
