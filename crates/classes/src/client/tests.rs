//! What stock radosgw put into calls, and what Ceph's OSDs answered, is read and written again to the byte.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::find;
use crate::replay::{RECORDED as TABLES, bytes};
use crate::session::RECORDED as SESSION;

fn shown() -> impl Iterator<Item = &'static Shown> {
    let classes = [
        index::SHOWN,
        object::SHOWN,
        usage::SHOWN,
        gc::SHOWN,
        gc_queue::SHOWN,
        lifecycle::SHOWN,
        reshard::SHOWN,
        user::SHOWN,
        lock::SHOWN,
        refcount::SHOWN,
        version::SHOWN,
        timeindex::SHOWN,
        log::SHOWN,
        otp::SHOWN,
    ];
    classes.into_iter().flatten()
}

/// A recorded call: class, method, input, the output where it was recorded, and the code.
type Call = (String, String, Bytes, Option<Bytes>, i64);

fn call(class: &Value, method: &Value, input: &Value, output: &Value, code: i64) -> Call {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let output = Some(output).filter(|out| out.is_string() && code >= 0).map(bytes);
    (text(class), text(method), bytes(input), output.filter(|out| !out.is_empty()), code)
}

/// What radosgw and radosgw-admin called.
fn of_gateways() -> Vec<Call> {
    let mut calls = Vec::new();
    for line in SESSION.lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        for request in object["requests"].as_array().unwrap() {
            let ops = request["ops"].as_array().unwrap().iter().filter(|op| op[0] == "call");
            calls.extend(ops.map(|op| call(&op[1], &op[2], &op[3], &op[5], op[4].as_i64().unwrap_or(-1))));
        }
    }
    calls
}

/// What a table of calls asked of Ceph's OSDs, with forms of older clients and some that are none.
fn of_tables() -> Vec<Call> {
    let mut calls = Vec::new();
    for line in TABLES.iter().flat_map(|(_, lines)| lines.lines()) {
        let scenario: Value = serde_json::from_str(line).unwrap();
        let all = scenario["calls"].as_array().unwrap().iter();
        calls.extend(all.map(|c| call(&c[0], &c[1], &c[2], &c[4], c[3].as_i64().unwrap())));
    }
    calls
}

fn procedure(call: &Call) -> Option<&'static Shown> {
    shown().find(|(class, method, ..)| *class == call.0 && *method == call.1)
}

#[test]
fn each_procedure_is_a_method() {
    for (class, method, ..) in shown() {
        assert!(find(class, method).is_ok(), "{class}.{method}");
    }
}

#[test]
fn a_gateways_calls_come_back_to_the_byte() {
    for call in of_gateways() {
        let (class, method, input, output) = procedure(&call).unwrap_or_else(|| panic!("{call:?}"));
        assert_eq!(input(&call.2), Ok(call.2.clone()), "{class}.{method}");
        for n in 0..call.2.len() {
            // Suggestions end where the input does.
            let whole = n == 0 && *method == "dir_suggest_changes";
            assert_eq!(input(&call.2.slice(..n)).is_ok(), whole, "{class}.{method} cut at {n}");
        }
        if let Some(out) = &call.3 {
            assert_eq!(output(out), Ok(out.clone()), "{class}.{method} answered");
            for n in 0..out.len() {
                assert!(output(&out.slice(..n)).is_err(), "{class}.{method} answered, cut at {n}");
            }
        }
    }
}

#[test]
fn answers_of_cephs_osds_come_back_to_the_byte() {
    let mut compared = 0;
    for call in of_tables() {
        let Some((class, method, input, output)) = procedure(&call) else { continue };
        // What an older caller wrote is written anew once, and stays so from there on.
        if let Ok(once) = input(&call.2) {
            assert_eq!(input(&once), Ok(once.clone()), "{class}.{method}");
        }
        (0..call.2.len()).for_each(|n| drop(input(&call.2.slice(..n))));
        let Some(out) = &call.3 else { continue };
        assert_eq!(output(out), Ok(out.clone()), "{class}.{method}");
        for n in 0..out.len() {
            assert!(output(&out.slice(..n)).is_err(), "{class}.{method} cut at {n}");
        }
        compared += 1;
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn of_each_procedure_there_is_input_that_ceph_took() {
    let mut seen = BTreeSet::new();
    for call in of_gateways().into_iter().chain(of_tables()) {
        let Some((class, method, input, _)) = procedure(&call) else { continue };
        if call.4 >= 0 && input(&call.2).as_ref() == Ok(&call.2) {
            seen.insert((*class, *method));
        }
    }
    let without = shown().filter(|(class, method, ..)| !seen.contains(&(*class, *method)));
    let without: Vec<String> = without.map(|(class, method, ..)| format!("{class}.{method}")).collect();
    assert_eq!(without, Vec::<String>::new());
}

#[test]
fn no_byte_of_an_answer_makes_a_panic() {
    for call in of_gateways() {
        let Some((.., output)) = procedure(&call) else { continue };
        let Some(out) = call.3.filter(|out| out.len() < 4096) else { continue };
        for at in 0..out.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = out.to_vec();
                other[at] = value;
                if let Ok(once) = output(&other.into()) {
                    assert_eq!(output(&once), Ok(once));
                }
            }
        }
    }
}
