/* An event belongs to the issuer that it was first sent to. The story: a worker with another configuration looks an
 * unknown event up at another issuer, finds nothing, and makes a second card. */
#include <check.h>

#include "tests/db/outbox_calls.h"
#include "tests/support/suite.h"

#define CLAIM                                                                                                      \
    "FROM issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, 100, false, 'CARD_ISSUE', false, 'generic', '%s')" \
    ", unnest(events)"
#define ONE "https://one.example/a"
#define TWO "https://one.example/a account live"

static void begin(void)
{
    set_up();
    database_run(owner, "TRUNCATE issuers, operator_actions");
}

static int64_t claimed(const char *address, const char *what)
{
    char text[400];
    snprintf(text, sizeof(text), "SELECT %s " CLAIM, what, address);
    return database_int(worker, "%s", text);
}

/* The attempt ends; the event is due again. */
static void end_attempt(bool clear_sent, bool may_arrive)
{
    database_exec(
        worker,
        "SELECT issuing.end_attempts(array_agg(ROW(id, lease_token, 'PENDING', 0, true, %s, false, NULL, NULL, 'e', "
        "'issue', 'deferred', 'c', NULL, true, 1, NULL, NULL, %s, NULL, NULL, NULL, NULL)::issuing.attempt_end), 'w') "
        "FROM issuing.outbox_events WHERE status = 'PROCESSING'",
        clear_sent ? "true" : "false", may_arrive ? "true" : "false");
}

static int64_t open_event(const char *expression)
{
    char text[400];
    snprintf(text, sizeof(text), "SELECT (%s)::int FROM outbox_events e ORDER BY id DESC LIMIT 1", expression);
    return database_int(owner, "%s", text);
}

static char *adopt(const char *more)
{
    char text[400];
    snprintf(text, sizeof(text),
             "SELECT coalesce(max(coalesce(a.refused, 'done')), 'none') FROM outbox_events e, LATERAL "
             "issuing.adopt(e.id, %s, 30000, 'olga', 'olga', NULL, 'it moved') a WHERE e.due_at IS NOT NULL",
             more);
    return database_text(owner, text);
}

static void expect_adopted(const char *more, const char *result)
{
    char *found = adopt(more);
    ck_assert_str_eq(found, result);
    free(found);
}

TEST(an_event_stays_with_the_issuer_of_its_first_send)
{
    (void)add_event("alice", 1);
    ck_assert_int_eq(claimed(ONE, "count(*) FILTER (WHERE NOT is_of_other_issuer)"), 1);
    end_attempt(false, true);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(claimed(TWO, "count(*) FILTER (WHERE is_of_other_issuer)"), 1);
        end_attempt(false, false);
        ck_assert_int_eq(open_event("e.sent_to = 1 AND e.first_sent_at IS NOT NULL"), 1);
    }
    ck_assert_int_eq(claimed(ONE, "count(*) FILTER (WHERE NOT is_of_other_issuer)"), 1);
}

TEST(what_sent_nothing_belongs_to_nobody)
{
    (void)add_event("alice", 1);
    ck_assert_int_eq(claimed(ONE, "count(*)"), 1);
    end_attempt(true, false);
    ck_assert_int_eq(open_event("e.sent_to IS NULL AND e.first_sent_at IS NULL"), 1);
    ck_assert_int_eq(claimed(TWO, "count(*) FILTER (WHERE NOT is_of_other_issuer)"), 1);
}

TEST(a_replacement_belongs_to_the_issuer_of_the_card)
{
    struct uuid card = uuid7_make();
    (void)add_event("alice", 1);
    ck_assert_int_eq(claimed(ONE, "count(*)"), 1);
    database_exec(worker,
                  "SELECT issuing.save(ARRAY[id], ARRAY[lease_token], ARRAY['%s'::uuid], '{ic}', '{1111}', '{3}', "
                  "'{2031}', ARRAY[NULL::bytea], ARRAY[NULL::uuid]) FROM outbox_events",
                  text_of(&card));
    database_run(owner, "UPDATE outbox_events SET status = 'COMPLETED', completed_at = now(), lease_token = NULL, "
                        "lease_until = NULL");
    ck_assert_int_eq(database_int(owner, "SELECT issuer FROM cards"), 1);
    database_exec(
        owner,
        "INSERT INTO outbox_events (user_id, payload) VALUES ('alice', '{\"kind\": \"reissue\", \"replaces\": "
        "\"%s\"}')",
        text_of(&card));
    ck_assert_int_eq(claimed(TWO, "count(*) FILTER (WHERE is_of_other_issuer)"), 1);
    end_attempt(true, false);
    expect_adopted("NULL, 2::int2", "done");
    ck_assert_int_eq(database_int(owner, "SELECT issuer FROM cards"), 2);
    ck_assert_int_eq(open_event("e.sent_to IS NULL AND e.held_end IS NULL"), 1);
    ck_assert_int_eq(claimed(TWO, "count(*) FILTER (WHERE NOT is_of_other_issuer)"), 1);
}

/* The settling time passes. */
static void settle(void)
{
    database_run(owner, "UPDATE outbox_events SET first_sent_at = first_sent_at - interval '31 s', last_sent_at = "
                        "last_sent_at - interval '31 s'");
}

