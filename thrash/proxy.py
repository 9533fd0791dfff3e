"""Bad links: a TCP proxy between clients and OSDs that holds bytes back, cuts connections, and swallows answers before it cuts.

nftables sends what this machine's clients send to OSDs of one network through the proxy; its own connections bear a mark and go on.
What goes through is never changed, repeated or put in another order: TCP does not do that either. A connection's fate is drawn from
the seed when it opens: cut after so many bytes, in either direction; all answers withheld from some moment on, so that what the client
asked for happens and the client never hears of it; or delays. Needs root.
"""
import random
import selectors
import socket
import struct
import threading
import time

from clusters import run

MARK, ORIGINAL_DST = 0x10119, 80  # SO_ORIGINAL_DST in linux/netfilter_ipv4.h
PIECE = 1 << 16


class Link:
    """One connection and its fate."""

    def __init__(self, rng, client, server, now):
        self.client, self.server = client, server
        kind = rng.choice(["cut", "cut", "deaf", "deaf", "slow", "good"])
        self.cut_after = int(10 ** rng.uniform(2, 6)) if kind == "cut" else None  # bytes
        self.deaf_from = now + rng.uniform(0.2, 4) if kind == "deaf" else None
        self.deaf_for = rng.uniform(0.05, 1)
        self.delay = rng.uniform(0.01, 0.4) if kind == "slow" else 0.0
        self.rng, self.waiting, self.swallowed = rng, [], 0

    def close(self):
        for one in (self.client, self.server):
            one.close()


class Proxy:
    def __init__(self, network, seed):
        """`network`: such as 10.99.1.0/24; its ports from 6800 on are OSDs'."""
        self.network, self.rng = network, random.Random(seed)
        self.table = "px%d" % (abs(hash(network)) % 10**6)
        self.cuts, self.swallowed, self.links, self.ended = 0, 0, [], False

    def __enter__(self):
        self.listener = socket.create_server(("0.0.0.0", 0), backlog=128)
        self.thread = threading.Thread(target=self.work, daemon=True)
        try:
            self.redirect()
            self.thread.start()
        except BaseException:
            self.remove()
            self.listener.close()
            raise
        return self

    def redirect(self):
        port = self.listener.getsockname()[1]
        chain = "{ type nat hook output priority -100; }"
        rule = "ip daddr %s tcp dport 6800-7568 meta mark != %d redirect to :%d" % (self.network, MARK, port)
        run("nft", "add table ip %s; add chain ip %s out %s; add rule ip %s out %s" % (self.table, self.table, chain, self.table, rule))

    def remove(self):
        run("nft", "delete table ip " + self.table, check=False)

    def __exit__(self, *_):
        self.remove()
        self.ended = True
        self.thread.join()
        self.listener.close()

    def work(self):
        with selectors.DefaultSelector() as self.selector:
            self.selector.register(self.listener, selectors.EVENT_READ, None)
            while not self.ended:
                for key, _ in self.selector.select(timeout=0.02):
                    if key.data is None:
                        self.accept()
                    elif key.data[0] in self.links:
                        self.pass_on(*key.data)
                now = time.monotonic()
                for link in list(self.links):
                    self.look(link, now)
            for link in list(self.links):
                self.drop(link)

    def accept(self):
        server = socket.socket()
        ends = [server]
        try:
            client, _ = self.listener.accept()
            ends.append(client)
            raw = client.getsockopt(socket.SOL_IP, ORIGINAL_DST, 16)
            port, a, b, c, d = struct.unpack("!2xH4B8x", raw)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, MARK)
            server.settimeout(2)
            server.connect(("%d.%d.%d.%d" % (a, b, c, d), port))
            for one in ends:
                one.settimeout(10)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            # A client that left meanwhile, or an OSD that is not there.
            for one in ends:
                one.close()
            return
        link = Link(self.rng, client, server, time.monotonic())
        self.links.append(link)
        self.selector.register(client, selectors.EVENT_READ, (link, client, server))
        self.selector.register(server, selectors.EVENT_READ, (link, server, client))

    def pass_on(self, link, source, to):
        try:
            data = source.recv(PIECE)
            if not data:
                return self.drop(link)
            now = time.monotonic()
            if source is link.server and link.deaf_from and now >= link.deaf_from:
                link.swallowed += len(data)
                return None
            if link.cut_after is not None:
                data, link.cut_after = data[: link.cut_after], link.cut_after - len(data)
            if link.delay:
                link.waiting.append((now + link.delay * link.rng.random(), to, data))
            else:
                to.sendall(data)
        except OSError:
            return self.drop(link)
        if link.cut_after is not None and link.cut_after <= 0:
            self.cuts += 1
            self.drop(link)
        return None

    def look(self, link, now):
        """What is due by the clock."""
        if link.deaf_from and now >= link.deaf_from + link.deaf_for:
            self.cuts += 1
            self.swallowed += link.swallowed
            return self.drop(link)
        try:
            # In order: a piece that is due waits for those before it.
            while link.waiting and link.waiting[0][0] <= now:
                _, to, data = link.waiting.pop(0)
                to.sendall(data)
        except OSError:
            self.drop(link)
        return None

    def drop(self, link):
        if link in self.links:
            self.links.remove(link)
            for one in (link.client, link.server):
                self.selector.unregister(one)
            link.close()
