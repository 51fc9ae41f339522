/*
 * Redis loses data: a failover to a replica that lags, or a restart that comes back empty or with
 * an older state, and the two waits that make it safe. README.md says what is proven, the bounds,
 * and what is left out.
 *
 * `now` is the server that counts, `old` the one before it, which may go on accepting writes for L
 * ticks. Time is counted in ticks and only as what is left or how old something is, so the states
 * are few and the search covers any number of losses, one after the other.
 */

#ifndef N
#define N 2 /* brokers */
#endif
#ifndef T
#define T 3 /* ttl of broker 0, and the largest of all */
#endif
#ifndef T_OTHERS
#define T_OTHERS T /* ttl of the others */
#endif
#ifndef L
#define L 2 /* how long the old master may go on; 0: one Redis that restarts, the old one is dead */
#endif
#ifndef Q
#define Q (T + L) /* from since: no free key is acquired before */
#endif
#ifndef E
#define E L /* from since: nothing is extended or set again before */
#endif
#define AGE_MAX (T + L) /* with the largest Q that any run uses */

#define NOBODY 0
#define TOKEN(i) ((i) + 1)
#define ENDED (N + 1) /* any token that its broker is done with */

/* states of a broker */
#define IDLE 0
#define ACQUIRING 1
#define HELD 2
#define KEPT 3 /* `lost` is told; the client may still rely on the deadline it knows */
#define RELEASING 4

/* commands */
#define NONE 0
#define ACQUIRE 1
#define RENEW 2
#define DELETE 3

/* what became of a command */
#define SENT 0
#define DONE 1
#define CLOSED 2 /* one of the two waits is not over */
#define REFUSED 3

/* the epoch marker of a server */
#define ABSENT 0
#define FOREIGN 1 /* of another run_id: copied from the master, or in an older state */
#define OWN 2

typedef Broker {
    unsigned state : 3;
    unsigned left : 3; /* until the deadline that the client was told */
    bit at_old;        /* the server it is connected to */
#ifdef FLUSH
    bit saw_marker;
#endif
}

typedef Command {
    unsigned kind : 2;
    unsigned stage : 2;
    unsigned age : 3;
    bit at_old;
}

typedef Server {
    byte key;
    unsigned left : 3;
    unsigned marker : 2;
    unsigned since : 4; /* how long ago the marker's since was */
    unsigned up : 4;    /* how long ago it started */
}

Broker broker[N];
Command op[N];
Server server[2]; /* 0 is `now`, 1 is `old` */
byte copy_key = NOBODY;    /* the replica, or the state on disk: what was true at some time */
byte copy_left;
byte open; /* for how long `old` accepts commands */
byte broken; /* the invariant that does not hold */

#define TTL(i) (i == 0 -> T : T_OTHERS)
#define INSIDE(i) ((broker[i].state == HELD || broker[i].state == KEPT) && broker[i].left > 0)

#ifdef Q_OF_ASKER
#define WAIT_FREE(i) (TTL(i) + L)
#else
#define WAIT_FREE(i) Q
#endif
#ifdef FREE_AT_ONCE
#define FREE_ALLOWED(i, s) true
#else
#define FREE_ALLOWED(i, s) (server[s].since >= WAIT_FREE(i))
#endif
#ifdef RENEW_AT_ONCE
#define EXTEND_ALLOWED(s) true
#else
#define EXTEND_ALLOWED(s) (server[s].since >= E)
#endif
#define REASSERT_ALLOWED(s) (EXTEND_ALLOWED(s) && server[s].since < Q)

#ifdef FLUSH
#define UP_MATTERS(n) (n == 0)
#define UP_OR_FLUSHED 0
#define ALL_SAW (broker[0].saw_marker && broker[N - 1].saw_marker)
#else
#define UP_MATTERS(n) (server[n].marker == ABSENT)
#define UP_OR_FLUSHED server[0].up
#endif
#ifdef FLUSH_IS_A_START
#define KNOWS_MARKER(i) false
#else
#define KNOWS_MARKER(i) broker[i].saw_marker
#endif
#define UNDER_WAY(i) (op[i].kind != NONE && op[i].stage == SENT)
#define CAN_RUN(i) (UNDER_WAY(i) && (!op[i].at_old || open > 0))

