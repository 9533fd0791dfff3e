#!/usr/bin/python3
"""Records what radosgw and radosgw-admin ask of object classes, and what the OSDs answer, from the wire.

  bench/classes_radosgw.py --conf ceph.conf --port 8490 --out crates/classes/tests/data/radosgw.jsonl

Starts a radosgw of its own at the cluster of `ceph.conf`, which no other radosgw may use meanwhile, talks S3 to it, and reads
along on the loopback interface (as root; in msgr2's crc mode). A line of the result is one object: what it held before, the
requests in their order that change it or call methods, and what it held at the end. Times of the
session are replaced by a constant, the one of classes_differential.py.
"""
import argparse
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time

import boto3
import rados
from botocore.client import Config

from classes_differential import NOW_S, Cluster, digits

# Message types, frames and operations. Source: src/include/msgr.h, src/msg/async/frames_v2.h,
# src/include/rados.h.
OSD_OP, OSD_OPREPLY = 42, 43
MESSAGE_FRAME = 17
CALL, CREATE, WRITE, WRITE_FULL, DELETE = 0x1401, 0x220D, 0x2201, 0x2202, 0x2205
SET_XATTR, RM_XATTR, OMAP_SET, OMAP_RM, OMAP_HEADER = 0x2301, 0x2304, 0x2215, 0x2218, 0x2216
CHANGES = 0x2000
RETURN_VECTOR = 0x00040000
MAY_FAIL = 2
# Objects of one kind of which a session touches many: these are kept.
KEPT_SHARDS = 1
SHARD = re.compile(r"^(gc|lc|reshard|obj_delete_at_hint|usage|meta\.log)\..*?(\d+)$")
# Requests to one object that are kept; pollers ask the same again and again.
KEPT_REQUESTS = 60
# Bytes of one write that are kept.
KEPT_DATA = 256


class Bytes:
    """Reads what stands one behind the other."""

    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, n):
        self.at += n
        return self.raw[self.at - n:self.at]

    def numbers(self, form):
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def number(self, form="I"):
        return self.numbers(form)[0]

    def text(self):
        return self.take(self.number())

    def inner(self):
        """What stands in an envelope."""
        self.take(2)
        return Bytes(self.text())


class Stream:
    """One direction of a connection: packets to messages."""

    def __init__(self):
        self.next, self.later, self.raw, self.started = None, {}, bytearray(), False

    def packet(self, seq, syn, data):
        if syn:
            self.next = (seq + 1) & 0xFFFFFFFF
            return
        if self.next is None or not data:
            return
        self.later[seq] = max(data, self.later.get(seq, b""), key=len)
        while self.next in self.later:
            data = self.later.pop(self.next)
            self.raw += data
            self.next = (self.next + len(data)) & 0xFFFFFFFF

    def messages(self):
        if not self.started:
            if len(self.raw) < 10 or len(self.raw) < 10 + self.raw[8]:
                return
            self.started = True
            del self.raw[:10 + self.raw[8]]
        while len(self.raw) >= 32:
            tag, count = self.raw[0], self.raw[1]
            if not 1 <= count <= 4:  # enciphered, as monitors are spoken to
                self.next = None
                self.raw.clear()
                return
            lengths = [struct.unpack_from("<I", self.raw, 2 + 6 * i)[0] for i in range(count)]
            total = 32 + sum(lengths) + (4 if lengths[0] else 0) + (13 if count > 1 else 0)
            if len(self.raw) < total:
                return
            at, parts = 32, []
            for i, length in enumerate(lengths):
                parts.append(bytes(self.raw[at:at + length]))
                at += length + (4 if i == 0 and length else 0)
            del self.raw[:total]
            if tag == MESSAGE_FRAME:
                yield parts + [b""] * (4 - count)


