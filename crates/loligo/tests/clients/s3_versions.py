"""Buckets that keep versions, as boto3 asks for them."""

import json
import urllib.error
import urllib.request

BUCKET = "versions"


def pages(s3, size, **args):
    """All versions and delete markers of a bucket, in the order of names: name, id, latest, marker."""
    found, markers, prefixes = [], [], []
    while True:
        page = s3.list_object_versions(Bucket=BUCKET, MaxKeys=size, **args)
        versions, gone = page.get("Versions", []), page.get("DeleteMarkers", [])
        shown = page.get("CommonPrefixes", [])
        assert len(versions) + len(gone) + len(shown) <= size, page
        found += [(v["Key"], v["VersionId"], v["IsLatest"]) for v in versions]
        markers += [(v["Key"], v["VersionId"], v["IsLatest"]) for v in gone]
        prefixes += [p["Prefix"] for p in shown]
        if not page["IsTruncated"]:
            return found, markers, prefixes
        args.update(KeyMarker=page["NextKeyMarker"], VersionIdMarker=page["NextVersionIdMarker"])


def set_status(s3, status):
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": status})
    got = s3.get_bucket_versioning(Bucket=BUCKET)
    assert (got["Status"], got["MFADelete"]) == (status, "Disabled"), got


def empty(s3):
    found, markers, _ = pages(s3, 1000)
    ids = [{"Key": key, "VersionId": version} for key, version, _ in found + markers]
    gone = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": ids})
    assert "Errors" not in gone and len(gone["Deleted"]) == len(ids), gone
    marked = {d["DeleteMarkerVersionId"] for d in gone["Deleted"] if d.get("DeleteMarker")}
    assert marked == {version for _, version, _ in markers}
    assert pages(s3, 1000) == ([], [], [])


def enabled(s3, other, fails, data):
    s3.create_bucket(Bucket=BUCKET)
    assert "Status" not in s3.get_bucket_versioning(Bucket=BUCKET)
    assert "VersionId" not in s3.put_object(Bucket=BUCKET, Key="k", Body=b"before")
    wrong = {"Status": "Whatever"}
    fails(400, "InvalidArgument", s3.put_bucket_versioning, Bucket=BUCKET, VersioningConfiguration=wrong)
    status = {"Status": "Enabled"}
    fails(403, "AccessDenied", other.put_bucket_versioning, Bucket=BUCKET, VersioningConfiguration=status)
    fails(403, "AccessDenied", other.get_bucket_versioning, Bucket=BUCKET)
    set_status(s3, "Enabled")

    bodies = {"null": b"before"}
    for seed, size in [(1, 5), (2, 5 << 20), (3, 7)]:
        body = data(size, seed)
        bodies[s3.put_object(Bucket=BUCKET, Key="k", Body=body)["VersionId"]] = body
    ids = list(bodies)
    assert len(ids) == 4
    for version, body in bodies.items():
        got = s3.get_object(Bucket=BUCKET, Key="k", VersionId=version)
        assert got["Body"].read() == body and got["VersionId"] == version
        head = s3.head_object(Bucket=BUCKET, Key="k", VersionId=version)
        assert (head["ContentLength"], head["VersionId"]) == (len(body), version)
    got = s3.get_object(Bucket=BUCKET, Key="k")
    assert (got["Body"].read(), got["VersionId"]) == (bodies[ids[-1]], ids[-1])
    fails(404, "NoSuchKey", s3.get_object, Bucket=BUCKET, Key="k", VersionId="nothing")
    s3.delete_object(Bucket=BUCKET, Key="k", VersionId="nothing")

    # A delete marker comes in front, and goes as it came.
    gone = s3.delete_object(Bucket=BUCKET, Key="k")
    assert gone["DeleteMarker"] and gone["VersionId"] not in bodies
    fails(404, "NoSuchKey", s3.get_object, Bucket=BUCKET, Key="k")
    fails(404, "404", s3.head_object, Bucket=BUCKET, Key="k")
    fails(404, "NoSuchKey", s3.get_object, Bucket=BUCKET, Key="k", VersionId=gone["VersionId"])
    assert s3.get_object(Bucket=BUCKET, Key="k", VersionId=ids[1])["Body"].read() == bodies[ids[1]]
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET)
    want = [("k", version, False) for version in reversed(ids)], [("k", gone["VersionId"], True)], []
    for size in [1, 2, 3, 1000]:
        assert pages(s3, size) == want, size
    fails(409, "BucketNotEmpty", s3.delete_bucket, Bucket=BUCKET)
    again = s3.delete_object(Bucket=BUCKET, Key="k", VersionId=gone["VersionId"])
    assert again["DeleteMarker"] and again["VersionId"] == gone["VersionId"]
    assert [o["Key"] for o in s3.list_objects(Bucket=BUCKET)["Contents"]] == ["k"]
    removed = s3.delete_object(Bucket=BUCKET, Key="k", VersionId=ids[-1])
    assert removed["VersionId"] == ids[-1] and "DeleteMarker" not in removed
    got = s3.get_object(Bucket=BUCKET, Key="k")
    assert (got["Body"].read(), got["VersionId"]) == (bodies[ids[2]], ids[2])
    return ids[:3], bodies


