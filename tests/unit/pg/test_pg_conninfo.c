/* The story: `sslmode=requires` was reported as "the database is away", and somebody waited for it. A part of a
 * password with a slash in it was taken for a port and shown. A fault that no attempt can end is reported before the
 * first one. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_conninfo.h"
#include "tests/support/suite.h"

TEST(what_can_never_connect_is_configuration_and_quotes_no_value)
{
    static const struct {
        const char *conninfo, *said;
    } rows[] = {
        {"host='", "neither a list of keyword=value"},
        {"hots=/run hunter2=x", "neither a list of keyword=value"},
        {"host=/run sslmode=hunter2", "invalid sslmode value"},
        {"host=/run channel_binding=hunter2", "invalid channel_binding value"},
        {"host=a,b,c port=1,2", "could not match 2 port numbers to 3 hosts"},
        {"host=/run service=no-such-service", "no-such-service"},
        {"host=a port=hunter2", "not a number from 1 to 65535"},
        {"host=a,b port=5432,70000", "not a number from 1 to 65535"},
        {"postgresql://user:hunter2/hunter2@host/db", "%2F"},
        {"host=/1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "too long for a socket: 92 bytes"},
    };
    static const char *const good[] = {
        "",
        "issuing",
        "host=/run/postgresql dbname=issuing",
        "host=a,b,c port=5432 target_session_attrs=read-write connect_timeout=2",
        "postgresql://u:p@a:1,b:2/db?sslmode=verify-full&sslrootcert=/no/such/file",
        "host=no-such-host.invalid password=x",
    };
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        err = (struct err){.kind = ERR_NONE};
        ck_assert_msg(!pg_conninfo_check(rows[i].conninfo, &err), "%s", rows[i].conninfo);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(err.message, rows[i].said) != NULL, "%s: %s", rows[i].conninfo, err.message);
        ck_assert_msg(!strstr(err.message, "hunter2"), "%s", err.message);
    }
    ck_assert(pg_conninfo_check(NULL, &err));
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(pg_conninfo_check(good[i], &err), "%s: %s", good[i], err.message);
}

TEST(variables_of_libpq_are_judged_as_well)
{
    struct err err;
    ck_assert_int_eq(setenv("PGSSLMODE", "requires", 1), 0);
    ck_assert(!pg_conninfo_check("", &err));
    ck_assert(!pg_conninfo_check(NULL, &err));
    ck_assert_ptr_nonnull(strstr(err.message, "invalid sslmode value"));
    ck_assert(pg_conninfo_check("sslmode=require", &err));
    ck_assert_int_eq(unsetenv("PGSSLMODE"), 0);
}

TEST(what_stays_wrong_has_a_remedy_and_what_may_heal_has_none)
{
    static const struct {
        const char *said, *remedy;
    } rows[] = {
        {"connection to server at \"h\" (10.0.0.1), port 5432 failed: server does not support SSL, but SSL was "
         "required",
         "`ssl` on"},
        {"SSL error: certificate verify failed", "sslrootcert"},
        {"server certificate for \"a\" does not match host name \"b\"", "as its certificate does"},
        {"server certificate for \"a\" (and 1 other name) does not match host name \"b\"", "as its certificate does"},
        {"root certificate file \"/x\" does not exist", "sslrootcert"},
        {"could not read root certificate file \"/x\": no certificate or crl found", "sslrootcert"},
        {"private key file \"/x\" has group or world access", "sslkey"},
        {"certificate present, but not private key file \"/x\"", "sslkey"},
        {"could not open certificate file \"/x\": Permission denied", "sslcert"},
        {"channel binding required, but server authenticated client without channel binding", "channel_binding"},
        {"received invalid response to SSL negotiation: H", "host and port"},
        {"expected authentication request from server, but received H", "host and port"},
        {"invalid integer value \"x\" for connection option \"keepalives_idle\"", "numbers"},
        {"invalid target_session_attrs value: \"x\"", "target_session_attrs"},
        {"connection to server at \"h\", port 1 failed: Connection refused\n\tIs the server running there?", NULL},
        {"could not translate host name \"no-such-host.invalid\" to address: Name or service not known", NULL},
        {"timeout expired", NULL},
        {"FATAL:  the database system is starting up", NULL},
        {"FATAL:  sorry, too many clients already", NULL},
        {"server closed the connection unexpectedly", NULL},
        {"SSL SYSCALL error: EOF detected", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *remedy = pg_remedy(rows[i].said);
        ck_assert_msg(!remedy == !rows[i].remedy && (!remedy || strstr(remedy, rows[i].remedy)), "%s: %s", rows[i].said,
                      remedy ? remedy : "none");
    }
}

TEST(another_machine_is_proven_or_must_be_permitted)
{
    static const struct {
        const char *conninfo;
        bool is_exposed;
    } rows[] = {
        {"", false},
        {"host=/run/postgresql", false},
        {"host=@abstract sslmode=disable", false},
        {"host=localhost", false},
        {"host=127.0.0.1,127.0.0.2,::1 sslmode=disable", false},
        {"host=localhost hostaddr=127.0.0.1", false},
        {"host=db.example sslmode=verify-full", false},
        {"postgresql://u:p@db.example/issuing?sslmode=verify-full", false},
        {"host=db.example", true},
        {"host=db.example sslmode=disable", true},
        {"host=db.example sslmode=prefer", true},
        {"host=db.example sslmode=require", true},
        {"host=db.example sslmode=verify-ca", true},
        {"host=127.0.0.1.evil.example", true},
        {"host=/run,10.0.0.1", true},
        {"hostaddr=10.0.0.1", true},
        {"host=localhost hostaddr=10.0.0.1", true},
        {"postgresql://u:p@[2001:db8::1]/issuing", true},
    };
    char text[PG_EXPOSED_SIZE];
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_msg(pg_conninfo_is_exposed(rows[i].conninfo, text) == rows[i].is_exposed, "%s", rows[i].conninfo);
        ck_assert_msg(pg_conninfo_prove(rows[i].conninfo, false, &err) != rows[i].is_exposed, "%s", rows[i].conninfo);
        ck_assert(pg_conninfo_prove(rows[i].conninfo, true, &err));
    }
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.message, "database.allow_insecure"));
    ck_assert_int_eq(setenv("PGSSLMODE", "verify-full", 1), 0);
    ck_assert(!pg_conninfo_is_exposed("host=db.example", text));
    ck_assert_int_eq(unsetenv("PGSSLMODE"), 0);
}

TESTS(pg_conninfo)
