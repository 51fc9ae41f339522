"""Rows 10 and 12 to 14: somebody meddles with the key of a lock that is held."""

import time

from lockbroker import LOCK_PREFIX, wait_until
from verdicts import events

T = 3000  # ms, the ttl of most locks here


def test_row_10_deleted(redis, client, key):
    fence = client.ok("acquire", key=key, ttl_ms=T)["fence"]
    redis.client.delete(LOCK_PREFIX + key)
    lost = client.event("lost", key=key)
    assert lost["reason"] == "deleted" and lost["fence"] == fence
    assert redis.value(key) is None
    time.sleep(T / 1000)
    assert len(events(client, "lost")) == 1 and redis.value(key) is None


def test_row_12_overwritten(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.set(LOCK_PREFIX + key, "theirs")
    assert client.event("lost", key=key)["reason"] == "stolen"
    assert client.ok("release", key=key)["outcome"] == "was_lost"
    client.close()
    time.sleep(T / 1000)
    assert redis.value(key) == "theirs" and redis.pttl(key) == -1


def test_row_12_overwritten_by_another_type(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.delete(LOCK_PREFIX + key)
    redis.client.rpush(LOCK_PREFIX + key, "x")
    assert client.event("lost", key=key)["reason"] in ("stolen", "deleted")
    client.request("release", key=key)
    assert redis.client.lrange(LOCK_PREFIX + key, 0, -1) == ["x"]


def test_row_12_key_that_is_no_string_is_a_conflict(redis, client, key):
    redis.client.rpush(LOCK_PREFIX + key, "one", "two")
    client.fails("conflict", "acquire", key=key)
    assert redis.client.lrange(LOCK_PREFIX + key, 0, -1) == ["one", "two"]
    assert redis.pttl(key) == -1


def test_row_12_overwritten_before_the_release(redis, client, key):
    client.ok("acquire", key=key)
    redis.client.set(LOCK_PREFIX + key, "theirs", px=60000)
    reply = client.ok("release", key=key)
    assert reply["outcome"] == "was_lost" and reply["reason"] == "stolen"
    assert redis.value(key) == "theirs"


def test_row_12_one_meddled_key_spoils_no_other(redis, client, key):
    for n in range(30):
        client.ok("acquire", key=f"{key}-{n}", ttl_ms=T)
    redis.client.delete(LOCK_PREFIX + f"{key}-7")
    redis.client.set(LOCK_PREFIX + f"{key}-8", "theirs")
    redis.client.delete(LOCK_PREFIX + f"{key}-9")
    redis.client.hset(LOCK_PREFIX + f"{key}-9", "a", "b")
    time.sleep(T / 1000 * 2)
    assert sorted(m["key"][-1] for m in events(client, "lost")) == ["7", "8", "9"]
    assert sum(client.ok("check", key=f"{key}-{n}")["held"] for n in range(30)) == 27


def test_row_13_renamed(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.rename(LOCK_PREFIX + key, "moved")
    assert client.event("lost", key=key)["reason"] == "deleted"
    client.ok("release", key=key)
    assert redis.client.get("moved").startswith("lb1:")


def test_row_13_swapped(redis, client, key):
    """Our token under the key of another lock of ours is still not that lock's."""
    client.ok("acquire", key=key + "a", ttl_ms=T)
    client.ok("acquire", key=key + "b", ttl_ms=T)
    redis.client.rename(LOCK_PREFIX + key + "a", LOCK_PREFIX + key + "b")
    assert client.event("lost", key=key + "a")["reason"] == "deleted"
    assert client.event("lost", key=key + "b")["reason"] == "stolen"


def test_row_13_copied(redis, client, key):
    """A copy has our value under a name that is not ours: it is never touched."""
    client.ok("acquire", key=key, ttl_ms=T)
    client.ok("acquire", key=key + "2", ttl_ms=T)
    redis.client.copy(LOCK_PREFIX + key, "copied")
    redis.client.copy(LOCK_PREFIX + key, LOCK_PREFIX + key + "2", replace=True)
    redis.client.persist("copied")
    redis.client.persist(LOCK_PREFIX + key + "2")
    assert client.event("lost", key=key + "2")["reason"] == "stolen"
    time.sleep(T / 1000)
    assert client.ok("release", key=key + "2")["outcome"] == "was_lost"
    assert client.ok("release", key=key)["outcome"] == "released"
    for name in ("copied", LOCK_PREFIX + key + "2"):
        assert redis.client.get(name).startswith("lb1:") and redis.client.pttl(name) == -1
    assert redis.locks() == [key + "2"]


def test_row_14_persisted_keys_get_their_expiry_back(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.client.persist(LOCK_PREFIX + key)
    wait_until(lambda: 0 < redis.pttl(key) <= T, "an expiry again", timeout=10)
    assert client.ok("check", key=key)["held"] is True
