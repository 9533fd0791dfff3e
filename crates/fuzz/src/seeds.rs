//! Valid inputs to start from, and mutations of them.

use codec::Encode;
use types::{Entropy, SeededEntropy};

use crate::recorded;

/// Valid inputs of a target.
pub fn seeds_of(target: &str) -> Vec<Vec<u8>> {
    let text = |lines: &[&str]| lines.iter().map(|l| l.as_bytes().to_vec()).collect::<Vec<_>>();
    match target {
        "addr" => {
            let a =
                types::EntityAddr::parse("v2:127.0.0.1:3300/7", types::AddrKind::Msgr2).unwrap_or_default();
            vec![types::AddrVec(vec![a, a]).to_bytes().to_vec()]
        }
        "hobject" => {
            vec![types::HObject::max().to_bytes().to_vec(), types::HObject::min().to_bytes().to_vec()]
        }
        "crush_map" => recorded::files("crush", "golden", "", ".bin"),
        "crush_text" => recorded::files("crush", "golden", "", ".txt"),
        "monmap" => recorded::files("maps", "", "monmap", ".bin"),
        "osdmap" => recorded::files("maps", "", "osdmap", ".bin"),
        "incremental" => increments(),
        "mgrmap" => recorded::files("maps", "", "mgrmap", ".bin"),
        "message" => recorded::messages().iter().map(recorded::Captured::input).collect(),
        "osd_op" => osd_ops(),
        "frames" => crate::frames::seeds(),
        "sealed_frames" => crate::frames::sealed_seeds(),
        "replies" => crate::replies::replies_seeds(),
        "output" => crate::replies::output_seeds(),
        "ticket" => recorded::handshakes("osd_"),
        "login" | "login_client" | "authorizer" => crate::logins::seeds_of(target),
        "superblock" | "record" | "page" => crate::medium::seeds_of(target),
        "cap_use" => crate::given::cap_use_seeds(),
        "option" => crate::given::option_seeds(),
        "admin_socket" => crate::given::admin_socket_seeds(),
        "nbd" => crate::given::nbd_seeds(),
        "pg_part" => crate::groups::pg_part_seeds(),
        "pg_message" => crate::groups::pg_message_seeds(),
        "mon_state" => crate::groups::mon_state_seeds(&crate::mons::blank()),
        "keyring" => text(&[
            "[client.admin]\n\tkey = AQDk9bdhAAAAABAAT0pF0rgAXkyA3I9yBzgeQA==\n\tcaps mon = \"allow *\"\n",
        ]),
        "mon_cap" => recorded::caps("mon"),
        "osd_cap" => recorded::caps("osd"),
        "mgr_cap" => recorded::caps("mgr"),
        "command" => recorded::commands(),
        "class_method" => class_calls(),
        "class_object" => crate::methods::seeds(),
        "quorum_message" => crate::mons::quorum_seeds(),
        "mon_store" => crate::mons::store_seeds(),
        "mon_peer" => crate::mons::peer_seeds(),
        "mon_commands" => crate::commands::mon_commands_seeds(),
        "mon_arguments" => crate::commands::mon_arguments_seeds(),
        "mgr_arguments" => crate::crashes::mgr_arguments_seeds(),
        "crash_report" => crate::crashes::crash_report_seeds(),
        "conf" => crate::given::conf_seeds(),
        "rbd_header" | "rbd_stored" | "rbd_part" | "rbd_diff" => crate::images::seeds_of(target),
        "rgw_stored" | "rgw_manifest" | "rgw_names" | "rgw_policy" => crate::gateway::seeds_of(target),
        "osd_requests" => crate::osds::seeds(),
        _ => vec![vec![0; 64], (0..=255).collect(), connection_seed()],
    }
}

