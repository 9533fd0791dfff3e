//! When a bucket's objects expire, or go to another storage class. Source: RGWPutLC and its like in
//! src/rgw/rgw_op.cc, src/rgw/rgw_lc_s3.cc, s3_expiration_header in src/rgw/rgw_lc.cc.
//!
//! A rule that says more than is done is refused: what it would keep is not deleted.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::Encode;
use gateway::Head;
use gateway::lifecycle::ATTR;
use hyper::header::HeaderValue;
use hyper::{Response, StatusCode};
use rgw::policy::Action;
use rgw::{Expiration, Filter, Lifecycle, Rule, Tags, Transition, iso_8601};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};
use types::RealTime;

use super::{Asked, empty};
use crate::state::{BucketView, Gateway, at_once};
use crate::xml::{Document, Element};
use crate::{attrs, errors, tags};

const ROOT: &str = "LifecycleConfiguration";
/// Source: rgw_lc_max_rules in src/common/options.cc.
const MAX_RULES: usize = 1000;
/// Source: MAX_ID_LEN in src/rgw/rgw_lc.h.
const MAX_ID: usize = 255;
/// Letters of an id that nobody gave. Source: LC_ID_LENGTH in src/rgw/rgw_lc_s3.cc.
const ID_LETTERS: usize = 48;
/// Bytes of a document: the bucket's instance has it, which all requests read.
const MAX_DOCUMENT: usize = 512 << 10;
const MAX_PREFIX: usize = 1024;
const DAY_S: u64 = 24 * 3600;
const RULE: [&str; 7] = [
    "ID",
    "Prefix",
    "Filter",
    "Status",
    "Expiration",
    "NoncurrentVersionExpiration",
    "AbortIncompleteMultipartUpload",
];
/// Of which a rule may have several.
const MOVES: [&str; 2] = ["Transition", "NoncurrentVersionTransition"];
const UNSERVED_FILTERS: [&str; 2] = ["ObjectSizeGreaterThan", "ObjectSizeLessThan"];

fn malformed() -> S3Error {
    S3ErrorCode::MalformedXML.into()
}

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::GetLifecycleConfiguration;
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, right).await?;
    let none = || errors::custom("NoSuchLifecycleConfiguration", 404);
    Ok(shown(view.lifecycle.as_ref().ok_or_else(none)?))
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::PutLifecycleConfiguration;
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, right).await?;
    let lifecycle = read(&asked.document, || at_once(|moment| moment.letters(ID_LETTERS)))?;
    // radosgw takes any, and says in its log that nothing goes there.
    let classes =
        lifecycle.rules.values().flat_map(|r| r.transitions.keys().chain(r.noncurrent_transitions.keys()));
    if classes.into_iter().any(|class| !gateway.site().has_class(&view.info, class)) {
        return Err(S3ErrorCode::InvalidStorageClass.into());
    }
    gateway.set_bucket_attr(&asked.caller, &view, ATTR, Some(lifecycle.to_bytes())).await?;
    list(gateway, &view, true).await
}

pub async fn delete(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::PutLifecycleConfiguration;
    let view = gateway.bucket_for(&asked.caller, &asked.bucket, right).await?;
    gateway.set_bucket_attr(&asked.caller, &view, ATTR, None).await?;
    list(gateway, &view, false).await
}

/// Has the bucket worked on, or not any more.
async fn list(gateway: &Gateway, view: &BucketView, listed: bool) -> S3Result<Response<Body>> {
    let bucket = &view.info.bucket;
    gateway.now(|moment| gateway.site().list_lifecycle(bucket, listed, moment)).await.map_err(errors::of)?;
    Ok(empty(if listed { StatusCode::OK } else { StatusCode::NO_CONTENT }))
}

fn read(document: &[u8], id: impl Fn() -> Bytes) -> S3Result<Lifecycle> {
    if document.len() > MAX_DOCUMENT {
        return Err(s3_error!(InvalidRequest, "the document has more than 512 KiB"));
    }
    let root = Element::read(document, ROOT)?;
    let mut rules = BTreeMap::new();
    for element in root.all("Rule") {
        let rule = rule(element, &id)?;
        if rules.insert(rule.id.clone(), rule).is_some() {
            return Err(s3_error!(InvalidArgument, "two rules have one id"));
        }
        if rules.len() > MAX_RULES {
            return Err(malformed());
        }
    }
    if rules.is_empty() { Err(malformed()) } else { Ok(Lifecycle { rules }) }
}

