//! Class `fifo`: queues. One object holds a queue's header, others its parts with the entries.
//! Source: src/cls/fifo/cls_fifo.cc of 16.2.15.

use codec::Encode;

use crate::registry::{Class, Method, MethodFlags as F, input};

mod meta;
mod part;
mod reader;
#[cfg(test)]
mod tests;
mod types;

/// A method with typed input and output.
macro_rules! typed {
    ($name:literal $flags:ident $run:path) => {
        Method::new($name, F::$flags, |v, bytes, out| {
            *out = $run(v, input(bytes)?)?.to_bytes();
            Ok(0)
        })
    };
}

pub static CLASS: Class = Class {
    name: "fifo",
    methods: &[
        typed!("create_meta" RD_WR meta::create),
        typed!("get_meta" RD meta::get),
        typed!("update_meta" RD_WR meta::update),
        typed!("init_part" RD_WR part::init),
        Method::new("push_part", F::RD_WR, |v, bytes, _| part::push(v, input(bytes)?)),
        typed!("trim_part" RD_WR part::trim),
        typed!("part_list" RD part::list),
        typed!("get_part_info" RD part::info),
    ],
};
