//! Recorded maps, and the real tools to compare with.

pub mod random_map;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use codec::Decode;
use maps::{Incremental, OsdMap};
use types::{Fsid, Utime};

/// Full maps that were recorded: series and epoch.
pub const RECORDED: [(u32, u32); 4] = [(1, 50), (1, 106), (2, 31), (2, 45)];

pub fn data(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn text(name: &str) -> String {
    String::from_utf8(data(name)).expect("UTF-8")
}

/// The increments of a recorded cluster, from epoch 1 on: a u32 length before each.
pub fn chain(series: u32) -> Vec<Vec<u8>> {
    let all = data(&format!("chain{series}.bin"));
    let (mut rest, mut out) = (all.as_slice(), Vec::new());
    while let Some((len, tail)) = rest.split_first_chunk::<4>() {
        let (inc, tail) = tail.split_at(u32::from_le_bytes(*len) as usize);
        out.push(inc.to_vec());
        rest = tail;
    }
    out
}

pub fn recorded(series: u32, epoch: u32) -> OsdMap {
    let bytes = data(&format!("osdmap-{series}-{epoch}.bin"));
    OsdMap::from_bytes(bytes).expect("a real map")
}

/// The recorded cluster's map at `epoch`, made from its increments.
pub fn replay(series: u32, epoch: u32) -> OsdMap {
    let mut map = OsdMap::before_first(Fsid::default(), Utime::ZERO);
    for bytes in chain(series).into_iter().take(epoch as usize) {
        map.apply(&Incremental::from_bytes(bytes).expect("a real increment")).expect("applies");
    }
    map
}

/// Whether a real tool is there. Set LOLIGO_REQUIRE_PEERS=1 to fail without it.
pub fn have(tool: &str) -> bool {
    let run = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = run.is_ok();
    assert!(found || std::env::var_os("LOLIGO_REQUIRE_PEERS").is_none(), "{tool} is not installed");
    if !found {
        eprintln!("not compared with {tool}: it is not installed");
    }
    found
}

/// Standard output of a real tool that must succeed.
pub fn run(tool: &str, args: &[&str]) -> Vec<u8> {
    let out = Command::new(tool).args(args).output().unwrap_or_else(|e| panic!("{tool}: {e}"));
    assert!(out.status.success(), "{tool} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// Marsaglia's xorshift64*: the tests' only source of chance.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// From 0 up to and without `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
