//! Buckets that are served as web sites: what their owners say of that. Source: src/rgw/rgw_xml_enc.cc,
//! RGWSetBucketWebsite_ObjStore_S3 in src/rgw/rgw_rest_s3.cc.

use hyper::{Response, StatusCode};
use rgw::policy::Action;
use rgw::{Redirect, RoutingRule, Website};
use s3s::{Body, S3Error, S3ErrorCode, S3Result};

use super::{Asked, empty};
use crate::errors;
use crate::state::Gateway;
use crate::xml::{Document, Element};

const ROOT: &str = "WebsiteConfiguration";
/// Source: rgw_website_routing_rules_max_num in src/common/options.cc.
const MAX_RULES: usize = 50;
/// Bytes of each text: they become keys, hosts and headers.
const MAX_TEXT: usize = 1024;

fn invalid(why: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, why)
}

/// Where an administrator has not turned sites on, nobody says anything of them.
fn check_served(gateway: &Gateway) -> S3Result<()> {
    match gateway.settings().websites.documents {
        true => Ok(()),
        false => Err(S3Error::with_message(
            S3ErrorCode::MethodNotAllowed,
            "web sites are not turned on (rgw_enable_static_website)",
        )),
    }
}

pub async fn get(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    check_served(gateway)?;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::GetBucketWebsite).await?;
    let site = view.info.website.as_ref();
    Ok(shown(site.ok_or_else(|| errors::custom("NoSuchWebsiteConfiguration", 404))?))
}

fn shown(site: &Website) -> Response<Body> {
    let mut document = Document::new(ROOT);
    let some = |document: &mut Document, name: &str, text: &[u8]| {
        if !text.is_empty() {
            document.text(name, text);
        }
    };
    if !site.redirect_all.hostname.is_empty() {
        document.open("RedirectAllRequestsTo");
        document.text("HostName", &site.redirect_all.hostname);
        some(&mut document, "Protocol", &site.redirect_all.protocol);
        document.close("RedirectAllRequestsTo");
    }
    for (name, inner, text) in
        [("IndexDocument", "Suffix", &site.index_suffix), ("ErrorDocument", "Key", &site.error_key)]
    {
        if !text.is_empty() {
            document.open(name);
            document.text(inner, text);
            document.close(name);
        }
    }
    if !site.rules.is_empty() {
        document.open("RoutingRules");
        site.rules.iter().for_each(|rule| show_rule(&mut document, rule));
        document.close("RoutingRules");
    }
    document.done(ROOT)
}

fn show_rule(document: &mut Document, rule: &RoutingRule) {
    let number = |number: u16| if number > 0 { number.to_string() } else { String::new() };
    let (error, code) = (number(rule.http_error_equals), number(rule.redirect.http_code));
    let when =
        [("KeyPrefixEquals", &rule.key_prefix_equals[..]), ("HttpErrorCodeReturnedEquals", error.as_bytes())];
    let then = [
        ("Protocol", &rule.redirect.protocol[..]),
        ("HostName", &rule.redirect.hostname[..]),
        ("HttpRedirectCode", code.as_bytes()),
        ("ReplaceKeyPrefixWith", &rule.replace_key_prefix_with[..]),
        ("ReplaceKeyWith", &rule.replace_key_with[..]),
    ];
    document.open("RoutingRule");
    for (name, texts) in [("Condition", &when[..]), ("Redirect", &then[..])] {
        document.open(name);
        for (name, text) in texts.iter().filter(|(_, text)| !text.is_empty()) {
            document.text(name, text);
        }
        document.close(name);
    }
    document.close("RoutingRule");
}

fn text(element: Option<&Element>, name: &str) -> S3Result<bytes::Bytes> {
    let text = element.and_then(|element| element.text_of(name)).unwrap_or_default();
    match text.len() > MAX_TEXT || text.bytes().any(|b| b.is_ascii_control()) {
        true => Err(invalid("a text of a site is too long, or no text")),
        false => Ok(text.to_owned().into()),
    }
}

/// A number among some, or 0 where there is none.
fn number(element: Option<&Element>, name: &str, among: std::ops::Range<u16>) -> S3Result<u16> {
    let Some(text) = element.and_then(|element| element.text_of(name)) else { return Ok(0) };
    let number = text.trim().parse().ok().filter(|number| among.contains(number));
    number.ok_or_else(|| invalid("Redirects have codes from 301 to 399, and errors from 400 to 599."))
}

fn redirect(element: Option<&Element>) -> S3Result<Redirect> {
    let (protocol, hostname) = (text(element, "Protocol")?, text(element, "HostName")?);
    if !["", "http", "https"].iter().any(|known| protocol == known.as_bytes()) {
        return Err(invalid("the protocol is http or https"));
    }
    Ok(Redirect { protocol, hostname, http_code: number(element, "HttpRedirectCode", 301..400)? })
}

fn rule(element: &Element) -> S3Result<RoutingRule> {
    let (when, then) = (element.first("Condition"), element.first("Redirect"));
    let has = |name| then.is_some_and(|then| then.first(name).is_some());
    if has("ReplaceKeyPrefixWith") && has("ReplaceKeyWith") {
        return Err(invalid("You can only define ReplaceKeyPrefix or ReplaceKey but not both."));
    }
    let rule = RoutingRule {
        key_prefix_equals: text(when, "KeyPrefixEquals")?,
        http_error_equals: number(when, "HttpErrorCodeReturnedEquals", 400..600)?,
        redirect: redirect(then)?,
        replace_key_prefix_with: text(then, "ReplaceKeyPrefixWith")?,
        replace_key_with: text(then, "ReplaceKeyWith")?,
    };
    match then {
        Some(_) => Ok(rule),
        None => Err(S3ErrorCode::MalformedXML.into()),
    }
}

