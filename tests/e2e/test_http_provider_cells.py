"""The tests of interpreters and what they make, with sessions that another server holds (far_case.py)."""
import unittest

import test_http_artifacts
import test_http_interpreters
import test_http_kernels
from far_case import Far


class Python(Far, test_http_interpreters.Python):
    pass


class CellEndings(Far, test_http_interpreters.Endings):
    pass


class Attacks(Far, test_http_interpreters.Attacks):
    pass


class OtherLanguages(Far, test_http_interpreters.OtherLanguages):
    pass


class Contexts(Far, test_http_interpreters.ContextsAndArtifacts):
    pass


class TheWordsOfOthers(Far, test_http_interpreters.TheWordsOfOthers):
    pass


class CellStreams(Far, test_http_interpreters.Streams):
    pass


class Brought(Far, test_http_kernels.Brought):
    pass


class Missing(Far, test_http_kernels.Missing):
    pass


class Kept(Far, test_http_artifacts.Kept):
    pass


if __name__ == "__main__":
    unittest.main()
