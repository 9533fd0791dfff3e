//! Encryption of objects: what requests say of it, and the keys that they bring.
//!
//! 1. Keys that clients bring are taken off a request before S3's library and the log see it, and are kept
//!    nowhere: of each the object has an MD5.
//! 2. Nothing is stored as it came where a request asks for encryption: what is not served is refused.
//!
//! Source: rgw_s3_prepare_encrypt and rgw_s3_prepare_decrypt in src/rgw/rgw_crypt.cc.

mod ring;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use gateway::{Opened, Part, Seal};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use md5::{Digest, Md5};
use rgw::crypt::{KEY, Key};
use rgw::{BucketEncryption, Cipher, Encryption};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};
use types::Entropy;
use zeroize::Zeroizing;

pub use ring::{KeyStore, Ring, StoreFailed};

use crate::errors;

const METHOD: &str = "x-amz-server-side-encryption";
const KEY_ID: &str = "x-amz-server-side-encryption-aws-kms-key-id";
/// Not served, as a header neither (`attrs::refuse`).
const CONTEXT: &str = "x-amz-server-side-encryption-context";
/// In front of what a request says of its own key, and of that of a copy's source.
const OWN: &str = "x-amz-server-side-encryption-customer-";
const SOURCE: &str = "x-amz-copy-source-server-side-encryption-customer-";
const ALGORITHM: &str = "AES256";
const SERVICE: &str = "aws:kms";

/// Clients leave the padding out, or not.
static BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a gateway is told of encryption.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Keys may come over connections that anybody can read. Source: rgw_crypt_require_ssl=false.
    pub without_tls: bool,
    /// What a proxy says of its client's connection counts. Source: rgw_trust_forwarded_https.
    pub trusts_proxy: bool,
    /// Keys by their names, of which those of objects are derived; `None` where there is no such service.
    /// Source: the backend `testing` of rgw_crypt_s3_kms_backend.
    pub service: Option<BTreeMap<String, Key>>,
    /// What is encrypted though nobody asks for it has keys that are derived of this one. Source:
    /// rgw_crypt_default_encryption_key.
    pub default_key: Option<Key>,
    /// Keys of buckets, for what clients want to be encrypted and bring no key for.
    pub stored: Option<Arc<Ring>>,
}

/// Where an object comes, as far as its encryption goes.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub bucket_id: &'a Bytes,
    /// What requests say that say nothing.
    pub default: Option<&'a BucketEncryption>,
}

impl Settings {
    /// A key as options have it.
    pub fn key(text: &str) -> Option<Key> {
        Key::new(&Zeroizing::new(BASE64.decode(text.trim()).ok()?))
    }

    /// Names and keys as an option has them: `name=key` with commas, semicolons or spaces between them. Fails
    /// with the number of the first pair that is none, from one on: a key without a name looks like a name.
    /// Source: get_str_map in src/rgw/rgw_kms.cc.
    pub fn keys(text: &str) -> Result<BTreeMap<String, Key>, usize> {
        let pairs = text.split([';', ',', ' ', '\t']).filter(|pair| !pair.is_empty());
        let named = pairs.zip(1usize..).map(|(pair, number)| {
            let (name, key) = pair.split_once('=').ok_or(number)?;
            Ok((name.to_owned(), Self::key(key).ok_or(number)?))
        });
        named.collect()
    }

    fn service_key(&self, id: &str, selector: &[u8]) -> S3Result<Key> {
        let Some(keys) = &self.service else {
            return Err(errors::not_served("no service of keys is set (rgw_crypt_s3_kms_backend)"));
        };
        let unknown = || {
            let why = format!("Failed to retrieve the actual key, kms-keyid: {id}");
            S3Error::with_message(S3ErrorCode::InvalidAccessKeyId, why)
        };
        derived(keys.get(id).ok_or_else(unknown)?, selector)
    }

