"""Rows 5 to 7, 11, and 16 once more: Redis loses its data, in whole or in part.

Here brokers wait such a loss out (data_loss=quarantine), which the other tests switch off.
"""

import glob
import os
import shutil
import time

import pytest
from lockbroker import LOCK_PREFIX, margin_ms, now_ms, wait_until
from verdicts import assert_definite, assert_nothing_affirmed_after_lost, events

T = 6000  # ms, the ttl of all locks here, and the longest one
QUARANTINE_MS = T + T // 100


def careful_daemon(lab, redis, **options):
    return lab.daemon(redis, data_loss="quarantine", ttl_max=f"{T}ms", **options)


@pytest.fixture
def daemon(lab, redis):
    return careful_daemon(lab, redis)


def first_lock(client, key):
    """A lock of a Redis that has only just started."""
    return client.ok("acquire", key=key, ttl_ms=T, wait_ms=-1)


def restart_empty(redis):
    """Returns a time before the new server was there."""
    redis.kill()
    before_ms = now_ms()
    redis.start()
    return before_ms


def flush(redis):
    before_ms = now_ms()
    redis.client.flushall()
    return before_ms



def holders_keep_and_free_keys_wait(lab, redis, daemon, key, lose):
    other = careful_daemon(lab, redis, name="other").client()
    holder = daemon.client()
    grants = [first_lock(holder, f"{key}-{n}") for n in range(3)]
    seen = first_lock(other, key + "-seen")
    lost_ms = lose(redis)
    waiting = [other.send("acquire", key=name, ttl_ms=T, wait_ms=-1)
               for name in (key + "-free", key + "-0")]
    daemon.wait_log(event="reasserted", key=f"{key}-2")
    refused = other.fails("unavailable", "acquire", key=key + "-free2")
    assert_definite(refused)
    assert refused["reason"] == "quarantine" and 0 < refused["ends_in_ms"] <= QUARANTINE_MS + 2
    free = other.reply(waiting[0])
    assert free.arrived_ms - lost_ms >= QUARANTINE_MS
    for n, grant in enumerate(grants):
        check = holder.ok("check", key=f"{key}-{n}")
        assert check["held"] is True and check["fence"] == grant["fence"]
        assert check["deadline_ms"] <= now_ms() + redis.pttl(f"{key}-{n}")
    assert not events(holder, "lost")
    assert not other.has(id=waiting[1])
    assert holder.ok("release", key=key + "-0")["outcome"] == "released"
    fences = [m["fence"] for m in (*grants, seen)]
    assert free["fence"] > max(fences) and other.reply(waiting[1])["fence"] > max(fences)
    return holder


def test_row_05_an_empty_restart_is_waited_out(lab, redis, daemon, key):
    holder = holders_keep_and_free_keys_wait(lab, redis, daemon, key, restart_empty)
    for n in range(3):
        told = [m["event"] for m in holder.received if m.get("key") == f"{key}-{n}" and
                "event" in m]
        assert told[:2] == ["suspect", "ok"], told
        assert events(holder, "suspect")[n]["reason"] == "restarted"


def test_row_11_a_flush_is_waited_out(lab, redis, daemon, key):
    holders_keep_and_free_keys_wait(lab, redis, daemon, key, flush)


def stop_after_renewal(daemon, client, grant):
    """Stops the broker when it has just renewed that lock; returns the deadline that was told."""
    renewed = wait_until(lambda: later_deadline(client, grant), "a renewal")
    daemon.sigstop()
    return renewed


def later_deadline(client, grant):
    deadline_ms = client.ok("check", key=grant["key"])["deadline_ms"]
    return deadline_ms > grant["deadline_ms"] and deadline_ms


def nobody_is_granted_before(deadline_ms, lab, redis, other, key):
    """Neither a broker that knew Redis before its loss, nor one that did not; returns the grant."""
    waiting = [other.send("acquire", key=key, ttl_ms=T, wait_ms=-1)]
    # A flush leaves no trace for one that comes first and never saw the marker.
    wait_until(lambda: redis.client.get("lockbroker:meta:epoch"), "the loss is seen")
    new = careful_daemon(lab, redis, name="new").client()
    waiting.append(new.send("acquire", key=key, ttl_ms=T, wait_ms=-1))
    wait_until(lambda: other.has(id=waiting[0]) or new.has(id=waiting[1]), "a grant")
    client, request_id = ((other, waiting[0]) if other.has(id=waiting[0]) else (new, waiting[1]))
    second = client.reply(request_id)
    assert second["ok"] is True and second.arrived_ms >= deadline_ms
    return second


@pytest.mark.parametrize("lose", [pytest.param(restart_empty, id="row_05"),
                                  pytest.param(flush, id="row_11")])
def test_row_05_11_a_holder_that_cannot_set_its_key_again(lab, redis, daemon, key, lose):
    other, holder = careful_daemon(lab, redis, name="other").client(), daemon.client()
    first_lock(other, key + "-seen")
    deadline_ms = stop_after_renewal(daemon, holder, first_lock(holder, key))
    lose(redis)
    second = nobody_is_granted_before(deadline_ms, lab, redis, other, key)
    daemon.sigcont()
    assert holder.event("lost", key=key)["fence"] < second["fence"]
    assert_nothing_affirmed_after_lost(holder)
    assert holder.ok("check", key=key)["held"] is False


