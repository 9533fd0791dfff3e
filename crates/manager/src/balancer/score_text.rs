//! A score for people: dictionaries as Python writes them.
//!
//! Source: Eval.show in src/pybind/mgr/balancer/module.py.

use std::collections::BTreeMap;

use super::score::{Counts, METRICS, OfPool, Root, Score};

impl Score {
    /// As `balancer eval` prints it.
    pub(crate) fn show(&self, what: &str, verbose: bool) -> String {
        let score = format!("score {:.6} (lower is better)\n", self.score);
        if !verbose {
            return format!("{what} {score}");
        }
        [
            what.to_owned(),
            format!("target_by_root {}", self.per_root(|r| dict(&r.target, float))),
            format!(
                "actual_by_pool {}",
                self.per_pool(|p| by_osd(&p.count, |m, v| float(&part(&p.total, m, v))))
            ),
            format!(
                "actual_by_root {}",
                self.per_root(|r| by_osd(&r.count, |m, v| float(&part(&r.total, m, v))))
            ),
            format!("count_by_pool {}", self.per_pool(|p| by_osd(&p.count, |_, v| whole(v)))),
            format!("count_by_root {}", self.per_root(|r| by_osd(&r.count, |_, v| float(&v)))),
            format!("total_by_pool {}", self.per_pool(|p| by_metric(|m| whole(at(&p.total, m))))),
            format!("total_by_root {}", self.per_root(|r| by_metric(|m| whole(at(&r.total, m))))),
            format!("stats_by_root {}", self.per_root(|r| by_metric(|m| spread(r, m)))),
            "score_by_pool {}".to_owned(),
            format!("score_by_root {}", self.per_root(|r| by_metric(|m| score_of(r, m)))),
            score,
        ]
        .join("\n")
    }

    fn per_root(&self, text: impl Fn(&Root) -> String) -> String {
        joined(self.roots.iter().map(|(name, root)| (quoted(name), text(root))))
    }

    fn per_pool(&self, text: impl Fn(&OfPool) -> String) -> String {
        joined(self.pools.values().map(|pool| (quoted(&pool.name), text(pool))))
    }
}

/// Statistics of one metric; all of them are whole numbers where there is nothing to spread.
fn spread(root: &Root, metric: usize) -> String {
    let Some(s) = root.spread.get(metric).copied().flatten() else {
        return "{'max': 0, 'min': 0, 'avg': 0, 'stddev': 0, 'sum_weight': 0, 'score': 0}".to_owned();
    };
    let score = at(&root.scores, metric);
    let values = [
        ("max", s.most),
        ("min", s.least),
        ("avg", s.average),
        ("stddev", s.deviation),
        ("sum_weight", s.weights),
        ("score", score),
    ];
    joined(values.iter().map(|(name, value)| (quoted(name), float(value))))
}

fn score_of(root: &Root, metric: usize) -> String {
    match root.spread.get(metric).copied().flatten() {
        Some(_) => float(&at(&root.scores, metric)),
        None => "0".to_owned(),
    }
}

fn by_osd(counts: &BTreeMap<i32, Counts>, text: impl Fn(usize, f64) -> String) -> String {
    by_metric(|metric| dict(counts, |count| text(metric, at(count, metric))))
}

fn by_metric(text: impl Fn(usize) -> String) -> String {
    joined(METRICS.iter().enumerate().map(|(metric, name)| (quoted(name), text(metric))))
}

fn dict<T>(of: &BTreeMap<i32, T>, text: impl Fn(&T) -> String) -> String {
    joined(of.iter().map(|(osd, value)| (osd.to_string(), text(value))))
}

fn joined(pairs: impl Iterator<Item = (String, String)>) -> String {
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

fn quoted(name: &str) -> String {
    format!("'{name}'")
}

fn at(counts: &Counts, metric: usize) -> f64 {
    counts.get(metric).copied().unwrap_or(0.0)
}

fn part(total: &Counts, metric: usize, value: f64) -> f64 {
    value / at(total, metric).max(1.0)
}

fn float(value: &f64) -> String {
    format!("{value:?}")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use types::PoolId;

    use super::super::score::Spread;
    use super::*;

    /// The form is that of ceph-mgr 16.2.15 on a cluster with one pool without objects.
    #[test]
    fn a_score_is_told_in_cephs_form() {
        let count = BTreeMap::from([(0, [3.0, 0.0, 0.0]), (1, [1.0, 0.0, 0.0])]);
        let spread = Spread { most: 3.0, least: 1.0, average: 2.0, deviation: 1.5, weights: 0.5 };
        let root = Root {
            id: -1,
            target: [(0, 0.5), (1, 0.5)].into(),
            count: count.clone(),
            total: [4.0, 0.0, 0.0],
            scores: [0.25, 0.0, 0.0],
            spread: [Some(spread), None, None],
        };
        let pool = OfPool { name: "p".to_owned(), count, total: [4.0, 0.0, 0.0] };
        let score = Score {
            roots: [("default".to_owned(), root)].into(),
            pools: [(PoolId(1), pool)].into(),
            score: 0.125,
            ..Score::default()
        };
        let none = "{'max': 0, 'min': 0, 'avg': 0, 'stddev': 0, 'sum_weight': 0, 'score': 0}";
        let parts = "'pgs': {0: 0.75, 1: 0.25}, 'objects': {0: 0.0, 1: 0.0}, 'bytes': {0: 0.0, 1: 0.0}";
        let want = [
            "current cluster".to_owned(),
            "target_by_root {'default': {0: 0.5, 1: 0.5}}".to_owned(),
            format!("actual_by_pool {{'p': {{{parts}}}}}"),
            format!("actual_by_root {{'default': {{{parts}}}}}"),
            "count_by_pool {'p': {'pgs': {0: 3, 1: 1}, 'objects': {0: 0, 1: 0}, 'bytes': {0: 0, 1: 0}}}".to_owned(),
            "count_by_root {'default': {'pgs': {0: 3.0, 1: 1.0}, 'objects': {0: 0.0, 1: 0.0}, 'bytes': {0: 0.0, 1: 0.0}}}"
                .to_owned(),
            "total_by_pool {'p': {'pgs': 4, 'objects': 0, 'bytes': 0}}".to_owned(),
            "total_by_root {'default': {'pgs': 4, 'objects': 0, 'bytes': 0}}".to_owned(),
            format!(
                "stats_by_root {{'default': {{'pgs': {{'max': 3.0, 'min': 1.0, 'avg': 2.0, 'stddev': 1.5, \
                 'sum_weight': 0.5, 'score': 0.25}}, 'objects': {none}, 'bytes': {none}}}}}"
            ),
            "score_by_pool {}".to_owned(),
            "score_by_root {'default': {'pgs': 0.25, 'objects': 0, 'bytes': 0}}".to_owned(),
            "score 0.125000 (lower is better)\n".to_owned(),
        ];
        assert_eq!(score.show("current cluster", true), want.join("\n"));
        assert_eq!(score.show("pool \"p\"", false), "pool \"p\" score 0.125000 (lower is better)\n");
    }
}
