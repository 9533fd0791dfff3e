"""Lifecycles that move objects to another storage class, of a gateway for which a day is a second.

Usage: s3_classes.py ENDPOINT ACCESS_KEY SECRET OTHER_ENDPOINT
The class COLD is there; the other endpoint, radosgw's, is to read what moved.
"""

import hashlib
import sys
import time

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

MIB = 1 << 20


def client(endpoint):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=sys.argv[2], aws_secret_access_key=sys.argv[3],
                        region_name="default", config=config)


ours, theirs = client(sys.argv[1]), client(sys.argv[4])


def data(size):
    return hashlib.shake_128(str(size).encode()).digest(size)


def rules(bucket, **more):
    rule = dict({"ID": "move", "Filter": {"Prefix": "old/"}, "Status": "Enabled"}, **more)
    ours.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
    return rule


def classes(s3, bucket):
    return {(v["Key"], v["IsLatest"]): v["StorageClass"] for v in s3.list_object_versions(Bucket=bucket).get("Versions", [])}


def until(what, holds):
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


try:
    rules("none", Transitions=[{"Days": 1, "StorageClass": "COLD"}])
    raise AssertionError("a bucket that is not there")
except ClientError as e:
    assert e.response["Error"]["Code"] == "NoSuchBucket", e

ours.create_bucket(Bucket="moved")
try:
    rules("moved", Transitions=[{"Days": 1, "StorageClass": "NONE"}])
    raise AssertionError("a class that is not there")
except ClientError as e:
    assert e.response["Error"]["Code"] == "InvalidStorageClass", e
bodies = {"old/small": data(1000), "old/large": data(9 * MIB + 7), "new/k": data(5)}
for key, body in bodies.items():
    ours.put_object(Bucket="moved", Key=key, Body=body, Metadata={"a": "b"}, Tagging="t=v")
part = data(5 * MIB)
upload = dict(Bucket="moved", Key="old/parts", UploadId=ours.create_multipart_upload(Bucket="moved", Key="old/parts")["UploadId"])
done = [{"PartNumber": n, "ETag": ours.upload_part(PartNumber=n, Body=part, **upload)["ETag"]} for n in (1, 2)]
ours.complete_multipart_upload(MultipartUpload={"Parts": done}, **upload)
bodies["old/parts"] = part + part
before = {key: ours.head_object(Bucket="moved", Key=key) for key in bodies}
rule = rules("moved", Transitions=[{"Days": 1, "StorageClass": "COLD"}])
shown = ours.get_bucket_lifecycle_configuration(Bucket="moved")["Rules"]
assert shown == [rule], shown
want = {(key, True): "COLD" if key.startswith("old/") else "STANDARD" for key in bodies}
until("objects move", lambda: classes(ours, "moved") == want)
for s3 in (ours, theirs):
    assert classes(s3, "moved") == want
    for key, body in bodies.items():
        got = s3.get_object(Bucket="moved", Key=key)
        assert got["Body"].read() == body, key
        assert got.get("StorageClass", "STANDARD") == want[key, True], got
        same = ["ETag", "LastModified", "ContentLength", "Metadata"]
        assert [got[name] for name in same] == [before[key][name] for name in same], got
assert ours.head_object(Bucket="moved", Key="old/parts", PartNumber=2)["ContentLength"] == len(part)

# Older versions go, the newest stays; a delete marker goes nowhere.
ours.create_bucket(Bucket="versions")
ours.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
for body in (b"first", data(5 * MIB), b"last"):
    ours.put_object(Bucket="versions", Key="old/k", Body=body)
ours.delete_object(Bucket="versions", Key="old/marked")
rules("versions", NoncurrentVersionTransitions=[{"NoncurrentDays": 1, "StorageClass": "COLD"}])
listed = lambda s3: [v["StorageClass"] for v in s3.list_object_versions(Bucket="versions")["Versions"]]
until("older versions move", lambda: listed(ours) == ["STANDARD", "COLD", "COLD"])
for s3 in (ours, theirs):
    assert listed(s3) == ["STANDARD", "COLD", "COLD"]
    assert s3.get_object(Bucket="versions", Key="old/k")["Body"].read() == b"last"
    ids = [v["VersionId"] for v in s3.list_object_versions(Bucket="versions")["Versions"]]
    read = [s3.get_object(Bucket="versions", Key="old/k", VersionId=id)["Body"].read() for id in ids]
    assert read == [b"last", data(5 * MIB), b"first"]
print("done")
