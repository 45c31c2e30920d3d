/* See session.h. */
#include "bench/limiters/session.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS 4
#define WORDS_MAX 16
#define WORD_SIZE 160

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_limiters: %s: %s\n", what, why);
    exit(1);
}

static void ignore_notice(void *context, const PGresult *result)
{
    (void)context;
    (void)result;
}

static PGconn *open_db(const char *conninfo)
{
    PGconn *db = PQconnectdb(conninfo);
    if (PQstatus(db) != CONNECTION_OK)
        die("no connection to PostgreSQL", PQerrorMessage(db));
    PQsetNoticeReceiver(db, ignore_notice, NULL);
    return db;
}

static redisContext *open_redis(const char *address)
{
    char host[64];
    const char *colon = address ? strrchr(address, ':') : NULL;
    if (!colon)
        die("this limiter needs Redis", "no address was given");
    snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
    redisContext *redis = redisConnect(host, atoi(colon + 1));
    if (!redis || redis->err)
        die("no connection to Redis", redis ? redis->errstr : "out of memory");
    return redis;
}

void session_open(struct session *session, const struct limiter *limiter, const char *conninfo,
                  const char *redis_address)
{
    *session = (struct session){
        .limiter = limiter,
        .db = open_db(conninfo),
        .effects = limiter->has_effect ? open_db(conninfo) : NULL,
        .redis = limiter->has_redis ? open_redis(redis_address) : NULL,
        .state = SESSION_ACCEPTED,
    };
}

void session_close(struct session *session)
{
    if (session->redis)
        redisFree(session->redis);
    PQfinish(session->effects); /* NULL is accepted */
    PQfinish(session->db);
    session->redis = NULL;
    session->effects = session->db = NULL;
}

void session_exec(PGconn *db, const char *text)
{
    PGresult *result = PQexec(db, text);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        die(text, PQerrorMessage(db));
    PQclear(result);
}

void session_begin(struct session *session, const struct session_request *request)
{
    session->request = *request;
    session->state = SESSION_READY;
    session->at = session->retries = 0;
    session->error[0] = '\0';
}

/* ---- PostgreSQL ---- */

static PGconn *db_of(struct session *session)
{
    return session->limiter->steps[session->at].kind == STEP_EFFECT ? session->effects : session->db;
}

static void send_sql(struct session *session, PGconn *db, const char *text)
{
    static const Oid types[PARAMETERS] = {25, 25, 20, 20}; /* text, text, int8, int8 */
    char limit[16], window[24];
    snprintf(limit, sizeof(limit), "%d", session->request.limit);
    snprintf(window, sizeof(window), "%" PRId64, session->request.window_ms);
    const char *const values[PARAMETERS] = {session->request.user, session->request.id, limit, window};
    int count = 0;
    for (int i = 1; i <= PARAMETERS; i++) {
        const char name[] = {'$', (char)('0' + i), '\0'};
        if (strstr(text, name))
            count = i;
    }
    if (!PQsendQueryParams(db, text, count, types, values, NULL, NULL, 0))
        die("a statement could not be sent", PQerrorMessage(db));
}

static bool has_word(const char *words, const char *word)
{
    return *word && strstr(words, word);
}

/* The transaction is over. */
static void roll_back(struct session *session)
{
    if (PQtransactionStatus(session->db) != PQTRANS_IDLE)
        session_exec(session->db, "ROLLBACK");
}

static void refuse(struct session *session)
{
    roll_back(session);
    session->state = SESSION_REFUSED;
}

static void fail_sql(struct session *session, const PGresult *result)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(session->error, sizeof(session->error), "%s", PQresultErrorMessage(result));
    if (PQstatus(session->db) != CONNECTION_OK) {
        session->state = SESSION_FAILED;
    } else if (has_word(session->limiter->refuse, sqlstate ? sqlstate : "")) {
        refuse(session);
    } else if (has_word(session->limiter->retry, sqlstate ? sqlstate : "")) {
        roll_back(session);
        session->retries++;
        session->at = 0;
        session->state = SESSION_READY;
    } else {
        roll_back(session);
        session->state = SESSION_FAILED;
    }
}

/* The step has ended well. */
static void go_on(struct session *session, bool is_refused)
{
    if (is_refused && session->limiter->refused) {
        PGresult *result;
        send_sql(session, session->db, session->limiter->refused);
        while ((result = PQgetResult(session->db)))
            PQclear(result);
    }
    if (is_refused)
        session->state = SESSION_REFUSED;
    else if (++session->at == session->limiter->step_count)
        session->state = SESSION_ACCEPTED;
    else
        session->state = SESSION_READY;
}

