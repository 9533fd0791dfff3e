//! A request as signatures see it. Source: "Create a canonical request" of AWS.

use std::borrow::Cow;

use hyper::http::request::Parts;
use s3s::{S3Result, s3_error};

/// Undoes `%41`. Nothing for what is no escape, or no UTF-8 in the end.
pub fn percent_decode(text: &str) -> Option<String> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<2>()?;
        let digit = |b: u8| char::from(b).to_digit(16);
        let [high, low] = digits.map(digit);
        out.push(u8::try_from(high? * 16 + low?).ok()?);
        rest = behind;
    }
    String::from_utf8(out).ok()
}

/// What is neither a letter nor a digit nor one of `-_.~` as `%41`; slashes of a path may be kept.
pub fn percent_encode(text: &str, keep_slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        let plain = b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
        if plain || (keep_slash && b == b'/') {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("%{b:02X}"));
        }
    }
    out
}

/// Names and values of a query.
pub fn pairs(query: &str) -> S3Result<Vec<(String, String)>> {
    let text = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode(&spaced).ok_or_else(|| s3_error!(InvalidURI, "the query cannot be read"))
    };
    let fields = query.split('&').filter(|field| !field.is_empty());
    fields
        .map(|field| {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            Ok((text(name)?, text(value)?))
        })
        .collect()
}

fn query(parts: &Parts, is_signed: bool) -> S3Result<String> {
    let all = pairs(parts.uri.query().unwrap_or_default())?;
    let covered = all.into_iter().filter(|(name, _)| !(is_signed && name == "X-Amz-Signature"));
    let mut fields: Vec<(String, String)> =
        covered.map(|(name, value)| (percent_encode(&name, false), percent_encode(&value, false))).collect();
    fields.sort_unstable();
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(fields.join("&"))
}

/// All values of a header, with spaces made one.
fn value(parts: &Parts, name: &str) -> S3Result<String> {
    let values = parts.headers.get_all(name).iter().map(|value| {
        let text = std::str::from_utf8(value.as_bytes()).map(Cow::Borrowed);
        // Names and metadata may come in Latin 1.
        let text = text
            .unwrap_or_else(|_| value.as_bytes().iter().map(|b| char::from(*b)).collect::<String>().into());
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    let values: Vec<String> = values.collect();
    if values.is_empty() {
        return Err(s3_error!(SignatureDoesNotMatch, "a header that was signed is missing"));
    }
    Ok(values.join(","))
}

pub(super) fn request(parts: &Parts, names: &[String], payload: &str, is_query: bool) -> S3Result<String> {
    let path =
        percent_decode(parts.uri.path()).ok_or_else(|| s3_error!(InvalidURI, "the path cannot be read"))?;
    let mut headers = String::new();
    for name in names {
        headers.push_str(&format!("{name}:{}\n", value(parts, name)?));
    }
    let (method, path, query) = (&parts.method, percent_encode(&path, true), query(parts, is_query)?);
    Ok(format!("{method}\n{path}\n{query}\n{headers}\n{}\n{payload}", names.join(";")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_or_refused() {
        for (text, want) in [
            ("a%20b%2f", Some("a b/")),
            ("gr%C3%B6%c3%9fe", Some("größe")),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%+1", None),
            ("%ff", None),
        ] {
            assert_eq!(percent_decode(text).as_deref(), want, "{text}");
        }
        assert_eq!(percent_encode("a b/ö~", true), "a%20b/%C3%B6~");
        assert_eq!(percent_encode("a/", false), "a%2F");
    }

    #[test]
    fn queries_are_sorted_and_need_no_values() {
        let parts =
            hyper::Request::get("/?b=2&acl&a=x+y%2B&X-Amz-Signature=s").body(()).unwrap().into_parts().0;
        assert_eq!(query(&parts, true).unwrap(), "a=x%20y%2B&acl=&b=2");
        assert_eq!(query(&parts, false).unwrap(), "X-Amz-Signature=s&a=x%20y%2B&acl=&b=2");
        assert!(pairs("a=%").is_err());
    }
}
