"""A thousand locks over one connection to Redis, renewed in few commands."""

import time

from lockbroker import LOCK_PREFIX, wait_until

LOCKS = 1000
TTL_MS = 3000
HELD_S = 30


def script_calls(redis):
    return redis.commands("evalsha", "eval")


def test_a_thousand_locks_are_held_for_half_a_minute(redis, daemon, key):
    clients = [daemon.client() for _ in range(4)]
    names = [f"{key}-{n}" for n in range(LOCKS)]
    ids = [clients[n % 4].send("acquire", key=name, owner=f"o{n}", ttl_ms=TTL_MS, wait_ms=5000)
           for n, name in enumerate(names)]
    grants = [clients[n % 4].reply(request_id) for n, request_id in enumerate(ids)]
    assert all(grant["ok"] for grant in grants), [g for g in grants if not g["ok"]][:3]

    calls, start = script_calls(redis), time.monotonic()
    while time.monotonic() - start < HELD_S:
        assert len(redis.broker_links()) == 1
        assert len(redis.locks()) == LOCKS
        time.sleep(1)
    calls, took = script_calls(redis) - calls, time.monotonic() - start
    assert calls >= took * 1000 / TTL_MS  # the count counts
    assert calls <= 20 * took, f"{calls / took:.1f} renewal commands a second"

    for n, name in enumerate(names):
        reply = clients[n % 4].ok("check", key=name, owner=f"o{n}")
        assert reply["held"] is True and reply["fence"] == grants[n]["fence"]
    assert not [m for client in clients for m in client.received if m.get("event") == "lost"]

    ids = [clients[n % 4].send("release", key=name, owner=f"o{n}") for n, name in enumerate(names)]
    outcomes = {clients[n % 4].reply(request_id)["outcome"] for n, request_id in enumerate(ids)}
    assert outcomes == {"released"}
    assert redis.locks() == []


def test_a_thousand_waiters_on_one_lock_are_one_contender(redis, daemon, key):
    redis.client.set(LOCK_PREFIX + key, "theirs")
    clients = [daemon.client() for _ in range(10)]
    for n in range(LOCKS):
        clients[n % 10].send("acquire", key=key, owner=f"o{n}", wait_ms=-1)
    probe = daemon.client()
    wait_until(lambda: probe.ok("query", key=key)["waiters"] == LOCKS, "all wait")
    calls, start = script_calls(redis), time.monotonic()
    time.sleep(5)
    assert script_calls(redis) - calls <= 25 * (time.monotonic() - start)
