/* The protocol behind the promise, for SPIN: one event, two workers, PostgreSQL, the issuer, core-api, an operator and
 * the clocks. tests/model/README.md says what it shows and how to read a counter-example; run.py runs it.
 *
 * One step here is one step there: a guarded statement of the database, a decision of a worker between two answers, an
 * execution at a peer. Between two steps anything else may happen. Each fault is paid from a budget, so every run ends,
 * and an event is stuck when nothing can move and it has no end.
 *
 * A token is compared with the row's only. So only the result is stored: holds[w] = what worker w holds is the row's.
 *
 * The world (-D):
 *   FAULTS     faults in one run             ATTEMPTS   retry.max_attempts       REPLAYS, CANCELS   of the operator
 *   LATE       1: a call may arrive after its caller gave up       SLOW    1: the issuer may work on a create that
 *   TWICE      1: a proxy may deliver a create twice               without a caller, unseen by look-ups
 *              that was executed or given up
 *   FORGETFUL  0: the issuer keeps a refusal under its key         HASTY   1: it refuses before it looks at the key
 *   SLEEP      1: a worker's machine may be suspended, and the worker loses its lease meanwhile
 *   TICKS      length of the run; 0: no time passes                UNDERWAY  ticks that a create may be under way
 *   LIFETIME   of the issuer's keys                                STEPS   steps of the database's clock, by STEP
 *   GATEWAY    1: what stands in front of the issuer may answer 408 over a create that it has passed on, or will
 *   KEYLESS    1: the issuer makes a card for each create, whatever its key, and a gateway may answer 401, 404, 429 ...
 *              over a create that it has passed on, or will: a profile whose key is not trusted, or issuer.keys = ignored
 *   SILENT     1: the look-ups of this event may never be answered with anything that can be read, or not at all,
 *              while those of other events are answered well, or are not
 *   TWO_CARDS  1: the issuer may break its word and make a second card for a key; somebody may close one of the two
 * The protocol's own figures: SETTLE, MARGIN (ticks). WITHOUT_...: one of its guards is taken out. */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef REPLAYS
#define REPLAYS 1
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef SLOW
#define SLOW 0
#endif
#ifndef TWICE
#define TWICE 0
#endif
#ifndef FORGETFUL
#define FORGETFUL 1
#endif
#ifndef HASTY
#define HASTY 0
#endif
#ifndef SLEEP
#define SLEEP 0
#endif
#ifndef TICKS
#define TICKS 0
#endif
#ifndef UNDERWAY
#define UNDERWAY 0
#endif
#ifndef SETTLE
#define SETTLE UNDERWAY
#endif
#ifndef MARGIN
#define MARGIN SETTLE
#endif
#ifndef LIFETIME
#define LIFETIME 100
#endif
#ifndef STEPS
#define STEPS 0
#endif
#ifndef STEP
#define STEP 2
#endif
#ifndef GATEWAY
#define GATEWAY 0
#endif
#ifndef KEYLESS
#define KEYLESS 0
#endif
#ifdef WITHOUT_KEYS_IGNORED /* the key of a generic issuer is trusted, whatever the issuer makes of it */
#define IS_TRUSTED true
#else
#define IS_TRUSTED (!KEYLESS)
#endif
#ifndef SILENT
#define SILENT 0
#endif
#ifndef TWO_CARDS
#define TWO_CARDS 0
#endif
#ifndef WORKERS_MARGIN
#define WORKERS_MARGIN MARGIN
#endif
#define CALLS (FAULTS + 1) /* creates under way: each but one was given up, which is a fault */
#define CARDS 3            /* of one event that are distinguished */

/* A property that is broken ends the run and is named in the counter-example. */
mtype = {
    a_card_is_stored_after_the_end,
    an_end_is_changed,
    an_end_is_undone,
    COMPLETED_without_a_live_card,
    COMPLETED_without_a_link,
    REJECTED_with_a_live_card,
    REJECTED_with_a_link,
    more_attempts_than_allowed,
    sent_past_the_keys_lifetime,
    an_end_over_an_unknown_outcome_without_a_look_up,
    FAILED_as_not_found_while_a_create_is_under_way,
    two_live_cards,
    an_end_over_two_live_cards_that_are_known,
    looked_up_again_at_once,
    silent_past_the_keys_lifetime,
    stuck
};
#define HOLDS(what, condition) if :: (condition) :: else -> printf("BROKEN: %e\n", what); assert(false) fi
/* The explanation of a step, for the reader of a counter-example. */
#define SAY(text) printf(text)

/* ---- the database: one row of outbox_events, and the card of its request ------------------------------------- */

#define PENDING 0
#define PROCESSING 1
#define COMPLETED 2
#define REJECTED 3
#define FAILED 4
#define HAS_ENDED (status >= COMPLETED)
#define FAILED_AS_DUPLICATE 5 /* only of an end that is written: FAILED, and `duplicate` is set */

byte status, attempts;
byte first_sent; /* 1 + database time of the first claim whose create may have arrived; 0: none may have */
byte quiet;      /* steady time since which no create has left */
byte due;        /* next_attempt_at, database time */
byte stored;     /* which of the issuer's cards is stored; 0: none */
bool marked;     /* the card must go: cancel_code */
bool holds[2];
#if TWO_CARDS
bool duplicate; /* reason_code or held_end: the issuer has shown two live cards */
#else
#define duplicate 0
#endif

