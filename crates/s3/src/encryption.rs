//! Encryption of objects: what requests say of it, and the keys that they bring.
//!
//! 1. Keys that clients bring are taken off a request before S3's library and the log see it, and are kept
//!    nowhere: of each the object has an MD5.
//! 2. Nothing is stored as it came where a request asks for encryption: what is not served is refused.
//!
//! Source: rgw_s3_prepare_encrypt and rgw_s3_prepare_decrypt in src/rgw/rgw_crypt.cc.

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
use rgw::{Cipher, Encryption};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};
use types::Entropy;
use zeroize::Zeroizing;

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

    /// What is written is encrypted with.
    pub fn seal(&self, settings: &Settings) -> S3Result<Told<Option<Seal>>> {
        let sealed = |key: &Key, encryption| Some(Seal { cipher: Arc::new(Cipher::new(key)), encryption });
        if let Some(Customer { key, md5, headers }) = self.own.read(settings, self.is_secure)? {
            // Policies would see the one, and the object have the other.
            if self.method.is_some() || self.key_id.is_some() {
                return Err(invalid(
                    "an object is encrypted with its client's key or with another one, not both",
                ));
            }
            return Ok((sealed(&key, Encryption::Customer { key_md5: md5 }), headers));
        }
        match self.method.as_deref() {
            None if self.key_id.is_some() => {
                let why = "Server Side Encryption with KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms";
                return Err(invalid(why));
            }
            None => {}
            Some(_) => check_secure(settings, self.is_secure)?,
        }
        match (self.method.as_deref(), &self.key_id) {
            (Some(SERVICE), Some(id)) => {
                let selector = selector();
                let key = settings.service_key(id, &selector)?;
                let key_id = id.clone().into();
                let headers = told([(METHOD.to_owned(), SERVICE), (KEY_ID.to_owned(), id.as_str())])?;
                let context = Bytes::new();
                Ok((sealed(&key, Encryption::Service { key_id, selector, context }), headers))
            }
            (Some(SERVICE), None) => {
                let why = "Server Side Encryption with KMS managed key requires HTTP header x-amz-server-side-encryption-aws-kms-key-id";
                Err(S3Error::with_message(S3ErrorCode::InvalidArgument, why))
            }
            (None, _) if settings.default_key.is_none() => Ok((None, HeaderMap::new())),
            (None | Some(ALGORITHM), _) => {
                let selector = selector();
                let key = settings.own_key(&selector)?;
                Ok((sealed(&key, Encryption::Automatic { selector }), HeaderMap::new()))
            }
            (Some(_), _) => Err(invalid(
                "Server Side Encryption with KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms or AES256",
            )),
        }
    }

    /// Whether what is written of something encrypted so stays so: the request says nothing else, and the key
    /// is one that the gateway finds again.
    pub fn keeps(&self, source: Option<&Encryption>) -> bool {
        let is_silent = !self.own.is_some() && self.method.is_none() && self.key_id.is_none();
        is_silent && matches!(source, Some(Encryption::Service { .. }))
    }

    /// What a copy is encrypted with. Its source's key of the service is kept: otherwise a copy of an object
    /// over itself would store in plain bytes what was encrypted.
    pub fn seal_copy(
        &self,
        settings: &Settings,
        source: Option<&Encryption>,
    ) -> S3Result<Told<Option<Seal>>> {
        match source {
            Some(Encryption::Service { key_id, .. }) if self.keeps(source) => {
                let key_id = Some(String::from_utf8_lossy(key_id).into_owned());
                Self { method: Some(SERVICE.to_owned()), key_id, ..self.clone() }.seal(settings)
            }
            _ => self.seal(settings),
        }
    }

    /// The key of what was encrypted so, of which a client brings `own`.
    fn unlock(&self, own: &Brought, settings: &Settings, encryption: &Encryption) -> S3Result<Told<Key>> {
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
            Encryption::Unknown => {
                Err(errors::not_served("the object is encrypted in a way that is not served"))
            }
        }
    }

    /// An object with its key, for who reads it or its head.
    pub fn open(&self, settings: &Settings, opened: Opened) -> S3Result<Told<Opened>> {
        if self.method.is_some() {
            let why = "what is read is encrypted as it was written";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        self.open_with(&self.own, settings, opened)
    }

    /// An object with its key, for who copies it. As in radosgw the request's own key is the source's, too,
    /// where it has no other.
    pub fn open_source(&self, settings: &Settings, opened: Opened) -> S3Result<Opened> {
        let brought = if self.source.is_some() { &self.source } else { &self.own };
        Ok(self.open_with(brought, settings, opened)?.0)
    }

    fn open_with(&self, own: &Brought, settings: &Settings, opened: Opened) -> S3Result<Told<Opened>> {
        let Some(encryption) = opened.head.encryption() else { return Ok((opened, HeaderMap::new())) };
        let (key, headers) = self.unlock(own, settings, &encryption)?;
        Ok((opened.unlocked(Arc::new(Cipher::new(&key))), headers))
    }

    /// A client's key is for uploads that were begun with it: others would have it read and not used.
    fn unlock_part(&self, settings: &Settings, encryption: &Encryption) -> S3Result<Told<Key>> {
        if self.own.is_some() && !matches!(encryption, Encryption::Customer { .. }) {
            let why = "the upload was begun with another encryption";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        self.unlock(&self.own, settings, encryption)
    }

    /// A part with the key of its upload. Of an upload that is not encrypted no part is: radosgw takes the
    /// key, and stores the part as it comes.
    pub fn open_part(&self, settings: &Settings, part: Part) -> S3Result<Told<Part>> {
        let Some(encryption) = part.encryption().cloned() else {
            if self.own.is_some() || self.method.is_some() {
                let why = "the upload was begun without encryption";
                return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
            }
            return Ok((part, HeaderMap::new()));
        };
        let (key, headers) = self.unlock_part(settings, &encryption)?;
        Ok((part.unlocked(Arc::new(Cipher::new(&key))), headers))
    }
}

/// What a request that the library brought says.
pub fn asked<T>(request: &S3Request<T>) -> Asked {
    request.extensions.get::<Arc<Asked>>().map(|asked| Asked::clone(asked)).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 32 bytes of one kind, and their MD5.
    const KEY_TEXT: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    const OTHER_TEXT: &str = "CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg=";

    fn md5_of(key: &str) -> String {
        BASE64.encode(Md5::digest(BASE64.decode(key).unwrap()))
    }

    fn settings() -> Settings {
        let service = Some(Settings::keys(&format!("one={KEY_TEXT}")).unwrap());
        Settings { without_tls: true, service, ..Settings::default() }
    }

    fn asked(said: &[(&str, &str)], settings: &Settings) -> Asked {
        let header = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        Asked::take(&mut said.iter().map(header).collect(), settings)
    }

    fn customer<'a>(algorithm: &'a str, key: &'a str, md5: &'a str) -> [(&'static str, &'a str); 3] {
        [
            ("x-amz-server-side-encryption-customer-algorithm", algorithm),
            ("x-amz-server-side-encryption-customer-key", key),
            ("x-amz-server-side-encryption-customer-key-md5", md5),
        ]
    }

    fn code<T>(result: S3Result<T>) -> Option<String> {
        result.err().map(|e| e.code().as_str().to_owned())
    }

    /// What a write with these headers is refused with.
    fn sealing(said: &[(&str, &str)], settings: &Settings) -> Option<String> {
        code(asked(said, settings).seal(settings))
    }

    #[test]
    fn what_a_write_says_is_answered_as_by_radosgw() {
        let (settings, md5) = (settings(), md5_of(KEY_TEXT));
        let check = |said: &[(&str, &str)], want: Option<&str>| {
            assert_eq!(sealing(said, &settings).as_deref(), want, "{said:?}");
        };
        check(&[], None);
        check(&customer("AES256", KEY_TEXT, &md5), None);
        check(&customer("AES256", KEY_TEXT.trim_end_matches('='), md5.trim_end_matches('=')), None);
        check(&customer("AES128", KEY_TEXT, &md5), Some("InvalidEncryptionAlgorithmError"));
        for [algorithm, key, sum] in [
            ["AES256", "", &md5],
            ["AES256", "not base64!", &md5],
            ["AES256", "c2hvcnQ=", &md5_of("c2hvcnQ=")],
            ["AES256", KEY_TEXT, ""],
            ["AES256", KEY_TEXT, "AAAA"],
            ["AES256", KEY_TEXT, &md5_of(OTHER_TEXT)],
            ["", KEY_TEXT, &md5],
        ] {
            check(&customer(algorithm, key, sum), Some("InvalidArgument"));
        }
        check(&customer("AES256", KEY_TEXT, &md5)[..2], Some("InvalidArgument"));
        check(&customer("AES256", KEY_TEXT, &md5)[..1], Some("InvalidArgument"));
        check(&customer("AES256", KEY_TEXT, &md5)[1..2], Some("InvalidArgument"));
        check(&customer("AES256", KEY_TEXT, &md5)[2..], Some("InvalidArgument"));
        check(&[(METHOD, "aws:kms"), (KEY_ID, "one")], None);
        check(&[(METHOD, "aws:kms"), (KEY_ID, "two")], Some("InvalidAccessKeyId"));
        check(&[(METHOD, "aws:kms")], Some("InvalidArgument"));
        check(&[(METHOD, "aes:kms")], Some("InvalidArgument"));
        check(&[(KEY_ID, "one")], Some("InvalidArgument"));
        let own = customer("AES256", KEY_TEXT, &md5);
        for more in [&[(METHOD, "aws:kms"), (KEY_ID, "one")][..], &[(METHOD, "AES256")], &[(KEY_ID, "one")]] {
            check(&[&own[..], more].concat(), Some("InvalidArgument"));
        }
        // It would be stored as it is, as radosgw does.
        check(&[(METHOD, "AES256")], Some("NotImplemented"));
        let none = Settings { service: None, ..settings.clone() };
        assert_eq!(
            sealing(&[(METHOD, "aws:kms"), (KEY_ID, "one")], &none).as_deref(),
            Some("NotImplemented")
        );
    }

    #[test]
    fn keys_go_over_tls_unless_it_is_said_otherwise() {
        let md5 = md5_of(KEY_TEXT);
        let customer = customer("AES256", KEY_TEXT, &md5);
        let service = [(METHOD, "aws:kms"), (KEY_ID, "one")];
        let with = |trusts_proxy| Settings { without_tls: false, trusts_proxy, ..settings() };
        for said in [&customer[..], &service[..]] {
            let through = |name, value| [said, &[(name, value)]].concat();
            assert_eq!(sealing(said, &with(true)).as_deref(), Some("InvalidRequest"));
            let forwarded = through("forwarded", "for=10.0.0.1;proto=https");
            assert_eq!(sealing(&forwarded, &with(false)).as_deref(), Some("InvalidRequest"), "not trusted");
            assert_eq!(sealing(&forwarded, &with(true)), None);
            assert_eq!(sealing(&through("x-forwarded-proto", "https"), &with(true)), None);
            assert!(sealing(&through("x-forwarded-proto", "http"), &with(true)).is_some());
        }
    }

    #[test]
    fn visitors_of_sites_see_encrypted_pages_over_tls() {
        let settings = Settings { without_tls: false, trusts_proxy: true, ..settings() };
        let closed = Encryption::Service {
            key_id: "one".into(),
            selector: vec![7; KEY].into(),
            context: Bytes::new(),
        };
        let visit = |header: &'static str, value: &str| {
            let asked = Asked::of_visit(
                &HeaderMap::from_iter([(HeaderName::from_static(header), value.parse().unwrap())]),
                &settings,
            );
            code(asked.unlock(&asked.own, &settings, &closed))
        };
        assert_eq!(visit("x-forwarded-proto", "https"), None);
        assert_eq!(visit("x-forwarded-proto", "http").as_deref(), Some("InvalidRequest"));
        assert_eq!(visit("x-other", "https").as_deref(), Some("InvalidRequest"));
    }

    #[test]
    fn a_key_opens_what_it_closed_and_no_other_does() {
        let (settings, md5) = (settings(), md5_of(KEY_TEXT));
        let asked = |said: &[(&str, &str)]| asked(said, &settings);
        let own = customer("AES256", KEY_TEXT, &md5);
        let (seal, told) = asked(&own).seal(&settings).unwrap();
        let closed = seal.unwrap().encryption;
        assert_eq!(closed, Encryption::Customer { key_md5: BASE64.decode(&md5).unwrap().into() });
        assert_eq!(told["x-amz-server-side-encryption-customer-key-md5"], md5);
        assert_eq!(
            (&told["x-amz-server-side-encryption-customer-algorithm"], told.len()),
            (&"AES256".parse().unwrap(), 2)
        );
        let unlock = |said: &[(&str, &str)], closed: &Encryption| {
            let asked = asked(said);
            code(asked.unlock(&asked.own, &settings, closed))
        };
        assert_eq!(unlock(&own, &closed), None);
        let other = md5_of(OTHER_TEXT);
        for said in [&[][..], &customer("AES256", OTHER_TEXT, &other), &customer("AES256", OTHER_TEXT, &md5)]
        {
            assert_eq!(unlock(said, &closed).as_deref(), Some("InvalidArgument"), "{said:?}");
        }
        assert_eq!(unlock(&own, &Encryption::Unknown).as_deref(), Some("NotImplemented"));

        let (seal, told) = asked(&[(METHOD, "aws:kms"), (KEY_ID, "one")]).seal(&settings).unwrap();
        let closed = seal.unwrap().encryption;
        assert_eq!((&told[METHOD], &told[KEY_ID]), (&"aws:kms".parse().unwrap(), &"one".parse().unwrap()));
        assert_eq!(unlock(&[], &closed), None);
        let none = Settings { service: None, ..settings.clone() };
        let asked = asked(&[]);
        assert_eq!(code(asked.unlock(&asked.own, &none, &closed)).as_deref(), Some("NotImplemented"));
        let Encryption::Service { selector, .. } = closed else { panic!("{closed:?}") };
        let gone = Encryption::Service { key_id: "two".into(), selector, context: Bytes::new() };
        assert_eq!(code(asked.unlock(&asked.own, &settings, &gone)).as_deref(), Some("InvalidAccessKeyId"));
    }

    #[test]
    fn a_copy_keeps_its_sources_key_unless_it_says_otherwise() {
        let settings = Settings { default_key: Settings::key(OTHER_TEXT), ..settings() };
        let md5 = md5_of(KEY_TEXT);
        let kept = Encryption::Service {
            key_id: "one".into(),
            selector: vec![7; KEY].into(),
            context: Bytes::new(),
        };
        let copy = |said: &[(&str, &str)], source: Option<&Encryption>| {
            let asked = asked(said, &settings);
            let (seal, told) = asked.seal_copy(&settings, source).unwrap();
            (seal.unwrap().encryption, told.contains_key(METHOD), asked.keeps(source))
        };
        let (Encryption::Service { key_id, selector, .. }, true, true) = copy(&[], Some(&kept)) else {
            panic!("it is not kept")
        };
        assert!(key_id == "one" && selector[..] != [7; KEY], "of the same key, another one is derived");
        let own = copy(&customer("AES256", KEY_TEXT, &md5), Some(&kept));
        assert!(matches!(own, (Encryption::Customer { .. }, false, false)), "{own:?}");
        for other in [copy(&[(METHOD, "AES256")], Some(&kept)), copy(&[], None)] {
            assert!(matches!(other, (Encryption::Automatic { .. }, false, false)), "{other:?}");
        }
    }

    #[test]
    fn a_part_brings_no_key_of_its_own_to_another_encryption() {
        let settings = Settings { default_key: Settings::key(KEY_TEXT), ..settings() };
        let md5 = md5_of(KEY_TEXT);
        let own = customer("AES256", KEY_TEXT, &md5);
        let selector = Bytes::from(vec![7; KEY]);
        let part =
            |said: &[(&str, &str)], of: &Encryption| code(asked(said, &settings).unlock_part(&settings, of));
        for of in [
            Encryption::Service { key_id: "one".into(), selector: selector.clone(), context: Bytes::new() },
            Encryption::Automatic { selector },
        ] {
            assert_eq!(part(&[], &of), None);
            assert_eq!(part(&own, &of).as_deref(), Some("InvalidRequest"), "{of:?}");
        }
        let customers = Encryption::Customer { key_md5: BASE64.decode(&md5).unwrap().into() };
        assert_eq!((part(&own, &customers), part(&[], &customers).is_some()), (None, true));
    }

    #[test]
    fn everything_is_encrypted_where_the_gateway_has_a_key_of_its_own() {
        let settings = Settings { default_key: Settings::key(KEY_TEXT), ..settings() };
        for said in [&[][..], &[(METHOD, "AES256")]] {
            let (seal, told) = asked(said, &settings).seal(&settings).unwrap();
            let Some(Encryption::Automatic { selector }) = seal.map(|seal| seal.encryption) else {
                panic!("{said:?}")
            };
            assert!(selector.len() == KEY && told.is_empty());
        }
        let asked = asked(&[], &settings);
        let closed = Encryption::Automatic { selector: vec![7; KEY].into() };
        assert_eq!(code(asked.unlock(&asked.own, &settings, &closed)), None);
        let none = Settings { default_key: None, ..settings };
        assert_eq!(code(asked.unlock(&asked.own, &none, &closed)).as_deref(), Some("NotImplemented"));
    }

    #[test]
    fn nobody_behind_sees_a_key() {
        let mut headers = HeaderMap::new();
        for name in [OWN, SOURCE] {
            let name = HeaderName::try_from([name, "key"].concat()).unwrap();
            headers.insert(name, KEY_TEXT.parse().unwrap());
        }
        headers.insert(METHOD, "aws:kms".parse().unwrap());
        let asked = Asked::take(&mut headers, &settings());
        assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), [METHOD]);
        assert!(asked.own.key.is_some() && asked.source.key.is_some());
        let shown = format!("{:?}", Settings { default_key: Settings::key(KEY_TEXT), ..settings() });
        assert!(!shown.contains("[7, 7") && !shown.contains(KEY_TEXT), "{shown}");
    }

    #[test]
    fn a_forms_fields_are_taken_or_refused() {
        let (settings, headers) = (settings(), HeaderMap::new());
        let of = |more: Option<&str>| {
            let fields =
                [(METHOD, "aws:kms "), (KEY_ID, "one")].into_iter().chain(more.map(|name| (name, "e30=")));
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            Asked::of_fields(&fields, &headers, &settings)
        };
        assert!(of(None).unwrap().seal(&settings).unwrap().0.is_some());
        let context = of(Some("x-amz-server-side-encryption-context"));
        assert_eq!(code(context).as_deref(), Some("NotImplemented"));
    }

    #[test]
    fn options_name_keys() {
        let keys = Settings::keys(&format!("a={KEY_TEXT}, b={KEY_TEXT};c={KEY_TEXT}\t")).unwrap();
        assert_eq!(keys.into_keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        for (text, number) in [
            ("a=c2hvcnQ=".to_owned(), 1),
            (format!("a={KEY_TEXT} {KEY_TEXT}"), 2),
            (format!("a={KEY_TEXT}, b {KEY_TEXT}"), 2),
        ] {
            assert_eq!(Settings::keys(&text).unwrap_err(), number, "{text}");
        }
        assert!(Settings::keys("").unwrap().is_empty());
    }
}
