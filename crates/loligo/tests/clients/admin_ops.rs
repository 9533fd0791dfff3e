//! The admin ops API of `loligo rgw`, beside Ceph's radosgw on the same pools.

use crate::cluster::{Cluster, text};
use crate::managers::installed;
use crate::radosgw;
use crate::s3::Gateway;

/// Lines that the calls print on a gateway.
fn calls(c: &Cluster, endpoint: &str, [key, secret]: &[String; 2], prefix: &str) -> Vec<String> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/admin_ops.py");
    let out = c.client("/usr/bin/python3", &["-B", program, endpoint, key, secret, prefix]);
    let said = text(&out);
    assert!(out.status.success() && said.ends_with("done\n"), "{said}");
    said.lines().map(str::to_owned).collect()
}

/// What our gateway answers otherwise than radosgw 16.2.15, by the name of the call, and why.
const OTHERWISE: [(&str, &str); 4] = [
    ("no user", "radosgw takes no name for that of nobody, who may not be changed"),
    ("quota of each", "radosgw checks no signatures of such bodies, and answers NotImplemented"),
    ("the other", "what the call before set"),
    ("with quota", "radosgw takes no bound of bytes for a bound of none when the other bound is set"),
];

#[test]
fn administrators_are_answered_as_by_radosgw() {
    if !installed("radosgw") {
        return;
    }
    let c = Cluster::start(&[]);
    let (ours, cephs) = (Gateway::start(&c, &[]), radosgw::Gateway::start(&c));
    let caps = "--caps=users=*;buckets=*;usage=*;metadata=*";
    let made = c.ok("radosgw-admin", &["user", "create", "--uid=root", "--display-name=root", caps]);
    let made: serde_json::Value = serde_json::from_str(&made).expect("JSON");
    let keys =
        ["access_key", "secret_key"].map(|name| made["keys"][0][name].as_str().expect("a key").to_owned());
    let theirs = calls(&c, &cephs.endpoint, &keys, "theirs");
    let ours = calls(&c, &ours.endpoint, &keys, "ours");
    assert_eq!(ours.len(), theirs.len(), "{ours:#?}\n{theirs:#?}");
    let mut differ = Vec::new();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let known = OTHERWISE.iter().any(|(name, _)| ours.starts_with(&format!("[\"{name}\"")));
        if (ours == theirs) == known {
            differ.push(format!("ours:   {ours}\ntheirs: {theirs}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}
