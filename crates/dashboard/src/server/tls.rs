//! TLS: the certificate that the monitors keep for a module, or one that is made at each start.
//!
//! Source: _configure in src/pybind/mgr/dashboard/module.py (`mgr/dashboard/crt` and `key` of the config-key
//! store). `mgr/prometheus/crt` and `key` are ours.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use daemons::mgr::MgrHandle;
use manager::Ask;
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use types::Errno;

/// One manager's own wins over that for all.
const CERTIFICATE: &str = "crt";
const KEY: &str = "key";

/// For a module of the manager `name`, which is served at `ip`.
pub async fn acceptor(
    manager: &MgrHandle,
    module: &str,
    name: &str,
    ip: IpAddr,
) -> Result<TlsAcceptor, String> {
    let certificate = kept(manager, module, name, CERTIFICATE).await?;
    let key = kept(manager, module, name, KEY).await?;
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => {
            tracing::warn!(
                "there is no certificate for {module}: one is made that nobody knows. `ceph config-key set \
                 mgr/{module}/crt -i FILE` and `mgr/{module}/key` keep one"
            );
            own(ip)?
        }
        _ => return Err(format!("of mgr/{module}/crt and mgr/{module}/key there is only one")),
    };
    let config = config(&certificate, &key).map_err(|why| format!("mgr/{module}/crt and key: {why}"))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn config(certificate: &[u8], key: &[u8]) -> Result<ServerConfig, String> {
    let certificates = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|e| format!("the certificate cannot be read: {e}"))?;
    if certificates.is_empty() {
        return Err("there is no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|e| format!("the key cannot be read: {e}"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|e| format!("the certificate and its key are no use: {e}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What the monitors keep for a module under a key, if anything.
pub async fn kept(
    manager: &MgrHandle,
    module: &str,
    name: &str,
    what: &str,
) -> Result<Option<Bytes>, String> {
    for key in [format!("mgr/{module}/{name}/{what}"), format!("mgr/{module}/{what}")] {
        let json = json!({ "prefix": "config-key get", "key": key }).to_string();
        let reply = manager.ask(Ask::Monitors { json, input: Bytes::new() }).await;
        if !reply.is_error() {
            return Ok(Some(reply.data));
        }
        if reply.code != Errno::ENOENT.neg() {
            return Err(format!("the monitors do not give {key} out: {}", reply.outs));
        }
    }
    Ok(None)
}

/// A certificate of our own for the names that this host may be asked for by.
fn own(ip: IpAddr) -> Result<(Bytes, Bytes), String> {
    let names = vec![host_name(), ip.to_string(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
    Ok((made.cert.pem().into(), made.signing_key.serialize_pem().into()))
}

/// This host's name, as the kernel has it.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_and_a_key_that_do_not_fit_are_refused() {
        let at: IpAddr = "10.0.0.1".parse().expect("an address");
        let (one, one_key) = own(at).expect("made");
        let (_, other_key) = own(at).expect("made");
        assert!(config(&one, &one_key).is_ok());
        assert!(config(&one, &other_key).is_err());
        assert!(config(b"", &one_key).is_err() && config(&one, b"").is_err());
    }
}
