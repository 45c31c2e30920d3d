"""What takes longer counts as stuck: in CI, where many things share few cores, after more time. Environment:
STUCK_AFTER_S. tests/support/stuck.h is the same for C. Nothing that bounds what hangs is shorter."""
import os

STUCK_AFTER_S = int(os.environ.get("STUCK_AFTER_S") or (300 if os.environ.get("CI") else 120))
