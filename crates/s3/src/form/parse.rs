//! The parts of a form as they come in: fields, and the file behind them. Source: RFC 7578;
//! RGWPostObj_ObjStore::read_form_part_header in src/rgw/rgw_rest.cc.
//!
//! 1. Fields have a bound together; of the file no more is held than came in at once.
//! 2. What is behind the file is passed over, as in radosgw.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem::Finder;

/// Names and values of all fields, with what is around them.
const MAX_FIELDS: usize = 64 << 10;
/// Source: RFC 2046, section 5.1.1.
const MAX_BOUNDARY: usize = 70;

/// What is no form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Field {
        name: String,
        value: String,
    },
    /// The file begins.
    File {
        name: String,
    },
    Data(Bytes),
    /// All of the file came.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Head,
    File,
    Behind,
}

#[derive(Debug)]
pub struct Parser {
    /// A line's end, two dashes and the boundary.
    delimiter: Finder<'static>,
    held: BytesMut,
    state: State,
    /// Bytes of fields that may still come.
    room: usize,
}

/// A value of a header with its parameters: `form-data; name="a"`.
fn parameter<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let mut parameters = header.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let found = parameters.find(|(n, _)| n.trim().eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim().trim_matches('"'))
}

/// The boundary that a form's type names; nothing where it is another type.
pub fn boundary(content_type: &str) -> Option<Result<&str, Malformed>> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    let fits = |b: &&str| !b.is_empty() && b.len() <= MAX_BOUNDARY;
    let boundary = || parameter(content_type, "boundary").filter(fits).ok_or(Malformed);
    kind.eq_ignore_ascii_case("multipart/form-data").then(boundary)
}

impl Parser {
    pub fn new(boundary: &str) -> Self {
        let delimiter = Finder::new(&format!("\r\n--{boundary}")).into_owned();
        // The first delimiter has no line in front of it.
        Self { delimiter, held: BytesMut::from(&b"\r\n"[..]), state: State::Start, room: MAX_FIELDS }
    }

    pub fn push(&mut self, data: &[u8]) {
        self.held.extend_from_slice(data);
    }

    /// The next piece; nothing while more has to come.
    pub fn next(&mut self) -> Result<Option<Piece>, Malformed> {
        loop {
            match self.state {
                State::Start => match self.find() {
                    Some(0) => self.skip_delimiter(),
                    Some(_) => return Err(Malformed),
                    None => return self.bounded(),
                },
                State::Head => {
                    let end = match self.held.get(..2) {
                        None => return Ok(None),
                        Some(b"--") => return Err(Malformed),
                        Some(_) => memchr::memmem::find(&self.held, b"\r\n\r\n"),
                    };
                    let Some(end) = end else { return self.bounded() };
                    let (name, file) = head(self.held.get(..end).unwrap_or_default())?;
                    if name.eq_ignore_ascii_case("file") {
                        self.held.advance(end + 4);
                        self.state = State::File;
                        return Ok(Some(Piece::File { name: file }));
                    }
                    let behind = end + 4;
                    let rest = self.held.get(behind..).unwrap_or_default();
                    let Some(length) = self.delimiter.find(rest) else { return self.bounded() };
                    let value = rest.get(..length).unwrap_or_default();
                    let value = String::from_utf8(value.to_vec()).map_err(|_| Malformed)?;
                    self.room = self.room.checked_sub(behind + length).ok_or(Malformed)?;
                    self.held.advance(behind + length);
                    self.skip_delimiter();
                    return Ok(Some(Piece::Field { name, value }));
                }
                State::File => return Ok(self.file()),
                State::Behind => {
                    self.held.clear();
                    return Ok(None);
                }
            }
        }
    }

    fn find(&self) -> Option<usize> {
        self.delimiter.find(&self.held)
    }

    fn skip_delimiter(&mut self) {
        self.held.advance(self.delimiter.needle().len().min(self.held.len()));
        self.state = State::Head;
    }

    /// Nothing yet, unless too much came for what it may be.
    fn bounded(&self) -> Result<Option<Piece>, Malformed> {
        if self.held.len() > self.room.saturating_add(MAX_BOUNDARY) { Err(Malformed) } else { Ok(None) }
    }

    /// Bytes of the file that are surely its own: the line's end in front of them was held back.
    fn file(&mut self) -> Option<Piece> {
        match self.find() {
            Some(0) => {
                self.state = State::Behind;
                Some(Piece::End)
            }
            Some(at) => Some(self.take(at)),
            None => {
                let kept = self.delimiter.needle().len().saturating_sub(1);
                let free = self.held.len().saturating_sub(kept);
                (free > 0).then(|| self.take(free))
            }
        }
    }

