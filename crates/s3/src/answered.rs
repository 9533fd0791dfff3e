//! Answers that S3's library makes otherwise than clients read them.

use std::future::poll_fn;
use std::pin::Pin;

use http_body::Body as _;
use hyper::{Method, Response, StatusCode, Uri};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

/// What is done to a document that the library makes.
pub type Mend = fn(&mut StatusCode, String) -> String;

/// Answers to these requests are not as the library makes them.
pub fn mend_of(method: &Method, uri: &Uri) -> Option<Mend> {
    let has = |name: &str| {
        let mut fields = uri.query().unwrap_or_default().split('&');
        fields.any(|field| field.split('=').next() == Some(name))
    };
    match *method {
        Method::POST if has("uploadId") => Some(settled),
        _ => None,
    }
}

pub async fn mended(answered: Response<Body>, mend: Mend) -> S3Result<Response<Body>> {
    let (mut parts, mut body) = answered.into_parts();
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|e| S3Error::with_source(S3ErrorCode::InternalError, e))?;
        all.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    let text = String::from_utf8(all).map_err(|_| S3ErrorCode::InternalError)?;
    parts.headers.remove("trailer");
    let text = mend(&mut parts.status, text);
    Ok(Response::from_parts(parts, Body::from(text)))
}

/// The library answers completions with success before it knows; here the answer waits, and says what came of
/// it. Clients wait for minutes, and a completion takes as long as its parts' heads are read.
fn settled(status: &mut StatusCode, text: String) -> String {
    // Spaces stood for waiting.
    let (declaration, document) = text.split_once("?>").unwrap_or(("", &text));
    let document = document.trim_start();
    if document.starts_with("<Error>") {
        let code = document.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        let code = code.and_then(|(code, _)| S3ErrorCode::from_bytes(code.as_bytes()));
        let named = code.and_then(|code| code.status_code());
        *status = named.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let end = if declaration.is_empty() { "" } else { "?>" };
    format!("{declaration}{end}{document}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_say_what_came_of_them() {
        let mut status = StatusCode::OK;
        let text = "<?xml version=\"1.0\"?>   <Error><Code>InvalidPart</Code></Error>".to_owned();
        assert_eq!(
            settled(&mut status, text),
            "<?xml version=\"1.0\"?><Error><Code>InvalidPart</Code></Error>"
        );
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let mut status = StatusCode::OK;
        assert_eq!(settled(&mut status, " <Result/>".to_owned()), "<Result/>");
        assert_eq!(status, StatusCode::OK);
    }
}
