/* A database that goes back to an earlier state, by a restore or by a failover to a standby that lacks the last
 * commits, while the issuer and core-api keep theirs. One event, two workers, which may live on. tests/model/README.md
 * says how to read it.
 *
 * It stands for reason_to_look() in common/core/decide/decide_first.c and for the card's id, which is made from the
 * event's id. Left out: what protocol.pml has shown for a database that goes forward only (refusals, marks, attempts,
 * clocks); requests that the earlier state lacks, whose repeat is a new request by nature; users who are not eligible
 * any more, which end REJECTED without a look-up; issuers that honour no keys.
 *
 * The world (-D): FAULTS, RESTORES, TICKS, LIFETIME of a key, UNDERWAY: ticks that a create may be under way. The
 * protocol's own figure: MARGIN (ticks). WITHOUT_...: a guard is taken out. */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef RESTORES
#define RESTORES 1
#endif
#ifndef TICKS
#define TICKS 5
#endif
#define LIFETIME 3
#define UNDERWAY 1
#define MARGIN UNDERWAY
#define CALLS 2 /* that are under way without a caller */

mtype = {
    two_live_cards,
    a_card_in_use_is_cancelled,
    COMPLETED_without_a_live_card,
    COMPLETED_without_a_link,
    stuck
};
#define HOLDS(what, condition) if :: (condition) :: else -> printf("BROKEN: %e\n", what); assert(false) fi
#define SAY(text) printf(text)

#define PENDING 0
#define PROCESSING 1
#define COMPLETED 2
#define REJECTED 3
#define FAILED 4

/* The row, and the same as a backup or a standby has it. sent: 1 + tick of the first claim whose create may have
 * arrived, 0: none is on record. stored: our id of the card, 0: none. */
typedef Row { byte status; byte sent; byte stored; byte token; byte due };
Row row, kept;
bool has_kept;

byte mine[2]; /* the tokens of the workers; 0: none, also when it has died */
byte ids = 1; /* of a card, ours, that was given out last */
byte now;             /* ticks since the event was accepted */
bool card;            /* the issuer's, live */
byte key_since;       /* 1 + tick of the first request that the issuer knows the key of */
byte flying[CALLS];   /* 1 + tick of a create whose caller has given up */
byte linked;          /* core-api: to our id of a card */
byte faults = FAULTS, restores = RESTORES;
#define FAULT faults > 0 -> faults--

inline execute()
{
    if
    :: key_since != 0 && now + 1 - key_since < LIFETIME -> SAY("issuer: answers with the card of the key\n")
    :: else ->
        printf("issuer: makes a card (tick %d)\n", now);
        HOLDS(two_live_cards, !card);
        card = 1;
        key_since = now + 1
    fi
}

#ifdef WITHOUT_OLD_MARGIN
#define IS_OLD (now >= LIFETIME)
#else
#define IS_OLD (now + MARGIN >= LIFETIME)
#endif
#ifdef WITHOUT_LOOK_AT_THE_OLD
#define MUST_LOOK_FIRST false
#else
#define MUST_LOOK_FIRST (was_sent == 0 && IS_OLD)
#endif
#ifdef WITHOUT_LOOK_BEFORE_AN_OLD_REPEAT
#define MUST_LOOK_AGAIN false
#else
#define MUST_LOOK_AGAIN (was_sent != 0 && IS_OLD)
#endif
#define IS_EXPIRED (was_sent != 0 && now + 1 - was_sent + MARGIN >= LIFETIME)
#define IS_SETTLED (was_sent == 0 || now + 1 - was_sent > UNDERWAY)
#define IS_MINE (row.status == PROCESSING && row.token == mine[w])

inline ends(how, is_due)
{
    if
    :: IS_MINE ->
        printf("database: status %d\n", how);
        row.token = 0;
        HOLDS(COMPLETED_without_a_live_card, how != COMPLETED || card);
        HOLDS(COMPLETED_without_a_link, how != COMPLETED || linked != 0);
        row.status = how; row.due = is_due
    :: else -> printf("worker %d: is fenced\n", w)
    fi
}

