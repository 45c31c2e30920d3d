/* Two issuers: one event, and two workers of which each speaks to another issuer (another profile, another url or
 * another account), as during a change of the configuration or after one. tests/model/README.md says how to read it.
 *
 * It stands for sent_to in migrations/schema/04_claim.sql (take_due), 05_ends.sql (write_ends) and 10_operators.sql
 * (adopt, reopen), `other_issuer` in common/core/decide/decide_first.c and common/core/decide/decide_mark.c. Left out:
 * what protocol.pml has shown for one issuer. So a lease that ran out is a worker that died, a key makes one card at
 * its issuer, and "not found" is believed when no create is on its way there: the settling time. A worker of the other
 * issuer that claims the event gives it back unchanged, which is not a step here.
 *
 * The world (-D): FAULTS, ADOPTIONS, REISSUES and REPLAYS by operators. MOVED 1: issuer 1 is issuer 0 at another address,
 * which has all its cards, and not its keys. WITHOUT_...: a guard is taken out. */

#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef ADOPTIONS
#define ADOPTIONS 1
#endif
#ifndef MOVED
#define MOVED 0
#endif
#ifndef REPLAYS
#define REPLAYS MOVED
#endif
#ifndef REISSUES
#define REISSUES 1
#endif

mtype = {
    a_card_at_each_issuer,
    REJECTED_with_a_live_card,
    COMPLETED_without_a_live_card,
    a_new_request_beside_a_live_card,
    it_waits_for_an_operator_though_nothing_was_sent,
    stuck
};
#define HOLDS(what, condition) if :: (condition) :: else -> printf("BROKEN: %e\n", what); assert(false) fi
#define SAY(text) printf(text)

/* The row. Issuers are numbered 0 and 1, as the workers that speak to them; sent_to: 1 + the issuer, 0: none. */
#define PENDING 0
#define PROCESSING 1
#define COMPLETED 2
#define REJECTED 3
#define FAILED 4
byte status, sent_to;
bool sent;  /* first_sent_at */
bool first; /* held_end = before_sending: it was adopted, and is looked up before anything is sent */
bool mark;  /* of a reissue */
bool holds[2];

bool made[2], card[2]; /* made: under the key, once */
bool flying[2];        /* a create on its way whose caller has given up */
bool gone;               /* no worker speaks to issuer 0 any more */
byte faults = FAULTS, adoptions = ADOPTIONS, reissues = REISSUES, replays = REPLAYS;
#define SHOWN(w) (card[w] || (MOVED && w == 1 && card[0]))
#define FAULT faults > 0 -> faults--

inline make_card(at)
{
    if
    :: !made[at] ->
        printf("issuer %d: makes a card\n", at);
        made[at] = 1;
        card[at] = 1;
        HOLDS(a_card_at_each_issuer, !card[0] || !card[1]);
        HOLDS(REJECTED_with_a_live_card, status != REJECTED)
    :: else
    fi
}

inline do_end(w, end)
{
    if
    :: holds[w] ->
        printf("database: status %d becomes %d\n", status, end);
        status = end;
        HOLDS(REJECTED_with_a_live_card, end != REJECTED || (!card[0] && !card[1]));
        HOLDS(COMPLETED_without_a_live_card, end != COMPLETED || card[0] || card[1])
    :: else
    fi;
    holds[w] = 0
}

/* The attempt has certainly sent nothing, and none has before: the event belongs to nobody. */
inline give_back(w, was_sent)
{
    if
    :: holds[w] && !was_sent ->
        sent = 0;
#ifndef WITHOUT_FORGETTING
        sent_to = 0
#endif
    :: else
    fi;
    do_end(w, PENDING)
}

#ifdef WITHOUT_SAME_ISSUER
#define IS_MINE(w) true
#else
#define IS_MINE(w) (sent_to == 0 || sent_to == w + 1)
#endif
#ifdef WITHOUT_SAME_ISSUER_IN_MARKS
#define MARK_IS_MINE(w) true
#else
#define MARK_IS_MINE(w) (sent_to == 0 || sent_to == w + 1)
#endif

