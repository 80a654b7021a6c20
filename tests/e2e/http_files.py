"""What the suites about files share: a session for each test, and short words for what they do in it."""
import base64
from urllib.parse import quote

from http_harness import HttpCase
from http_raw import request

FULL = (413, 507)  # too large for the session's disk: now, or in any case
MEGABYTE = 1 << 20


def name_of(entry, name="name"):
    coded = entry.get(name + "_base64")
    return base64.b64decode(coded) if coded is not None else entry[name].encode()


class FileCase(HttpCase):
    LIMITS = {"memory": "256M", "disk": "64M"}

    def setUp(self):
        super().setUp()
        self.box = self.session(limits=self.LIMITS)
        self.files = self.box + "/files"

    def put(self, path, data=b"", **query):
        return self.admin.expect(200, "PUT", self.files, data, path=path, **query).json

    def get(self, path, **headers):
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.admin.get(self.files, path=path, headers=fields)

    def listed(self, path="/workspace"):
        """Names in a folder, over all its pages."""
        names, query = [], {}
        while True:
            page = self.admin.expect(200, "GET", self.files + "/list", path=path, **query).json
            names += [name_of(entry) for entry in page["entries"]]
            if page["next_cursor"] is None:
                return names
            query = {"cursor": page["next_cursor"]}

    def shell(self, text, **fields):
        return self.admin.run(self.box, text, **fields)

    def upload(self, path, headers):
        """A connection on which an upload has begun."""
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.send(request("PUT", f"{self.files}?path={quote(path)}", self.admin.headers(headers)))
        return connection
