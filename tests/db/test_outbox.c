/* The story: a worker that was cut off, paused or taken over must not change an event that another worker holds by now.
 * The token of the claim is the fence in every later write: here in what happens during an attempt, which saves its
 * card, extends its lease and marks its intention to cancel. Every statement runs as issuing_worker. */
#include "tests/db/outbox_calls.h"

#include "tests/support/suite.h"

TEST(a_save_stores_the_card_and_says_its_id)
{
    struct uuid token, saved, replaced = uuid7_make();
    struct uuid id = claimed_event("frank", &token);
    struct card card = {.event = id,
                        .token = token,
                        .id = uuid7_make(),
                        .issuer_id = "ic_1",
                        .number = "sealed",
                        .replaces = &replaced};
    ck_assert_int_eq(save_one(&card, &saved), 1);
    ck_assert(uuid_equal(&saved, &card.id));
    ck_assert_int_eq(
        database_int(owner,
                     "SELECT count(*) FROM cards WHERE id = '%s' AND request_id = '%s' AND user_id = 'frank' "
                     "AND issuer_card_id = 'ic_1' AND last4 = '1111' AND exp_month = 3 AND exp_year = 2031 "
                     "AND number_record = 'sealed' AND replaces = '%s' AND status = 'active'",
                     text_of(&card.id), text_of(&id), text_of(&replaced)),
        1);
    ck_assert_int_eq(fact(&id, "e.status = 'PROCESSING'"), 1); /* saving is not the end */
}

TEST(a_second_save_is_harmless_and_gives_the_first_cards_id)
{
    struct uuid token, saved;
    struct uuid id = claimed_event("grace", &token);
    struct card first = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic_1"};
    struct card second = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic_1"};
    ck_assert_int_eq(save_one(&first, NULL), 1);
    ck_assert_int_eq(save_one(&second, &saved), 1);
    ck_assert(uuid_equal(&saved, &first.id));
    ck_assert_int_eq(save_one(&first, &saved), 1);
    ck_assert(uuid_equal(&saved, &first.id));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE request_id = '%s'", text_of(&id)), 1);
}

TEST(a_save_with_a_stale_token_changes_nothing)
{
    struct uuid token;
    struct uuid id = claimed_event("heidi", &token);
    struct card card = {.event = id, .token = uuid4_make(), .id = uuid7_make(), .issuer_id = "ic_1"};
    ck_assert_int_eq(save_one(&card, NULL), 0);
    expect_unchanged(&id, &token);
    /* Without the fence the save succeeds. */
    begin_without_fence("save");
    ck_assert_int_eq(save_one(&card, NULL), 1);
    database_run(worker, "ROLLBACK");
    expect_unchanged(&id, &token);
}

TEST(a_save_of_many_stores_those_that_still_hold_their_lease)
{
    struct uuid token = uuid4_make();
    struct card cards[MANY];
    for (int i = 0; i < MANY; i++)
        cards[i] = (struct card){.event = add_event("ivan", 1), .token = token, .id = uuid7_make(), .issuer_id = "ic"};
    ck_assert_int_eq(claim_all(&token), MANY);
    for (int i = 0; i < MANY; i += 3)
        cards[i].token = uuid4_make();
    struct pg_rows *rows = save(worker, cards, MANY);
    ck_assert_int_eq(pg_rows_count(rows), MANY - (MANY + 2) / 3);
    pg_rows_free(rows);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE request_id = '%s' AND id = '%s'",
                                      text_of(&cards[i].event), text_of(&cards[i].id)),
                         i % 3 ? 1 : 0);
}

TEST(a_save_that_has_not_committed_keeps_a_sweep_out)
{
    struct uuid token;
    struct uuid id = claimed_event("judy", &token);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'", text_of(&id));
    struct card card = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic_1"};
    database_run(worker, "BEGIN");
    ck_assert_int_eq(save_one(&card, NULL), 1);
    ck_assert_int_eq(sweep(other, 10), 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(sweep(other, 10), 1);
}

TEST(an_extension_makes_the_lease_longer)
{
    struct uuid token;
    struct uuid id = claimed_event("ken", &token);
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &token, 10 * LEASE_MS), 1);
    ck_assert_int_eq(fact(&id, "e.lease_until > now() + interval '9 h'"), 1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 1);
}

TEST(an_extension_with_a_stale_token_changes_nothing)
{
    struct uuid token, stale = uuid4_make();
    struct uuid id = claimed_event("leo", &token);
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &stale, 10 * LEASE_MS), 0);
    expect_unchanged(&id, &token);
    struct sql_statement mutant = without_fence(&sql_outbox_extend);
    database_run(worker, "BEGIN");
    ck_assert_int_eq(extend(&mutant, &id, &stale, 10 * LEASE_MS), 1);
    database_run(worker, "ROLLBACK");
    free((void *)mutant.text);
}