class Tap(threading.Thread):
    """Packets of the loopback interface, as requests with their replies in the order in which the requests came."""

    def __init__(self, ports):
        """`ports` are those of the OSDs."""
        super().__init__(daemon=True)
        self.ports = ports
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 512 << 20)  # SO_RCVBUFFORCE
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.5)
        self.packets, self.ended = [], False

    def run(self):
        while not self.ended:
            try:
                packet, (_, _, kind, _, _) = self.socket.recvfrom(1 << 17)
            except socket.timeout:
                continue
            if kind != socket.PACKET_OUTGOING and packet[23] == 6:
                self.packets.append(packet)

    def requests(self):
        streams, waiting, done = {}, {}, []
        for packet in self.packets:
            ip = packet[14:]
            head, total = (ip[0] & 15) * 4, struct.unpack_from(">H", ip, 2)[0]
            source, target, seq = struct.unpack_from(">HHI", ip, head)
            start, flags = head + (ip[head + 12] >> 4) * 4, ip[head + 13]
            way = (source, target)
            if self.ports.isdisjoint(way):
                continue
            if flags & 2:
                streams[way] = Stream()
            if way not in streams:
                continue
            # A packet that the interface did not have to cut gives no length.
            streams[way].packet(seq, flags & 2, ip[start:total or None])
            for header, front, _, data in streams[way].messages():
                tid, kind = struct.unpack_from("<QH", header, 8)
                if kind == OSD_OP:
                    waiting[way, tid] = request = {"at": len(done), **read_request(front, data)}
                    done.append(request)
                elif kind == OSD_OPREPLY and (way[::-1], tid) in waiting:
                    read_reply(waiting.pop((way[::-1], tid)), front, data)
        # An operation on a placement group names no object.
        return [request for request in done if "result" in request and request["object"][2]]


def read_ops(b, count):
    """Code, flags, what the code's own fields hold, and the length of the data."""
    return [(*b.numbers("HI"), b.take(28), b.number()) for _ in range(count)]


def read_request(front, data):
    b = Bytes(front)
    pool = struct.unpack_from("<q", b.inner().raw, 1)[0]
    b.take(8)
    flags = b.number()
    b.inner()
    b.take(24 + 4 + 8)
    locator = b.inner()
    locator.take(12)
    locator.text()
    namespace, name = locator.text(), b.text()
    ops, rest = read_ops(b, b.number("H")), Bytes(data)
    return {"object": (pool, namespace, name), "flags": flags, "ops": [(*op[:3], rest.take(op[3])) for op in ops]}


def read_reply(request, front, data):
    b = Bytes(front)
    b.text()
    b.take(17 + 8)
    request["result"] = b.number("i")
    b.take(12 + 4)
    ops = read_ops(b, b.number())
    b.take(4)
    values, rest = b.numbers("%di" % len(ops)), Bytes(data)
    request["answers"] = [(value, rest.take(op[3])) for op, value in zip(ops, values)]


def listed_pairs(raw):
    b = Bytes(raw)
    return {b.text(): b.text() for _ in range(b.number())}


class Writer:
    def __init__(self, constant):
        self.constant = constant

    def hex(self, raw):
        return digits(self.constant(raw))

    def op(self, op, answer, vector):
        """An operation that changes something or calls a method; nothing for others, ValueError for one that is not known."""
        code, flags, fields, data = op
        if code == CALL:
            ends = fields[0], fields[0] + fields[1]
            out = self.hex(answer[1]) if vector else None
            return ["call", data[:ends[0]].decode(), data[ends[0]:ends[1]].decode(), self.hex(data[ends[1]:]), answer[0], out]
        if code == CREATE:
            return ["create", flags & 1]
        if code in (WRITE_FULL, WRITE):
            # No method looks at much data: the number of bytes stands for them.
            body = self.hex(data) if len(data) <= KEPT_DATA else len(data)
            return ["write_full", body] if code == WRITE_FULL else ["write", struct.unpack_from("<Q", fields)[0], body]
        if code == DELETE:
            return ["remove", flags & MAY_FAIL]
        if code == SET_XATTR:
            length = struct.unpack_from("<I", fields)[0]
            return ["set_xattr", self.hex(data[:length]), self.hex(data[length:])]
        if code == OMAP_SET:
            return ["omap_set", {self.hex(k): self.hex(v) for k, v in listed_pairs(data).items()}]
        if code == OMAP_HEADER:
            return ["omap_set_header", self.hex(data)]
        if code == RM_XATTR:
            return ["rm_xattr", self.hex(data)]
        if code & CHANGES:
            raise ValueError("operation %x" % code)
        return None

    def state(self, state):
        if state is None:
            return None
        data, xattrs, omap = state
        pairs = lambda found: {self.hex(k): self.hex(v) for k, v in found.items()}
        return {"data": self.hex(data), "xattrs": pairs(xattrs), "omap": pairs(omap)}

    def request(self, request):
        changes = any(op[0] & CHANGES for op in request["ops"])
        vector = request["flags"] & RETURN_VECTOR or not request["flags"] & 0x20
        ops = [self.op(op, answer, vector) for op, answer in zip(request["ops"], request["answers"])]
        kept = [op for op in ops if op]
        calls = any(op[0] == "call" for op in kept)
        return {"result": request["result"], "ops": kept} if calls or (changes and kept) else None


