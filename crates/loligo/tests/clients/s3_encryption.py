"""Encrypted objects of two gateways on the same pools: each reads what the other wrote, and nobody without a key.

Usage: s3_encryption.py OURS CEPHS ACCESS_KEY SECRET, of which OURS and CEPHS are endpoints. Both take keys without TLS, have the
backend `testing` with the key testkey-1, and encrypt nothing that nobody asks them to.
"""

import base64
import hashlib
import http.client
import io
import sys
import urllib.parse

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

MIB = 1 << 20
BUCKET = "encrypted"


def client(endpoint):
    # Headers that are kept from a client by its library are needed here.
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=sys.argv[3], aws_secret_access_key=sys.argv[4],
                        region_name="default", config=config)


OURS, CEPHS = client(sys.argv[1]), client(sys.argv[2])
BOTH = [(OURS, CEPHS), (CEPHS, OURS)]


def customer(seed, prefix="SSECustomer"):
    return {f"{prefix}Algorithm": "AES256", f"{prefix}Key": hashlib.sha256(seed.encode()).digest()}


KEY, OTHER = customer("key"), customer("other")
# As the header has it, where boto3 makes none of it.
WHOLE = base64.b64encode(KEY["SSECustomerKey"]).decode()


def spelled(key):
    """As headers have it: for completions boto3 makes nothing of it."""
    if not key:
        return {}
    whole = key["SSECustomerKey"]
    sum = base64.b64encode(hashlib.md5(whole).digest()).decode()
    return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": base64.b64encode(whole).decode(), "SSECustomerKeyMD5": sum}


SERVICE = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "testkey-1"}


