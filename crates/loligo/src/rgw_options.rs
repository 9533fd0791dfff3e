//! What the configuration file says to a gateway of object storage: options of Ceph's that `loligo rgw` has,
//! too.

use anyhow::{Context, Result, bail};
use rados::GatewayOptions;
use s3::{encryption, website};

/// Source: Option::parse_value in src/common/options.cc.
fn boolean(options: &GatewayOptions, name: &str, default: bool) -> Result<bool> {
    let Some(text) = options.get(name).map(str::trim) else { return Ok(default) };
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        number => {
            Ok(number.parse::<i64>().with_context(|| format!("{name} is neither true nor false"))? != 0)
        }
    }
}

/// As in radosgw, sites are served at their domain whether or not their owners may change them.
pub fn websites(options: &GatewayOptions) -> Result<website::Settings> {
    let domain = options.get("rgw_dns_s3website_name").map(str::trim).filter(|name| !name.is_empty());
    Ok(website::Settings {
        documents: boolean(options, "rgw_enable_static_website", false)?,
        domain: domain.map(str::to_owned),
    })
}

/// Texts of secrets are in no error.
pub fn encryption(options: &GatewayOptions) -> Result<encryption::Settings> {
    let backend = options.get("rgw_crypt_s3_kms_backend").unwrap_or_default().trim();
    let keys = options.get("rgw_crypt_s3_kms_encryption_keys").unwrap_or_default();
    let keys = encryption::Settings::keys(keys).map_err(|number| {
        anyhow::anyhow!(
            "rgw_crypt_s3_kms_encryption_keys: entry {number} is no name with a key of 32 bytes in base64"
        )
    })?;
    let service = match backend {
        "testing" => Some(keys),
        "" if keys.is_empty() => None,
        "" => bail!("rgw_crypt_s3_kms_encryption_keys is of the backend `testing`, which is not chosen"),
        other => bail!("rgw_crypt_s3_kms_backend is {other}, and this gateway knows `testing` alone"),
    };
    let default_key = options.get("rgw_crypt_default_encryption_key").filter(|text| !text.trim().is_empty());
    let default_key = default_key
        .map(|text| encryption::Settings::key(text).context("rgw_crypt_default_encryption_key is no key"))
        .transpose()?;
    Ok(encryption::Settings {
        without_tls: !boolean(options, "rgw_crypt_require_ssl", true)?,
        trusts_proxy: boolean(options, "rgw_trust_forwarded_https", false)?,
        service,
        default_key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo=";

    fn of(options: &[(&str, &str)]) -> Result<encryption::Settings> {
        let options = options.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        encryption(&options.collect())
    }

    #[test]
    fn options_are_radosgws() {
        let none = of(&[]).unwrap();
        assert!(
            !none.without_tls && !none.trusts_proxy,
            "keys go over TLS alone unless it is said otherwise"
        );
        assert!(none.service.is_none() && none.default_key.is_none());
        let keys = format!("testkey-1={KEY} testkey-2={KEY};testkey-3={KEY}");
        let all = of(&[
            ("rgw_crypt_require_ssl", "0"),
            ("rgw_trust_forwarded_https", "True"),
            ("rgw_crypt_s3_kms_backend", "testing"),
            ("rgw_crypt_s3_kms_encryption_keys", &keys),
            ("rgw_crypt_default_encryption_key", KEY),
        ]);
        let all = all.unwrap();
        assert!(all.without_tls && all.trusts_proxy && all.default_key.is_some());
        assert_eq!(
            all.service.unwrap().into_keys().collect::<Vec<_>>(),
            ["testkey-1", "testkey-2", "testkey-3"]
        );
    }

    #[test]
    fn what_would_have_no_effect_is_refused_and_no_secret_is_told() {
        let keys = format!("a={KEY}");
        for options in [
            &[("rgw_crypt_s3_kms_backend", "barbican")][..],
            &[("rgw_crypt_s3_kms_encryption_keys", keys.as_str())],
            &[("rgw_crypt_s3_kms_backend", "testing"), ("rgw_crypt_s3_kms_encryption_keys", "a=c2VjcmV0")],
            &[("rgw_crypt_s3_kms_backend", "testing"), ("rgw_crypt_s3_kms_encryption_keys", "a")],
            &[("rgw_crypt_s3_kms_backend", "testing"), ("rgw_crypt_s3_kms_encryption_keys", KEY)],
            &[("rgw_crypt_default_encryption_key", "c2VjcmV0")],
            &[("rgw_crypt_require_ssl", "perhaps")],
        ] {
            let error = format!("{:?}", of(options).unwrap_err());
            assert!(!error.contains("c2VjcmV0") && !error.contains(KEY.trim_end_matches('=')), "{error}");
        }
    }
}
