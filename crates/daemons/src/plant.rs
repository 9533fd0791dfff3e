//! Panics that tests plant into a running daemon: `LOLIGO_PANICS` names a folder, and a file there with the
//! daemon's name says at which event it is to panic. The file goes with the panic, so that the next life goes
//! on.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default)]
pub(crate) struct Plant(Option<PathBuf>);

impl Plant {
    pub fn of(daemon: &str) -> Self {
        Self(std::env::var_os("LOLIGO_PANICS").map(|folder| Path::new(&folder).join(daemon)))
    }

    /// An event of this kind is about to be handled: panics if a test asked for that.
    #[allow(clippy::panic, reason = "it is what a test planted")]
    pub fn strike(&self, event: &str) {
        let Some(file) = &self.0 else { return };
        let is_meant = fs::read_to_string(file).is_ok_and(|text| text.trim() == event);
        // Of several threads only the one that removes the file panics.
        if is_meant && fs::remove_file(file).is_ok() {
            panic!("planted at {event}");
        }
    }
}