def test_row_05_a_new_broker_that_comes_first_waits(lab, redis, daemon, key):
    holder = daemon.client()
    deadline_ms = stop_after_renewal(daemon, holder, first_lock(holder, key))
    restart_empty(redis)
    new = careful_daemon(lab, redis, name="new").client()
    second = new.ok("acquire", key=key, ttl_ms=T, wait_ms=-1)
    assert second.arrived_ms >= deadline_ms
    daemon.sigcont()
    assert holder.event("lost", key=key)["fence"] < second["fence"]


# The end of the append-only file is lost.


@pytest.fixture
def logged_redis(lab):
    return lab.redis("--appendonly", "yes", "--appendfsync", "everysec")


def append_file(redis):
    path, = glob.glob(os.path.join(redis.directory, "appendonlydir", "*.incr.aof"))
    return path


def logged_bytes(redis):
    wait_until(lambda: redis.client.info("persistence")["aof_buffer_length"] == 0, "it is written")
    return os.path.getsize(append_file(redis))


def restart_as_of(redis, size):
    """What was written later than that size of the file is lost."""
    redis.kill()
    os.truncate(append_file(redis), size)
    redis.start()


def test_row_06_renewals_that_are_lost_are_made_up_for(lab, logged_redis, key):
    redis = logged_redis
    client = careful_daemon(lab, redis).client()
    grant = first_lock(client, key)
    size = logged_bytes(redis)
    wait_until(lambda: later_deadline(client, grant), "a renewal")
    restart_as_of(redis, size)
    assert client.event("suspect", key=key)["reason"] == "restarted"
    ok = client.event("ok", key=key)
    assert ok["deadline_ms"] <= now_ms() + redis.pttl(key)
    assert client.ok("check", key=key)["fence"] == grant["fence"] and not events(client, "lost")


def test_row_06_a_key_that_expires_before_the_deadline_told(lab, logged_redis, key):
    """Its renewals are lost, and nobody is there to make up for them."""
    redis = logged_redis
    daemon = careful_daemon(lab, redis)
    other, holder = careful_daemon(lab, redis, name="other").client(), daemon.client()
    first_lock(other, key + "-seen")
    grant = first_lock(holder, key)
    size = logged_bytes(redis)
    deadline_ms = stop_after_renewal(daemon, holder, grant)
    restart_as_of(redis, size)
    assert redis.pttl(key) + now_ms() < deadline_ms
    nobody_is_granted_before(deadline_ms, lab, redis, other, key)
    daemon.sigcont()
    holder.event("lost", key=key)


def test_row_06_a_lock_that_is_lost_whole(lab, logged_redis, key):
    redis = logged_redis
    client = careful_daemon(lab, redis).client()
    first_lock(client, key + "-before")
    size = logged_bytes(redis)
    grant = first_lock(client, key)
    restart_as_of(redis, size)
    assert client.event("ok", key=key)["fence"] == grant["fence"]
    assert redis.locks() == sorted([key, key + "-before"]) and not events(client, "lost")
    assert client.ok("release", key=key)["outcome"] == "released"


# An older snapshot comes back.


def test_row_07_a_stale_token_is_nobodys_lock(lab, redis, daemon, key):
    dump = os.path.join(redis.directory, "dump.rdb")
    other = careful_daemon(lab, redis, name="other")
    first, second = daemon.client(), other.client()
    first_lock(other.client(), key + "-seen")
    stale = first_lock(first, key)
    redis.client.save()
    shutil.copy(dump, dump + ".old")
    first.ok("release", key=key)
    grant = first_lock(second, key)
    redis.kill()
    os.rename(dump + ".old", dump)
    restart_ms = now_ms()
    redis.start()
    assert redis.value(key) is not None  # the first one's token, which it has given back

    assert first.ok("check", key=key)["held"] is False
    lost = second.event("lost", key=key)
    assert lost["reason"] == "stolen" and lost["fence"] == grant["fence"]
    third = first_lock(first, key)
    assert third.arrived_ms >= max(lost["deadline_ms"], restart_ms + QUARANTINE_MS)
    assert third["fence"] > grant["fence"] > stale["fence"]
    assert_nothing_affirmed_after_lost(second)


def test_row_07_a_lock_younger_than_the_snapshot_is_set_again(lab, redis, daemon, key):
    client = daemon.client()
    first_lock(client, key + "-old")
    redis.client.save()
    client.ok("release", key=key + "-old")
    grant = first_lock(client, key)
    restart_ms = restart_empty(redis)
    assert client.event("ok", key=key)["fence"] == grant["fence"] and not events(client, "lost")
    again = first_lock(client, key + "-old")
    assert again["fence"] > grant["fence"]
    assert again.arrived_ms >= restart_ms + QUARANTINE_MS


# And there is no memory for what was lost.


def test_row_16_a_key_is_set_again_as_soon_as_there_is_memory(redis, daemon, key):
    client = daemon.client()
    grant = first_lock(client, key)
    redis.args += ("--maxmemory", "1")
    restart_empty(redis)
    assert client.event("suspect", key=key)["reason"] == "restarted"
    assert_definite(client.fails("unavailable", "acquire", key=key + "2"))
    time.sleep(0.5)
    assert redis.locks() == [] and client.ok("check", key=key)["state"] == "suspect"
    redis.client.config_set("maxmemory", 0)
    assert client.event("ok", key=key)["fence"] == grant["fence"]
    assert redis.client.get(LOCK_PREFIX + key).startswith("lb1:") and not events(client, "lost")


def test_row_16_a_key_that_cannot_be_set_again_is_lost_in_time(redis, daemon, key):
    client = daemon.client()
    first_lock(client, key)
    redis.args += ("--maxmemory", "1")
    restart_empty(redis)
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    assert lost.arrived_ms >= lost["deadline_ms"] - margin_ms(T) - 2
