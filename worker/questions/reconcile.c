/* See reconcile.h. */
#include "worker/questions/reconcile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "statements.h"
#include "worker/questions/lost_creates.h"
#include "worker/questions/mark.h"

#define MARKS_MAX 4   /* at a time */
#define TIDY_MS 60000 /* a take also removes what is over */
#define QUERY_TIMEOUT_MS 5000
#define TYPES_BYTES_MAX 4096

struct reconcile {
    struct reconcile_options options;
    uv_timer_t timer;
    struct pg_query query; /* that takes marks */
    struct buf types;      /* its parameter: what this worker can look up now */
    struct uuid token;
    bool is_taking;
    int taking_count; /* how many may be taken */
    bool is_due;      /* there may be marks: somebody said so, or the last take was filled */
    struct mark_env env;
    struct mark marks[MARKS_MAX];
    int busy_count;
    int64_t tidied_ms;
    struct lost_creates lost_creates;
    struct closing closing;
};

static struct mark *free_mark(struct reconcile *reconcile)
{
    for (int i = 0; i < MARKS_MAX; i++)
        if (!reconcile->marks[i].flow.is_busy)
            return &reconcile->marks[i];
    return NULL;
}

static void take(struct reconcile *reconcile);

static void on_taken(struct pg_query *query, const struct pg_query_result *result)
{
    struct reconcile *reconcile = container_of(query, struct reconcile, query);
    int count = result->kind == PG_DONE ? pg_rows_count(result->rows) : 0; /* leases that may be there run out */
    reconcile->is_taking = false;
    reconcile->is_due = count > 0 && count == reconcile->taking_count;
    for (int row = 0; row < count; row++) {
        struct mark *mark = free_mark(reconcile);
        assert(mark); /* the limit was the free ones, and only a take fills them */
        reconcile->busy_count++;
        mark_start(mark, &reconcile->token, result->rows, row);
    }
    take(reconcile);
}

static void add_type(struct pg_array *types, const char *type)
{
    pg_array_add(types, type, strlen(type));
}

/* Every mark begins with a look-up, so those of a paused target stay where they are. False: nothing can be looked up,
 * or out of memory. */
static bool fill_types(struct reconcile *reconcile)
{
    const struct reconcile_options *options = &reconcile->options;
    const struct routes *routes = options->routes;
    struct pg_array types;
    int count = 0;
    pg_array_start(&types, &reconcile->types, PG_TEXT);
    if (!options->peers->issuer.target.is_paused) {
        add_type(&types, OUTBOX_EVENT_TYPE);
        count++;
    }
    for (int i = 0; i < routes->count; i++) {
        const struct route *route = &routes->routes[i];
        if (!route->config->lookup_url || route->peer.target.is_paused)
            continue;
        add_type(&types, route->config->type);
        count++;
    }
    reconcile->query.params[4] = pg_array_param(&types);
    return count > 0 && !reconcile->types.failed;
}

static void take(struct reconcile *reconcile)
{
    const struct reconcile_options *options = &reconcile->options;
    struct pg_query *query = &reconcile->query;
    if (!reconcile->is_due || reconcile->is_taking || reconcile->env.flow.is_draining ||
        reconcile->busy_count >= MARKS_MAX)
        return;
    if (!fill_types(reconcile))
        return;
    reconcile->is_taking = true;
    reconcile->is_due = false;
    reconcile->token = uuid4_make();
    reconcile->taking_count = MARKS_MAX - reconcile->busy_count;
    query->statement = &sql_reconcile_take;
    query->params[0] = pg_param_uuid(&reconcile->token);
    query->params[1] = pg_param_int8(reconcile->taking_count);
    query->params[2] = pg_param_int8(options->config->worker.lease_ms);
    query->params[3] = pg_param_text(options->worker_name, strlen(options->worker_name));
    query->params[5] = pg_param_text(options->config->issuer.profile, strlen(options->config->issuer.profile));
    query->params[6] = pg_param_text(options->peers->issuer_address, strlen(options->peers->issuer_address));
    query->timeout_ms = QUERY_TIMEOUT_MS;
    query->on_result = on_taken;
    pg_pool_submit(options->pool, query);
}

static void on_mark_released(void *context)
{
    struct reconcile *reconcile = context;
    reconcile->busy_count--;
    assert(reconcile->busy_count >= 0);
    take(reconcile);
}

static void on_mark_result(void *context)
{
    struct reconcile *reconcile = context;
    reconcile->options.on_result(reconcile->options.context);
}

static void on_timer(uv_timer_t *timer)
{
    struct reconcile *reconcile = container_of(timer, struct reconcile, timer);
    int64_t now_ms = clock_mono_ms();
    lost_creates_send(&reconcile->lost_creates);
    if (now_ms - reconcile->tidied_ms < TIDY_MS)
        return;
    reconcile->tidied_ms = now_ms;
    reconcile_wake(reconcile);
}

void reconcile_wake(struct reconcile *reconcile)
{
    if (!reconcile->is_taking) /* else it is looked at now */
        reconcile->is_due = true;
    take(reconcile);
}

void reconcile_report(struct reconcile *reconcile, const struct uuid *event_id)
{
    lost_creates_add(&reconcile->lost_creates, event_id);
}

/* ---- open, drain, close ---- */

bool reconcile_open(const struct reconcile_options *options, struct reconcile **ret_reconcile, struct err *err)
{
    struct reconcile *reconcile = calloc(1, sizeof(*reconcile));
    if (!reconcile)
        return err_set(err, ERR_MEMORY, "no memory for the marks");
    reconcile->options = *options;
    reconcile->env = (struct mark_env){
        .flow = {.config = options->config,
                 .parameters = options->parameters,
                 .peers = options->peers,
                 .routes = options->routes,
                 .db_clock = options->db_clock,
                 .exporter = options->exporter},
        .pool = options->pool,
        .metrics = options->metrics,
        .on_result = on_mark_result,
        .on_released = on_mark_released,
        .context = reconcile,
    };
    mark_env_init(&reconcile->env);
    lost_creates_init(&reconcile->lost_creates, options->pool);
    buf_init(&reconcile->types, TYPES_BYTES_MAX);
    for (int i = 0; i < MARKS_MAX; i++)
        mark_init(&reconcile->marks[i], &reconcile->env);
    uv_timer_init(options->loop, &reconcile->timer);
    uint64_t poll_ms = (uint64_t)options->config->worker.poll_interval_ms;
    uv_timer_start(&reconcile->timer, on_timer, poll_ms, poll_ms);
    *ret_reconcile = reconcile;
    return true;
}

void reconcile_stop(struct reconcile *reconcile)
{
    reconcile->env.flow.is_draining = true;
    uv_timer_stop(&reconcile->timer);
}

bool reconcile_is_idle(const struct reconcile *reconcile)
{
    return reconcile->busy_count == 0 && !reconcile->is_taking && lost_creates_is_idle(&reconcile->lost_creates);
}

static void release(void *module)
{
    struct reconcile *reconcile = module;
    for (int i = 0; i < MARKS_MAX; i++)
        mark_done(&reconcile->marks[i]);
    buf_done(&reconcile->types);
    free(reconcile);
}

void reconcile_close(struct reconcile *reconcile, void (*on_closed)(void *context), void *context)
{
    assert(reconcile_is_idle(reconcile));
    lost_creates_done(&reconcile->lost_creates);
    closing_start(&reconcile->closing, release, reconcile, on_closed, context);
    closing_handle(&reconcile->closing, &reconcile->timer);
    closing_end(&reconcile->closing);
}