inline must(number, condition)
{
    if
    :: condition
    :: else -> broken = number; assert(broken != number)
    fi
}

/* Until it ends, the key of a hold cannot be had from the server that counts. */
#define KEY_IS_HIS(i) (server[0].key == TOKEN(i) && server[0].left >= broker[i].left)
#define KEY_IS_CLOSED(i) ((server[0].marker == OWN && server[0].since + broker[i].left <= Q) || \
                          (server[0].marker == ABSENT && UP_OR_FLUSHED + broker[i].left <= Q) || \
                          server[0].marker == FOREIGN)

/* I1 and I2 */
inline check()
{
    byte one, two;

    for (one : 0 .. N - 1) {
        if
        :: INSIDE(one) ->
            for (two : one + 1 .. N - 1) {
                must(1, !INSIDE(two))
            }
#ifndef ONLY_EXCLUSION
            must(2, KEY_IS_HIS(one) || KEY_IS_CLOSED(one))
#endif
        :: else
        fi
    }
    one = 0;
    two = 0
}

inline clear(i)
{
    op[i].kind = NONE;
    op[i].stage = SENT;
    op[i].age = 0;
    op[i].at_old = 0
}

inline send(i, which)
{
    op[i].kind = which;
    op[i].stage = SENT;
    op[i].age = 0;
    op[i].at_old = broker[i].at_old
}

/* The token is never used again: from here on it is one of those that no broker knows. */
inline forget(i)
{
    if
    :: server[0].key == TOKEN(i) -> server[0].key = ENDED
    :: else
    fi;
    if
    :: server[1].key == TOKEN(i) -> server[1].key = ENDED
    :: else
    fi;
    if
    :: copy_key == TOKEN(i) -> copy_key = ENDED
    :: else
    fi;
    broker[i].state = IDLE;
    broker[i].left = 0
}

inline sweep(i)
{
#ifndef REASSERT_LAPSED
    if
    :: (broker[i].state == HELD || broker[i].state == KEPT) && broker[i].left == 0 &&
       op[i].kind == NONE -> forget(i)
    :: else
    fi
#else
    skip
#endif
}

/* The first lines of each script; `known`: its broker has seen a marker before. */
inline look_at_marker(i, s, known)
{
    if
    :: server[s].marker == OWN
#ifdef MARKER_UNCHECKED
    :: server[s].marker == FOREIGN -> server[s].marker = OWN; server[s].since = AGE_MAX
#else
    :: server[s].marker == FOREIGN -> server[s].marker = OWN; server[s].since = 0
#endif
    :: server[s].marker == ABSENT && known -> server[s].marker = OWN; server[s].since = 0
    :: server[s].marker == ABSENT && !known ->
        server[s].marker = OWN;
#ifdef FIRST_DOES_NOT_WAIT
        server[s].since = AGE_MAX
#else
        server[s].since = server[s].up
#endif
    fi;
#ifdef FLUSH
    broker[i].saw_marker = 1
#else
    server[s].up = 0 /* it matters no more */
#endif
}

inline set_key(i, s)
{
    server[s].key = TOKEN(i);
    server[s].left = TTL(i);
    op[i].stage = DONE
}

inline extend_key(i, s)
{
    if
    :: EXTEND_ALLOWED(s) ->
        server[s].left = (server[s].left > TTL(i) -> server[s].left : TTL(i));
        op[i].stage = DONE
    :: else -> op[i].stage = CLOSED
    fi
}

