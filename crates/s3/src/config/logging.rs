//! Where a bucket's requests are logged. Source: RGWPutBucketLoggingOp and its like in
//! src/rgw/rgw_rest_bucket_logging.cc of 20.

use bytes::Bytes;
use codec::{Decode, Encode};
use hyper::header::{HeaderValue, LAST_MODIFIED};
use hyper::{Response, StatusCode};
use rgw::policy::Action;
use rgw::{BucketLogging, KeyFilter, LogKeys, LogKind};
use s3s::dto::{Timestamp, TimestampFormat};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};
use types::RealTime;

use super::{Asked, empty};
use crate::attrs::{Attrs, timestamp};
use crate::errors;
use crate::logging::{self, Log};
use crate::state::{BucketView, Gateway, LOGGING, now};
use crate::xml::{Document, Element};

const ROOT: &str = "BucketLoggingStatus";
const FLUSHED: &str = "PostBucketLoggingOutput";
const CHANGED_AND_FLUSHED: &str = "PutBucketLoggingOutput";
/// When the settings were changed last.
const CHANGED: &[u8] = b"user.rgw.logging-mtime";
/// Seconds that a log may be under way, at most.
const MAX_ROLL_S: u32 = 7 * 24 * 3600;

fn malformed() -> S3Error {
    S3ErrorCode::MalformedXML.into()
}

/// A bucket that the caller owns: no policy lets anybody else say where its logs are.
async fn owned(gateway: &Gateway, asked: &Asked, action: Action) -> S3Result<std::sync::Arc<BucketView>> {
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, action).await?;
    let is_admin = asked.caller.user().is_some_and(|user| user.admin != 0 || user.system != 0);
    match is_admin || asked.caller.is(&view.info.owner) {
        true => Ok(view),
        false => Err(S3ErrorCode::AccessDenied.into()),
    }
}

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = owned(gateway, &asked, Action::GetBucketLogging).await?;
    let mut document = Document::new(ROOT);
    let Some(conf) = &view.logging else { return Ok(document.done(ROOT)) };
    document.open("LoggingEnabled");
    document.text("TargetBucket", &conf.target);
    document.text("TargetPrefix", &conf.prefix);
    document.text("ObjectRollTime", conf.roll_s.to_string());
    document.text("LoggingType", if conf.kind == LogKind::Journal { "Journal" } else { "Standard" });
    if conf.filter != KeyFilter::default() {
        document.open("Filter");
        document.open("S3Key");
        for (name, value) in [("prefix", &conf.filter.prefix), ("suffix", &conf.filter.suffix)] {
            if !value.is_empty() {
                document.open("FilterRule");
                document.text("Name", name);
                document.text("Value", value);
                document.close("FilterRule");
            }
        }
        document.close("S3Key");
        document.close("Filter");
    }
    document.text("RecordsBatchSize", conf.batch.to_string());
    document.open("TargetObjectKeyFormat");
    match conf.keys {
        LogKeys::Simple => document.text("SimplePrefix", ""),
        LogKeys::Partitioned => {
            document.open("PartitionedPrefix");
            document.text("PartitionDateSource", if conf.by_event { "EventTime" } else { "DeliveryTime" });
            document.close("PartitionedPrefix");
        }
    }
    document.close("TargetObjectKeyFormat");
    document.close("LoggingEnabled");
    let mut response = document.done(ROOT);
    let changed = view.state.instance.attrs.get(CHANGED).cloned().map(RealTime::from_bytes);
    if let Some(Ok(changed)) = changed {
        response.headers_mut().extend(http_date(&timestamp(changed)).map(|date| (LAST_MODIFIED, date)));
    }
    Ok(response)
}

fn http_date(time: &Timestamp) -> Option<HeaderValue> {
    let mut text = Vec::new();
    time.format(TimestampFormat::HttpDate, &mut text).ok()?;
    HeaderValue::from_bytes(&text).ok()
}

fn number(of: &Element, name: &'static str) -> S3Result<Option<u32>> {
    of.text_of(name).map(|text| text.trim().parse().map_err(|_| malformed())).transpose()
}

