"""The tests of files and archives, with sessions that another server holds (far_case.py)."""
import unittest

import test_http_archives
import test_http_files
from far_case import Far


class Bytes(Far, test_http_files.Bytes):
    pass


class Uploads(Far, test_http_files.Uploads):
    pass


class Names(Far, test_http_files.Names):
    pass


class Moving(Far, test_http_files.Moving):
    pass


class Archives(Far, test_http_archives.Archives):
    pass


class Watching(Far, test_http_archives.Watching):
    pass


if __name__ == "__main__":
    unittest.main()
