"""The tests of sessions and what is told of them, with sessions that another server holds, on a rough way (far_case.py)."""
import unittest

import test_http_history
import test_http_preview
import test_http_sessions
from far_case import FarOnARoughWay as Far
from far_case import rough_way
from http_harness import HttpCase


class Create(Far, test_http_sessions.Create):
    pass


class Lists(Far, test_http_sessions.Lists):
    pass


class Life(Far, test_http_sessions.Life):
    pass


class Idempotency(Far, test_http_sessions.Idempotency):
    pass


class Quota(Far, test_http_sessions.Quota):
    pass


class Webhooks(Far, test_http_preview.Webhooks):
    pass


class Steps(Far, test_http_history.Steps):
    pass


class Reading(Far, test_http_history.Reading):
    pass


class Secrets(Far, test_http_history.Secrets):
    pass


class Gone(Far, test_http_history.Gone):
    pass


class TheWay(Far, HttpCase):
    def test_it_was_rough(self):
        """Or the others say less than they seem to."""
        before = rough_way().lost
        session = self.session()
        for _ in range(30):
            self.admin.expect(200, "GET", session + "/files/list", path="/")
        self.assertGreaterEqual(rough_way().lost - before, 2)


if __name__ == "__main__":
    unittest.main()
