//! `loligo rbd serve`: images over NBD, with or without the persistent cache.

use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use block::{BlockDevice, Cache, CacheConfig, Exported, Server};
use rbd::{Image, LockPolicy, OpenOptions, feature};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::Rbd;
use super::args::ServeArgs;

/// Requests under way may take this long once the server is told to stop; then the images are closed all the same.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

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
        let mut signals = Signals::new()?;
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
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = signals.next() => {}
        }
        let _ = stop.send(true);
        let ending = async {
            if tokio::time::timeout(DRAIN_LIMIT, &mut serving).await.is_err() {
                tracing::warn!("requests are still under way after {DRAIN_LIMIT:?}: closing without them");
            }
            if let Some(path) = &args.unix {
                let _ = std::fs::remove_file(path);
            }
            close_all(devices).await
        };
        tokio::select! {
            closed = ending => closed,
            () = signals.next() => bail!("ended at once by a second signal; caches keep what is left"),
        }
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

/// What ends the server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Closes every device, side by side: one that fails or hangs keeps no other from it. Gives the first error.
async fn close_all(devices: Vec<Arc<dyn BlockDevice>>) -> Result<()> {
    let close = |device: Arc<dyn BlockDevice>| {
        tokio::spawn(async move {
            let closed = device.close().await;
            if let Err(e) = &closed {
                tracing::error!(error = %e, image = %device.identity(), "an image did not close in order");
            }
            closed
        })
    };
    let closing: Vec<_> = devices.into_iter().map(close).collect();
    let mut result = Ok(());
    for closed in closing {
        let closed = closed.await.context("closing an image").and_then(|closed| Ok(closed?));
        if result.is_ok() {
            result = closed.context("an image did not close in order; its cache keeps what is left");
        }
    }
    result
}

/// Puts the cache over an image; the lock is taken first, and kept, so that nobody else writes below the cache.
pub(super) async fn open_cache(image: Image, folder: &Path, size: u64, linger: Duration) -> Result<Cache> {
    if !image.header().has(feature::EXCLUSIVE_LOCK) {
        bail!(
            "image {} lacks the exclusive-lock feature: nothing would keep others from writing below the cache",
            image.name()
        );
    }
    let mut maker = std::fs::DirBuilder::new();
    maker
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
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
