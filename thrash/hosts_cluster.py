"""The cluster of several hosts of scripts/hosts.py behind the interface of the others, with faults of the network."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "scripts"))
import hosts
from clusters import Cluster, Trouble


class NetworkHosts(Cluster):
    """A host for each OSD, in network namespaces; the first three have monitors."""

    kind = "hosts"

    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.hosts = hosts.Hosts(folder, count=args.osds, osds=1, loligo=os.path.abspath(args.loligo), peer=args.peer, size="4G", set=[])
        self.conf, self.mons = self.hosts.conf, self.hosts.mons

    def start(self):
        self.call(self.hosts.up)

    def spread(self):
        self.ceph("config", "set", "osd", "osd_crush_update_on_start", "false")
        self.ceph("osd", "crush", "rule", "create-replicated", "spread", "default", "host")

    def call(self, what, *args, **more):
        try:
            return what(*args, **more)
        except hosts.Trouble as e:
            raise Trouble(str(e)) from None

    def crush_host(self, osd):
        return self.hosts.host_of("osd.%d" % osd)

    def pid(self, name):
        pid = self.hosts.pid(name)
        if not pid:
            raise Trouble("%s does not run" % name)
        return pid

    def reap(self):
        for child in self.hosts.children:
            child.poll()

    def launch(self, name, skew=0.0):
        if skew:
            raise Trouble("wrong clocks are for daemons on one host")
        self.call(self.hosts.launch, name)

    def replace(self, osd):
        self.call(self.hosts.replace, "osd.%d" % osd)

    def stop(self):
        self.disconnect()
        self.call(self.hosts.down)