static void finish_sql(struct session *session)
{
    PGconn *db = db_of(session);
    PGresult *result = PQgetResult(db);
    if (!result) {
        snprintf(session->error, sizeof(session->error), "%s", PQerrorMessage(db));
        session->state = SESSION_FAILED;
        return;
    }
    for (PGresult *more; (more = PQgetResult(db));)
        PQclear(more);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK)
        go_on(session, PQntuples(result) == 1 && strcmp(PQgetvalue(result, 0, 0), "refuse") == 0);
    else if (status == PGRES_COMMAND_OK)
        go_on(session, false);
    else
        fail_sql(session, result);
    PQclear(result);
}

/* ---- Redis ---- */

static void fill_word(const struct session *session, const char *word, size_t length, char ret_word[WORD_SIZE])
{
    char limit[16], window[24];
    snprintf(limit, sizeof(limit), "%d", session->request.limit);
    snprintf(window, sizeof(window), "%" PRId64, session->request.window_ms);
    const char *const names[][2] = {{"{user}", session->request.user},
                                    {"{request}", session->request.id},
                                    {"{limit}", limit},
                                    {"{window}", window}};
    size_t at = 0;
    for (size_t i = 0; i < length && at < WORD_SIZE - 1;) {
        const char *value = NULL;
        for (int n = 0; n < 4 && !value; n++)
            if (strncmp(word + i, names[n][0], strlen(names[n][0])) == 0) {
                value = names[n][1];
                i += strlen(names[n][0]);
            }
        at += (size_t)snprintf(ret_word + at, WORD_SIZE - at, "%s%.*s", value ? value : "", value ? 0 : 1, word + i);
        i += value ? 0 : 1;
    }
    ret_word[at < WORD_SIZE ? at : WORD_SIZE - 1] = '\0';
}

static void send_command(struct session *session, const char *text)
{
    char words[WORDS_MAX][WORD_SIZE];
    const char *arguments[WORDS_MAX];
    int count = 0;
    for (const char *at = text + strspn(text, " \n"); *at && count < WORDS_MAX; at += strspn(at, " \n")) {
        size_t length = strcspn(at, " \n");
        fill_word(session, at, length, words[count]);
        arguments[count] = words[count];
        count++;
        at += length;
    }
    redisAppendCommandArgv(session->redis, count, arguments, NULL);
}

static void send_script(struct session *session, const char *text)
{
    char key[80];
    snprintf(key, sizeof(key), "limit:%s", session->request.user);
    redisAppendCommand(session->redis, "EVAL %s 1 %s %s %d %lld", text, key, session->request.id,
                       session->request.limit, (long long)session->request.window_ms);
}

static void flush_redis(struct session *session)
{
    for (int done = 0; !done;)
        if (redisBufferWrite(session->redis, &done) != REDIS_OK)
            return; /* the reply will be an error */
}

static void finish_redis(struct session *session)
{
    redisReply *reply = NULL;
    if (redisGetReply(session->redis, (void **)&reply) != REDIS_OK || !reply) {
        snprintf(session->error, sizeof(session->error), "Redis: %s", session->redis->errstr);
        session->state = SESSION_FAILED;
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        snprintf(session->error, sizeof(session->error), "Redis: %s", reply->str);
        session->state = SESSION_FAILED;
    } else {
        go_on(session, reply->type == REDIS_REPLY_NIL);
    }
    freeReplyObject(reply);
}

/* ---- steps ---- */

void session_start_step(struct session *session)
{
    const struct step *step = &session->limiter->steps[session->at];
    session->state = SESSION_RUNNING;
    switch (step->kind) {
    case STEP_SQL:
    case STEP_EFFECT:
        send_sql(session, db_of(session), step->text);
        return;
    case STEP_REDIS:
        send_command(session, step->text);
        break;
    case STEP_REDIS_SCRIPT:
        send_script(session, step->text);
        break;
    }
    flush_redis(session);
}

static bool is_redis(const struct session *session)
{
    enum step_kind kind = session->limiter->steps[session->at].kind;
    return kind == STEP_REDIS || kind == STEP_REDIS_SCRIPT;
}

void session_finish_step(struct session *session)
{
    if (is_redis(session))
        finish_redis(session);
    else
        finish_sql(session);
}

bool session_has_answer(struct session *session, int wait_ms)
{
    PGconn *db = db_of(session);
    struct pollfd input = {.fd = is_redis(session) ? session->redis->fd : PQsocket(db), .events = POLLIN};
    if (is_redis(session))
        return poll(&input, 1, wait_ms) > 0;
    if (PQflush(db) == 0 && PQisBusy(db) && poll(&input, 1, wait_ms) > 0)
        PQconsumeInput(db);
    return !PQisBusy(db);
}

void session_run(struct session *session)
{
    while (session->state == SESSION_READY) {
        session_start_step(session);
        session_finish_step(session);
    }
}
