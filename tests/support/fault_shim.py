"""Steers the fault shim (tests/integration/fault/shim.c) that a daemon has been started with.

The plan is a file that the daemon and the test have both mapped: what is written here is in force
at once.
"""

import mmap
import os
import struct
import subprocess

FIELDS = ("alloc_mode", "alloc_at", "alloc_forever", "alloc_count", "alloc_failed", "alloc_site",
          "write_fd", "write_errno", "write_failed", "fd_errno", "fd_failed", "resolve_ms", "resolve_error",
          "resolve_count", "stall_ms", "lock")
RESOLVE_TO = 8 * len(FIELDS)
RESOLVE_TO_BYTES = 128
MODULES = RESOLVE_TO + RESOLVE_TO_BYTES
MODULES_MAX = 32
MODULE_BYTES = 96
SITES = MODULES + MODULES_MAX * MODULE_BYTES
SITES_MAX = 4096
SITE = struct.Struct("Qqq16Q")
OFFSET_BITS = 40

ALLOC_OFF, ALLOC_COUNT, ALLOC_NUMBER, ALLOC_SITE = range(4)


def shim_path():
    return os.path.join(os.environ["LOCKBROKER_BIN"], "..", "lib", "libfault_shim.so")


class Site:
    """A place in the daemon that asked for memory, told from others by its nearest callers."""

    def __init__(self, shim, fields):
        self.shim = shim
        self.hash, self.seen, self.failed = fields[:3]
        self.frames = [frame for frame in fields[3:] if frame]

    def modules(self):
        """The file names of the libraries on the stack, innermost first; "" is the program."""
        paths = [self.shim.module(frame >> OFFSET_BITS) for frame in self.frames]
        return [os.path.basename(path) for path in paths]

    def __str__(self):
        lines = []
        for frame in self.frames:
            path = self.shim.module(frame >> OFFSET_BITS) or self.shim.program
            offset = frame & ((1 << OFFSET_BITS) - 1)
            told = subprocess.run(["addr2line", "-fse", path, hex(offset - 1)], check=False,
                                  capture_output=True, text=True).stdout.split()
            lines.append(" ".join(["   ", os.path.basename(path), hex(offset), *told]))
        return "\n".join([f"site {self.hash:x}: seen {self.seen}, failed {self.failed}", *lines])


class Shim:
    """The plan of one daemon, and of those that are started after it in the same place."""

    def __init__(self, daemon):
        self.program = daemon.argv[0]
        self.path = daemon.log_path + ".plan"
        with open(self.path, "wb") as plan:
            plan.truncate(SITES + SITES_MAX * SITE.size)
        with open(self.path, "r+b") as plan:
            self.map = mmap.mmap(plan.fileno(), 0)
        sanitizer = os.environ.get("ASAN_OPTIONS", "")
        daemon.argv = ["/usr/bin/env", f"LD_PRELOAD={shim_path()}", f"FAULT_PLAN={self.path}",
                       f"ASAN_OPTIONS={sanitizer}:verify_asan_link_order=0", *daemon.argv]

    def get(self, field):
        return struct.unpack_from("q", self.map, 8 * FIELDS.index(field))[0]

    def set(self, **values):
        for field, value in values.items():
            struct.pack_into("q", self.map, 8 * FIELDS.index(field), value)

    def arm(self, mode, number=0, forever=False):
        """From now on allocations are counted, from 1, and fail as told."""
        self.set(alloc_mode=ALLOC_OFF)
        self.set(alloc_count=0, alloc_failed=0, alloc_at=number, alloc_forever=int(forever))
        self.set(alloc_mode=mode)

    def disarm(self):
        """Returns how many allocations failed since it was armed."""
        self.set(alloc_mode=ALLOC_OFF)
        return self.get("alloc_failed")

    def resolve_to(self, address):
        """The address that every name is said to have; "": the true one."""
        self.map[RESOLVE_TO:MODULES] = address.encode().ljust(RESOLVE_TO_BYTES, b"\0")

    def module(self, number):
        begin = MODULES + (number - 1) * MODULE_BYTES
        return self.map[begin:begin + MODULE_BYTES].rstrip(b"\0").decode()

    def failed_site(self):
        """That of the last allocation that failed."""
        found = struct.unpack_from("Q", self.map, 8 * FIELDS.index("alloc_site"))[0]
        return next(site for site in self.sites() if site.hash == found)

    def sites(self):
        """All that were ever seen."""
        found = (SITE.unpack_from(self.map, SITES + i * SITE.size) for i in range(SITES_MAX))
        return [Site(self, fields) for fields in found if fields[0]]
