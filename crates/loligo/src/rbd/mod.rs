//! `loligo rbd`: images, with output and exit codes as Ceph's `rbd` has them where scripts read them.

mod args;
mod bench;
mod progress;
mod serve;
mod show;
mod transfer;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rados::{Cluster, IoCtx, PoolId};
use rbd::{CreateOptions, Image, ImageSpec, OpenOptions, feature, pool};

pub use args::RbdArgs;
use args::{CacheCommand, LayoutArgs, NamespaceCommand, RbdCommand, SnapCommand};
use progress::Progress;

/// Runs a subcommand; the exit status is the errno, as Ceph's tool has it.
pub fn run(args: &RbdArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = crate::connect::on(&runtime, args.connect.config()?, async |cluster| {
        Rbd { cluster, args }.execute().await
    });
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let errno = error.chain().find_map(|e| {
                let ours = e.downcast_ref::<rbd::Error>().map(rbd::Error::errno);
                ours.or_else(|| e.downcast_ref::<rados::Error>().map(rados::Error::errno))
            });
            let Some(errno) = errno else { return Err(error) };
            eprintln!("rbd: {error:#}");
            Ok(ExitCode::from(u8::try_from(errno.0).unwrap_or(1)))
        }
    }
}

struct Rbd<'a> {
    cluster: Cluster,
    args: &'a RbdArgs,
}

