//! The images that stand below one that is opened as a parent, so that a header cannot send us round in a circle.

use rados::{IoCtx, PoolId};
use types::Errno;

use crate::error::{Error, Result};

/// Images that may stand above each other. Linux opens 16; librbd has no bound.
const LONGEST: usize = 256;

/// From the image that the user opened to the one that is being opened, as pool, namespace and id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lineage(Vec<(PoolId, String, String)>);

impl Lineage {
    /// With one more ancestor.
    ///
    /// # Errors
    /// ELOOP when the image stands in the line already, or when the line grows beyond its bound.
    pub fn with(&self, io: &IoCtx, id: &str) -> Result<Self> {
        self.with_place(io.pool_id(), io.namespace(), id)
    }

    fn with_place(&self, pool: PoolId, namespace: &str, id: &str) -> Result<Self> {
        if self.0.iter().any(|(p, n, i)| *p == pool && n == namespace && i == id) {
            return Err(Error::refused(Errno::ELOOP, format!("image {id} is its own ancestor")));
        }
        if self.0.len() >= LONGEST {
            return Err(Error::refused(
                Errno::ELOOP,
                format!("image {id} has more than {LONGEST} descendants in line"),
            ));
        }
        let mut longer = self.0.clone();
        longer.push((pool, namespace.to_owned(), id.to_owned()));
        Ok(Self(longer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_that_is_its_own_ancestor_is_refused() {
        let clone = Lineage::default().with_place(PoolId(1), "", "a").unwrap();
        let parent = clone.with_place(PoolId(1), "", "b").unwrap();
        for (pool, namespace) in [(2, ""), (1, "other")] {
            parent.with_place(PoolId(pool), namespace, "a").unwrap();
        }
        assert_eq!(parent.with_place(PoolId(1), "", "a").unwrap_err().errno(), Errno::ELOOP);
    }

    #[test]
    fn a_line_of_ancestors_is_bounded() {
        let mut line = Lineage::default();
        for n in 0..LONGEST {
            line = line.with_place(PoolId(1), "", &n.to_string()).unwrap();
        }
        assert_eq!(line.with_place(PoolId(1), "", "one more").unwrap_err().errno(), Errno::ELOOP);
    }
}
