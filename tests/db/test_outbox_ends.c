/* The story: an attempt ends once, under the token of its claim. A retry is counted and a deferral gives its attempt
 * back; what was sent stays recorded, and the card that the end names belongs to the user of the event. */
#include "tests/db/outbox_calls.h"

#include "tests/support/suite.h"

TEST(an_end_with_a_stale_token_changes_nothing)
{
    struct uuid token;
    struct uuid id = claimed_event("mia", &token);
    struct end end = {.event = id, .token = uuid4_make(), .status = "COMPLETED"};
    ck_assert_int_eq(finish(&end), 0);
    expect_unchanged(&id, &token);
    begin_without_fence("write_ends");
    ck_assert_int_eq(finish(&end), 1);
    database_run(worker, "ROLLBACK");
    expect_unchanged(&id, &token);
}

TEST(a_completion_with_a_stale_token_changes_nothing)
{
    struct uuid token, stale = uuid4_make();
    struct uuid id = claimed_event("mona", &token);
    ck_assert_int_eq(complete(&id, &stale), 0);
    expect_unchanged(&id, &token);
    begin_without_fence("complete");
    ck_assert_int_eq(complete(&id, &stale), 1);
    database_run(worker, "ROLLBACK");
    expect_unchanged(&id, &token);
}

TEST(a_completion_happens_once_and_leaves_nothing_to_a_later_write)
{
    struct uuid token;
    struct uuid id = claimed_event("nils", &token);
    ck_assert_int_eq(complete(&id, &token), 1);
    ck_assert_int_eq(complete(&id, &token), 0);
    ck_assert_int_eq(
        finish(&(struct end){.event = id, .token = token, .status = "FAILED", .reason_code = "attempts_exhausted"}), 0);
    ck_assert_int_eq(fact(&id, "e.status = 'COMPLETED' AND e.lease_token IS NULL AND e.lease_until IS NULL"), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts"), 1);
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &token, 1), 0);
}

/* The row of an ended event and of its attempt, without ids and times. The caller frees it. */
static char *ended_row(const struct uuid *event)
{
    char text[500];
    snprintf(text, sizeof(text),
             "SELECT jsonb_build_object('event', to_jsonb(e) - "
             "'{id,created_at,user_id,next_attempt_at,first_sent_at,updated_at,"
             "completed_at}'::text[], 'times', ARRAY[e.completed_at = e.updated_at, a.ended_at = e.updated_at, "
             "a.ended_at - a.started_at = interval '250 ms'], 'attempt', to_jsonb(a) - "
             "'{event_id,lease_token,started_at,ended_at,user_id}'::text[], 'user', a.user_id = e.user_id)::text "
             "FROM outbox_events e JOIN outbox_attempts a ON a.event_id = e.id WHERE e.id = '%s'",
             text_of(event));
    return database_text(owner, text);
}

TEST(a_completion_writes_what_the_wide_end_would_write)
{
    struct uuid tokens[2];
    char *rows[2];
    for (int wide = 0; wide < 2; wide++) {
        struct uuid id = claimed_event(wide ? "wide" : "narrow", &tokens[wide]);
        database_exec(
            owner,
            "UPDATE outbox_events SET deferred_since = now(), last_error = 'earlier', reason_code = 'earlier', "
            "reason_detail = 'earlier' WHERE id = '%s'",
            text_of(&id));
        if (wide) { /* the statement for every other end, with the values of the usual one */
            char text[700];
            snprintf(text, sizeof(text),
                     "SELECT issuing.end_attempts(ARRAY[ROW('%s', '%s', 'COMPLETED', 0, false, false, false, NULL, "
                     "NULL, NULL, "
                     "'link', 'completed', NULL, NULL, false, 250, NULL, NULL, false, NULL, NULL, NULL, NULL)"
                     "::issuing.attempt_end], 'worker-1')",
                     text_of(&id), text_of(&tokens[wide]));
            database_run(worker, text);
        } else {
            ck_assert_int_eq(complete(&id, &tokens[wide]), 1);
        }
        rows[wide] = ended_row(&id);
        ck_assert_ptr_nonnull(rows[wide]);
    }
    ck_assert_str_eq(rows[0], rows[1]);
    ck_assert_ptr_nonnull(strstr(rows[0], "\"times\": [true, true, true]"));
    ck_assert_ptr_nonnull(strstr(rows[0], "\"status\": \"COMPLETED\""));
    free(rows[0]);
    free(rows[1]);
}

