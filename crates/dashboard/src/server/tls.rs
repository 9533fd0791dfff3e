//! TLS: the certificate that the monitors keep for the dashboard, or one that is made at each start.
//!
//! Source: _configure in src/pybind/mgr/dashboard/module.py (`mgr/dashboard/crt` and `key` of the config-key
//! store).

use std::sync::Arc;

use bytes::Bytes;
use manager::{Ask, DashboardAt};
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use types::Errno;

use super::Site;

/// One manager's own wins over that for all.
const CERTIFICATE: &str = "crt";
const KEY: &str = "key";

pub async fn acceptor(site: &Site, at: DashboardAt) -> Result<TlsAcceptor, String> {
    let certificate = kept(site, CERTIFICATE).await?;
    let key = kept(site, KEY).await?;
    let (certificate, key) = match (certificate, key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => {
            tracing::warn!(
                "there is no certificate for the dashboard: one is made that no browser knows. `ceph config-key set \
                 mgr/dashboard/crt -i FILE` and `mgr/dashboard/key` keep one"
            );
            own(at)?
        }
        _ => return Err("of mgr/dashboard/crt and mgr/dashboard/key there is only one".to_owned()),
    };
    let config = config(&certificate, &key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn config(certificate: &[u8], key: &[u8]) -> Result<ServerConfig, String> {
    let certificates = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|e| format!("mgr/dashboard/crt cannot be read: {e}"))?;
    if certificates.is_empty() {
        return Err("there is no certificate in mgr/dashboard/crt".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|e| format!("mgr/dashboard/key cannot be read: {e}"))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|e| format!("the certificate and its key are no use: {e}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// What the monitors keep under a key, if anything.
async fn kept(site: &Site, what: &str) -> Result<Option<Bytes>, String> {
    for key in [format!("mgr/dashboard/{}/{what}", site.name), format!("mgr/dashboard/{what}")] {
        let json = json!({ "prefix": "config-key get", "key": key }).to_string();
        let reply = site.manager.ask(Ask::Monitors { json, input: Bytes::new() }).await;
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
fn own(at: DashboardAt) -> Result<(Bytes, Bytes), String> {
    let names = vec![host_name(), at.addr.ip().to_string(), "localhost".to_owned()];
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
        let at = DashboardAt { addr: "10.0.0.1:8443".parse().expect("an address"), tls: true };
        let (one, one_key) = own(at).expect("made");
        let (_, other_key) = own(at).expect("made");
        assert!(config(&one, &one_key).is_ok());
        assert!(config(&one, &other_key).is_err());
        assert!(config(b"", &one_key).is_err() && config(&one, b"").is_err());
    }
}