/* One statement that its worker has given up, and that the server may still execute. */
#define NO_STATEMENT 0
#define SAVE 1
#define MARK 2
#define END 3
byte given_up, given_up_value;
bool given_up_holds, given_up_clears, given_up_returns;

/* ---- the issuer ------------------------------------------------------------------------------------------------- */

#define KEY_UNKNOWN 0
#define KEY_AT_WORK 1
#define KEY_DONE 2
#define KEY_REFUSED 3
byte key, key_since, key_card;

#define NO_CARD 0
#define ACTIVE 1
#define CANCELLED 2
byte card[CARDS];
#define IS_LIVE (card[0] == ACTIVE || card[1] == ACTIVE || card[2] == ACTIVE)
#define TWO_ARE_LIVE (card[0] == ACTIVE && card[1] == ACTIVE)
#if TWO_CARDS /* nothing is promised over a second card of one key that we have not seen */
#define NONE_IS_LIVE true
#else
#define NONE_IS_LIVE (!IS_LIVE)
#endif

#define FREE 0
#define FLYING 1
#define AT_WORK 2
byte call[CALLS];
#define IS_OPEN(n) (call[n] != FREE)
#if CALLS == 2
#define ANY_CALL(is) (is(0) || is(1))
#elif CALLS == 3
#define ANY_CALL(is) (is(0) || is(1) || is(2))
#elif CALLS == 4
#define ANY_CALL(is) (is(0) || is(1) || is(2) || is(3))
#elif CALLS == 5
#define ANY_CALL(is) (is(0) || is(1) || is(2) || is(3) || is(4))
#else
#error "FAULTS is 1 to 4"
#endif
byte caller[CALLS]; /* 1 + the worker that waits; 0: none does */
byte sent[CALLS];   /* steady time */

#define NO_ANSWER 0
#define OK 1             /* the key's card, as it was answered first */
#define OK_CANCELLED 2   /* the key's card, as it is now */
#define REFUSED 3
#define UNFORESEEN 4     /* another 4xx */
#define NOT_EXECUTED 5   /* 401, 404, 429 ... */
#define IN_PROGRESS 6    /* 409, 425 */
#define SERVER_ERROR 7
#define TIMED_OUT 8      /* 408 */
byte answer[2];

/* ---- core-api --------------------------------------------------------------------------------------------------- */

bool linked, unlinked; /* unlinked: it remembers an unlink */
bool late_link;
byte late_cancel; /* the issuer's: a card */

/* ---- clocks, budgets, and what only the properties look at ------------------------------------------------------- */

byte now, database; /* steady time; the database's clock */
byte faults, replays, cancels, steps;
bool working[2];
byte tries;      /* attempts begun and not given back */
byte made_since; /* 1 + when the call was sent that made the first card */
#if TWO_CARDS
bool known; /* FAILED issuer_duplicate was written, and no look-up has shown fewer live cards since */
#endif
#if SILENT
bool silent, well; /* the look-ups of this event are; those of others are answered well, and each worker knows it */
byte looks;        /* look-ups without a tick between them */
byte in_vain;      /* look-ups past the key's lifetime with evidence, none of which may be followed by another */
#else
#define silent 0
#endif

#define FAULT faults > 0 -> faults--
#define AGE_OF(since) ((database + 1 >= (since)) -> (database + 1 - (since)) : 0)

/* Is a create under way that may still make a card? */
inline find_under_way(found)
{
    found = 0;
    i = 0;
    do
    :: i < CALLS -> if :: call[i] != FREE && (KEYLESS || key < KEY_DONE) -> found = 1 :: else fi; i++
    :: else -> break
    od;
    i = 0
}

inline forget_tokens()
{
    holds[0] = 0;
    holds[1] = 0;
    given_up_holds = 0
}

/* ---- statements: each has effect only with the row's token ------------------------------------------------------- */

#ifdef WITHOUT_SAVE_TOKEN
#define SAVES(has) true
#else
#define SAVES(has) has
#endif
#ifdef WITHOUT_MARK_TOKEN
#define MARKS(has) true
#else
#define MARKS(has) has
#endif
#ifdef WITHOUT_END_TOKEN
#define ENDS(has) true
#else
#define ENDS(has) has
#endif

inline do_save(has, which)
{
    if
    :: SAVES(has) ->
        SAY("database: stores the card\n");
        HOLDS(a_card_is_stored_after_the_end, status != REJECTED);
        if :: stored == 0 -> stored = which :: else fi
    :: else
    fi
}

inline do_mark(has)
{
    if
    :: MARKS(has) ->
        SAY("database: marks the card, it must go\n");
        HOLDS(an_end_is_changed, status != COMPLETED && status != REJECTED);
        marked = 1
    :: else
    fi
}

inline do_end(has, end, clears, returns)
{
    if
    :: ENDS(has) ->
        printf("database: status %d becomes %d\n", status, end);
        HOLDS(an_end_is_undone, status != COMPLETED && status != REJECTED);
#if TWO_CARDS
        HOLDS(an_end_over_two_live_cards_that_are_known,
              !known || !TWO_ARE_LIVE || (end != COMPLETED && end != REJECTED));
        if :: end == FAILED_AS_DUPLICATE -> duplicate = 1; known = 1 :: else fi;
#endif
        status = (end == FAILED_AS_DUPLICATE -> FAILED : end);
        if :: clears -> first_sent = 0 :: else fi;
        if :: returns && attempts > 0 -> attempts-- :: else fi;
        if :: returns && tries > 0 -> tries-- :: else fi;
        forget_tokens();
        due = database;
        quiet = now;
        if
        :: end == COMPLETED ->
            HOLDS(COMPLETED_without_a_live_card, stored != 0 && card[stored - 1] == ACTIVE);
            HOLDS(COMPLETED_without_a_link, linked)
        :: end == REJECTED ->
            HOLDS(REJECTED_with_a_live_card, NONE_IS_LIVE);
            HOLDS(REJECTED_with_a_link, !linked)
        :: else
        fi
    :: else
    fi
}