class Session:
    """What users and administrators of object storage do."""

    def __init__(self, conf, port):
        self.conf, self.port, self.names = conf, port, ["recorded", "plain", "versions"]
        user = self.admin("user", "create", "--uid=recorded", "--display-name=R", "--access-key=access", "--secret-key=secret")
        assert json.loads(user)["user_id"] == "recorded"
        self.s3 = boto3.client("s3", endpoint_url="http://127.0.0.1:%d" % port, aws_access_key_id="access",
                               aws_secret_access_key="secret", region_name="default",
                               config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}))

    def admin(self, *words, may_fail=False):
        done = subprocess.run(["radosgw-admin", "-c", self.conf, *words], capture_output=True, text=True, timeout=120)
        if done.returncode and not may_fail:
            raise SystemExit("radosgw-admin %s: %s" % (" ".join(words), done.stderr))
        return done.stdout

    def fails(self, call, **arguments):
        try:
            call(**arguments)
        except self.s3.exceptions.ClientError:
            return
        raise SystemExit("%s should fail" % call)

    def plain(self):
        s3 = self.s3
        s3.create_bucket(Bucket="plain")
        for key in ("a", "b", "dir/c", "dir/d", "é", "with space"):
            s3.put_object(Bucket="plain", Key=key, Body=b"data of " + key.encode())
        s3.put_object(Bucket="plain", Key="a", Body=b"again", Metadata={"color": "blue"})
        s3.copy_object(Bucket="plain", Key="copy", CopySource={"Bucket": "plain", "Key": "b"})
        s3.put_object_acl(Bucket="plain", Key="b", ACL="public-read")
        s3.put_object_tagging(Bucket="plain", Key="b", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
        s3.list_objects(Bucket="plain")
        s3.list_objects(Bucket="plain", Delimiter="/", MaxKeys=2)
        s3.list_objects_v2(Bucket="plain", Prefix="dir/", StartAfter="dir/c")
        s3.list_buckets()
        s3.delete_object(Bucket="plain", Key="dir/d")
        s3.delete_object(Bucket="plain", Key="never there")
        s3.delete_objects(Bucket="plain", Delete={"Objects": [{"Key": "a"}, {"Key": "é"}]})
        self.fails(s3.get_object, Bucket="plain", Key="a")
        self.fails(s3.delete_bucket, Bucket="plain")

    def multipart(self):
        s3 = self.s3
        # What ends, and what is given up; its parts go to the collection of garbage.
        ids = [s3.create_multipart_upload(Bucket="plain", Key=key)["UploadId"] for key in ("whole", "given up")]
        parts = []
        for number in (1, 2):
            body = b"p" * (5 << 20) if number == 1 else b"end"
            done = s3.upload_part(Bucket="plain", Key="whole", UploadId=ids[0], PartNumber=number, Body=body)
            parts.append({"ETag": done["ETag"], "PartNumber": number})
        s3.upload_part(Bucket="plain", Key="given up", UploadId=ids[1], PartNumber=1, Body=b"part")
        s3.list_multipart_uploads(Bucket="plain")
        s3.list_parts(Bucket="plain", Key="whole", UploadId=ids[0])
        s3.complete_multipart_upload(Bucket="plain", Key="whole", UploadId=ids[0], MultipartUpload={"Parts": parts})
        s3.abort_multipart_upload(Bucket="plain", Key="given up", UploadId=ids[1])
        s3.delete_object(Bucket="plain", Key="whole")

    def versions(self):
        s3 = self.s3
        s3.create_bucket(Bucket="versions")
        s3.put_object(Bucket="versions", Key="old", Body=b"before there were versions")
        s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
        ids = [s3.put_object(Bucket="versions", Key="k", Body=b"version %d" % i)["VersionId"] for i in range(3)]
        s3.put_object(Bucket="versions", Key="old", Body=b"with one")
        marker = s3.delete_object(Bucket="versions", Key="k")["VersionId"]
        self.fails(s3.get_object, Bucket="versions", Key="k")
        s3.list_object_versions(Bucket="versions")
        s3.list_object_versions(Bucket="versions", MaxKeys=2)
        s3.list_objects(Bucket="versions")
        for version in (ids[1], marker, ids[2], ids[0]):
            s3.delete_object(Bucket="versions", Key="k", VersionId=version)
        s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Suspended"})
        s3.put_object(Bucket="versions", Key="old", Body=b"suspended")
        s3.delete_object(Bucket="versions", Key="old", VersionId="null")
        s3.list_object_versions(Bucket="versions")

    def lifecycle(self):
        s3, rule = self.s3, {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 1}}
        s3.put_bucket_lifecycle_configuration(Bucket="plain", LifecycleConfiguration={"Rules": [rule]})
        s3.get_bucket_lifecycle_configuration(Bucket="plain")
        self.admin("lc", "list")
        self.admin("lc", "process")
        # Objects of the buckets have these in their names.
        self.names += [json.loads(self.admin("bucket", "stats", "--bucket=" + b))["id"] for b in ("plain", "versions")]
        s3.delete_bucket_lifecycle(Bucket="plain")

    def administration(self):
        self.admin("user", "stats", "--uid=recorded", "--sync-stats")
        self.admin("user", "stats", "--uid=recorded", "--reset-stats", may_fail=True)
        for words in (("bucket", "stats"), ("bucket", "check"), ("bucket", "check", "--check-objects", "--fix"), ("bi", "list"),
                      ("bucket", "limit", "check"), ("reshard", "add", "--num-shards=3"), ("reshard", "status")):
            self.admin(*words, "--bucket=plain", "--uid=recorded", may_fail=True)
        self.admin("reshard", "list")
        self.admin("reshard", "process")
        self.admin("gc", "list", "--include-all")
        self.admin("gc", "process", "--include-all")
        self.admin("usage", "show", "--uid=recorded")
        self.admin("usage", "trim", "--uid=recorded")
        one = ("--uid=recorded", "--totp-serial=device")
        self.admin("mfa", "create", *one, "--totp-seed=3132333435363738393031323334353637383930", "--totp-seed-type=hex")
        self.admin("mfa", "list", "--uid=recorded")
        self.admin("mfa", "check", *one, "--totp-pin=000000", may_fail=True)
        self.admin("mfa", "remove", *one)

    def end(self):
        s3 = self.s3
        for bucket in ("plain", "versions"):
            for kind in ("Versions", "DeleteMarkers"):
                for one in s3.list_object_versions(Bucket=bucket).get(kind, ()):
                    s3.delete_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])
            s3.delete_bucket(Bucket=bucket)
        self.admin("gc", "process", "--include-all")
        self.admin("user", "rm", "--uid=recorded")


