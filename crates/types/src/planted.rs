//! Bugs that are planted for tests to find, in the crates that have a feature for them.

/// Whether a bug is planted: one of the calling crate's `Planted`. Without that crate's feature `planted` it
/// is never so, and the product does not know the bugs' names.
#[macro_export]
#[allow(clippy::crate_in_macro_def, reason = "the bug is one of the crate that asks")]
macro_rules! is_planted {
    ($planted:expr, $bug:ident) => {{
        #[cfg(feature = "planted")]
        let is_planted = $planted == Some(crate::Planted::$bug);
        #[cfg(not(feature = "planted"))]
        let is_planted = false;
        is_planted
    }};
}
