/* Notifications of ends: one card request that is FAILED, replayed and ended again, the list end_notifications, two workers
 * that make and deliver CARD_REQUEST_ENDED, a receiver, the database's clock. tests/model/README.md says how to read
 * it.
 *
 * It stands for migrations/schema/04_claim.sql (claim, due_ordered, take_due), 04_order.sql (hold_behind), 05_ends.sql
 * (complete, end_attempts, write_ends), 06_end_notifications.sql (notify_ends, claim_notifications,
 * next_notifications, make_notifications) and 07_routes.sql (note_routes). Left out: other requests (they share no order), what a payload says besides the number of its end,
 * attempts and outcomes of a delivery (every delivery is executed at last), rows that are refused.
 *
 * The world (-D): ENDS of the request, FAULTS (a worker dies, a transaction is rolled back), STEPS of the clock,
 * ORDERED 1: worker 1's configuration says that the route is ordered, worker 0's does not. WITHOUT_...: a guard is
 * taken out. */

#ifndef ENDS
#define ENDS 3
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef STEPS
#define STEPS 1
#endif
#ifndef ORDERED
#define ORDERED 1
#endif
#define WORKERS 2

mtype = {
    an_end_is_told_as_another,
    an_end_is_told_twice,
    an_end_is_told_out_of_order,
    ids_do_not_follow_the_ends,
    an_end_is_never_told
};
#define HOLDS(what, condition) if :: (condition) :: else -> printf("BROKEN: %e\n", what); assert(false) fi
#define SAY(text) printf(text)

/* The request. */
bool is_open = true;
byte ended;

/* The route's row in routes. was_registered: since then every end has a notification. */
bool registered, was_registered;
bool to_be_told[ENDS];

/* Row n of end_notifications is that of end n + 1. TAKEN: its lock is held by a transaction that is not over. */
#define NOT_LISTED 0
#define LISTED 1
#define TAKEN 2
#define GONE 3
byte row[ENDS];

/* The event of each end. */
#define NONE 0
#define PENDING 1
#define PROCESSING 2
#define DONE 3
#define IS_OPEN(n) (event[n] == PENDING || event[n] == PROCESSING)
byte event[ENDS], id[ENDS], says[ENDS];
byte newest; /* id of this request */

bool got[ENDS]; /* the receiver has it; it knows an event by its id, so a repeat is nothing new */
byte last;

byte clock = 3, steps = STEPS, faults = FAULTS;
#define FAULT faults > 0 -> faults--

inline list(n)
{
    if :: registered -> row[n] = LISTED :: else fi
}

/* An attempt ends the request, an operator replays it, an attempt ends it again. */
active proctype Request()
{
end_request:
    do
    :: atomic { is_open && ended < ENDS ->
        printf("database: end %d\n", ended + 1);
        is_open = 0;
        to_be_told[ended] = was_registered;
        ended++;
#ifdef WITHOUT_TELL_IN_END
        skip };
        if
        :: atomic { list(ended - 1) }
        :: atomic { FAULT; SAY("worker: dies\n") }
        fi
#else
        list(ended - 1) }
#endif
    :: atomic { !is_open && ended < ENDS -> SAY("operator: replays\n"); is_open = 1 }
    od
}

/* No notification that waits lies before this row, also not in a transaction that is not over. */
#define LIES(n) (row[n] == LISTED || row[n] == TAKEN)
#ifdef WITHOUT_FIRST_ROW
#define MAY_TAKE(n) (row[n] == LISTED)
#else
#define MAY_TAKE(n) (row[n] == LISTED && !(n > 0 && LIES(0)) && !(n > 1 && LIES(1)))
#endif

