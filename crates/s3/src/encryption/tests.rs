//! What requests say of encryption, and what comes of it.

use super::*;

/// 32 bytes of one kind, and their MD5.
const KEY_TEXT: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
const OTHER_TEXT: &str = "CAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAg=";

fn md5_of(key: &str) -> String {
    BASE64.encode(Md5::digest(BASE64.decode(key).unwrap()))
}

fn settings() -> Settings {
    let service = Some(Settings::keys(&format!("one={KEY_TEXT}")).unwrap());
    let stored = Some(Arc::new(Ring::new(Arc::new(ring::InMemory::default()))));
    Settings { without_tls: true, service, stored, ..Settings::default() }
}

static BUCKET: Bytes = Bytes::from_static(b"id");

/// A bucket that says nothing of encryption.
static PLACE: Place<'static> = Place { bucket_id: &BUCKET, default: None };

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

/// What becomes of what waits for nothing.
fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// What a write with these headers is refused with.
fn sealing(said: &[(&str, &str)], settings: &Settings) -> Option<String> {
    code(wait(asked(said, settings).seal(settings, PLACE)))
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
    check(&[(METHOD, "AES256")], None);
    check(&[(METHOD, "AES256"), (KEY_ID, "one")], Some("InvalidArgument"));
    check(&[(METHOD, "AES192")], Some("InvalidArgument"));
    // It would be stored as it is, as radosgw 16.2 does.
    let none = Settings { stored: None, ..settings.clone() };
    assert_eq!(sealing(&[(METHOD, "AES256")], &none).as_deref(), Some("NotImplemented"));
    let none = Settings { service: None, ..settings.clone() };
    assert_eq!(sealing(&[(METHOD, "aws:kms"), (KEY_ID, "one")], &none).as_deref(), Some("NotImplemented"));
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
    let closed =
        Encryption::Service { key_id: "one".into(), selector: vec![7; KEY].into(), context: Bytes::new() };
    let visit = |header: &'static str, value: &str| {
        let asked = Asked::of_visit(
            &HeaderMap::from_iter([(HeaderName::from_static(header), value.parse().unwrap())]),
            &settings,
        );
        code(wait(asked.unlock(&asked.own, &settings, &closed)))
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
    let (seal, told) = wait(asked(&own).seal(&settings, PLACE)).unwrap();
    let closed = seal.unwrap().encryption;
    assert_eq!(closed, Encryption::Customer { key_md5: BASE64.decode(&md5).unwrap().into() });
    assert_eq!(told["x-amz-server-side-encryption-customer-key-md5"], md5);
    assert_eq!(
        (&told["x-amz-server-side-encryption-customer-algorithm"], told.len()),
        (&"AES256".parse().unwrap(), 2)
    );
    let unlock = |said: &[(&str, &str)], closed: &Encryption| {
        let asked = asked(said);
        code(wait(asked.unlock(&asked.own, &settings, closed)))
    };
    assert_eq!(unlock(&own, &closed), None);
    let other = md5_of(OTHER_TEXT);
    for said in [&[][..], &customer("AES256", OTHER_TEXT, &other), &customer("AES256", OTHER_TEXT, &md5)] {
        assert_eq!(unlock(said, &closed).as_deref(), Some("InvalidArgument"), "{said:?}");
    }
    assert_eq!(unlock(&own, &Encryption::Unknown).as_deref(), Some("NotImplemented"));

    let (seal, told) = wait(asked(&[(METHOD, "aws:kms"), (KEY_ID, "one")]).seal(&settings, PLACE)).unwrap();
    let closed = seal.unwrap().encryption;
    assert_eq!((&told[METHOD], &told[KEY_ID]), (&"aws:kms".parse().unwrap(), &"one".parse().unwrap()));
    assert_eq!(unlock(&[], &closed), None);
    let none = Settings { service: None, ..settings.clone() };
    let asked = asked(&[]);
    assert_eq!(code(wait(asked.unlock(&asked.own, &none, &closed))).as_deref(), Some("NotImplemented"));
    let Encryption::Service { selector, .. } = closed else { panic!("{closed:?}") };
    let gone = Encryption::Service { key_id: "two".into(), selector, context: Bytes::new() };
    assert_eq!(code(wait(asked.unlock(&asked.own, &settings, &gone))).as_deref(), Some("InvalidAccessKeyId"));
}

