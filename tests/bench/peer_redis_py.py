#!/usr/bin/python3
"""The load program of the benchmarks, for the peers in Python.

Its options and what it writes are those of bench_load (main.c). A contender is a process. Peers:

    redis-py         redis.lock.Lock, with its defaults: it asks again each 0.1 s
    redis-py-50ms    the same, but it asks each 50 ms
    redis-py-thread  the same, with a thread for each lock that is held, which renews it
    lockbroker-py    the broker, by the thinnest client that makes sense
"""

import argparse
import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
from array import array
from collections import Counter

import redis
import redis.exceptions

EXIT_NO_SHAPE = 3
PAUSE_S = 0.02  # after an error
CONNECT_S = 60  # how long all may take to connect


class Over(BaseException):
    """The deadline came while a contender waited."""


class Lost(Exception):
    """The lock that was released had been lost before."""


def redis_client(address):
    if "/" in address or ":" not in address:
        return redis.Redis(unix_socket_path=address)
    host, _, port = address.rpartition(":")
    return redis.Redis(host=host, port=int(port))


class RedisPy:
    """The lock is made once and used again and again, which saves the peer some work."""

    sleep = 0.1

    def __init__(self, options, number):
        self.client = redis_client(options.redis)
        self.client.ping()
        self.lock = self.client.lock(key_name(options, number), timeout=options.ttl_ms / 1000,
                                     sleep=self.sleep)

    def acquire(self):
        self.lock.acquire()

    def release(self):
        try:
            self.lock.release()
        except redis.exceptions.LockError as error:
            raise Lost from error


class RedisPy50ms(RedisPy):
    sleep = 0.05


class Renewer:
    """A lock with a thread that renews it when a third of its time to live is over."""

    def __init__(self, client, key, ttl_ms):
        self.ttl_s = ttl_ms / 1000
        self.lock = client.lock(key, timeout=self.ttl_s, thread_local=False)
        self.failure = None
        self.stop = None
        self.thread = None

    def acquire(self):
        self.lock.acquire()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._renew, args=(self.stop,), daemon=True)
        self.thread.start()

    def _renew(self, stop):
        while not stop.wait(self.ttl_s / 3):
            try:
                self.lock.extend(self.ttl_s, replace_ttl=True)
            except redis.exceptions.RedisError as error:
                self.failure = error
                return

    def release(self):
        self.stop.set()
        self.thread.join()
        self.lock.release()


class RedisPyThread(RedisPy):
    def __init__(self, options, number):
        super().__init__(options, number)
        self.lock = Renewer(self.client, key_name(options, number), options.ttl_ms)


class BrokerError(Exception):
    """The broker refused; its text is the error's name."""


class LockbrokerPy:
    def __init__(self, options, number):
        self.key = key_name(options, number)
        self.ttl_ms = options.ttl_ms
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(options.broker[number % len(options.broker)])
        self.pending = b""
        self.id = 0
        self.fence = None

    def _line(self):
        while True:
            line, end, rest = self.pending.partition(b"\n")
            if end:
                self.pending = rest
                return line
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self.pending += data

    def _call(self, **request):
        self.id += 1
        request["id"] = self.id
        self.sock.sendall(json.dumps(request).encode() + b"\n")
        while True:
            reply = json.loads(self._line())
            if reply.get("id") != self.id:
                continue  # an event
            if not reply["ok"]:
                raise BrokerError(reply["error"])
            return reply

    def acquire(self):
        self.fence = self._call(op="acquire", key=self.key, ttl_ms=self.ttl_ms, wait_ms=-1)["fence"]

    def release(self):
        reply = self._call(op="release", key=self.key, fence=self.fence)
        if reply["outcome"] != "released":
            raise Lost


PEERS = {
    "redis-py": RedisPy,
    "redis-py-50ms": RedisPy50ms,
    "redis-py-thread": RedisPyThread,
    "lockbroker-py": LockbrokerPy,
}


def key_name(options, number):
    return options.key if options.keys == "one" else f"{options.key}-{number}"


class Span:
    """When it is measured: from `began` to `ended`, after the warm-up."""

    def __init__(self, options, start_ns):
        self.start_ns = start_ns
        self.began_ns = start_ns + options.warm_ms * 1000000
        self.ended_ns = self.began_ns + options.run_ms * 1000000


def sleep_until(until_ns):
    left_ns = until_ns - time.monotonic_ns()
    if left_ns > 0:
        time.sleep(left_ns / 1e9)