/// How names of logs are made, and whether their days are the events'.
fn keys(format: &Element) -> S3Result<(LogKeys, bool)> {
    if let Some(partitioned) = format.first("PartitionedPrefix") {
        return match partitioned.text_of("PartitionDateSource").map(str::trim) {
            None | Some("DeliveryTime") => Ok((LogKeys::Partitioned, false)),
            Some("EventTime") => Err(errors::not_served("logs are not divided by the days of their events")),
            Some(_) => Err(malformed()),
        };
    }
    format.first("SimplePrefix").map(|_| (LogKeys::Simple, false)).ok_or_else(malformed)
}

fn filter(of: &Element) -> S3Result<KeyFilter> {
    let mut filter = KeyFilter::default();
    for rule in of.all("S3Key").flat_map(|key| key.all("FilterRule")) {
        let value = rule.text_of("Value").ok_or_else(malformed)?;
        let value = Bytes::copy_from_slice(value.as_bytes());
        match rule.text_of("Name").map(str::trim) {
            Some("prefix") => filter.prefix = value,
            Some("suffix") => filter.suffix = value,
            Some("regex") => return Err(errors::not_served("filters with expressions are not served")),
            _ => return Err(malformed()),
        }
    }
    Ok(filter)
}

/// Nothing where there is to be no log; with it whom its objects are granted to. `roll_s` counts where
/// nothing is said.
fn read(document: &[u8], roll_s: u32) -> S3Result<Option<(BucketLogging, Vec<String>)>> {
    let root = Element::read(document, ROOT)?;
    let Some(enabled) = root.first("LoggingEnabled") else { return Ok(None) };
    let target = enabled.text_of("TargetBucket").map(str::trim).filter(|name| !name.is_empty());
    let (keys, by_event) =
        enabled.first("TargetObjectKeyFormat").map_or(Ok((LogKeys::Simple, false)), keys)?;
    let kind = match enabled.text_of("LoggingType").map(str::trim) {
        None | Some("Standard") => LogKind::Standard,
        Some("Journal") => LogKind::Journal,
        Some(_) => return Err(malformed()),
    };
    let filter = match (enabled.first("Filter"), kind) {
        (Some(given), LogKind::Journal) => filter(given)?,
        _ => KeyFilter::default(),
    };
    let batch = number(enabled, "RecordsBatchSize")?.unwrap_or(0);
    if batch != 0 {
        return Err(errors::not_served("records are not gathered in memory"));
    }
    let roll_s = number(enabled, "ObjectRollTime")?.unwrap_or(roll_s);
    if !(1..=MAX_ROLL_S).contains(&roll_s) {
        return Err(s3_error!(InvalidArgument, "a log is under way for a second to a week"));
    }
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let prefix = bytes(enabled.text_of("TargetPrefix").unwrap_or_default());
    let target = bytes(target.ok_or_else(malformed)?);
    let grants = enabled.all("TargetGrants").flat_map(|grants| grants.all("Grant"));
    let to =
        |grant: &Element| grant.first("Grantee").and_then(|to| Some(to.text_of("ID")?.trim().to_owned()));
    let grants = grants.map(|grant| to(grant).unwrap_or_default()).collect();
    Ok(Some((BucketLogging { target, keys, prefix, roll_s, kind, batch, by_event, filter }, grants)))
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = owned(gateway, &asked, Action::PutBucketLogging).await?;
    let wanted = read(&asked.document, gateway.settings().log_roll_s)?;
    if let Some((conf, grants)) = &wanted {
        let owner = Log::open(gateway, &view, conf).await?.owner();
        // Whose the bucket is has all rights to its logs; radosgw passes over what is granted to others.
        if grants.iter().any(|to| owner != to.as_bytes()) {
            return Err(errors::not_served(
                "logs are of whose their bucket is, and are granted to nobody else",
            ));
        }
    }
    let wanted = wanted.map(|(conf, _)| conf);
    if view.logging == wanted {
        return Ok(empty(StatusCode::OK));
    }
    // Any change ends the log, of which the answer tells.
    let flushed = logging::end(gateway, &view).await;
    let (value, changed) = (wanted.map(|conf| conf.to_bytes()), now().to_bytes());
    let change = move |_: &mut rgw::BucketInfo, attrs: &mut Attrs| match &value {
        Some(value) => {
            attrs.insert(Bytes::from_static(LOGGING), value.clone());
            attrs.insert(Bytes::from_static(CHANGED), changed.clone());
        }
        None => {
            attrs.remove(LOGGING);
            attrs.remove(CHANGED);
        }
    };
    gateway.change_bucket(&asked.caller, &view, change).await?;
    Ok(flushed.map_or_else(|| empty(StatusCode::OK), |name| told(CHANGED_AND_FLUSHED, &name)))
}

