"""The marks of places in SQL (common/lib/pg/pg_place.h).

A file of schema/ is about what all places share, or about one place. In a file about one place, and in a statement that
is sent to one, each name of an object of a place gets a mark behind the name of the schema, in whose stead the program
writes the place: issuing.cards becomes issuing_p3.cards, and stays as it is where there is one place. Names of shared
objects, and names in quotes (issuing."outbox_events": the view over all places), get none.
"""
import re

PLACE, PATH, NUMBER, PLACES = "\1", "\2", "\3", "\4"

# Run in `issuing`, once for all places.
SHARED = ("01_base.sql", "02_shared_tables.sql", "07_routes.sql", "08_senders.sql", "13_workers.sql", "16_citus.sql",
          "16_histories.sql", "16_issuers.sql", "16_listings.sql", "16_fence.sql", "16_proofs.sql", "16_retentions.sql",
          "17_places.sql", "citus_shared.sql")
# Run only where there are several places, after them.
OVER_PLACES = "17_places.sql"

CREATED = re.compile(r"^CREATE (?:OR REPLACE )?(?:UNIQUE )?(?:TABLE|VIEW|FUNCTION|SEQUENCE|TYPE|DOMAIN) issuing\.(\w+)",
                     re.MULTILINE)


def names(texts):
    """What each place has: texts are those of the files of schema/, by name."""
    found = set()
    for name, text in texts.items():
        if name not in SHARED:
            found.update(CREATED.findall(text))
    return found


def mark(text, of_place):
    text = re.sub(r"\bissuing\.(\w+)", lambda match: f"issuing{PLACE}.{match[1]}" if match[1] in of_place else match[0],
                  text)
    text = text.replace("issuing.%I", f"issuing{PLACE}.%I").replace("'issuing'::regnamespace",
                                                                    f"'issuing{PLACE}'::regnamespace")
    text = text.replace("pg_catalog, issuing, pg_temp", f"pg_catalog, issuing{PATH}, pg_temp")
    text = text.replace("to_regnamespace('issuing')", f"to_regnamespace('issuing{PLACE}')")
    text = re.sub(r"\bSCHEMA issuing(?=;| FROM)", f"SCHEMA issuing{PLACE}", text)
    text = text.replace("ON SCHEMA issuing TO", f"ON SCHEMA issuing{PATH} TO")
    return text.replace("1 /* places */", PLACES).replace("0 /* place */", NUMBER)