class Contender:
    def __init__(self, options, number, peer):
        self.options = options
        self.number = number
        self.peer = peer
        self.records = array("q")
        self.errors = Counter()
        self.lost = 0
        self.is_waiting = False
        self.span = None

    def _on_deadline(self, *_):
        if self.is_waiting:
            raise Over

    def _acquire(self):
        """When it asked and got it. First the mark, then a look at the clock: one sees the end."""
        try:
            self.is_waiting = True
            if time.monotonic_ns() >= self.span.ended_ns:
                self.is_waiting = False
                raise Over
            asked_ns = time.monotonic_ns()
            self.peer.acquire()
            granted_ns = time.monotonic_ns()
            self.is_waiting = False
            return asked_ns, granted_ns
        except (redis.exceptions.RedisError, BrokerError) as error:
            self.is_waiting = False
            self.errors[str(error) or type(error).__name__] += 1
            time.sleep(PAUSE_S)
            return None

    def _release(self):
        releasing_ns = time.monotonic_ns()
        try:
            self.peer.release()
        except Lost:
            self.lost += 1
        except (redis.exceptions.RedisError, BrokerError) as error:
            self.errors[str(error) or type(error).__name__] += 1
        return releasing_ns, time.monotonic_ns()

    def _cycle(self):
        acquired = self._acquire()
        if not acquired:
            return
        asked_ns, granted_ns = acquired
        if self.options.hold_us:
            sleep_until(granted_ns + self.options.hold_us * 1000)
        releasing_ns, released_ns = self._release()
        if asked_ns >= self.span.began_ns:
            self.records.extend((self.number, asked_ns, granted_ns, releasing_ns, released_ns))
        if self.options.think_us:
            sleep_until(released_ns + self.options.think_us * 1000)

    def run(self, span):
        self.span = span
        signal.signal(signal.SIGALRM, self._on_deadline)
        signal.setitimer(signal.ITIMER_REAL, (span.ended_ns - time.monotonic_ns()) / 1e9)
        sleep_until(span.start_ns)
        try:
            while True:
                self._cycle()
        except Over:
            pass

    def summary(self):
        return {"cycles": len(self.records) // 5, "errors": self.errors, "lost": self.lost}


def write_whole(fd, data):
    if os.write(fd, data) != len(data):
        raise OSError("short write")


def child_main(options, number, start, pipes):
    """One contender; its records go to the file, and what else it has to tell into a pipe."""
    contender = Contender(options, number, PEERS[options.peer](options, number))
    write_whole(pipes["ready"][1], b"r")
    os.close(pipes["go"][1])
    os.read(pipes["go"][0], 1)
    contender.run(Span(options, struct.unpack("q", start[:8])[0]))
    file = os.open(options.records, os.O_WRONLY | os.O_APPEND)
    if contender.records:
        write_whole(file, contender.records.tobytes())
    write_whole(pipes["told"][1], json.dumps(contender.summary()).encode() + b"\n")


def child_start(options, number, start, pipes):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        child_main(options, number, start, pipes)
        status = 0
    except Exception as error:  # pylint: disable=broad-except  # told, and then it ends
        print(f"peer_redis_py: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(status)


def wait_until_ready(pipes, count):
    """A byte from each; when one fails, it ends, and the pipe has no byte of it."""
    end = time.monotonic() + CONNECT_S
    os.set_blocking(pipes["ready"][0], False)
    while count:
        try:
            count -= len(os.read(pipes["ready"][0], count))
        except BlockingIOError:
            # Whoever ended stays a zombie, so that its id is nobody else's when all are killed.
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended or time.monotonic() > end:
                return False
            time.sleep(0.005)
    return True


def run(options):
    with open(options.records, "wb"):
        pass
    pipes = {name: os.pipe() for name in ("ready", "go", "told")}
    start = mmap.mmap(-1, 8)
    pids = [child_start(options, i, start, pipes) for i in range(options.contenders)]
    if not wait_until_ready(pipes, options.contenders):
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return 1
    span = Span(options, time.monotonic_ns() + 20000000)
    start[:8] = struct.pack("q", span.start_ns)
    for name, end in (("go", 1), ("told", 1)):
        os.close(pipes[name][end])
    with os.fdopen(pipes["told"][0], "rb") as told:
        summaries = [json.loads(line) for line in told]
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    if any(statuses) or len(summaries) != options.contenders:
        print("peer_redis_py: a contender failed", file=sys.stderr)
        return 1
    errors = sum((Counter(summary["errors"]) for summary in summaries), Counter())
    print(json.dumps({"peer": options.peer, "began_ns": span.began_ns, "ended_ns": span.ended_ns,
                      "cycles": sum(summary["cycles"] for summary in summaries), "errors": errors,
                      "lost": sum(summary["lost"] for summary in summaries)}))
    return 0


def hold(options):
    """As many locks as told, each with its thread; all share a client, as it is meant to be used."""
    client = redis_client(options.redis)
    locks = []
    told = {"peer": options.peer}
    try:
        for number in range(options.hold_many):
            lock = Renewer(client, f"{options.key}-{number}", options.ttl_ms)
            lock.acquire()
            locks.append(lock)
    except (RuntimeError, redis.exceptions.RedisError) as error:  # no more threads, or connections
        told["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps({**told, "held": len(locks)}), flush=True)
    sys.stdin.read()
    print(json.dumps({"peer": options.peer, "lost": sum(bool(lock.failure) for lock in locks)}),
          flush=True)
    os._exit(0)  # without a word to ten thousand threads


def parse(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True, choices=PEERS)
    parser.add_argument("--redis")
    parser.add_argument("--broker", action="append", default=[])
    parser.add_argument("--records")
    parser.add_argument("--key", required=True)
    parser.add_argument("--keys", choices=("distinct", "one"), default="distinct")
    parser.add_argument("--contenders", type=int)
    parser.add_argument("--shape", choices=("processes", "connections"))
    parser.add_argument("--hold-us", type=int, default=0)
    parser.add_argument("--think-us", type=int, default=0)
    parser.add_argument("--ttl-ms", type=int, default=10000)
    parser.add_argument("--warm-ms", type=int, default=0)
    parser.add_argument("--run-ms", type=int)
    parser.add_argument("--hold-many", type=int)
    options = parser.parse_args(arguments)
    if not (options.broker if options.peer == "lockbroker-py" else options.redis):
        parser.error("the address of the broker or of Redis is missing")
    if options.hold_many is None and not (options.records and options.contenders and options.run_ms):
        parser.error("--records, --contenders and --run-ms are needed")
    if options.hold_many is not None and options.peer != "redis-py-thread":
        parser.error("--hold-many is for redis-py-thread only")
    return options


def main():
    options = parse(sys.argv[1:])
    if options.hold_many is not None:
        return hold(options)
    if options.shape == "connections":
        return EXIT_NO_SHAPE
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
