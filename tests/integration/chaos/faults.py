"""The faults, each a function that does something bad and makes it good again.

`@fault(group)` registers it; it is called with the world, a random generator and one thing of that
group, which it has for itself meanwhile. What needs more than every machine has says so.
"""

import glob
import os
import threading
import time

from chaos_proxy import TO_CLIENT, TO_SERVER
from lockbroker import LOCK_PREFIX, wait_until
from server_clock import is_available
from world import STEP_MAX_MS, TTL_MAX_MS

KINDS = {}
EPOCH_KEY = "lockbroker:meta:epoch"

# After Redis lost data nothing new is granted for a while: there has to be time for other things.
LOSSES_APART_S = 6


def cable(world):
    return world.network is not None


class Kind:
    def __init__(self, name, group, act, needs, loses_data, times):
        self.name = name
        self.group = group
        self.act = act
        self.needs = needs
        self.loses_data = loses_data
        self.times = times  # how often for each time that another comes


def fault(group, needs=lambda world: True, loses_data=False, times=1):
    def register(act):
        KINDS[act.__name__] = Kind(act.__name__, group, act, needs, loses_data, times)
        return act
    return register


class Hands:
    """Which things are in whose hands: a fault has what it works on for itself."""

    def __init__(self, world):
        self.groups = {"redis": [world.redis], "daemon": world.daemons, "client": world.clients,
                       "proxy": world.proxies, "network": [world.network], "clock": [world.redis],
                       "broker and proxy": list(zip(world.daemons, world.proxies))}
        self.locks = {id(thing): threading.Lock() for group in
                      ("redis", "daemon", "client", "proxy", "network")
                      for thing in self.groups[group]}
        self.clock = threading.Lock()
        self.next_loss = 0

    def take(self, kind, rng):
        """A thing and what to release afterwards, or None if it is not the time for it."""
        if kind.loses_data:
            if time.monotonic() < self.next_loss:
                return None
            self.next_loss = time.monotonic() + LOSSES_APART_S
        if kind.group == "everything":
            locks = list(self.locks.values())
            for lock in locks:  # nobody else waits for a lock, so this ends
                lock.acquire()
            return None, locks
        thing = rng.choice(self.groups[kind.group])
        if kind.group == "clock":
            locks = [self.clock]
        else:
            parts = thing if isinstance(thing, tuple) else [thing]
            locks = [self.locks[id(part)] for part in parts]
        return (thing, locks) if take_all(locks) else None


def take_all(locks):
    """Takes all of them or none."""
    for number, lock in enumerate(locks):
        if not lock.acquire(blocking=False):
            for taken in locks[:number]:
                taken.release()
            return False
    return True


# Redis: stops, cuts and loss of what it keeps for us.

@fault("redis")
def redis_stopped(world, rng, redis):
    redis.sigstop()
    time.sleep(rng.choice([0.1, 0.5, 1.2, 3]))
    redis.sigcont()


@fault("redis")
def redis_paused(world, rng, redis):
    pause_ms = rng.choice([50, 400, 1500])
    redis.client.execute_command("CLIENT", "PAUSE", pause_ms, rng.choice(["WRITE", "ALL"]))
    time.sleep(pause_ms / 1000)


@fault("redis")
def redis_asleep(world, rng, redis):
    redis.client.execute_command("DEBUG", "SLEEP", rng.choice([0.1, 0.4, 1.2]))


@fault("redis")
def redis_kills_links(world, rng, redis):
    redis.client.client_kill_filter(_type="normal", skipme=True)


@fault("redis")
def channels_cut(world, rng, redis):
    redis.client.client_kill_filter(_type="pubsub")


@fault("redis")
def queues_deleted(world, rng, redis):
    for queue in redis.client.scan_iter("lockbroker:meta:queue:*"):
        redis.client.delete(queue)


@fault("redis")
def turns_made_up(world, rng, redis):
    """Whoever may publish may say anything to a broker."""
    locks = list(redis.client.scan_iter(LOCK_PREFIX + "*"))
    for channel in redis.client.pubsub_channels("lockbroker:meta:wake:*"):
        for lock in locks:
            redis.client.publish(channel, rng.choice(["turn ", "wait ", "poll "]) + lock)