class Pools:
    """What objects hold, by pool, namespace and name."""

    def __init__(self, conf):
        self.conf, self.clusters = conf, {}
        with rados.Rados(conffile=conf, rados_id="admin") as cluster:
            names = cluster.list_pools()
            self.names = {cluster.pool_lookup(name): name for name in names if "rgw" in name}

    def cluster(self, pool):
        if pool not in self.clusters:
            self.clusters[pool] = Cluster(self.conf, self.names[pool])
        return self.clusters[pool]

    def objects(self):
        for pool in self.names:
            io = self.cluster(pool).io
            io.set_namespace(rados.LIBRADOS_ALL_NSPACES)
            found = [(pool, one.nspace.encode(), one.key.encode()) for one in io.list_objects()]
            yield from found

    def states(self, objects):
        return {one: self.state(*one) for one in objects}

    def state(self, pool, namespace, name):
        cluster = self.cluster(pool)
        cluster.io.set_namespace(namespace.decode())
        cluster.raw.lib.rados_ioctx_set_namespace(cluster.raw.io, namespace)
        try:
            size, _ = cluster.io.stat(name.decode())
        except rados.ObjectNotFound:
            return None
        data = cluster.io.read(name.decode(), size) if size else b""
        return data, cluster.raw.xattrs(name.decode()), cluster.raw.omap(name.decode())


