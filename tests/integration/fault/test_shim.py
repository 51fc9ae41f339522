"""Rows 33, 51, 53 and 54: names, descriptors, the log and the processor, as the kernel and the C
library may give or refuse them. Where the real thing cannot be made, a shim (shim.c) stands in."""

import errno
import os
import resource
import signal
import socket
import sys
import time

import pytest

from fault_shim import Shim
from lockbroker import Process, lease_ms, margin_ms, now_ms, wait_until
from verdicts import assert_nothing_affirmed_after_lost, events, is_affirming

T = 5000  # ms, the ttl of most locks here
NOT_FOUND, TRY_AGAIN = -2, -3  # getaddrinfo's
LONG = 600000  # ms, longer than any test takes


@pytest.fixture
def named(lab):
    """A Redis with a port, and a function that makes a daemon that finds it by name."""
    redis = lab.redis(tcp=True)

    def make(**options):
        daemon = lab.new_daemon(f"redis://localhost:{redis.port}", **options)
        daemon.shim = Shim(daemon)
        return daemon
    return redis, make


def shimmed(lab, redis, **options):
    daemon = lab.new_daemon(redis, **options)
    daemon.shim = Shim(daemon)
    return daemon


def break_link(redis):
    for link in redis.broker_links():
        redis.client.client_kill_filter(_id=link["id"])


def wait_renewed(redis, key):
    """The key's time to live rises."""
    last = [redis.pttl(key)]

    def has_risen():
        last.append(redis.pttl(key))
        return last[-1] > last[-2]
    wait_until(has_risen, f"{key} is renewed")


def assert_lost_in_time(client, key, grant):
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired"
    assert lost["deadline_ms"] <= grant["deadline_ms"] + T
    assert lost.arrived_ms <= lost["deadline_ms"], "the loss came too late"
    assert_nothing_affirmed_after_lost(client)


# Row 33: DNS is slow or wrong.


def test_row_33_slow_name(named, key):
    _, make = named
    daemon = make(connect_timeout="30s")
    daemon.shim.set(resolve_ms=2000)
    daemon.start(up=False)
    client = daemon.client()
    waiting = client.send("acquire", key=key, ttl_ms=T, wait_ms=20000)
    answered = 0
    while not client.has(id=waiting):
        client.ok("ping")
        answered += 1
    # The channel's look-up begins when the link is up.
    assert daemon.shim.get("resolve_count") in (1, 2) and answered > 20
    assert client.reply(waiting)["waited_ms"] >= 1000


def test_row_33_name_that_is_not_resolved_in_time(named, key):
    redis, make = named
    daemon = make(connect_timeout="200ms")
    daemon.shim.set(resolve_ms=LONG)
    daemon.start(up=False)
    daemon.wait_log(event="redis_connect_failed", reason="the name was not resolved in time")
    client = daemon.client()
    assert client.fails("unavailable", "acquire", key=key)["reason"] == "down"
    assert redis.broker_links() == []
    begin = time.monotonic()
    daemon.sigterm()
    assert daemon.wait_exit() == 0, "a look-up under way must not hold up the end"
    assert time.monotonic() - begin < 20


def test_row_33_name_fails_while_a_lock_is_held(named, key):
    redis, make = named
    daemon = make(connect_timeout="500ms").start()
    client, other = daemon.client(), daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=T)
    daemon.shim.set(resolve_ms=LONG)
    break_link(redis)
    while not client.has(event="lost"):
        other.ok("ping")
    assert_lost_in_time(client, key, grant)


@pytest.mark.parametrize("error", [NOT_FOUND, TRY_AGAIN])
def test_row_33_name_is_unknown_for_a_while(named, key, error):
    redis, make = named
    daemon = make().start()
    client = daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=20000)
    before = daemon.shim.get("resolve_count")
    daemon.shim.set(resolve_error=error)
    break_link(redis)
    wait_until(lambda: daemon.shim.get("resolve_count") >= before + 3, "it is tried again")
    daemon.wait_log(event="redis_connect_failed")
    daemon.shim.set(resolve_error=0)
    daemon.wait_backend("up")
    assert client.ok("check", key=key, fence=grant["fence"])["held"] is True
    assert client.ok("release", key=key)["outcome"] == "released"
    assert redis.locks() == []


