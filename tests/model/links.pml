/* Cards that cannot be linked: core-api answers every check well and refuses every link (401). Each event that is
 * tried costs a card. tests/model/README.md says how to read it.
 *
 * It stands for worker/peers/suspicion.c (one for each kind of call, is_dear), target.c, and flow_ticket.c (a create is
 * not sent while links are suspected, but for a probe). Left out: the link of cards that are stored, which is tried
 * once a probe interval and makes none; what happens once core-api takes links again (refusals.pml).
 *
 * The world (-D): SLOTS of the worker, FAILURES in a row, TICKS. WITHOUT_...: a guard is taken out. */

#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef FAILURES
#define FAILURES 3
#endif
#ifndef TICKS
#define TICKS 30
#endif
#define DEAR_FACTOR 4

mtype = { more_cards_than_probes };
#define HOLDS(what, condition) if :: (condition) :: else -> printf("BROKEN: %e\n", what); assert(false) fi
#define SAY(text) printf(text)

byte now, cards; /* that are not linked */
byte creating;   /* events that were checked before links were suspected, and whose create may leave */
byte linking;    /* whose link is under way */
bool suspected, probe; /* the probe is under way */
byte in_a_row, pause, probe_at, probes;

#define IS_FREE (creating + linking < SLOTS)
#ifdef WITHOUT_LINKS_BEFORE_CREATES
#define MAY_BEGIN true
#define MAY_CREATE true
#else
#define MAY_BEGIN (!suspected || (now >= probe_at && !probe && creating + linking == 0))
#define MAY_CREATE (!suspected || probe)
#endif

inline plan()
{
    probe_at = now + pause;
#ifndef WITHOUT_GROWING_PAUSES
    pause = (pause * DEAR_FACTOR < 64 -> pause * DEAR_FACTOR : 64)
#endif
}

active proctype Worker()
{
end_worker:
    do
    :: atomic { IS_FREE && MAY_BEGIN && now < TICKS ->
        SAY("core-api: answers the check well\n");
#ifdef WITHOUT_KINDS
        in_a_row = 0; /* one row for all calls of the peer */
#endif
        if :: suspected -> probe = 1; probes++ :: else fi;
        creating++ }
    :: atomic { creating > 0 && MAY_CREATE ->
        creating--; linking++; cards++;
        printf("issuer: makes card %d (tick %d)\n", cards, now);
        HOLDS(more_cards_than_probes, cards <= FAILURES - 1 + SLOTS + 3) }
    :: atomic { creating > 0 && !MAY_CREATE -> creating-- } /* a deferral */
    :: atomic { linking > 0 ->
        SAY("core-api: refuses the link\n");
        linking--;
        if
        :: !suspected ->
            in_a_row++;
            if
            :: in_a_row >= FAILURES -> SAY("target: links are suspected\n"); suspected = 1; pause = 1; plan()
            :: else
            fi
        :: suspected && probe -> probe = 0; plan()
        :: else
        fi }
    od
}

active proctype Clock()
{
end_clock:
    do
    :: atomic { now < TICKS && linking == 0 -> now++; printf("-- tick %d\n", now) }
    od
}
