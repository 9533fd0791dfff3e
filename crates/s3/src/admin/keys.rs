//! Keys and subusers. Source: RGWAccessKeyPool and RGWSubUserPool in src/rgw/rgw_user.cc.

use bytes::Bytes;
use gateway::{Error, Subusers};
use rgw::UserInfo;
use s3s::{S3Result, s3_error};
use serde_json::Value;
use types::Entropy;

use super::args::Args;
use super::{errors, shown, users};
use crate::state::Gateway;

/// Source: PUBLIC_ID_LEN and SECRET_KEY_LEN in src/rgw/rgw_user.h.
const KEY_LETTERS: usize = 20;
const SECRET_LETTERS: usize = 40;
/// Letters of keys, and of secrets, that are made up.
const OF_KEYS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const OF_SECRETS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// What a client may name a key or a secret: a header has to hold it.
const MAX_LETTERS: usize = 128;

/// A text of letters, each as likely as any other.
fn made_up(letters: &[u8], count: usize) -> Bytes {
    let fair = 256 - 256 % letters.len().max(1);
    let mut text = Vec::with_capacity(count);
    while text.len() < count {
        let mut bytes = [0; 64];
        runtime::OsEntropy.fill(&mut bytes);
        let drawn = bytes.iter().map(|b| usize::from(*b)).filter(|n| *n < fair);
        text.extend(drawn.filter_map(|n| letters.get(n % letters.len()).copied()));
    }
    text.truncate(count);
    text.into()
}

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    S3,
    Swift,
}

fn kind(args: &Args) -> S3Result<Option<Kind>> {
    match args.get("key-type").unwrap_or_default() {
        "" => Ok(None),
        "s3" => Ok(Some(Kind::S3)),
        "swift" => Ok(Some(Kind::Swift)),
        _ => Err(errors::invalid_key_type()),
    }
}

/// A key that a user is to have.
#[derive(Debug, Clone)]
pub struct NewKey {
    id: Bytes,
    secret: Bytes,
    subuser: Bytes,
    kind: Kind,
}

impl NewKey {
    pub fn put(&self, info: &mut UserInfo) -> Result<(), Error> {
        let Self { id, secret, subuser, kind } = self;
        match kind {
            Kind::S3 => info.add_key(id.clone(), secret.clone(), subuser.clone()),
            Kind::Swift => {
                let rights = info.subusers.get(subuser).ok_or(Error::NoSuchSubuser)?.rights;
                info.set_subuser(subuser.clone(), rights, Some(secret.clone()));
                Ok(())
            }
        }
    }
}

fn given(args: &Args, name: &str) -> S3Result<Option<Bytes>> {
    let text = args.text(name);
    if text.as_ref().is_some_and(|text| text.len() > MAX_LETTERS) {
        return Err(s3_error!(InvalidArgument, "{name} has at most {MAX_LETTERS} letters"));
    }
    Ok(text)
}

/// The key that a request of a user asks for, where it does; `makes` where it is made up unasked.
pub fn wanted(args: &Args, makes: Option<bool>) -> S3Result<Option<NewKey>> {
    let (id, secret) = (given(args, "access-key")?, given(args, "secret-key")?);
    let makes = args.flag("generate-key")?.or(makes).unwrap_or_default();
    if id.is_none() && secret.is_none() && !makes {
        return Ok(None);
    }
    if kind(args)? == Some(Kind::Swift) {
        // A key of Swift's is a subuser's.
        return Err(errors::invalid_access_key());
    }
    let id = match (id, makes) {
        (Some(id), _) => id,
        (None, true) => made_up(OF_KEYS, KEY_LETTERS),
        (None, false) => return Err(errors::invalid_access_key()),
    };
    let secret = match (secret, makes) {
        (Some(secret), _) => secret,
        (None, true) => made_up(OF_SECRETS, SECRET_LETTERS),
        (None, false) => return Err(errors::invalid_secret()),
    };
    Ok(Some(NewKey { id, secret, subuser: Bytes::new(), kind: Kind::S3 }))
}

/// Rights of a subuser. Source: rgw_str_to_perm in src/rgw/rgw_common.cc.
fn rights(args: &Args) -> S3Result<Option<u32>> {
    match args.get("access").unwrap_or_default() {
        "" => Ok(None),
        "read" => Ok(Some(1)),
        "write" => Ok(Some(2)),
        "readwrite" => Ok(Some(3)),
        "full" => Ok(Some(15)),
        _ => Err(s3_error!(InvalidArgument, "access is read, write, readwrite or full")),
    }
}

fn subuser(args: &Args) -> S3Result<Bytes> {
    args.subuser().ok_or_else(|| s3_error!(InvalidArgument, "subuser is missing"))
}

pub async fn create_subuser(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let (name, rights) = (subuser(args)?, rights(args)?.unwrap_or_default());
    let kind = kind(args)?.unwrap_or(Kind::Swift);
    let secret = given(args, "secret-key")?;
    let asks = args.flag("generate-secret")? == Some(true) || args.flag("gen-access-key")? == Some(true);
    let id = given(args, "access-key")?;
    let has_key = secret.is_some() || id.is_some() || asks;
    let key = NewKey {
        id: id.unwrap_or_else(|| made_up(OF_KEYS, KEY_LETTERS)),
        secret: secret.unwrap_or_else(|| made_up(OF_SECRETS, SECRET_LETTERS)),
        subuser: name.clone(),
        kind,
    };
    let user = args.user()?;
    let changed = users::change(gateway, &user, move |info| {
        // One that is there keeps its rights, as in radosgw.
        if !info.subusers.contains_key(&name) {
            info.set_subuser(name.clone(), rights, None);
        }
        if has_key { key.put(info) } else { Ok(()) }
    });
    Ok(Some(shown::subusers(&changed.await?)))
}

