//! `loligo rbd serve`: images over NBD, with or without the persistent cache.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use block::{BlockDevice, Cache, CacheConfig, Exported, Server};
use rbd::{Image, LockPolicy, OpenOptions};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::Rbd;
use super::args::ServeArgs;

impl Rbd<'_> {
    pub(super) async fn serve(&self, args: &ServeArgs) -> Result<()> {
        let mut exports = Vec::new();
        for name in &args.images {
            exports.push(self.exported(name, args).await?);
        }
        let devices: Vec<Arc<dyn BlockDevice>> = exports.iter().map(|e| Arc::clone(&e.device)).collect();
        let (stop, stopped) = watch::channel(false);
        let server = Server::new(exports, stopped);
        let unix = args.unix.as_deref().map(bind_unix).transpose()?;
        let tcp = match args.tcp {
            Some(addr) => {
                Some(TcpListener::bind(addr).await.with_context(|| format!("cannot listen on {addr}"))?)
            }
            None => None,
        };
        self.say_where(args, tcp.as_ref())?;
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let serving = async {
            let over_unix = async {
                if let Some(listener) = unix {
                    server.serve_unix(listener).await;
                }
            };
            let over_tcp = async {
                if let Some(listener) = tcp {
                    server.serve_tcp(listener).await;
                }
            };
            tokio::join!(over_unix, over_tcp);
        };
        let ending = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            let _ = stop.send(true);
        };
        tokio::join!(serving, ending);
        if let Some(path) = &args.unix {
            let _ = std::fs::remove_file(path);
        }
        for device in devices {
            device.close().await.context("an image did not close in order; its cache keeps what is left")?;
        }
        Ok(())
    }

    async fn exported(&self, name: &str, args: &ServeArgs) -> Result<Exported> {
        let lock = if args.cache.is_some() { LockPolicy::Keep } else { LockPolicy::Share };
        let options = OpenOptions { read_only: args.read_only, lock, ..OpenOptions::default() };
        let image = self.open(name, options).await?;
        let description = format!("rbd image {name}");
        let device: Arc<dyn BlockDevice> = match &args.cache {
            Some(folder) => {
                let linger = Duration::from_millis(args.cache_linger_ms);
                Arc::new(open_cache(image, folder, args.cache_size, linger).await?)
            }
            None => Arc::new(image),
        };
        Ok(Exported { name: name.to_owned(), description, device, read_only: args.read_only })
    }

    fn say_where(&self, args: &ServeArgs, tcp: Option<&TcpListener>) -> Result<()> {
        for name in &args.images {
            if let Some(path) = &args.unix {
                say!("nbd+unix:///{name}?socket={}", path.display());
            }
            if let Some(listener) = tcp {
                say!("nbd://{}/{name}", listener.local_addr()?);
            }
        }
        Ok(())
    }
}

/// Puts the cache over an image; the lock is taken first, and kept, so that nobody else writes below the cache.
pub(super) async fn open_cache(image: Image, folder: &Path, size: u64, linger: Duration) -> Result<Cache> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    image.acquire_lock().await.context("cannot lock the image")?;
    let path = folder.join(format!("{}.cache", image.id()));
    Ok(Cache::open(Arc::new(image), &CacheConfig { path, size, linger })?)
}

/// A socket that a killed server left is in the way of nobody.
fn bind_unix(path: &Path) -> Result<UnixListener> {
    let is_left = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err();
    if is_left {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))
}
