"""Calls of the admin ops API, as go-ceph's package makes them, and what a gateway answers.

Usage: admin_ops.py ENDPOINT ACCESS_KEY SECRET PREFIX

It makes users, keys, buckets and quotas whose names begin with PREFIX, and prints each answer as a line of JSON in which
PREFIX, and what is made up, stand as words: gateways that do the same print the same.
"""

import json
import sys
import urllib.error
import urllib.parse
import urllib.request

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

ENDPOINT, KEY, SECRET, PREFIX = sys.argv[1:5]
MADE_UP = {"access_key", "secret_key", "id", "marker", "ver", "master_ver", "max_marker", "mtime", "creation_time", "zonegroup"}


def call(method, path, body=b"", keys=(KEY, SECRET), **args):
    """Status and answer of a signed request; a name with the value None stands alone in the query."""
    query = "&".join(
        urllib.parse.quote(name.replace("_", "-")) + ("" if value is None else "=" + urllib.parse.quote(str(value), safe=""))
        for name, value in args.items()
    )
    request = AWSRequest(method=method, url=f"{ENDPOINT}/admin/{path}" + (f"?{query}" if query else ""), data=body)
    if keys:
        S3SigV4Auth(Credentials(*keys), "s3", "default").add_auth(request)
    headers = dict(request.headers.items())
    plain = urllib.request.Request(request.url, data=body or None, method=method, headers=headers)
    try:
        with urllib.request.urlopen(plain, timeout=30) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as e:
        text = e.read()
        return e.code, json.loads(text)["Code"] if text else None


def plain(value, name=""):
    """A value with words in the place of what differs between two gateways."""
    if isinstance(value, dict):
        return {key: plain(v, key) for key, v in sorted(value.items())}
    if isinstance(value, list):
        return [plain(v, name) for v in value]
    if isinstance(value, str):
        value = value.replace(PREFIX, "P-")
        if name in MADE_UP and value and not value.startswith(("P-", "given-")):
            return "made up"
    return value


def show(what, method, path, **args):
    status, answer = call(method, path, **args)
    print(json.dumps([what, status, plain(answer)]))
    return answer


def s3(keys):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    return boto3.client(
        "s3",
        endpoint_url=ENDPOINT,
        aws_access_key_id=keys["access_key"],
        aws_secret_access_key=keys["secret_key"],
        region_name="default",
        config=config,
    )


def users():
    uid = PREFIX + "u"
    made = show("create", "PUT", "user", uid=uid, display_name="Some One", email=f"{PREFIX}@x", user_caps="usage=read")
    assert len(made["keys"][0]["access_key"]) == 20 and len(made["keys"][0]["secret_key"]) == 40, made
    show("create again", "PUT", "user", uid=uid, display_name="Some One")
    show("another's address", "PUT", "user", uid=uid + "2", display_name="x", email=f"{PREFIX}@x")
    show("no name", "PUT", "user", uid=uid + "2")
    show("no user", "PUT", "user", display_name="x")
    show("info", "GET", "user", uid=uid)
    show("info with figures", "GET", "user", uid=uid, stats="true")
    show("info by key", "GET", "user", access_key=made["keys"][0]["access_key"])
    show("info of nobody", "GET", "user", uid=PREFIX + "nobody")
    show("modify", "POST", "user", uid=uid, display_name="Another", max_buckets=7, op_mask="read", suspended="true")
    show("modify back", "POST", "user", uid=uid, suspended="false", op_mask="read,write,delete")
    show("modify nobody", "POST", "user", uid=PREFIX + "nobody", display_name="x")
    show("bad caps", "PUT", "user", caps=None, uid=uid, user_caps="cats=read")
    show("more caps", "PUT", "user", caps=None, uid=uid, user_caps="buckets=*;usage=write")
    show("less caps", "DELETE", "user", caps=None, uid=uid, user_caps="buckets=write")
    show("key", "PUT", "user", key=None, uid=uid, access_key=f"given-{PREFIX}", secret_key="given-secret", generate_key="false")
    show("another's key", "PUT", "user", uid=uid + "2", display_name="x", access_key=f"given-{PREFIX}", secret_key="s")
    show("bad kind", "PUT", "user", key=None, uid=uid, key_type="s3", access_key="given-x", generate_key="false")
    show("key goes", "DELETE", "user", key=None, access_key=f"given-{PREFIX}", uid=uid)
    show("key is gone", "DELETE", "user", key=None, access_key=f"given-{PREFIX}", uid=uid)
    show("subuser", "PUT", "user", subuser=f"{uid}:s", uid=uid, access="readwrite", key_type="swift", generate_secret="true")
    show("subuser's rights", "POST", "user", subuser=f"{uid}:s", uid=uid, access="full")
    show("no subuser", "POST", "user", subuser=f"{uid}:t", uid=uid, access="full")
    show("with subuser", "GET", "user", uid=uid)
    show("subuser goes", "DELETE", "user", subuser=f"{uid}:s", uid=uid)
    show("without subuser", "GET", "user", uid=uid)
    return uid, made["keys"][0]


