/* Refused events beside good ones: one kind of call at one peer, as one worker sees it. Some events are refused (401,
 * 403, 404, 405, 3xx) for a reason of their own, or all are, for a reason of ours. tests/model/README.md says how to
 * read it.
 *
 * It stands for worker/peers/suspicion.c and target.c, and for issuing.choose_due of migrations/schema/04_claim.sql.
 * One good event waits at any time; what counts of the others is how many are older and newer than it. Time passes in
 * pauses between probes only. That chance decides from which end a claim takes first is modelled as: neither end comes
 * first more than twice in a row. Left out: the end FAILED of an event that is refused beside good ones, and outages
 * (5xx), whose probes have the breaker's pauses.
 *
 * The world (-D): MOST refused events on either side, FAILURES in a row, CAP of the pause, OURS 1: every call is
 * refused until our fault is mended. WITHOUT_...: a guard is taken out. */

#ifndef MOST
#define MOST 3
#endif
#ifndef FAILURES
#define FAILURES 3
#endif
#ifndef CAP
#define CAP 4
#endif
#ifndef OURS
#define OURS 0
#endif

mtype = { a_good_event_waits_for_more_probes_than_there_were_events_before_it, the_pauses_grow_without_end,
          nothing_is_probed };
#define HOLDS(what, condition) if :: (condition) :: else -> printf("BROKEN: %e\n", what); assert(false) fi
#define SAY(text) printf(text)

byte older, newer; /* than the good one, due, and not refused before */
byte again;        /* refused before, and due again; more than MOST are as many */
bool suspected, mended;
byte in_a_row, pause;
byte probes, waited;        /* since the good event came */
byte allowed = FAILURES;    /* probes: by how many events were before it */
byte turns;                 /* how often the same end came first in a row */
bool old_first;

inline refuse()
{
    if :: again < MOST -> again++ :: else fi;
    if
    :: suspected ->
#ifdef WITHOUT_SHORT_PAUSES /* as after failures of the peer's health */
        pause = (pause < 64 -> 2 * pause : 64)
#else
        pause = (2 * pause < CAP -> 2 * pause : CAP)
#endif
    :: else ->
        in_a_row++;
        if :: in_a_row >= FAILURES -> SAY("target: suspected\n"); suspected = 1; pause = 1 :: else fi
    fi
}

/* The next good event is the newest. */
inline answer_well()
{
    SAY("peer: answers well\n");
    suspected = 0; in_a_row = 0; pause = 0; probes = 0; waited = 0;
    older = (older + newer < MOST -> older + newer : MOST);
    newer = 0;
    allowed = 3 * (older + 1)
}

inline choose_end()
{
    if
    :: turns < 2 -> turns++
    :: true -> old_first = !old_first; turns = 1
    fi;
#ifdef WITHOUT_BOTH_ENDS
    old_first = 0
#endif
}

active proctype Claims()
{
    if
    :: OURS -> older = MOST
    :: !OURS
    fi;
    do
    :: atomic {
        if /* others come, as fast as probes are made */
        :: !OURS && newer < MOST -> newer++
        :: !OURS
        :: OURS -> if :: mended = 1 :: true fi
        fi;
        if
        :: OURS && mended && (older > 0 || !suspected) -> SAY("peer: answers well\n"); break
        :: OURS && !(mended && (older > 0 || !suspected)) ->
            if
            :: older > 0 -> older--; refuse()
            :: older == 0 && !suspected -> refuse()
#ifndef WITHOUT_AGAIN
            :: older == 0 && suspected -> /* nothing fresh is left */
                if :: mended -> SAY("peer: answers well\n"); break :: !mended -> refuse() fi
#endif
            :: else -> HOLDS(nothing_is_probed, false)
            fi
        :: !OURS && !suspected -> /* the oldest ones, or those that are due again */
            if
            :: older > 0 -> older--; refuse()
            :: older == 0 -> answer_well()
            :: again > 0 -> refuse()
            fi
        :: !OURS && suspected ->
            waited = waited + pause;
            probes++;
            printf("worker: probes after a pause of %d: %d older, %d newer\n", pause, older, newer);
            HOLDS(a_good_event_waits_for_more_probes_than_there_were_events_before_it, probes <= allowed);
            HOLDS(the_pauses_grow_without_end, waited <= allowed * CAP);
            choose_end();
            if
            :: old_first && older > 0 -> older--; refuse()
            :: !old_first && newer > 0 -> newer--; refuse()
#ifdef WITHOUT_FRESH_FIRST
            :: again > 0 -> refuse()
#endif
            :: else -> answer_well()
            fi
        fi }
    od
}