proctype Worker(byte w)
{
    bool was_sent;
    byte end;
end_worker:
    do
    :: atomic { status == PENDING && IS_MINE(w) && !(gone && w == 0) ->
        printf("worker %d: claims (sent to %d)\n", w, sent_to);
        status = PROCESSING;
        holds[w] = 1;
        was_sent = sent;
        sent = 1;
#ifndef WITHOUT_NOTED_BY_CLAIM
        if :: sent_to == 0 -> sent_to = w + 1 :: else fi
#endif
        };
        if :: first -> goto look_first :: else fi;
decide:
        if
        :: atomic { SAY("core-api: not eligible\n"); end = REJECTED;
            if :: was_sent -> goto look_up :: else -> do_end(w, REJECTED); goto over fi }
        :: atomic { FAULT; printf("worker %d: nothing was sent, the connection is refused\n", w);
            give_back(w, was_sent); goto over }
        :: atomic { FAULT; end = FAILED; goto look_up }
        :: atomic { FAULT; printf("worker %d: sends the create, gives it up, or dies\n", w);
            flying[w] = 1;
#ifdef WITHOUT_NOTED_BY_CLAIM /* the end of an attempt notes it, if the worker lives so long */
            if :: sent_to == 0 -> sent_to = w + 1 :: true fi;
#endif
            do_end(w, PENDING); goto over }
        :: atomic { printf("worker %d: sends the create\n", w); make_card(w);
#ifdef WITHOUT_NOTED_BY_CLAIM
            sent_to = w + 1;
#endif
            do_end(w, COMPLETED); goto over }
        fi;
look_up:
        atomic {
            printf("worker %d: looks up at issuer %d: %d\n", w, w, SHOWN(w));
            if
            :: SHOWN(w) && end == REJECTED ->
                card[w] = 0;
                if :: MOVED && w == 1 -> card[0] = 0 :: else fi;
                do_end(w, REJECTED)
            :: SHOWN(w) && end != REJECTED -> do_end(w, COMPLETED)
            :: !SHOWN(w) && !flying[w] -> do_end(w, end)
            :: FAULT; SAY("issuer: the look-up is never readable\n"); do_end(w, FAILED) /* outcome_unknown */
            fi };
        goto over;
look_first:
        atomic {
            printf("worker %d: looks up first at issuer %d: %d\n", w, w, SHOWN(w));
            if
            :: SHOWN(w) -> first = 0; do_end(w, COMPLETED)
            :: !SHOWN(w) && !flying[w] -> first = 0; goto decide
            :: FAULT; SAY("database: five attempts are lost with their worker\n"); do_end(w, FAILED)
            fi };
over:
        atomic { was_sent = 0; end = 0 }
    :: atomic { mark && status == FAILED && MARK_IS_MINE(w) && !(gone && w == 0) && !flying[w] ->
        printf("worker %d: looks up for a reissue at issuer %d: %d\n", w, w, SHOWN(w));
        mark = 0;
        if
        :: SHOWN(w)
        :: !SHOWN(w) -> HOLDS(a_new_request_beside_a_live_card, !card[0] && !card[1]); status = REJECTED
        fi }
    od
}

active proctype Issuers()
{
    byte n;
end_issuers:
    do
    :: atomic { flying[0] || flying[1] ->
        if :: flying[0] -> n = 0 :: flying[1] -> n = 1 fi;
        flying[n] = 0;
        if :: true -> make_card(n) :: true -> SAY("issuer: a create is lost on its way\n") fi;
        n = 0 }
    od
}

#ifdef WITHOUT_SETTLED_ADOPTION
#define IS_SETTLED true
#else
#define IS_SETTLED (!flying[0]) /* the last send is older than the settling time */
#endif

active proctype Operator()
{
end_operator:
    do
    :: atomic { !gone && status != PROCESSING -> SAY("operator: ends the last worker of issuer 0\n"); gone = 1 }
    :: atomic { reissues > 0 && status == FAILED && !mark ->
        SAY("operator: asks for a reissue\n"); reissues--; mark = 1 }
    :: atomic { replays > 0 && status == FAILED && !mark ->
        SAY("operator: replays\n");
#ifdef WITHOUT_ADOPTED_REPLAY
        first = 0;
#endif
        replays--; status = PENDING }
    /* Has seen that issuer 0 has no card for the event, and says so; or issuer 1 has its cards. */
    :: atomic { adoptions > 0 && gone && status == PENDING && sent_to == 1 && (MOVED || !card[0]) && IS_SETTLED ->
        SAY("operator: adopts the event for issuer 1\n");
        HOLDS(it_waits_for_an_operator_though_nothing_was_sent, sent);
        adoptions--;
        first = sent;
        sent_to = 2 }
    od
}

active proctype Monitor()
{
end_monitor:
    atomic {
        timeout ->
        HOLDS(it_waits_for_an_operator_though_nothing_was_sent, status != PENDING || sent_to == 0 || sent);
        HOLDS(stuck, status >= COMPLETED || (status == PENDING && gone && sent_to == 1)) /* other_issuer: visible */
    }
}

init { atomic { run Worker(0); run Worker(1) } }
