"""Rows 1 to 4, 8, 9, 15 to 17 and 21 to 24: Redis silent, slow, away, or unwilling."""

import time

from lockbroker import LOCK_PREFIX, assert_error, now_ms, wait_until
from verdicts import assert_nothing_affirmed_after_lost, events

T = 3000  # ms, the ttl of most locks here


def test_row_01_a_short_stop_loses_nothing(redis, daemon, key):
    clients = [daemon.client() for _ in range(3)]
    for n, client in enumerate(clients):
        for m in range(5):
            client.ok("acquire", key=f"{key}-{n}-{m}", ttl_ms=T)
    for _ in range(4):
        redis.sigstop()
        time.sleep(T / 3000 * 0.8)
        redis.sigcont()
        time.sleep(1)
    for n, client in enumerate(clients):
        assert not events(client, "lost")
        for m in range(5):
            assert client.ok("check", key=f"{key}-{n}-{m}")["held"] is True
    assert len(redis.locks()) == 15


def test_row_01_half_a_lease_of_silence_is_suspect_and_then_ok(redis, client, key):
    ttl_ms = 6000
    grant = client.ok("acquire", key=key, ttl_ms=ttl_ms)
    redis.sigstop()
    suspect = client.event("suspect", key=key)
    assert suspect["fence"] == grant["fence"] and suspect["reason"]
    assert suspect["deadline_ms"] >= grant["deadline_ms"]
    assert 0 < suspect["valid_ms"] < ttl_ms * 0.6
    check = client.ok("check", key=key)
    assert check["held"] is True and check["state"] == "suspect"
    redis.sigcont()
    ok = client.event("ok", key=key)
    assert ok["fence"] == grant["fence"] and ok["deadline_ms"] > suspect["deadline_ms"]
    assert client.ok("check", key=key)["state"] == "ok"
    assert not events(client, "lost")
    assert redis.pttl(key) + now_ms() >= ok["deadline_ms"]


def test_row_02_a_stop_longer_than_the_lease_is_told_before_the_deadline(redis, daemon, key):
    clients = [daemon.client() for _ in range(3)]
    for n, client in enumerate(clients):
        for m in range(4):
            client.ok("acquire", key=f"{key}-{n}-{m}", ttl_ms=T)
    time.sleep(T / 2000)  # some renewals
    told = [client.ok("check", key=f"{key}-{n}-0")["deadline_ms"]
            for n, client in enumerate(clients)]
    redis.sigstop()
    for n, client in enumerate(clients):
        for m in range(4):
            lost = client.event("lost", key=f"{key}-{n}-{m}")
            assert lost["reason"] == "expired"
            assert lost.arrived_ms < lost["deadline_ms"]
            assert m or lost["deadline_ms"] >= told[n]
    redis.sigcont()
    daemon.wait_backend("up")
    end = time.monotonic() + T / 1000 + 1
    while time.monotonic() < end:
        for n, client in enumerate(clients):
            assert client.ok("check", key=f"{key}-{n}-0")["held"] is False
        time.sleep(0.1)
    for n, client in enumerate(clients):
        assert len(events(client, "lost")) == 4
        assert_nothing_affirmed_after_lost(client)
        assert client.ok("release", key=f"{key}-{n}-0")["reason"] == "expired"
    wait_until(lambda: redis.locks() == [], "what is left expires", timeout=15)


def test_row_02_every_affirmation_in_the_silence_is_true(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.sigstop()
    while not events(client, "lost"):
        sent_ms = now_ms()
        reply = client.ok("check", key=key)
        if reply["held"]:
            assert sent_ms <= reply["deadline_ms"] - reply["valid_ms"] <= reply.arrived_ms
            assert reply["valid_ms"] > 0
        time.sleep(0.01)
    assert_nothing_affirmed_after_lost(client)
    assert client.ok("check", key=key)["held"] is False


def test_row_02_a_lost_lock_can_be_had_again(redis, client, key):
    first = client.ok("acquire", key=key, ttl_ms=T)
    redis.sigstop()
    client.event("lost", key=key)
    waiting = client.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
    redis.sigcont()
    second = client.reply(waiting)
    assert second["ok"] is True and second["fence"] > first["fence"]
    time.sleep(T / 1000)
    assert client.ok("check", key=key)["fence"] == second["fence"]


def test_row_08_redis_down_at_the_start(lab, key):
    redis = lab.new_redis()
    daemon = lab.daemon(redis, up=False)
    daemon.wait_notified("READY=1")
    client = daemon.client()
    assert client.ok("ping")["backend"] == "down"
    start = time.monotonic()
    assert client.fails("unavailable", "acquire", key=key)["reason"] == "down"
    assert time.monotonic() - start < 4
    waiting = client.send("acquire", key=key, wait_ms=-1)
    client.ok("ping")
    redis.start()
    assert client.reply(waiting)["ok"] is True
    assert redis.locks() == [key]


def test_row_08_a_waiters_own_deadline_while_redis_is_down(redis, daemon, client, key):
    redis.kill()
    daemon.wait_backend("down")
    before = now_ms()
    reply = client.fails("unavailable", "acquire", key=key, wait_ms=1500)
    assert reply["reason"] == "down" and reply.arrived_ms - before >= 1500


def test_row_08_a_waiters_deadline_when_redis_went_down_meanwhile(redis, daemon, client, key):
    redis.client.set(LOCK_PREFIX + key, "theirs")
    before = now_ms()
    waiting = client.send("acquire", key=key, wait_ms=2500)
    client.ok("ping")
    redis.kill()
    reply = client.reply(waiting)
    assert_error(reply, "unavailable", reason="down")
    assert reply.arrived_ms - before >= 2500


def test_row_08_a_waiters_deadline_when_redis_is_back(redis, daemon, client, key):
    redis.kill()
    daemon.wait_backend("down")
    waiting = client.send("acquire", key=key, wait_ms=6000)
    redis.start()
    redis.client.set(LOCK_PREFIX + key, "theirs", nx=True)
    reply = client.reply(waiting)
    assert reply["ok"] or reply["error"] == "timeout", reply  # whoever came first


def test_row_16_redis_that_refuses_writes(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.config_set("maxmemory", 1)
    assert client.fails("unavailable", "acquire", key=key + "2")["reason"] == "refused"
    assert 'code=OOM hint="Redis is at its maxmemory' in daemon.log()
    waiting = client.send("acquire", key=key + "3", wait_ms=-1)
    time.sleep(T / 1000 * 1.5)
    # What is held stays held: a renewal needs no memory.
    assert client.ok("check", key=key)["state"] == "ok"
    assert client.ok("release", key=key)["outcome"] == "released"
    redis.client.config_set("maxmemory", 0)
    assert client.reply(waiting)["ok"] is True


def test_row_17_redis_that_became_a_replica(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.replicaof("127.0.0.1", "1")
    assert client.fails("unavailable", "acquire", key=key + "2")["reason"] in ("refused", "down")
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    redis.client.replicaof("NO", "ONE")
    client.ok("acquire", key=key + "2", wait_ms=-1)


def test_row_21_scripts_flushed(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        redis.client.script_flush()
        client.ok("acquire", key=key + "2")
        redis.client.script_flush()
        assert client.ok("release", key=key + "2")["outcome"] == "released"
        time.sleep(0.1)
    redis.client.script_flush()
    assert client.ok("release", key=key)["outcome"] == "released"
    assert not events(client, "lost") and redis.locks() == []
