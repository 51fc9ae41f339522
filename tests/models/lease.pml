/*
 * The lease of one key: N brokers, one Redis, links that delay, break, and leave commands behind
 * which run late (zombies). README.md says what is proven, the bounds, and what is left out.
 *
 * Time is counted in ticks and only as what is left or how old something is, so the states are few
 * and no run ends: the search covers histories of any length. A broker does something only when
 * its process moves; one that does not move is paused.
 */

#ifndef N
#define N 2 /* brokers */
#endif
#ifndef ZOMBIES
#define ZOMBIES 1 /* commands left behind that each faulty link may have at a time */
#endif
#ifndef FAULTY
#define FAULTY 1 /* brokers whose links break; those of the others only delay */
#endif
#ifndef T
#define T 3 /* ttl */
#endif
#ifndef T_SHORT
#define T_SHORT T /* a second ttl, of some renewals */
#endif
#ifndef MARGIN
#define MARGIN 1 /* `lost` is told this long before the deadline */
#endif
#ifndef W
#define W 1 /* an acquire or a renewal is refused when it runs later than this after its sending */
#endif

#if T > W
#define AGE_MAX T
#else
#define AGE_MAX (W + 1)
#endif
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
#define REFUSED 2

typedef Broker {
    unsigned state : 3;
    unsigned left : 3;  /* until the deadline that the client was told */
    unsigned doubt : 3; /* until the not_after of what got no answer is over */
    bit ended;          /* the token was released or abandoned: only deletes may carry it */
}

typedef Command {
    unsigned kind : 2;
    unsigned token : 3;
    unsigned stage : 2;
    unsigned age : 3;
    bit brief;    /* T_SHORT instead of T */
    bit definite; /* a delete that ran when nothing older could run any more */
}

Broker broker[N];
Command main_op[N];   /* at most one of these is under way ... */
Command delete_op[N]; /* ... but a delete may follow it on the same link at once */
Command zombie[FAULTY * ZOMBIES];
byte key = NOBODY;
byte key_left;
byte broken; /* the invariant that does not hold */

#define TTL(c) (c.brief -> T_SHORT : T)
#define INSIDE(i) ((broker[i].state == HELD || broker[i].state == KEPT) && broker[i].left > 0)

inline must(number, condition)
{
    if
    :: condition
    :: else -> broken = number; assert(broken != number)
    fi
}

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
            must(2, key == TOKEN(one) && key_left >= broker[one].left)
#endif
        :: else
        fi
    }
    one = 0;
    two = 0
}

inline clear(c)
{
    c.kind = NONE;
    c.token = NOBODY;
    c.stage = SENT;
    c.age = 0;
    c.brief = 0;
    c.definite = 0
}

inline send(i, c, which)
{
    must(7, which == DELETE || !broker[i].ended)
    c.kind = which;
    c.token = TOKEN(i);
    c.stage = SENT;
    c.age = 0
}

/* The token is never used again: from here on it is one of those that no broker knows. */
inline forget(i)
{
    byte z;

    if
    :: key == TOKEN(i) -> key = ENDED
    :: else
    fi;
    if
    :: main_op[i].token == TOKEN(i) -> main_op[i].token = ENDED
    :: else
    fi;
    if
    :: delete_op[i].token == TOKEN(i) -> delete_op[i].token = ENDED
    :: else
    fi;
    for (z : 0 .. FAULTY * ZOMBIES - 1) {
        if
        :: zombie[z].token == TOKEN(i) -> zombie[z].token = ENDED
        :: else
        fi
    }
    z = 0;
    broker[i].state = IDLE;
    broker[i].left = 0;
    broker[i].doubt = 0;
    broker[i].ended = 0
}

inline give_back(i)
{
    broker[i].ended = 1;
#ifdef FORGET_TOKEN
    if
    :: broker[i].state == ACQUIRING -> forget(i)
    :: else -> broker[i].state = RELEASING; broker[i].left = 0
    fi
#else
    broker[i].state = RELEASING;
    broker[i].left = 0
#endif
}

/* Nothing that was sent may still come to set the key or to push its expiry out. */
#ifdef UNDER_WAY_FORGOTTEN
#define IS_SETTLED(i) (broker[i].doubt == 0)
#else
#define IS_SETTLED(i) (broker[i].doubt == 0 && main_op[i].token != TOKEN(i))
#endif

/* First in each step of a broker: what has run out ends. */
inline sweep(i)
{
    if
    :: broker[i].state == HELD && broker[i].left <= MARGIN ->
        broker[i].state = KEPT;
        broker[i].ended = 1
    :: else
    fi;
    if
    :: broker[i].state == KEPT && broker[i].left == 0 && IS_SETTLED(i) -> forget(i)
    :: broker[i].state == KEPT && broker[i].left == 0 && !IS_SETTLED(i) -> give_back(i)
    :: else
    fi
}