def of_one_version(s3, other, fails, ids, bodies):
    # An older version comes in front of all as a copy of its own.
    source = {"Bucket": BUCKET, "Key": "k", "VersionId": "null"}
    copy = s3.copy_object(Bucket=BUCKET, Key="k", CopySource=source)
    assert copy["CopySourceVersionId"] == "null" and copy["VersionId"] not in ids
    assert s3.get_object(Bucket=BUCKET, Key="k")["Body"].read() == b"before"
    source["VersionId"] = "nothing"
    fails(404, "NoSuchKey", s3.copy_object, Bucket=BUCKET, Key="x", CopySource=source)
    # Tags and grants are those of one version.
    one = dict(Bucket=BUCKET, Key="k", VersionId=ids[1])
    tags = [{"Key": "a", "Value": "1"}]
    s3.put_object_tagging(Tagging={"TagSet": tags}, **one)
    assert s3.get_object_tagging(**one)["TagSet"] == tags
    assert s3.get_object_tagging(Bucket=BUCKET, Key="k")["TagSet"] == []
    s3.delete_object_tagging(**one)
    assert s3.get_object_tagging(**one)["TagSet"] == []
    fails(403, "AccessDenied", other.get_object, **one)
    s3.put_object_acl(ACL="public-read", **one)
    assert len(s3.get_object_acl(**one)["Grants"]) == 2
    assert len(s3.get_object_acl(Bucket=BUCKET, Key="k")["Grants"]) == 1
    assert other.get_object(**one)["Body"].read() == bodies[ids[1]]
    fails(403, "AccessDenied", other.get_object, Bucket=BUCKET, Key="k")
    # Of parts, and of ranges of a version, a version is made.
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="parts")["UploadId"]
    at = dict(Bucket=BUCKET, Key="parts", UploadId=upload)
    big = {"Bucket": BUCKET, "Key": "k", "VersionId": ids[2]}
    part = s3.upload_part_copy(PartNumber=1, CopySource=big, CopySourceRange="bytes=0-5242879", **at)
    assert part["CopySourceVersionId"] == ids[2]
    named = [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]
    whole = s3.complete_multipart_upload(MultipartUpload={"Parts": named}, **at)
    got = s3.get_object(Bucket=BUCKET, Key="parts")
    assert (got["Body"].read(), got["VersionId"]) == (bodies[ids[2]][:5242880], whole["VersionId"])


def rights(s3, other, fails, user, ids):
    """What a policy says of objects is of those that are shown, and of versions by names of its own."""
    def allow(*actions):
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam:::user/{user}"},
            "Action": [f"s3:{action}" for action in actions],
            "Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"],
        }
        s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Statement": [statement]}))

    shown, named = dict(Bucket=BUCKET, Key="k"), dict(Bucket=BUCKET, Key="k", VersionId="null")
    allow("GetObject", "DeleteObject", "PutObjectTagging", "ListBucket")
    other.get_object(**shown)
    fails(403, "AccessDenied", other.get_object, **named)
    fails(403, "AccessDenied", other.delete_object, **named)
    fails(403, "AccessDenied", other.put_object_tagging, Tagging={"TagSet": []}, **named)
    fails(403, "AccessDenied", other.list_object_versions, Bucket=BUCKET)
    refused = other.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "k", "VersionId": "null"}]})
    assert [(e["Code"], e["VersionId"]) for e in refused["Errors"]] == [("AccessDenied", "null")]
    allow("GetObjectVersion", "DeleteObjectVersion", "PutObjectVersionTagging", "ListBucketVersions")
    other.get_object(**named)
    other.put_object_tagging(Tagging={"TagSet": []}, **named)
    other.list_object_versions(Bucket=BUCKET)
    fails(403, "AccessDenied", other.get_object, **shown)
    fails(403, "AccessDenied", other.delete_object, **shown)
    assert other.delete_object(**named)["VersionId"] == "null"
    s3.delete_bucket_policy(Bucket=BUCKET)
    fails(404, "NoSuchKey", s3.get_object, **named)
    assert all(version != "null" for _, version, _ in pages(s3, 10)[0]) and ids