#[test]
fn a_copy_keeps_its_sources_key_unless_it_says_otherwise() {
    let settings = Settings { default_key: Settings::key(OTHER_TEXT), ..settings() };
    let md5 = md5_of(KEY_TEXT);
    let kept =
        Encryption::Service { key_id: "one".into(), selector: vec![7; KEY].into(), context: Bytes::new() };
    let copy = |said: &[(&str, &str)], source: Option<&Encryption>| {
        let asked = asked(said, &settings);
        let (seal, told) = wait(asked.seal_copy(&settings, source, PLACE)).unwrap();
        (seal.unwrap().encryption, told.contains_key(METHOD), asked.keeps(source, PLACE))
    };
    let (Encryption::Service { key_id, selector, .. }, true, true) = copy(&[], Some(&kept)) else {
        panic!("it is not kept")
    };
    assert!(key_id == "one" && selector[..] != [7; KEY], "of the same key, another one is derived");
    let own = copy(&customer("AES256", KEY_TEXT, &md5), Some(&kept));
    assert!(matches!(own, (Encryption::Customer { .. }, false, false)), "{own:?}");
    let other = copy(&[], None);
    assert!(matches!(other, (Encryption::Automatic { .. }, false, false)), "{other:?}");
    let stored = copy(&[(METHOD, "AES256")], Some(&kept));
    assert!(matches!(stored, (Encryption::Stored { .. }, true, false)), "{stored:?}");
    let again = copy(&[], Some(&stored.0));
    assert!(matches!(again, (Encryption::Stored { .. }, true, true)), "{again:?}");
    assert_ne!(again.0, stored.0, "of the same key, another one is derived");
}

#[test]
fn a_part_brings_no_key_of_its_own_to_another_encryption() {
    let settings = Settings { default_key: Settings::key(KEY_TEXT), ..settings() };
    let md5 = md5_of(KEY_TEXT);
    let own = customer("AES256", KEY_TEXT, &md5);
    let selector = Bytes::from(vec![7; KEY]);
    let part = |said: &[(&str, &str)], of: &Encryption| {
        code(wait(asked(said, &settings).unlock_part(&settings, of)))
    };
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
    let (seal, told) = wait(asked(&[], &settings).seal(&settings, PLACE)).unwrap();
    let Some(Encryption::Automatic { selector }) = seal.map(|seal| seal.encryption) else {
        panic!("it is of another kind")
    };
    assert!(selector.len() == KEY && told.is_empty());
    let asked = asked(&[], &settings);
    let closed = Encryption::Automatic { selector: vec![7; KEY].into() };
    assert_eq!(code(wait(asked.unlock(&asked.own, &settings, &closed))), None);
    let none = Settings { default_key: None, ..settings };
    assert_eq!(code(wait(asked.unlock(&asked.own, &none, &closed))).as_deref(), Some("NotImplemented"));
}

/// What a bucket says of what comes without a word.
fn rule(algorithm: &'static str, key_id: &'static str) -> BucketEncryption {
    let rule = rgw::EncryptionRule { key_id: key_id.into(), algorithm: algorithm.into(), bucket_key: false };
    BucketEncryption { rule: Some(rule) }
}

#[test]
fn a_bucket_says_how_what_comes_without_a_word_is_encrypted() {
    let settings = settings();
    let md5 = md5_of(KEY_TEXT);
    let seal = |said: &[(&str, &str)], default: &BucketEncryption| {
        let place = Place { bucket_id: &BUCKET, default: Some(default) };
        let (seal, told) = wait(asked(said, &settings).seal(&settings, place)).unwrap();
        (seal.map(|seal| seal.encryption), told)
    };
    let (closed, told) = seal(&[], &rule("AES256", ""));
    assert!(matches!(closed, Some(Encryption::Stored { .. })) && told[METHOD] == "AES256");
    let (closed, told) = seal(&[], &rule("aws:kms", "one"));
    assert!(matches!(closed, Some(Encryption::Service { .. })) && told[KEY_ID] == "one");
    // What a request says counts more.
    let (closed, _) = seal(&customer("AES256", KEY_TEXT, &md5), &rule("aws:kms", "one"));
    assert!(matches!(closed, Some(Encryption::Customer { .. })), "{closed:?}");
    let (closed, _) = seal(&[(METHOD, "AES256")], &rule("aws:kms", "one"));
    assert!(matches!(closed, Some(Encryption::Stored { .. })), "{closed:?}");
    assert!(seal(&[], &BucketEncryption::default()).0.is_none());
}

#[test]
fn what_is_closed_with_a_stored_key_is_opened_without_a_word() {
    let settings = settings();
    let (seal, told) = wait(asked(&[(METHOD, "AES256")], &settings).seal(&settings, PLACE)).unwrap();
    let seal = seal.unwrap();
    assert_eq!((&told[METHOD], told.len()), (&"AES256".parse().unwrap(), 1));
    let silent = asked(&[], &settings);
    let (key, told) = wait(silent.unlock(&silent.own, &settings, &seal.encryption)).unwrap();
    assert_eq!(told[METHOD], "AES256");
    let mut data = *b"sixteen bytes ..";
    seal.cipher.encrypt(&mut data, 0);
    Cipher::new(&key).decrypt(&mut data, 0);
    assert_eq!(&data, b"sixteen bytes ..");
    let other = Settings { stored: None, ..settings };
    assert_eq!(
        code(wait(silent.unlock(&silent.own, &other, &seal.encryption))).as_deref(),
        Some("NotImplemented")
    );
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
    assert!(wait(of(None).unwrap().seal(&settings, PLACE)).unwrap().0.is_some());
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
