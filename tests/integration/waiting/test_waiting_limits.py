"""Limits on who waits, tries that are answered from what is known, and what the log says of long waits."""

import time

from lockbroker import LOCK_PREFIX, assert_error, wait_until


def waits(client, key, **fields):
    """Sends an acquire that will wait, and sees to it that it does."""
    before = client.ok("stats")["gauges"]["waiting"]
    request = client.send("acquire", key=key, wait_ms=60000, **fields)
    wait_until(lambda: client.ok("stats")["gauges"]["waiting"] == before + 1, "one more that waits")
    return request


def test_so_many_may_wait_for_one_lock(lab, redis, key):
    daemon = lab.daemon(redis, waiters_key_max=2)
    holder, one, two, three = (daemon.client() for _ in range(4))
    holder.ok("acquire", key=key)
    first = waits(one, key)
    waits(two, key)
    assert three.fails("quota", "acquire", key=key, wait_ms=60000)["limit"] == "waiters_key_max"
    three.fails("busy", "acquire", key=key)
    three.ok("acquire", key=key + "/other", wait_ms=60000)
    one.ok("cancel", target=first)
    waits(three, key)
    assert holder.ok("stats")["counters"]["quota_refused"] == 1


def test_so_many_may_wait_on_one_connection(lab, redis, key):
    daemon = lab.daemon(redis, waiters_client_max=2)
    holder, client, other = (daemon.client() for _ in range(3))
    for name in "abc":
        holder.ok("acquire", key=f"{key}/{name}")
    waits(client, f"{key}/a")
    waits(client, f"{key}/b", owner="one")
    refused = client.fails("quota", "acquire", key=f"{key}/c", wait_ms=60000)
    assert refused["limit"] == "waiters_client_max"
    client.fails("busy", "acquire", key=f"{key}/c")
    waits(other, f"{key}/c")
    holder.ok("release", key=f"{key}/a")
    wait_until(lambda: client.ok("stats")["gauges"]["waiting"] == 2, "one that was granted")
    waits(client, f"{key}/c")


def test_hundreds_of_tries_cost_few_questions(lab, redis, key):
    daemon = lab.daemon(redis, busy_cache="1s")
    client = daemon.client()
    redis.client.set(LOCK_PREFIX + key, "theirs", px=600000)
    begun = time.monotonic()
    requests = [client.send("acquire", key=key, owner=str(i)) for i in range(500)]
    for request in requests:
        reply = client.reply(request)
        assert_error(reply, "busy")
        assert reply["holder"]["kind"] == "foreign"
    attempts = client.ok("stats")["counters"]["attempts"]
    assert 1 <= attempts <= 1 + (time.monotonic() - begun), "one, and another each second"

    # What was found is forgotten, however many ask.
    redis.client.delete(LOCK_PREFIX + key)
    wait_until(lambda: client.request("acquire", key=key)["ok"], "the lock that is free")


def test_what_was_found_is_forgotten_when_it_is_over(lab, redis, key):
    """When the key has expired, and when it was broken here."""
    daemon = lab.daemon(redis, busy_cache="1s")
    client = daemon.client()
    lock = LOCK_PREFIX + key
    redis.client.set(lock, "theirs", px=900)
    left_ms = client.fails("busy", "acquire", key=key)["holder"]["ttl_left_ms"]
    assert left_ms <= 900
    time.sleep(left_ms / 1000 + 0.002)
    client.ok("acquire", key=key)
    client.ok("release", key=key)

    redis.client.set(lock, "theirs", px=600000)
    client.fails("busy", "acquire", key=key)
    client.ok("break", key=key)
    client.ok("acquire", key=key)


def test_each_try_asks_by_default(redis, daemon, client, key):
    redis.client.set(LOCK_PREFIX + key, "theirs", px=600000)
    for _ in range(20):
        client.fails("busy", "acquire", key=key)
    assert client.ok("stats")["counters"]["attempts"] == 20
    redis.client.delete(LOCK_PREFIX + key)
    client.ok("acquire", key=key)


def test_slow_waits_and_holds_are_logged(lab, redis, key):
    daemon = lab.daemon(redis, slow_wait="300ms", slow_hold="300ms")
    holder, waiter = daemon.client(), daemon.client()
    quick = holder.ok("acquire", key=key + "/quick")
    holder.ok("release", key=key + "/quick")
    grant = holder.ok("acquire", key=key)
    request = waits(waiter, key)
    wait_until(lambda: holder.ok("list")["locks"][0]["holder"]["held_ms"] >= 400, "a long hold")
    holder.ok("release", key=key)
    got = waiter.reply(request)
    assert got["ok"] and got["waited_ms"] >= 300
    slow_hold, = daemon.wait_log(event="slow_hold")
    slow_wait, = daemon.wait_log(event="slow_wait")
    assert f"fence={grant['fence']}" in slow_hold and slow_hold.startswith("<4>")
    assert f"fence={got['fence']}" in slow_wait and f"key={key} " in slow_wait
    assert f"fence={quick['fence']}" not in slow_hold + slow_wait
