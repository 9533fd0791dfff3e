//! Exports and imports between images and files.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result};
use rbd::{OpenOptions, pool, stream};

use super::Rbd;
use super::args::LayoutArgs;

impl Rbd<'_> {
    pub(super) async fn export(&self, text: &str, path: &Path) -> Result<()> {
        let image = self.open(text, OpenOptions::read_only()).await?;
        let mut sink = if is_standard(path) {
            Output { out: Box::new(io::stdout()), file: None, len: 0 }
        } else {
            let file = File::create_new(path).with_context(|| format!("error opening {}", path.display()))?;
            Output { out: Box::new(io::sink()), file: Some(file), len: 0 }
        };
        let progress = self.progress("Exporting image");
        stream::export(&image, &mut sink, &progress.reporter()).await.context("export error")?;
        sink.finish()?;
        progress.finish();
        Ok(image.close().await?)
    }

    pub(super) async fn import(&self, path: &Path, text: &str, layout: &LayoutArgs) -> Result<()> {
        let spec = self.image_spec(text)?;
        let io = self.io(&spec).await?;
        let (mut source, size) = open_source(path)?;
        let options = self.options(layout).await?;
        // The length of a pipe shows at its end.
        pool::create(&io, &spec.image, size.unwrap_or(0), &options).await.context("import error")?;
        let progress = self.progress("Importing image");
        let result = self
            .changing(text, async |image| {
                if size.is_some() {
                    return Ok(stream::import(image, &mut source, &progress.reporter()).await?);
                }
                import_pipe(image, &mut source).await
            })
            .await;
        if result.is_err() {
            let _ = pool::remove(&io, &spec.image, &|_, _| {}).await;
        } else {
            progress.finish();
        }
        result.context("import error")
    }

    pub(super) async fn export_diff(&self, text: &str, path: &Path, from: Option<&str>) -> Result<()> {
        let image = self.open(text, OpenOptions::read_only()).await?;
        let snap = self.spec(text)?.snap;
        let to = (!snap.is_empty()).then_some(snap.as_str());
        image.diff_start(from).context("export-diff error")?;
        let mut out: Box<dyn Write + Send> = if is_standard(path) {
            Box::new(io::stdout())
        } else {
            Box::new(File::create_new(path).with_context(|| format!("error opening {}", path.display()))?)
        };
        let progress = self.progress("Exporting image");
        let exported = stream::export_diff(&image, from, to, &mut out, &progress.reporter()).await;
        exported.context("export-diff error")?;
        out.flush()?;
        progress.finish();
        Ok(image.close().await?)
    }

    pub(super) async fn import_diff(&self, path: &Path, text: &str) -> Result<()> {
        let (mut source, _) = open_source(path)?;
        self.changing(text, async |image| {
            let progress = self.progress("Importing image diff");
            let imported = stream::import_diff(image, &mut source, &progress.reporter()).await;
            imported.context("import-diff failed")?;
            progress.finish();
            Ok(())
        })
        .await
    }
}

async fn import_pipe(image: &rbd::Image, source: &mut (dyn Read + Send)) -> Result<()> {
    const STEP: u64 = 4 << 20;
    let mut at = 0;
    loop {
        let mut data = Vec::new();
        source.take(STEP).read_to_end(&mut data)?;
        if data.is_empty() {
            return Ok(());
        }
        let len = data.len() as u64;
        image.resize(at + len, &|_, _| {}).await?;
        if data.iter().any(|b| *b != 0) {
            image.write(at, data.into()).await?;
        }
        at += len;
    }
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The bytes to import, and how many when that is known.
fn open_source(path: &Path) -> Result<(Box<dyn Read + Send>, Option<u64>)> {
    if is_standard(path) {
        return Ok((Box::new(io::stdin()), None));
    }
    let mut file = File::open(path).with_context(|| format!("error opening {}", path.display()))?;
    let size = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    Ok((Box::new(file), Some(size)))
}

/// A file gets holes for zeros; a pipe gets the zeros.
struct Output {
    out: Box<dyn Write + Send>,
    file: Option<File>,
    len: u64,
}

impl Output {
    fn finish(mut self) -> Result<()> {
        if let Some(file) = &self.file {
            file.set_len(self.len)?;
        }
        Ok(self.out.flush()?)
    }
}

impl stream::Sink for Output {
    fn data(&mut self, data: &[u8]) -> io::Result<()> {
        self.len += data.len() as u64;
        match &mut self.file {
            Some(file) => file.write_all(data),
            None => self.out.write_all(data),
        }
    }

    fn zeros(&mut self, len: u64) -> io::Result<()> {
        self.len += len;
        match &mut self.file {
            Some(file) => file.seek(SeekFrom::Current(len as i64)).map(drop),
            None => io::copy(&mut io::repeat(0).take(len), &mut self.out).map(drop),
        }
    }
}
