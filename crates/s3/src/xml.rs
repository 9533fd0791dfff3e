//! Documents as trees, and documents that are written. Source: src/rgw/rgw_xml.cc.
//!
//! 1. A document's length is bounded before it comes here; its depth is bounded here.
//! 2. Comments, CDATA, types and entities other than XML's own are refused.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use s3s::{Body, S3ErrorCode, S3Result};

/// Source: S3's documents have five.
const MAX_DEPTH: usize = 16;
/// Attributes of an element.
const MAX_ATTRIBUTES: usize = 16;
/// The name space of S3's documents. Source: XMLNS_AWS_S3 in src/rgw/rgw_common.h.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// An element: its name without a prefix, its attributes, its text, and what is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    attributes: Vec<(String, String)>,
    pub text: String,
    children: Vec<Element>,
}

impl Element {
    /// Reads a document that has this element in it, and nothing beside.
    pub fn read(document: &[u8], name: &str) -> S3Result<Self> {
        read(document).filter(|root| root.name == name).ok_or_else(|| S3ErrorCode::MalformedXML.into())
    }

    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn children(&self) -> &[Self] {
        &self.children
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    pub fn first<'a>(&'a self, name: &'a str) -> Option<&'a Self> {
        self.all(name).next()
    }

    /// Text of the first element of a name.
    pub fn text_of<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.first(name).map(|child| child.text.as_str())
    }
}

fn opened(start: &BytesStart<'_>) -> Option<Element> {
    let name = std::str::from_utf8(start.local_name().into_inner()).ok()?.to_owned();
    let mut attributes = Vec::new();
    // The library's own search for names that come twice compares each with all.
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.ok()?;
        let name = std::str::from_utf8(attribute.key.into_inner()).ok()?.to_owned();
        if attributes.len() == MAX_ATTRIBUTES || attributes.iter().any(|(known, _)| *known == name) {
            return None;
        }
        attributes.push((name, attribute.unescape_value().ok()?.into_owned()));
    }
    Some(Element { name, attributes, ..Element::default() })
}

fn read(document: &[u8]) -> Option<Element> {
    let mut reader = Reader::from_reader(document);
    let config = reader.config_mut();
    (config.check_end_names, config.expand_empty_elements) = (true, true);
    let (mut open, mut root): (Vec<Element>, Option<Element>) = (Vec::new(), None);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) if root.is_none() && open.len() < MAX_DEPTH => open.push(opened(&start)?),
            Event::End(_) => {
                let done = open.pop()?;
                match open.last_mut() {
                    Some(parent) => parent.children.push(done),
                    None => root = Some(done),
                }
            }
            Event::Text(text) => {
                let text = text.unescape().ok()?;
                match open.last_mut() {
                    Some(element) => element.text.push_str(&text),
                    None if text.trim().is_empty() => {}
                    None => return None,
                }
            }
            Event::Decl(_) if open.is_empty() && root.is_none() => {}
            Event::Eof if open.is_empty() => return root,
            _ => return None,
        }
    }
}

/// A document that is written, element by element.
#[derive(Debug)]
pub struct Document {
    out: String,
}

impl Document {
    /// Opens a document of S3's with the name of its root.
    pub fn new(root: &str) -> Self {
        Self { out: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><{root} xmlns=\"{NAMESPACE}\">") }
    }

    /// The same without S3's name space.
    pub fn plain(root: &str) -> Self {
        Self { out: format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><{root}>") }
    }

    pub fn open(&mut self, name: &str) {
        self.out.push_str(&format!("<{name}>"));
    }

    pub fn close(&mut self, name: &str) {
        self.out.push_str(&format!("</{name}>"));
    }

    /// An element with a text.
    pub fn text(&mut self, name: &str, text: impl AsRef<[u8]>) {
        let text = String::from_utf8_lossy(text.as_ref());
        let escaped = quick_xml::escape::escape(text.as_ref());
        self.out.push_str(&format!("<{name}>{escaped}</{name}>"));
    }

    /// What is XML already.
    pub fn raw(&mut self, xml: &str) {
        self.out.push_str(xml);
    }

    pub fn done(mut self, root: &str) -> hyper::Response<Body> {
        self.close(root);
        let mut response = hyper::Response::new(Body::from(self.out));
        let kind = hyper::header::HeaderValue::from_static("application/xml");
        response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_trees_with_bounds() {
        let text = br#"<?xml version="1.0"?>
            <n:A xmlns:n="x"><B t="1&amp;2">a &lt; b</B><B/><C><B>in</B></C></n:A> "#;
        let root = Element::read(text, "A").unwrap();
        let texts: Vec<&str> = root.all("B").map(|b| b.text.as_str()).collect();
        assert_eq!(texts, ["a < b", ""]);
        assert_eq!(root.first("B").unwrap().attribute("t"), Some("1&2"));
        assert_eq!(root.first("C").and_then(|c| c.text_of("B")), Some("in"));
        let deep = |n: usize| format!("{}{}", "<A>".repeat(n), "</A>".repeat(n));
        assert!(Element::read(deep(MAX_DEPTH).as_bytes(), "A").is_ok());
        for wrong in [
            "",
            "A",
            "<B/>",
            "<A>",
            "<A></B>",
            "<A/><A/>",
            "<A/>x",
            "<A>&unknown;</A>",
            "<A t=1/>",
            "<A t='1' t='2'/>",
            "<A><!-- --></A>",
            "<A><![CDATA[x]]></A>",
            "<!DOCTYPE A><A/>",
            &deep(MAX_DEPTH + 1),
        ] {
            assert!(Element::read(wrong.as_bytes(), "A").is_err(), "{wrong}");
        }
        for end in 0..text.len() - 2 {
            assert!(Element::read(&text[..end], "A").is_err(), "{end}");
        }
    }

    #[test]
    fn attributes_are_few_and_each_once() {
        let read = |attributes: &str| Element::read(format!("<A {attributes}></A>").as_bytes(), "A").is_ok();
        let many = |n: usize| (0..n).map(|i| format!("a{i}=''")).collect::<Vec<_>>().join(" ");
        assert!(read("xmlns='http://a' b='c'") && read(&many(MAX_ATTRIBUTES)));
        assert!(!read("b='c' b='d'") && !read(&many(MAX_ATTRIBUTES + 1)));
        assert!(!read(&many(100_000)));
    }
}
