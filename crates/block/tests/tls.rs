//! NBD over TLS: who gets in, and what those hear who do not.

mod common;

use std::path::Path;
use std::sync::Arc;

use block::{Exported, Server, Tls, TlsError, TlsFiles};
use common::{Ram, request, simple_reply};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An authority.
fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signed")
}

/// A certificate and its key, in PEM.
fn certificate(
    of: &CertifiedIssuer<'_, KeyPair>,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.extended_key_usages = vec![usage];
    params.serial_number = Some(SerialNumber::from(name.len() as u64));
    let key = KeyPair::generate().expect("a key");
    let cert = params.signed_by(&key, of).expect("signed");
    (cert.pem(), key.serialize_pem())
}

struct Fixture {
    ca: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
    ram: Arc<Ram>,
    port: u16,
    stop: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

async fn start() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let ca = authority();
    let (cert, key) = certificate(&ca, "localhost", ExtendedKeyUsagePurpose::ServerAuth);
    for (name, text) in [("server-cert.pem", cert), ("server-key.pem", key), ("ca-cert.pem", ca.pem())] {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    serve(ca, folder).await
}

async fn serve(ca: CertifiedIssuer<'static, KeyPair>, folder: tempfile::TempDir) -> Fixture {
    let tls = Tls::load(&TlsFiles::of_folder(folder.path())).expect("loaded");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let ram = Arc::new(Ram::new("a", 1 << 20));
    let device = ram.clone();
    let exported = Exported { name: "disk".into(), description: String::new(), device, read_only: false };
    let (stop, stopped) = watch::channel(false);
    let server = Server::new(vec![exported], stopped);
    let serving = tokio::spawn(async move { server.serve_tls(listener, tls).await });
    Fixture { ca, folder, ram, port, stop, serving }
}

impl Fixture {
    /// A server of the files as they are now.
    async fn again(self) -> Self {
        serve(self.ca, self.folder).await
    }

    /// A client that has sent its flags.
    async fn connect(&self) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("connects");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).await.expect("greets");
        assert_eq!(&greeting[..8], b"NBDMAGIC");
        stream.write_all(&3u32.to_be_bytes()).await.expect("sends");
        stream
    }

    /// TLS as a client with this certificate, or none. The server's refusal may come with the first read
    /// only.
    async fn secured(&self, cert: Option<(String, String)>) -> std::io::Result<TlsStream<TcpStream>> {
        let mut stream = self.connect().await;
        stream.write_all(b"IHAVEOPT\0\0\0\x05\0\0\0\0").await.expect("sends");
        let mut reply = [0; 20];
        stream.read_exact(&mut reply).await.expect("answers");
        assert_eq!(reply[8..16], [0, 0, 0, 5, 0, 0, 0, 1], "STARTTLS is acknowledged");
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.der().clone()).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match cert {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = PemObject::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
                config.with_client_auth_cert(chain.expect("a certificate"), key).expect("fits")
            }
        };
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    fn client(&self) -> (String, String) {
        certificate(&self.ca, "client", ExtendedKeyUsagePurpose::ClientAuth)
    }
}

