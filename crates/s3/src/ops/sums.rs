//! Checksums that are kept with objects and parts, as requests ask for them and answers tell them. Source:
//! rgw_cksum_pipe.cc and RGWGetObj_ObjStore_S3::send_response_data in src/rgw of 20; 16.2 has none of it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use codec::{Decode, Encode};
use gateway::{Error, Head, OfParts, Opened};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use rgw::{Cksum, CksumKind, PartInfo};
use s3s::dto::{ChecksumMode, ChecksumType, CompletedPart};
use s3s::{S3Request, S3Result, s3_error};

use crate::attrs::Attrs;
use crate::body::Summed;
use crate::checksum::{self, Checksum, Way, header_of};
use crate::errors;
use crate::state::Gateway;

/// Source: RGW_ATTR_CKSUM in src/rgw/rgw_common.h of 20.
pub const ATTR: &str = "user.rgw.cksum";
/// An upload's attribute: the way that its whole is summed up. radosgw takes no notice of it.
const OF_UPLOAD: &str = "user.rgw.loligo.checksum";
const TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
const ALGORITHM: &str = "x-amz-checksum-algorithm";
/// Bytes of the whole, as a completion says them.
const SIZE: &str = "x-amz-mp-object-size";
/// Parts that are looked at at a time.
const AT_A_TIME: usize = 100;

/// A sum that an answer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub kind: CksumKind,
    pub text: String,
    pub is_composite: bool,
}

/// Puts a sum into the field of an answer that is for its kind.
macro_rules! tell {
    ($told:expr, $output:expr) => {
        if let Some(told) = $told {
            let text = Some(told.text.clone());
            match told.kind {
                CksumKind::Crc32 => $output.checksum_crc32 = text,
                CksumKind::Crc32c => $output.checksum_crc32c = text,
                CksumKind::Crc64Nvme => $output.checksum_crc64nvme = text,
                CksumKind::Sha1 => $output.checksum_sha1 = text,
                CksumKind::Sha256 => $output.checksum_sha256 = text,
            }
        }
    };
}
pub(crate) use tell;

impl Told {
    pub fn kind_of_sum(&self) -> ChecksumType {
        ChecksumType::from_static(Way::name(self.is_composite))
    }

    pub fn headers(&self) -> HeaderMap {
        let value = HeaderValue::from_str(&self.text).ok();
        let value = value.map(|value| (HeaderName::from_static(header_of(self.kind)), value));
        let way = (TYPE, HeaderValue::from_static(Way::name(self.is_composite)));
        value.into_iter().chain([way]).collect()
    }
}

fn read(attrs: &Attrs) -> Option<Cksum> {
    Cksum::from_bytes(attrs.get(ATTR.as_bytes())?.clone()).ok()
}

/// A sum that was made of bytes that came at once.
pub fn of_bytes(sum: &Cksum) -> Option<Told> {
    Some(Told { kind: sum.kind()?, text: checksum::shown(sum, None), is_composite: false })
}

/// The sum of a whole of so many parts.
pub fn of_whole(sum: &Cksum, parts: usize) -> Option<Told> {
    let is_composite = sum.is_composite(true);
    let text = checksum::shown(sum, Some(parts).filter(|_| is_composite));
    Some(Told { kind: sum.kind()?, text, is_composite })
}

/// The sum of an object; of how many parts is in its tag, also where a copy of it has none any more.
pub fn of_head(head: &Head) -> Option<Told> {
    let sum = read(&head.attrs)?;
    let etag = String::from_utf8_lossy(&head.etag()).into_owned();
    let parts: Option<usize> = etag.split_once('-').and_then(|(_, parts)| parts.parse().ok());
    let is_composite = sum.is_composite(parts.is_some());
    let text = checksum::shown(&sum, parts.filter(|_| is_composite));
    Some(Told { kind: sum.kind()?, text, is_composite })
}