    fn own_key(&self, selector: &[u8]) -> S3Result<Key> {
        let Some(key) = &self.default_key else {
            return Err(errors::not_served(
                "the gateways' own key is not set (rgw_crypt_default_encryption_key)",
            ));
        };
        derived(key, selector)
    }

    fn ring(&self) -> S3Result<&Ring> {
        self.stored.as_deref().ok_or_else(|| errors::not_served("there is no store of keys"))
    }
}

fn derived(key: &Key, selector: &[u8]) -> S3Result<Key> {
    let selector: &[u8; KEY] = selector.try_into().map_err(|_| S3ErrorCode::InternalError)?;
    Ok(key.derived(selector))
}

fn invalid(why: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, why)
}

const NO_ALGORITHM: &str = "Requests specifying Server Side Encryption with Customer provided keys must provide a valid encryption algorithm.";
const NO_KEY: &str = "Requests specifying Server Side Encryption with Customer provided keys must provide an appropriate secret key.";
const NO_MD5: &str = "Requests specifying Server Side Encryption with Customer provided keys must provide an appropriate secret key md5.";
const OTHER_MD5: &str = "The calculated MD5 hash of the key did not match the hash that was provided.";

/// A key that a client brings, as its headers have it.
#[derive(Clone, Default)]
struct Brought {
    algorithm: Option<String>,
    key: Option<Zeroizing<String>>,
    key_md5: Option<String>,
}

/// A key that was brought whole.
struct Customer {
    key: Key,
    md5: Bytes,
    headers: HeaderMap,
}

impl Brought {
    fn new(field: impl Fn(&str) -> Option<Zeroizing<String>>) -> Self {
        let plain = |name| field(name).map(|text| String::clone(&text));
        Self { algorithm: plain("algorithm"), key: field("key"), key_md5: plain("key-md5") }
    }

    fn is_some(&self) -> bool {
        self.algorithm.is_some() || self.key.is_some() || self.key_md5.is_some()
    }

    /// `None` where none is brought.
    fn read(&self, settings: &Settings, is_secure: bool) -> S3Result<Option<Customer>> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let Some(algorithm) = given(&self.algorithm) else {
            let half = self.key.as_ref().is_some_and(|key| !key.is_empty()) || given(&self.key_md5).is_some();
            return if half { Err(invalid(NO_ALGORITHM)) } else { Ok(None) };
        };
        if algorithm != ALGORITHM {
            let mut error = errors::custom("InvalidEncryptionAlgorithmError", 400);
            error.set_message("The requested encryption algorithm is not valid, must be AES256.");
            return Err(error);
        }
        check_secure(settings, is_secure)?;
        let key = BASE64.decode(self.key.as_ref().map_or("", |key| key.as_str())).map(Zeroizing::new);
        let key = key.map_err(|_| invalid(NO_KEY))?;
        let md5_text = self.key_md5.clone().unwrap_or_default();
        let sum = Md5::digest(&*key);
        let key = Key::new(&key).ok_or_else(|| invalid(NO_KEY))?;
        let md5 = BASE64.decode(&md5_text).ok().filter(|md5| md5.len() == sum.len());
        let md5 = md5.ok_or_else(|| invalid(NO_MD5))?;
        if md5 != sum[..] {
            return Err(invalid(OTHER_MD5));
        }
        let headers = told(
            [("algorithm", ALGORITHM), ("key-md5", md5_text.as_str())].map(|(n, v)| ([OWN, n].concat(), v)),
        )?;
        Ok(Some(Customer { key, md5: md5.into(), headers }))
    }
}

fn told<const N: usize>(said: [(String, &str); N]) -> S3Result<HeaderMap> {
    let wrong = |_| invalid("a header of the encryption cannot be answered with");
    let header = |(name, value): (String, &str)| -> S3Result<_> {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| S3ErrorCode::InternalError)?;
        Ok((name, HeaderValue::from_str(value).map_err(wrong)?))
    };
    said.into_iter().map(header).collect()
}

