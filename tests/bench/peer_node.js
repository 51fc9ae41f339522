#!/usr/bin/env node
// The load program of the benchmarks, for the peers in Node. Its options and what it writes are
// those of bench_load (main.c). The packages of package.json are found by NODE_PATH.
//
//     redlock          redlock on ioredis, one server; its own delays, retries without end
//     redis-semaphore  the Mutex of redis-semaphore on ioredis, its own delays and renewal
//
// Shape `connections`: all contenders are flows of one process and share a client, as in a server
// program. Shape `processes`: each contender is a process with a client of its own.
//
// A pause is a timer of Node's, which counts whole milliseconds.
'use strict';

const child_process = require('child_process');
const fs = require('fs');
const {parseArgs} = require('util');

const PAUSE_MS = 20; // after an error
const CONNECT_MS = 60000; // how long all may take to connect
const HOLD_WINDOW = 256; // acquires under way at a time, for `--hold-many`
const START_NS = 20000000n; // from when all are ready to the start

const OPTIONS = {
  peer: {type: 'string'},
  redis: {type: 'string'},
  broker: {type: 'string', multiple: true},
  records: {type: 'string'},
  key: {type: 'string'},
  keys: {type: 'string', default: 'distinct'},
  contenders: {type: 'string', default: '0'},
  shape: {type: 'string', default: 'connections'},
  'hold-us': {type: 'string', default: '0'},
  'think-us': {type: 'string', default: '0'},
  'ttl-ms': {type: 'string', default: '10000'},
  'warm-ms': {type: 'string', default: '0'},
  'run-ms': {type: 'string', default: '0'},
  'hold-many': {type: 'string', default: '0'},
};

// What a release throws when the lock had been lost.
class Lost extends Error {}

function die(message) {
  process.stderr.write(`peer_node: ${message}\n`);
  process.exit(1);
}

