"""A client in the chaos: takes locks, counts under them, gives them back, and keeps a diary.

    client.py BROKER_SOCKET STORE_SOCKET DIARY SEED KEYS [FLAW]

It honours the contract: a grant is used only until the last deadline that it was told for it, and
not any more once `lost` was read. Each line of the diary is one write() of a JSON list that begins
with a word and the time on CLOCK_BOOTTIME in seconds; killing the process at any point loses
nothing that happened before. SIGTERM: ends after the present turn. With the FLAW `relies_too_long`
it breaks the contract: `lost` is nothing to it, and each deadline is 3 s later. So the judge can be
judged.
"""

import json
import os
import random
import select
import signal
import socket
import sys
import time

TTLS_MS = (1000, 1000, 1500, 2000)
WAITS_MS = (0, 300, 3000, 3000)
THINK_S = (0, 0, 0, 0.01, 0.01, 0.05, 0.05, 0.1, 0.3, 1.5)


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Diary:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, word, *details, at=None):
        line = json.dumps([word, now() if at is None else at, *details])
        os.write(self.fd, line.encode() + b"\n")


class Store:
    """The other end of store.py; each access tells the fence."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")

    def access(self, verb, key, fence, base=None):
        """The counter's value, or None where the fence is too old."""
        self.sock.sendall(json.dumps([verb, key, fence, base]).encode() + b"\n")
        return json.loads(self.file.readline())


class Hangup(Exception):
    """The broker has closed the connection, or its process is gone."""


class Connection:
    """The protocol by hand, one request at a time; events come through `on_event`."""

    def __init__(self, path, diary, on_event):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.diary = diary
        self.on_event = on_event
        self.pending = b""
        self.next_id = 1
        self.replies = {}

    def read(self, timeout):
        """Takes in what comes within the time, None: at all."""
        if not select.select([self.sock], [], [], timeout)[0]:
            return
        try:
            data = self.sock.recv(65536)
        except OSError:
            data = b""
        if not data:
            raise Hangup
        *lines, self.pending = (self.pending + data).split(b"\n")
        for message in map(json.loads, lines):
            if "event" in message:
                self.on_event(message)
            else:
                self.replies[message["id"]] = message

    def request(self, op, **fields):
        number = self.next_id
        self.next_id += 1
        self.diary.note("asked", number, op)
        try:
            self.sock.sendall(json.dumps({"id": number, "op": op, **fields}).encode() + b"\n")
        except OSError as error:
            raise Hangup from error
        while number not in self.replies:
            self.read(None)
        self.diary.note("answered", number)
        return self.replies.pop(number)


class Client:
    def __init__(self, broker, store, diary, seed, keys, flaw=None):
        self.broker = broker
        self.diary = Diary(diary)
        self.store = Store(store)
        self.rng = random.Random(seed)
        self.keys = keys
        self.flaw = flaw
        self.connection = None
        self.ending = False
        self.grant = None     # (key, fence) while it is in use
        self.deadline = 0     # in seconds
        self.lost = set()     # grants that `lost` was read for
        signal.signal(signal.SIGTERM, self.end)

    def end(self, *_):
        self.ending = True

    def run(self):
        while not self.ending:
            try:
                if not self.connection:
                    self.connect()
                self.turn()
            except Hangup:
                self.hang_up()
            except OSError:  # the broker is away
                time.sleep(0.02)
        self.diary.note("bye")

    def connect(self):
        self.connection = Connection(self.broker, self.diary, self.on_event)
        self.diary.note("connected")

    def hang_up(self):
        """A grant in use might be relied on until its deadline: so it counts, as it has no end."""
        self.diary.note("hangup")
        self.connection.sock.close()
        self.connection = None
        self.grant = None

    def on_event(self, event):
        grant = (event["key"], event["fence"])
        if event["event"] == "lost":
            self.lost.add(grant)
            if self.grant == grant and not self.flaw:
                self.stop_using("lost")
        elif self.grant == grant and event["event"] in ("ok", "suspect"):
            self.told(event["deadline_ms"])

    def told(self, deadline_ms):
        deadline = deadline_ms / 1000 + (3 if self.flaw else 0)
        if deadline != self.deadline:
            self.deadline = deadline
            self.diary.note("deadline", *self.grant, deadline)

    def stop_using(self, why):
        """The time is taken first: from then on the grant is not relied on."""
        at = now()
        self.diary.note("end", *self.grant, why, at=at)
        self.grant = None

    def may_use(self):
        """What a careful user asks right before each use."""
        if self.connection:
            self.connection.read(0)
        if self.grant and now() >= self.deadline:
            self.stop_using("deadline")
        return self.grant is not None

    def turn(self):
        key = self.rng.choice(self.keys)
        options = self.rng.choice([{}, {}, {"renew": False}, {"max_hold_ms": 1200}])
        reply = self.connection.request("acquire", key=key, ttl_ms=self.rng.choice(TTLS_MS),
                                        wait_ms=self.rng.choice(WAITS_MS), **options)
        if not reply["ok"]:
            self.diary.note("refused", key, reply["error"], reply.get("reason"))
            time.sleep(self.rng.uniform(0, 0.05))
            return
        grant = (key, reply["fence"])
        self.diary.note("granted", *grant)
        self.grant = grant
        self.told(reply["deadline_ms"])
        if grant in self.lost and not self.flaw:  # it came with the same read
            self.stop_using("lost")
        self.count(*grant)
        if self.grant:
            self.stop_using("released")
        released = self.connection.request("release", key=key, fence=reply["fence"])
        self.diary.note("released", key, reply["fence"],
                        released.get("outcome") or released.get("error"))
        time.sleep(self.rng.uniform(0, 0.03))

    def count(self, key, fence):
        """Reads, thinks, writes one more; again and again in a long turn."""
        for _ in range(1 if self.flaw else self.rng.choice([1, 1, 1, 2, 8])):
            if not self.may_use():
                return
            value = self.store.access("read", key, fence)
            self.think(2 if self.flaw else self.rng.choice(THINK_S))
            if value is None or not self.may_use():
                return
            self.store.access("write", key, fence, value)

    def think(self, seconds):
        """A while in which events are listened to; perhaps more time is asked for then."""
        end = now() + seconds
        while self.grant and (left := end - now()) > 0:
            self.connection.read(min(left, 0.1))
        choice = self.rng.choice(["check", "check", "extend", None, None])
        if self.grant and choice:
            key, fence = self.grant
            more = {"ttl_ms": self.rng.choice(TTLS_MS)} if choice == "extend" else {}
            state = self.connection.request(choice, key=key, fence=fence, **more)
            if self.grant and state["ok"] and state.get("held", True):
                self.told(state["deadline_ms"])
            elif self.grant and state.get("error") in (None, "not_held"):
                self.stop_using("not held")


if __name__ == "__main__":
    Client(*sys.argv[1:5], sys.argv[5].split(","), *sys.argv[6:]).run()
