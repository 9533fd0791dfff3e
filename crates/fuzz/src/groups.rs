//! What OSDs say to each other about PGs and store of them, and what monitors hold as their state.

use bytes::Bytes;
use codec::{Decode, Encode};
use messages::Message;
use messages::wire::{Header, WireMessage};
use monitor::state::Change;

use crate::recorded::unhex;

/// One byte says which structure the rest is.
pub(crate) fn pg_part(data: &[u8]) {
    fn comes_back<T: Decode + Encode + PartialEq + std::fmt::Debug>(raw: Bytes) {
        if let Ok(value) = T::from_bytes(raw) {
            assert_eq!(T::from_bytes(value.to_bytes()).as_ref(), Ok(&value), "it comes back as it went");
        }
    }
    let Some((kind, rest)) = data.split_first() else { return };
    let raw = Bytes::copy_from_slice(rest);
    match kind % 9 {
        0 => comes_back::<pg::LogEntry>(raw),
        1 => comes_back::<pg::PgInfo>(raw),
        2 => comes_back::<pg::PgHistory>(raw),
        3 => comes_back::<pg::PastIntervals>(raw),
        4 => comes_back::<pg::LogPart>(raw),
        5 => comes_back::<pg::DupEntry>(raw),
        6 => comes_back::<pg::object::ObjectInfo>(raw),
        7 => comes_back::<pg::object::SnapSet>(raw),
        _ => comes_back::<pg::MissingItem>(raw),
    }
}

pub(crate) fn pg_part_seeds() -> Vec<Vec<u8>> {
    let info = pg::PgInfo::new(types::PgId::new(types::PoolId(1), 2));
    let parts: [(u8, Bytes); 4] = [
        (1, info.to_bytes()),
        (2, pg::PgHistory::default().to_bytes()),
        (3, pg::PastIntervals::default().to_bytes()),
        (4, pg::LogPart::default().to_bytes()),
    ];
    // The bodies of messages hold all of the structures: each is tried as each.
    let of_bodies =
        pg_bodies().into_iter().flat_map(|(front, _)| (0..9).map(move |kind| (kind, front.clone())));
    let all = parts
        .into_iter()
        .chain(of_bodies.map(|(kind, front)| (kind, front.get(25..).unwrap_or_default().to_vec().into())));
    all.map(|(kind, raw)| [&[kind][..], &raw].concat()).collect()
}

/// A message of the number that PGs talk under: the length of its front in four bytes; then front and data.
pub(crate) fn pg_message(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk::<4>() else { return };
    let (front, body) = rest.split_at(rest.len().min(u32::from_le_bytes(*len) as usize));
    let header = Header {
        ty: messages::type_numbers::OURS + 0x40,
        version: 2,
        compat_version: 2,
        ..Header::default()
    };
    let (front, data) = (Bytes::copy_from_slice(front), Bytes::copy_from_slice(body));
    let wire = WireMessage { header, front, data, ..WireMessage::default() };
    // A long body goes in the data, and the middle says how long it is.
    let in_data = WireMessage {
        front: wire.front.slice(..wire.front.len().min(25)),
        middle: (body.len() as u64).to_bytes(),
        ..wire.clone()
    };
    for wire in [wire, in_data] {
        if let Ok(message) = Message::decode(&wire) {
            let _ = pg::OsdCore::describe_message(&message);
        }
    }
}

/// One of each body, front and data, as hexadecimal lines.
fn pg_bodies() -> Vec<(Vec<u8>, Vec<u8>)> {
    let lines: Vec<&str> = include_str!("pg_bodies.hex").lines().filter(|l| !l.starts_with('#')).collect();
    lines.chunks_exact(2).map(|pair| (unhex(pair[0]), unhex(pair[1]))).collect()
}

pub(crate) fn pg_message_seeds() -> Vec<Vec<u8>> {
    let one =
        |(front, data): (Vec<u8>, Vec<u8>)| [&(front.len() as u32).to_le_bytes()[..], &front, &data].concat();
    pg_bodies().into_iter().map(one).collect()
}

/// One byte says which structure of a monitor's the rest is.
pub(crate) fn mon_state(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let raw = Bytes::copy_from_slice(rest);
    match kind % 6 {
        0 => drop(monitor::state::State::from_bytes(raw)),
        1 => drop(Change::from_bytes(raw)),
        2 => drop(monitor::state::ConfigDb::from_bytes(raw)),
        3 => drop(monitor::state::ClusterLog::from_bytes(raw)),
        4 => drop(maps::FsMap::from_bytes(raw)),
        _ => drop(maps::ServiceMap::from_bytes(raw)),
    }
}

pub(crate) fn mon_state_seeds(blank: &Bytes) -> Vec<Vec<u8>> {
    let kind = |n: u8, raw: &[u8]| [&[n][..], raw].concat();
    let mut out = vec![
        kind(0, blank),
        kind(2, &monitor::state::ConfigDb::default().to_bytes()),
        kind(3, &monitor::state::ClusterLog::default().to_bytes()),
    ];
    out.extend(crate::recorded::files("maps", "", "fsmap", ".bin").iter().map(|raw| kind(4, raw)));
    out.extend(crate::recorded::files("maps", "", "servicemap", ".bin").iter().map(|raw| kind(5, raw)));
    let changes = [
        Change::MonMap(Bytes::from_static(b"map")),
        Change::TrimOsdMaps(types::Epoch(3)),
        Change::OsdMetadata(2, Some([("a".to_owned(), "b".to_owned())].into())),
        Change::AuthRemove(types::AuthName::new(types::EntityType::Client, "x")),
        Change::Kv("key".to_owned(), Some(Bytes::from_static(b"value"))),
        Change::Log(Vec::new()),
        Change::GlobalIds("a/1".to_owned(), 100),
    ];
    out.extend(changes.iter().map(|c| kind(1, &c.to_bytes())));
    out
}