/// Days as they were given, of which there is one at least.
fn days(element: &Element, name: &str) -> S3Result<Option<Bytes>> {
    let Some(text) = element.text_of(name).map(str::trim) else { return Ok(None) };
    match text.parse::<i32>() {
        Ok(1..) => Ok(Some(text.to_owned().into())),
        _ => Err(s3_error!(InvalidArgument, "there is one day at least")),
    }
}

fn days_alone(element: &Element, name: &str, inner: &str) -> S3Result<Expiration> {
    let Some(element) = element.first(name) else { return Ok(Expiration::default()) };
    if element.first("NewerNoncurrentVersions").is_some() {
        return Err(errors::not_served("versions are not counted by lifecycles"));
    }
    Ok(Expiration { days: days(element, inner)?.ok_or_else(malformed)?, date: Bytes::new() })
}

/// A day that begins, of UTC.
fn date(text: &str) -> S3Result<Bytes> {
    let midnight = iso_8601::read(text).filter(|(seconds, nsec)| seconds % DAY_S == 0 && *nsec == 0);
    midnight.map(|_| text.to_owned().into()).ok_or_else(malformed)
}

/// When objects go, and whether delete markers do.
fn expiration(element: &Element) -> S3Result<(Expiration, bool)> {
    let Some(element) = element.first("Expiration") else { return Ok((Expiration::default(), false)) };
    let named = |name| element.text_of(name).map(str::trim);
    match (named("Days"), named("Date"), named("ExpiredObjectDeleteMarker")) {
        (Some(_), None, None) => {
            let days = days(element, "Days")?.unwrap_or_default();
            Ok((Expiration { days, date: Bytes::new() }, false))
        }
        (None, Some(text), None) => Ok((Expiration { days: Bytes::new(), date: date(text)? }, false)),
        (None, None, Some(text)) => Ok((Expiration::default(), text == "true")),
        _ => Err(malformed()),
    }
}

/// Refuses an element with other children than these, or with two of the first ones. What is not understood
/// may narrow a rule, and to pass over it would delete more than is asked for.
fn only(element: &Element, once: &[&str], many: &[&str]) -> S3Result<()> {
    let is_known = |child: &Element| once.contains(&&*child.name) || many.contains(&&*child.name);
    let is_good =
        element.children().iter().all(is_known) && once.iter().all(|name| element.all(name).count() <= 1);
    if is_good { Ok(()) } else { Err(malformed()) }
}

/// What an object has to have for a rule: all that stands in `And`, and beside it. radosgw passes over what
/// stands beside it, and more goes there than is asked for; AWS refuses both at once.
fn filter(outer: &Element) -> S3Result<Filter> {
    let both: Vec<&Element> = std::iter::once(outer).chain(outer.first("And")).collect();
    if UNSERVED_FILTERS.into_iter().any(|name| both.iter().any(|element| element.first(name).is_some())) {
        return Err(errors::not_served("rules by the size of objects are not served"));
    }
    only(outer, &["And", "Prefix"], &["Tag"])?;
    outer.first("And").map_or(Ok(()), |and| only(and, &["Prefix"], &["Tag"]))?;
    let (mut found, mut prefix) = (Tags::default(), "");
    for element in both {
        for tag in element.all("Tag") {
            let (Some(key), Some(value)) = (tag.text_of("Key"), tag.text_of("Value")) else {
                return Err(malformed());
            };
            tags::add(&mut found, tags::MAX_OF_OBJECT, key, value)?;
        }
        let other = element.text_of("Prefix").unwrap_or_default();
        match (prefix.starts_with(other), other.starts_with(prefix)) {
            (true, _) => {}
            (false, true) => prefix = other,
            // No name begins with both.
            (false, false) => return Err(malformed()),
        }
    }
    Ok(Filter { prefix: prefix.to_owned().into(), tags: found })
}

