//! What the configuration file and the monitors say to a gateway of object storage: options of Ceph's that
//! `loligo rgw` has, too. They are read at its start.

use admin::options;
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use rados::{AuthName, Cluster, Error, GatewayOptions};
use s3::{encryption, website};
use serde_json::{Value, json};
use types::Errno;

/// Those of the file, and of others what the monitors have for a client of this name (`ceph config set`).
pub async fn in_force(cluster: &Cluster, name: &AuthName, file: GatewayOptions) -> Result<GatewayOptions> {
    let ask = json!({ "prefix": "config get", "who": name.to_string(), "format": "json" });
    match cluster.mon_command(&ask.to_string(), Bytes::new()).await {
        Ok(said) => Ok(file.or(set_there(&said.output)?)),
        // Without them objects might be stored plain that are to be encrypted.
        Err(Error::Command { errno: Errno::EACCES | Errno::EPERM, .. }) => {
            bail!("{name} may not ask the monitors for its options; its key needs mon 'allow r'")
        }
        Err(e) => Err(anyhow!(e)).context("the monitors do not say which options are set"),
    }
}

/// Options of an answer of the monitors, whose text is in no error.
fn set_there(answer: &[u8]) -> Result<GatewayOptions> {
    let read = serde_json::from_slice(answer).ok();
    let Some(Value::Object(options)) = read else { bail!("the monitors' list of options cannot be read") };
    let of_gateways = options.into_iter().filter(|(name, _)| name.starts_with("rgw_"));
    let text = |(name, mut entry): (String, Value)| match entry.get_mut("value").map(Value::take) {
        Some(Value::String(text)) => Ok((name, text)),
        _ => bail!("the monitors' value of {name} cannot be read"),
    };
    of_gateways.map(text).collect()
}

fn is_on(given: &GatewayOptions, name: &str) -> Result<bool> {
    let option = options::find(name).with_context(|| format!("{name} is no option"))?;
    let text = given.get(name).map_or_else(|| option.default_value(), |text| text.trim().to_owned());
    let value = option.parse_value(&text);
    value.map(|v| v == "true").map_err(|_| anyhow!("{name} is neither true nor false"))
}

/// As in radosgw, sites are served at their domain whether or not their owners may change them.
pub fn websites(options: &GatewayOptions) -> Result<website::Settings> {
    let domain = options.get("rgw_dns_s3website_name").map(str::trim).filter(|name| !name.is_empty());
    Ok(website::Settings {
        documents: is_on(options, "rgw_enable_static_website")?,
        domain: domain.map(str::to_owned),
    })
}

/// Texts of secrets are in no error.
pub fn encryption(options: &GatewayOptions) -> Result<encryption::Settings> {
    let backend = options.get("rgw_crypt_s3_kms_backend").unwrap_or_default().trim();
    let keys = options.get("rgw_crypt_s3_kms_encryption_keys").unwrap_or_default();
    let keys = encryption::Settings::keys(keys).map_err(|number| {
        anyhow!(
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
        without_tls: !is_on(options, "rgw_crypt_require_ssl")?,
        trusts_proxy: is_on(options, "rgw_trust_forwarded_https")?,
        service,
        default_key,
        stored: None,
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
    fn the_monitors_options_count_where_the_file_says_nothing() {
        let answer = json!({
            "rgw_crypt_require_ssl": { "value": "false", "section": "client", "mask": {}, "can_update_at_runtime": true },
            "rgw_trust_forwarded_https": { "value": "true", "section": "global", "mask": {}, "can_update_at_runtime": true },
            "debug_ms": { "value": "0/0", "section": "global", "mask": {}, "can_update_at_runtime": true },
        });
        let file = [("rgw_trust_forwarded_https".to_owned(), "0".to_owned())].into_iter().collect();
        let all = GatewayOptions::or(file, set_there(answer.to_string().as_bytes()).unwrap());
        let settings = encryption(&all).unwrap();
        assert!(settings.without_tls && !settings.trusts_proxy, "the file wins");
        assert_eq!(all.get("debug_ms"), None);
        for odd in [&b"[]"[..], b"", br#"{"rgw_crypt_require_ssl": true}"#] {
            assert!(set_there(odd).is_err());
        }
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