    fn take(&mut self, count: usize) -> Piece {
        Piece::Data(self.held.split_to(count).freeze())
    }
}

/// Name of a part, and of its file.
fn head(lines: &[u8]) -> Result<(String, String), Malformed> {
    let lines = std::str::from_utf8(lines).map_err(|_| Malformed)?;
    let lines = lines.split("\r\n").filter(|line| !line.trim().is_empty());
    let mut found = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Malformed)?;
        if name.trim().eq_ignore_ascii_case("content-disposition") {
            let file = parameter(value, "filename").unwrap_or_default().to_owned();
            found = parameter(value, "name").map(|name| (name.to_owned(), file));
        }
    }
    found.ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = "--B\r\nContent-Disposition: form-data; name=\"key\"; filename=\"key\"\r\n\
        Content-Type: text/plain\r\n\r\na/${filename}\r\n--B\r\ncontent-disposition: form-data; name=acl\r\n\r\n\
        \r\n--B\r\nContent-Disposition: form-data; name=\"File\"; filename=\"f\"\r\n\r\nda\r\n-ta\r\n--B\r\n\
        Content-Disposition: form-data; name=\"submit\"\r\n\r\nx\r\n--B--\r\n";

    /// Pieces of a form that comes in so many bytes at a time; data joined.
    fn pieces(form: &[u8], at_a_time: usize) -> Result<Vec<Piece>, Malformed> {
        let (mut parser, mut found) = (Parser::new("B"), Vec::new());
        for data in form.chunks(at_a_time) {
            parser.push(data);
            while let Some(piece) = parser.next()? {
                match (piece, found.last_mut()) {
                    (Piece::Data(more), Some(Piece::Data(known))) => {
                        *known = [&known[..], &more].concat().into();
                    }
                    (piece, _) => found.push(piece),
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn a_form_is_the_same_however_it_comes_in() {
        let field = |name: &str, value: &str| Piece::Field { name: name.into(), value: value.into() };
        let want = [
            field("key", "a/${filename}"),
            field("acl", ""),
            Piece::File { name: "f".into() },
            Piece::Data("da\r\n-ta".into()),
            Piece::End,
        ];
        for at_a_time in 1..FORM.len() {
            assert_eq!(pieces(FORM.as_bytes(), at_a_time).unwrap(), want, "{at_a_time}");
        }
    }

    #[test]
    fn files_may_be_empty_and_forms_that_are_cut_have_no_end() {
        let empty = FORM.replace("da\r\n-ta", "");
        assert_eq!(pieces(empty.as_bytes(), 7).unwrap().last(), Some(&Piece::End));
        let end = FORM.find("--B\r\nContent-Disposition: form-data; name=\"submit\"").unwrap();
        for cut in 0..end + 3 {
            let got = pieces(&FORM.as_bytes()[..cut], FORM.len()).unwrap();
            assert!(!got.contains(&Piece::End), "{cut}");
        }
    }

    #[test]
    fn what_is_no_form_is_refused_and_fields_have_a_bound() {
        assert!(pieces(b"x--B\r\n--B\r\n", 1).is_err());
        assert!(pieces(b"--B--\r\n", 1).is_err());
        assert!(pieces(b"--B\r\nno header\r\n\r\n", 100).is_err());
        assert!(pieces(b"--B\r\nContent-Disposition: form-data\r\n\r\nx\r\n--B", 100).is_err());
        let large = |size| FORM.replace("a/${filename}", &"x".repeat(size));
        assert!(pieces(large(60_000).as_bytes(), 1000).is_ok());
        assert!(pieces(large(70_000).as_bytes(), 1000).is_err());
        assert!(pieces("x".repeat(70_000).as_bytes(), 1000).is_err());
        // The file has none here.
        assert!(pieces(FORM.replace("-ta", &"x".repeat(1 << 20)).as_bytes(), 1000).is_ok());
    }

    #[test]
    fn boundaries_are_named_by_the_type() {
        assert_eq!(boundary("Multipart/Form-Data; charset=x; boundary=\"a b\""), Some(Ok("a b")));
        assert_eq!(boundary("multipart/form-data"), Some(Err(Malformed)));
        assert_eq!(
            boundary(&format!("multipart/form-data; boundary={}", "x".repeat(71))),
            Some(Err(Malformed))
        );
        assert_eq!(boundary("text/plain; boundary=a"), None);
    }
}