def test_row_33_name_leads_astray(named, key):
    """To where nobody listens, then to where somebody does who is not Redis."""
    redis, make = named
    daemon = make(connect_timeout="500ms")
    daemon.shim.resolve_to("127.0.0.2")
    daemon.start(up=False)
    daemon.wait_log(event="redis_connect_failed", reason="connection refused")
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.2", redis.port))
        stranger.listen()
        there = stranger.accept()[0]
        there.sendall(b"220 mail.example ESMTP\r\n")
        client = daemon.client()
        client.fails("unavailable", "acquire", key=key)
        asked = there.recv(65536)
        assert key.encode() not in asked and b"EVAL" not in asked
        there.close()
    daemon.shim.resolve_to("")
    daemon.wait_backend("up")
    client.ok("acquire", key=key, wait_ms=20000)


@pytest.mark.parametrize("host", ["a" * 254, "two words", "-flag", "a/b%2f", "host;id", "h\xf6st"])
def test_row_33_name_is_no_name(lab, host):
    daemon = lab.new_daemon(f"redis://{host}:6379")
    shim = Shim(daemon)
    daemon.launch()
    assert daemon.wait_exit() == 2
    assert "backend" in daemon.log() and shim.get("resolve_count") == 0


# Row 51: no descriptors.


class Exhausted:
    """No descriptor for the process: really, or by the shim's word for a whole system without."""

    def __init__(self, daemon, error):
        self.daemon = daemon
        self.error = error

    def __enter__(self):
        if self.error == errno.EMFILE:
            self.before = resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, (3, self.before[1]))
        else:
            self.daemon.shim.set(fd_errno=self.error)

    def __exit__(self, *_):
        if self.error == errno.EMFILE:
            resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, self.before)
        else:
            self.daemon.shim.set(fd_errno=0)


exhaustions = pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE],
                                      ids=["process", "system"])


@exhaustions
def test_row_51_no_descriptors(lab, redis, key, error):
    daemon = shimmed(lab, redis).start()
    client = daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=T)
    with Exhausted(daemon, error):
        late = [daemon.client() for _ in range(3)]
        asked = [c.send("ping") for c in late]
        paused = daemon.wait_log(event="accept_paused")
        begin, tries = time.monotonic(), daemon.shim.get("fd_failed")
        for _ in range(2):
            wait_renewed(redis, key)
            client.ok("ping")
        tries = daemon.shim.get("fd_failed") - tries
        assert 0 < tries < (time.monotonic() - begin) / 0.1 + 5, "it is not tried all the time"
        assert len(daemon.log_lines(event="accept_paused")) == len(paused) == 1
        assert not any(c.received or c.eof_ms for c in late)
    for c, request in zip(late, asked):
        assert c.reply(request)["ok"] is True
    assert client.ok("check", key=key, fence=grant["fence"])["state"] == "ok"
    assert not events(client, "suspect")


@exhaustions
def test_row_51_no_descriptor_for_a_new_link(lab, redis, key, error):
    daemon = shimmed(lab, redis).start()
    client, waiter = daemon.client(), daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=T)
    waiting = waiter.send("acquire", key=key, ttl_ms=T, wait_ms=60000)
    with Exhausted(daemon, error):
        break_link(redis)
        daemon.wait_log(event="redis_connect_failed")
        assert_lost_in_time(client, key, grant)
    assert waiter.reply(waiting, timeout=60)["ok"] is True
    assert waiter.ok("release", key=key)["outcome"] == "released"
    wait_until(lambda: redis.locks() == [], "nothing is left")


