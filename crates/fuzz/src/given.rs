//! What users, clients and administrators give as text: caps in use, options, admin sockets; and NBD.

use std::collections::BTreeMap;

use cephx::{MdsCap, MgrCap, MgrRequest, MonCap, MonRequest, OsdCap, OsdRequest};
use types::{AuthName, EntityAddr, EntityType};

/// A cap of each service, asked about a request whose argument is what follows a zero byte: regular
/// expressions run.
pub(crate) fn cap_use(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (cap, value) = text.split_once('\0').unwrap_or((text, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
    let args: BTreeMap<String, String> =
        ["pool", "key", "entity", "name"].map(|k| (k.to_owned(), value.to_owned())).into();
    let (addr, name) = (EntityAddr::default(), AuthName::new(EntityType::Client, "x"));
    if let Ok(cap) = MonCap::parse(cap) {
        for command in ["", "osd pool create", "config-key get", value] {
            let (service, args, addr) = ("osd", &args, &addr);
            let want =
                MonRequest { name: &name, service, command, args, read: true, write: true, exec: true, addr };
            cap.is_capable(&want);
        }
    }
    if let Ok(cap) = MgrCap::parse(cap) {
        for command in ["osd df", value] {
            let (service, module, args, addr) = ("osd", "rbd_support", &args, &addr);
            let want =
                MgrRequest { service, module, command, args, read: true, write: true, exec: true, addr };
            cap.is_capable(&want);
        }
    }
    if let Ok(cap) = OsdCap::parse(cap) {
        let app_metadata = &Default::default();
        let (pool, namespace, object) = ("p", value, value);
        let classes = &[];
        let want = OsdRequest {
            pool,
            namespace,
            app_metadata,
            object,
            read: true,
            write: true,
            classes,
            addr: &addr,
        };
        cap.is_capable(&want);
    }
    let _ = MdsCap::parse(cap);
}

pub(crate) fn cap_use_seeds() -> Vec<Vec<u8>> {
    let regex = |pattern: &str, value: &str| {
        format!("allow command \"osd pool create\" with pool regex \"{pattern}\"\0{value}").into_bytes()
    };
    let mut out: Vec<Vec<u8>> =
        ["mon", "osd", "mgr", "mds"].iter().flat_map(|s| crate::recorded::caps(s)).collect();
    out.extend([
        regex("[a-z]+(b|c){2,3}", "abcb"),
        regex(&format!("a{}", "+".repeat(20_000)), "aaaa"),
        regex(&"(".repeat(20_000), "a"),
        regex(&format!("{}a{}", "(".repeat(9_000), ")*".repeat(9_000)), &"a".repeat(900)),
        regex("(a*)*b", &"a".repeat(9_000)),
        regex("(a|aa)*(a|aa)*(a|aa)*c", &"a".repeat(9_000)),
        regex("((a{1,99}){1,99}){1,99}", &"a".repeat(9_000)),
    ]);
    out
}

/// An option's value and a text of several: what was taken can be read, and is a number that a timer can be
/// set to.
pub(crate) fn option(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut values = admin::options::Values::new("osd.0", &BTreeMap::new());
    if let Some((name, value)) = text.split_once('=') {
        if values.set(name, value).is_ok() && admin::options::find(name).is_some_and(|o| o.kind == "float") {
            let taken = values.float(name);
            assert!(taken.is_finite() && taken.abs() <= 1e300, "{name} is {taken}");
        }
    }
    let _ = values.inject(text);
    values.set_from_mon(
        &text.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect(),
    );
    values.assert_invariants();
    let _ = admin::options::parse_span(text);
    let _ = admin::units::parse_iec(text);
    let _ = admin::units::parse_si(text);
}

pub(crate) fn option_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "mon_osd_report_timeout=nan",
        "mon_osd_report_timeout=1e308",
        "mon_osd_full_ratio=0.95",
        "osd_memory_target=4Gi",
        "mon_max_pool_pg_num=65536",
        "ms_dispatch_throttle_bytes=100Mi",
        "mon_data_avail_warn=30\nosd_heartbeat_grace=20",
        "mon_mgr_mkfs_grace=-inf",
        "public_addr=v2:10.0.0.1:3300/0",
        "fsid=00000000-0000-0000-0000-000000000001",
        "log_file=/var/log/$cluster-$name.log",
        "--osd-max-backfills 3 --debug_osd=20/5 --no_log_to_file --osd_op_queue",
        "2 weeks 3 days 1h",
        "99999999999999999999Ei",
    ];
    let mut out: Vec<Vec<u8>> = texts.iter().map(|t| t.as_bytes().to_vec()).collect();
    out.extend(admin::options::all().step_by(9).map(|o| format!("{}={}", o.name, o.default).into_bytes()));
    out
}