/* ---- a worker ---------------------------------------------------------------------------------------------------- */

/* Where an attempt fails. */
#define ON_ITS_WAY 0
#define LOOKING 1
#define REMOVING 2

/* Why a look-up is made: what "not found" then means. */
#define MUST_GO 1     /* the user may not have a card, or the card is marked */
#define SAID_NO 2     /* this call was refused, an earlier one is unknown */
#define SAID_WHAT 3   /* the same with an unforeseen answer, of the issuer or of core-api */
#define NO_MORE_TRIES 4
#define KEY_TOO_OLD 5
#define CONTRADICTION 6
#define BEFORE_REPEAT 7 /* the key is not trusted, and a card may exist */
#define TWO_SEEN 8

#if defined(WITHOUT_SUSPENDED_TIME) || defined(WITHOUT_COMMIT_FIRST)
bool trusts[2]; /* it takes a lease for its own that is not: its clock stood still, or the claim was never committed */
#define SEES_LOSS(w) (!trusts[w])
#else
#define SEES_LOSS(w) true
#endif
/* Before each call a worker looks at its lease, and has it made longer by a statement that wants the token. */
#ifdef WITHOUT_LEASE_CHECK
#define MAY_CALL true
#else
#define MAY_CALL (holds[w] || !SEES_LOSS(w))
#endif

inline give_up(w)
{
    answer[w] = NO_ANSWER;
    i = 0;
    do
    :: i < CALLS ->
        if
        :: call[i] != FREE && caller[i] == w + 1 ->
            caller[i] = 0;
            if :: !LATE && call[i] == FLYING -> call[i] = FREE; sent[i] = 0 :: else fi
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}

inline send_create(w, decided)
{
    printf("worker %d: sends the create (unknown %d, attempt %d, tick %d)\n", w, unknown, attempt, now);
    HOLDS(more_attempts_than_allowed, tries <= ATTEMPTS);
    HOLDS(sent_past_the_keys_lifetime, made_since == 0 || decided + 1 - made_since + MARGIN < LIFETIME);
    i = 0;
    do
    :: call[i] != FREE -> i++
    :: else -> break
    od;
    call[i] = FLYING;
    caller[i] = w + 1;
    sent[i] = decided;
    i = 0;
    looked = 0
#ifdef WITHOUT_OLDER_SENDS
    ;
    unknown = 1
#endif
}

inline try_again(returns_attempt)
{
    end = PENDING;
    returns = returns_attempt;
    goto write_end
}

/* A failure: see the label. A deferral is one where the cause may be no fault of this event. */
inline fails(where)
{
    failing = where;
    goto failed
}

inline fails_or_is_deferred(where)
{
    if
    :: failing = where; goto failed
    :: try_again(1)
    fi
}

/* Of this attempt: then only a later one can know that nothing is under way any more. */
#if TICKS > 0 && !defined(WITHOUT_SETTLING) && !defined(WITHOUT_OWN_SENDS)
#define LEAVES_SOMETHING_UNDER_WAY settled = 0
#else
#define LEAVES_SOMETHING_UNDER_WAY skip
#endif

/* What an answer proves that a gateway may have given: where the key is not trusted, nothing. */
#if KEYLESS && !defined(WITHOUT_DOUBT) && !defined(WITHOUT_KEYS_IGNORED)
#define PROVES_NOTHING unknown = 1; LEAVES_SOMETHING_UNDER_WAY
#else
#define PROVES_NOTHING skip
#endif
#ifdef WITHOUT_TIMED_OUT
#define UNKNOWN_AT_408 skip
#else
#define UNKNOWN_AT_408 unknown = 1; LEAVES_SOMETHING_UNDER_WAY
#endif
#ifndef WITHOUT_LOOK_FIRST
#define MUST_LOOK_FIRST (!IS_TRUSTED && unknown && !looked_first)
#else
#define MUST_LOOK_FIRST false
#endif
/* The HTTP client sends a create once more on a fresh connection. */
#ifndef WITHOUT_SENT_ONCE
#define MAY_RESEND IS_TRUSTED
#else
#define MAY_RESEND true
#endif

/* Past its lifetime no key settles the outcome, and others are looked up well: a question for a person. */
#if SILENT
#define IS_LONG_UNKNOWN (unknown && stored_here == 0 && key_from != 0 && now + 1 - key_from >= LIFETIME)
#define MAY_STAY_UNKNOWN (well && IS_LONG_UNKNOWN && end == FAILED)
#else
#define IS_LONG_UNKNOWN false
#define MAY_STAY_UNKNOWN false
#endif
#ifdef WITHOUT_EVIDENCE
#define IS_HOPELESS IS_LONG_UNKNOWN
#elif defined(WITHOUT_OUTCOME_UNKNOWN)
#define IS_HOPELESS false
#else
#define IS_HOPELESS (IS_LONG_UNKNOWN && well)
#endif

#define KEY_IS_TOO_OLD (unknown && key_from != 0 && now + 1 - key_from + WORKERS_MARGIN >= LIFETIME)
#define DIES FAULT; goto die

