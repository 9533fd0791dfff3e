"""What releases of Ceph's behind 16.2 have: checksums that are kept, conditions, ownership, logs and encryption of buckets.

Called by s3.py, whose gateway has no service of keys and takes none without TLS.
"""

import base64
import hashlib
import json
import time
import zlib

MIB = 1 << 20


def crc32(body):
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


def sha256(body):
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def checksums(s3, fails, data, with_header):
    body = data(100_003)
    at = dict(Bucket="later", Key="summed")
    put = s3.put_object(Body=body, ChecksumSHA256=sha256(body), **at)
    assert put["ChecksumSHA256"] == sha256(body), put
    fails(400, "BadDigest", s3.put_object, Body=body, ChecksumSHA256=sha256(b"other"), **at)
    assert "ChecksumSHA256" not in s3.head_object(**at)
    assert s3.head_object(ChecksumMode="ENABLED", **at)["ChecksumSHA256"] == sha256(body)
    assert "ChecksumSHA256" not in s3.get_object(ChecksumMode="ENABLED", Range="bytes=0-9", **at)
    copied = s3.copy_object(Bucket="later", Key="copy", CopySource="later/summed", MetadataDirective="REPLACE")
    assert copied["CopyObjectResult"]["ChecksumSHA256"] == sha256(body), copied
    told = s3.get_object_attributes(Bucket="later", Key="copy", ObjectAttributes=["Checksum", "ObjectSize"])
    assert (told["Checksum"]["ChecksumSHA256"], told["ObjectSize"]) == (sha256(body), len(body)), told
    # Of parts: the sum of all bytes, and that of the parts' sums.
    parts = [data(5 * MIB + 1), data(70_001)]
    sums = [hashlib.sha256(part).digest() for part in parts]
    composite = base64.b64encode(hashlib.sha256(b"".join(sums)).digest()).decode() + "-2"
    for kind, summed, whole in [("CRC32", crc32, crc32(b"".join(parts))), ("SHA256", sha256, composite)]:
        at, field = dict(Bucket="later", Key=f"parts {kind}"), f"Checksum{kind}"
        upload = s3.create_multipart_upload(ChecksumAlgorithm=kind, **at)
        assert upload["ChecksumAlgorithm"] == kind, upload
        at["UploadId"], done = upload["UploadId"], []
        for number, part in enumerate(parts, 1):
            # Of the first one the gateway makes the sum.
            said = {field: summed(part)} if number > 1 else {}
            made = s3.upload_part(PartNumber=number, Body=part, **said, **at)
            assert made[field] == summed(part), made
            done.append({"PartNumber": number, "ETag": made["ETag"], field: made[field]})
        listed = s3.list_parts(**at)["Parts"]
        assert [part[field] for part in listed] == [part[field] for part in done], listed
        wrong = [dict(done[0], **{field: summed(b"other")}), done[1]]
        fails(400, "BadDigest", s3.complete_multipart_upload, MultipartUpload={"Parts": wrong}, **at)
        fails(400, "BadDigest", s3.complete_multipart_upload, MultipartUpload={"Parts": done}, **{field: summed(b"other")}, **at)
        who = with_header("CompleteMultipartUpload", "x-amz-mp-object-size", "5")
        fails(400, "InvalidRequest", who.complete_multipart_upload, MultipartUpload={"Parts": done}, **at)
        for _ in range(2):
            # Who asks again is told the same.
            end = s3.complete_multipart_upload(MultipartUpload={"Parts": done}, **{field: whole}, **at)
            assert end[field] == whole, end
        del at["UploadId"]
        assert s3.head_object(ChecksumMode="ENABLED", **at)[field] == whole
        told = s3.get_object_attributes(ObjectAttributes=["Checksum", "ObjectParts"], **at)
        assert told["Checksum"][field] == whole, told
        assert [part[field] for part in told["ObjectParts"]["Parts"]] == [summed(part) for part in parts], told


