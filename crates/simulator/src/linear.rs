//! Whether a history of one object can be explained by requests that run one after the other, each at some moment between
//! its beginning and its answer.
//!
//! Wing and Gong's search with Lowe's memory of states; the versions in replies tell which order to try first, so that
//! a good history is checked in about linear time.

use std::collections::HashSet;

use crate::history::{Record, State};
use crate::queue::Time;

/// States looked at before giving up.
const BUDGET: usize = 4_000_000;

/// What a check came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Good,
    /// No order explains the history; what the longest attempt came to.
    Bad(String),
    /// Too many orders to try.
    Undecided,
}

struct Frame {
    state: State,
    candidates: Vec<usize>,
    tried: usize,
    /// The request that led here.
    by: Option<usize>,
}

struct Search<'a> {
    ops: Vec<&'a Record>,
    done: Vec<bool>,
    /// Every request before it is done.
    first: usize,
    zobrist: u64,
    completed_left: usize,
}

fn mix(i: usize) -> u64 {
    let mut z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

impl Search<'_> {
    fn end(&self, i: usize) -> Time {
        self.ops[i].ended.as_ref().map_or(Time::MAX, |(t, _)| *t)
    }

    /// Requests that may be next: those that no other one, which is not done, ended before.
    fn candidates(&mut self) -> Vec<usize> {
        while self.first < self.ops.len() && self.done[self.first] {
            self.first += 1;
        }
        let mut earliest_end = Time::MAX;
        let mut out = Vec::new();
        for i in self.first..self.ops.len() {
            if self.ops[i].begun > earliest_end {
                break;
            }
            if !self.done[i] {
                earliest_end = earliest_end.min(self.end(i));
                out.push(i);
            }
        }
        out.retain(|i| self.ops[*i].begun <= earliest_end);
        let hint = |i: &usize| {
            let op = self.ops[*i];
            (op.ended.is_none(), op.version, op.call.is_read(), self.end(*i))
        };
        out.sort_by_key(hint);
        out
    }

    fn set(&mut self, i: usize, done: bool) {
        self.done[i] = done;
        self.zobrist ^= mix(i);
        if self.ops[i].ended.is_some() {
            self.completed_left = if done { self.completed_left - 1 } else { self.completed_left + 1 };
        }
        if !done {
            self.first = self.first.min(i);
        }
    }
}

/// Checks the history of one object that did not exist before.
pub fn check<'a>(records: impl IntoIterator<Item = &'a Record>) -> Verdict {
    let mut ops: Vec<&Record> = records.into_iter().collect();
    ops.sort_by_key(|r| r.begun);
    let completed_left = ops.iter().filter(|r| r.ended.is_some()).count();
    let done = vec![false; ops.len()];
    let mut s = Search { ops, done, first: 0, zobrist: 0, completed_left };
    let mut seen = HashSet::new();
    let candidates = s.candidates();
    let mut stack = vec![Frame { state: State::default(), candidates, tried: 0, by: None }];
    let mut deepest = (0, String::new());
    while let Some(top) = stack.last_mut() {
        if s.completed_left == 0 {
            return Verdict::Good;
        }
        let Some(next) = top.candidates.get(top.tried).copied() else {
            if stack.len() > deepest.0 {
                deepest = (stack.len(), explain(&s, &stack));
            }
            if let Some(by) = stack.pop().and_then(|f| f.by) {
                s.set(by, false);
            }
            continue;
        };
        top.tried += 1;
        let op = s.ops[next];
        let Some(state) = top.state.step(&op.call, op.ended.as_ref().map(|(_, o)| o)) else { continue };
        s.set(next, true);
        if !seen.insert((s.zobrist, state.hash)) {
            s.set(next, false);
            continue;
        }
        if seen.len() > BUDGET {
            return Verdict::Undecided;
        }
        let candidates = s.candidates();
        stack.push(Frame { state, candidates, tried: 0, by: Some(next) });
    }
    Verdict::Bad(deepest.1)
}

