/*
 * Handing a lock on: two hosts with local waiters, one Redis with the key, the fence counter and the
 * queue of brokers. README.md says what is proven, the bounds, and what is left out.
 *
 * There are two ways to search it. By default commands take time and are lost, hosts pause as long as
 * they like, and fences are counted, up to a bound: leases, fences, and how often others are passed
 * by. With LIVE commands are done at once and no host sleeps longer than its next look, but hosts die
 * and no message need arrive: nobody waits on a free key for long.
 */

#ifndef N
#define N 2 /* hosts */
#endif
#ifndef T
#define T 3 /* ttl, in ticks */
#endif
#ifndef F
#define F 3 /* fences reserved at a time */
#endif
#ifndef K
#define K 2 /* grants in a row while another host is known to queue */
#endif
#ifndef FENCES
#define FENCES 6 /* in all: then a history ends */
#endif
#ifdef LIVE
#ifndef POLL
#define POLL 2 /* how long a waiting host sleeps at most */
#endif
#else
#define POLL 0 /* it looks when it likes */
#endif
#ifndef TURN
#define TURN 1 /* how long a turn lasts that is not taken */
#endif
#define MARGIN 1 /* what must be left when a grant is told; `lost` is told so long before the end */

#define NOBODY 0
#define TOKEN(i) ((i) + 1)

/* states of a host */
#define IDLE 0 /* it has no grant; it may be asking, and the key may be its own */
#define HELD 1
#define KEPT 2 /* `lost` is told; the client may still rely on the deadline it knows */
#define RELEASING 3
#define DEAD 4

/* commands */
#define NONE 0
#define ACQUIRE 1
#define RENEW 2
#define RELEASE 3

typedef Host {
    unsigned state : 3;
    unsigned left : 3;   /* until the deadline of the grant */
    unsigned spare : 3;  /* fences reserved and not granted */
    byte next;           /* the first of them */
    bit waits;           /* another client of this host waits */
    bit known;           /* another host is known to queue */
    unsigned passed : 3; /* grants since then */
    unsigned poll : 3;   /* until it looks again */
    bit turn;            /* the word that it is its turn is under way */
    bit told;            /* the word that another host queues is under way */
}

typedef Command {
    unsigned kind : 2;
    unsigned age : 3;
    bit done;
    bit ok;
    bit others;         /* acquire: other hosts queue */
    unsigned count : 3; /* fences reserved */
    byte first;
}

Host host[N];
Command op[N];
byte key = NOBODY;
byte key_left;
byte queue[N]; /* tokens in order of arrival, then NOBODY */
byte turn_left; /* of the first in the queue */
bit turn_given; /* to the first in the queue */
bit is_heard;   /* words that are sent in this step arrive */
byte broken;    /* the invariant that does not hold */
#ifdef LIVE
byte free_for; /* how long the key has been free while somebody waits */
#else
#ifdef FROM_PLACE
byte passed_by; /* grants since another host has a place in the queue */
#endif
byte counter; /* the last fence reserved */
byte last;    /* the last fence granted */
#endif

#define INSIDE(i) ((host[i].state == HELD || host[i].state == KEPT) && host[i].left > 0)

inline must(number, condition)
{
    if
    :: condition
    :: else -> broken = number; assert(broken != number)
    fi
}

inline clear(i)
{
    op[i].kind = NONE;
    op[i].age = 0;
    op[i].done = 0;
    op[i].ok = 0;
    op[i].others = 0;
    op[i].count = 0;
    op[i].first = 0
}

inline send(i, which)
{
    op[i].kind = which
}

/* I1 */
inline check()
{
    must(1, !(INSIDE(0) && INSIDE(1)))
}

inline drop_first()
{
    queue[0] = queue[1];
    queue[1] = NOBODY;
    turn_given = 0;
    turn_left = 0
}

inline leave(i)
{
    if
    :: queue[0] == TOKEN(i) -> drop_first()
    :: queue[1] == TOKEN(i) -> queue[1] = NOBODY
    :: else
    fi
}

