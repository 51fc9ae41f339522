"""A test's own little world: Redis servers, broker daemons and raw clients of the protocol.

Everything lives in one private directory and talks over Unix sockets in it, so that any number of
tests run side by side. A `Lab` starts things and ends what it started, by process id. Every wait is
for a condition, with a generous time-out; nothing sleeps and hopes.

The program under test is named by the environment: LOCKBROKERD is the daemon's path, or
LOCKBROKER_BIN the directory that it is in.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import redis as redis_py

PATIENCE = 30  # seconds: how long anything may take that should happen soon
LOCK_PREFIX = "lockbroker:lock:"

# What a sanitizer or a failed assertion writes to standard error.
DEFECT = re.compile(r"AddressSanitizer|LeakSanitizer|UndefinedBehaviorSanitizer|runtime error:|"
                    r"assertion_failed|Assertion .* failed|stack smashing|buffer overflow detected")

# A client in a process of its own: it connects, as the user that it is told, and passes bytes both
# ways until either side ends. Killing it is killing a client of the broker.
RELAY = """
import os, select, socket, sys
near = socket.socket(fileno=int(sys.argv[1]))
if sys.argv[3]:
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))
far = socket.socket(socket.AF_UNIX)
far.connect(sys.argv[2])
other = {near: far, far: near}
while True:
    for end in select.select(list(other), [], [])[0]:
        data = end.recv(65536)
        if not data:
            sys.exit()
        other[end].sendall(data)
"""


def now_ms():
    """The clock that deadlines are told in."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)


def wait_until(condition, what="the condition", timeout=PATIENCE):
    """Waits for `condition()` to be true and returns what it returned."""
    end = time.monotonic() + timeout
    while True:
        outcome = condition()
        if outcome:
            return outcome
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.005)


def lease_ms(ttl_ms):
    """How long after its command was sent a lease of that ttl is promised."""
    return ttl_ms - ttl_ms // 100 - 2 - min(500, ttl_ms // 20)


