"""Rows 25, 26 and 55: clocks that jump, of Redis and of the broker's own host."""

import glob
import os
import subprocess
import time

import pytest
from lockbroker import assert_error, now_ms, wait_until
from server_clock import ClockedRedis, ServerClock, is_available
from verdicts import assert_nothing_affirmed_after_lost, events

pytestmark = pytest.mark.skipif(not is_available(), reason="libfaketime is not installed")

T = 6000  # ms, the ttl of most locks here
HOUR_MS = 3600 * 1000


@pytest.fixture
def redis(lab):
    """A server with a clock that can be stepped."""
    directory = lab.path("clocked")
    os.mkdir(directory)
    server = ClockedRedis(directory)
    server.clock = ServerClock(lab.path("redis.clock"))
    lab.started.append(server)
    return server.start()


def server_ms(redis):
    seconds, microseconds = redis.client.time()
    return seconds * 1000 + microseconds // 1000


def assert_promise_is_kept(redis, client, key):
    """The deadline that the client is told is not later than the key's own."""
    told = client.ok("check", key=key)
    pttl = redis.pttl(key)
    if told["held"] and told.arrived_ms < now_ms():
        assert told["deadline_ms"] <= now_ms() + pttl, (told, pttl)


# Redis' clock goes forwards.


def test_row_25_an_hour_forwards_loses_what_has_expired(redis, daemon, client, key):
    grant = client.ok("acquire", key=key, ttl_ms=T)
    before_ms = server_ms(redis)
    redis.clock.step(HOUR_MS)
    assert server_ms(redis) - before_ms > HOUR_MS - 1000
    lost = client.event("lost", key=key)
    assert lost["fence"] == grant["fence"]
    assert lost.arrived_ms < grant["deadline_ms"] + T, "at the next renewal"
    assert_nothing_affirmed_after_lost(client)
    second = client.ok("acquire", key=key + "2", ttl_ms=T, wait_ms=-1)
    assert second["fence"] > grant["fence"] + (HOUR_MS - 10000) * 1000
    third = client.ok("acquire", key=key, ttl_ms=T, wait_ms=-1)
    assert third["fence"] > second["fence"]
    time.sleep(T / 1000)
    assert client.ok("check", key=key)["state"] == "ok" and len(events(client, "lost")) == 1


def test_row_25_a_step_that_leaves_time_is_seen_at_the_next_reply(redis, daemon, key):
    """Any reply will do, also one about another lock: deadlines are drawn nearer at once."""
    holder, other = daemon.client(), daemon.client()
    grant = holder.ok("acquire", key=key, ttl_ms=30000)
    step_ms = 8000
    redis.clock.step(step_ms)
    assert now_ms() + redis.pttl(key) < grant["deadline_ms"], "the promise is broken for now"
    other.request("query", key=key + "2")
    suspect = holder.event("suspect", key=key)
    assert suspect["reason"] == "clock" and suspect["fence"] == grant["fence"]
    assert suspect["deadline_ms"] <= grant["deadline_ms"] - step_ms + 1000
    ok = holder.event("ok", key=key)
    assert ok["deadline_ms"] > suspect["deadline_ms"]
    assert ok["deadline_ms"] <= now_ms() + redis.pttl(key)
    assert not events(holder, "lost")


@pytest.mark.parametrize("ttl_ms,step_ms", [(6000, 250), (30000, 450)])
def test_row_25_a_step_within_the_tolerance_breaks_no_promise(redis, client, key, ttl_ms, step_ms):
    client.ok("acquire", key=key, ttl_ms=ttl_ms, renew=False)
    redis.clock.step(step_ms)
    for _ in range(50):
        assert_promise_is_kept(redis, client, key)
        time.sleep(0.02)
    assert not events(client, "lost")


def test_row_25_a_waiter_is_granted_after_steps_in_both_directions(redis, daemon, client, key):
    """Commands carry the time until which they may run: it is estimated anew when it was wrong."""
    holder = daemon.client()
    holder.ok("acquire", key=key, ttl_ms=T)
    fences = []
    for step_ms in (HOUR_MS, -HOUR_MS, 20000, -20000):
        redis.clock.step(step_ms)
        grant = client.ok("acquire", key=f"{key}{step_ms}", ttl_ms=T, wait_ms=10000)
        fences.append(grant["fence"])
        assert client.ok("release", key=f"{key}{step_ms}")["outcome"] == "released"
    assert fences == sorted(set(fences))


# Redis' clock goes backwards.


