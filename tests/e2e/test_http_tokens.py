"""Tokens somebody else signed: those that are right let in whom they name, all others nobody."""
import base64
import hashlib
import hmac
import json
import os
import subprocess
import time
import unittest

from harness import needs
from http_harness import Client, HttpCase, Server
from http_raw import request

SECRET = "a-secret-of-at-least-32-characters-for-tests"
ISSUER, AUDIENCE = "https://issuer.example", "agent-sandbox"


def coded(data):
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def claims(**more):
    """Right ones, unless changed; None takes one away."""
    right = {"sub": "alice", "exp": int(time.time()) + 600, "iss": ISSUER, "aud": AUDIENCE, **more}
    return {name: value for name, value in right.items() if value is not None}


def signed(signed_part, secret=SECRET, digest=hashlib.sha256):
    return f"{signed_part}.{coded(hmac.new(secret.encode(), signed_part.encode(), digest).digest())}"


def token(body=None, header=None, **more):
    header = header or {"alg": "HS256", "typ": "JWT"}
    return signed(f"{coded(header)}.{coded(claims(**more) if body is None else body)}")


class Tokens(HttpCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--stop-patience", "1s", "--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE,
                            env={"AGENT_SANDBOX_JWT_SECRET": SECRET})
        cls.addClassCleanup(cls.server.stop)
        cls.admin = cls.server.admin

    def status(self, text):
        # Each from an address of its own: many wrong ones from one would be told to wait.
        self.asked = getattr(self, "asked", 0) + 1
        with self.server.connect(source=f"127.0.2.{self.asked}") as connection:
            connection.send(request("GET", "/api/me", [("Authorization", f"Bearer {text}"), ("Connection", "close")]))
            answer = connection.read_answer()
        self.server.note("GET", "/api/me", answer)
        return answer.status

    def test_a_right_one(self):
        alice = Client(self.server, token())
        told = alice.expect(200, "GET", "/api/me").json
        self.assertEqual((told["key_id"], told["role"]), ("jwt:alice", "user"))
        for body in (claims(aud=["other", AUDIENCE]), claims(nbf=int(time.time()) - 5), claims(exp=time.time() + 60.5)):
            self.assertEqual(self.status(token(body)), 200)

    def test_roles(self):
        for role in ("viewer", "user", "operator", "admin"):
            self.assertEqual(Client(self.server, token(role=role)).get("/api/me").json["role"], role)
        Client(self.server, token(role="viewer")).expect(403, "POST", "/api/sessions")
        for role in ("root", "ADMIN", ["admin"], {"admin": True}, 3):
            told = Client(self.server, token(role=role)).get("/api/me").json
            self.assertNotIn(told.get("role"), ("operator", "admin"))

    def test_one_sees_ones_own(self):
        alice, bob = Client(self.server, token()), Client(self.server, token(sub="bob"))
        box = self.session(alice)
        self.assertEqual(Client(self.server, token(jti="another")).run(box, "echo hi"), "hi\n")
        bob.expect(404, "GET", box)

    def test_streams_live_as_long_as_the_token(self):
        alice = Client(self.server, token())
        box = self.session(alice)
        with alice.socket(box + "/stream") as socket, alice.events("/api/events") as events:
            time.sleep(4)  # Longer than it takes to find out that a key has ended.
            socket.send(type="start", command="echo hi", tag="t")
            self.assertEqual(socket.wait_for("output", within=10)["data"], "hi\n")
            self.assertEqual(events.wait_for("command.ended", within=10)["data"]["data"]["exit_code"], 0)

    def test_wrong_ones(self):
        now, right = int(time.time()), token()
        head, body, signature = right.split(".")
        wrong = {
            "no algorithm": coded({"alg": "none"}) + "." + body + ".",
            "no algorithm, signed": token(header={"alg": "none"}),
            **{f"algorithm {name}": token(header={"alg": name}) for name in ("None", "hs256", "HS384", "RS256", "ES256",
                                                                             "", "HS256 ")},
            "another digest": signed(coded({"alg": "HS512"}) + "." + body, digest=hashlib.sha512),
            "algorithm no text": token(header={"alg": 256}),
            "algorithm twice": signed(coded(b'{"alg":"none","alg":"HS256"}') + "." + body),
            "header no object": signed(coded(b'["HS256"]') + "." + body),
            "critical": token(header={"alg": "HS256", "crit": ["exp"]}), "no signature": f"{head}.{body}.",
            "no third part": f"{head}.{body}",
            "four parts": right + ".x", "another secret": signed(f"{head}.{body}",
                                                                 "another-secret-of-at-least-32-characters"),
            "empty secret": signed(f"{head}.{body}", ""), "signature cut": right[:-1],
            "signature longer": right + "AAAA", "padded": right + "=",
            "other claims": f"{head}.{coded(claims(role='admin'))}.{signature}", "expired": token(exp=now - 60),
            "no expiry": token(exp=None),
            "expiry a text": token(exp=str(now + 60)), "expiry beyond reason": token(exp=1e30),
            "expiry below zero": token(exp=-1),
            "expiry nothing": signed(head + "." + coded({**claims(), "exp": None})),
            "not yet": token(nbf=now + 600), "not yet, a text": token(nbf="soon"),
            "another issuer": token(iss="https://evil.example"), "no issuer": token(iss=None),
            "issuers": token(iss=[ISSUER]), "another audience": token(aud="other"), "no audience": token(aud=None),
            "audiences of others": token(aud=["a", "b"]),
            "no subject": token(sub=None), "empty subject": token(sub=""), "subject a number": token(sub=1),
            "long subject": token(sub="x" * 5000),
            "claims no object": token(b"[]"), "claims no JSON": token(b"{"),
            "claims twice": token(b'{"sub":"a","sub":"b"}'), "claims deep": token(b"[" * 3000),
            "not coded": "ey!.ey!.ey!", "nothing": "ey..", "very long": token(filler="x" * 20000),
        }
        self.assertGreaterEqual(len(wrong), 45)
        for why, text in wrong.items():
            with self.subTest(why=why):
                self.assertIn(self.status(text), (401, 431))

    def test_where_a_key_comes_from_is_not_for_the_token_to_say(self):
        for name, value in (("kid", "../../../../dev/null"), ("kid", "' OR 1=1 --"), ("jku", "http://127.0.0.1:1/keys"),
                            ("x5u", "http://127.0.0.1:1/c"),
                            ("jwk", {"kty": "oct", "k": coded(b"mine")})):
            header = {"alg": "HS256", name: value}
            part = f"{coded(header)}.{coded(claims())}"
            for secret in ("", "mine", "\0"):
                self.assertEqual(self.status(signed(part, secret)), 401)
            self.assertIn(self.status(signed(part)), (200, 401))


