"""What the chaos happens to: a Redis, three brokers, each on its own link, and their clients."""

import json
import os
import random
import subprocess
import sys
import time

from chaos_proxy import ChaosProxy
from judge import Diary
from lockbroker import PATIENCE, Lab, Process, now_ms, wait_until
from network import NEAR, PORT, network
from server_clock import ClockedRedis, ServerClock, is_available
from store import Store

TTL_MAX_MS = 2000
STEP_MAX_MS = 50   # what a lease of the least ttl, 1 s, allows for
RATES = (1.005, 0.995, 1.003, 0.997, 1.0)
CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client.py")


class ClientProcess:
    """One client of the workload; when it is killed another takes its place."""

    def __init__(self, world, number):
        self.world = world
        self.name = f"c{number}"
        self.broker = world.daemons[number % len(world.daemons)].socket_path
        self.generations = []  # (path of the diary, when it was killed)
        self.process = None
        self.start()

    def start(self):
        count = len(self.generations)
        diary = self.world.lab.path(f"{self.name}.{count}.diary")
        self.generations.append([diary, None])
        argv = [sys.executable, "-I", "-S", CLIENT, self.broker, self.world.store.path, diary,
                f"{self.world.seed}/{self.name}/{count}", ",".join(self.world.keys)]
        self.process = Process(argv + ([self.world.flaw] if self.world.flaw else []),
                               self.world.lab.path(f"{self.name}.log"))

    def kill(self):
        self.generations[-1][1] = now_ms() / 1000  # before: it relied on its grant at least so long
        self.process.kill()

    def finish(self):
        """Lets it end its turn; one that does not is waiting for an answer that never came."""
        try:
            code = self.process.wait(2 * PATIENCE)
            assert code == 0, self.process.log()
        except subprocess.TimeoutExpired:
            self.process.kill()

    def diaries(self):
        for path, killed_at in self.generations:
            if os.path.exists(path):  # else it was killed before its first word
                with open(path, encoding="utf-8") as lines:
                    yield Diary(self.name, lines, killed_at)

    def was_granted_since(self, begin):
        with open(self.generations[-1][0], encoding="utf-8") as lines:
            return any(note[0] == "granted" and note[1] > begin for note in notes(lines))

    def stop(self):
        if self.process.is_running():
            self.process.kill()


def notes(lines):
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)


class World:
    def __init__(self, seed, clients, flaw=None):
        self.seed = seed
        self.flaw = flaw
        self.rng = random.Random(seed)
        self.keys = ["one", "two", "three", "four"]
        self.lab = Lab()
        self.missing = []    # what this machine has not, for people
        self.network = None
        self.proxies = []
        self.daemons = []
        self.clients = []
        try:
            self._start(clients)
        except BaseException:
            self.stop()
            raise

    def _start(self, clients):
        self.store = Store(self.lab.path("store.sock"))
        self.network, why = network()
        if not self.network:
            self.missing.append(f"no network namespaces: {why}")
        self._start_redis()
        self._start_daemons()
        self.clients = [ClientProcess(self, n) for n in range(clients)]

    def _start_redis(self):
        directory = self.lab.path("redis")
        os.mkdir(directory)
        arguments = ["--enable-debug-command", "yes", "--stop-writes-on-bgsave-error", "no"]
        if self.network:
            arguments += ["--bind", NEAR, "--port", str(PORT), "--protected-mode", "no"]
        self.redis = ClockedRedis(directory, *arguments,
                                  launcher=self.network.inside(0) if self.network else ())
        self.lab.started.append(self.redis)
        self.redis_arguments = arguments
        if not is_available():
            self.missing.append("no libfaketime: Redis' clock is right")
        self.set_clock()
        self.redis.start()

    def set_clock(self):
        """A new rate for the server that is started next; its clock goes on where the last one was.

        A clock that went back over a restart would be a step of any size.
        """
        if is_available():
            offset_ms = self.clock_offset_ms() if self.redis.process else 0
            self.redis.clock = ServerClock(self.lab.path("clock"), offset_ms,
                                           self.rng.choice(RATES))

    def clock_offset_ms(self):
        seconds, micros = self.redis.client.time()
        return seconds * 1000 + micros / 1000 - time.time() * 1000

    def _start_daemons(self):
        options = {"ttl_max": f"{TTL_MAX_MS}ms", "log_level": "notice",
                   "data_loss": os.environ.get("CHAOS_DATA_LOSS", "quarantine")}
        for address in (self.lab.path("proxy.sock"), ("127.0.0.1", 0)):
            self.proxies.append(ChaosProxy(address, self.redis.path, self.seed).start())
        urls = [proxy.url for proxy in self.proxies]
        urls.append(f"redis://{NEAR}:{PORT}" if self.network else self.redis.url)
        for number, url in enumerate(urls):
            daemon = self.lab.new_daemon(url, name=f"b{number}", **options)
            if self.network and number == 2:
                daemon.argv = [*self.network.inside(1), *daemon.argv]
            self.daemons.append(daemon.start())

    def starved(self, timeout=60):
        """The clients that are not granted anything within the time, though nothing is wrong."""
        begin = now_ms() / 1000
        waiting = set(self.clients)
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            waiting = {client for client in waiting if not client.was_granted_since(begin)}
            time.sleep(0.1)
        return [client.name for client in waiting]

    def finish(self):
        """Ends the clients, lets all be quiet for a while, and returns the keys that are left."""
        for client in self.clients:
            client.process.signal(15)
        for client in self.clients:
            client.finish()
        time.sleep((TTL_MAX_MS + 500) / 1000)
        return self.redis.locks()

    def diaries(self):
        return [diary for client in self.clients for diary in client.diaries()]

    def stop(self):
        for client in self.clients:
            client.stop()
        if getattr(self, "store", None):
            self.store.stop()
        try:
            self.lab.__exit__()
        finally:
            for proxy in self.proxies:
                proxy.stop()
            if self.network:
                self.network.stop()

    def wait_up(self):
        for daemon in self.daemons:
            wait_until(lambda d=daemon: d.process.is_running(), "the broker runs")
            daemon.wait_backend("up")
