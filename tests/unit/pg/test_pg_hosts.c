/* The story: the primary dies, and its host with it. Which host is tried next, by how many connections, how soon and
 * how often decides how long no request is accepted; and whether a recovering server is overrun. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_hosts.h"

#include "fault_injection.h"
#include "tests/support/suite.h"

#define MOST 6

static struct pg_hosts hosts;
static char text[400];

static void set_up(void)
{
    pg_hosts_init(&hosts, MOST);
}

static void tear_down(void)
{
    pg_hosts_done(&hosts);
}

static void use(const char *host, const char *hostaddr, const char *port)
{
    ck_assert(pg_hosts_set(&hosts, host, hostaddr, port, false));
}

static int begin(int64_t now_ms)
{
    int target = pg_hosts_choose(&hosts, now_ms);
    if (target >= 0)
        pg_hosts_begin(&hosts, target, now_ms);
    return target;
}

static void end_badly(int target, enum pg_seen seen, int64_t now_ms)
{
    pg_hosts_fail(&hosts, target, seen, "why", now_ms, 0);
}

static const char *why(const char *reason)
{
    (void)pg_hosts_why(&hosts, reason, text, sizeof(text));
    return text;
}

TEST(connections_begin_at_different_hosts_and_one_probes_each)
{
    use("10.0.0.1,10.0.0.2,10.0.0.3", NULL, "5432");
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(hosts.targets[begin(1000)].host, i);
    ck_assert_int_eq(begin(1000), -1);
    pg_hosts_cut(&hosts, 1);
    ck_assert_int_eq(begin(1000), 1);
}

TEST(the_host_that_was_found_good_is_preferred_by_all_at_once)
{
    use("10.0.0.1,10.0.0.2,10.0.0.3", NULL, NULL);
    int dead = begin(1000), standby = begin(1000), primary = begin(1000);
    end_badly(standby, PG_SEEN_STANDBY, 1010);
    pg_hosts_settle(&hosts, primary);
    for (int i = 1; i < MOST; i++)
        ck_assert_int_eq(begin(1020), primary);
    ck_assert_int_ne(begin(5000), primary); /* it has as many as there may be */
    ck_assert_int_eq(hosts.targets[dead].probes, 1);
}

TEST(a_dead_host_holds_up_one_connection_and_for_a_short_time)
{
    use("10.0.0.1,10.0.0.2", NULL, NULL);
    int64_t limits[] = {1500, 3000, 5000, 5000, 5000, 5000, 5000};
    int64_t now_ms = 1000;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        hosts.targets[1].rest_until_ms = INT64_MAX;
        int target = begin(now_ms);
        ck_assert_int_eq(target, 0);
        ck_assert_int_eq(pg_hosts_limit_ms(&hosts, target), limits[i]);
        end_badly(target, PG_SEEN_SILENT, now_ms += limits[i]);
        now_ms += 2000;
    }
    int target = begin(now_ms);
    pg_hosts_settle(&hosts, target); /* it was only slow */
    ck_assert_int_eq(pg_hosts_limit_ms(&hosts, target), 5000);
}

TEST(a_lone_host_has_all_the_time)
{
    use("10.0.0.1", NULL, NULL);
    ck_assert_int_eq(pg_hosts_limit_ms(&hosts, begin(1000)), 5000);
}

/* The attempts at a host within a minute, when each is answered at once. */
static int attempts_in_a_minute(enum pg_seen seen, uint64_t random)
{
    int count = 0;
    for (int64_t now_ms = 1000; now_ms < 61000; now_ms += 10)
        for (int slot = 0; slot < 64; slot++) {
            int target = begin(now_ms);
            if (target < 0)
                break;
            pg_hosts_fail(&hosts, target, seen, "why", now_ms, random);
            count += hosts.targets[target].host == 0;
        }
    return count;
}

TEST(a_host_that_is_no_primary_is_tried_once_a_second_by_however_many_connections)
{
    use("10.0.0.1,10.0.0.2,10.0.0.3", NULL, NULL);
    ck_assert_int_ge(attempts_in_a_minute(PG_SEEN_STANDBY, 0), 60);
    tear_down();
    set_up();
    use("10.0.0.1,10.0.0.2,10.0.0.3", NULL, NULL);
    ck_assert_int_le(attempts_in_a_minute(PG_SEEN_STANDBY, 0), 125);
    for (int64_t now_ms = 100000, i = 0; i < 50; i++, now_ms += 2000) { /* never later than a second */
        int target = begin(now_ms);
        ck_assert_int_ge(target, 0);
        pg_hosts_fail(&hosts, target, PG_SEEN_REFUSED, "why", now_ms, UINT64_MAX);
        ck_assert_int_le(hosts.targets[target].rest_until_ms, now_ms + 1000);
        ck_assert_int_ge(hosts.targets[target].rest_until_ms, now_ms + 50);
    }
}

