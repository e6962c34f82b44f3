"""Which answer a request gets, or which model it goes to."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from urllib.parse import unquote

from . import answers, body
from .answers import error
from .fields import RuleSet, Violation
from .http import Answer, Malformed, Request
from .keyring import Keyring
from .settings import Listener, Model, Settings

MOST_LOGGED = 128
"""Characters of a model's name that the log shows."""
SALT = "rigwright cache salt"
STREAM_OPTIONS = ("chat/completions", "completions")
"""Paths whose streams have `stream_options`; those of the others name their tokens unasked."""
STREAM_MEMBERS = ("continuous_usage_stats", "include_obfuscation")
"""Of `stream_options`, beside `include_usage`: vLLM's, and OpenAI's."""
NAMED = 50
"""Models that an error names at most."""
_PATH = re.compile(r"[a-z][a-z0-9_/-]{0,63}")
_CHARSET = re.compile(r"""charset\s*=\s*"?([^\s;"]*)""")
_CHARSETS = {"utf-8", "utf8", "us-ascii"}


class Router:
    """Answers nginx, from settings and keys that may be changed between two requests."""

    def __init__(self, settings: Settings, keyring: Keyring) -> None:
        self.settings = settings
        self.keyring = keyring

    def answer(self, request: Request) -> Answer:
        """Answer one request of nginx."""
        path = request.target.partition("?")[0]
        try:
            if path == "/auth":
                return self._auth(request)
            if path.startswith("/route/"):
                return self._route(request, path[len("/route/") :])
            if path == "/models":
                return self._models(request, None)
            if path.startswith("/models/"):
                return self._models(request, unquote(path[len("/models/") :]))
            if path == "/health":
                return answers.health(self.settings)
            if path == "/state":
                return answers.json_answer(200, {"digest": self.settings.digest, "keys": self.keyring.keys.digest})
        except body.InvalidBody as refused:
            return error(400, refused.message, refused.param)
        except Malformed as malformed:
            return error(malformed.status, malformed.message)
        return error(404, "there is no such path")

    def _listener(self, request: Request) -> Listener:
        """Where nginx says that a request came in.

        Raises:
            Malformed: at one of which the settings know nothing: they are another generation's than nginx's.
        """
        listener = self.settings.listeners.get(request.header("x-rw-listener") or "")
        if listener is None:
            raise Malformed(500, "the router does not know this listener")
        return listener

    def _auth(self, request: Request) -> Answer:
        if not self._listener(request).keys:
            return Answer(204, (("X-Rw-Key", ""), ("X-Rw-Name", ""), ("X-Rw-Streams", "")))
        sent = request.headers.get("authorization", ())
        # Anthropic's clients send the bare key; next to a bearer token it may be one for another server
        sent = sent or tuple(f"Bearer {one}" for one in request.headers.get("x-api-key", ()))
        key = self.keyring.whose(sent[0]) if len(sent) == 1 else None
        if key is None:
            return Answer(401, (("X-Rw-Refusal", "key"),))
        if wait := self.keyring.wait(key):
            refusal = (("X-Rw-Refusal", "rate"), ("X-Rw-Retry", str(wait)))
            return Answer(403, (*refusal, ("X-Rw-Key", key.id), ("X-Rw-Name", key.name)))
        streams = "" if key.streams is None else str(key.streams)
        limits = (key.tokens_per_minute, key.tokens_per_day, key.tokens_per_month)
        tokens = " ".join("-" if one is None else str(one) for one in limits)
        right = "none" if not key.wake else "evict" if key.evict else "wake"
        of_key = (("X-Rw-Key", key.id), ("X-Rw-Name", key.name), ("X-Rw-Streams", streams), ("X-Rw-Tokens", tokens))
        return Answer(204, (*of_key, ("X-Rw-Wake", right)))

    def _rights(self, request: Request) -> list[str] | None:
        """The models that a caller may use; None: the key is not known any more."""
        listener = self._listener(request)
        limits = [listener.models]
        if listener.keys:
            key = self.keyring.keys.by_id.get(request.header("x-rw-key") or "")
            if key is None:
                return None
            limits.append(key.models)
        allowed = [{self.settings.served(one) for one in limit} for limit in limits if limit is not None]
        return [name for name in self.settings.models if all(name in limit for limit in allowed)]

    def _models(self, request: Request, name: str | None) -> Answer:
        rights = self._rights(request)
        if rights is None:
            return _unknown_key()
        if name is None:
            return answers.models({one: root for root in rights for one in self.settings.names(root)})
        root = self.settings.served(name)
        if root not in rights:
            return _unknown_model(name, rights)
        return answers.json_answer(200, answers.card(name, root))

    def _route(self, request: Request, path: str) -> Answer:
        if request.method != "POST":
            return error(405, "only POST is served here", None, None, ("Allow", "POST"))
        if refusal := _unreadable(request):
            return refusal
        rights = self._rights(request)
        if rights is None:
            return _unknown_key()
        asked = body.read(request.body)
        name = self.settings.served(asked.model)
        if name not in rights:
            return _unknown_model(asked.model, rights)
        model = self.settings.models[name]
        if path not in model.paths:
            shown = f"/v1/{path}" if _PATH.fullmatch(path) else "this path"
            has = ", ".join(f"/v1/{one}" for one in model.paths)
            return error(404, f"{name} does not serve {shown}; it has {has}", code="path_not_found")
        _judge_fields(model.rules[path], asked, model.salted)
        first, end = asked.span
        salt = self._salt(request) if model.salted else ""
        return Answer(
            204,
            (
                ("X-Accel-Redirect", "@serve"),
                ("X-Rw-Group", name),
                ("X-Rw-Asked", "".join(one if " " <= one <= "~" else "?" for one in asked.model[:MOST_LOGGED])),
                ("X-Rw-Model", json.dumps(asked.model)),
                ("X-Rw-Span", f"{first}-{end}"),
                ("X-Rw-Salt", salt),
                ("X-Rw-Sticky", _sticky(request, model, asked)),
                ("X-Rw-Stream", "1" if asked.stream else "0"),
                *(_usage_edit(asked) if path in STREAM_OPTIONS and model.usage_on_request else ()),
            ),
        )

    def _salt(self, request: Request) -> str:
        """What keeps a caller's prompts apart from others' in an engine's prefix cache: made of what is kept of the
        key, so that it stays over restarts, is known to no client, and says nothing of the key.
        """
        key = self.keyring.keys.by_id.get(request.header("x-rw-key") or "")
        if key is None or not self._listener(request).keys:
            return hashlib.sha256(f"{SALT} {request.header('x-rw-listener')}".encode()).hexdigest()
        return hmac.new(bytes.fromhex(key.sha256), SALT.encode(), hashlib.sha256).hexdigest()