/// Days until objects move, which may be none.
fn days_to_move(element: &Element, name: &str) -> S3Result<Option<Bytes>> {
    let Some(text) = element.text_of(name).map(str::trim) else { return Ok(None) };
    match text.parse::<i32>() {
        Ok(0..) => Ok(Some(text.to_owned().into())),
        _ => Err(s3_error!(InvalidArgument, "days are no negative number")),
    }
}

fn class(element: &Element) -> S3Result<Bytes> {
    let class = element.text_of("StorageClass").map(str::trim).filter(|class| !class.is_empty());
    Ok(class.ok_or_else(malformed)?.to_owned().into())
}

/// Source: LCTransition_S3::decode_xml.
fn transition(element: &Element) -> S3Result<Transition> {
    only(element, &["Days", "Date", "StorageClass"], &[])?;
    let given = element.text_of("Date").map(|text| date(text.trim())).transpose()?;
    let (days, date) = match (days_to_move(element, "Days")?, given) {
        (Some(days), None) => (days, Bytes::new()),
        (None, Some(date)) => (Bytes::new(), date),
        _ => return Err(malformed()),
    };
    Ok(Transition { days, date, storage_class: class(element)? })
}

/// Source: LCNoncurTransition_S3::decode_xml.
fn noncurrent_transition(element: &Element) -> S3Result<Transition> {
    if element.first("NewerNoncurrentVersions").is_some() {
        return Err(errors::not_served("versions are not counted by lifecycles"));
    }
    only(element, &["NoncurrentDays", "StorageClass"], &[])?;
    let days = days_to_move(element, "NoncurrentDays")?.ok_or_else(malformed)?;
    Ok(Transition { days, date: Bytes::new(), storage_class: class(element)? })
}

/// What moves objects, by storage class, of which none comes twice.
fn moves(
    element: &Element,
    name: &str,
    read: impl Fn(&Element) -> S3Result<Transition>,
) -> S3Result<BTreeMap<Bytes, Transition>> {
    let mut all = BTreeMap::new();
    for transition in element.all(name) {
        let transition = read(transition)?;
        if all.insert(transition.storage_class.clone(), transition).is_some() {
            return Err(malformed());
        }
    }
    Ok(all)
}

fn rule(element: &Element, id: impl Fn() -> Bytes) -> S3Result<Rule> {
    only(element, &RULE, &MOVES)?;
    if element.first("Prefix").is_some() && element.first("Filter").is_some() {
        return Err(malformed());
    }
    let given = element.text_of("ID").filter(|id| !id.is_empty());
    let id = given.map_or_else(id, |id| id.to_owned().into());
    let prefix = element.text_of("Prefix");
    let filter = match element.first("Filter") {
        Some(element) => filter(element)?,
        // As clients wrote it before there were filters.
        None if prefix.is_some() => Filter::default(),
        None => return Err(malformed()),
    };
    let prefix: Bytes = prefix.unwrap_or_default().to_owned().into();
    let status = element.text_of("Status").map(str::trim).filter(|s| matches!(*s, "Enabled" | "Disabled"));
    let status = status.ok_or_else(malformed)?.to_owned().into();
    let (expiration, expires_markers) = expiration(element)?;
    let noncurrent_expiration = days_alone(element, "NoncurrentVersionExpiration", "NoncurrentDays")?;
    let upload_expiration = days_alone(element, "AbortIncompleteMultipartUpload", "DaysAfterInitiation")?;
    let transitions = moves(element, MOVES[0], transition)?;
    let noncurrent_transitions = moves(element, MOVES[1], noncurrent_transition)?;
    let actions = ["Expiration", "NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload"];
    if actions.iter().chain(&MOVES).all(|name| element.first(name).is_none()) {
        return Err(malformed());
    }
    let none = Expiration::default();
    let says = [&expiration, &noncurrent_expiration, &upload_expiration].into_iter().any(|e| *e != none)
        || !(transitions.is_empty() && noncurrent_transitions.is_empty());
    if !transitions.is_empty() {
        let (mut days, mut dates) = (!expiration.days.is_empty(), !expiration.date.is_empty());
        transitions
            .values()
            .for_each(|of| (days, dates) = (days || of.date.is_empty(), dates || of.days.is_empty()));
        if days && dates {
            return Err(s3_error!(InvalidArgument, "a rule has days or dates, and not both"));
        }
    }
    if id.len() > MAX_ID || prefix.len() > MAX_PREFIX || filter.prefix.len() > MAX_PREFIX {
        return Err(s3_error!(InvalidArgument, "an id or a prefix is too long"));
    }
    if !(says || expires_markers) {
        return Err(s3_error!(InvalidArgument, "a rule says nothing"));
    }
    if !filter.tags.tags.is_empty() && (expires_markers || upload_expiration != none) {
        return Err(s3_error!(InvalidRequest, "delete markers and uploads have no tags"));
    }
    Ok(Rule {
        id,
        prefix,
        status,
        expiration,
        noncurrent_expiration,
        upload_expiration,
        expires_markers,
        filter,
        transitions,
        noncurrent_transitions,
    })
}

