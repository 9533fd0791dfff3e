//! The server's Unix socket: nobody connects to it before its mode says that they may.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::umask;
use tokio::net::UnixListener;

/// Listens at `path`, where those may connect whom `mode` (its permission bits) lets write. A socket that a killed server
/// left is in the way of nobody. Changes the process's umask for a moment: to be called before there is much else to do.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let is_left = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err();
    if is_left {
        std::fs::remove_file(path)?;
    }
    let listener = bind_private(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener)
}

/// A socket listens as soon as it is bound: it must not have the mode of a generous umask then.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let before = umask(Mode::RWXG | Mode::RWXO);
    let bound = UnixListener::bind(path);
    umask(before);
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    fn current_umask() -> String {
        let status = std::fs::read_to_string("/proc/self/status").expect("proc");
        status.lines().find(|l| l.starts_with("Umask:")).expect("a umask").to_owned()
    }

    #[tokio::test]
    async fn a_socket_is_its_owners_alone_until_it_has_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = current_umask();
        let (private, open) = (folder.path().join("private"), folder.path().join("open"));
        let _listener = bind_private(&private).expect("bound");
        assert_eq!(mode(&private) & 0o077, 0);
        let listener = bind_unix(&open, 0o666).expect("bound");
        assert_eq!(mode(&open), 0o666);
        assert_eq!(current_umask(), before);

        let again = bind_unix(&open, 0o600).map_err(|e| e.kind());
        assert_eq!(again.err(), Some(io::ErrorKind::AddrInUse), "somebody listens there");
        assert_eq!(mode(&open), 0o666);
        drop(listener);
        let _listener = bind_unix(&open, 0o600).expect("what is left is in the way of nobody");
        assert_eq!(mode(&open), 0o600);
    }
}
