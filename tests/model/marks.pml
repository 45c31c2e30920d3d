/* Marks of operators and workers on one FAILED event: A asks for a reissue and may be killed, B and C ask for a look,
 * C changes its mind, and a worker reports a create that it sent without its lease. tests/model/README.md says how to
 * read it.
 *
 * It stands for migrations/schema/12_marks.sql (ask_reconcile, ask_reissue, withdraw_mark, add_mark, end_mark) and
 * worker/questions/mark.c. Left out: what a look finds besides "a card" and "none", the settling time (protocol.pml),
 * and how a mark is retried: a look that fails is one that comes later. WITHOUT_...: a guard is taken out. */

#ifndef TICKS
#define TICKS 4
#endif

mtype = {
    a_new_request_behind_the_deadline_of_who_asked,
    a_new_request_beside_a_card_that_was_reported,
    somebody_elses_look_is_withdrawn,
    somebody_elses_deadline_is_moved,
    a_report_is_lost
};
#define HOLDS(what, condition) if :: (condition) :: else -> printf("BROKEN: %e\n", what); assert(false) fi
#define SAY(text) printf(text)

/* Rows of marks that are not finished: that of the operators, and that of the workers (`look`). */
#define NONE 0
#define RECONCILE 1
#define REISSUE 2
byte mark, mark_until;
bool mark_lease; /* the token of the worker that looks is the row's */
bool look, look_lease;

bool is_failed = true; /* else it is REJECTED `reissued` */
bool card;
bool reported; /* and no look has begun since */

byte now;
byte reissue_until; /* what A said; 0: nothing */
bool b_asked;       /* B's look is not over */
byte b_until;       /* what B's mark was to end by */

#define END_OVERDUE if :: mark != NONE && now >= mark_until && !mark_lease -> mark = NONE; b_asked = 0 :: else fi

inline ask_reconcile(until)
{
    END_OVERDUE;
    if
    :: mark == NONE -> mark = RECONCILE; mark_until = until
#ifdef WITHOUT_OWN_DEADLINE
    :: mark == RECONCILE && mark_until < until -> mark_until = until
    :: mark == RECONCILE && mark_until >= until
#else
    :: mark == RECONCILE /* joined */
#endif
#ifdef WITHOUT_OWN_ACTION
    :: mark == REISSUE -> mark_until = (until > mark_until -> until : mark_until) /* joined, and prolonged */
#else
    :: mark == REISSUE -> SAY("database: busy\n")
#endif
    fi
}

active proctype A()
{
end_a:
    atomic { now == 0 || now == 1 ->
        END_OVERDUE;
        if
        :: mark == NONE ->
            SAY("operator A: asks for a reissue\n");
            mark = REISSUE; mark_until = now + 1; reissue_until = mark_until
        :: else
        fi };
    if
    :: atomic { mark == REISSUE -> SAY("operator A: takes it back\n"); mark = NONE; mark_lease = 0 }
    :: true /* its terminal is killed */
    fi
}

active proctype B()
{
end_b:
    atomic { now < 2 ->
        SAY("operator B: asks for a look\n");
        ask_reconcile(now + 2);
        if :: mark == RECONCILE -> b_asked = 1; b_until = mark_until :: else fi }
}

active proctype C()
{
end_c:
    atomic { now < 3 -> SAY("operator C: asks for a look\n"); ask_reconcile(now + 3);
        HOLDS(somebody_elses_deadline_is_moved, !b_asked || mark_until == b_until) };
#ifdef WITHOUT_OWN_WITHDRAWAL
end_c_waits:
    atomic { mark == RECONCILE -> SAY("operator C: takes it back\n");
        HOLDS(somebody_elses_look_is_withdrawn, !b_asked);
        mark = NONE; mark_lease = 0 }
#else
    SAY("operator C: stops waiting\n") /* only a reissue can be taken back */
#endif
}

/* A create of an attempt that had lost its lease has made a card; its worker reports it. */
active proctype Lost()
{
end_lost:
    atomic { SAY("issuer: makes a card\n"); card = 1 };
    atomic {
        SAY("worker: reports a create\n");
        reported = 1;
#ifdef WITHOUT_OWN_LOOK
        if :: mark == NONE -> look = 1 :: else fi; /* joined */
#else
        look = 1;
        look_lease = 0;
#endif
#ifndef WITHOUT_NEW_BEGINNING
        mark_lease = 0
#endif
    }
}

active proctype Worker()
{
    bool saw;
end_worker:
    do
    :: atomic { mark != NONE && now >= mark_until ->
        SAY("worker: undecided\n"); mark = NONE; mark_lease = 0; b_asked = 0 }
    :: atomic { mark != NONE && now < mark_until -> mark_lease = 1; reported = 0 };
        atomic { saw = card; printf("worker: looks up for a mark: %d\n", saw) };
        atomic {
            if
            :: mark == NONE || !mark_lease -> SAY("database: fenced\n")
            :: mark != NONE && mark_lease && mark == RECONCILE ->
                SAY("worker: the look is over\n"); mark = NONE; b_asked = 0
            :: mark != NONE && mark_lease && mark == REISSUE ->
                if
                :: saw || !is_failed -> SAY("worker: refused\n")
#ifndef WITHOUT_DEADLINE_AT_THE_END
                :: !saw && is_failed && now >= mark_until -> SAY("worker: undecided\n")
                :: !saw && is_failed && now < mark_until ->
#else
                :: !saw && is_failed ->
#endif
                    SAY("worker: makes the new request\n");
                    HOLDS(a_new_request_behind_the_deadline_of_who_asked, now < reissue_until);
                    HOLDS(a_new_request_beside_a_card_that_was_reported, !reported);
                    is_failed = 0
                fi;
                mark = NONE
            fi;
            mark_lease = 0; saw = 0 }
    :: atomic { look -> look_lease = 1; reported = 0 };
        atomic { saw = card; printf("worker: looks up for a report: %d\n", saw) };
        atomic { if :: look_lease -> look = 0; look_lease = 0 :: else -> SAY("database: fenced\n") fi; saw = 0 }
    od
}

active proctype Clock()
{
end_clock:
    do
    :: atomic { now < TICKS -> now++; printf("-- tick %d\n", now) }
    od
}

active proctype Monitor()
{
end_monitor:
    atomic { timeout -> HOLDS(a_report_is_lost, !reported && !look) }
}