def suspended(s3, fails):
    set_status(s3, "Suspended")
    kept = s3.put_object(Bucket=BUCKET, Key="s", Body=b"1")
    assert "VersionId" not in kept
    set_status(s3, "Enabled")
    first = s3.put_object(Bucket=BUCKET, Key="s", Body=b"2")["VersionId"]
    set_status(s3, "Suspended")
    s3.put_object(Bucket=BUCKET, Key="s", Body=b"3")
    want = [("s", "null", True), ("s", first, False)]
    assert pages(s3, 1, Prefix="s") == (want, [], [])
    assert s3.get_object(Bucket=BUCKET, Key="s")["Body"].read() == b"3"
    # A delete marker takes the place of the version without an id, and gives way to the next one.
    gone = s3.delete_object(Bucket=BUCKET, Key="s")
    assert gone["DeleteMarker"] and gone["VersionId"] == "null"
    assert pages(s3, 10, Prefix="s") == ([("s", first, False)], [("s", "null", True)], [])
    fails(404, "NoSuchKey", s3.get_object, Bucket=BUCKET, Key="s", VersionId="null")
    s3.put_object(Bucket=BUCKET, Key="s", Body=b"4")
    assert pages(s3, 1, Prefix="s") == (want, [], [])
    s3.delete_object(Bucket=BUCKET, Key="s", VersionId="null")
    assert s3.get_object(Bucket=BUCKET, Key="s")["Body"].read() == b"2"


def lists(s3):
    set_status(s3, "Enabled")
    names = ["_a", "a/1", "a/2", "b c/+%", "größe", "z"]
    ids = {(name, n): s3.put_object(Bucket=BUCKET, Key=name, Body=b"x")["VersionId"] for name in names for n in range(3)}
    ordered = [(name, ids[name, n], n == 2) for name in names for n in [2, 1, 0]]
    # Names that begin with an underscore lie elsewhere in the index, and are in their place in lists.
    ordered.sort(key=lambda found: found[0].encode())
    for size in [1, 4, 7, 1000]:
        assert pages(s3, size) == (ordered, [], []), size
    of_a = [found for found in ordered if found[0].startswith("a/")]
    assert pages(s3, 2, Prefix="a/") == (of_a, [], [])
    flat = [found for found in ordered if "/" not in found[0]]
    for size in [1, 2, 1000]:
        assert pages(s3, size, Delimiter="/") == (flat, [], ["a/", "b c/"]), size
    page = s3.list_object_versions(Bucket=BUCKET, EncodingType="url", Prefix="b c/")
    assert page["EncodingType"] == "url" and {v["Key"] for v in page["Versions"]} == {"b%20c/%2B%25"}
    page = s3.list_object_versions(Bucket=BUCKET, KeyMarker="a/1", MaxKeys=1)
    assert page["Versions"][0]["Key"] == "a/2" and page.get("VersionIdMarker", "") == ""
    assert s3.list_object_versions(Bucket=BUCKET, MaxKeys=0)["IsTruncated"] is False
    empty(s3)


def answer(url, method="GET"):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method)) as got:
            return got.status, got.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


def escapes(s3):
    """A parameter is what it is, however its name is written."""
    first = s3.put_object(Bucket=BUCKET, Key="k", Body=b"first")["VersionId"]
    s3.put_object(Bucket=BUCKET, Key="k", Body=b"second")
    get = s3.generate_presigned_url("get_object", Params=dict(Bucket=BUCKET, Key="k", VersionId=first))
    assert "versionId=" in get
    assert answer(get) == (200, b"first")
    assert answer(get.replace("versionId=", "version%49d=")) == (200, b"first")
    assert answer(get + f"&versionId={first}")[0] in (400, 403)
    delete = s3.generate_presigned_url("delete_object", Params=dict(Bucket=BUCKET, Key="k", VersionId=first))
    assert answer(delete.replace("versionId=", "%76ersionId="), "DELETE")[0] == 204
    assert [body for _, body in [answer(get)]][0].count(b"NoSuchKey") == 1
    assert len(pages(s3, 9)[0]) == 1
    empty(s3)


def run(s3, other, fails, data, user):
    ids, bodies = enabled(s3, other, fails, data)
    of_one_version(s3, other, fails, ids, bodies)
    rights(s3, other, fails, user, ids)
    suspended(s3, fails)
    empty(s3)
    lists(s3)
    escapes(s3)
    s3.delete_bucket(Bucket=BUCKET)
    fails(404, "NoSuchBucket", s3.list_object_versions, Bucket=BUCKET)
