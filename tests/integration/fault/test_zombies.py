"""Row 3: commands that a stopped Redis executes long after the broker has given them up."""

import time

from lockbroker import LOCK_PREFIX, assert_error, wait_until

T = 3000  # ms, the ttl of most locks here


def broker_links(redis):
    return [link for link in redis.broker_links() if link["name"].startswith("lockbrokerd")]


class KeyEvents:
    """What happens to the key of a lock, as Redis itself tells it."""

    def __init__(self, redis, key):
        redis.client.config_set("notify-keyspace-events", "KEA")
        self.pubsub = redis.client.pubsub(ignore_subscribe_messages=True)
        self.pubsub.subscribe(f"__keyspace@0__:{LOCK_PREFIX}{key}")
        self.seen = []

    def names(self):
        """All so far."""
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            message = self.pubsub.get_message(timeout=0.05)
            if message:
                self.seen.append(message["data"])
        return self.seen


def zombie_made(redis, daemon, client, key):
    """Leaves an acquire in a stopped Redis that the broker has given up."""
    client.ok("acquire", key=key + "-warm")
    client.ok("release", key=key + "-warm")
    redis.sigstop()
    client.send("acquire", key=key, id="zombie")
    wait_until(lambda: client.ok("ping")["backend"] == "down", "the link is given up")
    time.sleep(1)  # beyond what the acquire may be late


def zombie_over(redis, daemon):
    """Until Redis has read all that the old connection brought it."""
    daemon.wait_backend("up")
    wait_until(lambda: len(broker_links(redis)) == 1, "Redis has closed the old link")


def test_row_03_zombie_acquire_is_refused(lab, redis, daemon, client, key):
    happened = KeyEvents(redis, key)
    other = lab.daemon(redis, name="other")
    zombie_made(redis, daemon, client, key)
    assert_error(client.reply("zombie"), "unavailable", reason="down")
    other.stop()
    redis.sigcont()
    zombie_over(redis, daemon)
    assert happened.names() == [] and redis.locks() == []
    lab.daemon(redis, name="third").client().ok("acquire", key=key)


def test_row_03_zombie_acquire_of_a_client_that_ended_is_refused(redis, daemon, client, key):
    happened = KeyEvents(redis, key)
    zombie_made(redis, daemon, client, key)
    client.close()
    redis.sigcont()
    zombie_over(redis, daemon)
    assert happened.names() == [] and redis.locks() == []
    daemon.client().ok("acquire", key=key)


def test_row_03_a_waiter_gets_the_lock_after_its_zombie(redis, daemon, client, key):
    """A server that was stopped is late for each command; the next try comes in time."""
    zombie_made(redis, daemon, client, key)
    waiting = client.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
    assert_error(client.reply("zombie"), "unavailable", reason="down")
    redis.sigcont()
    client.reply(waiting)
    time.sleep(T / 1000)
    assert client.ok("check", key=key)["held"] is True and redis.locks() == [key]