fn check_secure(settings: &Settings, is_secure: bool) -> S3Result<()> {
    match is_secure || settings.without_tls {
        true => Ok(()),
        false => Err(S3Error::with_message(
            S3ErrorCode::InvalidRequest,
            "keys and what is encrypted go over TLS alone (rgw_crypt_require_ssl)",
        )),
    }
}

/// What a request says of encryption.
#[derive(Clone, Default)]
pub struct Asked {
    own: Brought,
    /// Of what a request copies.
    source: Brought,
    method: Option<String>,
    key_id: Option<String>,
    is_secure: bool,
}

/// How an object is to be read or written, and what its client is told of that.
pub type Told<T> = (T, HeaderMap);

impl Asked {
    fn new(field: impl Fn(&str) -> Option<Zeroizing<String>>, is_secure: bool) -> Self {
        let plain = |name| field(name).map(|text| String::clone(&text)).filter(|text| !text.is_empty());
        Self {
            own: Brought::new(|name| field(&[OWN, name].concat())),
            source: Brought::new(|name| field(&[SOURCE, name].concat())),
            method: plain(METHOD),
            key_id: plain(KEY_ID),
            is_secure,
        }
    }

    /// Takes the keys off a request's headers.
    pub fn take(headers: &mut HeaderMap, settings: &Settings) -> Self {
        let field = |name: &str| {
            let value = headers.get(name)?;
            // What is no text is no key either.
            Some(Zeroizing::new(value.to_str().unwrap_or("?").trim().to_owned()))
        };
        let asked = Self::new(field, is_secure(headers, settings));
        for name in [OWN, SOURCE] {
            headers.remove([name, "key"].concat());
        }
        asked
    }

    /// Nothing but how a request came that brings no keys.
    pub fn of_visit(headers: &HeaderMap, settings: &Settings) -> Self {
        Self { is_secure: is_secure(headers, settings), ..Self::default() }
    }

    /// What the fields of a form say, which came with these headers.
    pub fn of_fields(
        fields: &BTreeMap<String, String>,
        headers: &HeaderMap,
        settings: &Settings,
    ) -> S3Result<Self> {
        if fields.contains_key(CONTEXT) {
            return Err(errors::not_served("a field asks for what is not served"));
        }
        let field = |name: &str| fields.get(name).map(|value| Zeroizing::new(value.trim().to_owned()));
        Ok(Self::new(field, is_secure(headers, settings)))
    }

    fn is_silent(&self) -> bool {
        !self.own.is_some() && self.method.is_none() && self.key_id.is_none()
    }

