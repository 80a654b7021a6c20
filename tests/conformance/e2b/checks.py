"""What the parts share: a list of things to try, each of which passes or fails by itself."""
import asyncio
import importlib.metadata
import sys
import time
import traceback

VERSION = importlib.metadata.version("e2b")
LOOP = asyncio.new_event_loop()  # One for all: old SDKs keep connections, which belong to a loop.
passed, failed = [], []


def check(what):
    began = time.monotonic()
    name = what.__name__.replace("_", " ")
    try:
        LOOP.run_until_complete(what()) if asyncio.iscoroutinefunction(what) else what()
        passed.append(name)
        print("  ok    %s (%.0f ms)" % (name, 1000 * (time.monotonic() - began)), flush=True)
    except Exception:
        failed.append(name)
        print("  FAIL  %s: %s" % (name, traceback.format_exc()), flush=True)


def check_if(can, lacking):
    """For SDKs that can do it; of others it is said that they cannot."""
    def take(what):
        if can:
            check(what)
        else:
            print("  skip  %s: e2b %s has no %s" % (what.__name__.replace("_", " "), VERSION, lacking), flush=True)
    return take


def able(can, lacking):
    """Within a case: what it leaves out for an SDK that cannot, it says."""
    if not can:
        print("  skip  a part of the next: e2b %s has no %s" % (VERSION, lacking), flush=True)
    return can


def raises(kind, what, *args, **named):
    try:
        what(*args, **named)
    except kind as error:
        return error
    except Exception as error:
        raise AssertionError("wanted %s, got %r" % (kind.__name__, error)) from error
    raise AssertionError("wanted %s, nothing was raised" % kind.__name__)


def finish():
    print("  %d as they should be, %d not" % (len(passed), len(failed)))
    sys.exit(1 if failed else 0)
