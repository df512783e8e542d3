"""What a request has to pass before a route sees it: host, origin, token, body."""

from tests.serving.conftest import PNG, client_of
from tests.serving.fakes import photo_bytes

TOKEN = "sesame&open=1 please"
OTHERS = {"host": "0.0.0.0", "token": TOKEN}


def caption(client, **headers):
    return client.post("/v1/captions", content=photo_bytes(), headers={**PNG, **headers})


def test_a_name_that_was_made_to_resolve_here_is_refused():
    own = ["127.0.0.1:7860", "localhost", "LOCALHOST:1", "[::1]:7860", "192.168.1.20:7860"]
    foreign = [
        *("evil.example", "127.0.0.1.nip.io:7860", "localhost.evil.example", "a@b:7860", "[::1", ""),
        *("evil.example@127.0.0.1", "127.0.0.1#.evil.example", "127.0.0.1/.evil.example", "localhost:evil.example"),
        *("localhost:1:2", "[::1].evil.example", "[::1]@evil.example", "captions.local"),
    ]
    with client_of() as client:
        assert {host: caption(client, Host=host).status_code for host in own} == dict.fromkeys(own, 200)
        for host in foreign:
            for answer in (client.get("/v1/captioners", headers={"Host": host}), caption(client, Host=host)):
                assert answer.status_code == 421, host
        assert answer.json()["detail"] == (
            'The host "captions.local" is not a name of this server; open it as localhost or by its address, or start '
            "it with --token, which lets any name in."
        )
    with client_of(address="http://captions.local", host="captions.local", open=True) as client:
        assert client.get("/healthz").status_code == 200


def test_only_our_own_page_and_programs_may_post():
    own = [
        {}, {"Origin": "http://127.0.0.1:7860"}, {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://captions.example"},  # behind a proxy that changes Host
        {"Host": "localhost", "Origin": "http://localhost"}, {"Host": "localhost:443", "Origin": "https://localhost"},
    ]  # fmt: skip
    origins = [
        *("https://evil.example", "null", "http://127.0.0.1:7861", "http://127.0.0.1", "file://127.0.0.1:7860"),
        "http://127.0.0.1:7860.evil.example",
    ]
    foreign = [{"Origin": origin} for origin in origins]
    foreign += [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:7860"}]
    with client_of() as client:
        assert [caption(client, **headers).status_code for headers in own] == [200] * len(own)
        for headers in foreign:
            answer = caption(client, **headers)
            told = "may not use this server; only its own page and programs may."
            assert answer.status_code == 403 and told in answer.json()["detail"]
            preflight = client.options("/v1/captions", headers={**headers, "Access-Control-Request-Method": "POST"})
            for one in (answer, preflight):
                assert "access-control-allow-origin" not in one.headers


def test_without_the_token_only_health_is_answered():
    with client_of(**OTHERS) as client:
        for path in ("/", "/v1/captioners", "/docs", "/openapi.json", "/nothing"):
            answer = client.get(path)
            assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer"), path
        assert caption(client).json()["detail"].startswith("This server asks for its token; send it as Authorization")
        assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
        for given in (f"Bearer {TOKEN}", f"bearer  {TOKEN}"):
            assert caption(client, Authorization=given).status_code == 200
        for given in ("Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"):
            assert caption(client, Authorization=given).status_code == 401


def test_the_link_sets_a_cookie_and_leaves_the_address():
    with client_of(**OTHERS) as client:
        answer = client.get("/", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie
        assert "Secure" not in cookie and TOKEN not in cookie and "sesame" not in cookie
        assert client.get("/").status_code == 200  # the client keeps it
        assert caption(client).status_code == 200
    with client_of(**OTHERS) as client:
        name = cookie.partition("=")[0]
        assert client.get("/", headers={"Cookie": f"{name}={'0' * 64}"}).status_code == 401
        assert client.get("/v1/captioners", params={"token": TOKEN}).status_code == 401  # the page alone takes links
        assert caption(client, Cookie=f"{name}={TOKEN}").status_code == 401
    with client_of(address="https://captions.example", **OTHERS) as client:
        assert "Secure" in client.get("/", params={"token": TOKEN}).headers["set-cookie"]


def test_every_answer_has_the_headers_that_protect_it():
    with client_of(token=TOKEN) as client:
        signed = {"Authorization": f"Bearer {TOKEN}"}
        answers = [client.get(path, headers=signed) for path in ("/", "/openapi.json", "/v1/captioners", "/x")]
        for answer in [*answers, client.get("/"), caption(client)]:
            names = ("x-content-type-options", "x-frame-options", "referrer-policy", "cache-control")
            assert [answer.headers[name] for name in names] == ["nosniff", "DENY", "no-referrer", "no-store"]
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy and "http" not in policy
        docs = client.get("/docs", headers=signed).headers["content-security-policy"]  # FastAPI's own page
        assert "https://cdn.jsdelivr.net" in docs and docs.startswith("default-src 'none'; connect-src 'self'")


def test_a_large_body_is_refused_whole_and_in_parts():
    with client_of(max_body=10_000) as client:
        for content, size in ((bytes(11_000), "11,000 bytes"), ((bytes(1000) for _ in range(11)), "more than that")):
            answer = client.post("/v1/captions", content=content, headers=PNG)
            sentence = f"A body may have 10,000 bytes, and this one has {size}; send a smaller one."
            assert (answer.status_code, answer.json()["detail"]) == (413, sentence)