impl Rbd<'_> {
    async fn execute(&self) -> Result<()> {
        match &self.args.command {
            RbdCommand::Ls { pool } => self.list(pool.as_deref()).await,
            RbdCommand::Namespace(command) => self.namespace(command).await,
            RbdCommand::Info { image } => self.info(image).await,
            RbdCommand::Create(a) => self.create(&a.image, a.size, &a.layout).await,
            RbdCommand::Rm { image } => self.remove(image).await,
            RbdCommand::Mv { from, to } => self.rename(from, to).await,
            RbdCommand::Resize { image, size, allow_shrink } => {
                self.resize(image, *size, *allow_shrink).await
            }
            RbdCommand::Snap(command) => self.snap(command).await,
            RbdCommand::Clone { parent, child, layout } => self.clone_image(parent, child, layout).await,
            RbdCommand::Flatten { image } => {
                let progress = self.progress("Image flatten");
                self.changing(image, async |image| Ok(image.flatten(&progress.reporter()).await?)).await?;
                progress.finish();
                Ok(())
            }
            RbdCommand::Export { image, path } => self.export(image, path).await,
            RbdCommand::Import { path, image, layout } => self.import(path, image, layout).await,
            RbdCommand::ExportDiff { image, path, from_snap } => {
                self.export_diff(image, path, from_snap.as_deref()).await
            }
            RbdCommand::ImportDiff { path, image } => self.import_diff(path, image).await,
            RbdCommand::Du { image } => self.usage(image.as_deref()).await,
            RbdCommand::Bench(bench) => self.bench(bench).await,
            RbdCommand::PersistentCache(CacheCommand::Invalidate { image }) => {
                self.invalidate_cache(image).await
            }
            RbdCommand::Serve(serve) => self.serve(serve).await,
        }
    }

    /// Shows how far something is, where somebody looks.
    fn progress(&self, what: &'static str) -> Progress {
        Progress::new(what, !self.args.no_progress && !self.args.json)
    }

    fn spec(&self, text: &str) -> Result<ImageSpec> {
        Ok(ImageSpec::parse(text, &self.args.pool)?)
    }

    /// The name of a whole image, for what has no use for a snapshot: `rm a@b` must not remove a.
    fn image_spec(&self, text: &str) -> Result<ImageSpec> {
        let spec = self.spec(text)?;
        if spec.snap.is_empty() {
            return Ok(spec);
        }
        let what = format!("{text} names a snapshot, but this command takes an image");
        bail!(rbd::Error::refused(types::Errno::EINVAL, what))
    }

    async fn io(&self, spec: &ImageSpec) -> Result<IoCtx> {
        let pool = self.cluster.pool(&spec.pool).await;
        let pool = pool.with_context(|| format!("error opening pool '{}'", spec.pool))?;
        Ok(pool.with_namespace(spec.namespace.clone()))
    }

    async fn open(&self, text: &str, options: OpenOptions) -> Result<Image> {
        let spec = self.spec(text)?;
        let options = if spec.snap.is_empty() { options } else { OpenOptions::at_snap(spec.snap.clone()) };
        let image = Image::open(&self.io(&spec).await?, &spec.image, options).await;
        image.with_context(|| format!("error opening image {}", spec.image))
    }

    /// Opens an image, changes it, closes it whatever came of it.
    async fn changing(&self, text: &str, body: impl AsyncFnOnce(&Image) -> Result<()>) -> Result<()> {
        self.image_spec(text)?;
        let image = self.open(text, OpenOptions::default()).await?;
        let result = body(&image).await;
        image.close().await?;
        result
    }

    async fn namespace(&self, command: &NamespaceCommand) -> Result<()> {
        let (pool_name, name) = match command {
            NamespaceCommand::Ls { pool } => (pool.as_deref().unwrap_or(&self.args.pool), ""),
            NamespaceCommand::Create { namespace } | NamespaceCommand::Rm { namespace } => {
                namespace.split_once('/').unwrap_or((&self.args.pool, namespace))
            }
        };
        let io = self.cluster.pool(pool_name).await;
        let io = io.with_context(|| format!("error opening pool '{pool_name}'"))?;
        match command {
            NamespaceCommand::Ls { .. } => {
                let names = pool::namespaces(&io).await?;
                if self.args.json {
                    let names: Vec<_> = names.iter().map(|n| serde_json::json!({"name": n})).collect();
                    say!("{}", serde_json::json!(names));
                } else if !names.is_empty() {
                    show::print_table(
                        vec!["NAME".to_owned()],
                        names.into_iter().map(|n| vec![n]).collect(),
                        &[],
                    );
                }
            }
            NamespaceCommand::Create { .. } => pool::create_namespace(&io, name).await?,
            NamespaceCommand::Rm { .. } => pool::remove_namespace(&io, name).await?,
        }
        Ok(())
    }

    async fn options(&self, layout: &LayoutArgs) -> Result<CreateOptions> {
        let mut options = CreateOptions::default();
        if !layout.object_size.is_power_of_two() {
            bail!(rbd::Error::refused(types::Errno::EINVAL, "object sizes are powers of two"));
        }
        options.order = layout.object_size.trailing_zeros() as u8;
        if !layout.image_feature.is_empty() {
            options.features = 0;
            for name in &layout.image_feature {
                let Some(bit) = feature::parse(name) else {
                    bail!(rbd::Error::refused(types::Errno::EINVAL, format!("there is no feature '{name}'")));
                };
                options.features |= bit;
            }
        }
        options.striping = layout.stripe_unit.zip(layout.stripe_count);
        if let Some(name) = &layout.data_pool {
            let PoolId(id) =
                self.cluster.pool(name).await.with_context(|| format!("data pool '{name}'"))?.pool_id();
            options.data_pool = Some(id);
        }
        Ok(options)
    }

    async fn create(&self, text: &str, size: u64, layout: &LayoutArgs) -> Result<()> {
        let spec = self.image_spec(text)?;
        let options = self.options(layout).await?;
        let made = pool::create(&self.io(&spec).await?, &spec.image, size, &options).await;
        made.map(drop).context("create error")
    }

    async fn remove(&self, text: &str) -> Result<()> {
        let spec = self.image_spec(text)?;
        let progress = self.progress("Removing image");
        let removed = pool::remove(&self.io(&spec).await?, &spec.image, &progress.reporter()).await;
        removed.context("remove error")?;
        progress.finish();
        Ok(())
    }

    async fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.image_spec(from)?, self.image_spec(to)?);
        if (&from.pool, &from.namespace) != (&to.pool, &to.namespace) {
            bail!(rbd::Error::refused(types::Errno::EINVAL, "an image keeps its pool and namespace"));
        }
        pool::rename(&self.io(&from).await?, &from.image, &to.image).await.context("rename error")
    }

    async fn resize(&self, text: &str, size: u64, allow_shrink: bool) -> Result<()> {
        self.changing(text, async |image| {
            if size < image.size() && !allow_shrink {
                let what = "shrinking an image is only allowed with the --allow-shrink flag";
                bail!(rbd::Error::refused(types::Errno::EINVAL, what));
            }
            let progress = self.progress("Resizing image");
            image.resize(size, &progress.reporter()).await.context("resize error")?;
            progress.finish();
            Ok(())
        })
        .await
    }

    async fn clone_image(&self, parent: &str, child: &str, layout: &LayoutArgs) -> Result<()> {
        let child = self.image_spec(child)?;
        let image = self.open(parent, OpenOptions::read_only()).await?;
        let cloned =
            image.clone_to(&self.io(&child).await?, &child.image, &self.options(layout).await?).await;
        image.close().await?;
        cloned.context("clone error")
    }

    async fn snap(&self, command: &SnapCommand) -> Result<()> {
        let split = |text: &str| -> Result<(String, String)> {
            let spec = self.spec(text)?;
            if spec.snap.is_empty() {
                bail!(rbd::Error::refused(types::Errno::EINVAL, "snapshot name was not specified"));
            }
            let image = text.rsplit_once('@').map_or(text, |(image, _)| image);
            Ok((image.to_owned(), spec.snap))
        };
        match command {
            SnapCommand::Ls { image } => self.list_snaps(image).await,
            SnapCommand::Create { snapshot } => {
                let (image, snap) = split(snapshot)?;
                self.changing(&image, async |image| {
                    image.create_snap(&snap).await.map(drop).context("failed to create snapshot")
                })
                .await
            }
            SnapCommand::Rm { snapshot } => {
                let (image, snap) = split(snapshot)?;
                self.changing(&image, async |image| {
                    image.remove_snap(&snap).await.context("failed to remove snapshot")
                })
                .await
            }
            SnapCommand::Purge { image } => self.changing(image, purge).await,
            SnapCommand::Rename { from, to } => {
                let ((image, from), (other, to)) = (split(from)?, split(to)?);
                let place = |text: &str| -> Result<ImageSpec> { self.spec(text) };
                if place(&image)? != place(&other)? {
                    let what = "a snapshot keeps its image: source and destination differ";
                    bail!(rbd::Error::refused(types::Errno::EINVAL, what));
                }
                self.changing(&image, async |image| Ok(image.rename_snap(&from, &to).await?)).await
            }
            SnapCommand::Rollback { snapshot } => {
                let (image, snap) = split(snapshot)?;
                self.changing(&image, async |image| {
                    let progress = self.progress("Rolling back to snapshot");
                    image.rollback(&snap, &progress.reporter()).await.context("rollback failed")?;
                    progress.finish();
                    Ok(())
                })
                .await
            }
            SnapCommand::Protect { snapshot } => {
                let (image, snap) = split(snapshot)?;
                self.changing(&image, async |image| {
                    image.protect_snap(&snap).await.context("protecting snap failed")
                })
                .await
            }
            SnapCommand::Unprotect { snapshot } => {
                let (image, snap) = split(snapshot)?;
                self.changing(&image, async |image| {
                    image.unprotect_snap(&snap).await.context("unprotecting snap failed")
                })
                .await
            }
        }
    }
}

async fn purge(image: &Image) -> Result<()> {
    let all = image.snapshots();
    for snap in all.iter().filter(|s| s.kind == rbd::SnapshotKind::User && !s.is_protected) {
        image.remove_snap(&snap.name).await?;
    }
    match all.iter().find(|s| s.is_protected) {
        Some(snap) => bail!(rbd::Error::refused(
            types::Errno::EBUSY,
            format!("snapshot '{}' is protected from removal", snap.name)
        )),
        None => Ok(()),
    }
}