proctype Worker(byte w)
{
    byte attempt, stored_here, why, end, failing, i, decided, key_from; /* key_from: 1 + the oldest send, steady time */
    bool unknown, marked_here, returns, looked, settled, resent, waits, on_not_found, found, looked_first;

sleeping:
    skip;
end_sleeping:
    atomic {
        status == PENDING && database >= due && (w == 0 || working[0]) -> /* idle workers are alike */
        printf("worker %d: claims (attempt %d, first sent %d)\n", w, attempts + 1, first_sent);
        working[w] = 1;
        attempt = attempts + 1;
        stored_here = stored;
        marked_here = marked;
#ifdef WITHOUT_AGE_FLOOR
        key_from = ((first_sent != 0 && database + 1 >= first_sent) -> now + 1 - AGE_OF(first_sent) : 0);
#else
        key_from = (first_sent != 0 -> ((AGE_OF(first_sent) <= now) -> now + 1 - AGE_OF(first_sent) : 1) : 0);
#endif
#ifndef WITHOUT_OLDER_SENDS
        unknown = (key_from != 0 && stored == 0);
#endif
#if TICKS > 0 && !defined(WITHOUT_SETTLING)
#ifdef WITHOUT_STEADY_SETTLING /* quiet is then compared with the database's clock */
        settled = (database >= quiet && database - quiet > SETTLE);
#else
        settled = (now - quiet > SETTLE);
#endif
#else
        settled = 1;
#endif
        if
        :: true -> /* committed, and the worker is notified */
            status = PROCESSING;
            forget_tokens();
            holds[w] = 1
        :: FAULT; SAY("database: the claim is committed, the answer is lost\n"); status = PROCESSING; forget_tokens()
        :: FAULT; SAY("database: the claim is not committed\n")
        fi;
        if
        :: status == PROCESSING ->
            tries++;
#ifndef WITHOUT_COUNT
            attempts++;
#endif
#ifndef WITHOUT_SEND_NOTE
            if :: first_sent == 0 -> first_sent = database + 1 :: else fi;
#endif
            skip
        :: else
        fi;
#ifdef WITHOUT_COMMIT_FIRST
        if
        :: status == PENDING -> trusts[w] = 1
        :: status != PENDING && holds[w] -> skip
        :: else -> goto leave
        fi
#else
        if :: holds[w] :: else -> goto leave fi
#endif
    };

check: /* may the user have a card? */
    skip;
    atomic {
        if
        :: DIES
        :: attempt > ATTEMPTS && !unknown && !duplicate -> end = FAILED; goto write_end
        :: duplicate -> why = TWO_SEEN; goto look_up /* also where a card is stored, or must go */
        :: !duplicate && !(attempt > ATTEMPTS && !unknown) && marked_here ->
            why = MUST_GO;
            if :: stored_here != 0 -> goto cancel :: else -> goto look_up fi
        :: !duplicate && !(attempt > ATTEMPTS && !unknown) && !marked_here && stored_here != 0 -> goto link
        :: !duplicate && !(attempt > ATTEMPTS && !unknown) && !marked_here && stored_here == 0 ->
            if
            :: goto create
            :: SAY("core-api: not eligible\n");
#ifdef WITHOUT_INELIGIBLE_LOOKUP
                end = REJECTED; goto write_end
#else
                why = MUST_GO;
                if :: unknown -> goto look_up :: else -> end = REJECTED; goto write_end fi
#endif
            :: SAY("core-api: an unforeseen answer\n");
                why = SAID_WHAT;
                if :: unknown -> goto look_up :: else -> end = FAILED; goto write_end fi
            :: FAULT; fails_or_is_deferred(ON_ITS_WAY)
            fi
        fi
    };

create:
    skip;
    atomic {
        if
        :: !MAY_CALL -> goto leave
        :: else ->
            if
#ifndef WITHOUT_EXPIRY
            :: KEY_IS_TOO_OLD -> why = KEY_TOO_OLD; goto look_up
            :: !KEY_IS_TOO_OLD ->
#else
            :: true ->
#endif
                if
                :: attempt > ATTEMPTS -> why = NO_MORE_TRIES; goto look_up
                :: attempt <= ATTEMPTS && MUST_LOOK_FIRST -> why = BEFORE_REPEAT; goto look_up
                :: else ->
                    if
                    :: FAULT; fails_or_is_deferred(ON_ITS_WAY) /* connection refused: nothing left */
                    :: decided = now; send_create(w, now)
                    fi
                fi
            fi
        fi
    };

wait_for_create:
    skip;
    atomic {
        if
        :: DIES
        :: FAULT; /* no answer in time, a reset, something unreadable */
            SAY("worker: gives the create up\n");
            give_up(w);
            unknown = 1;
            LEAVES_SOMETHING_UNDER_WAY;
            fails_or_is_deferred(ON_ITS_WAY)
        :: (faults > 0 && MAY_CALL && now - decided <= UNDERWAY && MAY_RESEND) ->
            faults--; /* a pooled connection turned out dead: the same once more */
            give_up(w);
            send_create(w, decided);
            resent = 1;
            LEAVES_SOMETHING_UNDER_WAY;
            goto wait_for_create
        :: answer[w] != NO_ANSWER ->
            printf("worker %d: answer %d\n", w, answer[w]);
#ifndef WITHOUT_RESENT
            unknown = unknown || resent;
#endif
            if
            :: answer[w] == OK -> answer[w] = NO_ANSWER; unknown = 1; goto save
            :: answer[w] == OK_CANCELLED -> answer[w] = NO_ANSWER; unknown = 1; why = CONTRADICTION; goto look_up
            :: answer[w] == REFUSED ->
                answer[w] = NO_ANSWER;
#ifdef WITHOUT_REFUSED_LOOKUP
                end = REJECTED; goto write_end
#else
                why = SAID_NO;
                if :: unknown -> goto look_up :: else -> end = REJECTED; goto write_end fi
#endif
            :: answer[w] == UNFORESEEN ->
                answer[w] = NO_ANSWER;
                why = SAID_WHAT;
                if :: unknown -> goto look_up :: else -> end = FAILED; goto write_end fi
            :: answer[w] == NOT_EXECUTED ->
                answer[w] = NO_ANSWER;
                PROVES_NOTHING;
                fails_or_is_deferred(ON_ITS_WAY)
            :: answer[w] == TIMED_OUT ->
                answer[w] = NO_ANSWER;
                UNKNOWN_AT_408;
                fails(ON_ITS_WAY)
            :: answer[w] == IN_PROGRESS ->
                answer[w] = NO_ANSWER;
#ifndef WITHOUT_IN_PROGRESS
                unknown = 1;
#endif
                try_again(1)
            :: answer[w] == SERVER_ERROR ->
                answer[w] = NO_ANSWER;
                unknown = 1;
                LEAVES_SOMETHING_UNDER_WAY;
                fails_or_is_deferred(ON_ITS_WAY)
            fi
        fi
    };

save: /* the card that the create, or the look-up, has named */
    skip;
    atomic {
        if
        :: DIES
        :: SAVES(holds[w]) -> do_save(holds[w], key_card); stored_here = key_card; goto link
        :: !SAVES(holds[w]) -> goto leave
        :: FAULT; do_save(holds[w], key_card); fails(ON_ITS_WAY)
        :: FAULT; fails(ON_ITS_WAY)
        :: (faults > 0 && given_up == NO_STATEMENT) ->
            faults--;
            given_up = SAVE; given_up_value = key_card; given_up_holds = holds[w];
            fails(ON_ITS_WAY)
        fi
    };

link:
    skip;
    atomic {
        if
        :: DIES
        :: !MAY_CALL -> goto leave
        :: MAY_CALL ->
            if
            :: !unlinked ->
                SAY("core-api: links the card\n");
                HOLDS(REJECTED_with_a_link, status != REJECTED);
                linked = 1; end = COMPLETED; goto write_end
            :: !linked -> SAY("core-api: refuses the link\n"); marked_here = 1; goto mark
            :: !linked -> end = FAILED; goto write_end /* an unforeseen answer, or links that are to be kept */
            :: FAULT; fails_or_is_deferred(ON_ITS_WAY)
            :: (faults > 0 && !unlinked) -> /* done, and the answer lost */
                faults--;
                HOLDS(REJECTED_with_a_link, status != REJECTED);
                linked = 1; fails_or_is_deferred(ON_ITS_WAY)
            :: (LATE && faults > 0 && !late_link) -> faults--; late_link = 1; fails_or_is_deferred(ON_ITS_WAY)
            fi
        fi
    };

look_up:
    skip;
    atomic {
        if
        :: DIES
        :: !MAY_CALL -> goto leave
        :: MAY_CALL ->
            if
            :: FAULT; fails_or_is_deferred(LOOKING)
#if SILENT
            :: silent ->
                printf("worker %d: looks up (reason %d), and can read nothing (tick %d)\n", w, why, now);
                looks++;
                HOLDS(looked_up_again_at_once, looks <= 1 + FAULTS);
                if :: well && IS_LONG_UNKNOWN -> in_vain++ :: else fi;
                HOLDS(silent_past_the_keys_lifetime, in_vain <= 1 + FAULTS);
                if
                :: (IS_HOPELESS) -> end = FAILED; goto write_end /* outcome_unknown */
                :: else
                fi;
#ifndef WITHOUT_BACKOFF
                waits = 1;
#endif
                if :: try_again(0) :: try_again(1) fi
#endif
            :: !silent ->
                printf("worker %d: looks up (reason %d): cards %d %d %d\n", w, why, card[0], card[1], card[2]);
                looked = 1;
#if TWO_CARDS
                known = known && TWO_ARE_LIVE;
#endif
                if
                :: TWO_ARE_LIVE -> end = FAILED_AS_DUPLICATE; goto write_end /* issuer_duplicate */
                :: IS_LIVE && !TWO_ARE_LIVE ->
                    if
                    :: why == MUST_GO -> goto mark
                    :: why == TWO_SEEN ->
                        if
                        :: stored_here != 0 && card[stored_here - 1] != ACTIVE -> /* not the one that is stored */
                            end = FAILED_AS_DUPLICATE; goto write_end
                        :: else
                        fi;
                        key_card = (card[0] == ACTIVE -> 1 : (card[1] == ACTIVE -> 2 : 3));
                        if
                        :: marked_here -> goto cancel
                        :: !marked_here && stored_here != 0 -> goto link
                        :: !marked_here && stored_here == 0 -> goto save
                        fi
                    :: else -> goto save
                    fi
                :: !IS_LIVE && card[0] != NO_CARD -> /* only cancelled ones */
                    if :: stored_here != 0 -> goto mark :: else -> end = REJECTED; goto write_end fi
                :: !IS_LIVE && card[0] == NO_CARD ->
                    if
                    :: why == CONTRADICTION -> fails(LOOKING)
                    :: why != CONTRADICTION && !settled -> waits = 1; try_again(1)
                    :: why == BEFORE_REPEAT && settled -> looked_first = 1; why = 0; goto create
                    :: why != CONTRADICTION && why != BEFORE_REPEAT && settled ->
                        on_not_found = 1;
                        end = ((why == MUST_GO || why == SAID_NO) -> REJECTED : FAILED);
                        goto write_end
                    fi
                fi
            fi
        fi
    };

mark:
    skip;
    atomic {
#ifdef WITHOUT_MARK
        goto cancel;
#endif
        if
        :: DIES
        :: MARKS(holds[w]) -> do_mark(holds[w]); goto cancel
        :: !MARKS(holds[w]) -> goto leave
        :: FAULT; do_mark(holds[w]); fails(REMOVING)
        :: FAULT; fails(REMOVING)
        :: (faults > 0 && given_up == NO_STATEMENT) ->
            faults--;
            given_up = MARK; given_up_holds = holds[w];
            fails(REMOVING)
        fi
    };

cancel:
    skip;
    atomic {
        if
        :: DIES
        :: !MAY_CALL -> goto leave
        :: MAY_CALL ->
            i = (stored_here != 0 -> stored_here : key_card) - 1;
            if
            :: true ->
                SAY("issuer: cancels the card\n");
                HOLDS(COMPLETED_without_a_live_card, status != COMPLETED);
                card[i] = CANCELLED; i = 0;
                unknown = 0;
                goto unlink
            :: FAULT; i = 0; end = FAILED; looked = 1; goto write_end /* refused */
            :: FAULT; i = 0; fails_or_is_deferred(REMOVING)
            :: FAULT;
                HOLDS(COMPLETED_without_a_live_card, status != COMPLETED);
                card[i] = CANCELLED; i = 0;
                fails_or_is_deferred(REMOVING)
            :: (LATE && faults > 0 && late_cancel == 0) ->
                faults--;
                late_cancel = i + 1; i = 0;
                fails_or_is_deferred(REMOVING)
            fi
        fi
    };

unlink: /* a link may have left as soon as the card was stored */
    skip;
    atomic {
        end = REJECTED;
        looked = 1;
#ifdef WITHOUT_UNLINK
        goto write_end;
#endif
        if
        :: stored_here == 0 -> goto write_end
        :: stored_here != 0 && !MAY_CALL -> goto leave
        :: stored_here != 0 && MAY_CALL ->
            if
            :: SAY("core-api: takes the link back\n");
                linked = 0;
#ifndef WITHOUT_UNLINK_MEMORY
                unlinked = 1;
#endif
                goto write_end
            :: FAULT; fails_or_is_deferred(REMOVING)
            :: FAULT;
                linked = 0;
#ifndef WITHOUT_UNLINK_MEMORY
                unlinked = 1;
#endif
                fails_or_is_deferred(REMOVING)
            fi
        fi
    };

failed: /* It counts as an attempt. The last one ends the event, after a look-up where the outcome is unknown. */
    atomic {
        if
        :: attempt < ATTEMPTS -> try_again(0)
        :: attempt >= ATTEMPTS && unknown && stored_here == 0 && failing == LOOKING -> try_again(0)
#ifndef WITHOUT_LAST_LOOKUP
        :: attempt >= ATTEMPTS && unknown && stored_here == 0 && failing == ON_ITS_WAY && why != NO_MORE_TRIES ->
            why = NO_MORE_TRIES; failing = 0; goto look_up
#endif
        :: else -> end = FAILED; goto write_end
        fi
    };

write_end:
    skip;
    atomic {
        /* With nothing unknown, nothing that was ever sent can have arrived: the row may forget it. */
#ifdef WITHOUT_STICKY_UNKNOWN
        found = (stored_here == 0);
#else
        found = (!unknown && stored_here == 0);
#endif
        if
        :: DIES
        :: true ->
            HOLDS(an_end_over_an_unknown_outcome_without_a_look_up,
                  end == PENDING || !unknown || stored_here != 0 || looked || MAY_STAY_UNKNOWN);
            do_end(holds[w], end, found, returns);
            if :: waits && status == PENDING -> due = database + SETTLE + 1 :: else fi;
            if
            :: status == FAILED && on_not_found ->
                find_under_way(found);
                HOLDS(FAILED_as_not_found_while_a_create_is_under_way, !found)
            :: else
            fi;
            goto leave
        :: FAULT; goto leave /* not executed */
        :: (faults > 0 && given_up == NO_STATEMENT) ->
            faults--;
            given_up = END; given_up_value = end; given_up_clears = found; given_up_returns = returns;
            given_up_holds = holds[w];
            goto leave
        fi
    };

die:
    atomic { printf("worker %d: dies\n", w); give_up(w) };
leave:
    atomic {
        holds[w] = 0; /* no worker has that token any more; the row keeps it until the sweep */
        working[w] = 0;
#if defined(WITHOUT_SUSPENDED_TIME) || defined(WITHOUT_COMMIT_FIRST)
        trusts[w] = 0;
#endif
        attempt = 0; stored_here = 0; why = 0; end = 0; failing = 0; i = 0; decided = 0; key_from = 0;
        unknown = 0; marked_here = 0; returns = 0; looked = 0; settled = 0; resent = 0; waits = 0; on_not_found = 0;
        found = 0; looked_first = 0;
        goto sleeping
    }
}

