//! How a bucket encrypts what comes without a word of it. Source: RGWPutBucketEncryption and its like in
//! src/rgw/rgw_op.cc and src/rgw/rgw_rest_s3.cc of 17.2.

use bytes::Bytes;
use codec::Encode;
use hyper::{Response, StatusCode};
use rgw::policy::Action;
use rgw::{BucketEncryption, EncryptionRule};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, s3_error};

use super::{Asked, empty};
use crate::errors;
use crate::state::{ENCRYPTION, Gateway};
use crate::xml::{Document, Element};

const ROOT: &str = "ServerSideEncryptionConfiguration";
const DEFAULT: &str = "ApplyServerSideEncryptionByDefault";

fn none_set() -> S3Error {
    errors::custom("ServerSideEncryptionConfigurationNotFoundError", 404)
}

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::GetEncryptionConfiguration;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, right).await?;
    let rule = view.encryption.as_ref().and_then(|e| e.rule.as_ref()).ok_or_else(none_set)?;
    let mut document = Document::new(ROOT);
    document.open("Rule");
    document.open(DEFAULT);
    document.text("SSEAlgorithm", &rule.algorithm);
    if !rule.key_id.is_empty() {
        document.text("KMSMasterKeyID", &rule.key_id);
    }
    document.close(DEFAULT);
    document.text("BucketKeyEnabled", if rule.bucket_key { "true" } else { "false" });
    document.close("Rule");
    Ok(document.done(ROOT))
}

fn read(document: &[u8]) -> S3Result<EncryptionRule> {
    let malformed = || S3Error::from(S3ErrorCode::MalformedXML);
    let root = Element::read(document, ROOT)?;
    let mut rules = root.all("Rule");
    let (Some(rule), None) = (rules.next(), rules.next()) else { return Err(malformed()) };
    let default = rule.first(DEFAULT).ok_or_else(malformed)?;
    let text = |name: &'static str| default.text_of(name).map(str::trim).unwrap_or_default();
    let bucket_key = match rule.text_of("BucketKeyEnabled").map(str::trim) {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(malformed()),
    };
    let (algorithm, key_id) = (text("SSEAlgorithm"), text("KMSMasterKeyID"));
    match (algorithm, key_id) {
        ("AES256", "") => {}
        ("AES256", _) => return Err(s3_error!(InvalidArgument, "keys have names where a service has them")),
        // There is no key that is meant where none is named.
        ("aws:kms", "") => return Err(s3_error!(InvalidArgument, "the key of the service is not named")),
        ("aws:kms", _) => {}
        _ => return Err(malformed()),
    }
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Ok(EncryptionRule { key_id: bytes(key_id), algorithm: bytes(algorithm), bucket_key })
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::PutEncryptionConfiguration;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, right).await?;
    let rule = Some(read(&asked.document)?);
    let value = BucketEncryption { rule }.to_bytes();
    gateway.set_bucket_attr(&asked.caller, &view, ENCRYPTION, Some(value)).await?;
    Ok(empty(StatusCode::OK))
}

pub async fn delete(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    let right = Action::PutEncryptionConfiguration;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, right).await?;
    gateway.set_bucket_attr(&asked.caller, &view, ENCRYPTION, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_what_can_be_done() {
        let read = |inner: &str, more: &str| {
            let text = format!("<{ROOT}><Rule><{DEFAULT}>{inner}</{DEFAULT}>{more}</Rule></{ROOT}>");
            read(text.as_bytes()).map_err(|e| e.code().as_str().to_owned())
        };
        let algorithm = |name: &str| format!("<SSEAlgorithm>{name}</SSEAlgorithm>");
        let key = "<KMSMasterKeyID>k</KMSMasterKeyID>";
        let own = read(&algorithm("AES256"), "").unwrap();
        assert_eq!((&own.algorithm[..], &own.key_id[..], own.bucket_key), (&b"AES256"[..], &b""[..], false));
        let service = format!("{}{key}", algorithm("aws:kms"));
        let service = read(&service, "<BucketKeyEnabled>true</BucketKeyEnabled>").unwrap();
        assert_eq!((&service.key_id[..], service.bucket_key), (&b"k"[..], true));
        for (inner, more, want) in [
            ("", "", "MalformedXML"),
            (&algorithm("aes:kms")[..], "", "MalformedXML"),
            (&algorithm("aws:kms"), "", "InvalidArgument"),
            (&format!("{}{key}", algorithm("AES256")), "", "InvalidArgument"),
            (&algorithm("AES256"), "<BucketKeyEnabled>x</BucketKeyEnabled>", "MalformedXML"),
            (&algorithm("AES256"), "</Rule><Rule>", "MalformedXML"),
        ] {
            assert_eq!(read(inner, more), Err(want.to_owned()), "{inner} {more}");
        }
    }
}