#ifdef NO_NOT_AFTER
#define ON_TIME(c) true
#else
#define ON_TIME(c) (c.age <= W)
#endif

#ifdef REASSERT /* after a loss of data a renewal sets a missing key; here it may do so always */
#define MAY_CREATE(c) true
#else
#define MAY_CREATE(c) (c.kind == ACQUIRE)
#endif

/* Each script in Redis, at one moment. */
inline execute(c, in_doubt)
{
    if
#ifndef NO_NOT_AFTER
    :: c.kind != DELETE && c.age > W -> c.stage = REFUSED
#endif
    :: c.kind != DELETE && ON_TIME(c) && key == NOBODY && MAY_CREATE(c) ->
        must(10, c.token != ENDED)
        key = c.token;
        key_left = TTL(c);
        c.stage = DONE
    :: c.kind != DELETE && ON_TIME(c) && key == c.token ->
        must(10, c.token != ENDED)
#ifdef RENEW_LOWERS
        key_left = TTL(c);
#else
        key_left = (key_left > TTL(c) -> key_left : TTL(c));
#endif
        c.stage = DONE
    :: c.kind != DELETE && ON_TIME(c) && key != c.token && !(key == NOBODY && MAY_CREATE(c)) ->
        c.stage = REFUSED
    :: c.kind == DELETE ->
        if
#ifdef PLAIN_DELETE
        :: key != NOBODY ->
#ifndef ONLY_EXCLUSION
            must(8, key == c.token)
#endif
            key = NOBODY;
            key_left = 0
#else
        :: key == c.token ->
            key = NOBODY;
            key_left = 0
#endif
        :: else
        fi;
        c.definite = (in_doubt == 0);
        c.stage = DONE
    fi
}

inline grow_old(c)
{
    if
    :: (c.kind == ACQUIRE || c.kind == RENEW) && c.age < AGE_MAX -> c.age++
    :: else
    fi
}

inline tick()
{
    byte n;

    for (n : 0 .. N - 1) {
        broker[n].left = (broker[n].left > 0 -> broker[n].left - 1 : 0);
        broker[n].doubt = (broker[n].doubt > 0 -> broker[n].doubt - 1 : 0);
        grow_old(main_op[n])
    }
    for (n : 0 .. FAULTY * ZOMBIES - 1) {
        grow_old(zombie[n])
    }
    n = 0;
    if
    :: key_left > 1 -> key_left--
    :: else -> key_left = 0; key = NOBODY
    fi
}

#ifdef DEADLINE_FROM_REPLY
#define LEFT(c) (TTL(c))
#else
#define LEFT(c) (TTL(c) - (c.age < TTL(c) -> c.age : TTL(c)))
#endif
#ifdef TELL_LATE
#define ENOUGH 0
#else
#define ENOUGH MARGIN
#endif

/* An acquire that came too late to be told leaves the broker asking again with the same token. */
inline read_acquire(i)
{
    if
    :: broker[i].state == ACQUIRING && main_op[i].stage == DONE && LEFT(main_op[i]) > ENOUGH ->
        broker[i].state = HELD;
        broker[i].left = LEFT(main_op[i]);
#ifdef GRANT_SETTLES
        broker[i].doubt = 0;
#endif
        must(3, broker[i].left > MARGIN)
    :: else
    fi
}

inline read_renew(i)
{
    if
    :: broker[i].state == HELD && main_op[i].stage == DONE ->
        must(4, broker[i].left > MARGIN)
        broker[i].left = (broker[i].left > LEFT(main_op[i]) -> broker[i].left : LEFT(main_op[i]))
#ifdef LATE_REVIVES
    :: broker[i].state == KEPT && main_op[i].stage == DONE && LEFT(main_op[i]) > MARGIN ->
        must(4, false)
#endif
    :: else
    fi
}

inline read_main(i)
{
    if
    :: main_op[i].token == TOKEN(i) && main_op[i].kind == ACQUIRE -> read_acquire(i)
    :: main_op[i].token == TOKEN(i) && main_op[i].kind == RENEW -> read_renew(i)
    :: else
    fi;
    clear(main_op[i])
}

#ifdef DELETE_ONCE
#define IS_DEFINITE(i) true
#else
#ifdef DELETE_BY_REPLY
#define IS_DEFINITE(i) (broker[i].doubt == 0)
#else
#define IS_DEFINITE(i) (delete_op[i].definite)
#endif
#endif

inline read_delete(i)
{
    if
    :: IS_DEFINITE(i) ->
        must(9, key != TOKEN(i))
        clear(delete_op[i]);
        forget(i)
    :: else -> clear(delete_op[i])
    fi
}