/* ---- what else moves --------------------------------------------------------------------------------------------- */

inline sweep()
{
    SAY("database: the lease ran out\n");
    status = PENDING;
#ifdef WITHOUT_SWEEP_KEEPING
    first_sent = 0;
#endif
    forget_tokens();
    due = database;
    quiet = now
}

/* The limit of a call is shorter than a lease: without late calls none is under way when a lease runs out. */
#if LATE || SLOW || defined(WITHOUT_CALL_LIMIT)
#define CALLS_ARE_OVER true
#else
#define CALLS_ARE_OVER (!ANY_CALL(IS_OPEN))
#endif

active proctype Database()
{
end_database:
    do
    :: atomic { status == PROCESSING && !holds[0] && !holds[1] && CALLS_ARE_OVER -> sweep() }
    :: atomic { status == PROCESSING && (holds[0] || holds[1]) && CALLS_ARE_OVER && faults > 0 ->
        faults--; /* its worker stood still */
#ifdef WITHOUT_SUSPENDED_TIME
        if :: SLEEP -> trusts[0] = holds[0]; trusts[1] = holds[1] :: else fi;
#endif
        sweep() }
    :: atomic { given_up != NO_STATEMENT ->
        SAY("database: executes a statement that was given up\n");
        if
        :: given_up == SAVE -> do_save(given_up_holds, given_up_value)
        :: given_up == MARK -> do_mark(given_up_holds)
        :: given_up == END -> do_end(given_up_holds, given_up_value, given_up_clears, given_up_returns)
        fi;
        given_up = NO_STATEMENT; given_up_value = 0; given_up_holds = 0; given_up_clears = 0; given_up_returns = 0 }
    od
}

