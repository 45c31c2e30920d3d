/* The way to the peers and back: a request leaves, arrives once, twice, late or never, and is answered, or not. Stands
 * in for the HTTP client below http_call.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/http_client/http_client.h"
#include "sim.h"
#include "worker/flow/flow.h"

struct flight {
    struct http_call *call;
    struct sim_worker *worker;
    int life, event, step;
    enum sim_fault fault;
    struct sim_request request;
    struct sim_answer answer;
    bool is_done;
    int64_t started_us;
};

static void copy_request(const struct http_call *call, struct sim_request *to)
{
    snprintf(to->method, sizeof(to->method), "%s", call->method);
    snprintf(to->url, sizeof(to->url), "%s", call->lines.bytes);
    for (const char *line = http_call_next_line(call, call->lines.bytes); line; line = http_call_next_line(call, line))
        if (strncmp(line, "Idempotency-Key: ", 17) == 0)
            snprintf(to->key, sizeof(to->key), "%s", line + 17);
    if (call->body.length > 0)
        snprintf(to->body, sizeof(to->body), "%.*s", (int)call->body.length, call->body.bytes);
}

static int step_of(const struct sim_request *request)
{
    bool is_core = strncmp(request->url, sim.config.core.url, strlen(sim.config.core.url)) == 0;
    if (is_core)
        return strcmp(request->method, "GET") == 0    ? STEP_CHECK
               : strcmp(request->method, "POST") == 0 ? STEP_LINK
                                                      : STEP_UNLINK; /* or disown */
    if (sim_request_is_create(request))
        return STEP_ISSUE;
    const char *is_listing = strchr(request->url, '?');
    bool is_card = strstr(request->url, "crd-") && !is_listing;
    if (strcmp(request->method, "GET") != 0)
        return sim_request_closes(request) ? STEP_CANCEL : STEP_ACTIVATE;
    return is_card ? STEP_VERIFY : STEP_LOOKUP;
}

/* ---- answers ---- */

static void on_answer(void *subject, int64_t number)
{
    struct flight *flight = subject;
    struct http_call *call = flight->call;
    (void)number;
    if (flight->is_done)
        return;
    flight->is_done = true;
    call->status = flight->answer.status;
    call->answer_is_json = true;
    call->retry_after_ms = flight->fault == SIM_S429 ? sim_between(-1, 3000) : -1;
    size_t length = strlen(flight->answer.body);
    if (flight->fault == SIM_GARBAGE)
        length /= 2;
    buf_init(&call->answer, call->answer_max);
    if (length > 0 && !buf_put(&call->answer, flight->answer.body, length))
        abort();
    http_call_answered(call);
}

static void on_lost(void *subject, int64_t number)
{
    struct flight *flight = subject;
    (void)number;
    if (flight->is_done)
        return;
    flight->is_done = true;
    http_call_failed(flight->call, "lost");
}

static bool is_alive(const struct flight *flight)
{
    return flight->worker->is_up && flight->worker->life == flight->life;
}

/* A 404 is that of a gateway, without a code. */
static void set_status(struct flight *flight, int status, const char *code)
{
    struct sim_answer *answer = &flight->answer;
    answer->status = status;
    if (status == 404)
        snprintf(answer->body, sizeof(answer->body), "no such page");
    else if (sim_request_is_core(&flight->request))
        snprintf(answer->body, sizeof(answer->body), "{\"code\":\"%s\",\"detail\":\"a fault\"}", code);
    else
        sim_issuer_refuse(answer, status, code);
}

/* The request is at the peer. number: whether it is answered. */
static void on_arrival(void *subject, int64_t number)
{
    struct flight *flight = subject;
    if (flight->step == STEP_ISSUE)
        sim.sends_under_way[flight->event]--;
    sim_peers_execute(&flight->request, &flight->answer);
    if (!is_alive(flight))
        return;
    if (flight->fault == SIM_CRASH_AFTER) {
        sim_worker_kill(flight->worker, sim_between(100 * MS, 20 * SECOND));
        return;
    }
    if (flight->fault == SIM_S500_DONE)
        set_status(flight, 500, "broken");
    else if (flight->fault == SIM_S408_DONE)
        set_status(flight, 408, "late");
    if (number)
        sim_after(sim_between(200, 20 * MS), flight->worker, on_answer, flight, 0);
}

static void arrive(struct flight *flight, int64_t in_us, bool is_answered)
{
    if (flight->step == STEP_ISSUE)
        sim.sends_under_way[flight->event]++;
    sim_after(in_us, NULL, on_arrival, flight, is_answered);
}

/* ---- what becomes of a request ---- */

/* Nothing arrives later than this after the settling time began. */
static int64_t late_us(void)
{
    int64_t last_us = sim.settle_us - 100 * MS;
    return sim_between(sim_between(0, 1) ? 10 * MS : last_us / 2, last_us);
}

static void answer_without(struct flight *flight, int status, const char *code)
{
    set_status(flight, status, code);
    sim_after(sim_between(1 * MS, 40 * MS), flight->worker, on_answer, flight, 0);
}

/* What is on its way looks older than it is. */
static void on_clock_set_forward(void *subject, int64_t number)
{
    (void)subject;
    (void)number;
    sim.clocks_are_even = false;
    sim.db_offset_us += sim_between(2 * SECOND, MINUTE);
    sim_tell("incident     the database's clock is set forward");
}

/* The worker goes on, and the first that it does is to send: it was about to. */
static void on_leaves(void *subject, int64_t number)
{
    (void)number;
    arrive(subject, sim_between(200, 20 * MS), true);
}