@exhaustions
def test_row_51_no_descriptor_for_a_reload(lab, key, error):
    path = lab.path("broker.conf")

    def configure(text):
        with open(path, "w", encoding="utf-8") as config:
            config.write(text)
    configure("ttl_max = 9s\n")
    daemon = shimmed(lab, "memory://", config=path).start()
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=9000)
    configure("ttl_max = 8s\n")
    with Exhausted(daemon, error):
        daemon.process.signal(signal.SIGHUP)
        daemon.wait_log(event="reload_failed")
        client.ok("extend", key=key, ttl_ms=9000)
    daemon.process.signal(signal.SIGHUP)
    daemon.wait_log(event="reload")
    client.fails("bad_field", "extend", key=key, ttl_ms=9000)


# Row 53: no room for the log, or nobody who reads it.


def dropped(client):
    return client.ok("stats")["counters"]["log_lines_dropped"]


def make_noise(client, key):
    """Two log lines at the level `debug`, and a lock that works."""
    client.ok("acquire", key=key, ttl_ms=T)
    client.ok("release", key=key)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EAGAIN, errno.EIO, errno.EDQUOT])
def test_row_53_log_cannot_be_written(lab, redis, key, error):
    daemon = shimmed(lab, redis, log_level="debug").start()
    client = daemon.client()
    daemon.shim.set(write_fd=2, write_errno=error)
    begin, length = dropped(client), len(daemon.log())
    for _ in range(20):
        make_noise(client, key)
    assert dropped(client) >= begin + 40
    assert len(daemon.log()) == length
    daemon.shim.set(write_errno=0)
    end = dropped(client)
    make_noise(client, key)
    daemon.wait_log(event="granted", key=key)
    assert dropped(client) == end


def test_row_53_no_room_at_all(lab, redis, key):
    daemon = lab.new_daemon(redis, log_level="debug")
    daemon.argv = ["/bin/sh", "-c", 'exec "$@" 2>/dev/full', "sh", *daemon.argv]
    daemon.start()
    client = daemon.client()
    make_noise(client, key)
    assert dropped(client) > 2 and daemon.log() == ""


class Deaf:
    """Standard error of a daemon: a pipe, or a socket as the journal's is, that nobody reads."""

    def __init__(self, daemon, kind):
        if kind == "pipe":
            self.near, far = os.pipe()
        else:
            pair = socket.socketpair()
            self.near, far = [end.detach() for end in pair]
        daemon.argv = ["/bin/bash", "-c", f'exec "$@" 2>&{far}', "bash", *daemon.argv]
        daemon.popen_options["pass_fds"] = [far]
        self.far = far

    def read_all(self):
        os.set_blocking(self.near, False)
        text = b""
        try:
            while data := os.read(self.near, 65536):
                text += data
        except BlockingIOError:
            pass
        return text

    def close(self):
        os.close(self.near)
        os.close(self.far)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_row_53_log_is_not_read(lab, redis, key, kind):
    daemon = lab.new_daemon(redis, log_level="debug")
    deaf = Deaf(daemon, kind)
    daemon.start()
    client, holder = daemon.client(), daemon.client()
    holder.ok("acquire", key=key, ttl_ms=T)
    while dropped(client) < 100:
        for _ in range(50):
            make_noise(client, key + "2")
    for _ in range(2):
        wait_renewed(redis, key)
        make_noise(client, key + "2")
    assert not holder.has(event="suspect") and not holder.has(event="lost")
    assert b"event=start " in deaf.read_all()
    make_noise(client, key + "3")
    wait_until(lambda: (key + "3").encode() in deaf.read_all(), "lines are written again")
    client.close()
    holder.close()
    daemon.stop()
    deaf.close()


# Row 54: no processor.


