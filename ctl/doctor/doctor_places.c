/* The checks of doctor that look at places (doctor.h). doctor_running.c reports a place without a worker. */
#include <stdio.h>

#include "common/lib/pg/pg_place.h"
#include "ctl/doctor/doctor.h"

bool doctor_check_place(struct doctor *doctor, const struct pg_rows *version)
{
    char why[PG_FAULT_SIZE];
    const struct ctl *ctl = doctor->ctl;
    if (pg_place_check(version, ctl->place, (int)ctl->config->database.places, why) != PG_PLACE_WRONG)
        return true;
    doctor_report(doctor, "place", false,
                  "correct database.places and database.url: a database stays the place that it is; issuing-ctl "
                  "migrate makes a new one",
                  "%s", why);
    return false;
}

/* The copies that a move has left, and servers that do not answer. */
static void note_others(struct doctor *doctor, const struct place_servers *servers, const struct place_server *home)
{
    for (int i = 0; i < servers->count; i++) {
        const struct place_server *server = &servers->list[i];
        if (!server->is_there)
            doctor_note(doctor, "place", "%.100s cannot be asked: %s", server->where, server->why);
        else if (!server->is_standby && !place_server_serves(server) && home)
            doctor_note(doctor, "place",
                        "\"%s\" at %.100s still has a copy, which it does not serve: drop that database", server->name,
                        server->where);
    }
}

void doctor_check_servers(struct doctor *doctor)
{
    struct ctl own = {.config = doctor->ctl->config, .place = doctor->ctl->place};
    const struct place_server *home = NULL, *known = NULL;
    struct place_servers servers;
    int homes = 0, standbys = 0;
    place_look(&own, &servers);
    pg_sync_close(own.db);
    for (int i = 0; i < servers.count; i++) {
        const struct place_server *server = &servers.list[i];
        known = server->is_there && !known ? server : known;
        home = place_server_serves(server) ? server : home;
        homes += place_server_serves(server);
        standbys += server->is_there && server->is_standby;
    }
    snprintf(doctor->where, sizeof(doctor->where), "%s", home ? home->where : "");
    if (homes > 1)
        doctor_report(doctor, "place", false, "stop all but one of them now: docs/scaling.md, Places",
                      "%d servers serve it: issuing-ctl place list", homes);
    else if (home)
        doctor_report(doctor, "place", true, NULL, "%d of %d, served by \"%s\" at %.100s; %d standby%s", own.place,
                      (int)own.config->database.places, home->name, home->where, standbys, standbys == 1 ? "" : "s");
    else if (known && !known->home[0])
        doctor_report(doctor, "place", false, "run issuing-ctl place take-back again, which gives it one",
                      "it has no home: a take-back did not end");
    else if (known)
        doctor_report(doctor, "place", false,
                      "run issuing-ctl place move again, which says when to promote it; or issuing-ctl place take-back",
                      "no server that answers and may write is its home, \"%s\": its users get 503", known->home);
    note_others(doctor, &servers, home);
}