/// What comes over an admin socket, up to the command's arguments.
pub(crate) fn admin_socket(data: &[u8]) {
    if let admin::socket::Read::Command(json) = admin::socket::read(data) {
        let _ = admin::Args::parse(&[json]);
    }
}

pub(crate) fn admin_socket_seeds() -> Vec<Vec<u8>> {
    let line = |text: &str| [text.as_bytes(), b"\0"].concat();
    vec![
        line(r#"{"prefix":"config set","var":"debug_osd","val":["20"]}"#),
        line("perf dump"),
        b"0\n".to_vec(),
        vec![0, 0, 0, 1],
        line(&format!("{{\"prefix\":{}1{}}}", "[".repeat(30_000), "]".repeat(30_000))),
        line(&format!("{{\"prefix\":\"{}\"}}", "\\u0000".repeat(9_000))),
    ]
}

/// A client's bytes to an NBD server with one image.
pub(crate) fn nbd(data: &[u8]) {
    let export = nbd::Export {
        name: "image".to_owned(),
        description: "an image".to_owned(),
        size: 1 << 30,
        read_only: false,
        multi_conn: true,
        preferred_block: 4096,
    };
    let (mut session, _) = nbd::Session::new(vec![export]);
    for piece in data.chunks(1000) {
        session.input().extend_from_slice(piece);
        while let Some(event) = session.next_event() {
            if let nbd::Event::Request(request) = event {
                let replies = session.replies();
                let _ = replies.error(request.cookie, nbd::NbdError::Io);
            }
        }
        assert!(session.payload_to_come() <= nbd::MAX_PAYLOAD as usize, "the shell makes room for it");
    }
}

pub(crate) fn nbd_seeds() -> Vec<Vec<u8>> {
    let option = |number: u32, body: &[u8]| {
        [b"IHAVEOPT".as_slice(), &number.to_be_bytes(), &(body.len() as u32).to_be_bytes(), body].concat()
    };
    let named = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let meta = [named("image"), 1u32.to_be_bytes().to_vec(), named("base:allocation")].concat();
    let go = [named("image"), vec![0, 2, 0, 0, 0, 3]].concat();
    let request = |kind: u16, offset: u64, len: u32| {
        let head = [0x2560_9513u32.to_be_bytes().to_vec(), vec![0, 0], kind.to_be_bytes().to_vec()].concat();
        [&head[..], &[9; 8], &offset.to_be_bytes(), &len.to_be_bytes()].concat()
    };
    let flags = vec![0, 0, 0, 3];
    let requests = [
        request(0, 4096, 512),
        request(1, 0, 4),
        b"data".to_vec(),
        request(7, 0, 1 << 20),
        request(6, 0, u32::MAX),
        request(3, 0, 0),
        request(2, 0, 0),
    ]
    .concat();
    vec![
        [flags.clone(), option(8, &[]), option(10, &meta), option(7, &go), requests.clone()].concat(),
        [flags.clone(), option(3, &[]), option(9, &meta), option(6, &go), option(1, b"image"), requests]
            .concat(),
        [flags, option(2, &[])].concat(),
    ]
}

/// A configuration file, and the list of monitors in it as numbers.
pub(crate) fn conf(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(conf) = rados::Conf::parse(text) else { return };
    for (kind, id) in [("client", "admin"), ("osd", "0"), ("mon", "")] {
        let options = conf.for_daemon(kind, id);
        assert!(options.keys().all(|name| conf.names().any(|n| n == name)), "names are of the file");
        admin::options::Values::new(format!("{kind}.{id}"), &options).assert_invariants();
    }
}

pub(crate) fn conf_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "[global]\nfsid = 4a9b\nmon host = [v2:127.0.0.1:40789/0,v1:127.0.0.1:40790/0]\nauth cluster required = cephx\n\
         keyring = /tmp/$cluster/keyring\n[mon.a]\n\tmon data = \"/var/lib # not a comment\" ; one\n[osd]\nosd memory target = 4Gi\n",
        "log_file = /var/log/\\\n$name.log\n[ client.admin ]\nms_mode=secure crc # comment\n; more\nrados-osd--op timeout=3\n",
        "[osd.0]\nosd_max_backfills = 3\n[osd.0]\nosd max backfills = 4\\\\\n",
    ];
    texts.iter().map(|t| t.as_bytes().to_vec()).collect()
}