class Hogs:
    """Processes that use up the one processor that a daemon of the lowest standing may use."""

    def __init__(self, lab, daemon):
        self.cpu = min(os.sched_getaffinity(0))
        self.argv = [sys.executable, "-S", "-c",
                     f"import os\nos.sched_setaffinity(0, [{self.cpu}])\nwhile True: pass"]
        self.log = lab.path("hogs.log")
        self.pid = daemon.process.pid

    def __enter__(self):
        os.sched_setaffinity(self.pid, [self.cpu])
        os.sched_setscheduler(self.pid, os.SCHED_IDLE, os.sched_param(0))
        self.hogs = [Process(self.argv, self.log) for _ in range(3)]

    def __exit__(self, *_):
        for hog in self.hogs:
            hog.kill()


def is_ours(redis, key, message):
    """What the message affirms holds at this moment, or it affirms nothing any more."""
    value = redis.value(key)
    return message["deadline_ms"] <= now_ms() or (value or "").startswith("lb1:")


def test_row_54_processor_is_hogged(lab, redis, key):
    daemon = lab.daemon(redis)
    clients = [daemon.client() for _ in range(5)]
    keys = [f"{key}-{i}" for i in range(len(clients))]
    for client, name in zip(clients, keys):
        client.ok("acquire", key=name, ttl_ms=1000)
    with Hogs(lab, daemon):
        begin = time.monotonic()
        while time.monotonic() < begin + 5 or (
                not daemon.log_lines(event="late") and time.monotonic() < begin + 60):
            for client, name in zip(clients, keys):
                told = client.ok("check", key=name, timeout=120)
                assert not told["held"] or is_ours(redis, name, told), told
    for client in clients:
        for message in filter(is_affirming, client.received):
            assert message["valid_ms"] <= lease_ms(1000)
        if events(client, "lost"):
            assert_nothing_affirmed_after_lost(client)
    stats = clients[0].ok("stats", timeout=120)
    assert stats["counters"]["late_turns"] > 0 and stats["gauges"]["late_max_ms"] >= 50
    for client, name in zip(clients, keys):
        client.request("release", key=name)
        daemon.client().ok("acquire", key=name, wait_ms=20000, timeout=60)


def stall(daemon, ms):
    """The loop does nothing for so long, from its next turn on."""
    daemon.shim.set(stall_ms=ms)


def test_row_54_stalled_loop_tells_a_loss_first(lab, redis, key):
    daemon = shimmed(lab, redis).start()
    client = daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=T)
    stall(daemon, T + 500)
    asked = client.send("ping")
    wait_until(lambda: now_ms() > grant["deadline_ms"], "the lease ran out")
    check = client.send("check", key=key)
    assert client.reply(check)["held"] is False
    said = [m.get("event") or m["id"] for m in client.received[1:]]
    assert said[0] == "lost" or said[:2] == [asked, "lost"], said
    assert_nothing_affirmed_after_lost(client)
    late = daemon.wait_log(event="late")
    assert len(late) == 1 and client.ok("stats")["gauges"]["late_max_ms"] > 0


def test_row_54_short_stall_costs_nothing(lab, redis, key):
    daemon = shimmed(lab, redis).start()
    client = daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=20000)
    stall(daemon, 8000)  # the renewal was due at 6666
    client.ok("ping")
    wait_until(lambda: client.ok("check", key=key)["deadline_ms"] > grant["deadline_ms"],
               "it is renewed after all")
    again = client.ok("check", key=key, fence=grant["fence"])
    assert again["held"] is True and redis.pttl(key) > 10000
    assert again["deadline_ms"] <= now_ms() + lease_ms(20000)
    assert margin_ms(20000) < again["valid_ms"] and not events(client, "lost")
    daemon.wait_log(event="late")


def test_row_54_watchdog_sees_a_stalled_loop(lab, redis, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    daemon = shimmed(lab, redis).start()
    daemon.wait_notified("WATCHDOG=1")
    stall(daemon, 4000)
    wait_until(lambda: daemon.shim.get("stall_ms") == 0, "the stall begins")
    begin = time.monotonic()
    with pytest.raises(BlockingIOError):
        while True:
            daemon.notifications.recv(4096)
    daemon.wait_notified("WATCHDOG=1")
    assert time.monotonic() - begin > 2, "fed by a loop that does not turn"