TEST(the_intention_to_cancel_outlives_its_worker)
{
    struct uuid token;
    struct uuid id = claimed_event("liam", &token);
    ck_assert_int_eq(mark(&sql_outbox_mark, &id, &token, "link_refused", NULL), 1);
    ck_assert_int_eq(fact(&id, "e.status = 'PROCESSING' AND e.cancel_code = 'link_refused'"), 1);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'", text_of(&id));
    ck_assert_int_eq(sweep(worker, 10), 1);
    token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 10);
    ck_assert_int_eq(taken(rows), 1);
    ck_assert_str_eq(pg_bytes(rows, 0, 14).bytes, "link_refused");
    pg_rows_free(rows);
}

TEST(a_mark_with_a_stale_token_changes_nothing)
{
    struct uuid token, stale = uuid4_make();
    struct uuid id = claimed_event("lena", &token);
    ck_assert_int_eq(mark(&sql_outbox_mark, &id, &stale, "link_refused", NULL), 0);
    ck_assert_int_eq(fact(&id, "e.cancel_code IS NULL"), 1);
    expect_unchanged(&id, &token);
    struct sql_statement mutant = without_fence(&sql_outbox_mark);
    database_run(worker, "BEGIN");
    ck_assert_int_eq(mark(&mutant, &id, &stale, "link_refused", NULL), 1);
    database_run(worker, "ROLLBACK");
    free((void *)mutant.text);
}

/* Before a create leaves. A worker that has lost its lease writes nothing, and so sends nothing. */
TEST(parameters_are_kept_by_the_one_who_holds_the_lease)
{
    struct uuid token, stale = uuid4_make();
    struct uuid id = claimed_event("lola", &token);
    ck_assert_int_eq(keep(&sql_outbox_keep, &id, &stale, HOLDER("1")), 0);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters IS NULL"), 1);
    expect_unchanged(&id, &token);
    struct sql_statement mutant = without_fence(&sql_outbox_keep);
    database_run(worker, "BEGIN");
    ck_assert_int_eq(keep(&mutant, &id, &stale, HOLDER("1")), 1);
    database_run(worker, "ROLLBACK");
    free((void *)mutant.text);
    ck_assert_int_eq(keep(&sql_outbox_keep, &id, &token, HOLDER("1")), 1);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters = '" HOLDER("1") "'"), 1);
    expect_unchanged(&id, &token); /* but for them */
}

/* A repeat must be the same request. */
TEST(the_parameters_that_are_kept_before_a_create_stay)
{
    struct uuid token;
    struct uuid id = claimed_event("luca", &token);
    ck_assert_int_eq(keep(&sql_outbox_keep, &id, &token, HOLDER("1")), 1);
    ck_assert_int_eq(keep(&sql_outbox_keep, &id, &token, HOLDER("2")), 1);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters = '" HOLDER("1") "'"), 1);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'", text_of(&id));
    ck_assert_int_eq(sweep(worker, 10), 1);
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(keep(&sql_outbox_keep, &id, &token, HOLDER("2")), 1);
    ck_assert_int_eq(fact(&id, "e.issuer_parameters = '" HOLDER("1") "'"), 1);
}

TEST(a_state_that_cannot_be_is_refused_by_the_table)
{
    static const char *const impossible[] = {
        "INSERT INTO outbox_events (user_id, payload, status) VALUES ('u', '{}', 'PROCESSING')",
        "INSERT INTO outbox_events (user_id, payload, lease_token, lease_until) VALUES ('u', '{}', gen_random_uuid(), "
        "now())",
        "INSERT INTO outbox_events (user_id, payload, status) VALUES ('u', '{}', 'DONE')",
        "INSERT INTO outbox_events (user_id, payload, retry_count) VALUES ('u', '{}', -1)",
        "INSERT INTO outbox_events (user_id, payload, reason_code) VALUES ('u', '{}', 'No Code')",
        "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) "
        "VALUES (gen_random_uuid(), gen_random_uuid(), 13, 2030, 'u', 'i', '1111')",
        "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) "
        "VALUES (gen_random_uuid(), gen_random_uuid(), 1, 2030, 'u', 'i', '4111111111111111')",
    };
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(impossible); i++) {
        ck_assert_msg(!pg_sync_exec(owner, impossible[i], &err), "%s", impossible[i]);
        ck_assert_str_eq(err.sqlstate, "23514");
    }
}

TESTS_BETWEEN(outbox, set_up, tear_down)
