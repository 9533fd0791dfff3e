//! Every target on its seeds and on seeded mutations of them: no panic, and memory and time within the
//! budget.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fuzz::{Mutator, TARGETS, Target, seeds_of};

/// Inputs of a decoder in the short run; LOLIGO_FUZZ_RUNS makes it longer.
fn runs() -> u64 {
    number("LOLIGO_FUZZ_RUNS").unwrap_or(2_000)
}

/// Of the mutations; LOLIGO_FUZZ_SEED makes others.
fn seed() -> u64 {
    number("LOLIGO_FUZZ_SEED").unwrap_or(0x10_1190)
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable} is no number: '{value}'")))
}

/// What this thread has run, wherever the machine's other work lets it.
fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn hex(data: &[u8]) -> String {
    data.iter().take(4096).map(|b| format!("{b:02x}")).collect()
}

/// Why this input is a finding.
fn judge(target: &Target, data: &[u8]) -> Result<(), String> {
    let mut took = Duration::ZERO;
    let mut ended = Ok(());
    let heap = allocation_counter::measure(|| {
        let begin = cpu_time();
        ended = catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
        took = cpu_time().saturating_sub(begin);
    });
    if ended.is_err() {
        return Err("it panics".to_owned());
    }
    let bound = target.budget.heap_bytes(data.len());
    if heap.bytes_max > bound {
        return Err(format!("{} bytes on the heap; the bound is {bound}", heap.bytes_max));
    }
    let bound = target.budget.time(data.len());
    if took > bound { Err(format!("it runs for {took:?}; the bound is {bound:?}")) } else { Ok(()) }
}

/// Why this input is a finding, in words for people.
fn finding(target: &Target, data: &[u8]) -> Option<String> {
    // What only happens the first time (tables, a fault of the page cache) is not the input's doing.
    judge(target, data).err()?;
    let why = judge(target, data).err()?;
    Some(format!("{}: {} bytes: {why}: {}\n", target.name, data.len(), hex(data)))
}

/// The first finding of each target; LOLIGO_FUZZ_TARGET names the only one to run.
fn findings() -> Vec<String> {
    let only = std::env::var("LOLIGO_FUZZ_TARGET").ok();
    assert!(only.as_ref().is_none_or(|name| TARGETS.iter().any(|t| t.name == name)), "no target {only:?}");
    let first = |target: &Target| {
        let seeds = seeds_of(target.name);
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        let mut mutator = Mutator::new(seed());
        let of_seeds = seeds.iter().find_map(|seed| finding(target, seed));
        of_seeds
            .or_else(|| (0..target.budget.runs(runs())).find_map(|_| finding(target, &mutator.next(&seeds))))
    };
    let wanted: Vec<&Target> =
        TARGETS.iter().filter(|t| only.as_ref().is_none_or(|name| name == t.name)).collect();
    // Heap and time are those of a thread.
    let (next, threads) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(1, usize::from));
    let work = || {
        let taken = std::iter::from_fn(|| wanted.get(next.fetch_add(1, Ordering::Relaxed)));
        taken.filter_map(|target| first(target)).collect::<Vec<String>>()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().expect("targets' panics are caught")).collect()
    })
}

#[test]
fn targets_stay_within_their_budgets_on_mutated_input() {
    let all = findings();
    assert!(all.is_empty(), "{}", all.concat());
}

/// One message's bytes under another's number: a peer chooses both.
#[test]
fn every_captured_message_is_read_under_every_number() {
    let target = TARGETS.iter().find(|t| t.name == "message").expect("the target is there");
    let seeds = seeds_of(target.name);
    let numbers: std::collections::BTreeSet<&[u8]> = seeds.iter().map(|s| &s[..3]).collect();
    let mut last: &[u8] = &[];
    // Of each number the first message.
    for seed in &seeds {
        if seed[..2] != *last {
            last = &seed[..2];
            let found = numbers.iter().find_map(|number| finding(target, &[number, &seed[3..]].concat()));
            assert_eq!(found, None);
        }
    }
}

#[test]
fn the_oracle_sees_heap_time_and_panics() {
    let target = |run: fn(&[u8])| Target { run, ..TARGETS[0] };
    assert_eq!(judge(&target(|_| {}), &[]), Ok(()));
    assert!(judge(&target(|_| drop(std::hint::black_box(vec![0u8; 1 << 20]))), &[0; 9]).is_err());
    let spin = |_: &[u8]| {
        let end = cpu_time() + Duration::from_millis(600);
        while cpu_time() < end {
            std::hint::spin_loop();
        }
    };
    assert!(judge(&target(spin), &[]).is_err());
    assert!(judge(&target(|_| panic!("as planted")), &[]).is_err());
}