def margin_ms(ttl_ms):
    """How long before its deadline a holder is told of a loss."""
    return min(max(ttl_ms // 10, 100), 3000)


def daemon_path():
    path = os.environ.get("LOCKBROKERD")
    if not path and "LOCKBROKER_BIN" in os.environ:
        path = os.path.join(os.environ["LOCKBROKER_BIN"], "lockbrokerd")
    assert path, "set LOCKBROKERD to the daemon under test"
    return path


class Message(dict):
    """One line from the broker, with when it arrived and what its bytes were."""

    def __init__(self, line, arrived_ms):
        super().__init__(json.loads(line.decode("utf-8")))
        self.line = line
        self.arrived_ms = arrived_ms
        self.taken = False


class Client:
    """A connection that speaks the protocol by hand.

    A thread reads and timestamps each line as it comes; `received` keeps them all in order.
    """

    def __init__(self, sock, reading=True):
        self.sock = sock
        self.received = []
        self.eof_ms = None
        self.process = None  # the relay, when the client is a process of its own
        self._next_id = 1
        self._changed = threading.Condition()
        self._thread = None
        if reading:
            self.start_reading()

    def start_reading(self):
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        pending = b""
        while True:
            try:
                data = self.sock.recv(65536)
            except OSError:
                data = b""
            arrived_ms = now_ms()
            lines = (pending + data).split(b"\n")
            pending = lines.pop()
            with self._changed:
                self.received += [Message(line, arrived_ms) for line in lines]
                if not data:
                    self.eof_ms = arrived_ms
                self._changed.notify_all()
            if not data:
                return

    # Sending.

    def send_raw(self, data):
        self.sock.sendall(data)

    def send(self, op, **fields):
        """Sends a request, with an id of its own unless one is given; returns the id."""
        if "id" not in fields:
            fields["id"] = self._next_id
            self._next_id += 1
        self.send_raw(json.dumps({"op": op, **fields}).encode() + b"\n")
        return fields["id"]

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if self._thread:
            self._thread.join(PATIENCE)
        self.sock.close()
        if self.process:
            self.kill()

    def kill(self):
        """kill -9, for a client that is a process of its own."""
        self.process.kill()
        self.process.wait()

    # Receiving.

    def _take(self, matches, what, timeout):
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                for message in self.received:
                    if not message.taken and matches(message):
                        message.taken = True
                        return message
                left = end - time.monotonic()
                if self.eof_ms is not None or left <= 0:
                    raise AssertionError(f"no {what} within {timeout} s (end of file: "
                                         f"{self.eof_ms is not None}); so far: {self.received}")
                self._changed.wait(left)

    def reply(self, request_id, timeout=PATIENCE):
        """The reply to that id (None: a reply that could not be answered by id)."""
        return self._take(lambda m: "id" in m and m["id"] == request_id and
                          type(m["id"]) is type(request_id), f"reply to {request_id!r}", timeout)

    def event(self, name, timeout=PATIENCE, **fields):
        """The next event of that name whose fields have these values."""
        return self._take(lambda m: m.get("event") == name and
                          all(m.get(field) == value for field, value in fields.items()),
                          f"event {name} {fields}", timeout)

    def has(self, **fields):
        """Whether a line with these field values has come, taken or not."""
        with self._changed:
            return any(all(m.get(f) == v for f, v in fields.items()) for m in self.received)

    def untaken(self):
        """The lines that no test has asked for yet."""
        with self._changed:
            return [m for m in self.received if not m.taken]

    def expect_eof(self, timeout=PATIENCE):
        wait_until(lambda: self.eof_ms is not None, "the broker closes the connection", timeout)
        return self.eof_ms

    # Both.

    def request(self, op, timeout=PATIENCE, **fields):
        return self.reply(self.send(op, **fields), timeout)

    def ok(self, op, timeout=PATIENCE, **fields):
        reply = self.request(op, timeout, **fields)
        assert reply["ok"] is True, reply
        return reply

    def fails(self, error, op, timeout=PATIENCE, **fields):
        reply = self.request(op, timeout, **fields)
        assert_error(reply, error)
        return reply


def assert_error(reply, error, **fields):
    """A failure of that name, with a sentence for people and these fields."""
    assert reply["ok"] is False and reply["error"] == error, reply
    assert isinstance(reply["message"], str) and reply["message"], reply
    for name, value in fields.items():
        assert reply.get(name) == value, reply


def assert_kept_until(redis, key, deadline_ms):
    """The lock's key is there at every look before the deadline."""
    while True:
        value = redis.value(key)
        if now_ms() >= deadline_ms:
            return
        assert value is not None, f"{deadline_ms - now_ms()} ms early"
        time.sleep(0.01)


class Process:
    """A started process whose output goes to a file."""

    def __init__(self, argv, log_path, **popen):
        self.log_path = log_path
        self.ended_by_test = False
        with open(log_path, "ab") as log:
            self.popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          **popen)

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def is_running(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def sigstop(self):
        self.signal(signal.SIGSTOP)
        wait_until(lambda: self._state() in "TZ", "the process stops")

    def sigcont(self):
        self.signal(signal.SIGCONT)

    def is_stopped(self):
        return self._state() == "T"

    def _state(self):
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    def wait(self, timeout=PATIENCE):
        """Waits for the end and returns the exit code."""
        return self.popen.wait(timeout)

    def kill(self):
        self.ended_by_test = True
        if self.is_running():
            self.popen.kill()
        self.popen.wait(PATIENCE)


class RedisServer:
    """A redis-server on a Unix socket, and on a loopback port when asked."""

    def __init__(self, directory, *args, tcp=False, password=None):
        self.directory = directory
        self.path = os.path.join(directory, "redis.sock")
        self.args = args
        self.port = free_port() if tcp else 0
        self.password = password
        self.process = None
        self.client = redis_py.Redis(unix_socket_path=self.path, decode_responses=True,
                                     password=password)

    @property
    def url(self):
        return f"redis+unix://{self.path}"

    def start(self):
        argv = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket",
                self.path, "--dir", self.directory, "--save", "", "--appendonly", "no"]
        if self.password:
            argv += ["--requirepass", self.password]
        self.process = Process(argv + list(self.args), os.path.join(self.directory, "redis.log"))
        wait_until(self.is_answering, "redis-server answers")
        return self

    def is_answering(self):
        assert self.process.is_running(), self.process.log()
        try:
            return self.client.ping()
        except redis_py.exceptions.ConnectionError:
            return False

    def kill(self):
        """kill -9; nothing listens on the socket afterwards."""
        self.process.kill()
        self.client.connection_pool.disconnect()

    def sigstop(self):
        self.process.sigstop()

    def sigcont(self):
        self.process.sigcont()

    def locks(self, prefix=LOCK_PREFIX):
        """The names of all lock keys."""
        return sorted(key[len(prefix):] for key in self.client.scan_iter(prefix + "*", count=1000))

    def value(self, key):
        """The value of a lock's key, or None."""
        return self.client.get(LOCK_PREFIX + key)

    def pttl(self, key):
        return self.client.pttl(LOCK_PREFIX + key)

    def commands(self, *names):
        """How many of these commands have been called by clients and scripts so far."""
        figures = self.client.info("commandstats")
        return sum(figures.get("cmdstat_" + name, {"calls": 0})["calls"] for name in names)

    def broker_links(self):
        """The connections for commands that are not this test's own."""
        own = self.client.client_id()
        return [c for c in self.client.client_list()
                if c["id"] != str(own) and not c["name"].endswith("-channel")]

    def broker_channels(self):
        """The connections of brokers that listen."""
        return [c for c in self.client.client_list(_type="pubsub")
                if c["name"].startswith("lockbrokerd-")]

    def stop(self):
        if self.process:
            self.kill()
        self.client.close()


class Daemon:
    """A lockbrokerd, with its standard error kept in a file."""

    def __init__(self, directory, backend, name="broker", socket_path=None, config=None,
                 args=(), **options):
        self.socket_path = socket_path or os.path.join(directory, name + ".sock")
        self.log_path = os.path.join(directory, name + ".log")
        self.notify_path = os.path.join(directory, name + ".notify")
        self.argv = [daemon_path(), "--socket", self.socket_path]
        if backend:
            self.argv += ["--backend", backend]
        if config:
            self.argv += ["--config", config]
        options.setdefault("data_loss", "ignore")  # each test's Redis has only just started
        for option, value in options.items():
            self.argv += ["--set", f"{option}={value}"]
        self.argv += args
        self.popen_options = {}
        self.clients = []
        self.process = None
        self.notifications = None

    def launch(self):
        """Starts the process and waits for nothing."""
        if self.notifications:
            self.notifications.close()
            os.unlink(self.notify_path)
        self.notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications.bind(self.notify_path)
        self.notifications.setblocking(False)
        self.process = Process(self.argv, self.log_path,
                               env={**os.environ, "NOTIFY_SOCKET": self.notify_path},
                               **self.popen_options)
        return self

    def start(self, up=True):
        """Starts the process and waits until it serves, and with `up` until it reaches Redis."""
        self.launch()
        wait_until(self._is_serving, "the daemon serves its socket")
        if up:
            self.wait_backend("up")
        return self

    def _is_serving(self):
        assert self.process.is_running(), self.log()
        try:
            connect(self.socket_path).close()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    def wait_backend(self, state):
        probe = self.client()
        wait_until(lambda: probe.ok("ping")["backend"] == state, f"the backend is {state}")
        self.clients.remove(probe)
        probe.close()

    def wait_notified(self, text):
        """Waits for a message of the sd_notify kind."""
        def arrived():
            try:
                return text in self.notifications.recv(4096).decode()
            except BlockingIOError:
                return False
        wait_until(arrived, f"{text} is notified")

    def client(self, reading=True):
        client = Client(connect(self.socket_path), reading)
        self.clients.append(client)
        return client

    def process_client(self, uid=None):
        """A client that is a process of its own, so that it can be killed or be another user."""
        near, far = socket.socketpair()
        relay = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", RELAY, str(far.fileno()), self.socket_path,
             "" if uid is None else str(uid)], pass_fds=[far.fileno()])
        far.close()
        client = Client(near)
        client.process = relay
        self.clients.append(client)
        return client

    def log(self):
        return self.process.log()

    def log_lines(self, **fields):
        """The log lines that have these key=value pairs."""
        return [line for line in self.log().splitlines()
                if all(re.search(rf"\b{name}=\"?{re.escape(str(value))}\"?(\s|$)", line)
                       for name, value in fields.items())]

    def wait_log(self, **fields):
        return wait_until(lambda: self.log_lines(**fields), f"a log line with {fields}")

    def sigstop(self):
        self.process.sigstop()

    def sigcont(self):
        self.process.sigcont()

    def sigterm(self):
        self.process.signal(signal.SIGTERM)

    def kill(self):
        """kill -9: the socket file stays behind."""
        self.process.kill()

    def wait_exit(self, timeout=PATIENCE):
        """Waits for the process to end by itself and returns its exit code."""
        code = self.process.wait(timeout)
        self.process.ended_by_test = True
        return code

    def close_clients(self):
        for client in self.clients:
            client.close()
        self.clients = []

    def stop(self):
        """Ends the daemon as an administrator would, and looks for traces of a defect."""
        if not self.process:
            return
        self.close_clients()
        if self.notifications:
            self.notifications.close()
        process, self.process = self.process, None
        try:
            self._end(process)
        finally:
            process.kill()
            log = process.log()
            print(f"--- log of {self.socket_path}\n{log}")
        assert not DEFECT.search(log), DEFECT.search(log)

    @staticmethod
    def _end(process):
        if process.ended_by_test:
            return
        if process.is_running():
            if process.is_stopped():  # else SIGCONT would disturb the leak check of a daemon at its end
                process.sigcont()
            process.signal(signal.SIGTERM)
        assert process.wait() == 0, f"the daemon's exit code is {process.popen.returncode}"


