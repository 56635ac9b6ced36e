//! One connection that is used again and again, and bodies sent over it as they are.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::Reply;

const READ_BYTES: usize = 16 << 10;

pub(super) struct Client {
    stream: TcpStream,
    address: SocketAddr,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, address }
    }

    /// Posts a body and reads the whole answer.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> Reply {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let mut reply = Vec::new();
        let mut buffer = [0; READ_BYTES];
        let mut closes = false;
        while !is_whole(&reply, &mut closes) {
            let read = self.stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "the answer broke off: {}", String::from_utf8_lossy(&reply));
            reply.extend_from_slice(&buffer[..read]);
        }
        if closes {
            *self = Self::connect(self.address).await;
        }
        Reply::parse(&reply)
    }
}

/// Whether an answer's bytes are all there; sets `closes` if its connection serves no other.
fn is_whole(reply: &[u8], closes: &mut bool) -> bool {
    let Some(end) = reply.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = str::from_utf8(&reply[..end]).unwrap().to_ascii_lowercase();
    *closes = head.contains("\r\nconnection: close");
    match head.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => reply.len() - end - 4 >= length.parse::<usize>().unwrap(),
        // JSON holds no raw line break, so only the last chunk looks like this.
        None => reply.ends_with(b"\r\n0\r\n\r\n"),
    }
}