/// What a read tells: a range has no sum, and a part its own.
pub async fn of_read(
    gateway: &Gateway,
    opened: &Opened,
    mode: Option<&ChecksumMode>,
    (has_range, part): (bool, Option<i32>),
) -> S3Result<Option<Told>> {
    let is_asked = mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED);
    let Some(whole) = of_head(&opened.head).filter(|_| is_asked && !has_range) else { return Ok(None) };
    let is_of_parts = opened.head.manifest.as_ref().is_some_and(|manifest| manifest.parts().is_some());
    match part.and_then(|number| u32::try_from(number).ok()).filter(|_| is_of_parts) {
        None => Ok(Some(whole)),
        Some(number) => Ok(of_parts(gateway, opened, &[number]).await?.pop().flatten()),
    }
}

/// The sums of parts, by their numbers.
pub async fn of_parts(gateway: &Gateway, opened: &Opened, numbers: &[u32]) -> S3Result<Vec<Option<Told>>> {
    let is_composite = of_head(&opened.head).is_some_and(|whole| whole.is_composite);
    let mut told = Vec::with_capacity(numbers.len());
    for some in numbers.chunks(AT_A_TIME) {
        let read_some = gateway.read(opened.part_attrs(some)).await.map_err(errors::of)?;
        let of_part = |attrs: &Attrs| Some(Told { is_composite, ..of_bytes(&read(attrs)?)? });
        told.extend(read_some.iter().map(of_part));
    }
    Ok(told)
}

/// The sum that a request's body proved to have.
pub fn of_request<T>(request: &S3Request<T>) -> Summed {
    request.extensions.get::<Summed>().cloned().unwrap_or_default()
}

/// An attribute of what has a sum.
pub fn attr(sum: &Cksum) -> (Bytes, Bytes) {
    (Bytes::from_static(ATTR.as_bytes()), sum.to_bytes())
}

/// Refuses what wants a copy to be summed anew: its sum is its source's.
pub fn check_copy(headers: &HeaderMap, source: &Head) -> S3Result<()> {
    let Some(wanted) = headers.get(ALGORITHM).map(|name| name.to_str().unwrap_or_default()) else {
        return Ok(());
    };
    let kind = CksumKind::named(wanted).ok_or_else(unknown)?;
    match of_head(source) {
        Some(told) if told.kind == kind && !told.is_composite => Ok(()),
        _ => Err(errors::not_served("a copy has the checksum of its source, and no other")),
    }
}

fn unknown() -> s3s::S3Error {
    s3_error!(InvalidRequest, "there is no such checksum algorithm, or not of this type")
}

/// The way that an upload that begins is to be summed up.
pub fn begin(algorithm: Option<&str>, way: Option<&str>) -> S3Result<Option<Way>> {
    match (algorithm, way) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(s3_error!(InvalidRequest, "the type of a checksum needs its algorithm")),
        (Some(name), way) => {
            let kind = CksumKind::named(name).ok_or_else(unknown)?;
            Way::new(kind, way).ok_or_else(unknown).map(Some)
        }
    }
}

pub fn upload_attr(way: Way) -> (Bytes, Bytes) {
    (Bytes::from_static(OF_UPLOAD.as_bytes()), way.to_text().into())
}

pub fn way_of(raw: Option<&Bytes>) -> Option<Way> {
    Way::of_text(raw?)
}

pub fn way_of_upload(attrs: &Attrs) -> Option<Way> {
    way_of(attrs.get(OF_UPLOAD.as_bytes()))
}

/// What a part's sum is to be of, where its client brings none of that kind.
pub fn own_sum(begun: Option<Way>, brought: Option<CksumKind>) -> Option<Checksum> {
    begun.filter(|way| brought != Some(way.kind)).map(|way| Checksum::new(way.kind))
}

/// The attribute of an upload that says how its whole is summed up.
pub const fn upload_attr_name() -> &'static str {
    OF_UPLOAD
}

/// What a completion says of sums.
#[derive(Debug, Clone, Default)]
pub struct Completion {
    way: Option<Way>,
    /// Of the whole.
    said: Option<(CksumKind, String)>,
    said_way: Option<String>,
    size: Option<u64>,
    /// Of parts, by their numbers.
    parts: Vec<(u32, CksumKind, String)>,
}