inline make_card(n)
{
    printf("issuer: makes a card (status %d, create sent at tick %d, now %d)\n", status, sent[n], now);
    HOLDS(two_live_cards, NONE_IS_LIVE);
    HOLDS(REJECTED_with_a_live_card, TWO_CARDS || status != REJECTED);
    if
    :: card[0] == NO_CARD -> key_card = 1; made_since = sent[n] + 1
    :: card[0] != NO_CARD && card[1] == NO_CARD -> key_card = 2
    :: else -> key_card = 3
    fi;
    card[key_card - 1] = ACTIVE;
    key = KEY_DONE
}

inline reply(n, what)
{
    if :: caller[n] != 0 -> answer[caller[n] - 1] = what :: else fi;
    call[n] = FREE; caller[n] = 0; sent[n] = 0
}

inline arrive(n)
{
#if KEYLESS
    key = KEY_UNKNOWN;
#endif
    if :: key >= KEY_DONE && now - key_since >= LIFETIME -> key = KEY_UNKNOWN :: else fi;
    if
    :: key == KEY_UNKNOWN ->
        if
        :: make_card(n); key_since = now;
            if
            :: reply(n, OK)
            :: (caller[n] != 0 && faults > 0) -> faults--; reply(n, SERVER_ERROR)
            :: (GATEWAY && caller[n] != 0 && faults > 0) -> faults--; reply(n, TIMED_OUT)
            :: (KEYLESS && caller[n] != 0 && faults > 0) -> faults--; reply(n, NOT_EXECUTED)
            fi
        :: (GATEWAY && caller[n] != 0 && faults > 0) -> /* and it passes the call on, later */
            faults--; answer[caller[n] - 1] = TIMED_OUT; caller[n] = 0
        :: (KEYLESS && LATE && caller[n] != 0 && faults > 0) ->
            faults--; answer[caller[n] - 1] = NOT_EXECUTED; caller[n] = 0
        :: SLOW -> key = KEY_AT_WORK; key_since = now; call[n] = AT_WORK;
            if /* what stands in front of the issuer may answer before it */
            :: true
            :: (caller[n] != 0 && faults > 0) -> faults--; answer[caller[n] - 1] = SERVER_ERROR; caller[n] = 0
            :: (caller[n] != 0 && faults > 0) -> faults--; answer[caller[n] - 1] = IN_PROGRESS; caller[n] = 0
            fi
        :: caller[n] != 0 -> reply(n, REFUSED); if :: !FORGETFUL -> key = KEY_REFUSED; key_since = now :: else fi
        :: caller[n] != 0 -> reply(n, UNFORESEEN)
        :: (caller[n] != 0 && faults > 0) -> faults--; reply(n, SERVER_ERROR)
        :: (caller[n] != 0 && faults > 0) -> faults--; reply(n, NOT_EXECUTED)
        :: caller[n] == 0 -> reply(n, NO_ANSWER) /* lost on the way */
        fi
    :: key == KEY_AT_WORK ->
        if
        :: (caller[n] != 0 && faults > 0) -> faults--; reply(n, IN_PROGRESS)
        :: caller[n] == 0 -> reply(n, NO_ANSWER)
        fi
    :: key == KEY_DONE ->
        if
        :: reply(n, OK)
        :: (card[key_card - 1] == CANCELLED && caller[n] != 0) -> reply(n, OK_CANCELLED)
        :: (caller[n] != 0 && faults > 0) -> faults--; reply(n, SERVER_ERROR)
        :: (caller[n] != 0 && faults > 0) -> faults--; reply(n, NOT_EXECUTED)
        :: (HASTY && caller[n] != 0) -> reply(n, REFUSED)
#if TWO_CARDS
        :: faults > 0 ->
            faults--;
            make_card(n);
            if :: key_card = 1 :: true fi;
            if :: true -> reply(n, OK) :: true -> reply(n, SERVER_ERROR) fi
#endif
        fi
    :: key == KEY_REFUSED -> reply(n, REFUSED)
    fi
}

