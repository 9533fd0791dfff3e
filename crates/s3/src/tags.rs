//! Tags of objects and buckets. Source: src/rgw/rgw_tag.cc, src/rgw/rgw_tag_s3.cc.

use bytes::Bytes;
use codec::{Decode, Encode};
use hyper::{HeaderMap, Response};
use rgw::Tags;
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};

use crate::errors;
use crate::sign::percent_decode;
use crate::xml::{Document, Element};

/// Source: max_obj_tags, max_tag_key_size and max_tag_val_size in src/rgw/rgw_tag.h.
pub const MAX_OF_OBJECT: usize = 10;
pub const MAX_OF_BUCKET: usize = 50;
const MAX_KEY: usize = 128;
const MAX_VALUE: usize = 256;

fn invalid() -> S3Error {
    errors::custom("InvalidTag", 400)
}

/// Adds a tag, if it is one and there is room.
pub fn add(tags: &mut Tags, max: usize, key: &str, value: &str) -> S3Result<()> {
    if tags.tags.len() >= max || key.is_empty() || key.len() > MAX_KEY || value.len() > MAX_VALUE {
        return Err(invalid());
    }
    match tags.tags.insert(key.to_owned().into(), value.to_owned().into()) {
        None => Ok(()),
        Some(_) => Err(S3ErrorCode::InvalidArgument.into()),
    }
}

/// Tags of the header `x-amz-tagging`: `a=b&c=d`.
pub fn of_header(headers: &HeaderMap) -> S3Result<Option<Tags>> {
    let Some(text) = headers.get("x-amz-tagging") else { return Ok(None) };
    let wrong = || s3_error!(InvalidArgument, "the tags cannot be read");
    let (text, mut tags) = (text.to_str().map_err(|_| wrong())?, Tags::default());
    for field in text.split('&') {
        let (key, value) = field.split_once('=').unwrap_or((field, ""));
        let decode = |text: &str| percent_decode(&text.replace('+', " ")).ok_or_else(wrong);
        // A PUT says of wrong tags that its arguments are.
        add(&mut tags, MAX_OF_OBJECT, &decode(key)?, &decode(value)?).map_err(|_| wrong())?;
    }
    Ok(Some(tags))
}

/// Tags of a document.
pub fn of_document(document: &[u8], max: usize) -> S3Result<Tags> {
    let malformed = || S3Error::new(S3ErrorCode::MalformedXML);
    let root = Element::read(document, "Tagging")?;
    let (set, mut tags) = (root.first("TagSet").ok_or_else(malformed)?, Tags::default());
    for tag in set.all("Tag") {
        let (Some(key), Some(value)) = (tag.text_of("Key"), tag.text_of("Value")) else {
            return Err(malformed());
        };
        if tags.tags.contains_key(key.as_bytes()) {
            return Err(malformed());
        }
        add(&mut tags, max, key, value)?;
    }
    Ok(tags)
}

pub fn encoded(tags: &Tags) -> Bytes {
    tags.to_bytes()
}

/// Tags as an attribute keeps them.
pub fn stored(raw: Option<&Bytes>) -> S3Result<Tags> {
    let tags = raw.map(|raw| Tags::from_bytes(raw.clone())).transpose();
    Ok(tags.map_err(|e| errors::of(e.into()))?.unwrap_or_default())
}

pub fn shown(tags: &Tags) -> Response<Body> {
    let mut document = Document::new("Tagging");
    document.open("TagSet");
    for (key, value) in &tags.tags {
        document.open("Tag");
        document.text("Key", key);
        document.text("Value", value);
        document.close("Tag");
    }
    document.close("TagSet");
    document.done("Tagging")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: S3Result<T>) -> String {
        result.err().map(|e| e.code().as_str().to_owned()).unwrap_or_default()
    }

    fn header(text: &str) -> S3Result<Option<Tags>> {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-tagging", text.parse().unwrap());
        of_header(&headers)
    }

    fn document(tags: &[(&str, &str)]) -> String {
        let tags: String =
            tags.iter().map(|(k, v)| format!("<Tag><Key>{k}</Key><Value>{v}</Value></Tag>")).collect();
        format!("<Tagging><TagSet>{tags}</TagSet></Tagging>")
    }

    #[test]
    fn tags_come_in_headers_and_documents() {
        let want = |pairs: &[(&'static str, &'static str)]| Tags {
            tags: pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        };
        assert_eq!(header("a=b&c+d=%C3%B6&e").unwrap(), Some(want(&[("a", "b"), ("c d", "ö"), ("e", "")])));
        assert_eq!(of_header(&HeaderMap::new()).unwrap(), None);
        let read = of_document(document(&[("a", "b"), ("c", "")]).as_bytes(), 10).unwrap();
        assert_eq!(read, want(&[("a", "b"), ("c", "")]));
        assert_eq!(stored(Some(&encoded(&read))).unwrap(), read);
        assert!(stored(Some(&Bytes::from("x"))).is_err());
    }

    #[test]
    fn tags_have_bounds() {
        let many: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        let pairs: Vec<(&str, &str)> = many.iter().map(|k| (k.as_str(), "v")).collect();
        assert_eq!(code(of_document(document(&pairs[..10]).as_bytes(), MAX_OF_OBJECT)), "");
        assert_eq!(code(of_document(document(&pairs).as_bytes(), MAX_OF_OBJECT)), "InvalidTag");
        assert_eq!(code(of_document(document(&pairs).as_bytes(), MAX_OF_BUCKET)), "");
        let (key, value) = ("k".repeat(129), "v".repeat(257));
        assert_eq!(code(of_document(document(&[(&key, "v")]).as_bytes(), 10)), "InvalidTag");
        assert_eq!(code(of_document(document(&[("k", &value)]).as_bytes(), 10)), "InvalidTag");
        assert_eq!(code(of_document(document(&[("", "v")]).as_bytes(), 10)), "InvalidTag");
        assert_eq!(code(of_document(document(&[("k", "v"), ("k", "w")]).as_bytes(), 10)), "MalformedXML");
        assert_eq!(code(of_document(b"<Tagging/>", 10)), "MalformedXML");
        assert_eq!(code(header(&format!("{key}=v"))), "InvalidArgument");
        assert_eq!(code(header("a=1&a=2")), "InvalidArgument");
    }
}
