//! `loligo rgw`: S3 by boto3, beside Ceph's gateway on the same pools, and under `kill -9`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::cluster::{Cluster, binary, mon_port, text, until};
use crate::managers::installed;
use crate::radosgw;

/// A gateway of ours, which ends with the test.
pub struct Gateway {
    child: Child,
    pub endpoint: String,
}

impl Gateway {
    pub fn start(c: &Cluster, more: &[&str]) -> Self {
        let port = mon_port();
        let mut command = Command::new(binary());
        command.args(["rgw", "--port", &port]).args(more).arg("--data").arg(c.data()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("loligo rgw starts");
        let mut said = String::new();
        let out = child.stdout.take().expect("piped");
        BufReader::new(out).read_line(&mut said).expect("it says where it is");
        let endpoint = format!("http://127.0.0.1:{port}");
        assert_eq!(said.trim(), endpoint);
        Self { child, endpoint }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a user; its access key and its secret.
fn add_user(c: &Cluster, name: &str) -> [String; 2] {
    let out = c.loligo(&["rgw", "--add-user", name]);
    assert!(out.status.success(), "{}", text(&out));
    let said = text(&out);
    let value = |what: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(what));
        line.unwrap_or_else(|| panic!("{said}")).trim_start_matches([' ', '=']).to_owned()
    };
    [value("access_key"), value("secret_key")]
}

#[test]
fn boto3_is_served_and_strangers_are_not() {
    let c = Cluster::start(&[]);
    let ([key, secret], [other, others]) = (add_user(&c, "alice"), add_user(&c, "bob"));
    let again = c.loligo(&["rgw", "--add-user", "alice"]);
    assert!(
        !again.status.success() && text(&again).contains("there is a user of this name"),
        "{}",
        text(&again)
    );
    let gateway = Gateway::start(&c, &["--rgw-bucket-logging-obj-roll-time", "1"]);
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/s3.py");
    let words = ["-B", program, &gateway.endpoint, &key, &secret, &other, &others];
    let out = c.client("/usr/bin/python3", &words);
    assert!(out.status.success() && text(&out).ends_with("done\n"), "{}", text(&out));
    // What radosgw's own tool says of it.
    let user: serde_json::Value =
        serde_json::from_str(&c.ok("radosgw-admin", &["user", "info", "--uid=alice"])).expect("JSON");
    assert_eq!(user["keys"][0]["secret_key"], secret);
    assert_eq!(c.ok("radosgw-admin", &["bucket", "list"]).split_whitespace().collect::<String>(), "[]");

    // What a user has is shut to everybody while the user is suspended.
    let words = ["-c", OPEN_BUCKET, &gateway.endpoint, &other, &others];
    let out = c.client("/usr/bin/python3", &words);
    assert!(out.status.success(), "{}", text(&out));
    let got = || {
        let address = gateway.endpoint.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(b"GET /open/k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    assert!(got().starts_with("HTTP/1.1 200 "), "{}", got());
    c.ok("radosgw-admin", &["user", "suspend", "--uid=bob"]);
    until("the bucket is shut", || got().starts_with("HTTP/1.1 403 ") && got().contains("UserSuspended"));
    c.ok("radosgw-admin", &["user", "enable", "--uid=bob"]);
    until("the bucket is open again", || got().starts_with("HTTP/1.1 200 "));

    // A bucket's owner has a quota, whoever writes.
    let quota = ["quota", "set", "--quota-scope=user", "--uid=bob", "--max-objects=2"];
    c.ok("radosgw-admin", &quota);
    c.ok("radosgw-admin", &["quota", "enable", "--quota-scope=user", "--uid=bob"]);
    let put = |n: u32| {
        let words = ["-c", PUT_OPEN, &gateway.endpoint, &key, &secret, &n.to_string()];
        text(&c.client("/usr/bin/python3", &words)).trim().to_owned()
    };
    // It is in force after a moment, and counts what is there: two objects at most.
    let mut n = 0;
    until("the quota holds", || {
        n += 1;
        put(n).ends_with("QuotaExceeded")
    });
    let stats = c.ok("radosgw-admin", &["bucket", "stats", "--bucket=open"]);
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    assert!(stats["usage"]["rgw.main"]["num_objects"].as_u64() >= Some(2), "{stats}");
    c.ok("radosgw-admin", &["quota", "disable", "--quota-scope=user", "--uid=bob"]);
    until("there is room again", || put(0) == "written");
}

/// Ours moves them, and both read what moved.
#[test]
fn objects_move_to_other_storage_classes() {
    let c = Cluster::start(&[]);
    let [key, secret] = add_user(&c, "alice");
    let at = ["placement", "add", "--placement-id=default-placement", "--storage-class=COLD"];
    let group = [&["zonegroup", "--rgw-zonegroup=default"], &at[..]].concat();
    c.ok("radosgw-admin", &group);
    let zone = [&["zone", "--rgw-zone=default", "--data-pool=default.rgw.cold.data"], &at[..]].concat();
    c.ok("radosgw-admin", &zone);
    // Ceph's gateway reads alone.
    let conf = std::fs::OpenOptions::new().append(true).open(c.data().join("ceph.conf"));
    let only_reads = b"\n[client.rgw.x]\nrgw_enable_lc_threads = false\n";
    conf.and_then(|mut conf| conf.write_all(only_reads)).expect("written");
    let theirs = radosgw::Gateway::start(&c);
    let ours = Gateway::start(&c, &["--rgw-lc-debug-interval", "1"]);
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/s3_classes.py");
    let words = ["-B", program, &ours.endpoint, &key, &secret, &theirs.endpoint];
    let out = c.client("/usr/bin/python3", &words);
    assert!(out.status.success() && text(&out).ends_with("done\n"), "{}", text(&out));
}

/// Writes into another user's bucket.
const PUT_OPEN: &str = r#"
import boto3, sys
from botocore.exceptions import ClientError
s3 = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id=sys.argv[2], aws_secret_access_key=sys.argv[3],
                  region_name="default")
try:
    s3.put_object(Bucket="open", Key="by alice " + sys.argv[4], Body=b"x")
    print("written")
except ClientError as e:
    print(e.response["Error"]["Code"])
"#;

/// A bucket and an object of a user's that anybody may read.
const OPEN_BUCKET: &str = r#"
import boto3, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id=sys.argv[2], aws_secret_access_key=sys.argv[3],
                  region_name="default")
s3.create_bucket(Bucket="open", ACL="public-read")
s3.put_object(Bucket="open", Key="k", Body=b"x", ACL="public-read")
s3.put_bucket_policy(Bucket="open", Policy='{"Statement":{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam:::user/alice"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::open/*"}}')
for _ in range(2):
    s3.put_object(Bucket="open", Key="twice", Body=b"y")
    twice = s3.delete_objects(Bucket="open", Delete={"Objects": [{"Key": "twice"}] * 8})
    assert "Errors" not in twice, twice
"#;

/// A line that `up --s3` printed, by a shell that has read `s3.env`.
fn by_shell(c: &Cluster, line: &str) {
    let script = format!("unset AWS_CA_BUNDLE; . {} && {line}", c.data().join("s3.env").display());
    c.ok("/bin/sh", &["-c", &script]);
}

#[test]
fn the_lines_that_up_prints_work_as_they_stand() {
    let c = Cluster { dir: tempfile::tempdir().expect("a folder") };
    let [port, s3_port] = [mon_port(), mon_port()];
    let up = ["up", "--detach", "--mon-port", &port, "--s3", "--s3-port", &s3_port];
    let out = c.loligo(&up);
    assert!(out.status.success(), "{}", text(&out));
    let said = text(&out);
    let printed = |tool: &str| {
        let mut lines = said.lines().map(str::trim).filter(|line| line.starts_with(tool));
        lines.next().unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    for tool in ["s3cmd", "rclone"] {
        by_shell(&c, &printed(tool));
    }
    let listed = || c.ok("radosgw-admin", &["bucket", "list", "--uid=s3"]);
    let is_there = |listed: &str| ["from-s3cmd", "from-rclone"].iter().all(|name| listed.contains(name));
    assert!(is_there(&listed()), "{}", listed());

    // A file tree there and back, and a file of several parts.
    let rclone = printed("rclone").replace(" mkdir :s3:from-rclone", "");
    let tree = c.dir.path().join("tree");
    std::fs::create_dir(&tree).expect("a folder");
    for n in 0..20 {
        std::fs::write(tree.join(format!("file {n}")), vec![n; 1000 * usize::from(n)]).expect("written");
    }
    std::fs::write(tree.join("large"), vec![7; 12 << 20]).expect("written");
    let sync = format!("{rclone} -q --s3-upload-cutoff=8M sync {} :s3:from-rclone/tree", tree.display());
    by_shell(&c, &sync);
    by_shell(&c, &format!("{rclone} -q check {} :s3:from-rclone/tree", tree.display()));

    // A second start finds what is there, and `down` ends all of it.
    let env = std::fs::read_to_string(c.data().join("s3.env")).expect("s3.env");
    assert!(c.loligo(&["up", "--detach", "--s3"]).status.success());
    assert!(c.loligo(&["down"]).status.success());
    assert!(TcpStream::connect(format!("127.0.0.1:{s3_port}")).is_err());
    let out = c.loligo(&["up", "--detach", "--s3"]);
    assert!(out.status.success(), "{}", text(&out));
    assert_eq!(std::fs::read_to_string(c.data().join("s3.env")).expect("s3.env"), env);
    by_shell(&c, &format!("{rclone} -q check {} :s3:from-rclone/tree", tree.display()));
}

/// Sets options of gateways in the folder's configuration.
fn configure(c: &Cluster, options: &str) {
    let conf = c.data().join("ceph.conf");
    let text = std::fs::read_to_string(&conf).expect("ceph.conf");
    std::fs::write(&conf, format!("{text}\n[client]\n{options}\n")).expect("written");
}

/// Keys of the service that Ceph's gateway has for tests.
const KEYS: &str = "rgw_crypt_require_ssl = false\nrgw_crypt_s3_kms_backend = testing\n\
     rgw_crypt_s3_kms_encryption_keys = testkey-1=YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo=";

/// Has a program use a gateway of ours and Ceph's on the same pools.
fn beside_cephs(configure: impl FnOnce(&Cluster), program: &str) {
    if !installed("radosgw") {
        return;
    }
    let c = Cluster::start(&[]);
    configure(&c);
    let ([key, secret], [other, others]) = (add_user(&c, "alice"), add_user(&c, "bob"));
    c.ok("radosgw-admin", &["caps", "add", "--uid=alice", "--caps=user-policy=*"]);
    let (ours, cephs) = (Gateway::start(&c, &[]), radosgw::Gateway::start(&c));
    let words = ["-B", program, &ours.endpoint, &cephs.endpoint, &key, &secret, &other, &others];
    let out = c.client("/usr/bin/python3", &words);
    assert!(out.status.success() && text(&out).ends_with("done\n"), "{}", text(&out));
}

/// Each gateway reads what the other encrypted, and neither gives it to who has no key.
#[test]
fn encrypted_objects_are_those_of_cephs_gateway() {
    beside_cephs(
        |c| configure(c, KEYS),
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/s3_encryption.py"),
    );
}

#[test]
fn policies_of_users_are_those_of_cephs_gateway() {
    beside_cephs(|_| {}, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/s3_user_policies.py"));
}

#[test]
fn sites_are_those_of_cephs_gateway() {
    let by_the_monitors = |c: &Cluster| {
        c.ceph("config set client rgw_enable_static_website true");
        c.ceph("config set client rgw_dns_s3website_name web.test");
    };
    beside_cephs(by_the_monitors, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/s3_website.py"));
}

/// Connections of one address that never end leave half of the gateway to others.
#[test]
fn slow_clients_do_not_keep_a_gateway_from_others() {
    let c = Cluster::start(&[]);
    let gateway = Gateway::start(&c, &["--max-connections", "40"]);
    let address = gateway.endpoint.trim_start_matches("http://").to_owned();
    let mut idle = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        // One that is refused may be closed by now.
        let _ = stream.write_all(b"PUT /bucket/key HTTP/1.1\r\nHost: x\r\nContent-Le");
        idle.push(stream);
    }
    let waits = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).expect("it can");
        matches!(stream.read(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
    };
    until("an end of what is beyond the share", || idle.iter().filter(|stream| waits(stream)).count() == 20);
    // From another address.
    let ask = "import http.client, sys\n\
               host, port = sys.argv[1].split(':')\n\
               c = http.client.HTTPConnection(host, int(port), timeout=60, source_address=('127.0.0.2', 0))\n\
               c.request('GET', '/')\n\
               print(c.getresponse().status)";
    assert_eq!(c.ok("/usr/bin/python3", &["-c", ask, &address]), "200\n");
}