proctype Worker(byte w)
{
    byte was_sent, id, since; /* since: the claim; no create leaves in a later tick */
    bool looked;
end_worker:
    do
    :: atomic { row.status == PENDING && now >= row.due && (w == 0 || mine[0] != 0) ->
        printf("worker %d: claims (sent %d, tick %d)\n", w, row.sent, now);
        row.token = 1; /* one that is nobody's, not even in what is kept */
        do
        :: row.token == kept.token || row.token == mine[0] || row.token == mine[1] -> row.token++
        :: else -> break
        od;
        mine[w] = row.token; row.status = PROCESSING; since = now;
        was_sent = row.sent;
        id = row.stored;
        if :: row.sent == 0 -> row.sent = now + 1 :: else fi;
        if :: id != 0 -> goto link :: else fi };
send:
        atomic {
            if
            :: now != since -> goto over
            :: now == since && IS_EXPIRED -> goto look_up
            :: now == since && !IS_EXPIRED && !looked && (MUST_LOOK_FIRST || MUST_LOOK_AGAIN) -> goto look_up
            :: else ->
                printf("worker %d: sends the create (tick %d)\n", w, now);
                if
                :: execute(); goto save
                :: FAULT; execute(); SAY("issuer: its answer is lost\n"); ends(PENDING, now); goto over
                :: (faults > 0 && flying[0] == 0) -> faults--; flying[0] = now + 1; ends(PENDING, now); goto over
                :: (faults > 0 && flying[0] != 0 && flying[1] == 0) ->
                    faults--; flying[1] = now + 1; ends(PENDING, now); goto over
                :: FAULT; SAY("worker: the connection is refused\n");
                    if :: IS_MINE && was_sent == 0 -> row.sent = 0 :: else fi;
                    ends(PENDING, now); goto over
                fi
            fi };
look_up:
        atomic {
            printf("worker %d: looks up: %d (tick %d)\n", w, card, now);
            if
            :: card -> goto save
            :: !card && !IS_SETTLED -> ends(PENDING, now + 1); goto over
            :: !card && IS_SETTLED && IS_EXPIRED -> ends(FAILED, now); goto over /* issuer_key_expired */
            :: !card && IS_SETTLED && !IS_EXPIRED -> looked = 1; goto send
            :: FAULT; SAY("issuer: the look-up is not answered\n");
                if :: IS_MINE && was_sent == 0 -> row.sent = 0 :: else fi;
                ends(PENDING, now); goto over
            fi };
save:
        atomic {
            if
            :: IS_MINE ->
#ifdef WITHOUT_CARD_ID
                ids++;
#endif
                printf("database: stores the card with our id %d\n", ids);
                row.stored = ids;
                id = ids
            :: !IS_MINE -> printf("worker %d: is fenced\n", w); goto over
            :: FAULT; printf("worker %d: dies with the card in its hands\n", w); goto over
            fi };
link:
        atomic {
            if
            :: linked == 0 || linked == id -> linked = id; printf("core-api: links the card with our id %d\n", id)
            :: linked != 0 && linked != id ->
                printf("core-api: has the link to %d, not to %d\n", linked, id);
                HOLDS(a_card_in_use_is_cancelled, !IS_MINE)
            fi;
            if
            :: FAULT; SAY("core-api: its answer is lost\n"); ends(PENDING, now)
            :: linked == id -> ends(COMPLETED, now)
            :: linked != id /* it was fenced before the cancel */
            fi };
over:
        atomic {
            mine[w] = 0; was_sent = 0; id = 0; since = 0; looked = 0 }
    od
}

active proctype Issuer()
{
    byte n;
end_issuer:
    do
    :: atomic { flying[0] != 0 || flying[1] != 0 ->
        if :: flying[0] != 0 -> n = 0 :: flying[1] != 0 -> n = 1 fi;
        flying[n] = 0; n = 0;
        if :: execute() :: SAY("issuer: a create is lost on its way\n") fi }
    od
}

active proctype Database()
{
end_database:
    do
    :: atomic { row.status == PROCESSING && row.token != mine[0] && row.token != mine[1] ->
        SAY("database: the lease ran out\n"); row.status = PENDING; row.token = 0 }
    :: atomic { restores > 0 && !has_kept ->
        SAY("-- the standby gets nothing from here on\n");
        has_kept = 1;
        kept.status = row.status; kept.sent = row.sent; kept.stored = row.stored; kept.token = row.token;
        kept.due = row.due }
    :: atomic { restores > 0 && has_kept ->
        printf("-- the standby takes over: status %d, sent %d, stored %d\n", kept.status, kept.sent, kept.stored);
        restores--;
        row.status = kept.status; row.sent = kept.sent; row.stored = kept.stored; row.token = kept.token;
        row.due = kept.due }
    od
}

#define IS_OVERDUE(n) (flying[n] != 0 && now + 1 - flying[n] >= UNDERWAY)

active proctype Clock()
{
end_clock:
    do
    :: atomic { now < TICKS && !IS_OVERDUE(0) && !IS_OVERDUE(1) -> now++; printf("-- tick %d\n", now) }
    od
}

active proctype Monitor()
{
end_monitor:
    atomic { timeout -> HOLDS(stuck, row.status >= COMPLETED || (row.status == PENDING && row.due > now)) }
}

init { atomic { run Worker(0); run Worker(1) } }