fn explain(s: &Search, stack: &[Frame]) -> String {
    let Some(top) = stack.last() else { return String::new() };
    let state = top.state.content.as_ref().map_or("no object".to_owned(), |c| c.to_string());
    let mut text = format!("after {} of {} requests the object is: {state}", stack.len() - 1, s.ops.len());
    let before = stack.iter().rev().filter_map(|f| f.by).take(6).collect::<Vec<_>>();
    for i in before.iter().rev() {
        text += &format!("\n    done: {}", s.ops[*i]);
    }
    for i in top.candidates.iter().take(6) {
        text += &format!("\n    does not fit: {}", s.ops[*i]);
    }
    text
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::history::{Call, Content, Outcome};

    fn op(begun: Time, ended: Time, call: Call, outcome: Outcome) -> Record {
        Record {
            client: 0,
            object: 0,
            call,
            begun,
            ended: (ended > 0).then_some((ended, outcome)),
            version: 0,
            sends: 1,
        }
    }

    fn write(begun: Time, ended: Time, data: &'static str) -> Record {
        op(begun, ended, Call::WriteFull(Bytes::from(data)), Outcome::Done(0))
    }

    fn append(begun: Time, ended: Time, data: &'static str) -> Record {
        op(begun, ended, Call::Append(Bytes::from(data)), Outcome::Done(0))
    }

    fn read(begun: Time, ended: Time, data: Option<&'static str>) -> Record {
        let seen = data.map(|d| Content { data: Bytes::from(d), ..Content::default() });
        op(begun, ended, Call::Read, Outcome::Seen(seen))
    }

    fn good(history: &[Record]) -> bool {
        match check(history) {
            Verdict::Good => true,
            Verdict::Bad(_) => false,
            Verdict::Undecided => panic!("undecided"),
        }
    }

    #[test]
    fn tells_good_histories_from_bad_ones() {
        let cases: [(&str, bool, Vec<Record>); 10] = [
            ("in order", true, vec![write(1, 2, "a"), read(3, 4, Some("a"))]),
            ("lost", false, vec![write(1, 2, "a"), read(3, 4, None)]),
            ("stale", false, vec![write(1, 2, "a"), write(3, 4, "b"), read(5, 6, Some("a"))]),
            ("overlapping, old", true, vec![write(1, 2, "a"), write(3, 9, "b"), read(4, 5, Some("a"))]),
            ("overlapping, new", true, vec![write(1, 2, "a"), write(3, 9, "b"), read(4, 5, Some("b"))]),
            (
                "seen and gone again",
                false,
                vec![write(1, 2, "a"), write(3, 9, "b"), read(4, 5, Some("b")), read(6, 7, Some("a"))],
            ),
            ("never answered, applied", true, vec![write(1, 0, "a"), read(5, 6, Some("a"))]),
            ("never answered, not applied", true, vec![write(1, 0, "a"), read(5, 6, None)]),
            ("twice", false, vec![append(1, 2, "x"), read(3, 4, Some("xx"))]),
            (
                "either order, both reads agree",
                true,
                vec![append(1, 9, "x"), append(2, 8, "y"), read(10, 11, Some("yx"))],
            ),
        ];
        for (name, want, history) in cases {
            assert_eq!(good(&history), want, "{name}");
        }
    }

    #[test]
    fn agrees_with_trying_every_order() {
        let mut r = testkit::Rng::new(5);
        let mut counts = [0, 0];
        for _ in 0..3_000 {
            let n = 1 + r.below(6) as usize;
            let history: Vec<Record> = (0..n)
                .map(|_| {
                    let begun = 1 + r.below(12);
                    let ended = if r.one_in(6) { 0 } else { begun + 1 + r.below(6) };
                    match r.below(3) {
                        0 => append(begun, ended, r.pick::<&str>(&["x", "y"])),
                        1 => write(begun, ended, r.pick::<&str>(&["", "x"])),
                        _ => read(begun, ended, *r.pick(&[None, Some(""), Some("x"), Some("xy")])),
                    }
                })
                .collect();
            let naive = any_order(&history, &mut vec![false; n], &State::default());
            assert_eq!(good(&history), naive, "{history:?}");
            counts[usize::from(naive)] += 1;
        }
        assert!(counts.iter().all(|c| *c > 200), "{counts:?}");
    }

    fn any_order(h: &[Record], done: &mut Vec<bool>, state: &State) -> bool {
        if h.iter().zip(done.iter()).all(|(r, d)| *d || r.ended.is_none()) {
            return true;
        }
        for i in 0..h.len() {
            let late =
                |(r, d): (&Record, &bool)| !*d && r.ended.as_ref().is_some_and(|(end, _)| *end < h[i].begun);
            if done[i] || h.iter().zip(done.iter()).any(late) {
                continue;
            }
            if let Some(next) = state.step(&h[i].call, h[i].ended.as_ref().map(|(_, o)| o)) {
                done[i] = true;
                if any_order(h, done, &next) {
                    return true;
                }
                done[i] = false;
            }
        }
        false
    }
}
