"""A redis-server whose wall clock a test may step and let drift, by libfaketime.

Only the wall clock of that one process is false: what it measures on CLOCK_MONOTONIC is true, and so
is everything that brokers and tests read. Debian's redis-server is linked with jemalloc, which
asks for the time before libfaketime is able to answer; with the C library's own allocator loaded
first it works.
"""

import glob
import os

from lockbroker import Process, RedisServer, wait_until

LIBRARIES = sorted(glob.glob("/usr/lib/*/faketime/libfaketime.so.1"))
ALLOCATOR = "libc_malloc_debug.so.0"


def is_available():
    return bool(LIBRARIES)


class ServerClock:
    """How far the clock is from the true one, and at which rate it goes."""

    def __init__(self, path, offset_ms=0, rate=1.0):
        self.path = path
        self.rate = rate
        self.offset_ms = offset_ms
        self._write()

    def step(self, ms):
        """The clock jumps by so much, at the server's next look at it."""
        self.offset_ms += ms
        self._write()

    def _write(self):
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write(f"{self.offset_ms / 1000:+.3f} x{self.rate}\n")
        os.rename(self.path + ".new", self.path)  # it is never seen half written

    def environment(self):
        """For the process that is to have this clock; the rate counts from its start."""
        return {**os.environ, "LD_PRELOAD": f"{ALLOCATOR}:{LIBRARIES[-1]}",
                "FAKETIME_TIMESTAMP_FILE": self.path, "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class ClockedRedis(RedisServer):
    """A RedisServer with a clock of its own, if it is given one before a start.

    `launcher` is what goes before the command, such as an nsenter. As options given last win, `args`
    may set what the RedisServer sets itself.
    """

    def __init__(self, directory, *args, launcher=(), **options):
        super().__init__(directory, *args, **options)
        self.launcher = list(launcher)
        self.clock = None

    def start(self):
        argv = self.launcher + ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1",
                                "--unixsocket", self.path, "--dir", self.directory,
                                "--save", "", "--appendonly", "no"]
        environment = self.clock.environment() if self.clock else dict(os.environ)
        self.process = Process(argv + list(self.args), os.path.join(self.directory, "redis.log"),
                               env=environment)
        wait_until(self.is_answering, "redis-server answers")
        return self
