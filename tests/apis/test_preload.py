"""What a broker imports once it is ready, so that the first use of an API doesn't hold the loop while it does."""

import subprocess
import sys

ALL_IMPORTED = """
import sys
from tidelog.apis import SERVED, handler, preload
import tidelog.broker, tidelog.server.dispatch
preload()
before = set(sys.modules)
for key in SERVED:
    handler(key)
print(*sorted(set(sys.modules) - before))
"""


def test_after_it_no_api_imports_anything() -> None:
    ran = subprocess.run([sys.executable, "-c", ALL_IMPORTED], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
