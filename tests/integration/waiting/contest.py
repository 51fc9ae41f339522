"""Contests for a lock: the load program, the store that the lock guards, and what both tell."""

import fcntl
import json
import os
import statistics
import struct
import subprocess
import time

from lockbroker import LOCK_PREFIX, daemon_path, wait_until

QUEUE_PREFIX = "lockbroker:meta:queue:"
FIELDS = ("inside", "fence", "value", "entries", "overlaps", "regressions", "refused",
          "lost_updates")
LAYOUT = struct.Struct("=%dq" % len(FIELDS))  # that of load_store.c


class Store:
    """The load program's store: a counter in a file, under the file's own lock for each access."""

    def __init__(self, path):
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, LAYOUT.size)

    def _change(self, change):
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            values = dict(zip(FIELDS, LAYOUT.unpack(os.pread(self._fd, LAYOUT.size, 0))))
            outcome = change(values)
            os.pwrite(self._fd, LAYOUT.pack(*(values[field] for field in FIELDS)), 0)
            return outcome
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def figures(self):
        return self._change(dict)

    def enter(self, who, fence=None):
        """Goes into the critical section and returns the counter. A lock without fences has None."""
        def change(values):
            values["entries"] += 1
            values["overlaps"] += values["inside"] != 0
            values["inside"] = who
            if fence is not None:
                values["regressions"] += fence <= values["fence"]
                values["fence"] = max(values["fence"], fence)
            return values["value"]
        return self._change(change)

    def leave(self, who, base, fence=None):
        def change(values):
            if fence is not None and fence < values["fence"]:
                values["refused"] += 1
            else:
                values["lost_updates"] += values["value"] != base
                values["value"] = base + 1
            values["overlaps"] += values["inside"] != who
            values["inside"] = 0
        self._change(change)

    def assert_clean(self, entries=None):
        figures = self.figures()
        wrong = {name: figures[name] for name in ("overlaps", "regressions", "refused",
                                                  "lost_updates") if figures[name]}
        assert not wrong, figures
        assert entries is None or figures["entries"] == entries, (figures, entries)

    def close(self):
        os.close(self._fd)


class Report(dict):
    """What one run of the load program told."""

    @property
    def total(self):
        return sum(self["grants"])

    @property
    def seconds(self):
        return self["elapsed_us"] / 1e6

    def assert_smooth(self):
        """Nobody was refused, and nobody lost a lock."""
        assert not self["errors"] and self["lost"] == 0, {**self, "records": "..."}


class Load:
    """The load program, started with its options as they stand on its command line."""

    def __init__(self, key, *daemons, **options):
        program = os.path.join(os.path.dirname(daemon_path()), "waiting_load")
        argv = [program]
        for name, value in options.items():
            argv.append("--" + name.replace("_", "-"))
            if value is not True:
                argv.append(str(value.path if isinstance(value, Store) else value))
        self._process = subprocess.Popen(
            argv + [key] + [daemon.socket_path for daemon in daemons], stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def is_running(self):
        return self._process.poll() is None

    def end(self):
        """Tells it to end."""
        self._process.terminate()

    def report(self, timeout=120):
        out, _ = self._process.communicate(timeout=timeout)
        assert self._process.returncode == 0, self._process.returncode
        return Report(json.loads(out))


def load(key, *daemons, **options):
    with Load(key, *daemons, **options) as it:
        return it.report()


def jain(counts):
    """1: all have the same; 1/n: one has all."""
    return sum(counts) ** 2 / (len(counts) * sum(n * n for n in counts))


def say(**figures):
    print("  ".join(f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                    for name, value in figures.items()), flush=True)


def counters(daemon):
    client = daemon.client()
    found = client.ok("stats")["counters"]
    daemon.clients.remove(client)
    client.close()
    return found


def growth(before, after):
    return {name: value - before[name] for name, value in after.items()}


def wait_waiters(daemon, key, count):
    """Waits until that many wait for the key at this broker."""
    client = daemon.client()
    wait_until(lambda: waiters(client, key) == count, f"{count} wait")
    daemon.clients.remove(client)
    client.close()


def waiters(client, key):
    found = [lock["waiters"] for lock in client.ok("list", prefix=key, limit=1000)["locks"]
             if lock["key"] == key]
    return found[0] if found else 0


def queue_name(key):
    return QUEUE_PREFIX + LOCK_PREFIX + key


def queue(redis, key):
    """The ids of the brokers that queue for the key."""
    text = redis.client.get(queue_name(key)) or ""
    return [entry.split(":")[0] for entry in text.split()]


def wait_queue(redis, key, count):
    wait_until(lambda: len(queue(redis, key)) == count, f"{count} brokers queue")


def channels(redis):
    """The connections on which brokers hear of turns."""
    return [link for link in redis.client.client_list() if int(link["sub"]) > 0]


def wait_channels(redis, count):
    wait_until(lambda: len(channels(redis)) == count, f"{count} channels")


def rss_bytes(daemon):
    with open(f"/proc/{daemon.process.pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def runs(records):
    """The grants in the order of their fences, as (broker, how many in a row)."""
    found = []
    for record in sorted(records):
        if found and found[-1][0] == record[1]:
            found[-1][1] += 1
        else:
            found.append([record[1], 1])
    return found


def wake_ms(key, here, there, rounds, before_release_s, ttl_ms=10000):
    """The median time from a release at one broker to the grant at the other."""
    took = []
    for _ in range(rounds):
        here.ok("acquire", key=key, ttl_ms=ttl_ms, wait_ms=-1)
        waiting = there.send("acquire", key=key, ttl_ms=ttl_ms, wait_ms=-1)
        time.sleep(before_release_s)
        start = time.clock_gettime(time.CLOCK_BOOTTIME)
        here.ok("release", key=key)
        assert there.reply(waiting)["ok"] is True
        took.append((time.clock_gettime(time.CLOCK_BOOTTIME) - start) * 1000)
        there.ok("release", key=key)
    return statistics.median(took)