inline leave_behind(i, c)
{
    byte slot = i * ZOMBIES;

    do
    :: slot < (i + 1) * ZOMBIES && zombie[slot].kind != NONE -> slot++
    :: else -> break
    od;
    if
    :: slot < (i + 1) * ZOMBIES && c.kind != NONE && c.stage == SENT ->
        zombie[slot].kind = c.kind;
        zombie[slot].token = c.token;
        zombie[slot].age = c.age;
        zombie[slot].brief = c.brief
    :: else
    fi;
    slot = 0
}

#ifdef RENEWALS_UNCOUNTED
#define LEAVES_DOUBT(c) (c.kind == ACQUIRE)
#else
#define LEAVES_DOUBT(c) (c.kind == ACQUIRE || c.kind == RENEW)
#endif

/* Nothing on this link is answered any more; what was under way is lost, or runs late. */
inline break_link(i, main_stays, delete_stays)
{
    if
    :: LEAVES_DOUBT(main_op[i]) && main_op[i].token == TOKEN(i) && main_op[i].age <= W &&
       W + 1 - main_op[i].age > broker[i].doubt -> broker[i].doubt = W + 1 - main_op[i].age
    :: else
    fi;
    if
    :: main_stays -> leave_behind(i, main_op[i])
    :: else
    fi;
    if
    :: delete_stays -> leave_behind(i, delete_op[i])
    :: else
    fi;
    clear(main_op[i]);
    clear(delete_op[i])
}

#define NO_MAIN (main_op[i].kind == NONE)
#define NO_DELETE (delete_op[i].kind == NONE)
#define BREAKS (i < FAULTY && !(NO_MAIN && NO_DELETE))

proctype live(byte i)
{
    do
    :: atomic {
        d_step {
#ifdef NO_SWEEP
            if
            :: main_op[i].stage == SENT -> sweep(i)
            :: else
            fi
#else
            sweep(i)
#endif
        };
        if
        :: d_step { broker[i].state <= ACQUIRING && NO_MAIN && NO_DELETE ->
            broker[i].state = ACQUIRING;
            send(i, main_op[i], ACQUIRE) }
        :: d_step { broker[i].state == HELD && NO_MAIN -> send(i, main_op[i], RENEW) }
#if T_SHORT != T
        :: d_step { broker[i].state == HELD && NO_MAIN ->
            main_op[i].brief = 1;
            send(i, main_op[i], RENEW) }
#endif
        :: d_step { broker[i].state == ACQUIRING || broker[i].state == HELD ||
                    broker[i].state == KEPT -> give_back(i) }
#ifdef FREE_AT_LOST
        :: d_step { broker[i].state == KEPT && NO_DELETE -> send(i, delete_op[i], DELETE) }
#endif
#ifdef REUSE_TOKEN
        :: d_step { broker[i].state == RELEASING && NO_MAIN && NO_DELETE ->
            broker[i].state = ACQUIRING;
            send(i, main_op[i], ACQUIRE) }
#endif
        :: d_step { broker[i].state == RELEASING && NO_DELETE -> send(i, delete_op[i], DELETE) }
        :: d_step { main_op[i].stage != SENT -> read_main(i); check() }
        :: d_step { NO_MAIN && delete_op[i].stage != SENT -> read_delete(i); check() }
        :: d_step { BREAKS -> break_link(i, false, false) }
        :: d_step { BREAKS && main_op[i].stage == SENT -> break_link(i, true, false) }
        :: d_step { BREAKS && delete_op[i].stage == SENT -> break_link(i, false, true) }
#if ZOMBIES > 1
        :: d_step { BREAKS -> break_link(i, true, true) }
#endif
        :: else
        fi
    }
    od
}

#define UNDER_WAY(c) (c.kind != NONE && c.stage == SENT)

/* Redis runs what is on one link in its order, zombies whenever. */
proctype world()
{
    byte i;

    do
    :: d_step { tick(); check() }
    :: atomic {
        select(i : 0 .. N - 1);
        if
        :: d_step { UNDER_WAY(main_op[i]) -> execute(main_op[i], broker[i].doubt) }
        :: d_step { UNDER_WAY(delete_op[i]) && !UNDER_WAY(main_op[i]) ->
            execute(delete_op[i], broker[i].doubt) }
        :: else
        fi;
        d_step { i = 0; check() }
    }
    :: atomic {
        select(i : 0 .. FAULTY * ZOMBIES - 1);
        if
        :: d_step { zombie[i].kind != NONE -> execute(zombie[i], 0); clear(zombie[i]) }
        :: d_step { zombie[i].kind != NONE -> clear(zombie[i]) }
        :: else
        fi;
        d_step { i = 0; check() }
    }
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