def test_row_26_an_hour_backwards_ends_nothing(redis, daemon, client, key):
    held = client.ok("acquire", key=key, ttl_ms=T)
    first = client.ok("acquire", key=key + "2", ttl_ms=T)
    before_ms = server_ms(redis)
    redis.clock.step(-HOUR_MS)
    assert server_ms(redis) < before_ms
    end = time.monotonic() + 2 * T / 1000
    while time.monotonic() < end:
        check = client.ok("check", key=key)
        assert check["held"] is True and check["state"] == "ok"
        assert_promise_is_kept(redis, client, key)
        time.sleep(0.05)
    assert not events(client, "lost") and not events(client, "suspect")
    assert client.ok("release", key=key + "2")["outcome"] == "released"
    again = client.ok("acquire", key=key + "2", ttl_ms=T, wait_ms=10000)
    assert again["fence"] > max(first["fence"], held["fence"])
    for name in (key, key + "2"):
        assert client.ok("release", key=name)["outcome"] == "released"
    assert redis.locks() == []


def test_row_26_fences_rise_when_the_counter_is_lost_as_well(redis, client, key):
    first = client.ok("acquire", key=key, ttl_ms=T)
    client.ok("release", key=key)
    redis.clock.step(-HOUR_MS)
    redis.client.flushall()
    again = client.ok("acquire", key=key, ttl_ms=T, wait_ms=10000)
    assert again["fence"] > first["fence"]


# The clocks of the broker's own host.


def preload():
    """libfaketime, and the sanitizer's library before it where the daemon is built with it."""
    listed = subprocess.run(["ldd", os.path.join(os.environ["LOCKBROKER_BIN"], "lockbrokerd")],
                            capture_output=True, text=True, check=True).stdout
    asan = [line.split()[2] for line in listed.splitlines() if "libasan" in line]
    return ":".join(asan + sorted(glob.glob("/usr/lib/*/faketime/libfaketime.so.1"))[-1:])


class HostClock:
    """The clocks of a daemon: the wall clock alone, or all of them as after a suspend."""

    def __init__(self, lab, daemon, wall_only):
        self.path = lab.path("host.clock")
        self.set(0)
        environment = {"LD_PRELOAD": preload(), "FAKETIME_TIMESTAMP_FILE": self.path,
                       "FAKETIME_NO_CACHE": "1"}
        if wall_only:
            environment["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        # env(1), since Process gives the daemon an environment of its own
        daemon.argv = ["env"] + [f"{k}={v}" for k, v in environment.items()] + daemon.argv

    def set(self, ms):
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write(f"{ms / 1000:+.3f}\n")
        os.rename(self.path + ".new", self.path)


def test_row_55_after_a_suspend_the_first_word_is_lost(lab, key):
    """All clocks but those of Redis jump, as for a host that slept for an hour."""
    redis = lab.redis()
    daemon = lab.new_daemon(redis)
    clock = HostClock(lab, daemon, wall_only=False)
    daemon.start()
    holder = daemon.client()
    grant = holder.ok("acquire", key=key, ttl_ms=T)
    began_ms = holder.ok("ping")["now_ms"]
    marks = len(holder.received)
    clock.set(HOUR_MS)
    holder.send("check", key=key, id="check")
    holder.send("extend", key=key, id="extend")
    assert holder.reply("check")["held"] is False
    assert_error(holder.reply("extend"), "not_held")
    assert holder.ok("ping")["now_ms"] - began_ms >= HOUR_MS
    first = holder.received[marks]
    assert first["event"] == "lost" and first["fence"] == grant["fence"], first
    assert first["reason"] == "expired"
    assert_nothing_affirmed_after_lost(holder)
    wait_until(lambda: redis.locks() == [], "nobody renews what was lost")


def test_row_55_jumps_of_the_wall_clock_have_no_effect(lab, key):
    redis = lab.redis()
    daemon = lab.new_daemon(redis)
    clock = HostClock(lab, daemon, wall_only=True)
    daemon.start()
    client = daemon.client()
    grant = client.ok("acquire", key=key, ttl_ms=T)
    for ms in (HOUR_MS, -HOUR_MS, 0):
        clock.set(ms)
        sent_ms = now_ms()
        pong = client.ok("ping")
        assert sent_ms <= pong["now_ms"] <= pong.arrived_ms
        time.sleep(T / 2000)
        name = f"{key}{ms}"
        assert client.ok("acquire", key=name, ttl_ms=T)["fence"] > grant["fence"]
        assert client.ok("release", key=name)["outcome"] == "released"
    check = client.ok("check", key=key)
    assert check["held"] is True and check["state"] == "ok"
    assert not events(client, "lost") and not events(client, "suspect")
    wait_until(lambda: redis.pttl(key) > T / 2, "it is renewed")
