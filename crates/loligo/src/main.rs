//! One binary: the whole cluster, each daemon, and the tools.
fn main() {}