inline join(i)
{
    if
    :: queue[0] == NOBODY -> queue[0] = TOKEN(i)
    :: queue[0] != NOBODY && queue[0] != TOKEN(i) -> queue[1] = TOKEN(i)
    :: else
    fi
}

/* Gives the turn to the first in the queue, if that is not `me` (a token). The word may get lost; who
 * is dead does not hear it, and is dropped, as is who let its turn pass. */
inline advance(me)
{
    do
    :: queue[0] != NOBODY && queue[0] != me && turn_given && turn_left == 0 ->
#ifdef TURN_FOR_EVER
        break
#else
        drop_first()
#endif
    :: queue[0] != NOBODY && queue[0] != me && !turn_given && host[queue[0] - 1].state == DEAD ->
        drop_first()
    :: queue[0] != NOBODY && queue[0] != me && !turn_given && host[queue[0] - 1].state != DEAD ->
        turn_given = 1;
        turn_left = TURN;
#ifdef LIVE
        host[queue[0] - 1].turn = (is_heard -> 1 : host[queue[0] - 1].turn);
#endif
        break
    :: else -> break
    od
}

inline reserve(i)
{
#ifndef LIVE
    op[i].first = counter + 1;
    op[i].count = F;
    counter = counter + F
#else
    op[i].count = F
#endif
}

#ifdef LIVE
#define MAY_RESERVE true
#else
#define MAY_RESERVE (counter + F <= FENCES)
#endif

inline run_acquire(i)
{
    if
    :: key != NOBODY && key != TOKEN(i) ->
        join(i);
        host[key - 1].told = (is_heard && host[key - 1].state != DEAD -> 1 : host[key - 1].told)
    :: else ->
        if
#ifndef QUEUE_IGNORED
        :: key == NOBODY -> advance(TOKEN(i))
#endif
        :: else
        fi;
        if
#ifndef QUEUE_IGNORED
        :: key == NOBODY && queue[0] != NOBODY && queue[0] != TOKEN(i) -> join(i)
        :: else ->
#else
        :: true ->
            must(17, key == TOKEN(i) || queue[0] == NOBODY || queue[0] == TOKEN(i))
#endif
            key = TOKEN(i);
            key_left = T;
            leave(i);
            turn_given = 0;
            turn_left = 0;
            op[i].others = (queue[0] != NOBODY);
            op[i].ok = 1;
            reserve(i)
        fi
    fi
}

inline run_renew(i)
{
    if
    :: key == TOKEN(i) ->
        key_left = T;
        op[i].ok = 1;
        reserve(i)
    :: else
    fi
}

inline run_release(i)
{
    if
    :: key == TOKEN(i) -> key = NOBODY; key_left = 0
    :: else
    fi;
    leave(i);
    if
    :: key == NOBODY -> advance(NOBODY)
    :: else
    fi
}

inline execute(i)
{
    if
    :: op[i].kind == ACQUIRE -> run_acquire(i)
    :: op[i].kind == RENEW -> run_renew(i)
    :: op[i].kind == RELEASE -> run_release(i)
    fi;
    op[i].done = 1
}

#ifdef DEADLINE_FROM_NOW
#define LEFT(i) T
#else
#define LEFT(i) (op[i].age < T -> T - op[i].age : 0)
#endif

/* A client is granted the key, with that fence. */
inline grant(i, fence)
{
#ifdef LIVE
    free_for = 0;
#else
    must(12, fence > last)
    last = fence;
#endif
    must(3, host[i].left > MARGIN)
#ifdef FROM_PLACE
    passed_by = (queue[0] != NOBODY && queue[0] != TOKEN(i) -> passed_by + 1 : 0);
    must(17, passed_by <= K)
#endif
    host[i].state = HELD;
    host[i].waits = 0;
    if
    :: host[i].known ->
        host[i].passed++;
        must(17, host[i].passed <= K)
    :: else
    fi
}

