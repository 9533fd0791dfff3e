//! Bodies in signed chunks: `size;chunk-signature=...`, the bytes, and trailers behind the last one. Source:
//! "Signature calculations: transferring payload in multiple chunks" of AWS.
//!
//! 1. Bytes go on before their chunk's signature is known; the end of the body is not reached when it is
//!    wrong. What is made of a body is made at its end.

use bytes::{Buf, Bytes, BytesMut};
use sha2::{Digest, Sha256};

use super::{ChunkKey, hex};
use crate::body::BodyError;

/// Longest line: a chunk's size and signature, or a trailer.
const MAX_LINE: usize = 1024;
const MAX_TRAILERS: usize = 16;

#[derive(Debug)]
enum State {
    Size,
    Data {
        left: u64,
    },
    /// The end of a chunk's line.
    Behind,
    Trailers,
    Done,
}

/// Takes chunks apart.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    key: Option<ChunkKey>,
    has_trailer: bool,
    line: BytesMut,
    sum: Sha256,
    signature: String,
    trailers: Vec<(String, String)>,
}

impl Decoder {
    /// With a key each chunk is signed.
    pub fn new(key: Option<ChunkKey>, has_trailer: bool) -> Self {
        Self {
            state: State::Size,
            key,
            has_trailer,
            line: BytesMut::new(),
            sum: Sha256::new(),
            signature: String::new(),
            trailers: Vec::new(),
        }
    }

    #[cfg(test)]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub fn trailers(&self) -> &[(String, String)] {
        &self.trailers
    }

    /// Takes what came; gives bytes of the body.
    pub fn take(&mut self, mut input: Bytes) -> Result<Bytes, BodyError> {
        let mut out: Vec<Bytes> = Vec::new();
        while !input.is_empty() {
            match &mut self.state {
                State::Done => return Err(BodyError::Malformed),
                State::Data { left } => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    let data = input.split_to(count);
                    *left -= count as u64;
                    if self.key.is_some() {
                        self.sum.update(&data);
                    }
                    out.push(data);
                    if matches!(self.state, State::Data { left: 0 }) {
                        self.end_chunk()?;
                        self.state = State::Behind;
                    }
                }
                _ => {
                    if let Some(line) = self.line(&mut input)? {
                        self.take_line(&line)?;
                    }
                }
            }
        }
        Ok(match &out[..] {
            [one] => one.clone(),
            _ => out.concat().into(),
        })
    }

    /// The next line, when its end is there.
    fn line(&mut self, input: &mut Bytes) -> Result<Option<String>, BodyError> {
        let end = input.iter().position(|b| *b == b'\n');
        let count = end.map_or(input.len(), |end| end + 1);
        if self.line.len() + count > MAX_LINE {
            return Err(BodyError::Malformed);
        }
        self.line.extend_from_slice(input.get(..count).unwrap_or_default());
        input.advance(count);
        if end.is_none() {
            return Ok(None);
        }
        let line = self.line.split();
        let text = std::str::from_utf8(&line).map_err(|_| BodyError::Malformed)?;
        Ok(Some(text.trim_end_matches('\n').trim_end_matches('\r').to_owned()))
    }

    fn take_line(&mut self, line: &str) -> Result<(), BodyError> {
        match self.state {
            State::Size => self.take_size(line),
            State::Behind if line.is_empty() => {
                self.state = State::Size;
                Ok(())
            }
            State::Trailers => self.take_trailer(line),
            _ => Err(BodyError::Malformed),
        }
    }

    fn take_size(&mut self, line: &str) -> Result<(), BodyError> {
        let (size, rest) = line.split_once(';').unwrap_or((line, ""));
        let size = u64::from_str_radix(size.trim(), 16).map_err(|_| BodyError::Malformed)?;
        self.signature = rest.trim().strip_prefix("chunk-signature=").unwrap_or_default().to_owned();
        self.state = State::Data { left: size };
        if size == 0 {
            self.end_chunk()?;
            self.state = State::Trailers;
        }
        Ok(())
    }

    /// Holds a chunk against its signature.
    fn end_chunk(&mut self) -> Result<(), BodyError> {
        let sum = hex(&std::mem::take(&mut self.sum).finalize());
        let Some(key) = &mut self.key else { return Ok(()) };
        let (nothing, previous) = (hex(&Sha256::digest(b"")), &key.previous);
        let (stamp, scope) = (&key.stamp, &key.scope);
        let text = format!("AWS4-HMAC-SHA256-PAYLOAD\n{stamp}\n{scope}\n{previous}\n{nothing}\n{sum}");
        key.accept(&text, &self.signature)
    }

    fn take_trailer(&mut self, line: &str) -> Result<(), BodyError> {
        if line.is_empty() {
            return self.end();
        }
        let (name, value) = line.split_once(':').ok_or(BodyError::Malformed)?;
        if !self.has_trailer || self.trailers.len() >= MAX_TRAILERS {
            return Err(BodyError::Malformed);
        }
        self.trailers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        Ok(())
    }

    fn end(&mut self) -> Result<(), BodyError> {
        self.state = State::Done;
        let signature = self.trailers.iter().position(|(name, _)| name == "x-amz-trailer-signature");
        let signature = signature.map(|at| self.trailers.remove(at).1);
        let Some(key) = self.key.as_mut().filter(|_| self.has_trailer) else { return Ok(()) };
        let lines: String = self.trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let (sum, previous) = (hex(&Sha256::digest(lines.as_bytes())), &key.previous);
        let text = format!("AWS4-HMAC-SHA256-TRAILER\n{}\n{}\n{previous}\n{sum}", key.stamp, key.scope);
        key.accept(&text, &signature.unwrap_or_default())
    }

    /// Whether the body may end here: the last line may be missing.
    pub fn finish(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::Done => Ok(()),
            State::Trailers if self.line.is_empty() => self.end(),
            _ => Err(BodyError::Short),
        }
    }
}