def osd_ports(conf):
    """Of the addresses of msgr2."""
    osds = json.loads(subprocess.check_output(["ceph", "-c", conf, "osd", "dump", "-f", "json"], stderr=subprocess.DEVNULL))["osds"]
    addresses = [addr["addr"] for osd in osds for addr in osd["public_addrs"]["addrvec"] if addr["type"] == "v2"]
    return {int(addr.rsplit(":", 1)[1]) for addr in addresses}


def kept(objects):
    """Of many objects of one kind the first ones."""
    seen, out = {}, []
    for one in objects:
        match = SHARD.match(one[2].decode("utf-8", "replace"))
        kind = match and (one[0], match.group(1))
        seen[kind] = seen.get(kind, 0) + 1
        if kind is None or seen[kind] <= KEPT_SHARDS:
            out.append(one)
    return out


def write(path, requests, before, after, constant):
    writer, by_object, seen = Writer(constant), {}, []
    for request in requests:
        by_object.setdefault(request["object"], []).append(request)
    with open(path, "w") as f:
        for one, asked in by_object.items():
            try:
                lines = [line for line in map(writer.request, asked) if line]
            except ValueError as e:
                print("%s is left out: %s" % (one, e), file=sys.stderr)
                continue
            calls = any(op[0] == "call" for line in lines for op in line["ops"])
            # Shards without entries are all the same.
            if calls and lines not in seen:
                seen.append(lines)
                whole = len(lines) <= KEPT_REQUESTS
                f.write(json.dumps({"object": one[2].decode("utf-8", "replace"), "before": writer.state(before.get(one)),
                                    "requests": lines[:KEPT_REQUESTS],
                                    "end": writer.state(after.get(one)) if whole else "not kept"},
                                   separators=(",", ":")) + "\n")


def without_times(began):
    """Makes bytes those of any other session: times of this one are a constant."""
    until = int(time.time()) + 2
    written = re.compile(rb"(?<![0-9])([0-9]{10})(\.[0-9]{6,9})(?![0-9])")
    binary = re.compile(b"|".join(re.escape(struct.pack("<I", second)) for second in range(int(began) - 2, until)))

    def textual(match):
        inside = began - 2 <= int(match.group(1)) <= until
        return b"%d.%s" % (NOW_S, b"0" * (len(match.group(2)) - 1)) if inside else match.group(0)

    def constant(raw):
        out = bytearray(written.sub(textual, raw or b""))
        for match in binary.finditer(bytes(out)):
            struct.pack_into("<I", out, match.start(), NOW_S)
            nanoseconds = out[match.end():match.end() + 4]
            # A small number is the next field of one that has whole seconds.
            if len(nanoseconds) == 4 and 1000 <= struct.unpack("<I", nanoseconds)[0] < 10**9:
                out[match.end():match.end() + 4] = bytes(4)
        return bytes(out)

    return constant


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--conf", required=True)
    p.add_argument("--port", type=int, default=8490)
    p.add_argument("--out", required=True)
    args = p.parse_args()
    began, pools, tap = time.time(), Pools(args.conf), Tap(osd_ports(args.conf))
    there = list(pools.objects())
    before = pools.states(kept(there))
    tap.start()
    gateway = subprocess.Popen(["radosgw", "-f", "-c", args.conf, "-n", "client.rgw.x", "--pid-file=", "--rgw-enable-usage-log=true",
                                "--rgw-usage-log-tick-interval=1", "--rgw-frontends=beast endpoint=127.0.0.1:%d" % args.port])
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", args.port)) == 0:
                    break
            time.sleep(0.1)
        session = Session(args.conf, args.port)
        for part in (session.plain, session.multipart, session.versions, session.lifecycle, session.administration, session.end):
            part()
    finally:
        gateway.terminate()
        gateway.wait(60)
        time.sleep(1)
        tap.ended = True
        tap.join()
    requests = [request for request in tap.requests() if request["object"][0] in pools.names]
    names = [one for one in dict.fromkeys(request["object"] for request in requests)
             if any(name.encode() in one[2] for name in session.names) or SHARD.match(one[2].decode("utf-8", "replace"))]
    touched = kept(names)
    requests = [request for request in requests if request["object"] in touched]
    after, constant = pools.states(touched), without_times(began)
    write(args.out, requests, before, after, constant)
    print("%d packets, %d requests to %d objects" % (len(tap.packets), len(requests), len(touched)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
