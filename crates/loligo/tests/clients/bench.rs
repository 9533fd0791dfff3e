//! The benchmarks' short forms: every line of the table comes, with checked data, and none from an unhealthy cluster.

use crate::cluster::{Cluster, text};

/// The twelve jobs of the all-flash test: two block sizes, three shares of reads, two depths.
#[test]
fn the_block_table_has_every_line_and_leaves_nothing_behind() {
    let c = Cluster::start(&[]);
    let out = c.loligo(&[
        "bench", "block", "--size", "8M", "--images", "2", "-s", "1", "--ramp", "0", "-b", "4K,8K",
        "--reads", "0,70,100", "-t", "1,32", "--copies", "2", "--json",
    ]);
    assert!(out.status.success(), "{}", text(&out));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 12);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
        assert!(number("ops") > 0.0 && number("iops") > 0.0 && number("iops_per_gb") > 0.0, "{row}");
        // Of many operations one that stalls raises the mean over the 99.9th percentile.
        assert!(number("mean_us") > 0.0 && number("daemon_cpu_us_per_op") > 0.0, "{row}");
        assert!(number("p50_us") <= number("p99_us") && number("p99_us") <= number("p999_us"), "{row}");
    }
    assert!(report["blocks_compared_after_runs"].as_u64().is_some_and(|n| n > 1000));
    assert_eq!(c.ceph("osd lspools").trim(), "");
}

#[test]
fn an_unhealthy_cluster_gives_no_figures() {
    let c = Cluster::start(&[]);
    c.ceph("osd set noout");
    let out = c.loligo(&["bench", "block", "--size", "8M", "-s", "1", "--copies", "2"]);
    assert!(!out.status.success() && text(&out).contains("no figures"), "{}", text(&out));
    assert!(out.stdout.is_empty(), "{}", text(&out));
    let out =
        c.loligo(&["bench", "block", "--size", "8M", "-s", "1", "--copies", "4", "--accept", "OSDMAP_FLAGS"]);
    assert!(!out.status.success() && text(&out).contains("4 copies need"), "{}", text(&out));
}