def conditions(s3, fails, with_header):
    at = dict(Bucket="later", Key="held")
    wants = lambda call, value, name="if-match": with_header(call, name, value)
    fails(404, "NoSuchKey", wants("PutObject", "*").put_object, Body=b"x", **at)
    etag = wants("PutObject", "*", "if-none-match").put_object(Body=b"one", **at)["ETag"]
    fails(412, "PreconditionFailed", wants("PutObject", "*", "if-none-match").put_object, Body=b"two", **at)
    fails(412, "PreconditionFailed", wants("PutObject", '"x"').put_object, Body=b"two", **at)
    copy = dict(CopySource="later/summed", **at)
    fails(412, "PreconditionFailed", wants("CopyObject", '"x"').copy_object, **copy)
    wants("CopyObject", etag).copy_object(**copy)
    etag = s3.head_object(**at)["ETag"]
    upload = s3.create_multipart_upload(**at)["UploadId"]
    part = {"PartNumber": 1, "ETag": s3.upload_part(UploadId=upload, PartNumber=1, Body=b"part", **at)["ETag"]}
    end = dict(UploadId=upload, MultipartUpload={"Parts": [part]}, **at)
    fails(412, "PreconditionFailed", wants("CompleteMultipartUpload", "*", "if-none-match").complete_multipart_upload, **end)
    wants("CompleteMultipartUpload", etag).complete_multipart_upload(**end)
    size = lambda value: wants("DeleteObject", value, "x-amz-if-match-size")
    fails(412, "PreconditionFailed", wants("DeleteObject", '"x"').delete_object, **at)
    fails(412, "PreconditionFailed", size("5").delete_object, **at)
    early = wants("DeleteObject", "Sun, 06 Nov 1994 08:49:37 GMT", "x-amz-if-match-last-modified-time")
    fails(412, "PreconditionFailed", early.delete_object, **at)
    size("4").delete_object(**at)
    # What is not there is as it was wanted.
    size("5").delete_object(**at)
    fails(404, "NoSuchKey", s3.get_object, **at)


def ownership(s3, other, fails, owner):
    rules = lambda name: {"Rules": [{"ObjectOwnership": name}]}
    fails(404, "OwnershipControlsNotFoundError", s3.get_bucket_ownership_controls, Bucket="later")
    allow = [{"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": ["arn:aws:s3:::later", "arn:aws:s3:::later/*"]}]
    s3.put_bucket_policy(Bucket="later", Policy=json.dumps({"Statement": allow}))
    whose = lambda: s3.get_object_acl(Bucket="later", Key="theirs")["Owner"]["ID"]
    for name, canned, is_ours in [("ObjectWriter", "bucket-owner-full-control", False), ("BucketOwnerPreferred", "private", False),
                                  ("BucketOwnerPreferred", "bucket-owner-full-control", True),
                                  ("BucketOwnerEnforced", "bucket-owner-full-control", True)]:
        s3.put_bucket_ownership_controls(Bucket="later", OwnershipControls=rules(name))
        assert s3.get_bucket_ownership_controls(Bucket="later")["OwnershipControls"] == rules(name)
        other.put_object(Bucket="later", Key="theirs", Body=b"t", ACL=canned)
        assert (whose() == owner) == is_ours, (name, canned)
    fails(400, "AccessControlListNotSupported", other.put_object, Bucket="later", Key="x", Body=b"", ACL="private")
    fails(400, "AccessControlListNotSupported", s3.put_bucket_acl, Bucket="later", ACL="public-read")
    s3.delete_bucket_ownership_controls(Bucket="later")
    s3.delete_bucket_policy(Bucket="later")
    fails(404, "NoSuchPublicAccessBlockConfiguration", s3.get_public_access_block, Bucket="later")
    barred = dict(allow[0], NotPrincipal={"AWS": "arn:aws:iam:::user/x"})
    del barred["Principal"]
    fails(400, "InvalidArgument", s3.put_bucket_policy, Bucket="later", Policy=json.dumps({"Statement": [barred]}))