/* A call whose key is at work waits for that one, unless the issuer may answer 409. */
#define ARRIVES(n) (call[n] == FLYING && !(key == KEY_AT_WORK && caller[n] != 0 && faults == 0))

active proctype Peers()
{
    byte n;
end_peers:
    do
    :: atomic {
        if
        :: ARRIVES(0) -> n = 0
        :: ARRIVES(1) -> n = 1
#if CALLS > 2
        :: ARRIVES(2) -> n = 2
#endif
#if CALLS > 3
        :: ARRIVES(3) -> n = 3
#endif
#if CALLS > 4
        :: ARRIVES(4) -> n = 4
#endif
        fi;
        arrive(n);
        n = 0 }
    :: atomic {
        if
        :: call[0] == AT_WORK -> n = 0
        :: call[1] == AT_WORK -> n = 1
#if CALLS > 2
        :: call[2] == AT_WORK -> n = 2
#endif
#if CALLS > 3
        :: call[3] == AT_WORK -> n = 3
#endif
#if CALLS > 4
        :: call[4] == AT_WORK -> n = 4
#endif
        fi;
        if
        :: make_card(n); reply(n, OK)
        :: caller[n] == 0 -> key = KEY_UNKNOWN; reply(n, NO_ANSWER)
        fi;
        n = 0 }
#if TWICE
    :: atomic { faults > 0 && call[CALLS - 1] == FREE &&
                ((made_since != 0 && now + 1 - made_since <= UNDERWAY) || (call[0] == FLYING && caller[0] == 0)) ->
        faults--;
        SAY("proxy: delivers the create once more, later\n");
        call[CALLS - 1] = FLYING;
        sent[CALLS - 1] = (made_since != 0 -> made_since - 1 : sent[0]) }
#endif
#if LATE
    :: atomic { late_link ->
        late_link = 0;
        if
        :: !unlinked ->
            SAY("core-api: links the card, late\n");
            HOLDS(REJECTED_with_a_link, status != REJECTED);
            linked = 1
        :: else
        fi }
    :: atomic { late_cancel != 0 ->
        SAY("issuer: cancels the card, late\n");
        HOLDS(COMPLETED_without_a_live_card, status != COMPLETED);
        card[late_cancel - 1] = CANCELLED; late_cancel = 0 }
#endif
    od
}