function sleepMs(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function sleepUntil(untilNs) {
  const leftNs = Number(untilNs - process.hrtime.bigint());
  return leftNs > 0 ? sleepMs(Math.max(1, Math.round(leftNs / 1e6))) : undefined;
}

async function connect(address) {
  const Redis = require('ioredis');
  const tcp = !address.includes('/') && address.match(/^(.*):(\d+)$/);
  const client = tcp ? new Redis(Number(tcp[2]), tcp[1]) : new Redis(address);
  client.on('error', (error) => die(`${address}: ${error.message}`));
  await client.ping();
  return client;
}

// Each peer: all locks of a process share what `prepare` makes of its client. `acquire` and
// `release` are those of one lock, which is asked for again and again.
const PEERS = {
  redlock: {
    prepare(client) {
      const Redlock = require('redlock');
      return new Redlock([client], {retryCount: -1});
    },
    lock(redlock, key, ttlMs) {
      let held;
      return {
        async acquire() {
          held = await redlock.lock(key, ttlMs);
        },
        async release() {
          try {
            await held.unlock();
          } catch (error) {
            throw error.name === 'LockError' ? new Lost() : error;
          }
        },
      };
    },
  },
  'redis-semaphore': {
    prepare: (client) => client,
    lock(client, key, ttlMs, onLost) {
      const {Mutex} = require('redis-semaphore');
      let isLost = false;
      const mutex = new Mutex(client, key, {
        lockTimeout: ttlMs,
        acquireTimeout: Infinity,
        onLockLost() {
          isLost = true;
          if (onLost) onLost();
        },
      });
      return {
        async acquire() {
          isLost = false;
          await mutex.acquire();
        },
        async release() {
          await mutex.release();
          if (isLost) throw new Lost();
        },
      };
    },
  },
};

// Records of five 64-bit numbers, in memory until the end.
class Records {
  constructor() {
    this.numbers = new BigInt64Array(5 * 4096);
    this.used = 0;
  }

  add(contender, askedNs, grantedNs, releasingNs, releasedNs) {
    if (this.used === this.numbers.length) {
      const larger = new BigInt64Array(2 * this.numbers.length);
      larger.set(this.numbers);
      this.numbers = larger;
    }
    this.numbers[this.used++] = contender;
    this.numbers[this.used++] = askedNs;
    this.numbers[this.used++] = grantedNs;
    this.numbers[this.used++] = releasingNs;
    this.numbers[this.used++] = releasedNs;
  }

  // In one piece, so that the parts of several processes do not mix.
  write(path) {
    const bytes = new Uint8Array(this.numbers.buffer, 0, this.used * 8);
    const file = fs.openSync(path, 'a');
    if (bytes.length > 0 && fs.writeSync(file, bytes) !== bytes.length) die(`${path}: short write`);
    fs.closeSync(file);
  }
}

function keyName(options, number) {
  return options.keys === 'one' ? options.key : `${options.key}-${number}`;
}

// When it is measured: from `began` to `ended`, after the warm-up.
function spanFrom(options, startNs) {
  const beganNs = startNs + BigInt(options['warm-ms']) * 1000000n;
  return {startNs, beganNs, endedNs: beganNs + BigInt(options['run-ms']) * 1000000n};
}

// The contenders of this process: all that have these numbers.
class Contenders {
  constructor(options, numbers) {
    this.options = options;
    this.numbers = numbers;
    this.records = new Records();
    this.errors = {};
    this.lost = 0;
    this.busy = 0; // that hold or release
  }

  async open() {
    const peer = PEERS[this.options.peer];
    const shared = peer.prepare(await connect(this.options.redis));
    this.locks = this.numbers.map(
        (number) => peer.lock(shared, keyName(this.options, number), Number(this.options['ttl-ms'])));
  }

  count(error) {
    this.errors[error.message] = (this.errors[error.message] || 0) + 1;
  }

  async release(lock) {
    try {
      await lock.release();
    } catch (error) {
      if (error instanceof Lost) this.lost++;
      else this.count(error);
    }
  }

  async cycle(number, lock, span) {
    const holdNs = BigInt(this.options['hold-us']) * 1000n;
    const thinkNs = BigInt(this.options['think-us']) * 1000n;
    const askedNs = process.hrtime.bigint();
    try {
      await lock.acquire();
    } catch (error) {
      this.count(error);
      return sleepMs(PAUSE_MS);
    }
    const grantedNs = process.hrtime.bigint();
    this.busy++;
    if (holdNs > 0n) await sleepUntil(grantedNs + holdNs);
    const releasingNs = process.hrtime.bigint();
    await this.release(lock);
    const releasedNs = process.hrtime.bigint();
    this.busy--;
    if (askedNs >= span.beganNs)
      this.records.add(BigInt(number), askedNs, grantedNs, releasingNs, releasedNs);
    return thinkNs > 0n ? sleepUntil(releasedNs + thinkNs) : undefined;
  }

  async flow(number, lock, span) {
    while (process.hrtime.bigint() < span.endedNs) await this.cycle(number, lock, span);
  }

  // Who waits at the deadline gives up: nothing of it is awaited.
  async run(span) {
    await sleepUntil(span.startNs);
    this.locks.forEach((lock, i) => this.flow(this.numbers[i], lock, span));
    await sleepUntil(span.endedNs);
    while (this.busy > 0) await sleepMs(1);
    this.records.write(this.options.records);
    return {cycles: this.records.used / 5, errors: this.errors, lost: this.lost};
  }
}

function report(options, span, summaries) {
  const errors = {};
  for (const summary of summaries)
    for (const [name, count] of Object.entries(summary.errors))
      errors[name] = (errors[name] || 0) + count;
  const sum = (field) => summaries.reduce((total, summary) => total + summary[field], 0);
  const told = {peer: options.peer, began_ns: 0, ended_ns: 0, cycles: sum('cycles'), errors, lost: sum('lost')};

  // JSON.stringify() takes no BigInt, and a Number might round one.
  const text = JSON.stringify(told)
                   .replace('"began_ns":0', `"began_ns":${span.beganNs}`)
                   .replace('"ended_ns":0', `"ended_ns":${span.endedNs}`);
  fs.writeSync(1, text + '\n');
}

async function runConnections(options) {
  const contenders = new Contenders(options, [...Array(Number(options.contenders)).keys()]);
  await contenders.open();
  const span = spanFrom(options, process.hrtime.bigint() + START_NS);
  report(options, span, [await contenders.run(span)]);
}

// A contender that ends before it has told its summary has failed, and told why.
function startChild(number) {
  const child = child_process.fork(__filename, process.argv.slice(2),
                                   {env: {...process.env, BENCH_CONTENDER: String(number)}});
  child.messages = [];
  child.on('message', (message) => {
    child.messages.push(message);
    if (child.heard) child.heard();
  });
  child.on('exit', () => {
    if (child.messages.length < 2) die('a contender failed');
  });
  return child;
}

async function nthMessage(child, n) {
  while (child.messages.length < n)
    await new Promise((resolve) => {
      child.heard = resolve;
    });
  return child.messages[n - 1];
}

async function runProcesses(options) {
  const children = [...Array(Number(options.contenders)).keys()].map(startChild);
  const impatience = setTimeout(() => die('not all contenders connect'), CONNECT_MS);
  await Promise.all(children.map((child) => nthMessage(child, 1)));
  clearTimeout(impatience);
  const span = spanFrom(options, process.hrtime.bigint() + START_NS);
  for (const child of children) child.send({startNs: String(span.startNs)});
  report(options, span, await Promise.all(children.map((child) => nthMessage(child, 2))));
}

async function childMain(options) {
  const contenders = new Contenders(options, [Number(process.env.BENCH_CONTENDER)]);
  process.on('disconnect', () => process.exit(1)); // its parent is gone
  await contenders.open();
  const start = new Promise((resolve) => process.once('message', resolve));
  process.send({ready: true});
  const span = spanFrom(options, BigInt((await start).startNs));
  process.send(await contenders.run(span), () => process.exit(0));
}

// All by one client, and renewed by the package's own timers. Were all acquired at once, the first
// answers would be looked at so late that their locks run out before the first renewal.
async function hold(options) {
  const peer = PEERS[options.peer];
  const shared = peer.prepare(await connect(options.redis));
  let held = 0;
  let lost = 0;
  const left = [...Array(Number(options['hold-many'])).keys()].map(
      (number) => peer.lock(shared, `${options.key}-${number}`, Number(options['ttl-ms']), () => lost++));
  const acquireSome = async () => {
    for (let lock = left.pop(); lock; lock = left.pop()) {
      await lock.acquire();
      held++;
    }
  };
  await Promise.all([...Array(HOLD_WINDOW)].map(acquireSome));
  fs.writeSync(1, JSON.stringify({peer: options.peer, held}) + '\n');
  process.stdin.resume();
  process.stdin.on('end', () => {
    fs.writeSync(1, JSON.stringify({peer: options.peer, lost}) + '\n');
    process.exit(0);
  });
}

function check(options) {
  const isHolding = Number(options['hold-many']) > 0;
  if (!PEERS[options.peer]) die(`no such peer: ${options.peer}`);
  if (!options.redis || !options.key) die('--redis and --key are needed');
  if (isHolding && options.peer !== 'redis-semaphore') die('--hold-many is for redis-semaphore only');
  if (!isHolding && !(options.records && Number(options.contenders) > 0 && Number(options['run-ms']) > 0))
    die('--records, --contenders and --run-ms are needed');
}

async function main() {
  const options = parseArgs({options: OPTIONS}).values;
  check(options);
  if (Number(options['hold-many']) > 0) return hold(options);
  if (process.env.BENCH_CONTENDER !== undefined) return childMain(options);
  fs.writeFileSync(options.records, '');
  await (options.shape === 'processes' ? runProcesses(options) : runConnections(options));
  return process.exit(0);
}

main().catch((error) => die(error.stack));
