/* The acceptance of card requests: two clients of one user, each with a key of its own that it repeats, two apis, a
 * database with a synchronous standby, and commits whose outcome the api does not learn. tests/model/README.md says how
 * to read it.
 *
 * It stands for issuing.accept in migrations/schema/03_accept.sql, api/acceptor.c and the warning of PostgreSQL that
 * common/lib/pg watches for. Left out: batches (a batch holds a user once), other bodies under a key, reissues,
 * retentions and the window of the limit, and routes. One row stands for key, limit row and event of a request.
 *
 * The world (-D): FAULTS, POSTS of each client, FAILOVERS. LIMIT requests of the user. WITHOUT_...: a guard is taken
 * out. */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef POSTS
#define POSTS 2
#endif
#ifndef FAILOVERS
#define FAILOVERS 1
#endif
#define LIMIT 1

mtype = {
    two_events_of_one_key,
    more_than_the_limit,
    accepted_without_an_event,
    an_accepted_request_is_lost,
    two_ids_of_one_key,
    limited_though_it_was_accepted,
    stuck
};
#define HOLDS(what, condition) if :: (condition) :: else -> printf("BROKEN: %e\n", what); assert(false) fi
#define SAY(text) printf(text)

/* What is committed. key: the id of its event, by client; 0: there is none. */
typedef Rows { byte key[2]; byte events[2]; byte limited };
Rows primary, standby;
byte lock;    /* of the user: 1 + the api whose transaction has it */
bool lost[2]; /* the transaction of this api went with the primary */

#define ACCEPTED 1
#define LIMITED 2
#define UNAVAILABLE 3
byte job[2];    /* of each api: 1 + the client */
byte waits[2];  /* of each client: 1 + the api that it waits for */
byte answer[2]; /* to each client */
byte told[2];   /* the id that it was told with 202 */
byte ids, faults = FAULTS, failovers = FAILOVERS;
#define FAULT faults > 0 -> faults--

inline replicate()
{
    standby.key[0] = primary.key[0]; standby.key[1] = primary.key[1];
    standby.events[0] = primary.events[0]; standby.events[1] = primary.events[1];
    standby.limited = primary.limited
}

inline record_key() { primary.key[k] = id; primary.limited++ }

inline record_event()
{
    printf("database: commits event %d of client %d\n", id, k);
    primary.events[k]++;
    HOLDS(two_events_of_one_key, primary.events[k] == 1);
    HOLDS(more_than_the_limit, primary.events[0] + primary.events[1] <= LIMIT)
}

inline unlock() { if :: lock == w + 1 -> lock = 0 :: else fi }

#ifdef WITHOUT_USER_LOCK
#define HAS_LOCK true
#else
#define HAS_LOCK (lock == w + 1)
#endif
#ifdef WITHOUT_KEY_BEFORE_LIMIT
#define IS_FOUND (primary.key[k] != 0 && primary.limited < LIMIT)
#else
#define IS_FOUND (primary.key[k] != 0)
#endif
#define IS_OVER (primary.limited >= LIMIT)