def _judge_fields(rules: RuleSet, asked: body.ParsedBody, salted: bool) -> None:
    """Refuse a body with a field that could harm an engine.

    Raises:
        InvalidBody: it has one.
    """
    for key in asked.members:
        name = key.partition("\0")[0].lower()
        if salted and name == "cache_salt":
            raise body.InvalidBody("cache_salt must not be sent: this gateway sets one for each key", name)
        if name != key and name in rules.names:
            raise body.InvalidBody(f"a member of the body has a name that could be read as {name}", name)
    try:
        rules.judge(asked.members, asked.sizes)
    except Violation as violation:
        raise body.InvalidBody(str(violation), violation.place) from None


def _usage_edit(asked: body.ParsedBody) -> tuple[tuple[str, str], ...]:
    """Where and how the body changes, so that its stream names its tokens; nothing if it does so already.

    Members that engines know keep their values. What is no object is the engine's to refuse.
    """
    options = asked.members.get("stream_options")
    if not asked.stream or not (options is None or isinstance(options, dict)):
        return ()
    if options and options.get("include_usage") is True:
        return ()
    kept = {name: options[name] for name in STREAM_MEMBERS if isinstance(options.get(name), bool)} if options else {}
    value = json.dumps({"include_usage": True, **kept}, separators=(",", ":"))
    if "stream_options" in asked.spans:
        (first, end), text = asked.spans["stream_options"], value
    else:
        first = end = asked.span[1]
        text = f',"stream_options":{value}'
    return (("X-Rw-Edit", f"{first}-{end}"), ("X-Rw-Edit-Text", json.dumps(text)))


def _sticky(request: Request, model: Model, asked: body.ParsedBody) -> str:
    if model.sticky == "conversation":
        return body.beginning(asked)
    value = request.header(model.sticky.partition(":")[2]) if model.sticky else None
    return hashlib.sha256(value.encode("latin-1")).hexdigest()[:32] if value else ""


def _unreadable(request: Request) -> Answer | None:
    """Why a body cannot be read by what its headers say; its content is judged whatever its type, for curl sends that
    of a form where nobody tells it otherwise.
    """
    encoding = (request.header("content-encoding") or "identity").lower()
    if encoding != "identity":
        return error(415, "the body is encoded: send it without a Content-Encoding")
    kind = (request.header("content-type") or "").lower()
    if kind.startswith("multipart/"):
        return error(415, "multipart bodies are not served: send JSON")
    if not _CHARSETS.issuperset(_CHARSET.findall(kind)):
        return error(415, "the body must be UTF-8")
    return None


def _unknown_key() -> Answer:
    return error(401, "the key is not valid any more", code="invalid_api_key")


def _unknown_model(asked: str, rights: list[str]) -> Answer:
    shown = ", ".join(rights[:NAMED]) + (f" and {len(rights) - NAMED} more" if len(rights) > NAMED else "")
    has = f"you may use: {shown}" if rights else "you may use none"
    name = asked if len(asked) <= body.MOST_NAME else f"{asked[: body.MOST_NAME]}…"
    return error(404, f"there is no model {name!r} here; {has}", "model", "model_not_found")