/// Tells which log became an object.
fn told(root: &str, name: &[u8]) -> Response<Body> {
    let mut document = Document::new(root);
    document.text("FlushedLoggingObject", name);
    document.done(root)
}

/// Makes an object of what is logged so far, at once. Source: RGWPostBucketLoggingOp.
pub async fn flush(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let view = owned(gateway, &asked, Action::PostBucketLogging).await?;
    let conf = view.logging.as_ref().ok_or_else(|| errors::custom("NoSuchConfiguration", 404))?;
    let flushed = Log::open(gateway, &view, conf).await?.flush().await?;
    Ok(told(FLUSHED, &flushed.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(inner: &str) -> Result<Option<BucketLogging>, String> {
        let text = format!("<{ROOT}>{inner}</{ROOT}>");
        read(text.as_bytes(), 300)
            .map(|all| all.map(|(conf, _)| conf))
            .map_err(|e| e.code().as_str().to_owned())
    }

    fn enabled(more: &str) -> Result<Option<BucketLogging>, String> {
        of(&format!(
            "<LoggingEnabled><TargetBucket>b</TargetBucket><TargetPrefix>p/</TargetPrefix>{more}</LoggingEnabled>"
        ))
    }

    #[test]
    fn settings_say_where_logs_are() {
        assert_eq!(of(""), Ok(None));
        let plain = enabled("").unwrap().unwrap();
        let want =
            BucketLogging { target: "b".into(), prefix: "p/".into(), roll_s: 300, ..Default::default() };
        assert_eq!(plain, want);
        let journal = enabled(
            "<LoggingType>Journal</LoggingType><ObjectRollTime>5</ObjectRollTime><Filter><S3Key><FilterRule>\
             <Name>suffix</Name><Value>.txt</Value></FilterRule></S3Key></Filter>",
        );
        let filter = KeyFilter { suffix: ".txt".into(), ..KeyFilter::default() };
        assert_eq!(
            journal,
            Ok(Some(BucketLogging { kind: LogKind::Journal, roll_s: 5, filter, ..want.clone() }))
        );
        let format =
            |inner: &str| enabled(&format!("<TargetObjectKeyFormat>{inner}</TargetObjectKeyFormat>"));
        assert_eq!(format("<SimplePrefix/>"), Ok(Some(want.clone())));
        let partitioned = BucketLogging { keys: LogKeys::Partitioned, ..want };
        assert_eq!(format("<PartitionedPrefix/>"), Ok(Some(partitioned)));
        let source = |name: &str| {
            format(&format!(
                "<PartitionedPrefix><PartitionDateSource>{name}</PartitionDateSource></PartitionedPrefix>"
            ))
            .err()
        };
        assert_eq!(source("DeliveryTime"), None);
        assert_eq!(source("EventTime").as_deref(), Some("NotImplemented"));
        assert_eq!(source("kaboom").as_deref(), Some("MalformedXML"));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (inner, want) in [
            ("<LoggingType>kaboom</LoggingType>", "MalformedXML"),
            ("<RecordsBatchSize>5</RecordsBatchSize>", "NotImplemented"),
            ("<RecordsBatchSize>x</RecordsBatchSize>", "MalformedXML"),
            ("<ObjectRollTime>0</ObjectRollTime>", "InvalidArgument"),
            ("<TargetObjectKeyFormat/>", "MalformedXML"),
            (
                "<LoggingType>Journal</LoggingType><Filter><S3Key><FilterRule><Name>regex</Name><Value>x</Value>\
                 </FilterRule></S3Key></Filter>",
                "NotImplemented",
            ),
        ] {
            assert_eq!(enabled(inner), Err(want.to_owned()), "{inner}");
        }
        assert_eq!(of("<LoggingEnabled/>"), Err("MalformedXML".to_owned()));
    }
}
