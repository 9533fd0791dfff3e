//! Class `fifo`: queues. One object holds a queue's header, others its parts with the entries.
//! Source: src/cls/fifo/cls_fifo.cc of 16.2.15.

use crate::registry::{Class, Method, MethodFlags as F, input, method};

mod meta;
mod part;
mod reader;
#[cfg(test)]
mod tests;
mod types;

pub static CLASS: Class = Class {
    name: "fifo",
    methods: &[
        method!(create_meta RD_WR meta::create),
        method!(get_meta RD meta::get),
        method!(update_meta RD_WR meta::update),
        method!(init_part RD_WR part::init),
        Method::new("push_part", F::RD_WR, |v, bytes, _| part::push(v, input(bytes)?)),
        method!(trim_part RD_WR part::trim),
        method!(part_list RD part::list),
        method!(get_part_info RD part::info),
    ],
};