    /// The same with what the bucket says where the request says nothing.
    fn in_place(&self, place: Place<'_>) -> Cow<'_, Self> {
        let Some(rule) = place.default.and_then(|d| d.rule.as_ref()).filter(|_| self.is_silent()) else {
            return Cow::Borrowed(self);
        };
        let text = |bytes: &Bytes| Some(String::from_utf8_lossy(bytes).into_owned());
        let key_id = text(&rule.key_id).filter(|id| !id.is_empty());
        Cow::Owned(Self { method: text(&rule.algorithm), key_id, ..self.clone() })
    }

    /// What is written is encrypted with.
    pub async fn seal(&self, settings: &Settings, place: Place<'_>) -> S3Result<Told<Option<Seal>>> {
        self.in_place(place).seal_as_said(settings, place).await
    }

    async fn seal_as_said(&self, settings: &Settings, place: Place<'_>) -> S3Result<Told<Option<Seal>>> {
        if let Some(Customer { key, md5, headers }) = self.own.read(settings, self.is_secure)? {
            // Policies would see the one, and the object have the other.
            if self.method.is_some() || self.key_id.is_some() {
                return Err(invalid(
                    "an object is encrypted with its client's key or with another one, not both",
                ));
            }
            return Ok((sealed(&key, Encryption::Customer { key_md5: md5 }), headers));
        }
        if self.method.is_some() {
            check_secure(settings, self.is_secure)?;
        }
        match (self.method.as_deref(), &self.key_id) {
            (Some(SERVICE), Some(id)) => {
                let selector = selector();
                let key = settings.service_key(id, &selector)?;
                let (key_id, context) = (id.clone().into(), Bytes::new());
                let headers = told([(METHOD.to_owned(), SERVICE), (KEY_ID.to_owned(), id.as_str())])?;
                Ok((sealed(&key, Encryption::Service { key_id, selector, context }), headers))
            }
            (Some(SERVICE), None) => Err(invalid(
                "Server Side Encryption with KMS managed key requires HTTP header x-amz-server-side-encryption-aws-kms-key-id",
            )),
            (None | Some(ALGORITHM), Some(_)) => Err(invalid(
                "Server Side Encryption with KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms",
            )),
            (Some(ALGORITHM), None) => {
                let (key_id, bucket_key) = settings.ring()?.of_bucket(place.bucket_id).await?;
                let selector = selector();
                let key = derived(&bucket_key, &selector)?;
                let headers = told([(METHOD.to_owned(), ALGORITHM)])?;
                Ok((sealed(&key, Encryption::Stored { key_id, selector }), headers))
            }
            (None, None) if settings.default_key.is_none() => Ok((None, HeaderMap::new())),
            (None, None) => {
                let selector = selector();
                let key = settings.own_key(&selector)?;
                Ok((sealed(&key, Encryption::Automatic { selector }), HeaderMap::new()))
            }
            (Some(_), _) => Err(invalid(
                "Server Side Encryption with KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms or AES256",
            )),
        }
    }

    /// Whether what is written of something encrypted so stays so: neither the request nor the bucket says
    /// anything else, and the key is one that the gateway finds again.
    pub fn keeps(&self, source: Option<&Encryption>, place: Place<'_>) -> bool {
        let is_silent = self.is_silent() && place.default.is_none_or(|d| d.rule.is_none());
        is_silent && matches!(source, Some(Encryption::Service { .. } | Encryption::Stored { .. }))
    }

    /// What a copy is encrypted with. Its source's key of the service is kept, or a key of ours: otherwise a
    /// copy of an object over itself would store in plain bytes what was encrypted.
    pub async fn seal_copy(
        &self,
        settings: &Settings,
        source: Option<&Encryption>,
        place: Place<'_>,
    ) -> S3Result<Told<Option<Seal>>> {
        let (method, key_id) = match source.filter(|_| self.keeps(source, place)) {
            Some(Encryption::Service { key_id, .. }) => {
                (SERVICE, Some(String::from_utf8_lossy(key_id).into_owned()))
            }
            Some(Encryption::Stored { .. }) => (ALGORITHM, None),
            _ => return self.seal(settings, place).await,
        };
        Self { method: Some(method.to_owned()), key_id, ..self.clone() }.seal_as_said(settings, place).await
    }

    /// The key of what was encrypted so, of which a client brings `own`.
    async fn unlock(
        &self,
        own: &Brought,
        settings: &Settings,
        encryption: &Encryption,
    ) -> S3Result<Told<Key>> {
        match encryption {
            Encryption::Customer { key_md5 } => {
                check_secure(settings, self.is_secure)?;
                let Some(customer) = own.read(settings, self.is_secure)? else {
                    return Err(invalid(NO_ALGORITHM));
                };
                match customer.md5 == *key_md5 {
                    true => Ok((customer.key, customer.headers)),
                    false => Err(invalid(OTHER_MD5)),
                }
            }
            Encryption::Service { key_id, selector, .. } => {
                check_secure(settings, self.is_secure)?;
                let id = String::from_utf8_lossy(key_id);
                let key = settings.service_key(&id, selector)?;
                Ok((key, told([(METHOD.to_owned(), SERVICE), (KEY_ID.to_owned(), id.as_ref())])?))
            }
            Encryption::Automatic { selector } => Ok((settings.own_key(selector)?, HeaderMap::new())),
            Encryption::Stored { key_id, selector } => {
                check_secure(settings, self.is_secure)?;
                let key = derived(&settings.ring()?.named(key_id).await?, selector)?;
                Ok((key, told([(METHOD.to_owned(), ALGORITHM)])?))
            }
            Encryption::Unknown => {
                Err(errors::not_served("the object is encrypted in a way that is not served"))
            }
        }
    }

    /// An object with its key, for who reads it or its head.
    pub async fn open(&self, settings: &Settings, opened: Opened) -> S3Result<Told<Opened>> {
        if self.method.is_some() {
            let why = "what is read is encrypted as it was written";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        self.open_with(&self.own, settings, opened).await
    }

    /// An object with its key, for who copies it. As in radosgw the request's own key is the source's, too,
    /// where it has no other.
    pub async fn open_source(&self, settings: &Settings, opened: Opened) -> S3Result<Opened> {
        let brought = if self.source.is_some() { &self.source } else { &self.own };
        Ok(self.open_with(brought, settings, opened).await?.0)
    }

    async fn open_with(&self, own: &Brought, settings: &Settings, opened: Opened) -> S3Result<Told<Opened>> {
        let Some(encryption) = opened.head.encryption() else { return Ok((opened, HeaderMap::new())) };
        let (key, headers) = self.unlock(own, settings, &encryption).await?;
        Ok((opened.unlocked(Arc::new(Cipher::new(&key))), headers))
    }

    /// A client's key is for uploads that were begun with it: others would have it read and not used.
    async fn unlock_part(&self, settings: &Settings, encryption: &Encryption) -> S3Result<Told<Key>> {
        if self.own.is_some() && !matches!(encryption, Encryption::Customer { .. }) {
            let why = "the upload was begun with another encryption";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        self.unlock(&self.own, settings, encryption).await
    }

    /// A part with the key of its upload. Of an upload that is not encrypted no part is: radosgw takes the
    /// key, and stores the part as it comes.
    pub async fn open_part(&self, settings: &Settings, part: Part) -> S3Result<Told<Part>> {
        let Some(encryption) = part.encryption().cloned() else {
            if self.own.is_some() || self.method.is_some() {
                let why = "the upload was begun without encryption";
                return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
            }
            return Ok((part, HeaderMap::new()));
        };
        let (key, headers) = self.unlock_part(settings, &encryption).await?;
        Ok((part.unlocked(Arc::new(Cipher::new(&key))), headers))
    }
}

impl Asked {
    /// What the answer of a completion says of an upload's encryption, for who has its key: what a client
    /// brought a key for is completed by who brings it, too.
    pub async fn complete(&self, settings: &Settings, encryption: &Encryption) -> S3Result<HeaderMap> {
        Ok(self.unlock_part(settings, encryption).await?.1)
    }
}

/// What a request that the library brought says.
pub fn asked<T>(request: &S3Request<T>) -> Asked {
    request.extensions.get::<Arc<Asked>>().map(|asked| Asked::clone(asked)).unwrap_or_default()
}

fn sealed(key: &Key, encryption: Encryption) -> Option<Seal> {
    Some(Seal { cipher: Arc::new(Cipher::new(key)), encryption })
}

fn selector() -> Bytes {
    let mut selector = [0; KEY];
    runtime::OsEntropy.fill(&mut selector);
    Bytes::copy_from_slice(&selector)
}

/// Whether what a request brings was read by nobody on its way. Source: rgw_transport_is_secure in
/// src/rgw/rgw_common.cc.
pub fn is_secure(headers: &HeaderMap, settings: &Settings) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    settings.trusts_proxy
        && (text("forwarded").contains("proto=https") || text("x-forwarded-proto") == "https")
}
