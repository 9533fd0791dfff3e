//! How people name images: `[pool/[namespace/]]image[@snapshot]`.

use types::Errno;

use crate::error::{Error, Result};

/// A parsed name; what was left out is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageSpec {
    pub pool: String,
    pub namespace: String,
    pub image: String,
    pub snap: String,
}

impl ImageSpec {
    /// # Errors
    /// EINVAL for more parts than there can be, or an empty one.
    pub fn parse(text: &str, default_pool: &str) -> Result<Self> {
        let bad = || Error::refused(Errno::EINVAL, format!("'{text}' is not an image's name"));
        let (path, snap) = match text.split_once('@') {
            Some((_, "")) => return Err(bad()),
            Some((path, snap)) => (path, snap),
            None => (text, ""),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [image] => (default_pool, "", image),
            [pool, image] => (pool, "", image),
            [pool, namespace, image] => (pool, namespace, image),
            _ => return Err(bad()),
        };
        if image.is_empty() || pool.is_empty() || snap.contains(['@', '/']) {
            return Err(bad());
        }
        Ok(Self { pool: pool.into(), namespace: namespace.into(), image: image.into(), snap: snap.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let spec = |pool: &str, namespace: &str, image: &str, snap: &str| {
            Some(ImageSpec {
                pool: pool.into(),
                namespace: namespace.into(),
                image: image.into(),
                snap: snap.into(),
            })
        };
        for (text, expected) in [
            ("a", spec("rbd", "", "a", "")),
            ("p/a@s", spec("p", "", "a", "s")),
            ("p/n/a", spec("p", "n", "a", "")),
            ("", None),
            ("p/", None),
            ("/a", None),
            ("a@", None),
            ("a@b@c", None),
            ("a/b/c/d", None),
        ] {
            assert_eq!(ImageSpec::parse(text, "rbd").ok(), expected, "{text}");
        }
    }
}
