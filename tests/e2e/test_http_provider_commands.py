"""The tests of commands, streams and previews, with sessions that another server holds (far_case.py)."""
import unittest

import test_http_commands
import test_http_preview
import test_http_stream
from far_case import Far


class Ends(Far, test_http_commands.Ends):
    pass


class Surroundings(Far, test_http_commands.Surroundings):
    pass


class Background(Far, test_http_commands.Background):
    pass


class Signals(Far, test_http_commands.Signals):
    pass


class Terminals(Far, test_http_commands.Terminals):
    pass


class StreamCommands(Far, test_http_stream.Commands):
    pass


class StreamMistakes(Far, test_http_stream.Mistakes):
    pass


class StreamFloods(Far, test_http_stream.Floods):
    pass


class StreamEnds(Far, test_http_stream.Ends):
    pass


class StreamEvents(Far, test_http_stream.Events):
    pass


class Preview(Far, test_http_preview.Preview):
    pass


if __name__ == "__main__":
    unittest.main()
