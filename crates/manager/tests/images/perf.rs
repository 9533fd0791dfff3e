//! Which images are shown while somebody looks how much they are used, and under which names.

use std::time::Duration;

use bytes::Bytes;
use manager::job::ImageFacts;
use messages::metrics::{MetricQuery, MetricSums};
use messages::mgr::{MMgrOpen, MMgrReport};
use serde_json::{Value, json};

use crate::cluster::*;
use crate::common::osd_conn;

/// A cluster with one OSD, at whose images somebody looks.
struct Looking {
    c: Cluster,
    query: MetricQuery,
}

impl Looking {
    fn new() -> Self {
        let mut c = Cluster::new();
        c.w.message(osd_conn(0), MMgrOpen { daemon_name: "0".to_owned(), ..MMgrOpen::default() });
        c.go();
        shown(&mut c);
        let queries = c.wishes.clone().unwrap().metric_queries(10).unwrap();
        let query = queries.into_keys().next().unwrap();
        Self { c, query }
    }

    /// For so long the OSD tells every few seconds that these images of the pool are used.
    fn used_for(&mut self, seconds: u64, ids: &[String]) {
        for _ in 0..seconds / 5 {
            let part = |parts: &[&str]| {
                parts.iter().map(|p| Bytes::copy_from_slice(p.as_bytes())).collect::<Vec<_>>()
            };
            let pool = self.c.pool.0.to_string();
            let key = |id: &String| vec![part(&[&pool]), part(&[""]), part(&["", id])];
            let values = [50_u64, 0, 5_000, 0, 100_000, 50, 0, 0].map(u64::to_le_bytes).concat();
            let packed = ids.iter().map(|id| (key(id), values.clone().into())).collect();
            let sums = MetricSums { counters: self.query.counters.clone(), packed };
            let report = MMgrReport {
                daemon_name: "0".to_owned(),
                packed: Bytes::from_static(&[1, 1, 0, 0, 0, 0]),
                ..MMgrReport::default()
            };
            self.c.w.message(osd_conn(0), report.with_metrics(&[(self.query.clone(), sums)].into()));
            self.c.w.advance(Duration::from_secs(5));
            self.c.go();
            shown(&mut self.c);
        }
    }

    fn name(&mut self, id: &str, name: &str) {
        self.c.images.retain(|_, facts| facts.id != id);
        self.c.images.insert(name.to_owned(), ImageFacts { id: id.to_owned(), ..ImageFacts::default() });
    }
}

/// Names of what is shown.
fn shown(c: &mut Cluster) -> Vec<String> {
    let look = json!({ "prefix": "rbd perf image counters", "pool_spec": c.name.clone() });
    let (code, words, out) = c.run(look);
    assert_eq!(code, 0, "{words}");
    let counters: Value = serde_json::from_str(&out).unwrap();
    let rows = counters["counters"].as_array().cloned().unwrap_or_default();
    rows.iter().flat_map(|row| row.as_object().unwrap().keys().cloned()).collect()
}

#[test]
fn an_image_is_shown_under_the_name_that_it_has() {
    let mut l = Looking::new();
    l.name("id1", "before");
    l.name("id2", "other");
    let ids = ["id1".to_owned(), "id2".to_owned()];
    l.used_for(15, &ids);
    assert_eq!(shown(&mut l.c), ["0/before", "0/other"]);
    l.name("id1", "after");
    l.c.images.remove("other");
    l.used_for(70, &ids);
    assert_eq!(shown(&mut l.c), ["0/after"], "the other one is not there any more");
}

#[test]
fn what_has_no_name_is_not_looked_up_at_each_look() {
    let mut l = Looking::new();
    l.name("id1", "a");
    l.used_for(120, &["id1".to_owned(), "none".to_owned()]);
    assert_eq!(shown(&mut l.c), ["0/a"]);
    assert!((2..12).contains(&l.c.named), "{} times", l.c.named);
}

#[test]
fn what_has_no_name_hides_nothing_that_has_one() {
    let mut l = Looking::new();
    l.name("id1", "a");
    l.used_for(5, &["id1".to_owned()]);
    let named = l.c.named;
    let mut ids: Vec<String> = (0..100).map(|n| format!("a{n}")).collect();
    ids.push("id1".to_owned());
    l.used_for(10, &ids);
    assert_eq!((shown(&mut l.c), l.c.named), (vec!["0/a".to_owned()], named));
}
