"""What a case runs on: a private Redis server, brokers, the cores that they may use, and what they use.

All of a case is started with the same cores, and ended with the case.
"""

import contextlib
import functools
import io
import json
import os
import re
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import lockbroker  # pylint: disable=wrong-import-position  # found by the line before it

ANSWER_S = 60
LOG_LINES = 5  # of each daemon, told when something fails


def all_cores():
    return sorted(os.sched_getaffinity(0))


ALL_CORES = all_cores()


@contextlib.contextmanager
def pinned(cores):
    """What is started inside may use so many cores, the last ones; the driver itself is as before."""
    os.sched_setaffinity(0, ALL_CORES[-cores:] if cores else ALL_CORES)
    try:
        yield
    finally:
        os.sched_setaffinity(0, ALL_CORES)


def cpu_ns(pid):
    """The time that a process was on a core, all threads; finer than the ticks of /proc/PID/stat."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total


def rss_kb(pid):
    """The memory of a process that is in use, without the parts of files that it has mapped."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(r"^RssAnon:\s+(\d+)", file.read(), re.MULTILINE)[1])


class Line:
    """A connection to a broker: requests by hand, answers in the order in which they come."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(path)
        self.pending = b""
        self.last_id = 0

    def send(self, op, **fields):
        self.last_id += 1
        self.sock.sendall(json.dumps({"id": self.last_id, "op": op, **fields}).encode() + b"\n")
        return self.last_id

    def line(self):
        while b"\n" not in self.pending:
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self.pending += data
        line, _, self.pending = self.pending.partition(b"\n")
        return line

    def answer(self, request_id):
        """The answer to that request; what else comes before it is dropped."""
        while True:
            reply = json.loads(self.line())
            if reply.get("id") == request_id:
                if not reply["ok"]:
                    raise ConnectionError(f"the broker answered {reply}")
                return reply

    def call(self, op, **fields):
        return self.answer(self.send(op, **fields))

    def close(self):
        self.sock.close()


def told(counts, percent):
    """A percentile of a histogram's observations, as the bound that they are not above, or None."""
    bounds, numbers = counts["bounds"], counts["counts"]
    left = sum(numbers) * percent / 100
    if not left:
        return None
    for bound, number in zip([*bounds, float("inf")], numbers):
        left -= number
        if left <= 0:
            return bound
    return None


def less(histogram, before):
    """What a histogram observed since an earlier one."""
    return {"bounds": histogram["bounds"],
            "counts": [now - then for now, then in zip(histogram["counts"], before["counts"])]}


class Broker:
    """A started daemon, with a connection to ask it for its figures."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.path = daemon.socket_path
        self.pid = daemon.process.pid
        self.line = Line(self.path)

    def stats(self):
        return self.line.call("stats")

    def usage(self):
        stats = self.stats()
        return {"cpu_ns": cpu_ns(self.pid), "rss_kb": rss_kb(self.pid), **stats}


@functools.lru_cache(maxsize=None)
def daemon_options(path):
    """The names of the options that this daemon knows."""
    said = subprocess.run([path, "--help"], check=True, capture_output=True, text=True).stdout
    return frozenset(re.findall(r"^  (\w+) \(", said, re.MULTILINE))


class World:
    """Redis and daemons for one case."""

    def __init__(self, programs, cores=0, tcp=False):
        os.environ["LOCKBROKERD"] = os.path.join(programs, "lockbrokerd")
        self.cores = cores
        self.tcp = tcp
        self.lab = lockbroker.Lab()
        with pinned(cores):
            self.redis = self.lab.redis(tcp=tcp)
        self.sets = {}

    def __enter__(self):
        return self

    def __exit__(self, _, error, __):
        for brokers in self.sets.values():
            for broker in brokers:
                broker.line.close()
                if error:
                    error.add_note(" / ".join(broker.daemon.log().splitlines()[-LOG_LINES:]))
        with contextlib.redirect_stdout(io.StringIO()):  # the daemons' logs
            self.lab.__exit__()

    @property
    def redis_address(self):
        return f"127.0.0.1:{self.redis.port}" if self.tcp else self.redis.path

    @property
    def redis_pid(self):
        return self.redis.process.pid

    def path(self, name):
        return self.lab.path(name)

    def brokers(self, count, name="", **options):
        """The daemons of that name with these options, started when they are first asked for."""
        name = (count, name, *sorted(options.items()))
        if name not in self.sets:
            url = f"redis://{self.redis_address}" if self.tcp else self.redis
            with pinned(self.cores):
                self.sets[name] = [Broker(self.lab.daemon(url, log_level="notice", **options))
                                   for _ in range(count)]
        return self.sets[name]

    def redis_forget(self):
        """Begins Redis' statistics anew, so that those which are no sums are of what follows."""
        self.redis.client.config_resetstat()

    def redis_script_times(self):
        """How long each call of a script kept Redis from doing anything else."""
        found = self.redis.client.info("latencystats").get("latency_percentiles_usec_evalsha", {})
        return {f"script_{name.replace('.', '')}_us": float(us) for name, us in found.items()}

    def redis_usage(self):
        """CPU time, and calls and time by command."""
        stats = self.redis.client.info("commandstats")
        return {"cpu_ns": cpu_ns(self.redis_pid),
                "calls": {name[8:]: figures["calls"] for name, figures in stats.items()},
                "usec": {name[8:]: figures["usec"] for name, figures in stats.items()}}


def calls_between(before, after, names):
    return sum(after["calls"].get(name, 0) - before["calls"].get(name, 0) for name in names)


def usec_between(before, after, names):
    return sum(after["usec"].get(name, 0) - before["usec"].get(name, 0) for name in names)
