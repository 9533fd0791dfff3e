"""A client of `loligo rgw`: what people do with S3, and what a hostile client tries.

Usage: s3.py ENDPOINT ACCESS_KEY SECRET OTHER_ACCESS_KEY OTHER_SECRET
"""

import concurrent.futures
import hashlib
import http.client
import io
import json
import re
import socket
import sys
import urllib.parse

import boto3
from botocore import UNSIGNED
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

import s3_later
import s3_versions

MIB = 1 << 20
ENDPOINT = sys.argv[1]
HOST = urllib.parse.urlparse(ENDPOINT).netloc


def client(key, secret, **more):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}, **more)
    return boto3.client(
        "s3",
        endpoint_url=ENDPOINT,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name="default",
        config=config,
    )


s3 = client(*sys.argv[2:4])
other = client(*sys.argv[4:6])
nobody = client("", "", signature_version=UNSIGNED)


def fails(status, code, call, **args):
    """The call is refused with this status and code."""
    try:
        call(**args)
    except ClientError as e:
        got = (e.response["ResponseMetadata"]["HTTPStatusCode"], e.response["Error"]["Code"])
        assert got == (status, code), (got, status, code, args)
    else:
        raise AssertionError(f"{args} should have failed with {code}")


def data(size, seed=1):
    block = hashlib.sha256(bytes([seed])).digest() * 128
    return (block * (size // len(block) + 1))[:size]


def get(name, who=s3, **args):
    return who.get_object(Bucket="bucket", Key=name, **args)["Body"].read()


def buckets():
    s3.create_bucket(Bucket="bucket")
    s3.create_bucket(Bucket="bucket")
    fails(409, "BucketAlreadyExists", other.create_bucket, Bucket="bucket")
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["bucket"]
    assert other.list_buckets()["Buckets"] == []
    s3.head_bucket(Bucket="bucket")
    fails(404, "404", s3.head_bucket, Bucket="missing")
    fails(403, "403", other.head_bucket, Bucket="bucket")
    assert s3.get_bucket_location(Bucket="bucket")["LocationConstraint"] == "default"
    fails(404, "NoSuchBucket", s3.list_objects, Bucket="missing")
    fails(400, "InvalidLocationConstraint", s3.create_bucket, Bucket="elsewhere", CreateBucketConfiguration={"LocationConstraint": "mars"})
    fails(404, "NoSuchLifecycleConfiguration", s3.get_bucket_lifecycle_configuration, Bucket="bucket")
    fails(404, "NoSuchBucketPolicy", s3.get_bucket_policy, Bucket="bucket")
    fails(404, "NoSuchCORSConfiguration", s3.get_bucket_cors, Bucket="bucket")
    fails(404, "NoSuchTagSet", s3.get_bucket_tagging, Bucket="bucket")
    fails(409, "BucketAlreadyExists", s3.create_bucket, Bucket="bucket", ACL="public-read")
    fails(400, "InvalidBucketName", s3.create_bucket, Bucket="a.-b")
    assert nobody.list_buckets()["Buckets"] == []


def objects():
    for size in [0, 1, 4096, 4 * MIB, 4 * MIB + 1, 9 * MIB]:
        body = data(size)
        put = s3.put_object(Bucket="bucket", Key="o", Body=body, ContentType="text/x", Metadata={"a": "1"})
        assert put["ETag"] == f'"{hashlib.md5(body).hexdigest()}"'
        got = s3.get_object(Bucket="bucket", Key="o")
        assert got["Body"].read() == body and got["ETag"] == put["ETag"], size
        assert (got["ContentType"], got["Metadata"]) == ("text/x", {"a": "1"})
        head = s3.head_object(Bucket="bucket", Key="o")
        assert (head["ContentLength"], head["ETag"], head["Metadata"]) == (size, put["ETag"], {"a": "1"})
    body = data(9 * MIB)
    for header, part in [
        ("bytes=0-0", body[:1]),
        ("bytes=4194300-4194310", body[4194300:4194311]),
        ("bytes=-5", body[-5:]),
        ("bytes=9437180-", body[9437180:]),
        ("bytes=9437180-99999999999", body[9437180:]),
    ]:
        got = s3.get_object(Bucket="bucket", Key="o", Range=header)
        assert got["Body"].read() == part and got["ResponseMetadata"]["HTTPStatusCode"] == 206, header
    fails(416, "InvalidRange", s3.get_object, Bucket="bucket", Key="o", Range="bytes=9437184-")
    etag = s3.head_object(Bucket="bucket", Key="o")["ETag"]
    assert get("o", IfMatch=etag) == body
    fails(412, "PreconditionFailed", s3.get_object, Bucket="bucket", Key="o", IfMatch='"x"')
    fails(304, "304", s3.get_object, Bucket="bucket", Key="o", IfNoneMatch=etag)
    fails(404, "NoSuchKey", s3.get_object, Bucket="bucket", Key="missing")
    fails(400, "InvalidDigest", s3.put_object, Bucket="bucket", Key="x", Body=b"a", ContentMD5="AAAA")
    fails(400, "BadDigest", s3.put_object, Bucket="bucket", Key="x", Body=b"a", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
    # Not without TLS.
    fails(400, "InvalidRequest", s3.put_object, Bucket="bucket", Key="x", Body=b"a", ServerSideEncryption="AES256")
    fails(404, "NoSuchKey", s3.get_object, Bucket="bucket", Key="x")
    s3.copy_object(Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": "o"})
    s3.delete_object(Bucket="bucket", Key="o")
    assert get("copy") == body
    s3.copy_object(Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": "copy"}, MetadataDirective="REPLACE", Metadata={"b": "2"})
    assert s3.head_object(Bucket="bucket", Key="copy")["Metadata"] == {"b": "2"} and get("copy") == body
    fails(400, "InvalidRequest", s3.copy_object, Bucket="bucket", Key="copy", CopySource={"Bucket": "bucket", "Key": "copy"})
    s3.delete_object(Bucket="bucket", Key="copy")
    s3.delete_object(Bucket="bucket", Key="copy")


def parts_of_objects():
    """Parts of an upload are read by their numbers, as SDKs do that fetch several at once."""
    upload = s3.create_multipart_upload(Bucket="bucket", Key="parts")["UploadId"]
    pieces = {2: data(5 * MIB, 1), 5: data(6 * MIB, 2), 6: data(3, 3)}
    done = [{"PartNumber": n, "ETag": s3.upload_part(Bucket="bucket", Key="parts", UploadId=upload, PartNumber=n, Body=piece)["ETag"]} for n, piece in pieces.items()]
    fails(404, "NoSuchKey", s3.get_object, Bucket="bucket", Key="parts", PartNumber=2)
    s3.complete_multipart_upload(Bucket="bucket", Key="parts", UploadId=upload, MultipartUpload={"Parts": done})
    at = 0
    size = sum(map(len, pieces.values()))
    for n, piece in pieces.items():
        head = s3.head_object(Bucket="bucket", Key="parts", PartNumber=n)
        assert (head["PartsCount"], head["ContentLength"]) == (3, len(piece)), head
        part = s3.get_object(Bucket="bucket", Key="parts", PartNumber=n)
        assert part["ContentRange"] == f"bytes {at}-{at + len(piece) - 1}/{size}" and part["PartsCount"] == 3
        assert part["ResponseMetadata"]["HTTPStatusCode"] == 206 and part["Body"].read() == piece
        at += len(piece)
    said = s3.get_object_attributes(Bucket="bucket", Key="parts", ObjectAttributes=["ETag", "ObjectParts", "ObjectSize", "StorageClass"], MaxParts=2)
    assert (said["ObjectSize"], said["StorageClass"], said["ETag"][-2:]) == (size, "STANDARD", "-3"), said
    told = said["ObjectParts"]
    assert [(p["PartNumber"], p["Size"]) for p in told["Parts"]] == [(2, 5 * MIB), (5, 6 * MIB)], told
    assert (told["TotalPartsCount"], told["IsTruncated"], str(told["NextPartNumberMarker"])) == (3, True, "5"), told
    said = s3.get_object_attributes(Bucket="bucket", Key="parts", ObjectAttributes=["ObjectParts"], PartNumberMarker=5)
    assert [p["PartNumber"] for p in said["ObjectParts"]["Parts"]] == [6] and "ETag" not in said, said
    fails(403, "AccessDenied", other.get_object_attributes, Bucket="bucket", Key="parts", ObjectAttributes=["ETag"])
    for none in [1, 3, 7]:
        fails(400, "InvalidPart", s3.get_object, Bucket="bucket", Key="parts", PartNumber=none)
    fails(400, "InvalidRequest", s3.get_object, Bucket="bucket", Key="parts", PartNumber=2, Range="bytes=0-1")
    # A part of no bytes is one all the same.
    upload = s3.create_multipart_upload(Bucket="bucket", Key="empty parts")["UploadId"]
    part = {"PartNumber": 1, "ETag": s3.upload_part(Bucket="bucket", Key="empty parts", UploadId=upload, PartNumber=1, Body=b"")["ETag"]}
    s3.complete_multipart_upload(Bucket="bucket", Key="empty parts", UploadId=upload, MultipartUpload={"Parts": [part]})
    part = s3.get_object(Bucket="bucket", Key="empty parts", PartNumber=1)
    assert (part["PartsCount"], part["ContentLength"], part["Body"].read()) == (1, 0, b""), part
    s3.delete_object(Bucket="bucket", Key="empty parts")
    for body in [b"whole", b""]:
        s3.put_object(Bucket="bucket", Key="parts", Body=body)
        whole = s3.get_object(Bucket="bucket", Key="parts", PartNumber=1)
        assert whole["Body"].read() == body and "PartsCount" not in whole
        fails(400, "InvalidPart", s3.get_object, Bucket="bucket", Key="parts", PartNumber=2)
    known = s3.put_object(Bucket="bucket", Key="parts", Body=b"x")["ETag"]
    try:
        s3.get_object(Bucket="bucket", Key="parts", IfNoneMatch=known)
    except ClientError as e:
        said = e.response["ResponseMetadata"]
        assert (said["HTTPStatusCode"], said["HTTPHeaders"]["etag"]) == (304, known) and "last-modified" in said["HTTPHeaders"]
    s3.delete_object(Bucket="bucket", Key="parts")


def owners_that_are_expected():
    """A bucket of somebody else is not taken for the one that is meant."""
    ours, theirs = (who.list_buckets()["Owner"]["ID"] for who in (s3, other))
    s3.put_object(Bucket="bucket", Key="owned", Body=b"x", ExpectedBucketOwner=ours)
    source = {"Bucket": "bucket", "Key": "owned"}
    for call, args in [
        (s3.put_object, {"Key": "owned", "Body": b"y"}),
        (s3.get_object, {"Key": "owned"}),
        (s3.list_objects_v2, {}),
        (s3.delete_object, {"Key": "owned"}),
        (s3.get_bucket_acl, {}),
        (s3.delete_bucket, {}),
        (s3.copy_object, {"Key": "owned-2", "CopySource": source}),
    ]:
        fails(403, "AccessDenied", call, Bucket="bucket", ExpectedBucketOwner=theirs, **args)
    fails(403, "AccessDenied", s3.copy_object, Bucket="bucket", Key="owned-2", CopySource=source, ExpectedSourceBucketOwner=theirs)
    s3.copy_object(Bucket="bucket", Key="owned", CopySource=source, MetadataDirective="REPLACE", ExpectedBucketOwner=ours, ExpectedSourceBucketOwner=ours)
    assert get("owned", ExpectedBucketOwner=ours) == b"x"
    url = s3.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": "owned", "ExpectedBucketOwner": theirs})
    assert ask("GET", urllib.parse.urlparse(url).path + "?" + urllib.parse.urlparse(url).query)[0] == 403
    s3.delete_object(Bucket="bucket", Key="owned")


def changes_at_once():
    """Each of many changes of a bucket is made, however many come at once."""
    with concurrent.futures.ThreadPoolExecutor(50) as threads:
        for done in [threads.submit(s3.put_bucket_acl, Bucket="bucket", ACL="private") for _ in range(50)]:
            done.result()


def pages_of_buckets():
    # Debian's boto3 asks for all of them.
    def page(query):
        request = AWSRequest("GET", f"{ENDPOINT}/?{query}", headers={"Host": HOST})
        S3SigV4Auth(Credentials(*sys.argv[2:4]), "s3", "default").add_auth(request)
        status, _, body = ask("GET", f"/?{query}", headers=dict(request.headers.items()))
        token = re.search("<ContinuationToken>(.*)</ContinuationToken>", body.decode())
        return status, re.findall("<Name>(.*?)</Name>", body.decode()), token and token[1]

    for name in ["page-a", "page-b", "page-c"]:
        s3.create_bucket(Bucket=name)
    status, names, token = page("max-buckets=3")
    assert (status, names) == (200, ["bucket", "page-a", "page-b"]) and token, (status, names, token)
    assert page(f"continuation-token={token}&max-buckets=3") == (200, ["page-c"], None)
    status, names, token = page("max-buckets=2&prefix=page-")
    assert (status, names) == (200, ["page-a", "page-b"]) and token, (status, names, token)
    assert page("max-buckets=3&prefix=page-") == (200, ["page-a", "page-b", "page-c"], None)
    assert page("bucket-region=elsewhere") == (200, [], None)
    assert page("max-buckets=0")[0] == 400
    for name in ["page-a", "page-b", "page-c"]:
        s3.delete_bucket(Bucket=name)


def lists():
    names = ["a/1", "a/2", "b", "größe + %2F", "z"]
    for name in names:
        s3.put_object(Bucket="bucket", Key=name, Body=name.encode())
    assert [e["Key"] for e in s3.list_objects(Bucket="bucket")["Contents"]] == names
    page = s3.list_objects_v2(Bucket="bucket", Delimiter="/", MaxKeys=2)
    assert [p["Prefix"] for p in page["CommonPrefixes"]] == ["a/"] and page["IsTruncated"]
    rest = s3.list_objects_v2(Bucket="bucket", Delimiter="/", ContinuationToken=page["NextContinuationToken"])
    assert [e["Key"] for e in page["Contents"] + rest["Contents"]] == names[2:]
    assert [e["Key"] for e in s3.list_objects(Bucket="bucket", Marker="b", Prefix="z")["Contents"]] == ["z"]
    assert all(get(name) == name.encode() for name in names)
    page = s3.list_object_versions(Bucket="bucket", MaxKeys=2)
    behind = dict(KeyMarker=page["NextKeyMarker"], VersionIdMarker=page["NextVersionIdMarker"])
    versions = page["Versions"] + s3.list_object_versions(Bucket="bucket", **behind)["Versions"]
    assert [(v["Key"], v["VersionId"], v["IsLatest"]) for v in versions] == [(name, "null", True) for name in names]
    s3.delete_object(Bucket="bucket", Key="b", VersionId="other")
    assert get("b", VersionId="null") == b"b"
    fails(409, "BucketNotEmpty", s3.delete_bucket, Bucket="bucket")
    gone = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": name} for name in names + ["never"]]})
    assert len(gone["Deleted"]) == len(names) + 1 and "Errors" not in gone
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket")


def uploads():
    where = dict(Bucket="bucket", Key="whole")
    begun = s3.create_multipart_upload(ContentType="text/y", Metadata={"m": "1"}, **where)["UploadId"]
    parts, bodies = [], [data(5 * MIB, 2), data(6 * MIB, 3), data(7, 4)]
    for number, body in enumerate(bodies, 1):
        etag = s3.upload_part(UploadId=begun, PartNumber=number, Body=body, **where)["ETag"]
        parts.append({"PartNumber": number, "ETag": etag})
    assert [u["UploadId"] for u in s3.list_multipart_uploads(Bucket="bucket")["Uploads"]] == [begun]
    listed = s3.list_parts(UploadId=begun, **where)["Parts"]
    assert [(p["PartNumber"], p["Size"]) for p in listed] == [(n, len(b)) for n, b in enumerate(bodies, 1)]
    wrong = [parts[1], parts[0], parts[2]]
    fails(400, "InvalidPartOrder", s3.complete_multipart_upload, UploadId=begun, MultipartUpload={"Parts": wrong}, **where)
    wrong = [dict(parts[0], ETag='"x"'), *parts[1:]]
    fails(400, "InvalidPart", s3.complete_multipart_upload, UploadId=begun, MultipartUpload={"Parts": wrong}, **where)
    done = s3.complete_multipart_upload(UploadId=begun, MultipartUpload={"Parts": parts}, **where)
    sums = b"".join(hashlib.md5(b).digest() for b in bodies)
    assert done["ETag"] == f'"{hashlib.md5(sums).hexdigest()}-3"'
    got = s3.get_object(**where)
    assert got["Body"].read() == b"".join(bodies) and (got["ContentType"], got["Metadata"]) == ("text/y", {"m": "1"})
    fails(404, "NoSuchUpload", s3.upload_part, UploadId=begun, PartNumber=1, Body=b"", **where)

    copied = s3.create_multipart_upload(Bucket="bucket", Key="of parts")["UploadId"]
    source = dict(CopySource={"Bucket": "bucket", "Key": "whole"}, CopySourceRange=f"bytes=3-{5 * MIB + 2}")
    part = s3.upload_part_copy(Bucket="bucket", Key="of parts", UploadId=copied, PartNumber=1, **source)
    parts = [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]
    s3.complete_multipart_upload(Bucket="bucket", Key="of parts", UploadId=copied, MultipartUpload={"Parts": parts})
    assert get("of parts") == b"".join(bodies)[3 : 5 * MIB + 3]
    given_up = s3.create_multipart_upload(Bucket="bucket", Key="never")["UploadId"]
    s3.upload_part(Bucket="bucket", Key="never", UploadId=given_up, PartNumber=1, Body=data(5 * MIB))
    s3.abort_multipart_upload(Bucket="bucket", Key="never", UploadId=given_up)
    fails(404, "NoSuchUpload", s3.list_parts, Bucket="bucket", Key="never", UploadId=given_up)
    # What boto3 does by itself with large files.
    s3.upload_fileobj(io.BytesIO(data(20 * MIB, 5)), "bucket", "large")
    assert get("large") == data(20 * MIB, 5)
    for name in ["whole", "of parts", "large"]:
        s3.delete_object(Bucket="bucket", Key=name)


def rights():
    s3.put_object(Bucket="bucket", Key="mine", Body=b"m")
    for who in [other, nobody]:
        fails(403, "AccessDenied", who.get_object, Bucket="bucket", Key="mine")
        fails(403, "AccessDenied", who.get_object, Bucket="bucket", Key="missing")
        fails(403, "AccessDenied", who.put_object, Bucket="bucket", Key="theirs", Body=b"")
        fails(403, "AccessDenied", who.delete_object, Bucket="bucket", Key="mine")
        fails(403, "AccessDenied", who.list_objects, Bucket="bucket")
        fails(403, "AccessDenied", who.get_bucket_acl, Bucket="bucket")
    fails(403, "AccessDenied", nobody.create_bucket, Bucket="nobodys")
    s3.put_object(Bucket="bucket", Key="public", Body=b"p", ACL="public-read")
    s3.put_object(Bucket="bucket", Key="known", Body=b"k", ACL="authenticated-read")
    assert get("public", nobody) == b"p" and get("known", other) == b"k"
    fails(403, "AccessDenied", nobody.get_object, Bucket="bucket", Key="known")
    fails(400, "InvalidRequest", nobody.get_object, Bucket="bucket", Key="public", ResponseContentType="text/html")
    assert s3.get_object(Bucket="bucket", Key="public", ResponseContentType="text/html")["ContentType"] == "text/html"
    grants = s3.get_object_acl(Bucket="bucket", Key="public")["Grants"]
    assert sorted(g["Permission"] for g in grants) == ["FULL_CONTROL", "READ"], grants
    s3.put_bucket_acl(Bucket="bucket", ACL="public-read-write")
    nobody.put_object(Bucket="bucket", Key="nobodys", Body=b"n")
    assert {e["Key"] for e in nobody.list_objects(Bucket="bucket")["Contents"]} == {"known", "mine", "nobodys", "public"}
    s3.put_bucket_acl(Bucket="bucket", ACL="private")
    fails(403, "AccessDenied", nobody.list_objects, Bucket="bucket")
    for name in ["mine", "public", "known", "nobodys"]:
        s3.delete_object(Bucket="bucket", Key=name)
    fails(403, "InvalidAccessKeyId", client("UNKNOWN", "x").list_buckets)
    fails(403, "SignatureDoesNotMatch", client(sys.argv[2], "wrong").list_buckets)


def acls():
    s3.put_object(Bucket="bucket", Key="k", Body=b"k")
    owner = s3.get_object_acl(Bucket="bucket", Key="k")["Owner"]
    me, them = owner["ID"], other.list_buckets()["Owner"]["ID"]

    def policy(*grants):
        to = lambda who, what: {"Grantee": {"Type": "CanonicalUser", "ID": who}, "Permission": what}
        return {"Owner": owner, "Grants": [to(*grant) for grant in grants]}

    fails(403, "AccessDenied", other.put_object_acl, Bucket="bucket", Key="k", ACL="public-read")
    before = s3.head_object(Bucket="bucket", Key="k")["ETag"]
    s3.put_object_acl(Bucket="bucket", Key="k", AccessControlPolicy=policy((me, "FULL_CONTROL"), (them, "READ")))
    assert get("k", other) == b"k" and s3.head_object(Bucket="bucket", Key="k")["ETag"] == before
    grants = s3.get_object_acl(Bucket="bucket", Key="k")["Grants"]
    assert sorted((g["Grantee"]["ID"], g["Permission"]) for g in grants) == [(me, "FULL_CONTROL"), (them, "READ")]
    fails(403, "AccessDenied", other.put_object_acl, Bucket="bucket", Key="k", ACL="public-read")
    fails(400, "InvalidArgument", s3.put_object_acl, Bucket="bucket", Key="k", AccessControlPolicy=policy(("nobody here", "READ")))
    fails(403, "AccessDenied", s3.put_object_acl, Bucket="bucket", Key="k", AccessControlPolicy=dict(policy(), Owner={"ID": them}))
    s3.put_object_acl(Bucket="bucket", Key="k", AccessControlPolicy=policy((me, "FULL_CONTROL"), (them, "WRITE_ACP")))
    fails(403, "AccessDenied", other.get_object, Bucket="bucket", Key="k")
    other.put_object_acl(Bucket="bucket", Key="k", ACL="public-read")
    assert get("k", nobody) == b"k"
    s3.put_object(Bucket="bucket", Key="granted", Body=b"g", GrantRead=f"id={them}", GrantFullControl=f'id="{me}"')
    assert get("granted", other) == b"g"
    fails(403, "AccessDenied", nobody.get_object, Bucket="bucket", Key="granted")
    fails(400, "InvalidArgument", s3.put_object, Bucket="bucket", Key="x", Body=b"", GrantRead="id=nobody-here")
    fails(400, "InvalidRequest", s3.put_object, Bucket="bucket", Key="x", Body=b"", GrantRead=f"id={them}", ACL="private")
    s3.put_bucket_acl(Bucket="bucket", AccessControlPolicy=policy((me, "FULL_CONTROL"), (them, "WRITE")))
    other.put_object(Bucket="bucket", Key="theirs", Body=b"t")
    fails(403, "AccessDenied", s3.get_object, Bucket="bucket", Key="theirs")
    fails(403, "AccessDenied", other.list_objects, Bucket="bucket")
    # What everybody is granted does not count where public grants are passed over.
    s3.put_bucket_acl(Bucket="bucket", ACL="public-read")
    block = dict(BlockPublicAcls=True, IgnorePublicAcls=True, BlockPublicPolicy=True, RestrictPublicBuckets=False)
    s3.put_public_access_block(Bucket="bucket", PublicAccessBlockConfiguration=block)
    assert s3.get_public_access_block(Bucket="bucket")["PublicAccessBlockConfiguration"] == block
    fails(403, "AccessDenied", nobody.list_objects, Bucket="bucket")
    fails(403, "AccessDenied", nobody.get_object, Bucket="bucket", Key="k")
    fails(403, "AccessDenied", s3.put_object, Bucket="bucket", Key="x", Body=b"", ACL="public-read")
    s3.delete_public_access_block(Bucket="bucket")
    assert {e["Key"] for e in nobody.list_objects(Bucket="bucket")["Contents"]} == {"k", "granted", "theirs"}
    s3.put_bucket_acl(Bucket="bucket", ACL="private")
    for name in ["k", "granted", "theirs"]:
        s3.delete_object(Bucket="bucket", Key=name)


def tagging():
    tags = lambda pairs: {"TagSet": [{"Key": k, "Value": v} for k, v in pairs]}
    where = dict(Bucket="bucket", Key="tagged")
    s3.put_object(Body=data(5 * MIB), Tagging="color=red&empty=", **where)
    assert s3.get_object_tagging(**where)["TagSet"] == tags([("color", "red"), ("empty", "")])["TagSet"]
    assert s3.get_object(**where)["TagCount"] == 2
    s3.put_object_tagging(Tagging=tags([("a <b>", "ö & c")]), **where)
    assert s3.get_object_tagging(**where)["TagSet"] == [{"Key": "a <b>", "Value": "ö & c"}]
    assert get("tagged") == data(5 * MIB)
    fails(400, "InvalidTag", s3.put_object_tagging, Tagging=tags([(f"{n}", "v") for n in range(11)]), **where)
    fails(400, "InvalidArgument", s3.put_object, Bucket="bucket", Key="x", Body=b"", Tagging="a=1&a=2")
    fails(403, "AccessDenied", other.get_object_tagging, **where)
    s3.copy_object(Bucket="bucket", Key="copy", CopySource=where)
    assert len(s3.get_object_tagging(Bucket="bucket", Key="copy")["TagSet"]) == 1
    s3.copy_object(Bucket="bucket", Key="copy", CopySource=where, TaggingDirective="REPLACE", Tagging="n=1")
    assert s3.get_object_tagging(Bucket="bucket", Key="copy")["TagSet"] == [{"Key": "n", "Value": "1"}]
    s3.delete_object_tagging(**where)
    s3.delete_object_tagging(**where)
    assert s3.get_object_tagging(**where)["TagSet"] == [] and "TagCount" not in s3.head_object(**where)
    s3.put_bucket_tagging(Bucket="bucket", Tagging=tags([("team", "x")]))
    assert s3.get_bucket_tagging(Bucket="bucket")["TagSet"] == [{"Key": "team", "Value": "x"}]
    s3.delete_bucket_tagging(Bucket="bucket")
    fails(404, "NoSuchTagSet", s3.get_bucket_tagging, Bucket="bucket")
    for name in ["tagged", "copy"]:
        s3.delete_object(Bucket="bucket", Key=name)


def policies():
    def allow(action, resource, effect="Allow", **more):
        return {"Effect": effect, "Principal": {"AWS": "*"}, "Action": action, "Resource": f"arn:aws:s3:::bucket{resource}", **more}

    def put(*statements):
        s3.put_bucket_policy(Bucket="bucket", Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))

    s3.put_object(Bucket="bucket", Key="open/k", Body=b"o", Tagging="level=public")
    s3.put_object(Bucket="bucket", Key="shut/k", Body=b"s")
    put(allow("s3:GetObject", "/open/*"), allow("s3:ListBucket", "", Condition={"StringEquals": {"s3:prefix": "open/"}}))
    assert json.loads(s3.get_bucket_policy(Bucket="bucket")["Policy"])["Statement"][0]["Effect"] == "Allow"
    assert s3.get_bucket_policy_status(Bucket="bucket")["PolicyStatus"]["IsPublic"]
    for who in [other, nobody]:
        assert get("open/k", who) == b"o"
        assert [e["Key"] for e in who.list_objects(Bucket="bucket", Prefix="open/")["Contents"]] == ["open/k"]
        fails(403, "AccessDenied", who.get_object, Bucket="bucket", Key="shut/k")
        fails(403, "AccessDenied", who.list_objects, Bucket="bucket")
        fails(403, "AccessDenied", who.put_object, Bucket="bucket", Key="open/x", Body=b"")
        fails(403, "AccessDenied", who.get_bucket_policy, Bucket="bucket")
    put(allow("s3:*", "/*", "Deny", Condition={"NotIpAddress": {"aws:SourceIp": "10.0.0.0/8"}}))
    fails(403, "AccessDenied", s3.get_object, Bucket="bucket", Key="open/k")
    fails(403, "AccessDenied", s3.put_object, Bucket="bucket", Key="x", Body=b"")
    gone = s3.delete_objects(Bucket="bucket", Delete={"Objects": [{"Key": "open/k"}]})
    assert [e["Code"] for e in gone["Errors"]] == ["AccessDenied"], gone
    tagged = {"StringEquals": {"s3:ExistingObjectTag/level": "public"}}
    put(allow(["s3:GetObject", "s3:GetObjectTagging"], "/*", Condition=tagged), allow("s3:PutObject", "/in/*"))
    assert get("open/k", nobody) == b"o"
    fails(403, "AccessDenied", nobody.get_object, Bucket="bucket", Key="shut/k")
    other.put_object(Bucket="bucket", Key="in/k", Body=b"i")
    for wrong in ["", "{", "[]", '{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:Nothing","Resource":"*"}]}']:
        fails(400, "InvalidArgument", s3.put_bucket_policy, Bucket="bucket", Policy=wrong)
    fails(403, "AccessDenied", other.delete_bucket_policy, Bucket="bucket")
    s3.delete_bucket_policy(Bucket="bucket")
    fails(403, "AccessDenied", nobody.get_object, Bucket="bucket", Key="open/k")
    for name in ["open/k", "shut/k", "in/k"]:
        s3.delete_object(Bucket="bucket", Key=name)


def ask(method, path, body=None, headers=None):
    """What a page's script does: status, headers and body of the answer."""
    connection = http.client.HTTPConnection(HOST, timeout=60)
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def with_header(call, name, value):
    """A client whose calls of one kind have a header that boto3 does not know."""
    who = client(*sys.argv[2:4])
    who.meta.events.register(f"before-sign.s3.{call}", lambda request, **_: request.headers.add_header(name, value))
    return who


def slowly(name, headers):
    """The first byte of an object, and what reads the rest of an answer that the sockets do not hold."""
    url = urllib.parse.urlparse(s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": name}))
    connection = http.client.HTTPConnection(HOST)
    connection.sock = socket.socket()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.sock.connect((connection.host, connection.port))
    connection.request("GET", f"{url.path}?{url.query}", headers=headers)
    answer = connection.getresponse()
    return answer.read(1), answer.read


def meanwhile():
    # A head of its own.
    old, new = data(4 * MIB, 6), data(4 * MIB, 7)
    for change in [
        lambda: s3.put_object_tagging(Bucket="bucket", Key="read", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]}),
        lambda: s3.put_object(Bucket="bucket", Key="read", Body=new),
        lambda: s3.delete_object(Bucket="bucket", Key="read"),
    ]:
        for headers, want in [({}, old), ({"Range": f"bytes=1-{len(old) - 1}"}, old[1:])]:
            s3.put_object(Bucket="bucket", Key="read", Body=old)
            first, rest = slowly("read", headers)
            change()
            assert first + rest() == want
    s3.put_object(Bucket="bucket", Key="read", Body=old)
    etag, modified = (s3.head_object(Bucket="bucket", Key="read")[name] for name in ("ETag", "LastModified"))
    date = modified.strftime("%a, %d %b %Y %H:%M:%S GMT")
    for known, is_part in [(etag, True), ('"other"', False), (date, True), (date.replace("20", "19", 1), False)]:
        who = with_header("GetObject", "If-Range", known)
        assert get("read", who, Range="bytes=0-9") == (old[:10] if is_part else old), known
    s3.delete_object(Bucket="bucket", Key="read")


def pages_of_uploads():
    begun = [s3.create_multipart_upload(Bucket="bucket", Key=key)["UploadId"] for key in ["d/a", "d/b", "e"]]
    seen, marker = [], {}
    while True:
        page = s3.list_multipart_uploads(Bucket="bucket", Delimiter="/", MaxUploads=1, **marker)
        seen += [p["Prefix"] for p in page.get("CommonPrefixes", [])] + [u["Key"] for u in page.get("Uploads", [])]
        if not page["IsTruncated"]:
            break
        marker = dict(KeyMarker=page["NextKeyMarker"], UploadIdMarker=page["NextUploadIdMarker"])
        assert len(seen) < 9, seen
    assert seen == ["d/", "e"], seen
    # A part without a sum is not taken for one with it.
    etag = s3.upload_part(Bucket="bucket", Key="e", UploadId=begun[2], PartNumber=1, Body=b"part")["ETag"]
    end = dict(Bucket="bucket", Key="e", UploadId=begun[2])
    part = {"PartNumber": 1, "ETag": etag}
    fails(400, "InvalidRequest", s3.complete_multipart_upload, MultipartUpload={"Parts": [dict(part, ChecksumCRC32="AAAAAA==")]}, **end)
    who = with_header("CompleteMultipartUpload", "x-amz-checksum-crc32", "AAAAAA==")
    fails(400, "InvalidRequest", who.complete_multipart_upload, MultipartUpload={"Parts": [part]}, **end)
    s3.complete_multipart_upload(MultipartUpload={"Parts": [part]}, **end)
    assert get("e") == b"part"
    s3.delete_object(Bucket="bucket", Key="e")
    for key, upload in zip(["d/a", "d/b"], begun):
        s3.abort_multipart_upload(Bucket="bucket", Key=key, UploadId=upload)


def pages():
    page = {"Origin": "https://a.example.com"}
    wants = dict(page, **{"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-amz-meta-a"})
    assert ask("OPTIONS", "/bucket/k", headers=wants)[0] == 403
    rule = dict(AllowedMethods=["PUT", "GET"], AllowedOrigins=["https://*.example.com"], AllowedHeaders=["x-amz-*"], ExposeHeaders=["ETag"], MaxAgeSeconds=7)
    s3.put_bucket_cors(Bucket="bucket", CORSConfiguration={"CORSRules": [rule]})
    got = s3.get_bucket_cors(Bucket="bucket")["CORSRules"]
    assert [{**r, "AllowedMethods": sorted(r["AllowedMethods"], reverse=True)} for r in got] == [rule], got
    status, headers, _ = ask("OPTIONS", "/bucket/k", headers=wants)
    told = {name.split("-", 2)[-1]: value for name, value in headers.items() if name.startswith("access-control-")}
    want = {"allow-origin": page["Origin"], "allow-methods": "PUT", "allow-headers": "x-amz-meta-a", "expose-headers": "ETag", "max-age": "7"}
    assert (status, told, headers["vary"]) == (200, want, "Origin")
    assert ask("OPTIONS", "/bucket/k", headers=dict(wants, Origin="https://example.org"))[0] == 403
    # Also a refusal says that the page may see it.
    status, headers, _ = ask("GET", "/bucket/missing", headers=page)
    assert (status, headers["access-control-allow-origin"]) == (403, page["Origin"])
    assert "access-control-allow-origin" not in ask("GET", "/bucket/missing")[1]
    s3.delete_bucket_cors(Bucket="bucket")
    assert ask("OPTIONS", "/bucket/k", headers=wants)[0] == 403


def forms():
    def form(fields, file=b"of a form", **headers):
        parts = [f'--B\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n'.encode() for n, v in fields.items()]
        head = b'--B\r\nContent-Disposition: form-data; name="file"; filename="f.txt"\r\n\r\n'
        return ask("POST", "/bucket", b"".join(parts) + head + file + b"\r\n--B--\r\n", {"Content-Type": "multipart/form-data; boundary=B", **headers})

    def signed(conditions, seconds=60, **fields):
        made = s3.generate_presigned_post("bucket", fields.pop("key"), Fields=fields, Conditions=conditions, ExpiresIn=seconds)
        return made["fields"]

    assert form({"key": "nobodys"})[0] == 403
    fields = signed([{"acl": "private"}, ["content-length-range", 1, 100], {"x-amz-meta-a": "1"}], key="up/${filename}", acl="private", **{"x-amz-meta-a": "1"})
    status, _, body = form(fields)
    assert status == 204, body
    assert form(fields, **{"x-amz-expected-bucket-owner": "somebody"})[0] == 403
    assert get("up/f.txt") == b"of a form" and s3.head_object(Bucket="bucket", Key="up/f.txt")["Metadata"] == {"a": "1"}
    for change, status in [
        ({"acl": "public-read"}, 403),
        ({"x-amz-meta-b": "2"}, 403),
        ({"policy": fields["policy"][:-4]}, 403),
        ({"x-amz-signature": "0" * 64}, 403),
        ({"key": "other"}, 403),
        ({"x-ignore-me": "x"}, 204),
    ]:
        assert form({**fields, **change})[0] == status, change
    assert form(fields, b"x" * 101)[0] == 400 and form(fields, b"")[0] == 400
    assert form({k: v for k, v in fields.items() if k != "key"})[0] == 400
    late = signed([], seconds=-1, key="late")
    assert form(late)[0] == 403
    redirected = signed([["starts-with", "$success_action_redirect", "http://"]], key="k", success_action_redirect="http://page/")
    status, headers, _ = form(redirected)
    assert (status, headers["location"].split("&")[0]) == (303, "http://page/?bucket=bucket")
    tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
    large = signed([["starts-with", "$tagging", ""]], key="large", tagging=tags)
    assert form(large, data(9 * MIB))[0] == 204 and get("large") == data(9 * MIB)
    assert s3.get_object_tagging(Bucket="bucket", Key="large")["TagSet"] == [{"Key": "a", "Value": "b"}]
    for name in ["up/f.txt", "k", "large"]:
        s3.delete_object(Bucket="bucket", Key=name)
    assert "Contents" not in s3.list_objects(Bucket="bucket")


def old_signatures():
    old = client(*sys.argv[2:4], signature_version="s3")
    old.put_object(Bucket="bucket", Key="old", Body=b"o", Metadata={"a": "1"})
    assert get("old", old) == b"o" and [e["Key"] for e in old.list_objects(Bucket="bucket")["Contents"]] == ["old"]
    url = old.generate_presigned_url("get_object", Params=dict(Bucket="bucket", Key="old"), ExpiresIn=60)
    assert "AWSAccessKeyId" in url and ask("GET", url.split(HOST, 1)[1])[2] == b"o"
    late = old.generate_presigned_url("get_object", Params=dict(Bucket="bucket", Key="old"), ExpiresIn=-1)
    assert ask("GET", late.split(HOST, 1)[1])[0] == 403
    fails(403, "SignatureDoesNotMatch", client(sys.argv[2], "wrong", signature_version="s3").list_buckets)
    old.delete_object(Bucket="bucket", Key="old")


def presigned():
    where = dict(Bucket="bucket", Key="signed")
    put, fetch = (s3.generate_presigned_url(op, Params=where, ExpiresIn=60) for op in ["put_object", "get_object"])

    def at(method, url, *more):
        status, _, body = ask(method, url.split(HOST, 1)[1], *more)
        return status, body

    assert at("PUT", put, b"by url")[0] == 200 and at("GET", fetch) == (200, b"by url")
    assert at("GET", put)[0] == 403 and at("GET", fetch.replace("signed?", "other?"))[0] == 403
    assert at("PUT", put, b"x", {"x-amz-acl": "public-read"})[0] == 403
    assert get("signed") == b"by url"
    s3.delete_object(**where)


def raw(text):
    """What a request that no library makes is answered with."""
    with socket.create_connection(HOST.split(":"), timeout=60) as connection:
        connection.sendall(text)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


def hostile():
    head = f"Host: {HOST}\r\nConnection: close\r\n".encode()
    for request, status in [
        (b"GET /bucket/%zz HTTP/1.1\r\n" + head + b"\r\n", b"400"),
        (b"GET /bucket/%ff HTTP/1.1\r\n" + head + b"\r\n", b"400"),
        (b"GET //// HTTP/1.1\r\n" + head + b"\r\n", b"40"),
        (b"GET /bucket?max-keys=-1 HTTP/1.1\r\n" + head + b"\r\n", b"40"),
        (b"GET /bucket?max-keys=99999999999999999999 HTTP/1.1\r\n" + head + b"\r\n", b"40"),
        (b"PUT /bucket/k HTTP/1.1\r\n" + head + b"Content-Length: -5\r\n\r\n", b"400"),
        (b"PUT /bucket/k HTTP/1.1\r\n" + head + b"Content-Length: 9\r\nContent-Length: 8\r\n\r\n", b"400"),
        (b"PUT /bucket/k HTTP/1.1\r\n" + head + b"x-amz-copy-source: \r\nContent-Length: 0\r\n\r\n", b"40"),
        (b"POST /bucket HTTP/1.1\r\n" + head + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 0\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + head + b"x-amz-meta-a: " + b"x" * 20000 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + head + b"Authorization: AWS4-HMAC-SHA256 \r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + head + b"Authorization: AWS key:signature\r\n\r\n", b"403"),
        (b"POST /bucket?delete HTTP/1.1\r\n" + head + b"Content-Length: 2000000\r\n\r\n", b"400"),
        (b"PUT /bucket/k?append&position=9 HTTP/1.1\r\n" + head + b"Content-Length: 0\r\n\r\n", b"501"),
        (b"PUT /bucket/k?uploadId=x HTTP/1.1\r\n" + head + b"Content-Length: 0\r\n\r\n", b"400"),
        (b"DELETE /bucket?notification HTTP/1.1\r\n" + head + b"\r\n", b"501"),
        (b"DELETE /bucket HTTP/1.1\r\n" + head + b"x-amz-expected-bucket-owner: x\r\n\r\n", b"403"),
        (b"POST /bucket?delete HTTP/1.1\r\n" + head + b"Content-Length: 22\r\n\r\n<Key>a<!-- -->bc</Key>", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"400"),
    ]:
        answer = raw(request)
        assert answer.startswith(b"HTTP/1.1 " + status), (request[:80], answer[:200])
    s3.list_buckets()


def main():
    buckets()
    for step in [objects, parts_of_objects, owners_that_are_expected, changes_at_once, pages_of_buckets, meanwhile, lists, uploads, pages_of_uploads, rights, acls, tagging, policies, pages, forms, old_signatures, presigned, hostile]:
        step()
    s3_versions.run(s3, other, fails, data, other.list_buckets()["Owner"]["ID"])
    s3_later.run(s3, other, fails, data, with_header, s3.list_buckets()["Owner"]["ID"])
    # A bucket that holds an upload alone can be removed.
    left = s3.create_multipart_upload(Bucket="bucket", Key="left")["UploadId"]
    s3.upload_part(Bucket="bucket", Key="left", UploadId=left, PartNumber=1, Body=data(5 * MIB))
    s3.delete_bucket(Bucket="bucket")
    assert s3.list_buckets()["Buckets"] == []
    print("done")


main()