TEST(while_a_session_is_in_use_failures_are_repeated_more_slowly)
{
    use("10.0.0.1", NULL, NULL);
    int64_t now_ms = 1000;
    pg_hosts_settle(&hosts, begin(now_ms));
    for (int i = 0; i < 10; i++) { /* the server has no session left */
        now_ms = hosts.targets[0].rest_until_ms;
        end_badly(begin(now_ms), PG_SEEN_OTHER, now_ms);
    }
    ck_assert_int_ge(hosts.targets[0].rest_until_ms, now_ms + 2500);
}

TEST(idle_sessions_on_an_old_primary_do_not_slow_down_the_search_for_the_new_one)
{
    use("10.0.0.1,10.0.0.2", NULL, NULL);
    pg_hosts_settle(&hosts, begin(1000));
    pg_hosts_settle(&hosts, begin(1000));
    pg_hosts_abandon(&hosts, 0, "no answer", 1000);
    hosts.targets[0].rest_until_ms = INT64_MAX;
    for (int64_t now_ms = 2000, i = 0; i < 20; i++, now_ms += 1000) {
        ck_assert_int_eq(begin(now_ms), 1);
        pg_hosts_fail(&hosts, 1, PG_SEEN_STANDBY, "why", now_ms, UINT64_MAX);
        ck_assert_int_le(hosts.targets[1].rest_until_ms, now_ms + 1000);
    }
}

TEST(after_a_loss_the_same_host_comes_first_and_after_silence_last)
{
    use("10.0.0.1,10.0.0.2", NULL, NULL);
    pg_hosts_settle(&hosts, begin(1000));
    pg_hosts_lose(&hosts, 0, true, "cut", 9000, 0);
    ck_assert_int_eq(hosts.targets[0].seen, PG_SEEN_NOTHING);
    ck_assert_int_eq(begin(9000), 0);
    pg_hosts_settle(&hosts, 0);
    pg_hosts_abandon(&hosts, 0, "no answer", 20000);
    ck_assert_int_eq(begin(20000), 1);
    end_badly(1, PG_SEEN_STANDBY, 20000);
    ck_assert_int_eq(begin(20000), 0);
    ck_assert_int_eq(hosts.targets[0].sessions, 2); /* the abandoned one counts */
    pg_hosts_leave(&hosts, 0);
    ck_assert_int_eq(hosts.targets[0].sessions, 1);
}

TEST(a_session_that_is_lost_beside_others_does_not_cast_doubt_on_the_host)
{
    use("10.0.0.1,10.0.0.2", NULL, NULL);
    pg_hosts_settle(&hosts, begin(1000));
    pg_hosts_settle(&hosts, begin(1000));
    pg_hosts_lose(&hosts, 0, true, "cut", 9000, 0);
    ck_assert_int_eq(hosts.targets[0].seen, PG_SEEN_GOOD);
    pg_hosts_lose(&hosts, 0, true, "cut", 9000, 0);
    ck_assert_int_eq(hosts.targets[0].seen, PG_SEEN_NOTHING);
}

TEST(a_session_that_never_lasts_is_not_made_without_a_rest)
{
    use("10.0.0.1", NULL, NULL);
    int64_t now_ms = 1000;
    for (int i = 0; i < 10; i++) {
        int target = begin(now_ms);
        pg_hosts_settle(&hosts, target);
        pg_hosts_lose(&hosts, target, false, "cut", now_ms, 0);
        ck_assert_int_eq(begin(now_ms), -1);
        now_ms = hosts.targets[0].rest_until_ms;
    }
    ck_assert_int_ge(hosts.targets[0].failures, 10);
}