pub async fn modify_subuser(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let (name, rights, secret) = (subuser(args)?, rights(args)?, given(args, "secret-key")?);
    if kind(args)? == Some(Kind::S3) {
        return Err(errors::invalid_access_key());
    }
    let made = args.flag("generate-secret")? == Some(true);
    let secret = secret.or_else(|| made.then(|| made_up(OF_SECRETS, SECRET_LETTERS)));
    let user = args.user()?;
    let changed = users::change(gateway, &user, move |info| {
        let before = info.subusers.get(&name).ok_or(Error::NoSuchSubuser)?.rights;
        info.set_subuser(name.clone(), rights.unwrap_or(before), secret.clone());
        Ok(())
    });
    Ok(Some(shown::subusers(&changed.await?)))
}

pub async fn remove_subuser(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let name = subuser(args)?;
    // Keys of a subuser that is gone would be keys of nobody: they go with it, whatever is asked for.
    args.flag("purge-keys")?;
    users::change(gateway, &args.user()?, move |info| info.remove_subuser(&name)).await?;
    Ok(None)
}

pub async fn create(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let owner = args.subuser().unwrap_or_default();
    let kind = kind(args)?.unwrap_or(if owner.is_empty() { Kind::S3 } else { Kind::Swift });
    let key = match kind {
        Kind::S3 => wanted(args, Some(true))?.map(|key| NewKey { subuser: owner, ..key }),
        Kind::Swift if owner.is_empty() => return Err(errors::invalid_access_key()),
        Kind::Swift => {
            let secret = given(args, "secret-key")?;
            let makes = args.flag("generate-key")?.unwrap_or(true);
            let secret = secret.or_else(|| makes.then(|| made_up(OF_SECRETS, SECRET_LETTERS)));
            let secret = secret.ok_or_else(errors::invalid_secret)?;
            Some(NewKey { id: Bytes::new(), secret, subuser: owner, kind })
        }
    };
    let key = key.ok_or_else(errors::invalid_access_key)?;
    let info = users::change(gateway, &args.user()?, move |info| key.put(info)).await?;
    Ok(Some(if kind == Kind::S3 { shown::keys(&info) } else { shown::swift_keys(&info) }))
}

pub async fn remove(gateway: &Gateway, args: &Args) -> S3Result<Option<Value>> {
    let (kind, id, owner) = (kind(args)?, args.text("access-key"), args.subuser());
    let user = match (&id, args.has("uid") || args.has("subuser")) {
        // A key alone says whose it is.
        (Some(id), false) => {
            let stored = gateway.read(gateway.site().user_by_key(id)).await;
            stored.map_err(|_| errors::invalid_access_key())?.value.info.id
        }
        _ => args.user()?,
    };
    let found = users::of_id(gateway, &user).await?;
    let swift = owner.map(|owner| Bytes::from([&user.to_text()[..], b":", &owner].concat()));
    let of_s3 = id.filter(|id| kind != Some(Kind::Swift) && found.keys.contains_key(id));
    let of_swift = swift.filter(|id| kind != Some(Kind::S3) && found.swift_keys.contains_key(id));
    if of_s3.is_none() && of_swift.is_none() {
        return Err(errors::invalid_access_key());
    }
    users::change(gateway, &user, move |info| {
        match (&of_s3, &of_swift) {
            (Some(id), _) => drop(info.keys.remove(id)),
            (None, Some(id)) => drop(info.swift_keys.remove(id)),
            (None, None) => {}
        }
        Ok(())
    })
    .await?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_made_up_have_their_letters() {
        let key = made_up(OF_KEYS, KEY_LETTERS);
        assert_eq!(key.len(), KEY_LETTERS);
        assert!(key.iter().all(|b| OF_KEYS.contains(b)));
        assert_ne!(key, made_up(OF_KEYS, KEY_LETTERS));
    }

    #[test]
    fn a_key_is_made_where_it_is_asked_for() {
        let wanted = |query: &str, makes: Option<bool>| {
            wanted(&Args::of(query).unwrap(), makes)
                .map(|key| key.map(|key| (key.id.len(), key.secret.len())))
                .map_err(|e| e.code().as_str().to_owned())
        };
        assert_eq!(wanted("uid=u", None), Ok(None));
        assert_eq!(wanted("uid=u", Some(true)), Ok(Some((20, 40))));
        assert_eq!(wanted("uid=u&generate-key=false", Some(true)), Ok(None));
        assert_eq!(wanted("access-key=a&secret-key=bc", None), Ok(Some((1, 2))));
        assert_eq!(wanted("access-key=a&generate-key=false", Some(true)), Err("InvalidSecretKey".into()));
        assert_eq!(wanted("secret-key=a", None), Err("InvalidAccessKeyId".into()));
        assert_eq!(wanted("access-key=a&secret-key=b&key-type=cat", None), Err("InvalidKeyType".into()));
        let long = format!("access-key={}", "x".repeat(MAX_LETTERS + 1));
        assert_eq!(wanted(&long, Some(true)), Err("InvalidArgument".into()));
    }

    #[test]
    fn a_swift_key_is_a_subusers() {
        let mut info = UserInfo { id: rgw::UserId::plain("u"), ..UserInfo::default() };
        let key = NewKey { id: Bytes::new(), secret: "x".into(), subuser: "s".into(), kind: Kind::Swift };
        assert_eq!(key.put(&mut info), Err(Error::NoSuchSubuser));
        info.set_subuser("s".into(), 3, None);
        assert!(info.swift_keys.is_empty());
        key.put(&mut info).unwrap();
        assert_eq!((info.swift_keys.len(), info.subusers[&b"s"[..]].rights), (1, 3));
    }
}