#ifdef WITHOUT_CANCEL_RULE
#define MAY_CANCEL true
#else
#define MAY_CANCEL (first_sent == 0)
#endif

active proctype Operator()
{
end_operator:
    do
    :: atomic { replays > 0 && status == FAILED ->
        SAY("operator: replays\n");
        replays--;
#if SILENT
        in_vain = 0; looks = 0;
#endif
        status = PENDING; attempts = 0; tries = 0; due = database; quiet = now;
#ifdef WITHOUT_REPLAY_KEEPING
        first_sent = 0;
#endif
#ifdef WITHOUT_DUPLICATE_LOOKUP
        duplicate = 0;
#endif
        skip }
    :: atomic { cancels > 0 && status == PENDING && MAY_CANCEL && stored == 0 ->
        SAY("operator: cancels\n");
        cancels--;
        HOLDS(REJECTED_with_a_live_card, NONE_IS_LIVE);
        HOLDS(REJECTED_with_a_link, !linked);
        status = REJECTED }
#if TWO_CARDS
    :: atomic { status == FAILED && duplicate && TWO_ARE_LIVE ->
        SAY("operator: has one of two cards closed at the issuer\n");
        if :: card[0] = CANCELLED :: card[1] = CANCELLED fi }
#endif
    od
}

#if TICKS > 0
/* No tick passes over a create that must be there, or done, by now; one without a caller is lost then. */
#define IS_OVERDUE(n) (call[n] != FREE && now + 1 - sent[n] > UNDERWAY)
#define HOLDS_TIME(n) (IS_OVERDUE(n) && (caller[n] != 0 || call[n] == AT_WORK))

active proctype Clock()
{
    byte n;
end_clock:
    do
    :: atomic { now < TICKS && !ANY_CALL(HOLDS_TIME) ->
        n = 0;
        do
        :: n < CALLS -> if :: IS_OVERDUE(n) -> call[n] = FREE; sent[n] = 0 :: else fi; n++
        :: else -> break
        od;
        n = 0;
        now++;
        database++;
#if SILENT
        looks = 0;
#endif
        printf("-- tick %d\n", now) }
#if STEPS > 0
    :: atomic { steps > 0 && faults > 0 && database >= STEP ->
        steps--; faults--; database = database - STEP; printf("-- the database's clock steps back\n") }
    :: atomic { steps > 0 && faults > 0 ->
        steps--; faults--; database = database + STEP; printf("-- the database's clock steps ahead\n") }
#endif
    od
}
#endif

active proctype Monitor()
{
end_monitor:
    atomic {
        timeout ->
        HOLDS(stuck, HAS_ENDED || (status == PENDING && due > database)) /* the run's time is over, not the event's */
    }
}

init {
    atomic {
#if SILENT
        silent = 1;
        if :: well = 1 :: true fi;
#endif
        faults = FAULTS; replays = REPLAYS; cancels = CANCELS; steps = STEPS;
        now = STEPS * STEP; database = now; quiet = now;
        run Worker(0);
        run Worker(1)
    }
}