@fault("redis")
def scripts_flushed(world, rng, redis):
    redis.client.script_flush()


def reborn(world, rng, *arguments, between=lambda: None):
    """kill -9, then a new server; `between` does something to its files."""
    world.set_clock()
    world.redis.kill()
    between()
    time.sleep(rng.choice([0, 0, 0.3, 1.2]))
    world.redis.args = (*world.redis_arguments, *arguments)
    world.redis.start()


@fault("redis", loses_data=True)
def redis_restarted_empty(world, rng, redis):
    reborn(world, rng)


@fault("redis", loses_data=True)
def redis_restarted_from_old_snapshot(world, rng, redis):
    redis.client.save()
    time.sleep(rng.uniform(0.1, 2))
    reborn(world, rng)
    os.unlink(os.path.join(redis.directory, "dump.rdb"))


@fault("redis", loses_data=True)
def redis_restarted_from_append_only_file(world, rng, redis):
    """Up to a second of what was written is lost, as at a loss of power with `everysec`."""
    redis.client.config_set("appendonly", "yes")
    wait_until(lambda: not redis.client.info("persistence")["aof_rewrite_in_progress"] and
               not redis.client.info("persistence")["aof_rewrite_scheduled"], "it is written anew")
    time.sleep(rng.uniform(0, 1))
    newest = max(glob.glob(os.path.join(redis.directory, "appendonlydir", "*.incr.aof")),
                 key=os.path.getmtime)
    safe = os.path.getsize(newest)
    time.sleep(rng.uniform(0, 0.9))

    def lose():
        size = os.path.getsize(newest)
        os.truncate(newest, rng.randint(min(safe, size), size))
    reborn(world, rng, "--appendonly", "yes", between=lose)
    redis.client.config_set("appendonly", "no")


@fault("everything", loses_data=True)
def redis_flushed(world, rng, _):
    """Each broker has seen what is flushed, and none is new before one of them has noticed."""
    for number, daemon in enumerate(world.daemons):
        client = daemon.client()
        client.ok("acquire", timeout=60, key=f"warm-{number}", ttl_ms=1000, wait_ms=50000)
        client.ok("release", timeout=60, key=f"warm-{number}")
        daemon.clients.remove(client)
        client.close()
    world.redis.client.flushall()
    wait_until(lambda: world.redis.client.exists(EPOCH_KEY), "a broker has noticed")


@fault("clock", lambda world: is_available())
def redis_clock_stepped(world, rng, redis):
    redis.clock.step(rng.choice([-1, 1, rng.uniform(-1, 1)]) * STEP_MAX_MS)
    time.sleep(2 * TTL_MAX_MS / 1000)  # one step in the life of a lease is what is allowed for


# Brokers and clients.

@fault("daemon")
def broker_stopped(world, rng, daemon):
    daemon.sigstop()
    time.sleep(rng.choice([0.1, 0.5, 1.2, 3]))
    daemon.sigcont()


@fault("daemon")
def broker_killed(world, rng, daemon):
    daemon.kill()
    time.sleep(rng.choice([0, 0, 0.5, 2]))
    daemon.start(up=False)


@fault("daemon")
def broker_ended(world, rng, daemon):
    daemon.sigterm()
    code = daemon.wait_exit(60)
    assert code == 0, f"exit code {code}: {daemon.log()[-2000:]}"
    daemon.start(up=False)


@fault("broker and proxy", times=4)
def broker_killed_on_slow_link(world, rng, pair):
    """Its clients rely on deadlines to the end that were told after late replies."""
    daemon, proxy = pair
    proxy.delay(rng.choice([150, 190, 230]), direction=TO_CLIENT)
    time.sleep(rng.uniform(0.5, 1.5))
    daemon.kill()
    proxy.heal()
    time.sleep(rng.choice([0, 1, 2]))
    daemon.start(up=False)


@fault("client")
def client_stopped(world, rng, client):
    client.process.sigstop()
    time.sleep(rng.choice([0.1, 0.5, 1.2, 3]))
    client.process.sigcont()


@fault("client")
def client_killed(world, rng, client):
    client.kill()
    time.sleep(rng.choice([0, 0.2]))
    client.start()