def logs(s3, fails, owner):
    s3.create_bucket(Bucket="logs")
    conf = lambda **more: {"LoggingEnabled": dict(TargetBucket="logs", TargetPrefix="p/", **more)}
    put = lambda bucket="later", **more: s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus=conf(**more))
    fails(403, "AccessDenied", put)
    allow = {"Effect": "Allow", "Principal": {"Service": "logging.s3.amazonaws.com"}, "Action": "s3:PutObject",
             "Resource": "arn:aws:s3:::logs/p/*", "Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:s3:::later"},
                                                                "StringEquals": {"aws:SourceAccount": owner}}}
    allow["Resource"] = "arn:aws:s3:::logs/p/"
    s3.put_bucket_policy(Bucket="logs", Policy=json.dumps({"Statement": [allow]}))
    fails(400, "InvalidArgument", put, bucket="logs")
    put()
    assert s3.get_bucket_logging(Bucket="later")["LoggingEnabled"]["TargetPrefix"] == "p/"
    # Its settings say it of no SDK that is here: the gateway was told to end logs after a second.
    for number in range(3):
        s3.put_object(Bucket="later", Key=f"logged {number}", Body=b"x" * (number + 1))
    fails(404, "NoSuchKey", s3.get_object, Bucket="later", Key="not there")
    deadline = time.monotonic() + 60
    found = ""
    while not ("logged%202" in found and "NoSuchKey" in found):
        assert time.monotonic() < deadline, found
        s3.head_bucket(Bucket="later")
        keys = [entry["Key"] for entry in s3.list_objects(Bucket="logs").get("Contents", [])]
        found = "".join(s3.get_object(Bucket="logs", Key=key)["Body"].read().decode() for key in keys)
        time.sleep(0.2)
    puts = [line for line in found.splitlines() if "REST.PUT.OBJECT" in line]
    assert [line.split("REST.PUT.OBJECT ")[1].split()[0] for line in puts] == [f"logged%20{n}" for n in range(3)], found
    missed = next(line for line in found.splitlines() if "NoSuchKey" in line)
    assert f"{owner} later [" in missed and " 404 NoSuchKey " in missed and "SigV4 - AuthHeader" in missed, missed
    assert all(key.startswith("p/") for key in keys), keys
    s3.put_bucket_logging(Bucket="later", BucketLoggingStatus={})
    assert "LoggingEnabled" not in s3.get_bucket_logging(Bucket="later")
    for entry in s3.list_objects(Bucket="logs")["Contents"]:
        s3.delete_object(Bucket="logs", Key=entry["Key"])
    s3.delete_bucket(Bucket="logs")


def encryption_of_buckets(s3, fails):
    fails(404, "ServerSideEncryptionConfigurationNotFoundError", s3.get_bucket_encryption, Bucket="later")
    rule = lambda **by: {"Rules": [{"ApplyServerSideEncryptionByDefault": by, "BucketKeyEnabled": False}]}
    put = lambda **by: s3.put_bucket_encryption(Bucket="later", ServerSideEncryptionConfiguration=rule(**by))
    put(SSEAlgorithm="AES256")
    assert s3.get_bucket_encryption(Bucket="later")["ServerSideEncryptionConfiguration"] == rule(SSEAlgorithm="AES256")
    fails(400, "InvalidArgument", put, SSEAlgorithm="aws:kms")
    # Over a connection that anybody can read nothing is taken that is to be encrypted.
    fails(400, "InvalidRequest", s3.put_object, Bucket="later", Key="closed", Body=b"x")
    s3.delete_bucket_encryption(Bucket="later")
    fails(404, "ServerSideEncryptionConfigurationNotFoundError", s3.get_bucket_encryption, Bucket="later")
    s3.put_object(Bucket="later", Key="open", Body=b"x")


def run(s3, other, fails, data, with_header, owner):
    s3.create_bucket(Bucket="later")
    checksums(s3, fails, data, with_header)
    conditions(s3, fails, with_header)
    ownership(s3, other, fails, owner)
    logs(s3, fails, owner)
    encryption_of_buckets(s3, fails)
    for entry in s3.list_objects(Bucket="later")["Contents"]:
        s3.delete_object(Bucket="later", Key=entry["Key"])
    s3.delete_bucket(Bucket="later")
