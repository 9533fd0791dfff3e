//! `loligo rgw`: S3 by boto3, beside Ceph's gateway on the same pools, and what becomes of it under `kill -9`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::cluster::{Cluster, binary, mon_port, text, until};

/// A gateway of ours, which ends with the test.
struct Gateway {
    child: Child,
    endpoint: String,
}

impl Gateway {
    fn start(c: &Cluster) -> Self {
        let port = mon_port();
        let mut command = Command::new(binary());
        command.args(["rgw", "--port", &port, "--data"]).arg(c.data()).stdout(Stdio::piped());
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
    let gateway = Gateway::start(&c);
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/s3.py");
    let words = ["-B", program, &gateway.endpoint, &key, &secret, &other, &others];
    let out = c.client("/usr/bin/python3", &words);
    assert!(out.status.success() && text(&out).ends_with("done\n"), "{}", text(&out));
    // What radosgw's own tool says of it.
    let user: serde_json::Value =
        serde_json::from_str(&c.ok("radosgw-admin", &["user", "info", "--uid=alice"])).expect("JSON");
    assert_eq!(user["keys"][0]["secret_key"], secret);
    assert_eq!(c.ok("radosgw-admin", &["bucket", "list"]).split_whitespace().collect::<String>(), "[]");
}

/// One address's connections leave room for others, and a request that never ends leaves the rest of the
/// gateway as it is.
#[test]
fn slow_clients_do_not_keep_a_gateway_from_others() {
    let c = Cluster::start(&[]);
    add_user(&c, "alice");
    let gateway = Gateway::start(&c);
    let address = gateway.endpoint.trim_start_matches("http://").to_owned();
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.write_all(b"PUT /bucket/key HTTP/1.1\r\nHost: x\r\nContent-Le").expect("it reads");
        idle.push(stream);
    }
    until("an answer beside them", || {
        let Ok(mut stream) = TcpStream::connect(&address) else { return false };
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 403")
    });
}
