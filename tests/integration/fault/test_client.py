"""Rows 34 to 41: clients that die, stop, fork, read or write slowly, or talk nonsense."""

import json
import random
import time

import pytest
from lockbroker import Client, assert_error, assert_kept_until, connect, now_ms, wait_until


def assert_nothing_is_left(redis):
    """Every key goes at once, long before its 30 s would run out."""
    wait_until(lambda: redis.locks() == [], "no lock key is left", timeout=10)


def test_row_34_a_killed_holder_frees_its_key_at_once(redis, daemon, key):
    took_ms = []
    for n in range(10):
        holder = daemon.process_client()
        holder.ok("acquire", key=f"{key}-{n}")
        holder.kill()
        eof_ms = holder.expect_eof()  # the broker's end is closed in the same moment
        wait_until(lambda name=f"{key}-{n}": redis.value(name) is None, "the key is gone", 10)
        took_ms.append(now_ms() - eof_ms)
    # On a busy machine one or another may be late, but not all of them.
    assert min(took_ms) < 100, took_ms


def test_row_34_a_killed_holder_hands_on_to_the_next_waiter(daemon, client, key):
    holder = daemon.process_client()
    holder.ok("acquire", key=key)
    waiting = client.send("acquire", key=key, wait_ms=-1)
    client.ok("ping")
    holder.kill()
    assert client.reply(waiting, timeout=10)["ok"] is True


def test_row_34_a_killed_holder_wakes_another_broker_soon(lab, redis, daemon, key):
    holder, other = daemon.process_client(), lab.daemon(redis, name="other").client()
    holder.ok("acquire", key=key)
    waiting = other.send("acquire", key=key, wait_ms=-1)
    other.ok("ping")
    holder.kill()
    assert other.reply(waiting, timeout=10)["ok"] is True


def test_row_37_a_client_that_shuts_its_sending_side_has_ended(redis, daemon, key):
    holder = daemon.client()
    holder.ok("acquire", key=key)
    holder.half_close()
    holder.expect_eof()
    assert_nothing_is_left(redis)


def test_row_38_a_killed_waiter_leaves_nothing(redis, daemon, client, key):
    client.ok("acquire", key=key)
    waiter = daemon.process_client()
    waiter.send("acquire", key=key, wait_ms=-1)
    wait_until(lambda: client.ok("query", key=key)["waiters"] == 1, "it waits")
    waiter.kill()
    wait_until(lambda: client.ok("query", key=key)["waiters"] == 0, "it does not wait any more")
    client.ok("release", key=key)
    assert_nothing_is_left(redis)


def test_row_38_clients_that_end_with_an_acquire_in_flight(redis, daemon, key):
    """At any point between the request and the grant; no key may be left that nobody knows of."""
    rng = random.Random(2)
    for n in range(300):
        client = Client(connect(daemon.socket_path), reading=rng.random() < 0.5)
        for owner in range(rng.randint(1, 3)):
            client.send("acquire", key=f"{key}-{n % 7}-{owner}", wait_ms=rng.choice([0, -1]))
        time.sleep(rng.random() * 0.002)
        client.close()
    assert_nothing_is_left(redis)
    survivor = daemon.client()
    for n in range(7):
        survivor.ok("acquire", key=f"{key}-{n}-0")


def test_row_38_clients_killed_with_an_acquire_in_flight(redis, daemon, key):
    rng = random.Random(3)
    for n in range(30):
        client = daemon.process_client()
        client.ok("ping")
        for _ in range(3):
            client.send("acquire", key=f"{key}-{n % 4}", wait_ms=-1, owner=str(_))
        time.sleep(rng.random() * 0.004)
        client.kill()
    assert_nothing_is_left(redis)


def test_row_38_clients_that_end_while_redis_is_slow(redis, daemon, key):
    """With the answer of Redis held up the grant surely crosses the client's end."""
    for n in range(20):
        redis.client.execute_command("CLIENT", "PAUSE", 30, "ALL")
        client = daemon.client()
        client.send("acquire", key=f"{key}-{n % 3}", wait_ms=-1)
        time.sleep(0.01)
        client.close()
    assert_nothing_is_left(redis)
    daemon.client().ok("acquire", key=f"{key}-0")


def test_row_39_a_reader_too_slow_is_cut_off_and_its_key_kept(redis, daemon, key):
    hog = daemon.client(reading=False)
    hog.send("acquire", key=key, ttl_ms=12000)
    grant = json.loads(hog.sock.recv(65536))
    hog.sock.settimeout(30)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(1000000):
            hog.send("stats")
    assert now_ms() < grant["deadline_ms"], "cut off before the deadline that the client was told"
    other = daemon.client()
    waiting = other.send("acquire", key=key, wait_ms=-1)
    assert_kept_until(redis, key, grant["deadline_ms"])
    assert other.reply(waiting, timeout=20)["ok"] is True


def test_row_40_silent_connections_are_closed_and_busy_ones_are_not(lab, key):
    daemon = lab.daemon("memory://", idle_timeout="3s", line_timeout="1s")
    silent, half, busy, polite = (daemon.client() for _ in range(4))
    busy.ok("acquire", key=key)
    polite.ok("ping")
    started_ms = now_ms()
    half.send_raw(b'{"id":1,')
    busy.send_raw(b'{"id":99,"op":"pi')
    dropped = half.reply(None)
    assert_error(dropped, "malformed")
    assert dropped.arrived_ms - started_ms >= 900
    silent.expect_eof()
    assert silent.eof_ms - started_ms >= 2000
    half.expect_eof()
    assert_error(busy.reply(None), "malformed")
    busy.send_raw(b'ng"}\n')
    assert busy.ok("check", key=key)["held"] is True
    polite.ok("ping")


def test_row_40_half_a_line_is_dropped_up_to_its_newline(lab):
    client = lab.daemon("memory://", line_timeout="1s").client()
    client.ok("ping")
    client.send_raw(b'{"id":1,"op":"pi')
    assert_error(client.reply(None), "malformed")
    client.send_raw(b'ng"}\n{"id":2,"op":"ping"}\n')
    assert client.reply(2)["ok"] is True
    assert not client.untaken()
