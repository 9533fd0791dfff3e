//! How many inputs per second a CRUSH map places, for a comparison with `crushtool --test` on the same map:
//!
//!   crushtool -o map --build --num_osds 504 host straw2 8 rack straw2 7 root straw2 0
//!   cargo run --release -p crush --example speed -- map 1000000
//!   time crushtool -i map --test --rule 0 --num-rep 3 --min-x 0 --max-x 999999
//!
//! The sum of all results is printed, so that nothing is left out of the work.

use std::time::Instant;

use codec::Decode;
use crush::{CrushMap, Scratch};

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a compiled map");
    let inputs: u32 = args.next().map_or(1_000_000, |n| n.parse().expect("a number"));
    let map = CrushMap::from_bytes(std::fs::read(path).expect("readable")).expect("a compiled map");
    let weights = vec![0x10000; map.max_devices as usize];
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    let (start, mut sum) = (Instant::now(), 0u64);
    for x in 0..inputs {
        map.do_rule_into(0, x as i32, 3, &weights, None, &mut scratch, &mut out);
        sum += out.iter().map(|osd| *osd as u64).sum::<u64>();
    }
    let took = start.elapsed();
    println!(
        "{inputs} inputs in {took:.2?}: {:.0} per second; sum {sum}",
        f64::from(inputs) / took.as_secs_f64()
    );
}