class Lab:
    """Starts servers in a directory of its own and ends them all."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="lb-")
        os.chmod(self.directory, 0o755)  # a client of another user has to reach the socket
        assert len(self.directory) < 60, "TMPDIR is too long for Unix sockets in it"
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        errors = []
        for thing in reversed(self.started):
            try:
                thing.stop()
            except (AssertionError, subprocess.TimeoutExpired) as error:
                errors.append(error)
        shutil.rmtree(self.directory)
        if errors:
            raise errors[0]

    def path(self, name):
        return os.path.join(self.directory, name)

    def _subdirectory(self):
        directory = self.path(str(len(self.started)))
        os.mkdir(directory)
        return directory

    def new_redis(self, *args, **options):
        """A Redis server that is not started yet."""
        server = RedisServer(self._subdirectory(), *args, **options)
        self.started.append(server)
        return server

    def redis(self, *args, **options):
        return self.new_redis(*args, **options).start()

    def new_daemon(self, backend, **options):
        """A daemon that is not started yet, on a RedisServer or a backend URL."""
        url = backend.url if isinstance(backend, RedisServer) else backend
        daemon = Daemon(self._subdirectory(), url, **options)
        self.started.append(daemon)
        return daemon

    def daemon(self, backend, up=True, **options):
        return self.new_daemon(backend, **options).start(up)


def connect(path):
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        raise
    return sock


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