fn shown(lifecycle: &Lifecycle) -> Response<Body> {
    let mut document = Document::new(ROOT);
    for rule in lifecycle.rules.values() {
        document.open("Rule");
        document.text("ID", &rule.id);
        match rule.filter == Filter::default() {
            true => document.text("Prefix", &rule.prefix),
            false => show_filter(&mut document, &rule.filter),
        }
        document.text("Status", &rule.status);
        let none = Expiration::default();
        if rule.expiration != none || rule.expires_markers {
            document.open("Expiration");
            match () {
                () if rule.expires_markers => document.text("ExpiredObjectDeleteMarker", "true"),
                () if !rule.expiration.days.is_empty() => document.text("Days", &rule.expiration.days),
                () => document.text("Date", &rule.expiration.date),
            }
            document.close("Expiration");
        }
        for (name, inner, expiration) in [
            ("NoncurrentVersionExpiration", "NoncurrentDays", &rule.noncurrent_expiration),
            ("AbortIncompleteMultipartUpload", "DaysAfterInitiation", &rule.upload_expiration),
        ] {
            if *expiration != none {
                document.open(name);
                document.text(inner, &expiration.days);
                document.close(name);
            }
        }
        show_transitions(&mut document, "Transition", "Days", &rule.transitions);
        let noncurrent = &rule.noncurrent_transitions;
        show_transitions(&mut document, "NoncurrentVersionTransition", "NoncurrentDays", noncurrent);
        document.close("Rule");
    }
    document.done(ROOT)
}

fn show_transitions(document: &mut Document, name: &str, days: &str, all: &BTreeMap<Bytes, Transition>) {
    for transition in all.values() {
        document.open(name);
        match transition.date.is_empty() {
            true => document.text(days, &transition.days),
            false => document.text("Date", &transition.date),
        }
        document.text("StorageClass", &transition.storage_class);
        document.close(name);
    }
}

fn show_filter(document: &mut Document, filter: &Filter) {
    document.open("Filter");
    let count = filter.tags.tags.len();
    let several = count > 1 || (count == 1 && !filter.prefix.is_empty());
    if several {
        document.open("And");
    }
    if !filter.prefix.is_empty() {
        document.text("Prefix", &filter.prefix);
    }
    for (key, value) in &filter.tags.tags {
        document.open("Tag");
        document.text("Key", key);
        document.text("Value", value);
        document.close("Tag");
    }
    if several {
        document.close("And");
    }
    document.close("Filter");
}

/// When what is shown of a key expires, and by which rule: the first one of all.
fn expires(lifecycle: &Lifecycle, key: &[u8], tags: &Tags, modified: RealTime) -> Option<(u64, Bytes)> {
    let of = |rule: &Rule| {
        let prefix = if rule.filter.prefix.is_empty() { &rule.prefix } else { &rule.filter.prefix };
        let has = |(key, value): (&Bytes, &Bytes)| tags.tags.get(key) == Some(value);
        let is_meant = rule.status.as_ref() == b"Enabled"
            && key.starts_with(prefix)
            && rule.filter.tags.tags.iter().all(has);
        let text = |raw: &Bytes| std::str::from_utf8(raw).ok().map(str::to_owned);
        let date = text(&rule.expiration.date).and_then(|date| iso_8601::read(&date));
        let days = text(&rule.expiration.days).and_then(|days| days.parse::<u32>().ok());
        let at = match (date, days) {
            (Some((seconds, _)), _) => Some(seconds),
            // The midnight behind the last day.
            (None, Some(days)) => Some((u64::from(modified.0.sec) / DAY_S + 1 + u64::from(days)) * DAY_S),
            (None, None) => None,
        };
        at.filter(|_| is_meant).map(|at| (at, rule.id.clone()))
    };
    lifecycle.rules.values().filter_map(of).min_by_key(|(at, _)| *at)
}