/// Every method of every class with an input of numbers and with one in an envelope; then the recorded calls.
fn class_calls() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (c, class) in classes::CLASSES.iter().enumerate() {
        for (m, _) in class.methods.iter().enumerate() {
            let numbers = [1u64.to_le_bytes(), 2u64.to_le_bytes(), 1u64.to_le_bytes()].concat();
            let envelope = [&[1, 1, 24, 0, 0, 0][..], &numbers].concat();
            for (holds, input) in [(7, numbers), (6, envelope)] {
                out.push([&[c as u8, m as u8, holds][..], &input].concat());
            }
        }
    }
    let place = |class: &str, method: &str| {
        let c = classes::CLASSES.iter().position(|c| c.name == class)?;
        Some([c as u8, classes::CLASSES[c].methods.iter().position(|m| m.name == method)? as u8])
    };
    for (i, (class, method, input)) in recorded::calls().iter().enumerate() {
        if let Some([c, m]) = place(class, method) {
            out.push([&[c, m, i as u8 % 16][..], input].concat());
        }
    }
    // Entries of a bucket index, under the keys of entries.
    for method in ["bucket_check_index", "bucket_rebuild_index", "bi_log_stop", "dir_suggest_changes"] {
        for (i, value) in recorded::index_values().iter().enumerate() {
            if let Some([c, m]) = place("rgw", method) {
                let op = if method == "dir_suggest_changes" { &b"u"[..] } else { b"" };
                out.push([&[c, m, 2 + (i as u8 & 4)][..], op, value].concat());
            }
        }
    }
    // What methods stored, before one method and another.
    for (i, value) in recorded::class_values().iter().enumerate() {
        out.push([&[i as u8, (i >> 3) as u8, 6][..], value].concat());
    }
    out
}

/// The increments of a recorded cluster: each behind its length.
fn increments() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for chain in recorded::files("maps", "", "chain", ".bin") {
        let mut rest = &chain[..];
        while let Some((len, body)) = rest.split_first_chunk::<4>() {
            let (one, more) = body.split_at((u32::from_le_bytes(*len) as usize).min(body.len()));
            out.push(one.to_vec());
            rest = more;
        }
    }
    out
}

/// The operations in recorded requests.
pub(crate) fn recorded_ops() -> Vec<messages::osd::OsdOp> {
    let requests = recorded::messages().into_iter().filter(|m| m.ty == messages::type_numbers::OSD_OP);
    let ops = |request: recorded::Captured| match messages::Message::decode(&request.wire()) {
        Ok(messages::Message::OsdOp(decoded)) => decoded.ops,
        _ => Vec::new(),
    };
    requests.flat_map(ops).collect()
}

fn osd_ops() -> Vec<Vec<u8>> {
    recorded_ops().iter().map(|op| [&op.code.0.to_le_bytes()[..], &op.arg, &op.indata].concat()).collect()
}

/// A banner, so that the frames behind it are reached.
fn connection_seed() -> Vec<u8> {
    let mut out = b"ceph v2\n".to_vec();
    out.extend(16u16.to_le_bytes());
    out.extend(1u64.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend([0; 96]);
    out
}

/// Mutates seeds: flips, cuts, repeats, splices, interesting numbers.
pub struct Mutator {
    rng: SeededEntropy,
}

impl Mutator {
    pub fn new(seed: u64) -> Self {
        Self { rng: SeededEntropy(seed) }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.rng.next_u64() % bound.max(1) as u64) as usize
    }

    pub fn next(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let pick = self.below(seeds.len());
        let mut data = seeds.get(pick).cloned().unwrap_or_default();
        for _ in 0..=self.below(6) {
            self.mutate(&mut data);
        }
        data.truncate(1 << 16);
        data
    }

    fn mutate(&mut self, data: &mut Vec<u8>) {
        let at = self.below(data.len());
        match self.below(7) {
            0 => {
                if let Some(b) = data.get_mut(at) {
                    *b ^= 1 << (self.rng.next_u64() % 8);
                }
            }
            1 => data.truncate(at),
            2 => {
                let value = [0u32, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0x1_0000][self.below(6)];
                for (slot, byte) in data.iter_mut().skip(at).zip(value.to_le_bytes()) {
                    *slot = byte;
                }
            }
            3 => {
                let mut extra = vec![0u8; self.below(40)];
                self.rng.fill(&mut extra);
                data.splice(at..at, extra);
            }
            4 => {
                let part: Vec<u8> = data.iter().skip(at).take(64).copied().collect();
                data.extend(part);
            }
            5 => {
                if let Some(b) = data.get_mut(at) {
                    *b = self.rng.next_u64() as u8;
                }
            }
            _ => {
                let end = (at + self.below(32)).min(data.len());
                data.drain(at.min(end)..end);
            }
        }
    }
}
