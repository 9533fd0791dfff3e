//! Looking into the stores of OSDs: whether all copies are equal (O4), and what a mutant reads past its PG.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use codec::Encode;
use messages::osd::OmapValsResponse;
use store::{ObjectKey, Store, StoreError};

use crate::history::brief;
use crate::world::World;

/// Everything that a store holds of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Copy {
    data: Bytes,
    attrs: Vec<(Bytes, Bytes)>,
    omap_header: Bytes,
    omap: Vec<(Bytes, Bytes)>,
}

fn read(store: &mut Store, key: &ObjectKey) -> Result<Option<Copy>, StoreError> {
    let Some(stat) = store.stat(key)? else { return Ok(None) };
    let (omap, _) = store.omap_list(key, Bound::Unbounded, usize::MAX, usize::MAX)?;
    Ok(Some(Copy {
        data: store.read(key, 0, stat.size)?,
        attrs: store.attrs(key)?,
        omap_header: store.omap_header(key)?,
        omap,
    }))
}

/// Clients' attributes as `getxattrs` answers with them.
pub fn user_attrs(store: &mut Store, key: &ObjectKey) -> Option<Bytes> {
    let attrs = store.attrs(key).ok()?;
    let named = |(k, v): (Bytes, Bytes)| {
        let name = pg::object::user_attr_name(&k).map(Bytes::copy_from_slice)?;
        Some((name, v))
    };
    Some(attrs.into_iter().filter_map(named).collect::<BTreeMap<_, _>>().to_bytes())
}

/// The omap as `omap-get-vals` answers with it.
pub fn omap(store: &mut Store, key: &ObjectKey) -> Option<Bytes> {
    let (omap, more) = store.omap_list(key, Bound::Unbounded, 1_000, usize::MAX).ok()?;
    Some(OmapValsResponse { vals: omap.into_iter().collect(), more }.to_bytes())
}

impl World {
    /// O4: each member of each object's acting set holds the same.
    pub fn check_copies(&mut self) {
        let Some(map) = self.monitor().map(|m| m.state().osdmap().clone()) else { return };
        for object in 0..self.scenario.options.objects {
            let Some(hobject) = crate::client::object(&map, object) else { continue };
            let raw = types::PgId::new(hobject.pool, hobject.hash);
            let Some(pgid) = map.raw_pg_to_pg(raw) else { continue };
            let key = ObjectKey::replicated(hobject);
            let mut first: Option<(i32, Option<Copy>)> = None;
            for osd in map.pg_to_up_acting(pgid).acting {
                let Some(core) = &mut self.osds[osd as usize].core else { continue };
                let copy = match read(core.store_mut(), &key) {
                    Ok(copy) => copy,
                    Err(e) => {
                        self.violation(format!("O4: osd.{osd} cannot read object {object}: {e}"));
                        return;
                    }
                };
                match &first {
                    None => first = Some((osd, copy)),
                    Some((other, theirs)) if *theirs != copy => {
                        let (a, b) = (show(theirs), show(&copy));
                        let text = format!(
                            "O4: object {object} of pg {pgid} is {a} on osd.{other} and {b} on osd.{osd}"
                        );
                        self.violation(text);
                        return;
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

fn show(copy: &Option<Copy>) -> String {
    let Some(c) = copy else { return "missing".to_owned() };
    let pairs = |all: &[(Bytes, Bytes)]| -> String {
        all.iter().map(|(k, v)| format!(" {}={}", String::from_utf8_lossy(k), brief(v))).collect()
    };
    format!("data {}, attributes{}, omap{}", brief(&c.data), pairs(&c.attrs), pairs(&c.omap))
}
