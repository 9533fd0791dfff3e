//! What health says of pools' PG counts and of the sizes that they are expected to reach.
//!
//! Source: PgAutoscaler._maybe_adjust in src/pybind/mgr/pg_autoscaler/module.py (16.2). Unlike there, a pool
//! with mode `warn` that has the PGs that it should have is not among those with too many.

use std::collections::BTreeMap;

use maps::{AutoscaleMode, OsdMap};
use messages::mgr::HealthCheck;

use super::{Row, Tree, float};
use crate::pretty_table::of_bytes;

const WARNING: u8 = 1;

/// The checks by their code; `rows` and `trees` are of the same look.
pub(super) fn checks(map: &OsdMap, rows: &[Row], trees: &[Tree]) -> BTreeMap<String, HealthCheck> {
    let (mut few, mut many, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let has = |option: &str| map.pool(row.pool).is_some_and(|pool| float(pool, option) > 0.0);
        if has("target_size_ratio") && has("target_size_bytes") {
            both.push(format!("Pool {} has target_size_bytes and target_size_ratio set", row.name));
        }
        let (now, then) = (row.pg_num_target, row.pg_num_final);
        if row.mode == AutoscaleMode::WARN && now != then {
            let line = format!("Pool {} has {now} placement groups, should have {then}", row.name);
            (if then > now { &mut few } else { &mut many }).push(line);
        }
    }
    let too_much: Vec<String> = trees.iter().filter_map(|tree| overcommitted(tree, rows)).collect();
    [
        ("POOL_TOO_FEW_PGS", "pools have too few placement groups", few),
        ("POOL_TOO_MANY_PGS", "pools have too many placement groups", many),
        (
            "POOL_TARGET_SIZE_BYTES_OVERCOMMITTED",
            "subtrees have overcommitted pool target_size_bytes",
            too_much,
        ),
        (
            "POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO",
            "pools have both target_size_bytes and target_size_ratio set",
            both,
        ),
    ]
    .into_iter()
    .filter(|(_, _, detail)| !detail.is_empty())
    .map(|(code, what, detail)| {
        let (summary, count) = (format!("{} {what}", detail.len()), detail.len() as i64);
        (code.to_owned(), HealthCheck { severity: WARNING, summary, detail, count })
    })
    .collect()
}

/// The line of a tree whose pools are to hold more than it can, where some of that is expected alone.
fn overcommitted(tree: &Tree, rows: &[Row]) -> Option<String> {
    let (mut total, mut target, mut names) = (0.0, 0.0, Vec::new());
    for row in rows.iter().filter(|row| tree.roots.contains(&row.root)) {
        let expected = row.target_bytes as f64 * row.rate;
        total += (row.logical_used * row.rate).max(expected);
        if row.target_bytes > 0 {
            target += expected;
            names.push(row.name.as_str());
        }
    }
    let capacity = tree.capacity as f64;
    (target >= 1.0 && total > capacity && capacity > 0.0).then(|| {
        format!(
            "Pools {} overcommit available storage by {:.3}x due to target_size_bytes {} on pools {}",
            listed(tree.names.iter().map(String::as_str)),
            total / capacity,
            of_bytes(target.trunc(), 5),
            listed(names.into_iter())
        )
    })
}

/// As Python prints a list.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", "))
}