/// Takes the export, by its old option.
async fn attach(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<()> {
    stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk").await?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await?;
    assert_eq!(reply[..8], (1u64 << 20).to_be_bytes());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_certificate_of_the_authority_has_the_image() {
    let fixture = start().await;
    let mut stream = fixture.secured(Some(fixture.client())).await.expect("TLS");
    attach(&mut stream).await.expect("attached");
    // More than TLS holds back, both ways.
    let data: Vec<u8> = (0..1u32 << 20).map(|i| (i % 251) as u8).collect();
    stream.write_all(&request(1, 7, 0, 1 << 20, &data)).await.expect("sends");
    stream.flush().await.expect("sends");
    assert_eq!(simple_reply(&mut stream).await, (0, 7));
    assert!(fixture.ram.content() == data);
    stream.write_all(&request(0, 8, 0, 1 << 20, b"")).await.expect("sends");
    stream.flush().await.expect("sends");
    assert_eq!(simple_reply(&mut stream).await, (0, 8));
    let mut back = vec![0; 1 << 20];
    stream.read_exact(&mut back).await.expect("data");
    assert!(back == data);
    // A stop ends it in order, with TLS's own end.
    fixture.stop.send(true).expect("the server listens");
    fixture.serving.await.expect("ends");
    assert_eq!(stream.read(&mut [0; 100]).await.expect("an end in order"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_certificate_of_the_authority_nobody_gets_in() {
    let fixture = start().await;
    let foreign = certificate(&authority(), "client", ExtendedKeyUsagePurpose::ClientAuth);
    let servers = certificate(&fixture.ca, "client", ExtendedKeyUsagePurpose::ServerAuth);
    for cert in [None, Some(foreign), Some(servers)] {
        // With TLS 1.3 the client is done before the server has looked at its certificate.
        if let Ok(mut stream) = fixture.secured(cert).await {
            attach(&mut stream).await.expect_err("refused");
        }
    }
    let mut stream = fixture.secured(Some(fixture.client())).await.expect("TLS");
    attach(&mut stream).await.expect("others are let in after them");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_was_taken_back_lets_nobody_in() {
    let fixture = start().await;
    let revoked = RevokedCertParams {
        serial_number: SerialNumber::from("lost".len() as u64),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2999, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&fixture.ca).expect("signed").pem().expect("text");
    std::fs::write(fixture.folder.path().join("ca-crl.pem"), list).expect("written");
    let fixture = fixture.again().await;
    let named = |name: &str| certificate(&fixture.ca, name, ExtendedKeyUsagePurpose::ClientAuth);
    if let Ok(mut stream) = fixture.secured(Some(named("lost"))).await {
        attach(&mut stream).await.expect_err("refused");
    }
    let mut stream = fixture.secured(Some(named("others"))).await.expect("TLS");
    attach(&mut stream).await.expect("others are let in");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_tls_is_taken_up() {
    let fixture = start().await;
    let mut stream = fixture.connect().await;
    stream.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").await.expect("sends");
    let mut reply = [0; 20 + 15];
    stream.read_exact(&mut reply).await.expect("answers");
    assert_eq!(reply[8..16], [0, 0, 0, 3, 0x80, 0, 0, 5], "TLS is required, before exports are listed");
    attach(&mut stream).await.expect_err("the old way has no error: it ends");
    // Options behind STARTTLS, in the clear.
    let mut stream = fixture.connect().await;
    stream.write_all(b"IHAVEOPT\0\0\0\x05\0\0\0\0IHAVEOPT\0\0\0\x01\0\0\0\x04disk").await.expect("sends");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.len() <= 20, "an acknowledgement at most: {rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_keep_nobody_out() {
    let fixture = start().await;
    let mut strangers = Vec::new();
    for _ in 0..200 {
        strangers.push(fixture.connect().await);
    }
    let mut stream = fixture.secured(Some(fixture.client())).await.expect("TLS");
    attach(&mut stream).await.expect("attached");
    let mut rest = [0; 1];
    assert!(matches!(strangers[0].read(&mut rest).await, Ok(0) | Err(_)), "the first of them was cut off");
}

#[tokio::test]
async fn files_that_do_not_fit_are_named() {
    let fixture = start().await;
    let files = |name: &str, text: &str| {
        let path = fixture.folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let good = TlsFiles::of_folder(fixture.folder.path());
    let (missing, empty) = (Path::new("/no/such/file").to_owned(), files("empty.pem", ""));
    let other = files("other-key.pem", &fixture.client().1);
    let load = |files| Tls::load(&files).err();
    assert!(
        matches!(load(TlsFiles { ca: missing.clone(), ..good.clone() }), Some(TlsError::Unread { path, .. }) if path == missing)
    );
    assert!(
        matches!(load(TlsFiles { ca: empty.clone(), ..good.clone() }), Some(TlsError::Empty(path)) if path == empty)
    );
    assert!(
        matches!(load(TlsFiles { key: empty.clone(), ..good.clone() }), Some(TlsError::Unread { path, .. }) if path == empty)
    );
    assert!(
        matches!(load(TlsFiles { key: other, ..good.clone() }), Some(TlsError::Unfit { .. })),
        "another's key"
    );
    assert!(matches!(load(TlsFiles { crl: Some(empty), ..good }), Some(TlsError::Empty(_))));
}
