//! Methods of object classes on objects that methods have written: what is stored may be damaged, and so may
//! the input.

use std::collections::BTreeMap;

use bytes::Bytes;
use classes::fake::{Fake, FakeObject};
use codec::{Decode, Encode, Reader, Writer};

use crate::recorded;

/// Seeds for each method.
const SEEDS: usize = 4;
/// Bytes of a seed: in larger ones a mutation hardly ever meets what matters.
const MAX_SEED: usize = 8 << 10;

/// Makes as large a map as it is asked for, up to 64 MiB and with a loop over each of its elements.
const UNMEASURED: &str = "object_map_resize";

/// A class and a method of it, one byte each; then the method's input, and the object's attributes, omap,
/// header and data.
pub(crate) fn class_object(data: &[u8]) {
    let Some(([class, method], rest)) = data.split_first_chunk::<2>() else { return };
    let Some(class) = classes::CLASSES.get(usize::from(*class) % classes::CLASSES.len()) else { return };
    let Some(method) = class.methods.get(usize::from(*method) % class.methods.len().max(1)) else { return };
    if method.name == UNMEASURED {
        return;
    }
    let mut r = Reader::new(Bytes::copy_from_slice(rest));
    // Parts that do not decode are not there.
    let input = r.blob().unwrap_or_default();
    let object = FakeObject {
        attrs: Decode::decode(&mut r).unwrap_or_default(),
        omap: Decode::decode(&mut r).unwrap_or_default(),
        header: r.blob().unwrap_or_default(),
        data: r.rest().to_vec(),
    };
    let mut view = Fake::with(object);
    // Twice: what the first call stored is there for the second.
    let _ = view.call(class.name, method.name, input.clone());
    let _ = view.call(class.name, method.name, input);
}

/// Recorded calls, each with the object as those before it left it.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let mut seen = BTreeMap::<[u8; 2], usize>::new();
    for scenario in recorded::scenarios() {
        let mut view = scenario.before.map_or_else(Fake::default, Fake::with);
        for (class, method, input) in scenario.calls {
            let known = seen.entry(place(&class, &method)).or_default();
            let seed = view.object.as_ref().map(|object| seed(place(&class, &method), &input, object));
            if let Some(seed) = seed.filter(|seed| seed.len() <= MAX_SEED && *known < SEEDS) {
                out.push(seed);
                *known += 1;
            }
            let _ = view.call(&class, &method, input);
        }
    }
    out
}

fn seed(place: [u8; 2], input: &[u8], object: &FakeObject) -> Vec<u8> {
    let bytes = Writer::collect(|w| {
        w.raw(&place);
        w.blob(input);
        object.attrs.encode(w);
        object.omap.encode(w);
        w.blob(&object.header);
        w.raw(&object.data);
    });
    bytes.to_vec()
}

fn place(class: &str, method: &str) -> [u8; 2] {
    let c = classes::CLASSES.iter().position(|c| c.name == class).unwrap_or_default();
    let m = classes::CLASSES[c].methods.iter().position(|m| m.name == method).unwrap_or_default();
    [c as u8, m as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_the_classes_that_store_most_are_among_the_seeds() {
        let seeds = seeds();
        for (class, method) in [
            ("rgw", "bucket_link_olh"),
            ("rgw", "bi_log_list"),
            ("rgw", "gc_list"),
            ("otp", "otp_check"),
            ("queue", "queue_list_entries"),
            ("2pc_queue", "2pc_queue_commit"),
            ("rgw_gc", "rgw_gc_queue_list_entries"),
            ("fifo", "part_list"),
        ] {
            assert!(seeds.iter().any(|s| s.starts_with(&place(class, method))), "{class}.{method}");
        }
    }
}
