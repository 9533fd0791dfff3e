//! Keyring files: read as tolerantly as Ceph reads them, written byte for byte as it writes them.

use cephx::{CryptoKey, KeyTextError, Keyring, KeyringError};
use types::{AuthName, Utime};

const KEY: &str = "AQBBEQJrvCN5GRAAhNvCCwgrWkC+WyKP+jlrRg==";

fn name(text: &str) -> AuthName {
    AuthName::parse(text).expect("a name")
}

#[test]
fn keys_have_cephs_text_form() {
    let key = CryptoKey::from_base64(KEY).expect("a key");
    assert_eq!(key.to_base64(), KEY);
    assert_eq!(key.created(), Utime::new(0x6b02_1141, 0x1979_23bc));
    assert_eq!(key.secret().len(), 16);
    assert_eq!(CryptoKey::from_base64("AAAAAAAAAAAAAAAA").expect("the empty key"), CryptoKey::EMPTY);
    assert_eq!(CryptoKey::EMPTY.to_base64(), "AAAAAAAAAAAAAAAA");
    assert_eq!(CryptoKey::from_base64("not base64!"), Err(KeyTextError::NotBase64));
    for bad in
        ["", "AQBB", "AQBBEQJrvCN5GRAAhNvCCwgrWkC+WyKP+jlr", "AgBBEQJrvCN5GRAAhNvCCwgrWkC+WyKP+jlrRg=="]
    {
        assert!(CryptoKey::from_base64(bad).is_err(), "{bad}");
    }
}

#[test]
fn keys_encrypt_as_aes_cbc_with_cephs_iv() {
    // openssl enc -aes-128-cbc -K 84dbc20b082b5a40be5b228ffa396b46 -iv CEPH_AES_IV
    let key = CryptoKey::from_base64(KEY).expect("a key");
    let sealed = key.encrypt(b"sixteen bytes!!!").expect("encrypts");
    let hex: String = sealed.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("data/aes-cbc.hex").trim());
    assert_eq!(key.decrypt(&sealed).expect("decrypts"), &b"sixteen bytes!!!"[..]);
    assert!(key.decrypt(&sealed[..31]).is_err() && key.decrypt(&[]).is_err());
    assert!(CryptoKey::EMPTY.encrypt(b"x").is_err() && CryptoKey::EMPTY.decrypt(&sealed).is_err());
}

#[test]
fn a_keyring_is_written_as_ceph_writes_it() {
    let text = include_str!("data/keyring.txt");
    let ring = Keyring::parse(text).expect("parses");
    assert_eq!(ring.to_string(), text);
    let admin = ring.get(&name("client.admin")).expect("there");
    assert_eq!(admin.caps["mon"], "allow *");
    assert_eq!(ring.get(&name("client.x")).expect("there").caps["mon"], "allow command \"auth get\"");
    assert_eq!(Keyring::parse(&ring.to_string()), Ok(ring));
}

#[test]
fn a_keyring_is_read_tolerantly() {
    let text = format!(
        "# made by hand\n\n; and more\n[global]\n anything = goes\n  [ client.a ]  # who\r\n\
         key={KEY}   ; trailing\n\tcaps_mon = allow r\n  caps   osd = 'allow rw pool=\"p\"'\n auid = 5\n\
         caps mgr = \"allow \\\n*\"\n[mon.]\n key = \"{KEY}\""
    );
    let ring = Keyring::parse(&text).expect("parses");
    let a = ring.get(&name("client.a")).expect("there");
    assert_eq!(a.key.to_base64(), KEY);
    assert_eq!(a.caps["mon"], "allow r");
    assert_eq!(a.caps["osd"], "allow rw pool=\"p\"");
    assert_eq!(a.caps["mgr"], "allow *");
    assert_eq!(ring.get(&name("mon.")).expect("there").key.to_base64(), KEY);
    assert_eq!(ring.entries.len(), 2);
}

#[test]
fn malformed_keyrings_say_where() {
    let at = |text: &str| match Keyring::parse(text).expect_err(text) {
        KeyringError::BadName { line, .. }
        | KeyringError::BadKey { line, .. }
        | KeyringError::UnknownSetting { line, .. }
        | KeyringError::Syntax { line, .. } => line,
    };
    assert_eq!(at("\n[nobody]\n"), 2);
    assert_eq!(at("[client.a]\nkey = x y\n"), 2);
    assert_eq!(at("[client.a]\n\n\ncolour = blue\n"), 4);
    assert_eq!(at("[client.a\nkey = x\n"), 1);
    assert_eq!(at("[client.a]\nkey\n"), 2);
    assert_eq!(at("[client.a]\ncaps mon = \"allow\n"), 2);
    assert_eq!(at("[client.a]\ncaps mon = \"allow\" r\n"), 2);
    assert_eq!(at("[client.a]\ncaps = \"allow\"\n"), 2);
}

/// Where Debian's tools are installed, they judge what we write.
#[test]
fn ceph_authtool_reads_what_we_write() {
    let text = include_str!("data/keyring.txt");
    let path = std::env::temp_dir().join(format!("keyring-{}", std::process::id()));
    std::fs::write(&path, Keyring::parse(text).expect("parses").to_string()).expect("writes");
    let listed = std::process::Command::new("ceph-authtool").arg("-l").arg(&path).output();
    std::fs::remove_file(&path).expect("removes");
    // Without the tool the fixture, which it wrote, has judged already.
    if let Ok(listed) = listed {
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        assert_eq!(String::from_utf8_lossy(&listed.stdout), text);
    }
}
