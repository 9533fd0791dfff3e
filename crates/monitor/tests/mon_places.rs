//! Commands on monitors that are in the map. Answers are those that a monitor of Ceph 16.2.15 gave, where no
//! comment says otherwise.

use crate::common;

use common::World;

/// A command's words, the code and the status line of its answer.
const ANSWERS: &[(&str, i32, &str)] = &[
    (r#""prefix":"mon enable-msgr2""#, 0, ""),
    (r#""prefix":"mon set-weight","name":"a","weight":7"#, 0, ""),
    (r#""prefix":"mon set-weight","name":"zz","weight":7"#, -2, "mon.zz does not exist"),
    (r#""prefix":"mon set-rank","name":"a","rank":0"#, 0, ""),
    // Ceph answers 0 and does nothing.
    (r#""prefix":"mon set-rank","name":"a","rank":5"#, -22, "there is no rank 5: the map has 1 monitors"),
    (r#""prefix":"mon set-rank","name":"a","rank":-1"#, -22, "there is no rank -1: the map has 1 monitors"),
    (r#""prefix":"mon set-rank","name":"zz","rank":0"#, -2, "mon.zz does not exist in monmap"),
    (
        r#""prefix":"mon feature set","feature_name":"luminous""#,
        -1,
        "please specify '--yes-i-really-mean-it' if you really, **really** want to set feature \
         'mon_feature_t([luminous])' in the monmap.",
    ),
    (
        r#""prefix":"mon feature set","feature_name":"luminous","yes_i_really_mean_it":true"#,
        0,
        "setting feature 'mon_feature_t([luminous])'",
    ),
    (r#""prefix":"mon feature set","feature_name":"nope""#, -2, "unknown feature 'nope'"),
    (r#""prefix":"mon set election_strategy","strategy":"classic""#, 0, ""),
    // Ceph says nothing.
    (
        r#""prefix":"mon set election_strategy","strategy":"what""#,
        -22,
        "'what' is no strategy: classic, disallow or connectivity",
    ),
    // Ceph does it.
    (
        r#""prefix":"mon set election_strategy","strategy":"connectivity""#,
        -95,
        "these monitors elect by their log: only 'classic' is served",
    ),
    (
        r#""prefix":"mon add disallowed_leader","name":"a""#,
        -22,
        "You cannot disallow monitors in your current election mode",
    ),
    (
        r#""prefix":"mon rm disallowed_leader","name":"a""#,
        -22,
        "You cannot disallow monitors in your current election mode",
    ),
    (r#""prefix":"mon set_location","name":"a","args":["datacenter=x"]"#, 0, ""),
    (
        r#""prefix":"mon set_location","name":"a","args":["foo"]"#,
        -22,
        "We could not parse your input location to anything real; [foo] turned into an empty map!",
    ),
    (r#""prefix":"mon set_location","name":"zz","args":["datacenter=x"]"#, -2, "mon.zz does not exist"),
    (
        r#""prefix":"mon add","name":"b","addr":"127.0.0.9","location":["foo"]"#,
        -22,
        "We could not parse your input location to anything real; [foo] turned into an empty map!",
    ),
];

#[test]
fn answers_are_those_of_ceph() {
    let mut w = World::new();
    let admin = w.admin();
    let name = w.mon.state().monmap.ranks[0].clone();
    for (words, code, outs) in ANSWERS {
        let words = words.replace(r#""name":"a""#, &format!(r#""name":"{name}""#));
        let answer = w.command(admin, &format!("{{{words}}}"));
        assert_eq!((answer.0, answer.1.as_str()), (*code, *outs), "{words}");
    }
    let map = &w.mon.state().monmap;
    let info = &map.mons[&name];
    assert_eq!((map.epoch.0, info.weight), (3, 7), "a weight and a location, and nothing else");
    assert_eq!(info.crush_loc.get("datacenter").map(String::as_str), Some("x"));
}

#[test]
fn addresses_are_looked_at_before_they_are_taken() {
    let mut w = World::new();
    let admin = w.admin();
    let name = w.mon.state().monmap.ranks[0].clone();
    let mut set = |name: &str, addrs: &str| {
        let words = format!(r#"{{"prefix":"mon set-addrs","name":"{name}","addrs":"{addrs}"}}"#);
        let (code, outs, _) = w.command(admin, &words);
        (code, outs)
    };
    let refused = |why: &str| (-22, why.to_owned());
    assert_eq!(set("zz", "1.2.3.4"), (-2, "mon.zz does not exist".to_owned()));
    assert_eq!(set(&name, "what"), refused("failed to parse addrs 'what'"));
    let no_port = refused("monitor must bind to a non-zero port, not v2:1.2.3.4:0/0");
    assert_eq!(set(&name, "v2:1.2.3.4:0"), no_port);
    // Ceph takes these.
    assert_eq!(set(&name, "v1:1.2.3.4:6789"), refused("only v2 is spoken here, not v1:1.2.3.4:6789/0"));
    assert!(set(&name, "v2:0.0.0.0:3300").1.starts_with("nobody can reach"));
    let (code, text) = set(&name, "[v2:1.2.3.4:3300/0,v1:1.2.3.4:6789/0]");
    assert!(code == -16 && text.contains("start it with its new address"), "{text}");
    assert_eq!(w.mon.state().monmap.epoch.0, 1, "nothing was changed");
}