TEST(an_end_happens_once)
{
    struct uuid token;
    struct uuid id = claimed_event("nina", &token);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "COMPLETED"}), 1);
    ck_assert_int_eq(
        finish(&(struct end){.event = id, .token = token, .status = "FAILED", .reason_code = "attempts_exhausted"}), 0);
    ck_assert_int_eq(fact(&id, "e.status = 'COMPLETED' AND e.completed_at IS NOT NULL AND e.reason_code IS NULL"), 1);
    ck_assert_int_eq(fact(&id, "e.lease_token IS NULL AND e.lease_until IS NULL"), 1);
    struct card late = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic"};
    ck_assert_int_eq(save_one(&late, NULL), 0);
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &token, 1), 0);
}

TEST(a_retry_counts_and_waits_and_a_deferral_gives_its_attempt_back)
{
    struct uuid token;
    struct uuid id = claimed_event("oscar", &token);
    ck_assert_int_eq(
        finish(&(struct end){
            .event = id, .token = token, .status = "PENDING", .delay_ms = LEASE_MS, .cause = "issuer_http_503"}),
        1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 1);
    ck_assert_int_eq(fact(&id, "e.status = 'PENDING' AND e.completed_at IS NULL AND e.last_error = 'the last error'"),
                     1);
    ck_assert_int_eq(fact(&id, "e.next_attempt_at BETWEEN now() + interval '50 min' AND now() + interval '60 min'"), 1);
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 0); /* it is not due yet */
    database_exec(owner, "UPDATE outbox_events SET next_attempt_at = now() WHERE id = '%s'", text_of(&id));
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 2);
    ck_assert_int_eq(finish(&(struct end){
                         .event = id, .token = token, .status = "PENDING", .give_back = true, .cause = "breaker_open"}),
                     1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 1);
    ck_assert_int_eq(
        database_int(
            owner,
            "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s' AND lease_token = '%s' AND attempt = 2 "
            "AND outcome = 'deferred' AND code = 'breaker_open' AND worker = 'worker-1' AND step = 'issue' "
            "AND user_id = 'oscar' AND ended_at - started_at = interval '250 ms'",
            text_of(&id), text_of(&token)),
        1);
}

TEST(the_first_send_stays_recorded_unless_nothing_was_sent)
{
    struct uuid token;
    struct uuid id = claimed_event("peggy", &token);
    ck_assert_int_eq(fact(&id, "e.first_sent_at IS NOT NULL"), 1); /* by the claim: a crash now counts as sent */
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING", .clear_sent = true}), 1);
    ck_assert_int_eq(fact(&id, "e.first_sent_at IS NULL"), 1);
    token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 1);
    ck_assert(pg_is_null(rows, 0, 6)); /* nothing before this attempt */
    pg_rows_free(rows);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING", .unknown = true}), 1);
    ck_assert_int_eq(fact(&id, "e.first_sent_at IS NOT NULL"), 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s' AND unknown", text_of(&id)), 1);
}

TEST(a_row_of_deferrals_has_one_beginning)
{
    struct uuid token;
    struct uuid id = claimed_event("quinn", &token);
    struct end in_progress = {.event = id, .token = token, .status = "PENDING", .give_back = true, .deferred = true};
    ck_assert_int_eq(finish(&in_progress), 1);
    database_exec(owner, "UPDATE outbox_events SET deferred_since = deferred_since - interval '50 s' WHERE id = '%s'",
                  text_of(&id));
    in_progress.token = uuid4_make();
    struct pg_rows *rows = claim(worker, &in_progress.token, 1);
    ck_assert_int_ge(pg_int8(rows, 0, 7), 50 * 1000);
    pg_rows_free(rows);
    ck_assert_int_eq(finish(&in_progress), 1);
    ck_assert_int_eq(fact(&id, "e.deferred_since < now() - interval '49 s'"), 1);
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING"}), 1);
    ck_assert_int_eq(fact(&id, "e.deferred_since IS NULL"), 1);
}