inline read_acquire(i)
{
    if
    :: op[i].ok && LEFT(i) > MARGIN && host[i].waits ->
        host[i].left = LEFT(i);
        host[i].known = op[i].others;
        host[i].passed = 0;
#if defined(BLOCK_KEPT) || defined(BLOCK_OF_THE_ENDED)
        if
        :: host[i].spare == 0 -> host[i].next = op[i].first + 1; host[i].spare = op[i].count - 1
        :: else
        fi;
#else
        host[i].next = op[i].first + 1;
        host[i].spare = op[i].count - 1;
#endif
        grant(i, op[i].first)
    :: op[i].ok && LEFT(i) > MARGIN && !host[i].waits -> host[i].state = RELEASING
    :: op[i].ok && LEFT(i) <= MARGIN /* too late to be told: it asks again */
    :: !op[i].ok -> host[i].poll = POLL
    fi
}

inline read_renew(i)
{
    if
    :: host[i].state == HELD && op[i].ok ->
        host[i].left = (LEFT(i) > host[i].left -> LEFT(i) : host[i].left);
        host[i].next = op[i].first;
        host[i].spare = op[i].count
#ifdef BLOCK_OF_THE_ENDED
    :: host[i].state != HELD && op[i].ok -> host[i].next = op[i].first; host[i].spare = op[i].count
#endif
    :: else
    fi
}

inline read_release(i)
{
    host[i].state = IDLE;
    host[i].poll = 0
}

inline read(i)
{
    if
    :: op[i].kind == ACQUIRE -> read_acquire(i)
    :: op[i].kind == RENEW -> read_renew(i)
    :: op[i].kind == RELEASE -> read_release(i)
    fi;
    clear(i)
}

inline end_hold(i)
{
    host[i].left = 0;
    host[i].known = 0;
    host[i].passed = 0;
#ifndef BLOCK_KEPT
    host[i].next = 0;
    host[i].spare = 0;
#endif
    host[i].state = RELEASING
}

#ifdef NO_BOUND
#define MAY_GO_ON(i) true
#else
#define MAY_GO_ON(i) (!host[i].known || host[i].passed < K)
#endif
#ifdef ENDED_HANDED_ON
#define ENOUGH(i) true
#else
#define ENOUGH(i) (host[i].left > MARGIN)
#endif

/* The holder gives the lock back: to the next client here, to Redis, or, with the lease or the
 * fences used up, to the next one here after one more question with the same token. */
inline client_releases(i)
{
    if
    :: host[i].waits && MAY_GO_ON(i) && host[i].spare > 0 && ENOUGH(i) ->
#ifdef DEADLINE_FROM_HAND_OFF
        host[i].left = T;
#endif
        grant(i, host[i].next);
#ifndef FENCE_REUSED
        host[i].next++;
#endif
        host[i].spare--
    :: host[i].waits && MAY_GO_ON(i) && host[i].spare == 0 && op[i].kind == NONE ->
        host[i].state = IDLE;
        host[i].left = 0;
        host[i].poll = 0
    :: else -> end_hold(i)
    fi
}

inline sweep(i)
{
    if
    :: host[i].state == HELD && host[i].left <= MARGIN -> host[i].state = KEPT
    :: else
    fi;
    if
    :: host[i].state == KEPT && host[i].left == 0 -> end_hold(i)
    :: else
    fi
}

inline hear_of_others(i)
{
    host[i].told = 0;
    if
    :: host[i].state == HELD && !host[i].known -> host[i].known = 1; host[i].passed = 0
    :: else
    fi
}

inline tick()
{
    byte n;

    for (n : 0 .. N - 1) {
        host[n].left = (host[n].left > 0 -> host[n].left - 1 : 0);
#ifndef NO_POLL
        host[n].poll = (host[n].poll > 0 -> host[n].poll - 1 : 0);
#endif
        op[n].age = (op[n].kind != NONE && op[n].age < T -> op[n].age + 1 : op[n].age)
    }
    n = 0;
    turn_left = (turn_left > 0 -> turn_left - 1 : 0);
    if
    :: key_left > 1 -> key_left--
    :: else -> key_left = 0; key = NOBODY
    fi
}

