"""What Redis is asked: counts, which are the same however busy the machine is."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))

from lockbroker import Lab, wait_until  # noqa: E402  pylint: disable=wrong-import-position

T = 3000  # ms
LOCKS = 1000
HAND_OFFS = 100


@pytest.fixture(name="lab")
def _lab():
    with Lab() as it:
        yield it


def counters(client):
    return client.ok("stats")["counters"]


def test_a_hand_off_asks_redis_nothing(lab):
    """Of all commands, those for renewals and for fences are known by name: nothing else is sent."""
    redis = lab.redis()
    daemon = lab.daemon(redis)
    watcher = daemon.client()
    clients = [daemon.client() for _ in range(HAND_OFFS)]
    clients[0].ok("acquire", key="k", ttl_ms=T)
    asked = [client.send("acquire", key="k", ttl_ms=T, wait_ms=-1) for client in clients[1:]]
    wait_until(lambda: watcher.ok("stats")["gauges"]["waiting"] == HAND_OFFS - 1)
    wait_until(lambda: counters(watcher)["refills"] >= 1 and counters(watcher)["renewals"] >= 1,
               "fences for those who wait")
    before, scripts = counters(watcher), redis.commands("evalsha", "eval")
    for holder, waiter, number in zip(clients, clients[1:], asked):
        holder.ok("release", key="k")
        assert waiter.reply(number)["ok"]
    after, scripts = counters(watcher), redis.commands("evalsha", "eval") - scripts
    assert after["handoffs"] - before["handoffs"] == HAND_OFFS - 1
    renewals = after["redis_renewal_calls"] - before["redis_renewal_calls"]
    assert after["attempts"] == before["attempts"]
    assert scripts == renewals, "a command that is no renewal"
    assert renewals <= HAND_OFFS // 10, "renewed for no reason"


def test_a_hundred_renewals_share_a_command(lab):
    daemon = lab.daemon(lab.redis())
    client, watcher = daemon.client(), daemon.client()
    numbers = [client.send("acquire", key=f"k{i}", ttl_ms=T) for i in range(LOCKS)]
    assert all(client.reply(number)["ok"] for number in numbers)
    before = counters(watcher)
    after = wait_until(
        lambda: counters(watcher)["renewals"] - before["renewals"] >= 3 * LOCKS and counters(watcher),
        "three renewals of each")
    renewals = after["renewals"] - before["renewals"]
    calls = after["redis_renewal_calls"] - before["redis_renewal_calls"]
    assert calls <= renewals / 1000 * 20, (calls, renewals)
    assert after["lost_expired"] == after["lost_not_renewed"] == 0
