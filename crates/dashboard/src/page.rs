//! The page's files, as they were built from `web`; they are a part of the binary.

/// A file of the page.
#[derive(Debug, Clone, Copy)]
pub struct File {
    pub kind: &'static str,
    pub bytes: &'static [u8],
}

/// The file at a path.
pub fn file(path: &str) -> Option<File> {
    let (kind, bytes): (_, &[u8]) = match path {
        "/" => ("text/html; charset=utf-8", include_bytes!("../web/dist/index.html")),
        "/app.js" => ("text/javascript; charset=utf-8", include_bytes!("../web/dist/app.js")),
        "/app.css" => ("text/css; charset=utf-8", include_bytes!("../web/dist/app.css")),
        "/icon.svg" => ("image/svg+xml", include_bytes!("../web/dist/icon.svg")),
        "/openapi.json" => ("application/json", include_bytes!("../openapi.json")),
        _ => return None,
    };
    Some(File { kind, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_inline_script_or_style_and_asks_nobody_else() {
        let text = String::from_utf8_lossy(file("/").expect("the page").bytes).into_owned();
        assert!(!text.contains("<style") && !text.contains(" style=") && !text.contains(" onload"));
        assert!(text.matches("<script").count() == 1 && text.contains("<script src=\"app.js\""));
        assert!(!text.contains("http://") && !text.contains("https://"));
        assert!(file("/app.js/..").is_none() && file("/../app.js").is_none() && file("").is_none());
    }
}