fn said_of(part: &CompletedPart) -> impl Iterator<Item = (CksumKind, String)> {
    let said = [
        (CksumKind::Crc32, &part.checksum_crc32),
        (CksumKind::Crc32c, &part.checksum_crc32c),
        (CksumKind::Crc64Nvme, &part.checksum_crc64nvme),
        (CksumKind::Sha1, &part.checksum_sha1),
        (CksumKind::Sha256, &part.checksum_sha256),
    ];
    said.into_iter().filter_map(|(kind, text)| Some((kind, text.clone()?)))
}

impl Completion {
    pub fn new(headers: &HeaderMap, parts: &[CompletedPart]) -> S3Result<Self> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?").to_owned());
        let said = CksumKind::ALL.into_iter().find_map(|kind| Some((kind, text(header_of(kind))?)));
        let no_size = |_| s3_error!(InvalidRequest, "the size of the whole is no number");
        let size = text(SIZE).map(|size| size.parse().map_err(no_size)).transpose()?;
        let of_part = |part: &CompletedPart| {
            let number = part.part_number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
            said_of(part).map(|(kind, text)| (number, kind, text)).collect::<Vec<_>>()
        };
        let parts = parts.iter().flat_map(of_part).collect();
        Ok(Self { way: None, said, said_way: text(TYPE.as_str()), size, parts })
    }

    /// The same for an upload that was begun so.
    pub fn of_upload(self, way: Option<Way>) -> Self {
        Self { way, ..self }
    }

    /// Holds the parts of an upload against what is said, and gives the whole's sum: of parts with sums of
    /// one kind, or of that for which the upload was begun.
    fn whole(&self, parts: &[PartInfo]) -> Result<Option<Cksum>, Error> {
        let bytes = parts.iter().map(|part| part.accounted_size).fold(0, u64::saturating_add);
        if self.size.is_some_and(|size| size != bytes) {
            return Err(Error::OtherSize);
        }
        for (number, kind, said) in &self.parts {
            let part = parts.iter().find(|part| part.number == *number).ok_or(Error::InvalidPart)?;
            match part.checksum.as_ref().filter(|sum| sum.kind() == Some(*kind)) {
                None => return Err(Error::OtherChecksum),
                Some(sum) if !checksum::is(sum, said) => return Err(Error::BadChecksum),
                Some(_) => {}
            }
        }
        let kind_of = |part: &PartInfo| part.checksum.as_ref().and_then(Cksum::kind);
        let of_first = parts.first().and_then(kind_of);
        let said_way = self.said_way.as_deref();
        let way = self.way.or_else(|| Way::new(of_first?, said_way));
        let Some(way) = way.filter(|way| parts.iter().all(|part| kind_of(part) == Some(way.kind))) else {
            let asks = self.way.is_some() || self.said.is_some() || said_way.is_some();
            return if asks { Err(Error::OtherChecksum) } else { Ok(None) };
        };
        if said_way.is_some_and(|said| said != Way::name(way.is_composite)) {
            return Err(Error::OtherChecksum);
        }
        let sums = parts.iter().filter_map(|part| Some((part.checksum.as_ref()?, part.accounted_size)));
        let whole = way.whole(sums);
        match &self.said {
            None => Ok(Some(whole)),
            Some((kind, _)) if *kind != way.kind => Err(Error::OtherChecksum),
            // The count of parts behind it may be there, or not.
            Some((_, said)) => {
                let said = said.split_once('-').map_or(said.as_str(), |(sum, _)| sum);
                if checksum::is(&whole, said) { Ok(Some(whole)) } else { Err(Error::BadChecksum) }
            }
        }
    }

    /// What the whole has of its parts' sums, and a place where its sum is when they were summed up.
    pub fn attrs(self) -> (OfParts, Arc<OnceLock<Cksum>>) {
        let made = Arc::new(OnceLock::new());
        let here = Arc::clone(&made);
        let of_parts: OfParts = Box::new(move |parts| {
            let whole = self.whole(parts)?;
            whole.iter().for_each(|sum| drop(here.set(sum.clone())));
            Ok(whole.iter().map(attr).collect())
        });
        (of_parts, made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(kind: CksumKind, data: &[u8]) -> Cksum {
        let mut sum = Checksum::new(kind);
        sum.update(data);
        sum.finish()
    }

    fn part(number: u32, data: &[u8], kind: Option<CksumKind>) -> PartInfo {
        let checksum = kind.map(|kind| sum(kind, data));
        PartInfo { number, accounted_size: data.len() as u64, checksum, ..PartInfo::default() }
    }

    const CRC: CksumKind = CksumKind::Crc32;

    #[test]
    fn completions_are_held_against_what_was_uploaded() {
        let parts = [part(1, b"1234", Some(CRC)), part(2, b"56789", Some(CRC))];
        let whole = checksum::shown(&sum(CRC, b"123456789"), None);
        let composite = Way::new(CRC, Some("COMPOSITE")).unwrap();
        let of_sums =
            checksum::shown(&composite.whole([(&sum(CRC, b"1234"), 4), (&sum(CRC, b"56789"), 5)]), Some(2));
        let good = Completion::default();
        let check = |completion: &Completion, want: Result<&str, Error>| {
            let got = completion.whole(&parts).map(|sum| checksum::shown(&sum.unwrap(), None));
            assert_eq!(got, want.map(str::to_owned), "{completion:?}");
        };
        check(&good, Ok(&whole));
        check(&Completion { said: Some((CRC, whole.clone())), size: Some(9), ..good.clone() }, Ok(&whole));
        let composed = Completion { way: Some(composite), ..good.clone() };
        let bare = of_sums.strip_suffix("-2").unwrap();
        check(&composed, Ok(bare));
        check(&Completion { said: Some((CRC, of_sums.clone())), ..composed.clone() }, Ok(bare));
        check(&Completion { said: Some((CRC, whole.clone())), ..composed.clone() }, Err(Error::BadChecksum));
        check(&Completion { said_way: Some("FULL_OBJECT".into()), ..composed }, Err(Error::OtherChecksum));
        check(&Completion { said: Some((CRC, "bad".into())), ..good.clone() }, Err(Error::BadChecksum));
        let other = Some((CksumKind::Sha1, whole.clone()));
        check(&Completion { said: other, ..good.clone() }, Err(Error::OtherChecksum));
        check(&Completion { size: Some(10), ..good.clone() }, Err(Error::OtherSize));
        let own = checksum::shown(&sum(CRC, b"1234"), None);
        let said = |number, kind, text: &str| Completion {
            parts: vec![(number, kind, text.into())],
            ..good.clone()
        };
        check(&said(1, CRC, &own), Ok(&whole));
        check(&said(2, CRC, &own), Err(Error::BadChecksum));
        check(&said(3, CRC, &own), Err(Error::InvalidPart));
        check(&said(1, CksumKind::Sha1, &own), Err(Error::OtherChecksum));
    }

    #[test]
    fn parts_without_sums_of_one_kind_have_none_together() {
        let parts = [part(1, b"1234", Some(CRC)), part(2, b"56789", None)];
        let none = Completion::default();
        assert_eq!(none.whole(&parts), Ok(None));
        let begun = Completion { way: Way::new(CRC, None), ..none.clone() };
        assert_eq!(begun.whole(&parts), Err(Error::OtherChecksum));
        let said = Completion { said: Some((CRC, "AAAAAA==".into())), ..none };
        assert_eq!(said.whole(&parts), Err(Error::OtherChecksum));
    }

    #[test]
    fn an_upload_says_how_it_is_summed_up() {
        let of = |algorithm, way| begin(algorithm, way).map(|way| way.map(Way::to_text)).ok();
        assert_eq!(of(None, None), Some(None));
        assert_eq!(of(Some("sha256"), None), Some(Some("SHA256 COMPOSITE".to_owned())));
        assert_eq!(of(Some("CRC32"), Some("COMPOSITE")), Some(Some("CRC32 COMPOSITE".to_owned())));
        for (algorithm, way) in
            [(None, Some("COMPOSITE")), (Some("MD5"), None), (Some("SHA1"), Some("FULL_OBJECT"))]
        {
            assert_eq!(of(algorithm, way), None, "{algorithm:?} {way:?}");
        }
        let begun = Way::new(CRC, None);
        assert!(own_sum(begun, Some(CRC)).is_none() && own_sum(None, None).is_none());
        assert_eq!(own_sum(begun, Some(CksumKind::Sha1)).map(|sum| sum.kind()), Some(CRC));
    }
}