def quotas(uid):
    show("quotas", "GET", "user", quota=None, uid=uid)
    show("quota of all", "PUT", "user", quota=None, uid=uid, quota_type="user", max_objects=9, max_size_kb=4, enabled="true")
    show("quota of each", "PUT", "user", quota=None, uid=uid, quota_type="bucket", body=b'{"max_objects":5,"enabled":true}')
    show("one", "GET", "user", quota=None, uid=uid, quota_type="user")
    show("the other", "GET", "user", quota=None, uid=uid, quota_type="bucket")
    show("of no kind", "PUT", "user", quota=None, uid=uid, max_objects=9)
    show("off", "PUT", "user", quota=None, uid=uid, quota_type="user", enabled="false")
    show("off, too", "PUT", "user", quota=None, uid=uid, quota_type="bucket", enabled="false")


def buckets(uid, keys):
    client, name = s3(keys), PREFIX + "b"
    client.create_bucket(Bucket=name)
    for n in range(3):
        client.put_object(Bucket=name, Key=f"k{n}", Body=b"x" * 5000)
    told = show("bucket", "GET", "bucket", bucket=name)
    assert told["usage"]["rgw.main"]["num_objects"] == 3, told
    show("buckets", "GET", "bucket", uid=uid)
    assert name in call("GET", "bucket")[1]
    show("grants", "GET", "bucket", policy=None, bucket=name)
    show("grants of one", "GET", "bucket", policy=None, bucket=name, object="k1")
    show("no bucket", "GET", "bucket", bucket=PREFIX + "none")
    show("bucket's quota", "PUT", "bucket", quota=None, uid=uid, bucket=name, max_objects=3, enabled="true")
    show("with quota", "GET", "bucket", bucket=name)
    show("object goes", "DELETE", "bucket", object="k0", bucket=name)
    show("full bucket stays", "DELETE", "bucket", bucket=name)
    other = show("other", "PUT", "user", uid=PREFIX + "v", display_name="v")
    show("bucket changes hands", "PUT", "bucket", bucket=name, bucket_id=told["id"], uid=PREFIX + "v")
    show("of the other", "GET", "bucket", uid=PREFIX + "v")
    show("no longer", "GET", "bucket", uid=uid)
    assert [b["Name"] for b in s3(other["keys"][0]).list_buckets()["Buckets"]] == [name]
    show("user with buckets stays", "DELETE", "user", uid=PREFIX + "v")
    show("bucket goes", "DELETE", "bucket", bucket=name, purge_objects="true")
    show("and is gone", "GET", "bucket", bucket=name)
    s3(other["keys"][0]).create_bucket(Bucket=name)
    s3(other["keys"][0]).put_object(Bucket=name, Key="k", Body=b"")
    show("user goes with all", "DELETE", "user", uid=PREFIX + "v", purge_data="true")
    show("and is gone", "GET", "user", uid=PREFIX + "v")


def strangers(uid, keys):
    own = (keys["access_key"], keys["secret_key"])
    print(json.dumps(["no caps", call("GET", "user", keys=own, uid=uid)]))
    print(json.dumps(["nobody", call("GET", "user", keys=None, uid=uid)]))
    print(json.dumps(["another's secret", call("GET", "user", keys=(KEY, "x" * 40), uid=uid)]))
    try:
        s3(keys).list_objects(Bucket="admin")
    except ClientError as e:
        print(json.dumps(["a bucket of that name", e.response["ResponseMetadata"]["HTTPStatusCode"]]))


def usage():
    status, told = call("GET", "usage", uid=PREFIX + "nobody")
    print(json.dumps(["usage of nobody", status, told]))


def main():
    uid, keys = users()
    quotas(uid)
    buckets(uid, keys)
    strangers(uid, keys)
    usage()
    listed = call("GET", "user", list=None)[1]
    assert uid in listed["keys"] and listed["count"] == len(listed["keys"]) and not listed["truncated"], listed
    show("user goes", "DELETE", "user", uid=uid)
    show("user is gone", "DELETE", "user", uid=uid)
    print("done")


main()