proctype Api(byte w)
{
    byte k, id, says;
end_api:
    do
    :: atomic { job[w] != 0 -> k = job[w] - 1; job[w] = 0; ids++; id = ids; lost[w] = 0 };
ask:
        atomic {
            lost[w] = 0;
            if :: lock == 0 -> lock = w + 1 :: else fi;
            if
            :: IS_FOUND -> goto found /* also without the lock */
            :: !IS_FOUND && !HAS_LOCK -> SAY("database: busy\n"); says = UNAVAILABLE; goto reply
            :: !IS_FOUND && HAS_LOCK && IS_OVER ->
                HOLDS(limited_though_it_was_accepted, primary.events[k] == 0);
                says = LIMITED; unlock(); goto reply
            :: !IS_FOUND && HAS_LOCK && !IS_OVER /* it writes, unseen by others */
            fi };
#ifdef WITHOUT_ONE_TRANSACTION_OF_A_REQUEST
        atomic { if :: lost[w] -> goto unknown :: else -> record_key(); replicate() fi };
        if :: atomic { FAULT; unlock(); goto unknown } :: true fi;
#endif
        atomic {
            if
            :: lost[w] -> goto unknown
            :: else ->
                if
                :: FAULT; SAY("database: rolls back, the connection is lost\n"); unlock(); goto unknown
                :: true
                fi;
#ifndef WITHOUT_ONE_TRANSACTION_OF_A_REQUEST
                record_key();
#endif
                record_event();
                says = ACCEPTED;
                unlock();
                if
                :: replicate(); goto reply
                :: FAULT; replicate(); SAY("database: the connection is lost behind the commit\n"); goto unknown
                :: FAULT; SAY("database: the session no longer waits for the standby\n");
#ifdef WITHOUT_WARNING
                    goto reply
#else
                    goto unknown
#endif
                fi
            fi };
found:
        atomic {
            unlock();
            if
            :: lost[w] -> goto unknown
            :: else ->
                printf("database: finds event %d of client %d\n", primary.key[k], k);
                id = primary.key[k];
                says = ACCEPTED;
#ifndef WITHOUT_FOUND_WAITS
                if :: replicate() :: FAULT; goto unknown fi
#endif
            fi };
        goto reply;
unknown: /* the same call again, with the same id; or the client repeats */
        atomic {
            lost[w] = 0;
#ifdef WITHOUT_UNKNOWN_COMMIT
            says = ACCEPTED; /* "it must have been committed" */
#else
            if :: goto ask :: says = UNAVAILABLE fi
#endif
        };
reply:
        atomic {
            printf("api %d: answers client %d with %d (1 accepted, 2 limited, 3 unavailable)\n", w, k, says);
            if
            :: waits[k] == w + 1 ->
                waits[k] = 0;
                answer[k] = says;
                if
                :: says == ACCEPTED ->
                    HOLDS(accepted_without_an_event, primary.events[k] == 1);
                    HOLDS(two_ids_of_one_key, (told[k] == 0 || told[k] == id) && primary.key[k] == id);
                    told[k] = id
                :: else
                fi
            :: else -> SAY("client: it has gone\n")
            fi;
            k = 0; id = 0; says = 0 }
    od
}

proctype Client(byte k)
{
    byte posts = POSTS;
end_client:
    do
    :: atomic { posts > 0 && waits[k] == 0 && answer[k] != LIMITED ->
        posts--;
        answer[k] = 0;
        if
        :: job[0] == 0 -> job[0] = k + 1; waits[k] = 1; printf("client %d: sends its key to api 0\n", k)
        :: job[1] == 0 -> job[1] = k + 1; waits[k] = 2; printf("client %d: sends its key to api 1\n", k)
        :: job[0] != 0 && job[1] != 0 -> printf("client %d: no connection\n", k)
        fi }
    :: atomic { waits[k] != 0 && posts > 0 && faults > 0 ->
        faults--; printf("client %d: gives its call up\n", k);
        waits[k] = 0 }
    od
}

active proctype Standby()
{
end_standby:
    do
    :: atomic { failovers > 0 ->
        SAY("-- the standby takes over\n");
        failovers--;
        primary.key[0] = standby.key[0]; primary.key[1] = standby.key[1];
        primary.events[0] = standby.events[0]; primary.events[1] = standby.events[1];
        primary.limited = standby.limited;
        lock = 0;
        lost[0] = 1; lost[1] = 1;
        HOLDS(an_accepted_request_is_lost, told[0] == 0 || (primary.key[0] == told[0] && primary.events[0] == 1));
        HOLDS(an_accepted_request_is_lost, told[1] == 0 || (primary.key[1] == told[1] && primary.events[1] == 1)) }
    od
}

active proctype Monitor()
{
end_monitor:
    atomic { timeout -> HOLDS(stuck, waits[0] == 0 && waits[1] == 0 && lock == 0) }
}

init { atomic { run Api(0); run Api(1); run Client(0); run Client(1) } }