inline execute(i, s, known)
{
    look_at_marker(i, s, known);
    if
    :: op[i].kind == DELETE ->
        if
        :: server[s].key == TOKEN(i) -> server[s].key = NOBODY; server[s].left = 0
        :: else
        fi;
        op[i].stage = DONE
    :: op[i].kind != DELETE && server[s].key == TOKEN(i) -> extend_key(i, s)
    :: op[i].kind == ACQUIRE && server[s].key == NOBODY && FREE_ALLOWED(i, s) -> set_key(i, s)
    :: op[i].kind == ACQUIRE && server[s].key == NOBODY && !FREE_ALLOWED(i, s) ->
        op[i].stage = CLOSED
    :: op[i].kind == RENEW && server[s].key == NOBODY && REASSERT_ALLOWED(s) -> set_key(i, s)
    :: op[i].kind == RENEW && server[s].key == NOBODY && !EXTEND_ALLOWED(s) ->
        op[i].stage = CLOSED
    :: else -> op[i].stage = REFUSED
    fi;
    op[i].at_old = 0;
    op[i].age = (op[i].stage == DONE && op[i].kind != DELETE -> op[i].age : 0)
}

#ifdef DEADLINE_FROM_REPLY
#define LEFT(i) (TTL(i))
#else
#define LEFT(i) (TTL(i) - (op[i].age < TTL(i) -> op[i].age : TTL(i)))
#endif

#ifdef REASSERT_LAPSED
#define MAY_AFFIRM(i) true
#else
#define MAY_AFFIRM(i) (broker[i].left > 0)
#endif

inline read_answer(i)
{
    if
    :: op[i].kind == ACQUIRE && op[i].stage == DONE && broker[i].state == ACQUIRING &&
       LEFT(i) > 0 ->
        broker[i].state = HELD;
        broker[i].left = LEFT(i)
    :: op[i].kind == RENEW && op[i].stage == DONE && broker[i].state == HELD &&
       MAY_AFFIRM(i) ->
        broker[i].left = (broker[i].left > LEFT(i) -> broker[i].left : LEFT(i))
    :: op[i].kind == RENEW && op[i].stage == REFUSED && broker[i].state == HELD ->
        broker[i].state = KEPT
    :: op[i].kind == DELETE -> forget(i)
    :: else
    fi;
    clear(i)
}

inline give_back(i)
{
    broker[i].state = RELEASING;
    broker[i].left = 0
}

#define NO_OP (op[i].kind == NONE)

proctype live(byte i)
{
    do
    :: atomic {
        d_step { sweep(i) };
        if
        :: d_step { broker[i].state <= ACQUIRING && NO_OP ->
            broker[i].state = ACQUIRING;
            send(i, ACQUIRE) }
        :: d_step { broker[i].state == HELD && broker[i].left > 0 && NO_OP -> send(i, RENEW) }
#ifdef REASSERT_LAPSED
        :: d_step { broker[i].state == HELD && broker[i].left == 0 && NO_OP -> send(i, RENEW) }
#endif
        :: d_step { broker[i].state != IDLE && broker[i].state != RELEASING && NO_OP ->
            give_back(i) }
#ifdef REUSE_TOKEN
        :: d_step { broker[i].state == RELEASING && NO_OP ->
            broker[i].state = ACQUIRING;
            send(i, ACQUIRE) }
#endif
        :: d_step { broker[i].state == RELEASING && NO_OP -> send(i, DELETE) }
        :: d_step { op[i].stage != SENT -> read_answer(i); check() }
        /* the answer does not come; what was not run never runs */
        :: d_step { !NO_OP -> clear(i) }
        :: d_step { NO_OP && broker[i].at_old -> broker[i].at_old = 0 }
        /* told a stale address */
        :: d_step { NO_OP && !broker[i].at_old && open > 0 -> broker[i].at_old = 1 }
#if defined(FLUSH) && defined(RESTARTS)
        :: d_step { NO_OP && broker[i].state == IDLE && broker[i].saw_marker ->
            broker[i].saw_marker = 0 }
#endif
        :: else
        fi
    }
    od
}

