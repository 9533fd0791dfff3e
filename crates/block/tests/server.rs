//! The NBD server over a Unix socket, spoken to byte by byte.

mod common;

use std::sync::Arc;

use block::{Exported, Server};
use common::{Ram, request, simple_reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

struct Fixture {
    ram: Arc<Ram>,
    /// Large.
    other: Arc<Ram>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    folder: tempfile::TempDir,
}

fn start() -> Fixture {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", 1 << 20));
    let (stop, stopped) = watch::channel(false);
    let other = Arc::new(Ram::new("b", 32 << 20));
    let export = |name: &str, device: &Arc<Ram>| Exported {
        name: name.into(),
        description: String::new(),
        device: device.clone(),
        read_only: false,
    };
    let server = Server::new(vec![export("disk", &ram), export("many", &other)], stopped);
    let listener = UnixListener::bind(folder.path().join("socket")).expect("binds");
    let serving = tokio::spawn(async move { server.serve_unix(listener).await });
    Fixture { ram, other, stop, serving, folder }
}

impl Fixture {
    async fn connect(&self) -> UnixStream {
        let mut stream = UnixStream::connect(self.folder.path().join("socket")).await.expect("connects");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).await.expect("greets");
        stream.write_all(&3u32.to_be_bytes()).await.expect("sends");
        stream
    }

    /// A connection that has the export, by its old option with a fixed reply.
    async fn attach(&self) -> UnixStream {
        self.attach_to("disk", 1 << 20).await
    }

    async fn attach_to(&self, name: &str, size: u64) -> UnixStream {
        let mut stream = self.connect().await;
        stream.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04").await.expect("sends");
        stream.write_all(name.as_bytes()).await.expect("sends");
        let mut reply = [0; 10];
        stream.read_exact(&mut reply).await.expect("answers");
        assert_eq!(reply[..8], size.to_be_bytes());
        stream
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_read_back_on_another_connection() {
    let fixture = start();
    let mut one = fixture.attach().await;
    one.write_all(&request(1, 9, 1000, 5, b"hello")).await.expect("sends");
    assert_eq!(simple_reply(&mut one).await, (0, 9));
    let mut two = fixture.attach().await;
    two.write_all(&request(0, 10, 999, 7, b"")).await.expect("sends");
    assert_eq!(simple_reply(&mut two).await, (0, 10));
    let mut data = [0; 7];
    two.read_exact(&mut data).await.expect("data");
    assert_eq!(&data, b"\0hello\0");
    assert_eq!(&fixture.ram.content()[1000..1005], b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_image_reach_the_client_and_the_connection_lives() {
    let fixture = start();
    let mut stream = fixture.attach().await;
    fixture.ram.broken.store(5, std::sync::atomic::Ordering::SeqCst);
    stream.write_all(&request(1, 1, 0, 1, b"x")).await.expect("sends");
    assert_eq!(simple_reply(&mut stream).await, (5, 1));
    fixture.ram.broken.store(0, std::sync::atomic::Ordering::SeqCst);
    stream.write_all(&request(1, 2, 0, 1, b"x")).await.expect("sends");
    assert_eq!(simple_reply(&mut stream).await, (0, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_bytes_close_the_connection_and_nothing_else() {
    let fixture = start();
    for bytes in [&b"IHAVEOPX\0\0\0\x01\0\0\0\0"[..], b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff"] {
        let mut stream = fixture.connect().await;
        stream.write_all(bytes).await.expect("sends");
        assert_eq!(stream.read(&mut [0; 100]).await.expect("an end"), 0);
    }
    let mut stream = fixture.attach().await;
    stream.write_all(&[0xff; 28]).await.expect("sends");
    assert_eq!(stream.read(&mut [0; 100]).await.expect("an end"), 0);
    fixture.attach().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_that_do_not_answer_and_peers_that_do_not_read_keep_no_one_else_waiting() {
    let fixture = start();
    fixture.ram.stuck.store(true, std::sync::atomic::Ordering::SeqCst);
    let mut held = Vec::new();
    for i in 0..12 {
        // As much as each of them can get in.
        let (mut stream, kind, len) = match i % 2 {
            0 => (fixture.attach().await, 1, 1 << 20),
            _ => (fixture.attach_to("many", 32 << 20).await, 0, 32 << 20),
        };
        let data = vec![7; if kind == 1 { len as usize } else { 0 }];
        let one = request(kind, 1, 0, len, &data);
        held.push(tokio::spawn(async move {
            for _ in 0..100 {
                stream.write_all(&one).await.expect("sends, until it waits");
            }
            std::future::pending::<()>().await;
        }));
    }
    for _ in 0..3 {
        let mut stream = fixture.attach_to("many", 32 << 20).await;
        let all = vec![9; 32 << 20];
        stream.write_all(&request(1, 5, 0, 32 << 20, &all)).await.expect("sends");
        assert_eq!(simple_reply(&mut stream).await, (0, 5));
        stream.write_all(&request(0, 6, 0, 32 << 20, b"")).await.expect("sends");
        assert_eq!(simple_reply(&mut stream).await, (0, 6));
        let mut back = vec![0; 32 << 20];
        stream.read_exact(&mut back).await.expect("data");
        assert!(back == all);
    }
    assert!(fixture.other.content()[0] == 9);
    held.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_every_connection() {
    let fixture = start();
    let mut idle = fixture.attach().await;
    fixture.stop.send(true).expect("the server listens");
    fixture.serving.await.expect("ends");
    assert_eq!(idle.read(&mut [0; 100]).await.expect("an end"), 0);
}
