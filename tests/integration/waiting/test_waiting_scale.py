"""What ten thousand waiters cost, in memory and in time. The figures are printed."""

import json
import time

import pytest
from contest import Load, Store, rss_bytes, say, waiters
from lockbroker import connect, wait_until

MANY = 10000
LONG, SHORT = 16000, 1000
WAITER_BYTES_MAX = 1024
LEAVING = 400


@pytest.fixture
def store(lab):
    it = Store(lab.path("store"))
    yield it
    it.close()


def cpu_us(daemon):
    """The processor time that the daemon used so far."""
    with open(f"/proc/{daemon.process.pid}/schedstat", encoding="ascii") as schedstat:
        return int(schedstat.read().split()[0]) / 1000


def is_instrumented(daemon):
    """Whether a sanitizer is in the program, whose memory is another matter."""
    with open(f"/proc/{daemon.process.pid}/maps", encoding="utf-8") as maps:
        return "libasan" in maps.read()


def ask(sock, requests, replies=0):
    """Sends the requests and reads so many lines."""
    sock.sendall(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
    data = b""
    while data.count(b"\n") < replies:
        more = sock.recv(1 << 20)
        assert more, data[-200:]
        data += more
    return [json.loads(line) for line in data.splitlines()]


def acquires(key, numbers, keys=1, wait_ms=-1):
    return [{"id": n + 1, "op": "acquire", "key": f"{key}-{n % keys}" if keys > 1 else key,
             "owner": f"o{n}", "wait_ms": wait_ms} for n in numbers]


def all_wait(daemon, key, count, keys=1):
    client = daemon.client()
    each = count // keys
    for n in (0, keys // 2, keys - 1):
        name = f"{key}-{n}" if keys > 1 else key
        wait_until(lambda name=name: waiters(client, name) == each, f"{each} wait for {name}")


@pytest.mark.parametrize("keys", [1, 1000])
def test_ten_thousand_waiters(redis, daemon, store, key, keys):
    count = MANY // 10 if is_instrumented(daemon) else MANY
    keys = min(keys, count // 10)
    with connect(daemon.socket_path) as holder:
        grants = ask(holder, acquires(key, range(keys), keys), keys)
        assert all(grant["ok"] for grant in grants)
        memory, spent, start = rss_bytes(daemon), cpu_us(daemon), time.monotonic()
        with Load(key, daemon, connections=1, owners=count, rounds=1, keys=keys, ttl=30000,
                  **({"store": store} if keys == 1 else {})) as crowd:
            all_wait(daemon, key, count, keys)
            each_bytes = (rss_bytes(daemon) - memory) / count
            say(keys=keys, waiters=count, bytes_each=each_bytes,
                cpu_us_each=(cpu_us(daemon) - spent) / count, seconds=time.monotonic() - start)
            assert is_instrumented(daemon) or each_bytes <= WAITER_BYTES_MAX

            scripts, spent, start = redis.commands("evalsha", "eval"), cpu_us(daemon), time.monotonic()
            for n in range(keys):
                name = f"{key}-{n}" if keys > 1 else key
                [reply] = ask(holder, [{"id": n, "op": "release", "key": name, "owner": f"o{n}"}], 1)
                assert reply["outcome"] == "released", reply
            run = crowd.report()
    seconds = time.monotonic() - start
    scripts = redis.commands("evalsha", "eval") - scripts
    say(keys=keys, granted=run.total, cpu_us_each=(cpu_us(daemon) - spent) / count, scripts=scripts,
        seconds=seconds)
    run.assert_smooth()
    assert run["grants"] == [1] * count and run["out_of_order"] == 0
    # Of each key the fences are fetched once, and it is given back once.
    assert scripts <= count * 0.02 + 20 * seconds + 3 * keys
    if keys == 1:
        store.assert_clean(count)
    wait_until(lambda: redis.locks() == [], "all is given back")


def cost_of_cancels(daemon, key, count):
    """The processor time of so many cancels, spread over the middle of the queue."""
    first = count // 2 - LEAVING // 2
    with connect(daemon.socket_path) as sock:
        ask(sock, acquires(key, range(count)))
        all_wait(daemon, key, count)
        spent = cpu_us(daemon)
        replies = ask(sock, [{"id": f"c{n}", "op": "cancel", "target": n + 1}
                             for n in range(first, first + LEAVING)], 2 * LEAVING)
        spent = cpu_us(daemon) - spent
        assert sum(reply.get("error") == "cancelled" for reply in replies) == LEAVING
        assert sum(reply["ok"] for reply in replies) == LEAVING
        all_wait(daemon, key, count - LEAVING)
    all_wait(daemon, key, 0)
    return spent


def cost_of_ends(daemon, key, count):
    """The processor time of connections that end, whose waiters are in the middle of the queue."""
    each, leaving = 4, LEAVING // 4
    with connect(daemon.socket_path) as before, connect(daemon.socket_path) as after:
        ask(before, acquires(key, range(count // 2)))
        all_wait(daemon, key, count // 2)
        middle = [connect(daemon.socket_path) for _ in range(leaving)]
        for sock in middle:
            ask(sock, acquires(key, range(each)))
        all_wait(daemon, key, count // 2 + each * leaving)
        ask(after, acquires(key, range(count // 2)))
        all_wait(daemon, key, count + each * leaving)
        spent = cpu_us(daemon)
        for sock in middle:
            sock.close()
        all_wait(daemon, key, count)
        spent = cpu_us(daemon) - spent
    all_wait(daemon, key, 0)
    return spent


@pytest.mark.parametrize("cost", [cost_of_cancels, cost_of_ends])
def test_leaving_a_long_queue_costs_what_it_costs_in_a_short_one(redis, daemon, key, cost):
    if is_instrumented(daemon):
        pytest.skip("its books are checked as a whole at each step, which costs more the more wait")
    with connect(daemon.socket_path) as holder:
        ask(holder, acquires(key, [0]), 1)
        ratios = []
        for _ in range(3):
            few, many = (cost(daemon, key, count) for count in (SHORT, LONG))
            ratios.append(many / few)
            say(cost=cost.__name__, of=SHORT, us_each=few / LEAVING, in_long=many / LEAVING,
                ratio=many / few)
            if ratios[-1] < 3:
                return
    raise AssertionError(ratios)