impl ChunkKey {
    fn accept(&mut self, text: &str, signature: &str) -> Result<(), BodyError> {
        if !super::verify(&self.key, text, signature) {
            return Err(BodyError::Signature);
        }
        self.previous = signature.to_owned();
        Ok(())
    }

    #[cfg(test)]
    fn sign(&self, text: &str) -> String {
        hex(&hmac::Mac::finalize(super::hmac(&self.key, text.as_bytes())).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ChunkKey {
        let [stamp, scope] = ["20130524T000000Z", "20130524/us-east-1/s3/aws4_request"].map(str::to_owned);
        ChunkKey { key: b"key".to_vec(), stamp, scope, previous: "0".repeat(64) }
    }

    /// A body as a client makes it.
    fn signed(chunks: &[&[u8]], trailer: Option<&str>) -> Vec<u8> {
        let (mut key, mut body) = (key(), Vec::new());
        let nothing = hex(&Sha256::digest(b""));
        for chunk in chunks.iter().chain([&&b""[..]]) {
            let (sum, previous) = (hex(&Sha256::digest(chunk)), &key.previous);
            let head = format!("AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}", key.stamp, key.scope);
            let signature = key.sign(&format!("{head}\n{previous}\n{nothing}\n{sum}"));
            body.extend(format!("{:x};chunk-signature={signature}\r\n", chunk.len()).bytes());
            if !chunk.is_empty() {
                body.extend_from_slice(chunk);
                body.extend(b"\r\n");
            }
            key.previous = signature;
        }
        if let Some(trailer) = trailer {
            let sum = hex(&Sha256::digest(format!("{trailer}\n").as_bytes()));
            let head = format!("AWS4-HMAC-SHA256-TRAILER\n{}\n{}", key.stamp, key.scope);
            let signature = key.sign(&format!("{head}\n{}\n{sum}", key.previous));
            body.extend(format!("{trailer}\r\nx-amz-trailer-signature:{signature}\r\n").bytes());
        }
        body.extend(b"\r\n");
        body
    }

    fn decode(body: &[u8], step: usize, mut decoder: Decoder) -> Result<(Vec<u8>, Decoder), BodyError> {
        let mut out = Vec::new();
        for piece in body.chunks(step) {
            out.extend_from_slice(&decoder.take(Bytes::copy_from_slice(piece))?);
        }
        decoder.finish()?;
        Ok((out, decoder))
    }

    #[test]
    fn signed_chunks_come_out_whole_however_they_come_in() {
        let body = signed(&[b"hello ", b"world"], None);
        for step in 1..body.len() {
            let (out, decoder) = decode(&body, step, Decoder::new(Some(key()), false)).unwrap();
            assert_eq!((&out[..], decoder.is_done()), (&b"hello world"[..], true), "{step}");
        }
        for end in 0..body.len() - 2 {
            assert!(decode(&body[..end], 7, Decoder::new(Some(key()), false)).is_err(), "{end}");
        }
        // No other bytes are taken, and no other signature; the ends of lines are free.
        let mut refused = 0;
        for at in 0..body.len() {
            let mut other = body.clone();
            other[at] ^= 1;
            match decode(&other, 64, Decoder::new(Some(key()), false)) {
                Ok((out, _)) => assert_eq!(out, b"hello world", "{at}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > body.len() - 16, "{refused}");
    }

    #[test]
    fn trailers_are_signed_too() {
        let body = signed(&[b"data"], Some("x-amz-checksum-crc32:AAAAAA=="));
        let (out, decoder) = decode(&body, 5, Decoder::new(Some(key()), true)).unwrap();
        assert_eq!(out, b"data");
        assert_eq!(decoder.trailers(), [("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned())]);
        let text = String::from_utf8(body).unwrap().replace("AAAAAA==", "BAAAAA==");
        assert_eq!(
            decode(text.as_bytes(), 5, Decoder::new(Some(key()), true)).err(),
            Some(BodyError::Signature)
        );
    }

    #[test]
    fn lines_and_trailers_have_bounds() {
        let long = vec![b'1'; 5000];
        assert_eq!(decode(&long, 100, Decoder::new(None, true)).err(), Some(BodyError::Malformed));
        let many = format!("0\r\n{}", "a:b\r\n".repeat(20));
        assert_eq!(decode(many.as_bytes(), 100, Decoder::new(None, true)).err(), Some(BodyError::Malformed));
        let huge = b"ffffffffffffffff1\r\n";
        assert_eq!(decode(huge, 100, Decoder::new(None, true)).err(), Some(BodyError::Malformed));
        let (out, _) = decode(b"4\r\ndata\r\n0\r\nx-a:b\r\n\r\n", 3, Decoder::new(None, true)).unwrap();
        assert_eq!(out, b"data");
    }
}