def data(size, seed=1):
    block = hashlib.sha512(bytes([seed])).digest() * 67
    return (block * (size // len(block) + 1))[:size]


def fails(status, code, call, **args):
    try:
        call(Bucket=BUCKET, **args)
    except ClientError as e:
        got = (e.response["ResponseMetadata"]["HTTPStatusCode"], e.response["Error"]["Code"])
        assert got == (status, code), (got, status, code, args.get("Key"))
    else:
        raise AssertionError(f"{args.get('Key')} should have failed with {code}")


def body(s3, key, **args):
    return s3.get_object(Bucket=BUCKET, Key=key, **args)["Body"].read()


def reads(s3, key, want, opens):
    """All of an object, its head, and ranges of it around the ends of blocks, stripes and parts."""
    assert body(s3, key, **opens) == want, key
    head = s3.head_object(Bucket=BUCKET, Key=key, **opens)
    assert head["ContentLength"] == len(want)
    if opens:
        assert head["SSECustomerAlgorithm"] == "AES256", head
        said = hashlib.md5(opens["SSECustomerKey"]).digest()
        assert base64.b64decode(head["SSECustomerKeyMD5"]) == said, head
        fails(400, "InvalidArgument", s3.get_object, Key=key)
        fails(400, "400", s3.head_object, Key=key)
        fails(400, "InvalidArgument", s3.get_object, Key=key, **OTHER)
        # Of nothing there is no range, whatever the key.
        part = {"Range": "bytes=0-0"} if want else {}
        fails(400, "InvalidArgument", s3.get_object, Key=key, **part, **OTHER)
    places = {0, 1, 15, 16, 17, 4095, 4096, 4097, 4 * MIB, 5 * MIB + 3, 5 * MIB + 5, 9 * MIB + 3, 9 * MIB + 4099}
    places = sorted({at for at in places | {len(want) - 1, len(want) // 2} if 0 <= at < len(want)})
    for first, last in [(at, at) for at in places] + list(zip(places, places[1:])) + [(0, len(want) - 1)] * bool(want):
        got = body(s3, key, Range=f"bytes={first}-{last}", **opens)
        assert got == want[first:last + 1], (key, first, last, len(got))


def whole():
    for n, (s3, other) in enumerate(BOTH):
        for size in [0, 1, 16, 4095, 4096, 4101, 5 * MIB + 7]:
            for kind, closes in [("customer", KEY), ("service", SERVICE)]:
                key, want = f"{kind}/{n}/{size}", data(size)
                put = s3.put_object(Bucket=BUCKET, Key=key, Body=want, **closes)
                assert put["ETag"] == f'"{hashlib.md5(want).hexdigest()}"', put
                opens = KEY if closes is KEY else {}
                for reader in [s3, other]:
                    reads(reader, key, want, opens)
                    if closes is SERVICE:
                        head = reader.head_object(Bucket=BUCKET, Key=key)
                        assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", "testkey-1"), head


def in_parts():
    sizes = [5 * MIB + 3, 5 * MIB + 1, 70001]
    parts = [data(size, 7 + n) for n, size in enumerate(sizes)]
    for n, (s3, other) in enumerate(BOTH):
        for kind, closes in [("customer", KEY), ("service", SERVICE)]:
            key, opens = f"parts/{kind}/{n}", KEY if closes is KEY else {}
            upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key, **closes)["UploadId"]
            at = dict(Key=key, UploadId=upload)
            if closes is KEY:
                for who in [s3, other]:
                    fails(400, "InvalidArgument", who.upload_part, PartNumber=1, Body=b"x", **at)
                    fails(400, "InvalidArgument", who.upload_part, PartNumber=1, Body=b"x", **at, **OTHER)
            done = []
            # Both gateways write parts of one upload.
            for number, part in enumerate(parts, 1):
                who = s3 if number % 2 else other
                tag = who.upload_part(Bucket=BUCKET, PartNumber=number, Body=part, **at, **opens)["ETag"]
                done.append({"PartNumber": number, "ETag": tag})
            if s3 is OURS and opens:
                # As with later releases, who completes has the key.
                fails(400, "InvalidArgument", s3.complete_multipart_upload, MultipartUpload={"Parts": done}, **at)
            s3.complete_multipart_upload(Bucket=BUCKET, MultipartUpload={"Parts": done}, **at, **spelled(opens))
            for reader in [s3, other]:
                reads(reader, key, b"".join(parts), opens)


def copies():
    """By our gateway alone: radosgw 16.2 copies nothing that is encrypted."""
    want = data(5 * MIB + 9)
    OURS.put_object(Bucket=BUCKET, Key="plain", Body=want, Metadata={"a": "b"}, ContentType="text/x")
    source = customer("key", "CopySourceSSECustomer")
    CEPHS.put_object(Bucket=BUCKET, Key="closed", Body=want, **KEY)
    fails(501, "NotImplemented", CEPHS.copy_object, Key="copy", CopySource=f"{BUCKET}/closed", **source)
    steps = [("one", "plain", KEY, {}, KEY), ("two", "one", OTHER, source, OTHER), ("three", "one", {}, source, {}),
             ("four", "closed", SERVICE, source, {}), ("five", "four", KEY, {}, KEY), ("closed", "closed", OTHER, source, OTHER)]
    for key, of, closes, source_opens, opens in steps:
        copied = OURS.copy_object(Bucket=BUCKET, Key=key, CopySource=f"{BUCKET}/{of}", **closes, **source_opens)
        assert ("SSECustomerAlgorithm" in copied) == ("SSECustomerAlgorithm" in closes), copied
        for reader in [OURS, CEPHS]:
            if opens is OTHER:
                assert body(reader, key, **OTHER) == want
                fails(400, "InvalidArgument", reader.get_object, Key=key)
            else:
                reads(reader, key, want, opens)
    head = OURS.head_object(Bucket=BUCKET, Key="two", **OTHER)
    assert head["Metadata"] == {"a": "b"} and head["ContentType"] == "text/x", head
    fails(400, "InvalidArgument", OURS.copy_object, Key="none", CopySource=f"{BUCKET}/one")
    wrong = customer("other", "CopySourceSSECustomer")
    fails(400, "InvalidArgument", OURS.copy_object, Key="none", CopySource=f"{BUCKET}/one", **wrong)
    fails(404, "404", OURS.head_object, Key="none")
    # Ranges as parts, from one key to another.
    upload = OURS.create_multipart_upload(Bucket=BUCKET, Key="ranges", **OTHER)["UploadId"]
    at, done = dict(Key="ranges", UploadId=upload), []
    fails(400, "InvalidArgument", OURS.upload_part_copy, PartNumber=1, CopySource=f"{BUCKET}/one", **at, **OTHER)
    for number, range in enumerate(["bytes=5-5242884", "bytes=4099-70000"], 1):
        part = OURS.upload_part_copy(Bucket=BUCKET, PartNumber=number, CopySource=f"{BUCKET}/one", CopySourceRange=range,
                                     **at, **OTHER, **source)
        done.append({"PartNumber": number, "ETag": part["CopyPartResult"]["ETag"]})
    OURS.complete_multipart_upload(Bucket=BUCKET, MultipartUpload={"Parts": done}, **at, **spelled(OTHER))
    for reader in [OURS, CEPHS]:
        assert body(reader, "ranges", **OTHER) == want[5:5242885] + want[4099:70001]


def refused():
    """What both gateways answer alike."""
    for s3 in [OURS, CEPHS]:
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"plain")
        # A key opens what is not closed, too.
        assert body(s3, "k", **KEY) == b"plain"
        fails(400, "InvalidEncryptionAlgorithmError", s3.put_object, Key="k", Body=b"", **{**KEY, "SSECustomerAlgorithm": "AES128"})
        fails(400, "InvalidArgument", s3.put_object, Key="k", Body=b"", **{**KEY, "SSECustomerKey": WHOLE, "SSECustomerKeyMD5": "AAAA"})
        fails(400, "InvalidArgument", s3.put_object, Key="k", Body=b"", SSECustomerAlgorithm="AES256")
        fails(400, "InvalidArgument", s3.put_object, Key="k", Body=b"", SSECustomerAlgorithm="AES256", SSECustomerKey=b"short")
        fails(400, "InvalidArgument", s3.put_object, Key="k", Body=b"", ServerSideEncryption="aws:nothing")
        fails(400, "InvalidArgument", s3.put_object, Key="k", Body=b"", ServerSideEncryption="aws:kms")
        fails(403, "InvalidAccessKeyId", s3.put_object, Key="k", Body=b"", **{**SERVICE, "SSEKMSKeyId": "unknown"})
        fails(400, "InvalidArgument", s3.put_object, Key="k", Body=b"", SSEKMSKeyId="testkey-1")
        assert body(s3, "k") == b"plain"
        # A read says how what is written is encrypted.
        asks = lambda request, **_: request.headers.add_header("x-amz-server-side-encryption", "aws:kms")
        s3.meta.events.register("before-sign.s3.GetObject", asks)
        fails(400, "InvalidRequest", s3.get_object, Key="k")
        s3.meta.events.unregister("before-sign.s3.GetObject", asks)
    upload = OURS.create_multipart_upload(Bucket=BUCKET, Key="k")["UploadId"]
    fails(400, "InvalidRequest", OURS.upload_part, Key="k", UploadId=upload, PartNumber=1, Body=b"x", **KEY)


def refuses(call, want, **args):
    """Fails, whatever the code is; what comes all the same is not what is stored."""
    try:
        got = call(Bucket=BUCKET, **args)
    except ClientError as e:
        assert e.response["ResponseMetadata"]["HTTPStatusCode"] >= 400, e
    else:
        raise AssertionError(f"{args}: {got['Body'].read()[:100] if 'Body' in got else got} instead of {want[:20]}")


def stored():
    """With keys of our own (SSE-S3), which radosgw 16.2 does not know: it refuses, and gives nothing away."""
    own = {"ServerSideEncryption": "AES256"}
    for size in [1, 4097, 5 * MIB + 9]:
        want, key = data(size), f"stored/{size}"
        assert OURS.put_object(Bucket=BUCKET, Key=key, Body=want, **own)["ServerSideEncryption"] == "AES256"
        reads(OURS, key, want, {})
        assert OURS.head_object(Bucket=BUCKET, Key=key)["ServerSideEncryption"] == "AES256"
        refuses(CEPHS.get_object, want, Key=key)
        refuses(CEPHS.get_object, want, Key=key, Range="bytes=0-0")
        assert CEPHS.head_object(Bucket=BUCKET, Key=key)["ContentLength"] == size
        refuses(CEPHS.copy_object, want, Key="of ceph", CopySource=f"{BUCKET}/{key}")
        # A copy keeps it, and one with another key has that.
        copied = OURS.copy_object(Bucket=BUCKET, Key="copy", CopySource=f"{BUCKET}/{key}")
        assert copied["ServerSideEncryption"] == "AES256" and body(OURS, "copy") == want, copied
        refuses(CEPHS.get_object, want, Key="copy")
        OURS.copy_object(Bucket=BUCKET, Key="copy", CopySource=f"{BUCKET}/{key}", **KEY)
        assert body(CEPHS, "copy", **KEY) == want
    parts = [data(5 * MIB + 3), data(70001, 2)]
    upload = OURS.create_multipart_upload(Bucket=BUCKET, Key="stored/parts", **own)
    at, done = dict(Key="stored/parts", UploadId=upload["UploadId"]), []
    assert upload["ServerSideEncryption"] == "AES256", upload
    # It would store the part as it comes.
    refuses(CEPHS.upload_part, b"", PartNumber=1, Body=b"x", **at)
    for number, part in enumerate(parts, 1):
        made = OURS.upload_part(Bucket=BUCKET, PartNumber=number, Body=part, **at)
        done.append({"PartNumber": number, "ETag": made["ETag"]})
    ended = OURS.complete_multipart_upload(Bucket=BUCKET, MultipartUpload={"Parts": done}, **at)
    assert ended["ServerSideEncryption"] == "AES256", ended
    reads(OURS, "stored/parts", b"".join(parts), {})
    refuses(CEPHS.get_object, b"", Key="stored/parts")
    fails(400, "InvalidArgument", OURS.put_object, Key="k", Body=b"", SSEKMSKeyId="testkey-1", **own)
    # What a bucket says of what comes without a word.
    for by, said in [({"SSEAlgorithm": "AES256"}, own), ({"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "testkey-1"}, SERVICE)]:
        rules = {"Rules": [{"ApplyServerSideEncryptionByDefault": by}]}
        OURS.put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration=rules)
        put = OURS.put_object(Bucket=BUCKET, Key="by default", Body=b"plain")
        assert {name: put[name] for name in said} == said, put
        assert body(OURS, "by default") == b"plain"
        other = OURS.put_object(Bucket=BUCKET, Key="with a key", Body=b"plain", **KEY)
        assert "SSECustomerAlgorithm" in other and body(CEPHS, "with a key", **KEY) == b"plain"
    assert body(CEPHS, "by default") == b"plain"
    OURS.delete_bucket_encryption(Bucket=BUCKET)
    for key in ["stored/parts", "stored/1", "copy", "by default", "with a key"]:
        OURS.delete_object(Bucket=BUCKET, Key=key)


def form(s3, endpoint):
    """A form of a web page, with a key in its fields."""
    key = base64.b64encode(KEY["SSECustomerKey"]).decode()
    fields = {
        "x-amz-server-side-encryption-customer-algorithm": "AES256",
        "x-amz-server-side-encryption-customer-key": key,
        "x-amz-server-side-encryption-customer-key-md5": base64.b64encode(hashlib.md5(KEY["SSECustomerKey"]).digest()).decode(),
    }
    post = s3.generate_presigned_post(BUCKET, "of a form", Fields=dict(fields), Conditions=[{n: v} for n, v in fields.items()])
    edge, out = "b0undary", io.BytesIO()
    for name, value in post["fields"].items():
        out.write(f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode())
    out.write(f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'.encode())
    out.write(data(5000) + f"\r\n--{edge}--\r\n".encode())
    connection = http.client.HTTPConnection(urllib.parse.urlparse(endpoint).netloc, timeout=60)
    headers = {"Content-Type": f"multipart/form-data; boundary={edge}"}
    connection.request("POST", f"/{BUCKET}", out.getvalue(), headers)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 204, (answer.status, text)
    # Ceph's gateway does not say it of a form.
    if s3 is OURS:
        assert answer.getheader("x-amz-server-side-encryption-customer-algorithm") == "AES256"
    for reader in [OURS, CEPHS]:
        reads(reader, "of a form", data(5000), KEY)


OURS.create_bucket(Bucket=BUCKET)
whole()
in_parts()
copies()
refused()
stored()
form(OURS, sys.argv[1])
form(CEPHS, sys.argv[2])
print("done")
