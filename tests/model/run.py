#!/usr/bin/python3
"""run.py [quick|full|NAME...]: verifies the models of the protocol with SPIN, and takes out one guard after another.

A world is a set of faults that peers, machines and clocks may commit: the protocol must hold in it, in every order of
events. A guard is a rule of the protocol: without it SPIN must find a counter-example, and one that breaks a property
named here, so that no rule is carried along for nothing and no property holds since nothing happens.
quick (the default) takes small budgets of faults, full larger ones; a NAME runs that world or guard as full does, and
prints the counter-example. --list names them all. The last line is "model: N passed, N failed". Counter-examples are
left in build/run/model/.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("ISSUING_BUILD") or HERE.parents[1] / "build").resolve()
FOLDER = BUILD / "run" / "model"
MEMORY_MB = 2000  # for the states of one run
SECONDS = {"quick": 1200, "full": 3600}  # of one run: far more than it needs, for a busy machine
COMPILE_SECONDS = 1200  # of one run of spin or gcc, likewise

World = collections.namedtuple("World", "name quick full says compile arguments model",
                               defaults=("-DSAFETY", "", "protocol"))
Guard = collections.namedtuple("Guard", "name breaks flags says model", defaults=("protocol",))


def sister(model, name, quick, full, says):
    return World(name, quick, full, says, model=model)


LATE = "-DLATE=1 -DSLOW=1 -DTICKS=3"
KEYS = "-DLATE=1 -DSLOW=1 -DTICKS=4 -DLIFETIME=3 -DUNDERWAY=1"
GATEWAY = "-DGATEWAY=1 -DLATE=1 -DTICKS=3"
KEYLESS = "-DKEYLESS=1 -DLATE=1 -DTICKS=3"
IGNORED = "-DKEYLESS=1 -DLATE=1 -DSLOW=1 -DTICKS=4 -DLIFETIME=3 -DUNDERWAY=1"
SILENT = "-DSILENT=1 -DLIFETIME=2 -DCANCELS=0"
TWO_CARDS = "-DTWO_CARDS=1"
RESTORE = "-DFAULTS=1 -DTICKS=4"

WORLDS = (
    World("ordinary", "-DFAULTS=2", "-DFAULTS=4",
          "crashes, lost leases, lost commits, lost answers, refusals, outages, cancel and replay by operators"),
    World("two-replays", "-DFAULTS=2 -DREPLAYS=2", "-DFAULTS=3 -DREPLAYS=2", "an operator replays twice"),
    World("hasty-issuer", "-DFAULTS=2 -DHASTY=1", "-DFAULTS=3 -DHASTY=1",
          "an issuer that may refuse before it looks at the key"),
    World("keeps-refusals", "-DFAULTS=2 -DFORGETFUL=0", "-DFAULTS=3 -DFORGETFUL=0",
          "an issuer that answers a refused key with its refusal"),
    World("late-calls", "-DFAULTS=1 " + LATE, "-DFAULTS=2 " + LATE,
          "calls that arrive after their caller gave up; an issuer that works on without a caller"),
    World("late-calls-and-refusals-kept", "-DFAULTS=1 -DFORGETFUL=0 -DREPLAYS=0 " + LATE,
          "-DFAULTS=2 -DFORGETFUL=0 " + LATE,
          "the same, and a late create may be refused for good"),
    World("key-lifetime", "-DFAULTS=1 -DREPLAYS=0 -DCANCELS=0 " + KEYS, "-DFAULTS=2 -DREPLAYS=0 " + KEYS,
          "keys that are forgotten, and calls that are under way for as long as the margin allows"),
    World("clock-steps", "-DFAULTS=2 -DLATE=1 -DTICKS=2 -DSTEPS=1", "-DFAULTS=2 -DSLOW=1 -DSTEPS=1 " + LATE,
          "the database's clock steps, back or ahead, while calls are late"),
    World("suspended-machine", "-DFAULTS=2 -DSLEEP=1", "-DFAULTS=2 -DSLEEP=1 " + LATE,
          "a worker's machine is suspended for longer than its lease"),
    World("proxy-repeats", "-DFAULTS=2 -DTWICE=1 -DLATE=1 -DTICKS=2 -DREPLAYS=0 -DCANCELS=0",
          "-DFAULTS=2 -DTWICE=1 -DREPLAYS=0 " + KEYS,
          "something on the way delivers a create again, late, that was executed or given up"),
    World("gateway-answers-408", "-DFAULTS=1 -DREPLAYS=0 -DCANCELS=0 " + GATEWAY, "-DFAULTS=2 " + GATEWAY,
          "something in front of the issuer answers 408 over a create that it has passed on, or will"),
    World("untrusted-key", "-DFAULTS=1 -DREPLAYS=0 -DCANCELS=0 " + KEYLESS, "-DFAULTS=2 " + KEYLESS,
          "an issuer that makes a card for each create, and a gateway that answers 401, 404, 429 over one"),
    World("keys-ignored", "-DFAULTS=1 -DREPLAYS=0 -DCANCELS=0 " + IGNORED, "-DFAULTS=2 -DREPLAYS=0 " + IGNORED,
          "a generic issuer that honours no key, and shows every card in a look-up"),
    World("unreadable-look-ups", "-DFAULTS=1 -DREPLAYS=0 -DTICKS=4 " + SILENT, "-DFAULTS=1 -DTICKS=5 " + SILENT,
          "look-ups of this event that are never answered readably, beside good ones of others, or not"),
    World("two-cards-of-a-key", "-DFAULTS=2 " + TWO_CARDS, "-DFAULTS=3 " + TWO_CARDS,
          "an issuer that breaks its word and makes a second card, and an operator who has one of them closed"),
    World("no-endless-loop", "-DFAULTS=1", "-DFAULTS=2", "no cycle without progress", "-DNP", "-l"),
    sister("issuers", "two-issuers", "-DFAULTS=2", "-DFAULTS=4 -DADOPTIONS=2",
           "workers that speak to different issuers; operators who adopt and reissue"),
    sister("issuers", "moved-issuer", "-DMOVED=1", "-DMOVED=1 -DFAULTS=4 -DADOPTIONS=2 -DREPLAYS=2",
           "an issuer at another address, where its cards are and not its keys; an adoption, lost attempts, a replay"),
    sister("restores", "lost-commits", RESTORE, "-DFAULTS=2",
           "a restore or a failover takes the database back, before or after the end of its keys; the workers live on"),
    sister("keys", "acceptance", "-DFAULTS=1", "-DFAULTS=2 -DPOSTS=3",
           "keys that are repeated over commits of unknown outcome; two apis, a standby that takes over"),
    sister("ends", "told-ends", "-DFAULTS=2", "-DFAULTS=4 -DSTEPS=2",
           "ends of one request, told in order by workers that disagree on the order; clock steps, crashes"),
    sister("ends", "told-ends-unordered", "-DORDERED=0 -DFAULTS=2", "-DORDERED=0 -DFAULTS=4 -DSTEPS=2",
           "the same, in no order: the ids follow the ends"),
    sister("marks", "marks", "-DTICKS=4", "-DTICKS=6", "marks of three operators and a worker on one event"),
    sister("refusals", "refused-events", "", "-DMOST=6 -DFAILURES=5",
           "events that are refused, as many as there may be, beside good ones"),
    sister("refusals", "our-fault", "-DOURS=1", "-DOURS=1 -DMOST=6",
           "every event is refused until our fault is mended"),
    sister("links", "refused-links", "", "-DSLOTS=6 -DFAILURES=5",
           "every link is refused, while checks are answered well"),
)

ORDINARY = "-DFAULTS=3"
LIVE, LINK = "REJECTED_with_a_live_card", "REJECTED_with_a_link"
END = "an_end_over_an_unknown_outcome_without_a_look_up"
NEVER_TOLD, BEHIND = "an_end_is_never_told", "a_new_request_behind_the_deadline_of_who_asked"
PROBES = "a_good_event_waits_for_more_probes_than_there_were_events_before_it"
CARDS = "more_cards_than_probes"
DEAD, OLD_KEY = "COMPLETED_without_a_live_card", "sent_past_the_keys_lifetime"
GUARDS = (
    Guard("SAVE_TOKEN", "an_end_is_undone a_card_is_stored_after_the_end", ORDINARY, "a save names the token"),
    Guard("MARK_TOKEN", "an_end_is_changed", ORDINARY, "a mark names the token"),
    Guard("END_TOKEN", "an_end_is_undone", ORDINARY, "an end names the token"),
    Guard("LEASE_CHECK", LIVE, ORDINARY, "a worker looks at its lease before each call"),
    Guard("SUSPENDED_TIME", LIVE, "-DSLEEP=1 " + ORDINARY, "it does so by a clock that counts suspended time"),
    Guard("CALL_LIMIT", LIVE, ORDINARY, "a call's limit is shorter than the lease"),
    Guard("COMMIT_FIRST", LIVE, ORDINARY, "nothing is sent before the claim is committed"),
    Guard("COUNT", "more_attempts_than_allowed", ORDINARY, "an attempt counts from its claim"),
    Guard("SEND_NOTE", LIVE, ORDINARY, "the claim notes that something may be sent"),
    Guard("STICKY_UNKNOWN", LIVE, ORDINARY, "an end forgets sends only where nothing is unknown"),
    Guard("OLDER_SENDS", LIVE, ORDINARY, "an attempt knows that an earlier one may have sent"),
    Guard("SWEEP_KEEPING", LIVE, ORDINARY, "a sweep keeps the note of the send"),
    Guard("REPLAY_KEEPING", LIVE, ORDINARY, "a replay keeps the note of the send"),
    Guard("CANCEL_RULE", LIVE, ORDINARY, "an operator cancels only what was never sent"),
    Guard("RESENT", LIVE, ORDINARY, "a request that was sent again leaves the outcome unknown"),
    Guard("IN_PROGRESS", LIVE, "-DFAULTS=2 " + LATE, "409 leaves the outcome unknown"),
    Guard("INELIGIBLE_LOOKUP", END, ORDINARY, "a look-up before an ineligible user's request ends"),
    Guard("REFUSED_LOOKUP", END, "-DHASTY=1 " + ORDINARY, "a look-up before a refused request ends"),
    Guard("LAST_LOOKUP", END, ORDINARY, "a look-up before the attempts are exhausted"),
    Guard("MARK", DEAD, ORDINARY, "a card is marked before it is cancelled"),
    Guard("SETTLING", LIVE, "-DFAULTS=1 " + LATE, "not found decides only after the settling time"),
    Guard("OWN_SENDS", "FAILED_as_not_found_while_a_create_is_under_way", "-DFAULTS=2 -DREPLAYS=0 " + LATE,
          "an attempt that gave a create up does not rely on its own look-up"),
    Guard("STEADY_SETTLING", LIVE, "-DFAULTS=2 -DSTEPS=1 " + LATE,
          "the settling time is measured by a clock that does not step"),
    Guard("AGE_FLOOR", LIVE, "-DFAULTS=3 -DTICKS=1 -DSTEPS=1", "the age of a send is never negative"),
    Guard("UNLINK", LINK, "-DFAULTS=2 -DLATE=1 -DTICKS=1", "a link that may have left is taken back"),
    Guard("UNLINK_MEMORY", LINK, "-DFAULTS=2 -DLATE=1 -DTICKS=1", "core-api remembers an unlink"),
    Guard("EXPIRY", "two_live_cards " + OLD_KEY, "-DFAULTS=2 " + KEYS, "nothing is sent past the key's lifetime"),
    Guard("MARGIN", "two_live_cards " + OLD_KEY, "-DFAULTS=2 -DWORKERS_MARGIN=0 " + KEYS,
          "the margin is at least as long as a create may be under way"),
    Guard("TIMED_OUT", LIVE, "-DFAULTS=1 " + GATEWAY, "408 leaves the outcome unknown"),
    Guard("DOUBT", "two_live_cards", "-DFAULTS=1 " + KEYLESS,
          "without a trusted key all but the issuer's own refusal leaves the outcome unknown"),
    Guard("LOOK_FIRST", "two_live_cards", "-DFAULTS=1 " + KEYLESS, "without a trusted key a look-up precedes a repeat"),
    Guard("SENT_ONCE", "two_live_cards", "-DFAULTS=1 " + KEYLESS,
          "without a trusted key the HTTP client sends nothing again"),
    Guard("KEYS_IGNORED", "two_live_cards", "-DFAULTS=1 -DREPLAYS=0 -DCANCELS=0 " + IGNORED,
          "issuer.keys = ignored: the key of a generic issuer is not trusted"),
    Guard("OUTCOME_UNKNOWN", "silent_past_the_keys_lifetime", "-DFAULTS=1 -DTICKS=4 " + SILENT,
          "what cannot be looked up while others can ends, past the key's lifetime"),
    Guard("EVIDENCE", END, "-DFAULTS=1 -DREPLAYS=0 -DTICKS=4 " + SILENT, "an outage of look-ups ends nothing"),
    Guard("BACKOFF", "looked_up_again_at_once", "-DFAULTS=1 -DTICKS=4 " + SILENT,
          "a look-up that failed is not repeated at once"),
    Guard("DUPLICATE_LOOKUP", "an_end_over_two_live_cards_that_are_known", "-DFAULTS=2 " + TWO_CARDS,
          "a replay of issuer_duplicate begins at the look-up"),
    Guard("SAME_ISSUER", "REJECTED_with_a_live_card a_card_at_each_issuer", "",
          "nothing is sent, looked up or decided at another issuer", "issuers"),
    Guard("NOTED_BY_CLAIM", "REJECTED_with_a_live_card a_card_at_each_issuer", "",
          "the claim notes the issuer, before anything is sent", "issuers"),
    Guard("SAME_ISSUER_IN_MARKS", "a_new_request_beside_a_live_card REJECTED_with_a_live_card", "",
          "no reissue by a look-up at another issuer", "issuers"),
    Guard("FORGETTING", "it_waits_for_an_operator_though_nothing_was_sent", "",
          "what was never sent belongs to no issuer", "issuers"),
    Guard("SETTLED_ADOPTION", "REJECTED_with_a_live_card a_card_at_each_issuer", "",
          "no event is adopted while a create may be under way", "issuers"),
    Guard("ADOPTED_REPLAY", "REJECTED_with_a_live_card a_card_at_each_issuer", "-DMOVED=1",
          "a replay keeps that an adopted event is looked up first", "issuers"),
    Guard("LOOK_AT_THE_OLD", "two_live_cards", RESTORE,
          "an event older than its key is looked up before its first create", "restores"),
    Guard("LOOK_BEFORE_AN_OLD_REPEAT", "two_live_cards", RESTORE, "and before a repeat, also if a send is on record",
          "restores"),
    Guard("OLD_MARGIN", "two_live_cards", RESTORE, "its key has the same margin before the first create", "restores"),
    Guard("CARD_ID", "a_card_in_use_is_cancelled", RESTORE, "our id of a card is made from the event's id", "restores"),
    Guard("USER_LOCK", "two_events_of_one_key more_than_the_limit", "", "a user's requests are judged one by one",
          "keys"),
    Guard("ONE_TRANSACTION_OF_A_REQUEST", "accepted_without_an_event", "", "key, limit and event are one transaction",
          "keys"),
    Guard("KEY_BEFORE_LIMIT", "limited_though_it_was_accepted", "", "a repeat is never limited", "keys"),
    Guard("UNKNOWN_COMMIT", "accepted_without_an_event two_ids_of_one_key", "",
          "a commit whose outcome is unknown is asked for, never taken for one", "keys"),
    Guard("WARNING", "an_accepted_request_is_lost", "", "PostgreSQL's warning makes the outcome unknown", "keys"),
    Guard("FOUND_WAITS", "an_accepted_request_is_lost", "", "what was only found waits for the standby, too",
          "keys"),
    Guard("TELL_IN_END", NEVER_TOLD, "", "that an end is to be told commits with the end", "ends"),
    Guard("REGISTRATION", NEVER_TOLD, "", "a route stays registered while no worker that names it lives", "ends"),
    Guard("ONE_TRANSACTION", NEVER_TOLD + " an_end_is_told_twice", "",
          "a row leaves the list in the transaction that makes its event", "ends"),
    Guard("CONTENT", "an_end_is_told_as_another", "", "the row of an end that a replay takes back has its words",
          "ends"),
    Guard("FIRST_ROW", "ids_do_not_follow_the_ends", "", "a later end of a request becomes an event as the first row",
          "ends"),
    Guard("RISING_IDS", "ids_do_not_follow_the_ends", "", "an event's id is above those of the ends before it", "ends"),
    Guard("ANY_SAYS_ORDERED", "an_end_is_told_out_of_order", "", "a type is ordered where one worker says so", "ends"),
    Guard("OWN_ACTION", BEHIND, "", "a look joins no reissue", "marks"),
    Guard("OWN_DEADLINE", "somebody_elses_deadline_is_moved", "", "who joins a mark moves no deadline", "marks"),
    Guard("OWN_WITHDRAWAL", "somebody_elses_look_is_withdrawn", "", "a look that others may have joined stays",
          "marks"),
    Guard("OWN_LOOK", "a_report_is_lost", "", "a worker's look has a mark of its own", "marks"),
    Guard("NEW_BEGINNING", "a_new_request_beside_a_card_that_was_reported", "",
          "a report lets an unfinished mark start again", "marks"),
    Guard("DEADLINE_AT_THE_END", BEHIND, "", "no reissue is made behind its deadline", "marks"),
    Guard("FRESH_FIRST", PROBES, "", "a probe takes an event that was not refused before", "refusals"),
    Guard("BOTH_ENDS", PROBES, "", "the oldest and the newest fresh events are probed in turns", "refusals"),
    Guard("SHORT_PAUSES", "the_pauses_grow_without_end", "", "refusals do not lengthen the pauses as outages do",
          "refusals"),
    Guard("AGAIN", "nothing_is_probed", "-DOURS=1", "refused events are probed, too, once an interval", "refusals"),
    Guard("KINDS", CARDS, "", "good checks are not evidence about links", "links"),
    Guard("LINKS_BEFORE_CREATES", CARDS, "", "no create leaves while links are suspected, but for a probe", "links"),
    Guard("GROWING_PAUSES", CARDS, "", "the pauses between probes that cost a card grow", "links"),
)


def limits():
    resource.setrlimit(resource.RLIMIT_AS, ((MEMORY_MB + 1000) << 20,) * 2)


def command(words, folder, seconds):
    """Its output; None: it took too long."""
    try:
        done = subprocess.run(["nice", "-n", "5", *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds, preexec_fn=limits)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout


def verify(name, model, flags, seconds, compile_flags="-DSAFETY", arguments="", quick=True):
    """(states, why not, broken property, story)."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model += ".pml"
    shutil.copy(HERE / model, folder)
    made = command(["spin", "-a", *flags.split(), model], folder, COMPILE_SECONDS)
    if made is None or not (folder / "pan.c").exists() or "rror" in made:
        return 0, "spin: " + (made or "not finished").strip()[:500], None, ""
    # A short run is over before an optimized program is compiled.
    made = command(["gcc", "-O0" if quick else "-O2", "-w", compile_flags, "-DCOLLAPSE",
                    "-DMEMLIM=%d" % MEMORY_MB, "-o", "pan", "pan.c"], folder, COMPILE_SECONDS)
    if made is None or not (folder / "pan").exists():
        return 0, "gcc: " + (made or "not finished").strip()[:500], None, ""
    text = command(["./pan", "-m200000", "-w%d" % (22 if quick else 25), *arguments.split()], folder, seconds)
    if text is None:
        return 0, "not finished within %d s" % seconds, None, ""
    states = float((re.search(r"([0-9.e+]+) states, stored", text) or [0, "0"])[1])
    if re.search(r"errors: 0\b", text) and "not completed" not in text and "max search depth too small" not in text:
        return states, None, None, ""
    if not (folder / (model + ".trail")).exists():
        return states, "not finished: " + " ".join(text.split())[:300], None, ""
    shown = command(["spin", "-t", *flags.split(), model], folder, COMPILE_SECONDS) or ""
    actors = re.compile(r" *(worker|database|issuer|core-api|operator|proxy|receiver|target|peer|api|client|--|BROKEN)")
    story = [line.strip() for line in shown.splitlines() if actors.match(line)]
    broken = re.search(r"BROKEN: (\w+)", shown)
    FOLDER.joinpath(name + ".story").write_text("\n".join(story) + "\n")
    return states, "a counter-example", broken[1] if broken else "no property of ours", "\n".join(story)