/* Claims the event and ends the attempt: as a deferral for this cause, or (NULL) as a failed attempt. */
static void put_off(const struct uuid *id, const char *cause, int count_before, const char *code_before)
{
    struct end end = {.event = *id,
                      .token = uuid4_make(),
                      .status = "PENDING",
                      .give_back = cause != NULL,
                      .cause = cause ? cause : "issuer_http_503"};
    struct pg_rows *rows = claim(worker, &end.token, 1);
    ck_assert_int_eq(taken(rows), 1);
    ck_assert_int_eq(pg_int8(rows, 0, 17), count_before);
    struct slice code = pg_bytes(rows, 0, 18);
    ck_assert_uint_eq(code.length, strlen(code_before));
    ck_assert(code.length == 0 || memcmp(code.bytes, code_before, code.length) == 0);
    ck_assert_int_ge(pg_int8(rows, 0, 19), 0);
    pg_rows_free(rows);
    ck_assert_int_eq(finish(&end), 1);
}

static int attempts_of(const struct uuid *id)
{
    return (int)database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s'", text_of(id));
}

TEST(deferrals_for_one_cause_are_counted_and_written_down_once)
{
    struct uuid id = add_event("quentin", 1);
    put_off(&id, "issuer_http_404", 0, "");
    put_off(&id, "issuer_http_404", 1, "issuer_http_404");
    put_off(&id, "breaker_open", 2, "issuer_http_404"); /* our own cause: no information about the event */
    put_off(&id, "issuer_http_404", 2, "issuer_http_404");
    ck_assert_int_eq(attempts_of(&id), 1);
    put_off(&id, "core_http_429", 3, "issuer_http_404"); /* another answer of a peer is another row */
    put_off(&id, NULL, 1, "core_http_429");              /* and so is an attempt that counts */
    ck_assert_int_eq(attempts_of(&id), 3);
    put_off(&id, "breaker_open", 0, "");
    put_off(&id, "drain", 1, "breaker_open");
    put_off(&id, "drain", 1, "drain");
    put_off(&id, "issuer_http_404", 2, "drain");
    ck_assert_int_eq(attempts_of(&id), 6);
    ck_assert_int_eq(fact(&id, "e.deferral_count"), 1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 1);
}

TEST(a_count_of_deferrals_at_its_limit_stops_no_end)
{
    struct uuid id = add_event("quincy", 1);
    database_exec(owner,
                  "UPDATE outbox_events SET deferral_count = 2147483647, deferral_code = 'issuer_http_429' "
                  "WHERE id = '%s'",
                  text_of(&id));
    put_off(&id, "issuer_http_429", 2147483647, "issuer_http_429");
    ck_assert_int_eq(fact(&id, "e.deferral_count"), 1000000);
}

TEST(the_time_since_a_change_is_never_negative)
{
    struct uuid id = add_event("quiana", 1);
    database_exec(owner, "UPDATE outbox_events SET updated_at = now() + interval '1 h' WHERE id = '%s'", text_of(&id));
    put_off(&id, "issuer_http_404", 0, "");
    database_exec(owner, "UPDATE outbox_events SET updated_at = now() - interval '1 h' WHERE id = '%s'", text_of(&id));
    struct uuid token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 1);
    ck_assert_int_ge(pg_int8(rows, 0, 19), 3600 * 1000);
    pg_rows_free(rows);
}

TEST(a_refusal_says_why)
{
    struct uuid token;
    struct uuid id = claimed_event("rita", &token);
    ck_assert_int_eq(
        finish(&(struct end){
            .event = id, .token = token, .status = "REJECTED", .reason_code = "user_not_found", .clear_sent = true}),
        1);
    ck_assert_int_eq(
        fact(
            &id,
            "e.status = 'REJECTED' AND e.reason_code = 'user_not_found' AND e.reason_detail = 'what the user may read' "
            "AND e.completed_at IS NOT NULL"),
        1);
}

