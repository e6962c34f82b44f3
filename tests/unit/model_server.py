"""A scripted model behind OpenAI's API, on a unix socket: a stand-in of an engine, which misbehaves on order."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any, Literal

from tests.unit.text_handler import TextHandler

JSON = "application/json"
KEY = "a-key"
MODEL = "scripted"
NEEDLE = re.compile(r"the secret word of [a-z0-9]+ is ([A-Z]{6,})")
TEXT = (
    "rivers carve valleys while patient winds gather above distant mountains and quiet lakes mirror every cloud "
    "before evening brings lanterns across harbours where sailors trade stories about storms islands whales and maps "
    "drawn by careful hands under flickering candles long after midnight when only owls watch the silent frozen shore"
)

WORDS = TEXT.split()
Fault = Literal[
    "",
    "empty",
    "call in content",
    "one piece",
    "same line",
    "error with 200",
    "lost stream",
    "no end",
    "wedged",
    "no call",
    "no thought",
    "no needle",
    "wrong city",
    "not json",
    "other model",
    "slower",
    "grows",
    "garbage",
    "endless",
]


@dataclass
class ScriptedModel:
    """The model, and what was asked of it."""

    fault: Fault = ""
    name: str = MODEL
    drafts: bool = True
    """Whether it guesses ahead."""
    accept: int = 2
    """Guessed tokens of each step that are right."""
    gap_s: float = 0.0
    """Seconds before each token."""
    starved_s: float = 0.0
    """Seconds before a request of any kind is read, as on a processor that others keep busy."""
    asleep: bool = False
    """Whether its properties say that its model is unloaded, as llama.cpp's do."""
    wedges_after: int = 1 << 30
    """Requests that are answered before it hangs."""
    revoked_after: int = 1 << 30
    """Requests that are answered before the key becomes invalid."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=lambda: {"iteration_tokens_total_count": 0.0})
    running: int = 0
    looked: int = 0
    """How often it was asked what it counts."""
    freed: threading.Event = field(default_factory=threading.Event)
    """The event that requests to a wedged engine wait for."""

    def count_metric(self, name: str, more: float) -> None:
        self.counters[name] = self.counters.get(name, 0) + more

    @property
    def render_metrics(self) -> str:
        """As vLLM tells it."""
        lines = [f'vllm:{name}{{engine="0",model_name="{MODEL}"}} {value}' for name, value in self.counters.items()]
        lines += [f'vllm:num_requests_running{{engine="0"}} {self.running}.0', 'vllm:num_requests_waiting{a="b"} 0.0']
        lines += ["# HELP nothing", 'vllm:kv_cache_usage_perc{engine="0"} 0.25', "vllm:num_preemptions_total 0.0"]
        return "\n".join(lines) + "\n"

    def answer_chat(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Its answer: reasoning, content, a tool call, and why it ends."""
        messages = asked["messages"]
        last = messages[-1]
        text = last["content"] if isinstance(last["content"], str) else json.dumps(last["content"])
        everything = " ".join(str(one.get("content")) for one in messages)
        wanted = int(asked.get("max_tokens", 16))
        thinks = (asked.get("chat_template_kwargs") or {}).get("enable_thinking", False)
        said: dict[str, Any] = {"reasoning": "", "content": "", "call": None, "finish": "stop"}
        if thinks and self.fault != "no thought":
            said["reasoning"] = "First I look at what is asked, then I add the two numbers, and then I say so. " * 2
        if self.fault == "empty":
            return said
        if asked.get("tools") and last["role"] != "tool" and self.fault != "no call":
            named = asked["tools"][0]["function"]["name"]
            call = {"name": named, "arguments": json.dumps({"city": "Paris"})}
            if self.fault == "call in content":
                return said | {"content": f"<tool_call>{json.dumps(call)}</tool_call>"}
            return said | {"call": call, "finish": "tool_calls"}
        found = NEEDLE.findall(everything)
        if "response_format" in asked and self.fault != "not json":
            schema = asked["response_format"]["json_schema"]["schema"]["properties"]
            said["content"] = json.dumps(
                {key: (2 if one["type"] == "integer" else "Paris") for key, one in schema.items()}
            )
        elif "image_url" in text:
            said["content"] = "It is red."
        elif found and self.fault != "no needle":
            said["content"] = f"The word is {found[-1]}."
        elif "capital" in text:
            said["content"] = "Lyon it is." if self.fault == "wrong city" else "The capital of France is Paris."
        elif "2+2" in text.replace(" ", ""):
            said["content"] = "2 + 2 = 4"
        elif wanted <= 1:
            said |= {"content": "I", "finish": "length"}
        else:
            said["content"] = self._essay_text(min(wanted, 600))
        return said

    def _essay_text(self, words: int) -> str:
        if self.fault == "same line":
            return "and so it goes on and on\n" * (words // 7)
        lines = [" ".join(WORDS[(7 * line + 3 * at) % len(WORDS)] for at in range(8)) for line in range(words // 8)]
        return "\n".join(f"{number}. {line}" for number, line in enumerate(lines))


class ModelServerHandler(TextHandler):
    """Hands each request to the model."""

    protocol_version = "HTTP/1.1"
    model: ScriptedModel

    def do_GET(self) -> None:
        time.sleep(self.model.starved_s)
        if self.path == "/metrics":
            self.model.looked += 1
            self.send_text(200, self.model.render_metrics, "text/plain; version=0.0.4")
        elif self.headers.get("Authorization") != f"Bearer {KEY}":
            self.send_text(401, '{"error": "Unauthorized"}', JSON)
        elif self.path == "/props":
            self.send_text(200, json.dumps({"total_slots": 1, "is_sleeping": self.model.asleep}), JSON)
        elif self.path == "/v1/models":
            name = "somebody-else" if self.model.fault == "other model" else self.model.name
            self.send_text(200, json.dumps({"object": "list", "data": [{"id": name, "max_model_len": 4096}]}), JSON)
        else:
            self.send_text(404, "{}", JSON)

    def do_POST(self) -> None:
        time.sleep(self.model.starved_s)
        body = self.read_body()
        revoked = len(self.model.asked) >= self.model.revoked_after
        if revoked or self.headers.get("Authorization") != f"Bearer {KEY}":
            self.send_text(401, '{"error": "Unauthorized"}', JSON)
            return
        asked = json.loads(body)
        self.model.asked.append(asked)
        self.model.running += 1
        try:
            # the client may be gone
            with suppress(OSError):
                self._answer_chat(asked)
        finally:
            self.model.running -= 1

    def _answer_chat(self, asked: dict[str, Any]) -> None:
        fault = self.model.fault
        if fault == "wedged" or len(self.model.asked) > self.model.wedges_after:
            self.model.freed.wait(60)
            self.close_connection = True
            return
        if fault == "error with 200":
            self.send_text(200, json.dumps({"error": {"message": "no room", "code": 500}}), JSON)
            return
        if fault == "garbage":
            self.send_text(200, "<html>it works</html>", "text/html")
            return
        said = self.model.answer_chat(asked)
        pieces = self._split_message(said)
        slow = 0.4 / max(1, len(pieces)) * (len(self.model.asked) > 7) if fault == "slower" else 0.0
        prompt = sum(len(str(one.get("content"))) for one in asked["messages"]) // 4
        tokens = max(1, len(pieces))
        self.model.count_metric("iteration_tokens_total_count", tokens)
        self.model.count_metric("prompt_tokens_total", prompt)
        self.model.count_metric("generation_tokens_total", tokens)
        if self.model.drafts:
            self.model.count_metric("spec_decode_num_drafts_total", tokens)
            self.model.count_metric("spec_decode_num_draft_tokens_total", 3 * tokens)
            self.model.count_metric("spec_decode_num_accepted_tokens_total", self.model.accept * tokens)
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        if asked.get("stream"):
            self._stream_answer(said, pieces, usage, self.model.gap_s + slow)
            return
        time.sleep((self.model.gap_s + slow) * tokens)
        message = {"role": "assistant", "content": said["content"] or None, "reasoning": said["reasoning"] or None}
        message["tool_calls"] = [{"id": "1", "type": "function", "function": said["call"]}] if said["call"] else []
        choice = {"index": 0, "message": message, "finish_reason": said["finish"]}
        self.send_text(200, json.dumps({"model": MODEL, "choices": [choice], "usage": usage}), JSON)

    def _split_message(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        found = [{"reasoning": word} for word in re.findall(r"\S+\s*", said["reasoning"])]
        found += [{"content": word} for word in re.findall(r"\S+\s*", said["content"])]
        if said["call"]:
            begin = {
                "index": 0,
                "id": "1",
                "type": "function",
                "function": {"name": said["call"]["name"], "arguments": ""},
            }
            found.append({"tool_calls": [begin]})
            rest = said["call"]["arguments"]
            found += [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in (rest[:5], rest[5:])]
        return found

    def _stream_answer(
        self, said: dict[str, Any], pieces: list[dict[str, Any]], usage: dict[str, int], gap: float
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        fault = self.model.fault
        events = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        events += [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
        events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": said["finish"]}]}]
        events += [{"choices": [], "usage": usage}]
        texts = [f"data: {json.dumps(event)}\n\n" for event in events]
        texts += ["data: [DONE]\n\n"] if fault != "no end" else []
        if fault == "lost stream":
            del texts[len(texts) // 2 :]
        if fault == "one piece":
            time.sleep(max(gap * len(texts), 0.6))
            texts, gap = ["".join(texts)], 0.0
        while True:
            for text in texts:
                time.sleep(gap)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(text.encode()), text.encode()))
                self.wfile.flush()
            if fault != "endless":
                break
        if fault == "lost stream":
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")


class ModelSocketServer(ThreadingUnixStreamServer):
    """A server on a unix socket."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


@contextmanager
def run_model_server(model: ScriptedModel, socket: Path) -> Iterator[ScriptedModel]:
    """A server while the block runs."""
    bound = type("Bound", (ModelServerHandler,), {"model": model})
    with ModelSocketServer(str(socket), bound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield model
        finally:
            model.freed.set()
            server.shutdown()
            thread.join()
