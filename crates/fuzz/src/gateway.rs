//! What the pools of object storage hold, and what gateways tell each other.

use bytes::Bytes;
use codec::Decode;
use rgw::hostile::KINDS;
use rgw::policy::{Action, Environment, Policy};

use crate::recorded;

/// Stripes of a manifest that are looked for.
const STRIPES: usize = 1_000;

/// One byte says which kind of structure the rest is.
pub(crate) fn rgw_stored(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let (_, again) = KINDS[usize::from(*kind) % KINDS.len()];
    if let Ok(once) = again(&Bytes::copy_from_slice(rest)) {
        assert!(again(&once).is_ok(), "what is written can be read");
    }
}

/// A manifest, and where it says that the bytes lie.
pub(crate) fn rgw_manifest(data: &[u8]) {
    if let Ok(manifest) = rgw::Manifest::from_bytes(data.to_vec()) {
        let last = manifest.stripes(STRIPES).pop();
        let _ = last.and_then(|stripe| manifest.stripe_at(stripe.at.wrapping_add(stripe.length)));
    }
}

/// Names of objects, users and pools.
pub(crate) fn rgw_names(data: &[u8]) {
    let text = Bytes::copy_from_slice(data);
    let key = rgw::Key::from_oid(&text);
    let _ = key.map(|key| [key.oid(), key.index_name(), key.locator()]);
    let _ = rgw::UserId::from_text(&text).to_text();
    let pool = rgw::Pool::from_text(data);
    assert_eq!(rgw::Pool::from_text(&pool.to_text()), pool);
}

/// A bucket's policy, and what it says to some requests.
pub(crate) fn rgw_policy(data: &[u8]) {
    let Ok(policy) = Policy::read(data, "t") else { return };
    let user = rgw::UserId::from_text(&Bytes::from_static(b"t$u"));
    let env = [("aws:SourceIp", "10.0.0.1"), ("s3:prefix", "a/b"), ("s3:max-keys", "7"), ("k", "2023-11-15")];
    let env: Environment = env.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    for action in [Action::GetObject, Action::ListBucket, Action::PutBucketPolicy] {
        // Panics, time and memory are what is looked for.
        let _ = policy.eval(&env, &user, action, b"bucket/a/b/c");
    }
    let _ = (policy.is_public(), policy.asks_for_tags());
}

const POLICIES: [&str; 3] = [
    r#"{"Version":"2012-10-17","Id":"i","Statement":[{"Sid":"s","Effect":"Allow","Principal":{"AWS":
       ["arn:aws:iam::t:user/u","*"]},"Action":["s3:Get*","s3:ListBucket"],"Resource":
       ["arn:aws:s3:::bucket","arn:aws:s3::t:bucket/*?*"]}]}"#,
    r#"{"Statement":{"Effect":"Deny","NotPrincipal":{"AWS":"arn:aws:iam::t:root"},"NotAction":"s3:Put*",
       "NotResource":"*","Condition":{"StringLikeIfExists":{"s3:prefix":["a/*","b"]},"NumericLessThan":
       {"s3:max-keys":10},"DateGreaterThan":{"k":"2020-01-01T00:00:00Z"},"Bool":{"k":"true"}}}}"#,
    r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*","Condition":
       {"IpAddress":{"aws:SourceIp":["10.0.0.0/8","::1/128"]},"Null":{"x":"true"},"BinaryEquals":{"k":"QQ=="}}}]}"#,
];

pub(crate) fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    let text = recorded::text("rgw", "captured.txt");
    let lines = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, at, hex] = words[..] else { return None };
        let number = KINDS.iter().position(|(k, _)| *k == kind);
        Some((kind.to_owned(), at.to_owned(), number, recorded::unhex(hex)))
    });
    match target {
        "rgw_stored" => lines.filter_map(|(_, _, n, raw)| Some([&[n? as u8][..], &raw].concat())).collect(),
        "rgw_policy" => POLICIES.map(|text| text.as_bytes().to_vec()).into(),
        "rgw_manifest" => lines.filter(|(k, ..)| k == "attr:manifest").map(|(.., raw)| raw).collect(),
        _ => {
            let names = ["te$full", "t$n$id", "$n$id", "pool:name\\:space", "__a", "_ns:v1_a"];
            let of_objects = lines
                .filter(|(k, ..)| k == "rados_object")
                .filter_map(|(_, at, ..)| Some(at.split_once('_')?.1.as_bytes().to_vec()));
            names.iter().map(|n| n.as_bytes().to_vec()).chain(of_objects).collect()
        }
    }
}
