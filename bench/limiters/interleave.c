/* See interleave.h. */
#include "bench/limiters/interleave.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 20 /* between two looks at a step that has no answer yet */

static const char *const results[] = {
    [SESSION_READY] = "",
    [SESSION_RUNNING] = ": waits",
    [SESSION_ACCEPTED] = ": accepted",
    [SESSION_REFUSED] = ": refused",
    [SESSION_FAILED] = ": failed",
};

/* Whether the session waits for a lock that the other one holds. */
static bool is_blocked(PGconn *observer, struct session *session, struct session *other)
{
    char text[160];
    snprintf(text, sizeof(text), "SELECT pg_isolation_test_session_is_blocked(%d, '{%d}')", PQbackendPID(session->db),
             PQbackendPID(other->db));
    PGresult *result = PQexec(observer, text);
    bool blocked = PQntuples(result) == 1 && strcmp(PQgetvalue(result, 0, 0), "t") == 0;
    PQclear(result);
    return blocked;
}

static void tell(char name, const struct session *session, int at, int retries)
{
    const char *what = session->retries > retries ? ": conflict, begins anew" : results[session->state];
    printf("%c %s%s\n", name, session->limiter->steps[at].name, what);
}

/* The step that runs. False: it waits for a lock of the other session. */
static bool finish(PGconn *observer, struct session *session, struct session *other, char name)
{
    int at = session->at, retries = session->retries;
    while (!session_has_answer(session, LOOK_MS))
        if (is_blocked(observer, session, other)) {
            printf("%c %s: waits for %c\n", name, session->limiter->steps[at].name, name == 'a' ? 'b' : 'a');
            return false;
        }
    session_finish_step(session);
    tell(name, session, at, retries);
    return true;
}

/* A step that runs is finished, then the next one is made. False: the session waits, or is at its end. */
static bool step(PGconn *observer, struct session *session, struct session *other, char name)
{
    if (session->state == SESSION_RUNNING && !finish(observer, session, other, name))
        return false;
    if (session->state != SESSION_READY)
        return false;
    session_start_step(session);
    return finish(observer, session, other, name) && session->state == SESSION_READY;
}

static void wait_until(const char *word)
{
    long long into_ms = 0, period_ms = 1;
    sscanf(word, "wait:%lld%%%lld", &into_ms, &period_ms);
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        long long past_ms = (now.tv_sec * 1000LL + now.tv_nsec / 1000000) % period_ms;
        if (past_ms >= into_ms && past_ms < into_ms + 20)
            return;
        usleep(2000);
    }
}

void interleave_run(struct session *a, struct session *b, const char *schedule, const char *conninfo)
{
    char words[256];
    struct session *sessions[] = {a, b};
    PGconn *observer = PQconnectdb(conninfo);
    snprintf(words, sizeof(words), "%s", schedule);
    char *rest = words;
    for (char *word; (word = strsep(&rest, " "));) {
        int which = word[0] == 'b';
        if (strncmp(word, "wait:", 5) == 0)
            wait_until(word);
        else if (strncmp(word, "pause:", 6) == 0)
            usleep((unsigned)atoi(word + 6) * 1000);
        else if (word[0] == 'a' || word[0] == 'b')
            while (step(observer, sessions[which], sessions[!which], word[0]) && word[1] == '*')
                ;
    }
    for (int turn = 0; a->state == SESSION_READY || a->state == SESSION_RUNNING || b->state == SESSION_READY ||
                       b->state == SESSION_RUNNING;
         turn++)
        while (step(observer, sessions[turn % 2], sessions[!(turn % 2)], turn % 2 ? 'b' : 'a'))
            ;
    PQfinish(observer);
}