def check_world(world, how):
    states, wrong, broken, story = verify(world.name, world.model, getattr(world, how), SECONDS[how], world.compile,
                                          world.arguments, how == "quick")
    return states, wrong and "%s: %s\n%s" % (wrong, broken, story), story


def name_of(guard):
    return "without-" + guard.name.lower().replace("_", "-")


def check_guard(guard, how):
    states, wrong, broken, story = verify(name_of(guard), guard.model,
                                          "-DWITHOUT_%s %s" % (guard.name, guard.flags), SECONDS[how])
    if wrong == "a counter-example":
        fits = any(broken.startswith(wanted) for wanted in guard.breaks.split())
        wrong = None if fits else "it breaks %s, wanted %s\n%s" % (broken, guard.breaks, story)
    else:
        wrong = wrong or "no counter-example: the guard guards nothing"
    return states, wrong, story


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*", metavar="quick|full|NAME")
    options = parser.parse_args()
    checks = {world.name: (check_world, world) for world in WORLDS}
    checks.update({name_of(guard): (check_guard, guard) for guard in GUARDS})
    if options.list:
        for name, (_, what) in checks.items():
            print("%-34s %s" % (name, what.says))
        return 0
    wanted = [name for name in options.names if name not in ("quick", "full")]
    unknown = [name for name in wanted if name not in checks]
    if unknown:
        print("no world and no guard is called %s; --list names them\nmodel: 0 passed, 1 failed" % ", ".join(unknown))
        return 2
    how = "full" if wanted or "full" in options.names else "quick"
    begun, failed, names = time.monotonic(), 0, wanted or list(checks)
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        def one(name):
            at = time.monotonic()
            function, what = checks[name]
            return (*function(what, how), time.monotonic() - at)
        for name, (states, wrong, story, seconds) in zip(names, pool.map(one, names)):
            failed += bool(wrong)
            print("%-6s %-34s %12.0f states %6.1f s  %s" % ("FAILED" if wrong else "ok", name, states, seconds,
                                                            checks[name][1].says))
            for line in (wrong or (story if wanted else "")).splitlines():
                print("    " + line)
            sys.stdout.flush()
    for folder in FOLDER.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
    print("%s, in %.0f s" % (how, time.monotonic() - begun))
    print("model: %d passed, %d failed" % (len(names) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
