//! What S3's requests do. Those that are not here are answered with NotImplemented by the library's own
//! defaults.

mod attributes;
mod buckets;
mod conditions;
pub mod copies;
pub mod list;
pub mod objects;
pub mod reader;
pub mod sums;
mod uploads;
pub mod writer;

use std::sync::{Arc, OnceLock};

use hyper::HeaderMap;
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result};

use crate::state::{Gateway, caller};

/// What a request is called in answers and logs.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// What the answer of a completion says of what it made. The library sends an answer's headers before it
/// knows, and these are put with them.
#[derive(Debug, Clone, Default)]
pub struct Made(pub Arc<OnceLock<HeaderMap>>);

fn numbered(mut e: S3Error, id: Option<RequestId>) -> S3Error {
    id.into_iter().for_each(|RequestId(id)| e.set_request_id(id));
    e
}

macro_rules! served {
    ($($name:ident: $input:ident -> $output:ident by $module:ident;)+) => {
        // What the macro expands to: futures without their boxes' lifetimes spelt out each time.
        #[async_trait::async_trait]
        impl S3 for Gateway {
            $(async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let id = request.extensions.get::<RequestId>().cloned();
                let gateway = self.of_caller(&caller(&request));
                $module::$name(&gateway, request).await.map_err(|e| numbered(e, id))
            })+
        }
    };
}

served! {
    list_buckets: ListBucketsInput -> ListBucketsOutput by buckets;
    create_bucket: CreateBucketInput -> CreateBucketOutput by buckets;
    delete_bucket: DeleteBucketInput -> DeleteBucketOutput by buckets;
    head_bucket: HeadBucketInput -> HeadBucketOutput by buckets;
    get_bucket_location: GetBucketLocationInput -> GetBucketLocationOutput by buckets;
    list_objects: ListObjectsInput -> ListObjectsOutput by list;
    list_objects_v2: ListObjectsV2Input -> ListObjectsV2Output by list;
    list_object_versions: ListObjectVersionsInput -> ListObjectVersionsOutput by list;
    put_object: PutObjectInput -> PutObjectOutput by objects;
    get_object: GetObjectInput -> GetObjectOutput by objects;
    head_object: HeadObjectInput -> HeadObjectOutput by objects;
    get_object_attributes: GetObjectAttributesInput -> GetObjectAttributesOutput by attributes;
    delete_object: DeleteObjectInput -> DeleteObjectOutput by objects;
    delete_objects: DeleteObjectsInput -> DeleteObjectsOutput by objects;
    copy_object: CopyObjectInput -> CopyObjectOutput by copies;
    upload_part_copy: UploadPartCopyInput -> UploadPartCopyOutput by copies;
    create_multipart_upload: CreateMultipartUploadInput -> CreateMultipartUploadOutput by uploads;
    upload_part: UploadPartInput -> UploadPartOutput by uploads;
    complete_multipart_upload: CompleteMultipartUploadInput -> CompleteMultipartUploadOutput by uploads;
    abort_multipart_upload: AbortMultipartUploadInput -> AbortMultipartUploadOutput by uploads;
    list_parts: ListPartsInput -> ListPartsOutput by uploads;
    list_multipart_uploads: ListMultipartUploadsInput -> ListMultipartUploadsOutput by uploads;
}
