#!/usr/bin/python3 -B
"""What is looked for after each story in metrics, logs and rows (_search of tests/e2e/invariants.py) is found in every
form in which it can come, and is never found by chance: not in a number, a time or an id, whatever their digits and
letters are."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import invariants  # noqa: E402

NUMBER = "4000001234567899"
BOTH = (invariants.HOLDER, invariants.HOLDERS_NAME)
# A sum of seconds is shown with 17 digits where 15 are not enough.
METRICS = """# HELP issuing_step_seconds How long the calls of a step took.
# TYPE issuing_step_seconds histogram
issuing_step_seconds_bucket{step="issue",le="0.005"} 0
issuing_step_seconds_bucket{step="issue",le="+Inf"} 4962000000
issuing_step_seconds_sum{step="issue"} %s
issuing_step_seconds_count{step="issue"} 4962000000
issuing_events_total{status="COMPLETED"} 4962000000
process_resident_memory_bytes 4.962e+09
process_start_time_seconds 1784962000.000000
"""
HARMLESS = {
    "a sum of seconds": METRICS % "1.4962000000000002",
    "a longer one": METRICS % "14.962000000000001",
    "one without a fraction": METRICS % "4962000000",
    "one with a fraction": METRICS % "4962000000.25",
    "one with an exponent": METRICS % "1.4962000000000002e-05",
    "the digits of a card number behind a point": METRICS % ("0." + NUMBER[:-1]),
    "times": "2026-11-20 10:39:57.496200+00 2026-11-20T10:39:57.4962000000Z 1784962000000 4962000000123",
    "an id": "00000000-4962-7000-8000-4962000000ab 4962000000abcdef ic_4962000000 ab4962000000",
    "a row": "(4962000000,1.4962000000000002,2026-11-20 10:39:57.4962+00,\\\\x4962000000)",
    "numbers of JSON": '{"at": 4962000000, "took": 1.4962000000000002, "id": "4962000000-4", "n":4962000000}',
    "random ids": "x-CVC-4 x-dob-4 a/cvc+b a+dob/c cvc_1 1dob dobcvc adobe",
    "another number": "400000123456789 4000001234567898 4000 0012 3456 7898 99.4000001234567",
}
# What is found, and the pages that hold it and nothing else.
FOUND = {
    "a phone number": ("4962000000", ['{"phone_number": "+4962000000"}', "phone_number=%2B4962000000&x=1",
                                      "phone_number=%2b4962000000", '{"phone_number":"\\u002b4962000000"}',
                                      '"4962000000"', '"" 4962000000""', "'4962000000'", "no +4962000000.",
                                      "(a,+4962000000,b)",
                                      METRICS % "1.4962000000000002" + 'issuing_x{phone="+4962000000"} 1\n']),
    "a birthday": ("dob", ['{"dob": {"day": 1}}', "individual[dob][day]=1", "dob=1970-01-01", "no dob"]),
    "a street": ("Kastenweg", ["line1=Kastenweg+3", '"line1": "Kastenweg 3"']),
    "a mail address": ("@holder.example", ['"alice@holder.example"']),
    "a name": ("Holder Of ", ['"name": "Holder Of alice"']),
    "the name of a holder": ("Sam Sandbox", ['"holderName":"Sam Sandbox"']),
    "a security code": ("a security code", ['{"cvc": "123"}', "expand[]=cvc", "CVC 123", '"verification_code":"123"']),
    "a card number": ("a card number", [NUMBER, "4000 0012 3456 7899", "4000-0012-3456-7899", "x%sx" % NUMBER,
                                        "00%s11" % NUMBER, "(1,%s)" % NUMBER, METRICS % NUMBER,
                                        METRICS % "1" + 'x{y="%s"} 1\n' % NUMBER]),
}


def complaints():
    found = ["%s: %s" % (what, wrong) for what, page in HARMLESS.items()
             for wrong in invariants._search(page, [NUMBER], "it is found there, where it is not", BOTH)]
    for what, (name, pages) in FOUND.items():
        for page in pages:
            seen = invariants._search(page, [NUMBER], "x", BOTH)
            if len(seen) != 1 or name not in seen[0]:
                found.append("%s: wanted once in %r, and found %r" % (what, page, seen))
    return found


if __name__ == "__main__":
    wrong = complaints()
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)
