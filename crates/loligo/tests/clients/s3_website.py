"""Buckets as web sites by two gateways on the same pools: what one is told the other shows, and a browser sees no difference.

Usage: s3_website.py OURS CEPHS ACCESS_KEY SECRET, of which OURS and CEPHS are endpoints. Both serve sites at web.test.
"""

import http.client
import sys
import urllib.parse

import boto3
from botocore.client import Config
from botocore.exceptions import ClientError

DOMAIN = "web.test"


def client(endpoint):
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})
    return boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=sys.argv[3], aws_secret_access_key=sys.argv[4],
                        region_name="default", config=config)


OURS, CEPHS = client(sys.argv[1]), client(sys.argv[2])
BOTH = [(OURS, CEPHS), (CEPHS, OURS)]


def fails(status, code, call, **args):
    try:
        call(**args)
    except ClientError as e:
        got = (e.response["ResponseMetadata"]["HTTPStatusCode"], e.response["Error"]["Code"])
        assert got == (status, code), (got, status, code, args)
    else:
        raise AssertionError(f"{args} should have failed with {code}")


def visit(endpoint, host, path, method="GET", **headers):
    """What a browser gets: status, place to go to, type, and the page."""
    connection = http.client.HTTPConnection(urllib.parse.urlparse(endpoint).netloc, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": host, **headers}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    return answer.status, answer.getheader("Location"), answer.getheader("Content-Type"), body


def alike(host, path, want, **args):
    """Both gateways answer the same; `want` is a status, and where to or a page."""
    ours, cephs = [visit(endpoint, host, path, **args) for endpoint in sys.argv[1:3]]
    assert ours[:2] == cephs[:2], (host, path, args, ours, cephs)
    assert (ours[0], ours[1] if 300 < ours[0] < 400 else ours[3]) == want, (host, path, args, ours, cephs)
    if ours[0] == 200 or want[1]:
        assert ours[3] == cephs[3], (host, path, ours, cephs)
    return ours


def refused(host, path, status, code, **args):
    """Both answer with an error, ours as a page that names it."""
    ours, cephs = [visit(endpoint, host, path, **args) for endpoint in sys.argv[1:3]]
    assert ours[0] == cephs[0] == status, (host, path, args, ours, cephs)
    assert args.get("method") == "HEAD" or code in ours[3].decode(), (host, path, ours)


def documents():
    rules = [{"Condition": {"KeyPrefixEquals": "docs/"}, "Redirect": {"ReplaceKeyPrefixWith": "documents/"}},
             {"Condition": {"KeyPrefixEquals": "old/", "HttpErrorCodeReturnedEquals": "404"},
              "Redirect": {"HostName": "example.com", "Protocol": "https", "HttpRedirectCode": "302", "ReplaceKeyWith": "gone.html"}}]
    site = {"IndexDocument": {"Suffix": "index.html"}, "ErrorDocument": {"Key": "error.html"}, "RoutingRules": rules}
    for n, (s3, other) in enumerate(BOTH):
        bucket = f"site{n}"
        s3.create_bucket(Bucket=bucket, ACL="public-read")
        fails(404, "NoSuchWebsiteConfiguration", s3.get_bucket_website, Bucket=bucket)
        s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration=site)
        for wrong in [{}, {"IndexDocument": {"Suffix": ""}}, {"RedirectAllRequestsTo": {"HostName": ""}},
                      {"IndexDocument": {"Suffix": "i"}, "RoutingRules": [{"Redirect": {"HttpRedirectCode": "300"}}]}]:
            fails(400, "InvalidArgument", s3.put_bucket_website, Bucket=bucket, WebsiteConfiguration=wrong)
        for who in [s3, other]:
            got = who.get_bucket_website(Bucket=bucket)
            assert {name: got[name] for name in site} == site, got
        s3.delete_bucket_website(Bucket=bucket)
        fails(404, "NoSuchWebsiteConfiguration", s3.get_bucket_website, Bucket=bucket)
        s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration=site)
    OURS.create_bucket(Bucket="all")
    OURS.put_bucket_website(Bucket="all", WebsiteConfiguration={"RedirectAllRequestsTo": {"HostName": "example.com", "Protocol": "https"}})
    OURS.create_bucket(Bucket="none")


def pages(n):
    bucket, host = f"site{n}", f"site{n}.{DOMAIN}"
    s3 = BOTH[n][0]
    for key, text in [("index.html", "home"), ("error.html", "lost"), ("a/index.html", "of a"), ("a", "a itself"),
                      ("b/index.html", "of b"), ("b c.html", "spaces")]:
        s3.put_object(Bucket=bucket, Key=key, Body=text.encode(), ContentType="text/html", ACL="public-read")
    s3.put_object(Bucket=bucket, Key="secret.html", Body=b"secret")
    s3.put_object(Bucket=bucket, Key="moved", Body=b"", ACL="public-read", WebsiteRedirectLocation="/b/")
    alike(host, "/", (200, b"home"))
    assert alike(host, "/?any=thing", (200, b"home"))[2] == "text/html"
    alike(host, "/", (200, b""), method="HEAD")
    alike(host, "/a", (200, b"a itself"))
    alike(host, "/a/", (200, b"of a"))
    alike(host, "/b", (200, b"of b"))
    alike(host, "/b/", (200, b"of b"))
    alike(host, "/b%20c.html", (200, b"spaces"))
    alike(host, "/index.html", (206, b"om"), Range="bytes=1-2")
    alike(host, "/moved", (301, "/b/"))
    alike(host, "/none.html", (404, b"lost"))
    alike(host, "/secret.html", (403, b"lost"))
    alike(host, "/docs/x", (301, f"http://{host}/documents/x"))
    alike(host, "/old/x", (302, "https://example.com/gone.html"))
    alike(DOMAIN, f"/{bucket}/a", (200, b"a itself"))
    alike(f"{host}:8080", "/a", (200, b"a itself"))
    refused(host, "/", 405, "MethodNotAllowed", method="DELETE")
    s3.delete_object(Bucket=bucket, Key="error.html")
    refused(host, "/none.html", 404, "NoSuchKey")
    refused(host, "/secret.html", 403, "AccessDenied")
    refused(host, "/none.html", 404, "NoSuchKey", method="HEAD")


documents()
for n in range(2):
    pages(n)
alike(f"all.{DOMAIN}", "/", (301, "https://example.com/"))
alike(f"all.{DOMAIN}", "/a/b", (301, "https://example.com/a/b"))
refused(f"none.{DOMAIN}", "/", 404, "NoSuchWebsiteConfiguration")
refused(f"nobucket.{DOMAIN}", "/", 404, "NoSuchBucket")
print("done")
