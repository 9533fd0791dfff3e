//! The dashboard of a whole cluster, asked as a script asks it: signing in, each path that is described, what
//! is refused, and TLS.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::cluster::{Cluster, mon_port, text, until};
use crate::managers::answer;

const PASSWORD: &str = "a-good-password";

/// A dashboard, and the code that lets somebody in once.
struct Dashboard<'a> {
    c: &'a Cluster,
    /// Without a slash at its end.
    url: String,
    code: String,
}

impl<'a> Dashboard<'a> {
    /// Switches it on in a cluster that runs.
    fn open(c: &'a Cluster) -> Self {
        let out = c.loligo(&["up", "--detach", "--dashboard", "--mon-port", "0"]);
        let said = text(&out);
        assert!(out.status.success(), "{said}");
        let behind = |words: &str| {
            let line = said.lines().find_map(|l| l.split_once(words)).unwrap_or_else(|| panic!("{said}"));
            line.1.trim().trim_end_matches('/').to_owned()
        };
        Self { c, url: behind("The dashboard: "), code: behind("may sign in with the password ") }
    }

    /// Status, head and body of the answer.
    fn ask(&self, path: &str, args: &[&str]) -> (u16, String, String) {
        let url = format!("{}{path}", self.url);
        let said = self.c.ok("curl", &[&["-s", "-k", "-i", url.as_str()], args].concat());
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {said}"));
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str, token: Option<&str>) -> (u16, Value) {
        let bearer = token.map(bearer);
        let args: Vec<&str> = bearer.iter().flat_map(|b| ["-H", b.as_str()]).collect();
        let (status, _, body) = self.ask(path, &args);
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    fn post(&self, path: &str, token: Option<&str>, body: &Value) -> (u16, String, Value) {
        let (bearer, body) = (token.map(bearer), body.to_string());
        let mut args: Vec<&str> = bearer.iter().flat_map(|b| ["-H", b.as_str()]).collect();
        args.extend(["-H", "Content-Type: application/json", "-d", &body]);
        let (status, head, body) = self.ask(path, &args);
        (status, head, serde_json::from_str(&body).unwrap_or_default())
    }

    /// Status, head and token.
    fn sign_in(&self, username: &str, password: &str) -> (u16, String, String) {
        let body = json!({ "username": username, "password": password });
        let (status, head, said) = self.post("/api/auth", None, &body);
        (status, head, said["token"].as_str().unwrap_or_default().to_owned())
    }

    fn user(&self, args: &[&str]) {
        let file = self.c.dir.path().join("password");
        std::fs::write(&file, PASSWORD).expect("written");
        let file = file.display().to_string();
        self.c.ok("ceph", &[&["dashboard"], args, &["-i", &file]].concat());
    }

    fn signed_in(&self, username: &str) -> String {
        let (status, _, token) = self.sign_in(username, PASSWORD);
        assert_eq!(status, 201, "{username}");
        token
    }

    /// The first figures of the stream.
    fn figures(&self, token: &str) -> Value {
        let mut stream = Stream::open(&format!("{}/api/live", self.url), token);
        let mut last = String::new();
        loop {
            let mut line = String::new();
            assert!(stream.from.read_line(&mut line).expect("text") > 0, "the stream ends after {last}");
            if last == "event: figures" {
                return serde_json::from_str(line.trim_start_matches("data: ")).expect("JSON");
            }
            last = line.trim_end().to_owned();
        }
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// A stream, which ends with the test.
struct Stream {
    child: Child,
    from: BufReader<std::process::ChildStdout>,
}

impl Stream {
    fn open(url: &str, token: &str) -> Self {
        let mut command = Command::new("curl");
        command.args(["-s", "-k", "-N", "--max-time", "240", "-H", &bearer(token), url]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("curl starts");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, from }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_script_signs_in_and_is_answered_at_each_path_that_is_described() {
    let c = Cluster::start(&[]);
    c.managed();
    c.pool("p", 8);
    let d = Dashboard::open(&c);
    assert!(d.url.starts_with("http://127.0.0.1:"), "{}", d.url);
    let (status, head, token) = d.sign_in("once", &d.code);
    assert_eq!(status, 201);
    let port = d.url.rsplit(':').next().expect("a port");
    assert!(head.contains(&format!("set-cookie: token-{port}=")), "{head}");
    assert_eq!(d.sign_in("once", &d.code).0, 400, "once");
    every_path_answers(&d, &token);
    users_see_what_their_roles_allow(&d);
    wrong_passwords_lock_out(&d);
    over_tls(&c, d);
}

fn every_path_answers(d: &Dashboard<'_>, token: &str) {
    let (_, api) = d.get("/openapi.json", None);
    let paths = api["paths"].as_object().expect("paths");
    assert!(paths.len() > 10);
    for path in paths.keys().filter(|path| paths[*path].get("get").is_some()) {
        assert_eq!(d.get(path, None).0, 401, "{path} without a session");
        if path != "/api/live" {
            let (status, said) = d.get(path, Some(token));
            assert!(status == 200 && !said.is_null(), "{path}: {status} {said}");
        }
    }
    let figures = d.figures(token);
    assert_eq!((&figures["osds"]["up"], &figures["pools"]), (&json!(3), &json!(1)), "{figures}");
    assert_eq!(d.get("/api/nothing", Some(token)).0, 404);
    assert!(d.ask("/", &[]).1.contains("content-security-policy: default-src 'none'"));
    let (_, _, said) = d.post("/api/auth/check", Some(token), &Value::Null);
    assert_eq!(said["username"], "once");
    assert_eq!(d.post("/api/auth/logout", Some(token), &Value::Null).0, 200);
    assert_eq!(d.get("/api/osd", Some(token)).0, 401, "signed out");
}

fn users_see_what_their_roles_allow(d: &Dashboard<'_>) {
    d.user(&["ac-user-create", "ann", "read-only"]);
    d.user(&["ac-user-create", "bob", "pool-manager"]);
    d.user(&["ac-user-create", "eve", "read-only", "--pwd_update_required"]);
    let (ann, bob, eve) = (d.signed_in("ann"), d.signed_in("bob"), d.signed_in("eve"));
    let statuses = |path: &str| [&ann, &bob, &eve].map(|token| d.get(path, Some(token)).0);
    assert_eq!(statuses("/api/osd"), [200, 403, 403]);
    assert_eq!(statuses("/api/pool?stats=true"), [200, 200, 403]);
    assert_eq!(statuses("/api/health/minimal"), [200, 200, 403]);
    assert_eq!(statuses("/api/view/tasks"), [200, 200, 403]);
    assert_eq!(d.get("/api/live", Some(&eve)).0, 403, "not before the password is another one");
    let figures = d.figures(&bob);
    assert!(figures["pools"] == 1 && figures.get("osds").is_none(), "{figures}");
    d.user(&["ac-user-set-password", "eve"]);
    assert_eq!(statuses("/api/osd"), [200, 403, 401], "a session ends with the password");
    assert_eq!(d.get("/api/osd", Some(&d.signed_in("eve"))).0, 200);
    let said = d.c.fails("ceph", &["dashboard", "ac-user-create", "once", "-i", "password", "read-only"]).1;
    assert!(said.contains("no user has it"), "{said}");
}

fn wrong_passwords_lock_out(d: &Dashboard<'_>) {
    let ann = d.signed_in("ann");
    let mut answers = (0..10).map(|n| d.sign_in("ann", &format!("guess-{n}")));
    let (_, head, _) = answers.find(|(status, ..)| *status == 429).expect("a pause");
    let wait = head.lines().find_map(|l| l.strip_prefix("retry-after: ")).expect("how long it is");
    assert!(wait.trim().parse::<u64>().is_ok_and(|s| s > 0), "{wait}");
    assert_eq!(d.get("/api/osd", Some(&ann)).0, 200, "whoever is signed in stays so");
    assert_eq!(d.signed_in("bob").len(), ann.len(), "others sign in");
}

fn over_tls(c: &Cluster, d: Dashboard<'_>) {
    let (port, bob) = (mon_port(), d.signed_in("bob"));
    let said = c.fails("ceph", &["config", "set", "mgr", "mgr/dashboard/ssl", "perhaps"]).1;
    assert!(said.contains("auto") && said.contains("perhaps"), "{said}");
    c.ceph(&format!("config set mgr mgr/dashboard/ssl_server_port {port}"));
    c.ceph("config set mgr mgr/dashboard/ssl true");
    let url = format!("https://127.0.0.1:{port}");
    until("the dashboard over TLS", || answer(c, "mgr services")["dashboard"] == format!("{url}/"));
    let d = Dashboard { url, ..d };
    assert_eq!(d.get("/api/pool", Some(&bob)).0, 401, "a session of before");
    let (status, head, bob) = d.sign_in("bob", PASSWORD);
    assert!(status == 201 && head.contains("; secure"), "{head}");
    assert_eq!(d.get("/api/pool", Some(&bob)).0, 200);
    assert!(d.ask("/", &[]).1.contains("strict-transport-security:"));
    // No program that looks at certificates takes this one.
    let (code, _) = c.fails("curl", &["-s", &d.url]);
    assert_eq!(code, 60, "curl's number for a certificate that nobody vouches for");
    c.fails("curl", &["-s", &d.url.replace("https", "http")]);
}