fn read(document: &[u8]) -> S3Result<Website> {
    let root = Element::read(document, ROOT)?;
    if let Some(all) = root.first("RedirectAllRequestsTo") {
        let redirect_all = redirect(Some(all))?;
        if redirect_all.hostname.is_empty() {
            return Err(invalid(
                "A host name must be provided to redirect all requests (e.g. \"example.com\").",
            ));
        }
        // Its code is the usual one, and what else is said is passed over, as in radosgw.
        let redirect_all = Redirect { http_code: 0, ..redirect_all };
        return Ok(Website { redirect_all, ..Website::default() });
    }
    let Some(index) = root.first("IndexDocument") else {
        return Err(invalid(
            "A value for IndexDocument Suffix must be provided if RedirectAllRequestsTo is empty",
        ));
    };
    let index_suffix = text(Some(index), "Suffix")?;
    if index_suffix.is_empty() {
        return Err(invalid("The IndexDocument Suffix is not well formed"));
    }
    let rules = root.first("RoutingRules").map(|rules| rules.all("RoutingRule").collect::<Vec<_>>());
    let rules = rules.unwrap_or_default();
    if rules.len() > MAX_RULES {
        return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, "a site has up to 50 routing rules"));
    }
    Ok(Website {
        index_suffix,
        error_key: text(root.first("ErrorDocument"), "Key")?,
        rules: rules.into_iter().map(rule).collect::<S3Result<_>>()?,
        ..Website::default()
    })
}

pub async fn put(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    check_served(gateway)?;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::PutBucketWebsite).await?;
    let site = read(&asked.document)?;
    gateway.change_bucket(&asked.caller, &view, move |info, _| info.website = Some(site.clone())).await?;
    Ok(empty(StatusCode::OK))
}

pub async fn delete(gateway: &Gateway, asked: Asked) -> S3Result<Response<Body>> {
    check_served(gateway)?;
    let view = gateway.own_bucket(&asked.caller, &asked.bucket, Action::DeleteBucketWebsite).await?;
    gateway.change_bucket(&asked.caller, &view, |info, _| info.website = None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(inner: &str) -> Vec<u8> {
        format!("<WebsiteConfiguration>{inner}</WebsiteConfiguration>").into_bytes()
    }

    const INDEX: &str = "<IndexDocument><Suffix>i.html</Suffix></IndexDocument>";

    #[tokio::test]
    async fn what_is_said_of_a_site_is_shown_again() {
        let all =
            "<RedirectAllRequestsTo><HostName>h</HostName><Protocol>https</Protocol></RedirectAllRequestsTo>";
        let rules = "<ErrorDocument><Key>e&amp;.html</Key></ErrorDocument><RoutingRules>\
            <RoutingRule><Condition><KeyPrefixEquals>a/</KeyPrefixEquals>\
            <HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals></Condition>\
            <Redirect><Protocol>http</Protocol><HostName>h</HostName><HttpRedirectCode>302</HttpRedirectCode>\
            <ReplaceKeyPrefixWith>b/</ReplaceKeyPrefixWith></Redirect></RoutingRule>\
            <RoutingRule><Condition></Condition><Redirect><ReplaceKeyWith>k</ReplaceKeyWith></Redirect>\
            </RoutingRule></RoutingRules>";
        for text in [all.to_owned(), INDEX.to_owned(), [INDEX, rules].concat()] {
            let site = read(&document(&text)).unwrap();
            let mut body = shown(&site).into_body();
            let data = body.store_all_unlimited().await.unwrap();
            let said = String::from_utf8(data.to_vec()).unwrap();
            assert!(said.contains(&text), "{said}");
        }
    }

    #[test]
    fn what_is_no_site_is_refused() {
        let rule = |when: &str, then: &str| {
            format!(
                "{INDEX}<RoutingRules><RoutingRule><Condition>{when}</Condition>{then}</RoutingRule></RoutingRules>"
            )
        };
        let to = |then: &str| rule("", &format!("<Redirect>{then}</Redirect>"));
        let code = |inner: &str| read(&document(inner)).err().map(|e| e.code().as_str().to_owned());
        for (inner, want) in [
            (String::new(), "InvalidArgument"),
            ("<IndexDocument></IndexDocument>".into(), "InvalidArgument"),
            ("<RedirectAllRequestsTo></RedirectAllRequestsTo>".into(), "InvalidArgument"),
            (to("<HttpRedirectCode>300</HttpRedirectCode>"), "InvalidArgument"),
            (to("<HttpRedirectCode>400</HttpRedirectCode>"), "InvalidArgument"),
            (to("<Protocol>javascript</Protocol>"), "InvalidArgument"),
            (to("<HostName>a&#13;&#10;b</HostName>"), "InvalidArgument"),
            (
                to("<ReplaceKeyWith>a</ReplaceKeyWith><ReplaceKeyPrefixWith>b</ReplaceKeyPrefixWith>"),
                "InvalidArgument",
            ),
            (
                rule("<HttpErrorCodeReturnedEquals>399</HttpErrorCodeReturnedEquals>", "<Redirect/>"),
                "InvalidArgument",
            ),
            (rule("", ""), "MalformedXML"),
            (
                format!(
                    "{INDEX}<RoutingRules>{}</RoutingRules>",
                    "<RoutingRule><Redirect/></RoutingRule>".repeat(51)
                ),
                "InvalidRequest",
            ),
        ] {
            assert_eq!(code(&inner).as_deref(), Some(want), "{inner}");
        }
        assert_eq!(
            code(&format!(
                "{INDEX}<RoutingRules>{}</RoutingRules>",
                "<RoutingRule><Redirect/></RoutingRule>".repeat(50)
            )),
            None
        );
    }
}