#ifdef LIVE
/* A host that lives does what it has to before time goes on. */
#define IS_BUSY(i) \
    (host[i].state != DEAD && \
     (op[i].kind != NONE || host[i].state == RELEASING || host[i].turn || \
      (host[i].state == IDLE && host[i].waits && host[i].poll == 0)))
#define WAITS(i) (host[i].state == IDLE && host[i].waits)

/* I18: while somebody waits, the key is free for two looks at the most. */
inline judge_rest()
{
    if
    :: key == NOBODY && (WAITS(0) || WAITS(1)) ->
        free_for++;
        must(18, free_for <= 2 * POLL)
    :: else -> free_for = 0
    fi
}

inline die(i)
{
    host[i].state = DEAD;
    host[i].left = 0;
    host[i].waits = 0;
    host[i].turn = 0;
    host[i].told = 0;
    host[i].poll = 0;
    host[i].next = 0;
    host[i].spare = 0;
    host[i].known = 0;
    host[i].passed = 0;
    clear(i)
}
#endif

#define ALIVE(i) (host[i].state != DEAD)
#define IS_FREE(i) (op[i].kind == NONE)
#define UNDER_WAY(i) (op[i].kind != NONE && !op[i].done)
#define MAY_RUN(i) (UNDER_WAY(i) && (op[i].kind == RELEASE || MAY_RESERVE))

proctype live(byte i)
{
    do
    :: atomic {
        d_step { sweep(i) };
        if
        :: d_step { ALIVE(i) && !host[i].waits -> host[i].waits = 1 } /* somebody comes */
        :: d_step { host[i].state == IDLE && host[i].waits && host[i].poll == 0 && IS_FREE(i) ->
            send(i, ACQUIRE) }
#ifndef LIVE
        :: d_step { host[i].state == IDLE && host[i].waits && IS_FREE(i) ->
            host[i].waits = 0; /* the last one gives up */
            host[i].state = RELEASING }
#endif
        :: d_step { host[i].state == HELD && IS_FREE(i) && (host[i].left < T || host[i].spare < F) ->
            send(i, RENEW) }
        :: d_step { host[i].state == HELD -> client_releases(i); check() }
#ifdef ENDED_HANDED_ON
        :: d_step { host[i].state == KEPT -> client_releases(i); check() }
#endif
        :: d_step { host[i].state == RELEASING && IS_FREE(i) -> send(i, RELEASE) }
        :: d_step { op[i].kind != NONE && op[i].done -> read(i); check() }
#ifdef LIVE
        :: d_step { host[i].turn -> host[i].turn = 0; host[i].poll = 0 }
#endif
        :: d_step { host[i].told -> hear_of_others(i) }
#ifdef LIVE
        :: d_step { i == 1 && ALIVE(i) -> die(i) }
#endif
        :: else
        fi
    }
    od
}

proctype world()
{
    byte i;

    do
    :: atomic {
        select(i : 0 .. N - 1);
        if
        :: d_step { MAY_RUN(i) -> is_heard = 1; execute(i); is_heard = 0 }
        :: d_step { MAY_RUN(i) -> execute(i) } /* its words get lost */
#ifndef LIVE
        :: d_step { UNDER_WAY(i) && op[i].kind != RELEASE -> clear(i) }
#endif
        :: else
        fi;
        d_step { i = 0; check() }
    }
#ifdef LIVE
    :: d_step { !IS_BUSY(0) && !IS_BUSY(1) -> judge_rest(); tick(); check() }
#else
    :: d_step { tick(); check() }
#endif
    od
}

init {
    byte n;

    atomic {
        for (n : 0 .. N - 1) {
            run live(n)
        }
        n = 0;
        run world()
    }
}
