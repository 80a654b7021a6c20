"""What a server that has enough says: to one key, to everybody, and to whoever asks too often.

The server was started with the limits that SERVER_LIMITS tells; SERVER_OTHER_KEY is a second key.
"""
import concurrent.futures
import inspect
import json
import os
import time

import e2b
from checks import check, check_if, finish, raises
from e2b import Sandbox
from e2b.exceptions import RateLimitException  # 2.7 has it here only

LIMITS = json.loads(os.environ["SERVER_LIMITS"])
OTHER = {"api_key": os.environ["SERVER_OTHER_KEY"]}
Busy = getattr(e2b, "ServiceBusyException", e2b.SandboxException)
boxes = []


@check
def as_many_sandboxes_as_a_key_may_have():
    for _ in range(LIMITS["perKey"]):
        boxes.append(Sandbox.create())
    error = raises(RateLimitException, Sandbox.create)
    assert "as many as it may" in str(error), error


@check_if(hasattr(Sandbox, "fork"), "fork")
def forks_that_a_key_may_not_have():
    made = boxes[0].fork(count=2)
    assert len(made) == 2 and all(isinstance(each, RateLimitException) for each in made), made


@check
def as_many_as_the_server_may_have():
    for _ in range(LIMITS["perKey"], LIMITS["all"]):
        boxes.append(Sandbox.create(**OTHER))
    retries = {"retries": 0} if "retries" in inspect.getsource(e2b.ConnectionConfig) else {}
    error = raises(Busy, Sandbox.create, **OTHER, **retries)
    assert "503" in str(error) and not isinstance(error, RateLimitException), error


@check
def room_again():
    assert boxes.pop(0).kill()
    boxes.append(Sandbox.create())


@check
def too_many_requests():
    def ask(_):
        try:
            return Sandbox.get_info(boxes[0].sandbox_id, **retries)
        except RateLimitException as error:
            return error
    retries = {"retries": 0} if "retries" in inspect.getsource(e2b.ConnectionConfig) else {}
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, range(6 * LIMITS["rate"])))
    refused = [each for each in answers if isinstance(each, Exception)]
    assert 0 < len(refused) < len(answers), "%d of %d were refused" % (len(refused), len(answers))


time.sleep(2)
for each in boxes:
    each.kill()
finish()
