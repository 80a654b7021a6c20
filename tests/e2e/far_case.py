"""Sessions that another server holds: one server of ours in front of a second one, which speaks E2B's protocol.

What holds for sessions of this machine holds for these: the very same tests run. Those that need what the provider says
it cannot do are left out by its own word (GET /api/providers).
"""
import os
import unittest

from chaos_proxy import ChaosProxy
from http_harness import Server

FAR_KEY = "key-of-the-far-server-0123456789"
_servers = {}


def settings(url, key=FAR_KEY, lease=60, max_ttl="0s"):
    """Of a server whose provider e2b is found there."""
    return {"AGENT_SANDBOX_E2B_ENABLED": "true", "AGENT_SANDBOX_E2B_API_KEY": key, "AGENT_SANDBOX_E2B_API_URL": url,
            "AGENT_SANDBOX_E2B_SANDBOX_URL": url, "AGENT_SANDBOX_E2B_TIMEOUT_SECONDS": str(lease),
            "AGENT_SANDBOX_E2B_MAX_TTL": max_ttl}


def url_of(server):
    return f"http://127.0.0.1:{server.port}"


def far():
    """The one that holds the sandboxes."""
    if "far" not in _servers:
        _servers["far"] = Server("--stop-patience", "1s", admin_key=FAR_KEY)
        unittest.addModuleCleanup(_servers["far"].stop)
    return _servers["far"]


def rough_way():
    """A proxy before it, that tears, delays and drops what may be asked again: nobody is to notice."""
    if "proxy" not in _servers:
        _servers["proxy"] = proxy = ChaosProxy(far().port)
        proxy.be("rough")
        unittest.addModuleCleanup(proxy.close)
    return _servers["proxy"]


def near(flags=(), url=None):
    """The one that is asked; its clients want their sessions to be far away."""
    if (flags, url) not in _servers:
        _servers[flags, url] = server = Server("--stop-patience", "1s", *flags, env=settings(url or url_of(far())))
        server.admin.provider = "e2b"
        unittest.addModuleCleanup(nothing_is_left)
        unittest.addModuleCleanup(server.stop)
    return _servers[flags, url]


def sandboxes(server):
    """Those a far server has, by its own word to whoever has its key."""
    answer = server.plain("GET", "/v2/sandboxes?state=running%2Cpaused", [("X-API-Key", FAR_KEY)])
    assert answer.status == 200, answer
    return answer.json


def nothing_is_left():
    """After a server that ended well, none of its sandboxes lives on."""
    left = sandboxes(far())
    assert not left, f"outlive the server they were made for: {left}"


class Far:
    """Before a class of tests: its sessions are made at the far server. ROUGH=1: on a rough way."""

    ROUGH = os.environ.get("ROUGH") == "1"

    @classmethod
    def url(cls):
        return rough_way().url if cls.ROUGH else url_of(far())

    @classmethod
    def serve(cls):
        return near(cls.FLAGS, cls.url())

    def other_server(self, *flags, **more):
        server = super().other_server(*flags, **{**more, "env": {**settings(self.url()), **more.get("env", {})}})
        server.admin.provider = "e2b"
        return server


class FarOnARoughWay(Far):
    ROUGH = True