static void fly(struct flight *flight)
{
    int64_t delay_us = sim_between(200, 20 * MS), lost_us = sim_between(20 * MS, 1500 * MS);
    struct sim_worker *worker = flight->worker;
    switch ((int)flight->fault) {
    case SIM_LOST_BEFORE:
        sim_after(lost_us, worker, on_lost, flight, 0);
        return;
    case SIM_LOST_AFTER:
        arrive(flight, delay_us, false);
        sim_after(lost_us, worker, on_lost, flight, 0);
        return;
    case SIM_HANG:
        arrive(flight, delay_us, false);
        return;
    case SIM_LATE:
        delay_us = late_us();
        arrive(flight, delay_us, false);
        if (sim_fault_at(flight->step, flight->event, SIM_CLOCK_DB, SIM_CLOCK_DB) && flight->step == STEP_ISSUE)
            sim_after(sim_between(0, delay_us), NULL, on_clock_set_forward, NULL, 0);
        sim_after(lost_us, worker, on_lost, flight, 0);
        return;
    case SIM_DOUBLED:
        arrive(flight, late_us(), false);
        break;
    case SIM_RESENT:
        if (sim_between(0, 1))
            arrive(flight, sim_between(200, 3 * SECOND), false);
        break;
    case SIM_SLOW:
        delay_us = sim_between(20 * MS, 2 * SECOND);
        break;
    case SIM_S500:
        answer_without(flight, sim_between(0, 1) ? 500 : 503, "broken");
        return;
    case SIM_S429:
        answer_without(flight, 429, "too_many");
        return;
    case SIM_S409:
        answer_without(flight, sim_between(0, 1) ? 409 : 425, "in_progress");
        return;
    case SIM_S401:
        answer_without(flight, 401, "who");
        return;
    case SIM_S404:
        answer_without(flight, 404, "where");
        return;
    case SIM_S422:
        answer_without(flight, 422, "no_card");
        return;
    case SIM_CRASH_SENT:
        arrive(flight, delay_us, false);
        sim_worker_kill(worker, sim_between(100 * MS, 20 * SECOND));
        return;
    case SIM_STALLED:
        sim.has_stalled |= flight->step == STEP_ISSUE;
        worker->owes_report |= flight->step == STEP_ISSUE;
        sim_worker_freeze(worker, sim_between(100 * MS, 2 * MINUTE));
        sim_after(worker->frozen_until_us - sim.now_us, worker, on_leaves, flight, 0);
        return;
    case SIM_FREEZE:
        arrive(flight, delay_us, true);
        sim_worker_freeze(worker, sim_between(100 * MS, 60 * SECOND));
        return;
    default:
        break;
    }
    arrive(flight, delay_us, true);
}

/* A fault that would be a lie of the peer, which no rule can survive, becomes another one. */
static enum sim_fault honest(const struct flight *flight, enum sim_fault fault)
{
    if (flight->step == STEP_UNLINK && fault == SIM_S404)
        return SIM_S500;
    if (flight->step == STEP_LINK && sim.peers[flight->event].linked[0] && (fault == SIM_S422 || fault == SIM_S404))
        return SIM_S500; /* core-api has linked this card before */
    if (flight->step == STEP_CANCEL && fault == SIM_S409)
        return SIM_S500;
    if (flight->step == STEP_ISSUE && fault == SIM_DOUBLED && sim.ignores_keys)
        return SIM_LATE;
    return flight->call->must_not_resend && fault == SIM_RESENT ? SIM_LOST_AFTER : fault;
}

void __wrap_http_client_start(struct http_client *client, struct http_call *call);
void __wrap_http_client_start(struct http_client *client, struct http_call *call)
{
    struct sim_worker *worker = (struct sim_worker *)client;
    const char *wrong = http_call_check(call);
    if (!worker->is_up)
        return;
    if (wrong) {
        sim_fail("a call is wrong: %s", wrong);
        return;
    }
    struct flight *flight = sim_alloc(sizeof(*flight));
    *flight = (struct flight){.call = call, .worker = worker, .life = worker->life, .started_us = sim.now_us};
    copy_request(call, &flight->request);
    flight->step = step_of(&flight->request);
    flight->event = sim_request_event(&flight->request);
    if (flight->event < 0) {
        sim_fail("a call is about no event: %s %s", flight->request.method, flight->request.url);
        return;
    }
    if (flight->step < STEP_COUNT)
        sim.peers[flight->event].called_us[flight->step] = sim.now_us;
    if (flight->step == STEP_ISSUE)
        sim_check_create(&flight->request, container_of(call, struct flow, call));
    http_call_begin(call, client);
    flight->fault = honest(flight, sim_fault_at(flight->step, flight->event, SIM_UNREACHABLE, SIM_STALLED));
    sim_tell("call         event %d, %s%s%s", flight->event, sim_place_name(flight->step), flight->fault ? ": " : "",
             flight->fault ? sim_fault_name(flight->fault) : "");
    if (flight->fault == SIM_CRASH_BEFORE) {
        sim_worker_kill(worker, sim_between(100 * MS, 20 * SECOND));
        return;
    }
    sim_after(call->timeout_ms * MS, worker, on_lost, flight, 0);
    if (flight->fault == SIM_UNREACHABLE) {
        sim_after(sim_between(1 * MS, 50 * MS), worker, on_lost, flight, 0);
        return;
    }
    http_call_leaves(call);
    if (flight->fault == SIM_RESENT)
        http_call_leaves(call);
    fly(flight);
}