TEST(the_end_changes_the_card_it_made_and_the_one_it_replaced)
{
    struct uuid tokens[2];
    struct uuid old = claimed_event("sam", &tokens[0]);
    struct card old_card = {.event = old, .token = tokens[0], .id = uuid7_make(), .issuer_id = "ic_old"};
    ck_assert_int_eq(save_one(&old_card, NULL), 1);
    ck_assert_int_eq(finish(&(struct end){.event = old, .token = tokens[0], .status = "COMPLETED"}), 1);
    struct uuid new_event = claimed_event("sam", &tokens[1]);
    struct card new_card = {
        .event = new_event, .token = tokens[1], .id = uuid7_make(), .issuer_id = "ic_new", .replaces = &old_card.id};
    ck_assert_int_eq(save_one(&new_card, NULL), 1);
    ck_assert_int_eq(
        finish(&(struct end){.event = new_event, .token = tokens[1], .status = "COMPLETED", .replaced = &old_card.id}),
        1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'replaced'",
                                  text_of(&old_card.id)),
                     1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'active'", text_of(&new_card.id)),
        1);

    /* An event of the issuer has shown the retired card as closed before the end was written. */
    database_exec(owner, "UPDATE cards SET status = 'cancelled' WHERE id = '%s'", text_of(&new_card.id));
    struct uuid newest = claimed_event("sam", &tokens[0]);
    struct card newest_card = {.event = newest, .token = tokens[0], .id = uuid7_make(), .issuer_id = "ic_newest"};
    ck_assert_int_eq(save_one(&newest_card, NULL), 1);
    ck_assert_int_eq(
        finish(&(struct end){.event = newest, .token = tokens[0], .status = "COMPLETED", .replaced = &new_card.id}), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'replaced'",
                                  text_of(&new_card.id)),
                     1);

    struct uuid third = claimed_event("sam", &tokens[0]);
    struct card third_card = {.event = third, .token = tokens[0], .id = uuid7_make(), .issuer_id = "ic_3"};
    ck_assert_int_eq(save_one(&third_card, NULL), 1);
    ck_assert_int_eq(finish(&(struct end){.event = third,
                                          .token = tokens[0],
                                          .status = "REJECTED",
                                          .reason_code = "link_refused",
                                          .card_status = "cancelled"}),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'cancelled'",
                                  text_of(&third_card.id)),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE user_id = 'sam' AND status = 'active'"), 1);
}

TEST(an_end_never_replaces_the_card_of_another_user)
{
    struct uuid tokens[2];
    struct uuid victims = claimed_event("victim2", &tokens[0]);
    struct card card = {.event = victims, .token = tokens[0], .id = uuid7_make(), .issuer_id = "ic"};
    ck_assert_int_eq(save_one(&card, NULL), 1);
    struct uuid mallorys = claimed_event("mallory2", &tokens[1]);
    ck_assert_int_eq(
        finish(&(struct end){.event = mallorys, .token = tokens[1], .status = "COMPLETED", .replaced = &card.id}), 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'active'", text_of(&card.id)), 1);
}

TEST(many_ends_in_one_statement_are_each_judged_by_their_own_token)
{
    static const char *const statuses[] = {"COMPLETED", "PENDING", "FAILED", "REJECTED"};
    struct uuid token = uuid4_make();
    struct end ends[MANY];
    for (int i = 0; i < MANY; i++)
        ends[i] = (struct end){.event = add_event("trent", 1),
                               .token = token,
                               .status = statuses[i % 4],
                               .delay_ms = LEASE_MS,
                               .reason_code = i % 4 >= 2 ? "issuer_refused" : NULL};
    ck_assert_int_eq(claim_all(&token), MANY);
    for (int i = 0; i < MANY; i += 5)
        ends[i].token = uuid4_make();
    int stale = (MANY + 4) / 5;
    ck_assert_int_eq(finish_many(ends, MANY), MANY - stale);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE id = '%s' AND status = '%s'",
                                      text_of(&ends[i].event), i % 5 ? statuses[i % 4] : "PROCESSING"),
                         1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts"), MANY - stale);
}

