"""The cluster of several hosts of scripts/hosts.py behind the interface of the others, with faults of the network."""
import os

from clusters import Cluster, Trouble  # which puts scripts/ on the path
import hosts


class NetworkHosts(Cluster):
    """A host for each OSD, in network namespaces; the first three have monitors."""

    kind = "hosts"

    def __init__(self, args, folder):
        super().__init__(args, folder)
        self.hosts = hosts.Hosts(folder, count=args.osds, osds=1, loligo=os.path.abspath(args.loligo), peer=args.peer, size="4G", set=[])
        self.conf, self.mons = self.hosts.conf, self.hosts.mons

    def start(self):
        self.hosts.up()

    def spread(self):
        self.ceph("config", "set", "osd", "osd_crush_update_on_start", "false")
        self.ceph("osd", "crush", "rule", "create-replicated", "spread", "default", "host")

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

    def launch(self, name, skew=0.0, twin=""):
        if skew:
            raise Trouble("wrong clocks are for daemons on one host")
        self.hosts.launch(name, LOLIGO_TWIN=twin)

    def replace(self, osd):
        self.hosts.replace("osd.%d" % osd)

    def stop(self):
        self.disconnect()
        self.hosts.down()