# Links.

def for_a_while(rng, proxy, longest=2.5):
    time.sleep(rng.choice([0.2, 0.7, longest]))
    proxy.heal()


@fault("proxy")
def link_slow(world, rng, proxy):
    proxy.delay(rng.choice([5, 50, 300, 1000]), jitter_ms=rng.choice([0, 100]))
    for_a_while(rng, proxy)


@fault("proxy")
def link_replies_slow(world, rng, proxy):
    proxy.delay(rng.choice([100, 400, 900]), direction=TO_CLIENT)
    for_a_while(rng, proxy)


@fault("proxy")
def link_in_pieces(world, rng, proxy):
    proxy.split(rng.choice([1, 1, 7, 100]))
    for_a_while(rng, proxy)


@fault("proxy")
def link_narrow(world, rng, proxy):
    proxy.throttle(rng.choice([1000, 5000, 12500]))
    for_a_while(rng, proxy)


@fault("proxy")
def link_loses_requests(world, rng, proxy):
    proxy.drop(TO_SERVER)
    for_a_while(rng, proxy)


@fault("proxy")
def link_loses_replies(world, rng, proxy):
    proxy.drop(TO_CLIENT)
    for_a_while(rng, proxy)


@fault("proxy")
def link_holds_requests(world, rng, proxy):
    """Late, and perhaps long after they were given up, they arrive after all."""
    proxy.hold(TO_SERVER)
    for_a_while(rng, proxy)


@fault("proxy")
def link_holds_replies(world, rng, proxy):
    proxy.hold(TO_CLIENT)
    for_a_while(rng, proxy)


@fault("proxy")
def link_partitioned(world, rng, proxy):
    proxy.partition()
    for_a_while(rng, proxy, longest=4)


@fault("proxy")
def link_cut(world, rng, proxy):
    proxy.cut()


@fault("proxy")
def link_refused(world, rng, proxy):
    proxy.refuse()
    proxy.cut()
    for_a_while(rng, proxy)


@fault("proxy")
def link_reset_in_a_request(world, rng, proxy):
    proxy.reset_after(rng.randint(1, 500), TO_SERVER)
    for_a_while(rng, proxy, longest=1)


@fault("proxy")
def link_reset_in_a_reply(world, rng, proxy):
    proxy.reset_after(rng.randint(1, 200), TO_CLIENT)
    for_a_while(rng, proxy, longest=1)


@fault("proxy")
def link_reset_before_a_request(world, rng, proxy):
    proxy.reset_at_request("before", containing=b"EVALSHA", times=rng.randint(1, 3))
    for_a_while(rng, proxy, longest=1)


@fault("proxy")
def link_reset_after_a_request(world, rng, proxy):
    proxy.reset_at_request("forwarded", containing=b"EVALSHA", times=rng.randint(1, 3))
    for_a_while(rng, proxy, longest=1)


@fault("proxy")
def link_reset_before_a_reply(world, rng, proxy):
    proxy.reset_at_request("executed", containing=b"EVALSHA", times=rng.randint(1, 3))
    for_a_while(rng, proxy, longest=1)


@fault("proxy")
def link_garbled(world, rng, proxy):
    proxy.inject(rng.choice([b"!what?\r\n", b"*2147483647\r\n", b"$-7\r\n", b"\0\xff", b":1\r\n",
                             b"*-1\r\n", b"$999999999999\r\n"]))
    for_a_while(rng, proxy, longest=1)


# The network proper.

@fault("network", cable)
def cable_cut(world, rng, network):
    network.cut()
    time.sleep(rng.choice([0.2, 0.7, 2.5]))
    network.mend()


@fault("network", cable)
def cable_loses_one_way(world, rng, network):
    end = rng.randrange(2)
    network.lose(end)
    time.sleep(rng.choice([0.2, 0.7, 2.5]))
    network.lose_no_more(end)


@fault("network", lambda world: cable(world) and world.network.can_filter())
def cable_filtered(world, rng, network):
    end = rng.randrange(2)
    network.drop(end)
    time.sleep(rng.choice([0.2, 0.7, 2.5]))
    network.drop_no_more(end)
