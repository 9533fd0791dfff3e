//! Random changes of one file through two mounts, against a model: either reads what was written last.

use bytes::Bytes;
use cephfs::{Answer, Call, Handle, Node};
use cephfsio::Mount;
use messages::fs::{Caps, OpenArgs, SetAttr};

use crate::setup::{Bed, content, create, with_folder};

/// Steps, without `LOLIGO_FILE_STEPS`; the seed is that of `LOLIGO_FILE_SEED`.
const STEPS: u64 = 300;
/// Beyond one object.
const MAX_SIZE: u64 = 9 << 20;
const MAX_LENGTH: u64 = 200_000;

/// A generator with a seed: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % n
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The file as it has to be.
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        self.0.resize(self.0.len().max(end), 0);
        self.0[offset..end].copy_from_slice(data);
    }

    fn read(&self, offset: usize, length: usize) -> &[u8] {
        &self.0[offset.min(self.0.len())..(offset + length).min(self.0.len())]
    }
}

/// One of the two clients.
struct Side<'a> {
    mount: &'a Mount,
    node: Node,
    handle: Handle,
}

impl Side<'_> {
    async fn step(&mut self, r: &mut Random, step: u64, model: &mut Model) -> String {
        let (offset, length) = (r.below(MAX_SIZE - MAX_LENGTH), r.below(MAX_LENGTH) + 1);
        match r.below(8) {
            0 | 1 => {
                let data = content(step as usize, length as usize);
                self.mount.write(self.handle, offset, data.clone()).await.expect("written");
                model.write(offset as usize, &data);
                format!("write {offset} {length}")
            }
            2 => {
                let data = content(step as usize, length as usize);
                let append = Call::Write { handle: self.handle, offset: None, data: data.clone() };
                assert_eq!(self.mount.call(append).await.expect("appended"), Answer::Written(length));
                model.write(model.0.len(), &data);
                format!("append {length}")
            }
            3 => {
                let set = SetAttr { size: offset, mask: SetAttr::SIZE, ..SetAttr::default() };
                self.mount.attr(Call::SetAttr { node: self.node, set }).await.expect("truncated");
                model.0.resize(offset as usize, 0);
                format!("truncate {offset}")
            }
            4 => {
                self.mount.call(Call::Fsync { handle: self.handle }).await.expect("safe");
                self.mount.call(Call::Close { handle: self.handle }).await.expect("closed");
                let open = Call::Open { node: self.node, flags: OpenArgs::RDWR };
                self.handle = self.mount.open(open).await.expect("opens").0;
                "open anew".to_owned()
            }
            5 => {
                let ask = Call::GetAttr { node: self.node, mask: Caps::ALL_SHARED };
                assert_eq!(self.mount.attr(ask).await.expect("asked").size, model.0.len() as u64);
                "stat".to_owned()
            }
            _ => {
                let read = self.mount.read(self.handle, offset, length).await.expect("read");
                let want = model.read(offset as usize, length as usize);
                let first = read.iter().zip(want).position(|(a, b)| a != b);
                assert_eq!((read.len(), first), (want.len(), None), "read {offset} {length}");
                format!("read {offset} {length}")
            }
        }
    }
}

#[test]
fn random_changes_through_two_mounts_are_those_of_a_model() {
    let (seed, steps) = (setting("LOLIGO_FILE_SEED", 1), setting("LOLIGO_FILE_STEPS", STEPS));
    with_folder("random", async |bed| {
        let Bed { mount, dir, path, .. } = bed;
        let second = bed.mount_again().await;
        let (handle, file) = create(mount, *dir, "file").await;
        let there = second.walk(&format!("{path}/file")).await.expect("there").node;
        let (theirs, _) =
            second.open(Call::Open { node: there, flags: OpenArgs::RDWR }).await.expect("opens");
        let first = Side { mount, node: file.node, handle };
        let mut sides = [first, Side { mount: &second, node: there, handle: theirs }];
        let (mut r, mut model) = (Random(seed.max(1) * 0x9e37_79b9), Model(Vec::new()));
        for step in 0..steps {
            let side = r.below(2) as usize;
            let did = sides[side].step(&mut r, step, &mut model).await;
            // Shown when the test fails.
            println!("seed {seed} step {step} mount {side}: {did}");
        }
        for side in &sides {
            let all: Bytes = side.mount.read_to_end(side.handle).await.expect("read");
            assert!(all == model.0, "the whole file");
            side.mount.call(Call::Close { handle: side.handle }).await.expect("closed");
        }
        second.unmount().await.expect("unmounts");
    });
}
