"""Outcomes that are not known, restarts of Redis, and expiries that somebody else changes.

The fault matrix in the folder `fault` has the rest of what Redis can do to a broker.
"""

import time

from lockbroker import LOCK_PREFIX, wait_until
from verdicts import events

T = 3000  # ms, the ttl of most locks here


# What Redis did is not known.


def test_a_try_with_an_unknown_outcome_leaves_no_key(redis, daemon, client, key):
    client.ok("acquire", key=key + "-warm")
    client.ok("release", key=key + "-warm")
    redis.sigstop()
    reply = client.fails("unavailable", "acquire", timeout=10, key=key)
    assert reply["reason"] == "down" and 0 < reply["may_block_ms"] <= 32000
    redis.sigcont()
    daemon.wait_backend("up")
    wait_until(lambda: redis.locks() == [], "no key of nobody stays", timeout=10)
    client.ok("acquire", key=key, wait_ms=10000)
    client.ok("release", key=key)
    wait_until(lambda: redis.locks() == [], "still none", timeout=10)


def test_a_waiter_survives_an_unknown_outcome(redis, client, key):
    client.ok("acquire", key=key + "-warm")
    redis.sigstop()
    waiting = client.send("acquire", key=key, wait_ms=-1)
    wait_until(lambda: client.ok("ping")["backend"] == "down", "the link is given up")
    redis.sigcont()
    assert client.reply(waiting)["ok"] is True
    client.ok("release", key=key)
    assert redis.value(key) is None


def test_a_release_that_is_not_confirmed_says_so(redis, daemon, client, key):
    client.ok("acquire", key=key)
    redis.sigstop()
    reply = client.ok("release", timeout=10, key=key)
    assert reply["outcome"] == "unconfirmed" and 0 < reply["frees_within_ms"] <= 31000
    redis.sigcont()
    wait_until(lambda: redis.locks() == [], "it is made up for", timeout=10)
    client.fails("not_held", "release", key=key)


def test_a_client_that_ends_while_redis_is_down(redis, daemon, key):
    client = daemon.client()
    client.ok("acquire", key=key)
    redis.sigstop()
    client.close()
    probe = daemon.client()
    wait_until(lambda: probe.ok("ping")["backend"] == "down", "the link is given up")
    redis.sigcont()
    wait_until(lambda: redis.locks() == [], "the key is given back late", timeout=10)


# Redis dies, or is not there yet.


def test_redis_silent_at_the_start(lab, key):
    redis = lab.redis()
    redis.sigstop()
    daemon = lab.daemon(redis, up=False)
    daemon.wait_notified("READY=1")
    client = daemon.client()
    start = time.monotonic()
    assert client.fails("unavailable", "acquire", key=key)["reason"] == "down"
    assert time.monotonic() - start < 4
    waiting = client.send("acquire", key=key, wait_ms=-1)
    redis.sigcont()
    assert client.reply(waiting)["ok"] is True


def test_redis_killed_and_restarted(redis, daemon, client, key):
    holder = daemon.client()
    holder.ok("acquire", key=key, ttl_ms=T)
    waiting = client.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
    client.ok("ping")
    redis.kill()
    daemon.wait_backend("down")
    assert client.fails("unavailable", "acquire", key=key + "2")["reason"] == "down"
    redis.start()
    daemon.wait_backend("up")
    assert holder.event("lost", key=key)["reason"] in ("deleted", "expired")
    assert client.reply(waiting)["ok"] is True
    time.sleep(T / 1000)
    assert client.ok("check", key=key)["held"] is True


def test_redis_restarted_with_its_data(lab, key):
    redis = lab.redis("--appendonly", "yes", "--appendfsync", "always")
    client = lab.daemon(redis).client()
    grant = client.ok("acquire", key=key, ttl_ms=12000)
    redis.kill()
    redis.start()
    assert client.event("suspect", key=key)["reason"] == "restarted"
    assert client.event("ok", key=key)["deadline_ms"] > grant["deadline_ms"]
    assert client.ok("check", key=key)["state"] == "ok"
    assert client.ok("release", key=key)["outcome"] == "released"


def test_connections_cut_again_and_again(redis, daemon, client, key):
    names = [f"{key}-{n}" for n in range(20)]
    for name in names:
        client.ok("acquire", key=name, ttl_ms=T)
    for _ in range(20):
        redis.client.client_kill_filter(_type="normal", skipme=True)
        time.sleep(0.25)
    assert not events(client, "lost")
    for name in names:
        assert client.ok("release", key=name)["outcome"] in ("released", "unconfirmed")
    wait_until(lambda: redis.locks() == [], "all is given back", timeout=10)


# Somebody meddles with the key.


def test_an_expiry_set_nearer_is_pushed_out_again(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=9000)
    redis.client.pexpire(LOCK_PREFIX + key, 5000)
    wait_until(lambda: redis.pttl(key) > 5000, "renewed", timeout=10)
    assert client.ok("check", key=key)["held"] is True


def test_an_expiry_set_further_is_not_drawn_nearer(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.pexpire(LOCK_PREFIX + key, 100000)
    time.sleep(T / 1000)
    assert redis.pttl(key) > 90000
    assert client.ok("release", key=key)["outcome"] == "released"


def test_flushed(redis, client, key):
    for n in range(5):
        client.ok("acquire", key=f"{key}-{n}", ttl_ms=T)
    redis.client.flushall()
    for n in range(5):
        assert client.event("lost", key=f"{key}-{n}")["reason"] == "deleted"
