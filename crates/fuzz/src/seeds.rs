//! Valid inputs to start from, and mutations of them.

use codec::Encode;
use types::{Entropy, SeededEntropy};

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
        "crush_map" => vec![crush::CrushMap::default().to_bytes().to_vec()],
        "crush_text" => text(&[
            "tunable choose_total_tries 50\ndevice 0 osd.0\ntype 0 osd\ntype 1 root\nroot default {\n id -1\n alg straw2\n hash 0\n item osd.0 weight 1.0\n}\n",
        ]),
        "monmap" => {
            vec![maps::MonMap::new(types::Fsid([1; 16]), types::Utime::new(1, 0), []).to_bytes().to_vec()]
        }
        "osdmap" => vec![maps::OsdMap::default().to_bytes().to_vec()],
        "incremental" => vec![
            maps::Incremental::after(&maps::OsdMap::default(), types::Utime::new(1, 0)).to_bytes().to_vec(),
        ],
        "mgrmap" => vec![maps::MgrMap::default().to_bytes().to_vec()],
        "keyring" => text(&[
            "[client.admin]\n\tkey = AQDk9bdhAAAAABAAT0pF0rgAXkyA3I9yBzgeQA==\n\tcaps mon = \"allow *\"\n",
        ]),
        "mon_cap" => text(&[
            "allow *",
            "allow profile osd",
            "allow command \"osd pool create\" with pool=p",
            "allow service mon r network 10.0.0.0/8",
        ]),
        "osd_cap" => text(&[
            "allow rwx pool=p namespace=n*",
            "profile rbd pool=a",
            "allow class-read object_prefix rbd_",
            "allow rw tag cephfs data=fs",
        ]),
        "mgr_cap" => {
            text(&["allow *", "allow profile osd", "allow module balancer r", "allow command \"osd df\""])
        }
        "command" => text(&[
            "{\"prefix\": \"osd pool create\", \"pool\": \"p\", \"pg_num\": 8, \"x\": [1, 2], \"y\": null}",
        ]),
        "class_method" => class_calls(),
        "quorum_message" => crate::mons::quorum_seeds(),
        "mon_store" => crate::mons::store_seeds(),
        "mon_peer" => crate::mons::peer_seeds(),
        _ => vec![vec![0; 64], (0..=255).collect(), connection_seed()],
    }
}

/// Every method of every class with an input of numbers and with one in an envelope.
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
    out
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
