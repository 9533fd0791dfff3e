"""What a client of Ceph's gateway sees of the bucket that the core wrote, and writes there itself.

Usage: peer.py ENDPOINT reads|writes, with JSON on standard input and output.
"""

import hashlib
import json
import sys

import boto3
from botocore.client import Config

MIB = 1 << 20
BUCKET = "b"


def client(endpoint):
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="KEYKEYKEY",
        aws_secret_access_key="secretsecret",
        region_name="default",
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0}),
    )


def reads(s3, expected):
    """Whether each object is what the core says, and none is missing from the list."""
    listed = {e["Key"]: e for e in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])}
    assert sorted(listed) == sorted(expected), (sorted(listed), sorted(expected))
    for name, want in expected.items():
        got = s3.get_object(Bucket=BUCKET, Key=name)
        data = got["Body"].read()
        assert hashlib.md5(data).hexdigest() == want["md5"], name
        assert got["ETag"] == f'"{want["etag"]}"' == listed[name]["ETag"], (name, got["ETag"], want)
        assert listed[name]["Size"] == len(data) == want["size"], name
        assert got["ContentType"] == "text/plain" and got["Metadata"] == {"from": "core"}, (name, got)
        if len(data) > 10:
            part = s3.get_object(Bucket=BUCKET, Key=name, Range="bytes=3-9")["Body"].read()
            assert part == data[3:10], name
    return "equal"


def block(size, seed):
    return hashlib.sha256(bytes([seed])).digest() * (size // 32) + b"end"


def writes(s3, _):
    """Changes the core's objects; gives all that is there afterwards."""
    for name in ["_under", "empty", "copy"]:
        s3.delete_object(Bucket=BUCKET, Key=name)
    s3.put_object(Bucket=BUCKET, Key="small", Body=block(10 * MIB, 1))
    s3.put_object(Bucket=BUCKET, Key="large", Body=b"small now")
    s3.copy_object(Bucket=BUCKET, Key="copy of parts", CopySource={"Bucket": BUCKET, "Key": "parts"})
    s3.delete_object(Bucket=BUCKET, Key="parts")
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="theirs")["UploadId"]
    parts = []
    for number, data in [(1, block(6 * MIB, 2)), (2, block(MIB, 3))]:
        where = dict(Bucket=BUCKET, Key="theirs", UploadId=upload, PartNumber=number)
        parts.append({"PartNumber": number, "ETag": s3.upload_part(Body=data, **where)["ETag"]})
    where = dict(Bucket=BUCKET, Key="theirs", UploadId=upload)
    s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **where)
    s3.create_bucket(Bucket="peers")
    s3.put_object(Bucket="peers", Key="theirs", Body=b"x")
    found = {}
    for entry in s3.list_objects_v2(Bucket=BUCKET)["Contents"]:
        data = s3.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
        found[entry["Key"]] = {"md5": hashlib.md5(data).hexdigest(), "etag": entry["ETag"].strip('"')}
    return found


def main():
    endpoint, step = sys.argv[1:]
    print(json.dumps({"reads": reads, "writes": writes}[step](client(endpoint), json.load(sys.stdin))))


main()
