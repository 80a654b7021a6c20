"""A real browser looks at a dev server inside a session: hot reload works, the API is out of the page's reach."""
import subprocess
import tempfile
import unittest

from http_harness import HttpCase, until

# A dev server in small: a page, and a socket over which it says "reload" when the source has changed.
DEV_SERVER = r'''
import base64, hashlib, http.server, os, socketserver, time
PAGE = """<!doctype html><body><p id=version>VERSION</p><p id=socket></p><p id=api></p><p id=open></p><img src=/slow><script>
const show = (id, text) => document.getElementById(id).textContent = text;
const socket = new WebSocket("ws://" + location.host + "/changes");
socket.onmessage = e => { show("socket", "heard " + e.data);
  fetch("/").then(r => r.text()).then(t => show("version", t.match(/id=version>([^<]*)</)[1])); };
fetch("http://localhost:" + location.port + "/api/me", {headers: {"X-API-Key": "ADMIN"}})
  .then(r => r.text()).then(t => show("api", "reached: " + t)).catch(e => show("api", "refused"));
fetch("http://localhost:" + location.port + "/health")
  .then(r => r.text()).then(t => show("open", "reached: " + t)).catch(e => show("open", "refused"));
</script>"""
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101); self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers(); self.wfile.flush()
            open("source", "w").write("second"); open("connected", "w").close()
            self.wfile.write(b"\x81\x06reload"); self.wfile.flush(); time.sleep(30); return
        if self.path == "/slow": time.sleep(4)  # The browser shows a page when all of it is there.
        body = PAGE.replace("VERSION", open("source").read()).replace("ADMIN", os.environ["CANARY"]).encode()
        self.send_response(200); self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
open("source", "w").write("first")
Server(("127.0.0.1", 3000), Handler).serve_forever()
'''


class Browser(HttpCase):
    def see(self, url, *flags):
        """The page as it is once everything in it has come."""
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run(
                ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--no-first-run", f"--user-data-dir={profile}",
                 *flags, "--dump-dom", url],
                capture_output=True, timeout=90)
        return done.stdout.decode()

    def test_hot_reload_works_and_the_api_is_out_of_reach(self):
        box = self.session(limits={"cpus": 1}, env={"CANARY": self.admin.key},
                           files=[{"path": "/workspace/dev.py", "content": DEV_SERVER}])
        self.admin.start(box, "exec python3 dev.py", background=True)
        self.assertTrue(until(lambda: "source" in self.admin.run(box, "ls"), 20))
        page = self.see(self.admin.expect(200, "GET", box + "/preview", port=3000).json["url"])
        self.assertIn('<p id="version">second</p>', page)
        self.assertIn('<p id="socket">heard reload</p>', page)
        # Not even with a key that would be right, and not even what needs no key.
        self.assertIn('<p id="api">refused</p>', page)
        self.assertIn('<p id="open">refused</p>', page)
        self.assertTrue(self.admin.run(box, "ls connected"))

    def test_the_page_of_the_api_shows_all_operations(self):
        page = self.see(f"http://localhost:{self.server.port}/docs", "--virtual-time-budget=10000")
        for word in ("/api/sessions/{id}/commands", "Run a command", "curl"):
            self.assertIn(word, page)


if __name__ == "__main__":
    unittest.main()