/* How this worker's claim sees the type. */
#ifdef WITHOUT_ANY_SAYS_ORDERED
#define AS_ORDERED(w) (ORDERED && w == 1)
#else
#define AS_ORDERED(w) ORDERED
#endif
#define BEFORE(m, n) (IS_OPEN(m) && id[m] < id[n])
#define MAY_CLAIM(w, n) (event[n] == PENDING && (!AS_ORDERED(w) || \
                         !((n != 0 && BEFORE(0, n)) || (n != 1 && BEFORE(1, n)) || (n != 2 && BEFORE(2, n)))))

inline make_event(n)
{
    HOLDS(an_end_is_told_twice, event[n] == NONE);
    event[n] = PENDING;
#ifdef WITHOUT_RISING_IDS
    id[n] = clock;
#else
    id[n] = (clock > newest -> clock : newest + 1);
#endif
    clock++;
    printf("database: makes the event of end %d, id %d\n", n + 1, id[n]);
    HOLDS(ids_do_not_follow_the_ends, (n == 0 || id[n] > id[n - 1]) && (n + 1 >= ENDS || event[n + 1] == NONE));
    newest = id[n];
#ifdef WITHOUT_CONTENT
    says[n] = ended /* as the request is now */
#else
    says[n] = n + 1 /* as the row says */
#endif
}

proctype Worker(byte w)
{
    byte n;
end_worker:
    do
    :: atomic { !registered && (w == 0 || was_registered) ->
        SAY("worker: registers the route\n"); registered = 1; was_registered = 1 }
    :: atomic { /* claim_notifications: FOR UPDATE SKIP LOCKED */
        if :: MAY_TAKE(0) -> n = 0 :: MAY_TAKE(1) -> n = 1 :: ENDS > 2 && MAY_TAKE(2) -> n = 2 fi;
        row[n] = TAKEN };
#ifdef WITHOUT_ONE_TRANSACTION
        if
        :: atomic { row[n] = GONE }; if :: atomic { make_event(n) } :: atomic { FAULT; SAY("worker: dies\n") } fi
        :: atomic { make_event(n) };
            if :: atomic { row[n] = GONE } :: atomic { FAULT; SAY("worker: dies\n"); row[n] = LISTED } fi
        fi;
#else
        if
        :: atomic { make_event(n); row[n] = GONE }
        :: atomic { FAULT; SAY("database: the claim is rolled back\n"); row[n] = LISTED }
        fi;
#endif
        n = 0
    :: atomic { /* claim, hold_behind */
        if :: MAY_CLAIM(w, 0) -> n = 0 :: MAY_CLAIM(w, 1) -> n = 1 :: ENDS > 2 && MAY_CLAIM(w, 2) -> n = 2 fi;
        event[n] = PROCESSING };
        if
        :: atomic {
            printf("receiver: is told end %d as %d by worker %d\n", n + 1, says[n], w);
            HOLDS(an_end_is_told_as_another, says[n] == n + 1);
            HOLDS(an_end_is_told_out_of_order, !ORDERED || got[n] || last < n + 1);
            got[n] = 1;
            last = (last < n + 1 -> n + 1 : last) }
        :: atomic { FAULT; SAY("worker: dies\n") }
        fi;
        atomic {
            if
            :: got[n] -> event[n] = DONE
            :: FAULT; event[n] = PENDING
            :: !got[n] -> event[n] = PENDING /* the lease ran out */
            fi;
            n = 0 }
    od
}

#ifdef WITHOUT_REGISTRATION
/* A worker whose configuration lacks the route, while nobody has named it for a minute. */
active proctype Other()
{
end_other:
    atomic { registered -> SAY("worker: removes the route that nobody names\n"); registered = 0 }
}
#endif

active proctype Clock()
{
end_clock:
    do
    :: atomic { steps > 0 -> steps--; clock = clock - 3; SAY("-- the database's clock steps back\n") }
    od
}

active proctype Monitor()
{
    byte n;
end_monitor:
    atomic {
        timeout ->
        do
        :: n < ENDS -> HOLDS(an_end_is_never_told, !to_be_told[n] || got[n]); n++
        :: else -> break
        od
    }
}

init { atomic { run Worker(0); run Worker(1) } }