TEST(sessions_are_counted_for_each_server)
{
    use("10.0.0.1,10.0.0.2", NULL, NULL);
    for (int i = 0; i < MOST; i++) { /* all hang on the first */
        hosts.targets[1].rest_until_ms = INT64_MAX;
        hosts.targets[0].rest_until_ms = 0;
        int target = begin(1000);
        ck_assert_int_eq(target, 0);
        pg_hosts_settle(&hosts, target);
        pg_hosts_abandon(&hosts, target, "no answer", 1000);
    }
    ck_assert_int_eq(begin(2000), -1);
    hosts.targets[1].rest_until_ms = 0;
    for (int i = 0; i < MOST; i++) { /* and the second one has as many places as ever */
        int target = begin(2000);
        ck_assert_int_eq(target, 1);
        pg_hosts_settle(&hosts, target);
    }
    ck_assert_int_eq(begin(3000), -1);
}

TEST(a_name_has_no_target_before_its_addresses_and_several_then)
{
    char both[][PG_ADDRESS_SIZE] = {"10.0.0.1", "fd00::1"}, moved[][PG_ADDRESS_SIZE] = {"10.0.0.9"};
    use("db.example,/run/postgresql,::1,10.0.0.7", NULL, "5432");
    ck_assert(hosts.list[0].is_name && !hosts.list[1].is_name && !hosts.list[2].is_name && !hosts.list[3].is_name);
    for (int i = 1; i < 4; i++)
        ck_assert_int_eq(hosts.targets[begin(1000)].host, i);
    ck_assert_int_eq(begin(1000), -1);
    pg_hosts_resolved(&hosts, 0, both, 2);
    int first = begin(1000), second = begin(1000);
    ck_assert_str_eq(hosts.targets[first].address, "10.0.0.1");
    ck_assert_str_eq(hosts.targets[second].address, "fd00::1");
    pg_hosts_settle(&hosts, second);
    pg_hosts_resolved(&hosts, 0, both, 2);
    ck_assert_int_eq(hosts.targets[second].seen, PG_SEEN_GOOD);
    pg_hosts_resolved(&hosts, 0, moved, 1); /* the name moves to another address */
    int third = begin(1000);
    ck_assert_str_eq(hosts.targets[third].address, "10.0.0.9");
    ck_assert_int_eq(hosts.targets[second].sessions, 1); /* the session is still there, and counted */
    end_badly(first, PG_SEEN_SILENT, 2000);
    pg_hosts_lose(&hosts, second, true, "cut", 2000, 0);
    for (int i = 0; i < 8; i++)
        ck_assert_int_ne(begin(100000), first);
}

TEST(silent_name_servers_take_no_address_away_and_a_name_that_is_gone_does)
{
    char addresses[][PG_ADDRESS_SIZE] = {"10.0.0.1"};
    use("db.example", NULL, NULL);
    pg_hosts_resolved(&hosts, 0, addresses, 1);
    pg_hosts_unresolved(&hosts, 0, false, "temporary failure");
    ck_assert_int_ge(pg_hosts_choose(&hosts, 1000), 0);
    pg_hosts_unresolved(&hosts, 0, true, "unknown node or service");
    ck_assert_int_eq(pg_hosts_choose(&hosts, 1000), -1);
    ck_assert_str_eq(hosts.list[0].why, "unknown node or service");
}

