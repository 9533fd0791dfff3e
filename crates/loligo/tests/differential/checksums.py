"""The checksums that a read may ask for, by their specifications; slow, and short."""

P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


class Words:
    """Arithmetic on words of so many bits, and what xxHash does alike in both widths."""

    def __init__(self, bits, primes, mix):
        self.bits, self.mask, self.primes, self.mix = bits, (1 << bits) - 1, primes, mix

    def turn(self, x, by):
        x &= self.mask
        return (x << by | x >> self.bits - by) & self.mask

    def round(self, acc, lane):
        return self.turn(acc + lane * self.primes[1], self.mix) * self.primes[0] & self.mask

    def stripes(self, seed, data):
        """The four accumulators behind all whole stripes."""
        p, width = self.primes, self.bits // 8
        acc = [seed + p[0] + p[1], seed + p[1], seed, seed - p[0]]
        for at in range(0, len(data) - 4 * width + 1, 4 * width):
            for i in range(4):
                lane = int.from_bytes(data[at + i * width:at + (i + 1) * width], "little")
                acc[i] = self.round(acc[i] & self.mask, lane)
        turned = sum(self.turn(a, by) for a, by in zip(acc, (1, 7, 12, 18))) & self.mask
        return [a & self.mask for a in acc], turned, data[len(data) // (4 * width) * 4 * width:]

    def end(self, h, steps):
        for shift, prime in steps:
            h = (h ^ h >> shift) * prime & self.mask
        return h


def xxh32(seed, data):
    w, p = Words(32, P32, 13), P32
    h, tail = (seed + p[4]), data
    if len(data) >= 16:
        _, h, tail = w.stripes(seed, data)
    h += len(data)
    while len(tail) >= 4:
        h = w.turn(h + int.from_bytes(tail[:4], "little") * p[2], 17) * p[3]
        tail = tail[4:]
    for b in tail:
        h = w.turn(h + b * p[4], 11) * p[0]
    return w.end(h & w.mask, [(15, p[1]), (13, p[2]), (16, 1)])


def xxh64(seed, data):
    w, p = Words(64, P64, 31), P64
    h, tail = (seed + p[4]), data
    if len(data) >= 32:
        acc, h, tail = w.stripes(seed, data)
        for a in acc:
            h = ((h ^ w.round(0, a)) * p[0] + p[3]) & w.mask
    h += len(data)
    while len(tail) >= 8:
        h = w.turn((h ^ w.round(0, int.from_bytes(tail[:8], "little"))) & w.mask, 27) * p[0] + p[3]
        tail = tail[8:]
    if len(tail) >= 4:
        h = w.turn((h & w.mask) ^ int.from_bytes(tail[:4], "little") * p[0] & w.mask, 23) * p[1] + p[2]
        tail = tail[4:]
    for b in tail:
        h = w.turn((h & w.mask) ^ b * p[4] & w.mask, 11) * p[0]
    return w.end(h & w.mask, [(33, p[1]), (29, p[2]), (32, 1)])


def byte_steps():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CASTAGNOLI = byte_steps()


def crc32c(seed, data):
    """Without the inversions at both ends, as Ceph counts it."""
    for b in data:
        seed = seed >> 8 ^ CASTAGNOLI[(seed ^ b) & 255]
    return seed