/* Nobody can ask it any more. */
inline close_old()
{
    byte each;

    server[1].key = NOBODY;
    server[1].left = 0;
    server[1].marker = OWN;
    server[1].since = 0;
    server[1].up = 0;
    for (each : 0 .. N - 1) {
        if
        :: op[each].at_old -> clear(each)
        :: else
        fi;
        broker[each].at_old = 0
    }
    each = 0
}

inline lose_data(emptied)
{
    byte n;

    server[1].key = server[0].key;
    server[1].left = server[0].left;
    server[1].marker = server[0].marker;
    server[1].since = server[0].since;
    server[1].up = server[0].up;
    server[0].key = (emptied -> NOBODY : copy_key);
    server[0].left = (emptied -> 0 : copy_left);
    server[0].marker = (emptied -> ABSENT : FOREIGN);
    server[0].since = 0;
    server[0].up = 0;
    for (n : 0 .. N - 1) {
        broker[n].at_old = 1;
        op[n].at_old = (op[n].kind != NONE && op[n].stage == SENT)
    }
    n = 0;
#if L > 0
    open = L + 1
#else
    close_old()
#endif
}

inline tick()
{
    byte n;

    for (n : 0 .. 1) {
        if
        :: server[n].left > 1 -> server[n].left--
        :: else -> server[n].left = 0; server[n].key = NOBODY
        fi;
        server[n].since = (server[n].marker == OWN && server[n].since < AGE_MAX ->
                           server[n].since + 1 : server[n].since);
        server[n].up = (UP_MATTERS(n) && server[n].up < AGE_MAX ->
                        server[n].up + 1 : server[n].up)
    }
    for (n : 0 .. N - 1) {
        broker[n].left = (broker[n].left > 0 -> broker[n].left - 1 : 0);
        op[n].age = (op[n].age < T && (op[n].kind == ACQUIRE || op[n].kind == RENEW) &&
                     (op[n].stage == SENT || op[n].stage == DONE) -> op[n].age + 1 : op[n].age)
    }
    n = 0;
    if
    :: copy_left > 1 -> copy_left--
    :: else -> copy_left = 0; copy_key = NOBODY
    fi;
    open = (open > 0 -> open - 1 : 0);
    if
    :: open == 0 -> close_old()
    :: else
    fi
}

proctype world()
{
    byte i;

    do
    :: d_step { tick(); check() }
    :: atomic {
        select(i : 0 .. N - 1);
        if
#ifdef FLUSH
        :: d_step { CAN_RUN(i) -> execute(i, op[i].at_old, KNOWS_MARKER(i)) }
#else
        /* whoever finds no marker may be one that saw it, or one that has just started */
        :: d_step { CAN_RUN(i) -> execute(i, op[i].at_old, true) }
        :: d_step { CAN_RUN(i) && server[op[i].at_old].marker == ABSENT ->
            execute(i, op[i].at_old, false) }
#endif
        :: else
        fi;
        i = 0
    }
    /* the replica catches up, or the state is saved */
    :: d_step { copy_key = server[0].key; copy_left = server[0].left }
    :: d_step { open == 0 -> lose_data(false) }
    :: d_step { open == 0 -> lose_data(true) }
#ifdef FLUSH
#ifdef FLUSH_UNSEEN
    :: d_step { server[0].marker == OWN ->
#else
    :: d_step { server[0].marker == OWN && ALL_SAW ->
#endif
        server[0].key = NOBODY;
        server[0].left = 0;
        server[0].marker = ABSENT;
        server[0].since = 0 }
#endif
    od
}

init {
    byte n;

    atomic {
        server[0].since = AGE_MAX;
        server[0].up = AGE_MAX;
        server[0].marker = OWN;
        server[1].marker = OWN;
        for (n : 0 .. N - 1) {
            run live(n)
        }
        n = 0;
        run world()
    }
}