TEST(an_adopted_event_is_looked_up_first_and_stays_unknown)
{
    (void)add_event("alice", 1);
    ck_assert_int_eq(claimed(ONE, "count(*)"), 1);
    end_attempt(false, true);
    expect_adopted("NULL, NULL", "same_issuer");
    ck_assert_int_eq(claimed(TWO, "count(*)"), 1);
    expect_adopted("NULL, 2::int2", "processing");
    end_attempt(false, false);
    expect_adopted("NULL, NULL", "which_issuer");
    expect_adopted("NULL, 7::int2", "no_issuer");
    expect_adopted("0, 2::int2", "changed");
    database_run(owner, "UPDATE issuers SET seen_at = now() - interval '4 minutes' WHERE id = 1");
    settle();
    expect_adopted("(extract(epoch FROM e.updated_at) * 1000000)::int8, NULL", "done");
    ck_assert_int_eq(
        open_event("e.sent_to = 2 AND e.first_sent_at IS NOT NULL AND e.last_sent_at IS NOT NULL AND e.held_end "
                   "= 'before_sending'"),
        1);
    expect_adopted("(extract(epoch FROM e.updated_at) * 1000000)::int8, NULL", "none"); /* by a filter */
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions WHERE action = 'adopt' AND reason = "
                                         "'it moved' AND after #>> '{from,address}' = '" ONE "'"),
                     1);
    ck_assert_int_eq(claimed(TWO, "count(*) FILTER (WHERE NOT is_of_other_issuer AND held_end = 'before_sending')"), 1);
}

/* The new address has the card and not the key: what is not looked up there makes a second one. */
TEST(a_replay_of_an_adopted_event_is_looked_up_first)
{
    (void)add_event("alice", 1);
    ck_assert_int_eq(claimed(ONE, "count(*)"), 1);
    end_attempt(false, true);
    settle();
    ck_assert_int_eq(claimed(TWO, "count(*)"), 1);
    end_attempt(false, false);
    expect_adopted("NULL, 2::int2", "done");
    database_run(owner, "UPDATE outbox_events SET status = 'FAILED', reason_code = 'worker_lost', lost_count = 5, "
                        "completed_at = now()"); /* as the sweep does */
    database_run(owner, "SELECT issuing.replay(id, NULL, 'olga', 'olga', NULL, 'again') FROM outbox_events");
    ck_assert_int_eq(claimed(TWO, "count(*) FILTER (WHERE NOT is_of_other_issuer AND held_end = 'before_sending')"), 1);
}

/* Story: a create to the first issuer is given up, and the event is adopted for the second one, which has no card: the
 * request is REJECTED, or a card is made there. Then the create makes its card at the first one. */
TEST(nothing_is_adopted_while_its_create_may_still_arrive)
{
    static const char *const sent[] = {"last_sent_at = now() - interval '29 s', first_sent_at = now() - interval '1 h'",
                                       "last_sent_at = NULL, first_sent_at = now() - interval '29 s'"};
    (void)add_event("alice", 1);
    ck_assert_int_eq(claimed(ONE, "count(*)"), 1);
    end_attempt(false, true);
    ck_assert_int_eq(claimed(TWO, "count(*)"), 1);
    end_attempt(false, false);
    for (int i = 0; i < (int)ARRAY_SIZE(sent); i++) {
        database_exec(owner, "UPDATE outbox_events SET %s", sent[i]);
        expect_adopted("NULL, 2::int2", "settling");
        ck_assert_int_eq(open_event("e.sent_to = 1 AND e.held_end IS NULL"), 1);
    }
    database_run(owner, "UPDATE outbox_events SET first_sent_at = now() - interval '31 s'");
    expect_adopted("NULL, 2::int2", "done");
}

/* Two cards at the first issuer, and a replay: the look-up comes first at the second one, too, and nothing is sent. */
TEST(what_was_a_duplicate_stays_one_when_it_is_adopted)
{
    (void)add_event("alice", 1);
    ck_assert_int_eq(claimed(ONE, "count(*)"), 1);
    end_attempt(false, true);
    database_run(owner, "UPDATE outbox_events SET held_end = 'duplicate'");
    settle();
    ck_assert_int_eq(claimed(TWO, "count(*) FILTER (WHERE is_of_other_issuer AND held_end = 'duplicate')"), 1);
    database_run(owner, "UPDATE outbox_events SET status = 'PENDING', lease_token = NULL, lease_until = NULL");
    expect_adopted("NULL, 2::int2", "done");
    ck_assert_int_eq(claimed(TWO, "count(*) FILTER (WHERE NOT is_of_other_issuer AND held_end = 'duplicate')"), 1);
}

TEST(issuers_are_numbered_once_and_seen_again)
{
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(claimed(ONE, "count(*)"), 0);
        ck_assert_int_eq(claimed(TWO, "count(*)"), 0);
    }
    ck_assert_int_eq(database_int(owner, "SELECT count(*) * 10 + max(id) FROM issuers"), 22);
    database_run(owner,
                 "UPDATE issuers SET seen_at = now() + interval '1 year' WHERE id = 1"); /* the clock was ahead */
    ck_assert_int_eq(claimed(ONE, "count(*)"), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuers WHERE seen_at <= now()"), 2);
}

TESTS_BETWEEN(issuers, begin, tear_down)
