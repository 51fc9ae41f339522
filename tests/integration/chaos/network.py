"""Two network namespaces with a cable between them, that can be cut and made to lose one way.

Redis lives in one of them and one broker in the other, so that what is lost is lost as in a real
network: silently, with TCP trying again. Both are reached by Unix sockets all the same. Everything
ends with the two processes that hold the namespaces.
"""

import os
import shutil
import subprocess

NEAR = "10.213.77.1"  # Redis; the addresses exist in these namespaces only
FAR = "10.213.77.2"
PORT = 6379
TOOLS = ("ip", "nsenter", "unshare")


class Unavailable(Exception):
    """This machine does not let us make namespaces."""


class Network:
    def __init__(self):
        missing = [tool for tool in TOOLS if not shutil.which(tool)]
        if missing:
            raise Unavailable(f"not installed: {missing}")
        self.as_user = os.geteuid() != 0
        self.holders = []
        try:
            near = ["unshare", *(["--user", "--map-root-user"] if self.as_user else []), "--net"]
            self._hold(near)
            self._hold([*self.inside(0), "unshare", "--net"])
            self._connect()
        except (OSError, AssertionError, subprocess.CalledProcessError) as error:
            self.stop()
            raise Unavailable(str(getattr(error, "stderr", None) or error)) from error

    def _hold(self, command):
        """A process that does nothing in a namespace of its own; says so once it is in there."""
        holder = subprocess.Popen([*command, "sh", "-c", "echo in; exec sleep infinity"],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        self.holders.append(holder)
        assert holder.stdout.readline() == "in\n", "no namespace can be made"

    def _connect(self):
        far = str(self.holders[1].pid)
        self.run(0, "ip", "link", "add", "near", "type", "veth",
                 "peer", "name", "far", "netns", far)
        for end, name, address in ((0, "near", NEAR), (1, "far", FAR)):
            self.run(end, "ip", "link", "set", "lo", "up")
            self.run(end, "ip", "address", "add", f"{address}/24", "dev", name)
            self.run(end, "ip", "link", "set", name, "up")

    def inside(self, end):
        """What to put before a command to have it run at that end: 0 Redis, 1 the broker."""
        user = ["--user", "--preserve-credentials"] if self.as_user else []
        return ["nsenter", "--target", str(self.holders[end].pid), *user, "--net", "--"]

    def run(self, end, *command):
        subprocess.run([*self.inside(end), *command], check=True, capture_output=True, text=True,
                       timeout=30)

    def cut(self):
        self.run(0, "ip", "link", "set", "near", "down")

    def mend(self):
        self.run(0, "ip", "link", "set", "near", "up")

    def lose(self, end):
        """What that end sends is lost; 0: replies, 1: requests."""
        self.run(end, "ip", "route", "add", "blackhole", (FAR, NEAR)[end] + "/32")

    def lose_no_more(self, end):
        self.run(end, "ip", "route", "delete", "blackhole", (FAR, NEAR)[end] + "/32")

    @staticmethod
    def can_filter():
        return shutil.which("nft") is not None

    def drop(self, end):
        """What comes in at that end is dropped by the packet filter."""
        self.run(end, "nft", "add table inet chaos; add chain inet chaos in "
                 "{ type filter hook input priority 0; policy drop; }")

    def drop_no_more(self, end):
        self.run(end, "nft", "delete table inet chaos")

    def stop(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
            holder.stdout.close()


def network():
    """A Network, or None and why there is none."""
    try:
        return Network(), None
    except Unavailable as error:
        return None, str(error)
