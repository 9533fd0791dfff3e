"""What a client of Ceph's gateway sees of the bucket that the core wrote, and writes there itself.

Usage: peer.py ENDPOINT reads|writes|versions|changes|suspends, with JSON on standard input and output.
"""

import hashlib
import json
import sys

import boto3
from botocore.client import Config

MIB = 1 << 20
BUCKET = "b"
# Keeps versions.
KEPT = "kept"


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


def all_versions(s3):
    """Every version in the order of the list, read in short pages: key, id, whether it is the latest, the sum of its
    bytes or nothing for a delete marker."""
    found, marker = [], {}
    while True:
        page = s3.list_object_versions(Bucket=KEPT, MaxKeys=2, **marker)
        entries = [(e, False) for e in page.get("Versions", [])] + [(e, True) for e in page.get("DeleteMarkers", [])]
        for entry, is_marker in entries:
            where = dict(Bucket=KEPT, Key=entry["Key"], VersionId=entry["VersionId"])
            data = None if is_marker else s3.get_object(**where)["Body"].read()
            sum_ = None if is_marker else hashlib.md5(data).hexdigest()
            found.append([entry["Key"], entry["VersionId"], entry["IsLatest"], sum_])
        if not page["IsTruncated"]:
            return sorted(found)
        marker = dict(KeyMarker=page["NextKeyMarker"], VersionIdMarker=page["NextVersionIdMarker"])


def versions(s3, expected):
    """Whether the versions are those that the core says, and each name shows its latest."""
    got = all_versions(s3)
    assert got == sorted(expected), (got, sorted(expected))
    assert s3.get_bucket_versioning(Bucket=KEPT)["Status"] in ("Enabled", "Suspended")
    latest = {key: sum_ for key, _, is_latest, sum_ in expected if is_latest}
    shown = {key: sum_ for key, sum_ in latest.items() if sum_}
    assert sorted(shown) == [e["Key"] for e in s3.list_objects_v2(Bucket=KEPT).get("Contents", [])]
    for key, sum_ in shown.items():
        assert hashlib.md5(s3.get_object(Bucket=KEPT, Key=key)["Body"].read()).hexdigest() == sum_, key
    for key in set(latest) - set(shown):
        try:
            s3.get_object(Bucket=KEPT, Key=key)
        except s3.exceptions.NoSuchKey:
            continue
        raise AssertionError(f"{key} is there")
    return "equal"


def changes(s3, oldest):
    """Adds versions and delete markers to what the core wrote, and removes its oldest version of `k`."""
    s3.put_object(Bucket=KEPT, Key="k", Body=block(6 * MIB, 4))
    s3.delete_object(Bucket=KEPT, Key="k", VersionId=oldest)
    s3.put_object(Bucket=KEPT, Key="theirs", Body=b"one")
    s3.put_object(Bucket=KEPT, Key="theirs", Body=b"two")
    s3.delete_object(Bucket=KEPT, Key="theirs")
    s3.delete_object(Bucket=KEPT, Key="parts")
    return all_versions(s3)


def suspends(s3, _):
    """Writes versions without an id."""
    s3.put_bucket_versioning(Bucket=KEPT, VersioningConfiguration={"Status": "Suspended"})
    s3.put_object(Bucket=KEPT, Key="k", Body=b"without one")
    s3.put_object(Bucket=KEPT, Key="new", Body=b"never had one")
    s3.delete_object(Bucket=KEPT, Key="theirs")
    return all_versions(s3)


def main():
    endpoint, step = sys.argv[1:]
    print(json.dumps(STEPS[step](client(endpoint), json.load(sys.stdin))))


STEPS = {step.__name__: step for step in (reads, writes, versions, changes, suspends)}
main()