/// What `x-amz-expiration` says of an object that is shown.
pub fn header(view: &BucketView, key: &[u8], own: &attrs::Attrs, modified: RealTime) -> Option<HeaderValue> {
    let lifecycle = view.lifecycle.as_ref()?;
    let tags = tags::stored(own.get(attrs::TAGGING.as_bytes())).ok()?;
    let (at, id) = expires(lifecycle, key, &tags, modified)?;
    let time = std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(at))?;
    let (stamp, mut date) = (s3s::dto::Timestamp::from(time), Vec::new());
    stamp.format(s3s::dto::TimestampFormat::HttpDate, &mut date).ok()?;
    let (date, id) = (String::from_utf8(date).ok()?, String::from_utf8_lossy(&id).into_owned());
    HeaderValue::from_str(&format!("expiry-date=\"{date}\", rule-id=\"{id}\"")).ok()
}

/// The same of an object that was read.
pub fn header_of(view: &BucketView, key: &[u8], head: &Head) -> Option<HeaderValue> {
    header(view, key, &head.attrs, head.modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(rules: &str) -> S3Result<Lifecycle> {
        read(format!("<{ROOT}>{rules}</{ROOT}>").as_bytes(), || "made".into())
    }

    fn code<T>(result: S3Result<T>) -> String {
        result.err().map(|e| e.code().as_str().to_owned()).unwrap_or_default()
    }

    fn rule_of(inner: &str) -> String {
        format!("<Rule><ID>r</ID><Filter><Prefix>a</Prefix></Filter><Status>Enabled</Status>{inner}</Rule>")
    }

    #[test]
    fn rules_say_what_goes_and_when() {
        for (inner, want) in [
            ("<Expiration><Days>1</Days></Expiration>", ""),
            ("<Expiration><Date>2017-09-27</Date></Expiration>", ""),
            ("<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>", ""),
            (
                "<Expiration><ExpiredObjectDeleteMarker>false</ExpiredObjectDeleteMarker></Expiration>",
                "InvalidArgument",
            ),
            (
                "<NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays></NoncurrentVersionExpiration>",
                "",
            ),
            (
                "<AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
                "",
            ),
            ("", "MalformedXML"),
            ("<Expiration/>", "MalformedXML"),
            ("<Expiration><Days>1</Days><Date>2017-09-27</Date></Expiration>", "MalformedXML"),
            ("<Expiration><Days>0</Days></Expiration>", "InvalidArgument"),
            ("<Expiration><Days>-3</Days></Expiration>", "InvalidArgument"),
            ("<Expiration><Days>x</Days></Expiration>", "InvalidArgument"),
            ("<Expiration><Days>99999999999</Days></Expiration>", "InvalidArgument"),
            ("<Expiration><Date>20200101</Date></Expiration>", "MalformedXML"),
            ("<Expiration><Date>2020-01-01T01:00:00Z</Date></Expiration>", "MalformedXML"),
            ("<NoncurrentVersionExpiration/>", "MalformedXML"),
            ("<Transition><Date>20220927</Date><StorageClass>X</StorageClass></Transition>", "MalformedXML"),
            (
                "<NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
                "NotImplemented",
            ),
        ] {
            assert_eq!(code(document(&rule_of(inner))), want, "{inner}");
        }
    }

    #[test]
    fn rules_say_where_objects_go() {
        let to = |when: &str, class: &str| {
            format!("<Transition>{when}<StorageClass>{class}</StorageClass></Transition>")
        };
        let later =
            |inner: &str| format!("<NoncurrentVersionTransition>{inner}</NoncurrentVersionTransition>");
        let (day, date) = ("<Days>1</Days>", "<Date>2030-01-01</Date>");
        let class = "<StorageClass>X</StorageClass>";
        for (inner, want) in [
            (to(day, "X"), ""),
            (to("<Days>0</Days>", "X"), ""),
            (to(date, "X"), ""),
            ([to(day, "X"), to("<Days>9</Days>", "Y")].concat(), ""),
            ([to(day, "X"), to("<Days>9</Days>", "X")].concat(), "MalformedXML"),
            ([to(day, "X"), to(date, "Y")].concat(), "InvalidArgument"),
            ([to(date, "X"), "<Expiration><Days>9</Days></Expiration>".into()].concat(), "InvalidArgument"),
            ([to(day, "X"), "<Expiration><Days>9</Days></Expiration>".into()].concat(), ""),
            (to("<Days>-1</Days>", "X"), "InvalidArgument"),
            (to("<Days>x</Days>", "X"), "InvalidArgument"),
            (to(&[day, date].concat(), "X"), "MalformedXML"),
            (to("", "X"), "MalformedXML"),
            (to(day, ""), "MalformedXML"),
            (format!("<Transition>{day}</Transition>"), "MalformedXML"),
            (to("<Date>2030-01-01T01:00:00Z</Date>", "X"), "MalformedXML"),
            (to("<Days>1</Days><Narrow>1</Narrow>", "X"), "MalformedXML"),
            (later(&["<NoncurrentDays>2</NoncurrentDays>", class].concat()), ""),
            (later(class), "MalformedXML"),
            (later("<NoncurrentDays>2</NoncurrentDays>"), "MalformedXML"),
            (
                later(&["<NoncurrentDays>2</NoncurrentDays><NewerNoncurrentVersions>3</NewerNoncurrentVersions>", class].concat()),
                "NotImplemented",
            ),
        ] {
            assert_eq!(code(document(&rule_of(&inner))), want, "{inner}");
        }
        let all = [
            to(day, "X"),
            to("<Days>9</Days>", "Y"),
            later(&["<NoncurrentDays>2</NoncurrentDays>", class].concat()),
        ];
        let all = document(&rule_of(&all.concat())).unwrap();
        let rule = all.rules.values().next().unwrap();
        let of = |days: &'static str, class: &'static str| Transition {
            days: days.into(),
            date: Bytes::new(),
            storage_class: class.into(),
        };
        assert_eq!(
            rule.transitions,
            BTreeMap::from([("X".into(), of("1", "X")), ("Y".into(), of("9", "Y"))])
        );
        assert_eq!(rule.noncurrent_transitions, BTreeMap::from([("X".into(), of("2", "X"))]));
    }

    /// To pass over what is not understood would have more go than was asked for.
    #[test]
    fn what_narrows_a_rule_is_understood_or_refused() {
        let with = |filter: &str| {
            let rest = "<Status>Enabled</Status><Expiration><Days>1</Days></Expiration>";
            code(document(&format!("<Rule><ID>r</ID>{filter}{rest}</Rule>")))
        };
        let tag = "<Tag><Key>a</Key><Value>b</Value></Tag>";
        let size = "<ObjectSizeGreaterThan>1</ObjectSizeGreaterThan>";
        let other = "<Tag><Key>c</Key><Value>d</Value></Tag>";
        assert_eq!(with(&format!("<Filter><And><Prefix>a</Prefix>{tag}{other}</And></Filter>")), "");
        for refused in [
            format!("<Filter><Prefix>logs/</Prefix><And><Prefix>data/</Prefix>{tag}</And></Filter>"),
            format!("<Filter><And><Scope>narrow</Scope>{tag}</And></Filter>"),
            format!("<Filter><Scope>narrow</Scope><And>{tag}</And></Filter>"),
            "<Prefix>logs/</Prefix><Filter/>".to_owned(),
            "<Filter><prefix>logs/</prefix></Filter>".to_owned(),
            "<Filter><Prefix>a</Prefix><Prefix>b</Prefix></Filter>".to_owned(),
            "<Filter><Prefix>a</Prefix></Filter><Filter/>".to_owned(),
            "<Prefix>a</Prefix><Prefix>b</Prefix>".to_owned(),
            format!("<Filter><And>{tag}</And><And>{tag}</And></Filter>"),
            "<Filter/><Scope>narrow</Scope>".to_owned(),
        ] {
            assert_eq!(with(&refused), "MalformedXML", "{refused}");
        }
        for refused in [
            format!("<Filter>{size}<And>{tag}</And></Filter>"),
            format!("<Filter><And>{tag}{size}</And></Filter>"),
            format!("<Filter>{size}</Filter>"),
        ] {
            assert_eq!(with(&refused), "NotImplemented", "{refused}");
        }
    }

    #[test]
    fn what_stands_beside_all_that_has_to_be_counts_too() {
        let tag = |key: &str| format!("<Tag><Key>{key}</Key><Value>v</Value></Tag>");
        for (outer, inner) in [("days1/", "days1"), ("days1", "days1/"), ("", "days1/"), ("days1/", "")] {
            let (one, other) = (tag("a"), tag("b"));
            let filter = format!("<Prefix>{outer}</Prefix>{one}<And><Prefix>{inner}</Prefix>{other}</And>");
            let rest = "<Status>Enabled</Status><Expiration><Days>1</Days></Expiration>";
            let all = document(&format!("<Rule><ID>r</ID><Filter>{filter}</Filter>{rest}</Rule>")).unwrap();
            let filter = &all.rules.get(&b"r"[..]).unwrap().filter;
            assert_eq!((&filter.prefix[..], filter.tags.tags.len()), (&b"days1/"[..], 2), "{outer} {inner}");
        }
    }

    #[test]
    fn rules_have_bounds_and_ids_of_their_own() {
        let one = |id: &str| {
            format!(
                "<Rule><ID>{id}</ID><Prefix/><Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>"
            )
        };
        let many = |n: usize| (0..n).map(|n| one(&n.to_string())).collect::<String>();
        assert_eq!(document(&many(MAX_RULES)).unwrap().rules.len(), MAX_RULES);
        assert_eq!(code(document(&many(MAX_RULES + 1))), "MalformedXML");
        assert_eq!(code(document(&[one("a"), one("a")].concat())), "InvalidArgument");
        assert_eq!(code(document(&one(&"x".repeat(MAX_ID + 1)))), "InvalidArgument");
        assert!(document(&one("")).unwrap().rules.contains_key(&b"made"[..]));
        assert_eq!(code(document("")), "MalformedXML");
        let long = format!("<Rule><ID>{}</ID></Rule>", "x".repeat(MAX_DOCUMENT));
        assert_eq!(code(document(&long)), "InvalidRequest");
        let filtered = |filter: &str, what: &str| {
            let rule = format!("<Rule><Filter>{filter}</Filter><Status>Enabled</Status>{what}</Rule>");
            code(document(&rule))
        };
        let (days, tag) =
            ("<Expiration><Days>1</Days></Expiration>", "<Tag><Key>k</Key><Value>v</Value></Tag>");
        let marker = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
        assert_eq!((filtered(tag, days), filtered(tag, marker)), (String::new(), "InvalidRequest".into()));
        assert_eq!(filtered("<ObjectSizeLessThan>5</ObjectSizeLessThan>", days), "NotImplemented");
        assert_eq!(filtered(&format!("<And>{tag}{tag}</And>"), days), "InvalidArgument");
    }

    #[test]
    fn an_object_goes_by_the_rule_that_comes_first() {
        let rules = [
            "<Rule><ID>late</ID><Prefix/><Status>Enabled</Status><Expiration><Days>9</Days></Expiration></Rule>",
            "<Rule><ID>tag</ID><Filter><And><Prefix>k</Prefix><Tag><Key>t</Key><Value>v</Value></Tag></And></Filter>",
            "<Status>Enabled</Status><Expiration><Days>1</Days></Expiration></Rule>",
            "<Rule><ID>off</ID><Prefix/><Status>Disabled</Status><Expiration><Days>1</Days></Expiration></Rule>",
        ];
        let lifecycle = document(&rules.concat()).unwrap();
        let modified = RealTime(types::Utime { sec: 1_700_000_000, nsec: 0 });
        let midnight = 1_700_006_400;
        let tagged = Tags { tags: [("t".into(), "v".into())].into() };
        let at = |key: &[u8], tags: &Tags| expires(&lifecycle, key, tags, modified).unwrap();
        assert_eq!(at(b"k", &Tags::default()), (midnight + 9 * DAY_S, "late".into()));
        assert_eq!(at(b"k", &tagged), (midnight + DAY_S, "tag".into()));
        assert_eq!(at(b"x", &tagged), (midnight + 9 * DAY_S, "late".into()));
    }
}
