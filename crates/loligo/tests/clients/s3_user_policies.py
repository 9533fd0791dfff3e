"""Policies of users, which Ceph's gateway takes and both evaluate.

Usage: s3_user_policies.py OURS CEPHS ACCESS_KEY SECRET BOBS_ACCESS_KEY BOBS_SECRET. The first user may set policies of others.
"""

import json
import sys
import time

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

PATIENCE = 60
BUCKET = "shared"


def client(kind, endpoint, key, secret):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    return boto3.client(kind, endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name="default", config=config)


ALICE = client("s3", sys.argv[2], *sys.argv[3:5])
IAM = client("iam", sys.argv[2], *sys.argv[3:5])
BOBS = [client("s3", endpoint, *sys.argv[5:7]) for endpoint in sys.argv[1:3]]


def may(s3):
    """What bob may do, a letter for each."""
    def can(letter, call, **args):
        try:
            call(**args)
            return letter
        except ClientError as e:
            code = e.response["Error"]["Code"]
            assert code in ["AccessDenied", "403"], (letter, code)
            return "-"
    steps = [("a", s3.get_object, dict(Bucket=BUCKET, Key="a")), ("b", s3.get_object, dict(Bucket=BUCKET, Key="dir/b")),
             ("o", s3.get_object, dict(Bucket=BUCKET, Key="open")), ("w", s3.put_object, dict(Bucket=BUCKET, Key="dir/w", Body=b"w")),
             ("d", s3.delete_object, dict(Bucket=BUCKET, Key="dir/d")), ("l", s3.list_objects_v2, dict(Bucket=BUCKET)),
             ("p", s3.list_objects_v2, dict(Bucket=BUCKET, Prefix="dir/")), ("g", s3.get_bucket_policy_status, dict(Bucket=BUCKET)),
             ("m", s3.create_bucket, dict(Bucket="bobs")), ("B", s3.list_buckets, {})]
    return "".join(can(letter, call, **args) for letter, call, args in steps)


def check(want, statements):
    """Both gateways let bob do this under these statements, each a policy of its own."""
    try:
        names = IAM.list_user_policies(UserName="bob")["PolicyNames"]
    except ClientError:
        # So does Ceph's gateway say that there is none.
        names = []
    for name in names:
        IAM.delete_user_policy(UserName="bob", PolicyName=name)
    for n, statement in enumerate(statements):
        text = json.dumps({"Version": "2012-10-17", "Statement": statement})
        IAM.put_user_policy(UserName="bob", PolicyName=f"p{n}", PolicyDocument=text)
    end = time.monotonic() + PATIENCE
    while (found := [may(s3) for s3 in BOBS]) != [want, want]:
        assert time.monotonic() < end, (statements, found, want)
        time.sleep(0.1)


def says(effect, actions, resource, **more):
    return {"Effect": effect, "Action": actions, "Resource": resource, **more}


ALICE.create_bucket(Bucket=BUCKET)
for key in ["a", "dir/b", "dir/d"]:
    ALICE.put_object(Bucket=BUCKET, Key=key, Body=b"x")
ALICE.put_object(Bucket=BUCKET, Key="open", Body=b"x", ACL="public-read")
ours = f"arn:aws:s3:::{BUCKET}"
check("--o-----mB", [])
check("abo-----mB", [says("Allow", "s3:GetObject", f"{ours}/*")])
check("-bo-----mB", [says("Allow", "s3:GetObject", f"{ours}/dir/*")])
check("-bowd---mB", [says("Allow", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], f"{ours}/dir/*")])
check("abowdlp-mB", [says("Allow", ["s3:*Object", "s3:ListBucket"], "*")])
check("-bo-----mB", [says("Allow", "s3:Get*", f"{ours}/*"), says("Deny", "s3:GetObject", f"{ours}/a")])
check("--------mB", [says("Deny", "s3:*", f"{ours}*")])
check("--o---p-mB", [says("Allow", "s3:ListBucket", ours, Condition={"StringLike": {"s3:prefix": "dir/*"}})])
check("--o------B", [says("Deny", "s3:CreateBucket", "*")])
check("--o-----m-", [says("Deny", "s3:ListAllMyBuckets", "*")])
# A bucket's policy is not overruled by its user's, nor the other way round.
deny = {"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Principal": {"AWS": "arn:aws:iam:::user/bob"},
                                               "Action": "s3:GetObject", "Resource": f"{ours}/a"}}
ALICE.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(deny))
check("-bo-----mB", [says("Allow", "s3:GetObject", f"{ours}/*")])
deny["Statement"]["Effect"] = "Allow"
ALICE.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(deny))
check("a-o-----mB", [])
check("--o-----mB", [says("Deny", "s3:GetObject", f"{ours}/a")])
print("done")