class KeyPairs(HttpCase):
    def sign(self, folder, part):
        done = subprocess.run(["openssl", "dgst", "-sha256", "-sign", os.path.join(folder, "key.pem")],
                              input=part.encode(), capture_output=True, check=True)
        return done.stdout

    @staticmethod
    def raw(der):
        """r and s side by side, as tokens have them."""
        first = der[4:4 + der[3]]
        second = der[6 + der[3]:]
        return first.lstrip(b"\0").rjust(32, b"\0") + second.lstrip(b"\0").rjust(32, b"\0")

    @needs("openssl")
    def test_signatures_of_key_pairs(self):
        for algorithm, options, other in (("RS256", ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "ES256"),
                                          ("ES256", ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "RS256")):
            folder = self.scratch()
            key, public = os.path.join(folder, "key.pem"), os.path.join(folder, "public.pem")
            subprocess.run(["openssl", "genpkey", "-algorithm", *options, "-out", key], check=True, capture_output=True)
            subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
            server = self.other_server("--jwt-public-key", public)
            with open(public) as file:
                text = file.read()

            def make(alg):
                part = f"{coded({'alg': alg})}.{coded(claims())}"
                signature = self.sign(folder, part)
                return f"{part}.{coded(self.raw(signature) if algorithm == 'ES256' else signature)}"
            with self.subTest(algorithm=algorithm):
                told = Client(server, make(algorithm)).expect(200, "GET", "/api/me").json
                self.assertEqual(told["key_id"], "jwt:alice")
                part = f"{coded({'alg': 'HS256'})}.{coded(claims())}"
                for wrong in (make(other), signed(part, text), make(algorithm)[:-4],
                              make(algorithm).replace(".", ".x", 1)):
                    Client(server, wrong).expect(401, "GET", "/api/me")


if __name__ == "__main__":
    unittest.main()