TEST(lists_are_divided_as_libpq_divides_them)
{
    use("a,b", "10.0.0.1,10.0.0.2", "1,2");
    ck_assert_int_eq(hosts.count, 2);
    ck_assert_str_eq(hosts.list[1].host, "b");
    ck_assert_str_eq(hosts.list[1].hostaddr, "10.0.0.2");
    ck_assert_str_eq(hosts.list[1].port, "2");
    ck_assert(!hosts.list[0].is_name); /* its address is given */
    use(NULL, "10.0.0.1,10.0.0.2", "1");
    ck_assert_ptr_null(hosts.list[1].host);
    ck_assert_str_eq(hosts.list[1].port, "1");
    static const char *const odd[][3] = {{"", "", ""},
                                         {"a,b", "", "1,2,3"},
                                         {"a,,b", "", "1"},
                                         {"a,b", "10.0.0.1", ""},
                                         {"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "", ""}};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) { /* libpq decides, or complains */
        use(odd[i][0], odd[i][1], odd[i][2]);
        ck_assert_int_eq(hosts.count, 1);
        ck_assert(!hosts.list[0].host && !hosts.list[0].hostaddr && !hosts.list[0].port);
        ck_assert_int_ge(begin(1000), 0);
    }
    ck_assert(pg_hosts_set(&hosts, "c,d", NULL, NULL, true));
    ck_assert_int_eq(hosts.count, 1);
}

TEST(the_same_list_keeps_what_is_known_and_another_begins_anew)
{
    use("10.0.0.1,10.0.0.2", NULL, "1");
    pg_hosts_settle(&hosts, begin(1000));
    use("10.0.0.1,10.0.0.2", "", "1");
    ck_assert_int_eq(begin(1000), 0);
    use("10.0.0.5", NULL, "1");
    int target = begin(1000);
    ck_assert_int_ge(target, 1); /* the sessions of the old list keep their places */
    ck_assert_int_eq(hosts.targets[target].seen, PG_SEEN_NOTHING);
    ck_assert_int_eq(hosts.targets[0].sessions, 2);
}

TEST(without_memory_the_list_stays_as_it_is)
{
    use("10.0.0.1,10.0.0.2", NULL, "1");
    allocations_fail_at(1, 0);
    bool is_set = pg_hosts_set(&hosts, "10.0.0.5", NULL, "2", false);
    long count = allocations_stop_failing();
    ck_assert(!is_set && count == 1);
    ck_assert_int_eq(hosts.count, 2);
    ck_assert_str_eq(hosts.list[1].host, "10.0.0.2");
    use("10.0.0.5", NULL, "2");
    ck_assert_int_eq(hosts.count, 1);
}

static void all_are(enum pg_seen seen)
{
    int target;
    while ((target = begin(1000)) >= 0)
        end_badly(target, seen, 1000);
}

TEST(the_cause_is_named_with_its_hosts)
{
    static const struct {
        enum pg_seen seen;
        enum pg_cause cause;
        const char *text;
    } cases[] = {
        {PG_SEEN_STANDBY, PG_CAUSE_NO_PRIMARY, "no primary, every host is a standby: 10.0.0.1, 10.0.0.2"},
        {PG_SEEN_READ_ONLY, PG_CAUSE_READ_ONLY, "every host is read-only: 10.0.0.1, 10.0.0.2"},
        {PG_SEEN_REFUSED, PG_CAUSE_REFUSED, "every host refuses connections: 10.0.0.1, 10.0.0.2"},
        {PG_SEEN_SILENT, PG_CAUSE_SILENT, "no host answers: 10.0.0.1, 10.0.0.2"},
        {PG_SEEN_OTHER, PG_CAUSE_OTHER, "no primary among 2 hosts: 10.0.0.1: why, 10.0.0.2: why"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tear_down();
        set_up();
        use("10.0.0.1,10.0.0.2", NULL, "5432");
        all_are(cases[i].seen);
        ck_assert_int_eq(pg_hosts_why(&hosts, "x", text, sizeof(text)), cases[i].cause);
        ck_assert_str_eq(text, cases[i].text);
    }
    tear_down();
    set_up();
    use("db1,10.0.0.2,10.0.0.2,10.0.0.4", NULL, "1,2,3,4");
    end_badly(begin(1000), PG_SEEN_STANDBY, 1000);
    end_badly(begin(1000), PG_SEEN_SILENT, 1000);
    pg_hosts_unresolved(&hosts, 0, true, "unknown name");
    ck_assert_int_eq(pg_hosts_why(&hosts, "x", text, sizeof(text)), PG_CAUSE_NO_PRIMARY);
    ck_assert_str_eq(text, "no primary among 4 hosts: db1:1 has no address (unknown name), 10.0.0.2:2 is a standby, "
                           "10.0.0.2:3 does not answer, 10.0.0.4:4 is being tried");
    char little[20];
    (void)pg_hosts_why(&hosts, "x", little, sizeof(little));
    ck_assert_str_eq(little, "no primary among 4 ");
}

TEST(a_single_host_is_told_in_the_words_of_the_server)
{
    use("10.0.0.1", NULL, NULL);
    ck_assert_str_eq(why(""), "not connected yet");
    end_badly(begin(1000), PG_SEEN_REFUSED, 1000);
    ck_assert_int_eq(pg_hosts_why(&hosts, "Connection refused", text, sizeof(text)), PG_CAUSE_REFUSED);
    ck_assert_str_eq(text, "Connection refused");
    use("db.example", NULL, NULL);
    pg_hosts_unresolved(&hosts, 0, true, "unknown name");
    ck_assert_int_eq(pg_hosts_why(&hosts, "", text, sizeof(text)), PG_CAUSE_UNRESOLVED);
    ck_assert_str_eq(text, "the name db.example has no address: unknown name");
}

TESTS_BETWEEN(pg_hosts, set_up, tear_down)
