//! A bucket that is served as a web site. Source: src/rgw/rgw_website.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

/// Where a request is sent to instead; empty texts stay as they were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redirect {
    pub protocol: Bytes,
    pub hostname: Bytes,
    /// 0 for the usual one.
    pub http_code: u16,
}
wire_struct!(Redirect(1, 1) { protocol, hostname, http_code });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Condition {
    key_prefix: Bytes,
    http_error: u16,
}
wire_struct!(Condition(1, 1) { key_prefix, http_error });

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Instead {
    redirect: Redirect,
    key_prefix: Bytes,
    key: Bytes,
}
wire_struct!(Instead(1, 1) { redirect, key_prefix, key });

/// Which requests are sent elsewhere, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoutingRule {
    pub key_prefix_equals: Bytes,
    /// 0 for any.
    pub http_error_equals: u16,
    pub redirect: Redirect,
    pub replace_key_prefix_with: Bytes,
    pub replace_key_with: Bytes,
}

impl Encode for RoutingRule {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            Condition { key_prefix: self.key_prefix_equals.clone(), http_error: self.http_error_equals }
                .encode(w);
            Instead {
                redirect: self.redirect.clone(),
                key_prefix: self.replace_key_prefix_with.clone(),
                key: self.replace_key_with.clone(),
            }
            .encode(w);
        });
    }
}
impl Decode for RoutingRule {
    const MIN_SIZE: usize = 30;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("routing rule", 1, |r, _| {
            let (when, then) = (Condition::decode(r)?, Instead::decode(r)?);
            Ok(Self {
                key_prefix_equals: when.key_prefix,
                http_error_equals: when.http_error,
                redirect: then.redirect,
                replace_key_prefix_with: then.key_prefix,
                replace_key_with: then.key,
            })
        })
    }
}

/// Source: RGWBucketWebsiteConf.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Website {
    pub index_suffix: Bytes,
    pub error_key: Bytes,
    pub rules: Vec<RoutingRule>,
    /// Of all requests, when it has a hostname.
    pub redirect_all: Redirect,
    /// Swift's: the content type that makes an object a folder.
    pub subdir_marker: Bytes,
    /// Swift's.
    pub listing_css: Bytes,
    pub listing: bool,
}

impl Encode for Website {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.index_suffix.encode(w);
            self.error_key.encode(w);
            w.envelope(1, 1, |w| self.rules.encode(w));
            self.redirect_all.encode(w);
            self.subdir_marker.encode(w);
            self.listing_css.encode(w);
            self.listing.encode(w);
        });
    }
}
impl Decode for Website {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("website", 2, |r, env| {
            let (index_suffix, error_key) = (r.blob()?, r.blob()?);
            let rules = r.envelope("routing rules", 1, |r, _| Decode::decode(r))?;
            let redirect_all = Decode::decode(r)?;
            let mut site = Self { index_suffix, error_key, rules, redirect_all, ..Self::default() };
            if env.version >= 2 {
                (site.subdir_marker, site.listing_css) = (r.blob()?, r.blob()?);
                site.listing = Decode::decode(r)?;
            }
            Ok(site)
        })
    }
}