/* What the issuer must be told of the user. A repeat under the same key must be the same request, so what the first
 * unknown outcome was sent with stays. */
#define FIRST "{\"cardholder\":\"ich_1\",\"currency\":\"eur\"}"
#define SECOND "{\"cardholder\":\"ich_2\"}"

TEST(the_parameters_that_are_kept_first_stay_and_come_back_with_the_claim)
{
    enum { COL_PARAMETERS = 22, COL_MADE };
    struct uuid token;
    struct uuid id = claimed_event("pia", &token);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING"}), 1);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters IS NULL"), 1);
    static const char *const given[] = {FIRST, SECOND, NULL};
    for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
        token = uuid4_make();
        ck_assert_int_eq(claim_all(&token), 1);
        struct end end = {.event = id, .token = token, .status = "PENDING", .parameters = given[i]};
        ck_assert_int_eq(finish(&end), 1);
        ck_assert_int_eq(fact(&id, "e.issuer_parameters = '" FIRST "'"), 1);
    }
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(mark(&sql_outbox_mark, &id, &token, "link_refused", SECOND), 1);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters = '" FIRST "'"), 1);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING"}), 1);
    token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 1);
    ck_assert_int_eq(taken(rows), 1);
    ck_assert_ptr_nonnull(strstr(pg_bytes(rows, 0, COL_PARAMETERS).bytes, "ich_1"));
    char made[100];
    snprintf(made, sizeof(made), "(extract(epoch FROM e.created_at) * 1000)::int8 = %lld",
             (long long)pg_int8(rows, 0, COL_MADE));
    ck_assert_int_eq(fact(&id, made), 1);
    pg_rows_free(rows);
}

TEST(a_mark_keeps_the_parameters_too)
{
    struct uuid token, stale = uuid4_make();
    struct uuid id = claimed_event("pola", &token);
    ck_assert_int_eq(mark(&sql_outbox_mark, &id, &stale, "link_refused", FIRST), 0);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters IS NULL"), 1);
    ck_assert_int_eq(mark(&sql_outbox_mark, &id, &token, "link_refused", FIRST), 1);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters = '" FIRST "'"), 1);
}

/* Nothing was sent with them, so another attempt, or a replay, asks core-api anew: it may have been corrected. What an
 * earlier attempt may have sent binds all later ones. */
START_TEST(parameters_with_which_certainly_nothing_was_sent_are_forgotten)
{
    static const struct {
        const char *status;
        bool clear_sent, may_arrive;
        int forgotten;
    } cases[] = {{"PENDING", true, false, 1},
                 {"FAILED", true, false, 1},
                 {"REJECTED", true, false, 0},
                 {"PENDING", false, false, 0},
                 {"PENDING", false, true, 0}};
    struct uuid token;
    struct uuid id = claimed_event("pepe", &token);
    ck_assert_int_eq(keep(&sql_outbox_keep, &id, &token, FIRST), 1);
    struct end end = {.event = id,
                      .token = token,
                      .status = cases[_i].status,
                      .clear_sent = cases[_i].clear_sent,
                      .may_arrive = cases[_i].may_arrive};
    end.reason_code = strcmp(end.status, "PENDING") == 0 ? NULL : "issuer_http_418";
    ck_assert_int_eq(finish(&end), 1);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters IS NULL"), cases[_i].forgotten);
    if (cases[_i].clear_sent || strcmp(end.status, "PENDING") != 0)
        return;
    end.token = uuid4_make();
    end.clear_sent = true; /* by this attempt */
    end.may_arrive = false;
    ck_assert_int_eq(claim_all(&end.token), 1);
    ck_assert_int_eq(finish(&end), 1);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters = '" FIRST "'"), 1);
}

SUITE(outbox_ends)
{
    TCase *tcase = tcase_create("outbox_ends");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, parameters_with_which_certainly_nothing_was_sent_are_forgotten, 0, 5);
    suite_add_tcase(suite, tcase);
}
